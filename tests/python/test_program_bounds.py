"""Indices out of range in programs in Python, and what functions fold small integers into."""

# ruff: noqa: F821 (dtypes in annotations are text)

from pathlib import Path
from typing import Any

import doors
import numba
import numpy as np
import pytest

import nandarray
import nandarray as nd
from nandarray.errors import CompileError, ProgramFailedError

TABLE = np.arange(10) * 1.5
GRID = np.arange(12.0).reshape(3, 4)
#: Ways to execute a program, and whether it has to be trusted for it.
FORMS = [("interpreted", False), ("translated", False), ("native", True)]
by_form = pytest.mark.parametrize(("form", "trusted"), FORMS)


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.computing(request, tmp_path / "a.nand") as made:
        made["places"] = np.array([0, 9, 10, 12])
        made["inside"] = np.array([0, 9, -10, -1])
        made["x"] = np.arange(8.0)
        yield made


@numba.njit
def looked_up(place: int) -> float:
    return TABLE[place]


@by_form
def test_a_table_ends_where_numpys_does(store: Any, form: str, trusted: bool) -> None:
    table = TABLE
    options = {"form": form, "trusted": trusted}
    for found in (lambda place: table[place], lambda place: looked_up(place)):
        np.testing.assert_array_equal(store["inside"].map_blocks(found, **options), TABLE[[0, 9, -10, -1]])
        says = r"IndexError: index 10 is out of bounds for size 10 \(test_program_bounds\.py:\d+\)"
        with pytest.raises(ProgramFailedError, match=says):
            store["places"].map_blocks(found, **options)


@by_form
def test_a_state_ends_where_numpys_does(store: Any, form: str, trusted: bool) -> None:
    def made(last: int) -> Any:
        class Sums:
            def step(state, x):  # noqa: N805
                state[last] += x

            def merge(state, other):  # noqa: N805
                for i in range(4):
                    state[i] += other[i]

        return nandarray.program.reduce(inputs="float64", state="float64[4]", trusted=trusted)(Sums)

    np.testing.assert_array_equal(store["x"].offload(made(3), form=form), [0, 0, 0, 28])
    with pytest.raises(ProgramFailedError, match="IndexError"):
        store["x"].offload(made(5), form=form)


@by_form
def test_windows_end_where_they_do(store: Any, form: str, trusted: bool) -> None:
    @nandarray.program(trusted=trusted)
    def reads(x: nd.Block["float64"], out: nd.Out["float64"], k: nd.Scalar["int64"]):
        for i in range(x.size):
            out[i] = x[i + k]

    @nandarray.program(trusted=trusted)
    def writes(x: nd.Block["float64"], out: nd.Out["float64"], k: nd.Scalar["int64"]):
        for i in range(x.size):
            out[i + k] = x[i]

    for program in (reads, writes):
        np.testing.assert_array_equal(store["x"].offload(program, k=0, form=form), np.arange(8.0))
        with pytest.raises(ProgramFailedError, match="IndexError"):
            store["x"].offload(program, k=1, form=form)


def boxed(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[i] = x[i + 1]


@by_form
def test_boxes_end_where_they_do(store: Any, form: str, trusted: bool) -> None:
    with pytest.raises(ProgramFailedError, match="IndexError"):
        store["x"].map_blocks(boxed, block=(4,), form=form, trusted=trusted)


def test_checks_can_be_left_out(store: Any) -> None:
    table = TABLE
    found = store["inside"].map_blocks(lambda place: table[place], boundscheck=False)
    np.testing.assert_array_equal(found, TABLE[[0, 9, -10, -1]])
    store["places"].map_blocks(lambda place: table[place], boundscheck=False)  # in the sandbox: what it reads is open
    store["places"].map_blocks(lambda place: looked_up(place), boundscheck=False)
    assert store["x"].reduce(lambda a, b: a + b, boundscheck=False) == 28
    with pytest.raises(ProgramFailedError, match="load access fault"):  # it leaves the program's memory
        store["x"].map_blocks(boxed, block=(4,), boundscheck=False)


def reads_flat(place: int) -> float:
    return GRID.flat[place]


@numba.njit
def flat_helper(place: int) -> float:
    return GRID.flat[place]


def writes_flat(x: Any, out: Any) -> None:
    out.flat[0] = x[0]


def test_indices_into_flat_are_refused_as_nobody_checks_them(store: Any) -> None:
    for found in (reads_flat, lambda place: flat_helper(place), lambda place: GRID.flat[2] + place):
        for trusted in (False, True):
            with pytest.raises(CompileError, match=r"test_program_bounds.py:\d+: .*`.ravel\(\)`"):
                store["inside"].map_blocks(found, trusted=trusted)
    with pytest.raises(CompileError, match=r"`.ravel\(\)`[^$]*out.flat\[0\] = x\[0\]"):
        store["x"].map_blocks(writes_flat, block=(8,))
    unchecked = store["inside"].map_blocks(lambda place: GRID.flat[abs(place)], boundscheck=False)
    np.testing.assert_array_equal(unchecked, GRID.flat[[0, 9, 10, 1]])


def test_flat_may_be_gone_through(store: Any) -> None:
    def total(place: int) -> float:
        found = 0.0
        for value in GRID.flat:
            found += value
        return found + place

    np.testing.assert_array_equal(store["inside"].map_blocks(total), 66.0 + np.array([0, 9, -10, -1]))


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "?", "f4", "f8"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_functions_fold_into_what_numpys_sums_have(store: Any, dtype: str, axis: int | None) -> None:
    values = (np.arange(100, 200).reshape(10, 10) % 128 - 28 * (dtype[0] == "i")).astype(dtype)
    store["v"] = values
    found = store["v"].reduce(lambda a, b: a + b, axis)
    wanted = np.add.reduce(values, axis=axis)
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype


def test_a_dtype_that_is_asked_for_stays(store: Any) -> None:
    store["v"] = np.arange(100, 200, dtype="u1")
    found = store["v"].reduce(lambda a, b: a + b, dtype="u1")
    assert (found, found.dtype) == (np.arange(100, 200).sum() % 256, np.dtype("u1"))
    assert store["v"].reduce(lambda a, b: a + b, initial=7) == np.arange(100, 200).sum() + 7
