"""Pipelines of programs: they give what the programs give one after the other, and what fails leaves nothing."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import doors
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, note, settings

import nandarray
from nandarray import Box, InvalidError, Program, ProgramFailedError

HEAD = "#include <nandarray.h>\n"
INT = '"dtype": "int64"'


def block(
    name: str,
    inputs: str,
    outputs: str,
    body: str,
    *,
    more: str = "",
    rest: str = "",
    trusted: bool = True,
) -> Program:
    text = f'ND_PROGRAM("name": "{name}", "kind": "block", "inputs": [{inputs}], "outputs": [{outputs}]{more})\n'
    return Program.from_c(
        f"{HEAD}{text}{rest}\nint64_t nd_block(nd_args *args) {{\n{body}\nreturn 0;\n}}\n", trusted=trusted
    )


X = f'{{"name": "x", {INT}}}'
Y = f'{{"name": "y", {INT}}}'
OUT = f'{{"name": "out", {INT}}}'
HEADER = """
const int64_t *x = ND_INPUT(args, 0, int64_t); int64_t *out = ND_OUTPUT(args, 0, int64_t);
size_t n = ND_INPUT_COUNT(args, 0, int64_t); (void)x; (void)out; (void)n;
"""


def programs() -> dict[str, Program]:
    """Programs over int64, the twins of which are in :data:`TWINS`."""
    made = {}
    made["scale"] = block(
        "scale", X, OUT,
        HEADER + "int64_t by = nd_scalar_i64(args, 0); for (size_t i = 0; i < n; i++)"
        " out[i] = (int64_t)((uint64_t)x[i] * (uint64_t)by + 1); ND_SET_USED(args, 0, n, int64_t);",
        more=', "scalars": [{"name": "by", "dtype": "int64", "default": 3}]',
    )  # fmt: skip
    made["add"] = block(
        "add", f"{X}, {Y}", OUT,
        HEADER + "const int64_t *y = ND_INPUT(args, 1, int64_t);"
        "for (size_t i = 0; i < n; i++) out[i] = (int64_t)((uint64_t)x[i] + (uint64_t)y[i]);"
        "ND_SET_USED(args, 0, n, int64_t);",
    )  # fmt: skip
    made["odd"] = block(
        "odd", X, OUT,
        HEADER + "size_t k = 0; for (size_t i = 0; i < n; i++) if (x[i] & 1) out[k++] = x[i];"
        "ND_SET_USED(args, 0, k, int64_t);",
    )  # fmt: skip
    made["twice"] = block(
        "twice", X, f'{{"name": "out", {INT}, "bound": {{"per_record": 16}}}}',
        HEADER + "for (size_t i = 0; i < n; i++) out[2 * i] = out[2 * i + 1] = x[i];"
        "ND_SET_USED(args, 0, 2 * n, int64_t);",
    )  # fmt: skip
    made["split"] = block(
        "split", X, f'{OUT}, {{"name": "high", {INT}}}',
        HEADER + "int64_t *high = ND_OUTPUT(args, 1, int64_t);"
        "for (size_t i = 0; i < n; i++) { high[i] = x[i] >> 8; out[i] = x[i] & 255; }"
        "ND_SET_USED(args, 0, n, int64_t); ND_SET_USED(args, 1, n, int64_t);",
    )  # fmt: skip
    made["sum"] = block(
        "sum", X, f'{{"name": "out", {INT}, "phase": "end"}}',
        "const int64_t *x = ND_INPUT(args, 0, int64_t); uint64_t *s = ND_STATE(args, uint64_t);"
        "for (size_t i = 0, n = ND_INPUT_COUNT(args, 0, int64_t); i < n; i++) *s += (uint64_t)x[i];",
        more=', "state_bytes": 8',
        rest="int64_t nd_merge(nd_args *args) { *ND_STATE(args, uint64_t) += *ND_OTHER_STATE(args, uint64_t);"
        " return 0; }\nint64_t nd_end(nd_args *args) { *ND_OUTPUT(args, 0, uint64_t) = *ND_STATE(args, uint64_t);"
        " ND_SET_USED(args, 0, 1, int64_t); return 0; }",
    )  # fmt: skip
    # The last task's last element of each run of tasks, in order: what it gives depends on how tasks are cut.
    made["ends"] = block(
        "ends", X, f'{{"name": "out", {INT}, "bound": {{"fixed": 16}}}}',
        HEADER + "out[0] = (int64_t)n; out[1] = x[n - 1]; ND_SET_USED(args, 0, 2, int64_t);",
    )  # fmt: skip
    made["minus"] = block(
        "minus", f'{X}, {{"name": "y", {INT}, "whole": true}}', OUT,
        HEADER + "const int64_t *y = ND_INPUT(args, 1, int64_t); uint64_t all = 0;"
        "for (size_t i = 0; i < ND_INPUT_COUNT(args, 1, int64_t); i++) all += (uint64_t)y[i];"
        "for (size_t i = 0; i < n; i++) out[i] = (int64_t)((uint64_t)x[i] - all);"
        "ND_SET_USED(args, 0, n, int64_t);",
    )  # fmt: skip
    # A state beside outputs of tasks.
    made["running"] = block(
        "running", X, f'{OUT}, {{"name": "count", {INT}, "phase": "end"}}',
        HEADER + "for (size_t i = 0; i < n; i++) out[i] = ~x[i]; *ND_STATE(args, uint64_t) += n;"
        "ND_SET_USED(args, 0, n, int64_t);",
        more=', "state_bytes": 8',
        rest="int64_t nd_merge(nd_args *args) { *ND_STATE(args, uint64_t) += *ND_OTHER_STATE(args, uint64_t);"
        " return 0; }\nint64_t nd_end(nd_args *args) { *ND_OUTPUT(args, 1, uint64_t) = *ND_STATE(args, uint64_t);"
        " ND_SET_USED(args, 1, 1, int64_t); return 0; }",
    )  # fmt: skip
    return made


@pytest.fixture(scope="session")
def made() -> dict[str, Program]:
    return programs()


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.computing(request, tmp_path / "data.nand") as opened:
        yield opened


# Twins work on uint64, which wraps.
def _scale(x: Any) -> Any:
    return x * np.uint64(3) + np.uint64(1)


TWINS: dict[str, Any] = {
    "scale": lambda x: {"out": _scale(x)},
    "add": lambda x, y: {"out": x + y},
    "odd": lambda x: {"out": x[x & np.uint64(1) == 1]},
    "twice": lambda x: {"out": np.repeat(x, 2)},
    "split": lambda x: {"out": x & np.uint64(255), "high": (x.view("i8") >> 8).view("u8")},
    "sum": lambda x: {"out": x.sum(dtype="u8", keepdims=True)},
    "minus": lambda x, y: {"out": x - y.sum(dtype="u8")},
    "running": lambda x: {"out": ~x, "count": np.array([x.size], dtype="u8")},
}


def _tree(draw: Any, store: Any, made: dict[str, Program], depth: int, arrays: list[Any]) -> tuple[Any, Any]:
    """A tree and what its twin gives: a step's output, or an array."""
    kinds = ["leaf", "memory"] if depth == 0 else ["leaf", *TWINS, "again"]
    kind = draw(st.sampled_from(kinds))
    if kind == "again" and arrays:
        return draw(st.sampled_from(arrays))
    if kind in ("leaf", "memory", "again"):
        data = np.random.default_rng(len(arrays)).integers(-(2**62), 2**62, draw(st.integers(0, 700)))
        if kind == "memory":
            return data, data.view("u8")
        name = f"a{len(list(store))}"
        store[name] = data
        if data.size > 4 and draw(st.booleans()):
            return Box(store[name], np.s_[1:-1:2]), data[1:-1:2].copy().view("u8")
        return store[name], data.view("u8")
    inputs, values = [], []
    for _ in made[kind].inputs:
        one, value = _tree(draw, store, made, depth - 1, arrays)
        inputs.append(one)
        values.append(value)
    if kind == "add" and values[0].size != values[1].size:
        inputs[1], values[1] = inputs[0], values[0]
    step = made[kind].on(*inputs)
    task_bytes = draw(st.sampled_from([None, 8, 64, 1000]))
    forms = ["interpreted", "translated"] + ["native"] * doors.is_file(store)
    step = step.using(task_bytes=task_bytes, form=draw(st.sampled_from(forms)))
    found = [(step[name], value) for name, value in TWINS[kind](*values).items()]
    arrays += found
    return draw(st.sampled_from(found))


