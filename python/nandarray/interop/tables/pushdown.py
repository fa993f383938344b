"""An engine's columns and filter as a scan of a table: what goes to the data, and what is left to Arrow.

A filter that is not understood, or in part, loses nothing: Arrow decides the rest over the rows that come back, and it
is counted. Where an engine needs no column, rows are counted, and none is read.
"""

from __future__ import annotations

import operator
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from nandarray.errors import InvalidError
from nandarray.interop.tables.filters import form
from nandarray.interop.tables.table import Piece, Table, checked_names
from nandarray.interop.tables.where import Test

__all__ = ["ROWS", "Pushdown"]

#: Scanners that ``pushed`` tells of.
_TOLD = 1000
#: Filters whose tests are kept, and the bytes of one, at most: an engine asks of the same one several times a query.
_KEPT, _KEPT_BYTES = 64, 1 << 16
#: Rows of a batch, at most, where an engine says nothing: as Arrow's own scanners have them.
ROWS = 131_072
_NOTHING = pa.schema([pa.field("nothing", pa.null())])


class Pushdown:
    """Scans of one table, for its dataset and the fragments of that.

    Parameters
    ----------
    table : Table
        The table.
    options : dict
        Options of its scans.
    """

    def __init__(self, table: Table, options: dict[str, Any]) -> None:
        self.table = table
        self.options = options
        #: Columns, test, and whether that was all of the filter, for each of the last scanners.
        self.pushed: deque[tuple[list[str], Test | None, bool]] = deque(maxlen=_TOLD)
        self._counts: Counter[str] = Counter()
        self._decided: dict[bytes, tuple[Test | None, bool]] = {}
        self._lock = threading.Lock()

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of scanners: without a filter, with one that went to the data, in part, or was left to Arrow."""
        with self._lock:
            return {word: self._counts[word] for word in ("unfiltered", "pushed", "in part", "left to Arrow")}

    def decided(self, asked: Any) -> tuple[Test | None, bool]:
        """Return the part of an engine's filter that goes to the data, and whether that is all of it."""
        if asked is None:
            return None, True
        if not isinstance(asked, ds.Expression):
            raise InvalidError(f"a filter must be an expression of Arrow, not of type {type(asked).__name__}")
        key = form(asked)
        if key is None or len(key) > _KEPT_BYTES:
            return self.table.decided(asked)
        with self._lock:
            found = self._decided.get(key)
        if found is None:
            found = self.table.decided(asked)
            with self._lock:
                if len(self._decided) >= _KEPT:
                    self._decided.clear()
                self._decided[key] = found
        return found

    def scanner(
        self, columns: Any, asked: Any, batch_size: Any, pieces: Sequence[Piece] | None, options: dict[str, Any]
    ) -> Any:
        """Return a scanner of the columns and rows that an engine requests; it reads as it is asked, once.

        The scan begins when its first batch is requested: of some scanners an engine asks the schema alone.
        """
        every = list(self.table.schema.names)
        wanted = every if columns is None else columns
        if not isinstance(wanted, dict):
            wanted = checked_names("columns", wanted, every)
        rows = max(1, operator.index(batch_size))
        test, whole = self.decided(asked)
        self._count(test, filtered=asked is not None, whole=whole)
        if whole and not wanted:
            self.pushed.append(([], test, True))
            numbers = _counted(lambda: self.table.count_rows(test, pieces=pieces), rows)
            return ds.Scanner.from_batches(numbers, schema=_NOTHING, columns=[], **options)
        read = self._read(every, wanted, [] if whole else [str(asked)])
        self.pushed.append((read, test, whole))
        batches = _parts(lambda: self.table.scan(read, test, pieces=pieces, **self.options), rows)
        schema = self.table.scanned(read, **self.options)
        return ds.Scanner.from_batches(
            batches, schema=schema, columns=wanted, filter=None if whole else asked, **options
        )

    def batches(  # noqa: PLR0913 (what became of a filter, beside the scan)
        self, columns: list[str], test: Test | None, rows: int, *, filtered: bool, whole: bool
    ) -> Iterator[Any]:
        """Give the batches of a scan to an engine that decides by itself what is left of its filter."""
        self._count(test, filtered=filtered, whole=whole)
        self.pushed.append((columns, test, whole))
        return _parts(lambda: self.table.scan(columns, test, **self.options), rows)

    def _read(self, every: list[str], wanted: Any, left: list[str]) -> list[str]:
        """Give the columns to read: those that an engine wants, and those that Arrow needs for what is left to it."""
        if isinstance(wanted, dict):
            left = [*left, *map(str, wanted.values())]
        if any("FieldPath" in text for text in left):
            return every  # a column by its number
        named = [name for name in every if any(name in text for text in left)]
        return list(dict.fromkeys([*(() if isinstance(wanted, dict) else wanted), *named])) or every[:1]

    def _count(self, test: Test | None, *, filtered: bool, whole: bool) -> None:
        word = "unfiltered" if not filtered else "pushed" if whole else "in part" if test is not None else ""
        with self._lock:
            self._counts[word or "left to Arrow"] += 1


def _counted(count: Callable[[], int], rows: int) -> Iterator[Any]:
    """Give batches without a value, of as many rows as are counted."""
    left = count()
    while left > 0:
        yield pa.record_batch([pa.nulls(min(left, rows))], schema=_NOTHING)
        left -= rows


def _parts(scan: Callable[[], Any], rows: int) -> Iterator[Any]:
    """Begin a scan, and cut its batches into such of at most ``rows`` rows."""
    for batch in scan():
        yield from (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))
