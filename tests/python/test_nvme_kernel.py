"""A drive behind a kernel's pass-through, without a kernel: its ``ioctl`` is a stand-in that our initiator answers.

That a kernel takes the same requests is tested with one, in ``tests/guest/test_commands.py``; that their structure is
the one of ``linux/nvme_ioctl.h``, by a compiler that has the header.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import programs
from nandarray.errors import InvalidError, NandarrayError
from nandarray.nvme import Read, RemoteStore, Write, connect, kernel

#: Namespaces by the number of their device, which is another one.
DEVICES = {1: 1, 2: 1022, 3: 1023, 4: 1024}


class StandIn:
    """A kernel: its files, and ``ioctl``, which refuses what Linux 7.x refuses to an ordinary user."""

    def __init__(self, folder: Path, remote: RemoteStore) -> None:
        self.remote, self.root, self.folder = remote, True, folder
        self.said: list[tuple[int, int, int]] = []
        devices, system = folder / "dev", folder / "sys"
        (system / "class" / "nvme-subsystem" / "nvme-subsys7" / "nvme3").mkdir(parents=True)
        (system / "class" / "nvme-generic").mkdir()
        devices.mkdir()
        (devices / "nvme3").touch()
        for number in (*DEVICES, 9):
            # The last device is another drive's.
            owner = "nvme-subsys7" if number in DEVICES else "nvme-subsys8"
            (system / "devices" / owner / f"ng7n{number}").mkdir(parents=True)
            (system / "class" / "nvme-generic" / f"ng7n{number}").symlink_to(
                system / "devices" / owner / f"ng7n{number}"
            )
            (devices / f"ng7n{number}").touch()

    def drive(self) -> kernel.KernelDrive:
        return kernel.KernelDrive("/dev/nvme3", devices=self.folder / "dev", system=self.folder / "sys")

    def ioctl(self, file: int, request: int, command: bytearray | None = None) -> int:
        name = Path(os.readlink(f"/proc/self/fd/{file}")).name
        own = DEVICES.get(int(name[4:])) if name.startswith("ng7n") else None
        if request == kernel.NVME_ID:
            assert own is not None
            return own
        assert command is not None
        assert request in (kernel.NVME_ADMIN64, kernel.NVME_IO64)
        opcode, flags, _, nsid, c2, c3, meta, address, meta_size, size, *rest = kernel.COMMAND.unpack(command)
        words, (timeout, _, _) = rest[:6], rest[6:]
        assert (flags, meta, meta_size, timeout) == (0, 0, 0, 0)
        admin = request == kernel.NVME_ADMIN64
        self.said.append((opcode, nsid, size))
        if not admin and nsid != own:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if not self.root and (admin or opcode >= 0x80):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        assert size <= 2 << 20, "MDTS"
        assert address % 4096 == 0
        entry = struct.pack("<16I", opcode, nsid, c2, c3, *[0] * 6, *words)
        sends = opcode & 1
        data = ctypes.string_at(address, size) if sends and size else None
        done, found = self.remote.call(entry, data, 0 if sends else size, admin=admin)
        if done.ok and found:
            ctypes.memmove(address, found, len(found))
        struct.pack_into("<II", command, 72, done.dw0, done.dw1)
        return done.status | done.dnr << 14


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with nandarray.open(tmp_path / "a.nand", mode="w") as store:
        assert store.nvme().create_namespace(1, 4096, 512).ok
        store["m"] = np.arange(64, dtype="<i4").reshape(8, 8)
        store["deep"] = np.arange(256, dtype="<u2").reshape(4, 4, 4, 4)
        with nandarray.serve(store) as server, connect(server.url) as remote:
            made = StandIn(tmp_path, remote)
            monkeypatch.setattr(kernel.fcntl, "ioctl", made.ioctl)
            yield made


def test_arrays_blocks_and_programs(stand_in: StandIn) -> None:
    with RemoteStore(stand_in.drive(), "/dev/nvme3") as drive:
        assert "m" in drive.array_names()
        np.testing.assert_array_equal(drive["m"][2:5, 3:7], np.arange(64).reshape(8, 8)[2:5, 3:7])
        drive["deep"][1, 2, 3] = 7
        np.testing.assert_array_equal(drive["deep"][1, 2, 2:], [[104, 105, 106, 107], [7, 7, 7, 7]])
        block, back = np.arange(64, dtype="<u8"), bytearray(512)
        assert drive.submit(Write(1, 9, 1), block).ok
        drive.flush()
        assert drive.submit(Read(1, 9, 1), back).ok
        assert back == block.tobytes()
        assert not drive.submit(Read(1, 1 << 20, 1), back).ok
        program = drive.load(programs.get("sum", dtype="int32").elf)
        assert program.execute(drive["m"]) == [struct.pack("<q", sum(range(64)))]
        assert program.execute(np.arange(100, dtype="<i4").tobytes()) == [struct.pack("<q", sum(range(100)))]
        drive.memory_write(0, bytes(range(256)) * 12000)
        assert drive.memory_read(0, 3072000) == bytes(range(256)) * 12000
    # A flush goes to a device's own namespace; nothing goes to the other drive.
    assert (0, 1, 0) in stand_in.said
    assert all(nsid in (0, *DEVICES.values()) for _, nsid, _ in stand_in.said)


def test_an_ordinary_user_runs_a_program_that_root_has_loaded(stand_in: StandIn) -> None:
    from nandarray.nvme import RemoteProgram

    with RemoteStore(stand_in.drive(), "/dev/nvme3") as drive:
        drive.load(programs.get("sum", dtype="int32").elf, index=5)
        stand_in.root = False
        program = RemoteProgram(drive, 5)
        assert program.execute(drive["m"]) == [struct.pack("<q", sum(range(64)))]
        with pytest.raises(InvalidError, match="refuses the admin command 85h to this user; root may send it"):
            drive.load(b"\x7fELF")
        with pytest.raises(NandarrayError, match="Program Not Activated|No Program"):
            RemoteProgram(drive, 6).execute(b"1234")


def test_what_is_no_drive_is_refused(stand_in: StandIn) -> None:
    for path in ("/dev/nvme0n1", "/dev/ng0n1", "/dev/null"):
        with pytest.raises(InvalidError, match="is named /dev/nvmeX"):
            connect(path)
    with pytest.raises(InvalidError, match="the kernel has chosen"):
        connect("/dev/nvme0", secret="DHHC-1:00:x:")
    with pytest.raises(InvalidError, match="no namespaces with a character device"):
        kernel.KernelDrive("/dev/nvme4", devices=stand_in.folder / "dev", system=stand_in.folder / "sys")
    drive = stand_in.drive()
    with pytest.raises(InvalidError, match="no namespace 77"):
        drive.call(struct.pack("<16I", 2, 77, *[0] * 14), None, 512)
    drive.close()


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_structure_is_that_of_the_kernels_header(tmp_path: Path) -> None:
    fields = ["opcode", "flags", "rsvd1", "nsid", "cdw2", "cdw3", "metadata", "addr", "metadata_len", "data_len"]
    fields += [*(f"cdw{i}" for i in range(10, 16)), "timeout_ms", "rsvd2", "result"]
    lines = "".join(f'printf("%zu ", offsetof(struct nvme_passthru_cmd64, {field}));' for field in fields)
    source = (
        "#include <stddef.h>\n#include <stdio.h>\n#include <linux/nvme_ioctl.h>\n#include <sys/ioctl.h>\n"
        f'int main(void) {{ {lines} printf("%zu %lu %lu %lu", sizeof(struct nvme_passthru_cmd64), '
        "(unsigned long)NVME_IOCTL_ID, (unsigned long)NVME_IOCTL_ADMIN64_CMD, (unsigned long)NVME_IOCTL_IO64_CMD); }"
    )
    built = subprocess.run(
        ["cc", "-x", "c", "-", "-o", tmp_path / "a"], input=source, text=True, capture_output=True, check=False
    )
    if built.returncode:
        pytest.skip(f"linux/nvme_ioctl.h cannot be compiled: {built.stderr[:200]}")
    *offsets, size, ask, admin, io = map(
        int, subprocess.run([tmp_path / "a"], capture_output=True, check=True).stdout.split()
    )
    assert (size, ask, admin, io) == (kernel.COMMAND.size, kernel.NVME_ID, kernel.NVME_ADMIN64, kernel.NVME_IO64)
    kinds: Any = kernel.COMMAND.format[1:].replace("6I", "IIIIII")
    assert len(kinds) == len(fields)
    assert offsets == [struct.calcsize("<" + kinds[:i]) for i in range(len(kinds))]
