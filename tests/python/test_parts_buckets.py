"""Stores of parts in buckets: what holds in a folder holds there, whatever becomes of requests and processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far_faults import FaultyObjects
from far_servers import s3
from hypothesis import given, settings
from hypothesis import strategies as st

import nandarray
from nandarray import parts
from nandarray.parts import exchange
from nandarray.parts.blobs import objects as bucket
from nandarray.parts.blobs.base import Blobs
from nandarray.parts.blobs.files import Files
from nandarray.parts.blobs.places import blobs_of
from nandarray.parts.history import FOLDERS, History
from nandarray.parts.manifest import key_of
from nandarray.remote.places import place_of

pytest.importorskip("obstore")
fsspec = pytest.importorskip("fsspec")

SPAWN = multiprocessing.get_context("spawn")
KINDS = ("folder", "memory", "local", "s3")
SIDE = 16
_names = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NANDARRAY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def served() -> Any:
    with s3() as storage:
        yield storage


@pytest.fixture(scope="module")
def environment(served: Any) -> Any:
    """The settings by which ``s3://bucket/...`` is reached."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", served.config["endpoint"])
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ACCESS_KEY_ID", "a")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "b")
        patch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false")
        yield


@pytest.fixture(scope="module")
def workers(environment: None) -> Any:
    with ProcessPoolExecutor(2, SPAWN) as pool:
        yield pool


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "_PAUSE_S", 0.001)
    monkeypatch.setattr(bucket.ObjectBlobs, "poll_s", 0.02)


def objects_of(kind: str, tmp_path: Path, served: Any) -> tuple[str, Any]:
    """A path and a storage."""
    from obstore.store import LocalStore, MemoryStore

    name = f"sky{next(_names)}.nand"
    if kind == "folder":
        return str(tmp_path / name), None
    return name, {"memory": MemoryStore, "local": lambda: LocalStore(str(tmp_path)), "s3": lambda: served}[kind]()


@pytest.fixture
def memory() -> Any:
    from obstore.store import MemoryStore

    return MemoryStore()


def written(path: str, storage: Any) -> Any:
    """A store with an array of 4 x 4 shards, the first row of which is written."""
    store = parts.create(path, storage=storage)
    store.create("a", (SIDE, SIDE), "i8", shards=(4, 4), building_block=(4, 4), fill_value=-1)
    store["a"][:4] = np.arange(4 * SIDE).reshape(4, SIDE)
    store.flush()
    return store


def faulty(storage: Any, fault: Any = None) -> FaultyObjects:
    return FaultyObjects(place_of("x", storage).objects, fault)


# --- Objects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_objects_are_made_once_and_have_ages(kind: str, tmp_path: Path, served: Any) -> None:
    files: Blobs = blobs_of(*objects_of(kind, tmp_path, served))
    assert files.listed("manifests") == {}
    assert not files.has("nandarray.json")
    files.prepare(FOLDERS, key_of(1))
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda turn: files.put_if_absent("tags/a.json", b"%d" % turn), range(8)))
    assert made.count(True) == 1
    assert files.get("tags/a.json") == b"%d" % made.index(True)
    now = files.now()
    assert abs(files.age("tags/a.json", now)) < 60
    assert files.age("tags/b.json", now) == now
    files.make_folder("jobs/ab")
    with pytest.raises(FileExistsError):
        files.make_folder("jobs/ab")
    files.put_if_absent("jobs/ab/over", b"")
    assert files.names("jobs") == ["ab"]
    assert set(files.listed("jobs/ab")) >= {"over"}
    files.renew_folder("jobs/ab")
    files.drop_folder("jobs/ab")
    assert files.names("jobs") == []
    assert not files.touch("leaves/x.npy")
    files.keep("leaves/x.npy", b"leaf")
    files.keep("leaves/x.npy", b"leaf")
    assert files.touch("leaves/x.npy")
    assert files.listed("leaves")["x.npy"].length == 4
    files.delete("leaves/x.npy")
    files.delete("leaves/x.npy")
    with pytest.raises(FileNotFoundError):
        files.get("leaves/x.npy")


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_is_sealed_and_read(kind: str, tmp_path: Path, served: Any) -> None:
    files = blobs_of(*objects_of(kind, tmp_path, served))
    files.prepare(FOLDERS, key_of(1))
    data = random.Random(1).randbytes(20_000)
    part, other = "0" * 32, "1" * 32
    Path(files.unsealed(part)).write_bytes(data)
    files.seal(part)
    assert not os.path.exists(files.unsealed(part))
    files.seal(part)  # as after a lost answer
    assert files.adopt(part)
    assert files.head(part, 8192) == blobs_again(files).head(part, 8192) == (len(data), data[:8192])
    with files.file_of(part, files.room()) as file:
        assert Path(file).read_bytes() == data
        files.send_part(other, file)
    assert files.listed("parts")[f"{other}.nand"].length == len(data)


