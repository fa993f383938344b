"""The reference: a memory-mapped tiled file with nothing else, roughly what a store without overhead costs.

The file is a grid of tiles, each row-major, one after the other. A box is cut along each axis into a partial first
tile, whole tiles and a partial last tile; every combination of these is one strided copy by NumPy from the mapped grid
[grid..., tile...] into the buffer, and the copies are dealt to a thread per core. No checksums, no index, no safety;
not a peer, and in no promise.

When cold, a mapping is only as good as the advice on it: the kernel's read-ahead around a fault may fetch megabytes for
one element. So the mapping is declared random, and the first box that meets a tile announces what it needs of it.
"""

# ruff: noqa: D102 - what the methods do is said once, in base.py
from __future__ import annotations

import itertools
import math
import mmap
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from bench.patterns import Box

from .base import Array, System, chunk_shape

#: A piece is worth a second thread from this many elements on.
_SPLIT = 1 << 18


def _pieces(start: int, count: int, tile: int, parts: int) -> list[tuple[int, int]]:
    """Cut [start, start + count) into (first, length) that lie in one tile or cover whole tiles."""
    stop, cuts = start + count, [start]
    head, tail = -(-start // tile) * tile, (start + count) // tile * tile
    if head < tail:
        step = max(1, -(-((tail - head) // tile) // parts)) * tile
        cuts += list(range(head, tail, step)) + [tail]
    elif start < tail < stop:
        cuts.append(tail)
    cuts = sorted({c for c in cuts if start <= c < stop} | {stop})
    return [(a, b - a) for a, b in itertools.pairwise(cuts)]


class Adapter(System):
    """Tiles of the "256" shape in one mapped file."""

    peer = "ref"
    package = "numpy"
    configs = ("256",)
    chunked = False
    compressions = (None,)

    _map: np.memmap | None = None
    _pool: ThreadPoolExecutor | None = None

    def _open(self, mode: str) -> None:
        self._tile = chunk_shape(self.spec.shape, self.config)
        self._grid = tuple(-(-n // t) for n, t in zip(self.spec.shape, self._tile, strict=True))
        whole = self._grid + self._tile
        self._map = np.memmap(self.path, np.float32, mode, shape=whole)  # type: ignore[call-overload]
        self._advise(mmap.MADV_RANDOM, 0, math.prod(whole) * 4)
        self._met = np.zeros(self._grid, bool)
        self._threads = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads)

    def create(self) -> None:
        self._open("w+")

    def open(self, *, writable: bool = False) -> None:
        self._open("r+" if writable else "r")

    def close(self) -> None:
        self._map = None
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _advise(self, advice: int, begin: int, length: int) -> None:
        # Looked up every time: a kept reference to the mapping would keep it alive after close().
        assert self._map is not None
        self._map._mmap.madvise(advice, begin, length)  # type: ignore[attr-defined]

    def _announce(self, box: Box) -> None:
        """Ask for the part of each tile not met yet that a box spans, all of it before the first copy waits."""
        ends = [s + c for s, c in zip(box.start, box.count, strict=True)]
        sides = list(zip(box.start, ends, self._tile, strict=True))
        tiles = self._met[tuple(slice(s // t, -(-e // t)) for s, e, t in sides)]
        if tiles.all():
            return
        strides = np.cumprod([1, *self._tile[::-1]])[::-1]
        for index in np.argwhere(~tiles):
            place = [s // t + int(i) for (s, _, t), i in zip(sides, index, strict=True)]
            inside = [(max(s - p * t, 0), min(e - p * t, t)) for (s, e, t), p in zip(sides, place, strict=True)]
            base = int(np.ravel_multi_index(place, self._grid)) * int(strides[0])
            first = base + sum(low * int(step) for (low, _), step in zip(inside, strides[1:], strict=True))
            last = base + sum((high - 1) * int(step) for (_, high), step in zip(inside, strides[1:], strict=True))
            begin = first * 4 // mmap.PAGESIZE * mmap.PAGESIZE
            self._advise(mmap.MADV_WILLNEED, begin, last * 4 + 4 - begin)
        tiles[...] = True

    def _copies(self, box: Box, user: Array) -> list[tuple[Array, Array]]:
        """Pair views of the file with views of the caller's array, equal in shape."""
        assert self._map is not None
        ndim = len(self._tile)
        parts = self._threads if box.elements >= _SPLIT else 1
        widest = max(range(ndim), key=lambda axis: box.count[axis] / self._tile[axis])
        axes = [
            _pieces(s, c, t, parts if axis == widest else 1)
            for axis, (s, c, t) in enumerate(zip(box.start, box.count, self._tile, strict=True))
        ]
        pairs = []
        for piece in itertools.product(*axes):
            grid, inside, shape, where = [], [], [], []
            for (first, length), tile, start in zip(piece, self._tile, box.start, strict=True):
                whole = first % tile == 0 and length >= tile
                tiles, within = (length // tile, tile) if whole else (1, length)
                grid.append(slice(first // tile, first // tile + tiles))
                inside.append(slice(first % tile, first % tile + within))
                shape += [tiles, within]
                where.append(slice(first - start, first - start + length))
            source = self._map[tuple(grid + inside)]
            order = [axis + side for axis in range(ndim) for side in (0, ndim)]
            # Splitting each axis in two never needs a copy, so this is a view of the caller's memory.
            pairs.append((source.transpose(order), np.reshape(user[tuple(where)], shape, copy=False)))
        return pairs

    def _run(self, pairs: list[tuple[Array, Array]], elements: int) -> None:
        assert self._pool is not None
        if len(pairs) == 1 or elements < _SPLIT:
            for dst, src in pairs:
                np.copyto(dst, src)
        else:
            list(self._pool.map(lambda pair: np.copyto(*pair), pairs))

    def read(self, box: Box, out: Array) -> None:
        self._announce(box)
        self._run([(user, file) for file, user in self._copies(box, out)], box.elements)

    def read_points(self, coords: NDArray[np.int64], out: Array) -> None:
        assert self._map is not None
        tile = np.array(self._tile)
        out[:] = self._map[(*(coords // tile).T, *(coords % tile).T)]

    def write(self, box: Box, src: Array) -> None:
        self._run(self._copies(box, src), math.prod(box.count))

    def flush(self) -> None:
        assert self._map is not None
        self._map.flush()
