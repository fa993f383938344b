"""Filters as Substrait has them: an extended expression, as Arrow and other engines write it, as a test of rows.

A second source of filters beside Arrow's own expressions (:mod:`nandarray.interop.tables.filters`), which become the
same tests. The messages are read as Protocol Buffers encode them, field by field: few of Substrait's are
needed, and a package of all of them would be one more that has to fit engines' versions. Literals have units of their
own: moments are microseconds, whatever the column has.

A function, a type or a field that is not known makes its part one that is not understood; nothing is guessed.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa

from nandarray.interop.tables.filters import Call, Field, NotUnderstoodError, test_of
from nandarray.interop.tables.where import Test

__all__ = ["functions_of", "of_substrait"]

Message = dict[int, list[Any]]
#: Bits of an integer in a message, at most.
_VARINT_BITS = 64
#: Functions by their names without types, and Arrow's.
_FUNCTIONS = {
    "and": "and_kleene",
    "or": "or_kleene",
    "not": "invert",
    "equal": "equal",
    "not_equal": "not_equal",
    "lt": "less",
    "lte": "less_equal",
    "gt": "greater",
    "gte": "greater_equal",
    "is_null": "is_null",
    "is_not_null": "is_valid",
    "is_nan": "is_nan",
    "starts_with": "starts_with",
    "ends_with": "ends_with",
    "contains": "match_substring",
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "divide": "divide",
    "negate": "negate",
}
#: Functions of one argument; others have two, ``and`` and ``or`` any number.
_UNARY = ("invert", "is_null", "is_valid", "is_nan", "negate")
_CHARACTERS = ("starts_with", "ends_with", "match_substring")
#: Literals that are an integer, by their fields.
_INTEGERS = {2: pa.int8(), 3: pa.int16(), 5: pa.int32(), 7: pa.int64()}
_MOMENTS = {14: pa.timestamp("us"), 16: pa.date32(), 17: pa.time64("us"), 27: pa.timestamp("us", "UTC")}
_TYPES = {**_INTEGERS, 1: pa.bool_(), 10: pa.float32(), 11: pa.float64(), 12: pa.string(), 13: pa.binary()} | {
    16: pa.date32()
}
_MATCH_EMIT_NULL = 2
#: Errors of Python for a message that is none of Substrait's.
_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)
_DEPTH_MAX = 200


def of_substrait(message: bytes, schema: Any) -> tuple[Test | None, bool]:
    """Return the part of a filter that is a test of rows, and whether that is all of it.

    Parameters
    ----------
    message : bytes
        A serialized ``substrait.ExtendedExpression`` of one expression, as ``Expression.to_substrait`` gives it.
    schema : pyarrow.Schema
        Names and types of the columns.
    """
    try:
        found = _Reader(_fields(bytes(message))).filter()
    except (NotUnderstoodError, pa.ArrowException, *_MALFORMED):
        return None, False
    return test_of(found, schema)


def functions_of(message: bytes) -> set[str]:
    """Return the names, without types, of all functions that an expression declares; one without a name is ``""``."""
    found = set()
    for one in _fields(message).get(2, []):
        names = [name.decode() for function in _fields(one).get(3, []) for name in _fields(function).get(3, [b""])]
        found |= {name.partition(":")[0] for name in names}
    return found


def _fields(raw: bytes) -> Message:
    """Read the fields of a message by number: integers, or bytes."""
    found: Message = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:  # noqa: PLR2004
                return value
            if shift >= _VARINT_BITS:
                raise ValueError(f"a number of the message must have at most {_VARINT_BITS} bits")

    while at < len(raw):
        key = varint()
        kind = key & 7
        value: Any
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or (varint() if kind == 2 else None)  # noqa: PLR2004
            if size is None and kind != 2:  # noqa: PLR2004
                raise NotUnderstoodError(f"a field of kind {kind}")
            size = size or 0
            if at + size > len(raw):
                raise NotUnderstoodError("a message that is cut off")
            value, at = raw[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def _one(message: Message, number: int, default: Any = None) -> Any:
    return message.get(number, [default])[-1]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


class _Reader:
    """An extended expression: names of its columns, its functions by number, its one expression."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._names = [name.decode() for name in _fields(_one(message, 4))[1]]
        self._functions: dict[int, str] = {}
        for one in message.get(2, []):
            function = _fields(_one(_fields(one), 3, b""))
            self._functions[_one(function, 2, 0)] = _one(function, 3, b"").decode().partition(":")[0]

    def filter(self) -> Any:
        (reference,) = self._message[3]
        return self._expression(_one(_fields(reference), 1), 0)

    def _expression(self, raw: bytes, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            raise NotUnderstoodError("an expression that is too deep")
        ((kind, (inner,)),) = _fields(raw).items()
        fields = _fields(inner)
        readers = {3: self._function, 6: self._if_then, 8: self._one_of, 11: self._cast}
        if kind == 1:
            return _literal(fields)
        if kind == 2:  # noqa: PLR2004
            segment = _fields(_one(_fields(_one(fields, 1)), 2))
            if 2 in segment:  # noqa: PLR2004
                raise NotUnderstoodError("a field of a struct")
            return Field(self._names[_one(segment, 1, 0)])
        return readers[kind](fields, depth + 1)

    def _function(self, fields: Message, depth: int) -> Any:
        name = _FUNCTIONS[self._functions[_one(fields, 1, 0)]]
        given = [self._expression(_one(_fields(one), 3), depth) for one in fields.get(4, [])]
        options = {}
        for one in map(_fields, fields.get(5, [])):
            options[_one(one, 1).decode()] = _one(one, 2, b"").decode()
        if options.get("overflow") == "ERROR":
            name += "_checked"
        if name in ("and_kleene", "or_kleene"):
            made = given[0]
            for one in given[1:]:
                made = Call(name, [made, one])
            return made
        if len(given) != (1 if name.removesuffix("_checked") in _UNARY else 2):
            raise NotUnderstoodError(f"{name} of {len(given)} arguments")
        if name in _CHARACTERS:
            if options.get("case_sensitivity", "CASE_SENSITIVE") != "CASE_SENSITIVE":
                raise NotUnderstoodError(name)
            return Call(name, given[:1], {"pattern": given[1], "ignore_case": pa.scalar(value=False)})
        return Call(name, given)

    def _if_then(self, fields: Message, depth: int) -> Any:
        (clause,) = map(_fields, fields[1])
        parts = [_one(clause, 1), _one(clause, 2), _one(fields, 2)]
        return Call("if_else", [self._expression(part, depth) for part in parts])

    def _one_of(self, fields: Message, depth: int) -> Any:
        values = [self._expression(one, depth) for one in fields[2]]
        if any(not isinstance(one, pa.Scalar) or not one.is_valid for one in values):
            raise NotUnderstoodError("a list of others than literals")
        options = {"value_set": values, "null_matching_behavior": pa.scalar(_MATCH_EMIT_NULL)}
        return Call("is_in", [self._expression(_one(fields, 1), depth)], options)

    def _cast(self, fields: Message, depth: int) -> Any:
        ((kind, _),) = _fields(_one(fields, 1)).items()
        made = pa.scalar(None, _TYPES[kind])
        return Call("cast", [self._expression(_one(fields, 2), depth)], {"to_type": made})


def _literal(fields: Message) -> Any:
    """Read a literal as a scalar of the type that it has."""
    known = {number: values[-1] for number, values in fields.items() if number not in (50, 51)}
    ((kind, value),) = known.items()
    if kind in _INTEGERS:
        return pa.scalar(_signed(value), _INTEGERS[kind])
    if kind in _MOMENTS:
        made = _MOMENTS[kind]
        return pa.scalar(_signed(value), pa.int32() if made == pa.date32() else pa.int64()).cast(made)
    if kind == 1:
        return pa.scalar(bool(value))
    if kind in (10, 11):
        return pa.scalar(struct.unpack("<f" if kind == 10 else "<d", value)[0], _TYPES[kind])  # noqa: PLR2004
    if kind in (12, 13):
        return pa.scalar(value.decode() if kind == 12 else value)  # noqa: PLR2004
    if kind == 24:  # noqa: PLR2004
        decimal = _fields(value)
        number, scale = int.from_bytes(_one(decimal, 1), "little", signed=True), _one(decimal, 3, 0)
        precision = _one(decimal, 2)
        if not 0 <= scale <= precision or abs(number) >= 10**precision:
            raise NotUnderstoodError("a decimal of more digits than it has")
        return pa.scalar(Decimal(f"{number}e-{scale}"), pa.decimal128(precision, scale))
    if kind == 29:  # noqa: PLR2004
        ((type_number, _),) = _fields(value).items()
        return pa.scalar(None, _TYPES[type_number])
    raise NotUnderstoodError(f"a literal of kind {kind}")
