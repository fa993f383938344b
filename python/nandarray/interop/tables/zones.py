"""Zones of a table, runs of rows whose least and greatest values are known: those in which no row can pass a test.

Each comparison is asked of the ends of a zone: ``x < 5`` may be true where the least x is below 5. An answer is on the
safe side: a zone that is not known, a float that may be no number, and what is computed of columns may always be true.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from nandarray.errors import InvalidError
from nandarray.interop.tables.expressions import column_type, expression_of
from nandarray.interop.tables.kinds import DIGITS_64, bound, characters, kind_of
from nandarray.interop.tables.where import Test, names

__all__ = ["Zones", "excluded"]

Tree = tuple[Any, ...]
_Flags = np.ndarray[Any, np.dtype[np.bool_]]
_INVERSE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
#: Values of a set that are asked one by one; of more the least and the greatest are.
_ONE_BY_ONE = 64


@dataclass(frozen=True)
class Zones:
    """Least and greatest values of a column, zone by zone, as far as they are known.

    Parameters
    ----------
    low, high : pyarrow.Array
        A bound of all values from below and one from above, of the column's type, or of a dictionary's values; missing
        where nothing is known, or where no value is. Texts may be cut, the greater one so that it is not less.
    nulls, rows : numpy.ndarray
        Number of missing values, and of rows.
    """

    low: Any
    high: Any
    nulls: np.ndarray[Any, Any]
    rows: np.ndarray[Any, Any]


def excluded(test: Test | None, zones: Mapping[str, Zones]) -> _Flags:
    """Tell in which zones no row can pass a test.

    Parameters
    ----------
    test : Test or None
        The test.
    zones : mapping of str to Zones
        Zones of columns, of the same rows; a column that is not there may have any values.

    Returns
    -------
    numpy.ndarray
        True for each zone that need not be read; empty where no column has zones.
    """
    count = max((len(one.rows) for one in zones.values()), default=0)
    if test is None or not count:
        return np.zeros(count, bool)
    known = {name: one for name, one in zones.items() if not pa.types.is_nested(one.low.type)}
    return ~_Possible(known, count).true(test.tree, wanted=True)


class _Possible:
    def __init__(self, zones: Mapping[str, Zones], count: int) -> None:
        self._zones, self._count = zones, count
        self._schema = pa.schema([(name, one.low.type) for name, one in zones.items()])

    def _all(self) -> _Flags:
        return np.ones(self._count, bool)

    def _none(self) -> _Flags:
        return np.zeros(self._count, bool)

    def true(self, tree: Tree, *, wanted: bool) -> _Flags:
        """Tell where a test may be true, or may be false."""
        op, *rest = tree
        if op == "true":
            return self._all() if wanted else self._none()
        if op == "not":
            return self.true(rest[0], wanted=not wanted)
        if op in ("and", "or"):
            made = self._all() if (op == "and") == wanted else self._none()
            for part in rest:
                one = self.true(part, wanted=wanted)
                made = made & one if (op == "and") == wanted else made | one
            return made
        if op == "given":
            return self._there(rest[0]) & self.true(rest[1], wanted=wanted)
        if op in ("null", "valid"):
            if not isinstance(rest[0], str) or rest[0] not in self._zones:
                return self._all()
            zone = self._zones[rest[0]]
            return zone.nulls > 0 if (op == "null") == wanted else zone.nulls < zone.rows
        there = self._all()
        for name in names(tree):
            there &= self._there(name)
        if not isinstance(rest[0], str) or not names(tree) <= set(self._zones):
            return there
        try:
            return there & self._leaf(op, rest, wanted=wanted)
        except (InvalidError, pa.ArrowException):
            return there

    def _there(self, value: Any) -> _Flags:
        if not isinstance(value, str) or value not in self._zones:
            return self._all()
        return np.asarray(self._zones[value].nulls < self._zones[value].rows)

    def _leaf(self, op: str, rest: list[Any], *, wanted: bool) -> _Flags:
        name = rest[0]
        family = kind_of(column_type(name, self._schema)).family
        unknown = self._unknown(name)
        if op in _INVERSE and len(rest) > 1:
            if not wanted and family == "float":
                return self._all()
            op = op if wanted else _INVERSE[op]
            if isinstance(rest[1], tuple):
                return self._columns(op, name, rest[1])
            if op == "!=" and family == "float":
                return self._all()
            return unknown | self._compared(op, name, rest[1])
        if op == "is":
            return unknown | self._compared("==", name, wanted)
        if not wanted:
            return self._all()
        if op == "in":
            return unknown | self._one_of(name, rest[1])
        if op == "begins":
            return unknown | self._begins(name, rest[1])
        return self._all()

    def _unknown(self, name: str) -> _Flags:
        zone = self._zones[name]
        made = self._none()
        for ends in (zone.low, zone.high):
            if ends.null_count:
                made |= ends.is_null().to_numpy(zero_copy_only=False)
            if pa.types.is_floating(ends.type):
                made |= np.isnan(ends.cast(pa.float64()).to_numpy(zero_copy_only=False))
        return made

    def _asked(self, test: Tree, **columns: Any) -> _Flags:
        """Tell for which zones a test is true of some of their ends, by Arrow."""
        numbers = pa.array(np.arange(self._count))
        table = pa.table([*columns.values(), numbers], [*columns, "number of the zone"])
        made = self._none()
        made[table.filter(expression_of(Test(test), table.schema))["number of the zone"].to_numpy()] = True
        return made

    def _compared(self, op: str, name: str, value: Any) -> _Flags:
        low, high = self._zones[name].low, self._zones[name].high
        if op in ("<", "<="):
            return self._end(op, low, value)
        if op in (">", ">="):
            return self._end(op, high, value)
        if op == "==":
            return self._end("<=", low, value) & self._end(">=", high, value)
        return ~(self._end("==", low, value) & self._end("==", high, value))

    def _end(self, op: str, ends: Any, value: Any) -> _Flags:
        """Tell for which zones a comparison of an end with a constant is true."""
        numbers = _numbers(ends)
        if numbers is None:
            return self._asked((op, "x", value), x=ends)
        there = np.ones(len(ends), bool) if not ends.null_count else ends.is_valid().to_numpy(zero_copy_only=False)
        found = bound("x", ends.type, op, value)
        if isinstance(found, bool):
            return there if found else ~there & there
        made: _Flags = np.logical_and(_OPERATORS[found[0]](numbers, found[1]), there)
        return made

    def _columns(self, op: str, name: str, other: Tree) -> _Flags:
        if other[0] != "col":
            return self._all()
        one, two = self._zones[name], self._zones[other[1]]
        if op == "!=":
            return self._all()
        unknown = self._unknown(name) | self._unknown(other[1])
        if op == "==":
            below = self._asked(("<=", "x", ("col", "y")), x=one.low, y=two.high)
            return unknown | (below & self._asked((">=", "x", ("col", "y")), x=one.high, y=two.low))
        ends = (one.low, two.high) if op in ("<", "<=") else (one.high, two.low)
        return unknown | self._asked((op, "x", ("col", "y")), x=ends[0], y=ends[1])

    def _one_of(self, name: str, values: tuple[Any, ...]) -> _Flags:
        made = self._none()
        if len(values) > _ONE_BY_ONE:
            # The order is that of the column: constants may be text of numbers or times, and NaN equals nothing.
            kind = column_type(name, self._schema)
            asked = [(bound(name, kind, "==", value), value) for value in values]
            known = [(found[1], value) for found, value in asked if not isinstance(found, bool)]
            if not known:
                return made
            (_, low), (_, high) = min(known, key=itemgetter(0)), max(known, key=itemgetter(0))
            return self._compared("<=", name, high) & self._compared(">=", name, low)
        for value in values:
            made |= self._compared("==", name, value)
        return made

    def _begins(self, name: str, text: Any) -> _Flags:
        """A text that begins so is not less, and cut to the same length equal."""
        kind = kind_of(column_type(name, self._schema))
        wanted = characters(name, kind, text)
        low = [None if one is None else one[: len(wanted)] for one in self._zones[name].low.to_pylist()]
        low = pa.array(low, pa.string() if kind.family == "text" else pa.binary())
        return self._asked(("<=", "x", wanted), x=low) & self._compared(">=", name, wanted)


def _numbers(ends: Any) -> np.ndarray[Any, Any] | None:
    """Return ends as NumPy's floats, or its whole numbers of the type's unit; None of any others.

    A query has few zones: Arrow's filter takes longer to begin than they take.
    """
    kind, is_ = ends.type, pa.types
    if is_.is_decimal(kind):
        if kind.precision > DIGITS_64:
            return None
        whole = (
            np.frombuffer(ends.buffers()[1], f"<i{min(8, kind.bit_width // 8)}") if len(ends) else np.empty(0, "<i8")
        )
        step = max(1, kind.bit_width // 64)  # the other half is the sign of the low one
        return whole[::step][ends.offset : ends.offset + len(ends)]
    if is_.is_integer(kind) or is_.is_floating(kind) or (is_.is_temporal(kind) and not is_.is_interval(kind)):
        letter = "f" if is_.is_floating(kind) else "u" if is_.is_unsigned_integer(kind) else "i"
        dtype = f"<{letter}{kind.bit_width // 8}"
        return np.frombuffer(ends.buffers()[1], dtype)[ends.offset : ends.offset + len(ends)] if len(ends) else None
    return None
