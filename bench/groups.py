"""Groups of many keys, and an exact median, of a store: each system in a process of its own whose memory is watched.

Two arrays of one dimension, integers as keys and float64 values, are written once. Ours computes beside the data in
bounded memory; Dask reads the same store block by block; Polars has the data in memory, and what it takes to have it
there counts as its memory. A process is warmed up by a small part, so that compilers are not measured. Results are
checked by what they have to add up to. Memory is the most by which private memory grew while the process worked, and
beside it the most that was resident, with the page cache as it sees it and all that Python has loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from .memory import watch
from .worker import SystemFailedError

BUDGET = 256 << 20
OPERATIONS = ("group-by", "median")
SYSTEMS = {"nandarray": "", "Dask": "dask", "Polars": "polars"}
_SMALL, _CHUNK = 1000, 1 << 22


@dataclass
class Measured:
    """One system at one operation: seconds, bytes of private memory more and of all resident, whether that is kept."""

    operation: str
    system: str
    seconds: float
    private: int
    resident: int
    verdict: str = ""


def _make(path: Path, size: int, keys: int) -> None:
    """Write keys and values, ``size`` bytes in all, of a fixed seed."""
    import nandarray

    rng = np.random.default_rng(21)
    count = size // 16
    with nandarray.open(path, mode="w") as store:
        of_key, values = store.create("keys", (count,), "i8"), store.create("values", (count,), "f8")
        for at in range(0, count, _CHUNK):
            few = min(_CHUNK, count - at)
            of_key[at : at + few], values[at : at + few] = rng.integers(0, keys, few), rng.normal(size=few)


def _ours(store: Any, part: slice) -> dict[str, Callable[[], Any]]:
    import nandarray

    by = nandarray.Box(store["keys"], part)

    def groups() -> Any:
        found = store["values"].group_by(by, key=part, budget=BUDGET).reduce("sum", "size")
        return found["keys"], found["sum"], found["size"]

    return {"group-by": groups, "median": lambda: store["values"].reduce("median", key=part)}


def _dask(store: Any, part: slice) -> dict[str, Callable[[], Any]]:
    arrays: Any = importlib.import_module("dask.array")
    frames: Any = importlib.import_module("dask.dataframe")
    keys, values = (arrays.from_array(store[name], chunks=1 << 20)[part] for name in ("keys", "values"))

    def groups() -> Any:
        table = frames.from_dask_array(arrays.stack([keys, values], axis=1), columns=["k", "v"])
        found = table.groupby("k")["v"].agg(["sum", "size"]).compute().sort_index()
        return found.index.to_numpy().astype("i8"), found["sum"].to_numpy(), found["size"].to_numpy()

    def median() -> Any:
        return arrays.median(values.rechunk(-1), axis=0).compute()

    return {"group-by": groups, "median": median}


def _polars(store: Any, part: slice) -> dict[str, Callable[[], Any]]:
    import polars

    def table() -> Any:
        return polars.DataFrame({"k": store["keys"][part], "v": store["values"][part]})

    def groups() -> Any:
        column = polars.col("v")
        found = table().group_by("k").agg(column.sum().alias("sum"), column.len().alias("size")).sort("k")
        return tuple(found[name].to_numpy() for name in ("k", "sum", "size"))

    return {"group-by": groups, "median": lambda: table()["v"].median()}


_MAKERS = {"nandarray": _ours, "Dask": _dask, "Polars": _polars}


def _child(pipe: Connection, path: Path, system: str, operation: str) -> None:
    import nandarray

    with nandarray.open(path, mode="r") as store:
        _MAKERS[system](store, slice(0, _SMALL))[operation]()
        run = _MAKERS[system](store, slice(None))[operation]
        # The program for a table of full size is compiled, too.
        if system == "nandarray" and operation == "group-by":
            _MAKERS[system](store, slice(0, 1 << 17))[operation]()
        pipe.send("ready")
        pipe.recv()
        begin = time.perf_counter()
        found = run()
        took = time.perf_counter() - begin
        resident = _most_resident()
        _check(store, operation, found)
        pipe.send((took, resident))
        pipe.recv()


def _most_resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _check(store: Any, operation: str, found: Any) -> None:
    """Check what a result has to add up to, in little memory; a SystemExit ends the process that has a wrong one."""
    if operation == "median":
        below = above = 0
        few = 1 << 18
        for at in range(0, len(store["values"]), few):
            part = store["values"][at : at + few]
            below, above = below + int((part < found).sum()), above + int((part > found).sum())
        if below != above:
            raise SystemExit(f"a median with {below} values below it and {above} above it")
        return
    keys, sums, sizes = found
    if not (np.diff(keys) > 0).all() or int(sizes.sum()) != len(store["keys"]):
        raise SystemExit(f"groups of {int(sizes.sum())} values of {len(store['keys'])}, or their keys are not sorted")
    total = float(store["values"].reduce("sum"))
    if abs(float(sums.sum()) - total) > 1e-9 * len(store["keys"]):
        raise SystemExit(f"sums of groups add up to {float(sums.sum())}, and values to {total}")


def measure(
    folder: Path,
    *,
    size: int,
    keys: int,
    operations: tuple[str, ...] = OPERATIONS,
    say: Callable[[str], None] = print,
) -> list[Measured]:
    """Measure all systems that are installed.

    Parameters
    ----------
    folder : pathlib.Path
        Folder of the store, which is removed at the end.
    size : int
        Bytes of keys and values together.
    keys : int
        Number of different keys that are drawn from.
    operations : tuple of str
        Names, of :data:`OPERATIONS`.
    say : callable
        Function that is called with lines on the progress, and on systems that are skipped.

    Returns
    -------
    list of Measured
        By operation, ours first.
    """
    place = folder / "groups"
    place.mkdir(parents=True, exist_ok=True)
    path, found = place / "data.nand", []
    try:
        say(f"writing {size / 2**20:g} MiB of keys and values, {keys} different keys")
        _make(path, size, keys)
        for operation in operations:
            for system, package in SYSTEMS.items():
                if package and importlib.util.find_spec(package) is None:
                    say(f"skipping {system}: {package} is not installed")
                    continue
                say(f"{operation}: {system}")
                try:
                    (seconds, resident), private, _ = watch(_child, path, system, operation)
                except SystemFailedError as error:
                    say(f"{system} failed: {error}")
                    continue
                within = "kept" if private <= BUDGET else f"MISSED: more than {BUDGET >> 20} MiB"
                found.append(
                    Measured(operation, system, seconds, private, resident, within if system == "nandarray" else "")
                )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return found


def table(rows: list[Measured], size: int) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as text."""
    header = ["operation", "system", "s", "GB/s", "private memory more, MiB", "peak RSS, MiB", "verdict"]
    lines = []
    for row in rows:
        read = size if row.operation == "group-by" else size // 2
        figures = [f"{row.seconds:.2f}", f"{read / row.seconds / 1e9:.2f}", f"{row.private / 2**20:.0f}"]
        figures.append(f"{row.resident / 2**20:.0f}")
        lines.append([row.operation, row.system, *figures, row.verdict])
    return header, lines
