"""NVMe: typed commands for a store, as a host that speaks NVMe submits them.

A command here becomes the 64-byte submission entry that any host would send, and :meth:`Controller.submit` gives back what
the 16-byte completion entry says. A namespace is the one-dimensional array ``ns/<nsid>`` of logical blocks; the N-D
commands of the NDS paper open views of any array and move one sub-block by one command. Formats, opcodes and status codes:
``docs/reference/nvme.md``.

What is not here: queues, doorbells and admin commands, which belong to a transport. To read and write arrays from Python,
use :class:`nandarray.Array`.

Examples
--------
>>> import nandarray
>>> from nandarray.nvme import Read, Write
>>> store = nandarray.open("data.nand", mode="w")
>>> host = store.nvme()
>>> host.create_namespace(1, nsze=1000).ok
True
>>> host.submit(Write(1, slba=8, nlb=2), b"\\x07" * 1024).name
'Successful Completion'
>>> room = bytearray(512)
>>> host.submit(Read(1, slba=9), room).ok, room[0]
(True, 7)
>>> print(host.submit(Read(1, slba=1000), room))
LBA Out of Range (0h/80h, DNR)
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nandarray import _nandarray
from nandarray.errors import InvalidError

if TYPE_CHECKING:
    from nandarray.store import Store

__all__ = [
    "ALL",
    "CloseSpace",
    "Command",
    "Compare",
    "Completion",
    "Controller",
    "Copy",
    "CreateSpace",
    "DatasetManagement",
    "DeleteSpace",
    "Direction",
    "Flush",
    "NdRead",
    "NdWrite",
    "OpenSpace",
    "Read",
    "ResizeSpace",
    "SpaceInformation",
    "Write",
    "WriteZeroes",
]

#: All namespaces, in a flush.
ALL = 0xFFFFFFFF

_FUA = 1 << 30
_DEAC = 1 << 25
_ND_ELEMENTS = 1 << 8
_ND_PAGE = 1 << 9
_DIMENSIONS_MAX = 32
_SPACE_PAGE_BYTES = 4096
_NAME_AT, _NAME_BYTES_MAX = 1024, 3072
_STATUS_NAMES = {bits & 0x7FF: name for bits, name in _nandarray.nvme_statuses()}


class Direction(enum.Enum):
    """Which way a command's data goes, seen from the host."""

    NONE = "none"
    TO_CONTROLLER = "to controller"
    TO_HOST = "to host"


@dataclass(frozen=True)
class Completion:
    """What a command gives.

    Parameters
    ----------
    status : int
        Status code type and status code, ``sct << 8 | sc``; 0 is success.
    dnr : bool
        Do not retry: the same command is expected to fail again.
    dw0, dw1 : int
        Result dwords: dynamic space identifier and space identifier, where a space was opened.
    """

    status: int
    dnr: bool = False
    dw0: int = 0
    dw1: int = 0

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return self.status == 0

    @property
    def name(self) -> str:
        """The specification's name for the status."""
        return _STATUS_NAMES.get(self.status, "Unknown Status")

    def __str__(self) -> str:
        return f"{self.name} ({self.status >> 8:x}h/{self.status & 0xFF:02x}h{', DNR' if self.dnr else ''})"

    @classmethod
    def decode(cls, entry: bytes) -> Completion:
        """Read a completion entry.

        Parameters
        ----------
        entry : bytes
            16 bytes.

        Returns
        -------
        Completion
            What it says.
        """
        dw0, dw1, _sqhd, _sqid, _cid, status = struct.unpack("<IIHHHH", entry)
        return cls._of(status >> 1, dw0, dw1)

    @classmethod
    def _of(cls, bits: int, dw0: int = 0, dw1: int = 0) -> Completion:
        return cls(bits & 0x7FF, bool(bits >> 14), dw0, dw1)


def _entry(opcode: int, cid: int, nsid: int = 0, **cdw: int) -> bytes:
    """64 bytes from dwords by name: ``cdw10=...``."""
    words = [opcode | cid << 16, nsid, *(cdw.get(f"cdw{n}", 0) for n in range(2, 16))]
    try:
        return struct.pack("<16I", *words)
    except struct.error as error:
        raise InvalidError(f"a field does not fit its dword: {cdw} of namespace {nsid}") from error


