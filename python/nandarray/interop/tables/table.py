"""The interface of all tables: a schema of Arrow's, pieces, scans beside the data, and a dataset for engines.

Tables are of text (:mod:`nandarray.interop.tables.text`) or of columns (:mod:`nandarray.interop.tables.columns`). A
piece is a run of neighbouring rows that can be scanned by itself: one fragment of a dataset, one partition of an
engine, one resumption of a stream. Rows of a scan come in the order of the table, whatever its pieces.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nandarray.errors import InvalidError, NotFoundError
from nandarray.interop.tables.where import Test
from nandarray.programs.run import offload

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["Piece", "Table", "check_options", "checked_columns", "checked_names", "checked_pieces"]

#: Options of runs that a scan takes; what a run gives is the scan's.
_OPTIONS = [
    one.name for one in inspect.signature(offload).parameters.values() if one.kind is one.KEYWORD_ONLY
]  # fmt: skip
_OPTIONS.remove("out")


@dataclass(frozen=True)
class Piece:
    """A run of neighbouring rows, in the table's own unit: rows of a table of columns, bytes of text.

    Parameters
    ----------
    begin, end : int
        The first unit, and the one behind the last.
    """

    begin: int
    end: int


def checked_names(what: str, given: Any, known: Iterable[str]) -> list[str]:
    """Return names of columns that are there.

    Raises
    ------
    NotFoundError
        There is no such column.
    InvalidError
        The names are no list.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidError(f"{what} must be a list of names, not {given!r:.60}")
    asked, there = list(given), list(known)
    for name in asked:
        if name not in there:
            raise NotFoundError(f"there is no column {name!r}; there is {', '.join(there)}")
    return asked


def checked_columns(columns: Any, known: Iterable[str]) -> list[str]:
    """Return the columns that a scan gives, all of them for None; no column, or one that is not there, is an error."""
    asked = list(known) if columns is None else checked_names("columns", columns, known)
    if not asked:
        raise InvalidError("a scan must have at least one column")
    return asked


def checked_pieces(pieces: Any) -> list[Piece]:
    """Return pieces as a list; what is none is an InvalidError."""
    found = list(pieces) if isinstance(pieces, Iterable) else [pieces]
    for one in found:
        if not isinstance(one, Piece) or not all(hasattr(end, "__index__") for end in (one.begin, one.end)):
            raise InvalidError(f"pieces must be a list of those that pieces() gave, not with {one!r:.60}")
    return found


def check_options(options: Iterable[str]) -> None:
    """Refuse options that no run has, although a scan may need no run: a TypeError names the first."""
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"options must be of {', '.join(one for one in _OPTIONS if one[0] != '_')}, not {name!r}")


class Table(ABC):
    """A table of a store. :func:`~nandarray.interop.tables.open_table` finds one by its name."""

    @property
    @abstractmethod
    def store(self) -> Store:
        """The store that has it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The full name."""

    @property
    def place(self) -> str:
        """The store's path and the name, for messages."""
        return f"{self.store.path}: {self.name}"

    @property
    @abstractmethod
    def schema(self) -> Any:
        """The Arrow schema of all columns."""

    @abstractmethod
    def pieces(self, where: Test | None = None, *, at_least: int = 1) -> list[Piece]:
        """Cut the table into pieces, without those in which no row can pass.

        Parameters
        ----------
        where : Test, optional
            The test of a scan.
        at_least : int
            Number of pieces, where there are as many rows.

        Returns
        -------
        list of Piece
            In the order of the rows.
        """

    @abstractmethod
    def decided(self, expression: Any) -> tuple[Test | None, bool]:
        """Return the part of a filter of Arrow that is decided at the data, and whether that is all of it."""

    @abstractmethod
    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Test | None = None,
        *,
        pieces: Sequence[Piece] | None = None,
        **options: Any,
    ) -> Any:
        """Scan the table beside the data; the result is a ``pyarrow.RecordBatchReader`` that reads as it is asked."""

    def scanned(self, columns: Sequence[str], **_options: Any) -> Any:
        """Return the schema of the batches of a scan of some columns, which is not begun."""
        return pa.schema([self.schema.field(name) for name in columns])

    def count_rows(self, where: Test | None = None, *, pieces: Sequence[Piece] | None = None) -> int:
        """Count the rows that pass a test."""
        first = self.schema.names[:1]
        return sum(batch.num_rows for batch in self.scan(first, where, pieces=pieces))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Share all rows as batches that are read as they are requested: ``pyarrow.table(table)``."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def dataset(self) -> Any:
        """Return what engines that read Arrow datasets ask: DuckDB gives it the columns and tests of each query.

        Returns
        -------
        pyarrow.dataset.Dataset
            Its scanners scan this table beside the data.
        """
        from nandarray.interop.tables.dataset import TableDataset

        return TableDataset(self)