def blobs_again(files: Blobs) -> Blobs:
    """The same objects, by what knows nothing yet."""
    return pickle.loads(pickle.dumps(files)) if isinstance(files, Files) else again_far(files)


def again_far(files: Any) -> Blobs:
    return bucket.ObjectBlobs(files.objects, files.prefix)


def test_a_server_without_create_if_absent_is_refused(memory: Any) -> None:
    class Overwrites(FaultyObjects):
        def put_if_absent(self, key: str, data: Any) -> bool:
            self.put(key, data)
            return True

    objects = Overwrites(place_of("x", memory).objects)
    with pytest.raises(nandarray.InvalidError, match="no create-if-absent"):
        parts.create("sky.nand", storage=objects)
    assert objects.listing("") == []


def test_a_file_system_that_looks_and_makes_then_is_read_alone(tmp_path: Path) -> None:
    home, system = str(tmp_path / "home.nand"), fsspec.filesystem("file")
    with pytest.raises(nandarray.InvalidError, match="make it then"):
        parts.create(home, storage=system)
    with written(home, None) as store:
        with pytest.raises(nandarray.InvalidError, match="make it then"):
            nandarray.open(home, "r+", storage=system)
        with nandarray.open(home, storage=system) as far:
            np.testing.assert_array_equal(far["a"][:], store["a"][:])
            assert far.check()["ok"]
        assert parts.pull(home, str(tmp_path / "copy.nand"), storage=system)["versions"] == 2


def test_creation_needs_an_empty_place(memory: Any) -> None:
    import obstore

    obstore.put(memory, "one.nand", b"a file")
    with pytest.raises(nandarray.StoreExistsError, match="is an object"):
        parts.create("one.nand", storage=memory)
    obstore.put(memory, "two.nand/mine.txt", b"mine")
    with pytest.raises(nandarray.StoreExistsError, match=r"'mine\.txt'"):
        parts.create("two.nand", storage=memory)
    parts.create("three.nand", storage=memory).close()
    with pytest.raises(nandarray.StoreExistsError):
        parts.create("three.nand", storage=memory)
    with pytest.raises(nandarray.StoreMissingError):
        parts.open_folder("four.nand", "r", storage=memory)


# --- Stores -----------------------------------------------------------------------------------------------------------


