"""Loop nests against Python: what is compiled computes what the function itself does, or is refused with its line."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nest_cases import INTEGERS, Array, by_python, function_of, nest_text

import nandarray
from nandarray import CompileError
from nandarray.programs import nest

FORMS = ("interpreted", "translated", "native")
SEEDS = 100 if os.environ.get("NANDARRAY_DEEP") else 8


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with nandarray.open(tmp_path_factory.mktemp("nests") / "n.nand", mode="w") as opened:
        yield opened


def results(store: Any, kernel: Any, inputs: dict[str, Array], form: str, **scalars: Any) -> dict[str, Array]:
    with store.session(workers=3) as session:
        found = session.submit(kernel, inputs=inputs, scalars=scalars, form=form).result()
    names = [one["name"] for one in kernel.table["outputs"] if not one.get("temporary")]
    return found if isinstance(found, dict) else {names[0]: found}


def sample(n: int, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name, (dtype, bits) in INTEGERS.items():
        low = 0 if dtype[0] == "u" else -(1 << bits)
        made[name] = rng.integers(low, 1 << bits, n, endpoint=False).astype(dtype)
        ends = [low, (1 << bits) - 1, 0]
        made[name][: min(n, 3)] = np.array(ends, np.int64).astype(dtype)[: min(n, 3)]
    return made | {"x": rng.normal(0, 40, (n, 2)), "total": rng.integers(-9, 9, 3)}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_nest_computes_what_python_computes(store: Any, seed: int) -> None:
    n = (9, 1, 17, 4)[seed % 4]
    text = nest_text(seed)
    function = function_of(text, n=n)
    kernel = nandarray.kernel(function)
    given = sample(n, seed)
    outputs = {one["name"]: one for one in kernel.table["outputs"]}
    wanted = {name: np.zeros([n if e == "n" else e for e in one["shape"]], one["dtype"])
              for name, one in outputs.items()}  # fmt: skip
    wanted["total"][:] = given["total"]
    by_python(function, {**given, **wanted}, whole=-123_456, scale=1.75)
    for form in FORMS:
        found = results(store, kernel, given, form, whole=-123_456, scale=1.75)
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, err_msg=f"seed {seed}, {form}, {name}\n{text}")
    kernel.check(screens=min(n, 3), scalars={"whole": 5, "scale": 0.5}, **given)


# Where C has other rules than Python: widths, signs, and limits of loops that change.
RULES = """
def rules(b: Read["i4", "n"], c: Read["u4", "n"], d: Read["u1", "n"], y: Write["i8", "n", 16]):
    for i in screens(n):
        y[i, 0] = 1 if b[i] < c[i] else 0
        y[i, 1] = min(b[i], c[i])
        y[i, 2] = max(c[i], b[i])
        y[i, 3] = c[i] if d[i] > 3 else b[i]
        y[i, 4] = c[i] - 5
        y[i, 5] = b[i] * b[i]
        y[i, 6] = -c[i]
        y[i, 7] = abs(d[i] - c[i])
        y[i, 8] = (b[i] == c[i]) << 40
        y[i, 9] = (d[i] << n * 5) + (1 << n * 6)
        y[i, 10] = (1 << 31) + 2147483647 + 1
        y[i, 11] = (d[i] - 200) >> 35
        end = 6
        for j in range(end):
            end -= 2
            y[i, 12] += j
        for j in range(end, 9, 3):
            end = 20
            y[i, 13] += j
        first = 5
        for j in range(first, d[i] % 4, -1):
            first = 0
            y[i, 14] = y[i, 14] * 10 + j
        y[i, 15] = c[i] > -1 and not b[i] > c[i]
