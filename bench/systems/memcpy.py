"""The machine's copy bandwidth: as many bytes as the pattern moves, from memory larger than a cache, by all cores.

It stands in the tables as a column of its own and answers only warm reads: a copy from a rotating place in an anonymous
array into the same buffer that every system fills. No store can read faster than this except by luck of the cache.
"""

# ruff: noqa: D102 - what the methods do is said once, in base.py
from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from bench.patterns import Box

from .base import Array, System

#: Larger than any cache, and no larger than that: the memory is wanted for the page cache of the others.
_SOURCE = 512 << 20
#: Below this a second thread costs more than it copies.
_SPLIT = 1 << 18


class Adapter(System):
    """Contiguous copies by a thread per core."""

    peer = "memcpy"
    package = "numpy"
    configs = ("threads",)
    chunked = False
    stores = False

    def create(self) -> None:
        self.open()

    def open(self, *, writable: bool = False) -> None:
        self._threads = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads)
        self._source = np.full(min(self.spec.nbytes, _SOURCE) // 4, 1, np.float32)
        self._place = 0

    def close(self) -> None:
        self._source = np.empty(0, np.float32)

    def read(self, box: Box, out: Array) -> None:
        flat = out.reshape(-1)
        if self._place + flat.size > self._source.size:
            self._place = 0
        source = self._source[self._place : self._place + flat.size]
        self._place += flat.size
        if flat.size < _SPLIT:
            np.copyto(flat, source)
            return
        cuts = [flat.size * i // self._threads for i in range(self._threads + 1)]
        parts = [slice(a, b) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
        list(self._pool.map(lambda part: np.copyto(flat[part], source[part]), parts))

    def read_points(self, coords: NDArray[np.int64], out: Array) -> None:
        raise NotImplementedError("points are not a copy")

    def write(self, box: Box, src: Array) -> None:
        raise NotImplementedError("only reads are compared with a copy")
