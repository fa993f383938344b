"""Random boxes of a volume as training reads them: ``BoxDataset`` with threads, beside the same loader over peers.

Two volumes of float32: noise, stored as it is, and slow waves, stored by Zstandard of level 3 behind a byte shuffle in
every system. Every system is written in the same slabs of whole blocks, and read by the same loader, places and
threads, so that rows of one volume differ by the store alone. Blocks and chunks have the side of a box, or half of it;
``zarrs`` is Zarr with that package's codecs. ``reads`` are plain positioned reads of a file, each of as many bytes as a
box and as many as there are boxes: what the disk, or the page cache, gives for that size. A box at a random place
cannot be that: it touches pages that hold other elements as well. So each row has the bytes that came from the disk for
each byte of a box, and is compared by boxes and by bytes from the disk.

Cold rounds begin with an empty page cache. Each round opens the store and draws other boxes; the first box of each is
compared with the volume's own, beside the measured time.
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
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from . import machine

__all__ = ["BoxRow", "measure", "table"]

_BATCH = 8
#: Goals: throughput beside Zarr's, and rate of the disk beside that of plain reads.
_ZARR_LEAST, _READS_LEAST = 2.0, 0.8
#: Planes of a slab: whole building blocks and chunks of the usual boxes.
_PLANES = 64

_Shape = tuple[int, int, int]
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class BoxRow:
    """One system in one state, medians of the rounds.

    ``bytes_s`` are bytes of boxes a second, ``disk`` bytes from the disk for each of them, ``ratio`` and ``disk_ratio``
    the product's rate of boxes, and of bytes from the disk, as parts of this row's.
    """

    system: str
    data: str
    state: str
    bytes_s: float
    cpu_s_gb: float
    disk: float
    ratio: float | None
    disk_ratio: float | None
    verdict: str


@dataclass(frozen=True)
class _System:
    """A way to store a volume: ``opened`` makes or opens it in a folder, and gives what is indexed."""

    name: str
    data: str
    opened: Callable[..., AbstractContextManager[Any]]


@dataclass(frozen=True)
class _Round:
    """One measurement: bytes of boxes, bytes from the disk, seconds, seconds of the processor."""

    done: int
    disk: int
    took: float
    cpu: float


def _planes(shape: _Shape, data: str, wanted: range) -> Iterator[tuple[int, _Array]]:
    """Make the planes of a volume, some at a time, that have one of the wanted ones among them."""
    for first in range(0, shape[0], _PLANES):
        size = (min(_PLANES, shape[0] - first), *shape[1:])
        if first + size[0] <= wanted.start or first >= wanted.stop:
            continue
        chance = np.random.default_rng([5, first])
        if data == "noise":
            yield first, chance.random(size, np.float32)
            continue
        z, y, x = (np.arange(n, dtype=np.float32) for n in size)
        waves = (
            np.sin((z + np.float32(first)) / 50)[:, None, None] * 4 + np.cos(y / 60)[:, None] * 4 + np.sin(x / 90) * 8
        )
        made = waves + np.float32(0.05) * chance.standard_normal(size, np.float32)
        yield first, np.round(made * 64) / np.float32(64)


def _write(array: Any, shape: _Shape, data: str) -> None:
    for first, part in _planes(shape, data, range(shape[0])):
        array[first : first + len(part)] = part


def _nandarray(side: int | None, data: str) -> Callable[..., AbstractContextManager[Any]]:
    @contextmanager
    def opened(folder: Path, shape: _Shape, *, make: bool) -> Iterator[Any]:
        import nandarray

        with nandarray.open(folder / "volume.nand", "w" if make else "r") as store:
            if make:
                block = None if side is None else (side,) * 3
                codec = None if data == "noise" else "zstd+shuffle"
                _write(store.create("volume", shape, "float32", building_block=block, compression=codec), shape, data)
            yield store["volume"]

    return opened


def _zarr(side: int, data: str, pipeline: str = "zarr.core.codec_pipeline.BatchedCodecPipeline") -> Callable[..., Any]:
    @contextmanager
    def opened(folder: Path, shape: _Shape, *, make: bool) -> Iterator[Any]:
        import zarr
        from zarr.codecs import BloscCodec

        if "zarrs" in pipeline:
            import zarrs  # noqa: F401
        path = str(folder / "volume.zarr")
        with zarr.config.set({"codec_pipeline.path": pipeline}):
            if make:
                # Blosc's level 2 is Zstandard's 3.
                blosc = BloscCodec(cname="zstd", clevel=2, shuffle="shuffle", typesize=4)
                codec: Any = None if data == "noise" else blosc
                chunks = (side,) * 3
                made = zarr.create_array(path, shape=shape, chunks=chunks, dtype="float32", compressors=codec)
                _write(made, shape, data)
            yield zarr.open_array(path, mode="r")

    return opened


@contextmanager
def _memmap(folder: Path, shape: _Shape, *, make: bool) -> Iterator[Any]:
    path = folder / "volume.bin"
    if make:
        _write(np.memmap(path, np.float32, "w+", shape=shape), shape, "noise")
    yield np.memmap(path, np.float32, "r", shape=shape)


def _systems(box: int) -> list[_System]:
    half, found = max(1, box // 2), []
    for data in ("noise", "waves"):
        found += [
            _System("nandarray", data, _nandarray(None, data)),
            _System(f"nandarray, blocks {half}", data, _nandarray(half, data)),
            _System(f"zarr, chunks {box}", data, _zarr(box, data)),
            _System(f"zarr, chunks {half}", data, _zarr(half, data)),
            _System(f"zarrs, chunks {half}", data, _zarr(half, data, "zarrs.ZarrsCodecPipeline")),
        ]
    return [*found, _System("memmap", "noise", _memmap)]


def _reads(path: Path, size: int, count: int, *, workers: int, seed: int) -> int:
    """Read as many bytes as a box has, at random pages of a file, by threads; return all bytes."""
    pages = max(1, (path.stat().st_size - size) // mmap.PAGESIZE)
    places = np.random.default_rng(seed).integers(0, pages, count) * mmap.PAGESIZE
    descriptor = os.open(path, os.O_RDONLY)

    def part(of: _Array) -> int:
        memory = bytearray(size)
        return sum(os.preadv(descriptor, [memory], int(at)) for at in of)

    try:
        with ThreadPoolExecutor(workers) as pool:
            return sum(pool.map(part, np.array_split(places, workers)))
    finally:
        os.close(descriptor)


def measure(
    folder: Path, *, side: int, box: int, count: int, workers: int, rounds: int, say: Callable[[str], None]
) -> list[BoxRow]:
    """Measure all systems that are installed, each in both states, in turn."""
    folder = folder / "boxes"
    folder.mkdir(parents=True, exist_ok=True)
    shape, method = (side,) * 3, machine.cold_method()
    times: dict[tuple[str, str, str], list[_Round]] = {}
    try:
        systems = _made(folder, shape, _systems(box), say)
        for number, state in itertools.product(range(rounds), ("cold", "warm")):
            for system in (*systems, None):
                place = folder / (_place(system) if system else "memmap, noise")
                if state == "cold":
                    machine.make_cold(place, method)
                if system is None:
                    name, data, path = "reads", "noise", place / "volume.bin"
                    one = _timed(partial(_reads, path, box**3 * 4, count, workers=workers, seed=number))
                else:
                    name, data = system.name, system.data
                    one = _round(system, place, shape, box, count, workers=workers, seed=number)
                times.setdefault((name, data, state), []).append(one)
                say(f"{name}, {data}, {state}: {one.done / one.took / 1e9:.2f} GB/s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _rows(times)


def _place(system: _System) -> str:
    return f"{system.name}, {system.data}"


def _made(folder: Path, shape: _Shape, systems: list[_System], say: Callable[[str], None]) -> list[_System]:
    """Write the volumes by each system; return those that are installed."""
    found = []
    for system in systems:
        say(f"writing {_place(system)}")
        (folder / _place(system)).mkdir()
        try:
            with system.opened(folder / _place(system), shape, make=True):
                found.append(system)
        except ImportError as error:
            say(f"{system.name}: {error}")
    return found


def _from_disk() -> int:
    """Bytes that this process has fetched from storage so far; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes:")), 0)


