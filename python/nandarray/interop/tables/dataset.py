"""A table as an Arrow dataset: an engine gives it the columns and the filter of a query, and reads what is left.

As much of the filter as programs can decide goes to the data; Arrow decides the rest over what comes back, so that the
engine gets exactly the rows that it asked for.

Arrow's datasets are C++ objects, and an engine may use all that they have. :class:`TableDataset` is one of a single
file, which nothing can open: all that reads goes through its own scanners, and a way of Arrow's own past them gets an
error which says so. ``tests/python/test_foreign_methods.py`` calls a new method of Arrow's as soon as there is one.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from nandarray.errors import InvalidError
from nandarray.interop.tables.table import Table
from nandarray.interop.tables.where import Test

__all__ = ["TableDataset"]

#: Scanners that ``pushed`` tells of.
_TOLD = 1000
#: Rows of a batch, at most, where an engine says nothing: as Arrow's own scanners have them.
_ROWS = 131_072


class TableDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """A dataset whose scanners scan a table beside the data, by options of :meth:`Table.scan`.

    ``pushed`` has for each of the last 1000 scanners that were made its columns, its test, and whether that was all of
    the filter.
    """

    def __init__(self, table: Table, options: dict[str, Any] | None = None) -> None:
        files = fs.PyFileSystem(_NoFiles(table.place))
        form = ds.IpcFileFormat()
        super().__init__([form.make_fragment(table.name, filesystem=files)], table.schema, form, files)
        self._table = table
        self._options = options or {}
        self.pushed: deque[tuple[list[str], Test | None, bool]] = deque(maxlen=_TOLD)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._table, self._options, self._scan_options.get("filter"))

    def scanner(
        self,
        columns: Any = None,
        filter: Any = None,  # noqa: A002
        batch_size: int = _ROWS,
        **options: Any,
    ) -> Any:
        """Return a scanner of the columns and rows that an engine requests, or of all; it reads as it is asked, once.

        Further options are those of Arrow's scanners.
        """
        asked = self._scanner_options({"filter": filter})["filter"]
        every = list(self._table.schema.names)
        wanted = every if columns is None else columns if isinstance(columns, dict) else list(columns)
        test, whole = self._decided(asked)
        # Arrow needs the columns of what is left to it.
        left = [] if whole else [str(asked)]
        if isinstance(wanted, dict):
            left += map(str, wanted.values())
        if any("FieldPath" in text for text in left):
            read = every  # a column by its number
        else:
            named = [name for name in every if any(name in text for text in left)]
            read = list(dict.fromkeys([*(() if isinstance(wanted, dict) else wanted), *named])) or every[:1]
        self.pushed.append((read, test, whole))
        reader = self._table.scan(read, test, **self._options)
        parts = _parts(reader, max(1, operator.index(batch_size)))
        return ds.Scanner.from_batches(
            parts, schema=reader.schema, columns=wanted, filter=None if whole else asked, **options
        )

    def _decided(self, asked: Any) -> tuple[Test | None, bool]:
        """Give the part of a filter that goes to the data, and whether that is all of it."""
        return (None, True) if asked is None else self._table.decided(asked)

    def filter(self, expression: Any) -> TableDataset:  # noqa: A003
        """Return the dataset of the rows that pass; ``pushed`` is shared."""
        if not isinstance(expression, ds.Expression):
            raise InvalidError(f"a dataset is filtered by an expression of Arrow, not by a {type(expression).__name__}")
        found = _again(self._table, self._options, self._scanner_options({"filter": expression})["filter"])
        found.pushed = self.pushed
        return found

    def _get_fragments(self, filter: Any) -> Iterator[TableFragment]:  # noqa: A002
        yield TableFragment(self)

    def get_fragments(self, filter: Any = None) -> Iterator[TableFragment]:  # noqa: A002
        """Return the one fragment; a filter leaves it as it is."""
        if self._scan_options.get("filter") is not None:
            raise InvalidError("a filtered dataset has no fragments: take those of the dataset, and filter each")
        return self._get_fragments(filter)

    def replace_schema(self, schema: Any) -> TableDataset:
        """Return the dataset itself for its own schema; any other is refused."""
        if not isinstance(schema, pa.Schema) or not schema.equals(self.schema):
            raise InvalidError(
                f"the schema of table {self._table.name!r} is that of its text: cast the columns of a scan, by "
                "scanner(columns={name: expression})"
            )
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


class TableFragment:
    """The one fragment of a table's dataset, all of it, for engines that cut a scan into fragments.

    It has the methods of Arrow's fragments, and is none of them: those read in C++, by themselves.
    """

    def __init__(self, dataset: TableDataset) -> None:
        self._dataset = dataset

    @property
    def physical_schema(self) -> Any:
        """The Arrow schema."""
        return self._dataset.schema

    @property
    def partition_expression(self) -> Any:
        """True for every row."""
        return self._dataset.partition_expression

    def scanner(self, schema: Any = None, **options: Any) -> Any:
        """Return a scanner, as the dataset's: ``schema`` is the dataset's own."""
        if schema is not None:
            self._dataset.replace_schema(schema)
        return self._dataset.scanner(**options)

    def to_batches(self, schema: Any = None, **options: Any) -> Any:
        """Read batch by batch."""
        return self.scanner(schema, **options).to_batches()

    def to_table(self, schema: Any = None, **options: Any) -> Any:
        """Read everything."""
        return self.scanner(schema, **options).to_table()

    def head(self, num_rows: int, **options: Any) -> Any:
        """Read the first rows."""
        return self.scanner(**options).head(num_rows)

    def take(self, indices: Any, **options: Any) -> Any:
        """Read rows by number."""
        return self.scanner(**options).take(indices)

    def count_rows(self, **options: Any) -> int:
        """Count the rows."""
        return int(self.scanner(**options).count_rows())

    def __repr__(self) -> str:
        return f"<nandarray.interop.tables.TableFragment of {self._dataset._table.name!r}>"


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


def _parts(batches: Any, rows: int) -> Iterator[Any]:
    """Cut batches into such of at most ``rows`` rows."""
    for batch in batches:
        yield from (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))
