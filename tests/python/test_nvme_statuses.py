"""Every status of the reference's table that a host can bring about over TCP, and executions of two hosts at once.

``test_the_table_is_covered`` reads the table: a status that is added there is provoked here, or named with the test
that does it.
"""

from __future__ import annotations

import re
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvme_entries import entry as entry_of

import nandarray
import nandarray as nd
from nandarray import programs
from nandarray.nvme import RemoteStore, connect

MEMORY, PROGRAMS, ND = 1022, 1023, 1024
LOAD, ACTIVATE, SETS = 0x85, 0x88, 0x89
RISCV = 0xC0 << 16

#: Statuses that other tests provoke, or that no host can bring about, with where or why.
ELSEWHERE = {
    "0h/03h": "crates/nandarray-nvme/tests/tcp.rs",
    "0h/06h": "errors of opening a store, which no command meets",
    "0h/07h": "crates/nandarray-nvme/tests/tcp.rs",
    "0h/0ch": "crates/nandarray-nvme/tests/tcp.rs",
    "0h/0dh": "reserved for transports",
    "0h/11h": "crates/nandarray-nvme/tests/tcp.rs",
    "0h/16h": "crates/nandarray-nvme/tests/tcp.rs",
    "0h/18h": "crates/nandarray-nvme/src/tests/reservations.rs",
    "0h/20h": "crates/nandarray-nvme/tests/tcp.rs",
    "0h/21h": "of Error::Busy, with which commands in flight end (crates/nandarray-model/tests/flights.rs)",
    "0h/22h": "crates/nandarray-nvme/tests/tcp.rs",
    "0h/81h": "crates/nandarray/tests/nvme.rs",
    "0h/82h": "tests/python/test_nvme.py",
    "0h/83h": "crates/nandarray-nvme/src/tests/reservations.rs",
    "1h/05h": "crates/nandarray-nvme/tests/tcp.rs",
    "1h/80h": "crates/nandarray-nvme/tests/tcp.rs",
    "1h/81h": "crates/nandarray-nvme/tests/tcp.rs",
    "1h/82h": "crates/nandarray-nvme/tests/tcp.rs",
    "1h/84h": "tests/python/test_serve.py",
    "1h/8ah": "reserved: bytes and slots of programs have limits of their own, 94h and 8Fh",
    "1h/c4h": "65536 open views: crates/nandarray/tests/nvme.rs",
    "2h/80h": "a medium that fails: crates/nandarray/tests/nvme.rs",
    "2h/81h": "a medium that fails: crates/nandarray/tests/nvme.rs",
    "2h/86h": "tests/python/test_nvme.py",
}

seen: set[str] = set()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[nandarray.Store]:
    with nandarray.open(tmp_path / "a.nand", mode="w") as opened:
        assert opened.nvme().create_namespace(1, 64, 512).ok
        assert opened.nvme().create_namespace(2, 1 << 20, 512).ok
        opened["m"] = np.arange(1 << 16, dtype="<i4")
        yield opened


@pytest.fixture
def remote(store: nandarray.Store) -> Iterator[RemoteStore]:
    with nandarray.serve(store) as server, connect(server.url) as connected:
        yield connected


class Said:
    """Sends entries, and compares statuses."""

    def __init__(self, remote: RemoteStore) -> None:
        self.remote = remote

    def __call__(
        self, status: str, opcode: int, nsid: int = 0, words: dict[int, int] | None = None, data: bytes | None = None,
        *, room: int = 0, admin: bool = False,
    ) -> Any:  # fmt: skip
        done, found = self.remote.call(entry_of(opcode, nsid, words or {}), data, room, admin=admin)
        text = str(done)
        assert f"({status}" in text, f"{text} instead of {status}"
        seen.add(status)
        return done, found


OK = "0h/00h"


def elf() -> bytes:
    return bytes(programs.get("sum", dtype="int32").elf)


def load(said: Said, status: str, pind: int, data: bytes, **words: int) -> None:
    given = {10: pind | RISCV, 11: len(data), 14: len(data)}
    given.update({int(name[1:]): word for name, word in words.items()})
    said(status, LOAD, 0, given, data, admin=True)


def ranges(*given: tuple[int, int, int]) -> bytes:
    return b"".join(struct.pack("<IIQ16x", nsid, length, first) for nsid, length, first in given)


