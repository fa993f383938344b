"""TensorStore over Zarr 3 (plain chunks and shards) and N5 on the local disk.

Reads go straight into the caller's buffer by copying into a TensorStore of the in-memory array. Its chunk cache stays
off (its default, and what served best here); copy concurrency is one a core, I/O concurrency its default.
"""

# ruff: noqa: D102 - what the methods do is said once, in base.py
from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.patterns import Box

from .base import Array, System, chunk_shape, shard_shape


class Adapter(System):
    """``256``, ``1024``: Zarr 3 chunks; ``4096:256``: shards of small chunks; ``n5-256``: N5."""

    peer = "tensorstore"
    package = "tensorstore"
    configs = ("256", "1024", "4096:256", "n5-256")

    _store: Any = None

    def _codecs(self) -> list[dict[str, Any]]:
        codecs: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
        if self.spec.compression is not None:
            level = {"lz4": 5, "zstd": 2}[self.spec.compression]  # Blosc's 2 is Zstandard's 3
            blosc = {"cname": self.spec.compression, "clevel": level, "shuffle": "shuffle", "typesize": 4}
            codecs.append({"name": "blosc", "configuration": {**blosc, "blocksize": 0}})
        return codecs

    def _n5(self, chunks: tuple[int, ...]) -> dict[str, Any]:
        compression: dict[str, Any] = {"type": "raw"}
        if self.spec.compression is not None:
            level = {"lz4": 5, "zstd": 2}[self.spec.compression]
            compression = {"type": "blosc", "cname": self.spec.compression, "clevel": level, "shuffle": 1}
        metadata = {"dimensions": list(self.spec.shape), "blockSize": list(chunks), "dataType": "float32"}
        return {"driver": "n5", "metadata": {**metadata, "compression": compression}}

    def _zarr3(self, chunks: tuple[int, ...]) -> dict[str, Any]:
        codecs, grid = self._codecs(), chunks
        if self.config == "4096:256":
            grid = shard_shape(self.spec.shape, chunks)
            index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
            inner = {"chunk_shape": list(chunks), "codecs": codecs, "index_codecs": index}
            codecs = [{"name": "sharding_indexed", "configuration": inner}]
        metadata = {
            "shape": list(self.spec.shape),
            "data_type": "float32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(grid)}},
            "codecs": codecs,
        }
        return {"driver": "zarr3", "metadata": metadata}

    def _open(self, **options: Any) -> None:
        import tensorstore as ts

        chunks = chunk_shape(self.spec.shape, self.config)
        spec = self._n5(chunks) if self.config.startswith("n5") else self._zarr3(chunks)
        spec["kvstore"] = {"driver": "file", "path": f"{self.path}/"}
        context = ts.Context({"data_copy_concurrency": {"limit": os.cpu_count() or 1}})
        self._store = ts.open(spec, context=context, **options).result()
        self._ts = ts
        self._context = context

    def create(self) -> None:
        self._open(create=True, delete_existing=True)

    def open(self, *, writable: bool = False) -> None:
        self._open(open=True, read=True, write=writable)

    def close(self) -> None:
        self._store = None

    def _wrap(self, array: Array) -> Any:
        # A transfer of a C-contiguous buffer by reference, never by copy.
        return self._ts.array(array, context=self._context, copy=False)

    def read(self, box: Box, out: Array) -> None:
        # The index domain keeps its origin after slicing; both sides must agree on it.
        part = self._store[box.slices].translate_to[(0,) * out.ndim]
        self._wrap(out).write(part).result()

    def read_points(self, coords: NDArray[np.int64], out: Array) -> None:
        self._wrap(out).write(self._store.vindex[tuple(coords.T)]).result()

    def write(self, box: Box, src: Array) -> None:
        self._store[box.slices].write(src).result()
