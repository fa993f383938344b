"""The paper's ten workloads on this machine's disk: the store against a row-major file and against Zarr.

Each workload runs at a size of this machine from each place (:mod:`nandarray_papers.workloads.wall`), one command or
call a fetch, one fetch at a time. Time in the fetches and time in the kernel are taken apart. Then the fetches of one
pass are repeated alone: warm (the file is in the page cache, and this process has read it before) and cold (page cache
emptied, place opened anew before each pass). Results of all places must be equal.

The answer is about this machine, so it differs from run to run; only its inputs are reproducible. Not covered: the
model, and the paper's own system.
"""

from __future__ import annotations

import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result
from nandarray_papers.workloads import TABLE_1, Fetch, Mismatch, Workload
from nandarray_papers.workloads.wall import PLACES, Place, make_cold

__all__ = ["EXPERIMENT", "measure", "ratios"]

Row = dict[str, Any]

#: Passes that the kernel runs for (GEMM: row panels); BFS until it is done, since its first level is a single band.
_ROUNDS: Mapping[str, int | None] = {"BFS": None, "SSSP": 4, "PageRank": 2}
#: Below this many elements, the result is compared with the oracle, too.
_ORACLE_MAX = 1 << 19


class _Operands:
    """All operands of a workload in places of one kind, read into buffers that are used again."""

    def __init__(self, workload: Workload, places: Sequence[Place]) -> None:
        self._workload, self._places = workload, places
        self._buffers: dict[tuple[int, tuple[int, ...]], np.ndarray[Any, Any]] = {}
        self.seconds = 0.0

    def __call__(self, fetch: Fetch) -> np.ndarray[Any, Any]:
        shape = fetch.count(self._workload.view)
        buffer = self._buffers.get((fetch.operand, shape))
        if buffer is None:
            buffer = self._buffers[fetch.operand, shape] = np.zeros(shape, self._workload.dataset.dtype)
        begin = time.perf_counter()
        self._places[fetch.operand].read(fetch, buffer)
        self.seconds += time.perf_counter() - begin
        return buffer

    def open(self) -> None:
        for place in self._places:
            place.open()

    def close(self) -> None:
        for place in self._places:
            place.close()

    def one_pass(self, fetches: Sequence[Fetch]) -> float:
        self.seconds = 0.0
        for fetch in fetches:
            self(fetch)
        return self.seconds


@contextmanager
def _folder(wanted: str) -> Iterator[Path]:
    if wanted:
        Path(wanted).mkdir(parents=True, exist_ok=True)
        yield Path(wanted)
    else:
        with tempfile.TemporaryDirectory() as made:
            yield Path(made)


def _place(kind: str, workload: Workload, operand: int, folder: Path) -> Place:
    shape = "x".join(map(str, workload.shape))
    where = folder / f"{workload.dataset.name}-{operand}-{shape}-{workload.seed}"
    where.mkdir(exist_ok=True)
    return PLACES[kind](where, workload.dataset)


def _write(workload: Workload, kinds: Sequence[str], folder: Path) -> None:
    """Store what is not there yet; a mark tells a place that is whole from one whose writing was broken off."""
    for operand in range(workload.operands):
        missing = {}
        for kind in kinds:
            place = _place(kind, workload, operand, folder)
            if not place.path.with_suffix(place.path.suffix + ".whole").exists():
                missing[place.path] = place
        data = workload.make(operand) if missing else None
        for path, place in missing.items():
            shutil.rmtree(path, ignore_errors=True)
            assert data is not None
            place.write(data)
            path.with_suffix(path.suffix + ".whole").touch()


