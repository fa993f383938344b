"""Stores behind HTTP beside peers: a range server with a set round trip and rate, each read in a process of its own.

The server (``tests/python/far_servers.py``) is a process; its link carries the rate for all connections together. Peers
are Zarr by obstore, icechunk by its own client, and ``bare``: obstore's ``get_ranges`` of the same bytes, tiles of the
size of a building block in one file, neither verified nor put into an array.

* ``open``: to an array of a store. ``element``: one at random after that, cold.
* ``rows``, ``columns``: bands of two blocks over the array, in an order that is not theirs; cold.
* ``again``: bands that are here already, beside a local store.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["WORKS", "RemoteRow", "Sizes", "judged", "measure", "table"]

ROOT = Path(__file__).resolve().parents[1]
OURS, BARE, ZARR, ICECHUNK = "nandarray", "bare", "zarr", "icechunk"
WORKS: dict[str, tuple[str, ...]] = {
    "open": (OURS, ZARR, ICECHUNK),
    "element": (OURS, BARE, ZARR, ICECHUNK),
    "rows": (OURS, BARE, ZARR, ICECHUNK),
    "columns": (OURS, BARE, ZARR, ICECHUNK),
    "again": (OURS,),
}
#: Goals of issue 37: rates beside bare ranges, Zarr and a local store; requests; round trips of an element.
OF_BARE, OF_ZARR, OF_LOCAL = 0.9, 1.5, 0.9
OPEN_REQUESTS, ELEMENT_TRIPS = 3, 2
_SERVER = (
    "import json, sys; from pathlib import Path; sys.path.insert(0, 'tests/python')\n"
    "from far_servers import RangeServer\n"
    "server = RangeServer(Path(sys.argv[1]), latency_s=float(sys.argv[2]), rate=float(sys.argv[3]))\n"
    "with server:\n"
    "    print(server.url, flush=True)\n"
    "    for _ in sys.stdin:\n"
    "        print(json.dumps([len(server.requests), server.sent]), flush=True)\n"
)
_PATIENCE_S = 1800


@dataclass(frozen=True)
class Sizes:
    """The sizes of a run: side of the array, bands of a work, the link, rounds."""

    side: int = 8192
    bands: int = 8
    latency_s: float = 0.020
    rate: float = 200e6
    rounds: int = 5


@dataclass
class RemoteRow:
    """One system at one work; ``ratio`` is the median of its seconds over that of ours."""

    work: str
    system: str
    seconds: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    bytes: int = 0
    near: list[float] = field(default_factory=list)
    ratio: float | None = None
    verdict: str = ""


def measure(
    folder: Path,
    sizes: Sizes,
    *,
    works: Sequence[str] = tuple(WORKS),
    peers: str | None = None,
    say: Callable[[str], None] = print,
) -> list[RemoteRow]:
    """Measure works in a folder, which is removed; ``peers`` is the interpreter that has the peers."""
    folder = (folder / "remote").absolute()
    own = ROOT / ".venv" / "peers" / "bin" / "python"
    interpreter = peers or (str(own) if own.exists() else sys.executable)
    rows: dict[tuple[str, str], RemoteRow] = {}
    folder.mkdir(parents=True)
    try:
        missing = set()
        for system in (OURS, BARE, ZARR, ICECHUNK):
            done = _done({"work": "make", "system": system, "folder": str(folder), **vars(sizes)}, interpreter)
            if "failed" in done or "missing" in done:
                missing.add(system)
                say(f"{system}: {done.get('missing') or done['failed']}")
        with _served(folder, sizes) as (url, counts):
            for turn in range(sizes.rounds):
                for work in [work for work in WORKS if work in works]:
                    for system in [system for system in WORKS[work] if system not in missing]:
                        cache = folder / "cache"
                        asked = {"work": work, "system": system, "folder": str(folder), "url": url, "round": turn}
                        before = counts()
                        figures = _done({**asked, "cache": str(cache), **vars(sizes)}, interpreter)
                        after = counts()
                        shutil.rmtree(cache, ignore_errors=True)
                        row = rows.setdefault((work, system), RemoteRow(work, system))
                        if "failed" in figures or "missing" in figures:
                            missing.add(system)
                            row.verdict = f"FAILED: {(figures.get('missing') or figures['failed']).splitlines()[-1]}"
                            say(f"{work}: {system}: {row.verdict}")
                            continue
                        row.seconds.append(figures["seconds"])
                        row.requests.append(after[0] - before[0])
                        row.sent.append(after[1] - before[1])
                        row.bytes = figures.get("bytes", 0)
                        row.near += [figures["near"]] if "near" in figures else []
                        say(f"{work}: {system}, round {turn + 1}: {figures['seconds']:.3f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    order = {work: at for at, work in enumerate(WORKS)}
    return judged(sorted(rows.values(), key=lambda row: order[row.work]), sizes)


@contextlib.contextmanager
def _served(folder: Path, sizes: Sizes) -> Iterator[tuple[str, Callable[[], list[int]]]]:
    """Serve a folder; give the address, and what counts requests and bytes."""
    command = [sys.executable, "-c", _SERVER, str(folder), str(sizes.latency_s), str(sizes.rate)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        told, answers = server.stdin, server.stdout

        def counts() -> list[int]:
            told.write("\n")
            told.flush()
            return list(json.loads(answers.readline()))

        try:
            yield answers.readline().strip(), counts
        finally:
            told.close()


def _done(asked: dict[str, Any], interpreter: str) -> dict[str, Any]:
    """Do a work in a process of its own; return its figures."""
    python = sys.executable if asked["system"] == OURS else interpreter
    command = [python, "-W", "ignore", "-m", "bench.remote_work", json.dumps(asked)]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer within {_PATIENCE_S} s"}
    lines = [line for line in ran.stdout.splitlines() if line.startswith("figures: ")]
    if ran.returncode or not lines:
        return {"failed": ran.stderr.strip()[-2000:] or f"it ended with {ran.returncode}"}
    return dict(json.loads(lines[-1].removeprefix("figures: ")))


def judged(rows: list[RemoteRow], sizes: Sizes) -> list[RemoteRow]:
    """Compare the systems of each work with ours, and ours with the goals."""
    times = {(row.work, row.system): statistics.median(row.seconds) for row in rows if row.seconds}
    for row in rows:
        if not row.seconds or row.verdict:
            continue
        own = times.get((row.work, OURS))
        if row.system != OURS:
            row.ratio = None if own is None else times[row.work, row.system] / own
            continue
        goals = list[tuple[str, bool]]()
        if row.work in ("rows", "columns"):
            for system, goal in ((BARE, OF_BARE), (ZARR, OF_ZARR)):
                if (row.work, system) in times and own is not None:
                    goals.append((f"{goal:g} of {system}", times[row.work, system] / own >= goal))
        if row.work == "open":
            goals.append((f"{OPEN_REQUESTS} requests", max(row.requests) <= OPEN_REQUESTS))
        if row.work == "element" and own is not None:
            # The work opens, too, with the requests of that.
            goals.append((f"{ELEMENT_TRIPS} round trips", own < (ELEMENT_TRIPS + 0.9) * sizes.latency_s))
        if row.work == "again":
            goals.append(
                (f"{OF_LOCAL:g} of a local store", statistics.median(row.near) / times["again", OURS] >= OF_LOCAL)
            )
        row.verdict = "; ".join(f"{'kept' if held else 'MISSED'}: {goal}" for goal, held in goals)
    return rows


def table(rows: list[RemoteRow]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the lines of the table."""
    heads = ["work", "system", "median, ms", "MB/s", "requests", "sent, MB", "ours is, times as fast", "goals"]
    lines = []
    for row in rows:
        middle = statistics.median(row.seconds) if row.seconds else None
        beside = f", local {statistics.median(row.near) * 1e3:.1f} ms" if row.near else ""
        lines.append(
            [
                row.work,
                row.system,
                "" if middle is None else f"{middle * 1e3:.1f}{beside}",
                f"{row.bytes / middle / 1e6:.0f}" if middle and row.bytes else "",
                f"{statistics.median(row.requests):g}" if row.requests else "",
                f"{statistics.median(row.sent) / 1e6:.2f}" if row.sent else "",
                "" if row.ratio is None else f"{row.ratio:.2f}",
                row.verdict,
            ]
        )
    return heads, lines
