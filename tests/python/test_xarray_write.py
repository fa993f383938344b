"""Promise: appends, regions and overwriting of whole datasets are there with every variable, or not there; values are
encoded as the store has them, or refused by name; and ``encoding`` is obeyed or refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr.codecs
from hypothesis import given, settings
from hypothesis import strategies as st

import nandarray
from nandarray import InvalidError, from_xarray
from nandarray._nandarray import Transaction
from nandarray.interop.xarray.backend import NandarrayBackendEntrypoint

ENGINE: Any = NandarrayBackendEntrypoint
START = np.datetime64("2001-01-01", "ns")


def weather(first: int, days: int, *, lats: int = 4) -> xr.Dataset:
    """Return a number of days; every value tells its place."""
    day = np.arange(first, first + days)
    values = day[:, None, None] + np.arange(lats)[:, None] / 8 + np.arange(6) / 64
    return xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), values.astype("f4"), {"units": "K"}),
            "packed": (("lat", "time"), day[None, :] + np.arange(lats)[:, None] * 100.0),
            "rain": ("time", day % 3 == 0),
            "word": ("time", np.array([f"d{number % 10}" for number in day])),
        },
        coords={
            "time": START + day.astype("m8[D]").astype("m8[ns]"),
            "lat": np.linspace(-60, 60, lats),
            "lon": np.arange(6.0),
            "height": 2.0,
        },
    )


PACKED: dict[str, Any] = {
    "packed": {"dtype": "i2", "scale_factor": 0.5, "add_offset": 10.0, "_FillValue": -32768, "compression": "lz4"},
    "t2m": {"building_block": (5, 3, 4)},
    "time": {"dtype": "i4", "units": "days since 2000-01-01"},
}


def read(store: Any, group: str | None = None) -> xr.Dataset:
    with xr.open_dataset(store, engine=ENGINE, group=group) as opened:
        return opened.load()


def names(store: nandarray.Store) -> list[str]:
    return store._engine.names()


@pytest.mark.parametrize("lazy", [False, True])
def test_an_append_is_encoded_as_the_store_is(store: nandarray.Store, lazy: bool) -> None:  # noqa: FBT001
    from_xarray(weather(0, 7), store, encoding=PACKED)
    for first, days in ((7, 1), (8, 12), (20, 3)):
        more = weather(first, days)
        more["packed"] = more["packed"].transpose("time", "lat")
        from_xarray(more.chunk({"time": 5, "lat": 3}) if lazy else more, store, append_dim="time")
    xr.testing.assert_identical(read(store), weather(0, 23))
    assert store["time"].dtype == np.dtype("i4")
    assert store["packed"].dtype == np.dtype("i2")
    assert store.check()["ok"]
    assert not [name for name in names(store) if name.startswith("__")]


def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(store: nandarray.Store) -> None:
    from_xarray(weather(0, 5), store, encoding=PACKED)
    before = read(store)
    hours = weather(5, 2).assign_coords(time=weather(5, 2)["time"] + np.timedelta64(1, "h"))
    wrong: list[tuple[xr.Dataset, str]] = [
        (weather(5, 2, lats=3), "variable 't2m' has 3 elements along dimension 'lat', and 4"),
        (weather(5, 2).drop_vars("rain"), "dimension 'time' would have 7 elements in variable '.*', and 5 in 'rain'"),
        (weather(5, 2).assign(new=("time", [1, 2])), "dimension 'time' would have"),
        (weather(5, 2).assign_coords(lat=[1.0, 2, 3, 4]), "variable 'lat' has no dimension 'time' and is not what"),
        (hours, "variable 'time' is stored as int32 'days since 2000-01-01'"),
        (weather(5, 2).assign(packed=weather(5, 2)["packed"] + 1e6), "variable 'packed' has values from"),
        (weather(5, 2).assign(packed=weather(5, 2)["packed"] + np.inf), "variable 'packed' has an infinite"),
        (weather(5, 2).assign(t2m=weather(5, 2)["t2m"].assign_attrs(units="degC")), "units='degC'"),
        (weather(5, 2).assign(word=("time", ["longer", "text"])), "variable 'word' has text of 6 characters"),
        (weather(5, 2).assign(rain=("time", ["a", "b"])), "variable 'rain' is of dtype .* bool"),
        (weather(5, 2).assign_coords(time=[5, 6]), "variable 'time' has numbers without units"),
    ]
    for dataset, why in wrong:
        for one in (dataset, dataset.chunk()):
            with pytest.raises(InvalidError, match=why):
                from_xarray(one, store, append_dim="time")
    with pytest.raises(InvalidError, match="append_dim='tme' is no dimension of the dataset"):
        from_xarray(weather(5, 2), store, append_dim="tme")
    with pytest.raises(InvalidError, match="'t2m' is in the store, and keeps its encoding"):
        from_xarray(weather(5, 2), store, append_dim="time", encoding={"t2m": {"dtype": "f8"}})
    with pytest.raises(InvalidError, match="must have mode 'a'"):
        from_xarray(weather(5, 2), store, append_dim="time", mode="w")
    xr.testing.assert_identical(read(store), before)
    assert not [name for name in names(store) if name.startswith("__")]
    integers = xr.Dataset({"x": ("n", np.arange(3, dtype="i2"))})
    from_xarray(integers, store, group="i")
    with pytest.raises(InvalidError, match="variable 'x', stored as .*, must have whole values, not 0.5"):
        from_xarray(xr.Dataset({"x": ("n", [0.5])}), store, group="i", append_dim="n")
    with pytest.raises(InvalidError, match="variable 'x' has values from 70000 to 70000"):
        from_xarray(xr.Dataset({"x": ("n", [70000])}), store, group="i", append_dim="n")


def test_a_transaction_takes_arrays_of_its_own_store_only(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store, nandarray.open(tmp_path / "b.nand", "w") as other:
        wide, narrow = store.create("x", (4,), "f8"), other.create("x", (4,), "u1")
        transaction = Transaction(store._engine, [(wide._space, [4])])
        with pytest.raises(nandarray.InvalidError, match="its own store"):
            transaction.write(narrow._space, np.ones(4, "u1"), [0])
        with pytest.raises(nandarray.InvalidError, match="its own store"):
            Transaction(store._engine, [(narrow._space, [4])])
        transaction.write(wide._space, np.ones(4), [0])
        transaction.apply()
        assert (wide[:] == 1).all()


def test_modes(tmp_path: Path, store: nandarray.Store) -> None:
    from_xarray(weather(0, 3), store, group="g")
    store["g/below/more"] = np.arange(3)
    with pytest.raises(nandarray.ExistsError, match="already has"):
        from_xarray(weather(0, 3), store, group="g", mode="x")
    changed = weather(0, 3).assign_coords(lat=[1.0, 2, 3, 4], height=3.0)
    from_xarray(changed, store, group="g", mode="a")
    xr.testing.assert_identical(read(store, "g"), changed)
    from_xarray(weather(3, 2).assign_coords(height=9.0), store, group="g", mode="a-", append_dim="time")
    assert read(store, "g")["height"] == 3.0
    assert read(store, "g").sizes["time"] == 5
    from_xarray(changed.isel(time=[0, 1, 2, 1, 0]).drop_vars("word"), store, group="g", mode="r+")
    assert read(store, "g")["t2m"].values[3, 0, 0] == 1
    with pytest.raises(InvalidError, match="'g/other'; mode 'r\\+' makes no variables"):
        from_xarray(xr.Dataset({"other": 1}), store, group="g", mode="r+")
    # A dataset that is read from what it replaces.
    again = xr.open_dataset(store, engine=ENGINE, group="g", chunks={})[["t2m"]] * 2  # type: ignore[arg-type]
    wanted = again.compute()
    from_xarray(again, store, group="g", mode="w")
    xr.testing.assert_identical(read(store, "g"), wanted)
    assert "g/below" not in store
    assert "g/word" not in store
    with pytest.raises(FileNotFoundError):
        from_xarray(changed, tmp_path / "none.nand", mode="r+")
    with pytest.raises(InvalidError, match="holds Python objects"):
        from_xarray(xr.Dataset({"o": ("n", np.array([b"x", 3], object))}), tmp_path / "none.nand")
    assert not (tmp_path / "none.nand").exists()
    from_xarray(changed, tmp_path / "none.nand", append_dim="time")
    xr.testing.assert_identical(read(tmp_path / "none.nand"), changed)


def test_regions(store: nandarray.Store) -> None:
    whole = weather(0, 9)
    from_xarray(whole, store, encoding=PACKED)
    part = weather(0, 9).isel(time=slice(3, 7), lat=slice(1, 3))[["t2m", "packed"]] + 1
    expected = whole.copy(deep=True)
    for name in ("t2m", "packed"):
        expected[name][{"time": slice(3, 7), "lat": slice(1, 3)}] = part[name]
    part = part.drop_vars("height")
    from_xarray(part.drop_vars("lon"), store, region={"time": slice(3, 7), "lat": slice(1, -1)})
    np.testing.assert_array_equal(read(store)["t2m"], expected["t2m"])
    np.testing.assert_array_equal(read(store)["packed"], expected["packed"])
    from_xarray((part + 1).chunk({"time": 3}), store, region="auto")
    np.testing.assert_array_equal(read(store)["t2m"].isel(time=slice(3, 7), lat=slice(1, 3)), part["t2m"] + 1)
    refused: list[tuple[Any, xr.Dataset, str]] = [
        (
            {"time": slice(3, 6), "lat": slice(1, 3)},
            part,
            "region 3:6 of dimension 'time' has 3 elements, the dataset 4",
        ),
        ({"time": slice(7, 11), "lat": slice(1, 3)}, part, "region 7:11 of dimension 'time' lies outside"),
        ({"time": slice(2, 6), "lat": slice(1, 3)}, part, "coordinate 'time' of the dataset is not what the store has"),
        ({"time": slice(0, 8, 2)}, part, "step 2"),
        ({"x": slice(0, 8)}, part, "'x', which is no dimension"),
        ({"time": slice(3, 7)}, part, "2 elements along dimension 'lat', and 4|coordinate 'lat'"),
        ({"time": slice(3, 7)}, weather(3, 4), "'height' has none of the region's dimensions"),
        ("auto", part.assign_coords(lat=[5.0, 6.0]), "dimension 'lat': the store has no label 5.0"),
        ("auto", part.isel(time=[0, 2, 1, 3]), "dimension 'time': the labels of the dataset do not follow"),
    ]
    before = read(store)
    for region, dataset, why in refused:
        with pytest.raises(InvalidError, match=why):
            from_xarray(dataset, store, region=region)
    xr.testing.assert_identical(read(store), before)


KILLED = """
import os, signal, sys
import dask.array as da, numpy as np, xarray as xr, nandarray
sys.path.insert(0, {tests!r})
from test_xarray_write import weather
more = weather(5, 40)
left = [{after}]