"""


def test_rules_of_c_that_are_not_pythons_do_not_count(store: Any) -> None:
    b = np.array([-1, -(2**31), 2**31 - 1, 0, 7, 46341, -5], "i4")
    c = np.array([0, 2**32 - 1, 2**31, 3, 7, 46341, 4], "u4")
    d = np.array([0, 255, 3, 4, 200, 1, 2], "u1")
    function = function_of(RULES, n=7)
    kernel, wanted = nandarray.kernel(function), np.zeros((7, 16), "i8")
    by_python(function, {"b": b, "c": c, "d": d, "y": wanted})
    for form in FORMS:
        np.testing.assert_array_equal(results(store, kernel, {"b": b, "c": c, "d": d}, form)["y"], wanted, err_msg=form)


# --- parts of rows ----------------------------------------------------------------------------------------------------

STENCIL = """
def stencil(x: Read["f8", "n", "m"], t: Temporary["f8", "n", "m"], y: Write["f8", "n", "m"]):
    for i in screens(n):
        for j in range(m):
            t[i, j] = 2.0 * x[i, j] + j
    for i in screens({before}, n - {behind}):
        for j in range(m):
            y[i, j] = t[i - {before}, j] + t[i + {behind}, m - 1 - j] - t[i, j]
"""


@pytest.mark.parametrize(("before", "behind"), [(0, 0), (1, 0), (0, 2), (3, 1)])
@pytest.mark.parametrize("n", [1, 3, 8, 21])
def test_screens_read_as_many_rows_beside_theirs_as_their_subscripts_say(
    store: Any, before: int, behind: int, n: int
) -> None:
    function = function_of(STENCIL.format(before=before, behind=behind), n=n, m=3)
    kernel = nandarray.kernel(function)
    x = np.random.default_rng(n).normal(size=(n, 3))
    wanted = {"t": np.zeros_like(x), "y": np.zeros_like(x)}
    by_python(function, {"x": x, **wanted})
    reads = kernel.table["microblocks"][1]["reads"]["t"]
    assert reads == ({"rows": [before, behind]} if before or behind else "rows")
    kernel.check(screens=4, x=x)
    for form in FORMS:
        np.testing.assert_array_equal(results(store, kernel, {"x": x}, form)["y"], wanted["y"], err_msg=form)


def test_a_section_of_other_rows_is_mapped_as_a_whole(store: Any) -> None:
    text = """
def rows(x: Read["f8", "m"], y: Write["f8", "n"]):
    for i in screens(n):
        y[i] = x[i]
"""
    kernel = nandarray.kernel(function_of(text, n=0))
    assert kernel.table["microblocks"][0]["reads"] == {"x": "all"}


def test_exponentials_and_square_roots_are_those_of_each_width(store: Any) -> None:
    text = """
def functions(x: Read["f8", "n"], w: Read["f4", "n"], y: Write["f8", "n", 2], v: Write["f4", "n", 2]):
    for i in screens(n):
        y[i, 0] = exp(x[i])
        y[i, 1] = sqrt(abs(x[i]))
        v[i, 0] = exp(w[i])
        v[i, 1] = sqrt(abs(w[i]) + 0.1)
"""
    kernel = nandarray.kernel(function_of(text, n=0))
    x = np.linspace(-30, 30, 41)
    w = x.astype("f4")
    for form in FORMS:
        found = results(store, kernel, {"x": x, "w": w}, form)
        np.testing.assert_allclose(found["y"][:, 0], np.exp(x), rtol=3e-16)
        np.testing.assert_array_equal(found["y"][:, 1], np.sqrt(np.abs(x)))
        np.testing.assert_allclose(found["v"][:, 0], np.exp(w), rtol=3e-7)
        np.testing.assert_array_equal(found["v"][:, 1], np.sqrt(np.abs(w) + np.float32(0.1)))
    assert math.isfinite(found["v"][-1, 0])


STEPS = """
def steps(x: Read["i8", "n"], y: Write["i8", "n", 20], by: int):
    for i in screens(n):
        lambda_ = 0
        for j in range(x[i], 10, by):
            if lambda_ < 20:
                y[i, lambda_] = j
            lambda_ = lambda_ + 1
"""


@pytest.mark.parametrize("by", [1, 3, 50, -1, -4])
def test_a_step_may_be_a_number_of_the_kernel_of_either_sign(store: Any, by: int) -> None:
    function = function_of(STEPS, n=5)
    x, wanted = np.array([0, 9, 10, 11, 25], "i8"), np.zeros((5, 20), "i8")
    by_python(function, {"x": x, "y": wanted}, by=by)
    for form in FORMS:
        np.testing.assert_array_equal(results(store, nandarray.kernel(function), {"x": x}, form, by=by)["y"], wanted)


# --- what is refused --------------------------------------------------------------------------------------------------

HEAD = """
def wrong(x: Read["f8", "n"], k: Read["i8", "n"], y: Write["f8", "n"], count: int):
    for i in screens(n):
        {}
