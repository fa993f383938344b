"""``nandarray lab``: run experiments, sweep, look at what came out, compare, report.

The work is done by :mod:`nandarray.lab`; this file has options, progress bars and tables, and nothing else.
"""

from __future__ import annotations

import fnmatch
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from nandarray import lab
from nandarray.cli.common import Json, Tell, bars, console, fail, json_or_text, parse_pairs, print_json, say, table_of
from nandarray.errors import InvalidError, NandarrayError
from nandarray.lab import packages, registry
from nandarray.lab._html import answer_cells, shown_columns
from nandarray.lab.folders import folder_of_runs
from nandarray.lab.places import figures
from nandarray.lab.prepare import prepare
from nandarray.lab.read_run import find_run
from nandarray.lab.write_run import execute
from nandarray.units import count, format_number

__all__ = ["app"]

app = typer.Typer(help="Experiments on described devices: run, sweep, compare, report.", no_args_is_help=True)

_ROWS = 20


def complete_experiment(incomplete: str) -> list[str]:
    """Complete the id of an experiment."""
    return [name for name in lab.experiments() if name.startswith(incomplete)]


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a run or a sweep."""
    folder = ctx.params.get("runs")
    return [one.id for one in (*lab.runs(folder), *lab.sweeps(folder)) if one.id.startswith(incomplete)]


Runs = Annotated[
    Path | None,
    typer.Option("--runs", metavar="DIR", help="Folder of runs; else $NANDARRAY_RUNS or lab-runs."),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="Processes; one for each core if left out."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Reuse = Annotated[bool, typer.Option("--reuse", help="Reuse the result of an earlier run, if there is one.")]
RunName = Annotated[
    str,
    typer.Argument(
        help="Name of a run, or the beginning of one, or its folder.",
        metavar="RUN",
        autocompletion=complete_run,
    ),
]


def _settings(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Read NAME=VALUE pairs; a value that is JSON is that, anything else is text."""
    return {name: json_or_text(value) for name, value in parse_pairs(pairs, "NAME=VALUE").items()}


def _progress(*, quiet: bool) -> AbstractContextManager[Tell | None]:
    """Show bars on standard error if that is a terminal, until the work is done."""
    return bars(MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), quiet=quiet, transient=True)


# --- what there is ----------------------------------------------------------------------------------------------------


