"""The conversation in which a stock kernel connects, as `make guest-tests` recorded it, replayed without the kernel.

The host's PDUs are sent byte for byte; of the answers the headers, the completions and the lengths of the data have to
be those that the kernel was content with. Data is compared in the fields that the kernel insists on: the rest has
identifiers of the store, and may grow.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

import nandarray
from tests.guest.recorder import read

TRANSCRIPTS = sorted((Path(__file__).parents[1] / "guest" / "transcripts").glob("*.txt"))
CAPSULE, RESPONSE, DATA, READY = 4, 5, 7, 9
#: Namespaces of the recorded drive: blocks and bytes of a block.
NAMESPACES = {1: ((512 << 20) // 512, 512), 2: ((512 << 20) // 4096, 4096)}


class Replayed:
    """One connection of the replay."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=20)
        self.early: dict[tuple[int, int], bytes] = {}

    def exactly(self, n: int) -> bytes:
        got = b""
        while len(got) < n:
            more = self.socket.recv(n - len(got))
            assert more, "the server ended the connection"
            got += more
        return got

    def answer(self, key: tuple[int, int]) -> bytes:
        """The PDU of a kind for a command; answers to different commands may come in any order."""
        while key not in self.early:
            header = self.exactly(8)
            pdu = header + self.exactly(struct.unpack_from("<I", header, 4)[0] - 8)
            found = answered(pdu)
            assert found not in self.early, f"a second answer {found}"
            self.early[found] = pdu
        return self.early.pop(key)


def answered(pdu: bytes) -> tuple[int, int]:
    """Kind of a controller's PDU, and its command."""
    places = {RESPONSE: 20, DATA: 8, READY: 8}
    return pdu[0], struct.unpack_from("<H", pdu, places[pdu[0]])[0] if pdu[0] in places else 0


def test_there_is_a_transcript() -> None:
    assert TRANSCRIPTS


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_kernel_is_answered_as_it_was(tmp_path: Path, path: Path) -> None:
    conversation = read(path)
    commands: dict[tuple[int, int], bytes] = {}
    connect = next(pdu for _, side, pdu in conversation if side == "h" and pdu[0] == CAPSULE)
    nqn = connect[72 + 256 :].split(b"\0")[0].decode()
    with nandarray.open(tmp_path / "a.nand", mode="w") as store:
        for nsid, (blocks, lba) in NAMESPACES.items():
            assert store.nvme().create_namespace(nsid, blocks, lba).ok
        with nandarray.serve(store, nqn=nqn) as server:
            host, _, port = server.address.rpartition(":")
            connections: dict[int, Replayed] = {}
            checked = 0
            for number, side, pdu in conversation:
                if number not in connections:
                    connections[number] = Replayed((host, int(port)))
                connection = connections[number]
                if side == "h":
                    if pdu[0] == CAPSULE:
                        commands[number, struct.unpack_from("<H", pdu, 10)[0]] = pdu
                    connection.socket.sendall(pdu)
                    continue
                key = answered(pdu)
                got = connection.answer(key)
                command = commands.get((number, key[1]), b"")
                check(got, pdu, command)
                checked += 1
            for connection in connections.values():
                connection.socket.close()
    assert checked > 30


def check(got: bytes, wanted: bytes, command: bytes) -> None:
    assert len(got) == len(wanted), f"{command.hex()}: {got.hex()} instead of {wanted.hex()}"
    if got[0] != DATA:
        assert masked(got) == masked(wanted), f"{command.hex()}: {got.hex()} instead of {wanted.hex()}"
        return
    assert got[:24] == wanted[:24]
    opcode, cns = command[8], command[48]
    if opcode == 0x06 and cns == 1:
        page, before = got[24:], wanted[24:]
        # Several controllers, transfers, identifier, kind, keep alive; entries, queues; SGLs, name, capsules.
        for first, end in [
            (76, 80),
            (111, 112),
            (320, 322),
            (512, 514),
            (514, 520),
            (536, 540),
            (768, 1024),
            (1792, 1804),
        ]:
            assert page[first:end] == before[first:end], f"bytes {first} to {end} of identify"
    elif opcode == 0x06 and cns == 0:
        assert got[24 : 24 + 24] == wanted[24 : 24 + 24]  # sizes
        assert got[24 + 128 : 24 + 132] == wanted[24 + 128 : 24 + 132]  # format
    elif opcode == 0x02 and any(command[12:16]) and command[12:16] != b"\xff\xff\xff\xff":
        assert got == wanted  # blocks, which were never written


def masked(pdu: bytes) -> bytes:
    """A PDU without the submission queue's head, which tells how many commands the server had read by then."""
    return pdu[:16] + bytes(2) + pdu[18:] if pdu[0] == RESPONSE else pdu
