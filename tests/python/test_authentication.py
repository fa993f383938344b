"""Hosts that prove their identity by DH-HMAC-CHAP: with secrets of nvme-cli, a second implementation of the exchange
in Python's own hashes, and through files and commands.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_serve import cli

import nandarray
from nandarray import programs
from nandarray.errors import InvalidError
from nandarray.nvme import connect, new_secret, read_secrets

HOST = "nqn.2026-01.org.example:host"
HASHES = {1: "sha256", 2: "sha384", 3: "sha512"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[nandarray.Store]:
    with nandarray.open(tmp_path / "a.nand", mode="w") as opened:
        opened["x"] = np.arange(100)
        yield opened


def key_of(secret: str, nqn: str) -> bytes:
    """The key of a secret, computed without the engine."""
    _, number, text, _ = secret.split(":")
    raw = base64.b64decode(text)
    assert zlib.crc32(raw[:-4]) == int.from_bytes(raw[-4:], "little")
    return (
        raw[:-4] if number == "00" else hmac.digest(raw[:-4], nqn.encode() + b"NVMe-over-Fabrics", HASHES[int(number)])
    )


class Host(contextlib.ExitStack):
    """An admin queue of a host, byte by byte: the handshake, Connect, and commands one after another."""

    def __init__(self, address: str, nqn: str) -> None:
        super().__init__()
        host, port = address.split(":")
        self.nqn = nqn
        self.socket = self.enter_context(socket.create_connection((host, int(port)), timeout=20))
        self.socket.sendall(struct.pack("<BBBBI", 0, 0, 128, 0, 128) + bytes(120))
        assert self.read(128)[0] == 1
        data = bytearray(1024)
        data[16:18] = b"\xff\xff"
        data[256 : 256 + len(nqn)] = nqn.encode()
        data[512 : 512 + len(HOST)] = HOST.encode()
        self.status, self.dw0, _ = self.call(1, struct.pack("<HHHBBI", 0, 0, 31, 0, 0, 0), bytes(data))

    def read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self.socket.recv(count - len(found))
            if not more:
                raise EOFError
            found += more
        return found

    def call(self, fctype: int, words: bytes, data: bytes = b"", room: int = 0) -> tuple[int, int, bytes]:
        """A fabrics command; its status (type and code), dword 0, and data from the controller."""
        entry = bytearray(64)
        struct.pack_into("<BBHB", entry, 0, 0x7F, 0x40, 7, fctype)
        struct.pack_into("<QII", entry, 24, 0, len(data) or room, 0x01000000 if data else 0x5A000000)
        entry[40 : 40 + len(words)] = words
        self.socket.sendall(struct.pack("<BBBBI", 4, 0, 72, 72 if data else 0, 72 + len(data)) + entry + data)
        found = b""
        while True:
            kind, flags, length, _, total = struct.unpack("<BBBBI", self.read(8))
            rest = self.read(total - 8)
            if kind == 7:
                found += rest[length - 8 :]
                if flags & 8:
                    return 0, 0, found
            elif kind == 5:
                return struct.unpack_from("<H", rest, 14)[0] >> 1 & 0x7FF, struct.unpack_from("<I", rest)[0], found
            else:
                raise EOFError

    def send(self, opcode: int, cid: int, sgl: bytes, data: bytes = b"") -> None:
        """Send a capsule and wait for nothing."""
        entry = struct.pack("<BBH", opcode, 0x40, cid) + bytes(20) + sgl + bytes(24)
        self.socket.sendall(struct.pack("<BBBBI", 4, 0, 72, 72 if data else 0, 72 + len(data)) + entry + data)

    def exchange(self, message: bytes) -> bytes:
        """Send a message of authentication and fetch the answer."""
        assert self.call(5, struct.pack("<BBBBI", 0, 1, 1, 0xE9, len(message)), message)[0] == 0
        status, _, answer = self.call(6, struct.pack("<BBBBI", 0, 1, 1, 0xE9, 4096), room=4096)
        assert (status, len(answer)) == (0, 4096)
        return answer

    def property(self) -> int:
        """The status of Property Get, a command like any other."""
        return self.call(4, struct.pack("<II", 0, 0x1C))[0]

    def respond(self, key: bytes, hash: int, challenge: bytes) -> bytes:
        """The challenge's response by a key."""
        count, name = challenge[6], HASHES[hash]
        assert challenge[:2] == b"\1\1"
        assert (challenge[8], challenge[9], count) == (hash, 0, hashlib.new(name).digest_size)
        body = challenge[16 : 16 + count] + challenge[12:16] + challenge[4:6] + b"\0HostHost"
        return hmac.digest(key, body + HOST.encode() + b"\0" + self.nqn.encode(), name)


def negotiate(hash: int, t_id: int = 3) -> bytes:
    return struct.pack("<BBHHBB", 0, 0, 0, t_id, 0, 1) + bytes([1, 0, 1, 1, hash]) + bytes(59)


