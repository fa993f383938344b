"""Turns a run's cells into ratios, geometric means and the verdict on every promise of speed.

A *row* is (section, pattern, state). A ratio is a time over nandarray's time in the same row: above 1 nandarray is
faster. A peer's figure in the geometric mean is that of the one configuration which serves the peer best over all rows;
the floor ("never below 0.9 of the best") looks at every configuration of every chunked peer. The ``ref``, ``memcpy``
and ``lines`` columns are yardsticks, not peers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from . import systems
from .patterns import BY_NAME, LARGE_BYTES
from .runner import Cell, Results

OURS = "nandarray/default"
#: Columns that are no peers: the yardsticks, and nandarray itself in other geometries.
_YARDSTICKS = {"memcpy", "lines", "ref", "nandarray"}
_WRITES = {name for name, pattern in BY_NAME.items() if pattern.kind != "read"}

_LINES = "lines/row-major"

#: The peers that a promise about compressed rows is measured by, and how their configurations end: without all of them
#: a run cannot say that it is kept.
_PACKED_PEERS = {"tensorstore": "", "blosc2": "-mmap", "zarrs": ""}

Row = tuple[str, str, str]


@dataclass(frozen=True)
class Verdict:
    """One promise: what was to be reached, what was, and the rows that fall short."""

    name: str
    target: str
    measured: str
    kept: bool | None  # None: this run does not say
    losses: tuple[str, ...] = ()


class Table:
    """The cells of a run by row and system."""

    def __init__(self, results: Results) -> None:
        self.rows: dict[Row, dict[str, Cell]] = {}
        for cell in results.cells:
            self.rows.setdefault((cell.section, cell.pattern, cell.state), {})[cell.system] = cell

    def reads(self) -> list[Row]:
        """Return the rows that read and that nandarray has a figure for."""
        return [row for row, cells in self.rows.items() if row[1] not in _WRITES and OURS in cells]

    def writes(self) -> list[Row]:
        """Return the rows that write and that nandarray has a figure for."""
        return [row for row, cells in self.rows.items() if row[1] in _WRITES and OURS in cells]

    def ratio(self, row: Row, system: str) -> float | None:
        """Return a system's time as a multiple of nandarray's, or None without a figure."""
        cells = self.rows[row]
        if system not in cells or OURS not in cells:
            return None
        return cells[system].median / cells[OURS].median

    def mean(self, rows: Iterable[Row], system: str) -> float | None:
        """Return the geometric mean of a system's ratios over the rows that it has."""
        ratios = [r for row in rows if (r := self.ratio(row, system)) is not None]
        return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None

    def systems(self) -> list[str]:
        """Return the systems that occur, in the order of the columns."""
        seen = {label for cells in self.rows.values() for label in cells}
        order = {label: place for place, label in enumerate(systems.LABELS)}
        return sorted(seen, key=lambda label: (order.get(label, len(order)), label))


def best_configurations(table: Table, rows: list[Row]) -> dict[str, tuple[str, float]]:
    """Return peer -> (its best configuration over these rows, the geometric mean of its ratios), nearest first."""
    best: dict[str, tuple[str, float]] = {}
    for label in table.systems():
        peer, mean = label.split("/")[0], table.mean(rows, label)
        if peer in _YARDSTICKS or mean is None:
            continue
        if peer not in best or mean < best[peer][1]:
            best[peer] = (label, mean)
    return dict(sorted(best.items(), key=lambda item: item[1][1]))


def _name(row: Row) -> str:
    return f"{row[0]} {row[1]} {row[2]}"


def _geometric_mean(table: Table, rows: list[Row], what: str) -> Verdict:
    best = best_configurations(table, rows)
    name = f"reading, {what}: geometric mean over {len(rows)} rows against the best peer in its best configuration"
    if not best:
        return Verdict(name, ">= 3", "no peer was measured", None)
    label, mean = next(iter(best.values()))
    return Verdict(name, ">= 3", f"{mean:.2f} ({label})", mean >= 3)


def nearest(table: Table, row: Row) -> tuple[float, str] | None:
    """Return the ratio and the label of the fastest peer of a row, in any configuration."""
    peers = [label for label in table.rows[row] if label.split("/")[0] not in _YARDSTICKS]
    return min(((r, label) for label in peers if (r := table.ratio(row, label)) is not None), default=None)


def _unmeasured(table: Table, rows: list[Row]) -> list[str]:
    """Return the peers for compressed rows that the run has nowhere."""
    labels = {label for row in rows for label in table.rows[row]}
    measured = {peer for peer, end in _PACKED_PEERS.items() for label in labels if _is_of(label, peer, end)}
    return [f"{peer} ({end[1:]})" if end else peer for peer, end in _PACKED_PEERS.items() if peer not in measured]


def _is_of(label: str, peer: str, end: str) -> bool:
    return label.startswith(f"{peer}/") and label.endswith(end)


def _packed_reads(table: Table, rows: list[Row]) -> Verdict:
    name = f"reading, compressed: geometric mean over {len(rows)} rows against the best peer in its best configuration"
    best = best_configurations(table, rows)
    if not best:
        return Verdict(name, ">= 3", "no peer was measured", None)
    shown = ", ".join(f"{mean:.2f} ({label})" for label, mean in best.values())
    without = _unmeasured(table, rows)
    kept = next(iter(best.values()))[1] >= 3
    if without:
        shown += f"; without {', '.join(without)}"
    return Verdict(name, ">= 3", shown, None if kept and without else kept)


