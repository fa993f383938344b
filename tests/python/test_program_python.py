"""Programs from Python functions: what they compile to computes what the functions do, and errors name the line."""

# ruff: noqa: F821 (dtypes in annotations are text)

import math
import pickle
import re
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numba
import numpy as np
import program_qemu
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nandarray
import nandarray as nd
from nandarray import CompileError, InvalidError, Program
from nandarray.programs.annotations import parse_dtype
from nandarray.programs.compile import functions
from nandarray.programs.compile.fingerprint import fingerprint

LIMIT = 3
X = np.random.default_rng(5).normal(size=3001)


@numba.njit
def helper(x: float) -> float:
    return x * x + LIMIT


# --- blocks -----------------------------------------------------------------------------------------------------------


def test_a_function_over_blocks_says_how_much_it_wrote() -> None:
    @nandarray.program
    def above(x: nd.Block["float32"], out: nd.Out["float32"], k: nd.Scalar["float64"]):
        """Keep what is above.

        And nothing else.
        """
        n = 0
        for i in range(x.size):
            if x[i] > k:
                out[n] = x[i]
                n += 1
        return n

    assert "not compiled yet" in repr(above)
    x = X.astype("f4")
    for tasks in (1, 4):
        (y,) = program_qemu.run(above, x, scalars=[0.25], tasks=tasks)
        np.testing.assert_array_equal(y, x[x > 0.25])
    assert (above.name, above.kind, above.target) == ("above", "block", "rv64")
    assert above.metadata["summary"] == "Keep what is above."
    assert "x[i] > k" in (above.source or "")
    assert repr(above) == "<nandarray.Program 'above' block rv64: x float32, k -> out float32>"
    out = np.zeros(4, "f4")
    assert above(np.array([1, 5], "f4"), out, 2) == 1  # it is still the function
    assert above.function is not None


def test_annotations_may_be_text_with_and_without_quotes() -> None:
    text = """
    from __future__ import annotations
    @nd.program
    def f(x: nd.Block[float32], y: nd.Block["u1"], out: nd.Out[np.float64], k: nd.Scalar[int8]): ...
    """
    names: dict[str, Any] = {"nd": nandarray, "np": np}
    exec(textwrap.dedent(text), names)
    form = names["f"].form
    assert [dtype.name for _, dtype in (*form.inputs, *form.outputs, *form.scalars)] == [
        "float32",
        "uint8",
        "float64",
        "int8",
    ]


def test_several_inputs_outputs_and_numbers_of_every_kind() -> None:
    @nandarray.program
    def split(  # noqa: PLR0917
        a: nd.Block[np.int32],
        b: nd.Block[np.uint8],
        low: nd.Out["i4"],
        high: nd.Out["f8"],
        i: nd.Scalar["int16"],
        f: nd.Scalar["float32"],
        t: nd.Scalar["bool"],
        u: nd.Scalar["uint64"],
    ):
        lows = highs = 0
        for k in range(len(a)):
            if a[k] < i and t:
                low[lows] = a[k] + b[k]
                lows += 1
            else:
                high[highs] = a[k] * f + (u >> np.uint64(60))
                highs += 1
        return lows, highs

    a = np.random.default_rng(1).integers(-100, 100, 999, dtype="i4")
    b = np.random.default_rng(2).integers(0, 255, 999, dtype="u1")
    low, high = program_qemu.run(split, a, b, scalars=[-7, 1.5, True, 2**64 - 1], tasks=3)
    np.testing.assert_array_equal(low, (a + b)[a < -7])
    np.testing.assert_array_equal(high, a[a >= -7] * np.float32(1.5).astype("f8") + 15)


def test_helpers_globals_mathematics_and_reductions_of_arrays() -> None:
    def local(x: float) -> float:
        return math.sin(x) + np.exp(x) + helper(x)

    jitted = numba.njit(local)

    @nandarray.program
    def mixed(x: nd.Block["float64"], out: nd.Out["float64"]):
        total, least = x.sum(), x.min()
        for i in range(x.size):
            out[i] = jitted(x[i]) + max(total, least) + math.floor(x[i]) % LIMIT

    (y,) = program_qemu.run(mixed, X)
    want = np.sin(X) + np.exp(X) + X * X + LIMIT + max(X.sum(), X.min()) + np.floor(X) % LIMIT
    np.testing.assert_allclose(y, want, rtol=1e-12)


