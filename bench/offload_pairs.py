"""A merge of two sorted arrays and a 5-point stencil, from the store and into it, beside Dask on the same store.

Ours is the ready-made program, and ``map_blocks(depth=1)``. Dask's merge is what a user writes: pieces between places
where both arrays can be cut, found by binary search, each sorted by NumPy and written; its stencil is ``map_overlap``.
NumPy works in memory, on arrays that it has there already, and bounds what reading and writing cost. Each run is a
process of its own, whose memory is watched from outside, and systems take turns. All is in the page cache.
"""

from __future__ import annotations

import importlib
import math
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from .memory import watch

OPERATIONS = ("merge", "stencil")
OURS, DASK, NUMPY = "nandarray", "Dask on the same store", "NumPy in memory"
SYSTEMS = (OURS, DASK, NUMPY)
DEFAULT_BYTES = 256 << 20
#: Bytes of memory that a run of ours may take, beside the page cache; NumPy's arrays are what it is spared.
MEMORY = 256 << 20
_PIECE = 1 << 21
_Array = np.ndarray[Any, Any]


@dataclass
class PairRow:
    """One system at one operation: seconds of each round, and the most bytes of memory that a run took.

    ``ratio`` is the median of Dask's seconds over that of the system's: how many times as fast as Dask it is.
    """

    operation: str
    system: str
    seconds: list[float] = field(default_factory=list)
    private: int = 0
    ratio: float = 0.0
    verdict: str = ""


def make(path: Path, size: int) -> None:
    """Write two sorted arrays of together `size` bytes, and a square one of as many; places for results."""
    import nandarray

    rng = np.random.default_rng(21)
    count, side = size // 16, math.isqrt(size // 8)
    with nandarray.open(path, mode="w") as store:
        for name in ("a", "b"):
            array, last = store.create(name, (count,), "float64"), 0.0
            for at in range(0, count, _PIECE):
                steps = rng.exponential(size=min(_PIECE, count - at))
                steps[0] += last
                array[at : at + _PIECE] = values = np.cumsum(steps)
                last = float(values[-1])
        grid = store.create("grid", (side, side), "float64")
        rows = max(1, _PIECE // max(side, 1))
        for at in range(0, side, rows):
            grid[at : at + rows] = rng.normal(size=(min(rows, side - at), side))
        for system in (OURS, DASK):
            store.create(f"merge {system}", (2 * count,), "float64")
            store.create(f"stencil {system}", (side, side), "float64")


def five(v: Any, out: Any) -> None:
    """Average an element and its four neighbours."""
    for i in range(1, v.shape[0] - 1):
        for j in range(1, v.shape[1] - 1):
            out[i, j] = (v[i, j] + v[i - 1, j] + v[i + 1, j] + v[i, j - 1] + v[i, j + 1]) * 0.2


def _five_of(v: _Array) -> _Array:
    out = np.zeros_like(v)
    inner = v[1:-1, 1:-1] + v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:]
    out[1:-1, 1:-1] = inner * 0.2
    return out


# --- systems ----------------------------------------------------------------------------------------------------------


def _ours(store: Any, operation: str) -> Callable[[], Any]:
    import nandarray
    from nandarray import programs

    out = store[f"{operation} {OURS}"]
    if operation == "merge":
        merge = programs.get("merge", dtype="float64")
        nandarray.offload(merge, [np.zeros(1), np.zeros(1)])  # compiles
        return lambda: nandarray.offload(merge, [store["a"], store["b"]], out=out)
    options: dict[str, Any] = {"depth": 1, "boundary": "nearest", "trusted": True, "boundscheck": False}
    store["grid"].map_blocks(five, key=np.s_[:2, :2], **options)  # compiles
    return lambda: store["grid"].map_blocks(five, out=out, **options)


