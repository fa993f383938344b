"""Order statistics, variances and ends along axes, over all doors: NumPy's values, dtypes and shapes, and refusals."""

from __future__ import annotations

from typing import Any

import doors
import numpy as np
import pytest

from nandarray import InvalidError, NandarrayError

LIMIT = "nandarray.programs.calls.axes.SLAB_BYTES"


@pytest.fixture(scope="module", params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with doors.computing(request, tmp_path_factory.mktemp("axes") / "data.nand") as opened:
        yield opened


def put(store: Any, data: np.ndarray[Any, Any], block: int = 4) -> Any:
    if "x" in store:
        del store["x"]
    array = store.create("x", data.shape, data.dtype, building_block=(block,) * data.ndim)
    array[...] = data
    return array


def sample(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Few values and many of the same; floats with a NaN in some, durations with a NaT."""
    kind = np.dtype(dtype)
    data = rng.integers(0 if kind.kind in "ub" else -6, 7, shape)
    if kind.kind == "m":
        return np.where(rng.random(shape) < 0.03, np.iinfo("i8").min, data).view(kind.newbyteorder("=")).astype(kind)
    if kind.kind not in "fc":
        return data.astype(kind)
    made = data + np.round(rng.random(shape), 3)
    made[rng.random(shape) < rng.choice([0, 0.03])] = np.nan
    return (made + 1j * rng.integers(-1, 2, shape) if kind.kind == "c" else made).astype(kind)


def drawn(name: str) -> tuple[np.random.Generator, np.random.Generator]:
    """A generator for the data, whose seed is printed, and one for shapes: programs are compiled for these."""
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    return np.random.default_rng(seed), np.random.default_rng([ord(one) for one in name])


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", ">i4", "f2", "f4", ">f8", "m8[s]"])
def test_quantiles(store: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, which = drawn(dtype)
    shape = tuple(map(int, which.integers(3, 8, 3)))
    key = (slice(1, None), slice(None, None, 2), slice(None))
    data = sample(rng, dtype, shape)
    array, box = put(store, data), data[key]
    box = box.astype("f4") if dtype == "f2" else box  # in which it is computed
    for axis in (0, -1, (0, 2), (2, 1, 0)):
        # Records that fit a task, that are cut along what is left, or single places by passes.
        for slab in (32 << 20, box.itemsize * max(box.shape) * 2, 1) if axis == 0 else (32 << 20,):
            monkeypatch.setattr(LIMIT, slab)
            found, wanted = array.reduce("median", axis, key=key, keepdims=True), np.median(box, axis, keepdims=True)
            np.testing.assert_array_equal(found, wanted, err_msg=f"{axis} {slab}")
            assert np.asarray(found).dtype == wanted.dtype
            if dtype in ("m8[s]", "?"):
                continue
            q = [[0, 0.3], [0.5, 1]]
            found, wanted = array.reduce("quantile", axis, key=key, q=q), np.quantile(box.astype("f8"), q, axis)
            np.testing.assert_allclose(found, wanted, rtol=1e-6 if dtype in ("f2", "f4") else 1e-14)
            found = array.reduce("percentile", axis, key=key, q=40, method="nearest", keepdims=True)
            np.testing.assert_array_equal(found, np.percentile(box, 40, axis, method="nearest", keepdims=True))


def test_medians_of_whole_boxes_of_durations(store: Any) -> None:
    for numbers in ([3, 1, 2], [-7, 0], [5, -(2**63), 1], [2**62, 2**62 - 1]):
        data = np.array(numbers).view("m8[s]")
        found = put(store, data).reduce("median")
        assert found.dtype == data.dtype
        np.testing.assert_array_equal(found, np.median(data))


def test_long_columns(store: Any) -> None:
    """Columns of many elements, in the order that is the worst for some ways to choose, and with many of the same."""
    n = 20_001
    data = np.stack([np.arange(n), np.arange(n)[::-1], np.arange(n) % 3, np.zeros(n, int)], axis=1)
    array = put(store, data, 512)
    np.testing.assert_array_equal(array.reduce("median", 0), np.median(data, 0))
    q = [0.01, 0.5, 0.77]
    np.testing.assert_allclose(array.reduce("quantile", 0, q=q), np.quantile(data, q, 0))
    np.testing.assert_allclose(array.reduce("std", 0, ddof=1), data.std(0, ddof=1), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["?", "u2", ">i8", "f2", "f4", "f8", "c8", "c16"])
def test_variances(store: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, which = drawn(dtype)
    shape = tuple(map(int, which.integers(3, 8, 3)))
    data = sample(rng, dtype, shape)
    array, wide = put(store, data), data.astype("c16" if data.dtype.kind == "c" else "f8")
    for axis in (None, 0, 1, 2, (0, 2)):
        monkeypatch.setattr(LIMIT, int(which.choice([0, 32 << 20])))
        for ddof in (0, 1, 1.5):
            for name in ("var", "std"):
                found = array.reduce(name, axis, ddof=ddof, keepdims=True)
                wanted = getattr(np, name)(wide, axis=axis, ddof=ddof, keepdims=True)
                np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-300, err_msg=f"{name} {axis} {ddof}")
                assert found.dtype == "f8"
    assert np.isnan(array.reduce("var", 0, ddof=shape[0])).all()
    assert np.isnan(array.reduce("var", ddof=data.size + 0.5))


def test_variances_of_large_numbers_that_hardly_differ(store: Any) -> None:
    """The sum of squares less the square of the sum has nothing left of these."""
    data = 1e9 + np.random.default_rng(4).random((60_000, 2))
    array = put(store, data, 4096)
    exact = data.astype("g").var(axis=0)
    for options in ({}, {"threads": 3, "task_bytes": 50_000}):
        np.testing.assert_allclose(array.reduce("var", 0, **options), exact.astype("f8"), rtol=1e-11)
    np.testing.assert_allclose(array.reduce("var", 1), data.astype("g").var(axis=1).astype("f8"), rtol=1e-9)


def places_of(data: np.ndarray[Any, Any], axis: int, k: int, largest: bool) -> np.ndarray[Any, Any]:
    """Places of the best along an axis: NaN first, then by value, then by place."""
    nan = np.isnat(data) if data.dtype.kind == "m" else data != data
    _, ranks = np.unique(data.view("i8") if data.dtype.kind == "m" else data, return_inverse=True)
    ranks = np.where(nan, -data.size, -ranks.reshape(data.shape) if largest else ranks.reshape(data.shape))
    return np.take(np.argsort(ranks, axis, kind="stable"), range(min(k, data.shape[axis])), axis)


@pytest.mark.parametrize("dtype", ["?", "i2", ">u4", "f2", "f8", "m8[s]"])
def test_top(store: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, which = drawn(dtype)
    shape = tuple(map(int, which.integers(3, 8, 3)))
    data = sample(rng, dtype, shape)
    array = put(store, data)
    for axis in (0, 1, -1):
        for k, largest, slab in ((1, True, 0), (2, False, 32 << 20), (30, True, 32 << 20)):
            monkeypatch.setattr(LIMIT, slab)
            found, places = array.reduce("top", axis, k=k, largest=largest), places_of(data, axis, k, largest)
            np.testing.assert_array_equal(found["places"], places)
            np.testing.assert_array_equal(found["values"], np.take_along_axis(data, places, axis))
            assert found["values"].dtype == data.dtype.newbyteorder("=")


@pytest.mark.parametrize("dtype", ["c8", ">c16"])
def test_ends_of_complex_numbers(store: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, which = drawn(dtype)
    data = np.round(sample(rng, dtype, (5, 4, 6)))
    array = put(store, data)
    for name in ("min", "max", "argmin", "argmax"):
        for axis in (None, 0, 1, 2, (0, 2)):
            if name.startswith("arg") and isinstance(axis, tuple):
                continue
            monkeypatch.setattr(LIMIT, int(which.choice([0, 32 << 20])))
            found, wanted = np.asarray(array.reduce(name, axis)), np.asarray(getattr(np, name)(data, axis))
            np.testing.assert_array_equal(found != found, wanted != wanted)  # a NaN, whichever of several
            np.testing.assert_array_equal(found[found == found], wanted[found == found])
            assert found.dtype == wanted.dtype.newbyteorder("=")
    with pytest.raises(InvalidError, match="there is no element"):
        array.reduce("min", key=np.s_[:0])


@pytest.mark.parametrize("dtype", ["m8[s]", ">m8[ms]"])
def test_sums_of_durations_that_pass_nat(store: Any, dtype: str) -> None:
    """NumPy adds one after the other, and what is NaT stays so, also where numbers became it."""
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    steps = np.array([-(2**62), 2**62, 2**61, -(2**61), 2**63 - 1, 0, 1, -1])
    passed = 0
    for _ in range(12):
        numbers = rng.choice(steps, (40, 2))
        data = numbers.view("m8[s]").astype(dtype.replace("ms", "s")).view(dtype)
        array = put(store, data)
        for axis, options in ((None, {}), (0, {}), (1, {}), (0, {"threads": 2, "task_bytes": 64})):
            wanted = np.sum(data, axis)
            np.testing.assert_array_equal(array.reduce("sum", axis, **options), wanted)
            passed += int(np.isnat(wanted).any())
        np.testing.assert_array_equal(array.reduce("mean"), data.mean())
    assert passed


def test_no_axis(store: Any) -> None:
    for dtype in ("?", "i1", ">u2", "f4", "c8"):
        data = sample(np.random.default_rng(8), dtype, (3, 4))
        array = put(store, data)
        for name in ("any", "all", "prod", "sum", "mean", "min", "max", "count", "var", "std", "median"):
            numpys = np.count_nonzero if name == "count" else getattr(np, name)
            for found in (array.reduce(name, ()), array.reduce(name, (), key=np.s_[1:], keepdims=True)):
                wanted = np.asarray(numpys(data[3 - len(found) :], axis=()))
                np.testing.assert_array_equal(found, wanted)
                wide = {"f": "f8", "c": "c16"}.get(data.dtype.kind) if name in ("sum", "prod", "mean") else None
                wide = "f8" if name in ("var", "std") else wide
                assert found.dtype == (wide or wanted.dtype.newbyteorder("=")), (name, dtype)
    assert array.reduce(lambda x, y: x + y, axis=()).dtype == "c8"


def test_of_nothing(store: Any) -> None:
    array = put(store, np.zeros((0, 3)))
    assert np.isnan(array.reduce("median", 0)).tolist() == [True] * 3
    assert array.reduce("median", 1).shape == (0,)
    assert np.isnan(array.reduce("var", 0)).tolist() == [True] * 3
    assert array.reduce("top", 0, k=2)["places"].shape == (0, 3)
    with pytest.raises(InvalidError, match=r"quantile: there is no element along 0 of \(0, 3\)"):
        array.reduce("quantile", 0, q=0.5)


def test_what_is_refused(store: Any) -> None:
    array = put(store, np.arange(6).reshape(2, 3))
    for options, says in (
        ({"function": "var", "axis": 0, "ddof": "1"}, "ddof must be a number, not '1'"),
        ({"function": "std", "ddof": np.nan}, "ddof must be a number, not nan"),
        ({"function": "sum", "axis": 0, "ddof": 1}, "there is no ddof: var and std take it"),
        ({"function": "var", "axis": 0, "dtype": "f4"}, "dtype is for functions"),
        ({"function": "var", "q": 1}, "var takes no 'q'"),
        ({"function": "top", "axis": (0, 1), "k": 1}, r"top must have one axis, not \(0, 1\)"),
        ({"function": "top", "axis": (), "k": 1}, "along no axis there is any, all"),
        ({"function": "argmax", "axis": ()}, "along no axis there is any, all"),
        ({"function": "median", "axis": 2}, "axis 2 is out of bounds"),
        ({"function": "median", "axis": (0, 0)}, "name one axis twice"),
        ({"function": "median", "initial": 1}, "median has no initial value"),
        ({"function": "median", "axis": 0, "initial": 1}, "without an initial value"),
    ):
        with pytest.raises(NandarrayError, match=says):
            array.reduce(**options)
    with pytest.raises(NandarrayError, match=r"numpy.sum takes whole arrays; reductions are given by name"):
        array.reduce(np.sum)
    for axis in (None, 0, ()):
        for dtype in ("m8[s]", "M8[D]"):
            with pytest.raises(NandarrayError, match="std of|takes no elements of"):
                put(store, np.arange(3).astype(dtype)).reduce("std", axis=axis)


@pytest.mark.parametrize("dtype", ["?", "i2", ">u4", "f2", "f4", "c8"])
def test_methods_are_numpys(store: Any, dtype: str) -> None:
    rng, _ = drawn(dtype)
    data = sample(rng, dtype, (4, 5))
    array = put(store, data)
    for name in ("sum", "prod", "mean", "min", "max", "any", "all", "var", "std", "argmin", "argmax"):
        if dtype == "c8" and name.startswith("arg"):
            continue
        for axis in (None, 1) if name.startswith("arg") else (None, 1, (0, 1)):
            with np.errstate(all="ignore"):
                wanted = getattr(data, name)(axis=axis, keepdims=axis == 1)
            found = getattr(array, name)(axis, keepdims=axis == 1)
            assert np.asarray(found).dtype == np.asarray(wanted).dtype.newbyteorder("="), name
            short = dtype == "f2"
            np.testing.assert_allclose(found, wanted, 2e-3 if short else 2e-6, 0.05 if short else 1e-5, err_msg=name)
    assert_same = np.testing.assert_array_equal
    assert_same(array.view(-1).var(ddof=1) > 0, data.var(ddof=1) > 0)
    # NumPy's functions, and what reduce has not: read, and computed by NumPy.
    assert_same(np.sum(array, axis=0), np.sum(data, axis=0))
    assert_same(
        array.sum(axis=0, dtype="f8" if dtype != "c8" else "c16"), data.sum(0, "f8" if dtype != "c8" else "c16")
    )


@pytest.mark.parametrize("dtype", [">M8[s]", ">m8[ms]"])
def test_dates_of_the_other_byte_order_are_as_those_of_this_one(store: Any, dtype: str) -> None:
    data = np.random.default_rng(4).integers(-50, 50, (4, 5)).view(dtype[1:])
    names: list[tuple[str, Any]] = [("argmin", None), ("argmax", 0), ("max", 1), ("top", None), ("median", None)]
    wanted = [put(store, data).reduce(name, axis, **({"k": 3} if name == "top" else {})) for name, axis in names[:4]]
    array = put(store, data.astype(dtype))
    for (name, axis), value in zip(names[:4], wanted, strict=True):
        np.testing.assert_equal(array.reduce(name, axis, **({"k": 3} if name == "top" else {})), value)
    assert array.astype(dtype[1:]).reduce("min") == data.min()
    if data.dtype.kind == "m":
        np.testing.assert_array_equal(array.reduce("median", 0), np.median(data, 0))


@pytest.mark.parametrize("dtype", [">i4", "f2", ">f8"])
def test_ranges_of_any_numbers_keep_their_dtype(store: Any, dtype: str) -> None:
    data = np.arange(20).astype(dtype)
    found = put(store, data).filter(low=3, high=5)
    assert (found.dtype, found.tolist()) == (data.dtype, [3, 4, 5])
    np.testing.assert_array_equal(put(store, data).filter("filter_index", low=17), [17, 18, 19])
