"""Serving a store in shared memory, from the process that has it open: a region, and a unix socket beside it.

By the region's queue pairs clients read and write the elements of the arrays that are there when it is made. By the
socket, which speaks NVMe, they do everything else: names, shapes and attributes, programs, later arrays. It has the
region's path with ``.sock`` behind it, and is for the same users. The region's catalog has the name of the socket's
drive, which no other server has.
"""

from __future__ import annotations

import json
import os
import stat
import uuid
from typing import TYPE_CHECKING, Any

from nandarray import _nandarray
from nandarray.door import engine_of, group_number
from nandarray.errors import InvalidError, NotFoundError
from nandarray.serving.metrics import exposition, observe
from nandarray.urls import SOCKET

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["RegionServer", "exposition_of", "serve", "unserved"]

# The limits of the native server, which takes unsigned numbers only.
_QUEUES_MOST, _DEPTH_MOST, _DATA_MOST, _PAGE = 4096, 1 << 15, 1 << 40, 4096
_DIMS_MOST = 16


class RegionServer:
    """A running server in shared memory. What :func:`serve` gives; a context manager, which stops it.

    Stop it before the store is closed: clients see errors otherwise.
    """

    def __init__(self, queues: _nandarray.QueueServer, drive: _nandarray.NvmeServer) -> None:
        self._queues, self._drive = queues, drive

    def stop(self) -> None:
        """End it: clients get a status, the socket and the region are removed."""
        self._drive.stop()
        self._queues.stop()

    def arrays(self) -> list[str]:
        """Return the names of the arrays in the region's table, whose elements go through shared memory."""
        return self._queues.arrays()

    def counts(self) -> dict[str, int]:
        """Return numbers of the region: ``commands`` completed, queue pairs ``served`` now, clients found ``dead``."""
        return self._queues.counts()

    def status(self) -> dict[str, Any]:
        """Describe the server.

        Returns
        -------
        dict
            The numbers of :meth:`counts`, and as ``socket`` what :meth:`nandarray.nvme.Server.status` tells of the
            drive behind the unix socket.
        """
        return {**self.counts(), "socket": self._drive.status()}

    def kill(self, run: int) -> None:
        """Stop a run of programs by its number, as :meth:`nandarray.nvme.Server.kill` does."""
        if not 0 < run < 1 << 64 or not self._drive.kill(run):
            raise NotFoundError(f"no run {run} is running")

    def events(self, seconds: float) -> list[tuple[str, float, dict[str, Any]]]:
        """Return what happened at the socket since the last call; wait some seconds for something."""
        return self._drive.events(seconds)

    def observed(self) -> dict[str, Any]:
        """Return what metrics are read from: the numbers of the region, those of the socket's drive, its operations."""
        return {**self._drive.status(), **self._drive.operations(), **self.counts()}

    def lost(self) -> bool:
        """Whether the region lost its memory: its file was truncated, or its file system is full."""
        return self._queues.lost()

    def failed(self) -> bool:
        """Whether a thread of the region has ended."""
        return self._queues.failed()

    def __enter__(self) -> RegionServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve(
    store: Store,
    name: str,
    *,
    queues: int = 16,
    depth: int = 256,
    data_bytes: int = 4 << 20,
    threads: int = 1,
    writable: bool = False,
    group: str | int | None = None,
    programs: bool = True,
) -> RegionServer:
    """Serve a store to processes of this machine, by threads of the engine, until the server is stopped.

    Elements of the arrays that it has now go through shared memory, all else through a unix socket beside the region.

    Parameters
    ----------
    store : Store
        The store.
    name : str
        Name of the region, or its path.
    queues : int
        Queue pairs.
    depth : int
        Entries of a ring: a power of two.
    data_bytes : int
        Data of a queue pair.
    threads : int
        Threads that serve.
    writable : bool
        Whether clients may change the store.
    group : str or int, optional
        Group of this machine whose members may be clients. By default those may who may read and write the store's
        file.
    programs : bool
        Whether clients may run programs.

    Returns
    -------
    RegionServer
        Its ``stop()`` ends it: clients get a status.

    Notes
    -----
    These arrays go through the socket alone: those without elements, of more than 16 dimensions, with a name too long
    for the region's table; encrypted ones; and those that are made, or get another shape, later.

    Raises
    ------
    InvalidError
        Sizes that cannot be, no name or one that another server has, a path of anything but the region of an ended
        server, a group that there is not, no room for the region, or no place for the socket: its path, the region's
        with ``.sock``, is that of another server or of a file that is not the socket of a server that has ended.
    """
    engine = engine_of(store)
    if not name:
        raise InvalidError("a server in shared memory needs a name")
    if not 1 <= queues <= _QUEUES_MOST:
        raise InvalidError(f"queue pairs must be from 1 to {_QUEUES_MOST}, not {queues}")
    if not 2 <= depth <= _DEPTH_MOST or depth & depth - 1:
        raise InvalidError(f"a depth must be a power of two from 2 to {_DEPTH_MOST}, not {depth}")
    if not 0 < data_bytes <= _DATA_MOST or data_bytes % _PAGE:
        raise InvalidError(f"a queue pair's data must be whole pages of {_PAGE} bytes, 1 TiB at most, not {data_bytes}")
    if not 1 <= threads <= queues:
        raise InvalidError(f"threads for {queues} queue pairs must be from 1 to {queues}, not {threads}")
    # New for each server: by this name a client knows that the socket is of the region's server.
    nqn = f"nqn.2014-08.org.nvmexpress:uuid:{uuid.uuid4()}"
    region = engine.serve_queues(
        name, queues=queues, depth=depth, data_bytes=data_bytes, threads=threads, writable=writable,
        group=None if group is None else group_number(group), catalog=_catalog(store, nqn),
    )  # fmt: skip
    try:
        path = os.path.abspath(_nandarray.queue_path(name))
        drive = _nandarray.NvmeServer.start(
            engine, [f"{SOCKET}{path}.sock"], nqn=nqn, read_only=not writable, programs=programs,
            access=_access(path),
        )  # fmt: skip
    except BaseException:
        region.stop()
        raise
    return RegionServer(region, drive)


