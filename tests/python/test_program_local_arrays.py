"""Arrays that a Python function makes for itself: NumPy's results in every form, and what one place each cannot do.

Functions are written by the tests; NumPy runs the same functions.
"""

from __future__ import annotations

import itertools
import linecache
import os
import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numba
import numpy as np
import pytest

import nandarray
from nandarray import CompileError
from nandarray.programs import abi

FORMS = ("interpreted", "translated", "native")
ROWS = 3
FLOAT8 = np.dtype(ml_dtypes.float8_e4m3fn)
DTYPES = [*"?bBhHiIlLfdFD", ">i2", ">u4", ">f8", ">c8", "float16", "bfloat16", "float8"]
_FILES = itertools.count()


def function(text: str, name: str = "f", **names: Any) -> Callable[..., Any]:
    """A function whose lines can be read again, as a file's can."""
    file = f"<local {next(_FILES)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    found: dict[str, Any] = {"np": np, "nandarray": nandarray, "numba": numba, "ROWS": ROWS, **names}
    exec(compile(text, file, "exec", dont_inherit=True), found)
    made: Callable[..., Any] = found[name]
    return made


# --- results ----------------------------------------------------------------------------------------------------------


def _body(chance: random.Random, names: dict[str, Any]) -> list[str]:
    """Statements that make arrays of any dtype and shape, write to them, and add up what is read."""
    lines, made = list[str](), list[tuple[str, tuple[int, ...]]]()
    for at, kind in enumerate(chance.sample(DTYPES, 6)):
        names[f"D{at}"] = ml_dtypes.bfloat16 if kind == "bfloat16" else FLOAT8 if kind == "float8" else np.dtype(kind)
        shape = tuple(chance.randrange(1, 4) for _ in range(chance.randrange(1, 4)))
        written = chance.choice([str(shape), f"({shape[0]} * ROWS, 2)", "ROWS + 2", "(ROWS,)"])
        call = chance.choice(["zeros({}, {})", "ones({}, dtype={})", "full({}, 1, {})", "empty(shape={}, dtype={})"])
        lines.append(f"a{at} = np.{call.format(written, f'D{at}')}")
        if "empty" in call:
            lines.append(f"a{at}[...] = 0")
        made.append((f"a{at}", np.empty(eval(written, {"ROWS": ROWS})).shape))  # noqa: S307
    for _ in range(12):
        name, shape = chance.choice(made)
        place = ", ".join(str(chance.randrange(-extent, extent)) for extent in shape)
        value = chance.choice(["x % 2", "i % 2", "1", f"int({name}[{place}] != 0)"])
        lines.append(f"{name}[{place}] = {value}")
    for name, shape in made:
        first = f"{name}[{chance.randrange(-shape[0], shape[0])}]" if len(shape) > 1 else f"{name}[{shape[0] - 1}:]"
        lines += [f"for v in {first}.ravel():", "    total += 2 * total % 97 + int(v != 0)"]
        lines.append(f"total += len({name}) + {name}.size + {name}.shape[-1]")
    return lines


@pytest.mark.parametrize("seed", range(2))
def test_arrays_of_all_dtypes_are_numpys_in_every_form(store: Any, seed: int) -> None:
    names: dict[str, Any] = {}
    body = _body(random.Random(seed), names)
    head = 'def f(x: nandarray.Block["int64"], out: nandarray.Out["int64"]):\n    for i in range(len(x)):\n'
    text = head + "        out[i] = p(x[i], i)\n"
    inner = "def p(x, i):\n    total = 0\n" + "".join(f"    {line}\n" for line in body) + "    return total\n"
    each = function(inner, "p", **names)
    program = nandarray.program(function(text, p=numba.njit(boundscheck=True)(each)), trusted=True)
    x = np.arange(-5, 6)
    store["x"] = x
    wanted = [each(value, i) for i, value in enumerate(x)]
    for form in FORMS:
        np.testing.assert_array_equal(nandarray.offload(program, [store["x"]], form=form).result, wanted, inner)
    on_vectors = nandarray.offload(program.compiled_for("rv64gcv"), [store["x"]], form="interpreted").result
    np.testing.assert_array_equal(on_vectors, wanted, inner)


def _step(x: Any) -> Any:
    """The middle of three numbers, by an array of the caller's own."""
    w = np.empty(3, np.int64)
    w[0], w[1], w[2] = x % 7, x % 5, 3
    for i in range(1, len(w)):
        for j in range(i, 0, -1):
            if w[j - 1] > w[j]:
                w[j - 1], w[j] = w[j], w[j - 1]
    return w[1]


