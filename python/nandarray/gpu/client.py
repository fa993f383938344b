"""Stores that another process serves by shared memory: ``nandarray.open("shm://NAME")``.

The store claims one queue pair of ``nandarray serve STORE --shm NAME``, and connects to the unix socket beside its
region; arrays and what is done with them are those of every store (:mod:`nandarray.array`), by way of
:mod:`nandarray.gpu.shared`. A region without a socket, of an older server or of another program, has what
:mod:`nandarray.gpu.source` can.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, cast

from nandarray import _nandarray
from nandarray.array.store import Store
from nandarray.errors import ClosedError, InvalidError
from nandarray.gpu.shared import SharedSource
from nandarray.gpu.source import RegionSource
from nandarray.nvme.names import own_nqn
from nandarray.urls import SOCKET

if TYPE_CHECKING:
    from nandarray.array.store import Mode

__all__ = ["connect"]

#: Milliseconds until a call without an answer ends.
DEADLINE_MS = 10_000
#: Seconds within which a server that has made its region makes its socket, and between two looks for it.
_BEGINS, _LOOK = 2.0, 0.02
#: The end of an error of a socket that is not there, or on which no process listens (ENOENT, ECONNREFUSED).
_ABSENT = re.compile(r"\(os error (?:2|111)\)$")


def connect(name: str, *, deadline_ms: int = DEADLINE_MS, mode: Mode = "r+") -> Store:
    """Open the store that ``nandarray serve STORE --shm NAME`` serves on this machine.

    Parameters
    ----------
    name : str
        The server's name, or the path of its region.
    deadline_ms : int
        Milliseconds until a call without an answer ends with an error.
    mode : {"r+", "r"}
        Whether arrays may be written from here.

    Returns
    -------
    Store
        Its arrays.

    Raises
    ------
    InvalidError
        No server has this name, all its queue pairs are claimed, or another user serves at its socket.
    """
    native = _nandarray.QueueClient.open(name, deadline_ms=deadline_ms)
    region = RegionSource(native, name, read_only=mode == "r")
    path, nqn = _nandarray.queue_path(name), region.nqn
    host = None if nqn is None else _host(path, nqn)
    source: RegionSource | SharedSource = region
    if nqn is not None and host is not None:
        source = SharedSource(host, region, read_only=mode == "r", again=lambda: _again(path, nqn))
    return Store(cast("_nandarray.Store", source), mode, (region.path, ()))


def _again(region: str, nqn: str) -> _nandarray.NvmeHost:
    """Return another connection to the socket beside a region."""
    made = _host(region, nqn)
    if made is None:
        raise ClosedError(f"the server of {region} has ended")
    return made


def _host(region: str, nqn: str) -> _nandarray.NvmeHost | None:
    """Return a connection to the socket beside a region; None if no process listens there."""
    until = time.monotonic() + _BEGINS
    while True:
        try:
            made = _nandarray.NvmeHost.connect(f"{SOCKET}{region}.sock", nqn, hostnqn=own_nqn())
            break
        except InvalidError as error:
            if not _ABSENT.search(str(error)):
                raise
            if time.monotonic() > until:
                return None
            time.sleep(_LOOK)
    # Any user may make a file in the folder of regions.
    user, process = made.peer() or (-1, 0)
    of_region = os.stat(region).st_uid
    if user not in (0, of_region, os.geteuid()):
        raise InvalidError(
            f"the socket {region}.sock is of process {process} of user {user}, and the region is of user {of_region}"
        )
    return made
