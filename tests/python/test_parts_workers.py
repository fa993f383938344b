"""Workers of a transaction: any cut of the work is there once, whatever becomes of the processes that do it."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import random
import resource
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import parts

SPAWN = multiprocessing.get_context("spawn")
SIDE = 48


@pytest.fixture
def sky(tmp_path: Path) -> Any:
    """A store of parts with an array of shards of 16 x 16, all of which are written."""
    with parts.create(tmp_path / "sky.nand") as store:
        store.create("a", (SIDE, SIDE), "i8", shards=(16, 16), building_block=(16, 16), data=np.full((SIDE, SIDE), -1))
        store.flush()
        yield store


def model() -> Any:
    return np.arange(SIDE * SIDE).reshape(SIDE, SIDE)


def cut(seed: int) -> list[tuple[slice, slice]]:
    """The array in boxes that mind no shard, in any order."""
    rng = random.Random(seed)
    rows, columns = ([0, *sorted(rng.sample(range(1, SIDE), 3)), SIDE] for _ in range(2))
    boxes = [
        (slice(*row), slice(*column))
        for row, column in itertools.product(itertools.pairwise(rows), itertools.pairwise(columns))
    ]
    rng.shuffle(boxes)
    return boxes


def write_some(fork: Any, boxes: list[Any]) -> list[Any]:
    """A task by hand: a part of its own."""
    with fork.writer() as writer:
        return [writer.write("a", box, model()[box]) for box in boxes]


def assign(array: Any, boxes: list[Any]) -> int:
    """A task that has an array of the transaction."""
    for box in boxes:
        array[box] = model()[box]
    array.store.flush()  # makes no version
    array.store.close()
    with pytest.raises(nandarray.DoorError, match="no transactions in a worker"):
        array.store.transaction()
    with pytest.raises(nandarray.DoorError, match="no change of names"):
        array.resize((1, 1))
    return os.getpid()


@pytest.mark.parametrize("seed", [1, 2])
def test_futures_by_hand_write_any_cut(sky: Any, seed: int) -> None:
    boxes = cut(seed)
    tx = sky.transaction("by hand")
    fork = pickle.loads(pickle.dumps(tx.fork()))
    with ProcessPoolExecutor(2, SPAWN) as pool:
        shares = [boxes[0::3], boxes[1::3], boxes[2::3], boxes[0::3]]  # the first one twice
        receipts = [one for share in pool.map(write_some, itertools.repeat(fork), shares) for one in share]
    assert sky["a"][0, 0] == -1
    other = sky.transaction()
    other.fork()
    with pytest.raises(nandarray.InvalidError, match="which is not of this transaction"):
        other.merge(receipts)
    other.abort()
    tx.merge(receipts)
    tx.merge(receipts)
    assert tx.commit() == 3
    np.testing.assert_array_equal(sky["a"][...], model(), f"seed {seed}")
    assert tx.stats["shards_merged"] > 0
    tx.close()
    assert sky.check()["ok"]
    assert os.listdir(Path(sky.path) / "jobs") == []
    with pytest.raises(nandarray.NotFoundError, match="has no job"):
        fork.writer()


def test_whole_shards_are_taken_as_they_are(sky: Any) -> None:
    shards = [(slice(i, i + 16), slice(j, j + 16)) for i in range(0, SIDE, 16) for j in range(0, SIDE, 16)]
    tx = sky.transaction()
    tx.merge(write_some(tx.fork(), shards))
    tx.commit()
    assert (tx.stats["shards_merged"], tx.stats["bytes_copied"], tx.stats["shards_written"]) == (0, 0, 0)
    np.testing.assert_array_equal(sky["a"][...], model())
    tx.close()


def test_a_worker_sees_the_transaction_and_writes_boxes_alone(sky: Any) -> None:
    with sky.transaction() as tx:
        tx["a"][0] = 5
        tx["b"] = [1, 2, 3]
        with tx.fork().writer() as writer:
            assert writer.read("a", np.s_[0:1, 0:1]).item() == 5
            for wrong in (np.s_[0], np.s_[::2], np.s_[3:3]):
                with pytest.raises(nandarray.InvalidError, match="a box"):
                    writer.write("a", wrong, 1)
            tx.merge([writer.write("b", np.s_[1:], 7)])
            with pytest.raises(nandarray.InvalidError, match="a receipt must be what .* returned, not None"):
                tx.merge([None])
            with pytest.raises(nandarray.NotFoundError):
                writer.write("c", ..., 1)
        tx["b"].attrs["unit"] = "m"
    assert (sky["a"][0, 0], sky["b"][...].tolist(), dict(sky["b"].attrs)) == (5, [1, 7, 7], {"unit": "m"})


def test_arrays_that_are_pickled_write_in_other_processes(sky: Any) -> None:
    boxes = cut(3)
    with ProcessPoolExecutor(2, SPAWN) as pool:
        array = sky["a"]
        found = set(pool.map(assign, itertools.repeat(array), [boxes[0::3], boxes[1::3], boxes[2::3]]))
        assert os.getpid() not in found
        assert sky.changed
        sky.flush()
    np.testing.assert_array_equal(sky["a"][...], model())
    assert sky.version == 3


def first(marker: Path) -> bool:
    """Whether this is the first process to ask."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class Deadly:
    """An array whose writer is killed at one box, once: before its answer is there, or before the box is."""

    def __init__(self, array: Any, marker: Path, number: int, *, after: bool, sent: signal.Signals) -> None:
        self.array, self.marker, self.number, self.after, self.sent = array, marker, number, after, sent
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __setitem__(self, key: Any, values: Any) -> None:
        mine = key[0].start <= self.number % SIDE < key[0].stop and key[1].start <= self.number // SIDE < key[1].stop
        if self.after:
            self.array[key] = values
        if mine and first(self.marker):
            self.marker.write_text(str(os.getpid()))
            os.kill(os.getpid(), self.sent)
        if not self.after:
            self.array[key] = values


