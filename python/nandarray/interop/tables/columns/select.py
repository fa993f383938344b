"""The rows of a table of columns that pass a test, and the batches that have them.

Rows are chosen in two steps: numbers of rows that pass, without those that are deleted; then the wanted columns of
these rows, all of a range where many pass, single rows where few do. Arrow decides what no program can, over
the rows that come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nandarray.errors import InvalidError, NotFoundError
from nandarray.interop.tables.choosing import Chooser
from nandarray.interop.tables.columns.layout import Layout
from nandarray.interop.tables.columns.read import Reader
from nandarray.interop.tables.columns.statistics import zones_of
from nandarray.interop.tables.columns.zones import BOUNDS, NAN, UNKNOWN, bounds
from nandarray.interop.tables.expressions import expression_of
from nandarray.interop.tables.table import Piece, Table
from nandarray.interop.tables.where import Test, names
from nandarray.interop.tables.zones import Zones, excluded

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["Scan", "checked_columns", "checked_rows", "columns_of", "zones_without"]

_NdArray = np.ndarray[Any, Any]
_Flags = np.ndarray[Any, np.dtype[np.bool_]]
#: Rows that one run of a program looks at.
RUN_ROWS = 1 << 22


def checked_columns(layout: Layout | Table, columns: Sequence[str] | None) -> list[str]:
    """Return the requested columns.

    Raises
    ------
    NotFoundError
        There is no such column.
    InvalidError
        None is requested.
    """
    known = layout.schema.names
    if columns is None:
        return list(known)
    if isinstance(columns, str):
        raise InvalidError(f"columns must be a list of names, not the text {columns!r}")
    asked = list(columns)
    for name in asked:
        if name not in known:
            raise NotFoundError(f"there is no column {name!r}; there is {', '.join(known)}")
    if not asked:
        raise InvalidError("a scan must have at least one column")
    return asked


def columns_of(where: Test | None, layout: Layout) -> list[str]:
    """Return the columns that a test needs; one that is not there is a NotFoundError."""
    found = [] if where is None else sorted(names(where.tree))
    return checked_columns(layout, found) if found else []


def checked_rows(what: str, rows: Any) -> int:
    """Return a number of rows from 1 on, as Python's integer."""
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1:
        raise InvalidError(f"{what} must be a number of rows from 1 on, not {rows!r}")
    return int(rows)


def zones_without(store: Store, path: str, layout: Layout, rows: int, where: Test | None) -> _Flags:
    """Tell in which zones of a table no row can pass a test; empty where nothing is known."""
    known = {}
    for name in columns_of(where, layout):
        place = layout.place(name)
        zones = zones_of(store, path, place, rows, layout.zone_rows)
        low, high = bounds(zones, place.values)
        lengths = np.minimum(layout.zone_rows, rows - np.arange(len(zones)) * layout.zone_rows)
        # An append that was cut off may have counted missing values, and have left values, that are none of the rows':
        # where there are both, the rows may have either.
        some = (zones["flags"] & (BOUNDS | NAN | UNKNOWN)) != 0
        nulls = np.where(some, zones["nulls"], lengths)
        known[name] = Zones(low, high, nulls, np.where(some, np.maximum(lengths, nulls + 1), lengths))
    return excluded(where, known)


class Scan:
    """A scan of a table at one state.

    Parameters
    ----------
    reader : Reader
        The columns that are wanted, and those that the test needs.
    wanted : list of str
        The columns to give, in this order.
    where : Test, optional
        The test of the rows to give.
    options : dict
        Options of programs.
    coded : bool
        Text that lies by codes as dictionaries.
    """

    def __init__(
        self, reader: Reader, wanted: list[str], where: Test | None, options: dict[str, Any], *, coded: bool = False
    ) -> None:
        self._reader, self._wanted, self._options, self._coded = reader, wanted, options, coded
        asked = [] if where is None else sorted(names(where.tree))
        self._chooser = Chooser(where, {name: reader.columns[name].operand for name in asked})
        left = self._chooser.left
        self._left = None if left is None else expression_of(left, reader.schema)
        self._asked = [] if left is None else sorted(names(left.tree))
        self.schema = reader.fields(wanted, coded=coded)

    def batches(self, pieces: Sequence[Piece], rows: int) -> Iterator[Any]:
        """Give the rows of pieces that pass, batch by batch."""
        every = [*self._wanted, *(name for name in self._asked if name not in self._wanted)]
        for begin, end, numbers in self._windows(pieces, rows):
            found = self._rows(begin, end, numbers, every)
            if self._left is not None:
                found = found.filter(self._left).select(self._wanted)
            if found.num_rows:
                yield found

    def numbers(self, pieces: Sequence[Piece], rows: int) -> Iterator[_NdArray]:
        """Give the numbers of the rows of pieces that pass."""
        for begin, end, some in self._windows(pieces, rows):
            numbers = np.arange(begin, end) if some is None else some
            if self._left is not None:
                numbers = numbers[self._passes(self._rows(begin, end, some, self._asked))]
            yield numbers

    def _windows(self, pieces: Sequence[Piece], rows: int) -> Iterator[tuple[int, int, _NdArray | None]]:
        """Give ranges of rows for a batch each, and the numbers that programs let pass; None for all of them."""
        for piece in pieces:
            for begin in range(piece.begin, piece.end, RUN_ROWS):
                end = min(piece.end, begin + RUN_ROWS)
                numbers = self._numbers(begin, end)
                if numbers is None:
                    yield from ((first, last, None) for first, last in self._reader.cut(begin, end, rows))
                elif len(numbers) * self._reader.near < end - begin:
                    yield from ((begin, end, some) for some in self._reader.shared(numbers, rows))
                else:
                    for first, last in self._reader.cut(begin, end, rows):
                        some = numbers[slice(*np.searchsorted(numbers, [first, last]))]
                        if len(some):
                            yield first, last, some if len(some) < last - first else None

    def _numbers(self, begin: int, end: int) -> _NdArray | None:
        """Return the numbers of the rows of a range that programs let pass, without deleted ones; None for all."""
        gone = self._reader.gone(begin, end)
        if not self._chooser.decides:
            return None if gone is None else begin + np.flatnonzero(~gone)
        numbers = self._chooser.rows(begin, end, **self._options)
        if gone is not None:
            numbers = numbers[~gone[numbers - begin]]
        return None if len(numbers) == end - begin else numbers

    def _rows(self, begin: int, end: int, numbers: _NdArray | None, columns: list[str]) -> Any:
        if numbers is None:
            return self._reader.batch(columns, slice(begin, end), coded=self._coded)
        if len(numbers) * self._reader.near < end - begin:
            return self._reader.batch(columns, numbers, coded=self._coded)
        first, last = int(numbers[0]), int(numbers[-1]) + 1
        return self._reader.batch(columns, slice(first, last), numbers - first, coded=self._coded)

    def _passes(self, batch: Any) -> _NdArray:
        """Return which rows of a batch pass what is left of the test."""
        number = pa.array(np.arange(len(batch)))
        # A name that no column has: behind all of them, whatever they are.
        name = "".join(batch.schema.names) + "#"
        marked = pa.Table.from_batches([batch]).append_column(name, number)
        found = np.zeros(len(batch), bool)
        found[np.asarray(marked.filter(self._left).column(name))] = True
        return found
