"""A table as a lazy frame of Polars: the columns and the filter of a query go to the data, its limit stops the scan.

Polars gives a source an expression of its own. It is read in the form that Polars writes as JSON, and becomes an
expression of Arrow, of which the table decides what it can (:mod:`nandarray.interop.tables.filters`). The rest is left
to Polars over the rows that come back: what is not understood, arithmetic, whose integers wrap around there, and the
order of dictionaries. NaN is greater than every number there, and is found so. A limit that Polars gives beside a
filter counts rows before the filter.

Polars tells a source of no aggregate, and asks at least one column where it only counts.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nandarray.errors import InvalidError
from nandarray.interop.tables.dataset import TableDataset
from nandarray.interop.tables.filters import NotUnderstoodError
from nandarray.interop.tables.pushdown import ROWS
from nandarray.interop.tables.table import Table
from nandarray.optional import require

__all__ = ["scan_polars"]

_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": lambda a, b: a == b,
    "NotEq": lambda a, b: a != b,
    "Lt": lambda a, b: a < b,
    "LtEq": lambda a, b: a <= b,
    "Gt": lambda a, b: a > b,
    "GtEq": lambda a, b: a >= b,
}
_TURNED = {"Eq": "Eq", "NotEq": "NotEq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_BETWEEN = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}
_AND, _OR = ("And", "LogicalAnd"), ("Or", "LogicalOr")


def scan_polars(table: Table | TableDataset) -> Any:
    """Return a table as a lazy frame of Polars, which is scanned beside the data when it is collected.

    Parameters
    ----------
    table : Table or TableDataset
        The table, or its dataset, of which ``pushed`` and ``counts`` tell what became of filters.

    Returns
    -------
    polars.LazyFrame
        Rows in the order of the table, as it is when they are read. Batches are read as they are requested.

    Raises
    ------
    InvalidError
        It is no table.
    ImportError
        Polars is not installed.

    Examples
    --------
    >>> import nandarray
    >>> import pyarrow as pa
    >>> from nandarray.interop import tables
    >>> store = nandarray.open("data.nand", mode="w")
    >>> table = tables.create(store, "t", pa.table({"id": [1, 2, 3]}))
    >>> import polars as pl  # doctest: +SKIP
    >>> tables.scan_polars(table).filter(pl.col("id") > 1).collect().rows()  # doctest: +SKIP
    [(2,), (3,)]
    """
    require("polars", "engines")
    if isinstance(table, Table):
        table = table.dataset()
    if not isinstance(table, TableDataset):
        raise InvalidError(f"a scan must be of a table or its dataset, not of type {type(table).__name__}")
    if table._scan_options.get("filter") is not None:
        raise InvalidError("a scan must be of a whole table: filter its lazy frame, not the dataset")
    import polars as pl
    from polars.io.plugins import register_io_source

    schema = pl.DataFrame(pl.from_arrow(table.schema.empty_table())).schema
    return register_io_source(_Source(table), schema=schema)


class _Source:
    """The callable from which Polars gets the rows of a table."""

    def __init__(self, dataset: TableDataset) -> None:
        self._dataset = dataset

    def __call__(
        self, columns: list[str] | None, predicate: Any, limit: int | None, batch_size: int | None
    ) -> Iterator[Any]:
        """Give data frames of the rows that pass."""
        pushdown, schema = self._dataset._pushdown, self._dataset.schema
        wanted = list(columns or schema.names)
        test, whole = None, predicate is None
        if predicate is not None and limit is None:
            asked, understood = arrow_of(predicate, schema)
            test, whole = (None, False) if asked is None else pushdown.decided(asked)
            whole = whole and understood
        read = wanted if whole else list(dict.fromkeys([*wanted, *predicate.meta.root_names()]))
        batches = pushdown.batches(read, test, batch_size or ROWS, filtered=predicate is not None, whole=whole)
        return _frames(batches, wanted, None if whole else predicate, limit)


def _frames(batches: Iterator[Any], wanted: list[str], left: Any, limit: int | None) -> Iterator[Any]:
    """Give batches as data frames, at most as many rows as there may be, of these those that pass what is left."""
    import polars as pl

    for batch in batches:
        some = batch if limit is None else batch.slice(0, limit)
        if limit is not None:
            limit -= len(some)
        frame = pl.DataFrame(pl.from_arrow(some))
        yield frame if left is None else frame.filter(left).select(wanted)
        if limit == 0:
            return


# --- Expressions ------------------------------------------------------------------------------------------------------


def arrow_of(predicate: Any, schema: Any) -> tuple[Any, bool]:
    """Return the part of an expression of Polars that Arrow has, too, and whether that is all of it.

    Parameters
    ----------
    predicate : polars.Expr
        The filter of a query.
    schema : pyarrow.Schema
        Names and types of the columns.
    """
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # noqa: BLE001 (what Polars does not write is left to it, whatever its reason)
        return None, False
    made, whole, parts = None, True, [tree]
    while parts:
        part = parts.pop()
        node = part.get("BinaryExpr") if isinstance(part, dict) else None
        if isinstance(node, dict) and node.get("op") in _AND:
            parts += [node.get("right"), node.get("left")]
            continue
        try:
            one = _truth(part, schema)
        except (NotUnderstoodError, KeyError, TypeError, ValueError, AttributeError, RecursionError, pa.ArrowException):
            whole = False
        else:
            made = one if made is None else made & one
    return made, whole


def _only(node: Any) -> tuple[str, Any]:
    """Return the one key of a part, and what it has."""
    if not isinstance(node, dict) or len(node) != 1:
        raise NotUnderstoodError(f"{node!r:.60}")
    return next(iter(node.items()))


def _truth(node: Any, schema: Any) -> Any:
    key, inner = _only(node)
    if key == "Column":
        return pc.field(inner)
    if key == "Literal":
        return pc.scalar(_evaluated(node)[0])
    if key == "BinaryExpr":
        op = inner["op"]
        if op in _AND:
            return _truth(inner["left"], schema) & _truth(inner["right"], schema)
        if op in _OR:
            return _truth(inner["left"], schema) | _truth(inner["right"], schema)
        return _comparison(op, inner["left"], inner["right"], schema)
    if key == "Ternary":
        chosen = [_truth(inner[one], schema) for one in ("predicate", "truthy", "falsy")]
        return pc.if_else(*chosen)
    if key == "Function":
        return _function(inner["function"], inner["input"], schema)
    raise NotUnderstoodError(key)


def _function(function: Any, given: list[Any], schema: Any) -> Any:
    family, name = _only(function)
    options: Any = {}
    if isinstance(name, dict):
        name, options = _only(name)
    if family == "StringExpr":
        asked = {"StartsWith": pc.starts_with, "EndsWith": pc.ends_with}.get(name)
        if name == "Contains" and options.get("literal") is True:
            asked = pc.match_substring
        text = _evaluated(given[1])[0].as_py()
        if asked is None or not isinstance(text, str):
            raise NotUnderstoodError(name)
        return asked(_column(given[0], schema)[0], text)
    if family != "Boolean":
        raise NotUnderstoodError(family)
    if name == "Not":
        return ~_truth(given[0], schema)
    if name == "IsBetween":
        low, high = _BETWEEN[options["closed"]]
        return _comparison(low, given[0], given[1], schema) & _comparison(high, given[0], given[2], schema)
    column, kind = _column(given[0], schema)
    if name in ("IsNull", "IsNotNull"):
        return column.is_null() if name == "IsNull" else column.is_valid()
    if name in ("IsNan", "IsNotNan") and pa.types.is_floating(kind):
        return pc.is_nan(column) if name == "IsNan" else ~pc.is_nan(column)
    if name == "IsIn" and options.get("nulls_equal") is False:
        values = _evaluated(given[1], many=True)
        if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
            values = values[0].values
        if values.null_count:
            raise NotUnderstoodError(name)
        return pc.if_else(
            _column(_uncast(given[0]), schema)[0].is_valid(), column.isin(values), pa.scalar(None, pa.bool_())
        )
    raise NotUnderstoodError(str(name))


def _comparison(op: str, left: Any, right: Any, schema: Any) -> Any:
    if op not in _COMPARED:
        raise NotUnderstoodError(op)
    if "Literal" in left:
        op, left, right = _TURNED[op], right, left
    column, kind = _column(left, schema)
    if "Literal" not in right:
        other, kind_too = _column(right, schema)
        if any(pa.types.is_floating(one) or pa.types.is_dictionary(one) for one in (kind, kind_too)):
            raise NotUnderstoodError(op)
        return _COMPARED[op](column, other)
    (value,) = _evaluated(right)
    if not value.is_valid or value.as_py() != value.as_py() or (pa.types.is_dictionary(kind) and "q" not in op):
        raise NotUnderstoodError(op)
    made = _COMPARED[op](column, value)
    # NaN is greater than all else there.
    return made | pc.is_nan(column) if op in ("Gt", "GtEq") and pa.types.is_floating(kind) else made


def _column(node: Any, schema: Any) -> tuple[Any, Any]:
    """Return a column, or what it is cast to, with the type of the column."""
    key, inner = _only(node)
    if key == "Column":
        if schema.names.count(inner) != 1:
            raise NotUnderstoodError(inner)
        return pc.field(inner), schema.field(inner).type
    if key != "Cast":
        raise NotUnderstoodError(key)
    column, kind = _column(inner["expr"], schema)
    nothing = {"Cast": {**inner, "expr": {"Literal": {"Scalar": {"Null": "Null"}}}}}
    return column.cast(_evaluated(nothing).type), kind


def _uncast(node: Any) -> Any:
    while "Cast" in node:
        node = node["Cast"]["expr"]
    return node


def _evaluated(node: Any, *, many: bool = False) -> Any:
    """Return the value of a part without columns as an Arrow array, of one unless there may be ``many``."""
    import polars as pl

    try:
        made = pl.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")  # which has neither NaN nor infinity
        found = pl.select(made).to_series().to_arrow()
    except pl.exceptions.PolarsError as error:
        raise NotUnderstoodError(str(error)) from None
    if len(found) != 1 and not many:
        raise NotUnderstoodError("a constant of many values")
    return found
