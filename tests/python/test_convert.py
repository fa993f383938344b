"""Arrays go into a store from other formats and come out again, whole or not at all, in bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import nandarray
from nandarray.index.shapes import box_shape, boxes, run_shape
from nandarray.interop.convert import sources
from nandarray.interop.convert.attributes import decode, encode
from nandarray.interop.convert.slabs import slab_shape

SMALL = 4096  # a budget that cuts even small arrays into many slabs


def numbers(*shape: int, dtype: Any = "f4") -> np.ndarray[Any, Any]:
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


DTYPES = ["?", "i1", "<u2", ">i4", "u8", "f2", "f4", ">f8", "c8", "c16", "S3", "<U4", "M8[s]", "m8[ns]", "V5"]
STRUCTURED = np.dtype([("x", "<f4"), ("n", "<i2", (2,)), ("t", "S4")])


# --- .npy, .npz, raw --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [*DTYPES, STRUCTURED], ids=str)
def test_npy_there_and_back(tmp_path: Path, store: nandarray.Store, dtype: Any, order: str) -> None:
    size = 7 * 50 * 3
    data = np.frombuffer(np.random.default_rng(0).bytes(size * 64), dtype="u1")
    if np.dtype(dtype).kind in "U":
        source = numbers(7, 50, 3, dtype="i4").astype(dtype)
    else:
        itemsize = np.dtype(dtype).itemsize
        raw = data[: size * itemsize] & (1 if np.dtype(dtype).kind == "b" else 255)
        source = raw.view(dtype).reshape(7, 50, 3)
    source = np.array(source, order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "a.npy", source)
    assert nandarray.import_(tmp_path / "a.npy", store, budget=SMALL) == ("a",)
    assert store["a"].dtype == source.dtype
    assert store["a"][...].tobytes() == source.tobytes()
    nandarray.export(store["a"], tmp_path / "b.npy", order=order, budget=SMALL)
    back = np.load(tmp_path / "b.npy")
    assert back.flags.f_contiguous == (order == "F")
    assert back.dtype == source.dtype
    assert back.tobytes() == source.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5,), (2, 3, 4, 5)])
def test_shapes(tmp_path: Path, store: nandarray.Store, shape: tuple[int, ...]) -> None:
    data = numbers(*shape)
    np.save(tmp_path / "a.npy", data)
    np.savez(tmp_path / "a.npz", x=data)
    nandarray.import_(tmp_path / "a.npy", store)
    nandarray.import_(tmp_path / "a.npz", store, "z")
    for name in ("a", "z/x"):
        np.testing.assert_array_equal(store[name][...], data)
    for ending in ("npy", "npz", "zarr", "h5", "nc", "bin"):
        nandarray.export(store["a"], tmp_path / f"out.{ending}")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), data)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["a"], data)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "out.zarr", mode="r")[...], data)
    assert np.fromfile(tmp_path / "out.bin", "f4").tolist() == data.ravel().tolist()
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(file["a"][()], data)
    with xr.open_dataset(tmp_path / "out.nc") as dataset:
        np.testing.assert_array_equal(dataset["a"].values, data)


@pytest.mark.parametrize("compressed", [False, True])
def test_npz_streams_both_orders(tmp_path: Path, store: nandarray.Store, *, compressed: bool) -> None:
    c, f = numbers(40, 30, 20), np.asfortranarray(numbers(40, 30, 20, dtype="i2"))
    (np.savez_compressed if compressed else np.savez)(tmp_path / "a.npz", c=c, f=f)
    names = nandarray.import_(tmp_path / "a.npz", store, "g", building_block=(8, 8, 8), budget=SMALL)
    assert names == ("g/c", "g/f")
    np.testing.assert_array_equal(store["g/c"][...], c)
    np.testing.assert_array_equal(store["g/f"][...], f)
    nandarray.export(store["g"], tmp_path / "b.npz", budget=SMALL, compression="deflate" if compressed else "none")
    with np.load(tmp_path / "b.npz") as back:
        assert sorted(back) == ["c", "f"]
        np.testing.assert_array_equal(back["f"], f)
    assert nandarray.import_(tmp_path / "a.npz", store, member="f") == ("f",)


def test_raw(tmp_path: Path, store: nandarray.Store) -> None:
    data = numbers(6, 7, dtype=">u2")
    (tmp_path / "a.bin").write_bytes(b"header" + data.tobytes("F"))
    nandarray.import_(tmp_path / "a.bin", store, shape=(6, 7), dtype=">u2", offset=6, order="F")
    np.testing.assert_array_equal(store["a"][...], data)
    nandarray.import_(tmp_path / "a.bin", store, "flat", dtype=">u2", offset=6)
    assert store["flat"].shape == (42,)


def test_newer_npy_headers(tmp_path: Path, store: nandarray.Store) -> None:
    data = np.zeros(3, np.dtype([("ä", "f4")]))
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, data, version=(3, 0))
    nandarray.import_(tmp_path / "a.npy", store)
    assert store["a"].dtype == data.dtype


# --- Zarr -------------------------------------------------------------------------------------------------------------


def test_zarr_groups_attributes_and_dimensions(tmp_path: Path, store: nandarray.Store) -> None:
    root = zarr.create_group(tmp_path / "a.zarr", attributes={"title": "t"})
    group = root.create_group("g/h", attributes={"level": 2})
    data = numbers(30, 20)
    array = group.create_array(
        "x", data=data, chunks=(7, 6), dimension_names=["y", "x"], attributes={"units": "K"}, fill_value=-1
    )
    assert array.shards is None
    root.create_array("sharded", data=data, chunks=(5, 5), shards=(10, 10))
    names = nandarray.import_(tmp_path / "a.zarr", store, building_block=(8, 8), budget=SMALL)
    assert names == ("g/h/x", "sharded")
    assert store.attrs["title"] == "t"
    assert store["g/h"].attrs["level"] == 2
    assert dict(store["g/h/x"].attrs) == {"units": "K", "_ARRAY_DIMENSIONS": ["y", "x"]}
    assert store["g/h/x"].fill_value == -1
    np.testing.assert_array_equal(store["g/h/x"][...], data)

    nandarray.export(store, tmp_path / "b.zarr", budget=SMALL)
    back = zarr.open_group(tmp_path / "b.zarr", mode="r")
    assert back.attrs.asdict() == {"title": "t"}
    assert back["g/h"].attrs.asdict() == {"level": 2}
    out = back["g/h/x"]
    assert isinstance(out, zarr.Array)
    assert out.metadata.zarr_format == 3
    assert out.metadata.dimension_names == ("y", "x")
    assert out.attrs.asdict() == {"units": "K"}
    assert out.chunks == (8, 8)
    assert out.fill_value == -1
    np.testing.assert_array_equal(out[...], data)


def test_zarr_format_2_and_one_member(tmp_path: Path, store: nandarray.Store) -> None:
    root = zarr.open_group(tmp_path / "old", mode="w", zarr_format=2)
    root.create_group("g").create_array("x", data=numbers(9), chunks=(4,), attributes={"_ARRAY_DIMENSIONS": ["t"]})
    assert nandarray.import_(tmp_path / "old", store, "y", member="g/x") == ("y",)  # told by .zgroup
    assert store["y"].attrs["_ARRAY_DIMENSIONS"] == ["t"]
    with pytest.raises(nandarray.NotFoundError, match="no member 'g/z'"):
        nandarray.import_(tmp_path / "old", store, member="g/z", format="zarr")


def test_zarr_and_xarray_understand_each_other(tmp_path: Path, store: nandarray.Store) -> None:
    dataset = climate().drop_vars("name")
    dataset["raw"] = ("lon", np.array([1, np.nan, 3, 4, 5, 6], "f4"))
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False)
    nandarray.import_(tmp_path / "a.zarr", store)
    from nandarray.interop.xarray.backend import to_xarray

    xr.testing.assert_identical(to_xarray(store).load(), xr.open_zarr(tmp_path / "a.zarr", consolidated=False).load())
    nandarray.export(store, tmp_path / "b.zarr")
    back = xr.open_zarr(tmp_path / "b.zarr", consolidated=False).load()
    for name in back.variables:
        back[name].attrs.pop("_ATTRIBUTE_TYPES", None)
    xr.testing.assert_identical(back, to_xarray(store).load())
    store.attrs["odd"] = [float("nan"), float("inf")]
    nandarray.export(store, tmp_path / "c.zarr")


@pytest.mark.parametrize("compression", ["none", "gzip", "gzip:1", "zstd:3", "blosc"])
def test_zarr_compression(tmp_path: Path, store: nandarray.Store, compression: str) -> None:
    store["a"] = numbers(50, 50)
    nandarray.export(store["a"], tmp_path / "a.zarr", compression=compression)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a.zarr", mode="r")[...], store["a"][...])


def test_variable_length_text_gets_a_width(tmp_path: Path, store: nandarray.Store) -> None:
    words = ["a", "füüf", "", "longest of all"]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("words", data=words, dtype=h5py.string_dtype())
    nandarray.import_(tmp_path / "a.h5", store)
    assert store["words"].dtype == np.dtype("U14")
    assert store["words"][...].tolist() == words


# --- HDF5 -------------------------------------------------------------------------------------------------------------


def test_hdf5_groups_attributes_dimensions_links(tmp_path: Path, store: nandarray.Store) -> None:
    data = numbers(30, 20)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["title"] = "t"
        file.attrs["ints"] = np.array([1, 2], "i2")
        file.attrs["single"] = np.float32(0.1)
        group = file.create_group("g/h")
        group.attrs["level"] = 2
        dataset = group.create_dataset("x", data=data, chunks=(7, 6), compression="gzip", fillvalue=-1)
        dataset.dims[0].label, dataset.dims[1].label = "y", "x"
        file["flags"] = np.array([True, False])
        file["loop"] = h5py.SoftLink("/g")
        group["again"] = file["/g"]  # a group inside itself
        file["scalar"] = 5.0
    with pytest.warns(
        UserWarning, match="g/h/again is a link to g, which it lies in.*loop/h/x is the same array as g/h/x"
    ):
        names = nandarray.import_(tmp_path / "a.h5", store, budget=SMALL)
    assert set(names) == {"flags", "g/h/x", "loop/h/x", "scalar"}
    assert decode(dict(store.attrs))["single"] == np.float32(0.1)
    assert decode(dict(store.attrs))["ints"].dtype == np.int16
    assert store["g/h"].attrs["level"] == 2
    assert store["g/h/x"].attrs["_ARRAY_DIMENSIONS"] == ["y", "x"]
    assert store["g/h/x"].fill_value == -1
    assert store["flags"].dtype == np.dtype(bool)
    np.testing.assert_array_equal(store["g/h/x"][...], data)

    nandarray.export(store, tmp_path / "b.h5", budget=SMALL)
    with h5py.File(tmp_path / "b.h5") as back:
        assert back.attrs["title"] == "t"
        assert back.attrs["single"].dtype == np.float32
        assert back.attrs["ints"].dtype == np.int16
        assert back["g/h"].attrs["level"] == 2
        assert back["g/h/x"].dims[0].label == "y"
        assert back["g/h/x"].fillvalue == -1
        np.testing.assert_array_equal(back["g/h/x"][()], data)


@pytest.mark.parametrize("dtype", [*(d for d in DTYPES if d != "m8[ns]"), STRUCTURED], ids=str)
def test_hdf5_dtypes_there_and_back(tmp_path: Path, store: nandarray.Store, dtype: Any) -> None:
    store.create("a", (5, 4), dtype)
    store["a"][1:3] = np.ones((2, 4), "i4").astype(dtype) if np.dtype(dtype).kind != "V" else store["a"][0]
    nandarray.export(store["a"], tmp_path / "a.h5")
    nandarray.import_(tmp_path / "a.h5", store, "back")
    kind = np.dtype(dtype).kind
    assert store["back/a"].dtype.kind == kind
    np.testing.assert_array_equal(store["back/a"][...], store["a"][...])


def test_hdf5_what_has_no_fixed_size_is_refused_or_skipped(tmp_path: Path, store: nandarray.Store) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["fine"] = numbers(3)
        file.create_dataset("ragged", (2, 2), h5py.vlen_dtype("i4"))
        file.create_dataset("refs", (2,), h5py.ref_dtype)
        file["broken"] = h5py.SoftLink("/nowhere")
        file["null"] = h5py.Empty("f4")
        file["fine"].attrs["reference"] = file["fine"].ref
    with pytest.raises(nandarray.InvalidError, match=r"ragged holds elements of variable.*refs holds references"):
        nandarray.import_(tmp_path / "a.h5", store)
    assert store.array_names() == []
    with pytest.warns(UserWarning, match="left out") as caught:
        assert nandarray.import_(tmp_path / "a.h5", store, unsupported="skip") == ("fine",)
    text = " ".join(str(item.message) for item in caught)
    assert all(word in text for word in ("ragged", "refs", "broken", "null", "fine:reference"))


# --- NetCDF -----------------------------------------------------------------------------------------------------------


def climate() -> xr.Dataset:
    temperature = np.linspace(250, 300, 10 * 4 * 6).reshape(10, 4, 6)
    dataset = xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), temperature, {"units": "K"}),
            "mask": (("lat", "lon"), np.eye(4, 6, dtype="i1")),
        },
        coords={
            "time": np.arange("2001-01-01", "2001-01-11", dtype="M8[D]").astype("M8[ns]"),
            "lat": ("lat", np.linspace(-60, 60, 4), {"units": "degrees_north"}),
            "lon": np.arange(6.0),
            "name": ("lat", ["a", "bb", "ccc", "d"]),
        },
        attrs={"title": "climate"},
    )
    packed = {"dtype": "i2", "scale_factor": np.float32(0.01), "add_offset": np.float32(275), "_FillValue": -32768}
    dataset["t2m"].encoding.update(packed)
    return dataset


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4", "scipy"])
def test_netcdf_survives_with_dimensions_coordinates_and_packing(
    tmp_path: Path, store: nandarray.Store, engine: Any
) -> None:
    dataset = climate() if engine != "scipy" else climate().drop_vars("name")
    dataset.to_netcdf(tmp_path / "a.nc", engine=engine)
    names = nandarray.import_(tmp_path / "a.nc", store, budget=SMALL)
    assert set(names) == set(dataset.variables)
    assert store["t2m"].dtype.kind == "i"  # packed as it was
    assert store["t2m"].attrs["_ARRAY_DIMENSIONS"] == ["time", "lat", "lon"]
    nandarray.export(store, tmp_path / "b.nc", budget=SMALL)
    with xr.open_dataset(tmp_path / "a.nc") as before, xr.open_dataset(tmp_path / "b.nc") as after:
        assert after["t2m"].dtype == before["t2m"].dtype
        xr.testing.assert_identical(after.load(), before.load())


def test_netcdf_groups(tmp_path: Path, store: nandarray.Store) -> None:
    tree = xr.DataTree.from_dict({"/": xr.Dataset({"a": ("x", numbers(3))}), "/g/h": climate()})
    tree.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    names = nandarray.import_(tmp_path / "a.nc", store)
    assert {"a", "g/h/t2m"} <= set(names)
    assert nandarray.import_(tmp_path / "a.nc", store, "only", member="g/h/t2m") == ("only",)
    assert set(nandarray.import_(tmp_path / "a.nc", store, "part", member="g")) >= {"part/h/t2m", "part/h/lat"}
    with pytest.raises(nandarray.NotFoundError, match="no member 'nope'"):
        nandarray.import_(tmp_path / "a.nc", store, member="nope")
    nandarray.export(store["g"], tmp_path / "b.nc")
    with (
        xr.open_dataset(tmp_path / "b.nc", group="h") as back,
        xr.open_dataset(tmp_path / "a.nc", group="g/h") as before,
    ):
        xr.testing.assert_identical(back.load(), before.load())


def test_netcdf_of_native_types(tmp_path: Path, store: nandarray.Store) -> None:
    times = np.array(["2001-01-01T00:00:01", "NaT"], "M8[s]")
    store.create("when", data=times, attrs={"_ARRAY_DIMENSIONS": ["n"]})
    store.create("flag", data=np.array([True, False]), attrs={"_ARRAY_DIMENSIONS": ["n"]})
    store.create("word", data=np.array(["ä", "bb"]), attrs={"_ARRAY_DIMENSIONS": ["n"]})
    store["bytes"] = np.array([[b"abc", b"d"]])
    nandarray.export(store, tmp_path / "a.nc")
    with xr.open_dataset(tmp_path / "a.nc") as dataset:
        assert dataset["bytes"].values.tolist() == [[b"abc", b"d"]]
        np.testing.assert_array_equal(dataset["when"].values.astype("M8[s]"), times)
        assert dataset["flag"].dtype == bool
        assert dataset["word"].values.tolist() == ["ä", "bb"]
    store["half"] = np.zeros(2, "f2")
    with pytest.raises(nandarray.InvalidError, match="NetCDF cannot hold 'half' of dtype float16"):
        nandarray.export(store["half"], tmp_path / "half.nc")
    store.create("other", data=np.zeros(3), attrs={"_ARRAY_DIMENSIONS": ["n"]})
    del store["half"]
    with pytest.raises(nandarray.InvalidError, match="dimension 'n' has 2 elements elsewhere and 3 in 'other'"):
        nandarray.export(store, tmp_path / "clash.nc")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.nc", "data.nand"]


# --- whole or absent --------------------------------------------------------------------------------------------------


def test_interrupted_import_leaves_nothing(
    tmp_path: Path, store: nandarray.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "a.npz", a=numbers(100), b=numbers(50, 50))
    store["before"] = numbers(3)
    read = sources._ZipReader.__call__
    calls = iter(range(5))

    def fails_later(self: Any, box: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return read(self, box)

    monkeypatch.setattr(sources._ZipReader, "__call__", fails_later)
    with pytest.raises(KeyboardInterrupt):
        nandarray.import_(tmp_path / "a.npz", store, "g", budget=2048)
    assert store.array_names() == ["before"]
    assert list(store) == ["before"]


class _Watched:
    """The native store; before and after each of its commands the file is what a kill would leave."""

    def __init__(self, engine: Any, look: Any) -> None:
        self._engine, self._look = engine, look

    def __contains__(self, name: str) -> bool:
        return name in self._engine

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._engine, name)
        if not callable(value):
            return value

        def command(*args: Any, **options: Any) -> Any:
            result = value(*args, **options)
            self._look()
            return result

        return command


def test_a_killed_import_or_rename_is_whole_or_absent(
    tmp_path: Path, store: nandarray.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("x", "g/y", "g/h/z"):
            file[name] = numbers(30, 40)
        file.attrs["title"] = "t"
        file["g"].attrs["unit"] = "m"
        file.create_group("empty")
    store["old/before"] = numbers(3)
    store["old"].attrs["kept"] = 1
    states: list[Any] = []

    def look() -> None:
        copy = tmp_path / "copy.nand"
        copy.write_bytes((tmp_path / "data.nand").read_bytes())
        with nandarray.open(copy, "r+") as left:
            names = [name for name in left.array_names() if not name.startswith("__importing__")]
            state = (names, sorted(set(left) - {f for f in left if f.startswith("__importing__")}),
                     [dict(left[g].attrs) for g in ("new", "new/g", "old", "moved") if g in left])  # fmt: skip
        if state not in states:
            states.append(state)

    monkeypatch.setattr(store, "_engine", _Watched(store._engine, look))
    look()
    nandarray.import_(tmp_path / "a.h5", store, "new")
    assert len(states) == 2, states
    assert states[1] == (
        ["new/g/h/z", "new/g/y", "new/x", "old/before"], ["new", "old"], [{"title": "t"}, {"unit": "m"}, {"kept": 1}],
    )  # fmt: skip
    assert "new/empty" in store
    store.rename("new", "moved")
    assert len(states) == 3, states
    assert states[2][1] == ["moved", "old"]
    # Into a group that is there, whose attributes change with the arrays.
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["one"] = numbers(3)
        file["two"] = numbers(3)
        file.attrs["more"] = 2
    nandarray.import_(tmp_path / "b.h5", store, "old")
    assert len(states) == 4, states
    assert states[3][2] == [{"kept": 1, "more": 2}, {"title": "t"}]
    del store["moved"]
    assert len(states) == 5, states
    assert states[4][0] == ["old/before", "old/one", "old/two"]


def test_leftovers_of_a_killed_import_are_swept(tmp_path: Path, store: nandarray.Store) -> None:
    store._create("__importing__0123456789ab/0", data=numbers(3))
    np.save(tmp_path / "a.npy", numbers(4))
    nandarray.import_(tmp_path / "a.npy", store)
    assert store.array_names() == ["a"]


def test_taken_names(tmp_path: Path, store: nandarray.Store) -> None:
    store["a"] = numbers(2)
    np.save(tmp_path / "a.npy", numbers(4))
    with pytest.raises(nandarray.ExistsError, match="already has 'a'"):
        nandarray.import_(tmp_path / "a.npy", store)
    assert store["a"].shape == (2,)
    np.savez(tmp_path / "b.npz", allow_pickle=False, **{"x": numbers(4), "a/b": numbers(3)})
    with pytest.raises(nandarray.ExistsError):  # "a" is an array, so "a/b" cannot be
        nandarray.import_(tmp_path / "b.npz", store)
    assert store.array_names() == ["a"]


def test_export_is_whole_or_absent(tmp_path: Path, store: nandarray.Store) -> None:
    store["a"] = numbers(20, 20)
    (tmp_path / "a.npy").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        nandarray.export(store["a"], tmp_path / "a.npy")

    def interrupt(name: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    for ending in ("npy", "zarr", "h5", "npz", "nc"):
        with pytest.raises(KeyboardInterrupt):
            nandarray.export(store["a"], tmp_path / f"a.{ending}", overwrite=True, progress=interrupt)
    assert (tmp_path / "a.npy").read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "data.nand"]
    nandarray.export(store["a"], tmp_path / "a.npy", overwrite=True)
    for _ in range(2):
        nandarray.export(store["a"], tmp_path / "a.zarr", overwrite=True)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), store["a"][...])


# --- bad input --------------------------------------------------------------------------------------------------------


def test_bad_sources(tmp_path: Path, store: nandarray.Store) -> None:
    with pytest.raises(FileNotFoundError):
        nandarray.import_(tmp_path / "none.npy", store)
    for ending in ("npy", "npz", "h5", "nc"):
        path = tmp_path / f"bad.{ending}"
        path.write_bytes(b"this is something else altogether" * 10)
        with pytest.raises(nandarray.InvalidError):
            nandarray.import_(path, store)
    (tmp_path / "dir.zarr").mkdir()
    with pytest.raises(nandarray.InvalidError, match="not a Zarr"):
        nandarray.import_(tmp_path / "dir.zarr", store)
    with pytest.raises(nandarray.InvalidError, match="cannot tell the format"):
        nandarray.import_(tmp_path / "data.nand", store)
    with pytest.raises(nandarray.InvalidError, match="format must be one of npy"):
        nandarray.import_(tmp_path / "bad.npy", store, format="xls")
    np.save(tmp_path / "objects.npy", np.array([{}, None]), allow_pickle=True)
    with pytest.raises(nandarray.InvalidError, match="Python objects"):
        nandarray.import_(tmp_path / "objects.npy", store)
    np.save(tmp_path / "short.npy", numbers(100))
    os.truncate(tmp_path / "short.npy", 300)
    with pytest.raises(nandarray.InvalidError, match="ends early"):
        nandarray.import_(tmp_path / "short.npy", store)
    with pytest.raises(nandarray.InvalidError, match="raw binary only"):
        nandarray.import_(tmp_path / "short.npy", store, dtype="f4")
    with pytest.raises(nandarray.InvalidError, match="must be given a dtype"):
        nandarray.import_(tmp_path / "short.npy", store, format="raw")
    with pytest.raises(nandarray.InvalidError, match="takes 400000 bytes"):
        nandarray.import_(tmp_path / "short.npy", store, format="raw", dtype="f4", shape=(100_000,))
    assert store.array_names() == []


def test_bad_exports(tmp_path: Path, store: nandarray.Store) -> None:
    store["g/a"] = numbers(3)
    with pytest.raises(nandarray.InvalidError, match="holds one array"):
        nandarray.export(store["g"], tmp_path / "g.npy")
    with pytest.raises(nandarray.InvalidError, match="compression must be one of .*, not 'lzma'"):
        nandarray.export(store["g"], tmp_path / "g.h5", compression="lzma")
    with pytest.raises(nandarray.InvalidError, match="must go with npy or raw"):
        nandarray.export(store["g"], tmp_path / "g.h5", order="F")
    with pytest.raises(nandarray.InvalidError, match="not dict"):
        nandarray.export({}, tmp_path / "g.h5")  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["data.nand"]


def test_missing_dependency_names_the_extra(
    tmp_path: Path, store: nandarray.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store["a"] = numbers(3)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"needs h5py.*pip install '\.\[hdf5\]' in a checkout"):
        nandarray.export(store["a"], tmp_path / "a.h5")


def test_progress_counts_bytes(tmp_path: Path, store: nandarray.Store) -> None:
    np.save(tmp_path / "a.npy", numbers(100, 100))
    seen: list[tuple[str, int, int]] = []
    nandarray.import_(tmp_path / "a.npy", store, budget=SMALL, progress=lambda *event: seen.append(event))
    assert seen[0] == ("a", 0, 40_000)
    assert seen[-1] == ("a", 40_000, 40_000)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert len(seen) > 5


def test_paths_instead_of_a_store(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", numbers(4))
    nandarray.import_(tmp_path / "a.npy", tmp_path / "new.nand")
    with nandarray.open(tmp_path / "new.nand") as store:
        assert store.array_names() == ["a"]
    (tmp_path / "bad.npy").write_bytes(b"no")
    with pytest.raises(nandarray.InvalidError):
        nandarray.import_(tmp_path / "bad.npy", tmp_path / "other.nand")
    with pytest.raises(nandarray.InvalidError):
        nandarray.import_(tmp_path / "a.npy", tmp_path / "other.nand", compression="nonsense")
    assert not (tmp_path / "other.nand").exists()


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["npy", "zarr", "h5", "npz"])
def test_memory_of_a_copy_is_the_budget(tmp_path: Path, ending: str) -> None:
    """A child process copies 128 MiB in and out with a budget of 16 MiB; what Python and NumPy allocate is counted."""
    script = dedent(
        """
        import sys, tracemalloc
        import numpy as np, h5py, zarr, nandarray
        ending, folder = sys.argv[1:]
        data = np.lib.format.open_memmap(f"{folder}/in.npy", "w+", "f4", (4096, 8192))
        data[::100] = 1
        data.flush()
        if ending == "npz":
            np.savez(f"{folder}/in.npz", a=data)
        elif ending == "zarr":
            zarr.create_array(f"{folder}/in.zarr", data=np.asarray(data), chunks=(512, 512))
        elif ending == "h5":
            with h5py.File(f"{folder}/in.h5", "w") as file:
                file.create_dataset("a", data=data, chunks=(512, 512))
        del data

        class Sink:
            # Stands for a store, so that only the copy's own memory is counted.
            name, shape, dtype, chunks, nbytes = "a", (4096, 8192), np.dtype("f4"), (256, 256), 1 << 27
            rows = 0
            def __setitem__(self, key, data):
                Sink.rows += data[..., 0].size

        sink = Sink()
        from nandarray.interop.convert import copying, slabs, sources
        from pathlib import Path
        with sources.open_source(Path(f"{folder}/in.{ending}"), {"h5": "hdf5"}.get(ending, ending),
                                 sources.SourceOptions()) as source:
            member = source.members[0]
            tracemalloc.start()
            slabs.pump(copying._import_plan(member, sink.chunks, 16 << 20), member.read, sink.__setitem__,
                         done=lambda box: None)
            print(tracemalloc.get_traced_memory()[1])
        assert Sink.rows
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, ending, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40 << 20