middle = numba.njit(_step)


class Counted:
    """Histogram of middles, counted in an array before it goes to the state."""

    def init(state):  # noqa: N805
        state[:] = np.full(4, 1)[:2].sum()

    def block(state, x):  # noqa: N805
        counts = np.zeros(4, np.int64)
        for value in x:
            counts[middle(value) % 4] += 1
        for i in range(4):
            state[i] += counts[i]

    def merge(state, other):  # noqa: N805
        both = np.zeros((2, 4), np.int64)
        for i in range(4):
            both[0, i], both[1, i] = state[i], other[i]
        for i in range(4):
            state[i] = both[0, i] + both[1, i] - 2

    def result(state):  # noqa: N805
        reversed_ = np.empty(4, np.int64)
        for i in range(4):
            reversed_[i] = state[3 - i]
        return reversed_[0], reversed_[1], reversed_[2], reversed_[3]


class Windowed:
    """Sums of the last three elements, the newest first in an array of the step's own."""

    def init(state):  # noqa: N805
        zeros = np.zeros(3, np.int64)
        for i in range(3):
            state[i] = zeros[i]

    def step(state, x):  # noqa: N805
        w = np.empty(3, np.int64)
        w[0] = x
        for i in range(2):
            w[i + 1] = state[i]
        for i in range(3):
            state[i] = w[i]
        return w.sum()


def test_every_form_of_a_program_has_arrays_of_its_own(store: Any) -> None:
    x = np.arange(200) * 37 % 101
    store["x"], store["grid"] = x, x.reshape(10, 20)
    wanted = np.array([_step(value) for value in x])

    def blurred(a: Any, out: Any) -> None:
        w = np.zeros((3,), np.int64)
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                w[:] = 0
                w[j % 3] = a[i, j]
                out[i, j] = w.sum() + w[-1]

    def both(one: Any, two: Any) -> Any:
        w = np.zeros(2, np.int64)
        w[0], w[1] = one, two
        return w.max()

    @nandarray.program(trusted=True)
    def streamed(x: nandarray.Stream[np.int64], out: nandarray.OutStream[np.int64]):
        w = np.zeros(2, np.int64)
        for value in x:
            w[value % 2] += 1
            out.store(w[0] - w[1])

    counts = np.bincount(wanted % 4, minlength=4)[::-1] + 2
    evens = np.where(x % 2 == 0, 1, -1).cumsum()
    windows = x + np.r_[0, x[:-1]] + np.r_[0, 0, x[:-2]]
    grid = np.where(np.arange(20) % 3 == 2, 2, 1) * x.reshape(10, 20)
    mapped = nandarray.program.map(inputs="int64", trusted=True)(_step)
    kept = nandarray.program.filter(inputs="int64", trusted=True)(lambda v: np.full(2, v)[1] % 2 == 0)
    counted = nandarray.program.reduce(inputs="int64", state="int64[4]", output="int64[4]", trusted=True)(Counted)
    windowed = nandarray.program.sequence(inputs="int64", state="int64[3]", output="int64", trusted=True)(Windowed)
    for form in FORMS:
        run: dict[str, Any] = {"form": form, "threads": 2}
        for made, result in ((mapped, wanted), (kept, x[x % 2 == 0]), (windowed, windows)):
            found = nandarray.offload(made, [store["x"]], task_bytes=80, **run).result
            np.testing.assert_array_equal(found, result, f"{made} {form}")
        np.testing.assert_array_equal(nandarray.offload(streamed, [store["x"]], **run).result, evens)
        found = nandarray.offload(counted, [store["x"]], task_bytes=80, **run).result
        np.testing.assert_array_equal(found, counts)
        found = store["grid"].map_blocks(blurred, block=(3, 6), trusted=True, dtype="int64", **run)
        np.testing.assert_array_equal(found, grid)
        np.testing.assert_array_equal(store["grid"].reduce(both, axis=0, trusted=True, **run), store["grid"][()].max(0))
        assert store["x"].reduce(both, trusted=True, **run) == x.max()


def test_places_are_told_in_the_metadata_and_are_zeros_before_they_are_written(store: Any) -> None:
    @nandarray.program
    def f(x: nandarray.Block[np.int64], out: nandarray.Out[np.int64]):
        a, b = np.empty(3, np.int8), np.empty((2, 5))
        for i in range(len(x)):
            c = np.empty(2, np.int64)  # written in the pass before
            out[i] = a.sum() + b.sum() + c.sum()
            c[:] = a[0] = 7
            a[0] = 0

    assert f.metadata["scratchpad_bytes"] == 16 + 80 + 16
    assert nandarray.program(f._form.functions["function"], scratchpad_bytes=4096).metadata["scratchpad_bytes"] == 4096
    store["x"] = np.arange(9)
    assert not store["x"].offload(f, form="interpreted").any()


