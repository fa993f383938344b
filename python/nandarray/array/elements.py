"""Elements from one array into another of the same shape, in bounded memory.

Building blocks of a stored array that were never written are neither read nor written: a sparse array stays one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.array.array import Array
from nandarray.index.shapes import Box, aligned_chunks, box_shape, boxes

if TYPE_CHECKING:
    from nandarray.array.base import Grid

__all__ = ["copy_elements"]

#: Bytes that are in memory at once; a building block, if it is larger.
_AT_ONCE = 32 << 20


def copy_elements(source: Grid, target: Array) -> None:
    """Write all elements of an array into another of its shape; ``target`` is new, with the fill value everywhere.

    Where dtypes and fill values are equal, building blocks without content are left out.
    """
    same = isinstance(source, Array) and source.dtype == target.dtype and source._space.fill == target._space.fill
    for box in _stored_boxes(source) if same else _all_boxes(source, target):
        memory = np.empty(box_shape(box), source.dtype)
        source._get(box, out=memory)
        target[(*box, ...)] = memory


def _all_boxes(source: Grid, target: Array) -> Iterator[Box]:
    size = max(source.dtype.itemsize, target.dtype.itemsize)
    return boxes(source.shape, aligned_chunks(source.shape, target.chunks, size, limit=_AT_ONCE))


def _stored_boxes(source: Any) -> Iterator[Box]:
    """Yield boxes of whole building blocks that have content, in order; all boxes where it is not known which have."""
    shape, block = source.shape, source.chunks
    chunk = aligned_chunks(shape, block, source.dtype.itemsize, limit=_AT_ONCE)
    found = source._space.blocks()
    if found is None or not shape:
        yield from boxes(shape, chunk)
        return
    # Of each block its first element, and the number of the chunk in which that lies.
    starts = found.reshape(-1, len(shape)) * np.array(block, np.uint64)
    starts = starts[(starts < _bounds(shape)).all(axis=1)]
    chunks, of, blocks = np.unique(starts // _bounds(chunk), axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(of, kind="stable")
    ends = np.cumsum(blocks)
    for number, place in enumerate(chunks.tolist()):
        low = [at * side for at, side in zip(place, chunk, strict=True)]
        whole = _box(low, chunk, shape)
        if blocks[number] == prod(-(-n // side) for n, side in zip(box_shape(whole), block, strict=True)):
            yield whole
            continue
        for row in order[ends[number] - blocks[number] : ends[number]].tolist():
            yield _box(starts[row].tolist(), block, shape)


def _bounds(lengths: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return lengths as 64-bit numbers: 2**64 as the largest of them, beyond which no coordinate is."""
    return np.array([min(n, 2**64 - 1) for n in lengths], np.uint64)


def _box(low: Sequence[int], sides: Sequence[int], shape: Sequence[int]) -> Box:
    return tuple(slice(at, min(at + side, n)) for at, side, n in zip(low, sides, shape, strict=True))
