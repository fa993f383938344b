"""Files of other formats in place: what stands on stores runs over them, damage is named, memory is bounded."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far_servers import RangeServer, s3

import nandarray
from nandarray.cli.commands import app
from nandarray.interop import tables
from nandarray.interop.foreign import hdf5_chunks, opening, source
from nandarray.parts import dividing

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")
xarray = pytest.importorskip("xarray")

SHAPE = (120, 90)
X = np.random.default_rng(5).integers(-1000, 1000, SHAPE).astype("f4")
COUNTS = (X * 3).astype(">i4")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same arrays as HDF5, NetCDF-4, a Zarr folder and an archive of it."""
    folder = tmp_path_factory.mktemp("foreign")
    with h5py.File(folder / "a.h5", "w") as file:
        file.attrs["title"] = "sky"
        for name, one in (("x", X), ("g/counts", COUNTS)):
            made = file.create_dataset(name, data=one, chunks=(32, 16), compression="gzip", shuffle=True)
            made.attrs["unit"] = "K"
        file["plain"] = X
        file["names"] = np.array(["ant", "bee"], h5py.string_dtype())
        rows = file.create_dataset("rows", (3,), h5py.vlen_dtype("i4"))
        rows[0], rows[2] = [1, 2], [3]
    coords = {"y": np.arange(SHAPE[0], dtype="f8")}
    dataset = xarray.Dataset({"x": (("y", "z"), X, {"unit": "K"}), "counts": (("y", "z"), COUNTS)}, coords)
    dataset.attrs["title"] = "sky"
    packed = {"x": {"zlib": True, "chunksizes": (32, 16)}, "counts": {"chunksizes": (32, 16)}}
    dataset.to_netcdf(folder / "a.nc", engine="h5netcdf", encoding=packed, unlimited_dims=["y"])
    root = zarr.open_group(folder / "a.zarr", mode="w")
    root.attrs["title"] = "sky"
    for name, one in (("x", X), ("g/counts", COUNTS.astype("i4"))):
        array = root.create_array(
            name, shape=SHAPE, chunks=(16, 16), shards=(32, 48), dtype=one.dtype.newbyteorder("=")
        )
        array[...] = one
        array.attrs["unit"] = "K"
    shutil.make_archive(str(folder / "a.zarr"), "zip", folder / "a.zarr")
    return folder


@pytest.fixture(params=["a.h5", "a.nc", "a.zarr", "a.zarr.zip"])
def store(made: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    with nandarray.open(made / request.param) as opened:
        yield opened


def counts_of(store: Any) -> Any:
    return store["counts"] if "counts" in store else store["g/counts"]


def same(found: Any, wanted: Any) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape, found.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())


def test_a_store_has_groups_attributes_and_elements(store: Any) -> None:
    assert store.read_only
    assert store.attrs["title"] == "sky"
    assert store["x"].attrs["unit"] == "K"
    np.testing.assert_array_equal(store["x"][::-3, [5, 2, 5]], X[::-3, [5, 2, 5]])
    np.testing.assert_array_equal(counts_of(store)[:, 7], COUNTS[:, 7])
    assert X[3, 4] in store["x"]
    assert store["x"].stat()["blocks"] > 1
    assert "120" in store["x"]._repr_html_()
    with pytest.raises(nandarray.NotFoundError, match="did you mean 'x'"):
        store["xx"]


def test_programs_give_what_a_copy_gives(store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dividing, "_UNIT_BYTES", 1 << 12)
    monkeypatch.setattr(dividing, "_UNITS_A_WORKER", 7)
    with nandarray.open(tmp_path / "copy.nand", "w") as copy:
        copy["x"], copy["counts"] = X, counts_of(store)[...]
        for found, wanted in ((store["x"], copy["x"]), (counts_of(store), copy["counts"])):
            for work in (
                lambda a: a.reduce("sum", task_bytes=1 << 10),
                lambda a: a.reduce("mean", key=np.s_[7:100:3, 5:80]),
                lambda a: a.reduce("sum", 0),
                lambda a: a.filter(lambda x: abs(x) > 900, task_bytes=1 << 10),
                lambda a: a.map_blocks(lambda x: x * 2, key=np.s_[1:, ::2], task_bytes=1 << 10),
                lambda a: a.reduce("argmax"),
            ):
                same(work(found), work(wanted))


