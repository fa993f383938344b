"""The cache of bytes from far away: it heals, is bounded and shared, survives killed processes, and may be missing."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far_servers import FAULTS, RangeServer

import nandarray
from nandarray import ChangedError, ChecksumError, InvalidError, MediaError
from nandarray.remote.cache import Cache
from nandarray.remote.places import place_of
from nandarray.remote.source import open_far

pytest.importorskip("obstore")
fsspec = pytest.importorskip("fsspec")

UNIT = 64 << 10
KILLS = 1000 if os.environ.get("NANDARRAY_DEEP") else 100
FAULTED = 1000 if os.environ.get("NANDARRAY_DEEP") else 150
ROWS, COLUMNS = 1024, 1100


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a store of 9 MB."""
    folder = tmp_path_factory.mktemp("far")
    with nandarray.open(folder / "a.nand", "w") as store:
        store["x"] = wanted()
        store.create("packed", data=wanted(), compression="zstd:1+shuffle")
    return folder


def wanted() -> Any:
    return np.random.default_rng(3).integers(0, 1 << 40, (ROWS, COLUMNS))


def local(folder: Path, cache: Path, **options: Any) -> nandarray.Store:
    """Open the store by a file system that forks and threads do not disturb."""
    path, system = str(folder / "a.nand"), fsspec.filesystem("file")
    return nandarray.open(path, storage=system, cache=cache, **options)


def kept(cache: Path) -> Path:
    (found,) = (path for path in cache.iterdir() if path.suffix == ".data")
    return found


def test_rotten_bytes_are_fetched_again(made: Path, tmp_path: Path) -> None:
    whole, chance = wanted(), random.Random(4)
    with local(made, tmp_path / "c") as store:
        np.testing.assert_array_equal(store["x"][...], whole)
        np.testing.assert_array_equal(store["packed"][...], whole)
    data = kept(tmp_path / "c")
    held = data.stat().st_size // UNIT
    for count in (1, 20, 200):
        with data.open("r+b") as file:
            places = {chance.randrange(held * UNIT) for _ in range(count)} | {5, (2 << 20) + 40, (6 << 20) + 40}
            for at in places:
                file.seek(at)
                was = file.read(1)
                file.seek(at)
                file.write(bytes([was[0] ^ (1 << chance.randrange(8))]))
        for _ in range(2):
            with local(made, tmp_path / "c") as store:
                np.testing.assert_array_equal(store["x"][::3, 7], whole[::3, 7])
                np.testing.assert_array_equal(store["x"][...], whole)
                np.testing.assert_array_equal(store["packed"][...], whole)


def test_what_is_rotten_there_is_an_error_with_its_place(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a.nand"
    data = bytearray((made / "a.nand").read_bytes())
    with local(made, tmp_path / "c") as store:
        store["x"][...]
    spoilt = wanted()[700, 500].tobytes()
    at = data.index(spoilt)
    data[at] ^= 1
    copy.write_bytes(data)
    with local(tmp_path, tmp_path / "d") as store, pytest.raises(ChecksumError, match=f"offset {at // 4096 * 4096}"):
        store["x"][...]


def _reads(folder: Path, cache: Path, seed: int, most: int) -> None:
    chance, whole = random.Random(seed), wanted()
    with local(folder, cache) as store:
        array = store["x"]
        for _ in range(most):
            row, column = chance.randrange(ROWS), chance.randrange(COLUMNS)
            if not np.array_equal(array[row : row + 90, column:], whole[row : row + 90, column:]):
                os._exit(7)
    os._exit(0)


def test_killed_processes_leave_a_cache_that_is_right(made: Path, tmp_path: Path) -> None:
    chance, context = random.Random(9), multiprocessing.get_context("fork")
    running: list[Any] = []
    cache = tmp_path / "c"
    for number in range(KILLS):
        child = context.Process(target=_reads, args=(made, cache, number, 1000))
        child.start()
        running.append(child)
        time.sleep(chance.random() * 0.03)
        if len(running) == 3:
            victim = running.pop(chance.randrange(3))
            victim.kill()
            victim.join()
            assert victim.exitcode in (-signal.SIGKILL, 0)
        if chance.random() < 0.1:
            Cache(cache).clear()
    for child in running:
        child.kill()
        child.join()
        assert child.exitcode in (-signal.SIGKILL, 0)
    with local(made, cache) as store:
        np.testing.assert_array_equal(store["x"][...], wanted())


def _reads_all(folder: Path, cache: Path, bound: int) -> None:
    place, held = place_of(str(folder / "a.nand"), fsspec.filesystem("file")), Cache(cache, bound)
    chance, whole = random.Random(os.getpid()), wanted()
    store = nandarray.Store(open_far(place.objects, place.key, cache=held), "r")
    for _ in range(60):
        row = chance.randrange(ROWS)
        if not np.array_equal(store["x"][row : row + 200], whole[row : row + 200]):
            os._exit(7)
    os._exit(0)


def test_a_bound_is_kept_by_processes_that_share_a_cache(made: Path, tmp_path: Path) -> None:
    cache, bound = tmp_path / "c", 4 << 20
    cache.mkdir(mode=0o700)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_reads_all, args=(made, cache, bound)) for _ in range(4)]
    for child in children:
        child.start()
    most = 0
    while any(child.is_alive() for child in children):
        most = max(most, Cache(cache, bound).held())
        time.sleep(0.005)
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4
    kept = Cache(cache, bound)
    kept.make_room()  # the last of them leaves it to one that is at it
    assert 0 < kept.held() <= bound, f"{kept.held()} ({most} on the way) of {bound} bytes"


