"""Patterns of access: each is a seeded list of operations over a shape.

An operation is a *box* (start, count per axis) or a batch of *points* (coordinates). Lists are long enough that a fast
system does not run out, and their order is the one a program would use: bands and planes in sequence or spread over the
array, blocks and single rows at random. Sizes are those of the full arrays and shrink with a smaller shape, so that the
quick run and the tests walk the same code.

A pattern says whether it counts for the geometric mean of reading and in which cache states it runs:

``warm``   the whole array was read once by this process since it opened the store; the file is in the page cache
``fresh``  the file is in the page cache, the store has just been opened: what a first look costs (checksums included)
``cold``   the page cache was dropped and the store has just been opened
``part``   cold, and then seven of eight pieces of 64 KiB were read back: only on request
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

#: "Blocks of 4 MiB and more": what the promise about copy bandwidth speaks of.
LARGE_BYTES = 4 << 20

#: Points of one "elements" operation: a batch, since every system that can take a list of coordinates is given a list.
POINTS = 256


@dataclass(frozen=True)
class Box:
    """A box of elements."""

    start: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as NumPy's index."""
        return tuple(slice(s, s + c) for s, c in zip(self.start, self.count, strict=True))

    @property
    def elements(self) -> int:
        """Number of elements that it covers."""
        return math.prod(self.count)


@dataclass(frozen=True)
class Points:
    """A batch of single elements; ``coords`` is [points, ndim]."""

    coords: NDArray[np.int64]

    @property
    def elements(self) -> int:
        """Number of elements that it covers."""
        return len(self.coords)


Op = Box | Points


@dataclass(frozen=True)
class Pattern:
    """A named list of operations; ``kind`` is ``read``, ``write`` (boxes) or ``write-all``."""

    name: str
    title: str
    make: Callable[[tuple[int, ...]], list[Op]] = field(repr=False)
    kind: str = "read"
    states: tuple[str, ...] = ("warm", "cold")
    #: Least number of operations of a warm round.
    least: int = 2
    #: It wants half of each cache line or less: judged by the lines that it touches, too.
    by_lines: bool = False

    def ops(self, shape: tuple[int, ...]) -> list[Op]:
        """Return the operations over an array of this shape, the same ones at every call."""
        return self.make(shape)


def _rng(shape: tuple[int, ...], salt: int) -> np.random.Generator:
    return np.random.default_rng((salt, *shape))


