"""Schedulers and sessions: decisions a CPU second, and kernels a second beside ``concurrent.futures``.

The peer calls the same native functions: a thread pool that runs each microblock's twin would measure NumPy. So both
sides run one small kernel many times; the peer's work is the same loop in NumPy, on the same arrays.
"""

from __future__ import annotations

import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import nandarray
from nandarray import _nandarray
from nandarray.programs import kernels

READY = 10_000
DECISIONS = 1_000_000
#: Kernels after which resident memory is compared, with the usual count.
RESIDENT = 1_000_000


def decisions(scheduler: str) -> dict[str, Any]:
    """Return decisions a CPU second of a scheduler with many kernels ready."""
    before = time.process_time()
    made = _nandarray.schedule_decisions(scheduler, READY, DECISIONS)
    spent = time.process_time() - before
    return {"scheduler": scheduler, "ready": READY, "decisions": made, "per_cpu_s": made / spent}


def throughput(folder: Path, scheduler: str, count: int, side: int) -> dict[str, Any]:
    """Return kernels a second of a session, and the growth of memory."""
    rng = np.random.default_rng(0)
    A, x = rng.random((side, side), "f4"), rng.random(side, "f4")
    made = kernels.get("atax")
    path = folder / "schedule.nda"
    with nandarray.open(path, mode="w") as store:
        with store.session(scheduler) as session:
            session.submit(made, inputs={"A": A, "x": x}).result()
            warm = [session.submit(made, inputs={"A": A, "x": x}) for _ in range(count // 10)]
            [job.result() for job in warm]
            del warm
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            start = time.perf_counter()
            for _ in range(10):
                jobs = [session.submit(made, inputs={"A": A, "x": x}) for _ in range(count // 10)]
                results = [job.result() for job in jobs]
            spent = time.perf_counter() - start
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        np.testing.assert_allclose(results[0], A.T @ (A @ x), rtol=1e-3)
    path.unlink()
    return {"what": scheduler, "side": side, "per_s": count / spent, "grown_kib": grown}


def resident(folder: Path, scheduler: str, few: int, many: int) -> dict[str, Any]:
    """Return resident memory after a few kernels of a session and after many, submitted a thousand at a time."""
    made, A, x = kernels.get("atax"), np.ones((2, 2), "f4"), np.ones(2, "f4")
    path = folder / "resident.nda"
    kib: dict[int, int] = {}
    with nandarray.open(path, mode="w") as store, store.session(scheduler) as session:
        for done in range(0, many, 1000):
            for job in [session.submit(made, inputs={"A": A, "x": x}) for _ in range(1000)]:
                job.result()
            if done + 1000 in (few, many):
                kib[done + 1000] = _resident_kib()
    path.unlink()
    return {"scheduler": scheduler, "kernels": [few, many], "kib": [kib[few], kib[many]]}


def _resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def peer(count: int, side: int, workers: int) -> dict[str, Any]:
    """Return the same work a second by a thread pool and NumPy."""
    rng = np.random.default_rng(0)
    A, x = rng.random((side, side), "f4"), rng.random(side, "f4")
    with ThreadPoolExecutor(workers) as pool:
        start = time.perf_counter()
        jobs = [pool.submit(lambda: A.T @ (A @ x)) for _ in range(count)]
        [job.result() for job in jobs]
        return {"what": "concurrent.futures with NumPy", "side": side, "per_s": count / (time.perf_counter() - start)}


def dask(count: int, side: int, workers: int) -> dict[str, Any] | None:
    """Return the same by Dask's threads, if it is installed."""
    import importlib

    try:
        dask: Any = importlib.import_module("dask")
    except ImportError:
        return None
    rng = np.random.default_rng(0)
    A, x = rng.random((side, side), "f4"), rng.random(side, "f4")
    task = dask.delayed(lambda: A.T @ (A @ x))
    start = time.perf_counter()
    dask.compute(*[task() for _ in range(count)], scheduler="threads", num_workers=workers)
    return {"what": "Dask threads with NumPy", "side": side, "per_s": count / (time.perf_counter() - start)}


def run(folder: Path, count: int) -> dict[str, Any]:
    """Measure all of it and print it."""
    folder.mkdir(parents=True, exist_ok=True)
    schedulers = _nandarray.Session.schedulers()
    found: dict[str, Any] = {"decisions": [decisions(one) for one in schedulers], "throughput": []}
    for row in found["decisions"]:
        print(
            f"{row['scheduler']:20} {row['per_cpu_s'] / 1e6:6.2f} million decisions a CPU second, {READY} kernels ready"
        )
    row = resident(folder, schedulers[-1], 1000, max(2000, RESIDENT * count // 2000))
    found["resident"] = row
    (few, many), (before, after) = row["kernels"], row["kib"]
    print(f"{row['scheduler']:20} {before} KiB resident after {few} kernels, {after} KiB after {many}")
    for side in (16, 256):
        rows = [throughput(folder, one, count, side) for one in schedulers]
        rows += [row for row in (peer(count, side, 2), dask(count, side, 2)) if row]
        for row in rows:
            grown = f", {row['grown_kib']} KiB more" if "grown_kib" in row else ""
            print(f"{row['what']:32} {side:4} x {side:<4} {row['per_s']:10.0f} kernels a second{grown}")
        found["throughput"] += rows
    return found
