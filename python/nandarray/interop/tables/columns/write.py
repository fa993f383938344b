"""Writing tables of columns: creating one, and appending rows, all of them or none.

Rows are written behind those that are there: values, validity, dictionaries, zones. They are of the table from the
command on that adds an element to ``ends``, the last one. The next append cuts away what one that was cut off
has left.

In a file a new table is written under a hidden name, and gets its own by one command at the end. A door has no hidden
names; there the group gets the attribute that makes it a table last, and an error removes what was written.
"""

from __future__ import annotations

import itertools
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nandarray.array.array import Array
from nandarray.array.attributes import to_json
from nandarray.array.group import Group
from nandarray.array.names import MARKER, make_marker
from nandarray.array.ragged import Ragged
from nandarray.array.ragged_creation import make_ragged
from nandarray.array.unfinished import hidden
from nandarray.door import Source as Door
from nandarray.errors import BusyError, CorruptError, InvalidError, NandarrayError
from nandarray.interop.tables.columns import encoding
from nandarray.interop.tables.columns.dictionary import (
    add_values,
    codes_most,
    make_dictionary,
    open_dictionary,
    plainly,
    values_of,
)
from nandarray.interop.tables.columns.forms import is_text, outer_of, stored, validity
from nandarray.interop.tables.columns.layout import ENDS, TABLE, Layout, Place, check_elements, part_of
from nandarray.interop.tables.columns.source import Source, check_schema, fitted, slabs
from nandarray.interop.tables.columns.statistics import open_zones
from nandarray.interop.tables.columns.zones import ZoneMaker, zone_dtype

if TYPE_CHECKING:
    from nandarray.array.ragged_values import RaggedKind
    from nandarray.array.store import Store

__all__ = ["alone", "append", "create", "rows_of"]

_NdArray = np.ndarray[Any, Any]
#: Rows that are written by one command.
_SLAB_ROWS = 1 << 18
#: Seconds that a change of a table waits for another of the same process: one whose source has stopped never ends.
_PATIENCE_S = 600.0
#: Locks of tables that are appended to, by store and full name.
_locks: weakref.WeakKeyDictionary[Any, dict[str, threading.Lock]] = weakref.WeakKeyDictionary()
_locks_lock = threading.Lock()


def rows_of(store: Store, path: str) -> int:
    """Return how many rows a table has, deleted ones included."""
    ends = part_of(store, path, ENDS)
    if ends.ndim != 1 or not ends.size or ends.dtype != np.int64:
        raise CorruptError(f"{ends.name!r} must have one dimension of int64, and an element")
    rows = int(ends[-1])
    if rows < 0:
        raise CorruptError(f"table {path!r} must have a number of rows, not {rows}")
    return rows


# --- Columns ----------------------------------------------------------------------------------------------------------