def test_records_with_fields_and_records_that_are_rows() -> None:
    @nandarray.program
    def fields(
        p: nd.Block[{"x": "f4", "id": "i8"}],
        row: nd.Block["int16[3]"],
        out: nd.Out["int64[2]"],
    ):
        for i in range(len(p)):
            out[i, 0] = p[i].id + np.int64(p[i].x)
            out[i, 1] = row[i].sum() * row[i, 2]

    p = np.zeros(50, parse_dtype({"x": "f4", "id": "i8"}))
    p["x"], p["id"] = np.arange(50) * 1.5, np.arange(50)[::-1]
    row = np.arange(150, dtype="i2").reshape(50, 3)
    (y,) = program_qemu.run(fields, p, row, tasks=2)
    want = np.stack([p["id"] + p["x"].astype("i8"), row.sum(axis=1) * row[:, 2]], axis=-1)
    np.testing.assert_array_equal(y.reshape(-1, 2), want)
    assert [one["record_bytes"] for one in fields.inputs] == [16, 6]


def test_more_than_there_is_room_for_is_a_status() -> None:
    @nandarray.program(bound={"out": {"fixed": 8}})
    def greedy(x: nd.Block["int32"], out: nd.Out["int32"]):
        return len(x)

    program_qemu.run(greedy, np.zeros(2, "i4"))
    with pytest.raises(AssertionError, match="status -2"):
        program_qemu.run(greedy, np.zeros(3, "i4"))
    assert "room" in greedy.metadata["errors"]["-2"]


def test_an_exception_is_a_status_with_a_text() -> None:
    @nandarray.program(inputs="int64")
    def root(x):
        if x < 0:
            raise ValueError("negative")
        return math.sqrt(x)

    (y,) = program_qemu.run(root, np.array([4, 9]))
    np.testing.assert_array_equal(y, [2, 3])
    with pytest.raises(AssertionError, match="status") as caught:
        program_qemu.run(root, np.array([4, -9]))
    says = root.metadata["errors"][re.findall(r"-\d+", str(caught.value))[0]]
    assert re.fullmatch(r"ValueError: negative \(test_program_python\.py:\d+\)", says)


# --- elements ---------------------------------------------------------------------------------------------------------


def test_a_function_over_elements_gives_the_dtype_it_returns() -> None:
    @nandarray.program(inputs=["float32", "int32"], scalars={"k": "float32"})
    def f(x, n, k):
        return x * n + k

    x, n = X.astype("f4"), np.arange(len(X), dtype="i4")
    (y,) = program_qemu.run(f, x, n, scalars=[2.5], tasks=3)
    assert f.outputs[0]["dtype"] == "float64"
    np.testing.assert_array_equal(y, x.astype("f8") * n + 2.5)

    @nandarray.program(inputs="float32", output="int8")
    def g(x):
        return x > 0

    (y,) = program_qemu.run(g, x)
    np.testing.assert_array_equal(y, x > 0)
    assert g(3.0)


def test_a_filter_keeps_elements_in_order() -> None:
    @nandarray.program.filter(inputs="uint16", scalars={"bit": "uint8"})
    def odd(x, bit):
        return (x >> bit) & 1

    x = np.random.default_rng(3).integers(0, 65536, 2000, dtype="u2")
    (y,) = program_qemu.run(odd, x, scalars=[3], tasks=5)
    np.testing.assert_array_equal(y, x[(x >> 3) & 1 == 1])


def test_a_map_of_rows() -> None:
    @nandarray.program.map(inputs="float64[3]")
    def length(v):
        return math.sqrt(v[0] ** 2 + v[1] ** 2 + v[2] ** 2)

    (y,) = program_qemu.run(length, X[:3000])
    np.testing.assert_allclose(y, np.linalg.norm(X[:3000].reshape(-1, 3), axis=1), rtol=1e-14)


