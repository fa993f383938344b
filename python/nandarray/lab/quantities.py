"""Quantities as descriptions write them: a number, a unit, and the ranges between two of them.

Only what sweeps need: the end points of a range, and numbers for the axes of tables. Whether a device takes a value is
the description's business; rates such as ``"PCIe 4 x4"`` and currents at a voltage are words here.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any, NamedTuple

from nandarray.errors import InvalidError
from nandarray.units import UNITS

__all__ = ["Quantity", "parse", "span"]

#: Suffix of a column -> units, each as a multiple of the column's unit.
_FAMILIES: dict[str, dict[str, float]] = {
    suffix: {unit: factor / scale for unit, factor in UNITS[kind].items()}
    for suffix, kind, scale in (
        ("_us", "time", 1e6),
        ("_bytes", "size", 1.0),
        ("_bytes_per_s", "rate", 1.0),
        ("_uj", "energy", 1e6),
        ("_pj_per_byte", "energy_per_byte", 1.0),
        ("_mw", "power", 1e3),
    )
} | {"": {"%": 0.01, "": 1.0}}
_TEXT = re.compile(r"\s*([-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*((?:[^\W\d_]|[%/])*)\s*")
_POINTS_MAX = 100_000
#: Numbers of more than twelve digits, and those that a float does not tell from their neighbours.
_DIGITS_END, _WHOLE_END = 1e12, 2.0**63


class Quantity(NamedTuple):
    """A number with a unit, both as written (no unit: empty).

    A column's name of such quantities ends in ``suffix``; ``scaled`` is the number in that column's unit.
    """

    number: float
    unit: str
    suffix: str
    scaled: float


def parse(value: Any) -> Quantity | None:
    """Read a quantity; None if it is none: a word, a list, a truth value, an infinity.

    >>> from nandarray.lab.quantities import parse
    >>> parse("20 us"), parse("PCIe 4 x4")
    (Quantity(number=20.0, unit='us', suffix='_us', scaled=20.0), None)
    >>> parse("4 KiB").scaled, parse("7 %").scaled
    (4096.0, 0.07)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        number = _float(value)
        return Quantity(number, "", "", number) if math.isfinite(number) else None
    found = _TEXT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    number, unit = float(found[1].replace("_", "")), found[2]
    for suffix, units in _FAMILIES.items():
        if unit in units:
            # Divided where that is exact: 7 / 100, not 7 x 0.01.
            factor = units[unit]
            scaled = number * factor if factor >= 1 else number / round(1 / factor)
            return Quantity(number, unit, suffix, scaled) if math.isfinite(scaled) else None
    return None


def _float(value: float) -> float:
    """Return a number as a float; infinity if it is an integer too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def span(about: dict[str, Any], what: str) -> list[Any]:
    """Return the values of a range, which ``what`` names in errors, as numbers or as texts in the unit of ``from``.

    It has ``from``, ``to``, and either ``steps`` (how many values) with ``scale`` ("linear" or "log"), or ``step`` (the
    distance): numbers, or texts with a unit of the same kind. Whole ends without a unit give whole numbers. Both ends
    are among the values, the last only if steps lead there. A range that is none is an InvalidError.

    >>> from nandarray.lab.quantities import span
    >>> span({"from": "20 us", "to": "80 us", "steps": 3}, "t_read")
    ['20 us', '50 us', '80 us']
    >>> span({"from": 1, "to": 64, "steps": 4, "scale": "log"}, "channels")
    [1, 4, 16, 64]
    """
    for key in about:
        if key not in {"from", "to", "steps", "step", "scale"}:
            raise InvalidError(f"{what}: a range must have from, to, steps or step, and scale, not {key!r}")
    if "from" not in about or "to" not in about:
        raise InvalidError(f"{what}: a range must have from and to")
    low, high = (_end(about[key], what) for key in ("from", "to"))
    if low.suffix != high.suffix or (not low.unit) != (not high.unit):
        raise InvalidError(f"{what}: {about['from']!r} and {about['to']!r} are of different kinds")
    scale = about.get("scale", "linear")
    if scale not in {"linear", "log"}:
        raise InvalidError(f"{what}: a scale must be 'linear' or 'log', not {scale!r}")
    if ("step" in about) == ("steps" in about):
        raise InvalidError(f"{what}: a range must have either steps, the number of values, or step, the distance")
    whole = not low.unit and all(isinstance(about[key], int) for key in ("from", "to"))
    # Whole numbers exactly: seeds have more digits than a float.
    first, last = map(Fraction, (about["from"], about["to"])) if whole else (low.number, _in_unit(high, low.unit))
    if "step" in about:
        numbers = _by_step(first, last, _end(about["step"], what), low, scale, what)
    else:
        numbers = _by_steps(first, last, about["steps"], scale, what)
    if not all(map(math.isfinite, numbers)):
        raise InvalidError(f"{what}: the numbers between {about['from']!r} and {about['to']!r} are too large")
    if whole:
        return list(dict.fromkeys(round(number) for number in numbers))
    texts = [_text(number) for number in numbers]
    return [f"{text} {low.unit}" for text in texts] if low.unit else [float(text) for text in texts]


def _text(number: float) -> str:
    """Write a number to twelve digits, and a larger one as a whole number: sizes take no exponents."""
    return f"{number:.0f}" if _DIGITS_END <= abs(number) < _WHOLE_END else f"{number:.12g}"


def _in_unit(quantity: Quantity, unit: str) -> float:
    if quantity.unit == unit:
        return quantity.number
    one = parse(f"1 {unit}")
    assert one is not None
    return quantity.scaled / one.scaled


def _end(value: Any, what: str) -> Quantity:
    found = parse(value)
    if found is None or not math.isfinite(found.number):
        raise InvalidError(f"{what}: a value must be a number, or one with a unit, not {value!r}")
    return found


def _by_steps(first: Any, last: Any, steps: Any, scale: str, what: str) -> list[Any]:
    if not isinstance(steps, int) or isinstance(steps, bool) or not 2 <= steps <= _POINTS_MAX:
        raise InvalidError(f"{what}: steps must be a number of values from 2 to {_POINTS_MAX}, not {steps!r}")
    if scale == "log":
        if first <= 0 or last <= 0:
            raise InvalidError(f"{what}: a logarithmic range must have both ends above 0")
        ratio = float(last / first)
        return [first, *(first * ratio ** (n / (steps - 1)) for n in range(1, steps - 1)), last]
    return [first + (last - first) * n / (steps - 1) for n in range(steps - 1)] + [last]


def _by_step(  # noqa: PLR0917
    first: Any, last: Any, step: Quantity, low: Quantity, scale: str, what: str
) -> list[Any]:
    if scale == "log":
        raise InvalidError(f"{what}: a logarithmic range must have steps, not a step")
    if step.suffix != low.suffix or (not step.unit) != (not low.unit):
        raise InvalidError(f"{what}: the step is of another kind than the ends")
    size = type(first)(_in_unit(step, low.unit))
    count = float((last - first) / size) if size else -1.0
    count = count if math.isfinite(count) else -1.0
    if not 0 <= count <= _POINTS_MAX:
        raise InvalidError(f"{what}: steps of {float(size):g} do not lead from {float(first):g} to {float(last):g}")
    return [first + size * n for n in range(math.floor(count * (1 + 1e-12) + 1e-12) + 1)]
