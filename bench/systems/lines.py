"""The cost of touching a box's cache lines: one element of every line of the box in a row-major file, by all cores.

A copy is no bound for a box that wants little of every line: one element along the last axis of a 4-D array wants 4
bytes of each 64. No layout in row-major pieces touches fewer lines for it, and every one of them crosses the memory's
bus. This column says how long that alone takes: NumPy copies the first element of each line of the mapped truth, a
thread a core, into a small buffer. It answers warm reads of large boxes only, and is no peer.
"""

# ruff: noqa: D102 - what the methods do is said once, in base.py
from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from bench.patterns import LARGE_BYTES, Box

from .base import Array, System

_LINE_ELEMENTS = 16  # of 4 bytes


class Adapter(System):
    """A mapped row-major file, a line at a time."""

    peer = "lines"
    package = "numpy"
    configs = ("row-major",)
    chunked = False
    stores = False
    least_bytes = LARGE_BYTES
    compressions = (None,)

    def create(self) -> None:
        self.open()

    def open(self, *, writable: bool = False) -> None:
        self._threads = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads)
        self._touched = np.empty(0, np.float32)

    def close(self) -> None:
        self._touched = np.empty(0, np.float32)

    def lines(self, box: Box) -> NDArray[np.float32]:
        """One element of every line, as a view of the truth; where rows are no whole lines, one a line's length."""
        assert self.truth is not None
        *outer, row = self.truth.shape
        *around, along = box.slices
        if row % _LINE_ELEMENTS:
            return self.truth[(*around, slice(along.start, along.stop, _LINE_ELEMENTS))]
        by_line = self.truth.reshape(*outer, row // _LINE_ELEMENTS, _LINE_ELEMENTS)
        first, end = along.start // _LINE_ELEMENTS, -(-along.stop // _LINE_ELEMENTS)
        key: tuple[slice | int, ...] = (*around, slice(first, end), 0)
        return by_line[key]

    def read(self, box: Box, out: Array) -> None:
        lines = self.lines(box)
        if self._touched.size != lines.size:
            self._touched = np.zeros(lines.size, np.float32)
        touched = self._touched.reshape(lines.shape)
        axis = max(range(lines.ndim - 1), key=lambda i: (lines.shape[i] > 1, -i))
        cuts = [lines.shape[axis] * i // self._threads for i in range(self._threads + 1)]
        parts = [(*(slice(None),) * axis, slice(low, high)) for low, high in zip(cuts[:-1], cuts[1:], strict=True)]
        list(self._pool.map(lambda part: np.copyto(touched[part], lines[part]), parts))

    def read_points(self, coords: NDArray[np.int64], out: Array) -> None:
        raise NotImplementedError("only boxes are touched")

    def write(self, box: Box, src: Array) -> None:
        raise NotImplementedError("only reads are compared with this")
