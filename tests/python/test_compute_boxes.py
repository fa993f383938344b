"""Functions and programs over boxes, ``map_blocks(block=)``: each box a task of one run, put together again."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import doors
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import nandarray
from nandarray import CompileError, InvalidError
from nandarray.programs import ports, run


@pytest.fixture(scope="module", params=doors.COMPUTING)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with doors.computing(request, tmp_path_factory.mktemp("boxes") / "data.nand") as opened:
        yield opened


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.computing(request, tmp_path / "data.nand") as opened:
        yield opened


def test_functions_of_boxes(store: Any) -> None:
    data = np.random.default_rng(1).integers(0, 99, (50, 37, 11))
    store.create("x", data.shape, data.dtype, building_block=(16, 8, 4), data=data)

    def turned(x, y, out, by):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                out[i, j] = x[x.shape[0] - 1 - i, j] * by + y[i, j]

    def wanted(box: Any, rows: int, first: int) -> Any:
        edges = [0, *range(first, len(box), rows), len(box)]
        return np.concatenate([box[a:b][::-1] for a, b in zip(edges, edges[1:], strict=False)])

    part = data[:, 3]
    found = store["x"].map_blocks(turned, part, key=np.s_[:, 3], block=(7, 5), by=2, threads=3)
    np.testing.assert_array_equal(found, wanted(part, 7, 7) * 2 + part)
    key = np.s_[5:45, 3]
    found = store["x"].map_blocks(turned, nandarray.Box(store["x"], key), key=key, block=True, by=1)
    np.testing.assert_array_equal(found, wanted(data[key], 16, 11) + data[key])
    key = np.s_[::2, 3, 1:9:3]
    found = store["x"].map_blocks(turned, data[key], key=key, block=(4, 2), by=1)
    np.testing.assert_array_equal(found, wanted(data[key], 4, 4) + data[key])
    store.create("y", (50, 11), "float32")
    key = np.s_[:, 3]
    count = store["x"].map_blocks(turned, part, key=key, block=(50, 3), by=0, out=store["y"], dtype="float32")
    assert count == 550
    np.testing.assert_array_equal(store["y"][...], part)
    view = store["x"].view((50, 407))
    made = view.map_blocks(turned, view, block=(25, 100), by=1, out="z")
    flat = data.reshape(50, 407)
    np.testing.assert_array_equal(made[...], wanted(flat, 25, 25) + flat)
    assert store["x"].map_blocks(turned, part[:0], key=np.s_[:0, 3], block=(7, 5), by=2).shape == (0, 11)
    with pytest.raises(InvalidError, match="takes 3 boxes .* for 1 inputs"):
        store["x"].map_blocks(turned, key=np.s_[:, 3], block=(5, 5), by=1)
    with pytest.raises(InvalidError, match="must have 3 lengths"):
        store["x"].map_blocks(turned, store["x"], block=(5, 5), by=1)
    with pytest.raises(InvalidError, match="a view has no building block"):
        view.map_blocks(turned, view, block=True, by=1)
    for wrong in (store["y"], nandarray.Box(store["x"], np.s_[:, 3, :5]), store["x"]):
        with pytest.raises(InvalidError, match=r"out must have shape \(9, 11\), as the box, not"):
            store["x"].map_blocks(turned, part[:9], key=np.s_[:9, 3], block=(5, 5), by=1, dtype="i8", out=wrong)
    with pytest.raises(InvalidError, match="out takes arrays of the store"):
        store["x"].map_blocks(turned, part, key=np.s_[:, 3], block=(5, 5), by=1, out=part)
    with pytest.raises(CompileError, match="test_compute_boxes.py"):
        store["x"].map_blocks(lambda x, out: out.nothing(), block=True)
    with pytest.raises(nandarray.ProgramFailedError):
        view.map_blocks(turned, view, block=(9, 9), by=1, out="late", instructions=9)
    assert "late" not in store


def test_functions_of_boxes_are_one_run(store: Any) -> None:
    data = np.arange(100_000.0)
    store["x"] = data
    before = np.full(data.shape, 5.0)
    store["y"] = before
    told: list[tuple[int, int, int]] = []

    def late(x, out):
        for i in range(x.shape[0]):
            out[i] = x[i]
        if x[0] > 60000:
            raise ValueError("too late")

    with pytest.raises(nandarray.ProgramFailedError, match="task 61: .*too late"):
        store["x"].map_blocks(late, block=(1000,), out=store["y"], threads=2)
    np.testing.assert_array_equal(store["y"][...], before)
    count = store["x"].map_blocks(
        late, block=(70_000,), key=np.s_[:60_000], out=nandarray.Box(store["y"], np.s_[:60_000]),
        progress=lambda *now: told.append(now),
    )  # fmt: skip
    assert count == 60_000
    np.testing.assert_array_equal(store["y"][...], np.concatenate([data[:60_000], before[60_000:]]))
    assert told[-1] == (1, 1, 480_000)

    def endless(x, out):
        while x[0] >= 0:
            out[0] = x[0]

    ended = doors.cancelled(store, r", at pc 0x\w+ in nd_block")
    with pytest.raises(nandarray.ProgramFailedError, match=f"more than 0.3 s: .*{ended}"):
        store["x"].map_blocks(endless, block=(1000,), out="new", seconds=0.3)
    assert "new" not in store
    with pytest.raises(InvalidError, match="1 to 4 dimensions"):
        store["x"].view((10, 10, 10, 10, 10)).map_blocks(late, block=(1, 1, 1, 1, 1))


def test_progress_is_told_though_the_run_ends_before_it_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = threading.Thread.start

    def finished(thread: threading.Thread) -> None:
        begin(thread)
        thread.join()

    monkeypatch.setattr(threading.Thread, "start", finished)
    told: list[tuple[int, int, int]] = []
    assert run.watched(lambda: 3, nandarray._nandarray.Watch(), lambda *now: told.append(now)) == 3
    assert told == [(0, 0, 0)]
    with pytest.raises(ValueError, match="seven"):
        run.watched(lambda: int("seven"), nandarray._nandarray.Watch(), None, seconds=0)


def test_functions_of_boxes_can_be_ended(store: Any) -> None:
    store["x"] = np.arange(1000.0)
    store["y"] = np.full(1000, 5.0)
    told: list[tuple[int, int, int]] = []

    def same(x, out):
        for i in range(x.shape[0]):
            out[i] = x[i]

    def late(x, out):
        for i in range(x.shape[0]):
            out[i] = x[i]
        while x[0] >= 490:
            out[0] = x[0]

    found = store["x"].map_blocks(same, block=(7,), progress=lambda *now: told.append(now))
    np.testing.assert_array_equal(found, np.arange(1000.0))
    assert told == sorted(told)
    assert told[-1] == (143, 143, 8000)
    with pytest.raises(nandarray.ProgramFailedError, match="more than 0.3 s: ") as raised:
        store["x"].map_blocks(late, block=(7,), seconds=0.3, out="new")
    if not doors.is_file(store):
        return  # the run is left to the drive, which tells neither task nor progress
    assert raised.value.task is not None
    assert raised.value.task >= 70
    assert raised.value.pc is not None
    assert "new" not in store

    def interrupted(done: int, *_: int) -> None:
        if done >= 70:
            raise KeyboardInterrupt

    for out in ("new", store["y"]):
        with pytest.raises(KeyboardInterrupt):
            store["x"].map_blocks(late, block=(7,), progress=interrupted, out=out)
    assert "new" not in store
    np.testing.assert_array_equal(store["y"][...], np.full(1000, 5.0))


def test_a_program_in_c_is_told_the_box(store: Any) -> None:
    text = """
