"""Twins of ``parse`` and ``psf``: lines of delimited text to rows of binary fields, with Python's own conversions."""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from nandarray.programs.library.psf import DIGITS, field, needed, tuple_dtype
from nandarray.programs.library.sizes import row_dtype

__all__ = ["parse", "psf"]

Array = np.ndarray[Any, Any]
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_FLOAT = re.compile(rb"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,4}))?")
_DIGITS_MAX = 19
_POWER_MAX = 22


def _integer(sign: bytes, digits: bytes) -> int | None:
    value = int(digits) * (-1 if sign == b"-" else 1)
    return value if -(2**63) <= value < 2**63 else None


def _decimal(text: bytes, places: int) -> int | None:
    found = re.fullmatch(rb"([+-]?)(\d*)(?:\.(\d*))?" if places else rb"([+-]?)(\d*)()", text)
    if found is None:
        return None
    sign, before, after = found.group(1), found.group(2), found.group(3) or b""
    if not before + after or len(after) > places or len(before) + places > _DIGITS_MAX:
        return None
    return _integer(sign, before + after.ljust(places, b"0"))


def _date(text: bytes) -> int | None:
    if re.fullmatch(rb"\d{4}-\d\d-\d\d", text) is None:
        return None
    year, month, day = map(int, text.split(b"-"))
    try:
        # Python has no year 0; 2000 has the same calendar, 2000 years and five times 146097 days later.
        if year == 0:
            return datetime.date(2000, month, day).toordinal() - _EPOCH - 5 * 146097
        return datetime.date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None


def _float(text: bytes) -> float | None:
    found = _FLOAT.fullmatch(text)
    if found is None:
        return None
    digits, after = found.group(2) + (found.group(3) or b""), len(found.group(3) or b"")
    power = int(found.group(4) or 0) - after
    if not digits or len(digits) > _DIGITS_MAX or int(digits) > 2**53:
        return None
    if int(digits) and abs(power) > _POWER_MAX:
        return None
    return float(text)


def _field(text: bytes, kind: str) -> tuple[Any, bool]:
    """Convert a field; the value, and whether it was well formed."""
    name = kind.rstrip("0123456789")
    size = int(kind[len(name) :] or 0)
    if name == "bytes":
        return text[:size], len(text) <= size
    value: float | None
    if name == "date":
        value = _date(text)
    elif name == "float":
        value = _float(text)
    else:
        value = _decimal(text, size)
    return (0, False) if value is None else (value, True)


def parse(text: Array, delimiter: int = ord(","), *, fields: Sequence[str]) -> tuple[Array]:
    r"""Parse lines that end with ``\n`` or ``\r\n``; the last one may not. Empty lines have no row.

    Kinds of the fields are as :func:`nandarray.programs.row_dtype` takes them. A row's field ``bad`` has a bit for each
    field that was missing or malformed.
    """
    if delimiter in b"\n\r":
        raise ValueError("a line's end cannot be the delimiter")
    rows: list[tuple[Any, ...]] = []
    for raw in text.tobytes().split(b"\n"):
        line = raw.removeprefix(b"\r").removesuffix(b"\r")
        if not line:
            continue
        parts = line.split(bytes([delimiter]))
        bad, row = 0, []
        for number, kind in enumerate(fields):
            value, well = b"" if kind.startswith("bytes") else 0, False
            if number < len(parts):
                value, well = (0, True) if kind == "skip" else _field(parts[number], kind)
            bad |= (not well) << number
            if kind != "skip":
                row.append(value)
        rows.append((bad, *row))
    return (np.array(rows, dtype=row_dtype(fields)),)


_DECIMAL = re.compile(rb"-?(\d+)(?:\.(\d*))?")


