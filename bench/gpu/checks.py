"""Checks on a card: kernels read, store and report the right words and statuses, and no wait is endless."""

from __future__ import annotations

import importlib
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import nandarray
from nandarray import gpu

from .door import Door
from .session import ROW_WORDS, MissingError, Results, Server, Session, Step, u32, u64

__all__ = ["STEPS", "BrokenError"]

_TIMED_OUT, _ABORTED, _NO_SLOT, _RESIZED = 0x7C0, 0x7C1, 0x7C2, 0x1C2
#: A status without the bit by which a controller advises against trying again.
_STATUS_MASK = 0x7FF
_Statuses = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


class BrokenError(Exception):
    """A check does not hold."""


def _require(holds: object, why: str) -> None:
    if not holds:
        raise BrokenError(why)


def _holds(what: str) -> Results:
    return [("holds", what)]


def _statuses(
    session: Session, door: Door, threads: int, reach: tuple[int, int], meanwhile: Callable[[], None] = lambda: None
) -> _Statuses:
    """Let each of a number of threads read one element; ``reach`` is the first one and the distance between them.

    Their statuses and values.
    """
    with session.words(threads, np.uint32) as why, session.words(threads) as values:
        parameters = (door.array("words"), *map(u64, reach), why.parameter, values.parameter)
        session.run("read_statuses", threads, *parameters, door=door, meanwhile=meanwhile)
        return why.get(), values.get()


def _right(session: Session, statuses: _Statuses, first: int, stride: int, ended: int) -> int:
    """Return the number of threads whose read ended with this status; the others must have their word."""
    why, values = statuses
    told = why == ended
    _require(((why == 0) | told).all(), f"statuses {sorted({hex(s) for s in why})}")
    words = session.host.words(0, first + stride * len(why))[first::stride][: len(why)]
    _require((values == np.where(told, 0, words)).all(), "a value that is neither right nor 0 with a status")
    return int(told.sum())


def _gather(session: Session) -> Results:
    sizes = session.sizes
    numbers = np.random.default_rng(3).integers(0, sizes.rows, min(sizes.records, 10_000)).astype(np.uint64)
    with (
        session.server() as server,
        session.door(server) as door,
        session.words(len(numbers)) as given,
        session.words(len(numbers) * ROW_WORDS) as rows,
        session.words(2) as out,
    ):
        session.card.put(given.at, numbers)
        parameters = (given.parameter, u64(len(numbers)), u32(ROW_WORDS), rows.parameter, out.parameter)
        session.run("gather_rows", min(sizes.threads, 8192), door.array("words"), *parameters, door=door)
        failed, why = (int(word) for word in out.get())
        _require(failed == 0, f"{failed} records, status {why:#x}")
        flat = np.load(session.folder / "words.npy", mmap_mode="r")
        _require(np.array_equal(rows.get().reshape(-1, ROW_WORDS), flat[numbers]), "other rows than NumPy's take")
    return _holds(f"{len(numbers)} rows of 4 KiB")


def _stores(session: Session) -> Results:
    count, salt = 1 << 14, 0x5A5A
    with session.server() as server:
        with session.door(server) as door, session.words(2) as out:
            written = door.array("written")
            threads = min(session.sizes.threads, 4096)
            session.run("store_words", threads, written, u64(count), u64(salt), out.parameter, door=door)
            session.run("flush_once", 32, written, u64(door.word), out.parameter, door=door)
            failed, why = (int(word) for word in out.get())
            _require(failed == 0, f"{failed} stores or flushes failed, status {why:#x}")
        expected = session.host.words(0, count) ^ np.uint64(salt)
        with gpu.connect(server.name) as client:
            _require(np.array_equal(client["written"][:], expected), "another process reads other words")
    with nandarray.open(session.store) as store:
        _require(np.array_equal(store["written"][:], expected), "the store's file has other words")
    return _holds(f"{count} words, read by another process and from the file")


def _errors(session: Session) -> Results:
    threads, name = min(session.sizes.threads, 1024), f"{session.folder.name}-errors"
    path = session.folder / "errors.nand"
    with nandarray.open(path, "w") as store:
        store["words"] = session.host.words(0, 4096)
        sizes = {"queues": 2, "depth": session.sizes.depth, "data_bytes": 64 << 10}
        server = gpu.serve(store, name, **sizes, threads=1, writable=True, programs=True)
        try:
            with Door(session.host, session.card, name, queues=1, line_bytes=4096) as door:
                before = _statuses(session, door, threads, (0, 1))
                _require(_right(session, before, 0, 1, ended=_RESIZED) == 0, "an error before there was a reason")
                store.open_array("words").resize((2048,))
                # The first lines are in the cache; the last one was never read.
                why, values = _statuses(session, door, threads, (4000, 0))
        finally:
            server.stop()
    _require(len(set(why)) == 1, f"statuses {sorted({hex(s) for s in why})}")
    _require(why[0] & _STATUS_MASK == _RESIZED, f"status {why[0]:#x}, and not the one of a resized array")
    _require(not values.any(), "stale bytes behind a status")
    return _holds(f"{threads} threads have status {why[0]:#x}, and zeroes")