def _halves(value: int) -> tuple[int, int]:
    return value & 0xFFFFFFFF, value >> 32


def _zero_based(count: int, most: int, what: str) -> int:
    if not 1 <= count <= most:
        raise InvalidError(f"{count} {what}; a command has 1 to {most}")
    return count - 1


@dataclass(frozen=True)
class Command:
    """A command. What the wire counts from zero is counted from one here."""

    opcode: ClassVar[int]
    direction: ClassVar[Direction] = Direction.NONE

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry.

        Parameters
        ----------
        cid : int
            Command identifier, which the completion entry repeats.

        Returns
        -------
        bytes
            64 bytes, without pointers to data.
        """
        raise NotImplementedError

    def payload(self) -> bytes | None:
        """Give the data that is a part of the command: ranges, a description of a space.

        Returns
        -------
        bytes or None
            The data; None where it is the caller's.
        """
        return None

    def page(self) -> bytes | None:
        """Give the page of coordinates, where they do not fit the entry.

        Returns
        -------
        bytes or None
            512 bytes, or None.
        """
        return None


@dataclass(frozen=True)
class Flush(Command):
    """Make what was written durable."""

    opcode: ClassVar[int] = 0x00
    nsid: int = ALL

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry. See :meth:`Command.encode`."""
        return _entry(self.opcode, cid, self.nsid)


@dataclass(frozen=True)
class _Blocks(Command):
    nsid: int
    slba: int
    nlb: int = 1
    fua: bool = False

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry. See :meth:`Command.encode`."""
        return self._with(cid, 0)

    def _with(self, cid: int, more: int) -> bytes:
        low, high = _halves(self.slba)
        word = _zero_based(self.nlb, 1 << 16, "logical blocks") | (_FUA if self.fua else 0) | more
        return _entry(self.opcode, cid, self.nsid, cdw10=low, cdw11=high, cdw12=word)


@dataclass(frozen=True)
class Write(_Blocks):
    """Write ``nlb`` logical blocks; ``fua`` makes them durable."""

    opcode: ClassVar[int] = 0x01
    direction: ClassVar[Direction] = Direction.TO_CONTROLLER


@dataclass(frozen=True)
class Read(_Blocks):
    """Read ``nlb`` logical blocks."""

    opcode: ClassVar[int] = 0x02
    direction: ClassVar[Direction] = Direction.TO_HOST


@dataclass(frozen=True)
class Compare(_Blocks):
    """Compare ``nlb`` logical blocks with the host's data."""

    opcode: ClassVar[int] = 0x05
    direction: ClassVar[Direction] = Direction.TO_CONTROLLER


@dataclass(frozen=True)
class WriteZeroes(_Blocks):
    """Make ``nlb`` logical blocks read as zeroes; they take no space."""

    opcode: ClassVar[int] = 0x08
    deac: bool = False

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry. See :meth:`Command.encode`."""
        return self._with(cid, _DEAC if self.deac else 0)


@dataclass(frozen=True)
class DatasetManagement(Command):
    """Deallocate ranges ``(slba, nlb)``, up to 256 of them."""

    opcode: ClassVar[int] = 0x09
    direction: ClassVar[Direction] = Direction.TO_CONTROLLER
    nsid: int
    ranges: Sequence[tuple[int, int]]
    deallocate: bool = True

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry. See :meth:`Command.encode`."""
        nr = _zero_based(len(self.ranges), 256, "ranges")
        return _entry(self.opcode, cid, self.nsid, cdw10=nr, cdw11=4 if self.deallocate else 0)

    def payload(self) -> bytes:
        """Give the ranges: 16 bytes each. See :meth:`Command.payload`."""
        return b"".join(_packed("<IIQ", 0, nlb, slba) for slba, nlb in self.ranges)


