"""Stores far away: what they give is what a local store gives, in few requests; and what is refused."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far_servers import RangeServer, hasty, s3

import nandarray
from nandarray import (
    ChangedError,
    InvalidError,
    MediaError,
    NotAStoreError,
    StoreMissingError,
)
from nandarray.remote.places import place_of
from nandarray.remote.source import open_far

pytest.importorskip("obstore")
fsspec = pytest.importorskip("fsspec")

KEY = bytes(range(32))
UNIT = 64 << 10


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store of everything that a local store does."""
    folder = tmp_path_factory.mktemp("far")
    chance = np.random.default_rng(5)
    with nandarray.open(folder / "sky.nand", "w") as store:
        store["plain"] = chance.random((600, 700)).astype(np.float32)
        store.create("deep/packed", data=chance.integers(0, 50, (300, 400)), compression="zstd:3+shuffle")
        store.create("secret", data=np.arange(50_000.0), encryption_key=KEY)
        store["deep"].attrs["title"] = "far"
        store["many"] = np.arange(3_000_000, dtype=np.int64).reshape(1000, 3000)
        store["texts"] = np.array(["a", "bc", "def"] * 100)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def far(server: RangeServer, cache: Path, name: str = "sky.nand", **options: Any) -> nandarray.Store:
    return nandarray.open(f"{server.url}/{name}", cache=cache, **options)


def test_a_store_far_away_is_equal_to_the_local_one(made: Path, cache: Path) -> None:
    with RangeServer(made) as server, nandarray.open(made / "sky.nand") as here:
        for _ in range(2):  # cold, and from the cache
            with far(server, cache) as there:
                assert there.read_only
                assert there.array_names() == here.array_names()
                assert there["deep"].attrs["title"] == "far"
                for name in here.array_names():
                    one, other = (
                        store.get(name, encryption_key=KEY if name == "secret" else None) for store in (here, there)
                    )
                    np.testing.assert_array_equal(one[...], other[...])
                assert there["plain"][17, 300] == here["plain"][17, 300]
                np.testing.assert_array_equal(there["plain"][::7, 5:90:3], here["plain"][::7, 5:90:3])
                rows = [3, 500, 77]
                np.testing.assert_array_equal(there["many"][rows], here["many"][rows])
                view = there["many"].view((3000, 1000))
                np.testing.assert_array_equal(view[5:50, ::9], here["many"].view((3000, 1000))[5:50, ::9])
                assert server.url in repr(there)
                assert server.url in there._repr_html_()
                there.refresh()
                assert there.check()["ok"]
            first = server.sent
        assert server.sent == first, "the second time all came from the cache"


def test_what_is_encrypted_is_so_in_the_cache(made: Path, cache: Path) -> None:
    clear = np.arange(50_000.0).tobytes()[80_000:80_064]
    with RangeServer(made) as server, far(server, cache) as there:
        assert there.get("secret", encryption_key=KEY)[49_999] == 49_999
        there.get("secret", encryption_key=KEY)[...]
    kept = [path.read_bytes() for path in cache.iterdir() if path.suffix == ".data"]
    assert len(kept) == 1
    assert clear not in kept[0]


def test_opening_and_one_element_cost_few_requests(made: Path, cache: Path) -> None:
    with RangeServer(made) as server, far(server, cache) as there:
        assert len(server.requests) <= 3, server.requests
        opened = len(server.requests)
        # Its page and the page's record, side by side: one round trip.
        assert there["many"][777, 1234] == 777 * 3000 + 1234
        assert len(server.requests) - opened <= 2, server.requests[opened:]


