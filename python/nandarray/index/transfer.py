"""Moves the elements of a :class:`~nandarray._nandarray.Selection` between memory and native commands.

The caller's array is brought into native order by transposing, reshaping and reversing views of it, so a box or an
outer selection is one command on the caller's own memory. Only where index arrays of several dimensions meet a
non-contiguous ``out`` does a temporary appear. Points alone go through ``read_points``, points with large boxes behind
them through ``read_boxes``.

Every write is one command, and with that whole or absent. A pointwise one takes memory for its coordinates, about 32
bytes and 16 a dimension for each point beside the values; small boxes behind many points go as boxes, not as the points
in them. Points are read in batches of bounded memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    from nandarray._nandarray import Selection

__all__ = ["BATCH_POINTS", "Commands", "Mode", "fetch", "put"]

#: The rule by which index arrays combine: by NumPy's rules, each along its own axis, or all together in front.
Mode = Literal["numpy", "outer", "pointwise"]

_Array = np.ndarray[Any, Any]

#: Points of one command that reads. 2**18 of them take 2 MiB a dimension, and are plenty to keep every thread busy.
BATCH_POINTS = 1 << 18
# A box behind a point goes as a box from here on; below, it is faster to expand it into points ...
_BOX_ELEMENTS = 256
# ... but takes more memory than the box, where one command has to take them all.
_EXPANDED_MOST = 8


class Commands(Protocol):
    """The native commands on one array or view, which :func:`fetch` and :func:`put` build on.

    A space of the engine has them. They are executed, or submitted to a modelled device: then they end later.
    """

    def after(self, work: Callable[[], None]) -> None:
        """Do something once all commands so far have ended: at once where they are executed."""

    def read(self, out: _Array, start: Sequence[int], step: Sequence[int]) -> None:
        """Read the box ``start + step * [0, out.shape)``."""

    def write(self, src: _Array, start: Sequence[int], step: Sequence[int]) -> None:
        """Write the box ``start + step * [0, src.shape)``."""

    def read_boxes(self, out: _Array, starts: _Array, step: Sequence[int]) -> None:
        """Read boxes of the shape of ``out[0]``, one a row of ``starts``."""

    def write_boxes(self, src: _Array, starts: _Array, step: Sequence[int]) -> None:
        """Write boxes of the shape of ``src[0]``, one a row of ``starts``; of equal ones the last."""

    def read_outer(self, out: _Array, axes: Sequence[Any]) -> None:
        """Read the product of runs and index arrays."""

    def write_outer(self, src: _Array, axes: Sequence[Any]) -> None:
        """Write the product of runs and index arrays."""

    def read_points(self, out: _Array, coords: _Array) -> None:
        """Read single elements."""

    def write_points(self, src: _Array, coords: _Array) -> None:
        """Write single elements."""


def fetch(commands: Commands, selection: Selection, out: _Array) -> None:
    """Read a selection into memory of its shape, with any strides."""
    if 0 in selection.shape:
        return
    if selection.is_box:
        # Dimensions of length one come and go without a copy, whatever the strides.
        whole = out.reshape(selection.lengths)[_direction(selection)]
        commands.read(whole, selection.start, selection.step)
        return
    ordered = out.transpose(selection.permutation)
    native = ordered.reshape(selection.counts)
    shared = np.may_share_memory(native, out)
    if not shared:
        native = np.empty(selection.counts, out.dtype)
    forward = native[_direction(selection)]
    if selection.points is not None:
        _fetch_points(commands, selection, forward)
    else:
        commands.read_outer(forward, selection.axes)
    if not shared:

        def arrange() -> None:
            ordered[...] = native.reshape(ordered.shape)

        commands.after(arrange)


def put(commands: Commands, selection: Selection, source: _Array) -> None:
    """Write values of a selection's shape; zero strides are fine."""
    if 0 in selection.shape:
        return
    if selection.is_box:
        whole = source.reshape(selection.lengths)[_direction(selection)]
        commands.write(whole, selection.start, selection.step)
        return
    forward = source.transpose(selection.permutation).reshape(selection.counts)[_direction(selection)]
    if selection.points is not None:
        _put_points(commands, selection, forward)
    else:
        commands.write_outer(forward, selection.axes)


