"""Python functions beside the data against themselves: any expressions, any names, any shapes of results.

Functions are written by the tests, many expressions to a program since a program takes a second to compile, and run in
each form of execution; Python calls the same function on the same numbers.
"""

from __future__ import annotations

import itertools
import linecache
import math
import operator
import os
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import CompileError, InvalidError
from nandarray.programs.compile import loops
from nandarray.programs.forms import along_form, block_form, boxes_form, fold_form, folded_into, map_form, reduce_form

Array = np.ndarray[Any, Any]
FORMS = ("interpreted", "translated", "native")
SEEDS = 40 if os.environ.get("NANDARRAY_DEEP") else 1
COUNT = 12  # expressions of a kind in one program
_FILES = itertools.count()


def function(text: str, name: str = "f", **names: Any) -> Callable[..., Any]:
    """A function whose lines can be read again, as a file's can."""
    file = f"<form {next(_FILES)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    found: dict[str, Any] = {"math": math, "nandarray": nandarray, **names}
    exec(compile(text, file, "exec", dont_inherit=True), found)
    made: Callable[..., Any] = found[name]
    return made


# --- expressions ------------------------------------------------------------------------------------------------------


class _Writer:
    """Expressions of integers below 2**62 and of finite floats, whose values Python and 64 bits agree on."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def integer(self, depth: int) -> tuple[str, int]:
        if depth == 0:
            return self.random.choice([("a", 32), ("b", 16), ("k", 7), ("3", 2), ("1000", 10)])
        (left, most), (right, other) = self.integer(depth - 1), self.integer(depth - 1)
        shift = self.random.randrange(1, 12)
        made = [
            (f"({left} + {right})", max(most, other) + 1),
            (f"({left} - {right})", max(most, other) + 1),
            (f"({left} * {right})", most + other),
            (f"({left} // ({right} * {right} + 1))", most),
            (f"({left} % ({right} * {right} + 1))", 2 * other + 1),
            (f"({left} // (-1 - abs({right})))", most + 1),
            (f"({left} % (-1 - abs({right})))", other + 1),
            (f"({left} << {shift})", most + shift),
            (f"({left} >> {shift})", most),
            (f"({left} {self.random.choice('&|^')} {right})", max(most, other) + 1),
            (f"(~{left})", most + 1),
            (f"abs(-{left})", most),
            (
                f"({left} if {left} {self.random.choice(['<', '<=', '==', '!='])} {right} else {right})",
                max(most, other),
            ),
            (f"min({left}, max({right}, k))", max(most, other, 7)),
        ]
        fitting = [one for one in made if one[1] < 62 and (2 * other + 1 < 62 or "*" not in one[0])]
        return self.random.choice(fitting) if fitting else ("k", 7)

    def real(self, depth: int) -> str:
        if depth == 0:
            return self.random.choice(["x", "y", "0.5", "s", "b", "3.0"])
        left, right = self.real(depth - 1), self.real(depth - 1)
        return self.random.choice(
            [
                f"({left} + {right})",
                f"({left} - {right})",
                f"({left} * 0.125)",
                f"({left} / (abs({right}) + 1.0))",
                f"({left} // (abs({right}) + 0.5))",
                f"({left} % (abs({right}) + 0.75))",
                f"math.sqrt(abs({left}))",
                f"math.floor({left} * 0.5)",
                f"(-{left})",
                f"({left} if {left} > {right} else {right})",
                f"int({left} * 0.25)",
                f"math.copysign({left}, {right})",
            ]
        )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_expressions_are_those_of_python(store: Any, seed: int) -> None:
    writer, rng = _Writer(seed), np.random.default_rng(seed)
    whole = [writer.integer(3)[0] for _ in range(COUNT)]
    reals = [writer.real(3) for _ in range(COUNT)]
    lines = [
        "def f(a, b, x, y, out, real, k, s):",
        "    for i in range(len(a)):",
        "        p(a[i], b[i], x[i], y[i], out[i], real[i], k, s)",
    ]
    body = ["def p(a, b, x, y, out, real, k, s):"]
    body += [f"    out[{place}] = {text}" for place, text in enumerate(whole)]
    body += [f"    real[{place}] = {text}" for place, text in enumerate(reals)]
    text = "\n".join(body) + "\n"
    each = function(text, "p")
    import numba

    annotated = f"""
