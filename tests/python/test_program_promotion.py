"""Arithmetic of functions beside NumPy's: the dtypes that operands promote to, and integers at the edges."""

from __future__ import annotations

import os
import random
import re
from typing import Any

import numpy as np
import pytest
from test_program_forms_model import function

import nandarray
from nandarray import CompileError, InvalidError, ProgramFailedError

numba = pytest.importorskip("numba")

FORMS = ("interpreted", "native")
SEEDS = 20 if os.environ.get("NANDARRAY_DEEP") else 1
COUNT = 40  # expressions of a program
DTYPES = {"b": "i1", "B": "u1", "i": "i4", "I": "u4", "q": "i8", "Q": "u8", "f": "f4", "d": "f8"}
WRITTEN = ["3", "-2", "0", "1", "100", "1000", "70000", "0.1", "2.0", "-1.5"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!=", "&", "|", "^", "<<", ">>"]

IN_PLACE = ["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>"]


def columns(rng: np.random.Generator) -> dict[str, Any]:
    """Elements of each dtype: the ends of its range, zeros, and others."""
    found = {}
    for name, dtype in DTYPES.items():
        if np.dtype(dtype).kind == "f":
            column = rng.normal(0, 20, 48).astype(dtype)
            column[:6] = [0.0, -0.0, 1.0, -1.0, 0.5, 3e30]
        else:
            limits = np.iinfo(dtype)
            column = rng.integers(limits.min, limits.max, 48, dtype, endpoint=True)
            column[:6] = np.array([0, 1, limits.max, limits.min, limits.max - 1, 7], dtype)
            column[6:16] = rng.integers(0, 9, 10)
        found[name] = rng.permutation(column)
    return found


def expression(rng: random.Random) -> str:
    left, right = rng.choice([*DTYPES, *WRITTEN]), rng.choice([*DTYPES, *WRITTEN])
    if rng.random() < 0.1:
        return rng.choice([f"(-{left})", f"abs({left})", f"(+{left})"]) if left in DTYPES else f"min(q, {left})"
    sign = rng.choice(OPERATORS)
    if sign == "**":
        right = rng.choice(["B", "I", "Q", "2", "3", "5", "0", "2.0"])
    return f"({left} {sign} {right})"


def wanted(text: str, data: dict[str, Any]) -> Any:
    """What NumPy computes; None if it refuses, or if the answer depends on whether a number is Python's."""
    names = set(re.findall(r"\b[a-zA-Z]\b", text))
    if not names or ("Q" in names and names & {"b", "i", "q"} and not re.search(r"[<>=!/]=? |<=|>=", text)):
        return None
    if "Q" in names and names & {"b", "i", "q"} and re.search(r"//|<<|>>", text):
        return None
    if re.search(r"<< -|>> -|<< \d{2,}|>> \d{2,}", text):
        return None
    lowest = {"min": np.minimum, "abs": np.abs}
    with np.errstate(all="ignore"):
        try:
            return eval(text, {**lowest, **data})  # noqa: S307
        except (OverflowError, TypeError, ValueError):
            return None


@pytest.mark.parametrize("seed", range(SEEDS))
def test_operators_are_those_of_numpy(store: Any, seed: int) -> None:
    rng, data = random.Random(seed), columns(np.random.default_rng(seed))
    texts: dict[str, Any] = {}
    while len(texts) < COUNT:
        text = expression(rng)
        found = wanted(text, data)
        if found is not None:
            texts[text] = found
    by_kind = {"i": "whole", "u": "natural", "b": "natural", "f": "real"}
    body = [f"def p({', '.join(DTYPES)}, whole, natural, real):"]
    for at, (text, found) in enumerate(texts.items()):
        operands = text[1:-1].split(" ")
        if at % 2 and operands[0] in DTYPES and operands[1:2] and operands[1] in IN_PLACE:  # the same, in place
            body += [f"    v{at} = {operands[0]}", f"    v{at} {operands[1]}= {operands[2]}"]
            text = f"v{at}"
        body.append(f"    {by_kind[found.dtype.kind]}[{at}] = {text}")
    each = function("\n".join(body) + "\n", "p")
    inputs = "".join(f'{name}: nandarray.Block["{dtype}"], ' for name, dtype in DTYPES.items())
    outs = {"whole": "int64", "natural": "uint64", "real": "float64"}
    outputs = ", ".join(f'{name}: nandarray.Out["{dtype}[{COUNT}]"]' for name, dtype in outs.items())
    at_j = ", ".join(f"{name}[j]" for name in (*DTYPES, *outs))
    rows = f"    for j in range(len(b)):\n        p({at_j})\n    return len(b), len(b), len(b)\n"
    made = nandarray.program(
        function(f"def f({inputs}{outputs}):\n{rows}", p=numba.njit(each)),
        trusted=True,
        bound={name: {"per_record": 8 * COUNT} for name in outs},
    )
    for name, column in data.items():
        store[f"c{name}"] = column
    for form in FORMS:
        run = nandarray.offload(made, [store[f"c{name}"] for name in DTYPES], form=form)
        for at, (text, right) in enumerate(texts.items()):
            found = run.outputs[by_kind[right.dtype.kind]].reshape(-1, COUNT)[:, at].astype(right.dtype)
            says = f"seed {seed}, {form}: {text} in {right.dtype}"
            if "**" in text and right.dtype.kind == "f":
                np.testing.assert_allclose(found, right, rtol=8 * np.finfo(right.dtype).eps, err_msg=says)
            else:
                np.testing.assert_array_equal(found, right, err_msg=says)


def test_results_have_numpys_dtypes(store: Any) -> None:
    u = np.array([2**64 - 1, 2**63, 7], "u8")
    store["u"], store["i"], store["f"] = u, np.array([1, -5, 9], "i4"), np.array([0.1, 2, -3], "f4")
    for name, made in {
        "u": lambda v: (v - 1) // 2 % 3,
        "i": lambda v: (v + 1) * 2 - v // 3,
        "f": lambda v: v * 0.5 + 1 - v / 3,
    }.items():
        found, right = store[name].map_blocks(made, form="interpreted"), made(store[name][:])
        assert found.dtype == right.dtype
        np.testing.assert_array_equal(found, right)
    np.testing.assert_array_equal(store["u"].filter(lambda v: v - 8 < 0), [])
    np.testing.assert_array_equal(store["u"].filter(lambda v: v > -1), u)
    assert store["f"].map_blocks(lambda v, by: v * by, by=2.0).dtype == np.float32
    np.testing.assert_array_equal(store["u"].map_blocks(lambda v, by: v - by, by=7), u - 7)
    # An accumulator that begins as a Python number has 64 bits, and is uint64 beside uint64.
    assert store["u"].reduce(lambda x, y: max(x, y)) == 2**64 - 1


@pytest.mark.parametrize(
    ("dtype", "made", "says"),
    [
        ("i8", lambda v: v**-1, "integers to negative integer powers are not allowed"),
        ("u1", lambda v: v + 300, "uint8 + 300: 300 does not fit uint8"),
        ("u8", lambda v: v - np.int64(1), "uint64 - int64: uint64 and signed integers have no integer dtype in common"),
        ("u1", lambda v: v << 8, "uint8 << 8: NumPy computes this in uint8, which has 8 bits"),
        ("?", lambda v: v - v, "NumPy does not subtract truth values"),
        ("i8", lambda v: (v, v), "the function returns 2 values, and a result has one element for each one"),
    ],
)
def test_what_numpy_refuses_is_an_error_of_the_compiler(store: Any, dtype: str, made: Any, says: str) -> None:
    store["x"] = np.ones(3, dtype)
    with pytest.raises(CompileError, match=rf"test_program_promotion\.py:\d+: .*{re.escape(says)}"):
        store["x"].map_blocks(made)


@pytest.mark.parametrize("form", FORMS)
def test_a_negative_power_and_an_index_out_of_range_name_line_and_numbers(store: Any, form: str) -> None:
    store["x"], table = np.array([2, -1, 12]), np.arange(10)
    with pytest.raises(ProgramFailedError, match=r"ValueError: Integers to negative .*test_program_promotion\.py:\d+"):
        store["x"].map_blocks(lambda v: 3**v, form=form, trusted=True)
    with pytest.raises(
        ProgramFailedError, match=r"IndexError: index -12 is out of bounds for size 10 \(test_program_promotion\.py:\d+"
    ) as found:
        store["x"].map_blocks(lambda v: table[-v], form=form, trusted=True)
    assert found.value.noted == (-12, 10)
    empty = np.arange(0)
    with pytest.raises(ProgramFailedError, match=r"index 0 is out of bounds for size 0") as found:
        store["x"].map_blocks(lambda v: empty[v - v], form=form, trusted=True)
    assert found.value.noted == (0, 0)

    def refuses(v: Any) -> Any:
        if v < 0:
            raise ValueError("below 0")
        return v

    with pytest.raises(ProgramFailedError, match="below 0") as found:
        store["x"].map_blocks(refuses, form=form, trusted=True)
    assert found.value.noted is None


def test_divisions_at_the_edges_are_numpys(store: Any) -> None:
    x = np.array([0, -1, -(2**31), 7], "i4")
    store["x"] = x
    with np.errstate(all="ignore"):
        for made in (lambda v: 10 // v, lambda v: 10 % v, lambda v: v // -1, lambda v: v % -1):
            np.testing.assert_array_equal(store["x"].map_blocks(made), made(x))


def in_place(sign: str, right: str) -> Any:
    return function(f"def f(v):\n    v {sign}= {right}\n    return v\n", "f")


def test_in_place_forms_of_numbers_are_numpys_too(store: Any) -> None:
    x = np.array([0, -1, -(2**63), 2**63 - 1])
    store["x"] = x
    with np.errstate(all="ignore"):
        for sign, right in (("//", "-1"), ("//", "(v - v)"), ("+", "v"), ("*", "3"), (">>", "70 + (v - v)")):
            made = in_place(sign, right)
            np.testing.assert_array_equal(store["x"].map_blocks(made), made(x.copy()), err_msg=f"{sign}= {right}")
    with pytest.raises(CompileError, match="integers to negative integer powers are not allowed"):
        store["x"].map_blocks(in_place("**", "-1"))
    with pytest.raises(CompileError, match="int64 << 64: NumPy computes this in int64, which has 64 bits"):
        store["x"].map_blocks(in_place("<<", "64"))


def test_in_place_forms_of_arrays_write_where_the_array_is(store: Any) -> None:
    """A new array would need memory, which a function has none of while it runs."""

    class Sums:
        def step(state: Any, x: Any) -> None:
            state[0] += x
            state[1] += 1

        def merge(state: Any, other: Any) -> None:
            state += other

    x = np.arange(60.0).reshape(6, 10)
    store["x"] = x
    for form in FORMS:
        found = store["x"].reduce(Sums, state="float64[2]", form=form, trusted=True, task_bytes=80)
        np.testing.assert_array_equal(np.ravel(found), [x.sum(), x.size])


@pytest.mark.parametrize("form", [None, "native"])
def test_an_array_that_a_function_closes_over_is_bounded(store: Any, form: str | None) -> None:
    store["x"] = np.array([0, 5])
    large, small = np.arange(1e6), np.arange(1e5)
    with pytest.raises(CompileError, match=r"it closes over 8 MB, 'large', an array of float64 .* at most 1\.05 MB"):
        store["x"].map_blocks(lambda v: large[v], form=form, trusted=True)
    np.testing.assert_array_equal(store["x"].map_blocks(lambda v: small[v], form=form, trusted=True), [0, 5])
    apart = small[::2]
    with pytest.raises(CompileError, match="do not lie one after another"):
        store["x"].map_blocks(lambda v: apart[v], form=form, trusted=True)


def test_a_result_may_be_an_array_as_long_as_the_state(store: Any) -> None:
    def step(state: Any, x: Any) -> None:
        state[int(x) % 3] += x

    def merge(state: Any, other: Any) -> None:
        for i in range(3):
            state[i] += other[i]

    def doubled(state: Any) -> Any:
        for i in range(3):
            state[i] *= 2
        return state

    store["x"] = np.arange(10.0)
    sums = np.bincount(np.arange(10) % 3, np.arange(10.0))

    def made(result: Any) -> Any:
        functions = {"step": step, "merge": merge, "result": result}
        return nandarray.program.reduce(inputs="f8", state="f8[3]", trusted=True)(functions)

    for form in FORMS:
        np.testing.assert_array_equal(store["x"].offload(made(lambda state: state), form=form), sums)
        np.testing.assert_array_equal(store["x"].offload(made(doubled), form=form), 2 * sums)
    with pytest.raises(nandarray.ProgramFailedError, match="another length"):
        store["x"].offload(made(lambda state: state[1:]), form="interpreted")
    with pytest.raises(CompileError, match=r"result\(\) returns array.float64, 2d.*leave result out"):
        store["x"].offload(made(lambda state: state.reshape((3, 1))))


def test_words_of_other_libraries_are_refused_by_name(store: Any) -> None:
    store["x"] = np.arange(6.0).reshape(2, 3)
    calls = [
        (lambda: store["x"].filter(low=1, keepdims=True), "there is no keepdims: only reduce"),
        (lambda: store["x"].map_blocks(lambda v: v, axis=0), "there is no axis: only reduce"),
        (lambda: store["x"].reduce("sum", ddof=1), "there is no ddof: "),
    ]
    for call, says in calls:
        with pytest.raises(InvalidError, match=re.escape(says)):
            call()
    np.testing.assert_array_equal(store["x"].map_blocks(lambda v, ddof: v + ddof, ddof=1), store["x"][:] + 1)


def test_a_range_may_have_one_end(store: Any) -> None:
    x = np.array([3, -2, 250, 7], "i2")
    store["x"], store["f"] = x, np.array([0.5, np.inf, -1, np.nan])
    np.testing.assert_array_equal(store["x"].filter(low=3), [3, 250, 7])
    np.testing.assert_array_equal(store["x"].filter("filter_index", high=3), [0, 1])
    np.testing.assert_array_equal(store["f"].filter(low=0.5), [0.5, np.inf])
    with pytest.raises(InvalidError, match="filter must be given a function, or low, high or both"):
        store["x"].filter()
    with pytest.raises(nandarray.NotFoundError, match="no program 'filer'; did you mean 'filter'"):
        store["x"].filter("filer", low=1)