def _value(text: bytes, kind: str) -> int | bytes | None:
    """Read a field of ``psf``; None if it is malformed or too long."""
    name, size, places = field(kind)
    if name == "TEXT_FIELD":
        return text if len(text) <= size else None
    if name == "DATE":
        return _date(text)
    found = _DECIMAL.fullmatch(text)
    if found is None or (found.group(2) is not None and name == "INT"):
        return None
    whole, after = found.group(1), found.group(2) or b""
    if len(after) > places or len(whole) + places > DIGITS[size]:
        return None
    return int(whole + after.ljust(places, b"0")) * (-1 if text[:1] == b"-" else 1)


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "in": lambda value, values: value in values,
    "begins": bytes.startswith,
    "ends": bytes.endswith,
    "holds": operator.contains,
}


def _truth(where: tuple[Any, ...], values: dict[int, Any]) -> bool | None:
    """Decide a test as SQL does: a comparison with a missing value is neither true nor false."""
    if not where:
        return True
    op, *rest = where
    if op in ("and", "or"):
        parts = [_truth(part, values) for part in rest]
        ending = op == "or"
        return ending if ending in parts else None if None in parts else not ending
    if op == "not":
        inner = _truth(rest[0], values)
        return None if inner is None else not inner
    value = values[rest[0]]
    if op == "valid":
        return value is not None
    if op == "given":
        return None if value is None else _truth(rest[1], values)
    return None if value is None else _TESTS[op](value, rest[1])


def _lines(raw: bytes, delimiter: int, quote: int) -> Iterator[tuple[bytes, list[tuple[bytes, bool]]]]:
    """Take lines apart: each with its fields, and whether these were quoted."""
    between, around = (re.escape(bytes([one])) for one in (delimiter, quote or ord("\n")))
    quoted = rb"%b((?:[^%b]|%b%b)*)%b" % ((around,) * 5) if quote else rb"(?!)()"
    part = re.compile(rb"(?:%b|([^%b%b\n]*?))(\r?\n|%b)" % (quoted, between, around, between))
    begin = at = 0
    fields: list[tuple[bytes, bool]] = []
    while at < len(raw):
        found = part.match(raw, at)
        if found is None:
            raise ValueError(f"{raw[begin : begin + 60]!r} is no line of fields")
        inner, plain, end = found.groups()
        doubled = bytes([quote])
        fields.append((plain, False) if inner is None else (inner.replace(doubled * 2, doubled), True))
        at = found.end()
        if end.endswith(b"\n"):
            yield raw[begin:at], fields
            begin, fields = at, []


def psf(
    text: Array,
    *,
    fields: Sequence[str],
    columns: Sequence[int],
    where: tuple[Any, ...],
    delimiter: int,
    line_bytes: int,
    listing: int,
    quote: int,
    quoted_ends: int,
    null: Sequence[bytes],
) -> tuple[Array]:
    """Return the wanted fields of the lines that pass a test; all lines are checked as far as they are needed.

    ``fields`` are kinds, ``columns`` the numbers of those to keep; lines, each with its end, have ``line_bytes`` at
    most. ``listing`` and ``quoted_ends`` have no meaning here.
    """
    del listing, quoted_ends
    raw = text.tobytes()
    if raw and not raw.endswith(b"\n"):
        raise ValueError("the last line has no end")
    kept = sorted(set(columns))
    wanted = sorted(needed(where) | set(kept))
    dtype = tuple_dtype(fields, columns, null=bool(null))
    rows: list[tuple[Any, ...]] = []
    for line, parts in _lines(raw, delimiter, quote):
        if len(line) > line_bytes or len(parts) <= wanted[-1]:
            raise ValueError(f"{line!r} is too long, or has too few fields")
        values: dict[int, Any] = {}
        for number in wanted:
            part, is_quoted = parts[number]
            if not is_quoted and part in null:
                values[number] = None
                continue
            values[number] = _value(part, fields[number])
            if values[number] is None:
                raise ValueError(f"{line!r} is malformed")
        if _truth(where, values):
            filled = tuple(np.zeros((), dtype[f"c{n}"])[()] if values[n] is None else values[n] for n in kept)
            valid = sum(1 << n for n in kept if values[n] is not None)
            rows.append((*filled, valid) if null else filled)
    return (np.array(rows, dtype=dtype),)
