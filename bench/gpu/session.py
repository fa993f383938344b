"""A session, which all steps on a card share: the card, a store, servers in processes of their own, and sizes."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import nandarray

from .card import Card
from .door import Door, Host

__all__ = ["FULL", "SHORT", "MissingError", "Results", "Server", "Session", "Sizes", "Step", "u32", "u64"]

#: A result of each row of a step, and what stands beside it.
Results = list[tuple[str, str]]
u32, u64 = ctypes.c_uint32, ctypes.c_uint64

ROW_BYTES, ROW_WORDS = 4096, 512
#: Threads of a block: four warps, whose 128 registers a thread leave room for four blocks a multiprocessor.
BLOCK = 128


class MissingError(Exception):
    """Something that a step needs is not here; the text says what."""


@dataclass(frozen=True)
class Sizes:
    """Amounts of work: ``FULL`` on a card, ``SHORT`` where threads of a host stand for one."""

    copy_bytes: int
    host_bytes: int
    steps: int
    rows: int
    records: int
    threads: int
    waiters: int
    times: int
    floats: int
    tiles: int
    queues: int
    depth: int
    data_bytes: int
    deadline_s: float
    limit_s: float


FULL = Sizes(
    copy_bytes=256 << 20,
    host_bytes=64 << 20,
    steps=20_000,
    rows=1 << 18,
    records=1_000_000,
    threads=1 << 15,
    waiters=1 << 14,
    times=16,
    floats=1 << 26,
    tiles=8,
    queues=16,
    depth=256,
    data_bytes=4 << 20,
    deadline_s=2.0,
    limit_s=30.0,
)
SHORT = Sizes(
    copy_bytes=1 << 20,
    host_bytes=1 << 16,
    steps=200,
    rows=512,
    records=300,
    threads=256,
    waiters=64,
    times=4,
    floats=1 << 14,
    tiles=4,
    queues=4,
    depth=16,
    data_bytes=64 << 10,
    deadline_s=2.0,
    limit_s=30.0,
)


@dataclass(frozen=True)
class Step:
    """Rows of the table, and what finds their results."""

    part: str
    rows: tuple[str, ...]
    run: Callable[[Session], Results]


class Server:
    """``nandarray serve STORE --shm NAME`` in a process of its own."""

    def __init__(self, store: Path, name: str, sizes: Sizes) -> None:
        threads = max(1, min(sizes.queues, (os.cpu_count() or 2) // 2, 8))
        command = [sys.executable, "-m", "nandarray", "serve", str(store), "--shm", name, "--writable"]
        command += ["--queues", str(sizes.queues), "--depth", str(sizes.depth), "--threads", str(threads)]
        self.data_bytes = _data_bytes(sizes)
        command += ["--data", str(self.data_bytes)]
        self.name = name
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.line = self.process.stdout.readline()
        if "serving" not in self.line:
            self.end()
            raise RuntimeError(f"the server did not begin: {self.line}")

    def send(self, number: int) -> None:
        """Send a signal; a process that is to stop has stopped behind this."""
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def end(self) -> None:
        """End it, if it has not ended."""
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
        assert self.process.stdout
        self.process.stdout.close()
        self.process.wait(30)


def _data_bytes(sizes: Sizes) -> int:
    """Bytes of data of a queue pair: less where shared memory is short, as it is in a container."""
    shared = os.statvfs("/dev/shm")
    room = shared.f_bavail * shared.f_frsize // 2 // sizes.queues
    return min(sizes.data_bytes, max(64 << 10, room // 65536 * 65536))


class Session:
    """A card with its kernels, and a folder for stores."""

    def __init__(self, card: Card, host: Host, folder: Path, sizes: Sizes) -> None:
        self.card, self.host, self.folder, self.sizes = card, host, folder, sizes
        self.store = folder / "gpu.nand"
        self._servers = 0
        self._make()

    def _make(self) -> None:
        """Make the store and the flat file: words that kernels know, words to write, floats."""
        rows, floats = self.sizes.rows, self.sizes.floats
        chance = np.random.default_rng(1)
        words = self.host.words(0, rows * ROW_WORDS).reshape(rows, ROW_WORDS)
        np.save(self.folder / "words.npy", words)
        with nandarray.open(self.store, "w") as store:
            store["words"] = words
            store["written"] = np.zeros(1 << 14, np.uint64)
            for name in ("a", "b"):
                store[name] = chance.random(floats, dtype=np.float32)
            for name in ("by kernel", "by tiles"):
                store[name] = np.zeros(floats, np.float32)

    @contextmanager
    def server(self, store: Path | None = None) -> Iterator[Server]:
        """Serve a store until the end of the context."""
        self._servers += 1
        server = Server(store or self.store, f"bench-gpu-{os.getpid()}-{self._servers}", self.sizes)
        try:
            yield server
        finally:
            server.end()

    def door(
        self,
        server: Server,
        *,
        line_bytes: int = ROW_BYTES,
        queues: int | None = None,
        deadline_s: float | None = None,
    ) -> Door:
        """Claim queue pairs of a server for the card: half of them, so that others find some."""
        return Door(
            self.host,
            self.card,
            server.name,
            queues=queues or max(1, self.sizes.queues // 2),
            line_bytes=line_bytes,
            deadline_s=deadline_s or self.sizes.deadline_s,
        )

    def run(
        self, kernel: str, threads: int, *parameters: Any, door: Door | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> float:  # fmt: skip
        """Run a kernel to its end; its seconds on the card."""

        def tend() -> None:
            meanwhile()
            if door:
                door.tend()

        block = min(threads, BLOCK)
        return self.card.timed(
            lambda: self.card.launch(kernel, threads, block, parameters),
            self.sizes.limit_s,
            meanwhile=tend,
            give_up=door.give_up if door else lambda: None,
        )

    @contextmanager
    def words(self, count: int, dtype: Any = np.uint64) -> Iterator[Words]:
        """Device memory for results, all zeroes."""
        memory = Words(self.card, count, dtype)
        try:
            yield memory
        finally:
            self.card.release(memory.at)


class Words:
    """Device memory that kernels write results to."""

    def __init__(self, card: Card, count: int, dtype: Any) -> None:
        self._card, self._count, self._dtype = card, count, dtype
        self.at = card.allocate(count * np.dtype(dtype).itemsize)

    @property
    def parameter(self) -> Any:
        """Its address, as a kernel's parameter."""
        return u64(self.at)

    def get(self) -> np.ndarray[Any, Any]:
        """Copy it to the host."""
        return self._card.get(self.at, self._count, self._dtype)