@contextlib.contextmanager
def cluster(workers: int) -> Any:
    """A cluster of processes on this machine."""
    pytest.importorskip("dask.array")
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(**options) as made, distributed.Client(made) as client:
        yield client


def test_jobs_of_dask_survive_the_death_of_workers(sky: Any, tmp_path: Path) -> None:
    with cluster(3):
        import dask.array as da

        for seed in range(2):
            rng = random.Random(seed)
            chunks = tuple(tuple(np.diff([0, *sorted(rng.sample(range(1, SIDE), 3)), SIDE]).tolist()) for _ in range(2))
            x = da.from_array(model() + seed, chunks=chunks)
            with sky.transaction(f"seed {seed}") as tx:
                deadly = Deadly(
                    tx["a"], tmp_path / f"killed{seed}", rng.randrange(SIDE * SIDE), after=seed % 2 == 0,
                    sent=signal.SIGKILL,
                )  # fmt: skip
                da.store(x, deadly, lock=False)
            assert (tmp_path / f"killed{seed}").exists(), seed
            np.testing.assert_array_equal(sky["a"][...], model() + seed, f"seed {seed}")
    assert sky.version == 2 + 2
    assert sky.check()["ok"]


def test_dask_stores_twice_into_one_transaction(sky: Any) -> None:
    da = pytest.importorskip("dask.array")
    import dask

    with dask.config.set(scheduler="processes", num_workers=2), sky.transaction() as tx:
        for turn in range(2):
            da.store(da.from_array(model() + turn, chunks=(24, 20)), tx["a"], lock=False)
        assert len(os.listdir(Path(sky.path) / "jobs")) == 1
        tx.collect()
        tx["a"][5, 5] = -7
        np.testing.assert_array_equal(tx["a"][6:], model()[6:] + 1)
    assert (sky["a"][5, 5], sky["a"][5, 6]) == (-7, model()[5, 6] + 1)
    assert sky.check()["ok"]


