"""Exact quantiles beside the data, over all doors: NumPy's, in few passes and in as many as there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import doors
import numpy as np
import pytest

import nandarray
from nandarray import InvalidError

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
METHODS = ["linear", "lower", "higher", "midpoint", "nearest"]


@pytest.fixture(scope="module", params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with doors.computing(request, tmp_path_factory.mktemp("quantiles") / "data.nand") as opened:
        yield opened


def put(store: Any, data: np.ndarray[Any, Any]) -> Any:
    if "x" in store:
        del store["x"]
    array = store.create("x", data.shape, data.dtype, building_block=(64,) * data.ndim)
    array[...] = data
    return array


def sample(rng: np.random.Generator, kind: np.dtype[Any], size: int) -> np.ndarray[Any, Any]:
    """Elements that are close together, far apart, or equal."""
    if kind.kind == "f":
        data = rng.normal(size=size) * rng.choice([1e-30, 1, 1e30], size)
        data[rng.random(size) < 0.1] = rng.choice([0.0, -0.0, 1.5])
        return data.astype(kind)
    if kind.kind == "b":
        return rng.random(size) < 0.4
    limits = np.iinfo(kind)
    wide = rng.integers(limits.min, limits.max, size, kind, endpoint=True)
    # Halves, as differences of int64 overflow in NumPy.
    return np.where(rng.random(size) < 0.5, wide // kind.type(2), rng.integers(0, 9, size).astype(kind))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("here", [1 << 18, 0])
def test_as_numpy(store: Any, dtype: str, here: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nandarray.programs.calls.quantiles._SORTED_HERE", here)
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    data = sample(rng, kind, 2 * int(rng.integers(50, 400))).reshape(2, -1)
    array, wide = put(store, data), data.astype("f8") if kind.kind == "f" else data
    key = np.s_[:, :: int(rng.integers(1, 4))]
    found = array.reduce("median", key=key)
    assert found == np.median(data[key])
    assert found.dtype == np.median(data).dtype
    several = np.array([0, 0.1, 0.25, 0.5, 1, rng.random()])
    for method in METHODS:
        if kind.kind == "b" and method in ("linear", "midpoint"):
            with pytest.raises(InvalidError, match="takes no truth values"):
                array.reduce("quantile", q=0.5, method=method)
            continue
        print(method)
        with np.errstate(invalid="ignore"):
            wanted = np.quantile(wide, several, method=method)
        found = array.reduce("quantile", q=several, method=method)
        np.testing.assert_array_equal(found, wanted.astype(found.dtype))
        assert found.dtype == np.quantile(data, several, method=method).dtype
        one = array.reduce("percentile", q=30, method=method, key=0)
        assert one.dtype == np.percentile(data, 30, method=method).dtype
        assert one == np.percentile(wide[0], 30, method=method).astype(one.dtype)


def test_many_ranks_of_many_tasks(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nandarray.programs.calls.quantiles._SORTED_HERE", 1000)
    data = np.random.default_rng(4).normal(size=(700, 600))
    array, q = put(store, data), np.linspace(0, 1, 201).reshape(3, 67)
    np.testing.assert_array_equal(
        array.reduce("quantile", q=q, threads=3), np.quantile(data, q.reshape(-1)).reshape(3, 67)
    )
    assert array.reduce("median", task_bytes=65536) == np.median(data)
    data[600, 4] = np.nan
    array[...] = data
    assert np.isnan(array.reduce("median", keepdims=True)).shape == (1, 1)
    assert np.isnan(array.reduce("percentile", q=[1, 2])).all()
    assert array.reduce("percentile", q=1, key=0) == np.percentile(data[0], 1)


def test_infinities(store: Any) -> None:
    array = put(store, np.array([np.inf, -np.inf, np.inf, 1.0, -np.inf]))
    # NumPy has NaN between equal infinities, and at an element beside one.
    np.testing.assert_array_equal(array.reduce("quantile", q=[0, 0.1, 0.5, 1]), [-np.inf, -np.inf, 1, np.inf])
    assert array.reduce("median") == 1


def test_of_nothing_and_what_is_refused(store: Any) -> None:
    array = put(store, np.zeros((0, 3), "f4"))
    assert np.isnan(array.reduce("median"))
    assert array.reduce("median").dtype == np.float32
    with pytest.raises(InvalidError, match=r"quantile: there is no element in \(0, 3\)"):
        array.reduce("quantile", q=0.5)
    array = put(store, np.arange(6.0).reshape(2, 3))
    for name, options, says in (
        ("median", {"initial": 0}, "median has no initial value"),
        ("median", {"q": 0.5}, "median takes no q; quantile does"),
        ("median", {"weights": 1}, "median takes no 'weights'"),
        ("quantile", {}, "quantile must be given q, numbers from 0 to 1"),
        ("quantile", {"q": 1.5}, "q must be from 0 to 1, not 1.5"),
        ("percentile", {"q": [5, -1]}, "q must be from 0 to 100, not -1"),
        ("percentile", {"q": "half"}, "q is 'half'"),
        ("quantile", {"q": 0.5, "method": "weibull"}, "method must be one of linear, lower"),
    ):
        with pytest.raises(nandarray.NandarrayError, match=says):
            array.reduce(name, **options)
    with pytest.raises(InvalidError, match="median takes no elements of complex128"):
        put(store, np.zeros(3, "c16")).reduce("median")


@pytest.mark.parametrize("values", [[1.7e308], [1e308, 1e308, -1e308], [-1.2e308] * 3, [0.0, -0.0, 5.0]])
def test_the_median_of_the_greatest_numbers_does_not_overflow(tmp_path: Path, values: list[float]) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["x"] = values
        assert store["x"].reduce("median") == np.median(values)


@pytest.mark.parametrize("dtype", [">f4", ">i8", "f2"])
def test_ranks_of_other_orders_of_bytes_and_of_short_floats(tmp_path: Path, dtype: str) -> None:
    values = np.random.default_rng(4).integers(-100, 100, 501).astype(dtype)
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["x"] = values
        assert store["x"].reduce("median") == np.median(values)
        best = store["x"].reduce("top", k=5)
        np.testing.assert_array_equal(best["values"], np.sort(values)[::-1][:5])
        assert best["values"].dtype == np.dtype(dtype).newbyteorder("=")