def reply(response: bytes, own: bytes | None, seqnum: int = 0, t_id: int = 3) -> bytes:
    head = struct.pack("<BBHHBBBBHI", 1, 2, 0, t_id, len(response), 0, own is not None, 0, 0, seqnum)
    return head + response + (own or bytes(len(response)))


@pytest.mark.parametrize("kind", ["none", "sha256", "sha384", "sha512"])
@pytest.mark.parametrize("hash", HASHES)
def test_another_implementation_of_the_host(store: nandarray.Store, kind: str, hash: int) -> None:
    secret, controller = new_secret(kind), new_secret(kind)  # type: ignore[arg-type]
    with (
        nandarray.serve(store, secrets={HOST: (secret, controller)}) as server,
        Host(server.address, server.nqn) as host,
        Host(server.address, server.nqn) as thief,
    ):
        assert (host.status, host.dw0 & 1 << 17) == (0, 1 << 17)
        assert host.property() == 0x191
        challenge = host.exchange(negotiate(hash))
        response = host.respond(key_of(secret, HOST), hash, challenge)
        own = secrets.token_bytes(len(response))
        success = host.exchange(reply(response, own, seqnum=77))
        assert success[:9] == struct.pack("<BBHHBBB", 1, 3, 0, 3, len(own), 0, 1)
        assert host.property() == 0x191  # until the host has confirmed
        body = own + struct.pack("<IH", 77, 3) + b"\0Controller" + server.nqn.encode() + b"\0" + HOST.encode()
        expected = hmac.digest(key_of(controller, server.nqn), body, HASHES[hash])
        assert success[16 : 16 + len(own)] == expected
        confirm = struct.pack("<BBHH", 1, 4, 0, 3) + bytes(10)
        assert host.call(5, struct.pack("<BBBBI", 0, 1, 1, 0xE9, 16), confirm)[0] == 0
        assert host.property() == 0
        # A reply that was right before is recorded, and sent on another connection.
        thief.exchange(negotiate(hash))
        assert thief.exchange(reply(response, None))[:8] == struct.pack("<BBHHBB", 0, 0xF1, 0, 3, 1, 1)
        with pytest.raises((EOFError, ConnectionError)):
            thief.property()


def test_messages_that_are_cut_short(store: nandarray.Store) -> None:
    with nandarray.serve(store, secrets={HOST: new_secret()}) as server:
        whole = negotiate(1)
        for length in (1, 5, 8, 40, len(whole) - 1):
            with Host(server.address, server.nqn) as host:
                found = host.exchange(whole[:length])
                assert (found[0], found[1], found[7]) == (0, 0xF1, 6), length
        for length in (7, 16, 47, 79):
            with Host(server.address, server.nqn) as host:
                challenge = host.exchange(whole)
                found = host.exchange(reply(host.respond(bytes(32), 1, challenge), bytes(32))[:length])
                assert (found[0], found[1], found[7]) == (0, 0xF1, 6), length


@pytest.mark.parametrize("with_secret", [True, False])
def test_data_that_arrives_behind_connect(store: nandarray.Store, with_secret: bool) -> None:
    """A command whose data has not come when the queue is connected is of no queue: Connect waits for its turn."""

    class Early(Host):
        """A host that has begun a transfer when it sends Connect."""

        def call(self, fctype: int, words: bytes, data: bytes = b"", room: int = 0) -> tuple[int, int, bytes]:
            if fctype == 1:
                self.send(0x01, 1, struct.pack("<QIB", 0, 512, 0) + b"\0\0\x5a")
                self.transfer = self.read(24)
                assert self.transfer[0] == 9
            return super().call(fctype, words, data, room)

    with nandarray.serve(store, secrets={HOST: new_secret()} if with_secret else None) as server:
        for _ in range(4):
            with Early(server.address, server.nqn) as host:
                assert host.status == 0x0C
                head = (
                    struct.pack("<BBBBI", 6, 4, 24, 24, 24 + 512) + host.transfer[8:12] + struct.pack("<III", 0, 512, 0)
                )
                host.socket.sendall(head + bytes(512))
                kind, *_ = host.read(24)
                assert kind == 5
        assert server.status()["associations"] == []
        with Host(server.address, server.nqn) as host:
            assert host.status == 0


def test_wrong_secrets_are_counted_and_slowed_down(store: nandarray.Store) -> None:
    """After the first 16 refusals of a minute each further one takes a second; a right secret never waits."""
    mine = new_secret()
    with nandarray.serve(store, secrets={HOST: mine}) as server:

        def refused() -> float:
            start = time.monotonic()
            with Host(server.address, server.nqn) as host:
                assert server.status()["associations"] == []
                host.exchange(negotiate(1))
                assert host.exchange(reply(bytes(32), None))[:8] == struct.pack("<BBHHBB", 0, 0xF1, 0, 3, 1, 1)
            return time.monotonic() - start

        for _ in range(16):
            refused()
        waited = refused()
        assert waited >= 1
        start = time.monotonic()
        with connect(server.url, hostnqn=HOST, secret=mine) as remote:
            assert remote["x"][7] == 7
            assert time.monotonic() - start < waited
            status = server.status()
            assert [host for _, host, _ in status["associations"]] == [HOST]
            assert status["refused_logins"] == 17
            assert status["unfinished_logins"] == 0


