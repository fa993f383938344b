"""Programs as functions of this process: for trusted ones only, equal to the interpreted form, refused where not."""

# ruff: noqa: F821, UP037 (dtypes in annotations are text)

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nandarray
from nandarray import Block, CompileError, InvalidError, Out, OutStream, Program, ProgramFailedError, Stream, programs
from nandarray.programs.compile import host

pytestmark = pytest.mark.skipif(host.target() is None, reason="programs have no native form on this machine")

HEAD = "#include <nandarray.h>\n"
BLOCK = 'ND_PROGRAM("name": "mine", "kind": "block", "inputs": [{"name": "x", "dtype": "float64"}],'
BLOCK += ' "outputs": [{"name": "y", "dtype": "float64"}])\n'
STREAM = 'ND_PROGRAM("name": "mine", "kind": "stream", "inputs": [{"name": "x", "dtype": "uint8"}],'
STREAM += ' "outputs": [{"name": "y", "dtype": "uint8", "bound": {"fixed": 64}}])\n'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with nandarray.open(tmp_path_factory.mktemp("native") / "data.nand", mode="w") as opened:
        opened["x"] = np.random.default_rng(1).normal(size=300_000)
        opened["bytes"] = np.arange(100, dtype="u1")
        yield opened


def block(body: str, before: str = "", *, trusted: bool = True) -> Program:
    text = f"{HEAD}#include <math.h>\n{BLOCK}{before}\nint64_t nd_block(nd_args *args) {{\n"
    text += "const double *x = ND_INPUT(args, 0, double); double *y = ND_OUTPUT(args, 0, double);\n"
    text += f"size_t n = ND_INPUT_COUNT(args, 0, double);\n{body}\nND_SET_USED(args, 0, n, double); return 0; }}\n"
    return Program.from_c(text, trusted=trusted)


def both(program: Program, inputs: list[Any], scalars: Any = None, **options: Any) -> Any:
    """Run both forms, which must give the same, and return their outputs."""
    found = {
        form: nandarray.offload(program, inputs, scalars, form=form, **options) for form in ("interpreted", "native")
    }
    assert [one.account.form for one in found.values()] == list(found)
    first, second = found.values()
    for name, value in first.outputs.items():
        assert np.asarray(value).tobytes() == np.asarray(second.outputs[name]).tobytes(), name
    return second.result


def test_trust_decides(store: Any) -> None:
    body = "for (size_t i = 0; i < n; i++) y[i] = 2 * x[i];"
    mine = block(body, trusted=False)
    assert not mine.trusted
    assert nandarray.offload(mine, [store["x"]]).account.form != "native"
    with pytest.raises(InvalidError, match="not trusted"):
        nandarray.offload(mine, [store["x"]], form="native")
    trusted = block(body)
    assert trusted.trusted
    assert trusted == mine
    found = nandarray.offload(trusted, [store["x"]])
    assert found.account.form == "native"
    assert found.account.instructions == 0
    np.testing.assert_array_equal(found.result, 2 * store["x"][...])
    assert not Program.from_elf(trusted.elf).trusted
    again = pickle.loads(pickle.dumps(trusted))  # noqa: S301
    assert again.trusted
    assert nandarray.offload(again, [store["x"]]).account.form == "native"
    assert programs.get("sum").trusted
    with pytest.raises(InvalidError, match="form must be .*, not 'quick'"):
        store["x"].offload(trusted, form="quick")
    with pytest.raises(InvalidError, match="cannot be limited"):
        nandarray.offload(trusted, [store["x"]], form="native", instructions=10**9)
    assert nandarray.offload(trusted, [store["x"]], instructions=10**9).account.form != "native"


FUNCTIONS = "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt cbrt"
FUNCTIONS += " erf erfc tgamma floor ceil rint trunc round fabs"


