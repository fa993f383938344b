"""Selections of an array of parts against shapes: of the array, which they must not leave, and of a shard.

A selection is a run (start, step, count) or an index array for each axis. Nothing here knows stores or versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nandarray import _nandarray
from nandarray.errors import BadIndexError
from nandarray.parts.pieces import Piece

__all__ = ["axes_of", "check_axes", "check_points", "read_inside"]

_Array = np.ndarray[Any, Any]


def axes_of(start: Sequence[int], step: Sequence[int] | None, count: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the runs of a box: its start, step and count along each axis."""
    steps = step or [1] * len(count)
    return [(int(a), int(b), int(n)) for a, b, n in zip(start, steps, count, strict=True)]


def check_axes(axes: Sequence[Any], shape: Sequence[int]) -> None:
    """Refuse what lies outside: the array may have another shape by now than the caller thinks."""
    for axis, (taken, length) in enumerate(zip(axes, shape, strict=True)):
        if isinstance(taken, tuple):
            last = taken[0] + taken[1] * (taken[2] - 1) if taken[2] else 0
        else:
            last = int(taken.max()) if len(taken) else 0
        if last >= length and (not isinstance(taken, tuple) or taken[2]):
            raise BadIndexError(f"index {last} is out of bounds for axis {axis} with size {length}")


def check_points(coords: _Array, shape: Sequence[int]) -> None:
    """Refuse elements that lie outside."""
    for axis, length in enumerate(shape):
        if len(coords) and (last := int(coords[:, axis].max())) >= length:
            raise BadIndexError(f"index {last} is out of bounds for axis {axis} with size {length}")


def read_inside(space: _nandarray.Space, memory: _Array, piece: Piece) -> None:
    """Read what a shard has of a piece: it may be smaller than its box, if the array has grown since."""
    taken: list[Any] = list(piece.taken)
    shape = space.shape
    where: list[Any] = [slice(None)] * len(taken)
    listed = False
    for axis, (one, length) in enumerate(zip(taken, shape, strict=True)):
        if isinstance(one, tuple):
            count = min(one[2], max(0, -(-(length - one[0]) // one[1])))
            taken[axis], where[axis] = (one[0], one[1], count), slice(0, count)
        elif int(one.max()) >= length:
            kept = np.flatnonzero(one < length)
            taken[axis], where[axis], listed = one[kept], kept, True
    if any((one[2] if isinstance(one, tuple) else len(one)) == 0 for one in taken):
        return
    own = Piece(piece.place, tuple(where), tuple(taken))
    target = np.empty(own.counts, memory.dtype) if listed else memory[(*where, ...)]
    if own.is_box:
        space.read(target, [one[0] for one in taken], [one[1] for one in taken])
    else:
        space.read_outer(target, taken)
    if listed:
        memory[own.place_in(memory)] = target