def test_discovery_tells_addresses_only(store: nandarray.Store) -> None:
    discovery = "nqn.2014-08.org.nvmexpress.discovery"
    with nandarray.serve(store, secrets={HOST: new_secret()}) as server, Host(server.address, discovery) as host:
        assert (host.status, host.dw0 & 1 << 17) == (0, 0)
        host.send(0x01, 9, struct.pack("<QIB", 0, 1 << 20, 0) + b"\0\0\x5a")
        assert host.read(24)[0] == 5, "a long transfer is refused, not asked for"


def test_arrays_after_authentication(store: nandarray.Store) -> None:
    mine, its = new_secret("sha512"), new_secret("none")
    with nandarray.serve(store, secrets={HOST: (mine, its)}) as server:
        assert "--dhchap-secret" in server.connect_line
        for controller in (None, its):
            with connect(server.url, hostnqn=HOST, secret=mine, controller_secret=controller) as remote:
                assert remote["x"][7] == 7
        with pytest.raises(InvalidError, match="there is no secret"):
            connect(server.url, hostnqn=HOST)
        with pytest.raises(InvalidError, match="Connect Invalid Host"):
            nandarray.open(server.url)
        with pytest.raises(InvalidError, match="wrong response"):
            connect(server.url, hostnqn=HOST, secret=its)
        with pytest.raises(InvalidError, match="wrong response"):
            connect(server.url, hostnqn=HOST, secret=mine, controller_secret=mine)
        with pytest.raises(InvalidError, match="the host's must be given, too"):
            connect(server.url, hostnqn=HOST, controller_secret=its)
    nandarray.serve(store, "0.0.0.0:0", secrets={HOST: mine}).stop()
    with pytest.raises(InvalidError, match="insecure"):
        nandarray.serve(store, "0.0.0.0:0", hosts=["nqn.2026-01.org.example:other"], secrets={HOST: mine})
    with pytest.raises(InvalidError, match="secrets is empty"):
        nandarray.serve(store, secrets={})
    with pytest.raises(InvalidError, match="CRC-32"):
        nandarray.serve(store, secrets={HOST: mine.replace(mine[12:14], "zz", 1)})


def test_secrets_of_nvme_cli(store: nandarray.Store) -> None:
    nvme = shutil.which("nvme", path="/usr/sbin:/usr/bin")
    if nvme is None:
        pytest.skip("nvme-cli is not installed")
    for number in ("0", "1", "2", "3"):
        made = subprocess.run(
            [nvme, "gen-dhchap-key", "-m", number, "-n", HOST], capture_output=True, text=True, check=True
        )
        secret = made.stdout.strip()
        with nandarray.serve(store, secrets={HOST: secret}) as server, connect(server.url, hostnqn=HOST, secret=secret):
            pass
    for kind in ("none", "sha256", "sha384", "sha512"):
        ours = new_secret(kind)  # type: ignore[arg-type]
        checked = subprocess.run([nvme, "check-dhchap-key", "-k", ours], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr


def test_files_of_secrets(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text(f"# hosts\n\n{HOST} a b\nnqn.other c\n")
    with pytest.raises(InvalidError, match="chmod 600"):
        read_secrets(file)
    file.chmod(0o600)
    assert read_secrets(file) == {HOST: ("a", "b"), "nqn.other": ("c", None)}
    for text, why in (
        (f"{HOST}\n", "line 1"),
        ("# x\nhost a\n", "line 2"),
        (f"{HOST} a\n{HOST} b\n", "a second secret"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidError, match=why):
            read_secrets(file)
    with pytest.raises(InvalidError, match="one of none"):
        new_secret("md5")  # type: ignore[arg-type]


def test_the_commands(tmp_path: Path) -> None:
    path, file, elf = tmp_path / "a.nand", tmp_path / "secrets", tmp_path / "sum.elf"
    cli("nvme", "create", str(path), "1", "1MiB")
    file.write_text(cli("nvme", "secret", HOST))
    file.chmod(0o600)
    elf.write_bytes(programs.get("sum", dtype="int32").elf)
    command = [sys.executable, "-m", "nandarray", "serve", str(path), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, "--secret-file", str(file)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = [process.stdout.readline() for _ in range(4)][2].split()[1]
        cli("nvme", "program", "load", url, str(elf), "--secret-file", str(file))
        refused = subprocess.run(
            [sys.executable, "-m", "nandarray", "nvme", "program", "activate", url],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert refused.returncode == 1
        assert "Connect Invalid Host" in refused.stderr
        status = json.loads(cli("serve", str(path), "--status"))
        assert status["refused_logins"] == 1
        assert {"open_files_limit", "unfinished_logins", "half_open"} <= status.keys()
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        soft, hard = next(line.split()[3:5] for line in limits.splitlines() if line.startswith("Max open files"))
        assert soft == hard
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
