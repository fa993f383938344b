"""``nandarray read``: a selection of any size, printed, as JSON, or as a .npy file, in bounded memory.

A :class:`Picked` is a slice expression resolved against an array: what each of its axes runs over, and which of them
the result shows. Any box of the result can then be read on its own, so a printed summary reads only the corners that it
shows, and JSON and files go slab by slab. Lists choose along their own axis each (as ``array.oindex``), so that this
composition always works.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from nandarray.cli.common import console, jsonable_array, refuse_existing, say
from nandarray.errors import BadIndexError, InvalidError
from nandarray.index.shapes import Box, box_shape, boxes
from nandarray.index.text import Item
from nandarray.interop.convert.placing import placed
from nandarray.interop.convert.sinks import Spec, open_sink
from nandarray.interop.convert.slabs import pump, slab_shape
from nandarray.present.plain import plain

__all__ = ["Picked", "dump_json", "save", "show", "show_rows"]

_EDGE = 3
_SUMMARY_ABOVE = 1000
_SUMMARY_MOST = 1 << 20
_SLAB_BYTES = 32 << 20


class Picked:
    """A selection of an array, of which any part can be read."""

    def __init__(self, array: Any, key: tuple[Item, ...]) -> None:
        self._array = array
        self.dtype: np.dtype[Any] = array.dtype
        self._axes: list[int | range | list[int]] = []
        #: For each dimension of the result, the axis it comes from; None for a new one.
        self._shown: list[int | None] = []
        self._resolve(key, tuple(array.shape))
        self.shape = tuple(1 if axis is None else _extent(self._axes[axis]) for axis in self._shown)

    def _resolve(self, key: tuple[Item, ...], shape: tuple[int, ...]) -> None:
        used = sum(item is not None and item is not Ellipsis for item in key)
        if used > len(shape):
            raise BadIndexError(f"{used} indices for an array of {len(shape)} dimensions (shape {shape})")
        rest: list[Item] = [slice(None)] * (len(shape) - used)
        at = key.index(Ellipsis) if Ellipsis in key else len(key)
        for item in [*key[:at], *rest, *key[at + 1 :]]:
            if item is None:
                self._shown.append(None)
                continue
            axis = len(self._axes)
            picked = _along(item, axis, shape[axis])
            self._axes.append(picked)
            if not isinstance(picked, int):
                self._shown.append(axis)

    def read(self, parts: Sequence[slice | list[int]]) -> np.ndarray[Any, Any]:
        """Read a part of the result: for each of its dimensions a slice with step 1, or a list of positions."""
        axes = list(self._axes)
        shape = []
        for part, axis in zip(parts, self._shown, strict=True):
            if axis is None:
                shape.append(1)
                continue
            old = axes[axis]
            assert not isinstance(old, int)
            chosen: range | list[int] = old[part] if isinstance(part, slice) else [old[at] for at in part]
            axes[axis] = chosen
            shape.append(_extent(chosen))
        data = self._array.oindex[tuple(_index(axis) for axis in axes)]
        new = tuple(part if axis is None else slice(None) for part, axis in zip(parts, self._shown, strict=True))
        return np.asarray(data, dtype=self.dtype).reshape(shape)[new]


def _along(item: Item, axis: int, extent: int) -> int | range | list[int]:
    if isinstance(item, slice):
        return range(*item.indices(extent))
    assert isinstance(item, int | list)
    for index in [item] if isinstance(item, int) else item:
        if not -extent <= index < extent:
            raise BadIndexError(f"index {index} is out of bounds for axis {axis} with {extent} elements")
    if isinstance(item, int):
        return item % extent
    return [index % extent for index in item]


def _extent(picked: int | range | list[int]) -> int:
    if isinstance(picked, range):  # len() of a range ends at 2**63
        steps = (picked.stop - picked.start + picked.step - (1 if picked.step > 0 else -1)) // picked.step
        return max(0, steps)
    return 1 if isinstance(picked, int) else len(picked)


def _index(picked: int | range | list[int]) -> Any:
    if not isinstance(picked, range):
        return picked if isinstance(picked, int) else np.array(picked, np.uint64 if picked else np.int64)
    if not _extent(picked):
        return slice(0, 0)
    stop = picked.stop if picked.stop >= 0 else None  # a negative stop would count from the end
    return slice(picked.start, stop, picked.step)


def show(array: Any, key: tuple[Item, ...], *, everything: bool) -> None:
    """Print a selection as NumPy does: whole if it is small, else its corners."""
    picked = Picked(array, key)
    whole = everything or prod(picked.shape) <= _SUMMARY_ABOVE
    parts: list[slice | list[int]] = [
        slice(0, n) if whole or n <= 2 * _EDGE + 1 else [*range(_EDGE + 1), *range(n - _EDGE, n)] for n in picked.shape
    ]
    size = prod(len(part) if isinstance(part, list) else part.stop for part in parts)
    if not whole and size > _SUMMARY_MOST:
        raise InvalidError(f"shape {picked.shape} has too many dimensions to print; choose with a slice expression")
    data = picked.read(parts)
    if not picked.shape:
        say(data[()])
        return
    say(
        np.array2string(
            data,
            separator=", ",
            threshold=sys.maxsize if whole else 0,
            edgeitems=_EDGE,
            max_line_width=console().width,
        )
    )


def show_rows(ragged: Any, key: tuple[Item, ...], *, everything: bool, as_json: bool) -> None:
    """Print rows of a ragged array, one a line, or as a JSON list, some at a time; bytes are hexadecimal."""
    given = [one for one in key if one is not Ellipsis]
    if len(given) > 1 or None in given:
        raise BadIndexError(f"{len(given)} indices for an array of 1 dimension")
    picked = _along(given[0], 0, len(ragged)) if given else range(len(ragged))
    if isinstance(picked, int):
        say(_line(ragged[picked], as_json=as_json))
        return
    count = _extent(picked)
    whole = as_json or everything or count <= _SUMMARY_ABOVE
    parts = [slice(0, count)] if whole else [slice(0, _EDGE), slice(count - _EDGE, count)]
    for number, part in enumerate(parts):
        if number:
            say("...")
        for low in range(part.start, part.stop, _SUMMARY_ABOVE):
            chosen = picked[low : min(low + _SUMMARY_ABOVE, part.stop)]
            lines = [_line(row, as_json=as_json) for row in ragged[_index(chosen)]]
            if not as_json:
                say("\n".join(lines))
                continue
            sys.stdout.write(("[" if not low else ", ") + ", ".join(lines))
    if as_json:
        sys.stdout.write("]\n" if count else "[]\n")


def _line(row: Any, *, as_json: bool) -> str:
    if isinstance(row, bytes):
        row = row.hex()
    text = json.dumps(jsonable_array(row) if isinstance(row, np.ndarray) else row, ensure_ascii=as_json)
    return text if as_json else plain(text)


def dump_json(array: Any, key: tuple[Item, ...], out: TextIO) -> None:
    """Print a selection as nested JSON lists, slab by slab."""
    picked = Picked(array, key)
    limit = max(1, _SLAB_BYTES // 8 // max(1, picked.dtype.itemsize))
    _emit(picked, (), limit, out)
    out.write("\n")


def _emit(picked: Picked, before: tuple[slice, ...], limit: int, out: TextIO) -> None:
    axis = len(before)
    rest = picked.shape[axis:]
    if prod(rest) <= limit or not rest:
        data = picked.read([*before, *(slice(0, n) for n in rest)]).reshape(rest)
        out.write(json.dumps(jsonable_array(data)))
        return
    step = max(1, limit // max(1, prod(rest[1:])))
    out.write("[")
    for low in range(0, rest[0], step):
        out.write(", " if low else "")
        part = slice(low, min(low + step, rest[0]))
        if step == 1:
            _emit(picked, (*before, part), limit, out)
        else:
            data = picked.read([*before, part, *(slice(0, n) for n in rest[1:])])
            out.write(json.dumps(jsonable_array(data.reshape(part.stop - low, *rest[1:])))[1:-1])
    out.write("]")


def save(array: Any, key: tuple[Item, ...], path: Path, *, overwrite: bool = False) -> None:
    """Write a selection as a .npy file, slab by slab; the file appears when it is whole."""
    refuse_existing(path, overwrite=overwrite)
    picked = Picked(array, key)
    spec = Spec(name=path.stem, shape=picked.shape, dtype=picked.dtype, chunks=picked.shape, compressed=False, attrs={})
    with (
        placed(path, array.store) as unfinished,
        open_sink(unfinished, "npy", compression="none", order="C", alone=True) as sink,
    ):
        write = sink.array(spec)
        plan = boxes(picked.shape, slab_shape(picked.shape, _SLAB_BYTES // max(1, picked.dtype.itemsize)))

        def put(box: Box, data: np.ndarray[Any, Any]) -> None:
            write(box, data.reshape(box_shape(box)))

        pump(plan, lambda box: picked.read(list(box)), put, done=lambda box: None)
