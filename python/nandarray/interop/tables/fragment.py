"""One piece of a table as a fragment of its Arrow dataset: what an engine scans by itself, beside the others.

A fragment is pickled as its table and piece: where it arrives, the store is opened for reading.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nandarray.errors import InvalidError
from nandarray.interop.tables.pushdown import ROWS, Pushdown
from nandarray.interop.tables.table import Piece, Table

__all__ = ["TableFragment", "checked_schema"]


class TableFragment:
    """One piece of a table's dataset, for engines that cut a scan into fragments.

    It has the methods of Arrow's fragments, and is none of them: those read in C++, by themselves.

    Parameters
    ----------
    pushdown : Pushdown
        The scans of the table.
    piece : Piece
        Its rows.
    """

    def __init__(self, pushdown: Pushdown, piece: Piece) -> None:
        self._pushdown = pushdown
        self._piece = piece

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._pushdown.table, self._pushdown.options, self._piece)

    @property
    def physical_schema(self) -> Any:
        """The Arrow schema."""
        return self._pushdown.table.schema

    @property
    def partition_expression(self) -> Any:
        """True for every row."""
        return pc.scalar(True)  # noqa: FBT003 (Arrow's)

    def scanner(
        self,
        schema: Any = None,
        columns: Any = None,
        filter: Any = None,  # noqa: A002
        batch_size: int = ROWS,
        **options: Any,
    ) -> Any:
        """Return a scanner, as the dataset's: ``schema`` is the dataset's own."""
        if schema is not None:
            checked_schema(self._pushdown.table, schema)
        return self._pushdown.scanner(columns, filter, batch_size, [self._piece], options)

    def to_batches(self, schema: Any = None, **options: Any) -> Any:
        """Read batch by batch."""
        return self.scanner(schema, **options).to_batches()

    def to_table(self, schema: Any = None, **options: Any) -> Any:
        """Read everything."""
        return self.scanner(schema, **options).to_table()

    def head(self, num_rows: int, **options: Any) -> Any:
        """Read the first rows that pass."""
        return self.scanner(**options).head(num_rows)

    def take(self, indices: Any, **options: Any) -> Any:
        """Read rows by number."""
        return self.scanner(**options).take(indices)

    def count_rows(self, filter: Any = None, **options: Any) -> int:  # noqa: A002
        """Count the rows that pass."""
        return int(self.scanner(columns=[], filter=filter, **options).count_rows())

    def __repr__(self) -> str:
        name, piece = self._pushdown.table.name, self._piece
        return f"<nandarray.interop.tables.TableFragment of {name!r}, {piece.begin:,} to {piece.end:,}>"


def checked_schema(table: Table, schema: Any) -> None:
    """Refuse a schema that is not the table's own."""
    if not isinstance(schema, pa.Schema) or not schema.equals(table.schema):
        raise InvalidError(
            f"the schema must be that of table {table.name!r}: cast the columns of a scan, by "
            "scanner(columns={name: expression})"
        )


def _again(table: Table, options: dict[str, Any], piece: Piece) -> TableFragment:
    return TableFragment(Pushdown(table, options), piece)