# --- reductions -------------------------------------------------------------------------------------------------------


@nandarray.program.reduce(inputs="float64", state="float64[3]")
class Variance:
    """Mean and variance, by Welford's method.

    States merge by Chan's.
    """

    def step(state, x):  # noqa: N805
        state[0] += 1
        d = x - state[1]
        state[1] += d / state[0]
        state[2] += d * (x - state[1])

    def merge(state, other):  # noqa: N805
        if other[0] == 0:
            return
        n, d = state[0] + other[0], other[1] - state[1]
        state[2] += other[2] + d * d * state[0] * other[0] / n
        state[1] += d * other[0] / n
        state[0] = n

    def result(state):  # noqa: N805
        return state[1], state[2] / state[0]


def test_a_reduction_keeps_a_state_and_merges_it() -> None:
    for workers in (1, 4):
        (y,) = program_qemu.run(Variance, X, tasks=9, workers=workers)
        np.testing.assert_allclose(y, [X.mean(), X.var()], rtol=1e-12)
    assert Variance.metadata["summary"] == "Mean and variance, by Welford's method."
    assert Variance.metadata["state_bytes"] == 24
    assert Variance.metadata["entries"] == ["nd_block", "nd_merge", "nd_end"]
    with pytest.raises(TypeError, match="reduction"):
        Variance(1)


def test_a_state_with_fields_that_is_the_result() -> None:
    @nandarray.program.reduce(inputs="int32", state={"n": "int32", "least": "int64"}, scalars={"skip": "int32"})
    class least:
        def init(state):
            state.least = 2**62

        @staticmethod
        def block(state, x, skip):
            for v in x:
                if v != skip:
                    state.n += 1
                    state.least = min(state.least, v)

        def merge(state, other):
            state.n += other.n
            state.least = min(state.least, other.least)

    x = np.random.default_rng(4).integers(-50, 50, 1000, dtype="i4")
    for workers in (1, 3):
        (y,) = program_qemu.run(least, x, scalars=[-50], tasks=4, workers=workers)
        assert y["n"][0] == (x != -50).sum()
        assert y["least"][0] == x[x != -50].min()
    assert least.metadata["entries"] == ["nd_begin", "nd_block", "nd_merge", "nd_end"]


# --- streams ----------------------------------------------------------------------------------------------------------


def test_streams_become_stream_instructions() -> None:
    @nandarray.program
    def streams(
        a: nd.Stream["uint8"],
        b: nd.Stream["float32"],
        out: nd.OutStream["int16"],
        wide: nd.OutStream["float64"],
        k: nd.Scalar["int32"],
    ):
        for v in a:
            if v > k:
                out.store(v)
        while not b.at_end():
            wide.store(b.load() * 0.5)

    assert (streams.kind, streams.metadata["entries"]) == ("stream", ["nd_stream"])
    words = _custom(streams.elf)
    assert {(word & 0x7F, word >> 12 & 7, word >> 15 & 31) for word in words if word & 0x7F != 0x73} == {
        (0x0B, 4, 0),
        (0x0B, 6, 1),
        (0x2B, 1, 0),
        (0x2B, 3, 1),
    }
    assert {word >> 20 for word in words if word & 0x7F == 0x73} == {0x880, 0x881}


def _custom(elf: bytes) -> list[int]:
    import io

    from elftools.elf.elffile import ELFFile

    code, at, found = ELFFile(io.BytesIO(elf)).get_section_by_name(".text").data(), 0, []
    while at + 4 <= len(code):
        word = struct.unpack_from("<I", code, at)[0]
        if word & 3 == 3 and word & 0x7F in (0x0B, 0x2B, 0x73):
            found.append(word)
        at += 4 if word & 3 == 3 else 2
    return found


# --- errors -----------------------------------------------------------------------------------------------------------


