"""Dask reads stores and writes into them, along building blocks, from threads and from processes."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nandarray
from nandarray.index.shapes import aligned_chunks


def filled(store: nandarray.Store, shape: tuple[int, ...] = (100, 90), block: tuple[int, ...] = (16, 16)) -> Any:
    array = store.create("a", shape, "f8", building_block=block)
    array[...] = np.arange(np.prod(shape)).reshape(shape)
    return array


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
@pytest.mark.parametrize("inline_array", [False, True])
def test_reads_what_is_stored(store: nandarray.Store, scheduler: str, *, inline_array: bool) -> None:
    array = filled(store)
    lazy = nandarray.to_dask(array, chunks=(32, 45), inline_array=inline_array)
    assert (lazy.shape, lazy.dtype, lazy.chunksize) == (array.shape, array.dtype, (32, 45))
    data = array[...]
    with dask.config.set(scheduler=scheduler):
        np.testing.assert_array_equal(lazy.compute(), data)
        np.testing.assert_array_equal((lazy.T + 1)[::-2, 5:].compute(), (data.T + 1)[::-2, 5:])
        np.testing.assert_array_equal(lazy[[3, 1, 7]].compute(), data[[3, 1, 7]])
        assert lazy.sum().compute() == data.sum()


def test_chunks_are_whole_blocks_of_a_good_size(store: nandarray.Store) -> None:
    big = store.create("big", (100_000, 100_000), "f4", building_block=(512, 1024))
    chunk = nandarray.to_dask(big).chunksize
    assert chunk[0] % 512 == 0
    assert chunk[1] % 1024 == 0
    assert 32 << 20 <= 4 * chunk[0] * chunk[1] <= 96 << 20
    assert nandarray.to_dask(filled(store)).numblocks == (1, 1)
    assert nandarray.to_dask(store.create("scalar", (), "f4")).compute() == 0
    assert nandarray.to_dask(store.create("empty", (0, 3), "f4")).compute().shape == (0, 3)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 2000)), max_size=4), st.sampled_from([1, 4, 16]))
def test_aligned_chunks_are_blocks_or_the_whole_axis(axes: list[tuple[int, int]], itemsize: int) -> None:
    shape, block = [n for n, _ in axes], [b for _, b in axes]
    chunk = aligned_chunks(shape, block, itemsize, limit=1 << 20)
    smallest = np.prod([min(max(1, n), b) for n, b in axes], dtype=float)
    assert np.prod(chunk, dtype=float) * itemsize <= max(1 << 20, smallest * itemsize)
    assert all(c % b == 0 or c == max(1, n) for c, n, b in zip(chunk, shape, block, strict=True))


def test_names_are_functions_of_what_cannot_change(tmp_path: Path, store: nandarray.Store) -> None:
    array = filled(store)
    assert nandarray.to_dask(array).name != nandarray.to_dask(array).name
    store.close()
    with nandarray.open(tmp_path / "data.nand") as fixed:
        first = nandarray.to_dask(fixed["a"]).name
        assert nandarray.to_dask(fixed["a"]).name == first
    with nandarray.open(tmp_path / "data.nand", "r+") as changing:
        changing["a"][0] = -1
    with nandarray.open(tmp_path / "data.nand") as changed:
        assert nandarray.to_dask(changed["a"]).name != first


def test_other_processes_open_the_store_again(store: nandarray.Store) -> None:
    array = filled(store)
    lazy = nandarray.to_dask(array, chunks=(50, 45))
    again = pickle.loads(pickle.dumps(lazy))
    np.testing.assert_array_equal(again.compute(scheduler="sync"), array[...])
    array[...] = 7  # the pickle below carries the flush with it
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(lazy)).compute(scheduler="sync"), array[...])


def test_real_worker_processes(store: nandarray.Store) -> None:
    lazy = nandarray.to_dask(filled(store), chunks=(50, 90))
    with dask.config.set(scheduler="processes", num_workers=1):
        out = nandarray.from_dask(lazy + 1, store, "out")
    np.testing.assert_array_equal(out[...], store["a"][...] + 1)


def test_an_encrypted_array_does_not_leave_the_process(store: nandarray.Store) -> None:
    array = store.create("secret", (10,), "f4", encryption_key=bytes(32))
    lazy = nandarray.to_dask(array)
    assert lazy.sum().compute(scheduler="threads") == 0
    with pytest.raises(TypeError, match="encrypted"):
        pickle.dumps(lazy)


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
@pytest.mark.parametrize("chunks", [(32, 32), (30, 90), (7, 11), (-1, -1)])
def test_writes_what_is_computed(store: nandarray.Store, scheduler: str, chunks: Any) -> None:
    data = np.arange(100 * 90.0).reshape(100, 90)
    lazy = da.from_array(data, chunks=chunks)  # type: ignore[no-untyped-call]
    with dask.config.set(scheduler=scheduler):
        array = nandarray.from_dask(lazy + 1, store, "g/out", building_block=(16, 16), attrs={"u": "K"})
    assert array.name == "g/out"
    assert array.attrs["u"] == "K"
    np.testing.assert_array_equal(array[...], data + 1)


def test_rechunks_only_where_a_boundary_cuts_a_block(store: nandarray.Store) -> None:
    from nandarray.interop.dask import _aligned

    fits = da.zeros((100, 90), chunks=((32, 16, 52), (48, 42)))
    assert _aligned(fits, (16, 16)) is fits
    assert _aligned(da.zeros((100, 90), chunks=(30, 48)), (16, 16)).chunks == ((32, 32, 32, 4), (48, 42))
    off = da.ones((100, 90), chunks=(30, 48))
    np.testing.assert_array_equal(
        nandarray.from_dask(off, store, "off", building_block=(16, 16), rechunk=False)[...], np.ones((100, 90))
    )


def _elsewhere(graph: Any, keys: Any, **options: Any) -> Any:
    """Stand for a scheduler of other processes: what goes there is pickled."""
    import cloudpickle
    from dask.local import get_sync

    return get_sync(cloudpickle.loads(cloudpickle.dumps(graph)), keys, **options)


def test_writes_from_this_process_whatever_the_scheduler(store: nandarray.Store) -> None:
    lazy = nandarray.to_dask(filled(store), chunks=(32, 32)) * 2
    with dask.config.set(scheduler=_elsewhere):
        out = nandarray.from_dask(lazy, store, "out", building_block=(16, 16))
    np.testing.assert_array_equal(out[...], store["a"][...] * 2)


def test_other_processes_write_into_the_one_that_has_the_store(store: nandarray.Store) -> None:
    array = store.create("target", (6, 4), "f8", building_block=(4, 4))
    store["r"] = np.zeros(6, [("x", "f8")])
    lazy = da.ones((6, 4), chunks=3)  # cuts building blocks
    forked = multiprocessing.get_context("fork")  # starts faster
    with ProcessPoolExecutor(2, forked) as pool, dask.config.set(scheduler="processes", pool=pool):
        da.store(lazy, array, lock=False)
        assert np.array_equal(array[:], np.ones((6, 4)))
        da.store(lazy + 1, array)  # with a lock of Dask's
        kept = da.store(da.arange(6, chunks=2), store["r"]["x"], lock=False, return_stored=True)
        assert kept.compute().tolist() == [0, 1, 2, 3, 4, 5]
    assert np.array_equal(da.from_array(array).sum(axis=0).compute(), [12] * 4)
    path = store.path
    store.close()
    with nandarray.open(path) as again, dask.config.set(scheduler="processes"):
        assert again["r"]["x"][:].tolist() == [0, 1, 2, 3, 4, 5]
        assert da.from_array(again["target"]).name == da.from_array(again["target"]).name
        assert da.from_array(again["target"]).name != da.from_array(again["target"].view((4, 6))).name


def test_a_cluster_writes_into_the_process_that_has_the_store(store: nandarray.Store) -> None:
    distributed = pytest.importorskip("distributed")
    array = store.create("target", (40, 8), "f8", building_block=(16, 8))
    source = da.arange(320, chunks=56, dtype="f8").reshape((40, 8))
    cluster = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    with distributed.Client(**cluster):
        da.store(source, array, lock=False)
        np.testing.assert_array_equal(array[...], np.arange(320.0).reshape(40, 8))
        pending = nandarray.from_dask(source + 1, store, "later", compute=False)
        pending.compute()
        np.testing.assert_array_equal(store["later"][...], array[...] + 1)


def test_what_stays_in_this_process_is_refused_at_once(store: nandarray.Store) -> None:
    secret = store.create("secret", (6, 4), "f8", encryption_key=bytes(32))
    lazy = da.ones((6, 4), chunks=3)
    with nandarray.open(device="tiny", mode="w") as modelled, dask.config.set(scheduler="processes"):
        here = modelled.create("a", (6, 4), "f8")
        for array, why in ((secret, "encrypted, and its key stays"), (here, "runs on a modelled device")):
            for use in (
                lambda array=array: da.store(lazy, array, lock=False),
                lambda array=array: da.from_array(array.view((4, 6))),
                lambda array=array: da.map_blocks(np.add, lazy, array),
            ):
                with pytest.raises(nandarray.InvalidError, match=f"{why}.*scheduler='threads'"):
                    use()


def test_later(store: nandarray.Store) -> None:
    pending = nandarray.from_dask(da.ones((20, 20), chunks=5), store, "x", building_block=(8, 8), compute=False)
    assert not store["x"][...].any()
    pending.compute(scheduler="threads")
    assert store["x"][...].all()


def test_later_where_dasks_scheduler_has_other_processes(store: nandarray.Store) -> None:
    with dask.config.set(scheduler="processes"):
        pending = nandarray.from_dask(da.ones((20, 20), chunks=5), store, "x", compute=False)
        pending.compute(scheduler="threads")
    assert store["x"][...].all()


def test_an_executor_of_threads_is_this_process(store: nandarray.Store) -> None:
    lazy, array = da.ones((6, 4), chunks=3), store.create("x", (6, 4), "f8")
    with ThreadPoolExecutor(2) as threads, dask.config.set(scheduler=threads):
        da.store(lazy, array, lock=False)
    assert array[...].all()
    secret = store.create("secret", (6, 4), "f8", encryption_key=bytes(32))
    elsewhere = dask.config.set(scheduler=ProcessPoolExecutor(1))  # it starts no process before its first task
    with elsewhere, pytest.raises(nandarray.InvalidError, match="other processes"):
        da.store(lazy, secret, lock=False)


def test_a_failed_write_frees_the_name(store: nandarray.Store) -> None:
    def fails(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        raise RuntimeError("broken block")

    broken = da.ones((20, 20), chunks=5).map_blocks(fails, dtype="f8", meta=np.empty((0, 0)))
    with pytest.raises(RuntimeError, match="broken block"):
        nandarray.from_dask(broken, store, "x")
    assert "x" not in store


def test_bad_input(store: nandarray.Store) -> None:
    with pytest.raises(nandarray.InvalidError, match="not ndarray"):
        nandarray.from_dask(np.zeros(3), store, "x")
    unknown = da.ones(10, chunks=5)
    unknown = unknown[unknown > 0]
    with pytest.raises(nandarray.InvalidError, match="compute_chunk_sizes"):
        nandarray.from_dask(unknown, store, "x")
    store["x"] = np.zeros(3)
    with pytest.raises(nandarray.ExistsError):
        nandarray.from_dask(da.ones(3), store, "x")
    assert store["x"].shape == (3,)
