"""No result depends on where inputs are cut: functions over blocks and streams get them whole, unless asked otherwise.

The functions are those of docs/guides/programs.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import InvalidError

pytest.importorskip("numba")

FORMS = ("interpreted", "translated", "native")
RECORDS = [1, 2, 7, 512, 1 << 20]


@nandarray.program(trusted=True)
def edges(x: nandarray.Block[np.int16], at: nandarray.Out[np.uint32], step: nandarray.Scalar[np.int16]):
    n = 0
    for i in range(1, x.size):
        if abs(x[i] - x[i - 1]) > step:
            at[n] = i
            n += 1
    return n


@nandarray.program(trusted=True)
def running(x: nandarray.Stream[np.float64], out: nandarray.OutStream[np.float64]):
    total = 0.0
    for value in x:
        total += value
        out.store(total)


@nandarray.program(trusted=True)
def upper(x: nandarray.Stream[np.uint8], out: nandarray.OutStream[np.uint8]):
    for byte in x:
        out.store(byte - 32 if 97 <= byte <= 122 else byte)


@nandarray.program.filter(inputs="float64")
def valid(x):
    return x == x  # noqa: PLR0124


@nandarray.program.reduce(inputs="int64", state={"n": "int64", "total": "int64"})
class mean:
    def step(state, x):
        state.n += 1
        state.total += x

    def merge(state, other):
        state.n += other.n
        state.total += other.total

    def result(state):
        return state.total / state.n


@pytest.mark.parametrize("form", FORMS)
def test_functions_over_blocks_and_streams_see_the_array(store: Any, form: str) -> None:
    x = np.zeros(1_200_000, "i2")  # tasks of programs that may be cut have 1 MiB
    x[500_000:], x[524_288:], x[1_100_000:] = 100, 0, 7
    store["x"], store["y"] = x, np.ones(300_000)
    wanted = np.flatnonzero(abs(np.diff(x)) > 5) + 1
    np.testing.assert_array_equal(store["x"].offload(edges, step=5, form=form), wanted)
    np.testing.assert_array_equal(store["x"].filter(edges, step=5, form=form), wanted)
    np.testing.assert_array_equal(store["y"].offload(running, form=form), np.arange(1.0, 300_001))
    # A task's size asks for tasks, each of which is seen alone.
    run = nandarray.offload(running, [store["y"]], form=form, task_bytes=800_000, threads=2)
    assert run.account.tasks == 3
    np.testing.assert_array_equal(run.result, np.tile(np.arange(1.0, 100_001), 3))
    assert nandarray.offload(running, [store["y"]], form=form).account.tasks == 1


def test_a_function_gets_what_another_program_gives_whole(store: Any) -> None:
    x = np.arange(400_000.0)
    x[::3] = np.nan
    store["x"] = x
    found = running.on(valid.on(store["x"]).using(task_bytes=10_000)).run(threads=2)
    np.testing.assert_array_equal(found, np.cumsum(x[x == x]))  # noqa: PLR0124


@pytest.mark.parametrize("records", RECORDS)
def test_elementwise_functions_do_not_depend_on_the_cut(store: Any, records: int) -> None:
    rng = np.random.default_rng(1)
    x, text = rng.integers(-100, 100, 3000), rng.integers(0, 255, 3000).astype("u1")
    store["x"], store["text"], store["real"] = x, text, np.where(x > 0, x, np.nan)
    size = {"task_bytes": 8 * records, "threads": 2}
    np.testing.assert_array_equal(store["x"].map_blocks(lambda v: v * 3 - 1, **size), x * 3 - 1)
    np.testing.assert_array_equal(store["real"].filter(valid, **size), x[x > 0])
    np.testing.assert_array_equal(store["x"].filter(lambda v: v % 7 == 1, **size), x[x % 7 == 1])
    assert store["x"].reduce(mean, **size) == x.mean()
    assert store["x"].reduce(lambda a, b: a + b, **size) == x.sum()
    found = store["text"].offload(upper, task_bytes=records)
    assert bytes(found) == bytes(np.where((text >= 97) & (text <= 122), text - 32, text).astype("u1"))


def test_what_does_not_fit_one_task_is_refused_with_the_cure(store: Any) -> None:
    array = store.create("x", (40_000_000,), "i2")
    says = r"input x has 80000000 bytes; edges takes its inputs whole: .* at most 67108864 bytes, .* the size of a task"
    with pytest.raises(InvalidError, match=says):
        array.offload(edges, step=5)
    with pytest.raises(InvalidError, match=r"the room of output at has 80000000 bytes; .* the size of a task"):
        array.offload(edges, key=slice(0, 20_000_000), step=5)
    assert array.offload(edges, step=5, task_bytes=1 << 24, form="native").size == 0