def failing(text: str, call: str) -> CompileError:
    Path("mine.py").write_text(textwrap.dedent(text))
    names: dict[str, Any] = {"nd": nandarray, "np": np, "__name__": "mine"}
    exec(compile(Path("mine.py").read_text(), str(Path("mine.py").absolute()), "exec"), names)
    with pytest.raises(CompileError) as caught:
        names[call].elf  # noqa: B018
    return caught.value


def test_what_cannot_be_typed_names_the_users_line() -> None:
    error = failing(
        """
        @nd.program(inputs="float32")
        def f(x):
            y = 2 * x
            return y.nothing + 1
        """,
        "f",
    )
    assert str(error).startswith("mine.py:5: f does not compile: Unknown attribute 'nothing' of type float32")
    assert "return y.nothing + 1" in str(error)
    assert (error.diagnostics[0]["line"], error.diagnostics[0]["severity"]) == (5, "error")
    assert "Unknown attribute" in error.output


def test_writing_to_an_input_is_refused() -> None:
    error = failing(
        """
        @nd.program
        def f(x: nd.Block["int32"], out: nd.Out["int32"]):
            x[0] = 1
        """,
        "f",
    )
    assert str(error).startswith("mine.py:4: f does not compile: Cannot modify readonly array")


def test_float16_within_records_is_refused_by_name() -> None:
    record: Any = {"a": "int32", "b": "float16"}
    with pytest.raises(InvalidError, match="float16 is not computed with by programs in Python.*float32"):
        nandarray.Block[record]
    with nandarray.open(device="tiny", mode="w") as store:
        store["x"] = np.ones(3, "float16")
        np.testing.assert_array_equal(store["x"].map_blocks(lambda v: v + 1), [2, 2, 2])


def test_what_needs_memory_while_it_runs_is_refused() -> None:
    for line in ("np.zeros_like(x)", "x + 1", "[1.0, 2.0]"):
        error = failing(
            f"""
            @nd.program
            def f(x: nd.Block["float64"], out: nd.Out["float64"]):
                y = {line}
                out[0] = y[0]
            """,
            "f",
        )
        assert str(error).startswith("mine.py:"), line
        assert "needs memory while it runs" in str(error) or "mine.py:4" in str(error), line


def test_what_needs_python_is_refused() -> None:
    error = failing(
        """
        @nd.program(inputs="float64")
        def f(x):
            print(x)
            return x
        """,
        "f",
    )
    assert str(error).startswith("mine.py:")
    assert "print" in str(error)


def test_a_reduction_is_typed_function_by_function() -> None:
    error = failing(
        """
        @nd.program.reduce(inputs="float64", state="float64")
        class total:
            def step(state, x):
                state[0] += x
            def merge(state, other):
                state[0] += unknown
        """,
        "total",
    )
    assert "mine.py:7" in str(error)
    assert "unknown" in str(error)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: nandarray.program(lambda x: x), "no annotation"),
        (lambda: nandarray.program(len), "not a function"),
        (lambda: nandarray.program(inputs="float33")(lambda x: x), "not a dtype"),
        (lambda: nandarray.program(inputs=[[("a", ">f4")]])(lambda x: x), "big-endian"),
        (lambda: nandarray.program(inputs="O")(lambda x: x), "no fixed size"),
        (lambda: nandarray.program(inputs=["f4", "f4"])(lambda x: x), "takes 1 inputs"),
        (lambda: nandarray.program(inputs="f4", scalars={"k": "f4"})(lambda x: x), "no parameter 'k'"),
        (lambda: nandarray.program(output="f4")(lambda x: x), "give inputs"),
        (lambda: nandarray.program(inputs="f4", fast=True)(lambda x: x), "option 'fast'"),
        (lambda: nandarray.program(inputs="f4", bound={"y": 3})(lambda x: x), "bound names 'y'"),
        (lambda: nandarray.program.reduce(inputs="f4", state="f4")(type("c", (), {})), "step"),
        (
            lambda: nandarray.program.reduce(inputs="f4", state="f4")(type("c", (), {"step": lambda s, x: None})),
            "merge",
        ),
    ],
)
def test_wrong_options_are_refused_at_once(make: Any, says: str) -> None:
    with pytest.raises(InvalidError, match=re.escape(says)):
        make()


