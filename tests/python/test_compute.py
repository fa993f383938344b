"""Computing beside the data in one call: ``map_blocks``, ``filter``, ``reduce``, ``select`` give what NumPy gives."""

from __future__ import annotations

import asyncio
import functools
import operator
import threading
from pathlib import Path
from typing import Any

import doors
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as npst

import nandarray
from nandarray import CompileError, InvalidError, NotFoundError, programs

DTYPES = ["int8", "uint16", "int32", "int64", "uint64", "float32", "float64"]


@st.composite
def cases(
    draw: st.DrawFn, dtypes: list[str] = DTYPES
) -> tuple[np.ndarray[Any, Any], Any, tuple[int, ...] | None, bool]:
    """An array, a box of it, the shape of a view of it, and whether it is written at all."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = draw(npst.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=9))
    finite = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else {}
    if dtype.kind == "f":
        finite |= {"min_value": -1e6, "max_value": 1e6}
    data = draw(npst.arrays(dtype, shape, elements=npst.from_dtype(dtype, **finite) if finite else None))
    view = draw(st.none() | st.just((data.size,))) if data.size else None
    seen = shape if view is None else view
    key = []
    for size in seen:
        start, stop = sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size))))
        key.append(slice(start, stop, draw(st.integers(1, 3))))
    if draw(st.booleans()) and seen[0]:
        key[0] = draw(st.integers(-seen[0], seen[0] - 1))
    return data, tuple(key), view, draw(st.integers(0, 9)) > 0


@pytest.fixture(scope="module", params=doors.COMPUTING)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with doors.computing(request, tmp_path_factory.mktemp("compute") / "data.nand") as opened:
        yield opened


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, path: Path) -> Any:
    with doors.computing(request, path) as opened:
        yield opened


def stored(store: Any, case: Any) -> tuple[Any, np.ndarray[Any, Any], Any]:
    """The array or view in the store, what NumPy has of the box, and the key."""
    data, key, view, written = case
    if "x" in store:
        del store["x"]
    fill = data.reshape(-1)[0] if data.size else 3
    store.create("x", data.shape, data.dtype, fill_value=fill, building_block=(4,) * data.ndim)
    whole = data if written else np.full_like(data, fill)
    if written:
        store["x"][...] = data
    grid = store["x"] if view is None else store["x"].view(view)
    return grid, (whole if view is None else whole.reshape(view))[key], key


@settings(max_examples=40)
@given(case=cases())
def test_map_blocks(shared: Any, case: Any) -> None:
    grid, box, key = stored(shared, case)
    found = grid.map_blocks(lambda x, by: x * by - x // 3, key=key, by=2, dtype=box.dtype)
    three = box.dtype.type(3)
    assert found.shape == box.shape
    assert found.dtype == box.dtype
    with np.errstate(over="ignore"):  # of a scalar, which warns
        wanted = (box * box.dtype.type(2) - box // three).astype(box.dtype)
    np.testing.assert_array_equal(found, wanted)
    both = grid.map_blocks(lambda x, y: x - y, nandarray.Box(grid, key), key=key, dtype=box.dtype)
    assert not both.any()


@settings(max_examples=40)
@given(case=cases(), data=st.data())
def test_filter(shared: Any, case: Any, data: st.DataObject) -> None:
    grid, box, key = stored(shared, case)
    limits = sorted(data.draw(st.tuples(st.sampled_from(box.reshape(-1).tolist() or [1]), st.integers(0, 9))))
    low, high = (np.asarray(one).astype(box.dtype)[()] for one in limits)
    found = grid.filter(lambda x, low, high: x >= low and x < high, key=key, low=low, high=high)
    np.testing.assert_array_equal(found, box[(box >= low) & (box < high)])
    np.testing.assert_array_equal(grid.filter(key=key, low=low, high=high), box[(box >= low) & (box <= high)])
    places = np.flatnonzero((box >= low) & (box <= high))
    np.testing.assert_array_equal(grid.filter("filter_index", key=key, low=low, high=high), places)


@settings(max_examples=40)
@given(case=cases())
def test_reduce_by_name(shared: Any, case: Any) -> None:
    grid, box, key = stored(shared, case)
    wide = box.astype("float64")
    if box.dtype.kind == "f":
        assert grid.reduce("sum", key=key) == pytest.approx(wide.sum(), rel=1e-9, abs=1e-6)
    else:
        assert grid.reduce("sum", key=key) == box.sum()
    if not box.size:
        for name in ("min", "max"):
            with pytest.raises(InvalidError, match="there is no element"):
                grid.reduce(name, key=key)
            assert grid.reduce(name, key=key, initial=7) == 7
        assert np.isnan(grid.reduce("mean", key=key))
        return
    assert grid.reduce("min", key=key) == box.min()
    assert grid.reduce("max", key=key) == box.max()
    assert grid.reduce("mean", key=key) == pytest.approx(wide.mean(), rel=1e-9, abs=1e-6)
    assert grid.reduce("std", key=key) == pytest.approx(wide.std(), rel=1e-6, abs=1e-3)
    counts = grid.reduce("histogram", key=key, bins=5, low=0.0, high=100.0)
    np.testing.assert_array_equal(counts, np.histogram(wide, 5, (0, 100))[0])


@settings(max_examples=40)
@given(case=cases(["int32", "int64", "uint64"]), pieces=st.integers(1, 3))
def test_reduce_by_a_function(shared: Any, case: Any, pieces: int) -> None:
    grid, box, key = stored(shared, case)
    flat = [int(one) for one in box.reshape(-1)]
    with np.errstate(over="ignore"):
        wanted = functools.reduce(operator.xor, flat) if flat else None
    if wanted is None:
        with pytest.raises(InvalidError, match="no initial value"):
            grid.reduce(lambda x, y: x ^ y, key=key)
    else:
        assert grid.reduce(lambda x, y: x ^ y, key=key, threads=pieces) == wanted
    assert grid.reduce(lambda x, y: max(x, y), key=key, initial=3) == max([3, *flat])


def test_many_tasks_fold_in_order(store: Any) -> None:
    data = np.random.default_rng(3).integers(0, 1 << 40, 700_000)
    store["x"] = data
    # Associative, and not commutative.
    last = store["x"].reduce(lambda x, y: y, threads=3)
    assert last == data[-1]
    assert store["x"].reduce(lambda x, y: x, threads=3) == data[0]
    assert store["x"].reduce(lambda x, y: x + y) == data.sum()


@settings(max_examples=25)
@given(case=cases(["int32", "uint64", "float64"]), data=st.data(), small=st.booleans())
def test_reduce_along_an_axis(shared: Any, case: Any, data: st.DataObject, small: bool) -> None:
    grid, box, key = stored(shared, case)
    if not box.ndim:
        return
    axis = data.draw(st.integers(-box.ndim, box.ndim - 1))
    with pytest.MonkeyPatch.context() as patch:
        if small:  # as if a task had no room for what is along the axis
            patch.setattr("nandarray.programs.calls.axes.SLAB_BYTES", 0)
        if box.shape[axis] or not box.size and 0 in np.delete(box.shape, axis):
            np.testing.assert_array_equal(grid.reduce("max", axis, key=key), np.max(box, axis) if box.size else 0)
            last = grid.reduce(lambda x, y: y, axis, key=key)
            np.testing.assert_array_equal(last, box.take(-1, axis) if box.size else last)
        else:
            with pytest.raises(InvalidError, match="no element along axis"):
                grid.reduce("min", axis, key=key)
        found = grid.reduce("sum", axis, key=key)
        assert found.dtype == box.sum(axis).dtype
        np.testing.assert_allclose(found, box.sum(axis), rtol=1e-12, atol=1e-9)


def test_reduce_along_axes_of_many_tasks(store: Any) -> None:
    data = np.random.default_rng(5).random((3000, 40, 21))
    store["x"] = data
    for axis in range(3):
        np.testing.assert_allclose(store["x"].reduce("mean", axis), data.mean(axis), rtol=1e-12)
        np.testing.assert_array_equal(store["x"].reduce("min", axis, threads=3), data.min(axis))
    part = np.s_[5, ::2]
    np.testing.assert_array_equal(store["x"].reduce("max", 1, key=part), data[part].max(1))
    data[7, 3] = np.nan
    store["x"][...] = data
    np.testing.assert_array_equal(store["x"].reduce("min", 0), data.min(0))
    scaled = store["x"].reduce(lambda x, y, by: max(x, y * by), 2, key=np.s_[:5], by=1.0, dtype="float32")
    np.testing.assert_array_equal(scaled, data[:5].max(2).astype("float32"))
    with pytest.raises(NotFoundError, match="along an axis; there is "):
        store["x"].reduce("minmax", 0)
    with pytest.raises(nandarray.BadIndexError, match="axis 3 is out of bounds"):
        store["x"].reduce("sum", 3)
    with pytest.raises(InvalidError, match="without an initial value"):
        store["x"].reduce("sum", 0, initial=3)


@settings(max_examples=30)
@given(case=cases(), data=st.data())
def test_select_numbers(shared: Any, case: Any, data: st.DataObject) -> None:
    grid, box, key = stored(shared, case)
    if not box.ndim or not box.shape[-1]:
        return
    wanted = data.draw(st.lists(st.integers(-box.shape[-1], box.shape[-1] - 1), min_size=1, max_size=4))
    np.testing.assert_array_equal(grid.select(*wanted, key=key), box[..., wanted])


def test_select_fields(store: Any) -> None:
    kind = np.dtype([("id", "i4"), ("price", "f8"), ("name", "S5"), ("tax", "f4")])
    rows = np.zeros((40, 25), kind)
    rng = np.random.default_rng(2)
    rows["id"], rows["price"], rows["name"] = rng.integers(0, 99, rows.shape), rng.random(rows.shape), b"abc"
    store["rows"] = rows
    found = store["rows"].select("price", "id", key=np.s_[3:30:2])
    assert found.dtype.names == ("price", "id")
    assert found.shape == (14, 25)
    np.testing.assert_array_equal(found["price"], rows["price"][3:30:2])
    np.testing.assert_array_equal(found["id"], rows["id"][3:30:2])
    with pytest.raises(InvalidError, match="no field 'cost'; there is id, price"):
        store["rows"].select("cost")
    store["x"] = np.arange(6).reshape(2, 3)
    with pytest.raises(InvalidError, match="column 3 is out of bounds for 3 columns"):
        store["x"].select(3)
    with pytest.raises(InvalidError, match="no option 'out'"):
        store["x"].select(0, out=1)


def test_results_go_into_arrays(store: Any) -> None:
    data = np.random.default_rng(1).random((300, 70))
    store.create("x", data.shape, data.dtype, building_block=(64, 64), data=data)
    made = store["x"].map_blocks(lambda x: x * 2, out="twice")
    assert made.name == "twice"
    assert made.building_block == (64, 64)
    np.testing.assert_array_equal(made[...], data * 2)
    part = store["x"].map_blocks("sqrt", key=np.s_[::3, 5:60], out="part")
    np.testing.assert_allclose(part[...], np.sqrt(data[::3, 5:60]), rtol=1e-15)
    assert store["x"].map_blocks("add", store["x"], out=store["twice"]) == data.size
    with pytest.raises(InvalidError, match="how much filter gives is not known before"):
        store["x"].map_blocks(programs.get("filter"), out="kept", low=2, high=3)
    with pytest.raises(nandarray.ExistsError):
        store["x"].map_blocks(lambda x: x, out="twice")
    assert "kept" not in store
    with pytest.raises(nandarray.ProgramFailedError):
        store["x"].map_blocks(lambda x: x, out="late", instructions=10)
    assert "late" not in store


def test_indices_are_those_of_numpy(store: Any) -> None:
    data = np.arange(24.0).reshape(2, 3, 4)
    store["x"] = data
    for key in (..., np.s_[..., 1:3], np.s_[1, ..., 2], (np.int64(1), slice(np.int32(0), None, np.int64(2))), -1):
        np.testing.assert_array_equal(store["x"].map_blocks(lambda v: v + 1, key=key), data[key] + 1)
    with pytest.raises(nandarray.BadIndexError):
        store["x"].reduce("sum", key=2)
    with pytest.raises(InvalidError, match="forward slices"):
        store["x"].reduce("sum", key=np.s_[::-1])
    with pytest.raises(InvalidError, match="must be a program, a step, or steps by name, not 'sum': programs.get"):
        store["x"].offload("sum")
    for wrong in ({"threads": 0}, {"threads": "many"}, {"instructions": -1}, {"instructions": True}, {"seconds": 0}):
        with pytest.raises(InvalidError, match=next(iter(wrong))):
            store["x"].reduce("sum", **wrong)
    with pytest.raises(InvalidError, match="dtype is for functions"):
        store["x"].reduce("sum", dtype="float32")


def test_a_run_has_its_time(store: Any) -> None:
    store["x"] = np.arange(10.0)
    store["y"] = np.ones(10)

    def endless(x):
        while x >= 0:
            x += 1
        return x

    with pytest.raises(nandarray.ProgramFailedError, match=f"more than 0.2 s: .*{doors.cancelled(store)}"):
        store["x"].map_blocks(endless, seconds=0.2, out=store["y"])
    np.testing.assert_array_equal(store["y"][...], np.ones(10))
    assert store["x"].reduce("sum", seconds=100) == 45


def test_a_scalar_is_an_input_and_an_output(store: Any) -> None:
    store["scalar"] = np.float64(3)
    assert store["scalar"].map_blocks(lambda v: v + 1) == 4
    assert store["scalar"].map_blocks(lambda v: v + 1).shape == ()
    assert store["scalar"].reduce("sum") == 3
    store["scalar"].map_blocks(lambda v: v * 7, out=store["scalar"])
    assert store["scalar"][()] == 21
    assert store["scalar"].map_blocks("sqrt", out="root")[()] == np.sqrt(21)


def test_sums_of_complex_numbers(store: Any) -> None:
    data = (np.arange(6) - 1j * np.arange(6)[::-1]).reshape(2, 3)
    for kind in ("complex64", "complex128"):
        store["x" + kind] = data.astype(kind)
        array = store["x" + kind]
        assert (array.reduce("sum"), array.reduce("mean")) == (data.sum(), data.mean())
        np.testing.assert_array_equal(array.reduce("sum", 0), data.sum(0))
        np.testing.assert_array_equal(array.reduce("mean", 1), data.mean(1))
        assert array.reduce("sum", key=np.s_[:0]) == 0


def test_booleans(store: Any) -> None:
    data = np.random.default_rng(1).random((40, 30)) < 0.3
    store["x"] = data
    assert store["x"].reduce("sum") == data.sum()
    assert store["x"].reduce("sum").dtype == data.sum().dtype
    assert store["x"].reduce("max").dtype == bool
    np.testing.assert_array_equal(store["x"].map_blocks(lambda x: not x), ~data)


def test_a_class_and_programs_are_taken_as_they_are(store: Any) -> None:
    data = np.random.default_rng(1).normal(size=5000)
    store["x"] = data

    class Moments:
        def step(state, x):
            state.n += 1
            state.s += x * x

        def merge(state, other):
            state.n += other.n
            state.s += other.s

        def result(state):
            return state.s / state.n

    found = store["x"].reduce(Moments, state={"n": "int64", "s": "float64"})
    assert found == pytest.approx((data**2).mean())
    assert store["x"].reduce(programs.get("sum")) == pytest.approx(data.sum())

    @nandarray.program
    def differences(x: nandarray.Block[np.float64], out: nandarray.Out[np.float64]):
        for i in range(1, x.size):
            out[i] = x[i] - x[i - 1]
        out[0] = 0

    found = store["x"].map_blocks(differences)
    np.testing.assert_array_equal(found[1:], np.diff(data))


def test_what_is_wrong_is_said(store: Any) -> None:
    store["x"] = np.arange(6).reshape(2, 3)
    with pytest.raises(CompileError, match=r"test_compute.py:\d+: .* does not compile"):
        store["x"].map_blocks(lambda x: x.nothing)
    with pytest.raises(InvalidError, match="do not broadcast"):
        store["x"].map_blocks(lambda x, y: x + y, np.arange(3))
    with pytest.raises(InvalidError, match="takes 2 inputs .* names 1"):
        store["x"].map_blocks(lambda x, y: x + y)
    with pytest.raises(InvalidError, match="takes 3 values"):
        store["x"].reduce(lambda x, y, z: x)
    with pytest.raises(NotFoundError, match="no reduction 'mode'; there is sum, mean"):
        store["x"].reduce("mode")
    with pytest.raises(NotFoundError, match="no program 'half'"):
        store["x"].map_blocks("half")
    with pytest.raises(InvalidError, match="by must be one number, or an option, not 'two'"):
        store["x"].map_blocks(lambda x, by: x, by="two")
    with pytest.raises(InvalidError, match="mean has no initial value"):
        store["x"].reduce("mean", initial=1)


def test_async_runs_side_by_side_and_ends_when_cancelled(store: Any) -> None:
    store["x"] = np.arange(1000).reshape(10, 100)
    total = programs.get("sum", dtype="int64")

    async def sums() -> list[int]:
        rows = (store["x"].offload_async(total, key=i) for i in range(10))
        return [int(row) for row in await asyncio.gather(*rows, store["x"].view((1000,)).offload_async(total))]

    assert asyncio.run(sums()) == [*store["x"][...].sum(axis=1), 499500]
    forever = nandarray.Program.from_c("""
