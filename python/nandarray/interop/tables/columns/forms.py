"""Forms of a column: how values of each Arrow type lie in arrays, and how they become Arrow's again.

| Arrow | form | array |
| --- | --- | --- |
| bool, integers, floats of 16, 32 and 64 bits | ``array`` | the same elements |
| date, time, timestamp, duration | ``array`` | integers of their width, in the type's unit |
| decimals of at most 18 digits | ``array`` | int64, times 10^scale (int32 of decimal32) |
| wider decimals | ``array`` | Arrow's 16 or 32 bytes, as void |
| binary(N) | ``array`` | uint8, N a row |
| lists of fixed size of these | ``array`` | their elements, as a second dimension |
| text, bytes and lists, with 32 or 64 bits or views | ``text``, ``bytes``, ``list`` | a ragged array |
| dictionaries, and text of few values | ``codes`` | int32, beside an array of the values |

A missing value is zero here; that it is missing is said elsewhere. Nothing here knows of a store.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from nandarray.errors import InvalidError

__all__ = [
    "FORMS",
    "arrow_of",
    "bits_of",
    "element",
    "form_of",
    "outer_of",
    "plain",
    "pooled",
    "settled",
    "stored",
    "validity",
]

FORMS = ("array", "text", "bytes", "list", "codes")
#: Digits of decimals that lie as integers.
DIGITS_MAX = 18
_NdArray = np.ndarray[Any, Any]
_types = pa.types


def plain(kind: Any) -> Any:
    """Return the type that lies in arrays: that of an extension's storage, of a dictionary's values."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif _types.is_dictionary(kind):
            kind = kind.value_type
        else:
            return kind


def is_text(kind: Any) -> bool:
    """Return whether a type is text of any layout."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_bytes(kind: Any) -> bool:
    """Return whether a type is bytes of any length, of any layout."""
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view())


def is_list(kind: Any) -> bool:
    """Return whether a type is lists of any length, of any layout."""
    tests = (_types.is_list, _types.is_large_list, _types.is_list_view, _types.is_large_list_view)
    return any(test(kind) for test in tests)


def settled(schema: Any) -> Any:
    """Return a schema without views, which differ from other text, bytes and lists by their layout alone.

    Arrow chooses no rows of views.
    """
    return pa.schema([field.with_type(_settled(field.type)) for field in schema], schema.metadata)


def _settled(kind: Any) -> Any:
    if kind == pa.string_view():
        return pa.large_string()
    if kind == pa.binary_view():
        return pa.large_binary()
    if _types.is_list_view(kind) or _types.is_large_list_view(kind):
        return pa.large_list(kind.value_field)
    if _types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _settled(kind.value_type), kind.ordered)
    return kind


def form_of(name: str, kind: Any) -> str:
    """Return the form of a column by its type.

    Raises
    ------
    InvalidError
        No form has values of this type; the column is named.
    """
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if _types.is_dictionary(kind):
        form_of(name, kind.value_type)
        if plain(kind) != kind.value_type or is_list(kind.value_type):
            raise _refused(name, kind)
        return "codes"
    if is_text(kind):
        return "text"
    if is_bytes(kind):
        return "bytes"
    if is_list(kind):
        inner = _element(kind.value_type)
        if inner is None or inner.shape or inner.kind == "V":
            raise _refused(name, kind)
        return "list"
    if _element(kind) is None:
        raise _refused(name, kind)
    return "array"


def _refused(name: str, kind: Any) -> InvalidError:
    return InvalidError(
        f"column {name!r} must be of numbers, booleans, decimals, dates, times, text, bytes, a dictionary of these, or "
        f"lists of numbers, not of {kind}"
    )


def element(kind: Any) -> np.dtype[Any]:
    """Return the dtype of a type's values of fixed size; it may have a dimension."""
    found = _element(plain(kind))
    assert found is not None, kind
    return found


