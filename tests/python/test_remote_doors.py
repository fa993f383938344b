"""Programs, Dask, xarray, tables and joined arrays on a store far away, and the bytes that bands of it cost."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far_servers import RangeServer

import nandarray

pytest.importorskip("obstore")

ROWS = COLUMNS = 2048


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a store of arrays, and one of a dataset, a table and text."""
    folder = tmp_path_factory.mktemp("far")
    with nandarray.open(folder / "a.nand", "w") as store:
        store["grid"] = grid()
        store["long"] = np.arange(2_000_000, dtype=np.int64)
        store.create("packed", data=grid(), compression="lz4+shuffle")
    return folder


def grid() -> Any:
    return np.random.default_rng(8).random((ROWS, COLUMNS), dtype=np.float32)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_programs_run_beside_what_comes(made: Path, cache: Path) -> None:
    with RangeServer(made) as server, nandarray.open(f"{server.url}/a.nand", cache=cache) as there:
        assert there["long"].reduce("sum") == 1999999 * 1000000
        assert there["grid"].reduce("max") == grid().max()
        assert there["packed"].reduce("min") == grid().min()
        with nandarray.open(made / "a.nand") as here:
            for name in ("grid", "packed"):
                one, other = (store[name].reduce("mean") for store in (here, there))
                assert one == other


def test_dask_computes_over_it(made: Path, cache: Path) -> None:
    pytest.importorskip("dask")
    with RangeServer(made) as server, nandarray.open(f"{server.url}/a.nand", cache=cache) as there:
        lazy = nandarray.to_dask(there["grid"], chunks=(512, 700))
        assert lazy.name == nandarray.to_dask(there["grid"], chunks=(512, 700)).name
        np.testing.assert_allclose(lazy.mean(axis=0).compute(scheduler="threads"), grid().mean(axis=0), rtol=1e-5)
        two = lazy[:600].sum().compute(scheduler="processes", num_workers=1)
        np.testing.assert_allclose(two, grid()[:600].sum(), rtol=1e-4)


def test_snapshots_of_it_stay_apart_where_they_are_sent(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "b.nand", "w") as store:
        for turn in (1, 2, 3):
            store.require_array("x", (6,), "i4")[:] = turn
            store.snapshot(f"s{turn}")
    with RangeServer(tmp_path) as server, nandarray.open(f"{server.url}/b.nand", cache=tmp_path / "cache") as there:
        one, two = there.at("s1"), there.at("s2")
        lazy = nandarray.to_dask(two["x"]) - nandarray.to_dask(one["x"])
        assert lazy.sum().compute(scheduler="sync") == 6
        for sent in (two, nandarray.to_xarray(two)):
            again = pickle.loads(pickle.dumps(sent))["x"]
            assert np.asarray(again[:]).tolist() == [2] * 6


def test_xarray_opens_it(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    xr = pytest.importorskip("xarray")
    dataset = xr.Dataset({"t": (("y", "x"), grid()[:200, :300])}, {"x": np.arange(300) * 0.5}, {"title": "far"})
    nandarray.from_xarray(dataset, tmp_path / "d.nand")
    monkeypatch.setenv("NANDARRAY_CACHE", str(cache))
    with RangeServer(tmp_path) as server:
        url = f"{server.url}/d.nand"
        with xr.open_dataset(url, engine="nandarray") as there:
            xr.testing.assert_identical(there.load(), dataset)
        with nandarray.open(url) as store, xr.open_dataset(store, engine="nandarray", chunks={}) as lazy:
            assert float(lazy["t"].sel(x=slice(10, 20)).mean()) == pytest.approx(
                float(dataset["t"].sel(x=slice(10, 20)).mean()), rel=1e-6
            )


def test_tables_are_scanned_and_filtered(tmp_path: Path, cache: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from nandarray.interop import tables

    rows = pa.table({"n": pa.array(range(50_000)), "name": [f"row {n % 97}" for n in range(50_000)]})
    with nandarray.open(tmp_path / "t.nand", "w") as store:
        tables.create(store, "rows", rows)
    with RangeServer(tmp_path) as server, nandarray.open(f"{server.url}/t.nand", cache=cache) as there:
        table = tables.open_table(there, "rows")
        assert table.scan().read_all().equals(rows)
        assert table.count_rows(tables.col("n") >= 49_000) == 1000
        dataset = table.dataset()
        import pyarrow.dataset as ds

        found = dataset.to_table(filter=ds.field("n") < 10, columns=["name"])
        assert found["name"].to_pylist() == [f"row {n}" for n in range(10)]


def test_far_and_near_are_one_array(made: Path, cache: Path, tmp_path: Path) -> None:
    with (
        RangeServer(made) as server,
        nandarray.open(f"{server.url}/a.nand", cache=cache) as there,
        nandarray.open(tmp_path / "near.nand", "w") as here,
    ):
        here["grid"] = grid() + 1
        both = nandarray.concat([there["grid"], here["grid"]])
        np.testing.assert_array_equal(both[2000:2100, 5], np.concatenate([grid(), grid() + 1])[2000:2100, 5])
        here.copy(there["packed"], "taken")
        np.testing.assert_array_equal(here["taken"][...], grid())


@pytest.mark.parametrize("name", ["grid", "packed"])
def test_bands_fetch_little_else(made: Path, cache: Path, name: str) -> None:
    whole = grid()
    with nandarray.open(made / "a.nand") as here:
        block = here[name].building_block
        share = here.stat()["arrays"][name]["bytes_stored"] / whole.nbytes if name == "packed" else 1.0
    with RangeServer(made) as server:
        for index in ((slice(512, 1024), slice(None)), (slice(None), slice(512, 1024))):
            with nandarray.open(f"{server.url}/a.nand", cache=False) as there:
                array = there[name]
                array[0, 0]
                before, requests = server.sent, len(server.requests)
                np.testing.assert_array_equal(array[index], whole[index])
                needed = whole[index].nbytes * share
                assert server.sent - before <= 1.3 * needed, (block, (server.sent - before) / needed)
                assert len(server.requests) - requests <= 40


def test_bands_one_after_the_other_are_read_ahead(made: Path) -> None:
    with RangeServer(made) as server, nandarray.open(f"{server.url}/a.nand", cache=False) as there:
        array = there["grid"]
        for row in range(0, 512, 128):
            array[row : row + 128]
        deadline = time.monotonic() + 30
        while sum(end - first for _, _, first, end in list(server.requests)) < grid()[:640].nbytes:
            assert time.monotonic() < deadline, "the next band is on its way, before it is read"
            time.sleep(0.01)
        np.testing.assert_array_equal(array[512:640], grid()[512:640])