#include <nandarray.h>
ND_PROGRAM("name": "forever", "kind": "block", "inputs": [{"name": "x", "dtype": "int64"}],
           "outputs": [{"name": "y", "dtype": "int64"}])
int64_t nd_block(nd_args *args) { for (;;) __asm__ volatile (""); }
""")

    async def cancelled() -> None:
        task = asyncio.create_task(store["x"].offload_async(forever))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(cancelled(), 30))
    for thread in threading.enumerate():
        if thread.name == "nandarray-offload":
            thread.join(20)
            assert not thread.is_alive()


def test_memory_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "large.nand", mode="w") as store:
        # 64 GiB that were never written: nothing could hold it.
        array = store.create("x", (1 << 20, 1 << 13), "float64", fill_value=2.0)
        assert array.reduce("sum", key=np.s_[: 1 << 9]) == 2.0 * (1 << 22)


@pytest.mark.parametrize("axis", [(0, 1), (2, 0), [1, -1], (0, 1, 2), (1,)])
@pytest.mark.parametrize("name", ["sum", "mean", "min", "max"])
def test_reductions_along_several_axes(tmp_path: Path, axis: Any, name: str) -> None:
    data = np.random.default_rng(3).integers(-100, 100, (6, 5, 7)).astype("i2")
    with nandarray.open(tmp_path / "axes.nand", "w") as store:
        store["x"] = data
        found = store["x"].reduce(name, axis=axis)
        np.testing.assert_allclose(found, getattr(np, name)(data, axis=tuple(axis)), rtol=1e-14)
        assert np.shape(found) == np.shape(np.sum(data, axis=tuple(axis)))


@pytest.mark.parametrize("axis", [(0, 0), (0, 5), (0, "x"), "x", 1.5, (0, -3)])
def test_axes_that_are_none(tmp_path: Path, axis: Any) -> None:
    with nandarray.open(tmp_path / "axes.nand", "w") as store:
        store["x"] = np.zeros((2, 3, 4))
        with pytest.raises(nandarray.NandarrayError):
            store["x"].reduce("sum", axis=axis)
        with pytest.raises(nandarray.InvalidError, match="and no function"):
            store["x"].reduce(lambda x, y: x + y, axis=(0, 1))
