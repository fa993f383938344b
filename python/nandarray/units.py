"""Sizes and numbers as text: the one place that reads and writes them for the command line, notebooks and the lab."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any, TypeGuard

import numpy as np

from nandarray import _nandarray
from nandarray.errors import InvalidError

__all__ = ["UNITS", "count", "format_number", "format_size", "is_number", "parse_size", "scaled"]

#: Units by kind of quantity, with their factors, as device descriptions have them: times in ps, sizes in bytes, rates
#: in bytes a second, energies in pJ, energies a byte in pJ/B, powers in uW.
UNITS = {kind: dict(units) for kind, units in _nandarray.device_units()}
#: Bytes of each unit of size, in lower case: the words of the command line are compared without regard to case.
_WORDS = {unit.lower(): int(factor) for unit, factor in UNITS["size"].items()}
_WORDS |= {"": 1} | {prefix: 1024**power for power, prefix in enumerate("kmgt", 1)}
_SIZE = re.compile(r"\s*(\d[\d_]*(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")
#: Characters of a size, at most: Python refuses to read numbers of thousands of digits.
_SIZE_TEXT_MAX = 100
_PREFIXES = tuple((10.0**power, prefix) for power, prefix in zip(range(18, -15, -3), "EPTGMk munp", strict=True))
_DIGITS = 4
_FIXED = (1e-4, 1e15)  # magnitudes that are written without an exponent


def parse_size(value: object, what: str = "") -> int:
    """Read a number of bytes, such as ``4096``, ``"256MiB"``, ``"1.5 GB"`` or ``"2k"`` (2048).

    A value that is no size in whole bytes is an InvalidError, which names it ``what``.

    >>> from nandarray.units import parse_size
    >>> parse_size("256MiB"), parse_size("1.5 GB"), parse_size(4096)
    (268435456, 1500000000, 4096)
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return int(value)
    found = _SIZE.fullmatch(value) if isinstance(value, str) and len(value) <= _SIZE_TEXT_MAX else None
    factor = _WORDS.get(found[2].lower()) if found else None
    if found is not None and factor is not None:
        size = Fraction(found[1].replace("_", "")) * factor  # exact: 4.1 GB is a whole number of bytes, in floats not
        if size.denominator == 1:
            return size.numerator
    raise InvalidError(f"{what}{': ' if what else ''}a size must be like 4096, '256MiB' or '2 GB', not {value!r}")


def format_size(size: float) -> str:
    """Write a number of bytes with a binary unit, to about three digits.

    >>> from nandarray.units import format_size
    >>> format_size(1536), format_size(1000), format_size(48 << 20), format_size(2**80)
    ('1.5 KiB', '1000 B', '48 MiB', '1 YiB')
    """
    power = 0
    if isinstance(size, int):  # exact, whatever the magnitude
        power = min(max(0, (abs(size).bit_length() - 1) // 10), len(_BINARY) - 1)
        if abs(size) >= 1024 ** len(_BINARY):
            return f"2^{abs(size).bit_length() - 1} B"
        size = size / 1024**power
    # A number that rounds to 1024 becomes 1 of the next unit.
    while abs(size) >= 1023.5 and power < len(_BINARY) - 1 and math.isfinite(size):  # noqa: PLR2004
        size, power = size / 1024, power + 1
    text = f"{size:.0f}" if abs(size) >= 100 or not power else f"{size:.1f}".removesuffix(".0")  # noqa: PLR2004
    return f"{text} {_BINARY[power]}"


def scaled(number: float, unit: str) -> str:
    """Write a number with three digits and a decimal prefix.

    >>> from nandarray.units import scaled
    >>> scaled(1_923_456_789, "B/s"), scaled(0.00123, "J"), scaled(0, "W")
    ('1.92 GB/s', '1.23 mJ', '0 W')
    """
    if number == 0:
        return f"0 {unit}"
    if not math.isfinite(number):
        return f"{format_number(float(number))} {unit}"
    # A number that rounds to 1000 becomes 1 of the next prefix.
    factor, prefix = next((p for p in _PREFIXES if abs(number) >= p[0] * 0.9995), _PREFIXES[-1])
    return f"{number / factor:.3g} {prefix.strip()}{unit}"


def format_number(value: Any) -> str:
    """Write a value for a table: numbers to four digits, integers in full, a dash for None and NaN.

    >>> from nandarray.units import format_number
    >>> format_number(1234567), format_number(0.0314159), format_number(2.0), format_number(6.02214e23)
    ('1,234,567', '0.03142', '2', '6.022e+23')
    >>> format_number(None), format_number(True), format_number("word")
    ('-', 'yes', 'word')
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    if value == 0:
        return "0"
    if not _FIXED[0] <= abs(value) < _FIXED[1]:
        return f"{value:.{_DIGITS - 1}e}"
    text = f"{value:,.{max(0, _DIGITS - 1 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def is_number(value: Any) -> TypeGuard[int | float]:
    """Return whether a value is a number, which a truth value is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def count(number: int, thing: str) -> str:
    """Write "1 array", "2 arrays"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
