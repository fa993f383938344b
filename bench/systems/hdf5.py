"""HDF5 through h5py, in the two configurations that serve it best: small chunks with a cache, large ones without.

With large uncompressed chunks and no cache HDF5 reads just the requested part of a chunk, which is best for single
rows; with small chunks the 64 MiB cache catches neighbours.
"""

# ruff: noqa: D102 - what the methods do is said once, in base.py
from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.patterns import Box

from .base import Array, System, chunk_shape

_CACHE = 64 << 20


class Adapter(System):
    """One data set in one file; LZ4 and Zstandard come through Blosc of the ``hdf5plugin`` package."""

    peer = "h5py"
    package = "h5py"
    configs = ("256-cache", "1024-nocache")

    _file: Any = None
    _set: Any = None

    def _open(self, mode: str) -> None:
        # The plugin reads this once, when it is loaded.
        os.environ.setdefault("BLOSC_NTHREADS", str(os.cpu_count() or 1))
        import h5py

        if self.spec.compression is not None:
            import hdf5plugin  # noqa: F401 - registers the filters
        cache = _CACHE if self.config.endswith("-cache") else 0
        # Slots: a prime about a hundred times the chunks that fit, as HDF5's manual advises.
        self._file = h5py.File(self.path, mode, rdcc_nbytes=cache, rdcc_nslots=25601, rdcc_w0=0.75)
        self._h5py = h5py

    def _filters(self) -> dict[str, Any]:
        if self.spec.compression is None:
            return {}
        import hdf5plugin

        level = {"lz4": 5, "zstd": 2}[self.spec.compression]  # Blosc's 2 is Zstandard's 3
        codec: Any = self.spec.compression
        blosc = hdf5plugin.Blosc(cname=codec, clevel=level, shuffle=hdf5plugin.Blosc.SHUFFLE)
        return {"compression": blosc}

    def create(self) -> None:
        self._open("w")
        chunks = chunk_shape(self.spec.shape, self.config)
        self._set = self._file.create_dataset("a", self.spec.shape, "float32", chunks=chunks, **self._filters())

    def open(self, *, writable: bool = False) -> None:
        self._open("r+" if writable else "r")
        self._set = self._file["a"]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._set = None

    def read(self, box: Box, out: Array) -> None:
        self._set.read_direct(out, box.slices)

    def read_points(self, coords: NDArray[np.int64], out: Array) -> None:
        # h5py's own indexing has no list of coordinates; the library below it has.
        space = self._set.id.get_space()
        space.select_elements(coords.astype(np.uint64))
        self._set.id.read(self._h5py.h5s.create_simple((len(coords),)), space, out)

    def write(self, box: Box, src: Array) -> None:
        self._set.write_direct(np.ascontiguousarray(src), dest_sel=box.slices)

    def flush(self) -> None:
        self._file.flush()
