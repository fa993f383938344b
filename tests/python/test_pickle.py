"""Promise: what is open for reading pickles by path and name, and is opened again in the other process; what is open
for writing, encrypted or modelled says why it does not. No pickle has a key in it."""

from __future__ import annotations

import copy
import importlib.util
import multiprocessing
import os
import pickle
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import nandarray

KEY = bytes(range(32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with nandarray.open(tmp_path / "data.nand", "w") as store:
        store["g/a"] = np.arange(60).reshape(6, 10)
        store.create("s", 4, [("x", "i4"), ("y", "f8")])[...] = np.array([(i, i / 2) for i in range(4)], "i4,f8")
        store.create("secret", data=np.arange(5), encryption_key=KEY)
    return tmp_path / "data.nand"


def _total(thing: Any) -> float:
    return float(np.asarray(thing[...]).sum())


def _names(group: Any) -> list[str]:
    return sorted(group)


def test_spawned_processes_open_it_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with nandarray.open(path.name, "r", verify="always", threads=1) as store:
        array = store["g/a"]
        monkeypatch.chdir("/")  # the path was relative to another folder
        things = [array, array.view((10, 6)), array.astype("f4"), store["s"]["x"]]
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            assert pool.map(_total, things) == [1770, 1770, 1770, 6]
            assert pool.map(_names, [store, store["g"]]) == [["g", "s", "secret"], ["a"]]
        again = pickle.loads(pickle.dumps(store))
        assert again._opening == store._opening
        assert dict(again._opening[1])["verify"] == "always"
        again.close()
        assert copy.copy(array)[0, 1] == 1


def test_arrays_of_a_file_share_a_store_that_is_up_to_date(path: Path) -> None:
    with nandarray.open(path) as store:
        pickled = [pickle.dumps(store["g/a"]), pickle.dumps(store["s"])]
    first, second = map(pickle.loads, pickled)
    assert first.store is second.store
    with nandarray.open(path, "r+") as store:
        store["g/a"][0, 0] = 7
    assert pickle.loads(pickled[0])[0, 0] == 7
    first.store.close()
    assert pickle.loads(pickled[0])[0, 0] == 7
    os.replace(path, path.with_suffix(".old"))
    with nandarray.open(path, "w") as store:
        store["g/a"] = np.arange(3)
    assert pickle.loads(pickled[0]).shape == (3,)


def test_what_cannot_be_pickled_says_why(path: Path) -> None:
    with nandarray.open(path, "r+") as store:
        for thing in (store, store["g"], store["g/a"], store["g/a"].view((60,)), store["s"]["x"]):
            with pytest.raises(TypeError, match="one process writes a store; .* mode 'r'"):
                pickle.dumps(thing)
        assert copy.copy(store["g/a"])[0, 1] == 1
    with pytest.raises(nandarray.ClosedError, match="closed"):
        pickle.dumps(store)
    with nandarray.open(path) as store:
        secret = store.open_array("secret", encryption_key=KEY)
        with pytest.raises(TypeError, match="'secret' is encrypted, and its key stays in this process"):
            pickle.dumps(secret)
        assert KEY not in pickle.dumps(store)
        opened = pickle.loads(pickle.dumps(store))
        assert opened.open_array("secret", encryption_key=KEY)[4] == 4
        opened.close()
    with nandarray.open(device="tiny", mode="w") as store, pytest.raises(TypeError, match="open for writing"):
        pickle.dumps(store)


def test_no_key_in_a_lazy_dataset(path: Path) -> None:
    import xarray as xr

    from nandarray.interop.xarray.backend import NandarrayBackendEntrypoint as Engine

    with xr.open_dataset(path, engine=Engine, encryption_key=KEY, chunks={}) as dataset:
        again = pickle.loads(pickle.dumps(dataset[["s"]]))
        np.testing.assert_array_equal(again["s"].values["y"], np.arange(4) / 2)
        again.close()
        with pytest.raises(TypeError, match="'secret' is encrypted"):
            pickle.dumps(dataset["secret"].variable)


def test_dask_processes(path: Path) -> None:
    with nandarray.open(path) as store, dask.config.set(scheduler="processes", num_workers=2):
        direct = da.from_array(store["g/a"], chunks=(4, 3))
        assert direct.sum().compute() == 1770
        assert nandarray.to_dask(store["g/a"], chunks=(5, 5)).sum().compute() == 1770


def test_dask_distributed(path: Path) -> None:
    pytest.importorskip("distributed")
    from distributed import Client

    with nandarray.open(path) as store, Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        assert da.from_array(store["g/a"], chunks=(4, 3)).sum().compute(scheduler=client) == 1770


class _Rows:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, row: int) -> Any:
        return self.array[row]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make torch")
def test_spawning_data_loaders(path: Path) -> None:
    from torch.utils.data import DataLoader

    with nandarray.open(path) as store:
        rows: Any = _Rows(store["g/a"])
        loader = DataLoader(rows, batch_size=2, num_workers=2, multiprocessing_context="spawn")
        assert sum(int(batch.sum()) for batch in loader) == 1770


def test_attributes_do_not_pickle_and_say_how_to(path: Path) -> None:
    with nandarray.open(path) as store, pytest.raises(TypeError, match=r"dict\(attrs\)"):
        pickle.dumps(store["g/a"].attrs)


def test_an_array_whose_file_is_gone(path: Path) -> None:
    with nandarray.open(path) as store:
        pickled = pickle.dumps(store["g/a"])
    path.unlink()
    with pytest.raises(nandarray.StoreMissingError):
        pickle.loads(pickled)
