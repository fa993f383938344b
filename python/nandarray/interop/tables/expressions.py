"""Tests of rows as expressions of Arrow, for what Arrow decides over rows that came back, and beside what programs do.

Comparisons are exact: whole numbers of different types become decimals of 256 bits where Arrow's common type would not
hold both. A missing value makes a comparison missing, as in :mod:`nandarray.interop.tables.where`.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nandarray.errors import InvalidError, NotFoundError
from nandarray.interop.tables.kinds import (
    Kind,
    bound,
    characters,
    comparable,
    fraction,
    kind_of,
    value_type,
    whole_bound,
)
from nandarray.interop.tables.where import Test

__all__ = ["column_type", "expression_of", "literal", "operand_kind"]

Tree = tuple[Any, ...]
_DIGITS_MAX = 76
_TRUE, _FALSE = (pc.scalar(pa.scalar(value)) for value in (True, False))
_COMPARED = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
#: Types that Arrow does not compare, and those that hold the same values.
_PLAIN = {pa.float16(): pa.float32(), pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_ARITHMETIC = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


def column_type(name: str, schema: Any) -> Any:
    """Return the Arrow type of a column; a NotFoundError says that there is none."""
    if name not in schema.names:
        raise NotFoundError(f"there is no column {name!r}; there is {', '.join(schema.names)}")
    return schema.field(name).type


def expression_of(test: Test, schema: Any) -> Any:
    """Return a test as an expression of Arrow.

    Parameters
    ----------
    test : Test
        The test.
    schema : pyarrow.Schema
        Names and types of the columns.

    Returns
    -------
    pyarrow.compute.Expression
        True, false or missing as the test is.

    Raises
    ------
    NotFoundError
        There is no such column.
    InvalidError
        A value is none of its column's kind, or arithmetic needs more than 76 digits.
    """
    return _truth(test.tree, schema)


def literal(kind: Any, value: Any) -> Any:
    """Return a bound, in a column's own unit, as a scalar of its type."""
    kind = value_type(kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(f"{value}e{-kind.scale}"), kind)  # scaleb would round to 28 digits
    if pa.types.is_temporal(kind):
        return pa.scalar(value, {32: pa.int32(), 64: pa.int64()}[kind.bit_width]).cast(kind)
    return pa.scalar(value, _PLAIN.get(kind, kind))


def _field(name: str, schema: Any) -> Any:
    kind, made = column_type(name, schema), pc.field(name)
    if pa.types.is_dictionary(kind):
        made, kind = made.cast(kind.value_type), kind.value_type
    plain = _PLAIN.get(kind)
    return made if plain is None else made.cast(plain)


def _where_valid(valid: Any, test: Any) -> Any:
    return pc.if_else(valid, test, pa.scalar(None, pa.bool_()))


def _truth(tree: Tree, schema: Any) -> Any:
    op, *rest = tree
    if op == "true":
        return _TRUE
    if op == "not":
        return ~_truth(rest[0], schema)
    if op in ("and", "or"):
        made = pc.scalar(op == "and")
        for number, part in enumerate(rest):
            one = _truth(part, schema)
            made = one if not number else made & one if op == "and" else made | one
        return made
    if op in ("null", "valid"):
        valid = _valid(rest[0], schema)
        return ~valid if op == "null" else valid
    if op == "given":
        return _where_valid(_valid(rest[0], schema), _truth(rest[1], schema))
    if op in _COMPARED:
        return _comparison(op, rest[0], rest[1], schema)
    return _of_column(op, rest, schema)


def _of_column(op: str, rest: list[Any], schema: Any) -> Any:
    name = rest[0]
    if not isinstance(name, str):
        if op == "in":
            return _truth(("or", *(("==", name, value) for value in rest[1])), schema)
        raise InvalidError(f"a test {op!r} must be of a column, not of what is computed")
    kind, made = column_type(name, schema), _field(name, schema)
    found = kind_of(kind)
    if op == "is":
        if found.family != "truth":
            raise InvalidError(f"column {name} is {kind}; a test by itself must be a column of booleans")
        return made
    if op == "in":
        bounds = [one[1] for one in (bound(name, kind, "==", value) for value in rest[1]) if not isinstance(one, bool)]
        if found.family == "float" and 0.0 in bounds:
            bounds += [0.0, -0.0]  # which Arrow's sets tell apart
        if not bounds:
            return _where_valid(made.is_valid(), _FALSE)
        scalars = [literal(kind, one) for one in bounds]
        return _where_valid(made.is_valid(), made.isin(pa.array(scalars, scalars[0].type)))
    if op in ("begins", "ends", "holds"):
        if found.family not in ("text", "bytes"):
            raise InvalidError(f"column {name} is {kind}; the begin, end and parts of a value must be those of text")
        text = characters(name, found, rest[1])
        function = {"begins": pc.starts_with, "ends": pc.ends_with, "holds": pc.match_substring}[op]
        if pa.types.is_fixed_size_binary(value_type(kind)):
            made = made.cast(pa.binary())
        return function(made, text)
    raise InvalidError(f"{op!r} is no test")


