"""Small measurements that design notes rest on: short reads, first looks, ways to bring cold pages.

``small`` times index expressions of a microsecond or so on a warm array, beside the same expressions on a row-major
file that NumPy has mapped. ``first`` reads the large patterns once in a store just opened, whose file is in the page
cache: checksums and page faults included, and these counted; then once more. ``disk`` asks the disk alone for a file,
in each of the ways in which a store could: no store is involved. Measurements take turns, round after round.

This says nothing of other systems; that is ``python -m bench run``.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import operator
import os
import random
import resource
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import nandarray

from .data import ArraySpec, make_truth, map_truth
from .machine import cold_method, make_cold, warm_files
from .patterns import Box
from .sections import sections

SECTIONS = ("small", "first", "disk")
_SHAPES = {"full": (16384, 16384), "quick": (4096, 4096), "tiny": (256, 256)}
_FILE_BYTES = {"full": 1 << 30, "quick": 256 << 20, "tiny": 8 << 20}
_LARGE_BYTES = {"full": 4 << 20, "quick": 1 << 20, "tiny": 1 << 10}
_SLICE_S = {"full": 0.01, "quick": 0.005, "tiny": 0.0001}  # for repeating an expression in a round
_MIB = 1 << 20
_POPULATE_READ = 22  # <linux/mman.h>; Python has no name for it
_AHEAD = 32  # pieces that are prefetched before they are used

_Array = np.ndarray[Any, Any]
_Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """The figures of one measurement: every round's, and those that go with it."""

    section: str
    what: str
    unit: str
    figures: list[float]
    beside: dict[str, float]

    def text(self) -> list[str]:
        """Return the cells of a table."""
        low, middle, high = min(self.figures), statistics.median(self.figures), max(self.figures)
        beside = ", ".join(f"{name} {figure:.3g}" for name, figure in self.beside.items())
        return [self.section, self.what, f"{middle:.3g} {self.unit} ({low:.3g} to {high:.3g})", beside]


HEADER = ["section", "what", "median (least to most)", "beside it"]


