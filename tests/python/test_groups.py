"""Statistics of groups over all doors and of memory, against NumPy group by group.

The model gathers the values of each key in the data's order and gives them to NumPy; sums of floats are added one after
the other, so that they are the same to the bit. Tables are small where a test says so: then passes are many.
"""

from __future__ import annotations

from typing import Any

import doors
import numpy as np
import pytest

import nandarray
from nandarray import InvalidError, NotFoundError

NAMES = ("size", "count", "sum", "prod", "mean", "var", "std", "min", "max", "first", "last", "any", "all")
KEYS = ["?", "i1", "u2", ">i4", "i8", "u8", "f2", "f4", ">f8", "S3", "U5", "V6", "M8[s]", ">m8[ms]", "record"]
VALUES = ["?", "i1", ">i2", "u4", "i8", "u8", "f2", "f4", ">f8", "c8", "c16", "M8[D]", "m8[s]"]
RECORD = np.dtype([("a", "S2"), ("b", "<i4")])


@pytest.fixture(scope="module", params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with doors.computing(request, tmp_path_factory.mktemp("groups") / "data.nand") as opened:
        yield opened


def put(store: Any, name: str, data: np.ndarray[Any, Any], block: int = 16) -> Any:
    if name in store:
        del store[name]
    array = store.create(name, data.shape, data.dtype, building_block=(block,) * data.ndim)
    array[...] = data
    return array


def some_keys(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], most: int = 9) -> np.ndarray[Any, Any]:
    """Keys of which some come often; NaN and NaT, and zeros of both signs, among those that have them."""
    numbers = rng.integers(0, most, shape)
    if dtype == "record":
        made = np.zeros(shape, RECORD)
        made["a"], made["b"] = (numbers // 3).astype("S2"), numbers % 3
        return made
    kind = np.dtype(dtype)
    if kind.kind in "SU":
        return numbers.astype(kind)
    if kind.kind == "V":
        return numbers.astype("<u8").view("u1").reshape(*shape, 8)[..., :6].copy().view(kind).reshape(shape)
    if kind.kind in "mM":
        return np.where(numbers == 2, np.iinfo("i8").min, numbers - 4).view(kind.newbyteorder("=")).astype(kind)
    if kind.kind == "f":
        floats = np.array([-0.0, 0.0, np.nan, -np.inf, 1.5, -1.5, 3, -np.nan, 1e-4])
        return floats[numbers % 9].astype(kind)
    return (numbers - (4 if kind.kind == "i" else 0)).astype(kind)


def some_values(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype)
    data = rng.integers(0 if kind.kind in "ub" else -3, 4, shape)
    if kind.kind in "mM":
        return np.where(rng.random(shape) < 0.1, np.iinfo("i8").min, data).view(kind)
    if kind.kind not in "fc":
        return data.astype(kind)
    made = data + np.round(rng.random(shape), 2)
    made[rng.random(shape) < 0.1] = np.nan
    return (made + 1j * rng.integers(-1, 2, shape) if kind.kind == "c" else made).astype(kind)


def is_nan(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.isnat(data) if data.dtype.kind in "mM" else data != data


def one_by_one(data: np.ndarray[Any, Any], add: Any, begin: Any) -> np.ndarray[Any, Any]:
    """Fold along the first axis, a value after the other."""
    total = np.full(data.shape[1:], begin, {"f": "f8", "c": "c16"}[data.dtype.kind])
    for row in data:
        total = add(total, row)
    return total


def statistic(name: str, data: np.ndarray[Any, Any], ddof: int, skipna: bool) -> Any:
    """A statistic along the first axis; with ``skipna`` of one column."""
    if name == "size":
        return len(data)
    if skipna:
        data = data[~is_nan(data)]
    if name == "count":
        return (~is_nan(data)).sum(axis=0)
    wide = data.astype({"f": "f8", "c": "c16"}.get(data.dtype.kind, data.dtype))
    if name in ("sum", "prod") and wide.dtype.kind in "fc":
        return one_by_one(wide, np.add if name == "sum" else np.multiply, name == "prod")
    if name == "mean" and wide.dtype.kind in "fc" and len(data):
        return one_by_one(wide, np.add, 0) / len(data)
    if name in ("min", "max", "first", "last") and not len(data):
        return np.array("NaT" if data.dtype.kind in "mM" else np.nan, data.dtype)
    if name in ("first", "last"):
        return data[0 if name == "first" else -1]
    with np.errstate(all="ignore"):
        if name in ("var", "std"):
            return getattr(np, name)(wide, axis=0, ddof=ddof) if len(data) > ddof else np.full(data.shape[1:], np.nan)
        if name == "mean" and not len(data):
            return np.array("NaT", data.dtype) if data.dtype.kind == "m" else np.nan
        return getattr(np, name)(wide if name == "mean" else data, axis=0)


def rank(key: np.ndarray[Any, Any]) -> tuple[bool, Any]:
    """The place of a key among others: NaN and NaT last, records by their fields, opaque bytes by themselves."""
    kind = key.dtype.kind
    if kind in "fmM":
        return (True, 0) if is_nan(key)[0] else (False, float(key[0].astype("i8" if kind in "mM" else "f8")))
    return (False, key.tobytes() if kind == "V" and not key.dtype.names else key[0].item())


def model(
    keys: np.ndarray[Any, Any], values: np.ndarray[Any, Any], names: tuple[str, ...], **how: Any
) -> dict[str, np.ndarray[Any, Any]]:
    dropna, skipna, ddof = how.get("dropna", True), how.get("skipna", False), how.get("ddof", 0)
    flat, rows = keys.reshape(-1), values.reshape(keys.size, *values.shape[keys.ndim :])
    groups: dict[Any, list[int]] = {}
    for at in range(len(flat)):
        groups.setdefault(rank(flat[at : at + 1]), []).append(at)
    if dropna:
        groups.pop((True, 0), None)
    places = [groups[one] for one in sorted(groups)]
    found = {"keys": flat[[at[0] for at in places]] if places else flat[:0]}
    for name in names:
        found[name] = np.array([statistic(name, rows[at], ddof, skipna) for at in places])
    return found


def same(found: dict[str, Any], wanted: dict[str, Any], groups: int | None = None) -> None:
    assert list(found) == list(wanted)
    for name, one in found.items():
        # NumPy adds squares pairwise, and fuses multiplications of complex numbers.
        if name in ("var", "std") or (name == "prod" and one.dtype.kind == "c"):
            np.testing.assert_allclose(one, wanted[name], rtol=1e-13, atol=1e-13, err_msg=name)
        else:
            np.testing.assert_array_equal(one, wanted[name], err_msg=name)
    assert groups is None or len(found["keys"]) == groups


def named(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """The statistics that values of a dtype have."""
    left_out = {"m": ("prod", "var", "std", "any", "all"), "c": ("var", "std")}
    left_out["M"] = (*left_out["m"], "sum", "mean")
    return tuple(name for name in NAMES if name not in left_out.get(dtype.kind, ()))


@pytest.mark.parametrize("dtype", VALUES)
def test_values_as_numpy(store: Any, dtype: str) -> None:
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    keys, values = rng.integers(-5, 6, 300), some_values(rng, dtype, (300,))
    names = named(values.dtype)
    by, array = put(store, "keys", keys), put(store, "values", values)
    for skipna in (False, True):
        found = array.group_by(by).reduce(*names, skipna=skipna, ddof=int(skipna))
        same(found, model(keys, values, names, skipna=skipna, ddof=int(skipna)))
    assert found["keys"].dtype == "i8"
    for name in names:
        whole = {"sum": "sum", "prod": "prod", "mean": "mean", "min": "min", "max": "max"}.get(name)
        if whole and not (name in ("min", "max") and values.dtype.kind == "c"):
            assert found[name].dtype == np.asarray(array.reduce(whole)).dtype, name


@pytest.mark.parametrize("dtype", KEYS)
def test_keys_as_numpy(store: Any, dtype: str) -> None:
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    keys, values = some_keys(rng, dtype, (12, 15)), some_values(rng, "f8", (12, 15))
    names = ("sum", "last", "size")
    by, array = put(store, "keys", keys), put(store, "values", values)
    for dropna in (True, False):
        wanted = model(keys, values, names, dropna=dropna)
        for found in (array.group_by(by, dropna=dropna).reduce(*names),
                      nandarray.group_by(keys, values, dropna=dropna).reduce(*names)):  # fmt: skip
            same(found, wanted)
            assert found["keys"].dtype == keys.dtype.newbyteorder("=")


def test_parts_fields_views_and_dimensions_behind(store: Any) -> None:
    rng = np.random.default_rng(5)
    rows = np.zeros((40, 3), [("id", "<i4"), ("x", "i1"), ("shop", "S4"), ("v", ">f4", (2,))])
    rows["id"], rows["v"] = rng.integers(0, 4, rows.shape), rng.normal(size=(*rows.shape, 2))
    rows["x"], rows["shop"] = rng.integers(0, 2, rows.shape), rng.integers(0, 3, rows.shape).astype("S4")
    array = put(store, "rows", rows, 8)
    names = ("sum", "min", "var", "size")
    part = np.s_[3:31:3, 1:]
    found = array["v"].group_by(nandarray.Box(array["id"], part), key=part).reduce(*names)
    same(found, model(rows["id"][part], rows["v"][part], names))
    assert found["sum"].shape == (4, 2)
    found = array["v"].group_by(array[["id", "shop"]]).reduce("sum")
    pair = np.zeros(rows.shape, [("id", "<i4"), ("shop", "S4")])
    pair["id"], pair["shop"] = rows["id"], rows["shop"]
    same(found, model(pair, rows["v"], ("sum",)))
    months = rng.integers(1, 13, 40)  # as xarray groups along a dimension
    field = put(store, "field", rng.integers(-9, 9, (40, 3, 5)).astype("i2"))
    for grid in (field, field.view((40, 15))):
        found = grid.group_by(months).reduce("mean", "max")
        wanted = model(months, field[...].reshape(40, *found["mean"].shape[1:]), ("mean", "max"))
        same(found, wanted)
    sizes = array["shop"].group_by(array["shop"]).reduce("size")
    np.testing.assert_array_equal(sizes["size"], np.unique(rows["shop"], return_counts=True)[1])


def test_nothing_depends_on_the_cut_or_the_budget(store: Any) -> None:
    """Many passes over ranges of hashes, on some cores, give the bits of one."""
    rng = np.random.default_rng(11)
    n = 70_000
    keys, values = rng.integers(0, 9_000, n) ** 3, rng.normal(size=n) * 10.0 ** rng.integers(-9, 9, n)
    by, array = put(store, "keys", keys, 4096), put(store, "values", values, 5000)
    names = ("sum", "var", "first", "count")
    wanted = array.group_by(by).reduce(*names)
    plain, places = np.unique(keys, return_inverse=True)
    np.testing.assert_array_equal(wanted["keys"], plain)
    np.testing.assert_array_equal(wanted["sum"], np.bincount(places, values))  # which adds in the data's order
    for options in ({"threads": 1}, {"threads": 3, "task_bytes": 1000}, {"form": "translated", "task_bytes": 1 << 16}):
        for budget in (400_000, 1 << 20):
            found = array.group_by(by, budget=budget).reduce(*names, **options)
            for name, one in wanted.items():
                assert found[name].tobytes() == one.tobytes(), (options, budget, name)


def test_long_keys_in_many_passes(store: Any) -> None:
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 400, 2000).astype("U11")
    by = put(store, "keys", keys, 256)
    found = by.group_by(by, budget=20_000).reduce("size")
    plain, sizes = np.unique(keys, return_counts=True)
    np.testing.assert_array_equal(found["keys"], plain)
    np.testing.assert_array_equal(found["size"], sizes)


def test_entries_alone_cross_the_wire(store: Any) -> None:
    if store not in doors._WIRES:
        pytest.skip("of a drive the bytes are counted")
    n = 400_000
    by = put(store, "keys", np.arange(n, dtype="i4") % 100, 1 << 16)
    array = put(store, "values", np.ones(n), 1 << 16)
    before = doors.wire_bytes(store)
    found = array.group_by(by).reduce("sum", "max")
    assert found["sum"].tolist() == [n // 100] * 100
    assert doors.wire_bytes(store) - before < 100_000


def test_of_nothing(store: Any) -> None:
    by, array = put(store, "keys", np.zeros(0, "S3")), put(store, "values", np.zeros((0, 2), "f4"))
    found = array.group_by(by).reduce("sum", "min", "size")
    assert {name: (one.shape, one.dtype.str) for name, one in found.items()} == {
        "keys": ((0,), "|S3"), "sum": ((0, 2), "<f8"), "min": ((0, 2), "<f4"), "size": ((0,), "<i8"),
    }  # fmt: skip
    assert nandarray.group_by([np.nan], [1]).reduce("sum")["keys"].size == 0
    assert nandarray.group_by(3, 4).reduce("sum")["sum"].tolist() == [4]


def test_what_is_refused(store: Any) -> None:
    by, array = put(store, "keys", np.arange(6)), put(store, "values", np.arange(6.0))
    for call, says in (
        (lambda: array.group_by(by, key=np.s_[:5]), r"keys have the shape \(6,\) and values \(5,\)"),
        (lambda: array.group_by(np.arange(7)), r"keys have the shape \(7,\) and values \(6,\)"),
        (lambda: array.group_by([by, by]), r"shape \(2, 6\) .*; 2 keys for each value must be the fields of records"),
        (lambda: array.group_by("keys"), r"keys must be an array, as store\['keys'\] is one, not the name 'keys'"),
        (lambda: array.group_by(np.zeros(6, "c8")), "keys of complex64: they must be integers"),
        (lambda: array.group_by(np.zeros(6, "O")), "keys of object: they must be integers"),
        (lambda: array.group_by(np.zeros(6, [("a", "f4")])), "records of these without floats"),
        (lambda: array.group_by(np.zeros(6, {"names": ["a"], "formats": ["i4"], "itemsize": 8})), "without.*padding"),
        (lambda: array.group_by(np.zeros(6, "S5000")), "must have from 1 to 4096 bytes, not 5000"),
        (lambda: array.group_by(by, dropna=1), "dropna must be True or False, not 1"),
        (lambda: array.group_by(by, budget=0), "budget must be a number, at least 1, not 0"),
        (lambda: array.group_by(by, budget=1000).reduce("sum"), "budget must be at least .* not 1000"),
        (lambda: array.group_by(by).reduce(), "statistics must be one name or several"),
        (lambda: array.group_by(by).reduce("sum", "sum"), "statistics must be one name or several"),
        (lambda: array.group_by(by).reduce("var", ddof="1"), "ddof must be a number, not '1'"),
        (lambda: array.group_by(by).reduce("sum", skipna=2), "skipna must be True or False, not 2"),
        (lambda: array.group_by(by).reduce("sum", sort=False), "groups have no option 'sort'"),
        (lambda: array.group_by(by).reduce("median"), "there is no statistic 'median' of groups; there is size"),
        (
            lambda: nandarray.group_by(by, np.zeros(6, "M8[s]")).reduce("sum"),
            r"sum of datetime64\[s\]: the statistic must be",
        ),
        (
            lambda: nandarray.group_by(by, np.zeros(6, "S2")).reduce("max"),
            r"max of \|S2: the statistic must be",
        ),
        (lambda: nandarray.group_by(by, np.zeros((6, 0))).reduce("max"), "must have from 1 to .* bytes, not 0"),
    ):
        with pytest.raises((InvalidError, NotFoundError), match=says):
            call()