def _timed(work: Callable[[], int]) -> _Round:
    disk, cpu, began = _from_disk(), time.process_time(), time.perf_counter()
    done = work()
    return _Round(done, _from_disk() - disk, time.perf_counter() - began, time.process_time() - cpu)


def _round(system: _System, folder: Path, shape: _Shape, box: int, count: int, *, workers: int, seed: int) -> _Round:
    """Open a store and read all boxes, and then compare the first."""
    from nandarray.interop.boxes import BoxDataset

    first: list[tuple[_Array, tuple[int, ...]]] = []

    def work() -> int:
        with system.opened(folder, shape, make=False) as array:
            dataset = BoxDataset(array, box=(box,) * 3, count=count, seed=seed)
            done = 0
            for batch in dataset.batches(_BATCH, workers=workers):
                if not first:
                    first.append((batch[0].copy(), dataset.place(0)))
                done += batch.nbytes
            return done

    found = _timed(work)
    for part, at in first:
        _compare(part, at, shape, system.data)
    return found


def _compare(found: _Array, at: tuple[int, ...], shape: _Shape, data: str) -> None:
    """Compare a box with the volume's own elements."""
    z, y, x = (slice(one, one + n) for one, n in zip(at, found.shape, strict=True))
    for start, part in _planes(shape, data, range(z.start, z.stop)):
        low, high = max(z.start, start), min(z.stop, start + len(part))
        if not np.array_equal(found[low - z.start : high - z.start], part[low - start : high - start, y, x]):
            raise AssertionError(f"a box at {at} is wrong")