def _bands(axis: int, thick: int, salt: int | None = None) -> Callable[[tuple[int, ...]], list[Op]]:
    """Full-width slabs along ``axis``: in sequence, or at random positions when there is a salt."""

    def make(shape: tuple[int, ...]) -> list[Op]:
        size = max(1, min(thick, shape[axis] // 4))
        starts = list(range(0, shape[axis] - size + 1, size))
        if salt is not None:
            starts = _rng(shape, salt).permutation(shape[axis] - size + 1)[:512].tolist()
        ops: list[Op] = []
        for first in starts:
            start, count = [0] * len(shape), list(shape)
            start[axis], count[axis] = int(first), size
            ops.append(Box(tuple(start), tuple(count)))
        return ops

    return make


def _blocks(edge: int, *, aligned: bool, salt: int, number: int = 256) -> Callable[[tuple[int, ...]], list[Op]]:
    """Cubes of this edge at random positions: on multiples of the edge, or never on a multiple of 8."""

    def make(shape: tuple[int, ...]) -> list[Op]:
        rng = _rng(shape, salt)
        count = tuple(max(1, min(edge, n // 2)) for n in shape)
        ops: list[Op] = []
        for _ in range(number):
            if aligned:
                start = tuple(int(rng.integers(n // c)) * c for n, c in zip(shape, count, strict=True))
            else:
                free = [n - c for n, c in zip(shape, count, strict=True)]
                start = tuple(min(int(rng.integers(f + 1)) // 8 * 8 + 3, f) for f in free)
            ops.append(Box(start, count))
        return ops

    return make


def _planes(fixed: tuple[int, ...], salt: int, number: int = 256) -> Callable[[tuple[int, ...]], list[Op]]:
    """Hyperplanes at random positions: one index on each fixed axis, everything on the others."""

    def make(shape: tuple[int, ...]) -> list[Op]:
        rng = _rng(shape, salt)
        ops: list[Op] = []
        for _ in range(number):
            start = tuple(int(rng.integers(n)) if axis in fixed else 0 for axis, n in enumerate(shape))
            ops.append(Box(start, tuple(1 if axis in fixed else n for axis, n in enumerate(shape))))
        return ops

    return make


def _elements(batch: int, number: int, salt: int) -> Callable[[tuple[int, ...]], list[Op]]:
    def make(shape: tuple[int, ...]) -> list[Op]:
        rng = _rng(shape, salt)
        draw = [rng.integers(n, size=(number, batch)) for n in shape]
        return [Points(np.stack([axis[i] for axis in draw], axis=1)) for i in range(number)]

    return make


def _whole(shape: tuple[int, ...]) -> list[Op]:
    return [Box((0,) * len(shape), shape)]


_ALL = ("warm", "fresh", "cold", "part")
_WRITE = ("warm",)

_WRITES = (
    Pattern("full-write", "full write", _whole, "write-all", _WRITE, 1),
    Pattern("overwrite", "overwrite 1000 x 1000 unaligned", _blocks(1000, aligned=False, salt=9), "write", _WRITE, 8),
)
_CORE_2D = (
    Pattern("row-bands", "row bands 512 x N", _bands(0, 512), states=_ALL),
    Pattern("column-bands", "column bands N x 512", _bands(1, 512), states=_ALL),
    Pattern("blocks-unaligned", "2048 x 2048 unaligned", _blocks(2048, aligned=False, salt=2), states=_ALL, least=4),
    Pattern("small-blocks", "100 x 100", _blocks(100, aligned=False, salt=3, number=2000), least=100),
    Pattern("rows", "single rows", _planes((0,), 4, 2000), least=16),
    Pattern("columns", "single columns", _planes((1,), 5, 2000), least=16),
    Pattern("elements", f"{POINTS} random elements", _elements(POINTS, 500, 6)),
)

#: Patterns by the number of dimensions of the section, in the order of the tables.
PATTERNS: dict[int, tuple[Pattern, ...]] = {
    2: (
        *_CORE_2D[:2],
        Pattern("blocks-aligned", "2048 x 2048 aligned", _blocks(2048, aligned=True, salt=1), least=4),
        *_CORE_2D[2:],
        Pattern("element", "one random element a call", _planes((0, 1), 7, 4000), least=100),
        *_WRITES,
    ),
    3: (
        *(Pattern(f"planes-{a}", f"planes across axis {a}", _planes((a,), 20 + a), least=8) for a in range(3)),
        *(
            Pattern(f"slabs-{a}", f"slabs of 16 across axis {a}", _bands(a, 16, 30 + a), least=4, by_lines=a == 2)
            for a in range(3)
        ),
        Pattern("cubes", "128 x 128 x 128 unaligned", _blocks(128, aligned=False, salt=40), least=8),
        _WRITES[0],
    ),
    4: (
        Pattern("volumes-0", "volumes across axis 0", _planes((0,), 50), least=4),
        Pattern("volumes-3", "volumes across axis 3", _planes((3,), 51), least=4, by_lines=True),
        Pattern("planes-01", "planes [i, j, :, :]", _planes((0, 1), 52, 1000), least=16),
        Pattern("planes-23", "planes [:, :, k, l]", _planes((2, 3), 53, 1000), least=16),
        Pattern("blocks-4d", "32 x 32 x 32 x 32 unaligned", _blocks(32, aligned=False, salt=54), least=8),
        _WRITES[0],
    ),
}

#: ``bench write`` alone: every overwrite is followed by a flush, as a program does that must not lose it.
FLUSHED = Pattern(
    "overwrite-flushed", "overwrite 1000 x 1000, each flushed", _blocks(1000, aligned=False, salt=9), "write", _WRITE, 8
)

#: The compressed sections walk the 2-D patterns without the aligned blocks, which tell nothing new there.
COMPRESSED: tuple[Pattern, ...] = (*_CORE_2D, *_WRITES)

#: Every pattern by name: what travels to a worker process is the name.
BY_NAME: dict[str, Pattern] = {p.name: p for many in PATTERNS.values() for p in (*many, FLUSHED)}