def test_statuses_of_blocks_views_and_admin_commands(remote: RemoteStore) -> None:
    said = Said(remote)
    said("0h/01h", 0x7E, 1)
    said("0h/02h", 0x06, 0, {10: 0x77}, room=4096, admin=True)
    said("0h/0bh", 0x02, 77, {10: 0}, room=512)
    said("0h/0fh", 0x02, 1, {10: 0, 12: 3}, room=512)
    said("0h/80h", 0x02, 1, {10: 64}, room=512)
    said("1h/09h", 0x02, 0, {10: 0x7E | 127 << 16}, room=512, admin=True)
    said("1h/0eh", 0x09, 0, {10: 0x81}, admin=True)
    said("1h/83h", 0x19, 2, {10: 0, 12: 2}, struct.pack("<8xQH14x", 0, 0xFFFF) * 3)
    said("2h/85h", 0x05, 1, {10: 0}, b"\1" * 512)
    said("1h/c3h", 0x02, ND, {10: 12345, 11: 1}, room=4)
    said("1h/c6h", 0x02, ND, {10: 1, 11: 1 | 1 << 10, 12: 4711}, room=4)
    page = bytearray(4096)
    page[6:8], page[1024:1028] = struct.pack("<H", 4), b"none"
    said("1h/c0h", 0x05, ND, {10: 1}, bytes(page))
    create = bytearray(4096)
    create[0], create[4], create[6], create[1024] = 4, 1, 1, ord("m")
    create[16:24] = struct.pack("<Q", 10)
    said("1h/c1h", 0x05, ND, {10: 2}, bytes(create))
    page[6:8], page[1024:1028], page[4] = struct.pack("<H", 1), b"m\0\0\0", 1
    page[16:24] = struct.pack("<Q", 10)
    said("1h/c2h", 0x05, ND, {10: 1}, bytes(page))


def test_statuses_of_programs(remote: RemoteStore) -> None:
    said, binary = Said(remote), elf()
    load(said, "1h/8fh", 0, binary)
    load(said, "1h/8fh", 65, binary)
    said("1h/90h", LOAD, 0, {10: 1 | 0xC1 << 16, 11: 8, 14: 8}, bytes(8), admin=True)
    load(said, "1h/8eh", 1, bytes(64))
    load(said, "1h/9bh", 1, binary, w11=(16 << 20) + 1)
    said("1h/96h", ACTIVATE, 0, {10: 2 | 1 << 16}, admin=True)
    # Slots that are promised 16 MiB each: eight fill the memory of programs.
    for pind in range(10, 18):
        load(said, OK, pind, bytes(4096), w11=16 << 20)
    load(said, "1h/94h", 18, binary)
    for pind in range(10, 18):
        said(OK, LOAD, 0, {10: pind | 1 << 24}, admin=True)
    for pind in range(1, 34):
        load(said, OK, pind, binary)
    said("1h/98h", 0x01, PROGRAMS, {2: 1, 3: 0})
    for pind in range(1, 33):
        said(OK, ACTIVATE, 0, {10: pind | 1 << 16}, admin=True)
    said("1h/93h", ACTIVATE, 0, {10: 33 | 1 << 16}, admin=True)
    load(said, "1h/99h", 1, binary)
    said("1h/8bh", 0x01, PROGRAMS, {2: 1, 3: 2}, ranges((77, 4, 0), (MEMORY, 64, 0)))
    said("1h/8ch", 0x01, PROGRAMS, {2: 1, 3: 2}, ranges((MEMORY, 4, 1 << 40), (MEMORY, 64, 0)))
    said("1h/91h", 0x01, PROGRAMS, {2: 1, 3: 33}, bytes(33 * 32))
    said("1h/8dh", 0x01, PROGRAMS, {2: 1 | 9 << 16})


def test_statuses_of_range_sets(remote: RemoteStore) -> None:
    said = Said(remote)
    said("1h/91h", SETS, 0, {11: 33}, bytes(33 * 32), admin=True)
    said("1h/97h", SETS, 0, {11: 2}, ranges((MEMORY, 64, 0), (MEMORY, 64, 60)), admin=True)
    said("1h/8ch", SETS, 0, {11: 1}, ranges((MEMORY, 64, 1 << 40)), admin=True)
    said("1h/8dh", SETS, 0, {10: 1 | 3 << 16}, admin=True)
    for _ in range(64):
        said(OK, SETS, 0, {11: 1}, ranges((MEMORY, 64, 0)), admin=True)
    said("1h/92h", SETS, 0, {11: 1}, ranges((MEMORY, 64, 0)), admin=True)


def test_boxes_have_a_limit(remote: RemoteStore) -> None:
    said, view = Said(remote), remote._source.open_space("m").dsid(None)
    box = struct.pack("<32Q", *[0] * 32) + struct.pack("<32Q", 1, *[0] * 31)
    for _ in range(4096):
        said(OK, 0x0D, ND, {10: view, 11: 1 | 1 << 8 | 1 << 9}, box)
    said("1h/89h", 0x0D, ND, {10: view, 11: 1 | 1 << 8 | 1 << 9}, box)