def test_slices_are_assigned_and_overlapping_ones_end_the_run(store: Any) -> None:
    def smoothed(x: nandarray.Block[np.float64], out: nandarray.Out[np.float64]):
        w, s = np.zeros(3), np.zeros((2, 3), np.float32)
        for i in range(1, len(x) - 1):
            w[:] = x[i - 1 : i + 2]
            s[1] = w
            s[0, ::2] = w[-2:]
            if x[i] > 40:
                w[:2] = w[1:]
            s[:, 1] += 1
            w[1:] *= w[:1]
            w[0] += 1
            out[i] = w.max() + s.sum()
        out[0] = out[len(x) - 1] = 0

    x, wanted = np.arange(40.0), np.zeros(40)
    smoothed(x, wanted)
    store["x"], store["overlaps"] = x, np.arange(50.0)
    program = nandarray.program(smoothed, trusted=True)
    line = smoothed.__code__.co_firstlineno + 7
    for form in FORMS:
        np.testing.assert_array_equal(store["x"].offload(program, form=form), wanted)
        with pytest.raises(nandarray.ProgramFailedError, match=rf"both sides of an assignment overlap.*:{line}\)"):
            store["overlaps"].offload(program, form=form)


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ("a[1:] += a[:-1]", True),
        ("a[:] *= a[::-1]", True),
        ("b = a[1:]; b -= a[:1]", False),
        ("a[2:] += a[:2]", False),
        ("a += a", False),
        ("a[1:3] += a[1:3]", False),
        ("np.add(a[:-1], 1, a[1:])", True),
        ("np.sqrt(a, a)", False),
        ("np.multiply(a[:2], a[2:], a[2:])", False),
    ],
)
def test_arrays_that_are_changed_in_place_are_not_read_where_they_were_written(
    store: Any, changed: str, wrong: bool
) -> None:
    text = f"def f(x):\n    a = np.zeros(4)\n    for i in range(4): a[i] = i + 1 + x\n    {changed}\n"
    made = function(text + "    return a[0] + a[1] * 3 + a[2] * 7 + a[3] * 11\n")
    store["x"] = np.arange(3)
    program = nandarray.program(made, inputs="int64", output="float64", trusted=True)
    for form in FORMS:
        if wrong:
            with pytest.raises(nandarray.ProgramFailedError, match="both sides of an assignment overlap"):
                store["x"].offload(program, form=form)
        else:
            assert store["x"].offload(program, form=form).tolist() == [made(one) for one in range(3)]


def test_an_index_out_of_range_is_numpys_error_in_every_form(store: Any) -> None:
    store["x"] = np.arange(5)
    made = nandarray.program(function("def f(x):\n    return np.zeros((4, 3))[x, -1]\n"), inputs="int64", trusted=True)
    for form in FORMS:
        with pytest.raises(nandarray.ProgramFailedError, match="index 4 is out of bounds for size 4") as caught:
            store["x"].offload(made, form=form)
        assert caught.value.noted == (4, 4)


def _walk(chance: random.Random, indent: int, depth: int, count: int) -> list[str]:
    """Statements of a loop that make arrays, hand them on, write to them and read them."""
    lines, pad = list[str](), "    " * indent
    for _ in range(count):
        one, two = chance.choice("abc"), chance.choice("abc")
        inner = "if (i + x) % 2:" if chance.random() < 0.5 else "for j in range(2):"
        plain = chance.choice(
            [
                f"{one} = np.zeros(2)", f"{one} = np.full(2, 1.0 + i)", f"{one} = {two}",
                f"{one}, {two} = {two}, {one}",
                f"{one}[i % 2] += i + x + {len(lines)}", f"total = total * 3 % 101 + {one}[0] - {two}[1]",
                f"{one} = either(i % 2, {one}, {two})", f"total += {one}.sum()",
            ]
        )  # fmt: skip
        nested = depth and chance.random() < 0.25
        lines += [pad + inner, *_walk(chance, indent + 1, depth - 1, 3)] if nested else [pad + plain]
    return lines


