"""The interface of all systems, and the shapes of their chunks by the number of dimensions.

An adapter is small on purpose: it calls its library the way that library's own documentation calls fast, reads into the
caller's buffer where the library can, and hides nothing. ``chunked`` marks the systems that the "0.9 of the best
chunked peer" promise looks at; ``survives_kill`` those that leave the old or the new state when their process is killed
in the middle of a write (measured, see docs/benchmarks.md).
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bench.data import ArraySpec
from bench.patterns import Box

Array = NDArray[np.float32]

#: Chunk shape by configuration and number of dimensions: 256 KiB to 1 MiB, 4 to 8 MiB.
_CHUNKS: dict[str, dict[int, tuple[int, ...]]] = {
    "256": {1: (65536,), 2: (256, 256), 3: (64, 64, 64), 4: (16, 16, 16, 16)},
    "1024": {1: (1048576,), 2: (1024, 1024), 3: (128, 128, 128), 4: (32, 32, 32, 32)},
}
_SHARDS: dict[int, tuple[int, ...]] = {1: (16777216,), 2: (4096, 4096), 3: (320, 320, 320), 4: (64, 64, 64, 64)}


def chunk_shape(shape: tuple[int, ...], config: str) -> tuple[int, ...]:
    """Return the chunk shape of a configuration ("256", "1024", "4096/256"), no larger than the array."""
    small = _CHUNKS["1024" if config.startswith("1024") else "256"][len(shape)]
    return tuple(min(c, n) for c, n in zip(small, shape, strict=True))


def shard_shape(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shard shape: a whole number of chunks, no larger than the array where that can be."""
    wanted = _SHARDS[len(shape)]
    return tuple(max(1, min(w, n) // c) * c for w, n, c in zip(wanted, shape, chunks, strict=True))


class System(ABC):
    """One store in one configuration, over one array, in one folder of its own."""

    peer: ClassVar[str]
    package: ClassVar[str]  # what must be importable
    configs: ClassVar[tuple[str, ...]]
    chunked: ClassVar[bool] = True
    survives_kill: ClassVar[bool] = False
    stores: ClassVar[bool] = True  # False: a yardstick that keeps nothing and answers warm reads of boxes only
    least_bytes: ClassVar[int] = 0  # of an operation; smaller ones are not asked of it
    compressions: ClassVar[tuple[str | None, ...]] = (None, "lz4", "zstd")

    def __init__(self, folder: Path, spec: ArraySpec, config: str) -> None:
        self.folder = folder
        self.spec = spec
        self.config = config
        self.truth: NDArray[np.float32] | None = None  # what is read, mapped; for yardsticks

    @property
    def path(self) -> Path:
        """Where the store lives, inside the folder that belongs to this system alone."""
        return self.folder / "store"

    def wipe(self) -> None:
        """Remove the store; it must be closed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    @abstractmethod
    def create(self) -> None:
        """Make an empty store with the array in it, and open it for writing."""

    @abstractmethod
    def open(self, *, writable: bool = False) -> None:
        """Open the store that is there."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the store, its mappings and its caches; closing twice is fine."""

    @abstractmethod
    def read(self, box: Box, out: Array) -> None:
        """Read a box into a buffer of its shape."""

    def read_points(self, coords: NDArray[np.int64], out: Array) -> None:
        """Read single elements into a 1-D buffer; one call each where the library has no list of coordinates."""
        one = np.empty((1,) * len(self.spec.shape), np.float32)
        for i, coord in enumerate(coords.tolist()):
            self.read(Box(tuple(coord), one.shape), one)
            out[i] = one.flat[0]

    @abstractmethod
    def write(self, box: Box, src: Array) -> None:
        """Write a box."""

    def write_all(self, src: Array) -> None:
        """Write the whole array, the way that serves this library best: in one call unless said otherwise."""
        self.write(Box((0,) * src.ndim, src.shape), src)

    def flush(self) -> None:  # noqa: B027 - most peers have nothing to call here
        """Do what the library offers to make what was written safe; nothing where it offers nothing."""

    def facts(self) -> dict[str, Any]:
        """Return the facts to print about this configuration."""
        return {"chunks": list(chunk_shape(self.spec.shape, self.config))} if self.chunked else {}
