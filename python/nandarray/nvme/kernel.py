"""A drive that this machine's kernel is connected to: commands by the kernel's pass-through, without a socket of ours.

``nvme connect`` gives a drive ``/dev/nvmeX`` for admin commands and ``/dev/ngYnZ`` for each namespace, whose names do
not follow the namespaces' numbers. The structure and the numbers are those of ``linux/nvme_ioctl.h``. A kernel passes
dwords 2, 3 and 10 to 15 and one buffer. Linux 6.1 lets root alone do so; later ones let everybody who may open the
device send opcodes below 80h that the drive's effects log lists, but few admin commands.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import re
import struct
from pathlib import Path

from nandarray.errors import InvalidError, NandarrayError

__all__ = ["KernelDrive"]

#: Requests of ``ioctl``: a namespace's number, and a command whose result has 64 bits, for either queue.
NVME_ID, NVME_ADMIN64, NVME_IO64 = 0x4E40, 0xC0504E47, 0xC0504E48
#: ``struct nvme_passthru_cmd64``: opcode, flags, namespace, dwords 2 and 3, metadata, data, their lengths, dwords 10 to
#: 15, time limit in milliseconds (0 is the kernel's own), result.
COMMAND = struct.Struct("<BBHIIIQQII6IIIQ")
_ALL_NAMESPACES, _FLUSH = 0xFFFFFFFF, 0x00
#: Namespaces from here on are none of blocks.
_FIRST_OTHER = 1022


class KernelDrive:
    """A drive that the kernel is connected to, by its controller's device, ``/dev/nvmeX``.

    ``devices`` is the folder of devices, ``system`` the kernel's tree of them.
    """

    def __init__(self, path: str, *, devices: Path = Path("/dev"), system: Path = Path("/sys")) -> None:
        name = Path(path).name
        if not re.fullmatch(r"nvme\d+", name):
            raise InvalidError(f"{path} is no controller of a drive, which is named /dev/nvmeX")
        self.path = path
        self._controller = devices / name
        self._files: list[int] = []
        self._namespaces: dict[int, int] = {}
        self._refused: list[Path] = []
        self._admin: int | None = None
        try:
            self._find(name, devices, system)
        except BaseException:
            self.close()
            raise

    def _find(self, name: str, devices: Path, system: Path) -> None:
        """Open the devices of the controller's namespaces, which are below it or below its subsystem."""
        subsystems = (system / "class" / "nvme-subsystem").glob("*")
        owners = {name, *(one.name for one in subsystems if (one / name).exists())}
        for found in sorted((system / "class" / "nvme-generic").glob("ng*")):
            if owners.isdisjoint(found.resolve().parts):
                continue
            file = self._open(devices / found.name)
            if file is None:
                self._refused.append(devices / found.name)
            else:
                try:
                    self._namespaces[fcntl.ioctl(file, NVME_ID)] = file
                except OSError as error:
                    raise InvalidError(f"{devices / found.name} is no namespace of a drive: {error.strerror}") from None
        if not self._namespaces and not self._refused:
            raise InvalidError(f"{self.path} has no namespaces with a character device (ls /sys/class/nvme-generic)")

    def _open(self, path: Path) -> int | None:
        """Open a device; ``None`` if this user may not."""
        for mode in (os.O_RDWR, os.O_RDONLY):
            try:
                file = os.open(path, mode | os.O_CLOEXEC)
            except PermissionError:
                continue
            except OSError as error:
                raise InvalidError(f"{path}: {error.strerror}") from None
            self._files.append(file)
            return file
        return None

    def _file(self, opcode: int, nsid: int, *, admin: bool) -> tuple[int, int]:
        """Return the open device of a command, and the namespace's number that it goes to."""
        if admin:
            if self._admin is None:
                self._admin = self._open(self._controller)
            # The device of a namespace takes admin commands, too.
            file = next(iter(self._namespaces.values()), None) if self._admin is None else self._admin
            if file is None:
                raise InvalidError(f"{self._controller}: this user may not open it")
            return file, nsid
        if nsid == _ALL_NAMESPACES and opcode == _FLUSH:
            # A device takes commands for its own namespace only; any block namespace flushes the whole store.
            nsid = min((one for one in self._namespaces if one < _FIRST_OTHER), default=nsid)
        if nsid not in self._namespaces:
            refused = f", or it is one that this user may not open: {', '.join(map(str, self._refused))}"
            raise InvalidError(f"{self.path}: no namespace {nsid}{refused if self._refused else ''}")
        return self._namespaces[nsid], nsid

    def call(
        self, entry: bytes, data: bytes | None = None, room: int = 0, *, admin: bool = False
    ) -> tuple[bytes, bytes]:
        """Execute a command, as :meth:`nandarray.nvme.RemoteStore.call` does; the completion entry has 16 bytes.

        Of the submission entry's dwords the kernel passes 2, 3 and 10 to 15.
        """
        words = struct.unpack("<16I", entry)
        opcode = words[0] & 0xFF
        size = len(data) if data else room
        file, nsid = self._file(opcode, words[1], admin=admin)
        # Pages of its own: a kernel copies data that are not aligned, and takes fewer of them.
        with mmap.mmap(-1, max(size, 1)) as memory:
            if data:
                memory[:size] = data
            place = ctypes.c_char.from_buffer(memory)
            address = ctypes.addressof(place) if size else 0
            command = bytearray(
                COMMAND.pack(opcode, 0, 0, nsid, words[2], words[3], 0, address, 0, size, *words[10:16], 0, 0, 0)
            )
            try:
                status = fcntl.ioctl(file, NVME_ADMIN64 if admin else NVME_IO64, command)
            except OSError as error:
                raise self._refusal(error, opcode, admin=admin) from None
            finally:
                # The mapping cannot be closed while this points into it.
                del place
            result = COMMAND.unpack(command)[-1]
            found = b"" if data or status else memory[:room]
        return struct.pack("<QHHHH", result, 0, 0, 0, status << 1 & 0xFFFF), found

    def call_many(self, calls: list[tuple[bytes, bytes | None, int]], depth: int) -> list[tuple[bytes, bytes]]:
        """Execute commands of the I/O queue one after the other: a call of the kernel's waits for its command."""
        return [self.call(entry, data, room) for entry, data, room in calls]

    def _refusal(self, error: OSError, opcode: int, *, admin: bool) -> NandarrayError:
        what = f"{self.path}: the kernel refuses the {'admin ' if admin else ''}command {opcode:02x}h"
        if error.errno in (errno.EACCES, errno.EPERM):
            return InvalidError(f"{what} to this user; root may send it")
        return NandarrayError(f"{what}: {error.strerror}")

    def __del__(self) -> None:
        if hasattr(self, "_files"):
            self.close()

    def close(self) -> None:
        """Close the devices."""
        for file in self._files:
            os.close(file)
        self._files, self._namespaces, self._admin = [], {}, None