@settings(deadline=None, max_examples=120)
@given(data=st.data())
def test_any_tree_is_its_twin(
    data: st.DataObject, made: dict[str, Program], tmp_path_factory: pytest.TempPathFactory
) -> None:
    door = data.draw(st.sampled_from(doors.COMPUTING))
    with doors.opened(door, tmp_path_factory.mktemp("s") / "data.nand") as store:
        store["one"] = np.arange(1)
        arrays: list[Any] = []
        root, _ = _tree(data.draw, store, made, data.draw(st.integers(1, 5)), arrays)
        if not arrays:
            return
        wanted = {str(number): one for number, one in enumerate(arrays) if one[0] is root or data.draw(st.booleans())}
        wanted = wanted or {"0": arrays[0]}
        note({name: step for name, (step, _) in wanted.items()})
        options: dict[str, Any] = {
            "threads": data.draw(st.integers(1, 4)),
            "task_bytes": data.draw(st.integers(8, 4000)),
        }
        if data.draw(st.booleans()):
            for name, (_, value) in wanted.items():
                store.create(f"out{name}", (value.size + 3,), "int64", building_block=(data.draw(st.integers(1, 64)),))
            options["out"] = {name: store[f"out{name}"] for name in wanted}
        # One input at least is of a store.
        wanted["one"] = (made["scale"].on(store["one"])["out"], np.uint64([1]))
        if "out" in options:
            store.create("outone", (4,), "int64")
            options["out"]["one"] = store["outone"]
        found = nandarray.offload({name: step for name, (step, _) in wanted.items()}, **options)
        for name, (step, value) in wanted.items():
            got = store[f"out{name}"][: value.size] if "out" in options else np.ravel(found.outputs[name])
            np.testing.assert_array_equal(got, value.view("i8"), err_msg=repr(step))
            if "out" in options:
                assert found.outputs[name] == value.size
                assert not store[f"out{name}"][value.size :].any()
        assert found.account.instructions == sum(step.instructions for step in found.account.steps)
        assert found.account.tasks == sum(step.tasks for step in found.account.steps)


