"""Stores of parts beside peers that many processes write: commits, bytes from workers, very many shards, programs.

Each work of each system is a process of its own (:mod:`bench.parts_work`): the product's in this interpreter, peers' in
one that has them (``make bench-parts``; icechunk 2 needs Python 3.12), by default in this one. Systems of a work follow
one another in each round, in one run.

* ``commits``: processes that do not know of each other, each with commits to rows of its own. The count says
  whether all that was reported as committed is there.
* ``bytes``: an array from two workers of Dask, until it is on the disk; and from threads of one process into a file.
* ``touch``: a transaction of one shard of very many. Rows of the product's table all name one shard; icechunk's chunks
  are virtual, in one file; Zarr's are the fill value, since it keeps no table.
* ``open``: the same stores, opened by a new process that reads one element.
* ``near``: a mean, a histogram and a filter that keeps 1 %, at two workers; beside one process, and Dask over Zarr.

Commits of the product are durable when they are reported; icechunk syncs nothing, and its rows say so. Bytes are synced
by the benchmark, those of each system. Seconds are judged where nothing else tells more; processor seconds are of all
processes of a work.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["WORKS", "PartsRow", "Sizes", "judged", "measure", "table"]

ROOT = Path(__file__).resolve().parents[1]
OURS, FILE, HERE = "nandarray", "nandarray, one file", "nandarray, one process"
ICECHUNK, ZARR = "icechunk", "zarr"
#: Work -> systems, ours first, each with its name in :mod:`bench.parts_work`.
WORKS: dict[str, dict[str, str]] = {
    "commits": {OURS: "nandarray", ICECHUNK: "icechunk"},
    "bytes": {OURS: "nandarray", FILE: "nandarray_in_a_file", ICECHUNK: "icechunk", ZARR: "zarr"},
    "touch": {OURS: "nandarray", ICECHUNK: "icechunk", ZARR: "zarr"},
    "open": {OURS: "nandarray", ICECHUNK: "icechunk", ZARR: "zarr"},
    "near": {OURS: "nandarray", HERE: "nandarray_here", ZARR: "zarr"},
}
#: Goals of issue 35: tries of a commit, metadata beside the least, rates, seconds, files, bytes, processor time.
TRIES, METADATA = 2, 3.0
OF_FILE, OF_ICECHUNK = 0.9, 1.5
COMMIT_S, FILES, MEMORY = 0.050, 3, 100e6
CPU = 1.15
_PATIENCE_S = 1800


@dataclass(frozen=True)
class Sizes:
    """The sizes of a run: bytes of arrays, shards of the large one, processes that commit and how often, rounds."""

    bytes: int = 1 << 30
    shards: int = 4 << 20
    writers: int = 8
    commits: int = 8
    rounds: int = 3


@dataclass
class PartsRow:
    """One system at one work: seconds and processor seconds of each round, and what else was counted.

    A work that failed has a verdict that says so.

    ``ratio`` is the median of the system's seconds over that of ours: how many times as fast ours is.
    """

    work: str
    system: str
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)
    ratio: float | None = None
    verdict: str = ""

    def middle(self, key: str) -> float | None:
        """Return the median of a count."""
        found = [float(one[key]) for one in self.facts if one.get(key) is not None]
        return statistics.median(found) if found else None

    @property
    def note(self) -> str:
        """The counts in words."""
        last = self.facts[-1] if self.facts else {}
        words = []
        if "there" in last:
            worst = min(self.facts, key=lambda one: int(one["there"]))
            words += [f"{worst['there']} of {worst['good']} reported ones there", f"{worst['history']} versions"]
        if (tries := self.middle("tries")) is not None:
            words.append(f"{tries:g} tries")
        if (metadata := self.middle("metadata")) is not None:
            each = metadata / (self.middle("asked") or 1)
            words.append(f"{each / 1e3:.1f} KB of metadata a commit")
        if (commit := self.middle("commit")) is not None:
            words.append(f"commit() {commit * 1e3:.1f} ms")
        if "written" in last:
            words.append(f"{last['written'] / statistics.median(self.seconds) / 1e9:.2f} GB/s")
        if (memory := self.middle("memory")) is not None:
            words.append(f"{memory / 1e6:.1f} MB of memory, {self.middle('files'):g} files read")
            if made := self.middle("made"):
                words.append(f"{made:g} made")
        if not last.get("synced", True):
            words.append("none of it synced")
        if (loopback := self.middle("loopback")) is not None:
            words.append(f"{loopback / 1e3:.0f} KB over loopback")
        return ", ".join(words)


def measure(
    folder: Path,
    sizes: Sizes,
    *,
    works: Sequence[str] = tuple(WORKS),
    peers: str | None = None,
    say: Callable[[str], None] = print,
) -> list[PartsRow]:
    """Measure works in a folder, which is removed; ``peers`` is the interpreter that has the peers."""
    folder = (folder / "parts").absolute()
    interpreter = peers or _peers()
    rows: dict[tuple[str, str], PartsRow] = {}
    missing: set[tuple[str, str]] = set()
    try:
        for turn in range(sizes.rounds):
            for work in [work for work in WORKS if work in works]:
                for system, name in WORKS[work].items():
                    if (work, system) in missing:
                        continue
                    # The store that is opened is the one that `touch` makes.
                    steps = ["touch", "open"] if work == "open" else [work]
                    made = _made(folder / f"{work}-{name}", steps, name, sizes, interpreter)
                    if "missing" in made or "failed" in made:
                        missing.add((work, system))
                        say(f"{work}: {system}: {made.get('missing') or made['failed']}")
                    if "failed" in made:
                        row = rows.setdefault((work, system), PartsRow(work, system))
                        row.verdict = f"FAILED: {made['failed'].splitlines()[-1]}"
                    for part, figures in _parted(work, made).items():
                        row = rows.setdefault((part, system), PartsRow(part, system))
                        _add(row, figures)
                        say(f"{part}: {system}, round {turn + 1}: {row.seconds[-1]:.3f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    order = {name: at for at, name in enumerate(dict.fromkeys(work for work, _ in rows))}
    return judged(sorted(rows.values(), key=lambda row: order[row.work]))


def _peers() -> str:
    own = ROOT / ".venv" / "peers" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def _made(place: Path, steps: list[str], name: str, sizes: Sizes, interpreter: str) -> dict[str, Any]:
    """Do a work, each of its steps by a process of its own; return the figures of the last."""
    python = sys.executable if name.startswith("nandarray") else interpreter
    found: dict[str, Any] = {}
    try:
        for step in steps:
            asked = {**vars(sizes), "work": step, "system": name, "folder": str(place)}
            command = [python, "-W", "ignore", "-m", "bench.parts_work", json.dumps(asked)]
            ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
            lines = [line for line in ran.stdout.splitlines() if line.startswith("figures: ")]
            if ran.returncode or not lines:
                return {"failed": ran.stderr.strip()[-2000:] or f"it ended with {ran.returncode}"}
            found = json.loads(lines[-1].removeprefix("figures: "))
            if "missing" in found:
                break
    except subprocess.TimeoutExpired:
        found = {"failed": f"no answer within {_PATIENCE_S} s"}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return found


def _parted(work: str, made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the figures of each work that was done."""
    if "missing" in made or "failed" in made:
        return {}
    if "works" in made:
        return {f"{work}: {name}": figures for name, figures in made["works"].items()}
    return {work: made}