def test_dask_xarray_and_tables_stand_on_it(store: Any) -> None:
    da = pytest.importorskip("dask.array")
    lazy = nandarray.to_dask(store["x"])
    assert isinstance(lazy, da.Array)
    assert float(lazy.sum().compute(scheduler="threads")) == float(X.sum())
    table = tables.elements({"x": store["x"], "counts": counts_of(store)})
    found = table.scan(columns=["x"], where=tables.col("counts") > 2000).read_all()
    np.testing.assert_array_equal(found["x"], X[COUNTS > 2000])
    both = nandarray.concat([store["x"], store["x"]])
    np.testing.assert_array_equal(both[100:140], np.concatenate([X, X])[100:140])


def test_xarray_opens_it(made: Path) -> None:
    with xarray.open_dataset(made / "a.nc", engine="nandarray") as found:
        np.testing.assert_array_equal(found["x"], X)
        assert found["x"].dims == ("y", "z")
        np.testing.assert_array_equal(found["y"], np.arange(SHAPE[0]))


def test_joins_with_a_local_array_and_exports(store: Any, tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "own.nand", "w") as own:
        own["x"] = X[:5]
        both = nandarray.concat([own["x"], store["x"]])
        np.testing.assert_array_equal(both[...], np.concatenate([X[:5], X]))
        own["all"] = store["x"]
        np.testing.assert_array_equal(own["all"][...], X)
    nandarray.export(store["x"], tmp_path / "x.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), X)


def test_another_process_opens_it_again(store: Any) -> None:
    again = pickle.loads(pickle.dumps(store["x"]))
    np.testing.assert_array_equal(again[5], X[5])
    code = "import pickle,sys; print(float(pickle.load(sys.stdin.buffer)[3, 4]))"
    told = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(store["x"]), capture_output=True, check=True)
    assert float(told.stdout) == X[3, 4]


def test_text_and_rows_of_variable_length_are_read(made: Path) -> None:
    with nandarray.open(made / "a.h5") as store:
        assert store["names"][:].tolist() == ["ant", "bee"]
        assert [one.tolist() for one in store["rows"][:]] == [[1, 2], [], [3]]
        assert sorted(store) == ["g", "names", "plain", "rows", "x"]


def test_an_import_has_what_the_view_has(made: Path, tmp_path: Path) -> None:
    for name in ("a.h5", "a.nc", "a.zarr", "a.zarr.zip"):
        with nandarray.open(tmp_path / f"{name}.nand", "w") as copy, nandarray.open(made / name) as view:
            nandarray.import_(made / name, copy)
            assert copy.array_names() == view.array_names()
            for one in copy.array_names():
                found = copy[one], view[one]
                if hasattr(found[0], "dtype") and not isinstance(found[0], nandarray.Ragged):
                    same(found[1][...], found[0][...])
                assert dict(found[0].attrs) == dict(found[1].attrs)
            assert dict(copy.attrs) == dict(view.attrs)


def test_changes_are_refused_with_the_cure(made: Path, tmp_path: Path) -> None:
    path = made / "a.h5"
    for mode in ("r+", "a"):
        with pytest.raises(nandarray.InvalidError, match="mode must be 'r'.*import_"):
            nandarray.open(path, mode)
    with pytest.raises(nandarray.InvalidError, match="takes no capacity"):
        nandarray.open(path, capacity=1 << 20)
    with nandarray.open(path) as store:
        for change in (
            lambda: store["x"].__setitem__(0, 1),
            lambda: store.__setitem__("new", X),
            lambda: store["x"].attrs.update(a=1),
            lambda: store.attrs.update(a=1),
            lambda: store["x"].resize((1, 1)),
            lambda: store["x"].append(X),
            lambda: store.__delitem__("x"),
            lambda: store.create_group("h"),
            lambda: store.rename("x", "y"),
        ):
            with pytest.raises(nandarray.ReadOnlyError, match="import_"):
                change()
    with pytest.raises(nandarray.ClosedError):
        store["x"]
    named = tmp_path / "own.h5"  # a store may be called as it likes
    named.touch()
    with nandarray.open(named, "a") as own:
        own["x"] = X
    with nandarray.open(named, "r+") as own:
        own["x"][0] = 0


