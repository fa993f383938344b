"""xarray datasets come back from a store as they went in, lazily, and survive pickling."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import nandarray
from nandarray.interop.xarray.backend import NandarrayBackendEntrypoint, to_xarray
from nandarray.interop.xarray.write import from_xarray

ENGINE: Any = NandarrayBackendEntrypoint


def climate() -> xr.Dataset:
    temperature = np.linspace(250, 300, 10 * 4 * 6).reshape(10, 4, 6)
    temperature[2, 1, 1] = np.nan
    return xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), temperature, {"units": "K"}),
            "mask": (("lat", "lon"), np.eye(4, 6, dtype=bool)),
            "when": ("lat", np.array(["2001-01-01", "NaT", "2001-01-03", "1900-05-05"], "M8[ns]")),
            "took": ("lat", np.array([1, 2, 3, 4], "m8[s]").astype("m8[ns]")),
            "scalar": ((), 5),
        },
        coords={
            "time": np.arange("2001-01-01", "2001-01-11", dtype="M8[D]").astype("M8[ns]"),
            "lat": ("lat", np.linspace(-60, 60, 4), {"units": "degrees_north"}),
            "lon": np.arange(6.0),
            "name": ("lat", ["a", "bb", "cää", "d"]),
            "height": 2.0,
        },
        attrs={"title": "climate", "levels": [1, 2, 3]},
    )


def test_a_dataset_comes_back(tmp_path: Path) -> None:
    dataset = climate()
    from_xarray(dataset, tmp_path / "data.nand")
    with xr.open_dataset(tmp_path / "data.nand", engine=ENGINE, decode_timedelta=True) as back:
        assert set(back.coords) == set(dataset.coords)
        xr.testing.assert_identical(back.load(), dataset)
        assert back["t2m"].encoding["preferred_chunks"] == {"time": 10, "lat": 4, "lon": 6}
    with nandarray.open(tmp_path / "data.nand") as store:
        assert store["t2m"].attrs["_ARRAY_DIMENSIONS"] == ["time", "lat", "lon"]


def test_packing_keeps_its_types(store: nandarray.Store) -> None:
    dataset = xr.Dataset({"x": ("n", np.array([1.0, 1.5, np.nan], "f4"))})
    packed = {"dtype": "i2", "scale_factor": np.float32(0.5), "_FillValue": -1, "compression": "zstd"}
    from_xarray(dataset, store, encoding={"x": packed})
    assert store["x"].dtype == np.dtype("i2")
    assert store["x"].compression == "zstd"
    assert store["x"][...].tolist() == [2, 3, -1]
    xr.testing.assert_identical(xr.open_dataset(store, engine=ENGINE).load(), dataset)  # type: ignore[arg-type]
    raw = xr.open_dataset(store, engine=ENGINE, decode_cf=False)  # type: ignore[arg-type]
    assert raw["x"].dtype == np.dtype("i2")


def test_it_is_lazy_and_reads_every_kind_of_index(store: nandarray.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from_xarray(climate(), store)
    opened = xr.open_dataset(store, engine=ENGINE, cache=False)["t2m"].variable  # type: ignore[arg-type]
    eager = climate()["t2m"].variable
    asked: list[int] = []
    fetch = nandarray.Array._get

    def counts(self: Any, *args: Any, **options: Any) -> Any:
        got = fetch(self, *args, **options)
        asked.append(np.size(got))
        return got

    monkeypatch.setattr(nandarray.Array, "_get", counts)
    points: dict[str, Any] = {"time": xr.Variable("p", [1, 2, 9]), "lon": xr.Variable("p", [0, 5, 5])}
    selections: list[dict[str, Any]] = [
        {"time": 3},
        {"time": slice(2, 8, 3), "lon": slice(None, None, -2)},
        {"time": slice(8, 2, -3)},
        {"time": [5, 1, 1], "lon": [0, 3]},
        points,
        {"lat": xr.Variable(("u", "v"), [[0, 1], [2, 3]])},
        {"time": []},
    ]
    for selection in selections:
        asked.clear()
        part = opened.isel(selection)
        assert not asked
        xr.testing.assert_identical(part.load(), eager.isel(selection))
        assert sum(asked) == part.size, selection


def test_dask_and_pickle(tmp_path: Path) -> None:
    from_xarray(climate().chunk({"time": 3}), tmp_path / "data.nand", building_block=(4, 4, 4))
    with xr.open_dataset(tmp_path / "data.nand", engine=ENGINE, chunks={}) as lazy:
        assert lazy["t2m"].chunks is not None
        copied = pickle.loads(pickle.dumps(lazy))
        xr.testing.assert_equal(copied["t2m"].load(scheduler="sync"), climate()["t2m"])
        copied.close()
        assert lazy["t2m"].mean().compute(scheduler="threads") == climate()["t2m"].mean()
    with xr.open_dataset(tmp_path / "data.nand", engine=ENGINE) as plain:
        copied = pickle.loads(pickle.dumps(plain))
        xr.testing.assert_equal(copied["t2m"].load(), climate()["t2m"])
        copied.close()


def test_a_store_that_the_caller_opened_stays_open(store: nandarray.Store) -> None:
    from_xarray(climate(), store, group="g/h")
    with xr.open_dataset(store, engine=ENGINE, group="g/h") as dataset:  # type: ignore[arg-type]
        copied = pickle.loads(pickle.dumps(dataset))
        xr.testing.assert_equal(copied["t2m"].load(), climate()["t2m"])
        copied.close()
    assert not store.closed


def test_groups_and_trees(tmp_path: Path, store: nandarray.Store) -> None:
    tree = xr.DataTree.from_dict(
        {
            "/": xr.Dataset(attrs={"top": 1}),
            "/a": climate(),
            "/a/b": xr.Dataset({"x": ("q", np.arange(3))}),
        }
    )
    from_xarray(tree, store, group="run")
    assert store["run"].attrs["top"] == 1
    back = xr.open_datatree(store, engine=ENGINE, group="run", decode_timedelta=True)  # type: ignore[arg-type]
    xr.testing.assert_identical(back.load(), tree)
    groups = xr.open_groups(store, engine=ENGINE)  # type: ignore[arg-type]
    assert set(groups) == {"/", "/run", "/run/a", "/run/a/b"}
    store.close()
    with xr.open_datatree(tmp_path / "data.nand", engine=ENGINE, decode_timedelta=True) as whole:
        node: Any = whole["run/a"]
        xr.testing.assert_identical(node.to_dataset(inherit=False).load(), climate())


def test_arrays_that_xarray_did_not_write(store: nandarray.Store) -> None:
    store["plain"] = np.arange(6).reshape(2, 3)
    store.create("named", (2, 3), "f4", attrs={"_ARRAY_DIMENSIONS": ["y", "x"], "_FillValue": 9.0})
    store.create("wrong", (2, 3), "f4", attrs={"_ARRAY_DIMENSIONS": ["y"]})
    store["times"] = np.array(["2001-01-01"], "M8[s]")
    store["g/inside"] = np.zeros(3)
    dataset = to_xarray(store)
    assert dataset["plain"].dims == ("plain_dim_0", "plain_dim_1")
    assert dataset["named"].dims == ("y", "x")
    assert dataset["wrong"].dims == ("wrong_dim_0", "wrong_dim_1")
    assert dataset["times"].dtype.kind == "M"
    assert "inside" not in dataset
    assert set(to_xarray(store["g"])) == {"inside"}
    one = to_xarray(store["plain"])
    assert isinstance(one, xr.DataArray)
    np.testing.assert_array_equal(one.values, store["plain"][...])
    assert "plain" not in xr.open_dataset(store, engine=ENGINE, drop_variables=["plain"])  # type: ignore[arg-type]


def test_who_opens_what(tmp_path: Path, store: nandarray.Store) -> None:
    guess = NandarrayBackendEntrypoint().guess_can_open
    assert guess(store)
    assert guess(tmp_path / "data.nand")
    assert guess("data.nand")
    assert not guess("s.nc")
    assert not guess(b"CDF...")


def test_object_text_and_larger_than_memory(tmp_path: Path, store: nandarray.Store) -> None:
    words = xr.Dataset({"w": ("n", np.array(["a", "bbb", ""], dtype=object))})
    from_xarray(words, store, group="w")
    assert store["w/w"].dtype == np.dtype("U3")
    assert to_xarray(store["w"])["w"].values.tolist() == ["a", "bbb", ""]
    with pytest.raises(nandarray.InvalidError, match="variable 'o/o' holds Python objects"):
        from_xarray(xr.Dataset({"fine": 1, "o": ("n", np.array([b"x", 3], dtype=object))}), store, group="o")
    assert "o" not in store
    climate().to_netcdf(tmp_path / "a.nc")
    with xr.open_dataset(tmp_path / "a.nc", decode_cf=False, cache=False) as lazy:
        from_xarray(lazy, store, group="lazy")
    np.testing.assert_array_equal(to_xarray(store["lazy"])["t2m"].values, climate()["t2m"].values)


def test_encrypted(store: nandarray.Store) -> None:
    key = bytes(range(32))
    from_xarray(xr.Dataset({"x": ("n", np.arange(3))}), store, encryption_key=key)
    assert store._engine.describe("x")["encrypted"]
    opened = xr.open_dataset(store, engine=ENGINE, encryption_key=key)  # type: ignore[arg-type]
    assert opened["x"].values.tolist() == [0, 1, 2]
    with pytest.raises(nandarray.WrongKeyError):
        xr.open_dataset(store, engine=ENGINE)  # type: ignore[arg-type]


def test_bad_input(tmp_path: Path, store: nandarray.Store) -> None:
    from_xarray(climate(), store)
    with pytest.raises(nandarray.ExistsError, match="already has"):
        from_xarray(climate(), store)
    with pytest.raises(nandarray.NotFoundError, match="no group 'nope'"):
        xr.open_dataset(store, engine=ENGINE, group="nope")  # type: ignore[arg-type]
    with pytest.raises(nandarray.InvalidError, match="is an array"):
        xr.open_dataset(store, engine=ENGINE, group="t2m")  # type: ignore[arg-type]
    with pytest.raises(nandarray.InvalidError, match="no variables of the dataset"):
        from_xarray(climate(), store, group="x", encoding={"typo": {}})
    with pytest.raises((nandarray.NandarrayError, OSError)):
        xr.open_dataset(tmp_path / "none.nand", engine=ENGINE)


def test_a_failing_from_xarray_leaves_no_new_store(tmp_path: Path) -> None:
    dataset = xr.Dataset({"a": ("x", np.arange(3))})
    with pytest.raises(nandarray.InvalidError):
        nandarray.from_xarray(dataset, tmp_path / "new.nand", compression="gzip")
    assert list(tmp_path.iterdir()) == []
    nandarray.open(tmp_path / "there.nand", "w").close()
    with pytest.raises(nandarray.InvalidError):
        nandarray.from_xarray(dataset, tmp_path / "there.nand", compression="gzip")
    assert (tmp_path / "there.nand").exists()