def write_some(fork: Any, rows: list[int]) -> list[Any]:
    with fork.writer() as writer:
        return [writer.write("a", slice(row, row + 1), np.full((1, SIDE), row)) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_versions_forks_and_reclaiming(kind: str, tmp_path: Path, served: Any, workers: Any) -> None:
    path, storage = objects_of(kind, tmp_path, served)
    with written(path, storage) as store:
        with store.transaction("forked") as tx:
            fork = tx.fork()
            if kind == "memory":
                receipts = [write_some(fork, rows) for rows in ([5, 6], [7, 9])]
            else:
                fork = pickle.loads(pickle.dumps(fork))
                receipts = list(workers.map(write_some, [fork, fork], [[5, 6], [7, 9]]))
            tx.merge(itertools.chain(*receipts))
        model = np.full((SIDE, SIDE), -1)
        model[:4] = np.arange(4 * SIDE).reshape(4, SIDE)
        before = model.copy()
        for row in (5, 6, 7, 9):
            model[row] = row
        np.testing.assert_array_equal(store["a"][:], model)
        store.tag("forked")
        assert store.diff(2, 3)["written"]["a"]
        assert store.compact()["parts"] >= 2
        assert [one["message"] for one in store.versions()][-2:] == ["forked", "compact"]
        with store.at(version=2) as old:
            np.testing.assert_array_equal(old["a"][:], before)
            assert store.expire_versions(keep=1, older_than=0) == [1]
        store.gc(older_than=0, jobs_older_than=0)
        assert store.check()["ok"]
    with parts.open_folder(path, "r", storage=storage) as store:
        np.testing.assert_array_equal(store["a"][:], model)
        np.testing.assert_array_equal(store.at(tag="forked")["a"][:], model)
        assert store.stat()["parts"] >= 1
        if kind != "folder":
            assert not blobs_of(path, storage).names("jobs")
            with pytest.raises(nandarray.ReadOnlyError):
                store.protect(replicas=2)
    if kind != "folder":
        with parts.open_folder(path, "r+", storage=storage) as store:
            for refused in (lambda: store.protect(replicas=2), store.repair):
                with pytest.raises(nandarray.DoorError, match="a bucket keeps its objects"):
                    refused()


def test_arrays_are_pickled_to_workers(served: Any, workers: Any) -> None:
    with written("pickled.nand", served) as store:
        with store.transaction() as tx:
            list(workers.map(fill_row, [tx["a"]] * 3, [5, 6, 11]))
        assert [store["a"][row, 0] for row in (5, 6, 11, 12)] == [5, 6, 11, -1]
        with store.transaction() as tx:
            with ProcessPoolExecutor(2, SPAWN) as pool:
                list(pool.map(fill_row, [tx["a"]] * 2, [12, 13]))
            tx.commit()  # the processes have ended, and have sealed their parts
        assert [store["a"][row, 0] for row in (12, 13)] == [12, 13]


def fill_row(array: Any, row: int) -> None:
    array[row] = row


def die_after_writing(fork: Any) -> None:
    writer = fork.writer()
    writer.write("a", slice(0, 1), np.zeros((1, SIDE)))
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_worker_wrote_is_written_again(served: Any) -> None:
    with written("killed.nand", served) as store, store.transaction() as tx:
        fork = tx.fork()
        process = SPAWN.Process(target=die_after_writing, args=(fork,))
        process.start()
        process.join()
        with fork.writer() as writer:
            kept = writer.write("a", slice(8, 9), np.full((1, SIDE), 8))
        lost = parts.Receipt(
            fork.job, fork.job + "0" * 16, kept.array, (0, 0), (1, SIDE), ((0, 0), (1, 1), (2, 2), (3, 3))
        )
        tx.merge([kept, lost])
        with pytest.raises(nandarray.ReceiptError) as refused:
            tx.commit(wait_s=0.1)
        assert refused.value.boxes == {"a": [((0, 4 * n), (1, 4 * n + 4)) for n in range(4)]}
        again = tx.fork()
        with again.writer() as writer:
            tx.merge([kept, writer.write("a", slice(0, 1), np.zeros((1, SIDE)))])
        tx.commit(wait_s=5)
        assert (store["a"][0, 0], store["a"][8, 0]) == (0, 8)


def commit_some(path: str, storage: Any, number: int, count: int) -> None:
    with parts.open_folder(path, "r+", storage=storage) as store:
        for turn in range(count):
            with store.transaction(f"{number}.{turn}") as tx:
                tx["a"][number, turn * 4] = 100 * number + turn


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_commits_of_disjoint_writers_are_all_there(kind: str, tmp_path: Path, served: Any) -> None:
    path, storage = objects_of(kind, tmp_path, served)
    writers, count = (8, 8) if os.environ.get("NANDARRAY_DEEP") else (4, 3)
    with parts.create(path, storage=storage) as store:
        store.create("a", (writers, 4 * count), "i8", shards=(1, 4), building_block=(1, 4), fill_value=-1)
        store.flush()
        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(lambda number: commit_some(path, storage, number, count), range(writers)))
        store.refresh()
        assert [[store["a"][n, 4 * t] for t in range(count)] for n in range(writers)] == [
            [100 * n + t for t in range(count)] for n in range(writers)
        ]
        assert len(store.versions()) == 2 + writers * count


