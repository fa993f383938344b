"""NVMe commands as dataclasses, and the entries that they become.

One class a command. Names of fields are the specification's; what the wire counts from zero is counted from one here.
An entry is packed by dwords, and what does not fit its field is an :class:`InvalidError` of the host: it never leaves
it. Executing is :mod:`nandarray.nvme`'s.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nandarray import _nandarray
from nandarray.errors import InvalidError

__all__ = [
    "ALL",
    "CloseSpace",
    "Command",
    "Compare",
    "Completion",
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
        return cls.of_status(status >> 1, dw0, dw1)

    @classmethod
    def of_status(cls, bits: int, dw0: int = 0, dw1: int = 0) -> Completion:
        """Make one from the 15 bits of a status field.

        Parameters
        ----------
        bits : int
            Status code, status code type and flags.
        dw0, dw1 : int
            Result dwords.

        Returns
        -------
        Completion
            What they say.
        """
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
        head = _packed("<IBBHI4x", itemsize, len(dims), len(building_block), len(text), 0 if key is None else 1)
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