def _element(kind: Any) -> np.dtype[Any] | None:
    if isinstance(kind, pa.BaseExtensionType):
        return _element(kind.storage_type)
    if _types.is_boolean(kind):
        return np.dtype("?")
    if _types.is_integer(kind) or _types.is_floating(kind):
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return found.newbyteorder("<")
    if _types.is_decimal(kind):
        narrow = kind.bit_width <= 64 or (kind.bit_width == 128 and kind.precision <= DIGITS_MAX)  # noqa: PLR2004
        return np.dtype(f"<i{min(8, kind.bit_width // 8)}" if narrow else f"V{kind.bit_width // 8}")
    if _types.is_temporal(kind) and not _types.is_interval(kind):
        return np.dtype(f"<i{kind.bit_width // 8}")
    if _types.is_fixed_size_binary(kind) and kind.byte_width:
        return np.dtype(("u1", (kind.byte_width,)))
    if _types.is_fixed_size_list(kind) and kind.list_size:
        inner = _element(kind.value_type)
        return None if inner is None or inner.shape else np.dtype((inner, (kind.list_size,)))
    return None


# --- From Arrow -------------------------------------------------------------------------------------------------------


def outer_of(array: Any) -> Any:
    """Return an array without the extension types around it."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def validity(array: Any) -> _NdArray | None:
    """Return which values are there; None where all are."""
    return np.asarray(array.is_valid()) if array.null_count else None


def stored(array: Any, name: str) -> _NdArray:
    """Return values of fixed size as elements, zeros where they are missing.

    Raises
    ------
    InvalidError
        An element within a list of fixed size is missing; the column is named.
    """
    array = outer_of(array)
    kind, count = array.type, len(array)
    dtype = element(kind)
    if not count:
        return np.empty((0, *dtype.shape), dtype.base)
    there = validity(array)
    if _types.is_boolean(kind):
        found: _NdArray = np.asarray(array.fill_null(pa.scalar(value=False)).to_numpy(zero_copy_only=False), bool)
        return found
    if _types.is_fixed_size_list(kind):
        size = kind.list_size
        inner = outer_of(array.values).slice(array.offset * size, count * size)
        inside = validity(inner)
        if inside is not None and (there is None or not inside.reshape(count, size)[there].all()):
            raise InvalidError(
                f"column {name!r} has elements within lists that are null: only whole rows may be missing"
            )
        found = stored(inner, name).reshape(count, size)
    else:
        width = kind.bit_width // 8
        whole = np.frombuffer(array.buffers()[1], np.uint8, count * width, array.offset * width)
        if _types.is_decimal(kind) and width > dtype.itemsize:  # the high half is the sign of the low one
            found = whole.view("<i8")[:: width // 8]
        else:
            found = whole.view(dtype.base).reshape(count, *dtype.shape)
    if there is None:
        return found
    found = found.copy()
    found[~there] = np.zeros((), dtype.base)
    return found


# --- To Arrow ---------------------------------------------------------------------------------------------------------


def pooled(shape: tuple[int, ...], dtype: Any) -> _NdArray:
    """Return memory for elements from Arrow's pool, which keeps what was freed: new pages cost more than a copy."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    return np.frombuffer(pa.allocate_buffer(size), dtype, math.prod(shape)).reshape(shape)


def bits_of(there: _NdArray | None) -> Any:
    """Return Arrow's buffer of validity."""
    return None if there is None else pa.array(there).buffers()[1]


def arrow_of(values: _NdArray, there: _NdArray | None, kind: Any) -> Any:
    """Return elements as an Arrow array of a type of fixed size; memory is shared where it can be."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(arrow_of(values, there, kind.storage_type))
    count = len(values)
    if not count:
        return pa.array([], kind)  # NumPy calls no element aligned, wherever it is; Arrow does not
    if _types.is_boolean(kind):
        return pa.array(np.asarray(values, bool), kind, mask=None if there is None else ~there)
    if _types.is_fixed_size_list(kind):
        inner = arrow_of(values.reshape(-1), None, kind.value_type)
        return pa.Array.from_buffers(kind, count, [bits_of(there)], children=[inner])
    if _types.is_decimal(kind) and kind.bit_width // 8 > values.itemsize:
        wide = pooled((count, kind.bit_width // 64), "<i8")
        wide[:, 0] = values
        np.right_shift(wide[:, :1], 63, out=wide[:, 1:])
        values = wide
    whole = np.require(values, requirements=["C", "A"])
    return pa.Array.from_buffers(kind, count, [bits_of(there), pa.py_buffer(whole)])
