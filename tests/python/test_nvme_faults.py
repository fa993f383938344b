"""Drives that fail or lie at any command: a typed error or the right answer, no handle lost, the store usable after.

A :class:`Between` stands between a :class:`~nandarray.nvme.RemoteStore` and the connection to a real server, counts
commands, and spoils the answer of one. The client's arithmetic and its checks of input stand beside models.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvme_entries import entry as entry_of

import nandarray
from nandarray import InvalidError, NandarrayError, programs
from nandarray.nvme import (
    Completion,
    CreateSpace,
    DeleteSpace,
    NdRead,
    OpenSpace,
    Read,
    RemoteProgram,
    RemoteStore,
    SpaceInformation,
    Write,
    connect,
    new_secret,
    read_secrets,
)  # fmt: skip
from nandarray.nvme import kernel as kernel_module
from nandarray.nvme.commands import memory_of
from nandarray.nvme.cutting import cut_box
from nandarray.nvme.names import check_nqn

Answer = tuple[bytes, bytes]
CUBE = np.arange(2 * 3 * 4 * 5, dtype="<i4").reshape(2, 3, 4, 5)
GRID = np.arange(48.0).reshape(6, 8)


class Between:
    """A connection that spoils the answer of one command, counted from 0."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.at = -1
        self.spoil: Callable[[Answer], Answer] = lambda answer: answer
        self.entries: list[bytes] = []
        self.spoilt = False

    def call(self, entry: bytes, data: bytes | None = None, room: int = 0, *, admin: bool = False) -> Answer:
        number = len(self.entries)
        self.entries.append(entry)
        answer = self.native.call(entry, data, room, admin=admin)
        if number != self.at:
            return answer
        self.spoilt = True
        return self.spoil(answer)

    def call_many(self, calls: list[tuple[bytes, bytes | None, int]], depth: int) -> list[Answer]:
        return [self.call(*one) for one in calls]

    def again(self, at: int, spoil: Callable[[Answer], Answer]) -> None:
        self.at, self.spoil, self.spoilt = at, spoil, False
        self.entries.clear()

    def boxes_left(self) -> int:
        """Boxes that were stored in the drive, without those that were freed."""
        stored = sum(entry[0] == 0x0D and entry[4:6] == b"\0\4" for entry in self.entries)
        return stored - sum(entry[0] == 0x10 and entry[4:6] == b"\0\4" for entry in self.entries)


def status(bits: int) -> Callable[[Answer], Answer]:
    """An answer that ends with this status, without data."""
    return lambda answer: (answer[0][:14] + struct.pack("<H", bits << 1), b"")


def unreachable(answer: Answer) -> Answer:
    raise NandarrayError("the connection is lost")


def result(dword: int) -> Callable[[Answer], Answer]:
    return lambda answer: (struct.pack("<Q", dword) + answer[0][8:], answer[1])


SPOILT: dict[str, Callable[[Answer], Answer]] = {
    "invalid field": status(0x002),
    "not ready": status(0x082),
    "vendor": status(0x7FF),
    "do not retry": status(0x4006),
    "lost": unreachable,
    "no data": lambda answer: (answer[0], b""),
    "short": lambda answer: (answer[0], answer[1][:-1]),
    "long": lambda answer: (answer[0], answer[1] + b"\0"),
}


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteStore]:
    with nandarray.open(tmp_path_factory.mktemp("faults") / "a.nand", mode="w") as store:
        store["cube"], store["grid"], store["one"] = CUBE, GRID, np.array(7, "<u2")
        with nandarray.serve(store) as server, connect(server.url) as made:
            yield RemoteStore(Between(made._source.connection), "nvme+tcp://between")  # type: ignore[arg-type]


def between(drive: RemoteStore) -> Between:
    assert isinstance(drive._source._native, Between)
    return drive._source._native


# --- each command of each call ----------------------------------------------------------------------------------------


def read_grid(drive: RemoteStore) -> Any:
    return drive["grid"][1:3, 2:]


def read_cube(drive: RemoteStore) -> Any:
    return drive["cube"][1, :, 2:4]


def written(drive: RemoteStore) -> Any:
    drive["grid"][0] = 3.0
    drive["cube"][0, 1] = 5
    drive.flush()
    return True


def listed(drive: RemoteStore) -> Any:
    return drive.array_names(), dict(drive["grid"].attrs), drive["cube"][::-1, [1, 0], ::2, [[3]]]


def executed(drive: RemoteStore) -> Any:
    program = drive.load(programs.get("sum", dtype="int32").elf, index=3)
    found = program.execute(drive["cube"])
    program.unload()
    return found


