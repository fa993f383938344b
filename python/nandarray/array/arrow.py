"""Arrays for Arrow: its PyCapsule interface, by which ``pyarrow``, Polars, DuckDB and others take data of any library.

``__arrow_c_array__`` reads an array into memory, which Arrow then shares; ``__arrow_c_stream__`` gives records some
rows at a time. Numbers and times in the machine's byte order are not copied again. Dimensions behind the first are
lists of fixed size, records are structs, NaT is null. Arrow has no type for complex numbers and for some units of time;
those are refused. Elements come from the store when they are requested, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.optional import require

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["ArrowSource", "arrow_array", "arrow_type"]

_NdArray = np.ndarray[Any, Any]

#: Bytes of a batch of records.
_BATCH_BYTES = 16 << 20
#: Units of time that Arrow has.
_UNITS = ("s", "ms", "us", "ns")


class ArrowSource:
    """A base of handles on stored arrays, which gives their elements to Arrow."""

    shape: Any
    dtype: Any

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Read everything, and share it as one Arrow array: ``pyarrow.array(array)``."""
        pa = _arrow()
        _check(self.shape, self.dtype)
        whole = arrow_array(pa, np.asarray(self[...]), self.dtype)
        found: tuple[object, object] = whole.__arrow_c_array__(requested_schema)
        return found

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Share records as batches of some rows, each read when it is requested; other elements as one batch."""
        pa = _arrow()
        _check(self.shape, self.dtype)
        if self.dtype.names is None:
            chunk = arrow_array(pa, np.asarray(self[...]), self.dtype)
            return pa.chunked_array([chunk]).__arrow_c_stream__(requested_schema)
        if len(self.shape) != 1:
            raise InvalidError(
                f"a table must have one dimension of records, not shape {self.shape}: see it as view((-1,))"
            )
        schema = pa.schema(list(arrow_type(pa, self.dtype)))
        batches = _batches(pa, self)
        return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__(requested_schema)


def _arrow() -> ModuleType:
    return require("pyarrow", "lab")


def _check(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse what Arrow has no form for, before anything is read."""
    if not shape:
        raise InvalidError("an array without dimensions is no Arrow array: read its element, array[()]")
    if any(n >= 2**31 for n in shape[1:]):
        raise InvalidError(
            f"a list of fixed size must have at most {2**31 - 1} elements in Arrow, not those of {shape}"
        )
    arrow_type(_arrow(), dtype)


def arrow_type(pa: ModuleType, dtype: np.dtype[Any]) -> Any:
    """Return the Arrow type of elements."""
    if dtype.subdtype is not None:
        found = arrow_type(pa, dtype.base)
        for length in reversed(dtype.shape):
            found = pa.list_(found, length)
        return found
    if dtype.names is not None:
        return pa.struct([(name, arrow_type(pa, dtype[name])) for name in dtype.names])
    if dtype.kind == "V":
        return pa.binary(dtype.itemsize)
    if dtype.kind in "Mm":
        unit, count = np.datetime_data(dtype)
        if dtype.kind == "M" and (unit, count) == ("D", 1):
            return pa.date32()
        if unit not in _UNITS or count != 1:
            raise InvalidError(
                f"Arrow has no type for {dtype}; it has {', '.join(_UNITS)}: array.astype('{dtype.kind}8[s]')"
            )
        return pa.timestamp(unit) if dtype.kind == "M" else pa.duration(unit)
    if dtype.kind in "SU":
        return pa.binary() if dtype.kind == "S" else pa.string()
    if dtype.kind not in "biuf":
        raise InvalidError(f"Arrow has no type for {dtype}: it takes bool, numbers, times, text, bytes and records")
    return pa.from_numpy_dtype(dtype.newbyteorder("="))


def arrow_array(pa: ModuleType, values: _NdArray, dtype: np.dtype[Any]) -> Any:
    """Return values, whose first dimension is the array's, as an Arrow array; numbers that lie together are shared."""
    inner = values.shape[1:]
    if inner:
        found = arrow_array(pa, values.reshape(-1), dtype.base)
        for axis in range(len(inner), 0, -1):
            length, rows = values.shape[axis], prod(values.shape[:axis])
            if not length:
                found = pa.array([[]] * rows, pa.list_(found.type, 0))
                continue
            found = pa.FixedSizeListArray.from_arrays(found, length)
        return found
    if dtype.names is not None:
        fields = list(arrow_type(pa, dtype))
        columns = [arrow_array(pa, values[name], dtype[name]) for name in dtype.names]
        return pa.StructArray.from_arrays(columns, fields=fields)
    kind = arrow_type(pa, dtype)
    if not values.size:
        return pa.array([], kind)
    if dtype.kind == "V":
        raw = np.ascontiguousarray(values)
        return pa.Array.from_buffers(kind, len(raw), [None, pa.py_buffer(raw.view("u1"))])
    # Aligned and in the machine's order, as Arrow has them.
    whole = np.require(values.astype(dtype.newbyteorder("="), copy=False), requirements=["C", "A"])
    return pa.array(whole, kind)


def _batches(pa: ModuleType, records: Any) -> Iterator[Any]:
    rows = max(1, _BATCH_BYTES // records.dtype.itemsize)
    for low in range(0, records.shape[0], rows):
        yield pa.RecordBatch.from_struct_array(arrow_array(pa, records[low : low + rows], records.dtype))
