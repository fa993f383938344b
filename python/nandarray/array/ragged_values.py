"""Rows of different lengths in memory: made of Python's objects, NumPy's text or Arrow's arrays, and given as those.

:class:`Rows` is what Arrow has of such an array: where each row begins, all elements one behind the other, and which
rows are there. Three kinds have that form: text (UTF-8), bytes, and lists of elements of one dtype, which may be
records or have dimensions of their own.

A row is missing where it is None, NaN, pandas' NA, masked, or Arrow's null. Elements within a list are not missing:
Arrow's nulls there are refused, but for times, where they are NaT. Stored rows are :mod:`nandarray.array.ragged`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from nandarray import dtypes
from nandarray.array.arrow import arrow_array
from nandarray.errors import CorruptError, InvalidError
from nandarray.index import buffers
from nandarray.optional import require

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["KINDS", "RaggedKind", "Rows", "compacted", "is_ragged", "rows_of", "settle_kind", "to_arrow", "to_numpy"]

RaggedKind = Literal["text", "bytes", "list"]
KINDS: tuple[RaggedKind, ...] = ("text", "bytes", "list")

_NdArray = np.ndarray[Any, Any]
_BYTE = np.dtype(np.uint8)
_OF_ONE_SHAPE = (
    "must be a list of elements of one shape, not of lists of different lengths: store these one behind the other, as "
    "rows of a ragged array, and how many of them belong to each row as an array"
)


class Rows(NamedTuple):
    """Rows in memory."""

    #: A number more than there are rows: the first is 0, the last the length of ``values``.
    offsets: _NdArray
    values: _NdArray
    #: Whether each row is there; None where all are.
    valid: _NdArray | None

    @property
    def number(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1


# --- Of what is given -------------------------------------------------------------------------------------------------


def is_ragged(data: Any) -> bool:
    """Return whether data that is assigned to a name has rows of different lengths, by its type: no list of Python."""
    if isinstance(data, np.ndarray):
        return data.dtype.kind in "OT"
    if not _is_arrow(data):
        return False
    try:
        pa = require("pyarrow", "lab")
        return _kind_of(pa, _chunked(pa, data).type) is not None
    except (ImportError, InvalidError):
        return False


def settle_kind(data: Any, dtype: DTypeLike | None) -> tuple[RaggedKind, np.dtype[Any]]:
    """Settle on the kind of a new array and the dtype of its elements: that which is given, or that of the data."""
    if dtype is not None:
        plain: Any = dtype
        if plain is str or plain is bytes:
            return ("text" if plain is str else "bytes"), _BYTE
        return "list", dtypes.check(dtype)
    if data is None:
        raise InvalidError("a ragged array must be given data, or a dtype: str, bytes, or that of its lists' elements")
    if _is_arrow(data):
        pa = require("pyarrow", "lab")
        kind = _kind_of(pa, chunked := _chunked(pa, data).type)
        if kind is None:
            raise InvalidError(f"Arrow's {chunked} is no text, bytes or list: store[name] = data makes an array of it")
        return kind, _item(pa, _plain(pa, chunked).value_type) if kind == "list" else _BYTE
    if isinstance(data, np.ndarray) and data.dtype.kind == "T":
        return "text", _BYTE
    rows = _sequence(data)
    first = next((row for row in rows if not _is_missing(row)), None)
    if first is None:
        raise InvalidError("rows that are all missing tell no dtype: it must be given")
    if isinstance(first, str):
        return "text", _BYTE
    if isinstance(first, bytes | bytearray | memoryview):
        return "bytes", _BYTE
    made = [_even(number, row) for number, row in enumerate(rows) if not _is_missing(row)]
    filled = [row for row in made if row.size]
    try:
        common = np.result_type(*filled) if filled else np.dtype(np.float64)
    except TypeError as error:
        raise InvalidError(f"lists of several dtypes: {error}") from None
    return "list", dtypes.check(np.dtype((common, filled[0].shape[1:] if filled else ())))


def rows_of(data: Any, kind: RaggedKind, item: np.dtype[Any]) -> Iterator[Rows]:
    """Give the rows of data, some at a time.

    Raises
    ------
    InvalidError
        The data is of another kind, or a row does not fit; it is named by its number.
    """
    if _is_arrow(data):
        pa = require("pyarrow", "lab")
        for chunk in _chunked(pa, data).chunks:
            yield _of_arrow(pa, chunk, kind, item)
        return
    given = _sequence(data)
    alike = {*map(type, given)} <= {str, bytes}  # none of which stands for a missing row
    missing = np.zeros(len(given), bool) if alike else np.fromiter(map(_is_missing, given), bool, len(given))
    pieces: list[Any]
    if kind == "list":
        pieces = [_list(number, row, item) for number, row in _present(given, missing)]
        values = np.concatenate(pieces) if pieces else np.empty((0, *item.shape), item.base)
    else:
        make = _encoded if kind == "text" else _bytes
        pieces = [make(number, row) for number, row in _present(given, missing)]
        values = np.frombuffer(b"".join(pieces), _BYTE)
    lengths = np.zeros(len(given), np.int64)
    lengths[~missing] = np.fromiter(map(len, pieces), np.int64, len(pieces))
    yield Rows(_offsets(lengths), values, ~missing if missing.any() else None)


def _sequence(data: Any) -> Sequence[Any]:
    unordered = isinstance(data, Mapping | Set)
    if unordered or isinstance(data, str | bytes | bytearray | memoryview) or not isinstance(data, Iterable):
        raise InvalidError(f"a ragged array must be made of rows, a list of them, not of {type(data).__name__}")
    if isinstance(data, np.ndarray) and (data.ndim == 0 or (data.ndim > 1 and data.dtype.kind in "OTSU")):
        raise InvalidError(f"a ragged array must have one dimension, not shape {data.shape}")
    return data.tolist() if isinstance(data, np.ndarray) and data.dtype.kind == "T" else list(data)


def _is_missing(row: Any) -> bool:
    if row is None or row is np.ma.masked or type(row).__name__ == "NAType":
        return True
    return isinstance(row, float | np.floating) and bool(np.isnan(row))


def _present(given: Sequence[Any], missing: _NdArray) -> Iterable[tuple[int, Any]]:
    if not missing.any():
        return enumerate(given)
    return ((number, given[number]) for number in np.flatnonzero(~missing).tolist())


def _encoded(number: int, row: Any) -> bytes:
    if not isinstance(row, str):
        raise InvalidError(f"row {number} must be text or None, not {type(row).__name__}")
    try:
        return row.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(f"row {number} must be text that UTF-8 has: {error.reason} at {error.start}") from None


def _bytes(number: int, row: Any) -> bytes:
    if not isinstance(row, bytes | bytearray | memoryview):
        raise InvalidError(f"row {number} must be bytes or None, not {type(row).__name__}")
    return bytes(row)


def _even(number: int, row: Any) -> _NdArray:
    """Return the elements of a row, which have one shape."""
    try:
        return np.asarray(row)
    except ValueError:
        raise InvalidError(f"row {number} {_OF_ONE_SHAPE}") from None


def _list(number: int, row: Any, item: np.dtype[Any]) -> _NdArray:
    if isinstance(row, str | bytes) or not np.iterable(row):
        raise InvalidError(f"row {number} must be a list of {item} or None, not {type(row).__name__}")
    if isinstance(row, list | tuple) and any(one is None for one in row):
        raise InvalidError(f"row {number} must be a list of {item} without None: a whole row may be missing")
    if item.base.kind in "US":
        wide = np.asarray(row).dtype
        if wide.kind == item.base.kind and wide.itemsize > item.base.itemsize:
            raise InvalidError(f"row {number} has text of type {wide}; the array's lists must have {item.base}")
    try:
        found = buffers.as_source(row, item.base)
    except InvalidError as error:
        _even(number, row)
        raise InvalidError(f"row {number}: {error}") from None
    if not found.size and found.ndim <= 1:
        return np.empty((0, *item.shape), item.base)
    if found.shape[1:] != item.shape:
        raise InvalidError(f"row {number} has shape {found.shape}, it must be (n, {', '.join(map(str, item.shape))})")
    return found


def _offsets(lengths: _NdArray) -> _NdArray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def compacted(heap: _NdArray, starts: _NdArray, ends: _NdArray) -> tuple[_NdArray, _NdArray]:
    """Return the offsets and elements of rows that lie anywhere in ``heap``."""
    offsets = _offsets(ends - starts)
    values = np.empty((int(offsets[-1]), *heap.shape[1:]), heap.dtype)
    for low, high, at in zip(starts.tolist(), ends.tolist(), offsets.tolist(), strict=False):
        values[at : at + high - low] = heap[low:high]
    return offsets, values


# --- Of Arrow ---------------------------------------------------------------------------------------------------------


def _is_arrow(data: Any) -> bool:
    return hasattr(data, "__arrow_c_array__") or hasattr(data, "__arrow_c_stream__")


def _chunked(pa: ModuleType, data: Any) -> Any:
    if isinstance(data, pa.ChunkedArray):
        return data
    try:
        if hasattr(data, "__arrow_c_array__"):
            return pa.chunked_array([data if isinstance(data, pa.Array) else pa.array(data)])
        return pa.chunked_array(data)
    except (TypeError, pa.ArrowException) as error:
        raise InvalidError(f"{type(data).__name__} gives no array of Arrow: {error}") from None


def _plain(pa: ModuleType, kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _kind_of(pa: ModuleType, arrows: Any) -> RaggedKind | None:
    arrows = _plain(pa, arrows)
    if arrows in (pa.string(), pa.large_string(), pa.string_view()):
        return "text"
    if arrows in (pa.binary(), pa.large_binary(), pa.binary_view()):
        return "bytes"
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view, pa.types.is_large_list_view)
    return "list" if any(one(arrows) for one in lists) else None


def _of_arrow(pa: ModuleType, array: Any, kind: RaggedKind, item: np.dtype[Any]) -> Rows:
    """Return rows of an Arrow array; what it says of itself is verified, UTF-8 too."""
    given = _kind_of(pa, array.type)
    if given != kind:
        raise InvalidError(f"Arrow's {array.type} must be {kind} to be appended to rows of {kind}")
    wanted = {"text": pa.large_string(), "bytes": pa.large_binary()}.get(kind)
    try:
        array.validate(full=True)
        array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        array = array.cast(wanted or pa.large_list(array.type.value_type))
    except pa.ArrowException as error:
        raise InvalidError(f"an array of Arrow that is none: {error}") from None
    count = len(array)
    _, places, *rest = array.buffers()
    empty = places is None or not count
    whole = np.zeros(1, np.int64) if empty else np.frombuffer(places, np.int64)[array.offset : array.offset + count + 1]
    low, high = int(whole[0]), int(whole[-1])
    if kind == "list":
        values = _items(pa, array.values[low:high], _item(pa, array.type.value_type))
        values = buffers.as_source(values, item.base)
        if values.shape[1:] != item.shape:
            raise InvalidError(f"elements have shape {values.shape[1:]}, they must have {item.shape}")
    else:
        values = np.empty(0, _BYTE) if high == low else np.frombuffer(rest[0], _BYTE)[low:high]
    valid = np.asarray(array.is_valid()) if array.null_count else None
    return Rows(whole - low, values, valid)


def _item(pa: ModuleType, arrows: Any) -> np.dtype[Any]:
    """Return the dtype of the elements of Arrow's lists."""
    types = pa.types
    if types.is_struct(arrows) and arrows.num_fields:
        return np.dtype([(field.name, _item(pa, field.type)) for field in arrows])
    if types.is_fixed_size_list(arrows):
        return np.dtype((_item(pa, arrows.value_type), (arrows.list_size,)))
    if types.is_timestamp(arrows) and arrows.tz is None:
        return np.dtype(f"M8[{arrows.unit}]")
    if types.is_duration(arrows):
        return np.dtype(f"m8[{arrows.unit}]")
    if types.is_date32(arrows):
        return np.dtype("M8[D]")
    if types.is_integer(arrows) or types.is_floating(arrows) or types.is_boolean(arrows):
        found: np.dtype[Any] = np.dtype(arrows.to_pandas_dtype())
        return found
    if _kind_of(pa, arrows) == "list":
        raise InvalidError(f"a row of Arrow's list<{arrows}> {_OF_ONE_SHAPE}")
    raise InvalidError(f"lists of Arrow's {arrows} cannot be stored: their elements must have a fixed size")