def executed_twice(drive: RemoteStore) -> Any:
    program = drive.load(programs.get("minmax", dtype="float64").elf, index=4)
    found = program.execute(drive["grid"], outputs=len(programs.get("minmax", dtype="float64").outputs), room=64)
    program.unload()
    return found


def memory(drive: RemoteStore) -> Any:
    drive.memory_write(64, bytes(range(10)))
    return drive.memory_read(64, 10)


CALLS = [read_grid, read_cube, written, listed, executed, executed_twice, memory]


def emptied(drive: RemoteStore) -> None:
    """Free the slots of programs, in whatever state a fault left them."""
    for index in (3, 4):
        for opcode, word in ((0x88, index), (0x85, index | 1 << 24)):
            drive.call(entry_of(opcode, 0, {10: word}), admin=True)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_fault_at_any_command_is_an_error_or_changes_nothing(drive: RemoteStore, call: Any) -> None:
    spy = between(drive)
    spy.again(-1, unreachable)
    wanted = call(drive)
    count = len(spy.entries)
    assert spy.boxes_left() == 0
    for at, (name, spoil) in itertools.product(range(count), SPOILT.items()):
        spy.again(at, spoil)
        what = f"{call.__name__}: {name} at command {at} of {count}"
        try:
            found = call(drive)
        except NandarrayError:
            pass
        else:
            # A spoilt answer may not matter, as the data of a command that has none.
            np.testing.assert_equal(found, wanted, err_msg=what)
        assert spy.spoilt, what
        if name not in ("lost", "invalid field", "not ready", "vendor", "do not retry"):
            assert spy.boxes_left() == 0, what
        spy.again(-1, unreachable)
        emptied(drive)
    drive["grid"][0], drive["cube"][0, 1] = GRID[0], CUBE[0, 1]
    np.testing.assert_array_equal(drive["cube"][...], CUBE)
    np.testing.assert_array_equal(drive["grid"][...], GRID)


def test_the_error_of_an_execution_counts_before_those_of_cleaning_up(drive: RemoteStore) -> None:
    spy = between(drive)
    spy.again(-1, unreachable)
    program, array = drive.load(programs.get("sum", dtype="int32").elf, index=3), drive["cube"]
    for at, says in ((1, "vendor|Unknown"), (2, "vendor|Unknown")):
        spy.again(at, status(0x7FF))
        with pytest.raises(NandarrayError):
            program.execute(array, array)
        assert spy.boxes_left() <= 1, says
    spy.again(-1, unreachable)
    program.unload()


def test_an_output_that_is_larger_than_its_room_is_not_read(drive: RemoteStore) -> None:
    spy = between(drive)
    spy.again(-1, unreachable)
    program, array = drive.load(programs.get("sum", dtype="int32").elf, index=3), drive["cube"]
    array._space.dsid(None)
    for size in (1 << 32, 1 << 63, 2**64 - 1, 1028):
        spy.again(1, result(size))
        with pytest.raises(NandarrayError, match=rf"outputs of \[{size}\] bytes, where each has room for 1024"):
            program.execute(array, room=1021)
        assert len(spy.entries) == 3
    spy.again(-1, unreachable)
    assert program.execute(array, room=8) == [struct.pack("<q", int(CUBE.sum()))]
    program.unload()


def test_bytes_of_a_programs_input_are_counted_as_bytes(drive: RemoteStore) -> None:
    between(drive).again(-1, unreachable)
    program = drive.load(programs.get("sum", dtype="int32").elf, index=3)
    values = np.arange(50, dtype="<i4")
    for given_ in (values, values.tobytes(), memoryview(values), bytearray(values.tobytes()), values.reshape(5, 10)):
        assert program.execute(given_) == [struct.pack("<q", 1225)]
    assert program.execute(b"") == [bytes(8)]
    for wrong in (values[::2], "text", [1, 2], 5):
        with pytest.raises(InvalidError, match="contiguous"):
            program.execute(wrong)
    for room in (0, -4, 1 << 32):
        with pytest.raises(InvalidError, match="room must be from 1 to .* bytes for each output"):
            program.execute(values, room=room)
    program.unload()


@pytest.mark.parametrize("index", [0, -1, 65, 1 << 16, (1 << 24) + 1])
def test_a_slot_that_no_drive_has_is_refused_before_anything_is_sent(drive: RemoteStore, index: int) -> None:
    spy = between(drive)
    spy.again(-1, unreachable)
    for call in (lambda: drive.load(b"\x7fELF", index=index), lambda: RemoteProgram(drive, index)):
        with pytest.raises(
            InvalidError, match=f"a slot must be from 1 to 64, not {index}|slot must be from 0 to .*, not {index}"
        ):
            call()
    assert spy.entries == []


