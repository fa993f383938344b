"""Serving a store's arrays by queue pairs in shared memory, from the process that has it open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nandarray import _nandarray
from nandarray.errors import InvalidError

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["serve"]


def serve(
    store: Store,
    name: str,
    *,
    queues: int = 16,
    depth: int = 256,
    data_bytes: int = 4 << 20,
    threads: int = 1,
    writable: bool = False,
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

    Returns
    -------
    QueueServer
        Its ``stop()`` ends it: clients get a status.

    Raises
    ------
    InvalidError
        Sizes that cannot be, no name or one that another server has, or no room for the region.
    """
    if not name:
        raise InvalidError("a server in shared memory needs a name")
    return store._engine.serve_queues(
        name, queues=queues, depth=depth, data_bytes=data_bytes, threads=threads, writable=writable
    )