# --- Faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["lost", "refused", "there"])
def test_any_request_of_a_commit_may_fail_once(fault: str, memory: Any) -> None:
    objects = faulty(memory)
    written("sky.nand", memory).close()
    with parts.open_folder("sky.nand", "r+", storage=objects) as store:
        store["a"][0, 0] = 0
        begun = len(objects.requests)
        store.flush()
        steps = len(objects.requests) - begun
        for step in range(steps):
            at = len(objects.requests) + step
            name: list[str] = []

            def chosen(number: int, asked: str, _: str, at: int = at, name: list[str] = name) -> str | None:
                if number != at or (fault == "there" and asked != "put_if_absent"):
                    return None
                name.append(asked)
                return fault

            store["a"][0, 0] = step
            objects.fault = chosen
            store.flush()
            objects.fault = None
            assert parts.open_folder("sky.nand", "r", storage=memory)["a"][0, 0] == step, (step, name)
        messages = [one["version"] for one in store.versions()]
        assert messages == list(range(1, steps + 4))
        store.gc(older_than=0, jobs_older_than=0)
        assert store.check()["ok"]


def test_a_bucket_that_is_gone_in_a_commit_leaves_its_outcome_unknown(memory: Any) -> None:
    objects = faulty(memory)
    with written("sky.nand", objects) as store:
        store["a"][0, 0] = 7

        def gone_after(lost: str) -> Any:
            state = [False]

            def fault(_: int, name: str, key: str) -> str | None:
                if state[0]:
                    return "refused"
                state[0] = name == "put_if_absent" and "/manifests/" in key
                return lost if state[0] else None

            return fault

        for lost in ("lost", "refused"):
            store["a"][0, 0] += 1
            objects.fault = gone_after(lost)
            with pytest.raises(nandarray.CommitUnknownError):
                store.flush()
            objects.fault = None
            before = store.version
            store.flush()
            assert store.version == before + 1, "once, and no more"
            assert parts.open_folder("sky.nand", "r", storage=memory)["a"][0, 0] == store["a"][0, 0]


def test_late_listings_hide_no_version(memory: Any) -> None:
    objects = faulty(memory, lambda *_: "late")
    written("sky.nand", memory).close()
    with parts.open_folder("sky.nand", "r+", storage=objects) as store:
        for turn in range(4):
            store["a"][0, 0] = turn
            store.flush()
            assert store.version == 3 + turn
        with parts.open_folder("sky.nand", "r", storage=objects) as again:
            assert again["a"][0, 0] == 3


def test_requests_that_are_denied_are_no_unknown_outcome(memory: Any) -> None:
    objects = faulty(memory)
    with written("sky.nand", objects) as store:
        store["a"][0, 0] = 7

        def denied(_: int, name: str, key: str) -> None:
            if name.startswith("put") and "/manifests/" in key:
                raise nandarray.DeniedError(key)

        objects.fault = denied
        with pytest.raises(nandarray.DeniedError):
            store.flush()
        objects.fault = None
        store.flush()
        assert store.version == 3


def test_a_long_upload_is_waited_for(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "_SIGN_S", 0.02)
    objects = faulty(memory)
    with written("sky.nand", objects) as store, store.transaction() as tx:
        fork = tx.fork()
        writer = fork.writer()
        tx.merge([writer.write("a", slice(0, 1), np.zeros((1, SIDE)))])

        def slow(_: int, name: str, __: str) -> None:
            if name == "put_file":
                time.sleep(1.0)

        objects.fault = slow
        sealing = threading.Thread(target=writer.close)
        sealing.start()
        tx.commit(wait_s=0.2)
        sealing.join()
        assert store["a"][0, 3] == 0
    assert not blobs_of("sky.nand", memory).names("jobs")


# --- Places in step ---------------------------------------------------------------------------------------------------


def grown(path: str, storage: Any = None) -> Any:
    """A store with five versions, a tag, and a version that has expired."""
    store = written(path, storage)
    for turn in range(3):
        with store.transaction(f"turn {turn}") as tx:
            tx["a"][4 + 4 * turn] = turn
    store.tag("paper", 3)
    return store


def same_everywhere(one: Any, other: Any) -> None:
    facts = [[(v["version"], v["commit"], v["tags"]) for v in place.versions()] for place in (one, other)]
    assert facts[0] == facts[1]
    for version in [v[0] for v in facts[0]]:
        if "a" in one.at(version=version):
            np.testing.assert_array_equal(one.at(version=version)["a"][:], other.at(version=version)["a"][:])
    assert other.check()["ok"]


