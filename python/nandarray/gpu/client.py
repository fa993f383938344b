"""Stores that another process serves by shared memory: ``nandarray.open("shm://NAME")``.

The store claims one queue pair of ``nandarray serve STORE --shm NAME``; arrays and what is done with them are those of
every store (:mod:`nandarray.array`), by way of :mod:`nandarray.gpu.source`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from nandarray import _nandarray
from nandarray.array.store import Store
from nandarray.gpu.source import RegionSource

if TYPE_CHECKING:
    from nandarray.array.store import Mode

__all__ = ["connect"]

#: Milliseconds until a call without an answer ends.
DEADLINE_MS = 10_000


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
        No server has this name, or all its queue pairs are claimed.
    """
    native = _nandarray.QueueClient.open(name, deadline_ms=deadline_ms)
    source = RegionSource(native, name, read_only=mode == "r")
    return Store(cast("_nandarray.Store", source), mode, (source.path, ()))
