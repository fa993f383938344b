"""Queues in shared memory: ``python -m bench queue``.

One thread plays both sides of a queue pair, beside a bare pair (``crates/nandarray-queues/benches/queue.rs``); a hit in
the cache of kernels (``tests/gpu/threads.cpp``); gathering random records through the store, through a served region
and by ``numpy.memmap``, warm and with the page cache dropped. Two processes are printed without a bar.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import nandarray
import nandarray_papers
from nandarray import gpu

__all__ = ["HEADER", "Measured", "measure"]

HEADER = ("what", "ours", "beside", "ratio", "bar")
_ROOT = Path(__file__).resolve().parents[1]
_CARGO = ("cargo", "bench", "--quiet", "--locked", "--package", "nandarray-queues", "--bench", "queue", "--")
#: Times of the bare pair that one thread may take, without payload and with 4 KiB.
_BARS = {"no payload": 4.0, "4 KiB": 1.3}
_HIT_NS = 25.0
_METADATA_BYTES = 16.0

#: What, ours, what beside it, their ratio, the bar: texts.
Measured = tuple[str, str, str, str, str]


def _pairs(*, short: bool) -> list[Measured]:
    done = subprocess.run([*_CARGO, *(["--short"] if short else [])], cwd=_ROOT, stdout=subprocess.PIPE, text=True,
                          check=True)  # fmt: skip
    rows = []
    for line in done.stdout.splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        ratio = row["ours_ns"] / row["bare_ns"]
        bar = f"at most {_BARS[row['what']]}" if row["what"] in _BARS else "none"
        ours, beside = f"{row['ours_ns']:.0f} ns", f"bare pair {row['bare_ns']:.0f} ns"
        rows.append((f"one thread, {row['what']}", ours, beside, f"{ratio:.2f}", bar))
    return rows


def _hits() -> list[Measured]:
    if shutil.which("g++") is None:
        return [("a hit in the cache", "-", "there is no g++", "-", f"at most {_HIT_NS:.0f} ns")]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "threads"
        drive = Path(nandarray_papers.__file__).parent / "bam" / "native"
        flags = ["-std=c++17", "-O2", "-march=native", "-pthread", f"-I{gpu.include()}", f"-I{drive}"]
        source = _ROOT / "tests" / "gpu" / "threads.cpp"
        subprocess.run(["g++", *flags, str(source), "-o", str(program)], check=True)
        found = json.loads(subprocess.run([program, "hits"], check=True, capture_output=True, text=True).stdout)
    bar = f"at most {_HIT_NS:.0f} ns"
    metadata = f"{found['metadata_bytes']:.2f} bytes"
    floor = f"two atomics {found['atomics_one_ns']:.1f} ns"
    many = f"two atomics {found['atomics_10000_ns']:.1f} ns"
    return [
        ("a hit in the cache, one page", f"{found['hit_one_page_ns']:.1f} ns", floor, "-", bar),
        ("a hit in the cache, 10,000 pages", f"{found['hit_10000_pages_ns']:.1f} ns", many, "-", bar),
        ("directory of a line", metadata, "-", "-", f"at most {_METADATA_BYTES:.0f} bytes"),
    ]


def _best(rounds: int, work: Callable[[], Any], before: Callable[[], None] = lambda: None) -> float:
    times = []
    for _ in range(rounds):
        before()
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def _drop(path: Path) -> None:
    """Drop a file's pages from the page cache, written ones first."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _disk(path: Path, numbers: np.ndarray[Any, Any]) -> float:
    """Return seconds a record of reads of 4 KiB by the file itself, 32 threads: the disk's limit."""
    from concurrent.futures import ThreadPoolExecutor

    descriptor = os.open(path, os.O_RDONLY)
    try:
        _drop(path)
        began = time.perf_counter()
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda n: os.pread(descriptor, 4096, int(n) * 4096), numbers, chunksize=64))
        return (time.perf_counter() - began) / len(numbers)
    finally:
        os.close(descriptor)


def _gathers(folder: Path, records: int, rows: int, rounds: int) -> list[Measured]:
    random = np.random.default_rng(1)
    numbers = random.integers(0, rows, records)
    values = random.random((rows, 1024), dtype=np.float32)
    file, flat = folder / "queue.nand", folder / "queue.npy"
    np.save(flat, values)
    file.unlink(missing_ok=True)
    with nandarray.open(file, "w") as store:
        store.create("x", shape=values.shape, dtype="float32")[...] = values
    out = np.empty((records, 1024), np.float32)
    found: list[Measured] = []

    def row(what: str, ours: float, beside: float, bar: str) -> None:
        us = [seconds / records * 1e6 for seconds in (ours, beside)]
        said = (f"{us[0]:.2f} us", f"memmap {us[1]:.2f} us")
        found.append((what, *said, f"{us[1] / us[0]:.2f} times as fast", bar))

    with nandarray.open(file) as store:
        server = gpu.serve(store, f"bench-{os.getpid()}")
        with nandarray.open(f"shm://bench-{os.getpid()}") as served:
            mapped = np.load(flat, mmap_mode="r")
            ways = {"store": store.open_array("x"), "shm": served.open_array("x")}
            take = _best(rounds, lambda: np.take(mapped, numbers, axis=0, out=out))
            for name, array in ways.items():
                seconds = _best(rounds, partial(array.gather, numbers, out=out))
                assert np.array_equal(out[:: records // 64], values[numbers[:: records // 64]])
                row(f"gather, warm, {name}", seconds, take, "at least 1")
            few = numbers[: max(records // 16, 1)]
            small, share = out[: len(few)], records / len(few)
            cold = share * _best(1, lambda: np.take(np.load(flat, mmap_mode="r"), few, axis=0, out=small),
                                 lambda: _drop(flat))  # fmt: skip
            for name, array in ways.items():
                seconds = share * _best(1, partial(array.gather, few, out=small), lambda: _drop(file))
                row(f"gather, cold, {name}", seconds, cold, "at least 3, or the disk's limit")
            limit = _disk(flat, few) * 1e6
            found.append(("the disk's own limit", f"{limit:.2f} us", "32 threads of pread", "-", "-"))
        server.stop()
    file.unlink()
    flat.unlink()
    return found


def measure(folder: Path, *, records: int, rows: int, rounds: int, short: bool) -> list[Measured]:
    """Measure everything.

    Parameters
    ----------
    folder : path
        Where arrays are made.
    records, rows : int
        Records gathered, and rows of 4 KiB that they are drawn from.
    rounds : int
        The best of a number of rounds.
    short : bool
        An eighth of the commands.

    Returns
    -------
    list of Measured
        Rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [*_pairs(short=short), *_hits(), *_gathers(folder, records, rows, rounds)]
