"""Reading columns of a table as Arrow arrays: ranges of rows, and single rows.

A :class:`Reader` has the arrays of the requested columns, as they were when it was made, and the number of
rows then: what is appended later is not seen. Single rows are read by index arrays, of which only these rows cross a
door.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nandarray.array.array import Array
from nandarray.array.ragged import Ragged
from nandarray.door import Source
from nandarray.errors import CorruptError
from nandarray.interop.tables.choosing import Operand
from nandarray.interop.tables.columns.dictionary import open_dictionary, values_of
from nandarray.interop.tables.columns.forms import arrow_of, is_list, pooled
from nandarray.interop.tables.columns.layout import DELETED, Layout, Place, check_elements, part_of

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["Reader"]

_NdArray = np.ndarray[Any, Any]
#: Bytes of texts, bytes or lists of a column that a batch has, about, at most.
_BATCH_BYTES = 64 << 20
_NEAR, _NEAR_BEHIND_A_DOOR = 16, 4
#: Codes for each value of a dictionary, from which on all of the dictionary is read.
_WHOLE = 8


class _Column:
    """One column."""

    def __init__(self, store: Store, path: str, place: Place, rows: int) -> None:
        self.place, self.rows = place, rows
        self._store, self._path = store, f"{path}/{place.base}"
        self._all: Any = None
        self.ragged: Ragged | None = None
        self.values: Array | None = None
        self.valid: Array | None = None
        if place.form in ("array", "codes"):
            self.values = part_of(store, path, place.base)
            if f"{self._path}.valid" in store:
                self.valid = part_of(store, path, f"{place.base}.valid")
        else:
            self.ragged = Ragged(store, self._path, place.form)
        for array, dtype in ((self.values, place.dtype), (self.valid, np.dtype(bool)), (self._items, place.dtype)):
            if array is not None:
                check_elements(array, dtype)
        for part, length in ((self.values, rows), (self.valid, rows), (self.ragged, rows)):
            if part is not None and part.shape[0] < length:
                raise CorruptError(f"{part.name!r} has {part.shape[0]} rows, its table has {length}")

    @property
    def _items(self) -> Array | None:
        return None if self.ragged is None else self.ragged.values

    def read(self, key: slice | _NdArray, chosen: _NdArray | None, kind: Any) -> Any:
        """Return rows, or some of these, as an Arrow array of a type that its place gives."""
        if self.ragged is not None:
            found = self.ragged.to_arrow(key)
            return _as(found if chosen is None else found.take(pa.array(chosen)), kind)
        assert self.values is not None
        found = _read(self.values, key, chosen)
        there = None if self.valid is None else _read(self.valid, key, chosen)
        if there is not None and there.all():
            there = None
        if self.place.form == "array":
            return arrow_of(found, there, kind)
        return self._decoded(found, there, kind)

    def _decoded(self, codes: _NdArray, there: _NdArray | None, kind: Any) -> Any:
        inner = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        if self._all is None and len(codes):
            held = open_dictionary(self._store, self._path, self.place)
            length = held.shape[0]
            if len(codes) * _WHOLE < length and not pa.types.is_dictionary(inner):
                used, codes = np.unique(codes, return_inverse=True)
                if used[0] < 0 or used[-1] >= length:
                    raise CorruptError(
                        f"codes of {self._path!r} must be of its {length} values, not {used[0]}, {used[-1]}"
                    )
                values = values_of(held, self.place, used)
                return _as(values.take(_indices(codes, there)), kind)
        values = self.dictionary
        indices = _indices(codes, there)
        try:
            if not pa.types.is_dictionary(inner):
                return _as(values.take(indices), kind)
            whole = pa.DictionaryArray.from_arrays(
                indices.cast(inner.index_type), _as(values, inner.value_type), ordered=inner.ordered
            )
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            raise CorruptError(f"codes of {self._path!r} must be of its {len(values)} values: {error}") from None
        return kind.wrap_array(whole) if isinstance(kind, pa.BaseExtensionType) else whole

    @property
    def operand(self) -> Operand:
        """The column as programs read it."""
        valid = self.valid if self.ragged is None else self.ragged.valid
        if self.values is None or self.values.ndim != 1:
            return Operand(self.place.name, self.place.values, None, valid)
        codes = self.place.form == "codes"
        return Operand(self.place.name, self.place.values, self.values, valid, self.dictionary if codes else None)

    @property
    def dictionary(self) -> Any:
        """All values of the dictionary, as an Arrow array."""
        if self._all is None:
            self._all = values_of(open_dictionary(self._store, self._path, self.place), self.place)
        return self._all

    def bytes_of(self, begin: int, end: int) -> int:
        """Return how many bytes rows of different lengths have."""
        if self.ragged is None or end <= begin:
            return 0
        first, last = (int(self.ragged.offsets[at]) for at in (begin, end))
        return (last - first) * self.ragged.values.dtype.itemsize


def _read(array: Array, key: slice | _NdArray, chosen: _NdArray | None) -> _NdArray:
    """Read rows, or some of these, into memory of Arrow's pool."""
    count = len(key) if isinstance(key, np.ndarray) else key.stop - key.start
    rest, dtype = array.shape[1:], array.dtype
    found = pooled((count, *rest), dtype)
    if count:
        array.read(key, out=found)
    return found if chosen is None else np.take(found, chosen, 0, pooled((len(chosen), *rest), dtype), "clip")


