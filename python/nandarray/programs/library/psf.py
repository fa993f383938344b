"""Definitions of the program ``psf`` from a description: kinds of fields, columns to keep, and a test of lines.

A test is a tree of tuples: ``("and", test, ...)``, ``("or", test, ...)``, ``("not", test)``; ``(op, field, value)``
with one of ``<``, ``<=``, ``>``, ``>=``, ``==``, ``!=``; ``("in", field, (value, ...))``; and of characters
``("begins", field, text)``, ``("ends", field, text)``, ``("holds", field, text)``. Fields are numbers of columns.
Values are integers as rows have them (decimals scaled, dates as days since 1970-01-01), or bytes.

A test that is a conjunction is taken apart: each part is decided behind the last field that it needs, so that a line
that fails early is not read to its end. Characters become numbers in the C source, so no text can end up as code.

Where values may be missing (``null``), a test is true, false or neither, as in SQL: two expressions of C say whether it
is true and whether it is false, and "not" exchanges them. ``("valid", field)`` asks whether a value is there;
``("given", field, test)`` is neither where it is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nandarray.errors import InvalidError

__all__ = ["DIGITS", "FIELDS_MAX", "Field", "conjuncts", "field", "needed", "psf_", "tuple_dtype"]

FIELDS_MAX = 64
_TEXT_MAX = 1 << 12
_KIND = re.compile(r"(skip|date|int|int32)|decimal(32_)?(\d+)|bytes(\d+)")
#: Digits of an integer, at most, by its bytes.
DIGITS = {4: 9, 8: 18}
_SMALL_BITS = 32
SPELLINGS_MAX, SPELLING_MAX = 16, 64
_COMPARE = {"<", "<=", ">", ">=", "==", "!="}
_NO_DELIMITER = b"\r\n-.0123456789"
_WORDS = {"begins": "BEGINS", "ends": "FINISHES", "holds": "HOLDS"}

Test = tuple[Any, ...]


class Field(NamedTuple):
    """A kind of field: its name in C, its bytes in a row, its decimal places."""

    kind: str
    bytes: int
    places: int


def field(text: str) -> Field:
    """Read a kind: ``skip``, ``int``, ``int32``, ``decimalN``, ``decimal32_N``, ``date`` or ``bytesN``.

    Another one is an InvalidError.
    """
    found = _KIND.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidError(
            f"psf: {text!r} is no kind of field; "
            "there is skip, int, int32, date, decimal2, decimal32_2, bytes16 and so on"
        )
    plain, small, places, room = found.groups()
    if plain is not None:
        return Field(*{"skip": ("SKIP", 0, 0), "date": ("DATE", 4, 0), "int": ("INT", 8, 0)}.get(plain, ("INT", 4, 0)))
    if room is not None:
        if not 0 < int(room) <= _TEXT_MAX or int(room) % 4:
            raise InvalidError(f"psf: the size of {text!r} must be a multiple of 4, from 4 to {_TEXT_MAX}")
        return Field("TEXT_FIELD", int(room), 0)
    size = 4 if small else 8
    if int(places) >= DIGITS[size]:
        raise InvalidError(f"psf: {text!r} has no digit before its point; a {size}-byte decimal has {DIGITS[size]}")
    return Field("DECIMAL", size, int(places))


def tuple_dtype(fields: Sequence[str], columns: Sequence[int], *, null: bool = False) -> np.dtype[Any]:
    """Return the dtype of rows: ``c`` and its number for each column, in the order of the line, without gaps.

    Where values may be missing, a word ``valid`` is behind them: bit n says whether that of field n is there.
    """
    made = []
    for number in sorted(set(columns)):
        one = field(fields[number])
        made.append((f"c{number}", f"S{one.bytes}" if one.kind == "TEXT_FIELD" else f"int{8 * one.bytes}"))
    if null:
        made.append(("valid", "uint32" if max(columns) < _SMALL_BITS else "uint64"))
    return np.dtype(made)


def conjuncts(where: Test) -> Iterator[Test]:
    """Take a test apart at its outer ``and``."""
    if where and where[0] == "and":
        for part in where[1:]:
            yield from conjuncts(part)
    elif where:
        yield where


def needed(where: Test) -> set[int]:
    """Return the numbers of the fields that a test asks for."""
    if not where:
        return set()
    if where[0] in ("and", "or", "not"):
        return set().union(*(needed(part) for part in where[1:]))
    if where[0] == "given":
        return {int(where[1])} | needed(where[2])
    return {int(where[1])}


def psf_(_dtype: np.dtype[Any] | None, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definitions of the C preprocessor for a description."""
    fields, columns, where = values["fields"], sorted(set(values["columns"])), tuple(values["where"])
    if not 1 <= len(fields) <= FIELDS_MAX:
        raise InvalidError(f"psf: fields must be from 1 to {FIELDS_MAX}, not {len(fields)}")
    kinds = [field(one) for one in fields]
    used = needed(where) | set(columns)
    for number in used:
        if not 0 <= number < len(kinds):
            raise InvalidError(f"psf: a field must be from 0 to {len(kinds) - 1}, not {number}")
        if kinds[number].kind == "SKIP":
            raise InvalidError(f"psf: field {number} is passed over; it cannot be kept or tested")
    if not columns:
        raise InvalidError("psf: at least one column must be kept")
    delimiter, quote, line_bytes = values["delimiter"], values["quote"], values["line_bytes"]
    if delimiter in _NO_DELIMITER:
        raise InvalidError(f"psf: the delimiter must be no end of a line and in no number, not {bytes([delimiter])!r}")
    if quote and (quote in _NO_DELIMITER or quote == delimiter):
        raise InvalidError(f"psf: the quote must be no delimiter and in no number, not {bytes([quote])!r}")
    spellings = _spellings(values["null"], delimiter, quote)
    if values["quoted_ends"] and not quote:
        raise InvalidError("psf: quoted_ends must be 0 where there is no quote")
    if values["listing"] and (quote or spellings):
        raise InvalidError("psf: listing must be 0 with quote and null: both look ahead, which needs the stream's end")
    tests: dict[int, list[str]] = {}
    for part in conjuncts(where):
        made = _decided(part, kinds, wanted=True) if spellings else _expression(part, kinds)
        tests.setdefault(max(needed(part)), []).append(made)
    shown, listed, text_bytes, shortest = [], [], 0, 1
    for number in range(max(used) + 1):
        kind = kinds[number] if number in used else Field("SKIP", 0, 0)
        is_text = kind.kind == "TEXT_FIELD"
        at, kept = text_bytes if is_text else 0, int(number in columns)
        listed.append(f"{{{kind.kind}, {kind.bytes}, {kind.places}, {at}, {kept}}}")
        text_bytes += kind.bytes + 4 if is_text else 0
        least = {"SKIP": 0, "TEXT_FIELD": 0, "DATE": 10}.get(kind.kind, 1)
        shortest += min([least, *map(len, spellings)]) + (number > 0)
    row = tuple_dtype(fields, columns, null=bool(spellings))
    for name in row.names or ():
        shown.append([name, row[name].str.lstrip("<|") if row[name].kind == "S" else row[name].name])
    more: dict[str, Any] = {}
    if quote:
        more |= {"QUOTE": quote, "QUOTED_ENDS": values["quoted_ends"]}
    if spellings:
        words = (f"SPELT({len(one)}, {', '.join(map(str, one)) or '0'})" for one in spellings)
        kept = sum(1 << number for number in columns)
        more |= {"SPELLINGS": " ".join(words), "VALID_BYTES": row["valid"].itemsize, "KEPT": f"UINT64_C({kept})"}
    return more | {
        "FIELDS": ", ".join(listed),
        "TESTS": " ".join(f"case {at}: return {' && '.join(parts)};" for at, parts in sorted(tests.items())),
        "ROW_BYTES": row.itemsize,
        "ROW_BYTES_A_BYTE": row.itemsize / shortest,
        "ROW_DTYPE": json.dumps(shown),
        "DELIMITER": delimiter,
        "LINE_BYTES": line_bytes,
        "TEXT_BYTES": text_bytes,
        "LISTING": values["listing"],
    }


