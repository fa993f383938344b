"""Stores in DuckDB's SQL: ``select ... from nandarray_scan('sky.nand', 'survey/*')``.

DuckDB takes no functions of Python that give tables. So ``nandarray_scan`` is a macro over tables that are registered
with a connection, each by its path and pattern; ``execute`` registers those that a query names, before it is run. A
pattern is that of arrays of one shape (:func:`nandarray.interop.tables.elements`), or the name of a table. Columns and
filters of a query go to the data, as for any dataset of a table.

The connection alone keeps what is registered. Stores that ``execute`` opened are opened anew for each query that names
them, so that it sees what was committed; of those that later queries did not name it keeps the last few.
"""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from nandarray.array.group import Group
from nandarray.array.opening import open as open_store
from nandarray.errors import InvalidError, NotFoundError
from nandarray.interop.tables import elements, open_table
from nandarray.optional import require

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["execute", "register"]

#: Tables that a connection keeps of earlier queries, at most, together with those of the last one.
OPENED_MAX = 32
#: The names under which ``execute`` registered tables with a connection, the last one at the end.
_opened: MutableMapping[Any, dict[str, None]] = WeakKeyDictionary()

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
        The path as queries write it; the store's if left out, which a snapshot's store does not have for itself.

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
    if not isinstance(store, Group):
        raise InvalidError(f"a store or a group must be registered, not {store!r}; execute opens paths")
    if not isinstance(path, str | os.PathLike | None):
        raise InvalidError(f"a path must be a text, not {path!r}")
    if path is None and store.store._snapshot is not None:
        raise InvalidError(
            f"a path must come with a snapshot, {store.store._snapshot[0]!r}: queries that name the file mean the store"
            " as it is"
        )
    key = _key(os.fspath(store.store.path if path is None else path), pattern)
    dataset = _table(store, pattern).dataset()
    connection.register(key, dataset)
    connection.execute(_MACRO)
    _opened.get(connection, {}).pop(key, None)
    return dataset


def execute(connection: Any, query: str, parameters: Any = None) -> Any:
    """Execute a query in which ``nandarray_scan(path, pattern)`` is a table.

    Stores that were not registered are opened to be read, for each query anew; one that this process is writing to is
    registered first. The connection keeps the tables of the last query, and of earlier ones up to 32, until it is
    closed.

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
    if not isinstance(query, str):
        raise InvalidError(f"a query must be a text, not {query!r:.60}")
    words = {at for at, kind in duckdb.tokenize(query) if kind == duckdb.token_type.identifier}
    known = {name for (name,) in connection.execute("select view_name from duckdb_views() where temporary").fetchall()}
    opened = _opened.setdefault(connection, {})
    stores: dict[str, Store] = {}
    made: dict[str, Any] = {}
    try:
        for found in _CALL.finditer(query):
            path, pattern = (text.replace("''", "'") for text in found.groups())
            key = _key(path, pattern)
            # The tokenizer counts bytes.
            is_called = len(query[: found.start()].encode()) in words
            if not is_called or key in made or (key in known and key not in opened):
                continue
            if path not in stores:
                stores[path] = open_store(path, "r")
            made[key] = _table(stores[path], pattern).dataset()
    except BaseException:
        for store in stores.values():
            store.close()
        raise
    for key, dataset in made.items():
        connection.register(key, dataset)
        opened.pop(key, None)
        opened[key] = None
    for key in list(opened)[: -max(OPENED_MAX, len(made))]:
        if key in known:
            connection.unregister(key)
        del opened[key]
    if made:
        connection.execute(_MACRO)
    return connection.execute(query, parameters) if parameters is not None else connection.execute(query)


def _key(path: str, pattern: str) -> str:
    return f"nandarray {path} {pattern}"


def _table(store: Group, pattern: str) -> Any:
    if not set(pattern) & set("*?["):
        try:
            return open_table(store, pattern)
        except NotFoundError:
            if pattern not in store:
                raise NotFoundError(f"no array or table is called {pattern}") from None
    return elements(store, pattern)
