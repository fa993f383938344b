"""Reductions that a program of our own makes, over all doors: NumPy's values, dtypes, shapes, and refusals."""

from __future__ import annotations

from typing import Any

import doors
import numpy as np
import pytest

import nandarray
from nandarray import InvalidError

NAMES = {"any": np.any, "all": np.all, "prod": np.prod, "count": np.count_nonzero, "argmin": np.argmin,
         "argmax": np.argmax}  # fmt: skip
DTYPES = ["?", "i1", "u2", "i4", "i8", "u8", "f4", "f8", "c8", "c16", "M8[s]"]
PLACES = ("argmin", "argmax")


@pytest.fixture(scope="module", params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with doors.computing(request, tmp_path_factory.mktemp("folds") / "data.nand") as opened:
        yield opened


def put(store: Any, data: np.ndarray[Any, Any], block: int = 4) -> Any:
    """The array that has the data, in small building blocks."""
    if "x" in store:
        del store["x"]
    array = store.create("x", data.shape, data.dtype, building_block=(block,) * data.ndim)
    array[...] = data
    return array


def sample(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Few values, so that the least and the greatest come often; floats with a NaN in some."""
    kind = np.dtype(dtype)
    data = rng.integers(0 if kind.kind in "ub" else -2, 3, shape)
    if kind.kind == "M":
        data = np.where(rng.random(shape) < 0.02, np.iinfo("i8").min, data)
        return data.view(kind)
    if kind.kind not in "fc":
        return data.astype(kind)
    made = data.astype("f8") * 0.5
    made[rng.random(shape) < rng.choice([0, 0.02])] = np.nan
    return (made + 1j * rng.integers(-1, 2, shape) if kind.kind == "c" else made).astype(kind)


def numpys(name: str, data: Any, axis: Any, keepdims: bool) -> Any:
    """What NumPy gives; products of floats in float64, as sums are here."""
    wide = {"f": "f8", "c": "c16"}.get(data.dtype.kind)
    more = {"dtype": wide} if name == "prod" and wide else {}
    return np.asarray(NAMES[name](data, axis=axis, keepdims=keepdims, **more))


@pytest.mark.parametrize("dtype", DTYPES)
def test_as_numpy(store: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    # Programs are compiled for the shapes of rows: these are the same each time, and the data is not.
    which = np.random.default_rng(DTYPES.index(dtype))
    shape = [(37,), (5, 6), (4, 3, 5)][DTYPES.index(dtype) % 3]
    key = tuple(slice(int(which.integers(0, size // 2)), None, int(which.integers(1, 3))) for size in shape)
    data = sample(rng, dtype, shape)
    array, box = put(store, data), data[key]
    for name in NAMES:
        if dtype[0] == "M" and name not in PLACES:
            with pytest.raises(InvalidError, match=f"{name} takes no elements of"):
                array.reduce(name)
            continue
        monkeypatch.setattr("nandarray.programs.calls.axes.SLAB_BYTES", int(which.choice([0, 32 << 20])))
        axis: Any = [None, *range(-len(shape), len(shape))][which.integers(2 * len(shape) + 1)]
        if len(shape) > 1 and name not in PLACES and which.integers(3) == 0:
            axis = tuple(map(int, which.permutation(len(shape))[:2]))
        keepdims = bool(which.integers(2))
        print(f"{name}, axis {axis}, keepdims {keepdims}")
        found, wanted = array.reduce(name, axis, key=key, keepdims=keepdims), numpys(name, box, axis, keepdims)
        assert np.shape(found) == wanted.shape
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-12 if name == "prod" else 0)


def test_many_tasks(store: Any) -> None:
    data = np.random.default_rng(7).integers(-(1 << 30), 1 << 30, (900, 411))
    data[[200, 800], [17, 3]] = 1 << 31  # the first of two
    array = put(store, data, block=128)
    for threads in (1, 3):
        assert array.reduce("argmax", threads=threads) == data.argmax() == 200 * 411 + 17
        assert array.reduce("prod", threads=threads) == data.prod()
        assert array.reduce("count", threads=threads, task_bytes=4096) == np.count_nonzero(data)
        np.testing.assert_array_equal(array.reduce("argmin", 0, threads=threads, task_bytes=8192), data.argmin(0))
        np.testing.assert_array_equal(array.reduce("argmin", 1, threads=threads), data.argmin(1))
    places = array.reduce("argmax", axis=1, keepdims=True)
    np.testing.assert_array_equal(np.take_along_axis(data, places, 1), data.max(1, keepdims=True))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_of_nothing(store: Any, shape: tuple[int, ...]) -> None:
    data = np.zeros(shape, "i2")
    array = put(store, data)
    for name, numpys_own in NAMES.items():
        for axis in (None, *range(len(shape))):
            try:
                wanted = np.asarray(numpys_own(data, axis=axis))
            except ValueError:
                with pytest.raises(InvalidError, match="there is no element"):
                    array.reduce(name, axis)
                continue
            found = array.reduce(name, axis)
            np.testing.assert_array_equal(found, wanted)
            assert np.asarray(found).dtype == wanted.dtype
    assert array.reduce("prod", initial=5) == 5


def test_axes_stay(store: Any) -> None:
    data = np.random.default_rng(1).integers(1, 9, (5, 3, 4)).astype("f4")
    array = put(store, data)
    for name in ("sum", "mean", "min", "max"):
        for axis in (None, 1, (0, 2)):
            found = array.reduce(name, axis, keepdims=True)
            np.testing.assert_allclose(found, getattr(np, name)(data, axis=axis, keepdims=True), rtol=1e-6)
            assert found.shape == np.sum(data, axis=axis, keepdims=True).shape
    assert array.reduce("std", keepdims=True, key=1).shape == (1, 1)
    assert array.reduce(lambda x, y: x + y, -1, keepdims=True).shape == (5, 3, 1)
    assert array.reduce("prod", initial=2, key=0) == pytest.approx(2 * float(data[0].prod(dtype="f8")))


def test_fields_and_views(store: Any) -> None:
    rows = np.zeros((6, 4), [("id", "i4"), ("v", "f8")])
    rows["v"] = np.random.default_rng(2).normal(size=rows.shape)
    if "rows" not in store:
        store.create("rows", rows.shape, rows.dtype, data=rows)
    assert store["rows"]["v"].reduce("argmax") == rows["v"].argmax()
    np.testing.assert_array_equal(store["rows"]["v"].reduce("argmin", 0), rows["v"].argmin(0))
    array = put(store, np.arange(24.0).reshape(4, 6))
    assert array.view((24,)).reduce("count", key=np.s_[:9]) == 8


def test_what_is_refused(store: Any) -> None:
    array = put(store, np.arange(6).reshape(2, 3))
    for options, says in (
        ({"function": "argmax", "axis": (0, 1)}, "argmax must have one axis, not"),
        ({"function": "any", "where": 1}, "there is no where"),
        ({"function": "any", "nan": 1}, "any takes no 'nan'; there is axis, key, keepdims"),
        ({"function": "prod", "axis": 0, "dtype": "f4"}, "dtype is for functions"),
        ({"function": "prod", "axis": 0, "initial": 2}, "without an initial value"),
        ({"function": "any", "initial": 2}, "any has no initial value"),
        ({"function": "minmax", "keepdims": True}, "keepdims is for results of one number"),
        ({"function": "sum", "keepdims": "yes"}, "keepdims must be True or False, not 'yes'"),
        ({"function": "any", "axis": 2}, "axis 2 is out of bounds"),
    ):
        with pytest.raises(nandarray.NandarrayError, match=says):
            array.reduce(**options)
    with pytest.raises(InvalidError, match="there is no keepdims: only reduce folds axes"):
        array.filter(keepdims=True, low=1, high=2)