@dataclass(frozen=True)
class Copy(Command):
    """Copy ranges ``(slba, nlb)`` to ``sdlba``, one behind the other, as one write."""

    opcode: ClassVar[int] = 0x19
    direction: ClassVar[Direction] = Direction.TO_CONTROLLER
    nsid: int
    sdlba: int
    ranges: Sequence[tuple[int, int]]
    fua: bool = False

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry. See :meth:`Command.encode`."""
        low, high = _halves(self.sdlba)
        word = _zero_based(len(self.ranges), 256, "ranges") | (_FUA if self.fua else 0)
        return _entry(self.opcode, cid, self.nsid, cdw10=low, cdw11=high, cdw12=word)

    def payload(self) -> bytes:
        """Give the ranges: 32 bytes each. See :meth:`Command.payload`."""
        return b"".join(
            _packed("<QQH14x", 0, slba, _zero_based(nlb, 1 << 16, "logical blocks")) for slba, nlb in self.ranges
        )


def _packed(form: str, *values: int) -> bytes:
    try:
        return struct.pack(form, *values)
    except struct.error as error:
        raise InvalidError(f"one of {values} does not fit its field") from error


def _numbers(values: Sequence[int]) -> bytes:
    if len(values) > _DIMENSIONS_MAX:
        raise InvalidError(f"{len(values)} dimensions; a space has at most {_DIMENSIONS_MAX}")
    return _packed(f"<{_DIMENSIONS_MAX}Q", *values, *[0] * (_DIMENSIONS_MAX - len(values)))


@dataclass(frozen=True)
class _Space(Command):
    opcode: ClassVar[int] = 0x85
    direction: ClassVar[Direction] = Direction.TO_CONTROLLER

    def _open(self, cid: int, action: int, space: int = 0) -> bytes:
        low, high = _halves(space)
        return _entry(self.opcode, cid, cdw10=action, cdw12=low, cdw13=high)

    @staticmethod
    def _page(
        dims: Sequence[int],
        name: str = "",
        key: bytes | None = None,
        *,
        itemsize: int = 0,
        dtype: str = "",
        building_block: Sequence[int] = (),
        compression: str = "",
    ) -> bytes:
        text = name.encode()
        if len(text) > _NAME_BYTES_MAX:
            raise InvalidError(f"a name of {len(text)} bytes; the page has room for {_NAME_BYTES_MAX}")
        if key is not None and len(key) != 32:
            raise InvalidError(f"a key of {len(key)} bytes; it has 32")
        head = _packed(
            "<IBBHI4x", itemsize, len(dims), len(building_block), len(text), 0 if key is None else 1
        )
        words = struct.pack("64s64s32s", dtype.encode(), compression.encode(), key or b"")
        page = head + _numbers(dims) + _numbers(building_block) + words
        return page.ljust(_NAME_AT, b"\0") + text.ljust(_SPACE_PAGE_BYTES - _NAME_AT, b"\0")


@dataclass(frozen=True)
class OpenSpace(_Space):
    """Open a view of an array, by its name or its space's identifier. ``dims`` is its shape; empty is the array's own.

    The completion has the dynamic space identifier in ``dw0``, and the space's identifier in ``dw1``.
    """

    space: int | str
    dims: Sequence[int] = ()
    encryption_key: bytes | None = None

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry. See :meth:`Command.encode`."""
        return self._open(cid, 1) if isinstance(self.space, str) else self._open(cid, 0, self.space)

    def payload(self) -> bytes:
        """Give the page that describes the view. See :meth:`Command.payload`."""
        return self._page(self.dims, self.space if isinstance(self.space, str) else "", self.encryption_key)


@dataclass(frozen=True)
class CreateSpace(_Space):
    """Create an array, and open it in its own shape."""

    name: str
    dims: Sequence[int]
    itemsize: int
    dtype: str = ""
    building_block: Sequence[int] = ()
    compression: str = ""
    encryption_key: bytes | None = None

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry. See :meth:`Command.encode`."""
        return self._open(cid, 2)

    def payload(self) -> bytes:
        """Give the page that describes the space. See :meth:`Command.payload`."""
        return self._page(
            self.dims,
            self.name,
            self.encryption_key,
            itemsize=self.itemsize,
            dtype=self.dtype,
            building_block=self.building_block,
            compression=self.compression,
        )


@dataclass(frozen=True)
class ResizeSpace(_Space):
    """Give an array another shape of as many dimensions, and open it."""

    space: int
    dims: Sequence[int]

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry. See :meth:`Command.encode`."""
        return self._open(cid, 3, self.space)

    def payload(self) -> bytes:
        """Give the page that describes the space. See :meth:`Command.payload`."""
        return self._page(self.dims)


