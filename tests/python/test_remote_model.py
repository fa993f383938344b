"""Stores behind NVMe/TCP and shared memory against NumPy; servers that are killed, that lie, and clients that do."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import ended

import nandarray
from nandarray.errors import NandarrayError

SEEDS = range(4)
SHAPES: dict[str, tuple[int, ...]] = {"line": (700,), "grid": (40, 50), "cube": (6, 7, 8), "none": (0, 3)}
DTYPES = {"line": "<i8", "grid": "<f4", "cube": ">u2", "none": "<f8"}


def contents(seed: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, 999, shape).astype(DTYPES[name]) for name, shape in SHAPES.items()}


class Server:
    """``nandarray serve`` in a process of its own, by either door."""

    def __init__(self, store: Path, door: str) -> None:
        region = store.with_suffix(f".region{len(list(store.parent.iterdir()))}")
        words = ["--shm", str(region), "--writable"] if door == "shm" else ["--listen", "127.0.0.1:0"]
        command = [sys.executable, "-m", "nandarray", "serve", str(store), *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.writable = door == "tcp"
        self.url = f"shm://{region}"
        for line in self.process.stdout:
            found = re.search(r"nvme\+tcp://\S+", line)
            if found or (door == "shm" and "serving" in line):
                self.url = found[0] if found else self.url
                break
        if self.writable:
            self.process.stdout.readline()  # the last one: a server that prints to a closed pipe ends with an error

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        assert self.process.stdout
        self.process.stdout.close()
        return ended(self.process)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        for name, data in contents(0).items():
            store.create(name, data=data, building_block=tuple(9 for _ in data.shape))
    return tmp_path / "a.nand"


@pytest.fixture(params=["tcp", "shm"])
def server(path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    one = Server(path, request.param)
    yield one
    if one.process.poll() is None:
        assert one.end() == 0


def box(rng: random.Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A contiguous selection; an axis now and then by a number, or left out."""
    key: list[Any] = []
    for length in shape[: rng.randint(0, len(shape))]:
        low, high = sorted((rng.randint(0, length), rng.randint(0, length)))
        whole = rng.random() < 0.3 or not length
        key.append(slice(None) if whole else rng.randrange(-length, length) if rng.random() < 0.3 else slice(low, high))
    return tuple(key)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_reads_and_writes_are_numpys(seed: int, server: Server, path: Path) -> None:
    rng, model = random.Random(seed), contents(0)
    numbers = np.random.default_rng(seed)
    with nandarray.open(server.url, "r+") as store:
        names = sorted(model)
        assert sorted(store) == names
        for _ in range(60):
            name = rng.choice(names)
            key = box(rng, model[name].shape)
            if server.writable and rng.random() < 0.5:
                values = numbers.integers(0, 999, model[name][key].shape).astype(model[name].dtype)
                model[name][key] = values
                store[name][key] = values
            else:
                found = np.asarray(store[name][key])
                assert found.tobytes() == model[name][key].tobytes(), (seed, name, key)
    assert server.end() == 0
    with nandarray.open(path) as store:
        for name, data in model.items():
            assert store[name][...].tobytes() == data.tobytes(), (seed, name)
        assert store.check()["ok"]


def test_what_is_wrong_is_said_and_the_connection_serves_on(server: Server) -> None:
    wrong: list[Any] = [(0, 0, 0, 0), 40, -41, (slice(None), 50), "x", 1.5, (..., ...), ([1, 2], [1, 2, 3])]
    with nandarray.open(server.url, "r+") as store:
        for key in wrong:
            with pytest.raises((NandarrayError, IndexError, TypeError)):
                store["grid"][key]
            with pytest.raises((NandarrayError, IndexError, TypeError, ValueError)):
                store["grid"][key] = 1
        for value in (np.zeros((3, 3)), "word", [[1], [2, 3]]):
            with pytest.raises((NandarrayError, ValueError, TypeError)):
                store["grid"][:2] = value
        for name in ("", "grid/x", "GRID", "grid\0", "x" * 5000, "\ud800"):
            with pytest.raises((NandarrayError, ValueError)):
                store[name][0]
        assert store["grid"][...].tobytes() == contents(0)["grid"].tobytes()


def test_threads_share_a_connection(server: Server) -> None:
    model = contents(0)

    def read(seed: int) -> bool:
        rng = random.Random(seed)
        good = True
        for _ in range(25):
            name = rng.choice(["line", "grid", "cube"])
            key = box(rng, model[name].shape)
            good &= np.asarray(store[name][key]).tobytes() == model[name][key].tobytes()
        return good

    with nandarray.open(server.url) as store, ThreadPoolExecutor(6) as pool:
        assert all(pool.map(read, range(12)))


