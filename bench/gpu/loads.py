"""Loads of kernels on a served store, beside the usual ways: random reads, hits, a sum of two vectors, gathering."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from nandarray import gpu

from .card import Pinned
from .session import ROW_BYTES, ROW_WORDS, Results, Server, Session, Step, u32, u64

__all__ = ["STEPS"]

_SEED = 7
#: Records whose rows are on the card at a time.
_PORTION = 1 << 17


def _random_reads(session: Session, line_bytes: int) -> Results:
    sizes = session.sizes
    reads = sizes.threads * sizes.times
    with session.server() as server, session.door(server, line_bytes=line_bytes) as door, session.words(2) as out:
        given = (u64(sizes.rows * ROW_WORDS), u64(sizes.times), u64(_SEED), out.parameter)
        seconds = session.run("random_reads", sizes.threads, door.array("words"), *given, door=door)
        wrong, why = (int(word) for word in out.get())
        loads = door.loads()
    if wrong:
        raise ValueError(f"{wrong} of {reads} reads are wrong, status {why:#x}")
    return [(f"{loads / seconds / 1e6:.2f} M commands/s", f"{loads * line_bytes / seconds / 1e9:.2f} GB/s")]


def _hits(session: Session) -> Results:
    sizes = session.sizes
    with session.server() as server, session.door(server) as door, session.words(2) as out:
        # An eighth of the lines of the claimed data: no set has more of them than ways.
        lines = max(1, server.data_bytes * max(1, sizes.queues // 2) // ROW_BYTES // 8)
        reach = u64(min(lines, sizes.rows) * ROW_WORDS)
        words = door.array("words")
        session.run("random_reads", sizes.threads, words, reach, u64(sizes.times), u64(_SEED), out.parameter, door=door)
        before = door.loads()
        again = (reach, u64(8 * sizes.times), u64(_SEED + 1), out.parameter)
        seconds = session.run("random_reads", sizes.threads, words, *again, door=door)
        wrong, why = (int(word) for word in out.get())
        missed = door.loads() - before
    reads = 8 * sizes.times * sizes.threads
    if wrong:
        raise ValueError(f"{wrong} of {reads} reads are wrong, status {why:#x}")
    return [(f"{reads / seconds / 1e6:.2f} M hits/s", f"{missed} of {reads} missed")]


def _vector_add(session: Session) -> Results:
    with session.server() as server:
        with session.door(server) as door, session.words(2) as out:
            arrays = [door.array(name, 4) for name in ("a", "b", "by kernel")]
            kernel_s = session.run("vector_add_lines", 4096, *arrays, out.parameter, door=door)
            kernel_s += session.run("flush_once", 32, arrays[2], u64(door.word), out.parameter, door=door)
            failed, why = (int(word) for word in out.get())
        if failed:
            raise ValueError(f"{failed} lines have no sum, status {why:#x}")
        tiles_s = _tiled(session, server)
        with gpu.connect(server.name) as client:
            a, b, by_kernel, by_tiles = (client[name][:] for name in ("a", "b", "by kernel", "by tiles"))
    for what, found in (("the kernel's", by_kernel), ("the tiles'", by_tiles)):
        if wrong := int((found != a + b).sum()):
            raise ValueError(f"{wrong} of {what} sums are not NumPy's")
    ratio = tiles_s / kernel_s
    return [(f"{kernel_s:.3f} s", f"tiling, overlapped, {tiles_s:.3f} s: {ratio:.2f} times as fast")]


def _tiled(session: Session, server: Server) -> float:
    """Sum by tiles: while one is added on the card, the next is read and the one before written."""
    sizes, card = session.sizes, session.card
    tile = sizes.floats // sizes.tiles
    device = [card.allocate(tile * 4) for _ in range(3)]
    buffers = [[card.pinned(tile * 4) for _ in range(3)] for _ in range(2)]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(gpu.connect(server.name, deadline_ms=60_000)) for _ in range(3)]
        pool = stack.enter_context(ThreadPoolExecutor(3))

        def read(number: int, which: int) -> None:
            to = buffers[number % 2][which].memory.view(np.float32)
            to[:] = clients[which]["a" if which == 0 else "b"][number * tile : (number + 1) * tile]

        def write(number: int) -> None:
            rows = slice(number * tile, (number + 1) * tile)
            clients[2]["by tiles"][rows] = buffers[number % 2][2].memory.view(np.float32)

        began = time.perf_counter()
        written = None
        reading = [pool.submit(read, 0, which) for which in range(2)]
        for number in range(sizes.tiles):
            for one in reading:
                one.result()
            if number + 1 < sizes.tiles:
                reading = [pool.submit(read, number + 1, which) for which in range(2)]
            _add(session, buffers[number % 2], device, tile)
            if written:
                written.result()
            written = pool.submit(write, number)
        assert written
        written.result()
        seconds = time.perf_counter() - began
    card.release(*device)
    card.unpin(*buffers[0], *buffers[1])
    return seconds


def _add(session: Session, buffers: list[Pinned], device: list[int], tile: int) -> None:
    card = session.card

    def work() -> None:
        for which in range(2):
            card.put_later(device[which], buffers[which].host, tile * 4)
        card.launch("add_plain", min(1 << 16, tile), min(128, tile), [*map(u64, device), u64(tile)])
        card.get_later(buffers[2].host, device[2], tile * 4)

    card.timed(work, session.sizes.limit_s)


def _gather(session: Session) -> Results:
    sizes, card = session.sizes, session.card
    numbers = np.random.default_rng(6).integers(0, sizes.rows, sizes.records).astype(np.uint64)
    flat = np.load(session.folder / "words.npy", mmap_mode="r")
    portion = min(_PORTION, len(numbers), max(1, card.free_bytes() // 2 // ROW_BYTES))
    pinned = card.pinned(portion * ROW_BYTES)
    taken = pinned.memory.view(np.uint64).reshape(portion, ROW_WORDS)
    kernel_s = copied_s = 0.0
    with (
        session.server() as server,
        session.door(server) as door,
        session.words(portion) as given,
        session.words(portion * ROW_WORDS) as rows,
        session.words(2) as out,
    ):
        words = door.array("words")
        for first in range(0, len(numbers), portion):
            part = numbers[first : first + portion]
            card.put(given.at, part)
            parameters = (given.parameter, u64(len(part)), u32(ROW_WORDS), rows.parameter, out.parameter)
            kernel_s += session.run("gather_rows", 1 << 15, words, *parameters, door=door)
            by_kernel = rows.get()[: len(part) * ROW_WORDS].reshape(-1, ROW_WORDS)
            began = time.perf_counter()
            np.take(flat, part.astype(np.int64), axis=0, out=taken[: len(part)])
            card.timed(partial(card.put_later, rows.at, pinned.host, len(part) * ROW_BYTES))
            copied_s += time.perf_counter() - began
            if not np.array_equal(by_kernel, taken[: len(part)]):
                raise ValueError("other rows than NumPy's take")
        failed, why = (int(word) for word in out.get())
    del taken
    card.unpin(pinned)
    if failed:
        raise ValueError(f"{failed} records were not read, status {why:#x}")
    us = [seconds / len(numbers) * 1e6 for seconds in (kernel_s, copied_s)]
    return [(f"{us[0]:.3f} us a record", f"take and cudaMemcpy {us[1]:.3f} us: {us[1] / us[0]:.2f} times as fast")]


STEPS = (
    Step("load", ("random reads of 512 B through array<T>",), lambda s: _random_reads(s, 512)),
    Step("load", ("random reads of 4 KiB through array<T>",), lambda s: _random_reads(s, 4096)),
    Step("load", ("hits in the cache",), _hits),
    Step("load", ("sum of two vectors, with its flush",), _vector_add),
    Step("load", ("gather of random records of 4 KiB",), _gather),
)
