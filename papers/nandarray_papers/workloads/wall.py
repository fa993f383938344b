"""Places of the workloads' data on this machine: a store, a row-major file read in two ways, Zarr.

Each :class:`Place` is read the way its own documentation calls fast, into the caller's buffer where it can. A row-major
file is read through a memory map (``numpy.memmap``, one copy), or with ``preadv`` calls of a thread for each core: one
for a contiguous fetch's share, else one for each contiguous piece, straight into the buffer. A place is written once
and read by :class:`Place` objects of its own; what it costs to write is not looked at.

:func:`make_cold` empties the page cache between readings. Timing and workloads are elsewhere.
"""

from __future__ import annotations

import math
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import nandarray
from nandarray_papers.workloads.base import Array, Dataset, Fetch

__all__ = ["PLACES", "Place", "make_cold"]

#: A fetch of fewer bytes is read by one thread.
_THREADS_FROM = 1 << 20
_DROP = Path("/proc/sys/vm/drop_caches")


class Place(ABC):
    """One operand of a workload, stored in a folder that several places may share."""

    name: ClassVar[str]

    def __init__(self, folder: Path, dataset: Dataset) -> None:
        self.folder, self.dataset = folder, dataset

    @property
    @abstractmethod
    def path(self) -> Path:
        """File or folder of the place."""

    @abstractmethod
    def write(self, array: Array) -> None:
        """Store the whole array and close."""

    @abstractmethod
    def open(self) -> None:
        """Open it for reading."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it; closing twice is fine."""

    @abstractmethod
    def read(self, fetch: Fetch, out: Array) -> None:
        """Read a fetch into a C-contiguous buffer of its shape."""


class Nandarray(Place):
    """A store with one array, of building blocks as the engine chooses them."""

    name = "nandarray"
    _store: nandarray.Store | None = None
    _view: Any = None

    @property
    def path(self) -> Path:
        """The store's file."""
        return self.folder / "data.nand"

    def write(self, array: Array) -> None:
        """Store the whole array and close."""
        with nandarray.open(self.path, mode="w") as store:
            store["x"] = array

    def open(self) -> None:
        """Open it for reading."""
        self._store = nandarray.open(self.path)
        self._view = self._store.open_array("x").view(self.dataset.shape)

    def close(self) -> None:
        """Let go of it."""
        if self._store is not None:
            self._store.close()
        self._store = self._view = None

    def read(self, fetch: Fetch, out: Array) -> None:
        """Read a fetch by one command."""
        self._view.read(fetch.coordinate, fetch.sub_shape, out)


class MemoryMap(Place):
    """A row-major file, mapped; one thread, since that is what ``numpy.memmap`` gives."""

    name = "memmap"
    _map: Any = None

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "data.raw"

    def write(self, array: Array) -> None:
        """Store the whole array."""
        array.tofile(self.path)

    def open(self) -> None:
        """Map it."""
        self._map = np.memmap(self.path, self.dataset.dtype, "r", shape=self.dataset.shape)

    def close(self) -> None:
        """Unmap it."""
        self._map = None

    def read(self, fetch: Fetch, out: Array) -> None:
        """Copy out of the map."""
        np.copyto(out, self._map[fetch.box(self.dataset.shape)])


