"""Shapes of shards, and arrays that change their shape.

A shard keeps its place when its array changes. Where the first axis alone has grown, shards keep their numbers, too;
else all of them are numbered anew, which rewrites leaves and no elements. Where an axis gets shorter, shards beyond its
end are given back, and those that its end cuts are copied, so that what was cut away never comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.index.shapes import check_shape
from nandarray.parts.leaves import Row
from nandarray.parts.manifest import Entry

if TYPE_CHECKING:
    from nandarray.parts.source import PartsSource

__all__ = ["check_count", "copy_blocks", "resize", "shard_shape"]


def shard_shape(asked: Any, shape: Sequence[int], block: Sequence[int], itemsize: int, limit: int) -> tuple[int, ...]:
    """Return the shape of shards: of ``limit`` bytes at most, of whole building blocks, or the one that is given.

    An array that is smaller has one shard, with room along its first axis.

    Raises
    ------
    InvalidError
        It has another number of dimensions, or is not of whole building blocks.
    """
    if asked is not None:
        given = check_shape(asked, what="shards")
        if len(given) != len(shape):
            raise InvalidError(f"shards must have {len(shape)} dimensions, as the array {tuple(shape)}, not {given}")
        if any(length == 0 or length % step for length, step in zip(given, block, strict=True)):
            raise InvalidError(f"shards {given} must be multiples of the building block {tuple(block)}, and not 0")
        return given
    shard = list(block)
    room = max(1, limit // max(1, itemsize))
    while True:
        growing = [axis for axis, length in enumerate(shape) if shard[axis] < length]
        growing = sorted(growing, key=lambda axis: (shard[axis] // block[axis], -axis)) or ([0] if shard else [])
        for axis in growing:
            if 2 * prod(shard) <= room:
                shard[axis] *= 2
                break
        else:
            return tuple(shard)


def check_count(entry: Entry) -> None:
    """Refuse an array with more shards than there are numbers."""
    if entry.shard_count >= 2**63:
        raise InvalidError(
            f"shape {entry.shape} has {entry.shard_count} shards of {entry.shard}, which must be less than 2**63: "
            "give larger shards="
        )


def copy_blocks(source: Any, target: Any) -> int:
    """Copy the building blocks that have content, as far as they lie within the target; return the bytes."""
    ndim, shape = len(target.shape), [min(a, b) for a, b in zip(source.shape, target.shape, strict=True)]
    item = np.dtype(f"V{source.itemsize}")
    moved = 0
    for place in source.blocks().reshape(-1, max(1, ndim)):
        low = [int(at) * block for at, block in zip(place, source.building_block, strict=False)] if ndim else []
        count = [min(block, end - at) for at, block, end in zip(low, source.building_block, shape, strict=True)]
        if any(length <= 0 for length in count):
            continue
        values = np.empty(count, item)
        source.read(values, low)
        target.write(values, low)
        moved += values.nbytes
    return moved


def resize(source: PartsSource, name: str, entry: Entry, shape: tuple[int, ...]) -> None:
    """Give an array another shape, in the draft of a source."""
    if shape == entry.shape:
        return
    new = replace(entry, shape=shape)
    check_count(new)
    shrinks = any(now < before for now, before in zip(shape, entry.shape, strict=True))
    same = shape[1:] == entry.shape[1:]
    kept: dict[int, Row] = {}
    changed: dict[int, Row | None] = {}
    for number, row in list(source.rows_now(entry)) if shrinks or not same else ():
        low, high = entry.box(number)
        if any(at >= end for at, end in zip(low, shape, strict=True)):
            changed[number] = None
        elif any(end > now for end, now in zip(high, shape, strict=True)):
            kept[number] = changed[number] = _cut(source, entry, number, shape)
        else:
            kept[number] = row
    draft = source.draft
    if same:
        draft.rows.setdefault(entry.id, {}).update(changed)
    else:
        draft.rows[entry.id] = {new.number(entry.place(number)): row for number, row in kept.items()}
        new = replace(new, leaves=())
    draft.arrays = {**draft.arrays, name: new}


def _cut(source: PartsSource, entry: Entry, number: int, shape: tuple[int, ...]) -> Row:
    """Return the row of a shard that has nothing beyond a shape."""
    low, high = entry.box(number)
    count = tuple(min(b, end) - a for a, b, end in zip(low, high, shape, strict=True))
    at, _ = source.own_shard(entry, number, shape=count)
    return Row(at, source.own_part().part)
