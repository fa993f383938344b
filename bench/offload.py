"""Ready-made programs over an array of a store, beside libraries that have the same data in memory.

The array is of one dimension, float64 and then float32 by default, larger than any cache. Ours reads it from the
store, whose file is in the page cache, pages compared with their checksums before the first round; peers have it in
memory already, as a NumPy array or as an Arrow array of the same bytes, DuckDB also as a table of its own. Systems
take turns within a round and begin with another one each round. Results are compared with NumPy's before anything is
timed.

The last operation, the sum of what the filter keeps, is a pipeline of two programs; beside it stand the same two, one
after the other, with an array of the store in between.

Memory is watched from outside, in a process that has nothing but the open store: what it takes beside the mapping.
"""

from __future__ import annotations

import importlib
import os
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

#: Most processor time of the translated form as a multiple of the native form's; three times for all others.
WITHIN = {"histogram": 4.0}
OPERATIONS = ("sum", "minmax", "filter", "histogram", "filter-sum")
APART = "nandarray, native, in two runs"
LOW, HIGH, BINS = -3.0, 3.0, 256
_CHUNK = 1 << 22
# Before each run: threads of OpenMP, which Numba uses, keep their cores busy for 10 ms after their work.
_PAUSE_S = 0.03
_Array = np.ndarray[Any, Any]
_Runs = dict[str, Callable[[], Any]]


@dataclass
class Row:
    """One system at one operation: seconds of each round, gigabytes a second of their median, what it took beside.

    ``cpu`` is the processor time of each round, all threads together; ``cpu_ratio`` is its median over the native
    form's.
    """

    operation: str
    system: str
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    cpu_ratio: float = 0.0
    dtype: str = "float64"
    rate: float = 0.0
    ratio: float = 0.0
    private: int | None = None
    mapped: int | None = None
    verdict: str = ""


def keep(dtype: str) -> tuple[float, float]:
    """Bounds of the filter: about a tenth of the elements lies between them. They are numbers in any precision."""
    return (1.0, 1.625) if np.dtype(dtype).kind == "f" else (1000.0, 1600.0)


def spread(dtype: str) -> tuple[float, float]:
    """Bounds of the histogram: nearly all elements lie between them."""
    scale = 1.0 if np.dtype(dtype).kind == "f" else 1000.0
    return LOW * scale, HIGH * scale


def make(path: Path, size: int, dtype: str) -> None:
    """Write the array: normally distributed, of a fixed seed."""
    import nandarray

    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20)
    count = size // np.dtype(dtype).itemsize
    scale = 1 if np.dtype(dtype).kind == "f" else 1000
    with nandarray.open(path, mode="w") as store:
        array = store.create("x", (count,), dtype)
        for at in range(0, count, _CHUNK):
            array[at : at + _CHUNK] = (scale * rng.normal(size=min(_CHUNK, count - at))).astype(dtype)


# --- systems ----------------------------------------------------------------------------------------------------------


def _ours(array: Any, dtype: str, form: str) -> _Runs:
    import nandarray
    from nandarray import programs

    def run(name: str, **scalars: float) -> Callable[[], Any]:
        program = programs.get(name, dtype=dtype)
        typed = {key: np.dtype(dtype).type(value) if name == "filter" else value for key, value in scalars.items()}
        return lambda: nandarray.offload(program, [array], typed, form=form).result

    def pipeline() -> Any:
        return total.on(kept.on(array, **bounds)).run(form=form)

    (low, high), (first, last) = keep(dtype), spread(dtype)
    total, kept = programs.get("sum", dtype=dtype), programs.get("filter", dtype=dtype)
    bounds = {"low": np.dtype(dtype).type(low), "high": np.dtype(dtype).type(high)}
    return {
        "sum": run("sum"),
        "minmax": run("minmax"),
        "filter": run("filter", low=low, high=high),
        "histogram": run("histogram", low=first, high=last),
        "filter-sum": pipeline,
    }


def _apart(store: Any, dtype: str) -> _Runs:
    """Return the pipeline's programs one after the other: what the first keeps is an array of the store."""
    import nandarray
    from nandarray import programs

    total, kept = programs.get("sum", dtype=dtype), programs.get("filter", dtype=dtype)
    bounds = dict(zip(("low", "high"), map(np.dtype(dtype).type, keep(dtype)), strict=True))
    array = store["x"]
    between = store.create("between", array.shape, dtype)

    def run() -> Any:
        count = nandarray.offload(kept, [array], bounds, out=between, form="native").result
        return nandarray.offload(total, [nandarray.Box(between, np.s_[:count])], form="native").result

    return {"filter-sum": run}


