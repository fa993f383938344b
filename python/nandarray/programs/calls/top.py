"""The greatest or least elements of a box or along an axis, with places: ``reduce("top", k=...)``, by ``c/top.c``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.programs import ports, run
from nandarray.programs.annotations import parse_dtype
from nandarray.programs.calls import axes
from nandarray.programs.calls.folds import c_type, spelled
from nandarray.programs.forms import COMPILED
from nandarray.programs.operand import Operand
from nandarray.programs.program import Program

__all__ = ["top_of"]

_Array = np.ndarray[Any, Any]
_MOST = 1 << 16  # a state has 16 bytes for each, and every core keeps one


def top_of(
    grid: Operand, axis: Any = None, *, key: Any, options: Mapping[str, Any], k: Any = None, largest: Any = True
) -> dict[str, _Array]:
    """Give the best elements of a box, the index expression ``key``, the best first, and their places in it.

    There are ``k``, from 1 to 65536, or as many as the box has. Of equal ones the first is better; a NaN is the best.
    With an axis they are the best along it for each place that is left, and stand along it in the results. ``options``
    are the run's.
    """
    box = ports.Boxed(run.Box(grid, key))
    kind, shape = parse_dtype(box.dtype), tuple(box.shape)
    if kind.kind not in "biufMm":
        raise InvalidError(f"top takes no elements of {kind}")
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 1 <= k <= _MOST:
        raise InvalidError(f"k must be from 1 to {_MOST}, not {k!r}")
    if not isinstance(largest, bool | np.bool):
        raise InvalidError(f"largest must be True or False, not {largest!r}")
    kept = {one: value for one, value in options.items() if one not in COMPILED}
    if axis is None:
        found = run.offload(_program(kind, int(k), int(largest), None, 1), [run.Box(grid, key)], **kept).outputs
        return {name: np.reshape(one, -1) for name, one in found.items()}
    first, *others = axes.longest_first(axis, shape)
    if others:
        raise InvalidError(f"top must have one axis, not {axis!r}: the place of an element is along one")
    many = min(int(k), shape[first])
    made = (*shape[:first], many, *shape[first + 1 :])
    if not math.prod(made):
        return {"values": np.empty(made, kind), "places": np.empty(made, "i8")}
    rows = _along(grid, key, first, (many, int(largest)), kept)
    return {name: np.concatenate([np.reshape(one[name], -1) for one in rows]).reshape(made) for name in rows[0]}


def _along(
    grid: Operand, key: Any, axis: int, wanted: tuple[int, int], options: Mapping[str, Any]
) -> list[Mapping[str, _Array]]:
    """Find the best along an axis, in a run or, where a record does not fit a task, in one for each place before it."""
    box = ports.Boxed(run.Box(grid, key))
    shape, (k, largest) = tuple(box.shape), wanted
    length, inner = shape[axis], math.prod(shape[axis + 1 :])
    whole = math.prod(shape[:axis]) == 1 or length * inner * 8 > axes.SLAB_BYTES
    state = inner * (8 + 16 * k)
    if whole and state > axes.ROW_BYTES:
        raise InvalidError(
            f"what is behind axis {axis} has {inner} elements, {state} bytes with {k} of each; at most "
            f"{axes.ROW_BYTES} are possible: take a part at a time, with key="
        )
    made = _program(parse_dtype(box.dtype), k, largest, None if whole else length, inner)
    before = itertools.product(*map(range, shape[:axis] if whole else ()))
    keys = [box.part(places) for places in before] if whole else [key]
    return [run.offload(made, [run.Box(grid, one)], **options).outputs for one in keys]


@lru_cache(maxsize=64)
def _program(dtype: np.dtype[Any], k: int, largest: int, length: int | None, inner: int) -> Program:
    """Compile it for rows of ``inner`` elements; ``length`` is the axis where it is within records."""
    defines = {
        "T": c_type(dtype),
        "KIND_OF_T": f"'{dtype.kind}'",
        "DTYPE": spelled(dtype),
        "K": k,
        "LARGEST": largest,
        "WHOLE": int(length is None),
        "LENGTH": length or 1,
        "INNER": inner,
        "RECORD_BYTES": (length or 1) * inner * dtype.itemsize,
        "STATE_BYTES": (8 + 16 * k) * (inner if length is None else 1),
        "VALUES_BYTES": dtype.itemsize * k * inner,
        "PLACES_BYTES": 8 * k * inner,
    }
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    return Program.from_c(Path(__file__).parent / "c" / "top.c", flags=flags, trusted=True)