def f(a: nandarray.Block["int64"], b: nandarray.Block["int64"], x: nandarray.Block["float64"],
      y: nandarray.Block["float64"], out: nandarray.Out["int64[{COUNT}]"], real: nandarray.Out["float64[{COUNT}]"],
      k: nandarray.Scalar["int64"], s: nandarray.Scalar["float64"]):
{lines[1]}
{lines[2]}
    return len(a), len(a)
"""
    made = nandarray.program(
        function(annotated, p=numba.njit(boundscheck=True)(each)),
        trusted=True,
        bound={"out": {"per_record": 8 * COUNT}, "real": {"per_record": 8 * COUNT}},
    )
    n = 40
    a = rng.integers(-(1 << 31), 1 << 31, n)
    b = rng.integers(-(1 << 15), 1 << 15, n)
    a[:3], b[:4] = (-(1 << 31), 0, (1 << 31) - 1), (0, -1, 1, -(1 << 15))
    x, y = rng.normal(0, 30, (2, n))
    x[:2], y[1:3] = (0.0, -0.0), (0.0, -2.0)
    wanted = np.zeros((n, COUNT), np.int64), np.zeros((n, COUNT))
    for i in range(n):
        each(int(a[i]), int(b[i]), float(x[i]), float(y[i]), wanted[0][i], wanted[1][i], -5, 1.625)
    for name, value in (("a", a), ("b", b), ("x", x), ("y", y)):
        store[name] = value
    for form in FORMS:
        found = nandarray.offload(
            made, [store[name] for name in "abxy"], {"k": -5, "s": 1.625}, form=form, task_bytes=104, threads=2
        ).outputs
        says = f"seed {seed}, {form}\n{text}"
        np.testing.assert_array_equal(found["out"].reshape(n, COUNT), wanted[0], err_msg=says)
        np.testing.assert_array_equal(found["real"].reshape(n, COUNT), wanted[1], err_msg=says)


# --- names ------------------------------------------------------------------------------------------------------------

#: Names that loops around a function have had for themselves, and others that could be in the way.
NAMES = [
    "first",
    "state",
    "other",
    "i_",
    "n_",
    "r_",
    "j_",
    "out_",
    "out",
    "result",
    "loop_",
    "_function",
    "len",
    "range",
]


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops call the user's functions as they are, so that Python runs both."""
    from nandarray.programs.compile import riscv

    monkeypatch.setattr(riscv, "jitted", lambda function, options: function)


class Cell(types.SimpleNamespace):
    """A state with fields, as a loop sees it."""


def pairs() -> list[tuple[str, str, str]]:
    return [(one, NAMES[(at + 1) % len(NAMES)], NAMES[(at + 5) % len(NAMES)]) for at, one in enumerate(NAMES)]


@pytest.mark.usefixtures("in_python")
@pytest.mark.parametrize(("one", "two", "number"), pairs())
def test_loops_leave_all_names_to_the_user(one: str, two: str, number: str) -> None:
    x, y = np.arange(1.0, 7), np.arange(6.0)[::-1]
    scalars = {number: "f8"}
    text = f"def f({one}, {number}, {two}):\n    return {one} * 10 + {two} + {number}\n"
    out = np.zeros(6)
    loops.loop(map_form("map", function(text), ["f8", "f8"], None, scalars))(x, y, out, 0.5)
    np.testing.assert_array_equal(out, x * 10 + y + 0.5)
    text = text.replace("return", "return 40 <")
    kept = loops.loop(map_form("filter", function(text), ["f8", "f8"], None, scalars))(x, y, out, 0.5)
    np.testing.assert_array_equal(out[:kept], x[x * 10 + y + 0.5 > 40])
    text = f"def f({one}, {two}, {number}):\n    return {one} + {two} * {number}\n"
    folds = fold_form(function(text), np.dtype("f8"), np.dtype("f8"), scalars)
    state, other = Cell(n=0, value=0.0), Cell(n=0, value=0.0)
    for piece in (x[:2], x[2:2], x[2:]):
        loops.loop(folds)(state, piece, 3.0)
    assert (state.n, state.value) == (6, x[0] + 3 * x[1:].sum())
    loops.loop(folds)(other, x, 3.0)
    loops.folding(folds)(state, other, 3.0)
    assert (state.n, state.value) == (12, (x[0] + 3 * x[1:].sum()) * 4)
    result = np.zeros(1)
    assert loops.folded(folds)(state, result) == 1
    assert result[0] == state.value


