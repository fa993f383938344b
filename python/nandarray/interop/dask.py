"""Dask arrays out of a store and into one, cut so that no building block is touched by two tasks.

``to_dask`` makes one task a chunk, and a chunk is a whole number of building blocks, merged until it is worth a task.
Reads need no lock. In another process the array is opened again by its path, read-only.

``from_dask`` cuts the Dask array along building blocks (rechunking where it must) and writes from many threads at once.
A store has one writer, so under a scheduler with other processes the tasks only compute; this process writes. (What
`dask.array.store` sends to other processes comes back by the door of this one: :mod:`nandarray.array.writer_door`.)

This module computes no indices and keeps no cache beyond one open store a path and process.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.array.joined import Joined
from nandarray.array.lazy import AsType
from nandarray.array.parts import Part, part_of, stored
from nandarray.array.pickling import (
    Opening,
    dask_runs_elsewhere,
    has_versions,
    location,
    reopen_array,
    state_of,
    takes_workers,
    whereabouts,
)
from nandarray.errors import InvalidError, ReceiptError
from nandarray.index.shapes import aligned_chunks
from nandarray.optional import require

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.array.lazy import Field
    from nandarray.array.store import Store
    from nandarray.array.view import View

__all__ = ["from_dask", "to_dask"]

#: A chunk grows up to this many bytes: enough work for a task, and a few of them fit a worker.
CHUNK_BYTES = 96 << 20


def to_dask(array: Array | View | Field | Joined, *, chunks: Any = None, inline_array: bool = True) -> Any:
    """Return a lazy Dask array that reads ``array`` chunk by chunk.

    Parameters
    ----------
    array : Array, View, Field or Joined
        An array of an open store, a view of one, a field of its records (whose own dimensions come last, as NumPy
        has them), or several arrays joined. The store must stay open while the Dask array is computed in this process.
    chunks : chunks, optional
        Anything that ``dask.array.from_array`` takes. Left out, chunks are whole building blocks, merged up to about
        96 MiB; of a view, runs of elements that lie side by side.
    inline_array : bool
        Put the reader into each task (the default), or into one task of its own.

    Returns
    -------
    dask.array.Array
        Its name is a function of path, array and file version for a read-only store, and unique otherwise, as
        what is behind a writable one may change at any time.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["a"] = np.arange(6).reshape(2, 3)
    >>> int(nandarray.to_dask(store["a"]).sum().compute())
    15
    """
    da = _dask_array()
    if isinstance(array, Joined):
        parts = [_part(one, array.dtype, inline_array=inline_array) for one in array.parts]
        joined = (da.stack if array.stacked else da.concatenate)(parts, array.axis)
        return joined if chunks is None else joined.rechunk(chunks)
    part = stored(array, "to_dask")
    if part.encrypted and dask_runs_elsewhere():
        raise InvalidError(f"{_encrypted(part)}, as with dask.config.set(scheduler='threads')")
    if chunks is not None:
        pass
    elif isinstance(part, Part):
        chunks = part.merged(CHUNK_BYTES)
    else:
        chunks = aligned_chunks(part.shape, part.chunks, part.dtype.itemsize, limit=CHUNK_BYTES)
    return da.from_array(
        _Reader(part),
        chunks=chunks,
        name=f"nandarray-{_token(part)}",
        lock=False,
        asarray=False,
        fancy=not (isinstance(part, Part) and part.inner),
        meta=np.empty((0,) * part.ndim, part.dtype),
        inline_array=inline_array,
    )


def _part(given: Any, dtype: np.dtype[Any], *, inline_array: bool) -> Any:
    """Return a part of joined arrays as a Dask array of the joined dtype."""
    if isinstance(given, AsType):
        return _part(given.of, given.of.dtype, inline_array=inline_array).astype(given.dtype).astype(dtype)
    return to_dask(given, inline_array=inline_array).astype(dtype)


def from_dask(
    source: Any,
    store: Store,
    name: str,
    *,
    compute: bool = True,
    rechunk: bool = True,
    region: Sequence[slice] | None = None,
    **create: Any,
) -> Any:
    """Write a Dask array into a new array of ``store``, or into a box of one that is there.

    Into a store of parts the workers of a cluster write themselves, each into a part of its own.

    Parameters
    ----------
    source : dask.array.Array
        A ``dask.array.Array`` with known chunks.
    store : Store
        A store open for writing.
    name : str
        The name of the new array. If writing fails, the name is free again.
    compute : bool
        False gives a ``dask.delayed.Delayed`` that writes when computed; where Dask's scheduler has other processes,
        fastest by ``compute(scheduler="threads")``. The array exists at once and holds the fill value until then.
    rechunk : bool
        Cut the Dask array along building blocks where it is not, for a store of parts along shards. Without, tasks may
        share a block: still correct, and slower.
    region : sequence of slice, optional
        The box of an array that is there, in place of a new one: a slice without a step for each dimension.
    **create
        Passed on to ``store.create``: ``building_block``, ``compression``, ``attrs``, ...

    Returns
    -------
    Array or dask.delayed.Delayed
        The array, or the pending write.

    Examples
    --------
    >>> import dask.array, nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> nandarray.from_dask(dask.array.arange(6, chunks=3), store, "a")[4:]
    array([4, 5])
    """
    da = _dask_array()
    if not isinstance(source, da.Array):
        raise InvalidError(f"from_dask must be given a dask array, not {type(source).__name__}")
    if any(np.isnan(extent) for extent in source.shape):
        raise InvalidError("the dask array has chunks of unknown size: call compute_chunk_sizes() first")
    shape = tuple(int(extent) for extent in source.shape)
    if region is not None and create:
        raise InvalidError(f"an array that is there takes no {', '.join(sorted(create))}: region= writes into one")
    target = store.create(name, shape, source.dtype, **create) if region is None else store.open_array(name)
    start = [0] * source.ndim if region is None else _start_of(region, target.shape, shape)
    try:
        if rechunk:
            source = _aligned(source, _unit(target), start)
        if not compute:
            box = tuple(slice(low, low + length) for low, length in zip(start, shape, strict=True))
            if takes_workers(store):
                return da.store(source, target, lock=False, regions=box, compute=False)
            with require("dask.config", "dask").set(scheduler="threads"):  # by which it is to be computed
                return da.store(source, target, lock=False, regions=box, compute=False)
        _store([(source, target, start)])
    except BaseException:
        if region is None:
            del store[name]
        raise
    return target


def _start_of(region: Sequence[slice], shape: tuple[int, ...], lengths: tuple[int, ...]) -> list[int]:
    """Return the first coordinates of a box, which must have these lengths."""
    given = (region,) if isinstance(region, slice) else tuple(region)
    if len(given) != len(shape) or not all(isinstance(one, slice) for one in given):
        raise InvalidError(f"region {region!r} must be {len(shape)} slices")
    found = [one.indices(length) for one, length in zip(given, shape, strict=True)]
    has = tuple(max(0, stop - start) for start, stop, _ in found)
    if has != lengths or any(step != 1 for _, _, step in found):
        raise InvalidError(f"region {region!r} of {shape} has the shape {has}, which must be {lengths}, without steps")
    return [start for start, _, _ in found]


def _unit(target: Any) -> Sequence[int]:
    """Return the box that one task writes whole: a building block, or a shard."""
    space = getattr(target, "_space", None)
    found: Sequence[int] = getattr(space, "shard", None) or target.chunks
    return found


def store_all(parts: Sequence[tuple[Any, Any, Sequence[int]]]) -> None:
    """Write Dask arrays by one computation, so that what several of them need is computed once.

    A part is a Dask array, its target, which takes boxes of it (with ``chunks``, its building block), and the
    coordinates that the first element has there.
    """
    _store([(_aligned(source, _unit(target), start), target, start) for source, target, start in parts])


#: Rounds in which boxes are written again whose workers were lost.
_ROUNDS = 5


def _store(parts: Sequence[tuple[Any, Any, Sequence[int]]]) -> None:
    """Write Dask arrays that are cut already."""
    # Boxes of an array count from where it begins; other targets count from where the source begins.
    stored = [(source, target, start if _has_store(target) else [0] * len(start)) for source, target, start in parts]
    if not stored:
        return
    elsewhere = dask_runs_elsewhere()
    if elsewhere and not all(_has_store(target) and takes_workers(target.store) for _, target, _ in stored):
        for source, target, start in stored:
            _write_here(source, target, start)
        return
    boxes = [
        tuple(slice(low, low + length) for low, length in zip(start, source.shape, strict=True))
        for source, _, start in stored
    ]
    sources, targets = [source for source, _, _ in stored], [target for _, target, _ in stored]
    _dask_array().store(sources, targets, lock=False, regions=boxes, compute=True)
    if elsewhere:
        _bring_in(stored)


def _has_store(target: Any) -> bool:
    return getattr(target, "store", None) is not None


def _bring_in(parts: Sequence[tuple[Any, Array, Sequence[int]]]) -> None:
    """Bring in what workers wrote; where some were lost, write their boxes again."""
    store: Any = parts[0][1].store
    for left in range(_ROUNDS, -1, -1):
        try:
            store.collect()
        except ReceiptError as error:
            if not left:
                raise
            again: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
            for source, target, start in parts:
                for low, high in error.boxes.get(target.name, ()):
                    own = tuple(slice(a - o, b - o) for a, b, o in zip(low, high, start, strict=True))
                    box = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
                    for row, one in zip(again, (source[own], target, box), strict=True):
                        row.append(one)
            _dask_array().store(again[0], again[1], lock=False, regions=again[2], compute=True)
        else:
            return


def _aligned(source: Any, block: Sequence[int], start: Sequence[int] = ()) -> Any:
    """Rechunk, only where a boundary inside the array is not a boundary between blocks."""
    wanted: dict[int, tuple[int, ...]] = {}
    for axis, (cuts, step) in enumerate(zip(source.chunks, block, strict=True)):
        offset = start[axis] if start else 0
        edges = itertools.accumulate(cuts[:-1])
        if any((offset + edge) % step for edge in edges):
            chunk, length = -(-max(cuts) // step) * step, sum(cuts)
            first = min(length, chunk - offset % step)
            whole, rest = divmod(length - first, chunk)
            wanted[axis] = (first, *[chunk] * whole, *[rest] * (rest > 0))
    return source.rechunk(wanted) if wanted else source


def _write_here(source: Any, target: Array, start: Sequence[int]) -> None:
    """Compute batches of blocks wherever the scheduler likes, and write them from this process."""
    from dask.base import compute

    largest = source.dtype.itemsize * prod(max(cuts, default=1) for cuts in source.chunks)
    batch = max(1, 4 * CHUNK_BYTES // max(1, largest))
    edges = [[0, *itertools.accumulate(cuts)] for cuts in source.chunks]
    blocks = itertools.product(*(range(len(cuts)) for cuts in source.chunks))
    while places := list(itertools.islice(blocks, batch)):
        computed = compute(*(source.blocks[place] for place in places))  # type: ignore[no-untyped-call]
        for place, data in zip(places, computed, strict=True):
            own = zip(edges, place, start, strict=True)
            box = tuple(slice(low + edge[at], low + edge[at + 1]) for edge, at, low in own)
            target[(*box, ...)] = data


class _Reader:
    """An array as Dask holds it: enough to slice it here, and to open it again elsewhere."""

    def __init__(self, array: Array | Part) -> None:
        self._array = array
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        return np.asarray(self._array[key])

    def __reduce__(self) -> tuple[Any, ...]:
        array = self._array
        if array.encrypted:
            raise TypeError(_encrypted(array))
        if has_versions(array.store):
            return _Reader, (array,)
        if not array.store.read_only:
            array.store.flush()  # another process sees what has been flushed
        how = array.how if isinstance(array, Part) else ()
        return _reopen, (whereabouts(array.store), array.name, how)


def _encrypted(array: Array | Part) -> str:
    return f"array {array.name!r} is encrypted and its key stays in this process: use dask's threaded scheduler"


def _reopen(opening: Opening, name: str, how: tuple[Any, ...] = ()) -> _Reader:
    """Make a worker's source of data."""
    return _Reader(part_of(reopen_array(opening, name), how))


def _token(array: Array | Part) -> str:
    if not array.store.read_only:
        return uuid.uuid4().hex
    from dask.base import tokenize

    path = location(array.store)
    how = array.how if isinstance(array, Part) else ()
    return str(tokenize(path, array.name, how, array.shape, str(array.dtype), state_of(array.store)))


def _dask_array() -> Any:
    return require("dask.array", "dask")