def _valid(value: Any, schema: Any) -> Any:
    """Return whether a value is there: all columns that it is computed of are."""
    if isinstance(value, str):
        column_type(value, schema)
        return pc.field(value).is_valid()
    if value[0] == "value":
        return _TRUE
    if value[0] == "col":
        return _valid(value[1], schema)
    made = _valid(value[1], schema)
    for part in value[2:]:
        made = made & _valid(part, schema)
    return made


def _comparison(op: str, left: Any, right: Any, schema: Any) -> Any:
    left = ("col", left) if isinstance(left, str) else left
    if left[0] == "value":
        raise InvalidError("a comparison must have a column on its left side")
    if left[0] == "col" and not isinstance(right, tuple):
        kind, made = column_type(left[1], schema), _field(left[1], schema)
        if kind_of(kind).family == "other":
            raise InvalidError(f"column {left[1]} is {kind}, which is not compared")
        found = bound(left[1], kind, op, right)
        if isinstance(found, bool):
            return _where_valid(made.is_valid(), pc.scalar(found))
        return _COMPARED[found[0]](made, literal(kind, found[1]))
    one = operand_kind(left, schema)
    if not isinstance(right, tuple) and one.family == "number":
        found = whole_bound("of a test", one, op, right)
        if isinstance(found, bool):
            return _where_valid(_valid(left, schema), pc.scalar(found))
        return _COMPARED[found[0]](*_aligned(_exact(left, schema, one), _constant(found[1] * one.unit)))
    right = right if isinstance(right, tuple) else ("value", right)
    other = operand_kind(right, schema, beside=one)
    if not comparable(one, other):
        raise InvalidError(f"{one.family} and {other.family} are not compared with each other")
    if left[0] == right[0] == "col":
        types = [value_type(column_type(value[1], schema)) for value in (left, right)]
        if types[0] == types[1]:
            return _COMPARED[op](_field(left[1], schema), _field(right[1], schema))
    if one.family in ("text", "bytes"):
        wide = pa.large_string() if one.family == "text" else pa.large_binary()
        return _COMPARED[op](*(_field(value[1], schema).cast(wide) for value in (left, right)))
    if "float" in (one.family, other.family):
        return _COMPARED[op](_float(left, schema), _float(right, schema))
    return _COMPARED[op](*_aligned(_exact(left, schema, one), _exact(right, schema, one)))


# --- values -----------------------------------------------------------------------------------------------------------


def _constant_kind(value: Any, beside: Kind | None) -> Kind:
    one = value.as_py() if isinstance(value, pa.Scalar) else value
    if isinstance(one, np.generic):
        one = one.item()
    if isinstance(one, bool) or not isinstance(one, int | float | Decimal | Fraction):
        raise InvalidError(f"a value must be computed of numbers; {one!r} is none")
    is_exact = not isinstance(one, float) or (beside is not None and beside.family == "number" and beside.unit != 1)
    if not is_exact or (isinstance(one, float | Decimal) and not math.isfinite(one)):
        return Kind("float")
    exact, unit = Fraction(repr(one) if isinstance(one, float) else one), Fraction(1)
    while (exact / unit).denominator != 1 and unit.denominator < 10**_DIGITS_MAX:
        unit /= 10
    return Kind("number", unit)