def test_it_reads_naturally(store: Any, made: dict[str, Program]) -> None:
    data = np.arange(-5000, 5000).reshape(100, 100)
    store["x"] = data
    scaled = made["scale"].on(store["x"], by=5)
    total = made["sum"].on(scaled)
    assert repr(total) == "<nandarray.Step sum(scale(100x100))>"
    assert total.run() == (data * 5 + 1).sum()
    np.testing.assert_array_equal(scaled.run(), data * 5 + 1)
    low, high = made["split"].on(Box(store["x"], np.s_[10:20]))
    np.testing.assert_array_equal(high.run(), data[10:20] >> 8)
    again = made["add"].on(low, high)
    np.testing.assert_array_equal(again.run(threads=2), (data[10:20] & 255) + (data[10:20] >> 8))
    found = nandarray.offload({"total": total, "high": high})
    assert found.outputs["total"] == (data * 5 + 1).sum()
    assert [step.name for step in found.account.steps] == ["scale", "sum", "split"]
    first, last = found.account.steps[0], found.account.steps[1]
    assert first.bytes_in == first.bytes_out == last.bytes_in == data.nbytes
    assert last.bytes_out == 8
    assert found.account.bytes_in == data.nbytes + 8000
    assert found.account.bytes_out == 8 + 8000


def test_cuts_are_those_of_one_after_the_other(store: Any, made: dict[str, Program]) -> None:
    data = np.random.default_rng(0).integers(-99, 99, 40_000)
    store["x"] = data
    between = store["x"].offload(made["odd"])
    for threads in (1, 3):
        for task_bytes in (1000, 12_344, 1 << 20):
            options = {"threads": threads, "task_bytes": task_bytes}
            tree = made["ends"].on(made["twice"].on(made["odd"].on(store["x"])))
            doubled = nandarray.offload(made["twice"], [_kept(store, between)], **options).result
            wanted = nandarray.offload(made["ends"], [_kept(store, doubled)], **options).result
            np.testing.assert_array_equal(tree.run(**options), wanted)


