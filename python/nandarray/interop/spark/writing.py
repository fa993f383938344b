"""Writing Spark's frames to a table: each task stages its rows in a file, the driver appends all of them as one.

A job has a folder beside the store (or where the option ``staging`` says), which tasks and driver must reach by the
same path. A task writes its rows there as an Arrow stream and reports the file's name; what an attempt that failed has
left is named by no report. ``commit`` adds the rows of all reports, in the order of the partitions, by one append, or
by one transaction of a store of parts: they are visible, all of them, or none. ``commit`` and ``abort`` remove the
folder; that of a driver that was killed is removed by the next writer after a day.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from nandarray.array.opening import open as open_store
from nandarray.errors import InvalidError
from nandarray.interop.spark.options import Options
from nandarray.interop.spark.types import as_spark, fitted, spark_schema
from nandarray.interop.tables import TextTable, create
from nandarray.parts.store import PartedStore
from nandarray.urls import is_url

__all__ = ["Staged", "TableWriter"]

_SUFFIX = ".spark-"
#: Age from which on the staged files of a job are of one that was killed.
_OLD_S = 24 * 3600
#: The number of a job, behind the suffix.
_JOB = re.compile(r"[0-9a-f]{32}")


@dataclass
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """The report of a task: the file with its rows.

    Parameters
    ----------
    name : str
        Name of the file in the job's folder.
    rows : int
        Number of its rows.
    """

    name: str
    rows: int


class TableWriter(DataSourceArrowWriter):  # type: ignore[misc]
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
        beside = Path(options.path)
        if options.staging is None and is_url(options.path):
            raise InvalidError(f"staging must be given, a folder that all workers reach, to write to {options.path}")
        place = Path(options.staging) if options.staging is not None else beside.parent
        name = "store" if is_url(options.path) else beside.name
        self._folder = place / f"{name}{_SUFFIX}{uuid.uuid4().hex}"
        self._check()
        _remove_old(place, name)

    def _check(self) -> None:
        """Refuse a frame that does not fit, before any task runs."""
        spark_schema(self._schema)
        if not self._is_there():
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

    def _is_there(self) -> bool:
        return is_url(self._options.path) or os.path.exists(self._options.path)

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage the rows of a partition; called where a task runs."""
        self._folder.mkdir(parents=True, exist_ok=True)
        name, rows = f"{uuid.uuid4().hex}.arrows", 0
        with (self._folder / name).open("xb") as file:
            with pa.ipc.new_stream(file, self._schema) as stream:
                for batch in iterator:
                    stream.write_batch(fitted(batch, self._schema))
                    rows += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
        return Staged(name, rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all partitions visible, in their order; called by the driver when every task has ended."""
        staged = [one for one in messages if isinstance(one, Staged)]
        with open_store(self._options.path, "r+" if is_url(self._options.path) else "a") as store:
            if isinstance(store, PartedStore):
                with store.transaction(f"Spark: {self._options.table}") as changed:
                    self._add(changed, staged)
            else:
                self._add(store, staged)
        self._remove()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was staged; called by the driver if a task or the commit has failed."""
        self._remove()

    def _add(self, store: Any, staged: list[Staged]) -> None:
        table: Any = self._options.found(store)
        if table is not None and not self._overwrite:
            table.append(_reader(table.schema, self._batches(staged, table.schema)))
        else:
            rows = _reader(self._schema, self._batches(staged, self._schema))
            create(store, self._options.table, rows, overwrite=self._overwrite)

    def _batches(self, staged: Iterable[Staged], schema: Any) -> Iterator[Any]:
        for one in staged:
            path = self._folder / one.name
            if not path.exists():
                raise InvalidError(f"staging must be a folder that driver and workers share: {path} is not there")
            with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    yield fitted(batch, schema)

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _reader(schema: Any, batches: Iterator[Any]) -> Any:
    return pa.RecordBatchReader.from_batches(schema, batches)


def _remove_old(place: Path, name: str) -> None:
    """Remove the folders of jobs whose driver was killed."""
    for folder in place.glob(f"{glob.escape(name)}{_SUFFIX}*"):
        if not _JOB.fullmatch(folder.name.removeprefix(f"{name}{_SUFFIX}")):
            continue  # a user's own
        with contextlib.suppress(OSError):
            newest = max([folder.stat().st_mtime, *(one.stat().st_mtime for one in folder.iterdir())])
            if newest < time.time() - _OLD_S:
                shutil.rmtree(folder, ignore_errors=True)
