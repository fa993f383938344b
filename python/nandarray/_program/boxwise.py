"""A function over boxes: run block by block, each with its shape, on as many threads as there are cores.

Each block is a run of its own with one task, so that the function sees it whole, in C order, as an array of its
dimensions. Blocks lie as the array's building blocks do, so that each is one extent of the store; at the edges of the
box they are smaller. What goes into an array goes there block by block: it is not one command.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray import _nandarray
from nandarray._grid import check_shape
from nandarray._program import ports, run
from nandarray._program.axes import at_box
from nandarray._program.forms import boxes_form
from nandarray._program.program import PythonProgram
from nandarray.errors import InvalidError

if TYPE_CHECKING:
    from nandarray._compute import Compute

__all__ = ["map_boxes"]

_TASK_BYTES = 1 << 26  # a task's window
_AHEAD = 4  # blocks that wait for each thread


def map_boxes(
    grid: Compute,
    function: Any,
    others: Sequence[Any],
    block: Any,
    *,
    key: Any,
    out: Any,
    dtype: Any,
    options: Mapping[str, Any],
    scalars: Mapping[str, np.dtype[Any]],
    values: Mapping[str, Any],
) -> Any:
    """Run a function over the blocks of a box.

    Parameters
    ----------
    grid : Array or View
        The first input.
    function : callable
        Takes a box of each input and one of the output, which it fills.
    others : sequence
        The other inputs, of the box's shape: in memory or in the store.
    block : bool or sequence of int
        True: the array's building block; else the shape of blocks, in the box's dimensions.
    key : index expression
        The box.
    out : Array, View, Box, str or None
        Where to.
    dtype : dtype_like or None
        Of the output; the first input's if left out.
    options, scalars, values : mapping
        Of the run; dtypes and values of the function's numbers.

    Returns
    -------
    numpy.ndarray, Array or int
        The output; the new array; or how many elements were written.
    """
    whole = ports.Boxed(run.Box(grid, key))  # type: ignore[arg-type]  # a grid is one of the two
    shape = tuple(whole.shape)
    sizes, first = _blocks(grid, block, key, shape)
    kind = whole.dtype if dtype is None else np.dtype(dtype)
    if math.prod(sizes) * max(kind.itemsize, whole.dtype.itemsize) > _TASK_BYTES:
        raise InvalidError(f"a block of {sizes} does not fit a task of {_TASK_BYTES} bytes")
    inputs = [ports.Boxed(one) if ports.is_stored(one) else np.asarray(one) for one in others]
    trusted = {"trusted": True} if options.get("trusted") else {}
    form = boxes_form(function, [whole.dtype, *(one.dtype for one in inputs)], kind, len(shape), scalars, **trusted)
    made = PythonProgram(form)
    _ = made.elf  # an error of the compiler comes before anything is written
    own = ("trusted", "threads", "progress", "seconds")
    given = {name: value for name, value in options.items() if name not in own}
    ports.at_least_one(threads=options.get("threads"))
    store, name = grid._store_of(), out
    if isinstance(name, str):
        out = store.create(name, shape, kind)
    memory = np.empty(shape, kind) if out is None else None

    def one(parts: tuple[slice, ...]) -> tuple[int, int]:
        numbers = {**values, **{f"n{axis}_": part.stop - part.start for axis, part in enumerate(parts)}}
        boxes = [_of(run.Box(grid, key), parts), *(_of(other, parts) for other in others)]  # type: ignore[arg-type]
        target = None if out is None else _of(out, parts)
        watch, left = _nandarray.Watch(), None if until is None else max(until - time.monotonic(), 1e-3)
        watches.add(watch)
        if ended.is_set():
            watch.cancel()
        limits: dict[str, Any] = {"task_bytes": _TASK_BYTES, "seconds": left, "_watch": watch}
        try:
            found = run.offload(made, boxes, numbers, out=target, threads=1, **limits, **given)
        finally:
            watches.discard(watch)
        if memory is not None:
            memory[parts] = np.reshape(found.result, memory[parts].shape)
        return math.prod(part.stop - part.start for part in parts), found.account.bytes_in

    ended = threading.Event()
    watches: set[_nandarray.Watch] = set()
    seconds, told = options.get("seconds"), options.get("progress")
    until = None if seconds is None else time.monotonic() + seconds
    threads = options.get("threads") or os.cpu_count() or 1
    cuts = _cut(shape, sizes, first)
    tasks, done, elements, bytes_in = math.prod(map(len, cuts)), 0, 0, 0
    waiting: deque[Future[tuple[int, int]]] = deque()
    pool = ThreadPoolExecutor(threads)

    def take() -> None:
        nonlocal done, elements, bytes_in
        more, read = waiting.popleft().result()
        done, elements, bytes_in = done + 1, elements + more, bytes_in + read
        if told is not None:
            told(done, tasks, bytes_in)

    try:
        for parts in itertools.product(*cuts):
            waiting.append(pool.submit(one, parts))
            if len(waiting) > threads * _AHEAD:
                take()
        while waiting:
            take()
    except BaseException:
        # Nothing is begun any more, and what runs is ended.
        ended.set()
        for watch in list(watches):
            watch.cancel()
        pool.shutdown(cancel_futures=True)
        if isinstance(name, str):
            del store[name]
        raise
    pool.shutdown()
    if memory is not None:
        return memory
    return out if isinstance(name, str) else elements


def _blocks(grid: Any, block: Any, key: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Choose the blocks' shape, and where the first one ends: at an edge of the array's own, if steps are 1."""
    if block is True:
        own = getattr(grid, "building_block", None)
        if own is None:
            raise InvalidError("a view has no building block; give the shape of blocks")
        parts = ports.expanded(key, len(grid.shape))
        kept = [axis for axis, part in enumerate(parts) if not isinstance(part, int)]
        sizes = tuple(own[axis] for axis in kept)
        starts = [parts[axis].indices(grid.shape[axis])[::2] for axis in kept]
        first = [size - at % size if step == 1 else size for (at, step), size in zip(starts, sizes, strict=True)]
        return sizes, tuple(first)
    sizes = check_shape(block, what="block")
    if len(sizes) != len(shape) or 0 in sizes:
        raise InvalidError(f"block is {sizes}; the box {shape} has {len(shape)} dimensions, and none may be 0")
    return sizes, sizes


def _cut(shape: tuple[int, ...], sizes: tuple[int, ...], first: tuple[int, ...]) -> list[list[slice]]:
    """Give for each dimension where the blocks of a box lie."""
    axes = []
    for length, size, begin in zip(shape, sizes, first, strict=True):
        edges = [0, *range(begin, length, size), length] if length else [0]
        axes.append([slice(low, high) for low, high in itertools.pairwise(edges)])
    return axes


def _of(given: Any, parts: tuple[slice, ...]) -> Any:
    """Give the same block of another input, or of the output."""
    if isinstance(given, run.Box):
        return run.Box(given.array, at_box(given.key, given.array.shape, parts))
    return run.Box(given, parts) if ports.is_stored(given) else np.asarray(given)[parts]