def _kept(store: Any, data: Any) -> Any:
    name = f"kept{len(list(store))}"
    store[name] = data
    return store[name]


def test_lines_from_a_program(store: Any, tmp_path: Path) -> None:
    text = b"".join(b"%d\n" % (7**i % 10**9) for i in range(20_000)) + b"no end"
    copy = Program.from_c(
        HEAD + 'ND_PROGRAM("name": "copy", "kind": "stream", "inputs": [{"name": "x", "dtype": "uint8"}],'
        '"outputs": [{"name": "y", "dtype": "uint8"}])\n'
        "int64_t nd_stream(nd_args *args) { (void)args; for (;;) nd_store_u8(0, nd_load_u8(0)); }\n"
    )
    lines = Program.from_c(
        HEAD + 'ND_PROGRAM("name": "lines", "kind": "block",'
        '"inputs": [{"name": "x", "dtype": "uint8", "records": "lines"}],'
        '"outputs": [{"name": "ends", "dtype": "uint8", "bound": {"fixed": 1}}, {"name": "bytes", "dtype": "int64",'
        '"bound": {"fixed": 8}}])\n'
        "int64_t nd_block(nd_args *args) { const uint8_t *x = ND_INPUT(args, 0, uint8_t);"
        "size_t n = ND_INPUT_COUNT(args, 0, uint8_t); *ND_OUTPUT(args, 0, uint8_t) = x[n - 1];"
        "*ND_OUTPUT(args, 1, int64_t) = n; ND_SET_USED(args, 0, 1, uint8_t); ND_SET_USED(args, 1, 1, int64_t);"
        "return 0; }\n"
    )
    store["x"] = np.frombuffer(text, dtype="u1")
    alone = nandarray.offload(lines, [store["x"]], task_bytes=5000, threads=3)
    through = nandarray.offload(lines.on(copy.on(store["x"]).using(task_bytes=777)), task_bytes=5000, threads=3)
    for name in ("ends", "bytes"):
        np.testing.assert_array_equal(alone.outputs[name], through.outputs[name])
    assert through.account.steps[1].tasks == alone.account.tasks > 10


def test_what_waits_is_bounded(store: Any, made: dict[str, Program]) -> None:
    data = np.random.default_rng(3).integers(-(2**40), 2**40, 3_000_000)
    store["x"] = data
    low, high = made["split"].on(store["x"])
    # All of one output is needed before any of the other is.
    tree = made["minus"].on(low, made["sum"].on(high))
    wanted = (data & 255) - (data >> 8).sum()
    np.testing.assert_array_equal(tree.run(threads=2), wanted)
    with pytest.raises(ProgramFailedError, match="split: .* bytes are queued between programs, and output out has to"):
        tree.run(threads=2, hold_bytes=4 << 20)
    # Run apart, nothing has to be held.
    other = made["split"].on(store["x"])["high"]
    apart = made["minus"].on(low, made["sum"].on(other))
    np.testing.assert_array_equal(apart.run(threads=2, hold_bytes=4 << 20), wanted)


def wrong(name: str, body: str) -> Program:
    return block(name, X, OUT, HEADER + body, trusted=False)


