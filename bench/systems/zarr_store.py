"""Zarr 3 with its own codec pipeline, on its ``LocalStore``; the Rust pipeline and icechunk build on this adapter."""

# ruff: noqa: D102 - what the methods do is said once, in base.py
from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bench.patterns import Box

from .base import Array, System, chunk_shape


class Adapter(System):
    """One array at the root of a local store."""

    peer = "zarr"
    package = "zarr"
    configs = ("256", "1024")
    pipeline: ClassVar[str] = "zarr.core.codec_pipeline.BatchedCodecPipeline"

    _array: Any = None

    def _store(self, *, writable: bool) -> Any:
        import zarr

        return zarr.storage.LocalStore(self.path, read_only=not writable)

    def _compressors(self) -> Any:
        from zarr.codecs import BloscCodec

        if self.spec.compression is None:
            return None
        level = {"lz4": 5, "zstd": 2}[self.spec.compression]  # Blosc's 2 is Zstandard's 3
        codec: Any = self.spec.compression
        return BloscCodec(cname=codec, clevel=level, shuffle="shuffle", typesize=4)

    def create(self) -> None:
        import zarr

        with zarr.config.set({"codec_pipeline.path": self.pipeline}):
            self._array = zarr.create_array(
                self._store(writable=True),
                shape=self.spec.shape,
                dtype="float32",
                chunks=chunk_shape(self.spec.shape, self.config),
                compressors=self._compressors(),
                filters=None,
            )

    def open(self, *, writable: bool = False) -> None:
        import zarr

        with zarr.config.set({"codec_pipeline.path": self.pipeline}):
            self._array = zarr.open_array(self._store(writable=writable), mode="r+" if writable else "r")

    def close(self) -> None:
        self._array = None

    def read(self, box: Box, out: Array) -> None:
        from zarr.core.buffer import cpu

        self._array.get_basic_selection(box.slices, out=cpu.NDBuffer.from_numpy_array(out))

    def read_points(self, coords: NDArray[np.int64], out: Array) -> None:
        out[:] = self._array.get_coordinate_selection(tuple(coords.T))

    def write(self, box: Box, src: Array) -> None:
        self._array[box.slices] = src
