"""Random boxes of a volume as training reads them: ``BoxDataset`` with threads, beside the same loader over peers.

The volume is float32 and incompressible. Every system is read by the same loader, places and threads, so that rows
differ by the store alone; ``reads`` are plain positioned reads of a file, each of as many bytes as a box and as many as
there are boxes: what the disk, or the page cache, gives for that size. Cold rounds begin with an empty page cache. Each
round draws other boxes; the first box of each is compared with the volume's own.
"""

from __future__ import annotations

import itertools
import mmap
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import machine

__all__ = ["BoxRow", "measure", "table"]

_BATCH = 8
#: Goals: throughput beside Zarr's, and beside plain reads of the same size from a cold disk.
_ZARR_LEAST, _READS_LEAST = 2.0, 0.8


@dataclass(frozen=True)
class BoxRow:
    """One system in one state: bytes of boxes a second, median of the rounds, and CPU seconds a GB."""

    system: str
    state: str
    bytes_s: float
    cpu_s_gb: float
    ratio: float | None
    verdict: str


def _planes(shape: tuple[int, int, int]) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """Make the volume, some planes at a time."""
    for first in range(0, shape[0], 16):
        part = np.random.default_rng([5, first]).random((min(16, shape[0] - first), *shape[1:]), np.float32)
        yield first, part


def _write(store: Any, shape: tuple[int, int, int]) -> None:
    for first, part in _planes(shape):
        store[first : first + len(part)] = part


@contextmanager
def _nandarray(folder: Path, shape: tuple[int, int, int], *, make: bool) -> Iterator[Any]:
    import nandarray

    with nandarray.open(folder / "volume.nand", "w" if make else "r") as store:
        if make:
            _write(store.create("volume", shape, "float32"), shape)
        yield store["volume"]


@contextmanager
def _zarr(folder: Path, shape: tuple[int, int, int], chunk: int, *, make: bool) -> Iterator[Any]:
    import zarr

    path = folder / "volume.zarr"
    if make:
        chunks = (chunk,) * 3
        _write(zarr.create_array(str(path), shape=shape, chunks=chunks, dtype="float32", compressors=None), shape)
    yield zarr.open_array(str(path), mode="r")


@contextmanager
def _memmap(folder: Path, shape: tuple[int, int, int], *, make: bool) -> Iterator[Any]:
    path = folder / "volume.bin"
    if make:
        _write(np.memmap(path, np.float32, "w+", shape=shape), shape)
    yield np.memmap(path, np.float32, "r", shape=shape)