def test_a_stage_that_fails_is_named_and_changes_nothing(store: Any, made: dict[str, Program]) -> None:
    data = np.arange(300_000)
    store["x"] = data
    store["out"] = data[::-1].copy()
    before = store["out"][...]
    late = "if (args->task == 5) "
    cases = [
        ("trap", late + "return *(volatile int64_t *)0x42;", "trap: task 5: load access fault at pc .* in nd_block"),
        ("status", late + "return -7;", "status: task 5: the program's nd_block returned -7"),
        (
            "much",
            late + "{ args->outputs[0].used = args->outputs[0].bytes + 8; return 0; }",
            "much: task 5: output 0 of",
        ),
        ("loop", late + 'for (;;) __asm__ volatile ("");', "loop: task 5: more than .* in nd_block"),
    ]
    for name, body, says in cases:
        body += "for (size_t i = 0; i < n; i++) out[i] = 0; ND_SET_USED(args, 0, n, int64_t);"
        failing = wrong(name, body)
        for tree in (
            failing.on(store["x"]),
            made["scale"].on(failing.on(made["scale"].on(store["x"]))),
            made["add"].on(store["x"], failing.on(store["x"])),
        ):
            with pytest.raises(ProgramFailedError, match=says):
                tree.run(out=store["out"], task_bytes=100_000, threads=3, instructions=10_000_000)
            np.testing.assert_array_equal(store["out"][...], before)
    # One stage alone has a limit.
    limited = made["scale"].on(store["x"]).using(instructions=100)
    with pytest.raises(ProgramFailedError, match="scale: task 0: more than 100 instructions, at pc .* in nd_block"):
        made["sum"].on(limited).run()
    assert doors.file_of(store).check()["ok"]
    np.testing.assert_array_equal(store["x"][...], data)


def test_a_pipeline_can_be_ended(store: Any, made: dict[str, Program]) -> None:
    store["x"] = np.arange(100_000)
    store["out"] = np.arange(100_000)
    forever = wrong("forever", 'for (;;) __asm__ volatile ("");')
    seen = []

    def look(done: int, tasks: int, bytes_in: int) -> None:
        seen.append((done, tasks, bytes_in))
        if len(seen) > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made["sum"].on(forever.on(made["scale"].on(store["x"]))).run(progress=look, task_bytes=8000)
    with pytest.raises(KeyboardInterrupt):
        forever.on(store["x"]).run(progress=look, out=store["out"])
    np.testing.assert_array_equal(store["out"][...], np.arange(100_000))
    assert made["sum"].on(store["x"]).run() == np.arange(100_000).sum()
    if not doors.is_file(store):
        return  # the runs are left to the drive, over connections of their own
    assert not [thread for thread in threading.enumerate() if thread.name == "nandarray-offload"]
    np.testing.assert_array_equal(store["out"][...], np.arange(100_000))


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("shape", [(500, 700), (3, 100_001), (7, 60, 500)])
def test_out_is_written_as_one(store: Any, made: dict[str, Program], compression: str | None, shape: Any) -> None:
    data = np.random.default_rng(5).integers(-99, 99, shape)
    store["x"] = data
    block = (3,) * (len(shape) - 1) + (1000,)
    store.create("y", tuple(n + 5 for n in shape), "int64", compression=compression, building_block=block)[...] = 7
    inside = tuple(slice(2, 2 + n) for n in shape)
    assert made["scale"].on(store["x"], by=2).run(out=Box(store["y"], inside), task_bytes=9000) == data.size
    wanted = np.full(tuple(n + 5 for n in shape), 7)
    wanted[inside] = data * 2 + 1
    np.testing.assert_array_equal(store["y"][...], wanted)
    # Onto itself: what is read is what was there before.
    assert made["scale"].on(store["x"], by=2).run(out=store["x"], task_bytes=9000, threads=3) == data.size
    np.testing.assert_array_equal(store["x"][...], data * 2 + 1)
    # Through a view.
    store.create("z", (data.size,), "int64", compression=compression, building_block=(1000,))
    made["scale"].on(store["x"], by=1).run(out=store["z"].view(shape))
    np.testing.assert_array_equal(store["z"][...].reshape(shape), data * 2 + 2)


def test_readers_see_all_or_nothing(store: Any, made: dict[str, Program]) -> None:
    count = 400_000 if doors.is_file(store) else 200_000  # a read of one transfer of a drive is of one moment
    store["x"] = np.zeros(count, dtype="i8")
    store["out"] = np.zeros(count, dtype="i8")
    seen, over = [], threading.Event()

    def read() -> None:
        while not over.is_set():
            found = np.unique(store["out"][...])
            seen.append(found.tolist())

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for by in range(3):
            made["add"].on(made["scale"].on(store["x"], by=by), store["out"]).run(out=store["out"], task_bytes=50_000)
    finally:
        over.set()
        thread.join()
    assert all(len(found) == 1 for found in seen), seen
    np.testing.assert_array_equal(store["out"][...], 3)


