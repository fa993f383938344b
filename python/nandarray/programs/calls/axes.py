"""Folding along one axis: a box becomes a box without it.

The elements behind the axis in C order are a row. If the axis is the box's first, records are rows and a state has one;
the axis may then have any length. Else a record has all rows of the axis, and folds by itself; if it does not fit a
task, the places before the axis are run one by one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nandarray.dtypes import computed, parse
from nandarray.errors import InvalidError, NotFoundError
from nandarray.index.shapes import check_axis
from nandarray.programs import ports, run
from nandarray.programs.calls.times import along, running_total
from nandarray.programs.forms import COMPILED, along_form, folded_into
from nandarray.programs.operand import Operand
from nandarray.programs.program import Program, PythonProgram

__all__ = ["FOLDS", "ROW_BYTES", "SLAB_BYTES", "add", "longest_first", "reduce_along"]

SLAB_BYTES = 32 << 20  # a record has to fit a task's window
ROW_BYTES = 8 << 20  # a state is kept by every core, and by every run of tasks that waits


def add(x: Any, y: Any) -> Any:
    """Return the sum of two values."""
    return x + y


def _least(x: Any, y: Any) -> Any:
    return x if x <= y or x != x else y  # NaN stays


def _greatest(x: Any, y: Any) -> Any:
    return x if x >= y or x != x else y


def _both(x: Any, y: Any) -> Any:
    return x & y


def _either(x: Any, y: Any) -> Any:
    return x | y


#: Reductions of :mod:`.folds`, by their numbers in ``c/fold.c``.
FOLDS: Mapping[str, int] = {"any": 0, "all": 1, "prod": 2, "count": 3, "argmin": 4, "argmax": 5}
_NAMED: Mapping[str, Callable[[Any, Any], Any]] = {"sum": add, "mean": add, "min": _least, "max": _greatest}


def _kind(what: Any, dtype: np.dtype[Any], asked: Any) -> np.dtype[Any]:
    """Choose what is folded into: 64 bits for sums, and for functions, which may be sums."""
    if asked is not None:
        return parse(asked)
    if what in ("sum", "mean") and dtype.kind in "fc":
        return np.dtype("c16" if dtype.kind == "c" else "f8")
    if what == "mean":
        return np.dtype("f8")
    if what == "sum":
        return np.dtype("u8" if dtype.kind == "u" else "i8")
    return computed(dtype) if isinstance(what, str) else folded_into(dtype)


def reduce_along(
    grid: Operand,
    what: Any,
    axis: int | Sequence[int],
    *,
    key: Any,
    dtype: Any,
    options: Mapping[str, Any],
    scalars: Mapping[str, np.dtype[Any]],
    values: Mapping[str, Any],
) -> np.ndarray[Any, Any]:
    """Fold a box, the index expression ``key``, along an axis; of the box's shape without the axis.

    ``what`` is ``"sum"``, ``"mean"``, ``"min"``, ``"max"``, or an associative function of two values. Of several axes
    the longest is folded beside the data, the others of what comes out. ``dtype`` is what is folded into; ``options``
    are the run's, ``scalars`` and ``values`` dtypes and values of the function's numbers.
    """
    if isinstance(what, str) and what not in _NAMED:
        there = ", ".join([*_NAMED, *FOLDS, "var", "std", "median", "quantile", "percentile", "top"])
        raise NotFoundError(f"there is no reduction {what!r} along an axis; there is {there}")
    if not isinstance(what, str) and not callable(what):
        raise InvalidError("along an axis there is a name, or a function of two values")
    function, times = None, None
    if isinstance(what, str) and grid.dtype.base.kind in "mM":
        grid, function, times = along(grid, what)
    box = ports.Boxed(run.Box(grid, key))
    shape = tuple(box.shape)
    axis, *others = longest_first(axis, shape)
    if others and what not in _NAMED:
        raise InvalidError(f"along {1 + len(others)} axes there is {', '.join([*_NAMED, *FOLDS])}, and no function")
    length, inner = shape[axis], math.prod(shape[axis + 1 :])
    kind, left = _kind(what, box.dtype, dtype), shape[:axis] + shape[axis + 1 :]
    if times is not None:
        kind = np.dtype("i8")
    if not math.prod(shape):
        return _of_nothing(what, kind if times is None else times, shape, (axis, *others))
    function = function or (_NAMED[what] if isinstance(what, str) else what)
    truth = box.dtype.kind == kind.kind == "b" and what in ("min", "max")
    if truth:  # Numba has no order of truth values, and folds them into numbers
        function, kind = _both if what == "min" else _either, np.dtype("u1")
    settings = {name: options[name] for name in COMPILED if options.get(name) is not None}
    kept = {name: value for name, value in options.items() if name not in COMPILED}
    slab = length * inner * box.dtype.itemsize
    whole = math.prod(shape[:axis]) == 1 or slab > SLAB_BYTES
    if whole and inner * max(kind.itemsize, box.dtype.itemsize) > ROW_BYTES:
        raise InvalidError(
            f"what is behind axis {axis} has {inner} elements, {inner * kind.itemsize} bytes; at most {ROW_BYTES} are "
            "possible: fold a part at a time, with key="
        )
    made: Program
    if whole and times is not None and what in ("sum", "mean"):
        made = running_total(inner)
    else:
        made = PythonProgram(along_form(function, box.dtype, kind, (length, inner), scalars, whole=whole, **settings))
    before = itertools.product(*map(range, shape[:axis] if whole else ()))
    keys = [box.part(places) for places in before] if whole else [key]
    rows: list[Any] = [run.offload(made, [run.Box(grid, one)], values, **kept).result for one in keys]
    found = np.concatenate([np.reshape(row, -1) for row in rows]).reshape(left)
    if times is not None:
        found = found.view(times)
    elif isinstance(what, str) and what in ("min", "max") and dtype is None and not truth:
        found = found.astype(box.dtype.newbyteorder("="), copy=False)
    rest = tuple(one - (one > axis) for one in others)
    if rest and what in ("sum", "mean"):
        found = np.asarray(np.sum(found, axis=rest, dtype=kind if times is None else times))
    elif rest:
        found = np.asarray(np.min(found, axis=rest) if what == "min" else np.max(found, axis=rest))
    if truth:
        return found.astype("?")
    return found / math.prod(shape[one] for one in (axis, *others)) if what == "mean" else found


def _of_nothing(what: Any, kind: np.dtype[Any], shape: tuple[int, ...], axes: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return what no elements are folded into."""
    left = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    if math.prod(left) and what not in ("sum", "mean"):
        named = f"axis {axes[0]}" if len(axes) == 1 else f"axes {sorted(axes)}"
        raise InvalidError(f"there is no element along {named} of {shape}")
    if what == "mean":
        return np.full(left, np.nan, (np.zeros(1, kind) / 1).dtype)
    return np.zeros(left, kind)


def longest_first(axis: int | Sequence[int], shape: tuple[int, ...]) -> list[int]:
    """Bring axes to 0 .. ndim - 1, the longest first."""
    several = axis if isinstance(axis, tuple | list) else (axis,)
    if not several:
        raise InvalidError("there is no axis to fold along")
    for one in several:
        if not isinstance(one, int | np.integer) or isinstance(one, bool):
            raise InvalidError(f"an axis must be an integer, not {one!r}")
    found = [check_axis(int(one), len(shape)) for one in several]
    if len(set(found)) < len(found):
        raise InvalidError(f"axes {tuple(several)} name one axis twice")
    return sorted(found, key=lambda one: (-shape[one], one))
