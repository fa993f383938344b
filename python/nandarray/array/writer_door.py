"""The door of the process that writes a file: arrays of a store that is open for writing, in other processes.

One process writes a store. A pickle of something in it has the address of that process' door, a unix socket at which
the store is served as a drive (:mod:`nandarray.nvme.source` is the other side). The first pickle makes the socket, in
a new folder that no other user may enter; it ends with the store. Reads and writes from there are commands of the
writing process, whole or absent as its own, and durable with its flushes. In the process itself an array is found again
as the one that was pickled.

It reaches the processes of one user on one machine. Elements go through the socket and one process: where writing has
to be fast, workers write a store of parts. Stores on modelled devices and keys of encrypted arrays stay where they are.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import socket
import stat
import tempfile
import time
import weakref
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from nandarray import _nandarray
from nandarray.array.fork import own_again
from nandarray.array.served import connect
from nandarray.errors import ClosedError, DoorError, InvalidError
from nandarray.urls import SOCKET, UNIX

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["WriterAddress", "WriterDoor", "address_of", "connected", "store_here"]

#: The beginning of the name of a folder with a door, which is of this machine: others may share the folder around it,
#: where their sockets look as if no process listened. And the name of the socket in it.
_PREFIX, _NAME = f"nandarray-door-{zlib.crc32(os.fsencode(platform.node())):08x}-", "door"
#: Time that a process has to listen at a socket that it has made.
_LISTENS_SECONDS = 0.05
#: Characters that the path of a socket may have, less the name of the file (``sun_path`` has 108).
_PATH_MOST = 96
#: The end of an error of a socket that is not there, or on which no process listens (ENOENT, ECONNREFUSED).
_ABSENT = re.compile(r"\(os error (?:2|111)\)$")
#: Stores of this process that have a door, by its socket.
_own: WeakValueDictionary[str, Store] = WeakValueDictionary()


@dataclass(frozen=True)
class WriterAddress:
    """The place of a door, and of which process and store it is: what a pickle has."""

    socket: str
    host: str
    process: int
    path: str

    def __str__(self) -> str:
        return f"{self.path!r} is written by process {self.process} on {self.host}"


class WriterDoor:
    """A door of this process: a server, which ends with its store."""

    def __init__(self, store: Store) -> None:
        folder = _folder()
        place = os.path.join(folder, _NAME)
        try:
            server = _nandarray.NvmeServer.start(
                store._engine, [SOCKET + place], kill_safe=False, access=(None, None, False)
            )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.address = WriterAddress(place, platform.node(), os.getpid(), os.path.abspath(store.path))
        self.end = weakref.finalize(store, _end, server, folder, os.getpid())
        own_again(self, WriterDoor._leave)
        _own[place] = store

    def _leave(self) -> None:
        """Let go of the door's sockets in a forked process: as long as it had them, no worker would see the end."""
        with contextlib.suppress(OSError), open(os.devnull, "rb") as nothing:
            for number in map(int, os.listdir("/proc/self/fd")):
                with contextlib.suppress(OSError):
                    if _address(number) == self.address.socket:
                        # Not closed: the native objects here still have the number.
                        os.dup2(nothing.fileno(), number, inheritable=False)


def _address(number: int) -> object:
    """Return the address of an open file that is a socket; None of any other."""
    if not stat.S_ISSOCK(os.fstat(number).st_mode):
        return None
    one = socket.socket(fileno=number)
    try:
        return one.getsockname()
    finally:
        one.detach()


def _folder() -> str:
    """Make a folder that this user alone may enter, with a path that is short enough for a socket in it."""
    place = tempfile.gettempdir()
    if len(os.fsencode(place)) + len(_PREFIX) + 8 > _PATH_MOST:
        place = "/tmp"  # noqa: S108 (the folder in it is new, and has mode 0700)
    _sweep(place)
    return tempfile.mkdtemp(prefix=_PREFIX, dir=place)


def _sweep(place: str) -> None:
    """Remove the doors of processes of this user that were killed: those at which no process listens."""
    silent = [folder for folder in Path(place).glob(f"{_PREFIX}*") if _is_silent(folder)]
    if silent:
        time.sleep(_LISTENS_SECONDS)
    for folder in filter(_is_silent, silent):
        shutil.rmtree(folder, ignore_errors=True)


def _is_silent(folder: Path) -> bool:
    """Return whether a folder of this user's has a door at which no process listens."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as one:
        if folder.lstat().st_uid == os.geteuid() and not folder.is_symlink():
            one.settimeout(1)
            try:
                one.connect(str(folder / _NAME))
            except ConnectionRefusedError:
                return True
    return False


def _end(server: _nandarray.NvmeServer, folder: str, process: int) -> None:
    if os.getpid() == process:  # a forked process leaves both alone
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def address_of(store: Store) -> WriterAddress:
    """Return the address by which other processes reach a store that this one writes, or has by such an address."""
    with store._lock:
        if store._writer is not None:
            return store._writer
        if store._door is None:
            store._door = WriterDoor(store)
        return store._door.address


def store_here(address: WriterAddress) -> Store | None:
    """Return the open store of an address that is a door of this process; None if there is none."""
    store = _own.get(address.socket) if address.process == os.getpid() else None
    return None if store is None or store.closed else store


def connected(address: WriterAddress) -> Store:
    """Return a new connection to a store that another process writes.

    Raises
    ------
    DoorError
        The process is one of another machine.
    ClosedError
        It has closed the store, or has ended.
    """
    here = platform.node()
    if address.host != here:
        raise DoorError(
            f"{address}, and this process is on {here}: workers on several machines must write to a store of parts"
        )
    gone = f"{address}, which has closed it or has ended"
    if not Path(address.socket).exists():
        raise ClosedError(gone)
    options: dict[str, Any] = {"mode": "r+"}
    try:
        store = connect(UNIX + address.socket, **options)
    except InvalidError as error:
        # Of one that ended meanwhile the connection is reset.
        if _ABSENT.search(str(error)) or _is_silent(Path(address.socket).parent):
            raise ClosedError(gone) from error
        raise
    store._writer = address
    return store
