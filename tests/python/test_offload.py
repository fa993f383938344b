"""Programs run beside the data: what comes back is what NumPy computes, and a wrong program harms nothing."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import doors
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import nandarray
from nandarray import Box, InvalidError, Program, ProgramError, ProgramFailedError

HEAD = "#include <nandarray.h>\n"

SUM = """
ND_PROGRAM("name": "sum", "kind": "block", "inputs": [{"name": "x", "dtype": "int64"}], "state_bytes": 16,
           "outputs": [{"name": "total", "dtype": "int64", "phase": "end"}])
typedef struct { int64_t total, tasks; } state;
int64_t nd_block(nd_args *args) {
    const int64_t *x = ND_INPUT(args, 0, int64_t);
    state *s = ND_STATE(args, state);
    for (size_t i = 0, n = ND_INPUT_COUNT(args, 0, int64_t); i < n; i++) s->total += x[i];
    s->tasks++;
    return 0;
}
int64_t nd_merge(nd_args *args) {
    state *a = ND_STATE(args, state); const state *b = ND_OTHER_STATE(args, state);
    a->total += b->total; a->tasks += b->tasks;
    return 0;
}
int64_t nd_end(nd_args *args) {
    *ND_OUTPUT(args, 0, int64_t) = ND_STATE(args, state)->total;
    ND_SET_USED(args, 0, 1, int64_t);
    return 0;
}
"""

SCALE = """
ND_PROGRAM("name": "scale", "kind": "block", "inputs": [{"name": "x", "dtype": "float32"}],
           "outputs": [{"name": "y", "dtype": "float32"}],
           "scalars": [{"name": "by", "dtype": "float32"}, {"name": "plus", "dtype": "int32", "default": -1}])
int64_t nd_block(nd_args *args) {
    const float *x = ND_INPUT(args, 0, float);
    float *y = ND_OUTPUT(args, 0, float), by = nd_scalar_f32(args, 0);
    int32_t plus = (int32_t)nd_scalar_i64(args, 1);
    size_t n = ND_INPUT_COUNT(args, 0, float);
    for (size_t i = 0; i < n; i++) y[i] = x[i] * by + plus;
    ND_SET_USED(args, 0, n, float);
    return 0;
}
"""

UPPER = """
ND_PROGRAM("name": "upper", "kind": "stream", "inputs": [{"name": "x", "dtype": "uint8"}],
           "outputs": [{"name": "y", "dtype": "uint8"}])
