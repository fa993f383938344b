"""A table of columns: an array a column, all of equal length; appended to, deleted from, scanned beside the data.

The object that users hold. Arrays and their names are :mod:`nandarray.interop.tables.columns.layout`'s; writing,
reading, zones and the choice of rows have modules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nandarray.errors import BadIndexError, NotFoundError
from nandarray.interop.tables.columns import write
from nandarray.interop.tables.columns.aggregate import Aggregates
from nandarray.interop.tables.columns.delete import delete
from nandarray.interop.tables.columns.fold import fold
from nandarray.interop.tables.columns.forms import settled
from nandarray.interop.tables.columns.layout import TABLE, ZONE_ROWS, Layout
from nandarray.interop.tables.columns.read import Reader
from nandarray.interop.tables.columns.select import (
    Scan,
    checked_rows,
    columns_of,
    zones_without,
)
from nandarray.interop.tables.columns.source import flat, source_of
from nandarray.interop.tables.columns.statistics import statistics, zones_of
from nandarray.interop.tables.columns.zones import NAN, bounds
from nandarray.interop.tables.filters import of_arrow
from nandarray.interop.tables.table import Piece, Table, check_options, checked_columns, checked_names, checked_pieces
from nandarray.interop.tables.where import Test, as_test

if TYPE_CHECKING:
    from nandarray.array.group import Group
    from nandarray.array.store import Store

__all__ = ["ColumnTable", "create", "is_table", "open_table"]

#: Rows of a batch, if a scan says nothing else.
BATCH_ROWS = 131_072


class ColumnTable(Table):
    """A table of columns in a store. What :func:`~nandarray.interop.tables.create` gives for rows of Arrow.

    Rows have the numbers 0, 1, ... in the order in which they were appended, without those that are deleted. A handle
    sees what others append and delete; a scan sees the table as it was when it began.

    Examples
    --------
    >>> import nandarray
    >>> import pyarrow as pa
    >>> from nandarray.interop import tables
    >>> from nandarray.interop.tables import col
    >>> store = nandarray.open("data.nand", mode="w")
    >>> table = tables.create(store, "t", pa.table({"id": [1, 2], "name": ["Ada", None]}))
    >>> table.append(pa.table({"id": [3], "name": ["Grace"]}))
    3
    >>> table.delete(col("id") == 1), table.num_rows
    (1, 2)
    >>> table.scan(["name"], col("id") > 2).read_all().to_pylist()
    [{'name': 'Grace'}]
    """

    def __init__(self, store: Store, path: str, layout: Layout) -> None:
        self._store, self._path, self._layout = store, path, layout

    def __reduce__(self) -> tuple[Any, ...]:
        return open_table, (self._store, self._path)

    def __repr__(self) -> str:
        if self._store.closed:
            return "<nandarray.interop.tables.ColumnTable (closed)>"
        return f"<nandarray.interop.tables.ColumnTable {self._path!r} rows={self.num_rows:,}>"

    # --- Facts --------------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store that has it."""
        return self._store

    @property
    def name(self) -> str:
        """The full name of its group."""
        return self._path

    @property
    def schema(self) -> Any:
        """The Arrow schema of all columns."""
        return self._layout.schema

    @property
    def zone_rows(self) -> int:
        """Rows of a zone."""
        return self._layout.zone_rows

    @property
    def num_rows(self) -> int:
        """Number of rows, without those that are deleted."""
        reader = self._reader(())
        marked = 0 if reader.deleted is None else min(reader.rows, reader.deleted.shape[0])
        gone = (reader.gone(begin, end) for begin, end in reader.cut(0, marked, 1 << 24))
        return reader.rows - sum(int(one.sum()) for one in gone if one is not None)

    def __len__(self) -> int:
        return self.num_rows

    def _reader(self, columns: Sequence[str]) -> Reader:
        rows = write.rows_of(self._store, self._path)
        return Reader(self._store, self._path, self._layout, rows, columns)

    # --- Changing -----------------------------------------------------------------------------------------------------

    def append(self, source: Any) -> int:
        """Add rows at the end: all of them are there, or none, whatever happens.

        Parameters
        ----------
        source : table, batch or stream of Arrow, data frame, or path
            Rows with the table's columns, as for :func:`~nandarray.interop.tables.create`. A stream is read as it is
            written.

        Returns
        -------
        int
            The new number of rows.

        Raises
        ------
        InvalidError
            A batch has other columns, or a value that does not fit; the column is named.
        BusyError
            An append or a deletion of another thread has not ended within ten minutes.

        Examples
        --------
        >>> import nandarray
        >>> import pyarrow as pa
        >>> from nandarray.interop import tables
        >>> store = nandarray.open("data.nand", mode="w")
        >>> table = tables.create(store, "t", pa.table({"id": [1, 2]}))
        >>> table.append({"id": [3]})
        3
        """
        write.append(self._store, self._path, self._layout, source_of(source, self.schema))
        return self.num_rows

    def delete(self, where: Test) -> int:
        """Delete the rows that pass a test, all of them by one command.

        Their space is not given back, and :meth:`pieces` and :meth:`statistics` are as before.

        Parameters
        ----------
        where : Test
            The test of the rows to delete.

        Returns
        -------
        int
            Number of rows that were deleted.

        Raises
        ------
        NotFoundError
            There is no such column.
        InvalidError
            The test does not fit its columns.
        BusyError
            An append or a deletion of another thread has not ended within ten minutes.
        TypeError
            It is no test.

        Examples
        --------
        >>> import nandarray
        >>> import pyarrow as pa
        >>> from nandarray.interop import tables
        >>> store = nandarray.open("data.nand", mode="w")
        >>> table = tables.create(store, "t", pa.table({"id": [1, 2, 3]}))
        >>> table.delete(tables.col("id") < 3), table.scan().read_all()["id"].to_pylist()
        (2, [3])
        """
        if where is None:
            raise TypeError("where must be a test of rows: without one, del store[name] deletes the table")
        where = as_test(where)
        with write.alone(self._store, self._path):
            reader = self._reader(columns_of(where, self._layout))
            scan = Scan(reader, [], where, {})
            numbers = scan.numbers(self._pieces(reader.rows, where), BATCH_ROWS)
            return delete(self._store, self._path, reader.rows, numbers)

    # --- Reading ------------------------------------------------------------------------------------------------------

    def take(self, rows: Any, columns: Sequence[str] | None = None) -> Any:
        """Read rows by their numbers, in the order of the numbers.

        Parameters
        ----------
        rows : array_like of int
            Numbers of rows from 0 on, as a scan of the whole table gives them; deleted rows have none.
        columns : sequence of str, optional
            Names of the columns to give, in this order; every column if left out.

        Returns
        -------
        pyarrow.Table
            The rows.

        Raises
        ------
        BadIndexError
            There is no such row, or the numbers are none.

        Examples
        --------
        >>> import nandarray
        >>> import pyarrow as pa
        >>> from nandarray.interop import tables
        >>> store = nandarray.open("data.nand", mode="w")
        >>> table = tables.create(store, "t", pa.table({"id": [5, 6, 7]}))
        >>> table.take([2, 0])["id"].to_pylist()
        [7, 5]
        """
        wanted = checked_columns(columns, self.schema.names)
        reader = self._reader(wanted)
        try:
            numbers = np.asarray(rows)
        except ValueError:
            raise BadIndexError(f"rows must be a list of integers, not {rows!r:.60}") from None
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise BadIndexError(f"rows must be a list of integers, not {rows!r:.60}")
        live = _Live(reader)
        wrong = numbers[(numbers < 0) | (numbers >= live.count)]
        if wrong.size:
            raise BadIndexError(f"row {wrong[0]} is out of bounds for {live.count} rows")
        batch = reader.batch(wanted, live.places(numbers.astype(np.int64)))
        return pa.Table.from_batches([batch])

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Test | None = None,
        *,
        pieces: Sequence[Piece] | None = None,
        batch_rows: int = BATCH_ROWS,
        dictionaries: bool = False,
        **options: Any,
    ) -> Any:
        """Scan the table beside the data.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of the columns to give, in this order; every column if left out.
        where : Test, optional
            The test of the rows to give; every row if left out.
        pieces : sequence of Piece, optional
            Pieces to scan, of those that :meth:`pieces` gave; the whole table if left out.
        batch_rows : int
            Rows that are looked at for one batch, at most.
        dictionaries : bool
            Text that lies by codes as dictionaries, which is faster, and of another type than the table's.
        **options
            Options of :func:`nandarray.offload`.

        Returns
        -------
        pyarrow.RecordBatchReader
            Batches in the order of the rows. It reads as it is asked.

        Raises
        ------
        NotFoundError
            There is no such column.
        InvalidError
            The test does not fit its columns, or pieces are none.
        TypeError
            It is no test, or there is no such option.

        Examples
        --------
        >>> import nandarray
        >>> import pyarrow as pa
        >>> from nandarray.interop import tables
        >>> store = nandarray.open("data.nand", mode="w")
        >>> table = tables.create(store, "t", pa.table({"id": [5, 6, 7], "name": ["a", "b", "c"]}))
        >>> table.scan(["name"], tables.col("id") > 5).read_all()["name"].to_pylist()
        ['b', 'c']
        """
        wanted = checked_columns(columns, self.schema.names)
        where = _checked(where)
        check_options(options)
        rows = checked_rows("batch_rows", batch_rows)
        reader = self._reader([*wanted, *columns_of(where, self._layout)])
        scan = Scan(reader, wanted, where, options, coded=dictionaries)
        chosen = self._pieces(reader.rows, where) if pieces is None else _within(pieces, reader.rows)
        return pa.RecordBatchReader.from_batches(scan.schema, scan.batches(chosen, rows))

    def scanned(self, columns: Sequence[str], *, dictionaries: bool = False, **_options: Any) -> Any:
        """Return the schema of the batches of a scan of some columns, which is not begun."""
        return self._layout.fields(columns, coded=dictionaries)

    def count_rows(self, where: Test | None = None, *, pieces: Sequence[Piece] | None = None) -> int:
        """Count the rows that pass a test; no column is read that the test does not name."""
        where = _checked(where)
        if where is None and pieces is None:
            return self.num_rows
        reader = self._reader(columns_of(where, self._layout))
        scan = Scan(reader, [], where, {})
        chosen = self._pieces(reader.rows, where) if pieces is None else _within(pieces, reader.rows)
        return sum(len(one) for one in scan.numbers(chosen, BATCH_ROWS))

    def aggregate(
        self,
        aggregates: Mapping[str, Any],
        by: Sequence[str] = (),
        where: Test | None = None,
        *,
        pieces: Sequence[Piece] | None = None,
        **options: Any,
    ) -> Any:
        """Count, add up and compare the values of columns, by groups or of all rows.

        Parameters
        ----------
        aggregates : mapping
            By the names of the result: ``"count"`` (of rows), or a pair of ``"count"`` (of values that are there),
            ``"sum"``, ``"min"``, ``"max"`` or ``"mean"`` and a column.
        by : sequence of str
            Columns whose values make the groups; a missing value is one. All rows are one group if left out.
        where : Test, optional
            The test of the rows that count.
        pieces : sequence of Piece, optional
            Pieces to read, of those that :meth:`pieces` gave.
        **options
            Options of :meth:`scan`.

        Returns
        -------
        pyarrow.Table
            A row a group, in the order of their first rows: columns of ``by``, then the aggregates. Sums of integers
            are int64 or uint64, of decimals decimals of 38 digits; both are exact.

        Raises
        ------
        NotFoundError
            There is no such column.
        InvalidError
            A function is none, or does not fit its column; a sum does not fit its type; ``by`` is no list.
        TypeError
            There is no such option.

        Examples
        --------
        >>> import nandarray
        >>> import pyarrow as pa
        >>> from nandarray.interop import tables
        >>> store = nandarray.open("data.nand", mode="w")
        >>> table = tables.create(store, "t", pa.table({"kind": ["a", "b", "a"], "price": [1, 2, 4]}))
        >>> table.aggregate({"n": "count", "total": ("sum", "price")}, by=["kind"]).to_pylist()
        [{'kind': 'a', 'n': 2, 'total': 5}, {'kind': 'b', 'n': 1, 'total': 2}]
        """
        asked = Aggregates(aggregates, checked_names("by", by, self.schema.names), self.schema)
        where = _checked(where)
        check_options(name for name in options if name != "batch_rows")
        reader = self._reader([*asked.columns, *columns_of(where, self._layout)])
        if (folds := asked.folds) is not None:
            chosen = self._pieces(reader.rows, where) if pieces is None else _within(pieces, reader.rows)
            found = fold(folds, reader, where, chosen, {k: v for k, v in options.items() if k != "batch_rows"})
            if found is not None:
                return asked.of_folds(found)
        columns = asked.columns or columns_of(where, self._layout)[:1] or self.schema.names[:1]
        return asked.of(self.scan(columns, where, pieces=pieces, dictionaries=True, **options))

    def zones(self, column: str) -> Any:
        """Return the zone map of a column.

        Parameters
        ----------
        column : str
            Name of the column.

        Returns
        -------
        pyarrow.Table
            A row a zone: ``begin`` and ``rows``, bounds ``low`` and ``high`` of its values (of text and bytes, of
            their first 32 bytes), null where there is none, the number of missing values ``nulls``, and whether NaN is
            ``nan`` there. Deleted rows count.

        Raises
        ------
        NotFoundError
            There is no such column.

        Examples
        --------
        >>> import nandarray
        >>> import pyarrow as pa
        >>> from nandarray.interop import tables
        >>> store = nandarray.open("data.nand", mode="w")
        >>> table = tables.create(store, "t", pa.table({"id": [1, 2, 3]}), zone_rows=2)
        >>> table.zones("id")["high"].to_pylist()
        [2, 3]
        """
        checked_names("columns", [column], self.schema.names)
        rows = write.rows_of(self._store, self._path)
        place = self._layout.place(column)
        found = zones_of(self._store, self._path, place, rows, self.zone_rows)
        low, high = bounds(found, place.values)
        begin = np.arange(len(found)) * self.zone_rows
        columns = {
            "begin": begin,
            "rows": np.minimum(self.zone_rows, rows - begin),
            "low": low,
            "high": high,
            "nulls": found["nulls"].copy(),
            "nan": (found["flags"] & NAN) != 0,
        }
        return pa.table(columns)

    def statistics(self) -> Any:
        """Return what is known of each column without reading it.

        Returns
        -------
        pyarrow.Table
            A row a column: ``column``, ``type``, bounds ``min`` and ``max`` as text, number of missing values
            ``nulls``, ``encoding`` (form and compression), and ``bytes`` that it has in the store, null behind a door.
            Deleted rows count, and bounds may be wider than the values that are there.

        Examples
        --------
        >>> import nandarray
        >>> import pyarrow as pa
        >>> from nandarray.interop import tables
        >>> store = nandarray.open("data.nand", mode="w")
        >>> table = tables.create(store, "t", pa.table({"id": [3, None, 5]}))
        >>> table.statistics().select(["column", "min", "max", "nulls", "encoding"]).to_pylist()
        [{'column': 'id', 'min': '3', 'max': '5', 'nulls': 1, 'encoding': 'bitpack'}]
        """
        rows = write.rows_of(self._store, self._path)
        return statistics(self._store, self._path, self._layout, rows)

    def pieces(self, where: Test | None = None, *, at_least: int = 1) -> list[Piece]:
        """Cut the table into runs of rows, at zones, without zones in which no row can pass."""
        where = _checked(where)
        found = self._pieces(write.rows_of(self._store, self._path), where)
        return _divided(found, checked_rows("at_least", at_least), self.zone_rows)

    def _pieces(self, rows: int, where: Test | None) -> list[Piece]:
        """Return the runs of zones in which a row may pass."""
        without = zones_without(self._store, self._path, self._layout, rows, where)
        if not without.any():
            return [Piece(0, rows)] if rows else []
        ends = np.flatnonzero(np.diff(np.concatenate([[True], without, [True]]).astype(np.int8))) * self.zone_rows
        return [Piece(int(begin), min(rows, int(end))) for begin, end in ends.reshape(-1, 2)]

    def decided(self, expression: Any) -> tuple[Test | None, bool]:
        """Return the part of a filter of Arrow that is decided at the data, and whether that is all of it."""
        return of_arrow(expression, self.schema)