def busy() -> bytes:
    """A program that takes seconds for an element of its input that is not zero, and then fails."""

    @nandarray.program
    def spins(x: nd.Block[int32], out: nd.Out[int64]):  # type: ignore[name-defined]  # noqa: F821
        total = 0
        for i in range(x.size):
            for j in range(x[i]):
                total = total * 1664525 + 1013904223 + j
        out[0] = total
        return 1

    return bytes(spins.elf)


def test_programs_and_range_sets_in_use(store: nandarray.Store) -> None:
    with nandarray.serve(store) as server, connect(server.url) as host, connect(server.url) as other:
        said, watching = Said(host), Said(other)
        program = host.load(busy(), index=3)
        host.memory_write(0, struct.pack("<i", 1 << 30))
        done, _ = said(OK, SETS, 0, {11: 2}, ranges((MEMORY, 4, 0), (MEMORY, 64, 64)), admin=True)
        entry = entry_of(0x01, PROGRAMS, {2: 3 | done.dw0 << 16})
        ended: list[Any] = []
        thread = threading.Thread(target=lambda: ended.append(host.call(entry)[0]))
        thread.start()
        until = time.monotonic() + 60
        # Log page 84h: identifier, ranges, and whether an execution uses the set.
        while other.call(entry_of(0x02, 0, {10: 0x84 | 1 << 16}), None, 8, admin=True)[1][3] == 0:
            assert time.monotonic() < until
            assert not ended, f"{ended[0]} before it was seen"
        watching("1h/95h", SETS, 0, {10: 1 | done.dw0 << 16}, admin=True)
        watching("1h/99h", ACTIVATE, 0, {10: 3}, admin=True)
        # Other commands go on meanwhile.
        watching(OK, 0x02, 1, {10: 0}, room=512)
        thread.join()
        program.unload()


def test_two_hosts_that_execute_at_once(store: nandarray.Store) -> None:
    """Each host gets the sizes of its own outputs."""
    with nandarray.serve(store) as server, ThreadPoolExecutor(4) as pool:

        def host(number: int) -> None:
            with connect(server.url) as remote:
                program = remote.load(elf(), index=number)
                for round_ in range(20):
                    values = np.arange(number, number + 100 * number + round_, dtype="<i4")
                    (total,) = program.execute(values.tobytes(), room=1 << 12, memory=number << 20)
                    assert np.frombuffer(total, "<i8").tolist() == [values.sum()], (number, round_)

        for one in [pool.submit(host, number) for number in range(1, 5)]:
            one.result()


def test_a_program_that_fails(remote: RemoteStore) -> None:
    @nandarray.program
    def beyond(x: nd.Block[int32], out: nd.Out[int32]):  # type: ignore[name-defined]  # noqa: F821
        return x[0]

    said = Said(remote)
    remote.load(bytes(beyond.elf), index=1)
    remote.memory_write(0, struct.pack("<i", 1 << 30))
    said("1h/c5h", 0x01, PROGRAMS, {2: 1, 3: 2}, ranges((MEMORY, 4, 0), (MEMORY, 64, 64)))


def test_the_table_is_covered() -> None:
    """The last test of this file: those above have filled `seen`."""
    if not seen:
        pytest.skip("the tests of this file did not run in this process")
    text = (Path(__file__).parents[2] / "docs" / "reference" / "nvme.md").read_text()
    table = set(re.findall(r"^\| ([012]h/[0-9a-f]{2}h) \|", text, re.MULTILINE))
    assert len(table) > 50
    missing = table - seen - ELSEWHERE.keys()
    assert not missing
    assert not ELSEWHERE.keys() & seen, "these are provoked here"


def test_statuses_that_others_provoke_are_named_there() -> None:
    """A file of tests in Rust has the constant of a status that it is named for, one in Python its code or its name."""
    root = Path(__file__).parents[2]
    source = (root / "crates" / "nandarray-nvme-spec" / "src" / "status.rs").read_text()
    rows = re.findall(r"^    (\w+) = (\d), 0x([0-9a-f]{2}), \w+, \"([^\"]+)\";", source, re.MULTILINE)
    constants = {f"{kind}h/{code}h": (name, text) for name, kind, code, text in rows}
    unfounded = []
    for status, where in ELSEWHERE.items():
        path = root / where.rpartition(": ")[2]
        if not path.is_file():
            continue  # a reason, or a folder
        words = (f"Status::{constants[status][0]}",) if path.suffix == ".rs" else (status, constants[status][1])
        if not any(word in path.read_text() for word in words):
            unfounded.append((status, where, words))
    assert not unfounded