class _Column(ABC):
    """A column that rows are added to, behind ``count`` rows; its arrays are there."""

    def __init__(  # noqa: PLR0913, PLR0917 (all that a column is)
        self, store: Store, path: str, place: Place, count: int, zone_rows: int, maker: ZoneMaker | None = None
    ) -> None:
        self.store, self.place, self.count, self._zone_rows = store, place, count, zone_rows
        self.path = f"{path}/{place.base}"
        self._zones = open_zones(store, path, place, count if maker is None else 0, zone_rows)
        if maker is None:
            last = self._zones[count // zone_rows] if count % zone_rows else None
            maker = ZoneMaker(place.values, zone_rows, count, last)
        self._maker = maker

    def add(self, array: Any) -> None:
        """Write rows behind those that were added."""
        self._add(array)
        self._maker.add(array)
        self.count += len(array)

    @abstractmethod
    def _add(self, array: Any) -> None:
        """Write rows, without their zones."""

    def finish(self) -> None:
        """Write the zones of the rows that were added, and what else describes them."""
        made = self._maker.made()
        first = self._maker.first
        kept = min(self._zones.shape[0], first + 1)
        cut(self._zones, kept)
        if kept > first and len(made):
            self._zones[first:kept] = made[:1]
        if len(made) > kept - first:
            self._zones.append(made[kept - first :])


class _Fixed(_Column):
    """A column of elements of fixed size, and its validity."""

    def __init__(self, store: Store, path: str, place: Place, count: int, zone_rows: int) -> None:
        super().__init__(store, path, place, count, zone_rows)
        self._values = part_of(store, path, place.base)
        check_elements(self._values, place.dtype)
        self._valid: Array | None = None
        if f"{self.path}.valid" in store:
            self._valid = part_of(store, path, f"{place.base}.valid")
            check_elements(self._valid, np.dtype(bool))
            cut(self._valid, count)
        cut(self._values, count)

    def _add(self, array: Any) -> None:
        self._mark(array)
        if len(array):
            self._values.append(self._elements(array))

    def _elements(self, array: Any) -> _NdArray:
        return stored(array, self.place.name)

    def _mark(self, array: Any) -> None:
        there = validity(array)
        if self._valid is None:
            if there is None:
                return
            name = f"{self.path}.valid"
            self._valid = self.store._create(name, (self.count,), bool, fill_value=True, compression="bitpack")
        if there is None:
            self._valid.resize((self.count + len(array),))  # which read as the fill value, True
        else:
            self._valid.append(there)


class _Codes(_Fixed):
    """A column of codes, and the dictionary, to which new values are added."""

    def __init__(self, store: Store, path: str, place: Place, count: int, zone_rows: int) -> None:
        super().__init__(store, path, place, count, zone_rows)
        self._known = values_of(open_dictionary(store, self.path, place), place)
        self._new: list[Any] = []
        self._most = codes_most(place)

    def _elements(self, array: Any) -> _NdArray:
        array = outer_of(array)
        given = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        used = given.indices.unique().drop_null()
        values = plainly(given.dictionary.take(used))
        self._learn(values)
        codes = np.zeros(max(1, len(given.dictionary)), "<i4")
        codes[np.asarray(used, np.int64)] = np.asarray(pc.index_in(values, self._known), "<i4")
        return codes[np.asarray(given.indices.fill_null(0), np.int64)]

    def _learn(self, values: Any) -> None:
        fresh = values.filter(pc.is_null(pc.index_in(values, self._known))).unique()
        if not len(fresh):
            return
        count = len(self._known) + len(fresh)
        if count > self._most:
            kind, way = self.place.field.type, ""
            if is_text(kind):
                kind, way = "text by codes", ": create the table anew from its scan (overwrite=True) for plain text"
            raise InvalidError(
                f"column {self.place.name!r} has {count:,} different values; {kind} must have {self._most:,} at most"
                f"{way}"
            )
        self._new.append(fresh)
        self._known = pa.concat_arrays([self._known, fresh])

    @property
    def is_crowded(self) -> bool:
        """Whether this is text that has too many values for a dictionary."""
        return is_text(self.place.field.type) and len(self._known) > encoding.CROWD

    def laid_plainly(self) -> _Ragged:
        """Write the column of a new table anew as text, and return what it is then."""
        engine, temporary = self.store._engine, f"{self.path}.text"
        text = make_ragged(
            self.store, temporary, None, ("text", np.dtype("u1")), {}, compression=encoding.TEXT, encryption_key=None,
            packed=True,
        )  # fmt: skip
        for begin in range(0, self.count, 1 << 17):
            rows = slice(begin, begin + (1 << 17))
            there = None if self._valid is None else np.asarray(self._valid[rows], bool)
            codes = np.asarray(self._values[rows])
            text.append(self._known.take(pa.array(codes, mask=None if there is None else ~there)))
        inside = [self.path, f"{self.path}.valid", *engine.names(f"{self.path}.dictionary/")]
        engine.together(delete=[one for one in inside if one in engine])
        engine.together(rename=[(one, self.path + one[len(temporary) :]) for one in engine.names(f"{temporary}/")])
        base = self.path.rpartition("/")[0]
        return _Ragged(self.store, base, replace(self.place, form="text"), self.count, self._zone_rows, self._maker)

    def finish(self) -> None:
        for values in self._new:
            add_values(self.store, self.path, self.place, values)
        super().finish()


class _Ragged(_Column):
    """A column of rows of different lengths."""

    def __init__(self, store: Store, path: str, place: Place, *given: Any) -> None:
        super().__init__(store, path, place, *given)
        self._rows = Ragged(store, self.path, place.form)
        check_elements(self._rows.values, place.dtype)
        cut(self._rows.offsets, self.count + 1)

    def _add(self, array: Any) -> None:
        if len(array):
            self._rows.append(_plain_list(outer_of(array), self.place.name) if self.place.form == "list" else array)


def _plain_list(array: Any, name: str) -> Any:
    """Return lists with the elements that lie in arrays."""
    array = array.cast(pa.large_list(array.type.value_type))
    if missing := array.flatten().null_count:
        raise InvalidError(f"column {name!r} has {missing} elements within lists that are null: only whole rows may be")
    kept = pa.array(stored(outer_of(array.values), name))
    bits = array.buffers()[:2]
    return pa.Array.from_buffers(pa.large_list(kept.type), len(array), bits, array.null_count, array.offset, [kept])


def cut(part: Array, length: int) -> None:
    """Take away what an append that was cut off has left.

    Raises
    ------
    CorruptError
        The array has too few elements.
    """
    if part.shape[0] < length:
        raise CorruptError(f"{part.name!r} has {part.shape[0]} elements, it must have at least {length}")
    if part.shape[0] > length:
        part.resize((length, *part.shape[1:]))


_KINDS: dict[str, type[_Column]] = {
    "array": _Fixed,
    "codes": _Codes,
    "text": _Ragged,
    "bytes": _Ragged,
    "list": _Ragged,
}


def _columns(store: Store, path: str, layout: Layout, count: int) -> list[_Column]:
    return [_KINDS[place.form](store, path, place, count, layout.zone_rows) for place in layout.places]


def _written(columns: list[_Column], parts: Iterator[Any]) -> int:
    """Write all rows; return how many there were."""
    added = 0
    for part in parts:
        for column, array in zip(columns, part.columns, strict=True):
            column.add(array)
        added += part.num_rows
    for column in columns:
        column.finish()
    return added


# --- Tables -----------------------------------------------------------------------------------------------------------


class _New(NamedTuple):
    """A table to make: its first rows, by which forms and compressions are chosen, and all of them."""

    layout: Layout
    first: Any
    parts: Iterator[Any]
    said: Mapping[str, Any]


def create(
    group: Group,
    name: str,
    source: Source,
    schema: Any,
    *,
    compression: Any,
    zone_rows: int,
    replaced: Sequence[str] = (),
) -> tuple[Store, str]:
    """Create a table with the rows of a source, whole or not at all; return where it is.

    Arrays ``replaced``, those of the table that has its name, are deleted by the command that gives it its name.

    Raises
    ------
    ExistsError
        The name is taken.
    InvalidError
        A column has a type that there is no form for, or a batch does not fit.
    """
    path, store = group._join_new(name), group.store
    if not path:
        raise InvalidError("a table must have a name; the root is a group")
    if not replaced:
        store._check_free(path)
    said = encoding.options_of(compression, schema.names)
    Layout.of(schema, zone_rows)  # what is refused, is refused before a row is read
    parts = slabs((fitted(batch, schema, source.shown) for batch in source), 0, _SLAB_ROWS)
    first = next(parts, None)
    layout = Layout.of(schema, zone_rows, () if first is None else _few(first, said))
    what = _New(layout, first, itertools.chain([] if first is None else [first], parts), said)
    if isinstance(store._engine, Door):
        new = f"{path}.{uuid.uuid4().hex[:12]}" if replaced else path
        try:
            _make(store, new, what)
            if replaced:
                store._engine.together(delete=replaced, rename=_renamed(store, new, path))
        except BaseException:
            if not store.closed:
                with suppress(NandarrayError):
                    store._engine.together(delete=store._engine.names(f"{new}/"))
            raise
    else:
        with hidden(store) as temporary:
            _make(store, f"{temporary}/0", what)
            with store._lock:
                if not replaced:
                    store._check_free(path)
                store._engine.together(delete=replaced, rename=_renamed(store, f"{temporary}/0", path))
    return store, path


def _renamed(store: Store, old: str, new: str) -> list[tuple[str, str]]:
    return [(one, new + one.removeprefix(old)) for one in store._engine.names(f"{old}/")]


def _few(first: Any, said: Mapping[str, Any]) -> list[str]:
    """Return the columns of text that lie as codes, by the first rows."""
    return [
        field.name
        for field, array in zip(first.schema, first.columns, strict=True)
        if said[field.name] == "auto" and encoding.is_text_of_few(array)
    ]


def _make(store: Store, path: str, what: _New) -> None:
    for number, place in enumerate(what.layout.places):
        array = None if what.first is None else what.first.column(number)
        _make_arrays(store, f"{path}/{place.base}", place, array, what.said[place.name])
    columns = _columns(store, path, what.layout, 0)
    automatic = [one == "auto" for one in what.said.values()]
    count = _written(columns, (_eased(columns, automatic, part) for part in what.parts))
    layout = replace(what.layout, places=tuple(column.place for column in columns))
    store._create(f"{path}/{ENDS}", data=np.array([count], "<i8"))
    make_marker(store._engine, f"{path}/{MARKER}", to_json({TABLE: layout.told()}))


def _eased(columns: list[_Column], automatic: list[bool], part: Any) -> Any:
    """Let columns of text lie plainly from now on that got too many values for a dictionary; return the part."""
    for number, column in enumerate(columns):
        if isinstance(column, _Codes) and column.is_crowded and automatic[number]:
            columns[number] = column.laid_plainly()
    return part


def _make_arrays(store: Store, path: str, place: Place, first: Any, said: str | None) -> None:
    """Make the arrays of a column, without rows."""
    chosen = said
    if place.form == "array":
        dtype = place.dtype
        if said == "auto":
            chosen = encoding.packing(None if first is None else stored(first, place.name), dtype)
        store._create(path, (0, *dtype.shape), dtype.base, compression=chosen)
    elif place.form == "codes":
        store._create(path, (0,), place.dtype, compression="bitpack" if said == "auto" else said)
        make_dictionary(store, path, place, encoding.TEXT if said == "auto" else said)
    else:
        item = place.dtype
        if said == "auto" and place.form == "list":
            chosen = encoding.packing(None if first is None else stored(outer_of(first).flatten(), place.name), item)
        elif said == "auto":
            chosen = encoding.text_compression(None if first is None else outer_of(first))
        what = (cast("RaggedKind", place.form), item)
        make_ragged(store, path, None, what, {}, compression=chosen, encryption_key=None, packed=True)
    store._create(f"{path}.zones", (0,), zone_dtype(place.values), compression=encoding.TEXT)


@contextmanager
def alone(store: Store, path: str) -> Iterator[None]:
    """Let one thread change a table at a time.

    Raises
    ------
    BusyError
        Another thread has been at it for ten minutes.
    """
    with _locks_lock:
        lock = _locks.setdefault(store, {}).setdefault(path, threading.Lock())
    if not lock.acquire(timeout=_PATIENCE_S):
        raise BusyError(
            f"table {path!r} must have one append or deletion at a time, and another thread's has not ended within "
            f"{_PATIENCE_S:g} s"
        )
    try:
        yield
    finally:
        lock.release()


def append(store: Store, path: str, layout: Layout, source: Source) -> int:
    """Add the rows of a source to a table, all of them or none; return how many there were.

    Raises
    ------
    InvalidError
        A batch does not fit, or another process appends.
    """
    with alone(store, path):
        count = rows_of(store, path)
        check_schema(source.schema, layout.schema, source.shown)
        columns = _columns(store, path, layout, count)
        batches = (fitted(batch, layout.schema, source.shown) for batch in source)
        added = _written(columns, slabs(batches, count, _SLAB_ROWS))
        ends = part_of(store, path, ENDS)
        if int(ends[-1]) != count:
            raise InvalidError(
                f"table {path!r} has {int(ends[-1])} rows, it had {count}: another process appends to it"
            )
        if added:
            ends.append([count + added])
        return added
