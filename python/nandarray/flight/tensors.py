"""Elements of arrays as Arrow's record batches, and back: a row for each index of the first axis.

A batch has one column, ``values``. Elements of an array of one dimension are its rows; of more, a row is a tensor of
Arrow's own extension (``arrow.fixed_shape_tensor``), whose storage, a list of fixed size in C order, is what a reader
without the extension sees. Elements that are no numbers lie in nested lists. Nothing is read from a store here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from nandarray.array.arrow import arrow_array, arrow_type
from nandarray.errors import InvalidError

__all__ = ["COLUMN", "ROW_BYTES_MAX", "batch_of", "elements_of", "row_type"]

COLUMN = "values"
#: Bytes of a row, at most: a batch has at least one.
ROW_BYTES_MAX = 256 << 20
_NdArray = np.ndarray[Any, Any]


def row_type(inner: Sequence[int], dtype: np.dtype[Any]) -> Any:
    """Return the type of a row whose tensor has the shape ``inner``.

    Raises
    ------
    InvalidError
        Arrow has no type for the elements, or a row has too many.
    """
    size = prod(inner) * dtype.itemsize
    if size > ROW_BYTES_MAX:
        raise InvalidError(f"a row of the box must have at most {ROW_BYTES_MAX} bytes, not {size}: ask for less of it")
    found = arrow_type(pa, dtype)
    if not inner:
        return found
    if _is_tensor(inner, dtype):
        return pa.fixed_shape_tensor(found, list(inner))
    for length in reversed(inner):
        found = pa.list_(found, length)
    return found


def _is_tensor(inner: Sequence[int], dtype: np.dtype[Any]) -> bool:
    return bool(prod(inner)) and dtype.kind in "iufb" and dtype.subdtype is None


def batch_of(values: _NdArray, dtype: np.dtype[Any], schema: Any) -> Any:
    """Return elements, whose first axis has the rows, as a batch."""
    if values.ndim > 1 and _is_tensor(values.shape[1:], dtype):
        flat = arrow_array(pa, values.reshape(-1), dtype)
        storage = pa.FixedSizeListArray.from_arrays(flat, prod(values.shape[1:]))
        rows = pa.ExtensionArray.from_storage(schema.field(0).type, storage)
    else:
        rows = arrow_array(pa, values, dtype)
    return pa.RecordBatch.from_arrays([rows], schema=schema)


def elements_of(column: Any, inner: Sequence[int], dtype: np.dtype[Any]) -> _NdArray:
    """Return the elements of a column whose rows have the shape ``inner``.

    Raises
    ------
    InvalidError
        Elements are missing, where the dtype has no NaT, or a text is longer than the dtype has room for.
    """
    rows = len(column)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    while pa.types.is_fixed_size_list(column.type) and dtype.subdtype is None:
        if column.null_count:
            raise InvalidError(f"a column of {dtype} must have no missing rows, and has {column.null_count}")
        column = column.flatten()
    return _flat(column, dtype).reshape(rows, *inner)


def _flat(column: Any, dtype: np.dtype[Any]) -> _NdArray:
    if dtype.names is not None:
        found = np.empty(len(column), dtype)
        for name, part in zip(dtype.names, column.flatten(), strict=True):
            found[name] = elements_of(part, dtype[name].shape, dtype[name].base)
        return found
    if column.null_count and dtype.kind not in "Mm":
        raise InvalidError(f"elements of {dtype} must be there, and {column.null_count} of {len(column)} are missing")
    if dtype.kind in "SUV":
        values = column.to_pylist()
        longest = max(map(len, values), default=0)
        room = dtype.itemsize // (4 if dtype.kind == "U" else 1)
        if longest > room:
            raise InvalidError(f"elements of {dtype} must have at most {room} characters, and one has {longest}")
        return np.array(values, dtype)
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(dtype, copy=False)