@pytest.mark.parametrize("kind", ["folder", "memory", "s3"])
def test_push_pull_and_sync(kind: str, tmp_path: Path, served: Any) -> None:
    url, storage = objects_of(kind, tmp_path, served)
    told: list[tuple[str, int, int]] = []
    home, again = str(tmp_path / "home.nand"), str(tmp_path / "again.nand")
    with grown(home) as store:
        done = parts.push(home, url, storage=storage, tell=lambda *said: told.append(said))
        assert (done["versions"], done["parts"], done["tags"]) == (5, 4, 1)
        assert ("parts", 4, 4) in told
        with parts.open_folder(url, "r+", storage=storage) as far:
            same_everywhere(store, far)
            assert sum(parts.push(home, url, storage=storage).values()) == 0
            far["a"][15] = 15
            far.flush()
            far.tag("far")
        assert not blobs_of(url, storage).names("jobs")
        assert parts.pull(url, again, storage=storage)["versions"] == 6
        assert parts.sync(home, url, storage=storage)["versions"] == 1
        store.refresh()
        with nandarray.open(again) as third:
            same_everywhere(store, third)
        store["a"][14] = 14
        store.flush()
        assert parts.sync(url if kind == "folder" else again, home)["versions"] == 1


def test_histories_that_differ_are_refused(tmp_path: Path, memory: Any) -> None:
    home = str(tmp_path / "home.nand")
    with grown(home) as store, written("other.nand", memory) as other:
        with pytest.raises(nandarray.InvalidError, match="places of one store"):
            parts.push(home, "other.nand", storage=memory)
        parts.push(home, "sky.nand", storage=memory)
        with parts.open_folder("sky.nand", "r+", storage=memory) as far:
            for place in (far, store):
                place["a"][15] = 15
                place.flush()
            for copying in (
                lambda: parts.push(home, "sky.nand", storage=memory),
                lambda: parts.pull("sky.nand", home, storage=memory),
                lambda: parts.sync(home, "sky.nand", storage=memory),
            ):
                with pytest.raises(nandarray.ConflictError, match="version 6 of") as refused:
                    copying()
                assert refused.value.version == 6
            for _ in range(20):  # beyond what a manifest knows of those before it
                store["a"][15] += 1
                store.flush()
            with pytest.raises(nandarray.ConflictError, match="version 6 of"):
                parts.push(home, "sky.nand", storage=memory)
        del other
    with grown(str(tmp_path / "two.nand")) as two:
        parts.push(two.path, "two.nand", storage=memory)
        with parts.open_folder("two.nand", "r+", storage=memory) as far:
            far.tag("mine", 4)
        two.tag("mine", 5)
        with pytest.raises(nandarray.ConflictError, match="the tag 'mine' is version 4"):
            parts.push(two.path, "two.nand", storage=memory)


def test_damage_is_not_copied(tmp_path: Path, memory: Any) -> None:
    home = tmp_path / "home.nand"
    with grown(str(home)):
        part = max((home / "parts").iterdir(), key=lambda one: one.stat().st_mtime)
        data = bytearray(part.read_bytes())
        data[len(data.rstrip(b"\0")) - 1] ^= 1
        part.write_bytes(data)
        with pytest.raises(nandarray.PartError, match="damaged, and was not copied"):
            parts.push(home, "sky.nand", storage=memory)
        with pytest.raises(nandarray.StoreMissingError):
            parts.open_folder("sky.nand", "r", storage=memory)


class Cut(BaseException):
    """The process ended here."""


