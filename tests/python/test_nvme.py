"""NVMe from Python: entries byte for byte, commands against arrays, statuses, memory that is refused."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest

import nandarray
from nandarray import _nandarray, nvme
from nandarray.errors import ClosedError, InvalidError
from nandarray.nvme import (
    CloseSpace,
    Command,
    Compare,
    Copy,
    CreateSpace,
    DatasetManagement,
    DeleteSpace,
    Flush,
    NdRead,
    NdWrite,
    OpenSpace,
    Read,
    ResizeSpace,
    SpaceInformation,
    Write,
    WriteZeroes,
)

ROOT = Path(__file__).resolve().parents[2]


def words(entry: bytes) -> dict[int, int]:
    """The dwords of an entry that are not zero."""
    assert len(entry) == 64
    return {n: word for n, word in enumerate(struct.unpack("<16I", entry)) if word}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (Flush(), {0: 0x002A0000, 1: 0xFFFFFFFF}),
        (Write(1, 0x1_0000_0002, 8, fua=True), {0: 0x002A0001, 1: 1, 10: 2, 11: 1, 12: 0x40000007}),
        (Read(1, 0x1000, 8), {0: 0x002A0002, 1: 1, 10: 0x1000, 12: 7}),
        (Compare(1, 3, 65536), {0: 0x002A0005, 1: 1, 10: 3, 12: 0xFFFF}),
        (WriteZeroes(1, 0, 2, deac=True), {0: 0x002A0008, 1: 1, 12: 0x02000001}),
        (DatasetManagement(1, [(0, 1)] * 3), {0: 0x002A0009, 1: 1, 10: 2, 11: 4}),
        (Copy(1, 9, [(0, 1)] * 2), {0: 0x002A0019, 1: 1, 10: 9, 12: 1}),
        (NdRead(5, (1, 2, 3), (4, 5, 6)), {0: 0x002A0082, 2: 1, 3: 2, 10: 5, 11: 3, 12: 3, 13: 4, 14: 5, 15: 6}),
        (NdWrite(5, (1,) * 4, (2,) * 4, elements=True), {0: 0x002A0081, 10: 5, 11: 0x304}),
        (OpenSpace("a"), {0: 0x002A0085, 10: 1}),
        (OpenSpace(7), {0: 0x002A0085, 12: 7}),
        (CreateSpace("a", (1,), 4), {0: 0x002A0085, 10: 2}),
        (ResizeSpace(7, (1,)), {0: 0x002A0085, 10: 3, 12: 7}),
        (SpaceInformation(5), {0: 0x002A0086, 10: 5}),
        (CloseSpace(5), {0: 0x002A0088, 10: 5}),
        (DeleteSpace(7), {0: 0x002A008C, 12: 7}),
    ],
)
def test_entries_are_those_of_the_specification(command: Command, expected: dict[int, int]) -> None:
    assert words(command.encode(cid=42)) == expected


def test_a_namespace_is_written_and_read(store: nandarray.Store) -> None:
    host = store.nvme()
    assert host.create_namespace(1, nsze=100, lba_bytes=4096).ok
    data = np.random.default_rng(1).integers(0, 256, (5, 4096), "u1")
    assert host.submit(Write(1, 10, 5), data).ok
    room = bytearray(5 * 4096)
    assert host.submit(Read(1, 10, 5), room).ok
    assert room == data.tobytes()
    assert host.submit(Compare(1, 10, 5), data).ok
    assert host.submit(Compare(1, 11, 5), data).name == "Compare Failure"
    assert host.submit(Copy(1, 50, [(12, 1), (10, 2)])).ok
    assert host.submit(Compare(1, 50, 3), np.concatenate([data[2:3], data[:2]])).ok
    assert host.submit(WriteZeroes(1, 10, 2)).ok
    assert host.submit(DatasetManagement(1, [(14, 1), (50, 3)])).ok
    assert host.submit(Flush(1)).ok
    blocks = store["ns/1"][:]
    assert blocks.shape == (100,)
    assert [i for i, block in enumerate(blocks) if any(block.tobytes())] == [12, 13]
    assert blocks[12].tobytes() == data[2].tobytes()
    assert host.delete_namespace(1).ok
    assert "ns/1" not in store


def test_spaces_are_arrays(store: nandarray.Store) -> None:
    host = store.nvme()
    done = host.submit(CreateSpace("run/a", (6, 8), 4, dtype="<f4", building_block=(3, 4), compression="lz4"))
    assert done.ok
    data = np.arange(12, dtype="<f4").reshape(3, 4)
    assert host.submit(NdWrite(done.dw0, (1, 1), (3, 4)), data).ok
    array = store["run/a"]
    assert array.dtype == np.dtype("<f4")
    assert array.building_block == (3, 4)
    np.testing.assert_array_equal(array[3:, 4:], data)

    view = host.submit(OpenSpace("run/a", dims=(2, 3, 2, 2, 2))).dw0
    out = np.empty((1, 3, 2, 1, 2), "<f4")
    assert host.submit(NdRead(view, (1, 0, 0, 1, 0), (1, 3, 2, 1, 2), elements=True), out).ok
    np.testing.assert_array_equal(out, array[:].reshape(2, 3, 2, 2, 2)[1:, :, :, 1:, :])

    page = bytearray(4096)
    assert host.submit(SpaceInformation(view), page).ok
    told = SpaceInformation.decode(page)
    assert (told["name"], told["shape"], told["view"]) == ("run/a", (6, 8), (2, 3, 2, 2, 2))
    assert (told["dtype"], told["itemsize"], told["building_block"]) == ("<f4", 4, (3, 4))

    assert host.submit(ResizeSpace(done.dw1, (9, 8))).ok
    assert store["run/a"].shape == (9, 8)
    assert host.submit(NdRead(view, (0,) * 5, (1,) * 5), bytearray(4)).name == "View Volume Mismatch"
    assert host.submit(CloseSpace(view)).ok
    assert host.submit(CloseSpace(view)).name == "Invalid Dynamic Space Identifier"
    assert host.submit(DeleteSpace(done.dw1)).ok
    assert "run/a" not in store


def test_encrypted_arrays_need_their_key(store: nandarray.Store) -> None:
    key = bytes(range(32))
    store.create("secret", data=np.arange(4), encryption_key=key)
    path = store.path
    store.close()
    with nandarray.open(path) as again:
        host = again.nvme()
        assert host.submit(OpenSpace("secret")).name == "Access Denied"
        assert host.submit(OpenSpace("secret", encryption_key=bytes(32))).name == "Access Denied"
        view = host.submit(OpenSpace("secret", encryption_key=key)).dw0
        out = np.empty(4, "<i8")
        assert host.submit(NdRead(view, (0,), (4,)), out).ok
        assert out.tolist() == [0, 1, 2, 3]
        done = host.submit(NdWrite(view, (0,), (4,)), out)
        assert (done.status, done.dnr) == (0x020, True)


def test_statuses_and_what_never_leaves_the_host(store: nandarray.Store) -> None:
    host = store.nvme()
    host.create_namespace(1, nsze=10)
    assert str(host.submit(Read(1, 10), bytearray(512))) == "LBA Out of Range (0h/80h, DNR)"
    assert host.submit(Read(2, 0), bytearray(512)).status == 0x00B
    assert host.submit(Read(1, 0), bytearray(511)).status == 0x00F
    assert host.submit(Read(1, 0)).status == 0x00F
    assert host.create_namespace(1, nsze=10).name == "Space Exists"
    assert host.create_namespace(2, nsze=0).status == 0x002
    with pytest.raises(InvalidError, match="read-only"):
        host.submit(Read(1, 0), bytes(512))
    with pytest.raises(InvalidError, match="strides"):
        host.submit(Write(1, 0), np.zeros((2, 1024), "u1")[:, ::2])
    with pytest.raises(InvalidError, match="contiguous"):
        host.submit(Write(1, 0), 5)
    with pytest.raises(InvalidError, match="brings its own data"):
        host.submit(DatasetManagement(1, [(0, 1)]), bytes(16))
    for command in [Read(1, 0, 0), Read(1, 0, 65537), Read(1, 1 << 64), Read(-1, 0), NdRead(1, (0,), (1, 1))]:
        with pytest.raises(InvalidError):
            host.submit(command, bytearray(512))
    for command in [OpenSpace("a", dims=(1,) * 33), OpenSpace("a", encryption_key=b"x"), OpenSpace("a" * 3073)]:
        with pytest.raises(InvalidError):
            host.submit(command)


def test_the_error_names_what_does_not_fit() -> None:
    for command, says in [
        (Read(1, 0, 65537), "65537 logical blocks; a command has 1 to 65536"),
        (Read(1, 1 << 64), "a field of Read does not fit"),
        (DatasetManagement(1, []), "0 ranges; a command has 1 to 256"),
        (DatasetManagement(1, [(0, 1 << 32)]), "4294967296 logical blocks"),
        (Copy(1, 0, [(0, 0)]), "0 logical blocks"),
        (NdRead(1, (0,), (1, 1)), "1 coordinates for 2 dimensions"),
        (OpenSpace("a", dims=(1,) * 33), "33 dimensions; a space has at most 32"),
        (OpenSpace("a", encryption_key=b"x"), "a key must have 32 bytes, not 1"),
        (OpenSpace("a" * 3073), "a name of 3073 bytes; the page has room for 3072"),
    ]:
        with pytest.raises(InvalidError, match=re.escape(says)):
            command.encode()
    with pytest.raises(InvalidError, match="16 bits"):
        Flush().encode(cid=1 << 16)
    with pytest.raises(InvalidError, match="must have 16 bytes, not 4"):
        nvme.Completion.decode(bytes(4))
    with pytest.raises(InvalidError, match="must have 4096 bytes, not 4"):
        SpaceInformation.decode(bytes(4))


def test_large_coordinates_go_to_a_page() -> None:
    command = NdWrite(5, (1 << 40, 2), (3, 4))
    page = command.page()
    assert page is not None
    assert struct.unpack_from("<2Q", page) == (1 << 40, 2)
    assert struct.unpack_from("<2Q", page, 256) == (3, 4)
    assert words(command.encode()) == {0: 0x81, 10: 5, 11: 0x202}
    assert NdRead(5, (1, 2), (3, 4)).page() is None


def test_identify(store: nandarray.Store) -> None:
    host = store.nvme()
    host.create_namespace(3, nsze=10)
    done, data = host.identify(2)
    assert done.ok
    assert struct.unpack_from("<3I", data) == (3, 0, 0)
    _, data = host.identify(1)
    assert data[3072:3080] == b"NDSPACES"
    done, data = host.identify(0, 4)
    assert (done.name, data) == ("Invalid Namespace or Format", b"")


def test_a_closed_store_is_let_go_of(path: Path) -> None:
    store = nandarray.open(path, mode="w")
    host = store.nvme()
    host.create_namespace(1, nsze=10)
    store.close()
    assert host.submit(Flush()).name == "Namespace Not Ready"
    with nandarray.open(path, mode="r+"):
        assert host.submit(Read(1, 0), bytearray(512)).name == "Namespace Not Ready"
    with pytest.raises(ClosedError):
        store.nvme()


def test_a_refresh_resets_the_controller(path: Path) -> None:
    with nandarray.open(path, mode="w") as writer:
        writer["a"] = np.arange(3)
        writer.flush()
        with nandarray.open(path) as reader:
            host = reader.nvme()
            view = host.submit(OpenSpace("a")).dw0
            writer["b"] = np.arange(4)
            writer.flush()
            reader.refresh()
            assert host.submit(CloseSpace(view)).name == "Invalid Dynamic Space Identifier"
            assert host.submit(OpenSpace("b")).ok


def test_the_page_lists_every_status_and_opcode() -> None:
    text = (ROOT / "docs" / "reference" / "nvme.md").read_text()
    for bits, name in _nandarray.nvme_statuses():
        if bits:
            assert re.search(rf"\| {bits >> 8 & 7}h/{bits & 0xFF:02x}h \| {re.escape(name)} \|", text), name
    commands = [c for c in (getattr(nvme, name) for name in nvme.__all__) if hasattr(c, "opcode")]
    assert len(commands) == 15
    for command in commands:
        assert f"| {command.opcode:02x}h |" in text, command
