"""Selections of an array cut at the borders of its shards, and boxes of a view turned into boxes of its array.

A :class:`Piece` is the share of one shard: its place in the grid of shards, where its elements lie in the caller's
memory, and what is taken of the shard along each axis. Nothing is read or written here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

__all__ = [
    "Piece",
    "box_points",
    "element_boxes",
    "pieces",
    "point_groups",
    "run_boxes",
    "run_count",
    "subtract",
    "tile_edge",
    "tiles_along",
    "view_runs",
]

_Array = np.ndarray[Any, Any]
#: Start, step and count of a run, or uint64 indices.
Taken = tuple[int, int, int] | _Array
_Span = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Piece:
    """The share that one shard has of a selection."""

    place: tuple[int, ...]
    where: tuple[Any, ...]
    taken: tuple[Any, ...]

    @property
    def is_box(self) -> bool:
        """Whether it is a box, maybe with steps."""
        return all(isinstance(one, tuple) for one in self.taken)

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of elements along each axis."""
        return tuple(one[2] if isinstance(one, tuple) else len(one) for one in self.taken)

    def covers(self, shape: Sequence[int]) -> bool:
        """Whether it is all of a shard of this shape."""
        return self.is_box and all(
            start == 0 and count == length and (step == 1 or count == 1)
            for (start, step, count), length in zip(self.taken, shape, strict=True)
        )

    def lies_in(self, shape: Sequence[int]) -> bool:
        """Whether a shard of this shape has all of it."""
        return all(
            (one[0] + one[1] * (one[2] - 1) if isinstance(one, tuple) else int(one.max())) < length
            for one, length in zip(self.taken, shape, strict=True)
        )

    def place_in(self, memory: _Array) -> Any:
        """Return the index of its elements in the caller's memory."""
        if all(isinstance(one, slice) for one in self.where):
            return self.where
        lists = [
            np.arange(one.start or 0, length if one.stop is None else one.stop) if isinstance(one, slice) else one
            for one, length in zip(self.where, memory.shape, strict=True)
        ]
        return np.ix_(*lists)


def pieces(axes: Sequence[Any], shard: Sequence[int]) -> Iterator[Piece]:
    """Cut the product of runs and index arrays into the shares of shards, in C order of the shards of each axis."""
    for cut in itertools.product(*(list(_cut(taken, step)) for taken, step in zip(axes, shard, strict=True))):
        places, where, taken = zip(*cut, strict=True) if cut else ((), (), ())
        yield Piece(places, where, taken)