# --- the parts --------------------------------------------------------------------------------------------------------

shapes = st.lists(st.integers(0, 40), max_size=4).map(tuple)


@st.composite
def plans(draw: st.DrawFn) -> tuple[Any, ...]:
    shape = draw(shapes)
    cuts = st.tuples(*(st.integers(1, 50) for _ in shape))
    return shape, draw(cuts), draw(st.none() | cuts), draw(st.integers(1, 5000)), draw(st.sampled_from("CF"))


@given(plans())
@settings(deadline=None)
def test_slabs_cover_every_element_once_within_the_budget(plan: tuple[Any, ...]) -> None:
    shape, block, chunks, limit, order = plan
    for slab in (
        slab_shape(shape, limit, block=block, chunks=chunks, order=order),
        run_shape(shape, limit, block=block),
    ):
        assert np.prod(slab) <= max(1, limit)
        if np.prod(shape) / np.prod(slab) > 2000:
            continue
        seen = np.zeros(shape, int)
        for box in boxes(shape, slab):
            assert all(0 < part.stop - part.start <= n for part, n in zip(box, slab, strict=True))
            assert seen[box].shape == box_shape(box)
            seen[box] += 1
        assert (seen == 1).all()


def test_slabs_are_whole_blocks_and_whole_chunks_where_they_fit() -> None:
    assert slab_shape((1000, 1000), 250_000, block=(64, 64), chunks=(100, 100)) != (64, 64)
    assert slab_shape((6400, 6400), 64 * 6400, block=(64, 64)) == (64, 6400)
    assert slab_shape((6400, 6400), 64 * 6400, block=(64, 64), order="F") == (6400, 64)
    assert slab_shape((600, 600), 60 * 60, block=(20, 20), chunks=(30, 30)) == (60, 60)
    assert slab_shape((2**60, 2**60), 1 << 20, block=(256, 256)) == (256, 4096)
    assert run_shape((100, 1000), 40_000, block=(16, 16)) == (32, 1000)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1), json_like, max_size=4))
def test_json_attributes_are_left_alone(attrs: dict[str, Any]) -> None:
    attrs.pop("_ATTRIBUTE_TYPES", None)
    assert encode(attrs) == attrs
    assert decode(encode(attrs)) == attrs


@pytest.mark.parametrize(
    "value",
    [
        np.float32(0.1), np.int8(-3), np.uint64(2**64 - 1), np.complex64(1 + 2j), np.datetime64("2001-01-01"),
        np.timedelta64(5, "s"), np.array([1.5, 2.5], "f4"), np.array([[1, 2], [3, 4]], "i2"), np.array([], "f8"),
        np.array(["a", "bb"]), np.array([b"a", b"\xff"]), np.array([1 + 2j]), np.array(["2001"], "M8[Y]"), b"text",
        b"\xff\x00\xfe", np.array([True, False]), np.array([5], "m8[ms]"),
    ],
    ids=repr,
)  # fmt: skip
def test_typed_attributes_come_back_typed(store: nandarray.Store, value: Any) -> None:
    store.attrs.update(encode({"v": value}))
    back = decode(dict(store.attrs))["v"]
    assert type(back) is type(value)
    assert np.asarray(back).dtype == np.asarray(value).dtype
    np.testing.assert_array_equal(back, value)
