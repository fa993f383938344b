"""Views of an array of parts: a box of a view is runs of the elements, which are boxes of the array, or else points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nandarray.parts.bounds import axes_of, check_axes
from nandarray.parts.pieces import box_points, run_boxes, run_count, view_runs

__all__ = ["move_view"]

_Array = np.ndarray[Any, Any]

#: Views whose runs are shorter than this on average are read as points.
_RUN = 64
_POINTS = 1 << 18


def move_view(
    space: Any, memory: _Array, start: Sequence[int], step: Sequence[int] | None, view: tuple[int, ...], *, reads: bool
) -> None:
    """Read or write a box of an array's view."""
    if not memory.size:
        return
    shape = space.shape
    check_axes(axes_of(start, step, memory.shape), view)
    plain = step is None or all(one == 1 or n == 1 for one, n in zip(step, memory.shape, strict=True))
    runs = view_runs(start, memory.shape, view) if plain else None
    if runs is None or memory.size // max(1, run_count(start, memory.shape, view)) < _RUN:
        _points(space, memory, start, step, view, reads=reads)
        return
    flat = np.ascontiguousarray(memory)
    lines = flat.reshape(-1)
    done = 0
    for _, first, length in runs:
        for low, high in run_boxes(first, length, shape):
            box = tuple(b - a for a, b in zip(low, high, strict=True))
            count = int(np.prod(box, dtype=object))
            part = lines[done : done + count].reshape(box)
            (space.read if reads else space.write)(part, low)
            done += count
    if reads and flat is not memory:
        memory[...] = flat


def _points(
    space: Any, memory: _Array, start: Sequence[int], step: Sequence[int] | None, view: tuple[int, ...], *, reads: bool
) -> None:
    flat = np.ascontiguousarray(memory).reshape(-1)
    for low in range(0, memory.size, _POINTS):
        part = flat[low : low + _POINTS]
        coords = box_points(low, len(part), (start, step, memory.shape), view, space.shape)
        (space.read_points if reads else space.write_points)(part, coords)
    if reads and not np.may_share_memory(flat, memory):
        memory[...] = flat.reshape(memory.shape)