@dataclass(frozen=True)
class SpaceInformation(Command):
    """Describe an open view and its space in 4096 bytes, which :meth:`decode` reads."""

    opcode: ClassVar[int] = 0x86
    direction: ClassVar[Direction] = Direction.TO_HOST
    dsid: int

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry. See :meth:`Command.encode`."""
        return _entry(self.opcode, cid, cdw10=self.dsid)

    @staticmethod
    def decode(page: bytes | bytearray) -> dict[str, Any]:
        """Read what the command gave.

        Parameters
        ----------
        page : bytes
            4096 bytes.

        Returns
        -------
        dict
            ``name``, ``space`` (its identifier), ``shape``, ``view`` (the view's shape), ``itemsize``, ``dtype``,
            ``building_block``, ``compression`` and ``encrypted``.
        """
        itemsize, ndim, bdim, name_bytes, flags = struct.unpack_from("<IBBHI", page)

        def numbers(at: int, count: int) -> tuple[int, ...]:
            return struct.unpack_from(f"<{count}Q", page, at)

        def text(at: int, count: int) -> str:
            return bytes(page[at : at + count]).rstrip(b"\0").decode()

        return {
            "name": text(_NAME_AT, min(name_bytes, _NAME_BYTES_MAX)),
            "space": numbers(688, 1)[0],
            "shape": numbers(704, page[696]),
            "view": numbers(16, ndim),
            "itemsize": itemsize,
            "dtype": text(528, 64),
            "building_block": numbers(272, bdim),
            "compression": text(592, 64),
            "encrypted": bool(flags & 2),
        }


@dataclass(frozen=True)
class CloseSpace(Command):
    """End a view."""

    opcode: ClassVar[int] = 0x88
    dsid: int

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry. See :meth:`Command.encode`."""
        return _entry(self.opcode, cid, cdw10=self.dsid)


@dataclass(frozen=True)
class DeleteSpace(Command):
    """Delete an array by its space's identifier, and end its views."""

    opcode: ClassVar[int] = 0x8C
    space: int

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry. See :meth:`Command.encode`."""
        low, high = _halves(self.space)
        return _entry(self.opcode, cid, cdw12=low, cdw13=high)


@dataclass(frozen=True)
class _Nd(Command):
    dsid: int
    coordinate: Sequence[int]
    sub: Sequence[int]
    elements: bool = False
    fua: bool = False

    @property
    def _paged(self) -> bool:
        return len(self.sub) > 3 or any(value >> 32 for value in (*self.coordinate, *self.sub))

    def encode(self, cid: int = 0) -> bytes:
        """Make the submission entry. See :meth:`Command.encode`."""
        if len(self.coordinate) != len(self.sub):
            raise InvalidError(f"{len(self.coordinate)} coordinates for {len(self.sub)} dimensions")
        word = len(self.sub) | (_ND_ELEMENTS if self.elements else 0) | (_FUA if self.fua else 0)
        if self._paged:
            return _entry(self.opcode, cid, cdw10=self.dsid, cdw11=word | _ND_PAGE)
        words = dict(zip(("cdw2", "cdw3", "cdw12"), self.coordinate, strict=False))
        words |= dict(zip(("cdw13", "cdw14", "cdw15"), self.sub, strict=False))
        return _entry(self.opcode, cid, cdw10=self.dsid, cdw11=word, **words)

    def page(self) -> bytes | None:
        """Give the page of coordinates. See :meth:`Command.page`."""
        return _numbers(self.coordinate) + _numbers(self.sub) if self._paged else None


@dataclass(frozen=True)
class NdRead(_Nd):
    """Read the sub-block of shape ``sub``. A coordinate counts sub-blocks, as in the NDS paper, or elements."""

    opcode: ClassVar[int] = 0x82
    direction: ClassVar[Direction] = Direction.TO_HOST


@dataclass(frozen=True)
class NdWrite(_Nd):
    """Write the sub-block of shape ``sub``. A coordinate counts sub-blocks, as in the NDS paper, or elements."""

    opcode: ClassVar[int] = 0x81
    direction: ClassVar[Direction] = Direction.TO_CONTROLLER


def _memory(data: Any, *, write: bool) -> np.ndarray[Any, Any]:
    """The caller's memory as bytes, never copied."""
    try:
        if isinstance(data, np.ndarray):
            if not data.flags.c_contiguous:
                raise InvalidError(f"data with strides {data.strides}; it has to be contiguous")
            array = data.reshape(-1).view(np.uint8)
        else:
            array = np.frombuffer(memoryview(data).cast("B"), np.uint8)
    except (TypeError, ValueError) as error:
        raise InvalidError(f"data is no contiguous memory: {error}") from error
    if write and not array.flags.writeable:
        raise InvalidError("data is read-only; a command that reads writes to it")
    return array


class Controller:
    """An NVMe controller on a store. What :meth:`nandarray.Store.nvme` gives.

    It may be used from many threads. It does not keep the store open: after :meth:`nandarray.Store.close` every command
    ends with "Namespace Not Ready".

    Parameters
    ----------
    store : Store
        The store.

    Examples
    --------
    >>> import nandarray
    >>> from nandarray.nvme import NdRead, OpenSpace
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["a"] = np.arange(24, dtype="<i4").reshape(4, 6)
    >>> host = store.nvme()
    >>> view = host.submit(OpenSpace("a", dims=(8, 3))).dw0
    >>> out = np.empty((2, 3), "<i4")
    >>> host.submit(NdRead(view, (1, 0), (2, 3)), out).ok
    True
    >>> out
    array([[ 6,  7,  8],
           [ 9, 10, 11]], dtype=int32)
    """

    def __init__(self, store: Store) -> None:
        self._native = store._engine.nvme()

    def submit(self, command: Command, data: Any = None) -> Completion:
        """Execute a command.

        Parameters
        ----------
        command : Command
            The command.
        data : buffer, optional
            Contiguous memory to read into or to write from, exactly as long as the command says. Commands whose data is
            a part of them take none.

        Returns
        -------
        Completion
            How it ended.

        Raises
        ------
        InvalidError
            The command cannot be said on the wire, or the memory cannot be used; what a device would refuse is a status.
        """
        entry, payload, page = command.encode(), command.payload(), command.page()
        if payload is not None:
            if data is not None:
                raise InvalidError(f"{type(command).__name__} brings its own data")
            data = payload
        to_host = command.direction is Direction.TO_HOST
        memory = None if data is None else _memory(data, write=to_host)
        return Completion.decode(self._native.submit(entry, memory, to_host=to_host, page=page))

    def create_namespace(
        self,
        nsid: int,
        nsze: int,
        lba_bytes: int = 512,
        *,
        compression: str | None = None,
        encryption_key: bytes | None = None,
    ) -> Completion:
        """Create a namespace, which reads as zeroes.

        Parameters
        ----------
        nsid : int
            Its identifier.
        nsze : int
            Its size in logical blocks.
        lba_bytes : int
            Bytes of a logical block: a power of two from 512 to 65536.
        compression : str, optional
            As for arrays.
        encryption_key : bytes, optional
            32 bytes.

        Returns
        -------
        Completion
            How it ended.
        """
        bits = self._native.create_namespace(
            nsid, nsze, lba_bytes, compression=compression, encryption_key=encryption_key
        )
        return Completion._of(bits)

    def delete_namespace(self, nsid: int) -> Completion:
        """Delete a namespace.

        Parameters
        ----------
        nsid : int
            Its identifier.

        Returns
        -------
        Completion
            How it ended.
        """
        return Completion._of(self._native.delete_namespace(nsid))

    def identify(self, cns: int, nsid: int = 0) -> tuple[Completion, bytes]:
        """Give the data of an identify command.

        Parameters
        ----------
        cns : int
            0 for a namespace, 1 for the controller, 2 for the namespaces above ``nsid``, 3 for a namespace's identifiers.
        nsid : int
            The namespace.

        Returns
        -------
        tuple of Completion and bytes
            How it ended, and 4096 bytes.
        """
        bits, data = self._native.identify(cns, nsid)
        return Completion._of(bits), data