def _cut(taken: Any, shard: int) -> Iterator[tuple[int, Any, Any]]:
    if isinstance(taken, tuple):
        start, step, count = (int(one) for one in taken)
        done = 0
        while done < count:
            at = start + done * step
            place, inside = divmod(at, shard)
            own = min(count - done, -(-(shard - inside) // step))
            yield place, slice(done, done + own), (inside, step, own)
            done += own
        return
    places = taken // np.uint64(shard)
    for place in np.unique(places).tolist():
        own = places == place
        if own.all():
            yield place, slice(0, len(taken)), taken - np.uint64(place * shard)
        else:
            where = np.flatnonzero(own)
            yield place, where, taken[where] - np.uint64(place * shard)


def point_groups(coords: _Array, shard: Sequence[int]) -> Iterator[tuple[tuple[int, ...], _Array, _Array]]:
    """Group points by shard: its place, which points are its own, in their order, and their coordinates within it."""
    if not coords.shape[1]:
        yield (), np.arange(len(coords)), coords
        return
    steps = np.array(shard, np.uint64)
    places = coords // steps
    order = np.lexsort(places.T[::-1])  # stable: of equal points the last stays the last
    sorted_places = places[order]
    cuts = np.flatnonzero((sorted_places[1:] != sorted_places[:-1]).any(axis=1)) + 1
    for own in np.split(order, cuts):
        if len(own):
            place = places[own[0]]
            yield tuple(int(at) for at in place), own, np.ascontiguousarray(coords[own] - place * steps)


def view_runs(start: Sequence[int], count: Sequence[int], view: Sequence[int]) -> Iterator[tuple[Any, int, int]]:
    """Yield the runs of elements that lie side by side of a box of a view: index in the box, first element, length."""
    kept = len(view)
    while kept and start[kept - 1] == 0 and count[kept - 1] == view[kept - 1]:
        kept -= 1
    outer = max(0, kept - 1)
    strides = [prod(view[axis + 1 :]) for axis in range(len(view))]
    length = prod(count[outer:])
    behind = sum(at * stride for at, stride in zip(start[outer:], strides[outer:], strict=True))
    for index in itertools.product(*(range(n) for n in count[:outer])):
        first = sum((low + at) * stride for low, at, stride in zip(start, index, strides, strict=False))
        yield index, first + behind, length


def run_count(start: Sequence[int], count: Sequence[int], view: Sequence[int]) -> int:
    """Return how many runs :func:`view_runs` yields."""
    kept = len(view)
    while kept and start[kept - 1] == 0 and count[kept - 1] == view[kept - 1]:
        kept -= 1
    found = 1
    for length in count[: max(0, kept - 1)]:
        found *= length
    return found


def box_points(
    low: int,
    count: int,
    box: tuple[Sequence[int], Sequence[int] | None, Sequence[int]],
    view: Sequence[int],
    shape: Sequence[int],
) -> _Array:
    """Return the points of an array that elements ``low`` to ``low + count`` of a box of a view of it are.

    The box is given by start, step and count.
    """
    start, step, counts = box
    # Row-major positions of very large arrays exceed 64 bits; Python integers then carry them.
    exact: Any = np.int64 if prod(view) < 2**63 else object
    places = np.unravel_index(np.arange(low, low + count), counts) if counts else ()
    position = np.zeros(count, exact)
    for axis, at in enumerate(places):
        position = position * view[axis] + (at.astype(exact) * (step[axis] if step else 1) + start[axis])
    found = np.empty((count, len(shape)), np.uint64)
    for axis in range(len(shape) - 1, -1, -1):
        found[:, axis] = position % shape[axis]
        position = position // shape[axis]
    return found


def run_boxes(first: int, length: int, shape: Sequence[int]) -> Iterator[_Span]:
    """Cut a run of elements in C order into boxes of the array, in the order of the run."""
    if not length:
        return
    if not shape:
        yield (), ()
        return
    inner = prod(shape[1:])
    end = first + length
    row, offset = divmod(first, inner)
    if offset or length < inner:
        part = min(length, inner - offset)
        for low, high in run_boxes(offset, part, shape[1:]):
            yield (row, *low), (row + 1, *high)
        first += part
        if first == end:
            return
        row += 1
    whole = (end - first) // inner
    if whole:
        zeros = (0,) * (len(shape) - 1)
        yield (row, *zeros), (row + whole, *shape[1:])
        first += whole * inner
        row += whole
    if first < end:
        for low, high in run_boxes(0, end - first, shape[1:]):
            yield (row, *low), (row + 1, *high)


def subtract(box: _Span, other: _Span) -> list[_Span]:
    """Return the boxes that are left of one without another, at most two for each dimension."""
    (low, high), (first, last) = box, other
    if any(max(a, c) >= min(b, d) for a, b, c, d in zip(low, high, first, last, strict=True)):
        return [box]
    left: list[_Span] = []
    lows, highs = list(low), list(high)
    for axis in range(len(low)):
        for a, b in ((lows[axis], first[axis]), (last[axis], highs[axis])):
            if a < b:
                left.append(((*lows[:axis], a, *lows[axis + 1 :]), (*highs[:axis], b, *highs[axis + 1 :])))
        lows[axis], highs[axis] = max(lows[axis], first[axis]), min(highs[axis], last[axis])
    return left


def tiles_along(count: Sequence[int], first: Sequence[int], size: Sequence[int]) -> list[int]:
    """Return the number of tiles along each axis."""
    return [0 if n == 0 else 1 + -(-max(0, n - begin) // by) for n, begin, by in zip(count, first, size, strict=True)]


def tile_edge(tile: int, count: int, first: int, size: int) -> int:
    """Return the coordinate at which a tile begins along an axis."""
    return 0 if tile == 0 else min(count, first + size * (tile - 1))


def element_boxes(count: Sequence[int], tiles: Any, elements: int) -> Iterator[_Span]:
    """Yield the boxes that the first elements of a box have, in the order in which a program gives them."""
    if tiles is None:
        yield from run_boxes(0, elements, count)
        return
    first, size = tiles[0], tiles[1]
    left = elements
    for tile in itertools.product(*(range(n) for n in tiles_along(count, first, size))):
        low = tuple(tile_edge(at, n, *one) for at, n, *one in zip(tile, count, first, size, strict=True))
        high = tuple(tile_edge(at + 1, n, *one) for at, n, *one in zip(tile, count, first, size, strict=True))
        own = tuple(b - a for a, b in zip(low, high, strict=True))
        for inner, outer in run_boxes(0, min(left, prod(own)), own):
            yield (
                tuple(a + b for a, b in zip(low, inner, strict=True)),
                tuple(a + b for a, b in zip(low, outer, strict=True)),
            )
        left -= prod(own)
        if left <= 0:
            return