#include <nandarray.h>
ND_PROGRAM("name": "mirror", "kind": "block", "inputs": [{"name": "x", "dtype": "int32"}],
           "outputs": [{"name": "y", "dtype": "int32"}])
int64_t nd_block(nd_args *args) {
    const int32_t *x = ND_INPUT(args, 0, int32_t);
    int32_t *y = ND_OUTPUT(args, 0, int32_t);
    const uint64_t *shape = args->inputs[0].shape;
    if (args->inputs[0].ndim != 2 || args->outputs[0].shape[1] != shape[1]) return -1;
    for (size_t i = 0; i < shape[0]; i++)
        for (size_t j = 0; j < shape[1]; j++) y[i * shape[1] + j] = x[i * shape[1] + shape[1] - 1 - j];
    ND_SET_USED(args, 0, shape[0] * shape[1], int32_t);
    return 0;
}
"""
    data = np.arange(35, dtype="i4").reshape(5, 7)
    store["x"] = data
    wanted = np.concatenate([data[:, 2::-1], data[:, 5:2:-1], data[:, 6:]], axis=1)
    for target in ("rv64", "rv32"):
        program = nandarray.Program.from_c(text, target=target)
        for form in ("interpreted", "translated"):
            found = store["x"].map_blocks(program, block=(2, 3), form=form)
            np.testing.assert_array_equal(found, wanted)


SOLID = """
#include <nandarray.h>
ND_PROGRAM("name": "extents", "kind": "block", "inputs": [{"name": "x", "dtype": "int64"}],
           "outputs": [{"name": "y", "dtype": "int64"}])
