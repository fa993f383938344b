"""Options of a table in Spark, verified before a task is made of them.

| option | meaning |
| --- | --- |
| ``path`` | the store: a path or URL, which the argument of ``load`` and ``save`` is |
| ``table`` | the table's name |
| ``columns`` | names of the columns to read, with commas between; every column if left out |
| ``partitions`` | number of partitions to read, where there are as many rows; the number of processors if left out |
| ``pushdown`` | ``on`` sends filters to the data, ``off`` leaves them to Spark; ``auto``, if left out: see below |
| ``staging`` | folder for rows that are written to a store of one file, until all are there; beside it if left out |

Spark up to 4.3 keeps what a scan has pushed for the whole frame: another scan of the same frame, without a filter or in
the same query, reads the rows of the first one alone, silently. Partitions are kept with it, and Python is not asked
again, so nothing that partitions carry could tell the scans apart. So ``auto`` sends filters to the data where Spark
keeps them scan by scan. ``on`` is for frames of which each is scanned once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nandarray.array.opening import open as open_store
from nandarray.errors import InvalidError, NotFoundError
from nandarray.interop.tables import Table, open_table
from nandarray.parts.store import PartedStore
from nandarray.urls import is_url, refuse_unknown

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["Options"]

_KNOWN = ("path", "table", "columns", "partitions", "pushdown", "staging")
_PUSHDOWN = ("auto", "on", "off")


@dataclass(frozen=True)
class Options:
    """Options of a user of Spark for one table.

    Parameters
    ----------
    path : str
        Path or URL of the store.
    table : str
        Name of the table.
    columns : tuple of str, optional
        Columns to read.
    partitions : int
        Number of partitions.
    pushdown : {"auto", "on", "off"}
        Whether filters go to the data.
    staging : str, optional
        Folder for rows that are written to a store of one file.
    """

    path: str
    table: str
    columns: tuple[str, ...] | None
    partitions: int
    pushdown: str
    staging: str | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """Read the options of a reader or writer of Spark.

        Raises
        ------
        InvalidError
            One is missing, malformed or unknown.
        """
        told = {key.lower(): value for key, value in given.items()}
        if unknown := sorted(set(told) - set(_KNOWN)):
            raise InvalidError(f"options must be of {', '.join(_KNOWN)}, not {', '.join(unknown)}")
        for name, where in (("path", 'load("/data/shop.nand")'), ("table", 'option("table", "sales")')):
            if not told.get(name):
                raise InvalidError(f"the {name} must be given: {where}")
        columns = told.get("columns")
        names = None if columns is None else tuple(name.strip() for name in columns.split(","))
        if names is not None and (not all(names) or len(set(names)) < len(names)):
            raise InvalidError(f"columns must be different names with commas between, not {columns!r}")
        partitions = told.get("partitions", str(os.cpu_count() or 1))
        if not partitions.isdecimal() or not int(partitions):
            raise InvalidError(f"partitions must be a number from 1 on, not {partitions!r}")
        pushdown = told.get("pushdown", "auto")
        if pushdown not in _PUSHDOWN:
            raise InvalidError(f"pushdown must be one of {', '.join(_PUSHDOWN)}, not {pushdown!r}")
        path = told["path"].removeprefix("file:")
        refuse_unknown(path)
        path = path if is_url(path) else os.path.abspath(path)
        return cls(path, told["table"], names, int(partitions), pushdown, told.get("staging"))

    @contextmanager
    def opened(self, version: int | None = None) -> Iterator[tuple[Table, int | None]]:
        """Open the table for reading, with the version of a store of parts, that it has or shall have."""
        with open_store(self.path) as store:
            if isinstance(store, PartedStore):
                version = store.version if version is None else version
                with store.at(version=version) as kept:
                    yield open_table(kept, self.table), version
            else:
                yield open_table(store, self.table), None

    def found(self, store: Store) -> Table | None:
        """Return the table of a store, if it has one.

        Raises
        ------
        NotFoundError
            The name is there, and is no table.
        """
        if self.table not in store:
            return None
        try:
            return open_table(store, self.table)
        except NotFoundError:
            raise NotFoundError(f"{self.table!r} must be a table, or a name that is free, in {self.path}") from None
