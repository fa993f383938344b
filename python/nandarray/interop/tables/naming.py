"""Creating and opening tables of either kind: of columns, and of delimited text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from nandarray.errors import InvalidError, NotFoundError
from nandarray.interop.tables import columns, text
from nandarray.interop.tables.columns import ColumnTable
from nandarray.interop.tables.text import TextTable

if TYPE_CHECKING:
    import os

    from nandarray.array.group import Group
    from nandarray.interop.tables.table import Table

__all__ = ["create", "open_table"]


@overload
def create(
    store: Group, name: str, source: str | os.PathLike[str] | bytes, schema: Mapping[str, str], **options: Any
) -> TextTable: ...
@overload
def create(store: Group, name: str, source: Any, schema: Any = None, **options: Any) -> ColumnTable: ...
def create(
    store: Group, name: str, source: Any, schema: Any = None, *, overwrite: bool = False, **options: Any
) -> Table:
    r"""Store rows as a table: a table of columns, or, if ``schema`` names types of text, delimited text as it is.

    Parameters
    ----------
    store : Store or Group
        Store or group that gets the table.
    name : str
        Name of the table.
    source : table, batch or stream of Arrow, data frame, mapping, path or bytes
        Rows. Anything with Arrow's PyCapsule interface is taken (Polars, pandas, relations of DuckDB), read as a
        stream, and paths of ``.parquet``, ``.arrow``, ``.feather`` and ``.csv``. Of delimited text, a path or bytes.
    schema : pyarrow.Schema or mapping, optional
        Names and types of the columns, to which values are cast. A mapping from names to types of text
        (``"int32"``, ``"decimal(9,2)"``, ...) makes a table of delimited text.
    overwrite : bool
        Permission for a table of columns to replace the table that has the name, by one command when all of the rows
        are there; of a store of parts, within a transaction.
    **options
        Options of a table of columns: ``columns`` (names of the columns to take), ``compression`` (``"auto"``, that of
        :meth:`Group.create`, or one a column), ``zone_rows`` (rows of a zone, 65,536); of delimited text:
        ``delimiter``, ``header``, ``quote``, ``null``, ``line_bytes`` and ``check``, as
        :func:`nandarray.interop.tables.text.create` has them.

    Returns
    -------
    ColumnTable or TextTable
        The table; :func:`open_table` gives it again.

    Raises
    ------
    InvalidError
        A column has a type that tables do not have, a batch does not fit, or the source cannot be read. Nothing is
        stored, nothing replaced.
    MalformedLineError
        A line of delimited text cannot be read. Nothing is stored.
    ExistsError
        The name is taken.
    NotFoundError
        The name to be replaced is that of no table.

    Examples
    --------
    >>> import nandarray
    >>> import pyarrow as pa
    >>> from nandarray.interop import tables
    >>> store = nandarray.open("data.nand", mode="w")
    >>> tables.create(store, "t", pa.table({"id": [1, 2], "name": ["Ada", None]}))
    <nandarray.interop.tables.ColumnTable 't' rows=2>
    >>> tables.create(store, "lines", b"1|Ada|\n", {"id": "int32", "name": "text(8)"}).schema.names
    ['id', 'name']
    """
    if isinstance(schema, Mapping):
        if overwrite:
            raise InvalidError("overwrite must be left out for a table of text: delete the one that has the name first")
        return text.create(store, name, source, schema, **options)
    if schema is not None and not isinstance(schema, pa.Schema):
        raise InvalidError(f"schema must be a schema of Arrow, or a mapping of names to types, not {schema!r:.60}")
    if overwrite and name in store:
        path = open_table(store, name).name.strip("/")
        arrays = store.store._engine.names(f"{path}/")
        options["replaced"] = [path] if path in store.store._engine else arrays
    return columns.create(store, name, source, schema, **options)


def open_table(store: Group, name: str) -> Table:
    """Return a table of a store, of either kind.

    Parameters
    ----------
    store : Store or Group
        Store or group that has the table.
    name : str
        Name of the table.

    Returns
    -------
    ColumnTable or TextTable
        The table.

    Raises
    ------
    NotFoundError
        There is no such name, or it is no table.

    Examples
    --------
    >>> import nandarray
    >>> import pyarrow as pa
    >>> from nandarray.interop import tables
    >>> store = nandarray.open("data.nand", mode="w")
    >>> tables.create(store, "t", pa.table({"id": [1, 2]})).append({"id": [3]})
    3
    >>> tables.open_table(store, "t").num_rows
    3
    """
    found = store[name]
    if columns.is_table(store, name):
        return columns.open_table(store, name)
    if not hasattr(found, "shape"):
        raise NotFoundError(f"{name} is no table: it is a group without the attribute {columns.TABLE!r}")
    return text.open_table(store, name)
