"""Which rows of a table of columns pass a test, and the batches that have them.

Rows are chosen in two steps: numbers of rows that pass, without those that are deleted; then the wanted columns of
these rows, all of a range where many pass, single rows where few do. What no program decides is decided by Arrow over
the rows that come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nandarray.errors import InvalidError, NotFoundError
from nandarray.interop.tables.columns.layout import Layout
from nandarray.interop.tables.columns.read import Reader
from nandarray.interop.tables.table import Piece
from nandarray.interop.tables.where import Test, names

__all__ = ["Scan", "checked_columns", "checked_rows", "columns_of"]

_NdArray = np.ndarray[Any, Any]
#: A range is read whole where at least one of so many of its rows is wanted.
_NEAR = 16


def checked_columns(layout: Layout, columns: Sequence[str] | None) -> list[str]:
    """Return the columns that are asked for.

    Raises
    ------
    NotFoundError
        There is no such column.
    InvalidError
        None is asked for, or one twice.
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
    if where is None:
        return []
    if not isinstance(where, Test):
        raise TypeError(f"where is a test of rows, such as col('id') > 5; {where!r} is a {type(where).__name__}")
    found = sorted(names(where.tree))
    return checked_columns(layout, found) if found else []


def checked_rows(what: str, rows: Any) -> int:
    """Return a number of rows from 1 on, as Python's integer."""
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1:
        raise InvalidError(f"{what} must be a number of rows from 1 on, not {rows!r}")
    return int(rows)


def _expression(tree: Any, schema: Any) -> Any:
    op, *rest = tree
    if op == "true":
        return pc.scalar(pa.scalar(value=True))
    if op == "not":
        return ~_expression(rest[0], schema)
    if op in ("and", "or"):
        parts = [_expression(part, schema) for part in rest]
        if not parts:
            return pc.scalar(op == "and")
        found = parts[0]
        for part in parts[1:]:
            found = found & part if op == "and" else found | part
        return found
    field, value = pc.field(rest[0]), rest[1]
    if op in ("begins", "ends", "holds"):
        call = {"begins": pc.starts_with, "ends": pc.ends_with, "holds": pc.match_substring}[op]
        return call(field, value)
    kind = schema.field(rest[0]).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    try:
        one = pa.scalar(value)
        if pa.types.is_temporal(kind) or pa.types.is_string(one.type):
            one = one.cast(kind)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidError(f"column {rest[0]} is {kind}; {value!r} is none: {error}") from None
    return {
        "<": field < one, "<=": field <= one, ">": field > one, ">=": field >= one, "==": field == one,
        "!=": field != one,
    }[op]  # fmt: skip


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
    """

    def __init__(self, reader: Reader, wanted: list[str], where: Test | None, options: dict[str, Any]) -> None:
        self._reader, self._wanted, self._options = reader, wanted, options
        self._left = None if where is None else _expression(where.tree, reader.schema)
        self._asked = sorted(names(where.tree)) if where is not None else []
        fields = [reader.schema.field(name) for name in wanted]
        self.schema = pa.schema(fields, reader.schema.metadata)

    def batches(self, pieces: Sequence[Piece], rows: int) -> Iterator[Any]:
        """Give the rows of pieces that pass, batch by batch."""
        for piece in pieces:
            for begin, end in self._reader.cut(piece.begin, piece.end, rows):
                numbers = self._numbers(begin, end)
                found = self._read(begin, end, numbers)
                if found is not None and found.num_rows:
                    yield found

    def numbers(self, pieces: Sequence[Piece], rows: int) -> Iterator[_NdArray]:
        """Give the numbers of the rows of pieces that pass."""
        for piece in pieces:
            for begin, end in self._reader.cut(piece.begin, piece.end, rows):
                numbers = self._numbers(begin, end)
                numbers = np.arange(begin, end) if numbers is None else numbers
                if self._left is not None and len(numbers):
                    numbers = numbers[self._passes(self._rows(begin, end, numbers, self._asked))]
                yield numbers

    def _numbers(self, begin: int, end: int) -> _NdArray | None:
        """Return the numbers of rows of a range that programs let pass, without deleted ones; None for all."""
        gone = self._reader.gone(begin, end)
        return None if gone is None else begin + np.flatnonzero(~gone)

    def _rows(self, begin: int, end: int, numbers: _NdArray | None, columns: list[str]) -> Any:
        if numbers is None or len(numbers) == end - begin:
            return self._reader.batch(columns, slice(begin, end))
        if len(numbers) * _NEAR >= end - begin:
            first, last = int(numbers[0]), int(numbers[-1]) + 1
            return self._reader.batch(columns, slice(first, last)).take(pa.array(numbers - first))
        return self._reader.batch(columns, numbers)

    def _passes(self, batch: Any) -> _NdArray:
        """Return which rows of a batch pass what is left of the test."""
        table = pa.Table.from_batches([batch])
        marked = table.append_column("", pa.array(np.arange(len(batch)))) if "" not in table.column_names else table
        found = np.zeros(len(batch), bool)
        found[np.asarray(marked.filter(self._left).column(marked.num_columns - 1))] = True
        return found

    def _read(self, begin: int, end: int, numbers: _NdArray | None) -> Any:
        if numbers is not None and not len(numbers):
            return None
        if self._left is None:
            return self._rows(begin, end, numbers, self._wanted)
        every = [*self._wanted, *(name for name in self._asked if name not in self._wanted)]
        batch = self._rows(begin, end, numbers, every)
        return batch.filter(self._left).select(self._wanted)