@app.command("list")
def list_command(
    *,
    ran: Annotated[bool, typer.Option("--ran", help="List runs and sweeps instead.")] = False,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """List the experiments that there are; with --ran, what was run."""
    if ran:
        _list_runs(runs, as_json=as_json)
        return
    known = lab.experiments()
    if as_json:
        print_json(
            [
                {key: getattr(one, key) for key in ("id", "title", "question", "claims", "minutes", "deterministic")}
                | {"figures": figures(one)}
                | {"parameters": {name: _settable(parameter) for name, parameter in one.parameters.items()}}
                for one in known.values()
            ]
        )
    else:
        rows = [
            (one.id, str(len(one.claims)), f"{one.minutes:g}", one.title, " ".join(figures(one)))
            for one in known.values()
        ]
        names = ("id", "claims", "minutes", "title", "figures")
        console().print(table_of(names, rows, right=("claims", "minutes")))
        for name, patterns in packages.sets().items():
            say(f"set {name}: {', '.join(patterns)}")
    if without := packages.missing():
        console(stderr=True).print(without.removeprefix("; "), soft_wrap=True)
    for module, why in registry.broken().items():
        console(stderr=True).print(f"not usable: {module}: {' '.join(why.split())}", soft_wrap=True)


def _settable(parameter: lab.Parameter) -> dict[str, Any]:
    return {key: getattr(parameter, key) for key in ("default", "small", "deep", "meaning")}


def _list_runs(folder: Path | None, *, as_json: bool) -> None:
    found, swept = lab.runs(folder), lab.sweeps(folder)
    if as_json:
        rows: list[dict[str, Any]] = [{"id": run.id, "kind": "run", "title": run.title, **_tally(run)} for run in found]
        rows += [
            {
                "id": one.id,
                "kind": "sweep",
                "title": one.data["title"],
                "points": len(one),
                "failed": one.data["failed"],
            }
            for one in swept
        ]
        print_json(rows)
        _say_damaged(folder)
        return
    cells = []
    for run in found:
        tally = _tally(run)
        within = f"{tally['within']} of {tally['judged']}" if tally["judged"] else "-"
        cells.append((run.id, run.profile, str(run.seed), within, _date(run), run.title))
    cells += [(one.id, "sweep", "", f"{len(one):,} points", _date(one), one.data["title"]) for one in swept]
    if cells:
        headings = ("name", "profile", "seed", "within", "date", "title")
        console().print(table_of(headings, cells, right=("seed", "within")))
    else:
        say(f"nothing was run in {folder_of_runs(folder)}")
    _say_damaged(folder)


def _date(one: lab.Run | lab.Sweep) -> str:
    """Return when it was made, to the minute; a dash where its folder does not say."""
    try:
        return str(one.environment["date"])[:16].replace("T", " ")
    except (NandarrayError, OSError):
        return "-"


def _say_damaged(folder: Path | None) -> None:
    """Name what is left out since it cannot be read."""
    for name, why in lab.damaged(folder).items():
        console(stderr=True).print(f"not usable: {name}: {why}", soft_wrap=True)


def _tally(run: lab.Run) -> dict[str, int]:
    judged = [answer["within"] for answer in run.answers if answer["within"] is not None]
    return {"answers": len(run.answers), "judged": len(judged), "within": sum(judged)}


# --- running ----------------------------------------------------------------------------------------------------------


@app.command("run")
def run_command(
    *,
    ids: Annotated[
        list[str],
        typer.Argument(
            help="Experiments: ids, figures like assasin.fig7.12, patterns like 'model.*', Python files, or sets; "
            "`nandarray lab list` shows them.",
            metavar="ID...",
            autocompletion=complete_experiment,
        ),
    ],
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="Sizes: full, small for a test, or deep for hours.")
    ] = "full",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter, as JSON or text; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of random choices.")] = 0,
    runs: Runs = None,
    jobs: Jobs = None,
    trace: Annotated[bool, typer.Option("--trace", help="Write a timeline, too, if the experiment has one.")] = False,
    reuse: Reuse = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run experiments, each into a folder of its own, and show their answers."""
    parameters = _settings(settings)
    # All of them, before the first one takes its minutes.
    chosen = {
        name: prepare(one, profile=profile, seed=seed, parameters=parameters)
        for name, one in registry.select(ids).items()
    }
    done, failed = list[lab.Run](), dict[str, str]()
    for one, prepared in chosen.items():
        try:
            with _progress(quiet=quiet or as_json) as tell:
                found = execute(prepared, runs=runs, jobs=jobs, trace=trace, reuse=reuse, progress=tell)
        except Exception as error:
            if len(chosen) == 1:
                raise
            failed[one] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            console(stderr=True).print(f"{one} failed: {failed[one]}", soft_wrap=True)
            continue
        done.append(found)
        if not as_json:
            _show_answers(found)
            say(f"{found.path}: {_took(found)}\n")
    pages = [_page_of_set(name, done, runs) for name in ids if name in packages.sets()]
    if as_json:
        print_json([{"folder": str(run.path), **run.data} for run in done])
    else:
        for page in pages:
            say(f"{page}: {count(len(done), 'run')}")
    if failed:
        fail(f"{count(len(failed), 'experiment')} failed: {', '.join(failed)}")


def _took(found: lab.Run) -> str:
    about = found.environment
    before = about.get("before")
    same = "" if before is None else ", the same bytes as before"
    if before and not found.data["deterministic"]:
        same = ""
    elif before:
        same = f", not the same as before: {', '.join(before[:3])}{', ...' if len(before) > 3 else ''}"
    return f"{about['seconds']:.3g} s{same}"


def _page_of_set(name: str, done: Sequence[lab.Run], folder: Path | None) -> Path:
    """Write the page of a set's runs beside them."""
    from nandarray.lab import report  # brings jinja2, which no other command needs

    fits = [run for run in done if any(fnmatch.fnmatch(run.experiment, one) for one in packages.sets()[name])]
    return report.write([lab.load(run.path) for run in fits], folder_of_runs(folder) / f"{name}.html")


