"""Choice of the boxes of a copy, so that a copy of any size needs a bounded amount of memory.

Between two stores of an array, each cut its own way, the boxes ("slabs") should be multiples of the destination's
blocks, so that no block is written twice; multiples of the source's chunks, so that none is decoded twice; and as large
as the budget allows, so that there are few. :func:`slab_shape` grows a box in that order of importance.
:func:`pump` moves the boxes, reading one while it writes the one before: two slabs are alive at a time, and a budget
must be halved before it comes here.

Knows shapes and byte counts; knows nothing of formats or stores.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from math import lcm, prod
from typing import Any

from nandarray.index.shapes import Box, box_shape

__all__ = ["pump", "slab_shape", "stored_slabs"]

#: An array is sparse if less than one in `_DENSE` of its elements is stored; its slabs have `_PLACES` places of chunks.
_DENSE = 4
_PLACES = 64


def slab_shape(
    shape: Sequence[int],
    limit: int,
    *,
    block: Sequence[int] | None = None,
    chunks: Sequence[int] | None = None,
    order: str = "C",
) -> tuple[int, ...]:
    """Choose the shape of the boxes that a copy goes by: at most ``shape`` in every dimension, at least 1.

    A box holds at most ``limit`` elements, but one is always allowed. ``block`` is the destination's block, ``chunks``
    is the source's. The last axis is the one to grow first, with ``order`` "F" the first axis.
    """
    axes = range(len(shape)) if order == "F" else range(len(shape) - 1, -1, -1)
    extent = [max(1, n) for n in shape]
    unit = [min(max(1, b), n) for b, n in zip(block or [1] * len(extent), extent, strict=True)]
    whole = [min(max(1, c), n) for c, n in zip(chunks or unit, extent, strict=True)]
    box = list(unit)
    for axis in reversed(axes):  # a block larger than the budget: cut it along its slowest axes
        if (volume := prod(box)) <= limit:
            break
        box[axis] = max(1, limit * box[axis] // volume)
    for goal in ([lcm(u, w) for u, w in zip(unit, whole, strict=True)], extent):
        for axis in axes:
            room = max(1, limit // (prod(box) // box[axis]))
            want = min(goal[axis], extent[axis])
            if want <= room:
                box[axis] = max(box[axis], want)
            elif room >= box[axis]:
                box[axis] *= room // box[axis]
    return tuple(box)


def stored_slabs(
    stored: Iterator[Box],
    shape: Sequence[int],
    limit: int,
    *,
    block: Sequence[int] | None = None,
    chunks: Sequence[int] | None = None,
    grain: Sequence[int] | None = None,
    order: str = "C",
) -> Iterator[Box]:
    """Cut ``shape`` into slabs as :func:`slab_shape` does, and give those that something is stored in.

    Reading a slab visits every place of a chunk in it. If few of the places have one, slabs are small. ``stored`` has
    the boxes that something is stored in, in any order; all of it is taken before a slab is given. ``grain`` is the
    shape that is decoded at once, where that is not ``chunks``.
    """
    ends, volume = array("Q"), 0
    for part in stored:
        ends.extend(end for side in part for end in (side.start, side.stop - 1))
        volume += prod(box_shape(part))
    if not volume:
        return
    if volume * _DENSE < prod(shape):
        limit = min(limit, _PLACES * prod(grain or chunks or (1,)))
    box = slab_shape(shape, limit, block=block, chunks=chunks, order=order)
    row = 2 * len(shape)
    found: set[tuple[int, ...]] = set()
    for at in range(0, max(1, len(ends)), max(1, row)):
        low, high = ends[at : at + row : 2], ends[at + 1 : at + row : 2]
        found.update(product(*(range(i // n, j // n + 1) for i, j, n in zip(low, high, box, strict=True))))
    for place in sorted(found):
        yield tuple(slice(at * n, min(at * n + n, end)) for at, n, end in zip(place, box, shape, strict=True))


def pump(
    plan: Iterator[Box],
    read: Callable[[Box], Any],
    write: Callable[[Box, Any], None],
    *,
    done: Callable[[Box], None],
) -> None:
    """Copy every box, reading one ahead. An error on either side stops the other and comes out here."""
    with ThreadPoolExecutor(1, thread_name_prefix="nandarray-read-ahead") as pool:
        first = next(plan, None)
        ahead = None if first is None else (first, pool.submit(read, first))
        while ahead is not None:
            box, pending = ahead
            data = pending.result()
            following = next(plan, None)
            ahead = None if following is None else (following, pool.submit(read, following))
            try:
                write(box, data)
            except BaseException:
                if ahead is not None:
                    ahead[1].cancel()
                raise
            del data, pending
            done(box)
