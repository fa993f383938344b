"""Filters of Arrow as tests of rows: what an engine gives a dataset, read exactly, as far as a test can say it.

An expression is read in the form in which Arrow itself pickles it, where functions, names and constants have their
types; its text has neither types nor quotes that differ from those of a name. A part that a test would decide
otherwise than Arrow, by a rounding, a wrap-around or a NULL, is not understood: it stays with Arrow.

``of_arrow`` keeps of a conjunction the parts that are understood. Where Arrow ends a query with an error since an
integer overflows or a constant does not fit a column, a test gives the exact answer.
"""

from __future__ import annotations

import ctypes
from decimal import Decimal
from typing import Any

import pyarrow as pa

from nandarray.errors import InvalidError, NotFoundError
from nandarray.interop.tables.expressions import expression_of
from nandarray.interop.tables.kinds import kind_of, value_type
from nandarray.interop.tables.where import Test

__all__ = ["Call", "NotUnderstoodError", "form", "of_arrow", "read", "test_of"]

Tree = tuple[Any, ...]
_COMPARED = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_CHARACTERS = {"starts_with": "begins", "ends_with": "ends", "match_substring": "holds"}
#: Null matching of ``is_in``, as Arrow numbers it.
_MATCH, _SKIP, _EMIT = 0, 1, 2
#: Digits of a decimal that survive a way through float64 and back.
_FLOAT_DIGITS = 15
_FLOAT_WHOLE = 2**53


class NotUnderstoodError(Exception):
    """A part of a filter that is no test of rows, or another one than Arrow's."""


class Call:
    """A function of an expression: its name, arguments, and options, a mapping or None."""

    __slots__ = ("arguments", "name", "options")

    def __init__(self, name: str, arguments: list[Any], options: dict[str, Any] | None = None) -> None:
        self.name, self.arguments, self.options = name, arguments, options


