"""A table as an Arrow dataset: an engine gives it the columns and the filter of a query, and reads what is left.

As much of the filter as programs can decide goes to the data; Arrow decides the rest over what comes back, so that the
engine gets exactly the rows that it asked for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds

from nandarray.interop.tables.where import Test, of_arrow

if TYPE_CHECKING:
    from nandarray.interop.tables.scan import Table

__all__ = ["TableDataset"]


class TableDataset(ds.Dataset):  # type: ignore[misc]
    """A dataset whose scanners scan a table beside the data, by options of :meth:`Table.scan`.

    ``pushed`` has for each scanner that was made its columns, its test, and whether that was all of the filter.
    """

    def __init__(self, table: Table, options: dict[str, Any] | None = None) -> None:
        self._table = table
        self._options = options or {}
        self.pushed: list[tuple[list[str], Test | None, bool]] = []

    @property
    def schema(self) -> Any:
        """The Arrow schema."""
        return self._table.schema

    def scanner(self, columns: Any = None, filter: Any = None, **_options: Any) -> Any:  # noqa: A002
        """Return a scanner, which reads as it is asked, of the columns and rows that an engine requests, or of all.

        Further options of Arrow's scanners change no result.
        """
        every = [one.name for one in self._table.columns]
        wanted = every if columns is None else list(columns)
        test, whole = (None, True) if filter is None else of_arrow(str(filter), self._table.columns)
        # Arrow needs the columns of the part of the filter that is left to it.
        left = () if whole else re.findall(r"\w+", str(filter))
        read = list(dict.fromkeys([*(wanted or every[:1]), *(name for name in every if name in left)]))
        self.pushed.append((read, test, whole))
        reader = self._table.scan(read, test, **self._options)
        return ds.Scanner.from_batches(reader, columns=wanted, filter=None if whole else filter)