def _checked(where: Test | None) -> Test | None:
    return None if where is None else as_test(where)


class _Live:
    """The places of the rows that are not deleted."""

    _ROWS = 1 << 16

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        rows = reader.rows
        lengths = [min(self._ROWS, rows - begin) for begin in range(0, rows, self._ROWS)]
        gone = [reader.gone(begin, min(rows, begin + self._ROWS)) for begin in range(0, rows, self._ROWS)]
        self._gone = any(one is not None for one in gone)
        live = [length - (0 if one is None else int(one.sum())) for length, one in zip(lengths, gone, strict=True)]
        self._ends = np.cumsum(live, dtype=np.int64)
        self.count = int(self._ends[-1]) if live else 0

    def places(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return where rows with some numbers lie."""
        if not self._gone or not len(numbers):
            return numbers
        found = np.empty(len(numbers), np.int64)
        runs = np.searchsorted(self._ends, numbers, "right")
        for run in np.unique(runs).tolist():
            begin = run * self._ROWS
            end = min(self._reader.rows, begin + self._ROWS)
            gone = self._reader.gone(begin, end)
            there = np.arange(end - begin) if gone is None else np.flatnonzero(~gone)
            chosen = runs == run
            found[chosen] = begin + there[numbers[chosen] - (self._ends[run - 1] if run else 0)]
        return found


def _within(pieces: Sequence[Piece], rows: int) -> list[Piece]:
    return [Piece(max(0, piece.begin), min(rows, piece.end)) for piece in checked_pieces(pieces) if piece.begin < rows]


def _divided(pieces: list[Piece], at_least: int, zone_rows: int) -> list[Piece]:
    """Cut pieces at zones until there are as many as are wanted, or as there are zones."""
    total = sum(piece.end - piece.begin for piece in pieces)
    size = max(1, total // at_least // zone_rows) * zone_rows
    found = []
    for piece in pieces if len(pieces) < at_least else ():
        for begin in range(piece.begin, piece.end, size):
            found.append(Piece(begin, min(piece.end, begin + size)))
    return found or pieces


# --- By name ----------------------------------------------------------------------------------------------------------


def create(
    store: Group,
    name: str,
    source: Any,
    schema: Any = None,
    *,
    columns: Sequence[str] | None = None,
    compression: Any = "auto",
    zone_rows: int = ZONE_ROWS,
    replaced: Sequence[str] = (),
) -> ColumnTable:
    """Store rows of Arrow as a table of columns: see :func:`nandarray.interop.tables.create`.

    ``replaced`` has the full names of the arrays of the table that it replaces.
    """
    given = source_of(source, schema)
    wanted = given.schema if schema is None else flat(schema)
    if columns is not None:
        names = checked_names("columns", columns, wanted.names)
        wanted = pa.schema([wanted.field(one) for one in names], wanted.metadata)
    wanted = settled(wanted)
    if schema is not None or columns is not None:
        given = given.as_schema(wanted)
    chosen: dict[str, Any] = {"compression": compression, "zone_rows": zone_rows}
    where, path = write.create(store, name, given, wanted, **chosen, replaced=replaced)
    return open_table(where, path)


def is_table(store: Group, name: str) -> bool:
    """Return whether a name is that of a table of columns."""
    found = store[name]
    return hasattr(found, "attrs") and TABLE in found.attrs


def open_table(store: Group, name: str) -> ColumnTable:
    """Return a table of columns.

    Raises
    ------
    NotFoundError
        There is no such group, or it is no table.
    """
    group = store.open_group(name)
    told = group.attrs.get(TABLE)
    if told is None:
        raise NotFoundError(f"{name} is no table: it has no attribute {TABLE!r}")
    path = group.name.strip("/")
    return ColumnTable(store.store, path, Layout.read(path, told))
