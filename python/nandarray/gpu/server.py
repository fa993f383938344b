"""Serving a store's arrays by queue pairs in shared memory, from the process that has it open."""

from __future__ import annotations

import grp
import json
from typing import TYPE_CHECKING

from nandarray import _nandarray
from nandarray.errors import InvalidError
from nandarray.serving.metrics import exposition, observe

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["exposition_of", "serve", "unserved"]

# The limits of the native server, which takes unsigned numbers only.
_QUEUES_MOST, _DEPTH_MOST, _DATA_MOST, _PAGE = 4096, 1 << 15, 1 << 40, 4096
_DIMS_MOST = 16


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
) -> _nandarray.QueueServer:
    """Serve the arrays that a store has now, by threads of the engine, until the server is stopped.

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
        Whether clients may write.
    group : str or int, optional
        Group of this machine whose members may be clients. By default those may who may read and write the store's
        file.

    Returns
    -------
    QueueServer
        Its ``stop()`` ends it: clients get a status.

    Notes
    -----
    Arrays without elements are not served, and those of more than 16 dimensions, or whose name or dtype has too long a
    text for the region's table.

    Raises
    ------
    InvalidError
        Sizes that cannot be, no name or one that another server has, a path of anything but the region of an ended
        server, a group that there is not, or no room for the region.
    """
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
    return store._engine.serve_queues(
        name, queues=queues, depth=depth, data_bytes=data_bytes, threads=threads, writable=writable,
        group=None if group is None else _group(group), catalog=_catalog(store),
    )  # fmt: skip


def _catalog(store: Store) -> bytes:
    """Describe all arrays, with those that keep groups, for clients: more than the region's table has room for."""
    described = (store._engine.describe(name) for name in store._engine.names(""))
    return json.dumps([{**one, "fill": one["fill"].hex()} for one in described]).encode()


def _group(group: str | int) -> int:
    """Return the number of a group."""
    try:
        return (grp.getgrgid(group) if isinstance(group, int) else grp.getgrnam(group)).gr_gid
    except (KeyError, OverflowError):
        raise InvalidError(f"this machine has no group {group!r}") from None


def unserved(store: Store, server: _nandarray.QueueServer) -> dict[str, str]:
    """Return the arrays that a server of this store, just started, has left out, each with the reason."""
    served = set(server.arrays())
    left = [name for name in store._engine.names("") if name not in served]
    return {name: _reason(store, name) for name in left}


def exposition_of(server: _nandarray.QueueServer, store: Store, started: float) -> str:
    """Return the metrics of a server that was started at some time, in seconds since 1970, in Prometheus' text form."""
    seen = observe(server.counts(), started=started, transport="shm", store=store._engine.stat())
    return exposition(seen)


def _reason(store: Store, name: str) -> str:
    shape = store._engine.describe(name)["shape"]
    if 0 in shape:
        return "it has no elements"
    if len(shape) > _DIMS_MOST:
        return f"it has {len(shape)} dimensions, and the region's table takes {_DIMS_MOST}"
    return "the text of its name or of its dtype is too long for the region's table"
