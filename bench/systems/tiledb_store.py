"""TileDB dense arrays on the local disk; one of the two peers that a kill does not tear (a write is a new fragment)."""

# ruff: noqa: D102 - what the methods do is said once, in base.py
from __future__ import annotations

import os
from typing import Any

import numpy as np

from bench.patterns import Box

from .base import Array, System, chunk_shape


class Adapter(System):
    """One dense array; row-major cells in row-major tiles, all cores for computing and for I/O."""

    peer = "tiledb"
    package = "tiledb"
    configs = ("256", "1024")
    survives_kill = True

    _array: Any = None
    _reader: Any = None

    def _context(self) -> Any:
        import tiledb

        cores = str(os.cpu_count() or 1)
        return tiledb.Ctx({"sm.compute_concurrency_level": cores, "sm.io_concurrency_level": cores})

    def create(self) -> None:
        import tiledb

        context = self._context()
        tiles = chunk_shape(self.spec.shape, self.config)
        filters = None
        if self.spec.compression is not None:
            codec = {"lz4": tiledb.LZ4Filter(), "zstd": tiledb.ZstdFilter(level=3)}[self.spec.compression]
            filters = tiledb.FilterList([tiledb.ByteShuffleFilter(), codec])
        dims = [
            tiledb.Dim(f"d{i}", domain=(0, n - 1), tile=t, dtype=np.int64, ctx=context)
            for i, (n, t) in enumerate(zip(self.spec.shape, tiles, strict=True))
        ]
        attr = tiledb.Attr("", dtype=np.float32, filters=filters, ctx=context)
        schema = tiledb.ArraySchema(tiledb.Domain(*dims, ctx=context), [attr], ctx=context)
        tiledb.Array.create(str(self.path), schema, ctx=context)
        self._array = tiledb.open(str(self.path), "w", ctx=context)

    def open(self, *, writable: bool = False) -> None:
        import tiledb

        self._array = tiledb.open(str(self.path), "w" if writable else "r", ctx=self._context())

    def close(self) -> None:
        for handle in (self._array, self._reader):
            if handle is not None:
                handle.close()
        self._array = self._reader = None

    def _reading(self) -> Any:
        """Return a handle for reading: what is open for writing must be opened again to be read."""
        if self._array.mode == "r":
            return self._array
        import tiledb

        if self._reader is not None:
            self._reader.close()
        self._reader = tiledb.open(str(self.path), "r", ctx=self._context())
        return self._reader

    def read(self, box: Box, out: Array) -> None:
        # The Python API hands out a new array; there is no door into the caller's buffer for a part of a dense array.
        out[...] = self._reading()[box.slices]

    def write(self, box: Box, src: Array) -> None:
        self._array[box.slices] = np.ascontiguousarray(src)
