"""A function over boxes: run block by block, each with its shape, as one run over the box's tiles.

Each tile is a task, so that the function sees it whole, in C order, as an array of its dimensions. With ``block=True``
tiles lie as the array's building blocks do, so that each is one extent of the store; at the edges of the box they are
smaller. The engine cuts and assembles; tiles are chosen here, and arrays in memory are put into their order. Boxes with
a halo are those of :mod:`.halos`, results of another shape those of :mod:`.chunks`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nandarray.dtypes import parse
from nandarray.errors import InvalidError
from nandarray.index.shapes import check_shape
from nandarray.programs import abi, ports, run
from nandarray.programs.calls.chunks import read_chunks
from nandarray.programs.calls.halos import HaloGiven, haloed, read_halo
from nandarray.programs.forms import COMPILED, boxes_form
from nandarray.programs.operand import Operand
from nandarray.programs.ports import Halo
from nandarray.programs.program import Program, PythonProgram

__all__ = ["map_boxes"]

_TASK_BYTES = 1 << 26  # a task's window
_DIMENSIONS = 4  # that the argument block has room for


def map_boxes(
    grid: Operand,
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
    depth: Any = None,
    boundary: Any = None,
    chunks: Any = None,
) -> Any:
    """Run a function over the blocks of a box, the index expression ``key``; it fills a box of the output.

    The other inputs have the box's shape and lie in memory or in the store. ``block`` is True for the array's building
    block, else the shape of blocks in the box's dimensions. The output's dtype is the first input's if left out.
    With ``depth``, blocks come with their neighbourhood, ``boundary`` beyond the box, and what the function writes
    there is left out. With ``chunks``, the shape of a block's result, the output has another shape than the box.
    ``options`` are the run's, ``scalars`` and ``values`` dtypes and values of the function's numbers. The output is
    given, the new array, or the number of elements that were written.
    """
    whole = ports.Boxed(box := run.Box(grid, key))
    shape = tuple(whole.shape)
    if not 0 < len(shape) <= _DIMENSIONS:
        raise InvalidError(f"a box of a function must have 1 to {_DIMENSIONS} dimensions, not {len(shape)} as {shape}")
    sizes, first = _blocks(grid, True if block is None else block, whole, shape)
    halo = read_halo(depth, boundary, shape)
    results = read_chunks(chunks, sizes)
    if isinstance(function, Program):
        _refuse(function, (box, *others), depth=depth, chunks=chunks)
        made, kind = function, _output(function, whole.dtype, dtype)
    else:
        kind = whole.dtype if dtype is None else parse(dtype)
    around = sizes if halo is None else tuple(n + 2 * deep for n, deep in zip(sizes, halo.depth, strict=True))
    room = _room(around, None if chunks is None else results.chunk, whole.dtype, kind)
    if not isinstance(function, Program):
        (box, *others), fields = zip(*map(_records, (box, *others)), strict=True)
        settings = {name: options[name] for name in COMPILED if options.get(name) is not None} | {"fields": fields}
        settings["halo"] = () if halo is None else _deep(halo)
        settings |= {} if chunks is None else {"proportion": results.reduced(), "room": room}
        dtypes = [(ports.Boxed(one) if ports.is_stored(one) else ports.in_memory(one)).dtype for one in (box, *others)]
        made = PythonProgram(boxes_form(function, dtypes, kind, len(shape), scalars, **settings))
    _, given = made.elf, {name: value for name, value in options.items() if name not in COMPILED}  # errors come first
    tiles = [*_cut(shape, sizes, first)]
    in_rows = all(size >= length for size, length in zip(first[1:], shape[1:], strict=True))  # so tiles come as rows do
    made_shape, made_first = results.result(shape, first), results.of(first)

    def tiled(one: Any) -> Any:
        beyond = None if halo is None else halo.of(ports.dtype_of(one))
        if not ports.is_stored(one):
            array = ports.in_memory(one)
            if beyond is not None:
                return _end_to_end(array, haloed(array, tiles, beyond))
            parts = (array[tile].reshape(-1) for tile in tiles)
            return array.reshape(-1) if in_rows or not tiles else _end_to_end(array, parts)
        return _tiled(one, first, sizes, beyond)

    store, name = grid._origin().array.store, out
    if isinstance(name, str):
        out = store.create(name, made_shape, kind)
    elif ports.is_stored(out) and (got := tuple(ports.Boxed(out).shape)) != made_shape:
        like = "box" if chunks is None else "result"
        raise InvalidError(f"out must have shape {made_shape}, as the {like}, not {got}")
    try:
        target = _tiled(out, made_first, results.chunk) if ports.is_stored(out) else out
        done: Any = run.offload(made, [tiled(box), *map(tiled, map(_given, others))], values, out=target, **given)
    except BaseException:
        if isinstance(name, str):
            del store[name]
        raise
    if out is not None:
        return out if isinstance(name, str) else done.result
    if in_rows:
        return np.reshape(done.result, made_shape)
    return _placed(done.result, _cut(made_shape, results.chunk, made_first), np.empty(made_shape, kind))


def _refuse(program: Program, inputs: Iterable[Any], **given: Any) -> None:
    """Refuse what a program over boxes does not take, by an InvalidError: inputs, and options that are not None."""
    if any(map(ports.is_derived, inputs)):
        raise InvalidError("a program over boxes takes neither fields nor conversions; a function takes fields")
    for name, one in given.items():
        if one is not None:
            raise InvalidError(f"{name} is for functions that are compiled now, and {program.name} is a program")


def _room(around: tuple[int, ...], chunk: tuple[int, ...] | None, taken: np.dtype[Any], kind: np.dtype[Any]) -> int:
    """Return the bytes that the result of a block may have: a power of two, so that many sizes have one program.

    ``around`` is a block with its halo, of elements ``taken``; ``chunk`` is its result, if it has another shape, of
    elements ``kind``. An InvalidError says what does not fit a task.
    """
    # A result of another shape has room for the block, too: only so the engine tells what that is without its halo.
    block = math.prod(around)
    if block * max(kind.itemsize, taken.itemsize) > _TASK_BYTES:
        raise InvalidError(f"a block of {around} does not fit a task of {_TASK_BYTES} bytes")
    made = block if chunk is None else math.prod(chunk)
    if made * kind.itemsize > _TASK_BYTES:
        raise InvalidError(f"chunks of {chunk} do not fit a task of {_TASK_BYTES} bytes")
    return int(1 << (max(made, block) * kind.itemsize - 1).bit_length())


def _tiled(one: Any, first: tuple[int, ...], sizes: tuple[int, ...], halo: Halo | None = None) -> ports.Tiled:
    """Return an array of the store, or a box of one, in tiles."""
    box = one if isinstance(one, run.Box) else run.Box(one)
    return ports.Tiled(box.array, box.key, first, sizes, halo)


def _placed(found: Any, tiles: Iterable[tuple[slice, ...]], memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Put the elements of tiles, one tile after the other, where they belong."""
    flat, at = np.reshape(found, -1), 0
    for parts in tiles:
        part = memory[parts]
        part[...] = flat[at : at + part.size].reshape(part.shape)
        at += part.size
    return memory