def _direction(selection: Selection) -> Any:
    """Give the index that turns an array in native order into the caller's direction, and back."""
    return (*(slice(None, None, -1) if turned else slice(None) for turned in selection.reverse), ...)


def _fetch_points(commands: Commands, selection: Selection, out: _Array) -> None:
    """Read points into ``out``, whose first dimension is the points and whose others are the runs behind each."""
    behind = math.prod(out.shape[1:])
    if behind >= _BOX_ELEMENTS:
        commands.read_boxes(*_boxes(selection, out))
        return
    low = 0
    for coords in _coordinates(selection, behind, max(1, BATCH_POINTS // behind)):
        part = out[low : low + len(coords) // behind]
        if part.flags.c_contiguous:
            commands.read_points(part.reshape(-1), coords)
        else:
            flat = np.empty(len(coords), out.dtype)
            commands.read_points(flat, coords)
            commands.after(partial(_assign, part, flat))
        low += len(part)


def _assign(part: _Array, flat: _Array) -> None:
    part[...] = flat.reshape(part.shape)


def _put_points(commands: Commands, selection: Selection, source: _Array) -> None:
    behind = math.prod(source.shape[1:])
    if behind >= _BOX_ELEMENTS or (behind > _EXPANDED_MOST and source.size > BATCH_POINTS):
        commands.write_boxes(*_boxes(selection, source))
        return
    for coords in _coordinates(selection, behind, _all_at_once(selection)):
        commands.write_points(np.ascontiguousarray(source).reshape(-1), coords)


def _all_at_once(selection: Selection) -> int:
    """Give a number of points that makes one batch of a selection."""
    assert selection.points is not None
    return max(1, math.prod(selection.points) if selection.mask is None else selection.mask.size)


def _batches(selection: Selection, limit: int) -> Iterator[list[_Array]]:
    """Yield the indices of points, one flat uint64 array for each axis that has no run, ``limit`` points at a time.

    With a mask there may be more, by the elements of one row.
    """
    assert selection.points is not None
    mask = selection.mask
    if mask is not None:
        rows = max(1, limit // max(1, math.prod(mask.shape[1:])))
        for row in range(0, mask.shape[0], rows):
            found = [index.astype(np.uint64) for index in np.nonzero(mask[row : row + rows])]
            found[0] += np.uint64(row)
            if found[0].size:
                yield found
        return
    points = selection.points
    arrays = [np.broadcast_to(axis, points) for axis in selection.axes if isinstance(axis, np.ndarray)]
    for low in range(0, math.prod(points), limit):
        yield [array.flat[low : low + limit] for array in arrays]


def _coordinates(selection: Selection, behind: int, limit: int) -> Iterator[_Array]:
    """Yield the coordinates of every element in order, some points with all that is behind them at a time."""
    axes = selection.axes
    runs = [axis for axis in axes if isinstance(axis, tuple)]
    # The offsets behind a point, one row for each run: at most _BOX_ELEMENTS columns.
    grid = np.indices([count for _, _, count in runs], dtype=np.uint64).reshape(len(runs), behind)
    for points in _batches(selection, limit):
        coords = np.empty((len(points[0]), behind, len(axes)), np.uint64)
        indices, offsets = iter(points), iter(grid)
        for axis, taken in enumerate(axes):
            if isinstance(taken, tuple):
                start, step, _ = taken
                coords[:, :, axis] = next(offsets) * np.uint64(step) + np.uint64(start)
            else:
                coords[:, :, axis] = next(indices)[:, np.newaxis]
        yield coords.reshape(-1, len(axes))


def _boxes(selection: Selection, memory: _Array) -> tuple[_Array, _Array, list[int]]:
    """Give the memory with the axes of the boxes behind the points, where the boxes start, and their steps."""
    axes = selection.axes
    step = [taken[1] if isinstance(taken, tuple) else 1 for taken in axes]
    within = tuple(slice(None) if isinstance(taken, tuple) else np.newaxis for taken in axes)
    starts = np.empty((len(memory), len(axes)), np.uint64)
    for points in _batches(selection, _all_at_once(selection)):
        indices = iter(points)
        for axis, taken in enumerate(axes):
            starts[:, axis] = taken[0] if isinstance(taken, tuple) else next(indices)
    return memory[(slice(None), *within)], starts, step