def _packed_writes(table: Table, rows: list[Row]) -> Verdict:
    name = "writing, compressed: against the fastest peer, whether it survives a kill or not"
    found = [(*near, row) for row in rows if (near := nearest(table, row)) is not None]
    if not found:
        return Verdict(name, ">= 1", "no peer was measured", None)
    losses = tuple(f"{_name(row)}: {ratio:.2f} of {label}" for ratio, label, row in found if ratio < 1)
    without = _unmeasured(table, rows)
    shown = f"worst {min(found)[0]:.2f} of {min(found)[1]} over {len(found)} rows"
    if without:
        shown += f"; without {', '.join(without)}"
    return Verdict(name, ">= 1", shown, False if losses else None if without else True, losses)


def _floor(table: Table, rows: list[Row]) -> Verdict:
    name = "reading: in no pattern below 0.9 of the best chunked peer in any configuration"
    chunked = [label for label in table.systems() if systems.info(label).chunked]
    losses, worst, seen = [], math.inf, 0
    for row in rows:
        ratios = [(r, label) for label in chunked if (r := table.ratio(row, label)) is not None]
        if ratios:
            nearest, label = min(ratios)
            seen, worst = seen + 1, min(worst, nearest)
            if nearest < 0.9:
                losses.append(f"{_name(row)}: {nearest:.2f} of {label}")
    if not seen:
        return Verdict(name, ">= 0.9", "no chunked peer was measured", None)
    return Verdict(name, ">= 0.9", f"worst {worst:.2f}, {len(losses)} of {seen} rows below", not losses, tuple(losses))


def _copy(table: Table) -> Verdict:
    name = "reading warm, uncompressed, blocks of 4 MiB and more: share of the machine's copy bandwidth"
    shares = []
    for row in table.reads():
        cells = table.rows[row]
        copy = cells.get("memcpy/threads")
        if copy is not None and copy.op_bytes >= LARGE_BYTES and "-" not in row[0] and row[2] == "warm":
            shares.append((copy.median / cells[OURS].median, row))
    if not shares:
        return Verdict(name, ">= 0.7", "no block of 4 MiB was measured beside the copy", None)
    losses = tuple(f"{_name(row)}: {share:.2f}" for share, row in shares if share < 0.7)
    return Verdict(name, ">= 0.7", f"worst {min(shares)[0]:.2f} over {len(shares)} rows", not losses, losses)


def _lines(table: Table) -> Verdict | None:
    """Judge the patterns that want half of each cache line or less by these, too, if the lines were touched."""
    rows = [row for row in table.reads() if BY_NAME[row[1]].by_lines and row[2] == "warm" and _LINES in table.rows[row]]
    if not rows:
        return None
    shares = [(table.ratio(row, _LINES) or 0.0, row) for row in rows]
    losses = tuple(f"{_name(row)}: {share:.2f}" for share, row in shares if share < 0.7)
    name = "reading warm, half of each cache line or less: share of the speed at which these lines can be touched"
    return Verdict(name, ">= 0.7", f"worst {min(shares)[0]:.2f} over {len(shares)} rows", not losses, losses)


def _columns(table: Table) -> Verdict:
    name = "column bands against row bands, same array and state"
    shares = []
    for row in table.reads():
        other = (row[0], "row-bands", row[2])
        if row[1] == "column-bands" and OURS in table.rows.get(other, {}):
            shares.append((table.rows[row][OURS].gbps / table.rows[other][OURS].gbps, row))
    if not shares:
        return Verdict(name, ">= 0.8", "not both were measured", None)
    losses = tuple(f"{_name(row)}: {share:.2f}" for share, row in shares if share < 0.8)
    return Verdict(name, ">= 0.8", f"worst {min(shares)[0]:.2f} over {len(shares)} rows", not losses, losses)


def _writing(table: Table) -> Verdict:
    name = "writing, until it is on the disk: against the fastest peer that survives a kill"
    losses, worst, seen = [], math.inf, 0
    for row in table.writes():
        peers = [label for label in table.rows[row] if label.split("/")[0] not in _YARDSTICKS]
        safe = [label for label in peers if systems.info(label).survives_kill]
        ratios = [(r, label) for label in safe if (r := table.ratio(row, label)) is not None]
        if ratios:
            nearest, label = min(ratios)
            seen, worst = seen + 1, min(worst, nearest)
            if nearest < 1.2:
                losses.append(f"{_name(row)}: {nearest:.2f} of {label}")
    if not seen:
        return Verdict(name, ">= 1.2", "no such peer was measured", None)
    return Verdict(name, ">= 1.2", f"worst {worst:.2f} over {seen} rows", not losses, tuple(losses))


def judge(results: Results) -> list[Verdict]:
    """Return the verdict on every promise that a run can decide."""
    table = Table(results)
    reads = table.reads()
    plain = [row for row in reads if "-" not in row[0]]
    packed = [row for row in reads if "-" in row[0]]
    verdicts = [_geometric_mean(table, reads, "all patterns")]
    if plain and packed:
        verdicts.append(_geometric_mean(table, plain, "uncompressed"))
    if packed:
        verdicts.append(_packed_reads(table, packed))
    if packed_writes := [row for row in table.writes() if "-" in row[0]]:
        verdicts.append(_packed_writes(table, packed_writes))
    lines = _lines(table)
    verdicts += [_floor(table, reads), _copy(table), *([] if lines is None else [lines])]
    return [*verdicts, _columns(table), _writing(table)]