def _numpy(x: _Array) -> _Runs:
    (low, high), bounds = keep(x.dtype.name), spread(x.dtype.name)
    wide = np.float64 if x.dtype.kind == "f" else np.int64
    return {
        "sum": lambda: x.sum(dtype=wide),
        "minmax": lambda: (x.min(), x.max()),
        "filter": lambda: x[(x >= low) & (x <= high)],
        "histogram": lambda: np.histogram(x, BINS, bounds)[0],
        "filter-sum": lambda: x[(x >= low) & (x <= high)].sum(dtype=wide),
    }


def _numba(x: _Array, *, parallel: bool) -> _Runs:
    import numba

    (low, high), (first, last) = keep(x.dtype.name), spread(x.dtype.name)
    parts = numba.get_num_threads() * 8 if parallel else 1
    many = numba.prange
    zero = np.float64(0) if x.dtype.kind == "f" else np.int64(0)
    scale = BINS / (last - first)

    def jit(function: Any) -> Any:
        # fastmath lets sums and extremes use vectors: its best configuration, though another order of additions.
        return numba.njit(parallel=parallel, fastmath=True, nogil=True)(function)

    @jit
    def total(x: _Array) -> Any:
        found = zero
        for i in many(len(x)):
            found += x[i]
        return found

    @jit
    def total_kept(x: _Array) -> Any:
        found = zero
        for i in many(len(x)):
            if low <= x[i] <= high:
                found += x[i]
        return found

    @jit
    def extremes(x: _Array) -> Any:
        least, greatest = x[0], x[0]
        for i in many(len(x)):
            least = min(least, x[i])
            greatest = max(greatest, x[i])
        return least, greatest

    @jit
    def counts(x: _Array) -> Any:
        found = np.zeros(parts, np.int64)
        step = (len(x) + parts - 1) // parts
        for p in many(parts):
            n = 0
            for i in range(p * step, min(len(x), (p + 1) * step)):
                n += low <= x[i] <= high
            found[p] = n
        return found

    @jit
    def kept(x: _Array, at: _Array, out: _Array) -> None:
        step = (len(x) + parts - 1) // parts
        for p in many(parts):
            n = at[p]
            for i in range(p * step, min(len(x), (p + 1) * step)):
                if low <= x[i] <= high:
                    out[n] = x[i]
                    n += 1

    def select() -> _Array:
        ends = np.cumsum(counts(x))
        out = np.empty(ends[-1], x.dtype)
        kept(x, np.concatenate([[0], ends[:-1]]), out)
        return out

    @jit
    def bins(x: _Array) -> Any:
        found = np.zeros((parts, BINS), np.int64)
        step = (len(x) + parts - 1) // parts
        for p in many(parts):
            mine = np.zeros(BINS, np.int64)
            for i in range(p * step, min(len(x), (p + 1) * step)):
                value = float(x[i])
                if first <= value <= last:
                    mine[min(int((value - first) * scale), BINS - 1)] += 1
            found[p] = mine
        return found.sum(axis=0)

    return {
        "sum": lambda: total(x),
        "minmax": lambda: extremes(x),
        "filter": select,
        "histogram": lambda: bins(x),
        "filter-sum": lambda: total_kept(x),
    }


def _arrow(x: _Array) -> _Runs:
    import pyarrow as pa
    import pyarrow.compute as pc

    # Pieces of the same memory: Arrow's tables use all cores over pieces only.
    pieces = pa.chunked_array([pa.array(x[at : at + _CHUNK]) for at in range(0, len(x), _CHUNK)])
    table = pa.table({"x": pieces})
    (low, high), (first, last) = keep(x.dtype.name), spread(x.dtype.name)
    low, high = x.dtype.type(low), x.dtype.type(high)
    inside = (pc.field("x") >= pa.scalar(low)) & (pc.field("x") <= pa.scalar(high))

    def histogram() -> _Array:
        counted = np.zeros(BINS, np.int64)
        for piece in pieces.chunks:
            wide = pc.cast(piece, pa.float64())
            wide = wide.filter(pc.and_(pc.greater_equal(wide, first), pc.less_equal(wide, last)))
            bins = pc.cast(pc.multiply(pc.subtract(wide, first), BINS / (last - first)), pa.int16(), safe=False)
            bins = pc.min_element_wise(bins, pa.scalar(BINS - 1, pa.int16()))
            for one in pc.value_counts(bins).to_numpy(zero_copy_only=False):
                counted[one["values"]] += one["counts"]
        return counted

    return {
        "sum": lambda: pc.sum(pieces).as_py(),
        "minmax": lambda: tuple(pc.min_max(pieces).as_py().values()),
        "filter": lambda: table.filter(inside)["x"],
        "histogram": histogram,
        "filter-sum": lambda: pc.sum(table.filter(inside)["x"]).as_py(),
    }


