"""Twins of what picks elements, rows and columns: ``filter``, ``filter_index``, ``filter_rows``, ``select``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["filter_", "filter_index", "filter_rows", "select"]

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