def test_dask_and_xarray_write_from_workers(sky: Any) -> None:
    xarray = pytest.importorskip("xarray")
    with cluster(2):
        import dask.array as da

        x = da.from_array(model(), chunks=(7, 20))
        with sky.transaction() as tx:
            nandarray.from_dask(x, tx, "new", shards=(16, 16), building_block=(16, 16))
            nandarray.from_dask(x[:20, :9], tx, "a", region=np.s_[5:25, 30:39])
            assert tx.stats["shards_merged"] == 0  # cut along shards
            assert int(nandarray.to_dask(tx["new"]).sum().compute()) == model().sum()
            with pytest.raises(nandarray.InvalidError, match=r"has the shape \(20, 8\), which must be \(20, 9\)"):
                nandarray.from_dask(x[:20, :9], tx, "a", region=np.s_[5:25, 30:38])
        expected = np.full((SIDE, SIDE), -1)
        expected[5:25, 30:39] = model()[:20, :9]
        np.testing.assert_array_equal(sky["a"][...], expected)
        np.testing.assert_array_equal(sky["new"][...], model())
        old = sky.at(version=2)
        assert int(nandarray.to_dask(old["a"]).sum().compute()) == -(SIDE**2)
        assert int(nandarray.to_dask(sky["new"].view((SIDE * SIDE,))).sum().compute()) == model().sum()
        data = xarray.Dataset({"v": (("t", "y"), x), "w": ("t", np.arange(SIDE))}, {"t": np.arange(SIDE)})
        nandarray.from_xarray(data, sky, group="d")
        nandarray.from_xarray(data.assign_coords(t=np.arange(SIDE) + SIDE), sky, group="d", append_dim="t")
        nandarray.from_xarray(data.isel(t=slice(2, 5)) * 10, sky, group="d", region={"t": "auto"})
    got = xarray.open_dataset(sky.path, engine="nandarray", group="d")
    expected = np.concatenate([model(), model()])
    expected[2:5] *= 10
    np.testing.assert_array_equal(got.v.values, expected)
    assert [one["message"] for one in sky.versions()[-3:]] == ["from_xarray"] * 3
    before = sky.version
    with pytest.raises(nandarray.ExistsError):
        nandarray.from_xarray(data, sky, group="d")
    assert sky.version == before


def stop_after(array: Any, marker: Path, box: Any, more: Any) -> None:
    """Write a box, stop, and when continued write more."""
    array[box] = model()[box]
    marker.write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
    array[more] = 0
    time.sleep(60)


def test_a_zombie_writes_to_nothing_that_counts(sky: Any, tmp_path: Path) -> None:
    tx = sky.transaction()
    box, more, marker = np.s_[0:20, 0:20], np.s_[0:16, 0:16], tmp_path / "stopped"
    process = SPAWN.Process(target=stop_after, args=(tx["a"], marker, box, more))
    process.start()
    try:
        while not marker.exists() or Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "T":
            assert process.is_alive()
            time.sleep(0.02)
        with pytest.raises(nandarray.ReceiptError, match="1 parts are lost, or held by processes") as caught:
            tx.commit(wait_s=0.2)
        spans = [((0, 0), (16, 16)), ((0, 16), (16, 20)), ((16, 0), (20, 16)), ((16, 16), (20, 20))]
        assert caught.value.boxes == {"a": spans}
        tx.merge(write_some(tx.fork(), [box]))
        assert tx.commit(wait_s=0.2) == 3
        tx.close()
        expected = np.full((SIDE, SIDE), -1)
        expected[box] = model()[box]
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.5)
        np.testing.assert_array_equal(sky["a"][...], expected)
    finally:
        process.kill()
        process.join()
    assert sky.check()["ok"]
    sky.gc(older_than=0)
    assert not list((Path(sky.path) / "parts").glob("*.open"))
    np.testing.assert_array_equal(sky["a"][...], expected)


def die_after(array: Any, box: Any) -> None:
    """Write a box, and be killed before anything is closed."""
    array[box] = model()[box]
    os.kill(os.getpid(), signal.SIGKILL)


def test_parts_of_the_dead_are_adopted(sky: Any) -> None:
    with sky.transaction() as tx:
        process = SPAWN.Process(target=die_after, args=(tx["a"], np.s_[:, 0:16]))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert len(list((Path(sky.path) / "parts").glob("*.open"))) == 1
    np.testing.assert_array_equal(sky["a"][:, :16], model()[:, :16])
    assert not list((Path(sky.path) / "parts").glob("*.open"))