def _indices(codes: _NdArray, there: _NdArray | None) -> Any:
    return pa.array(codes.astype("<i4", copy=False), mask=None if there is None else ~there)


def _as(array: Any, kind: Any) -> Any:
    """Return rows in the layout that a type says."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(_as(array, kind.storage_type))
    if array.type == kind:
        return array
    if is_list(kind):
        _, offsets = array.buffers()[:2]
        low = array.offset
        whole = np.frombuffer(offsets, np.int64)[low : low + len(array) + 1] if len(array) else np.zeros(1, np.int64)
        inner = arrow_of(np.asarray(array.values.to_numpy(zero_copy_only=False)), None, kind.value_type)
        there = np.asarray(array.is_valid()) if array.null_count else None
        bits = None if there is None else pa.array(there).buffers()[1]
        large = pa.large_list(kind.value_field)
        made = pa.Array.from_buffers(large, len(array), [bits, pa.py_buffer(whole.copy())], children=[inner])
        return made if large == kind else made.cast(kind)
    return array.cast(kind)


class Reader:
    """Columns of a table at one state.

    Parameters
    ----------
    store : Store
        The store.
    path : str
        The full name of the table.
    layout : Layout
        The places of its columns.
    rows : int
        Its rows.
    names : iterable of str
        The columns.
    """

    def __init__(self, store: Store, path: str, layout: Layout, rows: int, names: Iterable[str]) -> None:
        self.rows = rows
        self._layout, self.schema = layout, layout.schema
        self._fields: dict[tuple[tuple[str, ...], bool], Any] = {}
        #: A range is read whole where at least one of this number of its rows is wanted.
        self.near = _NEAR_BEHIND_A_DOOR if isinstance(store._engine, Source) else _NEAR
        self.deleted: Array | None = part_of(store, path, DELETED) if f"{path}/{DELETED}" in store else None
        if self.deleted is not None:
            check_elements(self.deleted, np.dtype(bool))
        self.columns = {name: _Column(store, path, layout.place(name), rows) for name in dict.fromkeys(names)}
        if not self.columns:
            _Column(store, path, layout.places[0], rows)  # a number of rows that arrays do not have is refused

    def fields(self, names: Sequence[str], *, coded: bool = False) -> Any:
        """Return the schema of some columns; if ``coded``, with text that lies by codes as dictionaries."""
        key = tuple(names), coded
        if key not in self._fields:
            self._fields[key] = self._layout.fields(names, coded=coded)
        return self._fields[key]

    def batch(
        self, names: list[str], key: slice | _NdArray, chosen: _NdArray | None = None, *, coded: bool = False
    ) -> Any:
        """Return rows of some columns; of a range that is read whole, those that are chosen by their places in it."""
        schema = self.fields(names, coded=coded)
        arrays = [self.columns[field.name].read(key, chosen, field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def gone(self, begin: int, end: int) -> _NdArray | None:
        """Return which rows of a range are deleted; None if none is."""
        if self.deleted is None or begin >= self.deleted.shape[0]:
            return None
        found = np.zeros(end - begin, bool)
        some = np.asarray(self.deleted[begin : min(end, self.deleted.shape[0])], bool)
        found[: len(some)] = some
        return found if some.any() else None

    def cut(self, begin: int, end: int, rows: int) -> Iterator[tuple[int, int]]:
        """Cut a range into such of at most ``rows`` rows, with few enough bytes."""
        for first in range(begin, end, rows):
            yield from self._halved(first, min(end, first + rows))

    def shared(self, numbers: _NdArray, rows: int) -> Iterator[_NdArray]:
        """Share out numbers of single rows to batches of at most ``rows`` rows, with few enough bytes."""
        if not len(numbers):
            return
        begin, end = int(numbers[0]), int(numbers[-1]) + 1
        most = max((one.bytes_of(begin, end) for one in self.columns.values()), default=0) / (end - begin)
        rows = max(1, min(rows, int(_BATCH_BYTES / max(1, most))))
        for first in range(0, len(numbers), rows):
            yield numbers[first : first + rows]

    def _halved(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        if end - begin > 1 and any(one.bytes_of(begin, end) > _BATCH_BYTES for one in self.columns.values()):
            middle = (begin + end) // 2
            yield from self._halved(begin, middle)
            yield from self._halved(middle, end)
        else:
            yield begin, end
