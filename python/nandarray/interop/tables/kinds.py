"""Kinds of Arrow types, as tests of rows see them: whole numbers of a unit, floats, truth values, text and bytes.

A decimal is a whole number of 10^-S, a date one of days, a moment or a span one of its unit: so comparisons are those
of whole numbers, and exact. A constant of a test becomes a bound in the column's own unit: ``x < 1.5`` of integers is
``x < 2``, a comparison with a day is one with its midnight. Where a bound lies outside of what a type holds, the
comparison is the same for every value that is there, True or False.

Nothing here reads data, or knows programs.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from nandarray.errors import InvalidError

__all__ = [
    "DIGITS_64",
    "Kind",
    "bound",
    "characters",
    "comparable",
    "fraction",
    "kind_of",
    "number_range",
    "value_type",
    "whole_bound",
]

_UNITS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}
_DAY = 86400
_EPOCH = datetime.date(1970, 1, 1)
_MOMENT = datetime.datetime(1970, 1, 1)
_INTS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
#: Digits of a decimal whose whole numbers have 64 bits.
DIGITS_64 = 18
_FLIPPED = {"<": math.ceil, ">=": math.ceil, "<=": math.floor, ">": math.floor}
_SHOWN = {
    "number": "a number",
    "float": "a number",
    "truth": "True or False",
    "text": "text",
    "bytes": "bytes",
    "moment": "a date or a time without a zone",
    "instant": "a time with a zone",
    "clock": "a time of day",
    "span": "a duration",
}


class Kind(NamedTuple):
    """A kind of values.

    ``family`` is ``"number"``, ``"float"``, ``"truth"``, ``"text"``, ``"bytes"``, ``"moment"`` (dates, times without a
    zone), ``"instant"`` (times with one), ``"clock"`` (times of day), ``"span"``, or ``"other"``. Of numbers and times
    ``unit`` is what a stored 1 means (times in seconds), ``low`` and ``high`` are the ends of stored numbers.
    """

    family: str
    unit: Fraction = Fraction(1)
    low: int = 0
    high: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether values are whole numbers of a unit."""
        return self.family in ("number", "moment", "instant", "clock", "span")


def value_type(kind: Any) -> Any:
    """Return the type of the values: that of its dictionary for a dictionary type."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def number_range(kind: Any) -> tuple[int, int]:
    """Return the least and the greatest integer of an Arrow integer type."""
    bits = kind.bit_width
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def kind_of(kind: Any) -> Kind:
    """Return the kind of an Arrow type; a dictionary's is that of its values."""
    kind = value_type(kind)
    is_ = pa.types
    if is_.is_boolean(kind):
        return Kind("truth")
    if is_.is_integer(kind):
        return Kind("number", Fraction(1), *number_range(kind))
    if is_.is_decimal(kind):
        most = 10**kind.precision - 1
        return Kind("number", Fraction(10) ** -kind.scale, -most, most)
    if is_.is_floating(kind):
        return Kind("float")
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        return Kind("text")
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_binary_view(kind) or is_.is_fixed_size_binary(kind):
        return Kind("bytes")
    if not is_.is_temporal(kind) or is_.is_interval(kind):
        return Kind("other")
    ends = number_range(_INTS[kind.bit_width])
    if is_.is_date(kind):
        return Kind("moment", Fraction(_DAY) if is_.is_date32(kind) else _UNITS["ms"], *ends)
    family = "clock" if is_.is_time(kind) else "span" if is_.is_duration(kind) else "moment"
    if is_.is_timestamp(kind) and kind.tz is not None:
        family = "instant"
    return Kind(family, _UNITS[kind.unit], *ends)


def comparable(one: Kind, other: Kind) -> bool:
    """Tell whether values of two kinds can be compared with each other."""
    numbers = ("number", "float")
    return one.family == other.family != "other" or (one.family in numbers and other.family in numbers)


def _refused(name: str, value: Any, family: str) -> InvalidError:
    return InvalidError(f"column {name} must be compared with {_SHOWN.get(family, 'nothing')}; {value!r} is not that")