int64_t nd_stream(nd_args *args) {
    for (;;) { uint8_t c = nd_load_u8(0); nd_store_u8(0, c >= 'a' && c <= 'z' ? c - 32 : c); }
}
"""


def wrong(body: str, entry: str = "") -> Program:
    """A program of one input that does this."""
    text = 'ND_PROGRAM("name": "wrong", "kind": "block", "inputs": [{"name": "x", "dtype": "int64"}],'
    text += ' "outputs": [{"name": "y", "dtype": "int64"}])\n'
    return Program.from_c(HEAD + text + entry + "\nint64_t nd_block(nd_args *args) {\n" + body + "\nreturn 0; }\n")


@pytest.fixture(scope="module", params=["rv64", "rv32"])
def target(request: pytest.FixtureRequest) -> Any:
    return request.param


def c(text: str, target: str = "rv64") -> Program:
    return Program.from_c(HEAD + text, target=target)


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.computing(request, tmp_path / "data.nand") as opened:
        yield opened


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_reduction_is_numpys(store: Any, target: str, compression: str | None) -> None:
    data = np.random.default_rng(1).integers(-(2**40), 2**40, (70, 3000))
    store.create("x", data.shape, "int64", compression=compression)[...] = data
    for threads in (1, 2, 5):
        assert store["x"].offload(c(SUM, target), threads=threads) == data.sum()
    part = store["x"].offload(c(SUM, target), key=np.s_[3:60:2, 10:-1])
    assert part == data[3:60:2, 10:-1].sum()
    assert store["x"].view((7, 30000)).offload(c(SUM, target)) == data.sum()


def test_a_map_keeps_the_shape(store: Any, target: str) -> None:
    data = np.random.default_rng(2).random((40, 50, 60), dtype=np.float32)
    store["x"] = data
    found = store["x"].offload(c(SCALE, target), by=3)
    np.testing.assert_array_equal(found, data * np.float32(3) - np.float32(1))
    store.create("y", data.shape, "float32")
    assert store["x"].offload(c(SCALE, target), by=0.5, plus=2, out=store["y"]) == data.size
    np.testing.assert_array_equal(store["y"][...], data * np.float32(0.5) + np.float32(2))


def test_streams(store: Any, target: str) -> None:
    data = np.frombuffer(b"Programs run beside the data. " * 100_000, dtype=np.uint8)
    store["x"] = data
    found = nandarray.offload(c(UPPER, target), [store["x"]])
    assert found.result.tobytes() == data.tobytes().upper()
    assert found.account.tasks == 3
    assert found.account.bytes_in == found.account.bytes_out == data.size
    assert found.account.instructions > data.size


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_any_box_in_any_tasks(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    array = np.random.default_rng(3).integers(-9, 9, shape)
    key = []
    for size in shape:
        start = data.draw(st.integers(0, size - 1))
        key.append(slice(start, data.draw(st.integers(start + 1, size)), data.draw(st.integers(1, 3))))
    with nandarray.open(tmp_path_factory.mktemp("s") / "data.nand", mode="w") as store:
        store["x"] = array
        options = {"task_bytes": data.draw(st.integers(1, 200)), "threads": data.draw(st.integers(1, 3))}
        box = Box(store["x"], tuple(key))
        assert nandarray.offload(c(SUM), [box], **options).result == array[tuple(key)].sum()


def test_a_filter_that_keeps_everything_stays_flat(store: Any) -> None:
    store["x"] = np.arange(12.0).reshape(3, 4)

    @nandarray.program.filter(inputs="float64")
    def every(x):
        return x >= 0

    ready = nandarray.programs.get("filter", dtype="float64")
    assert store["x"].offload(every).shape == (12,)
    assert store["x"].offload(ready, low=0.0, high=20.0).shape == (12,)


def test_python_functions(store: Any) -> None:
    data = np.random.default_rng(4).normal(size=200_000)
    store["x"] = data

    @nandarray.program.filter(inputs="float64", scalars={"above": "float64"})
    def large(x, above):
        return x > above

    @nandarray.program.reduce(inputs="float64", state="float64[2]")
    class span:
        def init(state):
            state[0] = 1e300
            state[1] = -1e300

        def step(state, x):
            state[0] = min(state[0], x)
            state[1] = max(state[1], x)

        def merge(state, other):
            state[0] = min(state[0], other[0])
            state[1] = max(state[1], other[1])

        def result(state):
            return state[1] - state[0]

    np.testing.assert_array_equal(store["x"].offload(large, above=1.5), data[data > 1.5])
    assert store["x"].offload(span) == data.max() - data.min()


def test_a_program_that_fails_harms_nothing(store: Any) -> None:
    data = np.arange(100_000)
    store["x"] = data
    cases = [
        ("return *(volatile int64_t *)0x42;", "load access fault at pc .* in nd_block"),
        ("*(volatile int64_t *)ND_INPUT(args, 0, int64_t) = 1;", "store access fault at pc .* in nd_block"),
        ("return ((volatile int64_t *)ND_INPUT(args, 0, int64_t))[1 << 24];", "load access fault"),
        ("__asm__ volatile ('.word 0'); ".replace("'", '"'), "illegal instruction at pc .* in nd_block"),
        ("((void (*)(void))0x10)();", "fetch access fault at pc 0x10"),
        ("__asm__ volatile ('ecall'); ".replace("'", '"'), "environment call"),
        ("return -7;", "nd_block returned -7"),
        ("args->outputs[0].used = args->outputs[0].bytes + 8;", "its bound leaves room for"),
        ("args->outputs[0].used = 3;", "not whole elements of 8"),
    ]
    for body, says in cases:
        with pytest.raises(ProgramFailedError, match=says):
            store["x"].offload(wrong(body))
    with pytest.raises(ProgramFailedError, match="more than 100000 instructions, at pc .* in nd_block"):
        store["x"].offload(wrong("for (;;) __asm__ volatile ('');".replace("'", '"')), instructions=100_000)
    assert store["x"].offload(c(SUM)) == data.sum()
    np.testing.assert_array_equal(store["x"][...], data)


def test_a_run_can_be_ended(store: Any) -> None:
    store["x"] = np.arange(1000)
    forever = wrong("for (;;) __asm__ volatile ('');".replace("'", '"'))
    seen = []

    def look(done: int, tasks: int, bytes_in: int) -> None:
        seen.append((done, tasks, bytes_in))
        if len(seen) > 2:
            raise KeyboardInterrupt

    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        store["x"].offload(forever, progress=look)
    assert time.perf_counter() - begin < 20
    if not doors.is_file(store):
        return  # the run is left to the drive, which tells no progress
    assert seen[-1] == (0, 1, 8000)
    assert not [thread for thread in threading.enumerate() if thread.name == "nandarray-offload"]


def test_what_does_not_fit_is_said(store: Any, tmp_path: Path) -> None:
    store["x"] = np.arange(10)
    store["f"] = np.arange(10, dtype="f4")
    with pytest.raises(InvalidError, match="input x has dtype float32; the program takes int64"):
        store["f"].offload(c(SUM))
    with pytest.raises(InvalidError, match="2 inputs for a program that takes 1: x"):
        store["x"].offload(c(SUM), store["x"])
    with pytest.raises(InvalidError, match="scalar by is missing"):
        store["f"].offload(c(SCALE))
    with pytest.raises(InvalidError, match="no scalar 'bye'; it has by, plus"):
        store["f"].offload(c(SCALE), bye=1)
    with pytest.raises(InvalidError, match="scalar plus is 1e.99"):
        store["f"].offload(c(SCALE), by=1, plus=1e99)
    with pytest.raises(InvalidError, match="integers and forward slices"):
        store["x"].offload(c(SUM), key=np.s_[::-1])
    store.create("short", (5,), "f4")
    with pytest.raises(InvalidError, match="more than the 5 elements"):
        store["f"].offload(c(SCALE), by=1, out=store["short"])
    with pytest.raises(ProgramError):
        doors.file_of(store)._engine.load_program(b"no ELF")
    with nandarray.open(tmp_path / "other.nand", mode="w") as other:
        other["y"] = np.arange(10, dtype="f4")
        with pytest.raises(InvalidError, match="another store"):
            store["f"].offload(c(SCALE), by=1, out=other["y"])
    with pytest.raises(nandarray.NotFoundError):
        doors.file_of(store)._engine.unload_program(99)


def test_the_modelled_clock_passes(tmp_path: Path) -> None:
    with nandarray.open(device="tiny", mode="w") as store:
        data = np.arange(50_000)
        store["x"] = data
        store.flush()
        before = store.clock.now
        assert store["x"].offload(c(SUM)) == data.sum()
        assert store.clock.now > before


def test_lines_are_kept_whole(store: Any) -> None:
    text = b"".join(b"%d\n" % (7**i % 10**9) for i in range(20_000)) + b"no end"
    count = """
ND_PROGRAM("name": "lines", "kind": "block", "inputs": [{"name": "x", "dtype": "uint8", "records": "lines"}],
           "outputs": [{"name": "ends", "dtype": "uint8", "bound": {"fixed": 1}}])
int64_t nd_block(nd_args *args) {
    const uint8_t *x = ND_INPUT(args, 0, uint8_t);
    *ND_OUTPUT(args, 0, uint8_t) = x[ND_INPUT_COUNT(args, 0, uint8_t) - 1];
    ND_SET_USED(args, 0, 1, uint8_t);
    return 0;
}
"""
    store["x"] = np.frombuffer(text, dtype="u1")
    found = nandarray.offload(c(count), [store["x"]], task_bytes=5000, threads=3)
    assert found.account.tasks > 10
    assert found.result.tobytes() == b"\n" * (found.account.tasks - 1) + b"d"
