"""Reading a table in Spark: a partition for each piece, filters and columns at the data.

The store is opened where a partition is read, for reading; of a store of parts it is the version that was planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from nandarray.errors import InvalidError
from nandarray.interop.spark.filters import expression_of
from nandarray.interop.spark.options import Options
from nandarray.interop.spark.types import as_spark, fitted
from nandarray.interop.tables import Piece, Test
from nandarray.interop.tables.pushdown import Pushdown

__all__ = ["FilteringReader", "TablePartition", "TableReader", "reader_of"]

#: Whether Spark keeps what was pushed for one scan, as it does since readers have limits, or for all of a frame's.
_IS_KEPT_BY_SCAN = hasattr(DataSourceReader, "pushLimit")


def reader_of(options: Options, schema: Any) -> TableReader:
    """Return what reads a table, with its filters where they may go to the data."""
    pushes = options.pushdown == "on" or (options.pushdown == "auto" and _IS_KEPT_BY_SCAN)
    return (FilteringReader if pushes else TableReader)(options, schema)


class TablePartition(InputPartition):  # type: ignore[misc]
    """A piece of a table, and the version of its store of parts."""

    def __init__(self, piece: Piece, version: int | None) -> None:
        super().__init__((piece.begin, piece.end))
        self.piece = piece
        self.version = version


class TableReader(DataSourceReader):  # type: ignore[misc]
    """A reader of one table: its partitions, and the rows of each.

    Parameters
    ----------
    options : Options
        Options of the user.
    schema : pyspark.sql.types.StructType
        The columns to read, as Spark has them.
    """

    def __init__(self, options: Options, schema: Any) -> None:
        self._options = options
        self._schema = as_spark(schema)
        self._test: Test | None = None
        self._version: int | None = None
        with options.opened() as (table, version):
            self._version = version
            if unknown := [name for name in self._schema.names if name not in table.schema.names]:
                told = f"columns must be of {', '.join(table.schema.names)}, not {', '.join(unknown)}"
                raise InvalidError(f"{told}: table {table.name!r}")

    def partitions(self) -> list[TablePartition]:
        """Cut the table, without pieces in which no row can pass."""
        with self._options.opened(self._version) as (table, version):
            pieces = table.pieces(self._test, at_least=self._options.partitions)
            return [TablePartition(piece, version) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition that pass, batch by batch."""
        if not isinstance(partition, TablePartition):  # Spark's own, where there is none
            return
        with self._options.opened(partition.version) as (table, _):
            for batch in table.scan(self._schema.names, self._test, pieces=[partition.piece]):
                if batch.num_rows:
                    yield fitted(batch, self._schema)


class FilteringReader(TableReader):
    """A reader whose filters go to the data, as far as they are decided there."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 (Spark's name)
        """Take the filters that are decided at the data, wholly; the others are Spark's."""
        with self._options.opened(self._version) as (table, _):
            pushdown = Pushdown(table, {})
            for one in filters:
                asked = expression_of(one, self._schema)
                test, whole = (None, False) if asked is None else pushdown.decided(asked)
                if test is not None:
                    self._test = test if self._test is None else self._test & test
                if not whole:
                    yield one