def _ended_server(session: Session, number: int) -> Results:
    sizes = session.sizes
    told: list[int] = []
    threads = min(sizes.threads, sizes.rows)
    with session.server() as server, session.door(server) as door:

        def end() -> None:
            if server.process.poll() is None and not told:
                told.append(number)
                server.send(number)

        began = time.monotonic()
        during = _right(session, _statuses(session, door, threads, (0, ROW_WORDS), end), 0, ROW_WORDS, _ABORTED)
        server.process.wait(20)
        door.tend()
        after, _ = _statuses(session, door, 32, ((sizes.rows - 1) * ROW_WORDS, 1))
        seconds = time.monotonic() - began
    _require((after == _ABORTED).all(), f"statuses {sorted({hex(s) for s in after})} when the server was gone")
    return _holds(f"{during} of {threads} reads ended with status {_ABORTED:#x} within {seconds:.1f} s, all later ones")


def _deadlines(session: Session) -> Results:
    sizes = session.sizes
    # More commands than the rings hold: threads wait for loads, for places in the rings, and for sets' locks.
    threads = min(sizes.waiters, sizes.rows)
    # A deadline of its own: every wait ends by it here, and none does elsewhere, however busy the machine is.
    with session.server() as server, session.door(server, deadline_s=0.3) as door, session.words(2) as out:
        written = door.array("written")
        session.run("store_words", 32, written, u64(32), u64(0), out.parameter, door=door)
        _stopped(server)
        began = time.monotonic()
        session.run("flush_once", 32, written, u64(door.word), out.parameter)
        _require(int(out.get()[1]) == _TIMED_OUT, f"a flush ended with status {int(out.get()[1]):#x}")
        why, values = _statuses(session, door, threads, (0, ROW_WORDS))
        seconds = time.monotonic() - began
    # A read whose set has nothing but lines that others wait for may end by that.
    ends = np.isin(why, (_TIMED_OUT, _NO_SLOT)).all() and (why == _TIMED_OUT).any()
    _require(bool(ends), f"statuses {sorted({hex(s) for s in why})}")
    _require(not values.any(), "stale bytes behind a status")
    return _holds(
        f"{threads} reads and a flush ended, by status {_TIMED_OUT:#x} or for want of a line, within {seconds:.1f} s"
    )


def _stopped(server: Server) -> None:
    """Stop a server's process, and wait until it is."""
    server.send(signal.SIGSTOP)
    while True:
        with open(f"/proc/{server.process.pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "T":
                return
        time.sleep(0.001)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingError(f"no {name}") from None


def _torch(session: Session) -> Results:
    torch = _library("torch")
    if not torch.cuda.is_available():
        raise MissingError("torch is built without CUDA, or finds no card")
    numbers = np.random.default_rng(4).integers(0, session.sizes.rows, 1000)
    expected = np.load(session.folder / "words.npy", mmap_mode="r").view(np.int64)[numbers]
    path = session.folder / "torch.nand"
    with nandarray.open(path, "w") as store:
        store["x"] = np.load(session.folder / "words.npy", mmap_mode="r").view(np.int64)
    with session.server(path) as server, gpu.connect(server.name) as client:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            indices = torch.from_numpy(numbers).to("cuda")
            rows = client.open_array("x").gather(indices)
            out = torch.empty_like(rows)
            client.open_array("x").gather(indices, out=out)
            same = bool((rows == out).all())
            found = rows.cpu().numpy()
        stream.synchronize()
    _require(same and np.array_equal(found, expected), "other rows than NumPy's")
    return _holds(f"torch {torch.__version__}, 1000 rows on a stream of its own")


def _cupy(session: Session) -> Results:
    cupy = _library("cupy")
    numbers = np.random.default_rng(5).integers(0, session.sizes.rows, 1000)
    expected = np.load(session.folder / "words.npy", mmap_mode="r")[numbers]
    with session.server() as server, gpu.connect(server.name) as client:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            indices = cupy.asarray(numbers)
            rows = client.open_array("words").gather(indices)
            out = cupy.empty_like(rows)
            client.open_array("words").gather(indices, out=out)
            same = bool((rows == out).all())
            found = cupy.asnumpy(rows)
        stream.synchronize()
    session.card.use()
    _require(same and np.array_equal(found, expected), "other rows than NumPy's")
    return _holds(f"CuPy {cupy.__version__}, 1000 rows on a stream of its own")


STEPS = (
    Step("check", ("rows gathered by a kernel are NumPy's",), _gather),
    Step("check", ("stores and a flush land",), _stores),
    Step("check", ("an error is delivered to every waiter",), _errors),
    Step("check", ("a server that stops ends reads with a status",), lambda s: _ended_server(s, signal.SIGTERM)),
    Step("check", ("a server that is killed ends reads with a status",), lambda s: _ended_server(s, signal.SIGKILL)),
    Step("check", ("every wait has a deadline",), _deadlines),
    Step("check", ("gather on a stream of torch",), _torch),
    Step("check", ("gather on a stream of CuPy",), _cupy),
)
