"""The work that ``bench parts`` measures, by each system: a module that peers' interpreter runs, without the product.

``python -m bench.parts_work JSON`` does one work of one system and prints its figures. Processes of writers and Dask's
workers are its children, whose processor time is counted with its own. Nothing here compares or judges: that is
``bench/parts.py``, which starts it.

Elements are float32. A row, or a chunk, of an array with very many of them is 64 bytes long: what is measured there is
what a store keeps of them, not the elements.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import math
import multiprocessing
import os
import shutil
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_WIDTH = 4096
#: Elements of a shard, or of a chunk, of an array that has very many.
_SIDE = 16
_RESULT = "figures: "
_Figures = dict[str, Any]
#: Icechunk calls no fsync: its commits become durable when the kernel writes them back.
_NOT_SYNCED = {"synced": False}


def _peer(name: str) -> Any:
    """Import a peer's module, of which this package knows no types."""
    return importlib.import_module(name)


# --- counts of the machine --------------------------------------------------------------------------------------------


def tree_cpu() -> float:
    """Return the seconds of processor time of this process and of all below it, those that have ended included."""
    times: dict[int, tuple[int, float]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            times[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def below(process: int) -> bool:
        while process in times and process != os.getpid():
            process = times[process][0]
        return process == os.getpid()

    return sum(seconds for process, (_, seconds) in times.items() if below(process))


def loopback() -> int:
    """Return the bytes that have gone over loopback, of any process."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next((int(line.split(":")[1].split()[0]) for line in lines if line.strip().startswith("lo:")), 0)


class Opened:
    """Counts the files below a folder that are opened, by any process, and those of them that were written."""

    _OPEN, _WRITTEN, _IS_FOLDER, _HEAD = 0x20, 0x8, 0x40000000, struct.Struct("iIII")

    def __init__(self, folder: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(os.O_NONBLOCK)
        for one in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
            self._libc.inotify_add_watch(self._file, os.fsencode(one), self._OPEN | self._WRITTEN)

    def counts(self) -> tuple[int, int]:
        """Return the number of files that were read alone, and of those that were written."""
        opened, written = set[tuple[int, bytes]](), set[tuple[int, bytes]]()
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._file, 1 << 16):
                while data:
                    folder, kind, _, length = self._HEAD.unpack_from(data)
                    name, data = data[self._HEAD.size : self._HEAD.size + length], data[self._HEAD.size + length :]
                    if not kind & self._IS_FOLDER:
                        (opened if kind & self._OPEN else written).add((folder, name))
        return len(opened - written), len(written)


def _peak_from_now() -> Callable[[], int]:
    """Return what tells the bytes by which resident memory has grown at most since now."""

    def read(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5\n")
    before = read("VmRSS:")
    return lambda: max(0, read("VmHWM:") - before)


def _durable(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")] if folder.is_dir() else [folder, folder.parent]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _size(folder: Path, without: str = "") -> int:
    """Return the bytes of the files of a folder, but for those in one folder of it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in files if path.relative_to(folder).parts[0] != without)


# --- uncoordinated commits --------------------------------------------------------------------------------------------


def _row(row: int) -> np.ndarray[Any, Any]:
    return np.full(_WIDTH, row + 1, np.float32)


def _writer_of_nandarray(path: str, rows: list[int], start: Any, told: Any) -> None:
    import nandarray

    good, tries = 0, []
    with nandarray.open(path, "r+") as opened:
        store: Any = opened
        start.wait()
        for row in rows:
            with contextlib.suppress(nandarray.ConflictError), store.transaction() as tx:
                tx["a"][row] = _row(row)
                tx.commit()
                good += 1
                tries.append(tx.stats["tries"])
    told.put((good, tries))


def _writer_of_icechunk(path: str, rows: list[int], start: Any, told: Any) -> None:
    icechunk = _peer("icechunk")
    zarr = _peer("zarr")

    good, tries = 0, list[int]()
    repository = _repository(Path(path))
    start.wait()
    for row in rows:
        session = repository.writable_session("main")
        zarr.open_array(session.store, path="a")[row] = _row(row)
        with contextlib.suppress(icechunk.ConflictError, icechunk.IcechunkError):
            session.commit("a row", rebase_with=icechunk.ConflictDetector())
            good += 1
    told.put((good, tries))


def _write_side_by_side(target: Callable[..., None], path: Path, writers: int, commits: int) -> _Figures:
    context = multiprocessing.get_context("spawn")
    start, told = context.Barrier(writers + 1), context.Queue()
    shares = [list(range(one * commits, (one + 1) * commits)) for one in range(writers)]
    crew = [context.Process(target=target, args=(str(path), rows, start, told)) for rows in shares]
    for one in crew:
        one.start()
    start.wait()
    began, cpu = time.perf_counter(), tree_cpu()
    answers = [told.get() for _ in crew]
    seconds = time.perf_counter() - began
    for one in crew:
        one.join()
    tries = [count for _, some in answers for count in some]
    return {
        "seconds": seconds,
        "cpu": tree_cpu() - cpu,
        "asked": writers * commits,
        "good": sum(good for good, _ in answers),
        "tries": statistics.median(tries) if tries else None,
    }


def _there(array: Any, rows: int) -> int:
    return sum(bool(np.array_equal(array[row], _row(row))) for row in range(rows))


def commits_of_nandarray(folder: Path, asked: _Figures) -> _Figures:
    from nandarray import parts

    path, rows = folder / "store", asked["writers"] * asked["commits"]
    with parts.create(path) as store:
        store.create("a", (rows, _WIDTH), "f4", shards=(1, _WIDTH), building_block=(1, _WIDTH))
        store.flush()
        before, versions = _size(path, "parts"), len(store.versions())
        found = _write_side_by_side(_writer_of_nandarray, path, asked["writers"], asked["commits"])
        store.refresh()
        told = {"there": _there(store["a"], rows), "history": len(store.versions()) - versions}
    # The least that a commit writes are a manifest and a leaf.
    leaf = max((path / "leaves").iterdir(), key=lambda one: one.stat().st_size)
    least = rows * (min((path / "manifests").iterdir()).stat().st_size + leaf.stat().st_size)
    return {**found, **told, "metadata": _size(path, "parts") - before, "least": least}


def commits_of_icechunk(folder: Path, asked: _Figures) -> _Figures:
    zarr = _peer("zarr")

    path, rows = folder / "store", asked["writers"] * asked["commits"]
    repository = _repository(path)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(rows, _WIDTH), chunks=(1, _WIDTH), dtype="f4", compressors=None)
    session.commit("the array")
    before, versions = _size(path, "chunks"), len(list(repository.ancestry(branch="main")))
    found = _write_side_by_side(_writer_of_icechunk, path, asked["writers"], asked["commits"])
    array = zarr.open_array(repository.readonly_session("main").store, path="a")
    history = len(list(repository.ancestry(branch="main"))) - versions
    return {
        **found,
        "there": _there(array, rows),
        "history": history,
        "metadata": _size(path, "chunks") - before,
        **_NOT_SYNCED,
    }