def _duckdb(x: _Array, *, own: bool) -> _Runs:
    import duckdb
    import pyarrow as pa

    database = duckdb.connect()
    data = pa.table({"x": pa.chunked_array([pa.array(x[at : at + _CHUNK]) for at in range(0, len(x), _CHUNK)])})
    database.register("data", data)
    if own:
        database.execute("CREATE TABLE mine AS SELECT x FROM data")
    table = "mine" if own else "data"
    (low, high), (first, last) = keep(x.dtype.name), spread(x.dtype.name)
    scale = BINS / (last - first)

    def histogram() -> _Array:
        rows = database.execute(
            f"SELECT least(floor((x::DOUBLE - {first}) * {scale})::SMALLINT, {BINS - 1}) AS b, count(*)"  # noqa: S608
            f" FROM {table} WHERE x BETWEEN {first} AND {last} GROUP BY b"
        ).fetchall()
        counted = np.zeros(BINS, np.int64)
        for place, count in rows:
            counted[place] = count
        return counted

    return {
        "sum": lambda: database.execute(f"SELECT sum(x) FROM {table}").fetchall()[0][0],  # noqa: S608
        "minmax": lambda: database.execute(f"SELECT min(x), max(x) FROM {table}").fetchall()[0],  # noqa: S608
        "filter": lambda: database.sql(
            f"SELECT x FROM {table} WHERE x BETWEEN {low} AND {high}"  # noqa: S608
        ).to_arrow_table()["x"],
        "histogram": histogram,
        "filter-sum": lambda: database.execute(
            f"SELECT sum(x) FROM {table} WHERE x BETWEEN {low} AND {high}"  # noqa: S608
        ).fetchall()[0][0],
    }


def _peers(x: _Array, skip: Callable[[str], None]) -> dict[str, _Runs]:
    wanted: list[tuple[str, str, Callable[[], _Runs]]] = [
        ("NumPy", "numpy", lambda: _numpy(x)),
        ("Numba", "numba", lambda: _numba(x, parallel=False)),
        ("Numba parallel", "numba", lambda: _numba(x, parallel=True)),
        ("Arrow", "pyarrow", lambda: _arrow(x)),
        ("DuckDB over Arrow", "duckdb", lambda: _duckdb(x, own=False)),
        ("DuckDB's table", "duckdb", lambda: _duckdb(x, own=True)),
    ]
    found = {}
    for name, package, make_runs in wanted:
        try:
            importlib.import_module(package)
        except ImportError:
            skip(f"skipping {name}: {package} is not installed; pip install '.[bench]'")
            continue
        if name == "DuckDB's table" and (free := _free_bytes()) < 2 * x.nbytes:
            skip(f"skipping {name}: it needs {2 * x.nbytes / 1e9:.0f} GB of memory, and {free / 1e9:.0f} are free")
            continue
        found[name] = make_runs()
    return found


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


# --- measuring --------------------------------------------------------------------------------------------------------


