"""The command line: ``python -m bench run``, and the smaller measurements beside it (``--help`` lists them)."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from . import systems

_FOLDER = Path("bench-data")


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the tables for the docs")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="where the data goes (removed afterwards)")


def _packing_commands(commands: Any) -> None:
    packed = commands.add_parser("codecs", help="whole reads of packed integers, beside plain and LZ4 arrays")
    _output(packed)
    packed.add_argument("--rounds", type=int, default=5)
    packed.add_argument("--bytes", type=int, metavar="N", default=256 << 20, help="of the array")
    vectors = commands.add_parser("vectors", help="speed of vector instructions, beside scalar ones and QEMU")
    _output(vectors)
    vectors.add_argument("--rounds", type=int, default=3)


def _drive_commands(commands: Any) -> None:
    drive = commands.add_parser("nvme", help="NVMe/TCP on loopback beside nbdkit and a bare exchange of the same bytes")
    _output(drive)
    drive.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    drive.add_argument("--only", default="", metavar="PATTERN", help="patterns whose name contains this")
    pace = commands.add_parser("pace", help="latencies of a paced drive beside the described ones, on loopback")
    _output(pace)
    pace.add_argument("--count", type=int, default=2000, help="reads of each device")
    neighbour = commands.add_parser("neighbour", help="latencies of a host at a node, alone and beside attackers")
    _output(neighbour)
    neighbour.add_argument("--seconds", type=float, default=10.0, help="of each load")
    neighbour.add_argument("--only", default="", metavar="LOAD", help="loads whose name contains this")


def _offload_command(commands: Any) -> None:
    offload = commands.add_parser("offload", help="programs over an array of a store beside peers with it in memory")
    _output(offload)
    offload.add_argument("--bytes", type=int, metavar="N", help="of the array: 4 GiB, or what fits; of a door 2 GiB")
    offload.add_argument("--door", choices=["nvme"], help="at a node instead, beside reading all and Arrow Flight")
    offload.add_argument("--dask", action="store_true", help="a merge and a stencil instead, beside Dask on the store")
    offload.add_argument(
        "--dtype", nargs="+", default=["float64", "float32"], help="of its elements, one after the other"
    )
    offload.add_argument("--groups", action="store_true", help="group-by and median in bounded memory instead")
    offload.add_argument("--keys", type=int, default=1_000_000, metavar="N", help="different ones of --groups")
    offload.add_argument("--rounds", type=int, default=5)
    offload.add_argument("--forms", nargs="+", default=[], metavar="FORM", help="beside native: translated interpreted")
    offload.add_argument(
        "--only", nargs="+", metavar="OPERATION", help="sum minmax filter histogram filter-sum; with Dask merge stencil"
    )


def _core_commands(commands: Any) -> None:
    cores = commands.add_parser("cores", help="speed of timed cores: instructions a second, with and without caches")
    _output(cores)
    cores.add_argument("--rounds", type=int, default=3)
    coremark = commands.add_parser("coremark", help="CoreMark/MHz of described cores beside published ones (a wheel)")
    _output(coremark)
    coremark.set_defaults(rounds=1)


def _box_commands(commands: Any) -> None:
    boxes = commands.add_parser("boxes", help="random boxes of a volume for training, beside Zarr and plain reads")
    _output(boxes)
    boxes.add_argument("--side", type=int, default=832, help="of the cubic volume of float32: 2.3 GB")
    boxes.add_argument("--box", type=int, default=64, help="side of a box")
    boxes.add_argument("--count", type=int, default=512, help="boxes of a round")
    boxes.add_argument("--workers", type=int, default=4, help="threads that read")
    boxes.add_argument("--rounds", type=int, default=3)


def _parts_command(commands: Any) -> None:
    parts = commands.add_parser("parts", help="stores of parts, written by many processes, beside icechunk and Zarr")
    _output(parts)
    parts.add_argument("--bytes", "--size", type=int, metavar="N", default=1 << 30, help="of arrays: 1 GiB")
    parts.add_argument("--shards", type=int, metavar="N", default=4 << 20, help="of the array with very many")
    parts.add_argument("--writers", type=int, metavar="N", default=8, help="processes that commit side by side")
    parts.add_argument("--commits", type=int, metavar="N", default=8, help="of each of them")
    parts.add_argument("--rounds", type=int, default=3)
    parts.add_argument("--only", nargs="+", metavar="WORK", help="commits bytes touch open near")
    parts.add_argument("--peers", metavar="PYTHON", help="interpreter that has the peers: .venv/peers, or this one")


def _remote_command(commands: Any) -> None:
    remote = commands.add_parser("remote", help="stores behind HTTP beside bare ranges, Zarr and icechunk")
    _output(remote)
    remote.add_argument("--side", type=int, metavar="N", default=8192, help="of the square array of float32: 256 MiB")
    remote.add_argument("--bands", type=int, metavar="N", default=8, help="of two blocks that a work reads")
    remote.add_argument("--latency-ms", type=float, metavar="MS", default=20.0, help="of each answer")
    remote.add_argument("--rate", type=float, metavar="BYTES", default=200e6, help="a second, of the link")
    remote.add_argument("--rounds", type=int, default=5)
    remote.add_argument("--only", nargs="+", metavar="WORK", help="open element rows columns again")
    remote.add_argument("--peers", metavar="PYTHON", help="interpreter that has the peers: .venv/peers, or this one")


def _tables_command(commands: Any) -> None:
    tables = commands.add_parser("tables", help="tables of columns in engines, beside Parquet, Lance and Vortex")
    _output(tables)
    tables.add_argument("--scale", type=float, default=1.0, help="of TPC-H: 1 is a gigabyte of text")
    tables.add_argument("--bytes", "--size", type=int, metavar="N", default=10 << 30, help="of rows of 1 KiB: 10 GiB")
    tables.add_argument("--rounds", type=int, default=5)
    tables.add_argument("--only", nargs="+", metavar="WORK", help="q1 q6 sorted take scan size")
    tables.add_argument("--engines", nargs="+", metavar="ENGINE", help="DuckDB DataFusion Spark")
    tables.add_argument("--peers", metavar="PYTHON", help="interpreter that has the peers: .venv/peers, or this one")


def _side_commands(commands: Any) -> None:
    _packing_commands(commands)
    _tables_command(commands)
    _box_commands(commands)
    _parts_command(commands)
    _remote_command(commands)
    _drive_commands(commands)
    opening = commands.add_parser("open", help="a store with very many arrays, or very many building blocks")
    _output(opening)
    opening.add_argument("--arrays", type=int, default=100_000)
    opening.add_argument("--blocks", type=int, default=10_000_000)
    opening.add_argument("--systems", nargs="+", choices=("nandarray", "h5py", "zarr"))
    memory = commands.add_parser("memory", help="memory beside the buffer while a whole array is read")
    _output(memory)
    first = commands.add_parser("first-result", help="a small program from a new process to its first result")
    _output(first)
    first.add_argument("--rounds", type=int, default=5)
    programs = commands.add_parser(
        "programs", help="short programs, interpreted and translated: is translating worth it?"
    )
    _output(programs)
    programs.add_argument("--rounds", type=int, default=5)
    programs.add_argument("--only", nargs="+", metavar="PROGRAM", help="mix dct sha256 quicksort runs")
    _core_commands(commands)
    _offload_command(commands)
    schedule = commands.add_parser(
        "schedule", help="schedulers of kernels: decisions a CPU second; sessions beside pools"
    )
    _output(schedule)
    schedule.add_argument("--count", type=int, default=2_000, help="kernels of a run")
    model = commands.add_parser("model", help="the modelled clock beside MQSim and data sheets, and its speed")
    _output(model)
    sections = ("rows", "configurations", "sheets", "speed", "steady")
    model.add_argument("--section", action="append", default=[], choices=sections)
    model.add_argument("--only", default="", metavar="PRESET", help="data sheets of presets whose name contains this")
    model.add_argument("--short", action="store_true", help="a tenth of the requests")
    queue = commands.add_parser("queue", help="queues in shared memory, the cache of kernels, gathering")
    _output(queue)
    queue.add_argument("--records", type=int, default=100_000, help="records gathered (the issue's figure: 1000000)")
    queue.add_argument("--rows", type=int, default=65_536, help="rows of 4 KiB that they are drawn from")
    queue.add_argument("--rounds", type=int, default=3)
    queue.add_argument("--short", action="store_true", help="an eighth of the commands")
    card = commands.add_parser("gpu", help="kernels that fetch for themselves, checked and measured on a GPU")
    _output(card)
    card.add_argument("--short", action="store_true", help="small sizes")
    card.add_argument("--driver", default="libcuda.so.1", metavar="LIBRARY", help="of CUDA")
    card.add_argument("--cubin", type=Path, metavar="FILE", help="kernels that were compiled before")
    micro = commands.add_parser("micro", help="short reads, first looks, ways to bring cold pages")
    _output(micro)
    micro.add_argument("--section", action="append", default=[], choices=("small", "first", "disk"))
    micro.add_argument("--rounds", type=int, default=5)
    sweep = commands.add_parser("geometry", help="access unit against building block: what the file preset rests on")
    _output(sweep)
    sweep.add_argument("--pages", nargs="+", type=int, metavar="BYTES")
    sweep.add_argument("--blocks", nargs="+", type=int, metavar="BYTES")
    write = commands.add_parser("write", help="full write and overwrite beside the peers that survive a kill")
    _output(write)
    for parser in (memory, micro, sweep, write):
        parser.add_argument("--size", choices=("full", "quick", "tiny"), default="full")
    for parser in (memory, write):
        parser.add_argument("--systems", nargs="+", metavar="NAME", help="labels or peers, or 'all'")
    for parser in (sweep, write):
        parser.add_argument("--rounds", type=int, default=3)
        parser.add_argument("--cold", choices=("auto", "drop_caches", "fadvise"), default="auto")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="nandarray beside its peers, in one run")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="patterns, systems, cache states: the main benchmark")
    _output(run)
    run.add_argument("--quick", action="store_true", help="small arrays, one configuration a peer: minutes")
    run.add_argument("--size", choices=("full", "quick", "tiny"), help="size of the arrays alone")
    run.add_argument("--only", action="append", default=[], metavar="PATTERN", help="patterns whose name contains this")
    run.add_argument("--sections", nargs="+", default=[], metavar="NAME", help="2d 3d 3d+slabs 4d 2d-lz4 2d-zstd")
    run.add_argument(
        "--systems", nargs="+", metavar="NAME", help="labels or peers, or 'all': " + " ".join(systems.LABELS)
    )
    run.add_argument("--rounds", type=int, help="warm rounds")
    run.add_argument("--cold-rounds", type=int, help="cold and fresh rounds (default 2)")
    states = ("warm", "fresh", "cold", "part")
    run.add_argument("--states", nargs="+", choices=states, help="states of the cache (default all but part)")
    run.add_argument("--budget", type=float, help="seconds of a warm round")
    run.add_argument("--minutes", type=float, metavar="N", help="begin no further pattern after so many")
    run.add_argument("--resume", action="store_true", help="go on with what the file of --json has")
    run.add_argument("--cold", choices=("auto", "drop_caches", "fadvise"), default="auto")
    _side_commands(commands)
    show = commands.add_parser("report", help="print runs saved by --json again as one, judged anew")
    show.add_argument("files", type=Path, nargs="+", metavar="FILE")
    show.add_argument("--markdown", type=Path, metavar="FILE")
    return parser


def _labels(wanted: list[str] | None, *, quick: bool) -> tuple[str, ...]:
    if wanted is None:
        return systems.QUICK if quick else systems.DEFAULT
    if wanted == ["all"]:
        return systems.LABELS
    labels = [label for label in systems.LABELS if label in wanted or label.split("/")[0] in wanted]
    labels += [name for name in wanted if name not in labels and systems.is_label(name)]
    unknown = [name for name in wanted if not any(name in (label, label.split("/")[0]) for label in labels)]
    if unknown:
        raise SystemExit(f"unknown system {', '.join(unknown)}; known: {', '.join(systems.LABELS)}")
    return tuple(labels)


def _run(arguments: argparse.Namespace, command: str) -> int:
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
        settings.budget, settings.cold_budget = 0.05, 0.1
        settings.rounds, settings.write_rounds, settings.cold_rounds = 2, 1, 1
    settings.rounds = arguments.rounds or settings.rounds
    settings.cold_rounds = arguments.cold_rounds or settings.cold_rounds
    settings.states = tuple(arguments.states or settings.states)
    settings.budget = arguments.budget or settings.budget
    settings.minutes = arguments.minutes
    before = _before(arguments, settings) if arguments.resume else None
    results = Runner(settings, _say, _keeper(arguments), before).run(sections(size))
    _finish(results, arguments, command)
    return 0


def _before(arguments: argparse.Namespace, settings: Any) -> Any:
    """Load the run to go on with; None if there is none yet."""
    from . import report

    if arguments.json is None:
        raise SystemExit("--resume goes on with the file of --json FILE")
    if not arguments.json.exists():
        return None
    found = report.load_json(arguments.json)
    for what in ("size", "rounds", "budget", "systems"):
        was, now = found.settings.get(what), getattr(settings, what)
        if was != (list(now) if isinstance(now, tuple) else now):
            raise SystemExit(f"{arguments.json} holds a run with {what} {was}; this one has {now}")
    return found


def _keeper(arguments: argparse.Namespace) -> Any:
    from . import report

    path: Path | None = arguments.json
    return (lambda results: None) if path is None else (lambda results: report.save_json(results, path))


def _finish(results: Any, arguments: argparse.Namespace, command: str, *, verdicts: bool = True) -> None:
    from . import report

    if arguments.json:
        report.save_json(results, arguments.json)
    if arguments.markdown:
        arguments.markdown.write_text(report.markdown(results, command))
    report.print_text(results, None if sys.stdout.isatty() else 220, verdicts=verdicts)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _geometry(arguments: argparse.Namespace, command: str) -> int:
    from . import geometry
    from .runner import Runner, Settings

    labels = geometry.labels(tuple(arguments.pages or geometry.PAGES), tuple(arguments.blocks or geometry.BLOCKS))
    settings = Settings(arguments.folder, arguments.size, rounds=arguments.rounds, systems=labels, cold=arguments.cold)
    results = Runner(settings, _say, _keeper(arguments)).run([geometry.section(arguments.size)])
    _finish(results, arguments, command, verdicts=False)
    print("\ngeometries by the mean of their times, relative to the preset in force (below 1 is better than it)")
    for label, mean, worst, row in geometry.ranking(results):
        print(f"  {label:28} mean {mean:.2f}, worst {worst:.2f} in {row}")
    return 0


def _write(arguments: argparse.Namespace, command: str) -> int:
    from .patterns import FLUSHED
    from .runner import Runner, Settings
    from .sections import Section, sections

    survivors = [label for label in systems.LABELS if systems.info(label).survives_kill]
    labels = _labels(arguments.systems or [*survivors, "ref/256"], quick=False)
    settings = Settings(arguments.folder, arguments.size, rounds=arguments.rounds, systems=labels, cold=arguments.cold)
    settings.write_rounds = arguments.rounds
    wanted = []
    for section in sections(arguments.size):
        writes = tuple(p for p in section.patterns if p.kind != "read")
        if "overwrite" in [p.name for p in writes]:
            writes = (*writes, FLUSHED)
        wanted.append(Section(section.name, section.title, section.spec, writes))
    _finish(Runner(settings, _say, _keeper(arguments)).run(wanted), arguments, command)
    return 0


def _lines(arguments: argparse.Namespace, command: str, header: list[str], rows: list[list[str]], data: str) -> None:
    """Print and save the table of a measurement that is not made of patterns."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)))
    if arguments.json:
        arguments.json.write_text(data)
    if arguments.markdown:
        table = ["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]]
        arguments.markdown.write_text("\n".join([f"Made by `{command}`.", "", *table]) + "\n")


def _schedule(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import schedule

    found = schedule.run(arguments.folder, arguments.count)
    if arguments.json:
        arguments.json.write_text(json.dumps({"command": command, **found}, indent=1))
    return 0


def _open(arguments: argparse.Namespace, command: str) -> int:
    from . import opening

    found = opening.measure(arguments.folder, arguments.arrays, arguments.blocks, arguments.systems)
    header = ["system", "what", "open and read one", "open", "then list all"]
    header += ["peak memory", "on disk", "making it", "promise"]
    rows = []
    for one in found:
        kept = one.seconds < 1 and one.peak_bytes < 300e6
        promise = ("kept" if kept else "MISSED") if one.system == "nandarray" else ""
        times = [f"{t:.3f} s" for t in (one.seconds, one.open_seconds, one.names_seconds)]
        sizes = [f"{one.peak_bytes / 1e6:.0f} MB", f"{one.file_bytes / 1e6:.0f} MB"]
        rows.append([one.system, one.what, *times, *sizes, f"{one.make_seconds:.0f} s", promise])
    print("promised: under a second and under 300 MB")
    _lines(arguments, command, header, rows, opening.as_json(found))
    return 0


def _first(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import first_result

    found = first_result.measure(arguments.rounds)
    header = [
        "system",
        "function",
        "programs",
        "import, s",
        "to the result, s",
        "of these the offload, s",
        "process, s",
    ]
    rows = []
    for one in found:
        times = (one.import_s, one.result_s, one.offload_s, one.process_s)
        rows.append([one.what, one.function, one.state, *(f"{time:.3f}" for time in times)])
    _lines(arguments, command, header, rows, json.dumps([vars(one) for one in found], indent=1))
    return 0


def _groups(arguments: argparse.Namespace, command: str, size: int) -> int:
    import json

    from . import groups

    operations = tuple(arguments.only or groups.OPERATIONS)
    rows = groups.measure(arguments.folder, size=size, keys=arguments.keys, operations=operations, say=_say)
    print(f"promised: ours in no more than {groups.BUDGET >> 20} MiB of private memory")
    _lines(arguments, command, *groups.table(rows, size), json.dumps([vars(one) for one in rows], indent=1))
    return 0


def _offload(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import offload, offload_door, offload_pairs

    if arguments.dask:
        pairs = offload_pairs.measure(
            arguments.folder,
            size=arguments.bytes or offload_pairs.DEFAULT_BYTES,
            rounds=arguments.rounds,
            operations=tuple(arguments.only or offload_pairs.OPERATIONS),
            say=_say,
        )
        print("promised: no slower than Dask on the same store, in 256 MiB of memory")
        _lines(arguments, command, *offload_pairs.table(pairs), json.dumps([vars(one) for one in pairs], indent=1))
        return 0
    if arguments.door:
        size = arguments.bytes or offload_door.DEFAULT_BYTES
        rows = offload_door.measure(arguments.folder, size=size, rounds=arguments.rounds, say=_say)
        print(
            f"promised: at the node within {offload_door.WITHIN:g} times the local offload's time, "
            f"less than {offload_door.CPU_S:g} s of the client's processor time"
        )
        _lines(arguments, command, *offload_door.table(rows), json.dumps([vars(one) for one in rows], indent=1))
        return 0
    if arguments.groups:
        return _groups(arguments, command, arguments.bytes or offload.default_size())
    found = []
    for dtype in arguments.dtype:
        found += offload.measure(
            arguments.folder,
            size=arguments.bytes or offload.default_size(),
            dtype=dtype,
            rounds=arguments.rounds,
            operations=tuple(arguments.only or offload.OPERATIONS),
            wanted_forms=tuple(arguments.forms),
            say=_say,
        )
    print(
        "promised: native no slower than any peer; translated within 3 times of native's processor time, "
        "histogram within 4; a few blocks a core of memory"
    )
    _lines(arguments, command, *offload.table(found), json.dumps([vars(one) for one in found], indent=1))
    missed = [one for one in found if one.verdict.startswith("MISSED")]
    lines = [f"{one.dtype}: {one.operation}: {one.system}: {one.verdict}" for one in missed]
    print("\n".join(lines) or "every promise kept")
    return 0


def _remote(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import remote

    sizes = remote.Sizes(
        side=arguments.side,
        bands=arguments.bands,
        latency_s=arguments.latency_ms / 1e3,
        rate=arguments.rate,
        rounds=arguments.rounds,
    )
    works = tuple(arguments.only or remote.WORKS)
    found = remote.measure(arguments.folder, sizes, works=works, peers=arguments.peers, say=_say)
    _lines(arguments, command, *remote.table(found), json.dumps([vars(one) for one in found], indent=1))
    return 0


def _parts(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import parts

    works = tuple(arguments.only or parts.WORKS)
    if unknown := [work for work in works if work not in parts.WORKS]:
        raise SystemExit(f"unknown work {', '.join(unknown)}; known: {', '.join(parts.WORKS)}")
    sizes = parts.Sizes(arguments.bytes, arguments.shards, arguments.writers, arguments.commits, arguments.rounds)
    rows = parts.measure(arguments.folder, sizes, works=works, peers=arguments.peers, say=_say)
    _lines(arguments, command, *parts.table(rows), json.dumps([vars(one) for one in rows], indent=1))
    return 0


def _tables(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import tables

    works, engines = tuple(arguments.only or tables.WORKS), tuple(arguments.engines or tables.ENGINES)
    for what, given, known in (("work", works, tables.WORKS), ("engine", engines, tables.ENGINES)):
        if unknown := [one for one in given if one not in known]:
            raise SystemExit(f"unknown {what} {', '.join(unknown)}; known: {', '.join(known)}")
    sizes = {"scale": arguments.scale, "rows": max(1, arguments.bytes // 1024), "rounds": arguments.rounds}
    rows = tables.measure(arguments.folder, **sizes, works=works, engines=engines, peers=arguments.peers, say=_say)
    _lines(arguments, command, *tables.table(rows), json.dumps([vars(one) for one in rows], indent=1))
    return 0


def _programs(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import programs

    found = programs.measure(arguments.folder, rounds=arguments.rounds, only=tuple(arguments.only or ()), say=_say)
    print(
        f"promised: no more CPU time than {programs.FACTOR} times interpreting it and {programs.GRACE_S * 1e3:.0f} ms"
    )
    _lines(arguments, command, *programs.table(found), json.dumps([vars(one) for one in found], indent=1))
    missed = [one for one in found if one.verdict != "kept"]
    print("\n".join(f"{one.name}: {one.verdict}" for one in missed) or "every promise kept")
    return 0


def _cores(arguments: argparse.Namespace, command: str) -> int:
    from . import cores

    return _speeds(arguments, command, cores)


def _coremark(arguments: argparse.Namespace, command: str) -> int:
    from . import coremark

    try:
        return _speeds(arguments, command, coremark)
    except coremark.NoCoreMarkError as error:
        print(error, file=sys.stderr)
        return 2


def _speeds(arguments: argparse.Namespace, command: str, module: Any) -> int:
    """Measure the rows of a module of speeds, and print them with the promises that they miss."""
    import json

    found = module.measure(arguments.folder, rounds=arguments.rounds, say=_say)
    header, rows = module.table(found)
    _lines(arguments, command, header, rows, json.dumps([vars(one) for one in found], indent=1))
    missed = [one for one in found if one.verdict.startswith("MISSED")]
    print("\n".join(f"{one.name}: {one.verdict}" for one in missed) or "every promise kept")
    return 0


def _codecs(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import codecs

    found = codecs.measure(arguments.folder, rounds=arguments.rounds, size=arguments.bytes, say=_say)
    _lines(arguments, command, *codecs.table(found), json.dumps([vars(one) for one in found], indent=1))
    return 0


def _vectors(arguments: argparse.Namespace, command: str) -> int:
    from . import vectors

    return _speeds(arguments, command, vectors)


def _boxes(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import boxes

    sizes = {name: getattr(arguments, name) for name in ("side", "box", "count", "workers", "rounds")}
    found = boxes.measure(arguments.folder, **sizes, say=_say)
    _lines(arguments, command, *boxes.table(found), json.dumps([vars(one) for one in found], indent=1))
    return 0


def _nvme(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import nvme

    found = nvme.measure(arguments.folder, arguments.seconds, arguments.only, _say)
    _lines(arguments, command, *nvme.table(found), json.dumps([vars(one) for one in found], indent=1))
    return 0


def _neighbour(arguments: argparse.Namespace, command: str) -> int:
    import dataclasses
    import json

    from . import neighbour

    found = neighbour.measure(arguments.folder, arguments.seconds, arguments.only, _say)
    data = json.dumps([dataclasses.asdict(one) for one in found], indent=1)
    _lines(arguments, command, *neighbour.table(found), data)
    return 0


def _pace(arguments: argparse.Namespace, command: str) -> int:
    import dataclasses
    import json
    import os

    from . import pace

    found = pace.measure(arguments.count, _say)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    _lines(arguments, command, *pace.table(found), json.dumps([dataclasses.asdict(one) for one in found], indent=1))
    return 0


def _memory(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import memory

    labels = _labels(arguments.systems, quick=False)
    found = memory.measure(arguments.folder, labels, arguments.size)
    header = ["system", "array", "private memory beside the buffer", "page cache mapped", "seconds"]
    rows = [
        [one.system, *(f"{n / 2**20:.1f} MiB" for n in (one.array, one.private, one.mapped)), f"{one.seconds:.2f}"]
        for one in found
    ]
    print("promised: a few building blocks beside the buffer (256 KiB each by default)")
    _lines(arguments, command, header, rows, json.dumps([vars(one) for one in found], indent=1))
    return 0


def _micro(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import micro

    wanted = arguments.section or micro.SECTIONS
    found = micro.measure(arguments.folder, wanted, arguments.size, arguments.rounds, _say)
    rows = [one.text() for one in found]
    _lines(arguments, command, micro.HEADER, rows, json.dumps([vars(one) for one in found], indent=1))
    return 0


def _model(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import model

    found = model.measure(arguments.section, short=arguments.short, only=arguments.only)
    print("\n\n".join(table.text() for table in found))
    if arguments.json:
        arguments.json.write_text(json.dumps([vars(table) for table in found], indent=1))
    if arguments.markdown:
        pieces = [f"Made by `{command}`.", *(table.markdown() for table in found)]
        arguments.markdown.write_text("\n\n".join(pieces) + "\n")
    return 0


def _queue(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import queue

    sizes = {"records": arguments.records, "rows": arguments.rows, "rounds": arguments.rounds}
    found = queue.measure(arguments.folder, **sizes, short=arguments.short)
    rows = [list(row) for row in found]
    _lines(arguments, command, list(queue.HEADER), rows, json.dumps(rows, indent=1))
    return 0


def _gpu(arguments: argparse.Namespace, command: str) -> int:
    import json

    from . import gpu

    given = {"short": arguments.short, "driver": arguments.driver, "cubin": arguments.cubin}
    card, found = gpu.measure(arguments.folder, **given, say=_say)
    print(card)
    rows = [row.text() for row in found]
    _lines(
        arguments, f"{command}`; `{card}", list(gpu.HEADER), rows, json.dumps({"card": card, "rows": rows}, indent=1)
    )
    return int(gpu.failed(found))


def _show(arguments: argparse.Namespace, command: str) -> int:
    from . import report

    results, *others = map(report.load_json, arguments.files)
    for other in others:
        results.add(other)
    if arguments.markdown:
        arguments.markdown.write_text(report.markdown(results, command))
    report.print_text(results, None if sys.stdout.isatty() else 220)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark's command line."""
    arguments = _parser().parse_args(argv)
    command = "python -m bench " + shlex.join(sys.argv[1:] if argv is None else argv)
    act = {"run": _run, "open": _open, "memory": _memory, "geometry": _geometry, "write": _write, "report": _show}
    act |= {"model": _model, "first-result": _first, "offload": _offload, "micro": _micro, "programs": _programs}
    act |= {
        "schedule": _schedule,
        "cores": _cores,
        "coremark": _coremark,
        "nvme": _nvme,
        "pace": _pace,
        "neighbour": _neighbour,
        "queue": _queue,
    }
    act |= {"boxes": _boxes, "codecs": _codecs, "vectors": _vectors, "gpu": _gpu, "parts": _parts, "tables": _tables}
    act["remote"] = _remote
    return act[arguments.command](arguments, command)


if __name__ == "__main__":
    sys.exit(main())