@pytest.mark.usefixtures("in_python")
@pytest.mark.parametrize(("one", "two", "number"), pairs())
def test_loops_along_axes_and_over_boxes_leave_all_names_to_the_user(one: str, two: str, number: str) -> None:
    rng = np.random.default_rng(1)
    data, scalars = rng.integers(0, 9, (4, 3, 5)).astype("f8"), {number: "f8"}
    text = f"def f({one}, {two}, {number}):\n    return {one} + {two} * {number}\n"
    dtype = np.dtype("f8")
    slab = along_form(function(text), dtype, dtype, (3, 5), scalars, whole=False)
    out = np.zeros((4, 5))
    loops.loop(slab)(data, out, 2.0)
    np.testing.assert_array_equal(out, data[:, 0] + 2 * data[:, 1:].sum(1))
    columns = along_form(function(text), dtype, dtype, (4, 15), scalars, whole=True)
    rows = data.reshape(4, 15)
    states = [Cell(n=0, value=np.zeros(15)) for _ in range(3)]
    for state, piece in zip(states, (rows[:1], rows[1:1], rows[1:]), strict=True):
        loops.loop(columns)(state, piece, 2.0)
    for later in states[1:]:
        loops.folding(columns)(states[0], later, 2.0)
    result = np.zeros((1, 15))
    assert loops.folded(columns)(states[0], result) == 1
    np.testing.assert_array_equal(result[0], rows[0] + 2 * (rows[1] + 2 * rows[2:].sum(0)))
    assert states[0].n == 4
    text = f"def f({one}, {number}, {two}):\n    {two}[...] = {one} * {number}\n"
    boxes = boxes_form(function(text), [dtype], dtype, 3, scalars)
    flat = np.zeros(60)
    loops.loop(boxes)(data.reshape(-1), flat, 2.0, 4, 3, 5)
    np.testing.assert_array_equal(flat.reshape(data.shape), data * 2)


@pytest.mark.usefixtures("in_python")
@pytest.mark.parametrize(("one", "two", "number"), pairs())
def test_loops_of_reductions_leave_all_names_to_the_user(one: str, two: str, number: str) -> None:
    members = {
        "init": function(f"def init(s, {number}):\n    s[0] = {number}\n", "init"),
        "step": function(f"def step(s, {one}, {number}, {two}):\n    s[0] += {one} * {number} - {two}\n", "step"),
        "merge": function("def merge(s, t):\n    s[0] += t[0]\n", "merge"),
        "result": function(f"def result(s, {number}):\n    return s[0] / {number}, {number}\n", "result"),
    }
    form = reduce_form(members, ["f8", "f8"], "f8", "f8[2]", {number: "f8"})
    # Parameters come by name: inputs are those of step that are no numbers, in order.
    x, y = np.arange(5.0), np.arange(5.0) * 3
    state, other, out = np.zeros(1), np.zeros(1), np.zeros((1, 2))
    loops.calling(form, "init", "state")(state, 4.0)
    loops.loop(form)(state, x, y, 4.0)
    loops.loop(form)(other, x, y, 4.0)
    loops.calling(form, "merge", "state, other")(state, other, 4.0)
    loops.ending(form, np.dtype("(2,)f8"))(state, out, 4.0)
    np.testing.assert_array_equal(out, [[(4 + 2 * (x * 4 - y).sum()) / 4, 4]])
    form = reduce_form(
        {**{name: members[name] for name in ("merge", "init")},
         "block": function(f"def block(s, {one}, {number}):\n    s[0] += {one}.sum() * {number}\n", "block")},
        "f8", "f8", None, {number: "f8"},
    )  # fmt: skip
    loops.loop(form)(state, x, 0.5)
    loops.ending(form, np.dtype("(1,)f8"))(state, out[:, :1], 0.5)
    assert out[0, 0] == 4 + 2 * (x * 4 - y).sum() + x.sum() / 2


