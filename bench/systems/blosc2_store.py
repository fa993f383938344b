"""Blosc2 NDArray in one contiguous frame; chunks of two levels as its authors advise for the large configuration.

Random elements are read one by one: its indexing by coordinates was five times slower than that when this was written.
"""

# ruff: noqa: D102 - what the methods do is said once, in base.py
from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from bench.patterns import Box

from .base import Array, System, chunk_shape


class Adapter(System):
    """``256``: chunks of 256 KiB; ``1024``: of 4 MiB in blocks of 64 KiB or more, each decoded alone.

    ``-mmap`` reads through a mapping: faster when warm, slow for thin cold reads where the kernel reads far ahead.
    """

    peer = "blosc2"
    package = "blosc2"
    configs = ("256", "256-mmap", "1024", "1024-mmap")

    _array: Any = None

    def _blocks(self, chunks: tuple[int, ...]) -> tuple[int, ...]:
        # Parts per axis such that a block of the large configuration is 64 to 256 KiB whatever the dimensions.
        parts = {2: 8, 3: 4}.get(len(chunks), 2) if self.config.startswith("1024") else 2
        blocks = tuple(max(1, c // parts) for c in chunks)
        return blocks if math.prod(blocks) >= 64 else chunks

    def create(self) -> None:
        import blosc2

        threads = os.cpu_count() or 1
        if self.spec.compression is None:
            codec: dict[str, Any] = {"clevel": 0, "filters": [blosc2.Filter.NOFILTER]}
        else:
            which = {"lz4": (blosc2.Codec.LZ4, 5), "zstd": (blosc2.Codec.ZSTD, 2)}[self.spec.compression]
            codec = {"codec": which[0], "clevel": which[1], "filters": [blosc2.Filter.SHUFFLE]}
        chunks = chunk_shape(self.spec.shape, self.config)
        self._array = blosc2.empty(
            self.spec.shape,
            np.float32,
            urlpath=str(self.path),
            mode="w",
            contiguous=True,
            chunks=chunks,
            blocks=self._blocks(chunks),
            cparams={**codec, "typesize": 4, "nthreads": threads},
            dparams={"nthreads": threads},
        )

    def open(self, *, writable: bool = False) -> None:
        import blosc2

        options: dict[str, Any] = {"mmap_mode": "r"} if self.config.endswith("-mmap") and not writable else {}
        self._array = blosc2.open(
            str(self.path), mode="a" if writable else "r", dparams={"nthreads": os.cpu_count() or 1}, **options
        )

    def close(self) -> None:
        self._array = None

    def read(self, box: Box, out: Array) -> None:
        stop = tuple(s + c for s, c in zip(box.start, box.count, strict=True))
        self._array.get_slice_numpy(out, (box.start, stop))

    def write(self, box: Box, src: Array) -> None:
        self._array[box.slices] = np.ascontiguousarray(src)