def test_arrays_that_live_at_once_are_apart_or_refused(store: Any) -> None:
    """A loop over arrays gives NumPy's result, or an error says that one is still in use."""
    either = numba.njit(function("def either(c, a, b):\n    if c:\n        return a\n    return b\n", "either"))
    store["x"], apart, seeds = np.arange(6), 0, 300 if os.environ.get("NANDARRAY_DEEP") else 12
    for seed in range(seeds):
        lines = ["total, i, a, b, c = 0.0, 0, np.zeros(2), np.ones(2), np.full(2, 7.0)", "for i in range(4):"]
        lines = [f"    {one}" for one in lines] + _walk(random.Random(seed), 2, 2, 5)
        text = "\n".join(["def f(x):", *lines, "    return total + a[0] + 3 * b[1] + 7 * c[0]\n"])
        f = function(text, either=either)
        try:
            found = store["x"].offload(nandarray.program(f, inputs="int64"), form="translated")
        except CompileError as error:
            if "still in use" not in str(error):
                raise
            continue
        np.testing.assert_array_equal(found, [f(x) for x in range(6)], f"seed {seed}\n{text}")
        apart += 1
    assert apart > seeds // 6


# --- what is refused --------------------------------------------------------------------------------------------------

MOST = abi.SCRATCHPAD_BYTES_MAX
REFUSED = [
    ("a = np.zeros(x)\nreturn a[0]", 1, "the shape of np.zeros must be known when the program is compiled"),
    ("a = np.full((2, -1), 0.5)\nreturn a[0, 0]", 1, r"integers from 0 to \d+, one or a tuple of them, not \(2, -1\)"),
    ("a = np.zeros(2.5)\nreturn a[0]", 1, "not 2.5"),
    ("a = np.zeros(2, 'nothing')\nreturn a[0]", 1, "np.zeros: 'nothing' is not a dtype"),
    ("a = np.zeros(2, order='F')\nreturn a[0]", 1, "the order of np.zeros must be 'C', not 'F'"),
    ("a = np.full(3)\nreturn a[0]", 1, "np.full must be given shape and fill_value, perhaps dtype"),
    ("a = np.full(3, 300, np.uint8)\nreturn a[0]", 1, "np.full: Python integer 300 out of bounds for uint8"),
    ("a = np.full(3, 'x')\nreturn 1", 1, "np.full must be filled with a number"),
    (
        "b = 1\na = np.empty((1 << 12, 1 << 16))\nreturn a[b, 0]",
        2,
        rf"np.empty\(\(4096, 65536\), float64\) takes {1 << 31} bytes of scratchpad, which has at most {MOST}",
    ),
    (
        "a = np.zeros(100)\nb = np.zeros(1 << 25)\nreturn a[0] + b[0]",
        2,
        rf"takes {1 << 28} bytes of scratchpad \({(1 << 28) + 800} with the program's other arrays\), which has",
    ),
    (
        "last = np.zeros(2)\nfor i in range(3):\n    w = np.zeros(2)\n    w[0] = last[0]\n    last = w\nreturn last[0]",
        3,
        r"np.zeros makes an array while that of a pass before is still in use \('last'\)",
    ),
    (
        "t = 0.0\na = np.zeros((2, 2))[0]\nfor i in range(3):\n    t += a[0]\n    a = np.ones((2, 2))[1]\nreturn t",
        None,
        None,
    ),
    (
        "a = (np.zeros(1), np.zeros(1))\nfor i in range(3):\n    a = (a[1], np.full(1, 2.0))\nreturn a[0][0]",
        3,
        "still in use",
    ),
    ("return again(x)", 1, "again.. makes an array and calls itself"),
    ("a = made(x)\nb = made(x + 1)\nreturn a[0] + b[0]", 1, r"_made\(\) returns an array that it made with np.ones"),
]


def _again(n):
    w = np.zeros(2)
    w[0] = 1.0 if n <= 0 else again(n - 1)
    return w[0]


def _made(n):
    w = np.ones(3)
    w[0] = n
    return w[:2]


again, made = numba.njit(_again), numba.njit(_made)


@pytest.mark.parametrize(("text", "line", "says"), REFUSED)
def test_what_one_place_for_each_array_cannot_do_is_refused_with_its_line(
    text: str, line: int | None, says: str | None, store: Any
) -> None:
    body = "def f(x):\n" + "".join(f"    {one}\n" for one in text.splitlines())
    f = function(body, again=again, made=made)
    program = nandarray.program(f, inputs="int64", output="float64")
    if says is None:
        store["x"] = np.arange(3)
        np.testing.assert_array_equal(store["x"].offload(program), [f(x) for x in range(3)])
        return
    with pytest.raises(CompileError, match=says) as caught:
        program.elf  # noqa: B018
    assert f">:{1 + (line or 0)}: f does not compile" in str(caught.value)