@pytest.mark.parametrize("way", ["push", "pull", "sync"])
def test_a_copy_that_ends_anywhere_goes_on(
    way: str, tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_SIDE_BY_SIDE", 1)
    home = str(tmp_path / "home.nand")
    with grown(home) as store:
        if way == "pull":
            parts.push(home, "far.nand", storage=memory)
        ended = True
        for step in itertools.count(0, 1 if os.environ.get("NANDARRAY_DEEP") else 9):
            url, folder = f"sky{step}.nand", str(tmp_path / f"copy{step}.nand")

            def cut(number: int, name: str, key: str, step: int = step) -> str | None:
                if number < step:
                    return None
                collected = name == "delete" and "/readers/" in key
                if collected or threading.current_thread().name == "nandarray-leases":  # they take no errors
                    return "refused"
                raise Cut

            objects = faulty(memory, cut)
            try:
                if way == "pull":
                    parts.pull("far.nand", folder, storage=objects)
                else:
                    getattr(parts, way)(home, url, storage=objects)
                ended = False
            except Cut:
                pass
            if way == "pull":
                parts.pull("far.nand", folder, storage=memory)
                copy = nandarray.open(folder)
            else:
                getattr(parts, way)(home, url, storage=memory)
                copy = parts.open_folder(url, "r", storage=memory)
            with copy:
                assert len(copy.versions()) == 5, step
                np.testing.assert_array_equal(copy["a"][:], store["a"][:])
                if step % 27 == 0:
                    same_everywhere(store, copy)
            shutil.rmtree(folder, ignore_errors=True)
            if not ended:
                break


def test_tagged_versions_that_expired_at_the_target_come_back(tmp_path: Path, memory: Any) -> None:
    home = str(tmp_path / "home.nand")
    with grown(home) as store:
        parts.push(home, "sky.nand", storage=memory)
        with parts.open_folder("sky.nand", "r+", storage=memory) as far:
            far.expire_versions(keep=1, older_than=0)
            assert [one["version"] for one in far.versions()] == [3, 5]
        store.tag("again", 2)
        assert parts.push(home, "sky.nand", storage=memory)["versions"] == 1
        with parts.open_folder("sky.nand", "r+", storage=memory) as far:
            assert far.tags() == {"paper": 3, "again": 2}
            np.testing.assert_array_equal(far.at(tag="again")["a"][:], store.at(version=2)["a"][:])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=4))
@settings(max_examples=30 if os.environ.get("NANDARRAY_DEEP") else 4, deadline=None)
def test_two_places_meet(turns: list[tuple[bool, int]]) -> None:
    from obstore.store import MemoryStore

    storage = MemoryStore()
    places = ["one.nand", "two.nand"]
    written(places[0], storage).close()
    objects = place_of("x", storage).objects
    blobs = [bucket.ObjectBlobs(objects, place) for place in places]
    exchange._copied(blobs[0], blobs[1], None)
    model = parts.open_folder(places[0], "r", storage=storage)["a"][:]
    for at, row in turns:
        with parts.open_folder(places[at], "r+", storage=storage) as store:
            store["a"][4 * row] = row
            model[4 * row] = row
        exchange._copied(blobs[at], blobs[1 - at], None)
        if row == 3:
            with parts.open_folder(places[1 - at], "r+", storage=storage) as store:
                store.expire_versions(keep=2, older_than=0)
                store.gc(older_than=0, jobs_older_than=0)
    for place in places:
        np.testing.assert_array_equal(parts.open_folder(place, "r", storage=storage)["a"][:], model)
        assert parts.open_folder(place, "r", storage=storage).check()["ok"]
    assert History(blobs[0]).newest() == History(blobs[1]).newest()


# --- Beside everything else -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("environment")
def test_a_url_is_a_single_file_or_a_store_of_parts(tmp_path: Path, served: Any, workers: Any) -> None:
    import obstore

    url = "s3://bucket/by-url.nand"
    with pytest.raises(nandarray.StoreMissingError, match="by-url"):
        nandarray.open(url)
    with pytest.raises(nandarray.InvalidError, match="read only"):
        nandarray.open(url, "r+")
    written(url, None).close()
    with nandarray.open(url, "r+") as store:
        store["a"][5] = 5
    with nandarray.open(url, verify="always", cache=False) as store:
        assert list(store["a"][3:7, 0]) == [48, -1, 5, -1]
        assert list(workers.map(total, [store["a"], store["a"]])) == [store["a"][:].sum()] * 2
        assert pickle.loads(pickle.dumps(store)).version == 3
        with pytest.raises(nandarray.InvalidError, match="preset"):
            nandarray.open(url, preset="small")
    with nandarray.open(url, "w") as store:
        assert list(store) == []
    with pytest.raises(nandarray.StoreExistsError):
        nandarray.open(url, "x")
    with nandarray.open(tmp_path / "one.nand", "w") as one:
        one["b"] = np.arange(3)
    obstore.put(served, "one-file.nand", tmp_path / "one.nand")
    with nandarray.open("s3://bucket/one-file.nand") as one:
        assert list(one["b"][:]) == [0, 1, 2]
    with pytest.raises(nandarray.InvalidError, match="read only"):
        nandarray.open("s3://bucket/one-file.nand", "r+")