def characters(name: str, kind: Kind, value: Any) -> str | bytes:
    """Return a constant as characters of a column of text, or bytes of one of bytes; others are an InvalidError."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if kind.family == "text":
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError:
                raise _refused(name, value, kind.family) from None
        if isinstance(value, str):
            return str(value)
    elif kind.family == "bytes" and isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    raise _refused(name, value, kind.family)


def fraction(name: str, kind: Kind, value: Any) -> Fraction | float:
    """Return a constant beside whole numbers: exact, times in seconds; or a float that is infinite or no number.

    A value that is none of the kind is an InvalidError.
    """
    if isinstance(value, pa.Scalar):
        if pa.types.is_temporal(value.type) and not pa.types.is_interval(value.type):
            if kind_of(value.type).family != kind.family:
                raise _refused(name, value.as_py(), kind.family)
            return int(value.cast(_INTS[value.type.bit_width]).as_py()) * kind_of(value.type).unit
        value = value.as_py()
    if isinstance(value, np.datetime64 | np.timedelta64):
        if np.isnat(value) or np.datetime_data(value.dtype)[0] in ("Y", "M", "generic"):
            raise _refused(name, value, kind.family)
        return fraction(name, kind, pa.scalar(value))
    if isinstance(value, np.generic):
        value = value.item()
    made = _number(kind, value) if kind.family == "number" else _time(kind.family, value)
    if made is None:
        raise _refused(name, value, kind.family)
    return made


def _number(kind: Kind, value: Any) -> Fraction | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction | str):
        return None
    try:
        if isinstance(value, str):
            value = Decimal(value)
        if isinstance(value, float | Decimal) and not math.isfinite(value):
            return float(value)
        # Beside decimals a float is the decimal that it is written as.
        return Fraction(repr(value)) if isinstance(value, float) and kind.unit != 1 else Fraction(value)
    except (InvalidOperation, ValueError):
        return None


def _seconds(span: datetime.timedelta) -> Fraction:
    return span.days * _DAY + span.seconds + Fraction(span.microseconds, 10**6)


def _time(family: str, value: Any) -> Fraction | None:
    """Return seconds: since 1970, since midnight, or of a span."""
    if isinstance(value, str):
        try:
            value = (datetime.time if family == "clock" else datetime.datetime).fromisoformat(value)
        except ValueError:
            return None
    if family == "span":
        return _seconds(value) if isinstance(value, datetime.timedelta) else None
    if family == "clock":
        if not isinstance(value, datetime.time) or value.tzinfo is not None:
            return None
        return value.hour * 3600 + value.minute * 60 + value.second + Fraction(value.microsecond, 10**6)
    if isinstance(value, datetime.datetime):
        if (value.tzinfo is not None) != (family == "instant"):
            return None
        if value.tzinfo is not None:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        return _seconds(value - _MOMENT)
    if isinstance(value, datetime.date) and family == "moment":
        return Fraction((value - _EPOCH).days * _DAY)
    return None


def bound(name: str, kind: Any, op: str, value: Any) -> tuple[str, Any] | bool:
    """Return a comparison with a constant in the column's own unit; a truth value where it is the same for all values.

    ``kind`` is the column's Arrow type. The constant becomes a whole number, a float, a truth value, a text or bytes.
    One that is none of the kind is an InvalidError.
    """
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        raise InvalidError(f"column {name} must be compared with a value; missing ones are found by is_null()")
    made = kind_of(kind)
    if made.family == "float":
        return _float_bound(name, value_type(kind), op, value)
    if made.family == "truth":
        value = value.as_py() if isinstance(value, pa.Scalar) else value
        if not isinstance(value, bool | np.bool_) or op not in ("==", "!="):
            raise InvalidError(f"column {name} must be compared by == or != with True or False, not by {op} {value!r}")
        return op, bool(value)
    if not made.is_whole:
        return op, characters(name, made, value)
    return whole_bound(name, made, op, value)


def whole_bound(name: str, made: Kind, op: str, value: Any) -> tuple[str, int] | bool:
    """Return a comparison with a constant in whole numbers of a kind's unit, as :func:`bound` does.

    A kind without ends has every whole number.
    """
    exact = fraction(name, made, value)
    if isinstance(exact, float):
        return op == "!=" or (op in ("<", "<=") and exact > 0) or (op in (">", ">=") and exact < 0)
    exact /= made.unit
    if op in _FLIPPED:
        number = _FLIPPED[op](exact)
    elif exact.denominator == 1:
        number = int(exact)
    else:
        return op == "!="
    if made.low < made.high and not made.low <= number <= made.high:
        return (number > 0) == (op in ("<", "<=")) if op in _FLIPPED else op == "!="
    return op, number


def _float_bound(name: str, kind: Any, op: str, value: Any) -> tuple[str, float] | bool:
    """Bring a constant to a float of the column's bits, so that values on either side of it stay there."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise _refused(name, value, "float")
    try:
        wide = float(value)
    except OverflowError:
        wide = math.inf if value > 0 else -math.inf
    if math.isnan(wide):
        return op == "!="
    with np.errstate(over="ignore"):
        near = float(np.dtype(f"f{kind.bit_width // 8}").type(wide))
    if near == wide:
        return op, wide
    if op in ("==", "!="):
        return op == "!="
    # No value lies between the constant and the float next to it.
    if near > wide:
        return ("<" if op in ("<", "<=") else ">="), near
    return ("<=" if op in ("<", "<=") else ">"), near
