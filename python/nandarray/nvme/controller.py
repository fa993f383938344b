r"""NVMe: typed commands for a store, as a host that speaks NVMe submits them.

A command becomes the 64-byte submission entry that any host would send, and :meth:`Controller.submit` returns the
content of the 16-byte completion entry. A namespace is the one-dimensional array ``ns/<nsid>`` of logical blocks; the
N-D commands of the NDS paper open views of any array and move one sub-block by one command. Formats, opcodes and status
codes: ``docs/reference/nvme.md``.

Queues, doorbells and admin commands belong to a transport and are not here. To read and write arrays from
Python, use :class:`nandarray.Array`.

Examples
--------
>>> import nandarray
>>> from nandarray.nvme import Read, Write
>>> store = nandarray.open("data.nand", mode="w")
>>> host = store.nvme()
>>> host.create_namespace(1, nsze=1000).ok
True
>>> host.submit(Write(1, slba=8, nlb=2), b"\x07" * 1024).name
'Successful Completion'
>>> room = bytearray(512)
>>> host.submit(Read(1, slba=9), room).ok, room[0]
(True, 7)
>>> print(host.submit(Read(1, slba=1000), room))
LBA Out of Range (0h/80h, DNR)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nandarray import _nandarray
from nandarray.errors import InvalidError
from nandarray.index.shapes import check_number
from nandarray.nvme.commands import Command, Completion, Direction, memory_of
from nandarray.nvme.namespaces import BlockNamespaces

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["Controller"]


class Controller(BlockNamespaces):
    """An NVMe controller on a store. What :meth:`nandarray.Store.nvme` gives.

    It may be used from many threads. It does not keep the store open: after :meth:`nandarray.Store.close` every command
    ends with "Namespace Not Ready".

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
            Completion of the command.

        Raises
        ------
        InvalidError
            The command cannot be said on the wire, or the memory cannot be used. A refusal of the device is a status.
        """
        entry, payload, page = _nandarray.nvme_encode(command)
        if payload is not None:
            if data is not None:
                raise InvalidError(f"{type(command).__name__} brings its own data")
            data = payload
        to_host = command.direction is Direction.TO_HOST
        memory = None if data is None else memory_of(data, write=to_host)
        return Completion.decode(self._native.submit(entry, memory, to_host=to_host, page=page))

    def _create_namespace(
        self, nsid: int, nsze: int, lba_bytes: int, compression: str | None, encryption_key: bytes | None
    ) -> Completion:
        nsid, lba_bytes = _dword("nsid", nsid), check_number("lba_bytes", lba_bytes)
        bits = self._native.create_namespace(
            nsid, check_number("nsze", nsze), lba_bytes, compression=compression, encryption_key=encryption_key
        )
        return Completion.of_status(bits)

    def _delete_namespace(self, nsid: int) -> Completion:
        return Completion.of_status(self._native.delete_namespace(_dword("nsid", nsid)))

    def identify(self, cns: int, nsid: int = 0) -> tuple[Completion, bytes]:
        """Give the data of an identify command.

        Parameters
        ----------
        cns : int
            0 for a namespace, 1 for the controller, 2 for the namespaces above ``nsid``, 3 for identifiers of one.
        nsid : int
            The namespace.

        Returns
        -------
        tuple of Completion and bytes
            Completion of the command, and 4096 bytes.
        """
        bits, data = self._native.identify(check_number("cns", cns, most=255), _dword("nsid", nsid))
        return Completion.of_status(bits), data


def _dword(what: str, value: Any) -> int:
    return check_number(what, value, most=2**32 - 1)