def test_numbers_with_a_loops_own_names_keep_their_values(store: Any) -> None:
    store["x"] = np.arange(1, 7)
    add = function("def f(state, other, first):\n    return state + other + first - first * first\n")
    assert store["x"].reduce(add, first=1) == 21
    for keep in (
        function("def f(i_, n_):\n    return i_ > n_\n"),
        function("def f(out_, n_):\n    return out_ > n_\n"),
    ):
        np.testing.assert_array_equal(store["x"].filter(keep, n_=3), [4, 5, 6])


# --- results ----------------------------------------------------------------------------------------------------------


class Moments:
    """Powers of the values, four of them."""

    def step(state, x):  # noqa: N805
        state[0] += 1
        state[1] += x
        state[2] += x * x
        state[3] += x * x * x

    def merge(state, other):  # noqa: N805
        for i in range(4):
            state[i] += other[i]

    def result(state):  # noqa: N805
        return state[0], state[1], state[2], state[3]


@pytest.mark.parametrize("output", ["float64[2,2]", "float64[1,4,1]", None])
def test_several_results_are_the_elements_of_the_output_in_order(store: Any, output: str | None) -> None:
    store["x"] = np.arange(6.0)
    made = nandarray.program.reduce(inputs="float64", state="float64[4]", output=output)(Moments)
    found = nandarray.offload(made, [store["x"]], form="interpreted", task_bytes=16).result
    np.testing.assert_array_equal(found, [6, 15, 55, 225])


@pytest.mark.parametrize("output", ["float64[3]", "float64[2,3]", "float64"])
def test_a_number_of_results_that_the_output_does_not_have_is_refused(output: str) -> None:
    made = nandarray.program.reduce(inputs="float64", state="float64[4]", output=output)(Moments)
    with pytest.raises(InvalidError, match=r"Moments: result\(\) returns 4 values; an output of .* has others"):
        made.elf  # noqa: B018


def test_a_state_of_several_dimensions_is_given_as_it_is(store: Any) -> None:
    class Counts:
        def step(state, x):  # noqa: N805
            state[x % 2, x % 3] += 1

        def merge(state, other):  # noqa: N805
            for i in range(2):
                for j in range(3):
                    state[i, j] += other[i, j]

    store["n"] = np.arange(20)
    made = nandarray.program.reduce(inputs="int64", state="int64[2,3]")(Counts)
    wanted = np.zeros((2, 3), np.int64)
    np.add.at(wanted, (np.arange(20) % 2, np.arange(20) % 3), 1)
    for form in ("interpreted", "translated"):
        found = nandarray.offload(made, [store["n"]], form=form, task_bytes=24, threads=2).result
        np.testing.assert_array_equal(np.reshape(found, (2, 3)), wanted)


def test_truth_values_come_as_a_stream_too(store: Any) -> None:
    text = """
def f(x: nandarray.Stream["bool"], y: nandarray.OutStream["bool"]):
    for value in x:
        y.store(not value)
"""
    store["truth"] = np.array([True, False, True])
    found = store["truth"].offload(nandarray.program(function(text)))
    np.testing.assert_array_equal(found, [False, True, False])


MIXED = [("i4", "f4"), ("u1", "i2")]


@pytest.mark.parametrize(("one", "two"), MIXED)
def test_a_function_gives_the_dtype_that_it_returns_or_the_requested_one(store: Any, one: str, two: str) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0, 100, 9).astype(dtype) for dtype in (one, two))
    store["a"], store["b"] = a, b
    add = function("def f(a, b):\n    return a + b\n")
    found = store["a"].map_blocks(add, store["b"])
    wide = a.astype(found.dtype) + b.astype(found.dtype)
    np.testing.assert_array_equal(found, wide)
    assert found.dtype.itemsize >= max(a.dtype.itemsize, b.dtype.itemsize)
    for dtype in ("i2", "f4"):
        made = store["a"].map_blocks(add, store["b"], dtype=dtype)
        assert made.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(made, wide.astype(dtype))


# --- what is refused --------------------------------------------------------------------------------------------------


def plain(x: Any) -> Any:
    return x


def pair(x: Any, y: Any) -> Any:
    return x + y


class Whole:
    def step(self, x): ...
    def block(self, x): ...
    def merge(self, other): ...