"""
STATEMENTS = [
    ("y[i] = x[i] // 2.0", "// of floats is not in the language"),
    ("y[i] = x[i] % k[i]", "% of floats"),
    ("y[i] = k[i] & x[i]", "& of floats"),
    ("y[i] = 1 << x[i]", "<< of floats"),
    ("y[i] = 2 ** 3", "operator Pow"),
    ("y[i] = 1 if x[i] is k[i] else 0", "x[i] is k[i] is not in the language"),
    ("y[i] = k[i] in x", "k[i] in x is not in the language"),
    ("y[i] = 0 < x[i] < 2", "0 < x[i] < 2 is not"),
    ("y[i] = x[i] or 5.0", "x[i] or 5.0 is not in the language"),
    ("y[i] = not x[i] and 3", "is not in the language"),
    ("y[i] = 1e999", "1e309 is not in the language"),
    ("y[i] = 'text'", "'text' is not in the language"),
    ("y[i] = 9223372036854775808", "9223372036854775808 is not in the language"),
    ("y[i] = x[-1]", "an index of x must be an integer from 0 on, not -1"),
    ("y[i] = x[0.5]", "an index of x must be an integer from 0 on, not 0.5"),
    ("y[i] = x[x[i]]", "an index of x must be an integer from 0 on, not x[i]"),
    ("y[i] = x[i, 0]", "x has 1 dimensions"),
    ("y[i] = x", "x is a section: it has subscripts"),
    ("y[i] = unknown", "unknown is not known, or has no value yet"),
    ("y[i] = z[i]", "z is no section of the kernel"),
    ("y[i] = x[i].real", "x[i].real is not in the language"),
    ("y[i] = max(x[i], key=3)", "is not in the language"),
    ("y[i] = max(x[i], 1.0, 2.0)", "max() is not in the language"),
    ("y[i] = min(*x)", "*x is not in the language"),
    ("y[i] = sum(x)", "x is a section"),
    ("y[i] = round(x[i])", "round() is not in the language"),
    ("s += x[i]", "s has no value yet"),
    ("i = 0", "i is the variable of a loop, and would get another value"),
    ("n = 2", "n is an extent"),
    ("x = 2.0", "x is a section, and would"),
    ("count = 2", "count is a number of the kernel"),
    ("a = b = 2", "Assign is not in the language"),
    ("a: float = 2.0", "AnnAssign is not"),
    ("double = 2.0", "double is a word of C"),
    ("first_ = 2.0", "first_ is a word of C, or one of the text around"),
    ("nd_args = 2.0", "nd_args is a word of C"),
    ("x[i] = 2.0", "x is read, and would be written"),
    ("y[i + 1] = 2.0", "its screens would meet in y: it is written elsewhere than in row i"),
    ("y[i] += y[i - 1]", "its screens would meet in y: one reads rows that another writes"),
    ("y[0] = x[i]", "its screens would meet in y"),
    ("return", "Return is not in the language"),
    ("pass", "Pass is not in the language"),
    ("count", "Expr is not in the language"),
    ("a = 1.0", "the rows of its outputs are none; screens share one"),
]
LOOPS = [
    ("for i in range(3): y[i] = 1.0", "i is the variable of a loop"),
    ("for n in range(3): y[i] = 1.0", "n is an extent"),
    ("for j in range(): y[i] = 1.0", "range() is not in the language of loop nests: it takes 1 to 3 numbers"),
    ("for j in range(1, 2, 3, 4): y[i] = 1.0", "it takes 1 to 3 numbers"),
    ("for j in range(stop=3): y[i] = 1.0", "it takes 1 to 3 numbers"),
    ("for j in range(*k): y[i] = 1.0", "it takes 1 to 3 numbers"),
    ("for j in range(x[i]): y[i] = 1.0", "x[i] is no integer, as range(x[i]) needs it"),
    (
        "for j in range(0, 9, 0): y[i] = 1.0",
        "the step of range(0, 9, 0) is a number of the kernel, or one that stands there, and not 0",
    ),
    ("for j in range(0, 9, k[i]): y[i] = 1.0", "the step of range(0, 9, k[i])"),
    ("for j in x: y[i] = 1.0", "For is not in the language"),
    ("for j, h in range(3): y[i] = 1.0", "For is not in the language"),
    ("for y[0] in range(3): y[i] = 1.0", "For is not in the language"),
    ("for j in screens(3): y[i] = 1.0", "For is not in the language"),
    ("for static in range(3): y[i] = 1.0", "static is a word of C"),
    ("with x: y[i] = 1.0", "With is not in the language"),
]
BLOCKS = [
    ("for j in range(3):\n            y[i] = j\n            j = 5", "j is the variable of a loop"),
    ("for j in range(3):\n            y[i] = j\n        y[i] = j", "j is not known, or has no value yet"),
    ("j = 1\n        for j in range(3):\n            y[i] = j", "j is a number already"),
    ("for j in range(3):\n            y[i] = j\n        else:\n            y[i] = 7.0", "else behind a loop is not"),
    ("while x[i] > 2:\n            break\n        else:\n            y[i] = 7.0", "While is not in the language"),
]


@pytest.mark.parametrize(("body", "says"), STATEMENTS + LOOPS + BLOCKS)
def test_what_is_outside_of_the_language_is_refused_with_its_line(body: str, says: str) -> None:
    function = function_of(HEAD.format(body))
    with pytest.raises(CompileError) as caught:
        nest.derive(function)
    assert says in str(caught.value)
    (told,) = caught.value.diagnostics
    assert told["file"] == function.__code__.co_filename
    lines = HEAD.format(body).splitlines()
    assert 3 <= told["line"] <= len(lines)
    assert str(caught.value).startswith(f"{told['file']}:{told['line']}: wrong: ")


WHOLE = [
    ("def wrong(x, y: Write['f8', 'n']):\n    y[0] = 1.0", "parameter x has no annotation of a section or a number"),
    ("def wrong(x: Read['f2', 'n'], y: Write['f8', 'n']):\n    y[0] = 1.0", "x must be of dtype f4, f8, i4"),
    ("def wrong(x: Read['f8', 'n'], y: Write['f8', 'n']):\n    'text'", "a kernel has one statement at least"),
    ("def wrong(int: Read['f8', 'n'], y: Write['f8', 'n']):\n    y[0] = 1.0", "int is a word of C"),
    ("def wrong(x: Read['f8', 'for'], y: Write['f8', 'n']):\n    y[0] = 1.0", "for is a word of C"),
    ("def wrong(x: Read['f8', 'n'], y: Write['f8', 'n'], size_t: int):\n    y[0] = 1.0", "size_t is a word of C"),
    ("def wrong(y: Write['f8', 'n']):\n    for i in screens():\n        y[i] = 1.0", "it takes 1 to 2 numbers"),
    ("def wrong(y: Write['f8', 'n']):\n    for i in screens(0, n, 2):\n        y[i] = 1.0", "it takes 1 to 2 numbers"),
    ("def wrong(y: Write['f8', 'n']):\n    for i in screens(stop=n):\n        y[i] = 1.0", "it takes 1 to 2 numbers"),
    ("def wrong(y: Write['f8', 'n']):\n    for y[0] in screens(n):\n        y[0] = 1.0", "y[0] is no variable of a"),
    ("def wrong(y: Write['f8', 'n']):\n    for i in screens(n):\n        y[i] = 1.0\n    else:\n        y[0] = 2.0",
     "else behind a loop is not in the language"),
    ("def wrong(y: Write['f8', 'n']):\n    for i in screens(2.5):\n        y[i] = 1.0", "2.5 is no integer"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), WHOLE)
def test_a_function_that_is_no_kernel_is_refused(text: str, says: str) -> None:
    with pytest.raises(CompileError) as caught:
        nest.derive(function_of(text + "\n"))
    assert says in str(caught.value)


def test_a_function_without_a_text_or_a_name_is_refused(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec("def unread(): pass", names)
    with pytest.raises(CompileError, match="has no text that could be read"):
        nandarray.kernel(names["unread"])
    with pytest.raises(CompileError, match="has no text that could be read"):
        nandarray.kernel(math.sqrt)
    nameless = lambda x: x  # noqa: E731
    with pytest.raises(CompileError, match="is no function that begins with def"):
        nandarray.kernel(nameless)
