"""Reads of an array that another process serves, for any index expression that NumPy takes.

:class:`Reads` has the reading half of :class:`nandarray.index.transfer.Commands`. Elements that lie together are one
read; other boxes are cut out of whole rows, a band of rows at a time; single elements are gathered by their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["Reads"]

_Array = np.ndarray[Any, Any]

#: Bytes of rows that are read at a time where only a part of each is wanted.
_BAND_BYTES = 32 << 20
#: The largest distance in bytes between rows that are read with what lies between them.
_BETWEEN_BYTES = 4096


class Reads:
    """Commands that read one array of elements of ``item_bytes``.

    ``read(first_byte, memory)`` reads consecutive bytes, ``gather(record_bytes, numbers, memory)`` records by number.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        item_bytes: int,
        read: Callable[[int, _Array], None],
        gather: Callable[[int, _Array, _Array], None],
    ) -> None:
        self._shape, self._item, self._read_bytes, self._gather = shape, item_bytes, read, gather
        self._row_bytes = item_bytes * math.prod(shape[1:])

    def after(self, work: Callable[[], None]) -> None:
        """Do something now: every command has ended."""
        work()

    def read(self, out: _Array, start: Sequence[int], step: Sequence[int]) -> None:
        """Read the box ``start + step * [0, out.shape)``."""
        if not self._together(out.shape, step):
            self.read_outer(out, tuple(zip(start, step, out.shape, strict=True)))
            return
        first = 0
        for at, size in zip(start, self._shape, strict=True):
            first = first * size + int(at)
        memory = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        self._read_bytes(first * self._item, _bytes_of(memory))
        if memory is not out:
            out[...] = memory

    def _together(self, lengths: Sequence[int], step: Sequence[int]) -> bool:
        """Whether the elements of a box are consecutive ones of the array."""
        cut = next((axis for axis, n in enumerate(lengths) if n > 1), len(lengths))
        return tuple(lengths[cut + 1 :]) == self._shape[cut + 1 :] and all(s == 1 for s in step[cut:])

    def read_outer(self, out: _Array, axes: Sequence[Any]) -> None:
        """Read the product of runs and index arrays."""
        whole = all(
            isinstance(axis, tuple) and tuple(axis) == (0, 1, n)
            for axis, n in zip(axes[1:], self._shape[1:], strict=True)
        )
        direct = whole and out.flags.c_contiguous
        band = len(out) if direct else max(1, _BAND_BYTES // self._row_bytes)
        for low in range(0, len(out), band):
            part = out[low : low + band]
            rows = part if direct else np.empty((len(part), *self._shape[1:]), out.dtype)
            self._rows(rows, axes[0], low)
            if not direct:
                part[...] = _cut(rows, axes)

    def _rows(self, rows: _Array, taken: Any, low: int) -> None:
        """Read whole rows: those of a run or an index array from its entry ``low`` on."""
        if not isinstance(taken, tuple):
            self._gather(self._row_bytes, np.ascontiguousarray(taken[low : low + len(rows)]), _bytes_of(rows))
            return
        start, step, _ = taken
        first = start + low * step
        if step > 1 and step * self._row_bytes > _BETWEEN_BYTES:
            numbers = np.arange(len(rows), dtype=np.uint64) * np.uint64(step) + np.uint64(first)
            self._gather(self._row_bytes, numbers, _bytes_of(rows))
            return
        # Without the gap behind the last row, where the array may end.
        span = rows if step == 1 else np.empty(((len(rows) - 1) * step + 1, *rows.shape[1:]), rows.dtype)
        self._read_bytes(first * self._row_bytes, _bytes_of(span))
        if span is not rows:
            rows[...] = span[::step]

    def read_points(self, out: _Array, coords: _Array) -> None:
        """Read single elements."""
        numbers = np.zeros(len(coords), np.uint64)
        for axis, size in enumerate(self._shape):
            numbers = numbers * np.uint64(size) + coords[:, axis]
        self._gather(self._item, numbers, _bytes_of(out))

    def read_boxes(self, out: _Array, starts: _Array, step: Sequence[int]) -> None:
        """Read boxes of the shape of ``out[0]``, one a row of ``starts``."""
        for box, start in zip(out, starts, strict=True):
            self.read(box, start, step)


def _bytes_of(memory: _Array) -> _Array:
    return memory.reshape(-1).view(np.uint8)


def _cut(rows: _Array, axes: Sequence[Any]) -> _Array:
    """Take what the runs and index arrays behind the first one say, each along its own axis."""
    for axis, taken in enumerate(axes[1:], 1):
        if isinstance(taken, tuple):
            start, step, count = taken
            taken = slice(start, start + step * (count - 1) + 1, step)
        rows = rows[(*[slice(None)] * axis, taken)]
    return rows