def _spellings(null: Any, delimiter: int, quote: int) -> tuple[bytes, ...]:
    """Check what missing values are written as."""
    found = tuple(null)
    if len(found) > SPELLINGS_MAX or len(set(found)) < len(found):
        raise InvalidError(
            f"psf: null must be at most {SPELLINGS_MAX} different spellings, not {len(found)}: {found!r}"
        )
    ends = {delimiter, quote, *b"\r\n"}
    for one in found:
        if not isinstance(one, bytes) or len(one) > SPELLING_MAX or ends & set(one):
            raise InvalidError(
                f"psf: a spelling of null must be at most {SPELLING_MAX} bytes without delimiter, quote and end of a "
                f"line, not {one!r}"
            )
    return found


def _decided(where: Test, kinds: Sequence[Field], *, wanted: bool) -> str:
    """Write in C whether a test is true, or whether it is false; a comparison with a missing value is neither."""
    op, *rest = where
    if op == "not" and len(rest) == 1:
        return _decided(rest[0], kinds, wanted=not wanted)
    if op in ("and", "or") and rest:
        every = (op == "and") == wanted
        return "(" + (" && " if every else " || ").join(_decided(part, kinds, wanted=wanted) for part in rest) + ")"
    if op == "valid" and len(rest) == 1:
        return f"{'' if wanted else '!'}VALID({rest[0]})"
    if op == "given" and len(rest) == 2:  # noqa: PLR2004
        return f"(VALID({rest[0]}) && {_decided(rest[1], kinds, wanted=wanted)})"
    return f"(VALID({rest[0]}) && {'' if wanted else '!'}{_expression(where, kinds)})"