def write_on_a_full_disk(fork: Any) -> str:
    """Write where no file may grow beyond some bytes; the signal for it is one that Python ignores."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    try:
        write_some(fork, [np.s_[:, :]])
    except OSError as error:
        return type(error).__name__
    return "written"


def test_a_full_disk_of_one_worker_leaves_the_old_version(sky: Any) -> None:
    tx = sky.transaction()
    with ProcessPoolExecutor(1, SPAWN) as pool:
        assert pool.submit(write_on_a_full_disk, tx.fork()).result() == "StoreFullError"
    tx.abort()
    assert (sky["a"][...] == -1).all()
    sky.gc(older_than=0)
    assert len(list((Path(sky.path) / "parts").iterdir())) == 1


def commit_on_a_full_disk(path: str) -> list[Any]:
    """Commit where no file may grow, which fails, and again where it may."""
    found: list[Any] = []
    with nandarray.open(path, "r+") as store:
        store["a"][5:20] = model()[5:20]
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        for _ in range(2):
            try:
                store.flush()
            except nandarray.StoreFullError:
                found.append((store.version, bool((store["a"][5:20] == model()[5:20]).all())))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        store.flush()
        found.append(store.version)
    return found


def test_a_full_disk_of_the_committing_process_loses_nothing(sky: Any) -> None:
    with ProcessPoolExecutor(1, SPAWN) as pool:
        assert pool.submit(commit_on_a_full_disk, sky.path).result() == [(2, True), (2, True), 3]
    sky.refresh()
    np.testing.assert_array_equal(sky["a"][4:20], np.concatenate([np.full((1, SIDE), -1), model()[5:20]]))
    assert sky.check()["ok"]


def dies_at(moment: str, kind: str) -> None:
    """Let this process be killed when it makes an object: before its name, behind it, or when it is all done."""
    from nandarray.parts.blobs.files import Files

    name, sync = Files.name, Files.sync

    def named(self: Any, file: str, key: str, **how: Any) -> bool:
        if key.startswith(kind) and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = name(self, file, key, **how)
        if key.startswith(kind):
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    def synced(self: Any, folder: str) -> None:
        if folder == os.path.dirname(kind) and moment == "between":
            os.kill(os.getpid(), signal.SIGKILL)
        sync(self, folder)

    Files.name, Files.sync = named, synced  # type: ignore[method-assign]


def commit_and_die(path: str, moment: str) -> None:
    """Be killed within a commit: before its manifest, before that is durable, or after it."""
    store = nandarray.open(path, "r+")
    dies_at(moment, "manifests/")
    store["a"][:] = 9
    store.flush()


def killed(target: Any, *given: Any) -> None:
    """Run a function in a process that kills itself."""
    process = SPAWN.Process(target=target, args=given)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_a_coordinator_killed_in_its_commit_leaves_old_or_new(sky: Any, moment: str) -> None:
    killed(commit_and_die, sky.path, moment)
    sky.refresh()
    expected = -1 if moment == "before" else 9
    assert (sky["a"][...] == expected).all()
    assert sky.gc(older_than=0, jobs_older_than=0)["parts"] == (1 if moment == "before" else 0)
    assert (sky["a"][...] == expected).all()
    sky["a"][0] = 8
    sky.flush()
    assert (sky.version, sky.check()["ok"]) == (3 if moment == "before" else 4, True)


def create_and_die(path: str, kind: str) -> None:
    """Be killed within the creation of a store."""
    dies_at("before", kind)
    parts.create(path)


@pytest.mark.parametrize("kind", ["manifests/", "nandarray.json"])
def test_a_creation_that_was_killed_is_finished(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "new.nand"
    killed(create_and_die, str(path), kind)
    with pytest.raises(nandarray.NandarrayError):
        nandarray.open(path)
    with parts.create(path) as store:
        store["a"] = [1]
    with nandarray.open(path) as store:
        assert (store.version, store["a"][0]) == (2, 1)


def read_slowly(path: str, told: Any, goes_on: Any) -> None:
    """Open the newest version, say so, and read it when that is requested: all right, or an error of this package."""
    with nandarray.open(path) as store:
        told.put(store.version)
        while goes_on.get():
            try:
                told.put(int(store["a"][20:30].sum()))
            except nandarray.NandarrayError as error:
                told.put(type(error).__name__)


def test_a_slow_reader_keeps_its_version_while_it_lives(sky: Any) -> None:
    told, goes_on = SPAWN.Queue(), SPAWN.Queue()
    process = SPAWN.Process(target=read_slowly, args=(sky.path, told, goes_on))
    process.start()
    try:
        assert told.get(timeout=60) == 2
        for turn in range(2):
            sky["a"][:] = turn
            sky.flush()
        assert sky.expire_versions(keep=1, older_than=0) == [1, 3]
        sky.gc(older_than=0)
        goes_on.put(True)
        assert told.get(timeout=60) == -10 * SIDE
        os.kill(process.pid, signal.SIGSTOP)
        for lease in (Path(sky.path) / "readers").iterdir():  # as if it were stopped for long
            os.utime(lease, (0, 0))
        assert sky.expire_versions(keep=1, older_than=0) == [2]
        sky.gc(older_than=0)
        os.kill(process.pid, signal.SIGCONT)
        sky._source.parts.forget()
        goes_on.put(True)
        # A part that it has open is still there; it reads that, or says that one is gone.
        assert told.get(timeout=60) in (-10 * SIDE, "PartError")
        goes_on.put(False)
        process.join(60)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
    assert sky["a"][0, 0] == 1
    killed(open_and_die, sky.path)
    assert len(list((Path(sky.path) / "readers").iterdir())) == 1
    for lease in (Path(sky.path) / "readers").iterdir():
        os.utime(lease, (0, 0))
    sky.gc()
    assert list((Path(sky.path) / "readers").iterdir()) == []


def open_and_die(path: str) -> None:
    """Open a store, and be killed."""
    store = nandarray.open(path)
    assert store["a"][0, 0] == 1
    os.kill(os.getpid(), signal.SIGKILL)


def test_ages_are_those_of_the_file_system(sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tx = sky.transaction()
    tx["a"][0] = 5
    for name in ("time", "time_ns"):
        real = getattr(time, name)
        monkeypatch.setattr(time, name, lambda real=real: real() + real() // 2)
    sky["a"][1] = 6
    sky.flush()
    assert sky.expire_versions(keep=1) == []
    assert sky.gc() == {"leaves": 0, "parts": 0, "bytes": 0}
    assert len(list((Path(sky.path) / "readers").iterdir())) == 2


# --- A transaction that changes hands -------------------------------------------------------------------------------


def begin_elsewhere(path: str) -> Any:
    with nandarray.open(path, "r+") as store, store.transaction() as tx:
        tx["a"].resize((SIDE + 16, SIDE))
        tx.create("new", SIDE, "i8", shards=16, building_block=16)
        return parts.hand_over(tx)


def write_elsewhere(fork: Any) -> list[Any]:
    with fork.writer() as writer:
        return [writer.write("new", slice(8, 40), np.arange(32)), writer.write("a", np.s_[SIDE:, :3], [[7, 8, 9]])]


def test_a_transaction_is_begun_and_ended_by_other_processes_than_its_workers(sky: Any) -> None:
    with ProcessPoolExecutor(1, SPAWN) as pool:
        fork = pool.submit(begin_elsewhere, sky.path).result()
    with ProcessPoolExecutor(1, SPAWN) as pool:
        receipts = pool.submit(write_elsewhere, fork).result()
    first = sky.version
    for number in range(3):  # the version from which it began expires
        sky["other"] = [number]
        sky.flush()
        del sky["other"]
    sky.flush()
    assert first in sky.expire_versions(keep=1, older_than=0)
    sky.gc(older_than=0)
    with parts.resume(sky, fork, "at last") as tx:
        tx.merge(receipts)
        assert tx["a"][SIDE].tolist()[:4] == [7, 8, 9, 0]
    assert sky.versions()[-1]["message"] == "at last"
    assert sky["new"][:].tolist() == [0] * 8 + list(range(32)) + [0] * 8
    assert (sky["a"][:SIDE] == -1).all()
    assert sky["a"].shape == (SIDE + 16, SIDE)
    with pytest.raises(nandarray.NotFoundError, match="it was committed, or given up"):
        parts.resume(sky, fork)
    parts.give_up(sky, fork)  # has been ended: nothing is done
    assert os.listdir(os.path.join(sky.path, "jobs")) == []
    assert sky.gc(older_than=0)["parts"] == 0
    assert sky.check()["ok"]


def test_a_transaction_that_was_handed_over_is_given_up_or_conflicts_as_any(sky: Any) -> None:
    fork = begin_elsewhere(sky.path)
    writer = fork.writer()
    writer.write("new", slice(0, 3), [1, 2, 3])
    parts.give_up(sky, fork)
    with pytest.raises(nandarray.PartError, match="its job was ended"):
        writer.close()
    assert sky.gc(older_than=0)["parts"] == 0
    assert os.listdir(os.path.join(sky.path, "jobs")) == []
    fork = begin_elsewhere(sky.path)
    sky["new"] = [1]
    sky.flush()
    with pytest.raises(nandarray.ConflictError, match="both have an array 'new'"), parts.resume(sky, fork):
        pass
    assert sky["new"].shape == (1,)
    assert os.listdir(os.path.join(sky.path, "jobs")) == []
    for change in (lambda tx: tx["a"].__setitem__(0, 1), lambda tx: tx.fork()):
        tx = sky.transaction()
        change(tx)
        with pytest.raises(nandarray.InvalidError, match="must have no forks, and no elements written"):
            parts.hand_over(tx)
        tx.abort()