def _rows(times: dict[tuple[str, str, str], list[_Round]]) -> list[BoxRow]:
    def median(key: tuple[str, str, str], of: Callable[[_Round], float]) -> float:
        return statistics.median(map(of, times[key]))

    # Blocks of half a side: the second of the product's two rows.
    own = next(reversed([name for name, *_ in times if name.startswith("nandarray")]))
    rows = []
    for key in times:
        name, data, state = key
        ours = (own, data, state)
        rate, disk = median(key, lambda one: one.done / one.took), median(key, lambda one: one.disk / one.done)
        ratio = disk_ratio = None
        if not name.startswith("nandarray"):
            ratio = median(ours, lambda one: one.done / one.took) / rate
        if disk and state == "cold" and ratio is not None:
            disk_ratio = median(ours, lambda one: one.disk / one.took) / (rate * disk)
        # Zarrs has another library's codecs: it is shown, and no goal.
        goals = {"zarr": (_ZARR_LEAST, ratio), "reads": (_READS_LEAST, disk_ratio)}
        goal, of = goals.get(name.partition(",")[0], (0.0, None))
        verdict = "" if of is None else f"{'kept' if of >= goal else 'MISSED'} (goal {goal})"
        cpu = median(key, lambda one: one.cpu / (one.done / 1e9))
        rows.append(BoxRow(name, data, state, rate, cpu, disk, ratio, disk_ratio, verdict))
    return rows


def table(found: list[BoxRow]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the printed table; ratios are those of the product's blocks of half a side."""
    header = ["system", "data", "page cache", "GB/s", "CPU s a GB", "from disk, bytes a byte", "nandarray is, times"]
    header += ["by the disk's bytes", "goal"]

    def shown(ratio: float | None) -> str:
        return "" if ratio is None else f"{ratio:.2f}"

    rows = [
        [
            *(one.system, one.data, one.state),
            *(f"{number:.2f}" for number in (one.bytes_s / 1e9, one.cpu_s_gb, one.disk)),
            *(shown(one.ratio), shown(one.disk_ratio), one.verdict),
        ]
        for one in found
    ]
    return header, rows
