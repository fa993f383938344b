"""The command line of the benchmark: ``python -m bench run``, ``open``, ``memory``, ``geometry``, ``write``, ``report``."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from . import systems

_FOLDER = Path("bench-data")


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the tables for the docs")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="where the data goes (removed afterwards)")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="nandarray beside its peers, in one run")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="patterns, systems, cache states: the main benchmark")
    _output(run)
    run.add_argument("--quick", action="store_true", help="small arrays, one configuration a peer: minutes")
    run.add_argument("--size", choices=("full", "quick", "tiny"), help="size of the arrays alone")
    run.add_argument("--only", action="append", default=[], metavar="PATTERN", help="patterns whose name contains this")
    run.add_argument("--sections", nargs="+", default=[], metavar="NAME", help="2d 3d 4d 2d-lz4 2d-zstd")
    run.add_argument(
        "--systems", nargs="+", metavar="NAME", help="labels or peers, or 'all': " + " ".join(systems.LABELS)
    )
    run.add_argument("--rounds", type=int, help="warm rounds")
    run.add_argument("--budget", type=float, help="seconds of a warm round")
    run.add_argument("--cold", choices=("auto", "drop_caches", "fadvise"), default="auto")
    show = commands.add_parser("report", help="print a run saved by --json again, judged anew")
    show.add_argument("file", type=Path)
    show.add_argument("--markdown", type=Path, metavar="FILE")
    return parser


def _labels(wanted: list[str] | None, *, quick: bool) -> tuple[str, ...]:
    if wanted is None:
        return systems.QUICK if quick else systems.DEFAULT
    if wanted == ["all"]:
        return systems.LABELS
    labels = [label for label in systems.LABELS if label in wanted or label.split("/")[0] in wanted]
    unknown = [name for name in wanted if not any(name in (label, label.split("/")[0]) for label in labels)]
    if unknown:
        raise SystemExit(f"unknown system {', '.join(unknown)}; known: {', '.join(systems.LABELS)}")
    return tuple(labels)


def _run(arguments: argparse.Namespace, command: str) -> int:
    from . import report
    from .runner import Runner, Settings
    from .sections import sections

    size = arguments.size or ("quick" if arguments.quick else "full")
    labels = _labels(arguments.systems, quick=arguments.quick)
    settings = Settings(
        folder=arguments.folder,
        size=size,
        only=tuple(arguments.only),
        systems=labels,
        sections=tuple(arguments.sections),
        cold=arguments.cold,
    )
    if arguments.quick:
        settings.budget, settings.cold_budget, settings.write_rounds, settings.cold_rounds = 0.05, 0.1, 1, 1
    settings.rounds = arguments.rounds or settings.rounds
    settings.budget = arguments.budget or settings.budget
    results = Runner(settings, lambda text: print(text, file=sys.stderr, flush=True)).run(sections(size))
    if arguments.json:
        report.save_json(results, arguments.json)
    if arguments.markdown:
        arguments.markdown.write_text(report.markdown(results, command))
    report.print_text(results, None if sys.stdout.isatty() else 220)
    return 0


def _show(arguments: argparse.Namespace, command: str) -> int:
    from . import report

    results = report.load_json(arguments.file)
    if arguments.markdown:
        arguments.markdown.write_text(report.markdown(results, command))
    report.print_text(results, None if sys.stdout.isatty() else 220)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark's command line."""
    arguments = _parser().parse_args(argv)
    command = "python -m bench " + shlex.join(sys.argv[1:] if argv is None else argv)
    return {"run": _run, "report": _show}[arguments.command](arguments, command)


if __name__ == "__main__":
    sys.exit(main())
