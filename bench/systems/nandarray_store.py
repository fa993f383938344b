"""nandarray as a user gets it: the default building block and geometry, checksums verified, reads into a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..patterns import Box
from .base import Array, System

#: The same codecs as everyone's: byte shuffle in front, Zstandard at level 3.
_COMPRESSION = {None: None, "lz4": "lz4+shuffle", "zstd": "zstd:3+shuffle"}


class Adapter(System):
    """One array in one store; ``options`` and ``block`` let the geometry sweep vary what a user would leave alone."""

    peer = "nandarray"
    package = "nandarray._nandarray"
    configs = ("default",)
    chunked = False  # the promise compares it with the chunked peers, not with itself
    survives_kill = True
    options: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed
    block: tuple[int, ...] | None = None

    _store: Any = None
    _array: Any = None

    def create(self) -> None:
        import nandarray

        self._store = nandarray.open(str(self.path), "w", **self.options)
        compression = _COMPRESSION[self.spec.compression]
        self._array = self._store.create(
            "a", self.spec.shape, "float32", building_block=self.block, compression=compression
        )

    def open(self, *, writable: bool = False) -> None:
        import nandarray

        self._store = nandarray.open(str(self.path), "r+" if writable else "r")
        self._array = self._store["a"]

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = self._array = None

    def read(self, box: Box, out: Array) -> None:
        self._array.read(box.slices, out=out)

    def read_points(self, coords: NDArray[np.int64], out: Array) -> None:
        out[:] = self._array[tuple(coords.T)]

    def write(self, box: Box, src: Array) -> None:
        self._array[box.slices] = src

    def flush(self) -> None:
        self._store.flush()

    def facts(self) -> dict[str, Any]:
        return {"building block": list(self._array.chunks)} if self._array is not None else {}
