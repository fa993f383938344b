"""nandarray as a user gets it: the default building block and geometry, checksums verified, reads into a buffer.

The geometry sweep asks for other configurations, ``nandarray/PAGE:BLOCK``: access unit and building block in bytes. The
number of channels follows from them (equation 1 of the NDS paper), and a segment stays at 4 MiB or one row of blocks.
``nandarray/1x64x64x64`` gives the array this building block; that is how a default is compared with what it might be.
``nandarray/compacted`` compacts the store once the whole array is written.
"""

# ruff: noqa: D102 - what the methods do is said once, in base.py
from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.patterns import Box

from .base import Array, System

#: The same codecs as everyone's: byte shuffle in front, Zstandard at level 3.
_COMPRESSION = {None: None, "lz4": "lz4+shuffle", "zstd": "zstd:3+shuffle"}


_SEGMENT = 4 << 20
_COMPACTED = "compacted"


def geometry_of(config: str) -> dict[str, int] | None:
    """Return the geometry of a configuration ``PAGE:BLOCK``, None for the default one."""
    if ":" not in config:
        return None
    page, block = map(int, config.split(":"))
    return {"page_bytes": page, "channels": block // page, "banks": 1, "pages_per_block": max(1, _SEGMENT // block)}


def building_block_of(config: str) -> tuple[int, ...] | None:
    """Return the building block of a configuration ``1x64x64x64``, None for the default one."""
    return tuple(map(int, config.split("x"))) if is_building_block(config) else None


def is_config(config: str) -> bool:
    """Whether it is one of the configurations that are not listed."""
    return config == _COMPACTED or is_building_block(config)


def is_building_block(config: str) -> bool:
    """Whether a configuration names a building block."""
    return re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", config) is not None


class Adapter(System):
    """One array in one store."""

    peer = "nandarray"
    package = "nandarray._nandarray"
    configs = ("default",)
    chunked = False  # the promise compares it with the chunked peers, not with itself
    survives_kill = True

    _store: Any = None
    _array: Any = None

    def create(self) -> None:
        import nandarray

        self._store = nandarray.open(str(self.path), "w", geometry=geometry_of(self.config))
        self._array = self._store.create(
            "a",
            self.spec.shape,
            "float32",
            compression=_COMPRESSION[self.spec.compression],
            building_block=building_block_of(self.config),
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
        self._array.read(tuple(coords.T), out=out)

    def write(self, box: Box, src: Array) -> None:
        self._array[box.slices] = src

    def flush(self) -> None:
        self._store.flush()
        if self.config == _COMPACTED:
            self._store.compact()

    def facts(self) -> dict[str, Any]:
        return {"building block": list(self._array.chunks)} if self._array is not None else {}