def test_s3_and_fsspec_and_a_key_in_a_storage(made: Path, cache: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("moto")
    from nandarray.remote.places import place_of

    with nandarray.open(made / "sky.nand") as here, s3() as store:
        wanted = here["plain"][...]
        place_of("s3://bucket/a/sky.nand", store).objects.put_file("a/sky.nand", str(made / "sky.nand"))
        for path in ("s3://bucket/a/sky.nand", "a/sky.nand"):
            with nandarray.open(path, storage=store, cache=cache) as there:
                np.testing.assert_array_equal(there["plain"][...], wanted)
        with nandarray.open(str(made / "sky.nand"), storage=fsspec.filesystem("file"), cache=False) as there:
            np.testing.assert_array_equal(there["plain"][...], wanted)
            copy = pickle.loads(pickle.dumps(there["plain"]))
            np.testing.assert_array_equal(copy[...], wanted)
        with pytest.raises(StoreMissingError, match="a/none"):
            nandarray.open("s3://bucket/a/none", storage=store, cache=cache)


def test_pickles_open_the_same_object_elsewhere(made: Path, cache: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.nand"
    copy.write_bytes((made / "sky.nand").read_bytes())
    with RangeServer(tmp_path) as server:
        with far(server, cache, "copy.nand") as there:
            one, two = pickle.loads(pickle.dumps((there["plain"], there["many"])))
            assert one.store is two.store
            np.testing.assert_array_equal(one[5], there["plain"][5])
            pickled = pickle.dumps(there["many"])
            context = multiprocessing.get_context("spawn")
            with context.Pool(2) as pool:
                sums = pool.map(_sum_of, [(pickled, row) for row in range(0, 1000, 250)])
            assert sums == [int(there["many"][row].sum()) for row in range(0, 1000, 250)]
        copy.unlink()
        copy.write_bytes((made / "sky.nand").read_bytes())
        os.utime(copy, (5, 5))
        again = pickle.loads(pickled).store
        again.close()
        for path in cache.iterdir():
            path.unlink()
        with pytest.raises(ChangedError, match="copy.nand"):
            pickle.loads(pickled)


def _sum_of(asked: tuple[bytes, int]) -> int:
    return int(pickle.loads(asked[0])[asked[1]].sum())


def test_threads_read_what_a_local_store_has(made: Path, cache: Path) -> None:
    names = ("plain", "many", "deep/packed", "secret")

    def reads(stores: tuple[Any, Any], seed: int, wrong: list[str]) -> None:
        chance = np.random.default_rng(seed)
        for _ in range(40):
            name = names[chance.integers(len(names))]
            one, other = (store.get(name, encryption_key=KEY if name == "secret" else None) for store in stores)
            start = [int(chance.integers(size)) for size in one.shape]
            count = [int(chance.integers(1, 200)) for _ in start]
            box = tuple(slice(low, low + n) for low, n in zip(start, count, strict=True))
            if not np.array_equal(one[box], other[box]) or repr(one) != repr(other):
                wrong.append(f"{name} {box}")

    for latency in (0.0, 0.005):
        wrong: list[str] = []
        with (
            RangeServer(made, latency_s=latency) as server,
            nandarray.open(made / "sky.nand") as here,
            far(server, cache / str(latency), threads=2) as there,
        ):
            threads = [threading.Thread(target=reads, args=((here, there), seed, wrong)) for seed in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
                assert not thread.is_alive(), "it hangs"
        assert wrong == []


def test_a_fork_reads_what_is_here_and_never_hangs(made: Path, cache: Path) -> None:
    with RangeServer(made) as server, far(server, cache) as there:
        there["many"][...]
        context = multiprocessing.get_context("fork")
        with context.Pool(2) as pool:
            found = pool.starmap_async(_row_of, [(there["many"], 3), (there["many"], 900)]).get(60)
        assert found == [int(there["many"][3].sum()), int(there["many"][900].sum())]


def test_a_fork_that_has_to_fetch_is_told_why_it_cannot(made: Path, cache: Path) -> None:
    with RangeServer(made) as server, far(server, cache) as there:
        there["plain"][0, 0]
        child = multiprocessing.get_context("fork").Process(target=_cannot_fetch, args=(there["many"],))
        child.start()
        child.join(60)
        child.kill()
        child.join()
        assert child.exitcode == 0


def _cannot_fetch(array: Any) -> None:
    with pytest.raises(MediaError, match="forked.*spawn"):
        array[900:].sum()
    os._exit(0)


def _row_of(array: Any, row: int) -> int:
    return int(array[row].sum())


def test_it_is_read_only_and_takes_what_makes_sense(made: Path, cache: Path) -> None:
    with RangeServer(made) as server:
        url = f"{server.url}/sky.nand"
        for mode in ("r+", "a", "w", "x"):
            with pytest.raises(InvalidError, match="read only.*must be 'r'"):
                nandarray.open(url, mode, cache=cache)  # type: ignore[arg-type]
        for wrong in ({"device": "samsung-970-pro"}, {"capacity": 1 << 30}, {"io": "read"}, {"salvage": True}):
            with pytest.raises(InvalidError, match=f"takes no {next(iter(wrong))}"):
                nandarray.open(url, cache=cache, **wrong)  # type: ignore[arg-type]
        for words in ({"cache": True}, {"cache_bytes": 5}, {"storage": 7}):
            with pytest.raises(InvalidError, match="must be"):
                nandarray.open(url, **{"cache": cache, **words})  # type: ignore[arg-type]
        with pytest.raises(InvalidError, match="for objects far away"):
            nandarray.open(made / "sky.nand", cache=cache)
        with far(server, cache) as there, pytest.raises(nandarray.ReadOnlyError):
            there["plain"][0] = 1


def test_what_is_no_store_is_told_with_its_url(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "text").write_bytes(b"hello " * 100_000)
    (tmp_path / "empty").write_bytes(b"")
    with RangeServer(tmp_path) as server:
        for name in ("text", "empty"):
            with pytest.raises(NotAStoreError, match=f"{server.url}/{name}"):
                far(server, cache, name)
        with pytest.raises(StoreMissingError, match=f"{server.url}/none"):
            far(server, cache, "none")
        objects, key = place_of(f"{server.url}/text")
        endless = objects.facts(key)._replace(bytes=1 << 60)
        with pytest.raises(NotAStoreError, match=rf"text must have at most {1 << 46} bytes; .* {1 << 60}"):
            open_far(objects, key, endless)
    with pytest.raises(MediaError, match=f"{server.url}/text"):
        far(server, cache, "text", storage=hasty(server.url))


def test_an_object_that_is_replaced_is_never_mixed(made: Path, tmp_path: Path, cache: Path) -> None:
    copy = tmp_path / "copy.nand"
    copy.write_bytes((made / "sky.nand").read_bytes())
    with RangeServer(tmp_path) as server, far(server, cache, "copy.nand") as there:
        many = there["many"]
        assert many[0, 0] == 0
        copy.unlink()
        copy.write_bytes((made / "sky.nand").read_bytes() + b"more")
        with pytest.raises(ChangedError, match="copy.nand: bytes .* replaced"):
            many[900:].sum()
        with far(server, cache, "copy.nand") as new:
            np.testing.assert_array_equal(new["many"][900:], np.arange(2_700_000, 3_000_000).reshape(100, 3000))


@pytest.mark.parametrize("kind", ["strong", "weak", "none", "files"])
def test_what_is_written_anew_in_its_place_is_never_mixed(kind: str, tmp_path: Path, cache: Path) -> None:
    path, shape = tmp_path / "a.nand", (1000, 1000)
    versions = []
    for value in (1, 2):
        with nandarray.open(path, "w") as store:
            store["x"] = np.full(shape, value)
        versions.append(path.read_bytes())
    assert len(versions[0]) == len(versions[1])

    def write(version: int) -> None:
        with path.open("r+b") as file:  # the file keeps its number
            file.write(versions[version])
        os.utime(path, (version, version))

    with RangeServer(tmp_path, etags=kind) as server:
        storage = fsspec.filesystem("file") if kind == "files" else None
        url = str(path) if storage else f"{server.url}/a.nand"
        write(0)
        with nandarray.open(url, storage=storage, cache=cache, verify="never") as store:
            assert store["x"][0, 0] == 1
            write(1)
            with pytest.raises(ChangedError, match="a.nand: bytes .* replaced"):
                store["x"][...]
        for _ in range(2):
            with nandarray.open(url, storage=storage, cache=cache, verify="never") as store:
                assert (store["x"][...] == 2).all()
        assert any(cache.glob("*.data")) == (kind in ("strong", "files"))


def test_an_interrupt_ends_a_wait(made: Path, cache: Path) -> None:
    with RangeServer(made) as server, far(server, cache) as there:
        many = there["many"]
        many[0, 0]
        server.latency_s = 3.0
        killer = threading.Timer(0.3, lambda: os.kill(os.getpid(), 2))
        killer.start()
        begin = os.times().elapsed
        with pytest.raises(KeyboardInterrupt):
            many[500:].sum()
        assert os.times().elapsed - begin < 2.5
        server.latency_s = 0.0
        np.testing.assert_array_equal(many[999], np.arange(2_997_000, 3_000_000))


def test_python_ends_while_bytes_are_on_their_way(made: Path, cache: Path) -> None:
    with RangeServer(made, latency_s=0.2) as server:
        program = (
            "import nandarray, sys\n"
            "store = nandarray.open(sys.argv[1], cache=sys.argv[2])\n"
            "many = store['many']\n"
            "[many[row:row + 10].sum() for row in range(0, 60, 10)]\n"
            "print('ended')\n"
        )
        command = [sys.executable, "-c", program, f"{server.url}/sky.nand", str(cache)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_the_command_line_reads_it(made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from nandarray.cli.commands import app

    monkeypatch.setenv("NANDARRAY_CACHE", str(cache))

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, list(words))
        assert done.exit_code == 0, done.output
        return done.stdout

    with RangeServer(made) as server:
        url = f"{server.url}/sky.nand"
        told = run("info", url)
        assert len(server.requests) <= 3, server.requests
        assert url in told.replace("\n", "")
        assert "deep/packed" in run("ls", url)
        assert run("read", url, "many", "2, :3").split()[-3:] == ["[6000,", "6001,", "6002]"]
        told = json.loads(run("cache", "info", "--json"))
        assert [one["url"] for one in told["objects"]] == [url]
        assert 0 < told["objects"][0]["held"] <= told["bound"]
        assert "sky.nand" in run("cache", "info")
        end = time.monotonic() + 30
        while json.loads(run("cache", "info", "--json"))["objects"][0]["open"] and time.monotonic() < end:
            time.sleep(0.01)  # the threads of the store that was closed end by themselves
        assert "freed" in run("cache", "clear")
        assert json.loads(run("cache", "info", "--json"))["objects"] == []
