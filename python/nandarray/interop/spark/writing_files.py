"""Writing Spark's frames to a table of a store of one file: each task stages its rows in a file.

A job has a folder beside the store (or where the option ``staging`` says), which tasks and driver must reach by the
same path. A task writes its rows there and reports the file's name; what an attempt that failed has left is named by
no report. ``commit`` and ``abort`` remove the folder; that of a driver that was killed is removed by the next writer
after a day.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from nandarray.array.opening import open as open_store
from nandarray.errors import InvalidError
from nandarray.interop.spark.options import Options
from nandarray.interop.spark.writing import TableWriter, write_stream
from nandarray.urls import is_served

__all__ = ["FileWriter", "Staged"]

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


class FileWriter(TableWriter):
    """A writer whose tasks stage files; parameters are those of :class:`TableWriter`."""

    def __init__(self, options: Options, schema: Any, *, overwrite: bool) -> None:
        beside = Path(options.path)
        if options.staging is None and is_served(options.path):
            raise InvalidError(f"staging must be given, a folder that all workers reach, to write to {options.path}")
        place = Path(options.staging) if options.staging is not None else beside.parent
        name = "drive" if is_served(options.path) else beside.name
        self._folder = place / f"{name}{_SUFFIX}{uuid.uuid4().hex}"
        super().__init__(options, schema, overwrite=overwrite)
        _remove_old(place, name)

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage the rows of a partition; called where a task runs."""
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{uuid.uuid4().hex}.arrows"
        with (self._folder / name).open("xb") as file:
            rows = write_stream(file, self._schema, iterator)
            file.flush()
            os.fsync(file.fileno())
        return Staged(name, rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add the rows of all partitions by one append; called by the driver when every task has ended."""
        staged = [one for one in messages if isinstance(one, Staged)]
        with open_store(self._options.path, "r+" if is_served(self._options.path) else "a") as store:
            self._add(store, map(self._opened, staged))
        self._remove()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was staged; called by the driver if a task or the commit has failed."""
        self._remove()

    def _opened(self, staged: Staged) -> Any:
        path = self._folder / staged.name
        if not path.exists():
            raise InvalidError(f"staging must be a folder that driver and workers share: {path} is not there")
        return pa.memory_map(str(path))

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _remove_old(place: Path, name: str) -> None:
    """Remove the folders of jobs whose driver was killed."""
    for folder in place.glob(f"{glob.escape(name)}{_SUFFIX}*"):
        if not _JOB.fullmatch(folder.name.removeprefix(f"{name}{_SUFFIX}")):
            continue  # a user's own
        with contextlib.suppress(OSError):
            newest = max([folder.stat().st_mtime, *(one.stat().st_mtime for one in folder.iterdir())])
            if newest < time.time() - _OLD_S:
                shutil.rmtree(folder, ignore_errors=True)