def _pass(workload: Workload) -> list[Fetch]:
    """Return the fetches to be timed alone: one pass, of GEMM one row panel of the product."""
    fetches = list(workload.fetches())
    return fetches[: len(fetches) // workload.blocks[0]] if workload.name == "GEMM" else fetches


def measure(
    workload: Workload,
    kinds: Sequence[str],
    folder: Path,
    *,
    repeats: int = 1,
    cold: int = 1,
    drop_caches: bool = False,
) -> list[Row]:
    """Run one workload from each place: a row a place of the experiment's table ``fetches``.

    ``folder`` has the places' files, or will. A pass of fetches is repeated, warm and ``cold``, so often, at least
    once. With ``drop_caches``, which only root can, the whole page cache is emptied for cold passes, not only of the
    files read. Results that differ are a Mismatch.
    """
    _write(workload, kinds, folder)
    small = workload.at([min(n, 8) for n in workload.shape])
    small.run(_reader_of(small), 1)  # compiles what Numba compiles
    fetches, rounds = _pass(workload), _ROUNDS.get(workload.name, 1)
    nbytes = sum(map(workload.nbytes, fetches))
    rows: list[Row] = []
    expected = None
    if math.prod(workload.shape) <= _ORACLE_MAX:
        expected = workload.reference(*map(workload.make, range(workload.operands)), rounds=rounds)
    for kind in kinds:
        read = _Operands(workload, [_place(kind, workload, operand, folder) for operand in range(workload.operands)])
        read.open()
        try:
            read.one_pass(fetches)
            read.seconds = 0.0
            begin = time.perf_counter()
            found = workload.run(read, rounds)
            total_s, in_fetches_s = time.perf_counter() - begin, read.seconds
            warm = [read.one_pass(fetches) for _ in range(max(repeats, 1))]
            chilled = []
            for _ in range(max(cold, 1)):
                read.close()
                for operand in range(workload.operands):
                    make_cold(_place(kind, workload, operand, folder).path, drop_caches=drop_caches)
                read.open()
                chilled.append(read.one_pass(fetches))
        finally:
            read.close()
        if expected is None:
            expected = found
        try:
            workload.check(found, expected)
        except Mismatch as mismatch:
            raise Mismatch(f"from {kind}: {mismatch}") from None
        warm_s = statistics.median(warm)
        cold_s = statistics.median(chilled)
        rows.append(
            {
                "workload": workload.name,
                "place": kind,
                "fetches": len(fetches),
                "bytes": nbytes,
                "bytes_a_fetch": workload.nbytes(fetches[0]),
                "warm_s": warm_s,
                "warm_best_s": min(warm),
                "warm_worst_s": max(warm),
                "warm_GBps": nbytes / warm_s / 1e9,
                "cold_s": cold_s,
                "cold_GBps": nbytes / cold_s / 1e9,
                "kernel_s": total_s - in_fetches_s,
                "kernel_fetch_s": in_fetches_s,
                "results_equal": True,
            }
        )
    return rows


def _reader_of(workload: Workload) -> Callable[[Fetch], np.ndarray[Any, Any]]:
    arrays = [workload.make(operand) for operand in range(workload.operands)]
    return lambda fetch: arrays[fetch.operand][fetch.box(workload.view)]


def ratios(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Divide each peer's time by the store's; the last row of each peer is the geometric mean.

    In the columns ``warm`` and ``cold`` the store loses where a number is below 1.
    """
    ours = {row["workload"]: row for row in rows if row["place"] == "nandarray"}
    out: list[Row] = []
    for peer in dict.fromkeys(row["place"] for row in rows if row["place"] != "nandarray"):
        theirs = [row for row in rows if row["place"] == peer and row["workload"] in ours]
        if not theirs:
            continue
        mine = [
            {
                "workload": row["workload"],
                "peer": peer,
                "warm": row["warm_s"] / ours[row["workload"]]["warm_s"],
                "cold": row["cold_s"] / ours[row["workload"]]["cold_s"],
            }
            for row in theirs
        ]
        means = {key: math.exp(statistics.fmean(math.log(row[key]) for row in mine)) for key in ("warm", "cold")}
        out += [*mine, {"workload": "geometric mean", "peer": peer, **means}]
    return out


def run(context: Context) -> Result:
    """Measure every workload."""
    rows: list[Row] = []
    names = list(context["workloads"] or TABLE_1)
    with _folder(context["folder"]) as folder:
        for done, name in enumerate(names):
            context.progress("workloads", done, len(names))
            paper = TABLE_1[name]
            side = context["cube"] if len(paper.shape) == 3 else context["side"]
            workload = type(paper)((side,) * len(paper.shape), seed=context.seed)
            rows += measure(
                workload,
                context["places"],
                folder,
                repeats=int(context["repeats"]),
                cold=int(context["cold"]),
                drop_caches=bool(context["drop_caches"]),
            )
        context.progress("workloads", len(names), len(names))
    losses = [
        f"{row['workload']}: {row['peer']} takes {row[state]:.2f} of the store's time {state}"
        for row in ratios(rows)
        for state in ("warm", "cold")
        if row[state] < 1
    ]
    emptied = "the page cache emptied" if context["drop_caches"] else "their pages dropped from the page cache"
    return Result(
        tables={"fetches": rows, "ratios": ratios(rows)},
        figures=[
            Figure(
                id=state,
                title=f"Fetching the ten workloads' data on this machine, {state}",
                kind="bar",
                table="fetches",
                x="workload",
                y=f"{state}_GBps",
                series="place",
                y_label="GB/s",
                caption=caption,
            )
            for state, caption in (
                ("warm", "From the page cache: what copying and gathering cost."),
                ("cold", "From the disk, page cache emptied."),
            )
        ],
        assumptions=[
            f"cold means: files written back, {emptied}, places opened anew",
            "one fetch at a time, no overlap with the kernel; a median of the repetitions",
        ],
        misfits=losses,
    )


EXPERIMENT = Experiment(
    id="beyond.wall",
    title="The paper's ten workloads on this machine",
    question="How fast does a store on this machine's disk feed the ten workloads, against a row-major file and Zarr?",
    run=run,
    parameters={
        "workloads": Parameter([], "names as in Table 1; all if empty"),
        "places": Parameter(list(PLACES), "where the data are: nandarray, memmap, pread, zarr"),
        "side": Parameter(12288, "length of matrices along both dimensions, 8 bytes an element", small=256),
        "cube": Parameter(512, "length of tensors along all three dimensions", small=32),
        "repeats": Parameter(5, "warm repetitions of a pass of fetches", small=1),
        "cold": Parameter(3, "cold repetitions", small=1),
        "drop_caches": Parameter(
            default=False, meaning="empty the whole page cache for cold passes, not only of the files read; root only"
        ),
        "folder": Parameter("", "where files are kept, and found again; a temporary folder if empty"),
    },
    deterministic=False,
    minutes=15.0,
)