class Field:
    """A column of an expression."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


# --- Arrow's own form -------------------------------------------------------------------------------------------------


class _Schema(ctypes.Structure):
    """The begin of Arrow's C data interface of a schema, whose metadata may have a key twice."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _pairs(schema: Any) -> list[tuple[bytes, bytes]]:
    """Return all keys and values of a schema's metadata, in order."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    at = _Schema.from_address(pointer(capsule, b"arrow_schema")).metadata
    if not at:
        return []

    def take() -> bytes:
        nonlocal at
        size = ctypes.c_int32.from_address(at).value
        text = ctypes.string_at(at + 4, size)
        at += 4 + size
        return text

    count = ctypes.c_int32.from_address(at).value
    at += 4
    return [(take(), take()) for _ in range(count)]


def form(expression: Any) -> bytes | None:
    """Return an expression in the form in which Arrow pickles it, the same for equal ones; None where it has none."""
    try:
        return bytes(expression.__reduce__()[1][0])
    except (pa.ArrowException, NotImplementedError, ValueError, TypeError):
        return None


def read(expression: Any) -> Any:
    """Read an expression of Arrow: a :class:`Call`, a :class:`Field`, or a scalar.

    A NotUnderstoodError says that Arrow has no form for it, as for a column by its number.
    """
    try:
        (buffer,) = expression.__reduce__()[1]
        file = pa.ipc.open_file(buffer)
        values = file.get_batch(0) if file.num_record_batches else None
    except (pa.ArrowException, NotImplementedError, ValueError, TypeError) as error:
        raise NotUnderstoodError(str(error)) from None
    pairs = _pairs(file.schema)

    def scalar(number: bytes) -> Any:
        assert values is not None
        return values.column(int(number))[0]

    def one(at: int) -> tuple[Any, int]:
        key, value = pairs[at]
        if key == b"literal":
            return scalar(value), at + 1
        if key == b"field_ref":
            return Field(value.decode()), at + 1
        if key != b"call":
            raise NotUnderstoodError(key.decode())
        made = Call(value.decode(), [])
        at += 1
        while pairs[at][0] != b"end":
            if pairs[at][0] == b"options":
                options = scalar(pairs[at][1])
                made.options = {name: options[name] for name in options.type.names if name}
                at += 1
            else:
                argument, at = one(at)
                made.arguments.append(argument)
        return made, at + 1

    try:
        found, end = one(0)
    except (IndexError, RecursionError, UnicodeDecodeError) as error:
        raise NotUnderstoodError(str(error)) from None
    if end != len(pairs):
        raise NotUnderstoodError("an expression with something behind it")
    return found


# --- as a test --------------------------------------------------------------------------------------------------------


def of_arrow(expression: Any, schema: Any) -> tuple[Test | None, bool]:
    """Return the part of a filter that is a test of rows, and whether that is all of it.

    Parameters
    ----------
    expression : pyarrow.compute.Expression
        The filter.
    schema : pyarrow.Schema
        Names and types of the columns.
    """
    try:
        found = read(expression)
    except NotUnderstoodError:
        return None, False
    return test_of(found, schema)


def test_of(found: Any, schema: Any) -> tuple[Test | None, bool]:
    """Return the part of an expression that was read that is a test, and whether that is all of it."""
    kept: list[Tree] = []
    whole = True
    parts = [found]
    while parts:
        part = parts.pop()
        if isinstance(part, Call) and part.name == "and_kleene":
            parts += reversed(part.arguments)
            continue
        try:
            tree = _truth(part, schema)
            expression_of(Test(tree), schema)
        except (NotUnderstoodError, InvalidError, NotFoundError, pa.ArrowException, RecursionError):
            whole = False
        else:
            kept.append(tree)
    if not kept:
        return None, False
    return Test(kept[0] if len(kept) == 1 else ("and", *kept)), whole


test_of.__test__ = False  # type: ignore[attr-defined]  # not one of pytest's


def _truth(part: Any, schema: Any) -> Tree:
    if isinstance(part, pa.Scalar):
        if not pa.types.is_boolean(part.type) or not part.is_valid:
            raise NotUnderstoodError(str(part))
        return ("true",) if part.as_py() else ("not", ("true",))
    if isinstance(part, Field):
        if kind_of(_type(part.name, schema)).family != "truth":
            raise NotUnderstoodError(part.name)
        return "is", part.name
    name, given = part.name, part.arguments
    if name in ("and_kleene", "or_kleene"):
        return name.removesuffix("_kleene"), *(_truth(one, schema) for one in given)
    if name == "invert":
        return "not", _truth(given[0], schema)
    if name in _COMPARED:
        return _comparison(_COMPARED[name], given, schema)
    if name == "if_else":
        return _given(given, schema)
    column = given[0]
    while isinstance(column, Call) and column.name == "cast":
        column = _cast(column, schema)
    if not isinstance(column, Field):
        raise NotUnderstoodError(name)
    kind = kind_of(_type(column.name, schema))
    if name in ("is_null", "is_valid"):
        if name == "is_null" and part.options and part.options["nan_is_null"].as_py() and kind.family == "float":
            raise NotUnderstoodError(name)
        return name.removeprefix("is_"), column.name
    if name == "is_nan":
        return "!=", column.name, ("col", column.name)
    if name in _CHARACTERS and part.options and not part.options["ignore_case"].as_py():
        return _CHARACTERS[name], column.name, part.options["pattern"].as_py()
    if name == "is_in" and part.options:
        return _one_of(column.name, kind.family, part.options)
    raise NotUnderstoodError(name)


def _type(name: str, schema: Any) -> Any:
    if schema.names.count(name) != 1:
        raise NotUnderstoodError(name)
    return schema.field(name).type


def _given(given: list[Any], schema: Any) -> Tree:
    """Read ``if_else(is_valid(x), test, null[bool])``."""
    asked, test, missing = given
    is_valid = isinstance(asked, Call) and asked.name == "is_valid" and isinstance(asked.arguments[0], Field)
    if not is_valid or not isinstance(missing, pa.Scalar) or missing.is_valid:
        raise NotUnderstoodError("if_else")
    return "given", asked.arguments[0].name, _truth(test, schema)


def _one_of(name: str, family: str, options: dict[str, Any]) -> Tree:
    given = options["value_set"]
    found = list(given.values if isinstance(given, pa.ListScalar) else given)
    values = tuple(one for one in found if one.is_valid)
    has_null, matching = len(values) < len(found), options["null_matching_behavior"].as_py()
    # Arrow finds NaN in a set that has one, and no zero of another sign.
    unlike = family == "float" and any(one.as_py() != one.as_py() or one.as_py() == 0 for one in values)
    if matching not in (_MATCH, _SKIP, _EMIT) or unlike or (matching == _EMIT and has_null):
        raise NotUnderstoodError("is_in")
    tree = ("in", name, tuple(map(_plain, values)))
    if matching == _EMIT:
        return tree
    return ("or", ("null", name), tree) if has_null and matching == _MATCH else ("and", ("valid", name), tree)


def _comparison(op: str, given: list[Any], schema: Any) -> Tree:
    if isinstance(given[0], pa.Scalar):
        op, given = _TURNED[op], given[::-1]
    left, right = (_value(one, schema) for one in given)
    if left[0] == "value" or (right[0] == "value" and not right[1].is_valid):
        raise NotUnderstoodError(op)
    decimals, floats = (any(found(one, schema) for one in (left, right)) for found in (_has_decimal, _has_float))
    if decimals and floats and not (left[0] == "col" and right[0] == "value" and _survives(left, right[1], schema)):
        raise NotUnderstoodError(op)
    return op, left[1] if left[0] == "col" else left, _plain(right[1]) if right[0] == "value" else right


def _plain(value: Any) -> Any:
    """Return a scalar as Python has it; one that Python does not have stays."""
    if pa.types.is_temporal(value.type) and getattr(value.type, "unit", None) == "ns":
        return value
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return value


def _survives(left: Tree, value: Any, schema: Any) -> bool:
    """Tell whether a decimal column is compared with a float as with the decimal that it is written as."""
    if not pa.types.is_floating(value.type):  # the column has the floats
        return False
    found = Decimal(repr(value.as_py()))
    digits = len(found.normalize().as_tuple().digits) if found.is_finite() else _FLOAT_DIGITS + 1
    return value_type(_type(left[1], schema)).precision <= _FLOAT_DIGITS and digits <= _FLOAT_DIGITS


def _leaves(tree: Tree, schema: Any) -> list[Any]:
    """Return the types of all that a value is computed of."""
    if tree[0] == "col":
        return [value_type(_type(tree[1], schema))]
    if tree[0] == "value":
        return [tree[1].type]
    return [kind for part in tree[1:] for kind in _leaves(part, schema)]


def _has_decimal(tree: Tree, schema: Any) -> bool:
    return any(pa.types.is_decimal(kind) for kind in _leaves(tree, schema))


def _has_float(tree: Tree, schema: Any) -> bool:
    return any(pa.types.is_floating(kind) for kind in _leaves(tree, schema))


def _value(part: Any, schema: Any) -> Tree:
    if isinstance(part, pa.Scalar):
        return "value", part
    if isinstance(part, Field):
        _type(part.name, schema)
        return "col", part.name
    if part.name == "cast":
        return _value(_cast(part, schema), schema)
    name = part.name.removesuffix("_checked")
    parts = [_value(one, schema) for one in part.arguments]
    kinds = [kind for one in parts for kind in _leaves(one, schema)]
    if any(not (pa.types.is_integer(k) or pa.types.is_decimal(k) or pa.types.is_floating(k)) for k in kinds):
        raise NotUnderstoodError(part.name)
    floats = any(map(pa.types.is_floating, kinds))
    # Arrow computes floats of 32 bits in 32 bits; integers without a check wrap around; others than floats it divides
    # without a fraction.
    if floats and any(pa.types.is_decimal(kind) for kind in kinds):
        raise NotUnderstoodError(part.name)
    if any(pa.types.is_floating(kind) and kind.bit_width < 64 for kind in kinds):  # noqa: PLR2004
        raise NotUnderstoodError(part.name)
    wraps = part.name == name and all(map(pa.types.is_integer, kinds))
    if wraps or (floats and not any(_is_double(one, schema) for one in parts)) or (name == "divide" and not floats):
        raise NotUnderstoodError(part.name)
    if any(one[0] == "value" and not one[1].is_valid for one in parts):
        raise NotUnderstoodError(part.name)
    if name == "negate":
        return "negative", parts[0]
    if name not in _ARITHMETIC:
        raise NotUnderstoodError(part.name)
    return _ARITHMETIC[name], *parts


def _is_double(tree: Tree, schema: Any) -> bool:
    """Tell whether Arrow has a value as float64, whatever is beside it: constants may be of fewer bits there."""
    return tree[0] != "value" and _has_float(tree, schema)


def _cast(part: Call, schema: Any) -> Any:
    """Return what is cast, if a comparison with the result is one with that."""
    (inner,) = part.arguments
    to = part.options["to_type"].type if part.options else None
    if not isinstance(inner, Field) or to is None:
        raise NotUnderstoodError("cast")
    kind = value_type(_type(inner.name, schema))
    one, other = kind_of(kind), kind_of(to)
    if one.family == other.family and one.is_whole:
        # Each value is one of the other type, too.
        factor = one.unit / other.unit
        fits = factor.denominator == 1 and other.low <= one.low * factor and one.high * factor <= other.high
        if fits or (one.family in ("moment", "instant", "span") and factor.denominator == 1):
            return inner
    elif one.family == other.family == "float":
        if kind.bit_width <= to.bit_width:
            return inner
    elif one.family == other.family and one.family in ("text", "bytes", "truth"):
        if not pa.types.is_fixed_size_binary(to):
            return inner
    elif one.family == "number" and one.unit == 1 and to == pa.float64() and one.high <= _FLOAT_WHOLE:
        return inner
    raise NotUnderstoodError("cast")