def _deep(halo: HaloGiven) -> list[tuple[int, bool]]:
    """Return the depth along each dimension, and whether boxes end with the array there."""
    return [(one, what == "none") for one, (what, _) in zip(halo.depth, halo.boundary, strict=True)]


def _end_to_end(array: np.ndarray[Any, Any], parts: Iterable[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Put flat parts of an array one after the other, in the array's own order of bytes."""
    return np.concatenate([array[:0].reshape(-1), *parts]).astype(array.dtype, copy=False)


def _given(one: Any) -> Any:
    return one if ports.is_stored(one) else ports.in_memory(one)


def _records(one: Any) -> tuple[Any, str | None]:
    """Return the box of records that a field is of, and the field; anything else as it is."""
    if not ports.is_derived(one):
        return one, None
    box = one if isinstance(one, run.Box) else run.Box(one)
    found: Any = box.array
    if found._origin().field is None:
        raise InvalidError(f"a function over boxes takes elements as they are: convert {found.dtype} in the function")
    if not isinstance(found.name, str) or found.dtype.shape or found.within:
        raise InvalidError("a function over boxes takes fields of elements that are one number each")
    return run.Box(found.array, box.key), found.name


def _output(program: Program, taken: np.dtype[Any], dtype: Any) -> np.dtype[Any]:
    """Return the dtype of a program's only output, which has an element for each one of the input."""
    if dtype is not None:
        raise InvalidError("dtype is for functions that are compiled now; a program has the dtype of its output")
    if len(program.outputs) != 1 or not abi.one_for_one(program.outputs[0]):
        raise InvalidError(f"{program.name} does not give one element for each one that it takes")
    kind = abi.record(program.outputs[0]["dtype"], program.outputs[0]["name"])
    sizes = [program.inputs[0]["record_bytes"], program.outputs[0]["record_bytes"]]
    if sizes != [taken.itemsize, kind.itemsize]:
        raise InvalidError(
            f"{program.name} has records of {sizes} bytes; elements have {taken.itemsize} and {kind.itemsize}"
        )
    return kind


def _blocks(grid: Any, block: Any, box: ports.Boxed, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Choose the blocks' shape, and where the first one ends: at an edge of the array's own, if steps are 1."""
    if block is True:
        own = getattr(grid, "building_block", None)
        if own is None:
            raise InvalidError("a view has no building block; give the shape of blocks")
        sizes = tuple(own[axis] for axis in box.kept)
        starts = [(box.start[axis], box.step[axis]) for axis in box.kept]
        first = [size - at % size if step == 1 else size for (at, step), size in zip(starts, sizes, strict=True)]
        return sizes, tuple(first)
    sizes = check_shape(block, what="block")
    if len(sizes) != len(shape) or 0 in sizes:
        raise InvalidError(f"block must have {len(shape)} lengths from 1 on, as the box {shape}, not {sizes}")
    return sizes, sizes


def _cut(shape: tuple[int, ...], sizes: tuple[int, ...], first: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Return the tiles of a box, the last dimension fastest."""
    axes = []
    for length, size, begin in zip(shape, sizes, first, strict=True):
        edges = [0, *range(begin, length, size), length] if length else [0]
        axes.append([slice(low, high) for low, high in itertools.pairwise(edges)])
    yield from itertools.product(*axes)
