"""Variances along axes, and the mean squares that they are made of, by ``c/moments.c``.

The longest axis is folded beside the data into a mean and a sum of squares for each place; those of the other axes, all
of the same number of elements, are joined here by Chan's formula. Of complex numbers both parts are columns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.programs import ports, run
from nandarray.programs.annotations import parse_dtype
from nandarray.programs.calls import axes as along
from nandarray.programs.calls.folds import c_type
from nandarray.programs.forms import COMPILED
from nandarray.programs.operand import Operand
from nandarray.programs.program import Program

__all__ = ["checked_ddof", "variances"]

_Array = np.ndarray[Any, Any]


def checked_ddof(ddof: Any) -> float:
    """Return the number that a variance's count is less by, as a float."""
    if not isinstance(ddof, int | float | np.number) or isinstance(ddof, bool) or not math.isfinite(float(ddof)):
        raise InvalidError(f"ddof must be a number, not {ddof!r}")
    return float(ddof)


def variances(
    grid: Operand, axis: int | Sequence[int], *, key: Any, options: Mapping[str, Any], ddof: Any = 0
) -> _Array:
    """Give the variance along an axis or axes of a box, the index expression ``key``: float64.

    Sums of squares are divided by the number of elements less ``ddof``; where nothing is left, it is NaN.
    """
    box, less = ports.Boxed(run.Box(grid, key)), checked_ddof(ddof)
    taken, shape = parse_dtype(box.dtype), tuple(box.shape)
    if taken.kind not in "biufc":
        raise InvalidError(f"var takes no elements of {taken}")
    first, *others = along.longest_first(axis, shape)
    left = tuple(size for at, size in enumerate(shape) if at not in (first, *others))
    count = math.prod(shape[at] for at in (first, *others))
    if not math.prod(shape) or count <= less:
        return np.full(left, np.nan)
    kept = {one: value for one, value in options.items() if one not in COMPILED}
    firsts, means, squares = _along(grid, key, taken, first, kept)
    rest = tuple(one - (one > first) for one in others)
    with np.errstate(all="ignore"):
        if rest:
            one = tuple(slice(0, 1) if at in rest else slice(None) for at in range(firsts.ndim))
            means = firsts - firsts[one] + means  # less the first of all
            squares = (squares + shape[first] * (means - means.mean(axis=rest, keepdims=True)) ** 2).sum(axis=rest)
        if taken.kind == "c":
            squares = squares.sum(axis=-1)
        return np.asarray(squares / (count - less))


def _along(grid: Operand, key: Any, dtype: np.dtype[Any], axis: int, options: Mapping[str, Any]) -> list[_Array]:
    """Return first elements, means less these and sums of squares along one axis, of the shape of the other dimensions.

    Complex numbers have a last dimension more, of their 2 parts.
    """
    box = ports.Boxed(run.Box(grid, key))
    shape = tuple(box.shape)
    parts = (2,) * (dtype.kind == "c")
    length, inner = shape[axis], math.prod((*shape[axis + 1 :], *parts))
    whole = math.prod(shape[:axis]) == 1 or inner * max(24, length * dtype.itemsize) > along.SLAB_BYTES
    if whole and 24 * inner > along.ROW_BYTES:
        raise InvalidError(
            f"what is behind axis {axis} has {inner} numbers, {24 * inner} bytes of moments; at most {along.ROW_BYTES} "
            "are possible: fold a part at a time, with key="
        )
    made = _program(dtype, None if whole else length, inner)
    before = itertools.product(*map(range, shape[:axis] if whole else ()))
    keys = [box.part(places) for places in before] if whole else [key]
    rows = [
        np.reshape(np.asarray(run.offload(made, [run.Box(grid, one)], **options).result), (-1, 3, inner))
        for one in keys
    ]
    left = (*shape[:axis], *shape[axis + 1 :], *parts)
    return [one.reshape(left) for one in np.moveaxis(np.concatenate(rows), 1, 0)]


@lru_cache(maxsize=64)
def _program(dtype: np.dtype[Any], length: int | None, inner: int) -> Program:
    part = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    defines = {
        "T": c_type(dtype),
        "KIND_OF_T": "'f'" if dtype.kind == "c" else f"'{dtype.kind}'",
        "WHOLE": int(length is None),
        "LENGTH": length or 1,
        "INNER": inner,
        "RECORD_BYTES": (length or 1) * inner * part,
        "STATE_BYTES": 8 + 24 * inner,
        "RESULT_BYTES": 24 * inner,
    }
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    return Program.from_c(Path(__file__).parent / "c" / "moments.c", flags=flags, trusted=True)