def test_a_killed_server_ends_every_call_and_what_it_answered_is_kept(server: Server, path: Path) -> None:
    with contextlib.ExitStack() as stack:
        stores = [nandarray.open(server.url, "r+") for _ in range(3)]
        written = 0
        killed = threading.Timer(0.3, lambda: server.end(signal.SIGKILL))
        killed.start()
        stack.callback(killed.join)
        deadline = time.monotonic() + 60
        ended = False
        while not ended and time.monotonic() < deadline:
            try:
                if server.writable:
                    stores[written % 3]["line"][written % 700] = written + 1000
                else:
                    assert stores[written % 3]["line"][written % 700] == contents(0)["line"][written % 700]
                written += 1
            except (NandarrayError, OSError):
                ended = True
        assert ended
        for store in stores:
            with pytest.raises((NandarrayError, OSError)):
                store["grid"][...]
            with contextlib.suppress(NandarrayError, OSError):
                store.close()
    assert written < 10**7
    with nandarray.open(path, "r+") as store:
        assert store.check()["ok"]
        if server.writable:  # its writes are durable when they are answered
            line = contents(0)["line"]
            for number in range(written):
                line[number % 700] = number + 1000
            found = store["line"][...]
            apart = np.flatnonzero(found != line)
            assert set(apart) <= {written % 700}, (written, apart)
    again = Server(path, "tcp" if server.writable else "shm")
    with nandarray.open(again.url) as store:
        assert store["grid"][...].tobytes() == contents(0)["grid"].tobytes()
    assert again.end() == 0


# --- NVMe/TCP: the other side is no NVMe ------------------------------------------------------------------------------


def answering(answers: list[bytes]) -> tuple[socket.socket, threading.Thread]:
    """A port at which each connection gets one answer, and is closed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(5)
                    connection.recv(4096)
                    connection.sendall(answer)
        listener.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return listener, thread


@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_that_answers_nonsense_is_refused(seed: int) -> None:
    rng = random.Random(seed)
    # Headers of NVMe/TCP (type, flags, lengths), right and wrong, before noise.
    heads = [
        bytes([kind, rng.choice([0, 3, 255]), rng.choice([8, 24, 128, 255]), rng.choice([0, 24, 64])])
        for kind in range(10)
    ]
    lengths = [0, 8, 24, 128, 2**31, 2**32 - 1]
    answers = [
        b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 128,
        *(head + rng.choice(lengths).to_bytes(4, "little") + rng.randbytes(120) for head in heads),
        *(rng.randbytes(rng.randint(1, 300)) for _ in range(4)),
    ]  # fmt: skip
    listener, thread = answering(answers)
    url = f"nvme+tcp://127.0.0.1:{listener.getsockname()[1]}/nqn.2026-01.org.example:x"
    for answer in answers:
        with pytest.raises((NandarrayError, OSError)):
            nandarray.open(url)
        assert answer is not None
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_that_send_noise_hinder_no_other(seed: int, path: Path) -> None:
    rng = random.Random(seed)
    with nandarray.open(path) as store, nandarray.serve(store) as server, contextlib.ExitStack() as stack:
        address = server.url.removeprefix("nvme+tcp://").partition("/")[0].rpartition(":")
        for _ in range(12):
            one = socket.create_connection((address[0], int(address[2])), timeout=10)
            kind = rng.randint(0, 9)
            head = bytes([kind, 0, rng.choice([24, 72, 128]), 0])
            with contextlib.suppress(OSError):
                one.sendall(
                    head
                    + rng.choice([24, 72, 128, 2**32 - 1]).to_bytes(4, "little")
                    + rng.randbytes(rng.randint(0, 200))
                )
            stack.enter_context(one)
            with nandarray.open(server.url) as remote:
                assert remote["grid"][3, 4] == contents(0)["grid"][3, 4]
        assert store["line"][5] == contents(0)["line"][5]


@pytest.mark.parametrize(
    "url",
    [
        "nvme+tcp://127.0.0.1:1/nqn.x", "nvme+tcp://127.0.0.1:99999/nqn.x", "nvme+tcp://127.0.0.1:0/nqn.x",
        "nvme+tcp:///nqn.x", "nvme+tcp://127.0.0.1/nqn.x", "nvme+tcp://127.0.0.1:4420/", "nvme+tcp://[::1]:1/nqn.x",
        "nvme+tcp://host name:1/nqn.x", "nvme+tcp://127.0.0.1:1/nqn.\ud800", "nvme+tcp://127.0.0.1:1/nqn.a b",
        "nvme+tcp://127.0.0.1:-1/nqn.x", "nvme+tcp://127.0.0.1:x/nqn.x", "shm://", "shm:///no/such/region",
        "shm:///dev/null", "shm:///", "shm://\0", "shm://" + "x" * 5000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_urls_that_lead_nowhere_are_refused(url: str, mode: Any) -> None:
    with pytest.raises((NandarrayError, OSError, ValueError)) as caught:
        nandarray.open(url, mode)
    assert not isinstance(caught.value, UnicodeError) or "\ud800" in url
    assert os.listdir() == []


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 4096, b"\xff" * 65536, bytes(range(256)) * 300])
def test_a_file_that_is_no_region_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "region").write_bytes(content)
    with pytest.raises((NandarrayError, OSError)):
        nandarray.open(f"shm://{tmp_path / 'region'}")
    assert (tmp_path / "region").read_bytes() == content
