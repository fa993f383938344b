"""Shapes: checked, and cut into boxes of which each lies together.

Only shapes and byte counts are known here, no formats and no stores.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

from nandarray.errors import BadIndexError, InvalidError, NandarrayError

__all__ = ["Box", "aligned_chunks", "box_shape", "boxes", "check_axis", "check_number", "check_shape", "run_shape"]

MAX_DIMS = 32
MAX_AXIS = 2**64

#: One slice with explicit bounds and step 1 for each dimension.
Box = tuple[slice, ...]


def check_shape(
    shape: int | Sequence[int], *, what: str = "shape", error: type[NandarrayError] = InvalidError
) -> tuple[int, ...]:
    """Bring a shape to a tuple of Python integers within the limits of the store.

    ``what`` is its name in errors; a number outside the limits raises ``error``.
    """
    try:
        lengths = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        checked = tuple(operator.index(length) for length in lengths)
    except TypeError as cause:
        raise InvalidError(f"{what} must be a tuple of integers, not {shape!r}") from cause
    if len(checked) > MAX_DIMS:
        raise InvalidError(f"{what} must have at most {MAX_DIMS} dimensions, not {len(checked)}")
    for axis, length in enumerate(checked):
        if not 0 <= length <= MAX_AXIS:
            raise error(f"{what} {checked} has {length} on axis {axis}; 0 to 2**64 are possible")
    return checked


def check_number(what: str, value: Any, *, most: int = 2**64 - 1) -> int:
    """Return a number from 0 to ``most`` as Python's integer, or raise an InvalidError with its name."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidError(f"{what} must be an integer, not {value!r}") from None
    if not 0 <= number <= most:
        raise InvalidError(f"{what} must be from 0 to {most}, not {number}")
    return number


def check_axis(axis: int, ndim: int) -> int:
    """Bring an axis number to 0 .. ndim - 1; negative ones count from the end."""
    try:
        axis = operator.index(axis)
    except TypeError:
        raise InvalidError(f"an axis must be an integer, not {axis!r}") from None
    if not -ndim <= axis < ndim:
        raise BadIndexError(f"axis {axis} is out of bounds for array of dimension {ndim}")
    return axis % ndim


def run_shape(shape: Sequence[int], limit: int, *, block: Sequence[int] | None = None) -> tuple[int, ...]:
    """Choose boxes that lie one after another in a C-ordered stream: ones, then one partial axis, then full axes."""
    box = [1] * len(shape)
    for axis in range(len(shape) - 1, -1, -1):
        room = max(1, limit // prod(box))
        box[axis] = min(max(1, shape[axis]), room)
        if box[axis] < shape[axis]:
            step = block[axis] if block else 1
            if step <= box[axis]:
                box[axis] -= box[axis] % step
            break
    return tuple(box)


def boxes(shape: Sequence[int], box: Sequence[int]) -> Iterator[Box]:
    """Cut ``shape`` into boxes, in C order, one at a time; none where the array is empty."""
    if not shape:
        yield ()
        return
    if 0 in shape:
        return
    for low in range(0, shape[0], box[0]):
        part = slice(low, min(low + box[0], shape[0]))
        for rest in boxes(shape[1:], box[1:]):
            yield (part, *rest)


def box_shape(box: Box) -> tuple[int, ...]:
    """Give the shape of a box."""
    return tuple(part.stop - part.start for part in box)


def aligned_chunks(shape: Sequence[int], block: Sequence[int], itemsize: int, *, limit: int) -> tuple[int, ...]:
    """Choose a chunk of whole building blocks, as near to a cube of blocks as ``limit`` bytes allow.

    Doubling the axis with the fewest blocks in the chunk keeps chunks good for every direction of work, as building
    blocks are.
    """
    extent = [max(1, n) for n in shape]
    chunk = [min(max(1, b), n) for b, n in zip(block, extent, strict=True)]
    room = max(1, limit // max(1, itemsize))
    while True:
        growing = [axis for axis, n in enumerate(extent) if chunk[axis] < n]
        growing.sort(key=lambda axis: (chunk[axis] / max(1, block[axis]), -axis))
        for axis in growing:
            wider = min(2 * chunk[axis], extent[axis])
            if prod(chunk) // chunk[axis] * wider <= room:
                chunk[axis] = wider
                break
        else:
            return tuple(chunk)