int64_t nd_block(nd_args *args) {
    const uint64_t *shape = args->inputs[0].shape;
    size_t n = ND_INPUT_COUNT(args, 0, int64_t);
    if (args->inputs[0].ndim != 3 || args->outputs[0].ndim != 3 || shape[3] != 1) return -1;
    if (shape[0] * shape[1] * shape[2] != n) return -2;
    for (int d = 0; d < 4; d++)
        if (args->outputs[0].shape[d] != shape[d]) return -3;
    for (size_t i = 0; i < n; i++)
        ND_OUTPUT(args, 0, int64_t)[i] = (int64_t)(shape[0] * 10000 + shape[1] * 100 + shape[2]);
    ND_SET_USED(args, 0, n, int64_t);
    return 0;
}
"""


def pieces(shape: tuple[int, ...], block: tuple[int, ...]) -> Any:
    cuts = [[slice(i, min(i + size, n)) for i in range(0, n, size)] for n, size in zip(shape, block, strict=True)]
    return itertools.product(*cuts)


@pytest.mark.parametrize("form", ["interpreted", "translated", "native"])
def test_a_box_of_three_dimensions_is_told_and_accounts_add_up(store: Any, form: str) -> None:
    shape, block = (5, 7, 11), (2, 3, 4)
    store["x"] = np.arange(np.prod(shape)).reshape(shape)
    store["y"] = np.zeros(shape, "i8")
    program = nandarray.Program.from_c(SOLID, trusted=form == "native")
    wanted = np.empty(shape, "i8")
    boxes = list(pieces(shape, block))
    for box in boxes:
        extents = [part.stop - part.start for part in box]
        wanted[box] = extents[0] * 10000 + extents[1] * 100 + extents[2]
    np.testing.assert_array_equal(store["x"].map_blocks(program, block=block, form=form), wanted)
    assert store["x"].map_blocks(program, block=block, form=form, out=store["y"], threads=2) == wanted.size
    np.testing.assert_array_equal(store["y"][...], wanted)
    whole = nandarray.offload(program, [ports.Tiled(store["x"], ..., block, block)], form=form).account
    parts = []
    for box in boxes:
        one = tuple(part.stop - part.start for part in box)
        parts.append(nandarray.offload(program, [ports.Tiled(store["x"], box, one, one)], form=form).account)
    assert whole.tasks == len(boxes) == sum(part.tasks for part in parts)
    for name in ("bytes_in", "bytes_out", "instructions"):
        assert getattr(whole, name) == sum(getattr(part, name) for part in parts), name


def test_programs_of_boxes_have_a_record_for_each_element(store: Any) -> None:
    store["x"] = np.zeros((4, 4), "u1")
    with pytest.raises(InvalidError, match="has none"):
        store["x"].map_blocks("sqrt", block=True)
    for name in ("aes128_encrypt", "sum", "filter"):
        with pytest.raises(InvalidError, match=r"records of|one element for each"):
            store["x"].map_blocks(nandarray.programs.get(name), block=True)
    with pytest.raises(InvalidError, match="dtype is for functions"):
        store["x"].map_blocks(nandarray.Program.from_c(SOLID), block=True, dtype="i8")


@pytest.mark.parametrize("trusted", [False, True])
def test_functions_know_their_box_in_each_form(store: Any, trusted: bool) -> None:
    data = np.arange(2 * 5 * 6.0).reshape(2, 5, 6)
    store["x"] = data

    def sizes(x, out):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                for k in range(x.shape[2]):
                    out[i, j, k] = x.shape[0] * 100 + x.shape[1] * 10 + x.shape[2] + x[i, j, k] * 1000

    wanted = data * 1000
    for box in pieces(data.shape, (2, 3, 4)):
        wanted[box] += sum((part.stop - part.start) * by for part, by in zip(box, (100, 10, 1), strict=True))
    np.testing.assert_array_equal(store["x"].map_blocks(sizes, block=(2, 3, 4), trusted=trusted), wanted)


def turned(x, out):
    n = x.size
    flat, to = x.reshape(n), out.reshape(n)
    for i in range(n):
        to[i] = flat[n - 1 - i] * 1000 + n


@settings(max_examples=40)
@given(data=st.data())
def test_boxes_of_any_shape(shared: Any, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=4)))
    block = tuple(data.draw(st.integers(1, size + 3)) for size in shape)
    own = tuple(data.draw(st.integers(1, size)) for size in shape)
    array = np.random.default_rng(2).integers(0, 99, shape)
    for name in ("boxed", "into"):
        if name in shared:
            del shared[name]
    compression = data.draw(st.sampled_from([None, "lz4"]))
    shared.create("boxed", shape, array.dtype, building_block=own, compression=compression, data=array)
    shared.create("into", shape, array.dtype, building_block=own, compression=compression)
    wanted = array.copy()
    for parts in pieces(shape, block):
        part = array[parts]
        wanted[parts] = part[(slice(None, None, -1),) * part.ndim] * 1000 + part.size
    np.testing.assert_array_equal(shared["boxed"].map_blocks(turned, block=block), wanted)
    assert shared["boxed"].map_blocks(turned, block=block, out=shared["into"], threads=2) == array.size
    np.testing.assert_array_equal(shared["into"][...], wanted)
