"""Forms of functions that say what they see: sequences, neighbourhoods, whole inputs, and where a block lies.

Each is compared with NumPy, or with Dask for neighbourhoods, whatever the size of tasks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import doors
import numpy as np
import pytest

import nandarray
from nandarray import CompileError, InvalidError

pytest.importorskip("numba")

ALL = 1 << 30
RECORDS = [1, 2, 7, 512, ALL]
KINDS = {"n": "int64", "value": "int64"}


@nandarray.program.sequence(inputs="int64", state="int64", trusted=True)
class running:
    """The sum so far."""

    def step(state, x):
        state[0] += x
        return state[0]


@nandarray.program.sequence(inputs="int64", state="int64", scalars={"start": "int64"}, trusted=True)
class delta:
    def init(state, start):
        state[0] = start

    def step(state, x):
        before = state[0]
        state[0] = x
        return x - before


@nandarray.program.sequence(inputs="int64", state=KINDS, output=KINDS, trusted=True)
class run_lengths:
    def step(state, x, out):
        wrote = 0
        if state.n > 0 and state.value != x:
            out[0].n = state.n
            out[0].value = state.value
            state.n = 0
            wrote = 1
        state.value = x
        state.n += 1
        return wrote

    def end(state, out):
        if state.n == 0:
            return 0
        out[0].n = state.n
        out[0].value = state.value
        return 1


@nandarray.program
def edges(
    x: nandarray.Block[np.int16],
    at: nandarray.Out[np.int64],
    step: nandarray.Scalar[np.int16],
    first: nandarray.First,
    length: nandarray.Length,
):
    n = 0
    for i in range(1, x.size):
        if abs(x[i] - x[i - 1]) > step:
            at[n] = first + i
            n += 1
    if first + x.size == length:
        at[n] = -length
        n += 1
    return n


@nandarray.program(trusted=True)
def middle(x: nandarray.Whole[np.float64], out: nandarray.Out[np.float64]):
    for i in range(x.size):
        out[i] = x[i] - x[x.size // 2]


@nandarray.program
def looked_up(x: nandarray.Block[np.int64], table: nandarray.Whole[np.int64], out: nandarray.Out[np.int64]):
    for i in range(x.size):
        out[i] = table[x[i] % table.size]


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.computing(request, tmp_path / "data.nand") as opened:
        yield opened


def encoded(x: Any) -> Any:
    starts = np.flatnonzero(np.r_[True, x[1:] != x[:-1]]) if x.size else np.array([], "i8")
    found = np.zeros(starts.size, [("n", "i8"), ("value", "i8")])
    found["n"], found["value"] = np.diff(np.r_[starts, x.size]), x[starts]
    return found


@pytest.mark.parametrize("records", RECORDS)
def test_a_sequence_does_not_depend_on_the_cut(store: Any, records: int) -> None:
    x = np.random.default_rng(3).integers(0, 3, 3000)
    store.create("x", data=x)
    size = {"task_bytes": 8 * records, "threads": 3}
    np.testing.assert_array_equal(store["x"].offload(running, **size), np.cumsum(x))
    np.testing.assert_array_equal(store["x"].offload(delta, start=5, **size), np.diff(x, prepend=5))
    np.testing.assert_array_equal(store["x"].offload(run_lengths, **size).astype(encoded(x).dtype), encoded(x))
    # One behind the other: a delta undoes a sum, and both are sequences that wait for each other's tasks.
    step = delta.on(running.on(store["x"]).using(task_bytes=8 * records), start=0).using(task_bytes=24)
    np.testing.assert_array_equal(nandarray.offload(step, threads=3).result, x)
    assert store["x"].offload(run_lengths, key=slice(0, 0)).size == 0


@pytest.mark.parametrize("form", ["interpreted", "translated", "native"])
def test_a_sequence_is_the_same_in_each_form(tmp_path: Path, form: str) -> None:
    x = np.random.default_rng(4).integers(-5, 5, 300_000)  # two tasks, of 1 MiB in whole rows
    with nandarray.open(tmp_path / "data.nand", "w") as store:
        store["x"] = x.reshape(3, 100_000)
        run = nandarray.offload(running, [store["x"]], form=form, threads=2)
        assert run.account.tasks == 2
        np.testing.assert_array_equal(run.result, np.cumsum(x).reshape(3, -1))
        store.create("sums", (3, 100_000), "i8")
        assert store["x"].offload(running, form=form, out=store["sums"]) == 300_000
        np.testing.assert_array_equal(store["sums"][...], np.cumsum(x).reshape(3, -1))
        np.testing.assert_array_equal(store["x"].offload(run_lengths, form=form)["n"], encoded(x)["n"])


def test_a_sequence_on_a_modelled_device() -> None:
    device = nandarray.devices()["mqsim-ideal"].with_({"compute.cores": 4, "compute.clock": "1 GHz"})
    x = np.random.default_rng(5).integers(0, 4, (64, 2048))
    with nandarray.open(device=device, mode="w") as store:
        store.create("x", data=x, building_block=(8, 256))
        store.flush()
        np.testing.assert_array_equal(store["x"].offload(running, task_bytes=10_000), np.cumsum(x).reshape(x.shape))
        assert store["x"].offload(run_lengths, task_bytes=10_000).size == encoded(x.reshape(-1)).size
        found = store["x"].map_blocks(box_sum, depth=1, boundary="periodic", block=(16, 100))
        np.testing.assert_array_equal(found, around(x, "wrap"))


def test_what_is_no_sequence_is_refused() -> None:
    sequence = nandarray.program.sequence

    def made(output: Any = None, **functions: Any) -> Any:
        return sequence(inputs="int64", state="int64", output=output)(type("made", (), functions))

    with pytest.raises(InvalidError, match=r"must have step\(state, x\)"):
        made(end=lambda state, out: 0)
    with pytest.raises(InvalidError, match="output must be given"):
        made(step=lambda state, x, out: 0)
    with pytest.raises(InvalidError, match="step.. must take out, too"):
        made(step=lambda state, x: x, end=lambda state, out: 0)
    with pytest.raises(InvalidError, match="'y' is neither an input nor among scalars"):
        made("int64", step=lambda state, x, out: 0, end=lambda state, y: 0)
    with pytest.raises(CompileError, match=r"step\(\) must return how many records"):
        _ = made("int64", step=lambda state, x, out: x * 0.5).elf
    with pytest.raises(nandarray.ProgramError, match="state_bytes must be more than 0"):
        nandarray.Program.from_c(C.replace("KEPT", "0"))
    with pytest.raises(nandarray.ProgramError, match='its tasks are "ordered": one state'):
        nandarray.Program.from_c(C.replace("KEPT", "8") + "int64_t nd_merge(nd_args *args) { return 0; }")


C = """
#include <nandarray.h>
ND_PROGRAM("name": "places", "kind": "block", "tasks": "ordered", "state_bytes": KEPT,
           "inputs": [{"name": "x", "dtype": "uint8"}],
           "outputs": [{"name": "y", "dtype": "uint64", "phase": "both", "bound": {"fixed": 40}}])