def dying(block):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return block

data = more["t2m"].chunk(time=3, lat=3).data.map_blocks(dying, dtype="f4", meta=np.empty((0, 0, 0), "f4"))
more["t2m"] = (more["t2m"].dims, data, more["t2m"].attrs)
with nandarray.open("data.nand", "r+") as store:
    nandarray.from_xarray(more, store, {how})
"""


@pytest.mark.parametrize("how", ["append_dim='time'", "group='g', mode='w'", "mode='w'"])
@pytest.mark.parametrize("after", [1, 14])
def test_a_killed_process_leaves_all_or_nothing(tmp_path: Path, how: str, after: int) -> None:
    from_xarray(weather(0, 5), tmp_path / "data.nand", encoding=PACKED)
    from_xarray(weather(0, 2), tmp_path / "data.nand", group="g")
    program = textwrap.dedent(KILLED).format(tests=os.path.dirname(__file__), after=after, how=how)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    xr.testing.assert_identical(read(tmp_path / "data.nand"), weather(0, 5))
    xr.testing.assert_identical(read(tmp_path / "data.nand", "g"), weather(0, 2))
    with nandarray.open(tmp_path / "data.nand", "r+") as store:
        assert store.check()["ok"]
        from_xarray(weather(5, 4), store, append_dim="time")
        assert not [name for name in names(store) if name.startswith("__")], "what the killed process left"
    xr.testing.assert_identical(read(tmp_path / "data.nand"), weather(0, 9))


def test_appends_and_regions_from_many_threads(store: nandarray.Store) -> None:
    from_xarray(weather(0, 1)[["t2m"]].drop_vars(["lat", "lon", "height"]), store)
    failed: list[BaseException] = []

    def grow(number: int) -> None:
        try:
            for turn in range(4):
                days = weather(10 * number + turn, 1 + number % 2)[["t2m"]].drop_vars(["lat", "lon", "height"])
                from_xarray(days, store, append_dim="time")
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=grow, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    back = read(store)
    assert back.sizes["time"] == 1 + 4 * (1 + 2 + 1 + 2)
    days = (back["time"].values - START).astype("m8[D]").astype(int)
    np.testing.assert_array_equal(back["t2m"].values[:, 0, 0], days)


def test_an_append_of_another_kind_waits_for_its_turn(store: nandarray.Store) -> None:
    from_xarray(xr.Dataset({"x": ("n", np.arange(4))}), store)
    other = threading.Thread(target=lambda: store["x"].append([100]), daemon=True)

    def meanwhile(block: Any) -> Any:
        if block.size and not other.ident:
            other.start()
            while store._lock._lock.acquire(blocking=False):  # until the other thread has it, and waits for the array
                store._lock._lock.release()
        return block

    slow = da.arange(4, 8, chunks=4).map_blocks(meanwhile, dtype="i8", meta=np.empty(0, "i8"))
    more = xr.Dataset({"x": ("n", slow), "new": ("m", np.arange(3))}, attrs={"new": 1})
    writer = threading.Thread(target=from_xarray, args=(more, store), kwargs={"append_dim": "n"}, daemon=True)
    writer.start()
    writer.join(60)
    other.join(60)
    assert not writer.is_alive()
    assert not other.is_alive()
    assert store["x"][...].tolist() == [*range(8), 100]
    assert store["new"][...].tolist() == [0, 1, 2]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_chunks_that_cut_blocks_anywhere(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    shape = tuple(data.draw(st.integers(1, 23)) for _ in range(2))
    block = tuple(data.draw(st.integers(1, 9)) for _ in range(2))
    compression = data.draw(st.sampled_from([None, "lz4", "zstd+shuffle"]))

    def chunks(length: int) -> tuple[int, ...]:
        cuts = data.draw(st.sets(st.integers(1, length - 1))) if length > 1 else set()
        return tuple(np.diff([0, *sorted(cuts), length]).tolist())

    path = tmp_path_factory.mktemp("chunks") / "data.nand"
    values = rng.integers(1, 2**31, shape, "i4")
    cut = da.from_array(values, chunks=tuple(map(chunks, shape)))
    with nandarray.open(path, "w") as store, dask.config.set(scheduler="threads", num_workers=8):
        target = store.create("a", shape, "i4", building_block=block, compression=compression)
        da.store(cut, target, lock=False)
        np.testing.assert_array_equal(target[...], values)
        nandarray.from_dask(cut, store, "b", building_block=block, compression=compression, rechunk=False)
        np.testing.assert_array_equal(store["b"][...], values)
        dataset = xr.Dataset({"x": (("u", "v"), cut), "y": ("u", cut[:, 0])})
        options: dict[str, Any] = {"building_block": block, "compression": compression}
        split = data.draw(st.integers(1, shape[0]))
        from_xarray(dataset.isel(u=slice(split)), store, group="g", encoding={"x": options})
        if split < shape[0]:
            from_xarray(dataset.isel(u=slice(split, None)), store, group="g", append_dim="u")
        np.testing.assert_array_equal(store["g/x"][...], values)
        np.testing.assert_array_equal(store["g/y"][...], values[:, 0])
    with nandarray.open(path) as store:
        assert store.check()["ok"]
        np.testing.assert_array_equal(store["a"][...], values)


def test_other_processes_compute_and_this_one_writes(store: nandarray.Store) -> None:
    cut = da.arange(60, chunks=7).reshape(6, 10).rechunk((4, 3))
    target = store.create("a", (6, 10), "i8", building_block=(3, 4))
    with dask.config.set(scheduler="processes", num_workers=2):
        da.store(cut, target, lock=False)  # they write by a door of this process
        from_xarray(xr.Dataset({"x": (("u", "v"), cut)}), store, building_block=(3, 4))
    for name in ("a", "x"):
        np.testing.assert_array_equal(store[name][...], np.arange(60).reshape(6, 10))


def test_a_failing_task_leaves_nothing(store: nandarray.Store) -> None:
    from_xarray(xr.Dataset({"x": ("n", np.arange(10)), "y": ("n", np.arange(10))}), store)

    def fails(block: Any) -> Any:
        if block.size and block[0] >= 15:
            raise RuntimeError("a task fails")
        return block

    more = da.arange(10, 20, chunks=2)
    broken = more.map_blocks(fails, dtype=more.dtype, meta=np.empty(0, more.dtype))
    with pytest.raises(RuntimeError, match="a task fails"):
        from_xarray(xr.Dataset({"x": ("n", more), "y": ("n", broken)}), store, append_dim="n")
    assert store["x"].shape == store["y"].shape == (10,)
    from_xarray(xr.Dataset({"x": ("n", more), "y": ("n", more)}), store, append_dim="n")
    np.testing.assert_array_equal(store["y"][...], np.arange(20))


def test_encoding_is_obeyed_or_refused(store: nandarray.Store) -> None:
    dataset = xr.Dataset({"a": (("y", "x"), np.arange(48.0).reshape(6, 8)), "b": ("x", np.arange(8))})
    obeyed: list[tuple[dict[str, Any], tuple[int, ...] | None, str | None]] = [
        ({"chunks": (2, 4)}, (2, 4), None),
        ({"chunksizes": (3, 8), "zlib": True, "complevel": 2, "shuffle": False}, (3, 8), "zstd:2"),
        ({"zlib": True}, None, "zstd:4+shuffle"),
        ({"zlib": False, "fletcher32": True, "contiguous": False, "filters": None}, None, None),
        ({"compressor": numcodecs.Zstd(level=5)}, None, "zstd:5"),
        ({"compressor": numcodecs.LZ4()}, None, "lz4"),
        ({"compressor": numcodecs.Blosc("zstd", 3, numcodecs.Blosc.BITSHUFFLE)}, None, "zstd:3+bitshuffle"),
        ({"compressors": (zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle"),)}, None, "lz4+shuffle"),
        ({"compressors": zarr.codecs.ZstdCodec(level=7)}, None, "zstd:7"),
        ({"compressor": None}, None, None),
        ({"compression": "lz4", "building_block": (2, 2), "dtype": "f4", "_FillValue": -1.0}, (2, 2), "lz4"),
    ]
    for number, (wishes, block, compression) in enumerate(obeyed):
        from_xarray(dataset, store, group=f"g{number}", encoding={"a": wishes})
        array = store[f"g{number}/a"]
        assert block is None or array.building_block == block, wishes
        assert array.compression == compression, wishes
        np.testing.assert_array_equal(array[...], dataset["a"])
    refused: list[tuple[dict[str, Any], str]] = [
        ({"chunk": (2, 4)}, "encoding of 'a' has 'chunk'; what is obeyed is dtype, _FillValue"),
        ({"chunks": (2,)}, "blocks of 2 dimensions, not of shape \\(2,\\)"),
        ({"chunks": (2, 4), "building_block": (2, 2)}, "different blocks"),
        ({"zlib": True, "compression": "lz4"}, "different compression"),
        ({"complevel": 4}, "nothing that compresses"),
        ({"compressor": numcodecs.Zlib()}, "has no like here"),
        ({"filters": [numcodecs.Delta("f8")]}, "filters are not applied"),
        ({"contiguous": True}, "stored in building blocks"),
        ({"compression": "gzip"}, "gzip"),
        ({"dtype": "i1", "scale_factor": 0.1}, "variable 'a' has values from 0.0 to 47.0"),
    ]
    for wishes, why in refused:
        with pytest.raises(InvalidError, match=why):
            from_xarray(dataset, store, group="refused", encoding={"a": wishes})
    assert "refused" not in store
    from_xarray(dataset, store, group="all", zlib=True, chunks=(2, 4))
    assert store["all/b"].compression == "zstd:4+shuffle"
    assert store["all/a"].building_block == (2, 4)


LARGE = """
import resource
import dask, dask.array as da, numpy as np, xarray as xr, nandarray