def _items(pa: ModuleType, array: Any, dtype: np.dtype[Any]) -> _NdArray:
    """Return elements of Arrow's lists."""
    if array.null_count and dtype.kind not in "Mm":
        raise InvalidError(f"{array.null_count} elements within lists are null: only whole rows may be missing")
    if dtype.subdtype is not None:
        return _items(pa, array.flatten(), dtype.base.newbyteorder("=")).reshape(len(array), *dtype.shape)
    if dtype.names is not None:
        found: _NdArray = np.empty(len(array), dtype)
        for name, column in zip(dtype.names, array.flatten(), strict=True):
            found[name] = _items(pa, column, dtype[name])
        return found
    if dtype == np.dtype("M8[D]"):
        days = array.cast(pa.int32()).to_numpy(zero_copy_only=False)
        missing = np.isnan(days) if days.dtype.kind == "f" else np.zeros(len(days), bool)
        whole: _NdArray = np.where(missing, 0, days).astype("M8[D]")
        whole[missing] = np.datetime64("NaT")
        return whole
    numpy: _NdArray = array.to_numpy(zero_copy_only=False)
    return numpy.astype(dtype, copy=False)


# --- As others have them ----------------------------------------------------------------------------------------------


def to_numpy(rows: Rows, kind: RaggedKind, dtype: np.dtype[Any], name: str) -> _NdArray:
    """Return rows as NumPy has them: text of variable length, or objects, None for what is missing.

    Raises
    ------
    CorruptError
        Text that is not UTF-8; ``name`` says of what.
    """
    starts, ends = rows.offsets[:-1], rows.offsets[1:]
    if rows.valid is not None:  # what lies in a missing row means nothing
        ends = np.where(rows.valid, ends, starts)
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    given: list[Any]
    if kind == "list":
        given = [rows.values[low:high] for low, high in bounds]
    elif kind == "text":
        given = [*_decoded(rows.values.tobytes(), bounds, name)]
    else:
        heap = rows.values.tobytes()
        given = [heap[low:high] for low, high in bounds]
    if rows.valid is not None:
        for number in np.flatnonzero(~rows.valid).tolist():
            given[number] = None
    if kind == "text":
        return np.array(given, dtype)
    found = np.empty(len(given), object)
    for number, row in enumerate(given):
        found[number] = row
    return found