def test_blocks_and_streams_do_not_mix() -> None:
    def f(a: nd.Block["u1"], b: nd.Stream["u1"]):
        pass

    with pytest.raises(InvalidError, match="do not mix"):
        Program.from_python(f)


# --- the cache --------------------------------------------------------------------------------------------------------


def test_a_function_that_does_the_same_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANDARRAY_CACHE", str(tmp_path / "cache"))
    calls: list[Any] = []
    real = functions._typed
    monkeypatch.setattr(functions, "_typed", lambda form: calls.append(form) or real(form))

    def make(factor: float) -> Program:
        @nandarray.program(inputs="float32")
        def scaled(x):
            return x * factor + LIMIT

        return scaled

    first = make(2.0)
    assert first == make(2.0)
    assert len(calls) == 1
    assert make(3.0) != first
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", 4)
    assert make(2.0) != first
    assert len(calls) == 3


def test_a_second_process_needs_no_numba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("prog.py").write_text(
        "import sys, nandarray\n"
        "@nandarray.program(inputs='float32')\n"
        "def twice(x):\n"
        "    return 2 * x\n"
        "print(twice.hash, 'numba' in sys.modules)\n"
    )
    said = [
        subprocess.run([sys.executable, "prog.py"], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert said[0][0] == said[1][0]
    assert said[1][1] == "False"


_CONSTANTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200)
@given(_CONSTANTS, _CONSTANTS)
def test_fingerprints_differ_where_values_do(a: Any, b: Any) -> None:
    def using(value: Any) -> Any:
        return lambda: value

    assert fingerprint(using(a)) == fingerprint(using(pickle.loads(pickle.dumps(a))))
    assert (fingerprint(using(a)) == fingerprint(using(b))) == (repr(a) == repr(b))


def test_what_has_no_value_has_no_fingerprint() -> None:
    for value in (object(), open, sys.stdout, np.array([object()])):
        found = fingerprint(lambda: value)  # noqa: B023
        assert (found is None) == (value is not open)


def test_programs_are_compiled_beside_functions_of_the_host() -> None:
    # In a process of its own, whose Numba has compiled for this machine, and so registered how, before any program.
    code = """
import numba, numpy, nandarray
numba.njit(lambda x: x + 1)(1)
import numba.experimental.function_type
with nandarray.open(device="tiny", mode="w") as store:
    store["v"] = numpy.arange(4, dtype="i2")
    print(store["v"].map_blocks(lambda v: v * 77 + 1234).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "[1234, 1311, 1388, 1465]\n", done.stderr


def test_the_host_still_compiles_for_itself() -> None:
    @numba.njit
    def shared(x):
        return x + np.sqrt(x)

    @nandarray.program(inputs="float64")
    def f(x):
        return shared(x)

    assert f.elf
    assert shared(4.0) == 6.0
    assert numba.njit(lambda a: a.sum())(np.arange(5)) == 10


@settings(max_examples=10)
@given(
    st.lists(st.sampled_from(["x + k", "x * k", "x - 1", "x // 3", "x ^ 5", "max(x, k)", "x << 2", "-x"]), min_size=1),
    st.sampled_from(["int8", "int16", "int32", "int64", "uint8", "uint32"]),
)
def test_integer_arithmetic_is_that_of_numpy(lines: list[str], dtype: str) -> None:
    text = "def f(x, k):\n" + "".join(f"    x = {line}\n" for line in lines[:5]) + "    return x\n"
    names: dict[str, Any] = {}
    numpys: dict[str, Any] = {"max": np.maximum}
    exec(text, names)
    exec(text, numpys)
    made = nandarray.program(inputs=dtype, scalars={"k": "int32"}, output="int64")(names["f"])
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, 0, 1, 7, 100], dtype)
    (y,) = program_qemu.run(made, x, scalars=[-11])
    np.testing.assert_array_equal(y, numpys["f"](x, np.int32(-11)).astype("i8"))
