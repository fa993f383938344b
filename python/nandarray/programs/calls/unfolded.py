"""Reductions along no axis, ``axis=()``: each element by itself, as NumPy has them.

The result has the shape of the box, so the elements are read, and NumPy does the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nandarray.dtypes import is_short
from nandarray.errors import InvalidError
from nandarray.programs.calls.moments import checked_ddof
from nandarray.programs.forms import folded_into
from nandarray.programs.operand import Operand

__all__ = ["each"]

_Array = np.ndarray[Any, Any]
_PLAIN = ("any", "all", "prod", "sum", "min", "max", "mean")


def each(grid: Operand, what: Any, *, key: Any, dtype: np.dtype[Any] | None, ddof: Any = 0) -> _Array:
    """Reduce each element of a box, the index expression ``key``, by a name or a function of two values.

    ``dtype`` is that of the result, None for its own.
    """
    if not callable(what) and what not in (*_PLAIN, "count", "median", "var", "std"):
        there = ", ".join([*_PLAIN, "count", "median", "var", "std"])
        raise InvalidError(f"along no axis there is {there}, and functions of two values, not {what!r}")
    less = checked_ddof(ddof)
    elements = np.asarray(grid[key])
    if elements.dtype.kind in "VUS" and not (callable(what) or is_short(elements.dtype)):
        raise InvalidError(f"{what} takes no elements of {elements.dtype}")
    if callable(what):
        return elements.astype(folded_into(elements.dtype) if dtype is None else dtype)
    kind = elements.dtype.kind
    if what == "count":
        return np.asarray(np.count_nonzero(elements, axis=()), "i8")
    wide = {"f": "f8", "c": "c16"}.get(kind) if what in ("sum", "mean", "prod", "var", "std") else None
    if what in ("var", "std") and not (kind in "biufc" or is_short(elements.dtype)):
        raise InvalidError(f"{what} takes no elements of {elements.dtype}")
    if what in ("var", "std") and kind in "biu":
        wide = "f8"
    elements = elements.astype(elements.dtype.newbyteorder("=") if wide is None else wide)
    if what in ("var", "std"):
        with np.errstate(all="ignore"):
            none: _Array = np.abs(elements - elements).astype("f8") / (1 - less if less < 1 else np.nan)
            return np.asarray(np.sqrt(none)) if what == "std" else none
    found = np.asarray(np.median(elements, axis=()) if what == "median" else getattr(np, what)(elements, axis=()))
    return found if dtype is None else found.astype(dtype)
