"""Stores in DuckDB's SQL: ``select ... from nandarray_scan('sky.nand', 'survey/*')``.

DuckDB takes no functions of Python that give tables. So ``nandarray_scan`` is a macro over tables that are registered
with a connection, each by its path and pattern; ``execute`` registers those that a query names, before it is run. A
pattern is that of arrays of one shape (:func:`nandarray.interop.tables.elements`), or the name of a table. Columns and
filters of a query go to the data, as for any dataset of a table.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from nandarray.array.opening import open as open_store
from nandarray.errors import InvalidError, NotFoundError
from nandarray.interop.tables import elements, open_table
from nandarray.optional import require

if TYPE_CHECKING:
    from nandarray.array.group import Group
    from nandarray.array.store import Store

__all__ = ["execute", "register"]

_TEXT = r"\s*'((?:[^']|'')*)'\s*"
_CALL = re.compile(rf"nandarray_scan\s*\({_TEXT},{_TEXT}\)", re.IGNORECASE)
_MACRO = """
create or replace temp macro nandarray_scan(path, pattern) as table
from query_table('"nandarray ' || replace(path || ' ' || pattern, '"', '""') || '"')
"""


def register(connection: Any, store: Store | Group, pattern: str, *, path: str | os.PathLike[str] | None = None) -> Any:
    """Let a connection's SQL say ``nandarray_scan(path, pattern)``.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        The connection; it keeps the store until it is closed.
    store : Store or Group
        The store, or a group of it.
    pattern : str
        Names of arrays of one shape, with ``*`` and ``?``; or the name of a table.
    path : str or path, optional
        The path as queries write it; the store's if left out.

    Returns
    -------
    pyarrow.dataset.Dataset
        The dataset of the table; its ``pushed`` tells what went to the data.

    Raises
    ------
    NotFoundError
        There is no such array or table.
    InvalidError
        Arrays are no columns of one table.
    """
    if not isinstance(pattern, str) or not pattern:
        raise InvalidError(f"a pattern must be a text, not {pattern!r}")
    shown = os.fspath(path) if path is not None else os.fspath(_store(store).path)
    dataset = _table(store, pattern).dataset()
    connection.register(_key(shown, pattern), dataset)
    connection.execute(_MACRO)
    return dataset


def execute(connection: Any, query: str, parameters: Any = None) -> Any:
    """Execute a query in which ``nandarray_scan(path, pattern)`` is a table.

    Stores that were not registered are opened to be read; a store that this process has open is registered first.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        The connection.
    query : str
        The query; paths and patterns are texts in it.
    parameters : sequence or mapping, optional
        Values of the query's parameters.

    Returns
    -------
    duckdb.DuckDBPyConnection
        The connection, to fetch from.

    Raises
    ------
    NotFoundError, InvalidError
        As :func:`register` does.

    Examples
    --------
    >>> import duckdb, nandarray, numpy as np
    >>> from nandarray.interop import sql
    >>> with nandarray.open("sky.nand", mode="w") as store:
    ...     store["survey/flux"] = np.array([[0.5, 7.0], [9.0, 0.1]])
    ...     store["survey/flag"] = np.array([[0, 1], [0, 0]])
    >>> con = duckdb.connect()
    >>> sql.execute(con, "select axis0, flux from nandarray_scan('sky.nand', 'survey/*') where flux > 1").fetchall()
    [(0, 7.0), (1, 9.0)]
    """
    duckdb = require("duckdb", "engines")
    words = {at for at, kind in duckdb.tokenize(query) if kind == duckdb.token_type.identifier}
    known = {name for (name,) in connection.execute("select view_name from duckdb_views() where temporary").fetchall()}
    for found in _CALL.finditer(query):
        path, pattern = (text.replace("''", "'") for text in found.groups())
        # The tokenizer counts bytes.
        if len(query[: found.start()].encode()) not in words or _key(path, pattern) in known:
            continue
        register(connection, open_store(path, "r"), pattern, path=path)
        known.add(_key(path, pattern))
    return connection.execute(query, parameters) if parameters is not None else connection.execute(query)


def _key(path: str, pattern: str) -> str:
    return f"nandarray {path} {pattern}"


def _store(group: Store | Group) -> Any:
    return getattr(group, "store", group)


def _table(store: Any, pattern: str) -> Any:
    if not set(pattern) & set("*?["):
        try:
            return open_table(store, pattern)
        except NotFoundError:
            pass
    return elements(store, pattern)