def _check(operation: str, found: Any, wanted: Any, system: str, dtype: str = "float64") -> None:
    """Results agree: exactly, but for the order of a sum and the rounding of a bin's edge."""
    mine, theirs = (np.asarray(_plain(one)) for one in (found, wanted))
    if operation in {"sum", "filter-sum"}:
        good = bool(np.isclose(float(mine), float(theirs), rtol=1e-9, atol=1e-2))
    elif operation == "histogram":
        # NumPy works out float32's bins in float32.
        few = max(8, theirs.sum() // (10**4 if dtype == "float32" else 10**6))
        good = bool(np.abs(mine.astype(np.int64) - theirs.astype(np.int64)).sum() <= few)
    else:
        good = np.array_equal(mine, theirs)
    if not good:
        raise SystemExit(f"{system} gives another {operation} than NumPy: {mine}, {theirs}")


def _plain(found: Any) -> Any:
    if isinstance(found, dict):
        return tuple(found.values())
    return found.to_numpy() if hasattr(found, "to_numpy") else found


def forms() -> tuple[str, ...]:
    """Forms that programs have here, the fastest first."""
    from nandarray.programs.compile import native

    return tuple(reversed(native.FORMS))


def measure(
    folder: Path,
    *,
    size: int,
    dtype: str,
    rounds: int,
    operations: tuple[str, ...] = OPERATIONS,
    wanted_forms: tuple[str, ...] = (),
    say: Callable[[str], None] = print,
) -> list[Row]:
    """Measure all systems.

    Parameters
    ----------
    folder : pathlib.Path
        Folder of the store, which is removed at the end.
    size : int
        Bytes of the array.
    dtype : str
        Dtype of its elements.
    rounds : int
        Number of runs of each system; a figure is their median.
    operations : tuple of str
        Names, of :data:`OPERATIONS`.
    wanted_forms : tuple of str
        Forms beside the native one; all that there are if empty.
    say : callable
        Function that is called with lines on the progress, and on systems that are skipped.

    Returns
    -------
    list of Row
        By operation, ours first.
    """
    import nandarray

    ours = [form for form in forms() if form == "native" or not wanted_forms or form in wanted_forms]
    place = folder / "offload"
    path = place / "data.nand"
    rows: list[Row] = []
    try:
        say(f"writing {size / 2**30:g} GiB of {dtype}")
        make(path, size, dtype)
        memory = {(form, one): _watch(path, dtype, form, one) for form in ours for one in operations}
        with nandarray.open(path, mode="r") as store, nandarray.open(path, mode="r+") as second:
            array = store["x"]
            x = array[...]
            systems = {f"nandarray, {form}": _ours(array, dtype, form) for form in ours}
            systems |= {APART: _apart(second, dtype)} | _peers(x, say)
            for operation in operations:
                names = [name for name, runs in systems.items() if operation in runs]
                say(f"{operation}: {', '.join(names)}")
                found = {name: Row(operation, name, dtype=dtype) for name in names}
                wanted = _numpy(x)[operation]()
                for name in names:
                    _check(operation, systems[name][operation](), wanted, name, dtype)
                del wanted
                for turn in range(rounds):
                    shift = turn % len(names)
                    for name in names[shift:] + names[:shift]:
                        time.sleep(_PAUSE_S)
                        begin, used = time.perf_counter(), time.process_time()
                        given = systems[name][operation]()
                        found[name].seconds.append(time.perf_counter() - begin)
                        found[name].cpu.append(time.process_time() - used)
                        del given
                for form in ours:
                    mine = found[f"nandarray, {form}"]
                    mine.private, mine.mapped = memory[form, operation]
                rows += judged(list(found.values()), x.nbytes)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return rows


def judged(rows: list[Row], nbytes: int) -> list[Row]:
    """Work out rates, and ratios to our native form: its time over theirs, so that more than 1 is faster than it.

    Our other forms are judged by processor time, which memory that all cores wait for does not hide.
    """
    medians = {row.system: statistics.median(row.seconds) for row in rows}
    native = medians["nandarray, native"]
    used = {row.system: statistics.median(row.cpu) if row.cpu else medians[row.system] for row in rows}
    for row in rows:
        row.cpu_ratio = used[row.system] / (used["nandarray, native"] or 1e-9)
        within = WITHIN.get(row.operation, 3.0)
        row.rate = nbytes / medians[row.system] / 1e9
        row.ratio = native / medians[row.system]
        if row.system == "nandarray, translated":
            over = f"MISSED: more than {within:g} times the native form's processor time"
            row.verdict = "kept" if row.cpu_ratio <= within else over
        elif not row.system.startswith("nandarray"):
            row.verdict = "kept" if row.ratio <= 1 else "MISSED: faster than the native form"
    return rows


def _child(pipe: Connection, path: Path, dtype: str, form: str, operation: str) -> None:
    import nandarray

    with nandarray.open(path, mode="r") as store:
        small = nandarray.Box(store.open_array("x"), np.s_[:1000])
        _ours(small, dtype, form)[operation]()  # imports, compiled programs, thread pools
        run = _ours(store["x"], dtype, form)[operation]
        pipe.send("ready")
        pipe.recv()
        found = run()
        # The output is the caller's, as a buffer is in reads.
        pipe.send(sum(np.asarray(one).nbytes for one in (found.values() if isinstance(found, dict) else [found])))
        pipe.recv()


def _watch(path: Path, dtype: str, form: str, operation: str) -> tuple[int, int]:
    """Return the most bytes beside the result, private and mapped, while a process runs an operation once."""
    result, private, mapped = watch(_child, path, dtype, form, operation)
    return max(0, private - result), mapped


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as text."""
    header = ["dtype", "operation", "system", "GB/s", "speed, native = 1", "CPU time, native = 1"]
    header += ["memory beside the mapping", "verdict"]
    lines = []
    for row in rows:
        memory = "" if row.private is None else f"{row.private / 2**20:.1f} MiB"
        figures = [f"{row.rate:.2f}", f"{row.ratio:.3f}", f"{row.cpu_ratio:.2f}"]
        lines.append([row.dtype, row.operation, row.system, *figures, memory, row.verdict])
    return header, lines


def default_size() -> int:
    """4 GiB, or less where that and what peers need beside it do not fit the memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(4 << 30, total // 5 // (1 << 28) * (1 << 28)) or 1 << 28