@pytest.mark.parametrize("function", FUNCTIONS.split())
def test_mathematics_agree_to_the_bit(store: Any, function: str) -> None:
    program = block(f"for (size_t i = 0; i < n; i++) {{ double r = {function}(3 * x[i]); y[i] = r == r ? r : 0; }}")
    both(program, [store["x"]])


def test_variables_are_not_shared(store: Any) -> None:
    program = block("for (size_t i = 0; i < n; i++) y[i] = ++calls;", "static double calls;")
    with pytest.raises(InvalidError, match="calls"):
        nandarray.offload(program, [store["x"]], form="native")
    assert nandarray.offload(program, [store["x"]]).account.form != "native"


def test_what_the_host_does_not_have(store: Any) -> None:
    program = block('__asm__ volatile("fence.i"); for (size_t i = 0; i < n; i++) y[i] = x[i];')
    assert nandarray.offload(program, [store["x"]]).account.form != "native"
    with pytest.raises(CompileError):
        nandarray.offload(program, [store["x"]], form="native")
    small = Program.from_c(HEAD + BLOCK + "int64_t nd_block(nd_args *a) { return 0; }", target="rv32", trusted=True)
    with pytest.raises(InvalidError, match="rv32"):
        nandarray.offload(small, [store["x"]], form="native")


def test_errors_are_those_of_the_hart(store: Any) -> None:
    bad = {
        "returned -7": block("return -7;"),
        "leaves room for": block("args->outputs[0].used = 1 << 30; return 0;"),
        "not whole elements": block("args->outputs[0].used = 3; return 0;"),
        "room for 64": Program.from_c(
            HEAD + STREAM + "int64_t nd_stream(nd_args *a) { for (;;) nd_store_u8(0, nd_load_u8(0)); }", trusted=True
        ),
        "2 bytes left": Program.from_c(
            HEAD + STREAM + "int64_t nd_stream(nd_args *a) { for (int i = 0; i < 49; i++) nd_load_u16(0);"
            " nd_store_u8(0, nd_load_u32(0)); return 0; }",
            trusted=True,
        ),
    }
    for what, program in bad.items():
        for form in ("interpreted", "native"):
            given = store["bytes"] if program.kind == "stream" else store["x"]
            with pytest.raises(ProgramFailedError, match=what):
                nandarray.offload(program, [given], form=form, threads=1)


WAITS = """int64_t nd_stream(nd_args *a) {
    (void)a;
    size_t n;
    if (nd_wait(0, 1)) nd_store_u8(0, nd_peek_u8(0, nd_left(0) - 1));
    while ((n = nd_wait(0, 7))) {
        nd_store_u8(0, n);
        nd_store_u8(0, nd_peek_u8(0, n - 1));
        for (; n; n--) nd_store_u8(0, nd_load_u8(0));
        nd_store_u8(0, nd_peek_u8(0, -1));
    }
    nd_store_u8(0, nd_input_tail(0));
    return nd_wait(0, 1) + nd_left(0) + !nd_at_end(0) == 0 ? 0 : -1;
}"""


def test_streams_are_waited_for(store: Any) -> None:
    program = Program.from_c(HEAD + STREAM.replace('"fixed": 64', '"fixed": 999') + WAITS, trusted=True)
    want = [99]
    for begin in range(0, 100, 7):
        some = list(range(begin, min(begin + 7, 100)))
        want += [len(some), some[-1], *some, some[-1]]
    for form in ("interpreted", "translated", "native"):
        found = nandarray.offload(program, [store["bytes"]], form=form)
        assert list(found.result) == [*want, 100], form


