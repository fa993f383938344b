"""Halos of boxes: how many elements boxes come with on each side, and what stands for those beyond the array.

The words are Dask's (``dask.array.map_overlap``). The engine reads halos of arrays of a store; those of arrays in
memory are made here, axis after axis, so that the last one decides the corners.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.programs.ports import Halo

__all__ = ["HaloGiven", "by_axis", "haloed", "read_halo"]

_WORDS = ("reflect", "periodic", "nearest", "none")


@dataclass(frozen=True)
class HaloGiven:
    """A halo before the dtype of its elements is known: ``boundary`` has a word and a constant for each dimension."""

    depth: tuple[int, ...]
    boundary: tuple[tuple[str, Any], ...]

    def of(self, dtype: np.dtype[Any]) -> Halo:
        """Return the halo of elements of this dtype; a constant that they do not have is an InvalidError."""
        beyond = []
        for word, value in self.boundary:
            if word != "constant":
                beyond.append((word, b""))
                continue
            try:
                made = np.array(value, dtype)
            except (TypeError, ValueError, OverflowError) as error:
                raise InvalidError(f"boundary is {value!r}, which elements of {dtype} do not have: {error}") from None
            if made.shape or dtype.names or (dtype.kind in "biu" and made != value):
                raise InvalidError(f"boundary is {value!r}, which elements of {dtype} do not have")
            beyond.append((word, made.tobytes()))
        return Halo(self.depth, tuple(beyond))


def read_halo(depth: Any, boundary: Any, shape: Sequence[int]) -> HaloGiven | None:
    """Read what a caller says of a halo: one value for all dimensions, a sequence, or a mapping by dimension."""
    if depth is None:
        if boundary is not None:
            raise InvalidError(f"boundary is {boundary!r}, and depth is not given")
        return None
    deep = by_axis(depth, shape, 0, "depth")
    for axis, (one, length) in enumerate(zip(deep, shape, strict=True)):
        if isinstance(one, bool) or not isinstance(one, int | np.integer) or not 0 <= one <= length:
            raise InvalidError(f"depth must be from 0 to {length} along axis {axis} of the box {shape}, not {one!r}")
    beyond = [_boundary(one) for one in by_axis(boundary, shape, "none", "boundary")]
    return HaloGiven(tuple(map(int, deep)), tuple(beyond))


def _boundary(one: Any) -> tuple[str, Any]:
    if one is None:
        return "none", None
    if isinstance(one, str):
        if one not in _WORDS:
            raise InvalidError(f"boundary must be {', '.join(map(repr, _WORDS))} or a number, not {one!r}")
        return one, None
    if isinstance(one, bool | np.bool):
        raise InvalidError(f"boundary must be {', '.join(map(repr, _WORDS))} or a number, not {one!r}")
    return "constant", one


def by_axis(given: Any, shape: Sequence[int], default: Any, what: str, *, of: str = "box") -> list[Any]:
    """Return the values of all axes: one value for each, a sequence, or a mapping by axis, with the default elsewhere.

    ``what`` is the parameter's name in errors, and ``shape`` that of what it is given for, ``of``.
    """
    if isinstance(given, Mapping):
        if len({axis % len(shape) for axis in given if isinstance(axis, int)} if shape else ()) < len(given):
            raise InvalidError(f"{what} is {dict(given)!r}: must name axes of the {of} {tuple(shape)}, each once")
        axes = {axis + len(shape) if isinstance(axis, int) and axis < 0 else axis: one for axis, one in given.items()}
        stray = [axis for axis in axes if axis not in range(len(shape))]
        if stray:
            raise InvalidError(f"{what} names axis {stray[0]!r} of the {of} {tuple(shape)}")
        return [axes.get(axis, default) for axis in range(len(shape))]
    if isinstance(given, tuple | list):
        if len(given) != len(shape):
            raise InvalidError(f"{what} must have {len(shape)} entries, as the {of} {tuple(shape)}, not {given!r}")
        return list(given)
    return [given] * len(shape)


def haloed(
    array: np.ndarray[Any, Any], tiles: Sequence[tuple[slice, ...]], halo: Halo
) -> Iterator[np.ndarray[Any, Any]]:
    """Make the tiles of an array in memory with their halos, each flat."""
    for tile in tiles:
        part = array
        for axis, (along, deep, (word, constant)) in enumerate(zip(tile, halo.depth, halo.boundary, strict=True)):
            length = array.shape[axis]
            places = np.arange(along.start - deep, along.stop + deep)
            outside = (places < 0) | (places >= length)
            if word == "none":
                places = places[~outside]
            elif word == "periodic":
                places %= length
            elif word == "reflect":
                places = np.where(places < 0, -1 - places, np.where(places >= length, 2 * length - 1 - places, places))
            else:
                places = places.clip(0, length - 1)
            part = part.take(places, axis)
            if word == "constant":
                part[(slice(None),) * axis + (outside,)] = np.frombuffer(constant, array.dtype)[0]
        yield part.reshape(-1)
