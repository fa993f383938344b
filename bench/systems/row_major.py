"""NumPy memmap of one row-major file: unbeatable along rows, the asymmetry that building blocks are for."""

# ruff: noqa: D102 - what the methods do is said once, in base.py
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.patterns import Box

from .base import Array, System


class Adapter(System):
    """A raw file, mapped; one thread, since that is what ``numpy.memmap`` gives."""

    peer = "memmap"
    package = "numpy"
    configs = ("row-major",)
    chunked = False
    compressions = (None,)

    _map: np.memmap | None = None

    def _open(self, mode: str) -> None:
        self._map = np.memmap(self.path, np.float32, mode, shape=self.spec.shape)  # type: ignore[call-overload]

    def create(self) -> None:
        self._open("w+")

    def open(self, *, writable: bool = False) -> None:
        self._open("r+" if writable else "r")

    def close(self) -> None:
        self._map = None

    def read(self, box: Box, out: Array) -> None:
        assert self._map is not None
        np.copyto(out, self._map[box.slices])

    def read_points(self, coords: NDArray[np.int64], out: Array) -> None:
        assert self._map is not None
        out[:] = self._map[tuple(coords.T)]

    def write(self, box: Box, src: Array) -> None:
        assert self._map is not None
        self._map[box.slices] = src

    def flush(self) -> None:
        assert self._map is not None
        self._map.flush()