def _systems(box: int) -> dict[str, Callable[..., Any]]:
    return {
        "nandarray": _nandarray,
        f"zarr, chunks {box}": lambda folder, shape, make: _zarr(folder, shape, box, make=make),
        f"zarr, chunks {box // 2}": lambda folder, shape, make: _zarr(folder, shape, max(1, box // 2), make=make),
        "memmap": _memmap,
    }


def _reads(path: Path, size: int, count: int, *, workers: int, seed: int) -> tuple[int, float]:
    """Read as many bytes as a box has, at random pages of a file, by threads; return all bytes, and the time."""
    began = time.perf_counter()
    pages = max(1, (path.stat().st_size - size) // mmap.PAGESIZE)
    places = np.random.default_rng(seed).integers(0, pages, count) * mmap.PAGESIZE
    descriptor = os.open(path, os.O_RDONLY)

    def part(of: np.ndarray[Any, Any]) -> int:
        memory = bytearray(size)
        return sum(os.preadv(descriptor, [memory], int(at)) for at in of)

    try:
        with ThreadPoolExecutor(workers) as pool:
            return sum(pool.map(part, np.array_split(places, workers))), time.perf_counter() - began
    finally:
        os.close(descriptor)


def measure(
    folder: Path, *, side: int, box: int, count: int, workers: int, rounds: int, say: Callable[[str], None]
) -> list[BoxRow]:
    """Measure all systems that are installed, each in both states, in turn."""
    folder = folder / "boxes"
    folder.mkdir(parents=True, exist_ok=True)
    shape, method = (side,) * 3, machine.cold_method()
    times: dict[tuple[str, str], list[tuple[float, float, int]]] = {}
    try:
        systems = _made(folder, shape, _systems(box), say)
        for number, state, name in itertools.product(range(rounds), ("cold", "warm"), (*systems, "reads")):
            of = folder / ("memmap" if name == "reads" else name)
            if state == "cold":
                machine.make_cold(of, method)
            cpu = time.process_time()
            if name == "reads":
                done, took = _reads(of / "volume.bin", box**3 * 4, count, workers=workers, seed=number)
            else:
                with systems[name](of, shape, make=False) as array:
                    done, took = _timed(array, box, count, workers=workers, seed=number)
            times.setdefault((name, state), []).append((took, time.process_time() - cpu, done))
            say(f"{name}, {state}: {done / took / 1e9:.2f} GB/s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _rows(times)


def _made(
    folder: Path, shape: tuple[int, int, int], systems: dict[str, Callable[..., Any]], say: Callable[[str], None]
) -> dict[str, Callable[..., Any]]:
    """Write the volume by each system; return those that are installed."""
    found = {}
    for name, system in systems.items():
        say(f"writing {name}")
        (folder / name).mkdir()
        try:
            with system(folder / name, shape, make=True):
                found[name] = system
        except ImportError as error:
            say(f"{name}: {error}")
    return found


def _timed(array: Any, box: int, count: int, *, workers: int, seed: int) -> tuple[int, float]:
    """Read all boxes; return their bytes and the time, without that of the comparison."""
    from nandarray.interop.boxes import BoxDataset

    began = time.perf_counter()
    dataset = BoxDataset(array, box=(box,) * 3, count=count, seed=seed)
    done, first = 0, None
    for batch in dataset.batches(_BATCH, workers=workers):
        first = batch[0].copy() if first is None else first
        done += batch.nbytes
    took = time.perf_counter() - began
    if first is not None:
        _compare(first, dataset.place(0), array.shape)
    return done, took


def _compare(found: np.ndarray[Any, Any], at: tuple[int, ...], shape: tuple[int, int, int]) -> None:
    """Compare a box with the volume's own elements."""
    z, y, x = (slice(one, one + n) for one, n in zip(at, found.shape, strict=True))
    for start, part in _planes(shape):
        low, high = max(z.start, start), min(z.stop, start + len(part))
        if low < high and not np.array_equal(
            found[low - z.start : high - z.start], part[low - start : high - start, y, x]
        ):
            raise AssertionError(f"a box at {at} is wrong")


def _rows(times: dict[tuple[str, str], list[tuple[float, float, int]]]) -> list[BoxRow]:
    rates = {key: statistics.median(done / took for took, _, done in found) for key, found in times.items()}
    rows = []
    for (name, state), found in times.items():
        cpu = statistics.median(cpu / (done / 1e9) for _, cpu, done in found)
        ours = rates["nandarray", state]
        ratio = None if name == "nandarray" else ours / rates[name, state]
        least = _ZARR_LEAST if name.startswith("zarr") else _READS_LEAST if (name, state) == ("reads", "cold") else None
        verdict = ""
        if ratio is not None and least is not None:
            verdict = f"{'kept' if ratio >= least else 'MISSED'} (goal {least})"
        rows.append(BoxRow(name, state, rates[name, state], cpu, ratio, verdict))
    return rows


def table(found: list[BoxRow]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the printed table."""
    header = ["system", "page cache", "GB/s", "CPU s a GB", "nandarray is, times", "goal"]
    rows = [
        [
            one.system,
            one.state,
            f"{one.bytes_s / 1e9:.2f}",
            f"{one.cpu_s_gb:.2f}",
            "" if one.ratio is None else f"{one.ratio:.2f}",
            one.verdict,
        ]
        for one in found
    ]
    return header, rows
