"""Promise: what is open for reading pickles by path and name, and is opened again in the other process; what is open
for writing is there by a door of the process that writes, which ends with the store; what is encrypted or modelled says
why it does not leave its process. No pickle has a key in it."""

from __future__ import annotations

import copy
import importlib.util
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import nandarray
from nandarray.array.pickling import reopen_array

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
        assert copy.copy(store["g/a"])[0, 1] == 1
        with pytest.raises(TypeError, match="cannot be copied.*open for writing here"):
            copy.copy(store)
        with pytest.raises(TypeError, match="'secret' is encrypted, and its key stays in this process"):
            pickle.dumps(store.open_array("secret", encryption_key=KEY))
        assert store._door is None
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
    with nandarray.open(device="tiny", mode="w") as store, pytest.raises(TypeError, match="runs on a modelled device"):
        pickle.dumps(store)


def _fill(things: list[Any], row: int) -> int:
    """Write a row of each thing, as a task of a worker does; the last thing goes once more through pickle."""
    array, view, field, group = things
    array[row] = row
    view[60 + 10 * row : 70 + 10 * row] = 100 + row
    field[row] = row
    group.store[f"made/{row}"] = np.full(3, row)
    again = pickle.loads(pickle.dumps(group))
    again.store[f"made/{row}"].attrs["by"] = os.getpid()
    with pytest.raises(nandarray.BadIndexError, match="99"):
        array[99] = 0
    return os.getpid()


def _die(pickled: bytes) -> None:
    pickle.loads(pickled)[5] = -5
    os.kill(os.getpid(), signal.SIGKILL)


def test_other_processes_write_what_is_open_for_writing(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with nandarray.open(path, "r+") as store:
        store["wide"] = np.zeros((3, 40), "i8")
        things = [store["g/a"], store["wide"].view((120,)), store["s"]["y"], store["g"]]
        with context.Pool(2) as pool:
            assert os.getpid() not in pool.starmap(_fill, [(things, row) for row in range(4)])
        assert store["g/a"][:4].tolist() == [[row] * 10 for row in range(4)]
        assert store["wide"].view((120,))[60:100].tolist() == [100 + row // 10 for row in range(40)]
        assert store["s"]["y"][:].tolist() == [0, 1, 2, 3]
        assert sorted(store["made"]) == ["0", "1", "2", "3"]
        assert all(array.attrs["by"] != os.getpid() for array in store["made"].values())
        killed = context.Process(target=_die, args=(pickle.dumps(store["g/a"]),))
        killed.start()
        killed.join()
        assert killed.exitcode == -signal.SIGKILL
        assert store["g/a"][5, 0] == -5
        store["g/a"][5] = 5
    with nandarray.open(path) as store:
        assert store["g/a"][3:, 0].tolist() == [3, 40, 5]


def test_the_door_of_a_writer_is_its_own_and_ends_with_the_store(path: Path) -> None:
    store = nandarray.open(path, "r+")
    given = pickle.dumps(store["g/a"])
    assert pickle.loads(given).store is store
    assert store._door is not None
    address = store._door.address
    assert Path(address.socket).parent.stat().st_mode & 0o777 == 0o700
    elsewhere = replace(address, process=1)  # as if this were another process
    with reopen_array(elsewhere, "g/a").store as other:
        assert (other is store, other.mode, other["g/a"][0, 1]) == (False, "r+", 1)
        other["g/a"][0, 0] = 9
    again = reopen_array(elsewhere, "g/a")  # that was closed: another connection
    assert again.store is not other
    with pytest.raises(nandarray.DoorError, match="on far, and this process is on .*a store of parts"):
        reopen_array(replace(elsewhere, host="far"), "g/a")
    store.close()
    with pytest.raises(nandarray.NandarrayError):
        again[0, 0] = 1
    for gone in (address, elsewhere):
        with pytest.raises(nandarray.ClosedError, match="data.nand' is written by process .* has closed it"):
            reopen_array(gone, "g/a")
    assert not Path(address.socket).parent.exists()
    with nandarray.open(path) as store:
        assert store["g/a"][0, 0] == 9


def test_a_door_ends_with_a_store_that_is_not_closed(path: Path) -> None:
    store = nandarray.open(path, "r+")
    pickle.dumps(store["g/a"])
    assert store._door is not None
    socket = store._door.address.socket
    del store
    assert not Path(socket).parent.exists()
    nandarray.open(path, "r+").close()  # the lock is free


def _left(path: Path, pipe: Any) -> None:
    store = nandarray.open(path, "r+")
    pickle.dumps(store["g/a"])
    assert store._door is not None
    pipe.send(store._door.address.socket)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for temporary files whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="d") as made:
        yield Path(made)


def test_the_door_of_a_killed_process_is_removed_by_the_next(
    path: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    ours, theirs = multiprocessing.Pipe()
    killed = multiprocessing.get_context("fork").Process(target=_left, args=(path, theirs))
    killed.start()
    left = Path(ours.recv()).parent
    killed.join()
    assert left.parent == short
    assert left.exists()
    far = left.with_name("nandarray-door-of-another-machine")
    shutil.copytree(left, far, ignore=lambda *_: ["door"])
    os.link(left / "door", far / "door")  # there a process may listen, which cannot be seen from here
    with nandarray.open(path, "r+") as store, nandarray.open(path.with_name("other.nand"), "w") as other:
        other["x"] = [1]
        first, second = (pickle.dumps(one) for one in (store["g/a"], other["x"]))
        assert not left.exists()
        assert pickle.loads(first).store is store
        assert len(list(short.glob("nandarray-door-*/door"))) == 2 + 1
        assert (far / "door").exists()
        assert second


def _owner(path: Path, pipe: Any) -> None:
    """Write a file, fork a worker that writes, too, then a process that only lives on; and be killed."""
    store = nandarray.open(path, "r+")
    given = pickle.dumps(store["g/a"])
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    context.Process(target=_survivor, args=(given, theirs, pipe)).start()
    assert ours.poll(30)
    assert ours.recv() == "connected"
    later = context.Process(target=time.sleep, args=(30,))
    later.start()
    pipe.send(later.pid)
    os.kill(os.getpid(), signal.SIGKILL)


def _survivor(given: bytes, owner: Any, pipe: Any) -> None:
    array = pickle.loads(given)
    owner.send("connected")
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            array[0, 0] += 1
        except nandarray.ClosedError:
            break
    with pytest.raises(nandarray.ClosedError, match="has closed it or has ended"):
        pickle.loads(given)
    pipe.send("errors")


def test_a_killed_writer_is_seen_while_processes_that_it_forked_live(path: Path) -> None:
    ours, theirs = multiprocessing.Pipe()
    killed = multiprocessing.get_context("fork").Process(target=_owner, args=(path, theirs))
    killed.start()
    assert ours.poll(60)
    later = ours.recv()
    try:
        assert ours.poll(10)
        assert ours.recv() == "errors"
    finally:
        os.kill(later, signal.SIGKILL)
    killed.join(30)
    assert killed.exitcode == -signal.SIGKILL


def test_what_a_drive_serves_is_written_by_whoever_has_it(path: Path) -> None:
    with nandarray.open(path, "r+") as store, nandarray.serve(store) as server:
        with nandarray.open(server.url, "r+") as remote, multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply(_fill_one, (remote["g/a"],)) != os.getpid()
            with pytest.raises(nandarray.ReadOnlyError):
                pickle.loads(pickle.dumps(nandarray.open(server.url)["g/a"]))[0] = 1
        assert store["g/a"][0, 0] == 7


def _fill_one(array: Any) -> int:
    array[0] = 7
    return os.getpid()


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
