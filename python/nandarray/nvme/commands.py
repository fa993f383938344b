"""NVMe commands as dataclasses, one class a command.

Names of fields are the specification's; counts that the wire has from zero begin at one here. The native module packs
entries and pages. A value that does not fit its field is an :class:`~nandarray.errors.InvalidError` of the host: it
never leaves it. :mod:`nandarray.nvme` executes commands.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

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

_STATUS_NAMES = {bits & 0x7FF: name for bits, name in _nandarray.nvme_statuses()}


def memory_of(data: Any, *, write: bool) -> np.ndarray[Any, Any]:
    """Return the caller's memory as bytes, never copied.

    Parameters
    ----------
    data : buffer
        Contiguous memory.
    write : bool
        Whether it is written to.

    Returns
    -------
    numpy.ndarray
        Its bytes.

    Raises
    ------
    InvalidError
        It is not contiguous, or is read-only and would be written to.
    """
    try:
        if isinstance(data, np.ndarray):
            if not data.flags.c_contiguous:
                raise InvalidError(f"data must be contiguous, not with strides {data.strides}")
            array = data.reshape(-1).view(np.uint8)
        else:
            array = np.frombuffer(memoryview(data).cast("B"), np.uint8)
    except (TypeError, ValueError) as error:
        raise InvalidError(f"data is no contiguous memory: {error}") from error
    if write and not array.flags.writeable:
        raise InvalidError("data is read-only; a command that reads writes to it")
    return array


class Direction(enum.Enum):
    """Direction of a command's data, seen from the host."""

    NONE = "none"
    TO_CONTROLLER = "to controller"
    TO_HOST = "to host"


@dataclass(frozen=True)
class Completion:
    """End of a command.

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
            The completion that the entry encodes.
        """
        return cls.of_status(*_nandarray.nvme_completion(entry))

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
            The completion of this status.
        """
        return cls(bits & 0x7FF, bool(bits >> 14), dw0, dw1)


@dataclass(frozen=True)
class Command:
    """A command. Counts that the wire has from zero begin at one here."""

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
        return _nandarray.nvme_encode(self, cid)[0]

    def payload(self) -> bytes | None:
        """Give the data that is a part of the command: ranges, a description of a space.

        Returns
        -------
        bytes or None
            The data; None where it is the caller's.
        """
        return _nandarray.nvme_encode(self)[1]

    def page(self) -> bytes | None:
        """Give the page of coordinates, where they do not fit the entry.

        Returns
        -------
        bytes or None
            512 bytes, or None.
        """
        return _nandarray.nvme_encode(self)[2]


@dataclass(frozen=True)
class Flush(Command):
    """Make what was written durable."""

    opcode: ClassVar[int] = 0x00
    nsid: int = ALL


@dataclass(frozen=True)
class _Blocks(Command):
    nsid: int
    slba: int
    nlb: int = 1
    fua: bool = False


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


@dataclass(frozen=True)
class DatasetManagement(Command):
    """Deallocate ranges ``(slba, nlb)``, up to 256 of them."""

    opcode: ClassVar[int] = 0x09
    direction: ClassVar[Direction] = Direction.TO_CONTROLLER
    nsid: int
    ranges: Sequence[tuple[int, int]]
    deallocate: bool = True


@dataclass(frozen=True)
class Copy(Command):
    """Copy ranges ``(slba, nlb)`` to ``sdlba``, one behind the other, as one write."""

    opcode: ClassVar[int] = 0x19
    direction: ClassVar[Direction] = Direction.TO_CONTROLLER
    nsid: int
    sdlba: int
    ranges: Sequence[tuple[int, int]]
    fua: bool = False


@dataclass(frozen=True)
class _Space(Command):
    opcode: ClassVar[int] = 0x85
    direction: ClassVar[Direction] = Direction.TO_CONTROLLER
    action: ClassVar[str]


@dataclass(frozen=True)
class OpenSpace(_Space):
    """Open a view of an array, by its name or its space's identifier. ``dims`` is its shape; empty is the array's own.

    The completion has the dynamic space identifier in ``dw0``, and the space's identifier in ``dw1``.
    """

    action: ClassVar[str] = "open"
    space: int | str
    dims: Sequence[int] = ()
    encryption_key: bytes | None = None


@dataclass(frozen=True)
class CreateSpace(_Space):
    """Create an array, and open it in its own shape."""

    action: ClassVar[str] = "create"
    name: str
    dims: Sequence[int]
    itemsize: int
    dtype: str = ""
    building_block: Sequence[int] = ()
    compression: str = ""
    encryption_key: bytes | None = None


@dataclass(frozen=True)
class ResizeSpace(_Space):
    """Give an array another shape of as many dimensions, and open it."""

    action: ClassVar[str] = "resize"
    space: int
    dims: Sequence[int]


@dataclass(frozen=True)
class SpaceInformation(Command):
    """Describe an open view and its space in 4096 bytes, which :meth:`decode` reads."""

    opcode: ClassVar[int] = 0x86
    direction: ClassVar[Direction] = Direction.TO_HOST
    dsid: int

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
        return _nandarray.nvme_space(page)


@dataclass(frozen=True)
class CloseSpace(Command):
    """End a view."""

    opcode: ClassVar[int] = 0x88
    dsid: int


@dataclass(frozen=True)
class DeleteSpace(Command):
    """Delete an array by its space's identifier, and end its views."""

    opcode: ClassVar[int] = 0x8C
    space: int


@dataclass(frozen=True)
class _Nd(Command):
    dsid: int
    coordinate: Sequence[int]
    sub: Sequence[int]
    elements: bool = False
    fua: bool = False


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