def test_entries_that_are_closed_go_first(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir(mode=0o700)
    size = (made / "a.nand").stat().st_size
    cache = Cache(folder, 2 * size)
    stores, place = [], place_of(str(made / "a.nand"), fsspec.filesystem("file"))
    facts = place.objects.facts(place.key)
    for number in range(3):
        # Three objects, as a cache sees them.
        other = place_of(f"{made}/./a.nand", fsspec.filesystem("file")).objects
        other.root = f"{made}/{'./' * number}"[:-1]
        stores.append(nandarray.Store(open_far(other, place.key, facts, cache=cache), "r"))
        np.testing.assert_array_equal(stores[-1]["x"][...], wanted())
        if number == 0:
            stores.pop().close()
    end = time.monotonic() + 30
    while sum(entry.open for entry in cache.entries()) > 2 and time.monotonic() < end:
        time.sleep(0.01)  # the threads of the store that was closed end by themselves
    cache.bound = cache.held() // 4 * 3
    cache.make_room()
    assert sorted(entry.open for entry in cache.entries()) == [True, True], "the closed one is gone"
    for store in stores:
        np.testing.assert_array_equal(store["x"][5], wanted()[5])
    assert cache.clear()[1] == 2


def test_without_a_folder_bytes_are_in_memory(made: Path, tmp_path: Path) -> None:
    whole = wanted()
    for cache in (Path("/proc/nowhere"), tmp_path / "file" / "c"):
        (tmp_path / "file").write_bytes(b"")
        with pytest.warns(RuntimeWarning, match="kept in memory"), local(made, cache) as store:
            np.testing.assert_array_equal(store["x"][...], whole)
        with warnings.catch_warnings(), local(made, cache) as store:
            warnings.simplefilter("error")  # it was said
            assert store["x"][3, 4] == whole[3, 4]
    with local(made, False) as store:  # type: ignore[arg-type]
        np.testing.assert_array_equal(store["x"][...], whole)


def test_on_a_disk_that_takes_nothing_bytes_are_in_memory(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Cache._files

    def that_cannot_be_written(self: Cache, name: str, flags: int = 0) -> Any:
        entry = files(self, name, flags)
        os.close(entry.data)
        entry.data = os.open(self.folder / f"{name}.data", os.O_RDONLY)
        return entry

    monkeypatch.setattr(Cache, "_files", that_cannot_be_written)
    with pytest.warns(RuntimeWarning, match="kept in memory") as said, local(made, tmp_path / "c") as store:
        np.testing.assert_array_equal(store["x"][...], wanted())
    assert len(said) == 1


def test_a_folder_is_its_owners_alone(made: Path, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    os.chmod(tmp_path / "c", 0o777)
    with pytest.raises(InvalidError, match="no other user can change: other users can write"):
        local(made, tmp_path / "c")
    with local(made, tmp_path / "d") as store:
        store["x"][0, 0]
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "d").iterdir())


def test_faults_on_the_way_give_no_wrong_number(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nandarray.remote.objects._PAUSE_S", 0.01)
    chance, whole, count = random.Random(6), wanted(), 0

    def fault(_number: int, _name: str) -> str | None:
        nonlocal count
        if chance.random() > 0.3:
            return None
        count += 1
        return chance.choice(FAULTS)

    from obstore.store import HTTPStore

    told = []
    with RangeServer(made, fault=fault) as server:
        storage = HTTPStore(server.url, client_options={"allow_http": True}, retry_config={"max_retries": 0})
        while count < FAULTED:
            try:
                with nandarray.open("a.nand", storage=storage, cache=False) as store:
                    array = store["x"]
                    for _ in range(4):
                        row, column = chance.randrange(ROWS), chance.randrange(COLUMNS)
                        got = array[row : row + 30, column : column + 100]
                        np.testing.assert_array_equal(got, whole[row : row + 30, column : column + 100])
            except (MediaError, ChangedError) as error:
                told.append(str(error))
    assert told
    assert all("a.nand" in text for text in told), told
    assert all("bytes" in text or "HEAD" in text or "replaced" in text for text in told), told
