"""Definitions of the programs ``rows`` and ``rows_fold``: dtypes of arrays and scalars, and a test of their elements.

A test is a tree of tuples: ``("and", test, ...)``, ``("or", test, ...)``, ``("not", test)``, ``("true",)``;
``("flag", number)`` of an array of booleans; ``(op, value, value)`` with one of ``<``, ``<=``, ``>``, ``>=``, ``==``,
``!=``; ``("within", value, ((first, last), ...))`` for ranges of integers; ``("among", value, number)`` for one of the
sorted values of a whole array, ``("listed", value, number)`` for a code whose byte in a whole array is 1.

A value is ``("input", number)``, or ``("input", number, low, high)`` where it is known to be from low to high;
``("scalar", number)``; ``("const", number)``; ``("+", a, b)``, ``("-", a, b)``, ``("*", a, b)``, ``("/", a, b)``,
``("negative", a)``, or ``("float", a)`` for its float64.

Folds of ``rows_fold`` are ``("count", test)``, ``("sum", test, value)``, ``("min", test, value)``, ``("max", test,
value)``, each over the elements for which both tests are true.

Arithmetic of integers is exact: each value has a range, from which follows how many bits C computes it with; one that
does not fit 128 bits is refused. Where one side is a float, both are float64, and so is every quotient. Missing values
are the caller's: booleans beside the values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nandarray.errors import InvalidError

__all__ = ["COMPARISONS", "Typed", "cost", "folds_", "rows_", "typed", "written"]

INPUTS_MAX, SCALARS_MAX = 8, 16
COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}
_ARITHMETIC = {"+", "-", "*", "/"}
_WORD = 64
_WHOLE = 128
#: Integers of that many bits.
_LIMBS = np.dtype("V16")

Test = tuple[Any, ...]


class Typed(NamedTuple):
    """A value in C: its expression, its type there, and its range if it is an integer."""

    code: str
    type: str
    low: int = 0
    high: int = 0

    @property
    def is_float(self) -> bool:
        """Whether it is a float."""
        return self.type in ("float", "double")


def _range(dtype: np.dtype[Any]) -> tuple[int, int]:
    bits = 8 * dtype.itemsize
    if dtype.kind in "ub":
        return 0, 1 if dtype.kind == "b" else 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _type(dtype: np.dtype[Any]) -> str:
    """Give the type in C of an element; moments and spans of time are 64-bit integers, float16 are bits.

    Sixteen bytes are an integer of two limbs, the lower one first, as Arrow has decimals.
    """
    if dtype.kind == "f" and dtype.itemsize <= 8:  # noqa: PLR2004
        return {2: "uint16_t", 4: "float", 8: "double"}[dtype.itemsize]
    if dtype.kind in "iubmM" and dtype.isnative:
        return f"{'u' if dtype.kind in 'ub' else ''}int{8 * dtype.itemsize}_t"
    if dtype == _LIMBS:
        return "limbs"
    raise InvalidError(
        f"rows: elements must be booleans, integers, floats or times of this machine, or integers of 16 bytes (V16), "
        f"not {dtype}"
    )


def _holding(low: int, high: int) -> str:
    """Give the type in C that holds integers of a range, one of 32 bits at least."""
    for bits in (32, _WORD):
        if -(2 ** (bits - 1)) <= low and high < 2 ** (bits - 1):
            return f"int{bits}_t"
    if low >= 0 and high < 2**_WORD:
        return "uint64_t"
    if low >= -(2 ** (_WHOLE - 1)) and high < 2 ** (_WHOLE - 1):
        return "__int128"
    raise InvalidError("rows: a value of the test does not fit 128 bits")


def typed(value: Test, inputs: Sequence[np.dtype[Any]], scalars: Sequence[np.dtype[Any]]) -> Typed:
    """Write a value in C; an InvalidError says that it is none, or does not fit."""
    op, *rest = value
    if op in ("input", "scalar") and rest:
        known = inputs if op == "input" else scalars
        if not isinstance(rest[0], int) or not 0 <= rest[0] < len(known):
            raise InvalidError(f"rows: there is no {op} {rest[0]!r}; there are {len(known)}")
        dtype = known[rest[0]]
        code = f"x{rest[0]}[i]" if op == "input" else f"s{rest[0]}"
        if dtype.kind == "f":
            made = _type(dtype)
            return Typed(f"half({code})", "float") if made == "uint16_t" else Typed(code, made)
        low, high = _range(dtype)
        if len(rest) > 1:
            low, high = max(low, rest[1]), min(high, rest[2])
        return (
            Typed(f"(__int128){code}", "__int128", low, high)
            if dtype == _LIMBS
            else Typed(code, _type(dtype), low, high)
        )
    if op == "const":
        return _constant(rest[0])
    if op == "float":
        return _as_float(typed(rest[0], inputs, scalars))
    if op == "negative":
        one = typed(rest[0], inputs, scalars)
        if one.is_float:
            return Typed(f"(-{one.code})", one.type)
        made = _holding(min(one.low, -one.high), max(one.high, -one.low))
        return Typed(f"(-({made}){one.code})", made, -one.high, -one.low)
    if op in _ARITHMETIC:
        return _operation(op, *(typed(part, inputs, scalars) for part in rest))
    raise InvalidError(f"rows: {value!r} is no value")


def _constant(value: Any) -> Typed:
    if isinstance(value, float):
        return Typed(f"({value.hex()})" if math.isfinite(value) else _infinite(value), "double")
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidError(f"rows: {value!r} is no number")
    made = _holding(value, value)
    if made == "__int128":
        upper, lower = divmod(value, 2**_WORD)
        word = f"(__int128)INT64_C({upper})" if upper > -(2**63) else "(__int128)INT64_MIN"
        return Typed(f"({word} * 2 * INT64_C({2**62}) * 2 + UINT64_C({lower}))", made, value, value)
    if made == "uint64_t":
        return Typed(f"UINT64_C({value})", made, value, value)
    small = {-(2**31): "INT32_MIN", -(2**63): "INT64_MIN"}.get(value)
    return Typed(small or (f"({value})" if made == "int32_t" else f"INT64_C({value})"), made, value, value)


def _infinite(value: float) -> str:
    return '__builtin_nan("")' if math.isnan(value) else f"({'-' if value < 0 else ''}__builtin_inf())"


def _as_float(one: Typed) -> Typed:
    if one.type == "__int128":
        raise InvalidError("rows: an integer of more than 64 bits has no float64 beside the data")
    return one if one.type == "double" else Typed(f"(double){one.code}", "double")


def _operation(op: str, one: Typed, other: Typed) -> Typed:
    if op == "/" or one.is_float or other.is_float:
        left, right = _as_float(one), _as_float(other)
        return Typed(f"({left.code} {op} {right.code})", "double")
    if op == "*":
        ends = [a * b for a in (one.low, one.high) for b in (other.low, other.high)]
        low, high = min(ends), max(ends)
    elif op == "+":
        low, high = one.low + other.low, one.high + other.high
    else:
        low, high = one.low - other.high, one.high - other.low
    made = _holding(min(low, one.low, other.low), max(high, one.high, other.high))
    return Typed(f"(({made}){one.code} {op} ({made}){other.code})", made, low, high)


def _compared(op: str, one: Typed, other: Typed) -> str:
    if one.is_float or other.is_float:
        if one.type != other.type:
            one, other = _as_float(one), _as_float(other)
        return f"({one.code} {op} {other.code})"
    if one.type == other.type:
        return f"({one.code} {op} {other.code})"
    made = _holding(min(one.low, other.low), max(one.high, other.high))
    return f"(({made}){one.code} {op} ({made}){other.code})"


def written(where: Test, inputs: Sequence[np.dtype[Any]], scalars: Sequence[np.dtype[Any]]) -> str:
    """Write a test in C: 0 or 1, without a branch."""
    op, *rest = where
    if op == "true":
        return "1"
    if op == "not":
        return f"!{written(rest[0], inputs, scalars)}"
    if op in ("and", "or"):
        joined = (" & " if op == "and" else " | ").join(written(part, inputs, scalars) for part in rest)
        return f"({joined})" if rest else str(int(op == "and"))
    if op == "flag":
        return f"({typed(('input', rest[0]), inputs, scalars).code} != 0)"
    if op in COMPARISONS:
        return _compared(op, *(typed(part, inputs, scalars) for part in rest))
    if op == "within":
        return _within(typed(rest[0], inputs, scalars), rest[1])
    if op in ("among", "listed"):
        one = typed(rest[0], inputs, scalars)
        if not 0 <= rest[1] < len(inputs):
            raise InvalidError(f"rows: there is no input {rest[1]!r}; there are {len(inputs)}")
        if op == "listed":
            return f"LISTED(x{rest[1]}, {one.code})"
        kind = {"f": "f64", "u": "u64"}.get(inputs[rest[1]].kind, "i64")
        return f"AMONG({kind}, x{rest[1]}, {one.code})"
    raise InvalidError(f"rows: {where!r} is no test")


def _within(one: Typed, ranges: Sequence[tuple[int, int]]) -> str:
    if one.is_float:
        raise InvalidError("rows: ranges must be of integers")
    parts = []
    for first, last in ranges:
        if first == last:
            parts.append(_compared("==", one, _constant(first)))
        else:
            parts.append(f"({_compared('>=', one, _constant(first))} & {_compared('<=', one, _constant(last))})")
    return f"({' | '.join(parts)})" if parts else "0"


def tables(where: Test) -> set[int]:
    """Return the numbers of the inputs that are tables."""
    op, *rest = where
    if op in ("and", "or", "not"):
        return set[int]().union(*(tables(part) for part in rest))
    return {rest[1]} if op in ("among", "listed") else set()


def cost(where: Test) -> int:
    """Count the comparisons of a test."""
    op, *rest = where
    if op in ("and", "or", "not"):
        return sum(cost(part) for part in rest)
    return len(rest[1]) if op == "within" else 1


def rows_(_dtype: np.dtype[Any] | None, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definitions of the C preprocessor for a description."""
    inputs = [np.dtype(one) for one in values["inputs"]]
    scalars = [np.dtype(one) for one in values["scalars"]]
    if not 1 <= len(inputs) <= INPUTS_MAX or len(scalars) > SCALARS_MAX:
        raise InvalidError(
            f"rows: inputs must be from 1 to {INPUTS_MAX}, scalars at most {SCALARS_MAX}, not {len(inputs)} and "
            f"{len(scalars)}"
        )
    where = values["where"]
    whole = tables(where)
    if 0 in whole:
        raise InvalidError("rows: the first input must be no table")
    ports, bound = [], []
    for number, dtype in enumerate(inputs):
        made, name = _type(dtype), f"x{number}"
        shown: dict[str, Any] = {"name": name, "dtype": dtype.str if dtype.kind in "mMV" else dtype.name}
        bound.append(f"const {made} *restrict {name} = ND_INPUT(args, {number}, {made});")
        if number in whole:
            shown["whole"] = True
            bound.append(f"const size_t {name}_count = ND_INPUT_COUNT(args, {number}, {made});")
        ports.append(json.dumps(shown))
    for number, dtype in enumerate(scalars):
        made = _type(dtype)
        reader = {"float": "nd_scalar_f32", "double": "nd_scalar_f64"}.get(made, "nd_scalar_u64")
        bound.append(f"const {made} s{number} = ({made}){reader}(args, {number});")
    return {
        "PORTS": ", ".join(ports),
        "SCALARS": ", ".join(json.dumps({"name": f"s{k}", "dtype": one.name}) for k, one in enumerate(scalars)),
        "BIND": " ".join(bound),
        "SIZE": _type(inputs[0]),
        "PASSES": written(where, inputs, scalars),
    }