def test_outputs_of_several_programs_stand_together(store: Any, made: dict[str, Program], tmp_path: Path) -> None:
    data = np.arange(50_000)
    store["x"] = data
    for name in ("low", "high"):
        store.create(name, data.shape, "int64")
    store.create("both", (2, data.size), "int64")
    step = made["split"].on(store["x"])
    assert step.run(out={"out": store["low"], "high": store["high"]}) == {"out": data.size, "high": data.size}
    np.testing.assert_array_equal(store["low"][...] | (store["high"][...] << 8), data)
    step.run(out={"out": Box(store["both"], np.s_[0]), "high": Box(store["both"], np.s_[1])})
    np.testing.assert_array_equal(store["both"][...], [data & 255, data >> 8])
    with pytest.raises(InvalidError, match="two outputs go to the same elements of one array"):
        step.run(out={"out": store["low"], "high": store["low"]})
    # The second does not fit: the first is not written, either.
    store.create("short", (10,), "int64")
    store["low"][...] = -1
    with pytest.raises(InvalidError, match="more than the 10 elements"):
        step.run(out={"out": store["low"], "high": store["short"]})
    np.testing.assert_array_equal(store["low"][...], -1)


def test_what_does_not_fit_is_said(store: Any, made: dict[str, Program], tmp_path: Path) -> None:
    store["x"] = np.arange(10)
    store["f"] = np.arange(10, dtype="f4")
    halve = block(
        "halve", X, '{"name": "out", "dtype": "float32"}',
        HEADER + "float *f = ND_OUTPUT(args, 0, float); for (size_t i = 0; i < n; i++) f[i] = x[i] / 2;"
        "ND_SET_USED(args, 0, n, float);",
    )  # fmt: skip
    with pytest.raises(
        InvalidError, match=r"input x has dtype float32 \(output out of halve\); the program takes int64"
    ):
        made["sum"].on(halve.on(store["x"]))
    with pytest.raises(InvalidError, match="input x has dtype float32; the program takes int64"):
        made["sum"].on(store["f"])
    with pytest.raises(InvalidError, match=r'split has several outputs \(out, high\): name one, step\["out"\]'):
        made["sum"].on(made["split"].on(store["x"]))
    with pytest.raises(InvalidError, match="program split has no output 'low'; it has out, high"):
        made["split"].on(store["x"])["low"]
    with pytest.raises(InvalidError, match="1 inputs for a program that takes 2: x, y"):
        made["add"].on(store["x"])
    with pytest.raises(InvalidError, match="no scalar 'bye'; it has by"):
        made["scale"].on(store["x"], bye=1)
    with pytest.raises(InvalidError, match="inputs and scalars belong to a program"):
        nandarray.offload(made["sum"].on(store["x"]), [store["x"]])
    step = made["sum"].on(store["x"])
    with pytest.raises(InvalidError, match="'a' and 'b' are the same output"):
        nandarray.offload({"a": step, "b": step})
    with pytest.raises(InvalidError, match="there is no output 'c'; there is a"):
        nandarray.offload({"a": step}, out={"c": store["x"]})
    with pytest.raises(InvalidError, match="out takes arrays of the store"):
        step.run(out=np.zeros(1, dtype="i8"))
    # Known only as it runs: how many records there are.
    store["y"] = np.arange(9)
    with pytest.raises(InvalidError, match="add: input . has .* records, input . .*; they must have the same"):
        made["add"].on(made["odd"].on(store["x"]), store["y"]).run()
    with nandarray.open(tmp_path / "other.nand", mode="w") as other:
        other["y"] = np.arange(10)
        with pytest.raises(InvalidError, match="another store"):
            made["add"].on(store["x"], other["y"]).run()


def test_a_long_chain(store: Any, made: dict[str, Program]) -> None:
    store["x"] = np.arange(1000)
    step: Any = store["x"]
    is_local = not doors.has_wire(store)
    length = 300 if is_local else 64
    for _ in range(length):
        step = made["scale"].on(step, by=1)
    np.testing.assert_array_equal(step.run(task_bytes=3000), np.arange(1000) + length)
    if not is_local:
        with pytest.raises(nandarray.InvalidError, match="1 programs and 65 stages: a run must have at most 64"):
            made["scale"].on(step, by=1).run()


