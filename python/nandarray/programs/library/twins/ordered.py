"""Twins of programs over sorted arrays: ``merge``, ``search``, ``lookup``, ``join``; what is not sorted is an error."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["ROW", "join", "lookup", "merge", "search"]

Array = np.ndarray[Any, Any]
#: A row of a join: an element's number, that of the first equal one on the right, and how many are equal there.
ROW = np.dtype([("left", "i8"), ("right", "i8"), ("count", "i8")])


def _sorted(*arrays: Array) -> None:
    for x in arrays:
        later, earlier = x[1:], x[:-1]
        if bool(((later < earlier) | ((earlier != earlier) & (later == later))).any()):
            raise ValueError("an input is not sorted")


def merge(a: Array, b: Array) -> tuple[Array]:
    """Merge two sorted arrays: NaN last, and of equal elements those of the first array first."""
    _sorted(a, b)
    return (np.sort(np.concatenate([a, b]), kind="stable"),)


def lookup(values: Array, ordered: Array, right: int = 0) -> tuple[Array]:
    """Return the places (int64) of values in a sorted array, as ``numpy.searchsorted`` does."""
    return (np.searchsorted(ordered, values, "right" if right else "left").astype(np.int64),)


def search(ordered: Array, values: Array, right: int = 0) -> tuple[Array]:
    """Return the places (int64) of sorted values in a sorted array, as ``numpy.searchsorted`` does."""
    _sorted(ordered, values)
    return lookup(values, ordered, right)


def join(left: Array, right: Array) -> tuple[Array]:
    """Return a row for each element of the left array that the right one has; both are sorted, NaN equals none."""
    _sorted(left, right)
    first = np.searchsorted(right, left, "left")
    count = np.searchsorted(right, left, "right") - first
    found = np.flatnonzero((count > 0) & (left == left))
    rows = np.zeros(found.size, ROW)
    rows["left"], rows["right"], rows["count"] = found, first[found], count[found]
    return (rows,)