def _access(region: str) -> tuple[int | None, int | None, bool]:
    """Return owner, group and others who may use a region, by its file."""
    found = os.stat(region, follow_symlinks=False)
    of_group = found.st_mode & stat.S_IRGRP and found.st_mode & stat.S_IWGRP
    others = found.st_mode & stat.S_IROTH and found.st_mode & stat.S_IWOTH
    return found.st_uid, found.st_gid if of_group else None, bool(others)


def _catalog(store: Store, nqn: str) -> bytes:
    """Describe all arrays, with those that keep groups, for clients: more than the region's table has room for."""
    described = (store._engine.describe(name) for name in store._engine.names(""))
    arrays = [{**one, "fill": one["fill"].hex()} for one in described]
    return json.dumps({"nqn": nqn, "arrays": arrays}).encode()


def unserved(store: Store, server: RegionServer) -> dict[str, str]:
    """Return the arrays that the region of a server, just started, has left out, each with the reason."""
    served = set(server.arrays())
    left = [name for name in store._engine.names("") if name not in served]
    return {name: _reason(store, name) for name in left}


def exposition_of(server: RegionServer, store: Store, started: float) -> str:
    """Return the metrics of a server that was started at some time, in seconds since 1970, in Prometheus' text form."""
    seen = observe(server.observed(), started=started, transport="shm", store=store._engine.stat())
    return exposition(seen)


def _reason(store: Store, name: str) -> str:
    shape = store._engine.describe(name)["shape"]
    if 0 in shape:
        return "it has no elements"
    if len(shape) > _DIMS_MOST:
        return f"it has {len(shape)} dimensions, and the region's table takes {_DIMS_MOST}"
    return "the text of its name or of its dtype is too long for the region's table"