def test_empty_inputs(store: Any, made: dict[str, Program]) -> None:
    store["x"] = np.arange(0)
    assert made["sum"].on(made["scale"].on(store["x"])).run() == 0
    assert made["odd"].on(made["odd"].on(store["x"])).run().size == 0


def test_under_the_modelled_clock(made: dict[str, Program]) -> None:
    data = np.arange(50_000)
    with nandarray.open(device="tiny", mode="w") as store:
        store["x"] = data
        store.create("y", data.shape, "int64")
        store.flush()
        before = store.clock.now
        scaled = made["scale"].on(store["x"], by=2)
        found = nandarray.offload({"y": scaled, "sum": made["sum"].on(scaled)}, out={"y": store["y"]})
        assert found.outputs == {"y": data.size, "sum": (data * 2 + 1).sum()}
        assert store.clock.now > before
        np.testing.assert_array_equal(store["y"][...], data * 2 + 1)


def test_a_full_store_is_as_it_was(made: dict[str, Program], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with nandarray.open(tmp_path / "small.nand", mode="w", capacity=48 << 20) as store:
        data = rng.integers(-(2**60), 2**60, 1_000_000)
        store["x"] = data
        store["y"] = data
        store.flush()
        tree = made["twice"].on(made["twice"].on(made["twice"].on(store["x"])))
        store.create("big", (8_000_000,), "int64")
        with pytest.raises(nandarray.StoreFullError):
            tree.run(out=store["big"])
        assert not store["big"][:1000].any()
        for _ in range(3):  # the room that it took is there again
            made["scale"].on(store["y"], by=1).run(out=store["y"])
        np.testing.assert_array_equal(store["y"][...], data + 3)
        assert doors.file_of(store).check()["ok"]


def test_an_array_that_is_deleted_meanwhile_waits(store: Any, made: dict[str, Program]) -> None:
    store["x"] = np.arange(100_000)
    store["out"] = np.arange(100_000)
    deleted = []

    def delete() -> None:
        del store["out"]
        deleted.append(True)

    def look(done: int, tasks: int, bytes_in: int) -> None:
        if done and not deleted and not threads:  # before its first task a run has locked nothing
            threads.append(threading.Thread(target=delete))
            threads[0].start()

    threads: list[threading.Thread] = []
    out = store["out"]
    # A drive may get the one first or the other.
    with nullcontext() if doors.is_file(store) else suppress(nandarray.ClosedError):
        made["scale"].on(store["x"]).run(out=out, progress=look, task_bytes=64)
    threads[0].join()
    assert "out" not in store
    assert doors.file_of(store).check()["ok"]


WRITER = """
import sys
import nandarray
from test_pipeline import block, HEADER, X, OUT

body = "for (size_t i = 0; i < n; i++) out[i] = x[i] + 1; ND_SET_USED(args, 0, n, int64_t);"
add = block("add", X, OUT, HEADER + body)
store = nandarray.open(sys.argv[1], mode="a")
while True:
    add.on(add.on(store["a"])).run(out=store["a"], task_bytes=5000)
    store.flush()
    print(int(store["a"][0]), flush=True)
"""


def test_a_killed_process_leaves_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "killed.nand"
    with nandarray.open(path, mode="w") as store:
        store.create("a", (200_000,), "int64", building_block=(3000,))[...] = 0
    for seed in range(6):
        words = [sys.executable, "-c", WRITER, str(path)]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(random.Random(seed).random() * 0.1)
        child.send_signal(signal.SIGKILL)
        told = [int(line) for line in (first + child.stdout.read()).split("\n")[:-1] if line]
        child.wait()
        child.stdout.close()
        with nandarray.open(path, mode="r") as store:
            assert doors.file_of(store).check()["ok"], seed
            found = np.unique(store["a"][...])
        assert found.size == 1, f"seed {seed}: a run is written half"
        assert found[0] % 2 == 0, f"seed {seed}"
        assert found[0] >= told[-1] > 0, f"seed {seed}: a flush is lost"