FOLDS_MAX = 32
_CELL_BYTES, _RESULT_BYTES, _CHUNK = 608, 32, 1024
#: Bits of an integer that is summed, so that 2^32 of them have 128.
_SUMMED_BITS = 95
_ENDS = {"min": "<", "max": ">"}


def folds_(_dtype: np.dtype[Any] | None, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definitions of the C preprocessor for a description with folds."""
    inputs = [np.dtype(one) for one in values["inputs"]]
    scalars = [np.dtype(one) for one in values["scalars"]]
    folds = values["folds"]
    if not 1 <= len(folds) <= FOLDS_MAX:
        raise InvalidError(f"rows_fold: folds must be from 1 to {FOLDS_MAX}, not {len(folds)}")
    made, merged, summed = [], [], 0
    for number, fold in enumerate(folds):
        one, other, is_exact = _fold(number, fold, inputs, scalars)
        made.append(one)
        merged.append(other)
        summed |= is_exact << number
    return {
        **rows_(None, values),
        "FOLDS": " ".join(made),
        "MERGES": " ".join(merged),
        "FOLDS_COUNT": len(folds),
        "SUMMED": f"UINT64_C({summed})",
        "STATE_BYTES": _CELL_BYTES * len(folds),
        "RESULT_BYTES": _RESULT_BYTES * len(folds),
    }


def _fold(
    number: int, fold: Test, inputs: Sequence[np.dtype[Any]], scalars: Sequence[np.dtype[Any]]
) -> tuple[str, str, bool]:
    """Write a fold and its merging in C, and say whether it is a sum of floats."""
    op, guard = fold[0], written(fold[1], inputs, scalars)
    if op == "count":
        return f"FOLD_COUNT({number}, {guard})", f"MERGE_COUNT({number})", False
    one = typed(fold[2], inputs, scalars)
    if op == "sum":
        if one.is_float:
            return f"FOLD_FLOAT_SUM({number}, {guard}, {one.code})", f"MERGE_FLOAT_SUM({number})", True
        most = max(-one.low, one.high)
        if most >> _SUMMED_BITS:
            raise InvalidError(f"rows_fold: integers that are summed must have at most {_SUMMED_BITS} bits")
        wide = "int64_t" if most * _CHUNK < 2 ** (_WORD - 1) else "__int128"
        return f"FOLD_SUM({number}, {wide}, {guard}, {one.code})", f"MERGE_SUM({number})", False
    if op not in _ENDS:
        raise InvalidError(f"rows_fold: {op!r} is no fold; there is count, sum, min, max")
    if one.is_float:
        begins = "__builtin_inf()" if op == "min" else "-__builtin_inf()"
        folded = f"FOLD_FLOAT_END({number}, {guard}, {one.code}, {_ENDS[op]}, {begins})"
        return folded, f"MERGE_FLOAT_END({number}, {_ENDS[op]})", False
    begins = _constant(one.high if op == "min" else one.low).code
    kind = one.type if "128" in one.type or "64" in one.type else "int64_t"
    folded = f"FOLD_END({number}, {kind}, {guard}, {one.code}, {_ENDS[op]}, ({kind}){begins})"
    return folded, f"MERGE_END({number}, {_ENDS[op]})", False
