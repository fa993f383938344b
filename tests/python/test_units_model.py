"""Sizes, numbers and ranges as text, against exact arithmetic with fractions; and texts that are none of them."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandarray.errors import InvalidError
from nandarray.index.text import format_slices, parse_slices
from nandarray.lab.cost import WEIGHTS, weights_of
from nandarray.lab.quantities import parse, span
from nandarray.units import UNITS, count, format_number, format_size, parse_size, scaled

BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"]
PREFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "p": -12}
#: Characters that make up numbers and units, so that many texts are nearly right.
NEARLY = st.text(alphabet="0123456789.eE+-_ kKMGiBbus/%[]:,()x\u0663\u00b5\ud800", max_size=14)


def bytes_of(unit: str) -> int:
    """Return the bytes of a unit of size: 1024 with an i or alone, 1000 with a B."""
    word = unit.lower()
    power = " kmgtpezy".find(word[:1]) if word[:1] not in ("", "b") else 0
    return (1000 if word.endswith("b") and "i" not in word else 1024) ** power


@st.composite
def decimals(draw: st.DrawFn) -> tuple[str, Fraction]:
    """A number as text, and what it is."""
    whole, digits = draw(st.integers(0, 10**6)), draw(st.text(alphabet="0123456789", max_size=6))
    text = f"{whole}.{digits}" if digits or draw(st.booleans()) else str(whole)
    return text, Fraction(whole) + (Fraction(int(digits), 10 ** len(digits)) if digits else 0)


# --- sizes ------------------------------------------------------------------------------------------------------------


@given(number=decimals(), unit=st.sampled_from(["", "B", "k", "M", "g", "KiB", "MiB", "gib", "kB", "MB", "GB", "TB"]))
def test_a_size_is_exact_or_refused(number: tuple[str, Fraction], unit: str) -> None:
    wanted = number[1] * bytes_of(unit)
    for text in (number[0] + unit, f" {number[0]}  {unit} "):
        if wanted.denominator == 1:
            assert parse_size(text) == wanted
        else:
            with pytest.raises(InvalidError, match="a size must be like"):
                parse_size(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("4.1GB", 4_100_000_000), ("16.1 GB", 16_100_000_000), ("1.001 kB", 1001), ("9007199254740993.0", 2**53 + 1)],
)
def test_decimal_sizes_that_floats_cannot_say(text: str, size: int) -> None:
    assert parse_size(text) == size


@given(text=NEARLY)
def test_whatever_is_no_size_is_refused_by_name(text: str) -> None:
    try:
        size = parse_size(text, "room")
    except InvalidError as error:
        said = str(error)
    else:
        assert type(size) is int
        assert size >= 0
        return
    assert said == f"room: a size must be like 4096, '256MiB' or '2 GB', not {text!r}"


@pytest.mark.parametrize("value", [-1, True, None, 1.5, "9" * 5000, "9" * 400 + ".5", b"4", [4], "-4 KiB", "1e3"])
def test_values_that_are_no_size(value: Any) -> None:
    with pytest.raises(InvalidError, match="a size must be like"):
        parse_size(value)


@given(st.integers(0, 2**90 - 1))
def test_a_written_size_is_within_a_twentieth_and_has_no_thousands(size: int) -> None:
    number, unit = format_size(size).split()
    assert len(number.replace(".", "")) <= 4
    assert float(number) < 1024
    assert abs(float(number) * 1024 ** BINARY.index(unit) - size) <= max(size / 20, 0.5)
    if size < 1000:
        assert parse_size(format_size(size)) == size


def test_sizes_at_the_edges_of_units() -> None:
    assert format_size((1 << 20) - 1) == "1 MiB"
    assert format_size(1023) == "1023 B"
    assert format_size(1023.9) == "1 KiB"
    assert format_size(2**100) == "2^100 B"
    assert [format_size(1024**power) for power in range(9)] == [f"1 {unit}" for unit in BINARY]


# --- numbers ----------------------------------------------------------------------------------------------------------


@given(st.floats(1e-9, 9e17) | st.integers(1, 10**17), st.sampled_from(["B/s", "J", ""]))
def test_a_scaled_number_has_three_digits_and_a_prefix(number: float, unit: str) -> None:
    for sign in (1, -1):
        text, _, suffix = scaled(sign * number, unit).partition(" ")
        assert "e" not in text, text
        prefix = suffix.removesuffix(unit)
        assert math.isclose(float(text) * 10.0 ** PREFIXES[prefix], sign * number, rel_tol=0.0051)
        assert 0.9 < abs(float(text)) < 1000


def test_numbers_that_are_no_numbers() -> None:
    assert scaled(math.inf, "W") == "infinite W"
    assert scaled(math.nan, "W") == "- W"
    assert scaled(0.0, "W") == scaled(-0.0, "W") == "0 W"
    assert scaled(999_999, "B/s") == "1 MB/s"
    assert format_number(np.int64(1234567)) == "1,234,567"
    assert format_number(np.float32("nan")) == format_number(np.datetime64("NaT")) == "-"
    assert format_number(np.True_) == "yes"
    assert (count(1, "row"), count(0, "row"), count(12345, "row")) == ("1 row", "0 rows", "12,345 rows")


@given(st.floats(-1e308, 1e308))
def test_a_number_for_a_table_is_within_four_digits(number: float) -> None:
    text = format_number(number)
    # The least numbers have fewer than four digits to begin with.
    assert math.isclose(float(text.replace(",", "")), number, rel_tol=5.1e-4, abs_tol=1e-320)
    assert format_number(-number) == (text[1:] if text.startswith("-") else f"-{text}" if text != "0" else "0")


# --- quantities and ranges --------------------------------------------------------------------------------------------


@given(number=decimals(), kind=st.sampled_from([("time", 10**6), ("size", 1), ("rate", 1)]), data=st.data())
def test_a_quantity_is_its_number_times_its_unit(
    number: tuple[str, Fraction], kind: tuple[str, int], data: st.DataObject
) -> None:
    unit = data.draw(st.sampled_from(sorted(UNITS[kind[0]])))
    found = parse(f"{number[0]} {unit}")
    assert found is not None
    assert found.unit == unit
    wanted = number[1] * Fraction(UNITS[kind[0]][unit]) / kind[1]
    assert math.isclose(found.scaled, float(wanted), rel_tol=1e-14)


@given(text=NEARLY)
def test_any_text_is_a_finite_quantity_or_a_word(text: str) -> None:
    found = parse(text)
    if found is not None:
        assert math.isfinite(found.scaled)
        assert re.search(r"\d", text)


@pytest.mark.parametrize(
    "word", ["E5", "e5", ".e5", "1e999", "1e400 us", "+", "-", "1 us 2", "5 %%", 10**400, math.inf]
)
def test_words_that_look_like_numbers(word: Any) -> None:
    assert parse(word) is None


def exact_steps(low: Fraction, high: Fraction, steps: int) -> list[Fraction]:
    return [low + (high - low) * n / (steps - 1) for n in range(steps)]


@given(
    low=st.integers(-1000, 1000),
    high=st.integers(-1000, 1000),
    steps=st.integers(2, 40),
    units=st.sampled_from([("", ""), ("us", "us"), ("us", "ms"), ("KiB", "MiB"), ("%", "%")]),
)
def test_a_linear_range_is_the_exact_one(low: int, high: int, steps: int, units: tuple[str, str]) -> None:
    ends = [f"{end} {unit}" if unit else end for end, unit in zip((low, high), units, strict=True)]
    found = span({"from": ends[0], "to": ends[1], "steps": steps}, "x")
    factor = {"ms": 1000, "MiB": 1024}.get(units[1], 1)
    wanted = exact_steps(Fraction(low), Fraction(high) * factor, steps)
    if not units[0]:
        assert found == list(dict.fromkeys(round(float(one)) for one in wanted))
        return
    assert len(found) == steps
    for text, one in zip(found, wanted, strict=True):
        number, unit = text.split()
        assert unit == units[0]
        assert math.isclose(float(number), one, rel_tol=1e-11, abs_tol=1e-11)


@given(low=st.floats(1e-6, 1e6), high=st.floats(1e-6, 1e6), steps=st.integers(2, 30))
def test_a_logarithmic_range_has_equal_ratios(low: float, high: float, steps: int) -> None:
    found = span({"from": low, "to": high, "steps": steps, "scale": "log"}, "x")
    assert len(found) == steps
    assert found[0] == pytest.approx(low, rel=1e-11)
    assert found[-1] == pytest.approx(high, rel=1e-11)
    for n, value in enumerate(found):
        assert math.log(value) == pytest.approx(math.log(low) + (math.log(high) - math.log(low)) * n / (steps - 1))


@given(low=st.integers(0, 200), step=st.integers(1, 50), more=st.integers(0, 500), tenths=st.booleans())
def test_a_range_by_its_distance_ends_where_steps_lead(low: int, step: int, more: int, tenths: bool) -> None:
    scale = Fraction(1, 10) if tenths else Fraction(1)
    given_ = {"from": float(low * scale), "to": float((low + more) * scale), "step": float(step * scale)}
    found = span(given_ if tenths else {key: int(value) for key, value in given_.items()}, "x")
    assert found == pytest.approx([float((low + n * step) * scale) for n in range(more // step + 1)])


@pytest.mark.parametrize(
    "about",
    [
        {"from": -1e308, "to": 1e308, "steps": 3},
        {"from": 1e-320, "to": 1e300, "steps": 3, "scale": "log"},
        {"from": 10**400, "to": 1, "steps": 3},
        {"from": "e5", "to": 1, "steps": 3},
        {"from": 0, "to": 1e300, "step": 1e-300},
        {"from": math.nan, "to": 1, "steps": 2},
        {"from": math.inf, "to": 1, "steps": 2},
        {"from": True, "to": 1, "steps": 2},
        {"from": 1, "to": 2, "steps": 10**6},
        {"from": 1, "to": 2, "step": "x"},
    ],
)
def test_ranges_without_an_end_are_refused(about: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=r"^axis: "):
        span(about, "axis")


@pytest.mark.parametrize("weight", [math.nan, math.inf, -0.1, 10**400, "1", True, None, [1]])
def test_weights_are_numbers_that_give_a_cost(weight: Any) -> None:
    with pytest.raises(InvalidError, match="the weight of die must be a number from 0 to"):
        weights_of({"die": weight})
    assert weights_of({"die": 0}) == WEIGHTS | {"die": 0.0}


# --- slice expressions ------------------------------------------------------------------------------------------------


class Bracket:
    """What Python itself makes of an index expression."""

    def __getitem__(self, key: Any) -> Any:
        return key if isinstance(key, tuple) else (key,)


NUMBERS = st.integers(-(2**70), 2**70)
ITEMS = st.one_of(
    NUMBERS.map(str),
    st.sampled_from(["...", "None", ":", "::", "[]"]),
    st.lists(NUMBERS, min_size=1, max_size=3).map(lambda some: f"[{', '.join(map(str, some))}]"),
    st.tuples(st.none() | NUMBERS, st.none() | NUMBERS, st.none() | NUMBERS.filter(bool)).map(
        lambda three: ":".join("" if part is None else str(part) for part in three)
    ),
)


@given(items=st.lists(ITEMS, min_size=1, max_size=5), comma=st.booleans(), space=st.sampled_from(["", " "]))
def test_a_slice_expression_is_what_python_reads(items: list[str], comma: bool, space: str) -> None:
    text = f",{space}".join(items) + ("," if comma else "")
    if items.count("...") > 1:
        with pytest.raises(InvalidError, match="only once"):
            parse_slices(text)
        return
    wanted = eval(f"Bracket()[{text}]", {"Bracket": Bracket})
    assert parse_slices(text) == wanted
    assert parse_slices(f" ({text}) ") == wanted
    assert parse_slices(format_slices(wanted)) == wanted


@given(text=st.text(alphabet="0123456789:,.[]()-+_ Nonewax\u0663", max_size=16))
def test_any_text_is_python_s_slice_expression_or_an_error(text: str) -> None:
    try:
        found = parse_slices(text)
    except InvalidError:
        return
    body = text.strip()
    if body.startswith("(") and body.endswith(")"):
        body = body[1:-1]
    # Leading zeros and a plus in front are this grammar's own; Python has names where it has none.
    body = re.sub(r"(?<![0-9_])0+(?=[0-9])", "", body).replace("newaxis", "None")
    if body.strip():
        assert found == eval(f"Bracket()[{body.strip()}]", {"Bracket": Bracket})
    else:
        assert found == ()


def test_integers_that_python_refuses_to_read() -> None:
    for text in ("9" * 5000, f"0:{'9' * 5000}", f"[1, {'9' * 5000}]", "[,]", "[1,,2]"):
        with pytest.raises(InvalidError, match="slice expression"):
            parse_slices(text)