def _expression(where: Test, kinds: Sequence[Field]) -> str:
    """Write a test in C."""
    op, *rest = where
    if op == "not" and len(rest) == 1:
        return f"!{_expression(rest[0], kinds)}"
    if op in ("and", "or") and rest:
        return "(" + (" && " if op == "and" else " || ").join(_expression(part, kinds) for part in rest) + ")"
    if len(rest) != 2:  # noqa: PLR2004
        raise InvalidError(f"psf: {where!r} is no test")
    number, value = rest
    kind = kinds[number]
    if op == "in":
        return "(" + (" || ".join(_expression(("==", number, one), kinds) for one in value) or "0") + ")"
    if kind.kind == "TEXT_FIELD":
        return _of_text(op, number, value)
    if op not in _COMPARE or isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidError(f"psf: {where!r} is no test of a number; there is {', '.join(sorted(_COMPARE))} and in")
    if not -(2**63) <= value < 2**63:
        raise InvalidError(f"psf: a number must fit 64 bits, not {value}")
    fits = kind.bytes == 4 and bool(-(2**31) <= value < 2**31)  # noqa: PLR2004
    return f"({'SMALL' if fits else 'NUMBER'}({number}) {op} {_literal(int(value), small=fits)})"


def _literal(value: int, *, small: bool) -> str:
    if small:
        return str(value) if value > -(2**31) else "INT32_MIN"
    return f"INT64_C({value})" if value > -(2**63) else "INT64_MIN"


def _of_text(op: str, number: int, value: Any) -> str:
    if not isinstance(value, bytes) or op not in {"==", "!=", *_WORDS}:
        raise InvalidError(
            f"psf: {(op, number, value)!r} is no test of characters; there is ==, !=, in, {', '.join(_WORDS)}, of bytes"
        )
    words = ", ".join(map(str, value)) or "0"
    made = f"{_WORDS.get(op, 'IS')}({number}, {len(value)}, {words})"
    return f"!{made}" if op == "!=" else made