def operand_kind(value: Tree, schema: Any, beside: Kind | None = None) -> Kind:
    """Return the kind of a value; of a constant that which it takes beside another kind.

    Of what is computed the ends are not those of its values. An InvalidError says that it cannot be computed.
    """
    op = value[0]
    if op == "col":
        return kind_of(column_type(value[1], schema))
    if op == "value":
        return _constant_kind(value[1], beside)
    first = next((part for part in value[1:] if part[0] != "value"), value[1])
    known = operand_kind(first, schema)
    # Each part once: a second look at each level would double the time with each.
    kinds = [known if part is first else operand_kind(part, schema, known) for part in value[1:]]
    for kind in kinds:
        if kind.family not in ("number", "float"):
            raise InvalidError(f"a value must be computed of numbers, not of {kind.family}")
    if op == "/" or any(kind.family == "float" for kind in kinds):
        return Kind("float")
    unit = kinds[0].unit
    for kind in kinds[1:]:
        unit = unit * kind.unit if op == "*" else min(unit, kind.unit)
    return Kind("number", unit)


def _float(value: Tree, schema: Any) -> Any:
    """Return a value as float64."""
    op, wide = value[0], pa.float64()
    if op == "col":
        return _field(value[1], schema).cast(wide, safe=False)
    if op == "value":
        one = value[1].as_py() if isinstance(value[1], pa.Scalar) else value[1]
        return pc.scalar(pa.scalar(float(one), wide))
    if operand_kind(value, schema).family != "float":
        return _exact(value, schema, Kind("number")).made.cast(wide, safe=False)
    parts = [_float(part, schema) for part in value[1:]]
    if op == "negative":
        return pc.negate(parts[0])
    function = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}[op]
    return function(*parts)


class _Exact(NamedTuple):
    """A whole number times its unit: a decimal of 256 bits, or a constant."""

    made: Any
    digits: int
    scale: int
    unit: Fraction = Fraction(1)


def _decimal(digits: int, scale: int) -> Any:
    if digits > _DIGITS_MAX:
        raise InvalidError(f"arithmetic of a test must have at most {_DIGITS_MAX} digits, not {digits}")
    return pa.decimal256(digits, scale)


def _exact(value: Tree, schema: Any, beside: Kind) -> _Exact:
    op = value[0]
    if op == "col":
        kind = value_type(column_type(value[1], schema))
        made, found = _field(value[1], schema), kind_of(kind)
        if pa.types.is_decimal(kind):
            digits = max(kind.precision, kind.scale)
            return _Exact(made.cast(_decimal(digits, kind.scale)), digits, kind.scale)
        if found.family != "number":
            made = made.cast({32: pa.int32(), 64: pa.int64()}[kind.bit_width])
        return _Exact(made.cast(_decimal(20, 0)), 20, 0, found.unit)
    if op == "value":
        exact = fraction("of a test", beside, value[1])
        if isinstance(exact, float):
            raise InvalidError(f"a value must be computed of finite numbers, not of {exact}")
        return _constant(exact)
    parts = [_exact(part, schema, operand_kind(value, schema)) for part in value[1:]]
    if op == "negative":
        return parts[0]._replace(made=pc.negate(parts[0].made))
    one, other = parts
    if op == "*":
        digits, scale = one.digits + other.digits + 1, one.scale + other.scale
    else:
        scale = max(one.scale, other.scale)
        digits = max(one.digits - one.scale, other.digits - other.scale) + scale + 1
    _decimal(digits, scale)
    return _Exact(_ARITHMETIC[op](one.made, other.made), digits, scale)


def _constant(exact: Fraction) -> _Exact:
    """Write a constant as a decimal; one that none holds, as 1/3, is an InvalidError."""
    scale = 0
    while exact.denominator != 1:
        exact, scale = exact * 10, scale + 1
        if scale > _DIGITS_MAX:
            raise InvalidError(f"a constant of a test must have at most {_DIGITS_MAX} digits")
    digits = max(len(str(abs(exact.numerator))), scale, 1)
    made = Decimal(f"{exact.numerator}e-{scale}")
    return _Exact(pc.scalar(pa.scalar(made, _decimal(digits, scale))), digits, scale)


def _aligned(one: _Exact, other: _Exact) -> tuple[Any, Any]:
    """Bring two numbers to one unit and one type, so that they can be compared."""
    unit = min(one.unit, other.unit)
    made = []
    for each in (one, other):
        factor = each.unit / unit
        if factor.denominator != 1:
            raise InvalidError("units of times must be multiples of each other")
        if factor != 1:
            times = _constant(factor)
            each = _Exact(  # noqa: PLW2901
                each.made * times.made, each.digits + times.digits + 1, each.scale
            )
        made.append(each)
    scale = max(each.scale for each in made)
    digits = max(each.digits - each.scale for each in made) + scale
    first, second = (each.made.cast(_decimal(digits, scale)) for each in made)
    return first, second