def _repository(path: Path, **options: Any) -> Any:
    icechunk = _peer("icechunk")

    return icechunk.Repository.open_or_create(icechunk.local_filesystem_storage(str(path)), **options)


# --- bytes from two workers -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _cluster() -> Iterator[Any]:
    distributed = _peer("distributed")

    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        yield client


def _wide(column: Any) -> Any:
    return (column + np.arange(_WIDTH, dtype=np.float32) / _WIDTH).astype(np.float32)


def _source(size: int) -> Any:
    da = _peer("dask.array")

    rows = max(2, size // (4 * _WIDTH))
    column = da.arange(rows, chunks=min(1024, -(-rows // 2)), dtype="f4")[:, None]
    return da.map_blocks(_wide, column, chunks=(column.chunks[0], (_WIDTH,)), dtype="f4")


def _timed(path: Path, work: Callable[[], None]) -> _Figures:
    """Measure a work until all that it wrote is on the disk."""
    began, cpu = time.perf_counter(), tree_cpu()
    work()
    _durable(path)
    return {"seconds": time.perf_counter() - began, "cpu": tree_cpu() - cpu}


def _same(array: Any, source: Any) -> None:
    for row in (0, source.shape[0] // 2, source.shape[0] - 1):
        if not np.array_equal(array[row], np.asarray(source[row].compute(scheduler="sync"))):
            raise SystemExit(f"row {row} is not what was written")


def _written(folder: Path, asked: _Figures, write: Callable[[Path, Any], Any]) -> _Figures:
    """Measure writing by a function that returns what reads it; what workers import is there before."""
    write(folder / "first", _source(1 << 16))
    source, path = _source(asked["bytes"]), folder / "store"
    began, cpu = time.perf_counter(), tree_cpu()
    read = write(path, source)
    _durable(path)
    found = {"seconds": time.perf_counter() - began, "cpu": tree_cpu() - cpu, "written": source.nbytes}
    for row in (0, source.shape[0] // 2, source.shape[0] - 1):
        if not np.array_equal(read[row], np.asarray(source[row].compute(scheduler="sync"))):
            raise SystemExit(f"row {row} is not what was written")
    return found


def bytes_of_nandarray(folder: Path, asked: _Figures) -> _Figures:
    import nandarray
    from nandarray import parts

    def write(path: Path, source: Any) -> Any:
        with parts.create(path) as store, store.transaction() as tx:
            rows = source.chunks[0][0]
            block = (math.gcd(rows, 64), 1024)  # 256 KiB
            nandarray.from_dask(source, tx, "a", shards=(rows, _WIDTH), building_block=block)
        return nandarray.open(path)["a"]

    with _cluster():
        return _written(folder, asked, write)


def bytes_of_nandarray_in_a_file(folder: Path, asked: _Figures) -> _Figures:
    dask = _peer("dask")

    import nandarray

    def write(path: Path, source: Any) -> Any:
        with nandarray.open(path, "w") as store:
            nandarray.from_dask(source, store, "a")
        return nandarray.open(path)["a"]

    with dask.config.set(scheduler="threads", num_workers=2):
        return _written(folder, asked, write)


def _chunked(source: Any) -> dict[str, Any]:
    return {"shape": source.shape, "chunks": (source.chunks[0][0], 1024), "dtype": "f4", "compressors": None}


def bytes_of_zarr(folder: Path, asked: _Figures) -> _Figures:
    da = _peer("dask.array")
    zarr = _peer("zarr")

    def write(path: Path, source: Any) -> Any:
        array = zarr.create_array(str(path), **_chunked(source))
        da.store(source, array, lock=False)
        return array

    with _cluster():
        return _written(folder, asked, write)


def bytes_of_icechunk(folder: Path, asked: _Figures) -> _Figures:
    zarr = _peer("zarr")
    store_dask = _peer("icechunk.dask").store_dask

    def write(path: Path, source: Any) -> Any:
        repository = _repository(path)
        session = repository.writable_session("main")
        zarr.create_array(session.store, name="a", **_chunked(source))
        session.commit("the array")
        session = repository.writable_session("main")
        fork = session.fork()
        session.merge(store_dask(sources=[source], targets=[zarr.open_array(fork.store, path="a")]))
        session.commit("elements")
        return zarr.open_array(repository.readonly_session("main").store, path="a")

    with _cluster():
        return _written(folder, asked, write)


# --- very many shards -------------------------------------------------------------------------------------------------


def _touched(shards: int, rounds: int, touch: Callable[[int], None], path: Path, without: str) -> _Figures:
    places = [int(one) for one in np.random.default_rng(6).integers(0, shards, rounds + 1)]
    touch(places[0])  # what is loaded once
    before, cpu, seconds = _size(path, without), tree_cpu(), []
    for place in places[1:]:
        began = time.perf_counter()
        touch(place)
        seconds.append(time.perf_counter() - began)
    written = (_size(path, without) - before) / rounds
    return {"seconds": seconds, "cpu": (tree_cpu() - cpu) / rounds, "metadata": written}


def touch_of_nandarray(folder: Path, asked: _Figures) -> _Figures:
    import nandarray

    path = folder / "store"
    _many_shards(path, asked["shards"])
    commits = []
    with nandarray.open(path, "r+") as opened:
        store: Any = opened

        def touch(shard: int) -> None:
            with store.transaction() as tx:
                tx["a"][shard * _SIDE : (shard + 1) * _SIDE] = 7
                began = time.perf_counter()
                tx.commit()
                commits.append(time.perf_counter() - began)

        found = _touched(asked["shards"], asked["rounds"], touch, path, "parts")
    return {**found, "commit": commits[1:]}


def _many_shards(path: Path, shards: int) -> None:
    """Make an array with a row for each shard, all of which name one shard of one part."""
    from dataclasses import replace

    from nandarray import parts
    from nandarray.parts import leaves

    with parts.create(path) as store:
        store.create("a", (shards * _SIDE,), "f4", shards=(_SIDE,), building_block=(_SIDE,))
        store["a"][:_SIDE] = np.arange(_SIDE)
        store.flush()
        history, base = store._source.history, store._source.draft.base
        entry = base.arrays["a"]
        row = leaves.find(entry.leaves, 0, history.load)
        assert row is not None
        found = []
        for first in range(0, shards, leaves.LEAF_ROWS):
            table = np.zeros(min(leaves.LEAF_ROWS, shards - first), leaves.ROW)
            table["shard"] = np.arange(first, first + len(table))
            for key in ("array", "bytes", "head"):
                table[key] = getattr(row, key)
            table["part"] = np.void(bytes.fromhex(row.part))
            sha, data = leaves.encode(table)
            history.put(sha, data)
            found.append(leaves.Leaf(first, len(table), sha))
        made: dict[str, Any] = {
            "version": base.version + 1,
            "parent": base.version,
            "parent_commit": base.commit,
            "commit": "f" * 32,
        }
        made |= {"ancestors": (base.commit, *base.ancestors), "arrays": {"a": replace(entry, leaves=tuple(found))}}
        assert history.add(replace(base, **made))


def _split(folder: Path) -> dict[str, Any]:
    """Return options of a repository that may have chunks in one file of a folder, with manifests of 16,384 chunks."""
    icechunk = _peer("icechunk")

    place = f"file://{folder}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(place, icechunk.local_filesystem_store(str(folder)))
    )
    sizes = {icechunk.ManifestSplitCondition.AnyArray(): {icechunk.ManifestSplitDimCondition.Any(): 16384}}
    config.manifest = icechunk.ManifestConfig(splitting=icechunk.ManifestSplittingConfig.from_dict(sizes))
    return {"config": config, "authorize_virtual_chunk_access": icechunk.containers_credentials({place: None})}


def touch_of_icechunk(folder: Path, asked: _Figures) -> _Figures:
    icechunk = _peer("icechunk")
    zarr = _peer("zarr")

    path, shards = folder / "store", asked["shards"]
    (folder / "data").mkdir()
    (folder / "data" / "chunk").write_bytes(np.arange(_SIDE, dtype=np.float32).tobytes())
    repository = _repository(path, **_split(folder / "data"))
    session = repository.writable_session("main")
    made = {"shape": (shards * _SIDE,), "chunks": (_SIDE,), "dtype": "f4", "compressors": None}
    zarr.create_array(session.store, name="a", **made)
    few = min(shards, 1 << 20)
    for first in range(0, shards, few):
        count = min(few, shards - first)
        session.store.set_virtual_refs_arr(
            "/a", (count,), [f"file://{folder}/data/chunk"] * count, np.zeros(count, np.uint64),
            np.full(count, 4 * _SIDE, np.uint64), arr_offset=(first,),
        )  # fmt: skip
    session.commit("all chunks")

    def touch(shard: int) -> None:
        session = repository.writable_session("main")
        zarr.open_array(session.store, path="a")[shard * _SIDE : (shard + 1) * _SIDE] = 7
        session.commit("a chunk", rebase_with=icechunk.ConflictDetector())

    return {**_touched(shards, asked["rounds"], touch, path, "chunks"), **_NOT_SYNCED}


def touch_of_zarr(folder: Path, asked: _Figures) -> _Figures:
    zarr = _peer("zarr")

    path, shards = folder / "store", asked["shards"]
    array = zarr.create_array(
        str(path), shape=(shards * _SIDE,), chunks=(_SIDE,), dtype="f4", compressors=None, fill_value=1
    )

    def touch(shard: int) -> None:
        array[shard * _SIDE : (shard + 1) * _SIDE] = 7
        _durable(path / "c" / str(shard))

    return _touched(shards, asked["rounds"], touch, path, "c")


def _look(opens: Callable[[], Any], path: Path, shards: int) -> _Figures:
    """Open a store in a new process, and read an element."""
    watched, peak, began = Opened(path), _peak_from_now(), time.perf_counter()
    opens()[shards // 3 * _SIDE]
    found = {"seconds": time.perf_counter() - began, "memory": peak()}
    files, made = watched.counts()
    return {**found, "files": files, "made": made}


def open_of_nandarray(folder: Path, asked: _Figures) -> _Figures:
    import nandarray
    import nandarray.parts.store  # noqa: F401

    return _look(lambda: nandarray.open(folder / "store")["a"], folder / "store", asked["shards"])


def open_of_icechunk(folder: Path, asked: _Figures) -> _Figures:
    icechunk = _peer("icechunk")
    zarr = _peer("zarr")

    options, place = _split(folder / "data"), icechunk.local_filesystem_storage(str(folder / "store"))

    def opens() -> Any:
        repository = icechunk.Repository.open(place, **options)
        return zarr.open_array(repository.readonly_session("main").store, path="a", mode="r")

    return _look(opens, folder / "store", asked["shards"])


def open_of_zarr(folder: Path, asked: _Figures) -> _Figures:
    zarr = _peer("zarr")

    return _look(lambda: zarr.open_array(str(folder / "store"), mode="r"), folder / "store", asked["shards"])


# --- beside the data --------------------------------------------------------------------------------------------------


def _noise(column: Any) -> Any:
    chance = np.random.default_rng([8, int(column[0, 0])])
    return chance.standard_normal((len(column), _WIDTH), np.float32)


def _noise_source(size: int) -> Any:
    da = _peer("dask.array")

    rows = max(2, size // (4 * _WIDTH))
    column = da.arange(rows, chunks=min(1024, -(-rows // 2)), dtype="f4")[:, None]
    return da.map_blocks(_noise, column, chunks=(column.chunks[0], (_WIDTH,)), dtype="f4")


#: One element of a hundred is above.
_ABOVE = 2.326


def _computed(works: dict[str, Callable[[], Any]], rounds: int) -> _Figures:
    found: _Figures = {}
    for name, work in works.items():
        work()  # compilers, caches of pages
        seconds, cpu, sent = [], tree_cpu(), loopback()
        for _ in range(rounds):
            began = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - began)
        found[name] = {
            "seconds": seconds, "cpu": (tree_cpu() - cpu) / rounds, "loopback": (loopback() - sent) / rounds
        }  # fmt: skip
    return {"works": found}


def _near(folder: Path, asked: _Figures, client: Any) -> _Figures:
    import nandarray
    from nandarray import parts, programs

    source = _noise_source(asked["bytes"])
    with parts.create(folder / "store") as store:
        with store.transaction() as tx:
            for at in range(source.numblocks[0]):  # a part each
                rows = slice(sum(source.chunks[0][:at]), sum(source.chunks[0][: at + 1]))
                if not at:
                    tx.create("a", source.shape, "f4", shards=(source.chunks[0][0], _WIDTH))
                with tx.fork().writer() as writer:
                    tx.merge([writer.write("a", rows, source[rows].compute(scheduler="sync"))])
        array: Any = store["a"]
        options: dict[str, Any] = {} if client is None else {"client": client}
        histogram = programs.get("histogram", dtype="float32")
        kept = programs.get("filter", dtype="float32")
        bounds = {"low": np.float32(_ABOVE), "high": np.float32(100)}
        works: dict[str, Callable[[], Any]] = {
            "mean": lambda: array.reduce("mean", **options),
            "histogram": lambda: nandarray.offload(histogram, [array], {"low": -5.0, "high": 5.0}, **options).result,
            "filter 1 %": lambda: nandarray.offload(kept, [array], bounds, **options).result,
        }
        return _computed(works, asked["rounds"])


def near_of_nandarray(folder: Path, asked: _Figures) -> _Figures:
    import inspect

    import nandarray

    if "client" not in inspect.signature(nandarray.Array.offload).parameters:
        raise ImportError("this version runs no programs at workers: offload has no client=")
    with _cluster() as client:
        return _near(folder, asked, client)


def near_of_nandarray_here(folder: Path, asked: _Figures) -> _Figures:
    return _near(folder, asked, None)


def near_of_zarr(folder: Path, asked: _Figures) -> _Figures:
    da = _peer("dask.array")
    zarr = _peer("zarr")

    source = _noise_source(asked["bytes"])
    path = str(folder / "store")
    made = zarr.create_array(path, **_chunked(source))
    da.store(source, made, lock=False, scheduler="threads")
    with _cluster():
        array = da.from_zarr(path)
        works: dict[str, Callable[[], Any]] = {
            "mean": lambda: array.mean(dtype="f8").compute(),
            "histogram": lambda: da.histogram(array, 64, (-5, 5))[0].compute(),
            "filter 1 %": lambda: array[array > _ABOVE].compute(),
        }
        return _computed(works, asked["rounds"])


def main(text: str) -> None:
    """Do one work, and print its figures as JSON."""
    asked = json.loads(text)
    folder = Path(asked["folder"])
    if asked["work"] != "open":
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    try:
        if asked["system"] == "icechunk":
            os.environ.setdefault("ICECHUNK_LOG", "error")
            icechunk = _peer("icechunk")

            if int(icechunk.__version__.split(".")[0]) < 2:
                raise ImportError(f"icechunk {icechunk.__version__}: version 2 is what is compared")
        found = globals()[f"{asked['work']}_of_{asked['system']}"](folder, asked)
    except ImportError as error:
        found = {"missing": str(error)}
    print(_RESULT + json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