def _dask(store: Any, operation: str) -> Callable[[], Any]:
    from nandarray.interop.dask import to_dask

    dask, da = (importlib.import_module(name) for name in ("dask", "dask.array"))
    # Imports and thread pools are not the operation's.
    da.map_overlap(_five_of, da.ones((2, 2)), depth=1, boundary="nearest").compute()
    dask.compute(dask.delayed(len)(()), scheduler="threads")
    out = store[f"{operation} {DASK}"]
    if operation == "stencil":
        made = da.map_overlap(_five_of, to_dask(store["grid"]), depth=1, boundary="nearest", dtype="float64")
        return lambda: da.store(made, out, lock=False)
    a, b = store["a"], store["b"]

    def place(value: float) -> int:
        low, high = 0, b.shape[0]
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if b[middle] < value else (low, middle)
        return low

    def piece(first: int, last: int, start: int, stop: int) -> None:
        both = np.concatenate([a[first:last], b[start:stop]])
        both.sort(kind="stable")
        out[first + start : last + stop] = both

    def run() -> Any:
        edges = [*range(0, a.shape[0], _PIECE), a.shape[0]]
        cuts = [0, *(place(float(a[edge])) for edge in edges[1:-1]), b.shape[0]]
        pieces = zip(edges[:-1], edges[1:], cuts[:-1], cuts[1:], strict=True)
        return dask.compute(*[dask.delayed(piece)(*one) for one in pieces], scheduler="threads")

    return run


def _numpy(store: Any, operation: str) -> Callable[[], Any]:
    if operation == "merge":
        a, b = store["a"][...], store["b"][...]
        return lambda: np.sort(np.concatenate([a, b]), kind="stable")
    grid = np.pad(store["grid"][...], 1, mode="edge")
    return lambda: _five_of(grid)


def _child(pipe: Connection, path: Path, system: str, operation: str) -> None:
    import nandarray

    with nandarray.open(path, mode="r+") as store:
        run = {OURS: _ours, DASK: _dask, NUMPY: _numpy}[system](store, operation)
        pipe.send("ready")
        pipe.recv()
        begin = time.perf_counter()
        run()
        pipe.send(time.perf_counter() - begin)
        pipe.recv()


# --- measuring --------------------------------------------------------------------------------------------------------


def _check(path: Path, operation: str) -> None:
    """Compare what ours and Dask wrote, a piece at a time."""
    import nandarray

    with nandarray.open(path) as store:
        ours, dask = (store.open_array(f"{operation} {system}") for system in (OURS, DASK))
        rows = max(1, _PIECE // math.prod(ours.shape[1:]))
        for at in range(0, ours.shape[0], rows):
            if not np.array_equal(ours[at : at + rows], dask[at : at + rows]):
                raise SystemExit(f"{OURS} and {DASK} give another {operation} from {at} on")


def measure(
    folder: Path,
    *,
    size: int,
    rounds: int,
    operations: tuple[str, ...] = OPERATIONS,
    say: Callable[[str], None] = print,
) -> list[PairRow]:
    """Measure all systems on arrays of together `size` bytes in a folder, removed at the end; ours come first."""
    place = folder / "offload-pairs"
    path = place / "data.nand"
    rows: list[PairRow] = []
    try:
        place.mkdir(parents=True, exist_ok=True)
        say(f"writing {size / 2**20:g} MiB to merge, and as many of a grid")
        make(path, size)
        for operation in operations:
            found = {system: PairRow(operation, system) for system in SYSTEMS}
            for turn in range(rounds):
                shift = turn % len(SYSTEMS)
                for system in SYSTEMS[shift:] + SYSTEMS[:shift]:
                    seconds, private, _ = watch(_child, path, system, operation)
                    found[system].seconds.append(seconds)
                    found[system].private = max(found[system].private, private)
                    say(f"{operation}: {system}: {seconds:.2f} s")
            _check(path, operation)
            rows += judged(list(found.values()))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return rows


def judged(rows: list[PairRow]) -> list[PairRow]:
    """Compare the systems of one operation with Dask, and ours with what is promised."""
    times = {row.system: statistics.median(row.seconds) for row in rows}
    for row in rows:
        row.ratio = times[DASK] / times[row.system]
        if row.system == OURS:
            held = row.ratio >= 1 and row.private <= MEMORY
            row.verdict = "held" if held else "MISSED"
    return rows


def table(rows: list[PairRow]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the lines of the table."""
    heads = ["operation", "system", "median, s", "spread, s", "times as fast as Dask", "memory, MiB", "verdict"]
    lines = [
        [
            row.operation,
            row.system,
            f"{statistics.median(row.seconds):.2f}",
            f"{min(row.seconds):.2f} to {max(row.seconds):.2f}",
            f"{row.ratio:.2f}",
            f"{row.private / 2**20:.0f}",
            row.verdict,
        ]
        for row in rows
    ]
    return heads, lines
