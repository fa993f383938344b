"""Twins of what picks elements, rows and columns: ``filter``, ``filter_index``, ``filter_rows``, ``select``, ``rows``.

``rows_fold`` computes of what ``rows`` picks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nandarray.programs.library.twins.statistics import _exact, _lanes

__all__ = ["filter_", "filter_index", "filter_rows", "rows", "rows_fold", "select"]

Array = np.ndarray[Any, Any]


def _between(x: Array, low: Any, high: Any) -> Array:
    limits = np.array([low, high]).astype(x.dtype)
    return np.asarray((x >= limits[0]) & (x <= limits[1]))


def filter_(x: Array, low: Any, high: Any) -> tuple[Array]:
    """Keep the elements from low to high, both included and of x's dtype, in order; NaN is not kept."""
    return (x[_between(x, low, high)],)


def filter_index(x: Array, low: Any, high: Any) -> tuple[Array]:
    """Return the numbers (uint64, ascending) of the elements from low to high, limits of x's dtype."""
    return (np.flatnonzero(_between(x, low, high)).astype(np.uint64),)


def filter_rows(
    rows: Array, low: Any, high: Any, *, row_bytes: int = 64, offset: int = 0, dtype: Any = np.int64
) -> tuple[Array]:
    """Keep the rows of ``row_bytes`` whose element at ``offset`` is from low to high; return their bytes.

    The limits and the element are of ``dtype``.
    """
    raw = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).reshape(-1, row_bytes)
    element = np.ascontiguousarray(raw[:, offset : offset + np.dtype(dtype).itemsize]).view(dtype)[:, 0]
    return (raw[_between(element, low, high)].reshape(-1),)


def select(rows: Array, *, row_bytes: int = 64, columns: Sequence[tuple[int, int]] = ((0, 8),)) -> tuple[Array]:
    """Take columns (offset and bytes of each) of rows of ``row_bytes``, in the order given, and return their bytes."""
    raw = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).reshape(-1, row_bytes)
    return (np.concatenate([raw[:, offset : offset + size] for offset, size in columns], axis=1).reshape(-1),)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def _value(value: tuple[Any, ...], inputs: Sequence[Array], scalars: Sequence[Any]) -> Any:
    """Return a value of a test: integers as Python's, which are exact, and floats."""
    op, *rest = value
    if op in ("input", "scalar"):
        found = inputs[rest[0]] if op == "input" else np.asarray(scalars[rest[0]])
        if found.dtype.kind == "V":
            low, high = (np.ascontiguousarray(found).view(half)[at::2] for at, half in enumerate(("<u8", "<i8")))
            return low.astype(object) + high.astype(object) * 2**64
        return found.astype(np.float64) if found.dtype.kind == "f" else found.astype(object)
    if op == "const":
        return np.asarray(rest[0], None if isinstance(rest[0], float) else object)
    made = [np.asarray(_value(part, inputs, scalars)) for part in rest]
    if op == "float" or op == "/" or any(one.dtype.kind == "f" for one in made):
        made = [one.astype(np.float64) for one in made]
    with np.errstate(all="ignore"):
        if op in ("negative", "float"):
            return -made[0] if op == "negative" else made[0]
        return made[0] / made[1] if op == "/" else _OPERATORS[op](*made)


def _passes(where: tuple[Any, ...], inputs: Sequence[Array], scalars: Sequence[Any]) -> Any:
    op, *rest = where
    if op == "true":
        return np.ones((), bool)
    if op in ("and", "or", "not"):
        parts = [np.asarray(_passes(part, inputs, scalars), bool) for part in rest]
        if op == "not":
            return ~parts[0]
        made: Any = np.bool_(op == "and")
        for part in parts:
            made = made & part if op == "and" else made | part
        return made
    if op == "flag":
        return inputs[rest[0]] != 0
    one = np.asarray(_value(rest[0], inputs, scalars))
    if op == "within":
        return np.array([any(low <= x <= high for low, high in rest[1]) for x in one.flat], bool)
    if op == "among":
        return np.isin(one.astype(inputs[rest[1]].dtype), inputs[rest[1]])
    if op == "listed":
        codes = inputs[rest[1]]
        return np.array([codes[code if 0 <= code < len(codes) - 1 else -1] for code in one.flat], bool)
    other = np.asarray(_value(rest[1], inputs, scalars))
    if one.dtype.kind == "f" or other.dtype.kind == "f":
        one, other = one.astype(np.float64), other.astype(np.float64)
    return _OPERATORS[op](one, other)


def rows(*given: Any, inputs: Sequence[Any], scalars: Sequence[Any], where: tuple[Any, ...]) -> tuple[Array]:
    """Return the numbers (uint32, ascending) of the elements that pass a test, which :mod:`..rows` describes.

    Arrays come first, then scalars, as their dtypes say.
    """
    arrays = [np.asarray(one) for one in given[: len(inputs)]]
    values = [np.asarray(one, dtype) for one, dtype in zip(given[len(inputs) :], scalars, strict=True)]
    found = np.broadcast_to(np.asarray(_passes(where, arrays, values), bool), arrays[0].shape)
    return (np.flatnonzero(found).astype(np.uint32),)


_FOLD_CHUNK = 1024
_RESULT = np.dtype([("count", "u8"), ("low", "u8"), ("high", "i8"), ("real", "f8")])


def rows_fold(
    *given: Any,
    inputs: Sequence[Any],
    scalars: Sequence[Any],
    where: tuple[Any, ...],
    folds: Sequence[tuple[Any, ...]],
    starts: Sequence[int] = (0,),
) -> tuple[Array]:
    """Return counts, sums (integers of 128 bits in two halves, or floats), least and greatest values of such elements.

    Floats are added by chunks of 1024 elements, counted from each task's first one; tasks begin at ``starts``.
    """
    arrays = [np.asarray(one) for one in given[: len(inputs)]]
    values = [np.asarray(one, dtype) for one, dtype in zip(given[len(inputs) :], scalars, strict=True)]
    count = len(arrays[0])
    found = np.zeros(len(folds), _RESULT)
    found["real"] = np.nan
    for result, (op, guard, *of) in zip(found, folds, strict=True):
        keep = np.broadcast_to(np.asarray(_passes(("and", where, guard), arrays, values), bool), (count,))
        result["count"] = np.count_nonzero(keep)
        if op == "count":
            continue
        value = np.broadcast_to(np.asarray(_value(of[0], arrays, values)), (count,))
        if value.dtype.kind == "f":
            kept = value[keep & ~np.isnan(value)]
            if op == "sum":
                masked, edges = np.where(keep, value, 0.0), [*starts, count]
                with np.errstate(all="ignore"):
                    result["real"] = _exact(
                        _lanes(masked[at : min(at + _FOLD_CHUNK, last)])
                        for first, last in zip(edges[:-1], edges[1:], strict=True)
                        for at in range(first, last, _FOLD_CHUNK)
                    )
            elif kept.size:
                result["real"] = kept[(np.argmin if op == "min" else np.argmax)(kept)]
        elif keep.any():
            integers = [int(one) for one in value[keep]]
            whole = sum(integers) if op == "sum" else min(integers) if op == "min" else max(integers)
            result["low"], result["high"] = whole & (2**64 - 1), whole >> 64
    return (found,)