def total(array: Any) -> int:
    return int(array[:].sum())


@pytest.mark.usefixtures("environment")
def test_the_command_line_has_urls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from nandarray.cli.commands import app

    def said(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            app([*words])
        out = capsys.readouterr()
        assert ended.value.code in (0, None), out
        return out.out

    home, url, back = str(tmp_path / "home.nand"), "s3://bucket/by-line.nand", str(tmp_path / "back.nand")
    grown(home).close()
    assert "5 versions, 4 parts, 1 tag copied" in said("parts", "push", home, url)
    assert "0 versions, 0 parts, 0 tags copied" in said("parts", "sync", home, url)
    assert '"versions": 5' in said("parts", "pull", url, back, "--json")
    assert said("parts", "versions", url) == said("parts", "versions", home)
    said("parts", "tag", url, "newest")
    assert "ok" in said("parts", "check", url)
    assert "1 tag copied" in said("parts", "sync", back, url)
    assert "newest=5" in said("parts", "info", back)
    said("parts", "join", url, str(tmp_path / "one.nand"))
    said("parts", "split", str(tmp_path / "one.nand"), "s3://bucket/again.nand")
    assert said("read", "s3://bucket/again.nand", "a", "0:2, 0:3") == said("read", home, "a", "0:2, 0:3")


@pytest.mark.usefixtures("environment")
def test_dask_writes_and_reads_a_bucket() -> None:
    da = pytest.importorskip("dask.array")
    url = "s3://bucket/dask.nand"
    values = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    with parts.create(url) as store:
        with store.transaction() as tx:
            nandarray.from_dask(da.from_array(values, chunks=(5, 7)), tx, "d", shards=(4, 4), building_block=(4, 4))
        lazy = da.from_array(store["d"], chunks=(8, 8))
        np.testing.assert_array_equal(lazy.compute(scheduler="threads"), values)


def test_a_reader_without_rights_to_write_holds_nothing(memory: Any) -> None:
    written("sky.nand", memory).close()

    def denied(_: int, name: str, key: str) -> None:
        if name.startswith(("put", "delete")):
            raise nandarray.DeniedError(key)

    with parts.open_folder("sky.nand", "r", storage=faulty(memory, denied)) as store:
        assert store["a"][0, 1] == 1
        assert store.check()["ok"]


def test_folders_of_killed_writers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nandarray.parts.blobs import working

    monkeypatch.setattr(working.tempfile, "tempdir", str(tmp_path))
    left, young = tmp_path / f"{working._PREFIX}left", tmp_path / f"{working._PREFIX}young"
    for folder in (left, young):
        folder.mkdir()
        (folder / "part.open").write_bytes(b"x")
    os.utime(left, (0, 0))
    one = working.Working()
    os.utime(one.folder, (0, 0))
    two = working.Working()
    assert sorted(tmp_path.iterdir()) == sorted(map(Path, (young, one.folder, two.folder)))
    folder = one.folder
    del one
    assert not os.path.exists(folder)


def test_programs_run_at_workers_that_see_the_bucket(served: Any, workers: Any) -> None:
    with written("near.nand", served) as store:
        wanted = store["a"].reduce("sum")
        assert store["a"].reduce("sum", client=workers) == wanted == store["a"][:].sum()


def test_parts_that_are_there_are_not_sent_again(tmp_path: Path, memory: Any) -> None:
    home = str(tmp_path / "home.nand")
    with grown(home) as store:
        objects = faulty(memory)
        parts.push(home, "sky.nand", storage=objects)
        far = blobs_of("sky.nand", memory)
        (lost, *_) = far.names("parts")
        far.delete(f"parts/{lost}")
        with parts.open_folder("sky.nand", "r", storage=memory) as copy:
            assert not copy.check()["ok"]
        store["b"] = np.arange(3)
        store.flush()
        objects.requests.clear()
        done = parts.push(home, "sky.nand", storage=objects)
        assert (done["versions"], done["parts"]) == (1, 2)
        assert [name for name, _ in objects.requests].count("put_file") == 2
        with parts.open_folder("sky.nand", "r", storage=memory) as copy:
            assert copy.check()["ok"]
