"""Writing Spark's frames to a table: what is common to both ways, the checks and the rows' last step.

Tasks keep their rows as streams of Arrow until all of them have ended; the driver then adds them, in the order of the
partitions, by one append: they are visible, all of them, or none. The ways differ in the place of the rows until then.
In a store of parts each task writes to a part of its own, and reports receipts (:mod:`writing_parts`). A store of one
file has one process that writes, so tasks stage files beside it (:mod:`writing_files`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from nandarray.array.opening import open as open_store
from nandarray.errors import InvalidError
from nandarray.interop.spark.options import Options
from nandarray.interop.spark.types import as_spark, fitted, spark_schema
from nandarray.interop.tables import TextTable, create
from nandarray.urls import is_url

__all__ = ["TableWriter", "write_stream"]


def write_stream(sink: Any, schema: Any, batches: Iterable[Any]) -> int:
    """Write the rows of a partition to a file as a stream of Arrow; return their number."""
    rows = 0
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in batches:
            stream.write_batch(fitted(batch, schema))
            rows += batch.num_rows
    return rows


class TableWriter(DataSourceArrowWriter, ABC):  # type: ignore[misc]
    """A writer of one table.

    Parameters
    ----------
    options : Options
        Options of the user.
    schema : pyspark.sql.types.StructType
        The frame's schema.
    overwrite : bool
        Whether the rows replace those of the table.

    Raises
    ------
    InvalidError
        The frame does not fit the table.
    """

    def __init__(self, options: Options, schema: Any, *, overwrite: bool) -> None:
        self._options = options
        self._schema = as_spark(schema)
        self._overwrite = overwrite
        self._check()

    def _check(self) -> None:
        """Refuse a frame that does not fit, before any task runs."""
        spark_schema(self._schema)
        if not is_url(self._options.path) and not os.path.exists(self._options.path):
            return
        with open_store(self._options.path) as store:
            table = self._options.found(store)
            if table is None or self._overwrite:
                return
            if isinstance(table, TextTable):
                raise InvalidError(f"{table.name!r} must be a table of columns, since one of text takes no more rows")
            if sorted(table.schema.names) != sorted(self._schema.names):
                told = f"a frame for {table.name!r} must have the columns {', '.join(table.schema.names)}"
                raise InvalidError(f"{told}, not {', '.join(self._schema.names)}")

    @abstractmethod
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Keep the rows of a partition; called where a task runs."""

    @abstractmethod
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all partitions visible, in their order; called by the driver when every task has ended."""

    @abstractmethod
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks have kept; called by the driver if a task or the commit has failed."""

    def _add(self, store: Any, files: Iterable[Any]) -> None:
        """Add the rows of partitions to the table, from files that :func:`write_stream` wrote."""
        table: Any = self._options.found(store)
        is_kept = table is not None and not self._overwrite
        schema = table.schema if is_kept else self._schema
        rows = pa.RecordBatchReader.from_batches(schema, _batches(files, schema))
        if is_kept:
            table.append(rows)
        else:
            create(store, self._options.table, rows, overwrite=self._overwrite)


def _batches(files: Iterable[Any], schema: Any) -> Iterator[Any]:
    for file in files:
        with file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                yield fitted(batch, schema)
