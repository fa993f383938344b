"""The arrays under test: deterministic, made in bounded memory, kept as one raw row-major file each (the *truth*).

``noise`` is uniform random float32, which no compressor shrinks noticeably. ``smooth`` is a sum of slow waves plus
noise, quantised to 1/64: like a measured field, it shrinks to about a third with a shuffle filter. Workers map the
truth read-only to write from it and to check against it; it is never itself the file of a system under test, so that
dropping a system's pages from the cache is not undone by someone else's mapping.
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Elements made at a time: 16 MiB of float32, so that memory stays bounded and the result does not depend on the size.
_STEP = 1 << 22

Array = NDArray[np.float32]


@dataclass(frozen=True)
class ArraySpec:
    """The array of a section: float32 of this shape, this kind of data, this compression (or none).

    With ``slab`` the whole array is written in commands of ``slab`` indices of the first axis.
    """

    shape: tuple[int, ...]
    data: str = "noise"
    compression: str | None = None  # None | "lz4" | "zstd"; always with byte shuffle, zstd at level 3
    slab: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * 4

    @property
    def truth_name(self) -> str:
        """File name of the raw array."""
        return f"{self.data}-{'x'.join(map(str, self.shape))}.raw"


def _noise(piece: int, count: int) -> Array:
    return np.random.default_rng((11, piece)).random(count, dtype=np.float32)


def _smooth(piece: int, count: int, first: int, shape: tuple[int, ...]) -> Array:
    # The waves run along the last axis and, slowly, along all others together; enough structure for a shuffle filter.
    flat = np.arange(first, first + count, dtype=np.int64)
    column = (flat % shape[-1]).astype(np.float32)
    row = (flat // shape[-1]).astype(np.float32)
    field = np.sin(column * np.float32(0.011)) * 8 + np.cos(row * np.float32(0.007)) * 4
    noise = np.random.default_rng((13, piece)).normal(scale=0.05, size=count)
    made: Array = (np.round((field + noise) * 64) / 64).astype(np.float32)
    return made


def make_truth(spec: ArraySpec, folder: Path) -> Path:
    """Write the raw array unless it is there, and return its path."""
    path = folder / spec.truth_name
    if path.exists() and path.stat().st_size == spec.nbytes:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    total = math.prod(spec.shape)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        for piece, first in enumerate(range(0, total, _STEP)):
            count = min(_STEP, total - first)
            made = _noise(piece, count) if spec.data == "noise" else _smooth(piece, count, first, spec.shape)
            made.tofile(file)
    part.rename(path)
    return path


def map_truth(spec: ArraySpec, path: Path) -> Array:
    """Map the raw array read-only, with its pages already present, so that a timed write does not pay for faults."""
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ)
    return np.frombuffer(mapped, dtype=np.float32).reshape(spec.shape)