def _show_answers(found: lab.Run) -> None:
    out = console()
    out.print(f"{found.experiment}: {found.title} ({found.profile}, seed {found.seed})", soft_wrap=True)
    if found.answers:
        rows = map(answer_cells, found.answers)
        out.print(table_of(("claim", "paper", "ours", "ratio", "within"), rows, right=("paper", "ours", "ratio")))
    for misfit in found.data["misfits"]:
        out.print(f"does not fit: {misfit}", soft_wrap=True)


@app.command("sweep")
def sweep_command(
    *,
    file: Annotated[Path, typer.Argument(help="The sweep, in TOML.", metavar="FILE")],
    runs: Runs = None,
    jobs: Jobs = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew instead of resuming a killed sweep.")] = False,
    reuse: Reuse = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the table, too: .csv, .parquet or .json."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure every point of a sweep; show what failed, and the best."""
    if output is not None and output.suffix not in {".csv", ".parquet", ".json"}:
        raise typer.BadParameter(f"{output} is neither .csv nor .parquet nor .json")
    with _progress(quiet=quiet or as_json) as tell:
        done = lab.sweep(file, runs=runs, jobs=jobs, resume=not fresh, reuse=reuse, progress=tell)
    if output is not None:
        _write_table(done, output)
    if as_json:
        print_json({"folder": str(done.path), **done.data, "rows": done.rows(), "failures": done.failures})
    else:
        _show_sweep(done)
        about = done.environment
        went_on = f", {about['resumed']:,} of them before" if about["resumed"] else ""
        say(f"{done.path}: {len(done):,} points in {about['seconds']:.3g} s{went_on}")
    if failed := done.data["failed"]:
        fail(f"{'all' if failed == len(done) else f'{failed:,} of'} {len(done):,} points failed")


def _write_table(done: lab.Sweep, output: Path) -> None:
    if output.suffix == ".csv":
        done.table().to_csv(output, index=False)
    else:
        output.write_bytes((done.path / "tables" / f"points{output.suffix}").read_bytes())


def _show_sweep(done: lab.Sweep) -> None:
    out = console()
    columns = shown_columns(done)
    best = [row for row in done.rows() if row["pareto"]]
    if done.failures:
        out.print(f"{count(len(done.failures), 'point')} failed:", soft_wrap=True)
        for message, times in Counter(f"{one['kind']}: {one['error']}" for one in done.failures).most_common(_ROWS):
            out.print(f"  {times:,} x {message}", soft_wrap=True)
        out.print()
    if not best:
        return
    over = ", ".join(f"{name} {way}" for name, way in done.objectives.items())
    more = f", the first {_ROWS} shown" if len(best) > _ROWS else ""
    out.print(f"Pareto front ({count(len(best), 'point')}{more}): {over}", soft_wrap=True)
    out.print(_numbers(best, columns))
    out.print()


def _numbers(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    """Return the first rows of a table of numbers."""
    return table_of(
        columns, [[format_number(row[column]) for column in columns] for row in rows[:_ROWS]], right=columns
    )


# --- looking ----------------------------------------------------------------------------------------------------------


@app.command()
def show(
    *,
    run: RunName,
    table: Annotated[str | None, typer.Option(metavar="NAME", help="Print one table, all of it, as CSV.")] = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Show a run or a sweep: what was asked and set, what came out."""
    folder = find_run(run, runs)
    found: lab.Run | lab.Sweep
    found = lab.load_sweep(folder) if (folder / "sweep.json").is_file() else lab.load(folder)
    if table is not None:
        if as_json:
            print_json(found.rows(table))
        else:
            say(found.table(table).to_csv(index=False), end="")
    elif as_json:
        print_json({**found.data, "environment": found.environment})
    elif isinstance(found, lab.Sweep):
        console().print(f"{found.id}: {found.data['title'] or found.name}", soft_wrap=True)
        axes = [(axis["key"], ", ".join(map(format_number, axis["values"]))) for axis in found.axes]
        console().print(table_of(("axis", "values"), axes))
        say()
        _show_sweep(found)
    else:
        _show_run(found)


def _show_run(found: lab.Run) -> None:
    out = console()
    out.print(f"{found.id}\n{found.data['question']}\n", soft_wrap=True)
    meanings = found.data["meanings"]
    parameters = [(name, str(value), meanings.get(name, "")) for name, value in found.parameters.items()]
    if parameters:
        out.print(table_of(("parameter", "value", "meaning"), parameters))
        out.print()
    _show_answers(found)
    for name, columns in found.tables.items():
        rows = found.rows(name)
        out.print(f"\n{name}: {count(len(rows), 'row')}{f', the first {_ROWS}' if len(rows) > _ROWS else ''}")
        out.print(_numbers(rows, columns))
    for assumption in found.data["assumptions"]:
        out.print(f"assumed: {assumption}", soft_wrap=True)


@app.command("compare")
def compare_command(*, a: RunName, b: RunName, runs: Runs = None, as_json: Json = False) -> None:
    """Put two runs beside each other: what was set differently, and ratios of the second to the first."""
    both = lab.compare(find_run(a, runs), find_run(b, runs))
    if as_json:
        print_json(both.to_dict())
        return
    out = console()
    out.print(f"a: {both.a.id}\nb: {both.b.id}\n", soft_wrap=True)
    sections = [("set differently", both.parameters), ("answers", both.answers)]
    sections += [(f"table {name}, b / a", _ratios(both.rows(name))) for name in both.tables]
    for title, rows in sections:
        if not rows:
            continue
        out.print(f"{title}: {len(rows)}")
        cells = [
            [format_number(value) if not isinstance(value, dict | list) else str(value) for value in row.values()]
            for row in rows[:_ROWS]
        ]
        out.print(table_of(list(rows[0]), cells, right=rows[0].keys() - {"name", "claim"}))
        if len(rows) > _ROWS:
            out.print(f"... {len(rows) - _ROWS:,} more: --json has all")
        out.print()


def _ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave only what tells rows apart, and ratios."""
    short = {key: key.removesuffix(" ratio") for row in rows for key in row if not key.endswith((" a", " b"))}
    return [{name: row.get(key) for key, name in short.items()} for row in rows]


@app.command("report")
def report_command(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Runs and sweeps; all of the folder if left out.",
            metavar="[RUN...]",
            autocompletion=complete_run,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("report.html"),
    beside: Annotated[
        tuple[str, str] | None,
        typer.Option("--compare", metavar="RUN RUN", help="Compare two runs, too."),
    ] = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page of runs and sweeps that works off line."""
    from nandarray.lab import report  # brings jinja2, which no other command needs

    if names:
        folders = [find_run(name, runs) for name in names]
    else:
        folders = [one.path for one in (*lab.runs(runs), *lab.sweeps(runs))]
        _say_damaged(runs)
    if not folders:
        raise InvalidError(f"there is nothing to report: nothing was run in {folder_of_runs(runs)}")
    swept = [folder for folder in folders if (folder / "sweep.json").is_file()]
    ran = [folder for folder in folders if folder not in swept]
    pair = None if beside is None else (find_run(beside[0], runs), find_run(beside[1], runs))
    written = report.write(
        [lab.load(folder) for folder in ran],
        output,
        sweeps=[lab.load_sweep(folder) for folder in swept],
        compare=None if pair is None else (lab.load(pair[0]), lab.load(pair[1])),
    )
    if as_json:
        print_json({"page": str(written), "runs": [str(folder) for folder in ran], "sweeps": [str(f) for f in swept]})
    else:
        say(f"{written}: {count(len(ran), 'run')}, {count(len(swept), 'sweep')}")
    if not report.has_charts():
        say(report.NO_CHARTS, file=sys.stderr)