# --- replies that lie -------------------------------------------------------------------------------------------------


def test_a_reply_with_any_flipped_bit_is_one_or_an_error(drive: RemoteStore) -> None:
    spy = between(drive)
    spy.again(-1, unreachable)
    drive._source.describe("grid")
    assert len(spy.entries) == 2, "a request and a reply"
    opened, size = 0, 0
    for at in itertools.count():

        def flipped(answer: Answer, at: int = at) -> Answer:
            nonlocal size
            page, size = bytearray(answer[1]), 8 * len(answer[1])
            if at < size:
                page[at // 8] ^= 1 << at % 8
            return answer[0], bytes(page)

        spy.again(1, flipped)
        try:
            space = drive._source.open_space("grid")
            assert nandarray.dtypes.decode(space.dtype).itemsize == space.itemsize, f"bit {at}"
            assert all(length >= 0 for length in (*space.shape, *space.building_block))
            opened += 1
        except NandarrayError:
            pass
        if at >= size:
            break
    assert 0 < opened < size
    spy.again(-1, unreachable)
    np.testing.assert_array_equal(drive["grid"][...], GRID)


# --- what never leaves the host ---------------------------------------------------------------------------------------


def test_memory_is_checked_before_a_command_leaves(drive: RemoteStore) -> None:
    spy = between(drive)
    spy.again(-1, unreachable)
    view = drive._source.open_space("grid").dsid(None)
    spy.entries.clear()
    wide = np.zeros((4096, 2), np.uint8)
    cases: list[tuple[Any, Any, str]] = [
        (SpaceInformation(view), None, "SpaceInformation needs memory to read into"),
        (SpaceInformation(view), bytes(4096), "data is read-only; a command that reads writes to it"),
        (SpaceInformation(view), wide[:, 0], "data must be contiguous, not with strides (2,)"),
        (SpaceInformation(view), "text", "data is no contiguous memory"),
        (Read(1, 0), 5, "data is no contiguous memory"),
        (Write(1, 0), wide[::2], "data must be contiguous, not with strides"),
        (OpenSpace("grid"), b"more", "OpenSpace brings its own data"),
        (CreateSpace("new", (2,), 4), bytearray(4), "CreateSpace brings its own data"),
        (NdRead(view, (0,) * 4, (1,) * 4), bytearray(8), "boxes of more than three dimensions go through arrays"),
        (DeleteSpace(2**64), None, "does not fit"),
    ]
    for command, data, says in cases:
        with pytest.raises(InvalidError) as caught:
            raise AssertionError(f"{command} ended with {drive.submit(command, data)}")
        assert says in str(caught.value)
    assert spy.entries == []
    page = np.zeros((64, 64), np.uint8)
    assert drive.submit(SpaceInformation(view), page).ok
    assert SpaceInformation.decode(page.tobytes())["name"] == "grid"


@given(st.binary(max_size=40))
def test_memory_is_the_callers(raw: bytes) -> None:
    changing = bytearray(raw)
    array = memory_of(changing, write=True)
    assert array.tobytes() == raw
    array[...] = 0
    assert changing == bytes(len(raw))
    assert memory_of(np.frombuffer(raw, np.uint8).reshape(1, -1), write=False).tobytes() == raw
    with pytest.raises(InvalidError):
        memory_of(raw, write=True)


@given(st.integers(0, 2**15 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_completion_is_read_from_its_bits(bits: int, dw0: int, dw1: int) -> None:
    entry = struct.pack("<IIHHHH", dw0, dw1, 1, 2, 3, bits << 1)
    done = Completion.decode(entry)
    assert (done.status, done.dnr, done.dw0, done.dw1) == (bits & 0x7FF, bits >> 14 == 1, dw0, dw1)
    assert done.ok == (bits & 0x7FF == 0)
    assert f"({(bits & 0x7FF) >> 8:x}h/{bits & 0xFF:02x}h" in str(done)
    assert ("DNR" in str(done)) == done.dnr
    for size in (0, 15, 17):
        with pytest.raises(InvalidError, match=f"must have (16|64) bytes, not {size}"):
            Completion.decode(entry[:15] if size == 15 else b"" if size == 0 else entry + b"\0")


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=4), st.sampled_from(["u1", "f8", "S700", "V4096"]), st.data()
)
def test_a_box_is_cut_into_boxes_of_one_transfer_that_cover_it_once(
    counts: list[int], dtype: str, data: st.DataObject
) -> None:
    item = np.dtype(dtype).itemsize
    while np.prod(counts, dtype=object) * item > 64 << 20:
        counts = [max(1, count // 2) for count in counts]
    start, step = ([data.draw(st.integers(low, 10)) for _ in counts] for low in (0, 1))
    covered = np.zeros(counts, np.uint8)
    # One byte stands for an element, so that a part of the memory tells its place.
    for first, part in cut_box(start, step, covered, max(1, ((2 << 20) - 512) // item)):
        assert part.size * item <= (2 << 20) - 512 or part.size == 1
        low = [(f - s) // d for f, s, d in zip(first, start, step, strict=True)]
        key = tuple(slice(at, at + n) for at, n in zip(low, part.shape, strict=True))
        assert covered[key].ctypes.data == part.ctypes.data
        part += 1
    assert (covered == 1).all()


def test_an_array_of_a_drive_is_copied_or_refused(drive: RemoteStore) -> None:
    between(drive).again(-1, unreachable)
    array = drive["grid"]
    np.testing.assert_array_equal(np.asarray(array, "f4"), GRID.astype("f4"))
    np.testing.assert_array_equal(np.array(array, copy=True), GRID)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(array, copy=False)
    assert drive["one"][()] == 7


def test_a_path_is_an_address_as_its_text_is() -> None:
    for given_ in (Path("/dev/nvme77"), "/dev/nvme77"):
        with pytest.raises(InvalidError, match="/dev/nvme77 has no namespaces|no namespaces with a character device"):
            connect(given_)
    for wrong in (Path("a.nand"), "nvme+tcp://", "nvme+tcp://host/x", "nvme+tcp:///nqn.x", "NVME+TCP://h/nqn.x", ""):
        with pytest.raises(
            InvalidError, match="must be nvme\\+tcp://HOST:PORT/NQN, .*nvme\\+unix:///PATH or /dev/nvmeX"
        ):
            connect(wrong)


# --- a kernel's drive -------------------------------------------------------------------------------------------------


@pytest.fixture
def system(tmp_path: Path) -> tuple[Path, Path]:
    """Devices and the kernel's tree of a drive nvme3 with one namespace."""
    devices, system = tmp_path / "dev", tmp_path / "sys"
    (system / "class" / "nvme-subsystem" / "nvme-subsys0" / "nvme3").mkdir(parents=True)
    (system / "class" / "nvme-generic").mkdir()
    (system / "devices" / "nvme-subsys0" / "ng3n1").mkdir(parents=True)
    (system / "class" / "nvme-generic" / "ng3n1").symlink_to(system / "devices" / "nvme-subsys0" / "ng3n1")
    devices.mkdir()
    for name in ("nvme3", "ng3n1"):
        (devices / name).touch()
    return devices, system


@pytest.mark.parametrize("name", ["/dev/nvme", "/dev/nvme3n1", "/dev/nvme-3", "/dev/xnvme3", "/dev/nvme3\n", "/dev/"])
def test_a_name_that_no_controller_has_is_refused(name: str) -> None:
    with pytest.raises(InvalidError, match="is no controller of a drive"):
        kernel_module.KernelDrive(name)


def test_a_device_that_is_no_drives_is_named_and_closed(system: tuple[Path, Path]) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(InvalidError, match="ng3n1 is no namespace of a drive: Inappropriate ioctl"):
        kernel_module.KernelDrive("/dev/nvme3", devices=system[0], system=system[1])
    (system[0] / "ng3n1").unlink()
    with pytest.raises(InvalidError, match="ng3n1: No such file"):
        kernel_module.KernelDrive("/dev/nvme3", devices=system[0], system=system[1])
    assert len(os.listdir("/proc/self/fd")) == len(before)


ERRORS = [
    (errno.EACCES, False, InvalidError, "refuses the command 02h to this user; root may send it"),
    (errno.EPERM, True, InvalidError, "refuses the admin command 02h to this user; root may send it"),
    (errno.EINVAL, False, NandarrayError, "refuses the command 02h: Invalid argument"),
    (errno.EINTR, True, NandarrayError, "refuses the admin command 02h: Interrupted"),
    (errno.ENODEV, False, NandarrayError, "refuses the command 02h: No such device"),
]


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_of_the_kernel_names_the_command(
    system: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, case: tuple[int, bool, Any, str]
) -> None:
    number, admin, kind, says = case

    def refuse(file: int, request: int, command: Any = None) -> int:
        if request == kernel_module.NVME_ID:
            return 1
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(kernel_module.fcntl, "ioctl", refuse)
    drive = kernel_module.KernelDrive("/dev/nvme3", devices=system[0], system=system[1])
    entry = struct.pack("<16I", 2, 0 if admin else 1, *[0] * 14)
    for data, room in ((None, 512), (b"x" * 512, 0), (None, 0)):
        with pytest.raises(kind) as caught:
            drive.call(entry, data, room, admin=admin)
        assert says in str(caught.value)
    drive.close()


@given(st.integers(0, 2**14 - 1), st.integers(0, 2**64 - 1), st.integers(0, 5000), st.booleans())
def test_a_kernels_answer_becomes_a_completion(status: int, answer: int, size: int, sends: bool) -> None:
    import ctypes

    drive = object.__new__(kernel_module.KernelDrive)
    drive._files, drive._namespaces, drive._admin, drive._refused = [], {1: -5}, None, []
    drive.path = "/dev/nvme3"
    seen: list[bytes] = []

    def ioctl(file: int, request: int, command: bytearray) -> int:
        *_, address, _, length = kernel_module.COMMAND.unpack(command)[:10]
        assert (file, length) == (-5, size)
        if size:
            seen.append(ctypes.string_at(address, size))
            ctypes.memset(address, 7, size)
        struct.pack_into("<Q", command, kernel_module.COMMAND.size - 8, answer)
        return status

    entry = struct.pack("<16I", 1 if sends else 2, 1, *range(14))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_module.fcntl, "ioctl", ioctl)
        raw, found = drive.call(entry, b"\3" * size if sends else None, 0 if sends else size)
    done = Completion.decode(raw)
    assert (done.status, done.dw0 | done.dw1 << 32) == (status & 0x7FF, answer)
    assert found == (b"" if sends or status else b"\7" * size)
    assert seen == ([(b"\3" if sends else b"\0") * size] if size else [])


# --- names and secrets ------------------------------------------------------------------------------------------------


@given(st.text(max_size=240) | st.text("nq.ab \t\n-:é", max_size=240).map(lambda text: "nqn." + text))
def test_a_qualified_name_is_a_short_printable_text(name: str) -> None:
    rest = name.removeprefix("nqn.")
    good = name.startswith("nqn.") and rest != "" and name.isprintable() and " " not in name
    good = good and not any(char.isspace() for char in name) and len(name.encode("utf-8", "replace")) <= 223
    if good:
        assert check_nqn(name, "the subsystem") == name
    else:
        with pytest.raises(InvalidError, match="the name of the subsystem"):
            check_nqn(name, "the subsystem")


FILES = [
    ("", "has no secret: no host could connect"),
    ("# nqn.a x\n\n", "has no secret"),
    ("nqn.a\n", "line 1 must be a host's NQN, its secret and perhaps the controller's"),
    ("\n\nnqn.a 1 2 3\n", "line 3 must be a host's NQN"),
    ("host secret\n", "line 1 must be a host's NQN"),
    ("nqn.a x\nnqn.a y\n", "line 2: a second secret of nqn.a"),
]


@pytest.mark.parametrize(("text", "says"), FILES)
def test_a_file_of_secrets_that_is_none_names_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "secrets"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InvalidError) as caught:
        read_secrets(path)
    assert says in str(caught.value)


def test_a_file_of_secrets_is_its_lines(tmp_path: Path) -> None:
    rng, path = random.Random(4), tmp_path / "secrets"
    wanted: dict[str, tuple[str, str | None]] = {}
    lines = []
    for number in range(30):
        words = [f"nqn.host{number}", new_secret("sha256"), *([new_secret("none")] if rng.random() < 0.5 else [])]
        wanted[words[0]] = (words[1], words[2] if len(words) == 3 else None)
        lines += rng.choice([[], ["# a comment"], ["   "]]) + [rng.choice([" ", "\t", "   "]).join(words)]
    path.write_text(rng.choice(["\n", "\r\n"]).join(lines))
    path.chmod(0o600)
    assert read_secrets(path) == wanted
    path.write_bytes(b"nqn.a \xff\n")
    with pytest.raises(InvalidError, match="must be text in UTF-8 .* byte 6 is not"):
        read_secrets(path)
    for mode in (0o640, 0o604, 0o660, 0o610, 0o601):
        path.chmod(mode)
        with pytest.raises(InvalidError, match=f"has mode {mode:o}: other users may read the secrets"):
            read_secrets(path)
    with pytest.raises(InvalidError, match="hash must be one of none, sha256"):
        new_secret("md5")  # type: ignore[arg-type]
