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
    """Keep the elements from low to high, both included; NaN is not kept.

    Parameters
    ----------
    x : numpy.ndarray, 1-D
        Integers or floats.
    low, high : scalar
        Limits, of x's dtype.

    Returns
    -------
    tuple of one numpy.ndarray, of x's dtype
        What is kept, in order.
    """
    return (x[_between(x, low, high)],)


def filter_index(x: Array, low: Any, high: Any) -> tuple[Array]:
    """Return the numbers of the elements from low to high.

    Parameters
    ----------
    x : numpy.ndarray, 1-D
        Integers or floats.
    low, high : scalar
        Limits, of x's dtype.

    Returns
    -------
    tuple of one numpy.ndarray, uint64
        Ascending.
    """
    return (np.flatnonzero(_between(x, low, high)).astype(np.uint64),)


def filter_rows(
    rows: Array, low: Any, high: Any, *, row_bytes: int = 64, offset: int = 0, dtype: Any = np.int64
) -> tuple[Array]:
    """Keep the rows whose element at ``offset`` is from low to high.

    Parameters
    ----------
    rows : numpy.ndarray
        Any; its bytes are rows of ``row_bytes``.
    low, high : scalar
        Limits, of ``dtype``.
    row_bytes, offset : int
        Where the element is.
    dtype : dtype
        Of the element.

    Returns
    -------
    tuple of one numpy.ndarray, uint8
        The bytes of the rows that are kept.
    """
    raw = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).reshape(-1, row_bytes)
    element = np.ascontiguousarray(raw[:, offset : offset + np.dtype(dtype).itemsize]).view(dtype)[:, 0]
    return (raw[_between(element, low, high)].reshape(-1),)


def select(rows: Array, *, row_bytes: int = 64, columns: Sequence[tuple[int, int]] = ((0, 8),)) -> tuple[Array]:
    """Take columns of rows, in the order given.

    Parameters
    ----------
    rows : numpy.ndarray
        Any; its bytes are rows of ``row_bytes``.
    row_bytes : int
        Bytes of a row.
    columns : sequence of (int, int)
        Offset and bytes of each column.

    Returns
    -------
    tuple of one numpy.ndarray, uint8
        The bytes of the columns, row by row.
    """
    raw = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).reshape(-1, row_bytes)
    return (np.concatenate([raw[:, offset : offset + size] for offset, size in columns], axis=1).reshape(-1),)