class Unmerged:
    def step(self, x): ...


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: map_form("map", len, "f4", None, None), "is not a function written in Python"),
    (lambda: map_form("map", plain, ["f4", "f4"], None, None), "plain() takes 1 inputs (x), and inputs names 2"),
    (lambda: map_form("map", pair, "f4", None, None), "pair() takes 2 inputs (x, y), and inputs names 1"),
    (lambda: map_form("map", pair, "f4", None, {"z": "f4"}), "pair() has no parameter 'z', which scalars names"),
    (lambda: map_form("map", pair, [], None, {"x": "f4", "y": "f4"}), "pair() must take at least one input"),
    (lambda: nandarray.program.filter(inputs=[])(function("def f():\n    return True\n")), "at least one input"),
    (lambda: map_form("map", plain, "(2,f4", None, None), "'(2,f4' is not a dtype"),
    (lambda: map_form("map", plain, "f4", None, None, speed=3), "the option 'speed' is not known; there is memory"),
    (lambda: map_form("map", plain, "f4", None, None, bound={"in": 8}), "bound names 'in'; the outputs are out"),
    (lambda: reduce_form(Whole, "f4", "f4", None, None), "Whole: a reduction has step(state, x) for one element, or"),
    (lambda: reduce_form(Unmerged, "f4", "f4", None, None), "Unmerged: a reduction has merge(state, other)"),
    (lambda: reduce_form({"merge": pair}, "f4", "f4", None, None), "reduce: a reduction has step(state, x)"),
    (lambda: reduce_form({"step": 5, "merge": pair}, "f4", "f4", None, None), "5 is not a function written in Python"),
    (lambda: fold_form(plain, np.dtype("f4"), np.dtype("f8"), None), "plain() takes 1 values (x); a reduction has"),
    (lambda: fold_form(pair, np.dtype("f4"), np.dtype("f8"), {"y": "f4"}), "pair() takes 1 values (x)"),
    (lambda: boxes_form(pair, [np.dtype("f4")] * 2, np.dtype("f4"), 2, None), "pair() takes 2 boxes (x, y) for 2"),
    (lambda: block_form(pair), "parameter 'x' has the annotation"),
    (lambda: nandarray.program(output="f4")(plain), "output and scalars belong to functions over elements"),
    (lambda: nandarray.program(plain, scalars={"x": "f4"}), "output and scalars belong to functions over elements"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "says"), REFUSED, ids=range(len(REFUSED)))
def test_a_form_that_does_not_fit_its_function_is_refused_at_once(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(InvalidError) as caught:
        make()
    assert says in str(caught.value)


def test_folds_keep_64_bits_of_integers_and_the_dtype_of_floats() -> None:
    wanted = {"?": "i8", "i1": "i8", "i4": "i8", "u2": "u8", "u8": "u8", "f4": "f4", "f8": "f8", "c8": "c8"}
    assert {dtype: folded_into(np.dtype(dtype)).str.lstrip("<") for dtype in wanted} == wanted


def test_a_result_that_is_no_number_is_refused_with_its_line(store: Any) -> None:
    store["x"] = np.arange(4.0)
    for text, says in [
        ("def f(x):\n    y = x\n", "the function must return a number, or have output=, and returns nothing"),
        ("def f(x):\n    return 'text'\n", "unicode_type cannot be represented as a NumPy dtype"),
        ("def f(x):\n    return\n", "have output=, and returns nothing"),
    ]:
        with pytest.raises((InvalidError, CompileError)) as caught:
            store["x"].map_blocks(function(text))
        assert says in str(caught.value)
        assert ">:1: f" in str(caught.value)


def test_a_program_is_still_its_function_and_does_not_change() -> None:
    made = nandarray.program(inputs=["f4", "f4"])(pair)
    assert made(2, 3) == 5
    assert repr(made) == "<nandarray.Program 'pair' from Python, not compiled yet>"
    assert "return x + y" in made.source
    with pytest.raises(AttributeError, match="a Program does not change: name cannot be set"):
        made.name = "other"
    with pytest.raises(AttributeError, match="a Program has no attribute 'nothing'"):
        made.nothing  # noqa: B018
    with pytest.raises(TypeError, match="a reduction is no function"):
        nandarray.program.reduce(inputs="f8", state="f8[4]")(Moments)(1)
    assert operator.attrgetter("form.name")(made) == "pair"
