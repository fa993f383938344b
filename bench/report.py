"""Prints a run: a table a section, the means, the verdicts; as text for a terminal or as markdown for the docs.

A cell holds what the system reached (GB/s; microseconds an operation where an operation is small) and the ratio of its
time to nandarray's: above 1 nandarray is faster, below 1 it is slower, and a ratio below 1 is set apart so that a loss
is seen as easily as a win.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .judge import OURS, Row, Table, Verdict, best_configurations, judge, nearest
from .patterns import BY_NAME
from .runner import Cell, Results

#: Bytes of an operation below which time says more than bandwidth.
_SMALL = 1 << 20

_LEGEND = (
    "Each cell: GB/s (or time an operation where it is small), and the time as a multiple of nandarray's in the same "
    "run: above 1 nandarray is faster, below 1 (marked <) it is slower. memcpy is the machine's copy bandwidth, "
    "lines the speed at which the cache lines that a row-major file has the box in can be touched, ref a mapped tiled "
    "file without checksums or index; these are yardsticks, not peers. The last column has the fastest of all peers "
    "that were measured, in any configuration."
)


def _absolute(cell: Cell) -> str:
    if cell.op_bytes >= _SMALL:
        return f"{cell.gbps:.2f} GB/s"
    micro = cell.median * 1e6
    return f"{micro:.1f} µs" if micro < 1000 else f"{micro / 1000:.2f} ms"


def _ratio(table: Table, row: Row, system: str) -> str:
    ratio = table.ratio(row, system)
    if ratio is None or system == OURS:
        return ""
    mark = "< " if ratio < 1 else ""
    return f"{mark}{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _nearest(table: Table, row: Row) -> str:
    """Compare a row with the fastest of all peers."""
    found = nearest(table, row)
    return "" if found is None else f"{'< ' if found[0] < 1 else ''}{found[0]:.2f} {found[1]}"


def _row_title(row: Row) -> str:
    pattern = BY_NAME[row[1]]
    return pattern.title if pattern.kind != "read" else f"{pattern.title}, {row[2]}"


def _section_rows(table: Table, section: str) -> list[Row]:
    return [row for row in table.rows if row[0] == section]


def _section_systems(table: Table, section: str) -> list[str]:
    seen = {label for row in _section_rows(table, section) for label in table.rows[row]}
    return [label for label in table.systems() if label in seen]


def _facts(results: Results, section: str) -> list[str]:
    lines = []
    for label, facts in results.facts.get(section, {}).items():
        facts = dict(facts)
        size = facts.pop("bytes_on_disk", 0)
        shown = ", ".join(f"{key} {' x '.join(map(str, value))}" for key, value in facts.items())
        lines.append(f"{label}: {size / 2**20:.0f} MiB on disk" + (f", {shown}" if shown else ""))
    return lines


def _means(table: Table) -> list[tuple[str, list[tuple[str, float]]]]:
    groups = [("reading, all rows", table.reads())]
    for state in ("warm", "fresh", "cold", "part"):
        groups.append((f"reading, {state}", [row for row in table.reads() if row[2] == state]))
    groups.append(("writing", table.writes()))
    found = []
    for name, rows in groups:
        means = [(label, mean) for label in table.systems() if label != OURS and (mean := table.mean(rows, label))]
        if means:
            found.append((name, means))
    return found


def _verdict_line(verdict: Verdict) -> str:
    state = {True: "kept", False: "MISSED", None: "not measured"}[verdict.kept]
    return f"{state}: {verdict.name}: {verdict.measured}, promised {verdict.target}"


def _intro(results: Results) -> list[str]:
    machine, settings = results.machine, results.settings
    versions = ", ".join(f"{name} {version}" for name, version in machine.get("versions", {}).items())
    return [
        f"machine: {machine.get('processor')}, {machine.get('cores')} cores, {machine.get('memory_gib')} GiB, "
        f"{machine.get('system')}, Python {machine.get('python')}",
        f"versions: {versions}",
        f"method: size {settings.get('size')}, medians of {settings.get('rounds')} warm, {settings.get('cold_rounds')} "
        f"cold, {settings.get('write_rounds')} full-write rounds, interleaved; cold by {settings.get('cold_method')}",
    ]


def print_text(results: Results, width: int | None = None, *, verdicts: bool = True) -> None:
    """Print everything for a person at a terminal."""
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console(width=width, highlight=False)
    table = Table(results)
    for line in _intro(results):
        console.print(line)
    for section, title in results.titles.items():
        names = _section_systems(table, section)
        shown = RichTable(title=f"{section}: {title}", title_justify="left", show_lines=True, pad_edge=False)
        shown.add_column("pattern", min_width=14)
        for label in names:
            shown.add_column(label.replace("/", "\n"), justify="right", min_width=6)
        shown.add_column("fastest\npeer", justify="right", min_width=7)
        for row in _section_rows(table, section):
            texts = []
            for label in names:
                cell = table.rows[row].get(label)
                ratio = _ratio(table, row, label)
                style = "[red]" if ratio.startswith("<") else ""
                texts.append("" if cell is None else f"{style}{ratio or '-'}\n{_absolute(cell)}")
            near = _nearest(table, row)
            style = "[red]" if near.startswith("<") else ""
            shown.add_row(_row_title(row), *texts, style + near.replace(" ", "\n").replace("<\n", "< "))
        console.print(shown)
        for line in _facts(results, section):
            console.print(f"  {line}")
    console.print(_LEGEND)
    console.print("\ngeometric means of the time ratios (nandarray = 1)")
    for name, means in _means(table):
        console.print(f"  {name}: " + ", ".join(f"{label} {mean:.2f}" for label, mean in means))
    for line in results.failures:
        console.print(f"[red]failed: {line}[/]")
    for line in results.skipped:
        console.print(f"skipped: {line}")
    if verdicts:
        _print_verdicts(results, table, console)


def _print_verdicts(results: Results, table: Table, console: Any) -> None:
    best = best_configurations(table, table.reads())
    console.print(
        "  best configuration of each peer, reading: " + ", ".join(f"{b[0]} {b[1]:.2f}" for b in best.values())
    )
    console.print("\npromises")
    for verdict in judge(results):
        colour = {True: "green", False: "red", None: "yellow"}[verdict.kept]
        console.print(f"  [{colour}]{_verdict_line(verdict)}[/]")
        for loss in verdict.losses:
            console.print(f"      {loss}")


def markdown(results: Results, command: str) -> str:
    """Return everything as markdown, opening with the command that made it."""
    table, out = Table(results), [f"Made by `{command}`.", ""]
    out += [f"- {line}" for line in _intro(results)]
    for section, title in results.titles.items():
        names = _section_systems(table, section)
        out += ["", f"### {section}: {title}", "", "| pattern | " + " | ".join([*names, "fastest peer"]) + " |"]
        out.append("| --- |" + " ---: |" * (len(names) + 1))
        for row in _section_rows(table, section):
            texts = []
            for label in names:
                cell, ratio = table.rows[row].get(label), _ratio(table, row, label)
                texts.append("" if cell is None else _absolute(cell) + (f" ({ratio})" if ratio else ""))
            out.append(f"| {_row_title(row)} | " + " | ".join([*texts, _nearest(table, row)]) + " |")
        out += ["", *(f"- {line}" for line in _facts(results, section))]
    out += ["", _LEGEND, "", "### Geometric means of the time ratios (nandarray = 1)", ""]
    out += [f"- {name}: " + ", ".join(f"{label} {mean:.2f}" for label, mean in means) for name, means in _means(table)]
    out += ["", "### Promises", ""]
    for verdict in judge(results):
        out.append(f"- {_verdict_line(verdict)}")
        out += [f"  - {loss}" for loss in verdict.losses]
    out += [f"- failed: {line}" for line in results.failures]
    out += [f"- skipped: {line}" for line in results.skipped]
    return "\n".join(out) + "\n"


def save_json(results: Results, path: Path) -> None:
    """Save a run with its verdicts."""
    data: dict[str, Any] = results.as_json()
    data["settings"] = {key: list(v) if isinstance(v, tuple) else v for key, v in data["settings"].items()}
    data["verdicts"] = [vars(verdict) for verdict in judge(results)]
    # A process that is stopped in between leaves the file as it was saved before.
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(data, indent=1))
    part.replace(path)


def load_json(path: Path) -> Results:
    """Load a run that :func:`save_json` saved."""
    data = json.loads(path.read_text())
    data.pop("verdicts", None)
    return Results.from_json(data)
