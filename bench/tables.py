"""Tables of columns beside Parquet, Lance and Vortex: queries of engines, rows by number, a column, and sizes.

Each work of each system is a process of its own (:mod:`bench.tables_work`): engines over our tables and over Parquet
(zstd) of the same rows in this interpreter, Lance and Vortex in one that has them (``make bench-tables``), by default
in this one. A system that is not installed is left out, and the output says so. Queries run warm; what counts is the
processor time of all processes of a work, and of rows and columns seconds.

* ``q1``, ``q6``: of TPC-H; ``sorted``: a thousandth of the rows of ``lineitem``, by the key that they lie in order of.
* ``take``: a thousand random rows of 1 KiB.
* ``scan``: a column of doubles, beside a copy of as many bytes in memory.
* ``size``: the bytes of TPC-H's eight tables.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .parts import ROOT, _peers

__all__ = ["WORKS", "TablesRow", "judged", "measure", "table"]

OURS, PARQUET, LANCE, VORTEX, COPY = "nandarray", "Parquet", "Lance", "Vortex", "a copy in memory"
ENGINES = ("DuckDB", "DataFusion", "Spark")
QUERIES = ("q1", "q6", "sorted")
WORKS = (*QUERIES, "take", "scan", "size")
#: Goals of issue 36: processor time beside the same engine's over Parquet, and of Spark in seconds.
OF_PARQUET = {"q1": 1.5, "q6": 1.0, "sorted": 0.3}
SPARK_Q6_S = 1.5
OF_TAKE, OF_MEMORY, OF_SIZE = 0.5, 0.8, 1.2
_PATIENCE_S = 3600
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass
class TablesRow:
    """A work of a system: seconds and processor seconds of each round, and bytes."""

    work: str
    system: str
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    bytes: int = 0
    answer: str = ""
    ratio: float | None = None
    verdict: str = ""

    @property
    def figure(self) -> float | None:
        """The figure that is compared: bytes of a size, seconds of rows and columns, processor seconds of a query."""
        if self.work == "size":
            return float(self.bytes)
        found = self.seconds if self.work in ("take", "scan") else self.cpu
        return statistics.median(found) if found else None


def measure(
    folder: Path,
    *,
    scale: float,
    rows: int,
    rounds: int,
    works: Sequence[str] = WORKS,
    engines: Sequence[str] = ENGINES,
    peers: str | None = None,
    say: Callable[[str], None] = print,
) -> list[TablesRow]:
    """Make the data in a folder, which is removed, and measure works; ``peers`` is the interpreter that has Lance."""
    folder = (folder / "tables").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"scale": scale, "rows": rows, "rounds": rounds, "folder": str(folder)}
    found: list[TablesRow] = []
    absent: set[str] = set()
    try:
        for system in (OURS, PARQUET, LANCE, VORTEX):
            made = _made({**sizes, "work": "make", "system": system}, peers or _peers())
            if reason := made.get("missing") or made.get("failed"):
                absent.add(system)
                say(f"{system} is left out: {reason.splitlines()[-1]}")
            elif "size" in works:
                found.append(TablesRow("size", system, bytes=made["bytes"]))
        for name, asked in _asked(works, engines):
            if asked["system"] in absent:
                continue
            made = _made({**sizes, **asked}, peers or _peers())
            if "missing" in made:
                say(f"{name}: {asked['system']} is left out: {made['missing']}")
                continue
            row = TablesRow(name, asked["system"], made.get("seconds", []), made.get("cpu", []))
            row.bytes, row.answer = made.get("read", 0), made.get("answer", "")
            if "failed" in made:
                row.verdict = f"FAILED: {made['failed'].splitlines()[-1]}"
            found.append(row)
            say(f"{name}: {row.system}: {row.verdict or f'{row.figure:.4f} s'}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return judged(found)


def _asked(works: Sequence[str], engines: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for query in [query for query in QUERIES if query in works]:
        for engine in engines:
            for system in (OURS, PARQUET):
                asked = {"work": "query", "query": query, "engine": engine, "system": system}
                yield f"{query} in {engine}", asked
    for work, systems in (("take", (OURS, PARQUET, LANCE, VORTEX)), ("scan", (OURS, PARQUET, COPY))):
        if work in works:
            yield from ((work, {"work": work, "system": system}) for system in systems)


def _made(asked: dict[str, Any], peers: str) -> dict[str, Any]:
    """Do a work by a process of its own; return its figures."""
    python = peers if asked["system"] in (LANCE, VORTEX) else sys.executable
    command = [python, "-W", "ignore", "-m", "bench.tables_work", json.dumps(asked)]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer within {_PATIENCE_S} s"}
    lines = [line for line in ran.stdout.splitlines() if line.startswith("figures: ")]
    if ran.returncode or not lines:
        return {"failed": ran.stderr.strip()[-2000:] or f"it ended with {ran.returncode}"}
    made: dict[str, Any] = json.loads(lines[-1].removeprefix("figures: "))
    return made


def judged(rows: list[TablesRow]) -> list[TablesRow]:
    """Compare ours with the peers of each work, and with the goals."""
    for row in rows:
        peers = [one for one in rows if one.work == row.work and one.system != OURS and one.figure]
        if row.system != OURS or row.figure is None or row.verdict:
            continue
        for peer in peers:
            assert peer.figure is not None
            peer.ratio = row.figure / peer.figure
        goals = [f"{'kept' if held else 'MISSED'}: {goal}" for goal, held in _goals(row, peers)]
        if wrong := [peer.system for peer in peers if row.answer and not _same(row.answer, peer.answer)]:
            goals.insert(0, f"WRONG: another answer than {', '.join(wrong)}")
        row.verdict = "; ".join(goals)
    return rows


def _same(ours: str, theirs: str) -> bool:
    """Compare answers; doubles are added in the order of threads, so that the last digits differ."""
    found, wanted = _NUMBER.findall(ours), _NUMBER.findall(theirs)
    return _NUMBER.sub("0", ours) == _NUMBER.sub("0", theirs) and all(
        math.isclose(float(one), float(other), rel_tol=1e-12) for one, other in zip(found, wanted, strict=True)
    )


def _goals(row: TablesRow, peers: list[TablesRow]) -> Iterator[tuple[str, bool]]:
    """Give the goals of a work of ours, and whether each was reached."""
    own = row.figure or 0.0
    by_name = {peer.system: peer.figure or 0.0 for peer in peers}
    query = row.work.partition(" ")[0]
    if query in OF_PARQUET and PARQUET in by_name:
        goal = OF_PARQUET[query]
        if row.work == "q6 in Spark":
            yield f"{SPARK_Q6_S} CPU s", own <= SPARK_Q6_S
        else:
            yield f"{goal:g} of Parquet's CPU", own <= goal * by_name[PARQUET]
    if row.work == "take" and (there := [one for one in (LANCE, VORTEX) if one in by_name]):
        better = min(there, key=by_name.__getitem__)
        yield f"{OF_TAKE:g} of {better}'s time", own <= OF_TAKE * by_name[better]
    if row.work == "scan" and COPY in by_name:
        yield f"{OF_MEMORY:g} of memory's speed", by_name[COPY] / own >= OF_MEMORY
    if row.work == "size" and PARQUET in by_name:
        yield f"{OF_SIZE:g} of Parquet's bytes", own <= OF_SIZE * by_name[PARQUET]


def table(rows: list[TablesRow]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the lines of the table."""
    heads = ["work", "system", "CPU, s", "median, s", "spread, s", "MB", "ours, of it", "goals"]
    lines = [
        [
            row.work,
            row.system,
            f"{statistics.median(row.cpu):.4f}" if row.cpu else "",
            f"{statistics.median(row.seconds):.4f}" if row.seconds else "",
            f"{min(row.seconds):.4f} to {max(row.seconds):.4f}" if row.seconds else "",
            f"{row.bytes / 1e6:.1f}" if row.bytes else "",
            "" if row.ratio is None else f"{row.ratio:.2f}",
            row.verdict,
        ]
        for row in rows
    ]
    return heads, lines