def dataset(rows):
    data = da.ones((rows, 1024, 1024), "f4", chunks=(2, 1000, 1024)) * 3
    return xr.Dataset({"x": (("t", "v", "w"), data), "y": ("t", np.arange(rows))})

with nandarray.open("data.nand", "w") as store, dask.config.set(scheduler="threads", num_workers=2):
    nandarray.from_xarray(dataset(3), store)
    nandarray.from_xarray(dataset(4), store, append_dim="t")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    nandarray.from_xarray(dataset(80), store, append_dim="t")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert (store["x"][85, ::300, ::300] == 3).all()
"""


def test_a_lazy_append_takes_bounded_memory(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LARGE], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 150 << 10, f"{done.stdout} KiB more for 320 MiB"


@pytest.mark.parametrize("where", [slice("a", "b"), slice(0.0, 2.0), slice(None, 2.5)])
def test_regions_are_of_integers(tmp_path: Path, where: slice) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        from_xarray(xr.Dataset({"x": ("time", [1, 2])}), store)
        with pytest.raises(InvalidError, match="slice of integers"):
            from_xarray(xr.Dataset({"x": ("time", [3, 4])}), store, region={"time": where})
        assert store["x"][:].tolist() == [1, 2]


@pytest.mark.parametrize("fill", ["X", ""])
def test_missing_text_is_missing_when_it_is_read(store: nandarray.Store, fill: str) -> None:
    def text(*values: Any) -> xr.Dataset:
        return xr.Dataset({"s": ("x", np.array(values, object))})

    with pytest.raises(nandarray.InvalidError, match="'s' holds Python objects"):
        nandarray.from_xarray(text("ab", None), store)
    nandarray.from_xarray(text("ab", "cd", None), store, encoding={"s": {"_FillValue": fill}})
    nandarray.from_xarray(text(np.nan, "ef"), store, append_dim="x")
    found = read(store).s.values
    assert [one if isinstance(one, str) else None for one in found] == ["ab", "cd", None, None, "ef"]
    for write in ({"append_dim": "x"}, {"mode": "w"}):
        with pytest.raises(nandarray.InvalidError, match="'s' has the text 'a.x00', which ends with NUL"):
            nandarray.from_xarray(text("a\0"), store, **write)


@pytest.mark.parametrize("scale", [0.1, np.float32(0.1), np.float64(0.1)], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_an_append_packs_to_the_bit_as_a_first_write_does(tmp_path: Path, scale: Any, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for kind in ("f2", "f4", "f8", "i4"):
        data = xr.Dataset({"t": ("x", (rng.random(2000) * 1000).astype(kind))})
        for more in ({}, {"_FillValue": -9}, {"add_offset": np.float32(0.3)}, {"add_offset": 0.5}):
            if dtype == "int16":
                more = {"_FillValue": -9, **more}
            packed = {"t": {"dtype": dtype, "scale_factor": scale, **more}}
            nandarray.from_xarray(data, tmp_path / "once.nand", mode="w", encoding=packed)
            nandarray.from_xarray(data[{"x": slice(0, 900)}], tmp_path / "twice.nand", mode="w", encoding=packed)
            rest = data[{"x": slice(900, 2000)}]
            nandarray.from_xarray(rest.chunk({"x": 300}), tmp_path / "twice.nand", append_dim="x")
            with nandarray.open(tmp_path / "once.nand") as once, nandarray.open(tmp_path / "twice.nand") as twice:
                assert once["t"][:].tobytes() == twice["t"][:].tobytes()


@pytest.mark.parametrize(
    ("encoding", "says"),
    [
        ({"dtype": "int8", "_FillValue": 300}, "_FillValue .*300.* is not held by int8, whose values are -128 to 127"),
        ({"dtype": "int8", "_FillValue": np.int64(300)}, "_FillValue"),
        ({"dtype": "int8", "_FillValue": -1, "missing_value": 300}, "missing_value"),
        ({"dtype": "uint8", "_FillValue": -1}, "0 to 255"),
        ({"dtype": "int16", "_FillValue": -1, "fill_value": 70000}, "fill_value 70000 is not held by int16"),
    ],
)
def test_a_fill_value_out_of_range_is_refused(store: nandarray.Store, encoding: dict[str, Any], says: str) -> None:
    data = xr.Dataset({"t": ("x", np.arange(3.0))})
    with pytest.raises(nandarray.InvalidError, match=says):
        nandarray.from_xarray(data, store, encoding={"t": encoding})
    assert names(store) == []


def test_types_of_a_groups_attributes_are_merged(store: nandarray.Store) -> None:
    nandarray.from_xarray(xr.Dataset(attrs={"a": np.float32(1), "b": np.int16(2)}), store)
    nandarray.from_xarray(xr.Dataset(attrs={"b": "text", "c": np.int8(3)}), store, mode="a")
    found = read(store).attrs
    assert [type(found[name]) for name in "abc"] == [np.float32, str, np.int8]


FAULTS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"attrs": {"a": object()}}, {}, "attribute 'a' of variable 'v' cannot be stored"),
    ({}, {"dtype": "zz"}, "variable 'v' of group '/' cannot be encoded by xarray: data type 'zz'"),
    ({}, {"scale_factor": "x", "dtype": "i2"}, "variable 'v' of group '/' cannot be encoded.*convert string"),
    ({"attrs": {"_FillValue": 3}}, {"_FillValue": 5}, "variable 'v' of group '/' cannot be encoded.*'_FillValue'"),
]


@pytest.mark.parametrize(("given", "encoding", "said"), FAULTS, ids=[said for *_, said in FAULTS])
def test_an_error_of_xarray_names_the_variable(
    given: dict[str, Any], encoding: dict[str, Any], said: str, store: nandarray.Store
) -> None:
    dataset = xr.Dataset({"good": ("x", np.arange(3.0)), "v": ("x", np.arange(3.0), given.get("attrs", {}))})
    with pytest.raises(InvalidError, match=said):
        from_xarray(dataset, store, encoding={"v": encoding})
    assert list(store) == []


def test_what_is_no_dataset_is_refused_and_what_is_not_decoded_is_named(store: nandarray.Store) -> None:
    numbered = xr.Dataset({5: ("x", [1])})
    for what, said in (("x", "not a str"), (None, "not a NoneType"), (numbered, "5 cannot be the name")):
        with pytest.raises(InvalidError, match=said):
            from_xarray(what, store)  # type: ignore[arg-type]
    store.create("g/good", 3, attrs={"_ARRAY_DIMENSIONS": ["x"]})
    store.create("g/time", 3, "i8", attrs={"units": "days since foo", "_ARRAY_DIMENSIONS": ["time"]})
    with pytest.raises(InvalidError, match=r"variable 'time' of .*, group 'g' cannot be decoded by xarray: .*foo"):
        xr.open_dataset(store, engine=ENGINE, group="g")
    assert list(xr.open_dataset(store, engine=ENGINE, group="g", decode_times=False)) == ["good"]
