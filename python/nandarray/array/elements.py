"""Elements from one array into another of the same shape, in bounded memory.

Building blocks of a stored array that were never written are neither read nor written: a sparse array stays one.
Between files, compressed blocks go as they are stored where both arrays have the same codec and blocks: nothing is
encoded (docs/design/013-stored-blocks-between-stores.md). Encrypted blocks are sealed for their place and are coded
anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray import _nandarray
from nandarray.array.array import Array
from nandarray.errors import CorruptError, InvalidError
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
    found = source._space.blocks() if same and isinstance(source, Array) and source.shape else None
    if found is not None and _alike(source, target):
        found = _copy_stored(source, target, found)
    for box in _stored_boxes(source, found) if same else _all_boxes(source, target):
        memory = np.empty(box_shape(box), source.dtype)
        source._get(box, out=memory)
        target[(*box, ...)] = memory


def _alike(source: Any, target: Array) -> bool:
    """Whether stored blocks of an array are those of another one: both in files under the wall clock, of one codec."""
    a, b = source._space, target._space
    if not (isinstance(a, _nandarray.Space) and isinstance(b, _nandarray.Space)):
        return False
    if source.store._is_modelled() or target.store._is_modelled() or a.encrypted or b.encrypted:
        return False
    return a.compression is not None and a.compression == b.compression and a.building_block == b.building_block


def _copy_stored(source: Any, target: Array, found: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy blocks as they are stored; return the coordinates of those that were not copied, all in one row."""
    blocks = found.reshape(-1, len(source.shape))
    step = max(_AT_ONCE // max(prod(source.chunks) * source.dtype.itemsize, 1), 1)
    left: list[np.ndarray[Any, Any]] = []
    for at in range(0, len(blocks), step):
        some = np.ascontiguousarray(blocks[at : at + step])
        try:
            copied = target._space.copy_stored(source._space, some)
        except (CorruptError, InvalidError):  # of another format version; or damaged, as reading elements tells
            return np.concatenate([*left, blocks[at:]]).reshape(-1)
        left.append(some[~np.array(copied, bool)])
    return np.concatenate([*left, blocks[:0]]).reshape(-1)


def _all_boxes(source: Grid, target: Array) -> Iterator[Box]:
    size = max(source.dtype.itemsize, target.dtype.itemsize)
    return boxes(source.shape, aligned_chunks(source.shape, target.chunks, size, limit=_AT_ONCE))


def _stored_boxes(source: Any, found: np.ndarray[Any, Any] | None) -> Iterator[Box]:
    """Yield boxes of these building blocks, in order; all boxes where it is not known which blocks have content."""
    shape, block = source.shape, source.chunks
    chunk = aligned_chunks(shape, block, source.dtype.itemsize, limit=_AT_ONCE)
    if found is None:
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
