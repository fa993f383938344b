"""Claims against a second judge, in fractions, written from the rules alone; and damaged files of claims."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandarray import lab
from nandarray.errors import InvalidError
from nandarray.lab import Answer, Experiment, Result
from nandarray.lab.claims import Claim, base_of, near
from nandarray.lab.judge import judge
from nandarray.lab.report.answers import STATUS, counts, lines, unanswered
from nandarray.lab.report.source import Source

Ends = tuple[float, float]


def experiment(**expected: Ends) -> Experiment:
    return Experiment("t", "T", "?", lambda _context: Result({}), ["c", "d"], expected=expected)


def exact(number: float) -> Fraction:
    """A number as a person writes it: 1.1 is 11/10."""
    return Fraction(repr(float(number)))


def within(measured: float, value: float | None, ends: Ends | None, bound: str, kind: str) -> bool:
    """The rules for ratios, in the order in which they are written down."""
    ours = exact(measured)
    if ends is not None:
        return exact(ends[0]) / Fraction(115, 100) <= ours <= exact(ends[1]) * Fraction(115, 100)
    assert value is not None
    paper = exact(value)
    if bound:
        return ours >= paper if bound == "at least" else ours <= paper
    if kind == "ratio":
        if Fraction(95, 100) < paper < Fraction(105, 100):
            return abs(ours - paper) <= Fraction(5, 100)
        if Fraction(8, 10) <= paper <= Fraction(95, 100) or Fraction(105, 100) <= paper <= Fraction(125, 100):
            gain, of = ours - 1, paper - 1
            return Fraction(1, 2) <= gain / of <= Fraction(3, 2)
    return Fraction(85, 100) <= ours / paper <= Fraction(115, 100)


#: Numbers of two or three digits, so that results often lie on the ends of ranges exactly.
FIGURES = st.integers(1, 999).map(lambda n: n / 100) | st.integers(50, 200).map(lambda n: n / 100)


@given(
    paper=FIGURES, ours=FIGURES, kind=st.sampled_from(["ratio", "abs"]),
    bound=st.sampled_from(["", "", "at least", "at most"]),
)  # fmt: skip
def test_a_value_is_judged_as_the_rules_say(paper: float, ours: float, kind: str, bound: str) -> None:
    claim = Claim("c", "7", "what", kind, value=paper, bound=bound)
    found = judge(Answer("c", ours), experiment(), {"c": claim})
    assert found["within"] == within(ours, paper, None, bound, kind), found
    assert found["ratio"] == pytest.approx(ours / paper)
    # The figure of an answer's part comes first, and a bound is of the claim's own figure.
    part = judge(Answer("c#part", ours, paper=paper), experiment(), {"c": Claim("c", "7", "what", kind, value=77.0)})
    assert part["within"] == within(ours, paper, None, "", kind)
    small = judge(Answer("c", ours), experiment(), {"c": claim}, full_size=False)
    assert small["within"] is None
    assert small["ratio"] == found["ratio"]


@given(one=FIGURES, other=FIGURES, ours=FIGURES, of_answer=st.booleans())
def test_a_range_is_judged_with_its_slack(one: float, other: float, ours: float, of_answer: bool) -> None:
    ends = (min(one, other), max(one, other))
    claim = Claim("c", "7", "what", "ratio", range=ends)
    if of_answer:
        claim = Claim("c", "7", "what", "ratio", value=5.0)
    found = judge(Answer("c", ours, paper=ends if of_answer else None), experiment(), {"c": claim})
    assert found["within"] == within(ours, None, ends, "", "ratio"), found
    assert found["range"] == list(ends)
    assert ends[0] <= found["paper"] <= ends[1]
    if ends[0] <= ours <= ends[1]:
        assert found["ratio"] == 1.0


@given(paper=FIGURES, ours=FIGURES, low=FIGURES, more=FIGURES, of_part=st.booleans())
def test_a_range_of_the_experiments_own_comes_first(
    paper: float, ours: float, low: float, more: float, of_part: bool
) -> None:
    known = {"c": Claim("c", "7", "what", "ratio", value=paper)}
    expected = {"c#p" if of_part else "c": (low, low + more)}
    found = judge(Answer("c#p", ours), experiment(**expected), known)
    assert (found["low"], found["high"]) == (low, low + more)
    ratio = exact(ours) / exact(paper)
    slack = Fraction(1, 10**9)
    if abs(ratio - exact(low)) > slack and abs(ratio - exact(low + more)) > slack:
        assert found["within"] == (exact(low) <= ratio <= exact(low + more))


@pytest.mark.parametrize(
    ("paper", "ours", "good"),
    [
        (0.9, 0.85, True), (0.9, 0.95, True), (0.9, 0.849, False), (0.9, 0.951, False),
        (0.8, 0.7, True), (0.8, 0.9, True), (1.25, 1.375, True), (1.25, 1.125, True),
        (1.05, 1.025, True), (1.05, 1.02, False), (0.95, 0.975, True), (0.95, 0.98, False),
        (1.0, 1.05, True), (1.0, 0.95, True), (1.0, 1.051, False), (1.04, 1.0, True), (1.04, 1.1, False),
        (1.26, 1.08, True), (1.26, 1.07, False), (0.79, 0.9, True), (0.79, 0.91, False),
    ],
)  # fmt: skip
def test_ends_of_the_rules_count(paper: float, ours: float, good: bool) -> None:
    known = {"c": Claim("c", "7", "what", "ratio", value=paper)}
    assert judge(Answer("c", ours), experiment(), known)["within"] is good


@pytest.mark.parametrize("measured", [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf")])
def test_what_is_no_finite_number_is_within_nothing(measured: Any) -> None:
    for bound in ("", "at least", "at most"):
        known = {"c": Claim("c", "7", "what", "ratio", value=2.0, bound=bound)}
        found = judge(Answer("c", measured), experiment(), known)
        assert (found["ratio"], found["within"]) == (None, False)


@pytest.mark.parametrize("measured", ["2", None, [2.0], {"a": 1}, 1j, b"2"])
def test_what_is_no_number_is_refused(measured: Any) -> None:
    known = {"c": Claim("c", "7", "what", "ratio", value=2.0), "d": Claim("d", "7", "what", "shape")}
    for claim in ("c", "d"):
        with pytest.raises(InvalidError, match=f"{claim}: a measured value must be a number or a truth value"):
            judge(Answer(claim, measured), experiment(), known)


@given(
    kinds=st.lists(st.sampled_from(["good", "bad", "holds", "fails", "fitted", "misfit", "input", "small"]), max_size=9)
)
def test_a_page_counts_each_answer_once(kinds: list[str]) -> None:
    known = {"c": Claim("c", "7", "what", "ratio", value=2.0), "d": Claim("d", "7", "what", "shape")}
    made = {
        "good": Answer("c", 2.1), "bad": Answer("c", 9.0), "holds": Answer("d", measured=True),
        "fails": Answer("d", measured=False), "fitted": Answer("c", 2.0, calibrated=True),
        "misfit": Answer("c", 9.0, calibrated=True), "input": Answer("c", 2.0, input=True), "small": Answer("c", 2.0),
    }  # fmt: skip
    answers = [judge(made[kind], experiment(), known, full_size=kind != "small") for kind in kinds]
    source = Source("t@0", {"answers": answers, "claims": ["c", "d", "e#part"]})
    found = lines([source])
    assert sorted(line.claim for line in found) == [line.claim for line in found]
    assert counts(found) == {
        "answered": len(kinds),
        "within": kinds.count("good") + kinds.count("holds"),
        "not": kinds.count("bad") + kinds.count("fails") + kinds.count("misfit"),
        "calibrated": kinds.count("fitted"),
        "input": kinds.count("input"),
        "unjudged": kinds.count("small"),
        "open": 0,
    }
    assert all(line.status in STATUS for line in found)
    assert unanswered([source]) == sorted({"c", "d", "e"} - {answer["claim"] for answer in answers})
    for line in found:
        assert line.strip is None or all(0 <= spot <= 100 for spot in line.strip)


# --- files of claims --------------------------------------------------------------------------------------------------

ROW = '[[claim]]\nid = "mine.a"\nwhere = "7"\nwhat = "x"\nkind = "ratio"\n'
DAMAGED = [
    "claim = 5", "claim = [1]", "[claim]\nid = 5", "[[claim]", '[[claim]]\nid = "x"', ROW, ROW + "value = nan",
    ROW + "value = inf", ROW + "value = true", ROW + 'value = "2"', ROW + "value = -1.0", ROW + "value = 0",
    ROW + "range = 5", ROW + "range = [1]", ROW + "range = [2, 1]", ROW + "range = [1, inf]", ROW + "range = [0, 1]",
    ROW + 'range = [1, "b"]', ROW + "range = [nan, 1]", ROW + "value = 1.0\nrange = [1, 2]",
    ROW + 'value = 1.0\nbound = "about"', ROW + 'range = [1, 2]\nbound = "at most"', ROW + "value = 1.0\nmore = 1",
    ROW + "value = 1.0\n" + ROW + "value = 1.0", ROW.replace('"mine.a"', "5") + "value = 1.0",
    ROW.replace('"ratio"', '["ratio"]') + "value = 1.0", ROW.replace('"ratio"', '"share"') + "value = 1.0",
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_of_claims_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "claims.toml").write_text(text)
    with pytest.raises(InvalidError, match=r"claims\.toml: "):
        lab.claims(tmp_path)


def test_a_file_of_claims_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "claims.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidError, match=r"claims\.toml is no TOML"):
        lab.claims(tmp_path)


def test_bundled_claims_can_be_met() -> None:
    for claim in lab.claims().values():
        best: Any = True if claim.kind == "shape" else claim.value if claim.range is None else claim.range[0]
        found = judge(Answer(claim.id, best), experiment(), {claim.id: claim})
        assert found["within"], claim
        if claim.kind != "shape" and claim.bound != "at least":
            assert not judge(Answer(claim.id, best * 100), experiment(), {claim.id: claim})["within"]
        if claim.kind != "shape" and claim.bound != "at most":
            assert not judge(Answer(claim.id, best / 100), experiment(), {claim.id: claim})["within"]


@given(wrong=st.text(max_size=8), names=st.lists(st.text(min_size=1, max_size=8), max_size=20, unique=True))
def test_a_hint_names_what_there_is(wrong: str, names: list[str]) -> None:
    hint = near(wrong, names)
    assert (hint == "") == (not names)
    if names:
        assert any(name in hint or repr(name) in hint for name in names)
    assert base_of(f"{wrong.replace('#', '')}#part") == wrong.replace("#", "")