def _decoded(heap: bytes, bounds: Iterable[tuple[int, int]], name: str) -> list[str]:
    if heap.isascii():
        text = heap.decode("ascii")
        return [text[low:high] for low, high in bounds]
    try:
        return [heap[low:high].decode() for low, high in bounds]
    except UnicodeDecodeError as error:
        row = bytes(error.object)
        why = f"{error.reason} at byte {error.start} of {row!r:.60}"
        raise CorruptError(f"the text of {name!r} must be UTF-8: {why}") from None


def to_arrow(rows: Rows, kind: RaggedKind, name: str) -> Any:
    """Return rows as an Arrow array with offsets of 64 bits, which shares their memory.

    Raises
    ------
    CorruptError
        Text that is not UTF-8; ``name`` says of what.
    """
    pa = require("pyarrow", "lab")
    bits = None if rows.valid is None else pa.array(rows.valid).buffers()[1]
    offsets = pa.py_buffer(np.ascontiguousarray(rows.offsets, np.int64))
    if kind == "list":
        items = arrow_array(pa, rows.values, np.dtype((rows.values.dtype, rows.values.shape[1:])))
        return pa.Array.from_buffers(pa.large_list(items.type), rows.number, [bits, offsets], children=[items])
    whole = pa.py_buffer(np.ascontiguousarray(rows.values))
    wanted = pa.large_string() if kind == "text" else pa.large_binary()
    found = pa.Array.from_buffers(wanted, rows.number, [bits, offsets, whole])
    try:
        found.validate(full=True)
    except pa.ArrowException as error:
        raise CorruptError(f"the text of {name!r} must be UTF-8: {error}") from None
    return found