int64_t nd_block(nd_args *args) {
    uint64_t *y = ND_OUTPUT(args, 0, uint64_t);
    y[0] = args->first[0], y[1] = args->first[3], y[2] = args->total[0], y[3] = args->total[3];
    y[4] = (*ND_STATE(args, uint64_t))++;
    ND_SET_USED(args, 0, 5, uint64_t);
    return 0;
}
int64_t nd_end(nd_args *args) {
    ND_OUTPUT(args, 0, uint64_t)[0] = *ND_STATE(args, uint64_t);
    ND_SET_USED(args, 0, 1, uint64_t);
    return 0;
}
"""


def test_a_program_in_c_is_told_where_its_task_lies(store: Any) -> None:
    store.create("x", data=np.zeros(10, "u1"))
    found = store["x"].offload(nandarray.Program.from_c(C.replace("KEPT", "8")), task_bytes=4)
    assert found.tolist() == [0, 0, 10, 1, 0, 4, 0, 10, 1, 1, 8, 0, 10, 1, 2, 3]


@pytest.mark.parametrize("records", RECORDS[1:])
def test_a_block_is_told_where_it_lies(store: Any, records: int) -> None:
    x = np.zeros(5000, "i2")
    x[1003:] = 9
    store.create("x", data=x)
    wanted = [1003, -5000]  # an edge within a task of each size
    assert store["x"].offload(edges, step=5).tolist() == wanted
    assert store["x"].offload(edges, step=5, task_bytes=2 * records).tolist() == wanted
    # The length of an input that another program gives is unknown.
    step = edges.on(nandarray.program(inputs="int16")(same).on(store["x"]), step=5)
    assert step.run().tolist() == wanted[:1]


def same(x: Any) -> Any:
    return x


def test_boxes_are_told_where_they_lie(store: Any) -> None:
    store.create("x", data=np.zeros((7, 9), "i4"), building_block=(2, 4))

    def places(v, out, first: nandarray.First, shape: nandarray.Length):
        for i in range(v.shape[0]):
            for j in range(v.shape[1]):
                out[i, j] = (first[0] + i) * shape[1] + first[1] + j

    found = store["x"].map_blocks(places, block=(3, 2))
    np.testing.assert_array_equal(found, np.arange(63).reshape(7, 9))
    found = store["x"].map_blocks(places, key=np.s_[1:, ::2], depth=(1, 0), boundary="nearest")
    rows = np.arange(6).repeat(5).reshape(6, 5) + 1  # of the box of the output with its halo the row before is left out
    np.testing.assert_array_equal(found, rows * 5 + np.arange(5))


def test_whole_inputs(store: Any) -> None:
    x = np.random.default_rng(6).random(200_000)
    store.create("x", data=x)
    store.create("i", data=np.arange(1000))
    np.testing.assert_array_equal(store["x"].offload(middle), x - x[100_000])
    with pytest.raises(InvalidError, match="middle takes its inputs whole: the size of a task must be left out, not 8"):
        store["x"].offload(middle, task_bytes=80)
    table = np.arange(17) ** 2
    for size in (None, 8, 56):
        found = store["i"].offload(looked_up, table, task_bytes=size)
        np.testing.assert_array_equal(found, table[np.arange(1000) % 17])
    large = store.create("large", (9_000_000,), "f8")
    with pytest.raises(InvalidError, match=r"input x has 72000000 bytes; middle takes .* at most 67108864 bytes$"):
        large.offload(middle)


def box_sum(v, out):
    for i in range(1, v.shape[0] - 1):
        for j in range(1, v.shape[1] - 1):
            total = 0
            for k in range(3):
                for m in range(3):
                    total += v[i + k - 1, j + m - 1] * (3 * k + m + 1)
            out[i, j] = total


def around(x: Any, mode: str) -> Any:
    padded = np.pad(x, 1, mode=mode)
    n, m = x.shape
    return sum(padded[k : k + n, j : j + m] * (3 * k + j + 1) for k in range(3) for j in range(3))


@pytest.mark.parametrize("boundary", ["reflect", "periodic", "nearest", "none", 7, ("periodic", 5), (3, "reflect")])
def test_neighbourhoods_are_those_of_dask(store: Any, boundary: Any) -> None:
    dask = pytest.importorskip("dask.array")
    x = np.random.default_rng(8).integers(0, 100, (23, 17))
    y = np.random.default_rng(9).integers(0, 100, (23, 17))
    store.create("x", data=x, building_block=(4, 8))
    store.create("y", data=y)

    def local(v, w, out):  # of what it sees, everything: blocks with their halos are compared, not single elements
        rows, columns = v.shape
        for i in range(rows):
            for j in range(columns):
                out[i, j] = v[i, j] + 3 * v[i, columns - 1 - j] + 5 * v[rows - 1 - i, j] + w[rows - 1 - i, j] * columns

    def block_of(v: Any, w: Any) -> Any:
        return v + 3 * v[:, ::-1] + 5 * v[::-1] + w[::-1] * v.shape[1]

    # Dask wants blocks at least as large as the depth; ours may be smaller.
    for block in ((8, 9), (23, 6), (12, 17)):
        given = [dask.from_array(one, chunks=block) for one in (x, y)]
        other = y if block == (8, 9) else store["y"]
        for depth in (1, (3, 2), (0, 3), {0: 2, 1: 0}):
            said = dict(enumerate(boundary)) if isinstance(boundary, tuple) else boundary
            deep = dict(enumerate(depth)) if isinstance(depth, tuple) else depth
            wanted = dask.map_overlap(block_of, *given, depth=deep, boundary=said, allow_rechunk=False).compute()
            found = store["x"].map_blocks(local, other, depth=depth, boundary=boundary, block=block)
            np.testing.assert_array_equal(found, wanted, err_msg=f"{block} {depth}")


@pytest.mark.parametrize(("boundary", "mode"), [("reflect", "symmetric"), ("periodic", "wrap"), ("nearest", "edge")])
def test_neighbourhoods_do_not_depend_on_the_blocks(store: Any, boundary: str, mode: str) -> None:
    x = np.random.default_rng(10).integers(0, 100, (40, 30))
    store.create("x", data=x, building_block=(16, 8))
    for block in (None, True, (1, 1), (2, 7), (7, 2), (40, 30)):
        found = store["x"].map_blocks(box_sum, depth=1, boundary=boundary, block=block, threads=3)
        np.testing.assert_array_equal(found, around(x, mode))
    key = np.s_[3:30:3, 5:25]
    found = store["x"].map_blocks(box_sum, depth=1, boundary=boundary, key=key, out="part", block=(4, 4))
    np.testing.assert_array_equal(found[...], around(x[key], mode))
    found = store["x"].view((1200,)).map_blocks(third, depth=3, boundary=boundary, block=(2,))
    padded = np.pad(x.reshape(-1), 3, mode=mode)
    np.testing.assert_array_equal(found, padded[:-6] - padded[6:])
    assert store["x"].map_blocks(box_sum, key=np.s_[:0], depth=(0, 1), boundary=boundary).shape == (0, 30)


def third(v, out):
    for i in range(3, v.size - 3):
        out[i] = v[i - 3] - v[i + 3]


def test_neighbourhoods_of_a_large_array_need_little_memory(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "data.nand", "w") as store:
        x = np.arange(1 << 20, dtype="i8")
        store.create("x", data=x, building_block=(1 << 12,))
        run = store["x"].map_blocks(third, depth=3, boundary=-1, out="y")
        padded = np.pad(x, 3, constant_values=-1)
        np.testing.assert_array_equal(run[...], padded[:-6] - padded[6:])


def test_wrong_neighbourhoods_are_refused(store: Any) -> None:
    store.create("x", data=np.zeros((4, 6), "u1"))
    array = store["x"]
    for wrong, says in [
        ({"boundary": "reflect"}, "boundary is 'reflect', and depth is not given"),
        ({"depth": 5}, r"depth must be from 0 to 4 along axis 0 of the box \(4, 6\), not 5"),
        ({"depth": -1}, "depth must be from 0 to 4 .*, not -1"),
        ({"depth": 1.5}, "depth must be .*, not 1.5"),
        ({"depth": (1, 2, 3)}, r"depth must have 2 entries, as the box \(4, 6\), not \(1, 2, 3\)"),
        ({"depth": {2: 1}}, "depth names axis 2"),
        ({"depth": 1, "boundary": "mirror"}, "boundary must be 'reflect', .* or a number, not 'mirror'"),
        ({"depth": 1, "boundary": 300}, "boundary is 300, which elements of uint8 do not have"),
        ({"depth": 1, "boundary": 0.5}, "boundary is 0.5, which elements of uint8 do not have"),
        ({"depth": 1, "block": False}, "block is False"),
        ({"depth": 1, "block": (1 << 13, 1 << 13)}, r"a block of \(8194, 8194\) does not fit"),
    ]:
        with pytest.raises(InvalidError, match=says):
            array.map_blocks(box_sum, **wrong)
    with pytest.raises(InvalidError, match="depth is for functions that are compiled now"):
        array.map_blocks(nandarray.programs.get("sqrt", dtype="float64"), depth=1)


def test_neighbourhoods_refuse_an_axis_twice_and_take_any_order_of_bytes(tmp_path: Path) -> None:
    def two(a, b, out):
        for i in range(out.shape[0]):
            out[i] = a[i] + b[i]

    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["x"] = np.arange(4, dtype="f4")
        store["cube"] = np.zeros((3, 3, 3))
        found = store["x"].map_blocks(two, np.arange(4, dtype=">f4"), block=(2,), depth=1)
        assert found.tolist() == [0, 2, 4, 6]
        with pytest.raises(InvalidError, match="each once"):
            store["cube"].map_blocks(lambda v, out: None, depth={0: 1, -3: 2})
        with pytest.raises(InvalidError, match="boundary"):
            store["x"].map_blocks(two, store["x"], depth=1, boundary=True)