def _add(row: PartsRow, figures: dict[str, Any]) -> None:
    seconds, cpu, commits = figures.pop("seconds"), figures.pop("cpu", None), figures.pop("commit", None)
    row.seconds += seconds if isinstance(seconds, list) else [seconds]
    row.cpu += [] if cpu is None else [cpu]
    row.facts.append(figures if commits is None else {**figures, "commit": statistics.median(commits)})


def judged(rows: list[PartsRow]) -> list[PartsRow]:
    """Compare the systems of each work with ours, and ours with the goals."""
    found = {(row.work, row.system): row for row in rows}
    times = {key: statistics.median(row.seconds) for key, row in found.items() if row.seconds}
    for row in rows:
        if not row.seconds or row.verdict:
            continue
        ours = times.get((row.work, OURS))
        if ours is not None and row.system != OURS:
            row.ratio = times[row.work, row.system] / ours
        if row.system == OURS:
            goals = _goals(row, found, times)
            row.verdict = "; ".join(f"{'kept' if held else 'MISSED'}: {goal}" for goal, held in goals)
    return rows


def _goals(
    row: PartsRow, found: dict[tuple[str, str], PartsRow], times: dict[tuple[str, str], float]
) -> list[tuple[str, bool]]:
    """Return the goals of a work of ours, and whether each was reached."""
    if row.work == "commits":
        least = (row.middle("metadata") or 0) / (row.middle("least") or 1)
        return [
            ("all there", all(one["there"] == one["history"] == one["asked"] for one in row.facts)),
            (f"{TRIES} tries", (row.middle("tries") or 0) <= TRIES),
            (f"{METADATA:g} times the least metadata ({least:.1f})", least <= METADATA),
        ]
    own, goals = times[row.work, OURS], list[tuple[str, bool]]()
    if row.work == "bytes":
        for system, goal in ((FILE, OF_FILE), (ICECHUNK, OF_ICECHUNK)):
            if (row.work, system) in times:
                goals.append((f"{goal:g} of {system}", times[row.work, system] / own >= goal))
    if row.work == "touch":
        goals.append((f"commit in {COMMIT_S * 1e3:g} ms", (row.middle("commit") or 0) <= COMMIT_S))
    if row.work == "open":
        goals.append((f"{FILES} files", (row.middle("files") or 0) <= FILES))
        goals.append((f"{MEMORY / 1e6:g} MB", (row.middle("memory") or 0) <= MEMORY))
    if row.work.startswith("near") and (here := found.get((row.work, HERE))) is not None:
        goals.append((f"{CPU:g} of one process' CPU", statistics.median(row.cpu) <= CPU * statistics.median(here.cpu)))
    return goals


def table(rows: list[PartsRow]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the lines of the table."""
    heads = ["work", "system", "median, s", "spread, s", "CPU, s", "counted", "ours is, times as fast", "goals"]
    lines = [
        [
            row.work,
            row.system,
            f"{statistics.median(row.seconds):.3f}" if row.seconds else "",
            f"{min(row.seconds):.3f} to {max(row.seconds):.3f}" if row.seconds else "",
            f"{statistics.median(row.cpu):.2f}" if row.cpu else "",
            row.note,
            "" if row.ratio is None else f"{row.ratio:.2f}",
            row.verdict,
        ]
        for row in rows
    ]
    return heads, lines