class Pread(MemoryMap):
    """A row-major file, read by system calls from as many threads as there are cores."""

    name = "pread"
    _fd: int | None = None
    _pool: ThreadPoolExecutor | None = None

    def open(self) -> None:
        """Open the file and start the threads."""
        self._fd = os.open(self.path, os.O_RDONLY)
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1)

    def close(self) -> None:
        """Close the file and end the threads."""
        if self._fd is not None:
            os.close(self._fd)
        if self._pool is not None:
            self._pool.shutdown()
        self._fd = self._pool = None

    def read(self, fetch: Fetch, out: Array) -> None:
        """Read contiguous pieces straight to where they belong, a share of them from each thread."""
        starts, length = _pieces(fetch, self.dataset)
        memory = out.reshape(-1).view(np.uint8).data
        threads = (os.cpu_count() or 1) if out.nbytes >= _THREADS_FROM else 1
        if len(starts) == 1:  # one piece is cut into equal parts
            share = -(-length // threads // mmap.PAGESIZE) * mmap.PAGESIZE
            parts = [(starts[0] + at, at, min(share, length - at)) for at in range(0, length, share)]
            self._all(lambda p: self._read(p[0], memory[p[1] : p[1] + p[2]]), parts)
            return
        share = -(-len(starts) // threads)

        def some(first: int) -> None:
            for i in range(first, min(first + share, len(starts))):
                self._read(starts[i], memory[i * length : (i + 1) * length])

        self._all(some, range(0, len(starts), share))

    def _all(self, do: Callable[[Any], None], parts: Sequence[Any]) -> None:
        """Do all parts, in threads if there are several."""
        assert self._pool is not None
        list((self._pool.map if len(parts) > 1 else map)(do, parts))

    def _read(self, offset: int, memory: memoryview) -> None:
        assert self._fd is not None
        while memory:
            got = os.preadv(self._fd, [memory], offset)
            if not got:
                raise EOFError(f"{self.path} ends at byte {offset}")
            memory, offset = memory[got:], offset + got


class Zarr(Place):
    """A Zarr 3 array in a folder, uncompressed, in chunks of 2 MiB with equal sides."""

    name = "zarr"
    _array: Any = None

    @property
    def path(self) -> Path:
        """The folder."""
        return self.folder / "data.zarr"

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of the chunks: 512 x 512 or 64 x 64 x 64 elements of 8 bytes."""
        side = {2: 512, 3: 64}[len(self.dataset.shape)]
        return tuple(min(side, n) for n in self.dataset.shape)

    def write(self, array: Array) -> None:
        """Store the whole array."""
        import zarr

        made = zarr.create_array(
            self.path, shape=array.shape, dtype=array.dtype, chunks=self.chunks, compressors=None, filters=None
        )
        made[...] = array

    def open(self) -> None:
        """Open it for reading."""
        import zarr

        self._array = zarr.open_array(self.path, mode="r")

    def close(self) -> None:
        """Let go of it."""
        self._array = None

    def read(self, fetch: Fetch, out: Array) -> None:
        """Read a selection into the buffer."""
        from zarr.core.buffer import cpu

        self._array.get_basic_selection(fetch.box(self.dataset.shape), out=cpu.NDBuffer.from_numpy_array(out))


#: Kinds of places by name.
PLACES: dict[str, type[Place]] = {p.name: p for p in (Nandarray, MemoryMap, Pread, Zarr)}


def _pieces(fetch: Fetch, dataset: Dataset) -> tuple[list[int], int]:
    """Return the byte offsets of a fetch's contiguous pieces in a row-major file, and their common length."""
    box = fetch.box(dataset.shape)
    item = np.dtype(dataset.dtype).itemsize
    # The last dimensions that are taken whole join the one before them.
    whole = len(box)
    while whole and box[whole - 1].stop - box[whole - 1].start == dataset.shape[whole - 1]:
        whole -= 1
    inner = max(whole - 1, 0)
    length = math.prod(s.stop - s.start for s in box[inner:]) * item
    strides = [math.prod(dataset.shape[axis + 1 :]) * item for axis in range(len(box))]
    starts = np.zeros(1, np.int64)
    for axis in range(inner):
        starts = (starts[:, None] + np.arange(box[axis].start, box[axis].stop) * strides[axis]).reshape(-1)
    first = sum(box[axis].start * strides[axis] for axis in range(inner, len(box)))
    return (starts + first).tolist(), length


def make_cold(path: Path, *, drop_caches: bool = False) -> None:
    """Write back a closed file or folder and drop its pages from the page cache.

    With ``drop_caches`` the whole page cache of the machine, inodes too, is emptied next; only root can.
    """
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        fd = os.open(file, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    if drop_caches:
        _DROP.write_text("3\n")
