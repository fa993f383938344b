"""Aggregates of a table's rows, by groups or of all: counts, sums, least, greatest and mean values.

Each batch is aggregated by Arrow, and what batches give is combined: memory is that of a batch and of the groups. Sums
of integers and decimals are exact: as decimals of 38 or 76 digits until the end, where a sum must fit its type. Floats
are added in the order of the rows, batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nandarray.errors import InvalidError
from nandarray.interop.tables.columns.forms import outer_of, plain

__all__ = ["Aggregates"]

FUNCTIONS = ("count", "sum", "min", "max", "mean")
#: The column of the number of a group's first row.
_FIRST = "first"
#: Groups that are kept apart before they are combined.
_GROUPS = 1 << 18
_types = pa.types


@dataclass(frozen=True)
class _One:
    """An aggregate: its name in the result, what it is, of which column; None counts rows."""

    name: str
    function: str
    column: str | None


class Aggregates:
    """Aggregates of a table, and the way from its batches to them.

    Parameters
    ----------
    asked : mapping
        By the names of the result: ``"count"``, or a pair of a function and a column.
    by : sequence of str
        Columns whose values make the groups.
    schema : pyarrow.Schema
        The table's.

    Raises
    ------
    InvalidError
        A function is none, does not fit its column, or two columns of the result have one name.
    """

    def __init__(self, asked: Mapping[str, Any], by: Sequence[str], schema: Any) -> None:
        if not isinstance(asked, Mapping):
            raise InvalidError(f"aggregates must be a mapping of names, not {asked!r:.60}")
        self._schema, self._by = schema, list(by)
        self._all = [_one(name, what, schema) for name, what in asked.items()]
        names = [*self._by, *asked]
        if not names or len(set(names)) < len(names):
            raise InvalidError(f"a result must have columns of different names, not {', '.join(names) or 'none'}")
        for name in self._by:
            if not _is_key(plain(schema.field(name).type)):
                raise InvalidError(f"column {name!r} is of {schema.field(name).type}: lists make no groups")

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return list(dict.fromkeys([*self._by, *(one.column for one in self._all if one.column is not None)]))

    def of(self, batches: Iterable[Any]) -> Any:
        """Return the aggregates of batches, as a table of Arrow: a row a group, in the order of their first rows."""
        parts: list[Any] = []
        groups = rows = 0
        for batch in batches:
            parts.append(self._part(batch, rows))
            rows += len(batch)
            groups += parts[-1].num_rows
            if groups > _GROUPS and len(parts) > 1:
                parts = [self._combined(parts)]
                groups = parts[0].num_rows
        if not parts:
            nothing = [self._schema.field(name) for name in self.columns] or [pa.field("", pa.null())]
            empty = pa.RecordBatch.from_pylist([], pa.schema(nothing))
            parts = [self._part(empty, 0)]
        return self._finished(self._combined(parts))

    @property
    def folds(self) -> list[tuple[Any, ...]] | None:
        """The steps of all aggregates as a program takes them, if all rows are one group; None where it has none."""
        if self._by or any(step == "sum" and self._is_truth(one) for _, one, step in self._steps()):
            return None
        return [(step,) if one.column is None else (step, one.column) for _, one, step in self._steps()]

    def _is_truth(self, one: _One) -> bool:
        return bool(_types.is_boolean(plain(self._schema.field(one.column).type)))

    def of_folds(self, found: Sequence[Any]) -> Any:
        """Return the aggregates of what a program computed, as a table of Arrow."""
        columns = {}
        for (number, one, step), value in zip(self._steps(), found, strict=True):
            if isinstance(value, pa.Scalar):
                column = _unpacked(pa.array([value], value.type))
            elif value is None:
                column = pa.nulls(1)
            elif isinstance(value, float):
                column = pa.array([value])
            else:
                kind = plain(self._schema.field(one.column).type) if one.column and step == "sum" else None
                scale = kind.scale if kind is not None and _types.is_decimal(kind) else 0
                column = pa.array([Decimal(value)], pa.decimal128(38, scale))
            columns[f"{step}{number}"] = column
        return self._finished(pa.table(columns))

    def _steps(self) -> Iterable[tuple[int, _One, str]]:
        """Give the steps of all aggregates: a mean is a sum and a count."""
        for number, one in enumerate(self._all):
            for step in ("sum", "count") if one.function == "mean" else (one.function,):
                yield number, one, step

    def _part(self, batch: Any, before: int) -> Any:
        """Aggregate a batch behind some rows; a column is named by the number of its aggregate, and the step."""
        keys = [f"k{number}" for number in range(len(self._by))]
        given = [outer_of(batch.column(name)) for name in self._by]
        arrays = [one.indices if _types.is_dictionary(one.type) else _key(one) for one in given]
        names = list(keys)
        asked: list[tuple[Any, str]] = []
        for number, one, step in self._steps():
            if one.column is None:
                asked.append(([], "count_all"))
                continue
            names.append(f"{step}{number}")
            array = _unpacked(batch.column(one.column))
            arrays.append(_summable(array) if step == "sum" else array)
            asked.append((names[-1], step))
        if self._by:
            names.append(_FIRST)
            arrays.append(pa.array(np.arange(before, before + len(batch))))
            asked.append((_FIRST, "min"))
        if not arrays:  # rows alone are counted
            return pa.table({f"{step}{number}": [len(batch)] for number, _, step in self._steps()})
        found = self._renamed(pa.table(arrays, names=names).group_by(keys, use_threads=False).aggregate(asked), keys)
        for number, one in enumerate(given):
            if _types.is_dictionary(one.type):
                values = _key(one.dictionary).take(found.column(number).combine_chunks())
                found = found.set_column(number, keys[number], values)
        return found

    def _combined(self, parts: list[Any]) -> Any:
        keys = [f"k{number}" for number in range(len(self._by))]
        parts = [
            pa.table({name: _wide(part[name]) if name[0] in "sc" else part[name] for name in part.column_names})
            for part in parts
        ]
        whole = pa.concat_tables(parts)
        for number, _, step in self._steps():
            if step == "sum" and _types.is_decimal256(whole[f"sum{number}"].type):
                _in_bounds(whole[f"sum{number}"])
        joins = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
        asked = [(f"{step}{number}", joins[step]) for number, _, step in self._steps()]
        if self._by:
            asked.append((_FIRST, "min"))
        return self._renamed(whole.group_by(keys, use_threads=False).aggregate(asked), keys)

    def _renamed(self, found: Any, keys: list[str]) -> Any:
        """Name columns by keys and steps, whatever Arrow calls them."""
        steps = [f"{step}{number}" for number, _, step in self._steps()]
        steps += [_FIRST] if self._by else []
        at = [found.column_names.index(key) for key in keys]
        rest = [number for number in range(found.num_columns) if number not in at]
        columns = [found.column(number) for number in [*at, *rest]]
        return pa.table(columns, names=[*keys, *steps])

    def _finished(self, found: Any) -> Any:
        if self._by:  # Arrow's order of groups is none
            found = found.sort_by(_FIRST)
        fields = [self._schema.field(name) for name in self._by]
        columns = [_as(found[f"k{number}"], field.type, field.name) for number, field in enumerate(fields)]
        for number, one in enumerate(self._all):
            if one.function == "mean":
                total, count = (found[f"{step}{number}"].cast(pa.float64()) for step in ("sum", "count"))
                columns.append(pc.divide(total, pc.if_else(pc.equal(count, 0), None, count)))
                continue
            column = found[f"{one.function}{number}"]
            kind = pa.int64()
            if one.column is not None and one.function != "count":
                kind = self._schema.field(one.column).type
                kind = _sum_type(plain(kind)) if one.function == "sum" else kind
            columns.append(_as(column, kind, one.name))
        return pa.table(columns, names=[*self._by, *(one.name for one in self._all)])


def _one(name: str, what: Any, schema: Any) -> _One:
    if not isinstance(name, str):
        raise InvalidError(f"names of aggregates must be str, not {type(name).__name__}: {name!r:.60}")
    if what == "count":
        return _One(name, "count", None)
    if not isinstance(what, tuple | list) or len(what) != 2 or what[0] not in FUNCTIONS:  # noqa: PLR2004 (a pair)
        raise InvalidError(
            f"aggregate {name!r} must be 'count', or a pair of one of {', '.join(FUNCTIONS)} and a column, not {what!r}"
        )
    function, column = what
    if column not in schema.names:
        raise InvalidError(f"aggregate {name!r} is of column {column!r}; there is {', '.join(schema.names)}")
    kind = plain(schema.field(column).type)
    number = _types.is_integer(kind) or _types.is_floating(kind) or _types.is_decimal(kind) or _types.is_boolean(kind)
    if (function in ("sum", "mean") and not number) or (function in ("min", "max") and not _is_key(kind)):
        raise InvalidError(f"aggregate {name!r}: column {column!r} is of {kind}, which has no {function}")
    return _One(name, function, column)


def _is_key(kind: Any) -> bool:
    return not _types.is_nested(kind)


def _key(array: Any) -> Any:
    """Return values as Arrow groups by them: floats that are equal, and all NaN, with the same bits."""
    array = _unpacked(array)
    if not _types.is_floating(array.type):
        return array
    return pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), pc.add(array, pa.scalar(0, array.type)))


def _unpacked(array: Any) -> Any:
    """Return values as Arrow groups and compares them: without dictionaries, which differ from batch to batch."""
    array = outer_of(array)
    array = array.dictionary_decode() if _types.is_dictionary(array.type) else array
    return array.cast(_compared(array.type))


def _compared(kind: Any) -> Any:
    if _types.is_decimal(kind) and kind.bit_width < 128:  # noqa: PLR2004 (bits)
        return pa.decimal128(kind.precision, kind.scale)
    if _types.is_duration(kind):
        return pa.int64()
    return pa.float32() if _types.is_float16(kind) else kind


def _summable(array: Any) -> Any:
    """Return numbers whose sum is exact."""
    kind = array.type
    if _types.is_boolean(kind):
        return array.cast(pa.int64())
    if _types.is_integer(kind):
        ends = pc.min_max(array)
        most = max((abs(one.as_py()) for one in ends.values() if one.is_valid), default=0)
        wide = most * len(array) >= 1 << 63
        return array.cast(pa.decimal128(20, 0)) if wide else array.cast(pa.int64())
    if _types.is_decimal(kind) and kind.precision > 28:  # noqa: PLR2004 (so that 10^10 rows fit 38)
        return _in_bounds(array.cast(pa.decimal256(76, kind.scale)))
    return array


def _in_bounds(values: Any) -> Any:
    """Return decimals of 76 digits whose sum has no more, however they are added; Arrow's would wrap around."""
    ends = [one.as_py() for one in pc.min_max(values).values() if one.is_valid]
    with localcontext(prec=100):
        most = max(map(abs, ends), default=Decimal()).scaleb(values.type.scale) * len(values)
        if most >= Decimal(10) ** 76:
            raise InvalidError(
                f"a sum must have at most 76 digits; that of {len(values)} values up to {max(ends)} may not"
            )
    return values


def _wide(column: Any) -> Any:
    """Return a column of partial sums, or counts, with a type that all batches have."""
    kind = column.type
    if _types.is_int64(kind) or (_types.is_decimal128(kind) and kind.scale == 0):
        return column.cast(pa.decimal128(38, 0))
    return column


def _sum_type(kind: Any) -> Any:
    if _types.is_decimal(kind):
        return pa.decimal256(76, kind.scale) if _types.is_decimal256(kind) else pa.decimal128(38, kind.scale)
    if _types.is_floating(kind):
        return pa.float64()
    return pa.uint64() if _types.is_unsigned_integer(kind) else pa.int64()


def _as(column: Any, kind: Any, name: str) -> Any:
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(_as(column, kind.storage_type, name))
    try:
        if _types.is_dictionary(kind):  # Arrow casts nothing but text to dictionaries
            made = _as(column, kind.value_type, name).dictionary_encode()
            codes = made.indices.cast(kind.index_type)
            return pa.DictionaryArray.from_arrays(codes, made.dictionary, ordered=kind.ordered)
        return (column.cast(pa.int64()) if _types.is_duration(kind) else column).cast(kind)
    except pa.ArrowException as error:
        raise InvalidError(f"{name!r} must fit {kind}: {error}") from None
