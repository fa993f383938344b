"""A table as an Arrow dataset: an engine gives it the columns and the filter of a query, and reads what is left.

As much of the filter as programs can decide goes to the data; Arrow decides the rest over what comes back, so that the
engine gets exactly the rows that it asked for.

Arrow's datasets are C++ objects, and an engine may use all that they have. :class:`TableDataset` is one of a single
file, which nothing can open: all that reads goes through its own scanners, and a way of Arrow's own past them gets an
error which says so. ``tests/python/test_foreign_methods.py`` calls a new method of Arrow's as soon as there is one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow.dataset as ds
from pyarrow import fs

from nandarray.errors import InvalidError
from nandarray.interop.tables.columns import ColumnTable
from nandarray.interop.tables.fragment import TableFragment, checked_schema
from nandarray.interop.tables.pushdown import ROWS, Pushdown
from nandarray.interop.tables.table import Table
from nandarray.interop.tables.where import Test

__all__ = ["TableDataset", "TableFragment"]


class TableDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """A dataset whose scanners scan a table beside the data, by options of :meth:`Table.scan`.

    ``pushed`` has for each of the last 1000 scanners that were made its columns, its test, and whether that was all of
    the filter; ``counts`` has the numbers of all scanners by what became of their filters.
    """

    def __init__(self, table: Table, options: dict[str, Any] | None = None) -> None:
        files = fs.PyFileSystem(_NoFiles(table.place))
        form = ds.IpcFileFormat()
        super().__init__([form.make_fragment(table.name, filesystem=files)], table.schema, form, files)
        self._table = table
        self._pushdown = Pushdown(table, options or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._table, self._pushdown.options, self._scan_options.get("filter"))

    @property
    def pushed(self) -> deque[tuple[list[str], Test | None, bool]]:
        """Columns, test, and whether that was all of the filter, of the last 1000 scanners."""
        return self._pushdown.pushed

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of scanners: ``"unfiltered"``, with a filter ``"pushed"``, ``"in part"`` or ``"left to Arrow"``."""
        return self._pushdown.counts

    def scanner(
        self,
        columns: Any = None,
        filter: Any = None,  # noqa: A002
        batch_size: int = ROWS,
        **options: Any,
    ) -> Any:
        """Return a scanner of the columns and rows that an engine requests, or of all; it reads as it is asked, once.

        Further options are those of Arrow's scanners.
        """
        asked = self._scanner_options({"filter": filter})["filter"]
        return self._pushdown.scanner(columns, asked, batch_size, None, options)

    def count_rows(self, filter: Any = None, **options: Any) -> int:  # noqa: A002
        """Count the rows that pass; no column is read but those that a filter needs."""
        return int(self.scanner([], filter, **options).count_rows())

    def take(self, indices: Any, columns: Any = None, filter: Any = None, **options: Any) -> Any:  # noqa: A002
        """Read rows by number; of a table of columns nothing but those, if there is no filter."""
        asked = self._scanner_options({"filter": filter})["filter"]
        if asked is None and isinstance(self._table, ColumnTable) and not isinstance(columns, dict):
            return self._table.take(indices, columns)
        return self.scanner(columns, filter, **options).take(indices)

    def filter(self, expression: Any) -> TableDataset:  # noqa: A003
        """Return the dataset of the rows that pass; ``pushed`` and ``counts`` are shared."""
        if not isinstance(expression, ds.Expression):
            raise InvalidError(f"a dataset is filtered by an expression of Arrow, not by a {type(expression).__name__}")
        asked = self._scanner_options({"filter": expression})["filter"]
        found = _again(self._table, self._pushdown.options, asked)
        found._pushdown = self._pushdown
        return found

    def _get_fragments(self, filter: Any) -> Iterator[TableFragment]:  # noqa: A002
        test, _ = self._pushdown.decided(filter)
        for piece in self._table.pieces(test, at_least=os.cpu_count() or 1):
            yield TableFragment(self._pushdown, piece)

    def get_fragments(self, filter: Any = None) -> Iterator[TableFragment]:  # noqa: A002
        """Return a fragment for each piece of the table, without those in which no row passes the filter.

        As Arrow's, a fragment itself is not filtered: it has all rows of its piece.
        """
        if self._scan_options.get("filter") is not None:
            raise InvalidError("a filtered dataset has no fragments: take those of the dataset, and filter each")
        return self._get_fragments(filter)

    def replace_schema(self, schema: Any) -> TableDataset:
        """Return the dataset itself for its own schema; any other is refused."""
        checked_schema(self._table, schema)
        return self

    def sort_by(self, sorting: Any, **options: Any) -> Any:
        """Return a dataset in memory, as Arrow does."""
        return self._in_memory().sort_by(sorting, **options)

    def join(self, right_dataset: Any, *how: Any, **options: Any) -> Any:
        """Return a dataset in memory, as Arrow does."""
        return self._in_memory().join(_scanned(right_dataset), *how, **options)

    def join_asof(self, right_dataset: Any, *how: Any, **options: Any) -> Any:
        """Return a dataset in memory, as Arrow does."""
        return self._in_memory().join_asof(_scanned(right_dataset), *how, **options)

    def _in_memory(self) -> Any:
        return ds.InMemoryDataset(self.to_table())


class _NoFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """A file system that refuses all, with what to do instead."""

    def __init__(self, where: str) -> None:
        self._where = where

    def get_type_name(self) -> str:
        return "nandarray"

    def normalize_path(self, path: str) -> str:
        return path

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise InvalidError(
            f"{self._where} is a table in a store, no file that Arrow can open: read it by its dataset's own "
            "scanner(), to_batches() or to_table(), and give that to Arrow"
        )

    get_file_info = get_file_info_selector = open_input_file = open_input_stream = _refuse
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


def _again(table: Table, options: dict[str, Any], condition: Any) -> TableDataset:
    """Make a dataset with a filter of its own."""
    found = TableDataset(table, options)
    if condition is not None:
        found._scan_options = {"filter": condition}
    return found


def _scanned(right: Any) -> Any:
    return right._in_memory() if isinstance(right, TableDataset) else right