def measure(folder: Path, wanted: Sequence[str], size: str, rounds: int, say: Callable[[str], None]) -> list[Row]:
    """Measure the sections in a folder of their own, which is removed."""
    folder = folder / "micro"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found: list[Row] = []
    try:
        for section, rows in (("small", _small), ("first", _first), ("disk", _disk)):
            if section in wanted:
                say(f"{section} ...")
                place = folder / section
                place.mkdir()
                found += rows(place, size, rounds)
                shutil.rmtree(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


# Small reads ---------------------------------------------------------------------------------------------------------


def _expressions(shape: tuple[int, int]) -> dict[str, tuple[tuple[int, ...] | None, list[Any], bool]]:
    """Return keys by what they are: the shape of the view, if it is one, and whether lists go each along its axis."""
    chance = random.Random(1)
    n, m = shape
    some = range(64)

    def at(size: int, length: int = 1) -> slice:
        start = chance.randrange(size - length + 1)
        return slice(start, start + length)

    def few(size: int, number: int) -> list[int]:
        return sorted(chance.randrange(size) for _ in range(number))

    deep = (n // 64, 64, m // 128, 128)
    return {
        "element `a[i, j]`": (None, [(chance.randrange(n), chance.randrange(m)) for _ in some], False),
        "row `a[i]`": (None, [chance.randrange(n) for _ in some], False),
        "box of 100 x 100": (None, [(at(n, 100), at(m, 100)) for _ in some], False),
        "every other of 100 x 100": (
            None,
            [
                (slice(i.start, i.stop, 2), slice(j.start, j.stop, 2))
                for i, j in ((at(n, 100), at(m, 100)) for _ in some)
            ],
            False,
        ),
        "every 64th of a row": (None, [(chance.randrange(n), slice(None, None, 64)) for _ in some], False),
        "box of 100 x 100, backwards": (
            None,
            [
                (slice(i.stop - 1, None if i.start == 0 else i.start - 1, -1), j)
                for i, j in ((at(n, 100), at(m, 100)) for _ in some)
            ],
            False,
        ),
        "16 rows by a list, 64 of each": (None, [(few(n, 16), at(m, 64)) for _ in some], False),
        "16 x 16 by two lists (`oindex`)": (None, [(few(n, 16), few(m, 16)) for _ in some], True),
        "256 elements by two lists": (
            None,
            [tuple(np.array([chance.randrange(k) for _ in range(256)]) for k in shape) for _ in some],
            False,
        ),
        "view of one dimension: 1000 elements": ((n * m,), [at(n * m, 1000) for _ in some], False),
        "view of two: box of 64 x 128": ((n // 2, m * 2), [(at(n // 2, 64), at(2 * m, 128)) for _ in some], False),
        "view of three: box of 4 x 16 x 64": (
            (n // 64, 64, m),
            [(at(n // 64, 4), at(64, 16), at(m, 64)) for _ in some],
            False,
        ),
        "view of four: box of 4 x 16 x 2 x 64": (
            deep,
            [(at(deep[0], 4), at(64, 16), at(deep[2], 2), at(128, 64)) for _ in some],
            False,
        ),
    }


def _small(folder: Path, size: str, rounds: int) -> list[Row]:
    spec = ArraySpec(_SHAPES[size])
    raw = map_truth(spec, make_truth(spec, folder))
    with nandarray.open(str(folder / "a.nand"), "w") as store:
        store.create("a", data=raw)
    rows = []
    with nandarray.open(str(folder / "a.nand"), "r") as store:
        array = store.open_array("a")
        _read_all(array)
        _read_all(raw)
        runs: list[tuple[str, list[_Call], list[_Call]]] = []
        for what, (view, keys, outer) in _expressions(spec.shape).items():  # type: ignore[arg-type]
            ours: Any = array if view is None else array.view(view)
            ours = ours.oindex if outer else ours
            theirs = raw if view is None else raw.reshape(view)
            same = [np.ix_(*key) if outer else key for key in keys]
            for key, other in zip(keys, same, strict=True):
                np.testing.assert_array_equal(ours[key], theirs[other])
            ask: list[_Call] = [partial(operator.getitem, ours, key) for key in keys]
            peer: list[_Call] = [partial(_copied, theirs, key) for key in same]
            runs.append((what, ask, peer))
        times: dict[str, tuple[list[float], list[float]]] = {what: ([], []) for what, _, _ in runs}
        for _ in range(rounds):
            for what, ask, peer in runs:
                times[what][0].append(_microseconds(ask, _SLICE_S[size]))
                times[what][1].append(_microseconds(peer, _SLICE_S[size]))
        for what, (own, other) in times.items():
            rows.append(Row("small", what, "µs", own, {"memmap, µs": statistics.median(other)}))
    return rows


def _copied(array: _Array, key: Any) -> _Array:
    """Copy, as a read does: a slice of a mapping is a promise."""
    return np.array(array[key])


def _read_all(array: Any) -> None:
    for i in range(0, array.shape[0], 512):
        np.array(array[i : i + 512])


def _microseconds(calls: list[_Call], at_least_s: float) -> float:
    for call in calls:
        call()
    begin, done = time.perf_counter(), 0
    while (now := time.perf_counter()) - begin < at_least_s or not done:
        for call in calls:
            call()
        done += len(calls)
    return (now - begin) / done * 1e6


# First looks ---------------------------------------------------------------------------------------------------------


def _first(folder: Path, size: str, rounds: int) -> list[Row]:
    rows = []
    for section in sections(size):
        if section.name not in ("2d", "3d", "4d"):
            continue
        spec = section.spec
        truth = map_truth(spec, make_truth(spec, folder))
        path = folder / section.name / "a.nand"
        path.parent.mkdir()
        with nandarray.open(str(path), "w") as store:
            store.create("a", data=truth)
        figures: dict[str, tuple[list[float], list[float], list[float]]] = {}
        for _ in range(rounds):
            for pattern in section.patterns:
                ops = pattern.ops(spec.shape) if pattern.kind == "read" else []
                boxes = [op for op in ops if isinstance(op, Box) and op.elements * 4 >= _LARGE_BYTES[size]]
                boxes = boxes[: max(1, spec.nbytes // max(1, boxes[0].elements * 4))] if boxes else []
                if not boxes:
                    continue
                out = np.ones(boxes[0].count, np.float32)
                keys = [tuple(slice(s, s + c) for s, c in zip(op.start, op.count, strict=True)) for op in boxes]
                warm_files(path.parent)
                with nandarray.open(str(path), "r") as store:
                    array = store["a"]
                    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                    fresh = _seconds(array, keys, out)
                    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
                    np.testing.assert_array_equal(out, truth[keys[-1]])
                    again = _seconds(array, keys, out)
                of = figures.setdefault(pattern.title, ([], [], []))
                giga = out.nbytes * len(keys) / 1e9
                of[0].append(giga / fresh)
                of[1].append(giga / again)
                of[2].append(faults / (out.nbytes * len(keys) / 2**30))
        for what, (fresh_figures, warm, faulted) in figures.items():
            beside = {"again, GB/s": statistics.median(warm), "faults a GiB": statistics.median(faulted)}
            rows.append(Row("first", f"{section.name}: {what}", "GB/s", fresh_figures, beside))
        shutil.rmtree(path.parent)
        del truth
    return rows


def _seconds(array: Any, keys: list[Any], out: _Array) -> float:
    begin = time.perf_counter()
    for key in keys:
        array.read(key, out=out)
    return time.perf_counter() - begin


# The disk alone ------------------------------------------------------------------------------------------------------


class _File:
    """A file under test, and what is done with pieces of it; every method brings one piece."""

    def __init__(self, path: Path, size: int) -> None:
        self.size = size
        self.fd = os.open(path, os.O_RDONLY)
        self.direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self.map = mmap.mmap(self.fd, size, prot=mmap.PROT_READ)
        self.bytes = np.frombuffer(self.map, np.uint8)
        self.call = ctypes.CDLL(None, use_errno=True).madvise
        self.call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self.own = threading.local()

    def close(self) -> None:
        del self.bytes
        self.map.close()
        os.close(self.fd)
        os.close(self.direct)

    def buffer(self, size: int, *, huge: bool = False) -> memoryview:
        """Return this thread's buffer, in pages of 2 MiB or of 4 KiB."""
        kept: dict[tuple[int, bool], memoryview] = self.own.__dict__.setdefault("buffers", {})
        if (size, huge) not in kept:
            memory = mmap.mmap(-1, size + 2 * _MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
            whole = np.frombuffer(memory, np.uint8)
            skip = -whole.ctypes.data % (2 * _MIB)
            whole[skip : skip + size] = 1
            kept[size, huge] = memoryview(memory)[skip : skip + size]
        return kept[size, huge]

    def read(self, at: int, size: int) -> None:
        assert os.preadv(self.fd, [self.buffer(size)], at) == size

    def read_direct(self, at: int, size: int) -> None:
        assert os.preadv(self.direct, [self.buffer(size)], at) == size

    def read_direct_huge(self, at: int, size: int) -> None:
        assert os.preadv(self.direct, [self.buffer(size, huge=True)], at) == size

    def copy(self, at: int, size: int) -> None:
        np.copyto(np.frombuffer(self.buffer(size), np.uint8), self.bytes[at : at + size])

    def copy_asked(self, at: int, size: int) -> None:
        """Copy from the mapping a piece that was prefetched some pieces ago."""
        ahead = at + _AHEAD * _MIB
        if at == 0:
            os.posix_fadvise(self.fd, 0, ahead, os.POSIX_FADV_WILLNEED)
        elif ahead < self.size:
            os.posix_fadvise(self.fd, ahead, size, os.POSIX_FADV_WILLNEED)
        self.copy(at, size)

    def populate(self, at: int, size: int) -> None:
        if self.call(self.bytes.ctypes.data + at, size, _POPULATE_READ) != 0:
            raise OSError(ctypes.get_errno(), "MADV_POPULATE_READ")


def _ways() -> Iterator[tuple[str, int, int, bool, str, int]]:
    """Yield what it is called, bytes a piece, threads, whether at random, the method, and the mapping's advice."""
    kib, rest = 1 << 10, mmap.MADV_RANDOM
    for name, method in (("4 KiB pages", "read_direct"), ("huge pages", "read_direct_huge")):
        for threads in (1, 8):
            yield f"direct, in order, {threads} x 1 MiB, into {name}", _MIB, threads, False, method, rest
        yield f"direct, at random, 8 x 256 KiB, into {name}", 256 * kib, 8, True, method, rest
    yield "pread, in order, 1 x 1 MiB", _MIB, 1, False, "read", rest
    yield "pread, at random, 8 x 256 KiB", 256 * kib, 8, True, "read", rest
    yield "WILLNEED 32 MiB ahead, in order, 2 threads that copy 1 MiB", _MIB, 2, False, "copy_asked", rest
    for threads in (1, 4):
        what = f"extents of 2 MiB by MADV_POPULATE_READ in a huge mapping, {threads} threads"
        yield what, 2 * _MIB, threads, False, "populate", mmap.MADV_HUGEPAGE
    yield "the same, 4 threads, not advised huge", 2 * _MIB, 4, False, "populate", mmap.MADV_NORMAL


def _disk(folder: Path, size: str, rounds: int) -> list[Row]:
    total, path, cold = _FILE_BYTES[size], folder / "file", cold_method()
    piece = np.random.default_rng(3).integers(0, 256, 8 * _MIB, np.uint8)
    with path.open("wb") as file:
        for _ in range(total // piece.size):
            file.write(piece.tobytes())
    figures: dict[str, tuple[list[float], list[float]]] = {}
    for way in itertools.chain.from_iterable(itertools.repeat(list(_ways()), rounds)):
        what, step, threads, at_random, method, advice = way
        make_cold(folder, cold)
        offsets = list(range(0, total, step))
        if at_random:
            random.Random(2).shuffle(offsets)
        try:
            with closing(_File(path, total)) as file, ThreadPoolExecutor(threads) as pool:
                file.map.madvise(advice)
                act = getattr(file, method)
                begin, used = time.perf_counter(), time.process_time()
                for _ in pool.map(lambda at, act=act, step=step: act(at, step), offsets):
                    pass
                seconds, used = time.perf_counter() - begin, time.process_time() - used
        except OSError as error:
            print(f"skipping {what}: {error}")
            continue
        of = figures.setdefault(what, ([], []))
        of[0].append(total / 1e9 / seconds)
        of[1].append(used / (total / 1e9))
    found = figures.items()
    return [
        Row("disk", what, "GB/s", rate, {"processor, s/GB": statistics.median(used)}) for what, (rate, used) in found
    ]
