"""Boxes of elements as a drive takes them: numbers, bytes, and parts of limited size.

Not here: commands and requests, and what a store does (:mod:`nandarray.nvme.source`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

__all__ = ["as_numbers", "as_words", "box_steps", "cut_axis", "cut_box", "fits_entry", "packed", "row_count"]

_Array = np.ndarray[Any, Any]

#: Dimensions of a box whose coordinates are in a submission entry.
INLINE_DIMENSIONS = 3


def as_numbers(given: Sequence[Any]) -> list[int]:
    """Return numbers as Python has them."""
    return [int(one) for one in given]


def box_steps(step: Sequence[int] | None, count: Sequence[int]) -> list[int]:
    """Give the steps of a box, 1 where there is only one element."""
    return [1 if n == 1 else int(one) for one, n in zip(step or [1] * len(count), count, strict=True)]


def fits_entry(start: Sequence[int], step: Sequence[int], count: Sequence[int], view: Sequence[int] | None) -> bool:
    """Whether a box fits a submission entry; that of a view without dimensions cannot be opened by one."""
    few = len(count) <= INLINE_DIMENSIONS and all(one == 1 for one in step)
    return few and view != () and all(one < 1 << 32 for one in (*start, *count))


def row_count(step: Sequence[int], count: Sequence[int]) -> int:
    """Return the number of rows of a box: of its elements that follow each other along the last dimension."""
    return prod(count[:-1] if len(step) and step[-1] == 1 else count)


def cut_box(
    start: Sequence[int], step: Sequence[int], memory: _Array, most: int, rows: int | None = None
) -> Iterator[tuple[list[int], _Array]]:
    """Cut a box into boxes of at most ``most`` bytes and ``rows`` rows, with their parts of the memory."""
    few = rows is None or row_count(step, memory.shape) <= rows
    if (memory.nbytes <= most and few) or memory.size == 1:
        yield list(start), memory
        return
    axis = next(i for i, n in enumerate(memory.shape) if n > 1)
    half = memory.shape[axis] // 2
    for low, part in ((0, slice(0, half)), (half, slice(half, None))):
        first = [at + low * step[axis] * (i == axis) for i, at in enumerate(start)]
        yield from cut_box(first, step, memory[(*[slice(None)] * axis, part)], most, rows)


def cut_axis(taken: Any, part: slice) -> Any:
    """Cut a run, or an index array, of one axis."""
    if isinstance(taken, np.ndarray):
        return taken[part]
    start, step, count = taken
    low, high, _ = part.indices(count)
    return start + low * step, step, high - low


def packed(src: _Array) -> bytes:
    """Return an array's bytes in C order."""
    return np.ascontiguousarray(src).tobytes()


def as_words(numbers: _Array) -> bytes:
    """Return coordinates as a request has them, 8 bytes each."""
    return np.ascontiguousarray(numbers, "<u8").tobytes()