# --- Chunks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filters", [{}, {"compression": "gzip"}, {"fletcher32": True, "compression": "gzip"}])
def test_chunks_are_decoded_without_the_library(filters: dict[str, Any], tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(50, 7), **filters)
    with nandarray.open(tmp_path / "a.h5") as store:
        assert store["x"].chunks == (50, 7)
        reader = store._engine._arrays["x"].load.__closure__
        chunks = next(
            one.cell_contents for one in _cells(reader) if isinstance(one.cell_contents, hdf5_chunks.Hdf5Chunks)
        )
        assert chunks.by_range
        np.testing.assert_array_equal(store["x"][...], X)


def _cells(given: Any) -> Iterator[Any]:
    for cell in given or ():
        yield cell
        yield from _cells(getattr(cell.cell_contents, "__closure__", None))


def test_a_damaged_chunk_is_named_and_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("g/x", data=X, chunks=(60, 90), compression="gzip", fletcher32=True)
        info = made.id.get_chunk_info(1)
    with path.open("r+b") as raw:
        raw.seek(info.byte_offset + info.size // 2)
        raw.write(b"\xff\x00\xff\x00")
    with nandarray.open(path) as store:
        np.testing.assert_array_equal(store["g/x"][:60], X[:60])
        with pytest.raises(nandarray.CorruptError, match=r"array 'g/x', chunk at \(60, 0\) in .*a\.h5"):
            store["g/x"][60:]


def test_a_file_that_was_cut_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = X
    os.truncate(path, path.stat().st_size - 1000)
    with pytest.raises(nandarray.InvalidError, match=r"a\.h5.*truncated"):
        nandarray.open(path)
    path.write_bytes(b"")
    with pytest.raises(nandarray.NandarrayError, match=r"a\.h5"):
        nandarray.open(path)


def test_a_damaged_or_missing_chunk_of_zarr(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a.zarr"
    root = zarr.open_group(folder, mode="w")
    array = root.create_array(
        "x", shape=SHAPE, chunks=(60, 90), dtype="f4", fill_value=7, compressors=zarr.codecs.GzipCodec()
    )
    array[...] = X
    (folder / "x" / "c" / "0" / "0").unlink()
    with nandarray.open(folder) as store:
        assert (store["x"][:60] == 7).all()
        np.testing.assert_array_equal(store["x"][60:], X[60:])
    chunk = folder / "x" / "c" / "1" / "0"
    chunk.write_bytes(chunk.read_bytes()[:100])
    with (
        nandarray.open(folder) as store,
        pytest.raises(nandarray.CorruptError, match=r"array 'x', chunk at \(60, 0\) in .*a\.zarr"),
    ):
        store["x"][60:]


def test_a_chunk_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    import gzip

    folder = tmp_path / "a.zarr"
    root = zarr.open_group(folder, mode="w")
    array = root.create_array("x", shape=(10,), chunks=(10,), dtype="f4", compressors=zarr.codecs.GzipCodec())
    array[...] = 1
    (folder / "x" / "c" / "0").write_bytes(gzip.compress(bytes(1 << 22)))
    with nandarray.open(folder) as store, pytest.raises(nandarray.CorruptError, match="unpacks to more"):
        store["x"][:]


def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "a.zarr"
    root = zarr.open_group(folder, mode="w")
    root.create_array("x", shape=(10,), chunks=(10,), dtype="u1", compressors=None)[...] = 1
    (tmp_path / "secret").write_bytes(bytes(10))
    (folder / "x" / "c" / "0").unlink()
    (folder / "x" / "c" / "0").symlink_to(tmp_path / "secret")
    with nandarray.open(folder) as store, pytest.raises(nandarray.NandarrayError, match="behind a link"):
        store["x"][:]


def test_a_file_that_is_replaced_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    for _ in range(2):
        with h5py.File(tmp_path / "new.h5", "w") as file:
            file["x"] = X
        if not path.exists():
            os.replace(tmp_path / "new.h5", path)
            store = nandarray.open(path)
    os.replace(tmp_path / "new.h5", path)
    with store, pytest.raises(nandarray.ChangedError, match=r"a\.h5.*open it again"):
        store["x"][:]
    with nandarray.open(path) as store:
        np.testing.assert_array_equal(store["x"][:], X)


def test_what_cannot_be_read_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = X
        file["ref"] = np.array([file.ref], h5py.ref_dtype)
        file["out"] = h5py.ExternalLink("other.h5", "/x")
    with pytest.warns(UserWarning, match=r"left out of .*: .*ref holds references"):
        store = nandarray.open(path)
    with store:
        np.testing.assert_array_equal(store["x"][:], X)
        assert store.array_names() == ["x"]
        with pytest.raises(nandarray.InvalidError, match="ref holds references"):
            store["ref"]
        with pytest.raises(nandarray.InvalidError, match=r"external link to '/x' in 'other\.h5'"):
            store["out"]


def test_attributes_that_no_store_can_have_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file["x"] = X
        file["x"].attrs.update({"unit": "K", "of": file["x"].ref, "table": np.zeros(9_000_000)})
        file.attrs["none"] = h5py.Empty("f4")
    with pytest.warns(UserWarning, match=r"attributes left out of .*none; x:of; x:table"):
        store = nandarray.open(tmp_path / "a.h5")
    assert (dict(store["x"].attrs), dict(store.attrs)) == ({"unit": "K"}, {})
    np.testing.assert_array_equal(store["x"][...], X)


@pytest.mark.parametrize("format", [2, 3])
def test_a_codec_that_is_not_known_is_named_and_the_rest_is_read(format: int, tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=format)
    for name in ("x", "g/y"):
        root.create_array(name, shape=SHAPE, chunks=SHAPE, dtype="f4")[...] = X
    path = tmp_path / "a.zarr" / "g" / "y" / ("zarr.json" if format == 3 else ".zarray")
    told = json.loads(path.read_text())
    told |= {"compressor": {"id": "foo"}} if format == 2 else {"codecs": [*told["codecs"], {"name": "foo"}]}
    path.write_text(json.dumps(told))
    with pytest.warns(UserWarning, match="g/y cannot be opened by Zarr.*'foo'"):
        store = nandarray.open(tmp_path / "a.zarr")
    with store:
        np.testing.assert_array_equal(store["x"][...], X)
        with pytest.raises(nandarray.InvalidError, match="foo"):
            store["g/y"]
    with nandarray.open(tmp_path / "own.nand", "w") as own, pytest.warns(UserWarning, match="'foo'"):
        assert nandarray.import_(tmp_path / "a.zarr", own, unsupported="skip") == ("x",)


def test_a_filter_that_is_not_here_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hdf5plugin = pytest.importorskip("hdf5plugin")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=X, **hdf5plugin.LZ4())
        file["y"] = X
    monkeypatch.setattr(h5py.h5z, "filter_avail", lambda code: code != 32004)
    with pytest.warns(UserWarning, match=r"x has the HDF5 filter 32004 \(.*lz4.*\).*hdf5plugin"):
        store = nandarray.open(path)
    with store:
        np.testing.assert_array_equal(store["y"][:], X)


def test_memory_is_bounded_by_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "KEPT_BYTES", 1 << 20)
    path, rows = tmp_path / "a.h5", 400
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", (rows, 1 << 15), "f4", chunks=(4, 1 << 15), compression="gzip")
        for low in range(0, rows, 100):
            made[low : low + 100] = low
    code = f"""
import resource, nandarray
from nandarray.interop import tables
from nandarray.interop.foreign import source
from nandarray.parts import dividing
source.KEPT_BYTES = dividing._UNIT_BYTES = 1 << 20
with nandarray.open({str(path)!r}) as store:
    x = store["x"]
    x[:4]; x[:4].sum(); x.reduce("sum", key=slice(0, 8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    total = sum(float(x[low : low + 4].sum()) for low in range(0, {rows}, 4))
    assert total == float(x.reduce("sum")) == {float(sum(range(0, rows, 100)) * 100 * (1 << 15))}
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not told.returncode, told.stderr
    assert int(told.stdout) < 30 << 10  # of 52 MB


# --- Far away ---------------------------------------------------------------------------------------------------------


def test_chunks_that_lie_together_are_one_request(made: Path) -> None:
    pytest.importorskip("obstore")
    with RangeServer(made) as server, nandarray.open(f"{server.url}/a.h5") as store:
        store["x"][0, 0]  # the index
        before = len(server.requests)
        np.testing.assert_array_equal(store["x"][32:], X[32:])
        assert len(server.requests) - before <= 2


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.zarr.zip", "a.zarr"])
def test_files_far_away_read_the_same(made: Path, name: str, tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    folder = tmp_path / "served"
    shutil.copytree(made, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the specification of Zarr 3 has none
        zarr.consolidate_metadata(folder / "a.zarr", zarr_format=3)
    with RangeServer(folder) as server, nandarray.open(f"{server.url}/{name}") as store:
        np.testing.assert_array_equal(store["x"][3:70:5, ::-1], X[3:70:5, ::-1])
        assert store["x"].reduce("sum") == X.sum(dtype="f8")
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(store["x"]))[5], X[5])
        with pytest.raises(nandarray.InvalidError, match="import_"):
            nandarray.open(f"{server.url}/{name}", "r+")
        with nandarray.open(tmp_path / "own.nand", "w") as own:
            nandarray.import_(f"{server.url}/{name}", own, "all")
            same(own["all"]["x"][...], X)
    with RangeServer(folder) as server, pytest.raises(nandarray.StoreMissingError, match=r"none\.h5"):
        nandarray.open(f"{server.url}/none.h5")


def test_chunks_far_away_that_are_too_large_are_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    from nandarray.interop.foreign import zarr_objects

    monkeypatch.setattr(zarr_objects, "_WHOLE_MOST", 1 << 20)
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    for name, more in (("whole", {}), ("sharded", {"shards": (800, 1000)})):
        array = root.create_array(name, shape=(800, 1000), chunks=(400, 1000), dtype="f8", compressors=None, **more)
        array[...] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the specification of Zarr 3 has none
        zarr.consolidate_metadata(tmp_path / "a.zarr", zarr_format=3)
    with RangeServer(tmp_path) as server, nandarray.open(f"{server.url}/a.zarr") as store:
        for name in ("whole", "sharded"):
            with pytest.raises(nandarray.CorruptError, match=f"{name}/c/0/0.* 1048576"):
                store[name][0]


def test_a_bucket_is_listed(made: Path) -> None:
    pytest.importorskip("moto")
    import obstore

    with s3() as bucket:
        for file in [*(made / "a.zarr").rglob("*"), made / "a.h5"]:
            if file.is_file():
                obstore.put(bucket, file.relative_to(made).as_posix(), file.read_bytes())
        for name in ("a.zarr", "a.h5"):
            with opening.open_far(f"s3://bucket/{name}", opening.far_format(name) or "", bucket) as store:
                assert [one for one in store.array_names() if "counts" in one] == ["g/counts"]
                np.testing.assert_array_equal(store["x"][...], X)


def test_an_object_that_is_replaced_is_an_error(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    shutil.copy(made / "a.h5", tmp_path / "a.h5")
    with RangeServer(tmp_path) as server, nandarray.open(f"{server.url}/a.h5") as store:
        assert store["x"][0, 0] == X[0, 0]
        with h5py.File(tmp_path / "a.h5", "r+") as file:
            file["x"][...] = 0
            file["more"] = X
        with pytest.raises(nandarray.ChangedError, match=r"a\.h5"):
            store["plain"][:]


# --- The command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.zarr"])
def test_commands_that_read_take_it(made: Path, name: str) -> None:
    from typer.testing import CliRunner

    for words, shown in ((["info"], "title: sky"), (["ls"], "x"), (["tree"], "120 x 90"), (["info", "x"], "unit: K")):
        told = CliRunner().invoke(app, [words[0], str(made / name), *words[1:]])
        assert told.exit_code == 0, told.output
        assert shown in told.output
    told = CliRunner().invoke(app, ["read", str(made / name), "x", "3, 4"])
    assert told.exit_code == 0, told.output
    assert float(told.output) == X[3, 4]