@settings(max_examples=20)
@given(data=st.data(), threads=st.integers(1, 3), task_bytes=st.sampled_from([8, 1000, 1 << 16, 1 << 20]))
def test_boxes_lent_and_fetched(store: Any, data: st.DataObject, threads: int, task_bytes: int) -> None:
    """Bytes that lie together are lent, others are not; nothing of that shows."""
    name = data.draw(st.sampled_from(["one", "two", "packed"]))
    if name not in store:
        shape = {"one": (70_000,), "two": (300, 200), "packed": (70_000,)}[name]
        store.create(name, shape, "float64", compression="lz4" if name == "packed" else None)
        store[name][...] = np.random.default_rng(2).normal(size=shape)
    array = store[name]
    keys = []
    for size in array.shape:
        start = data.draw(st.integers(0, size - 1))
        keys.append(slice(start, data.draw(st.integers(start, size)), data.draw(st.integers(1, 3))))
    key = tuple(keys)
    program = block("for (size_t i = 0; i < n; i++) y[i] = x[i] - 1;")
    if array[key].size * 8 // task_bytes > 500:  # noqa: PLR2004 (a task costs a call)
        task_bytes = 1 << 20
    found = both(program, [nandarray.Box(array, key)], threads=threads, task_bytes=task_bytes)
    np.testing.assert_array_equal(found, array[key] - 1)


def test_an_array_may_be_its_own_output(store: Any) -> None:
    store["own"] = np.arange(500_000.0)
    program = block("for (size_t i = 0; i < n; i++) y[i] = 2 * x[i];")
    nandarray.offload(program, [store["own"]], out=store["own"], form="native", task_bytes=1 << 14, threads=3)
    np.testing.assert_array_equal(store["own"][...], 2 * np.arange(500_000.0))


def test_python_functions(store: Any) -> None:
    @nandarray.program(inputs="float64", scalars={"by": "float64"}, trusted=True)
    def wave(x: float, by: float) -> float:
        return math.exp(-x * x) * by

    assert wave.trusted
    found = both(wave, [store["x"]], {"by": 3.0})
    np.testing.assert_allclose(found, 3 * np.exp(-(store["x"][...] ** 2)), rtol=1e-14)

    @nandarray.program.filter(inputs="float64", trusted=True)
    def large(x: float) -> bool:
        return x > 1

    x = store["x"][...]
    np.testing.assert_array_equal(both(large, [store["x"]]), x[x > 1])

    @nandarray.program.reduce(inputs="float64", state="(2,)float64", trusted=True)
    class Moments:
        def step(state: Any, x: float) -> None:  # noqa: N805
            state[0] += x
            state[1] += x * x

        def merge(state: Any, other: Any) -> None:  # noqa: N805
            state[0] += other[0]
            state[1] += other[1]

    np.testing.assert_allclose(np.ravel(both(Moments, [store["x"]])), [x.sum(), (x * x).sum()])

    @nandarray.program(trusted=True)
    def blocks(x: Block["float64"], y: Out["float64"]) -> int:
        n = 0
        for value in x:
            if value < 0:
                y[n] = value
                n += 1
        return n

    np.testing.assert_array_equal(both(blocks, [store["x"]]), x[x < 0])

    @nandarray.program(trusted=True)
    def odd(x: Stream["uint8"], y: OutStream["uint8"]) -> None:
        for value in x:
            if value & 1:
                y.store(value)

    np.testing.assert_array_equal(both(odd, [store["bytes"]]), np.arange(1, 100, 2))

    @nandarray.program(trusted=True)
    def signs(x: Stream["float64"], y: OutStream["int16"]) -> None:
        while not x.at_end():
            y.store(-1 if x.load() < 0 else 1)

    np.testing.assert_array_equal(both(signs, [store["x"]]), np.where(x < 0, -1, 1))


def test_a_library_is_kept(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nandarray.programs.compile import native, zig

    monkeypatch.setenv("NANDARRAY_CACHE", str(tmp_path))
    text = "for (size_t i = 0; i < n; i++) y[i] = 17 * x[i];"
    nandarray.offload(block(text), [store["x"]], form="native")
    monkeypatch.setattr(native, "_OPENED", {})
    monkeypatch.setattr(zig, "run", lambda *_a, **_k: pytest.fail("a compiler was called"))
    assert nandarray.offload(block(text), [store["x"]], form="native").account.form == "native"
