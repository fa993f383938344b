"""Slice expressions as text give what Python's own brackets give."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandarray.errors import InvalidError
from nandarray.index.text import format_slices, parse_slices


class _Brackets:
    def __getitem__(self, key: object) -> object:
        return key if isinstance(key, tuple) else (key,)


bound = st.none() | st.integers(-8, 8)
item = st.one_of(
    st.integers(-3, 2),
    st.builds(slice, bound, bound, st.none() | st.integers(-3, 3).filter(bool)),
    st.none(),
    st.just(Ellipsis),
    st.lists(st.integers(-3, 2), max_size=4),
)
expression = st.lists(item, max_size=5).map(tuple).filter(lambda key: sum(part is Ellipsis for part in key) <= 1)


@given(expression)
def test_text_and_back(key: tuple[object, ...]) -> None:
    assert parse_slices(format_slices(key)) == key  # type: ignore[arg-type]


@given(expression, st.sampled_from(["", " ", "  "]))
def test_same_as_python(key: tuple[object, ...], space: str) -> None:
    text = format_slices(key).replace(" ", space)  # type: ignore[arg-type]
    expected = eval(f"brackets[{text}]", {"brackets": _Brackets()}) if text else ()
    assert parse_slices(text) == expected


@given(expression)
def test_same_as_numpy(key: tuple[object, ...]) -> None:
    data: Any = np.arange(3**4).reshape(3, 3, 3, 3)
    try:
        expected = data[key]
    except IndexError:
        return
    np.testing.assert_array_equal(data[parse_slices(format_slices(key))], expected)  # type: ignore[arg-type]


@given(st.text(alphabet="0123456789:,.[]()- +Nonewaxis_", max_size=30))
def test_any_text_is_a_key_or_a_clear_error(text: str) -> None:
    with contextlib.suppress(InvalidError):  # anything else would be a bug
        parse_slices(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", ()),
        ("5", (5,)),
        ("5,", (5,)),
        ("0:10, ::2, ..., 5", (slice(0, 10), slice(None, None, 2), Ellipsis, 5)),
        ("(1, 2)", (1, 2)),
        ("1_000:", (slice(1000, None),)),
        ("newaxis, None", (None, None)),
        ("[0, 5, -1], [2,]", ([0, 5, -1], [2])),
        ("99999999999999999999", (99999999999999999999,)),
    ],
)
def test_examples(text: str, key: tuple[object, ...]) -> None:
    assert parse_slices(text) == key


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,,2", "column 3: expected an index"),
        ("a:b", "'a' is not an integer"),
        ("1:2:3:4", "3 colons"),
        ("::0", "step 0"),
        ("[1, 2", "never closed"),
        ("1]", "']' without '['"),
        ("[[1]]", "another list"),
        ("[1]2", "expected ',' after the list"),
        ("..., ...", "only once"),
        ("1.5", "'1.5' is not an integer"),
        ("__import__('os')", "is not an integer"),
        ("[1, x]", "'x' is not an integer"),
    ],
)
def test_errors_say_where_and_what(text: str, words: str) -> None:
    with pytest.raises(InvalidError, match="slice expression") as caught:
        parse_slices(text)
    assert words in str(caught.value)
