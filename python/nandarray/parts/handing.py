"""A transaction that one process begins and another one ends: by its fork, which can be pickled.

Engines that call what begins and what commits a job in processes of their own (Spark) have no process that would hold
a transaction in between. Names and shapes that it has made until then lie in the folder of its fork's job, which also
keeps parts, and the version from which it began, from being reclaimed; as long as a job is not taken for dead
(:meth:`~nandarray.parts.store.PartedStore.gc`). Elements are written by workers alone: a transaction that has written
some itself is not handed over.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from nandarray.errors import InvalidError, NotFoundError
from nandarray.parts.forks import Fork
from nandarray.parts.leases import Alive
from nandarray.parts.manifest import base_key, draft_key, parse
from nandarray.parts.source import PartsSource
from nandarray.parts.store import PartedStore, PartsTransaction
from nandarray.parts.writer import job_of

if TYPE_CHECKING:
    from nandarray.parts.blobs.base import Blobs

__all__ = ["give_up", "hand_over", "resume"]


def hand_over(transaction: PartsTransaction) -> Fork:
    """Close a transaction without ending it, and return what :func:`resume` goes on from.

    Parameters
    ----------
    transaction : PartsTransaction
        The transaction: arrays were made in it, resized or renamed, and no elements were written.

    Returns
    -------
    Fork
        Its only fork, for workers and for the process that commits.

    Raises
    ------
    InvalidError
        Elements were written in it, or it has forks.
    """
    source = transaction._source
    if transaction._forks.any or source.jobs or any(source.draft.rows.values()):
        raise InvalidError("a transaction that is handed over must have no forks, and no elements written by itself")
    fork = transaction.fork()
    transaction._forks.forget()
    source.let_jobs_go()
    transaction.abort()
    return fork


def resume(store: PartedStore, fork: Fork, message: str = "") -> PartsTransaction:
    """Go on with a transaction that another process has handed over; one process may, at a time.

    Parameters
    ----------
    store : PartedStore
        The store, open for writing.
    fork : Fork
        Fork of the transaction, which :func:`hand_over` returned.
    message : str
        A note for the version.

    Returns
    -------
    PartsTransaction
        The transaction as it was, upon the version from which it began; for ``merge`` and ``commit``, or ``abort``.

    Raises
    ------
    NotFoundError
        It was committed, given up, or taken for dead.

    Examples
    --------
    >>> from nandarray import parts
    >>> store = parts.create("sky.nand")
    >>> tx = store.transaction()
    >>> _ = tx.create("a", 3, "i8")
    >>> fork = parts.hand_over(tx)
    >>> with fork.writer() as writer:
    ...     receipt = writer.write("a", slice(0, 3), [1, 2, 3])
    >>> with parts.resume(store, fork) as tx:
    ...     tx.merge([receipt])
    >>> store["a"][:].tolist()
    [1, 2, 3]
    """
    store._source.check_writable()
    history, job = store._source.history, fork.job
    files = history.files
    try:
        base, state = (parse(files.get(key), files.path(key)) for key in (base_key(job), draft_key(job)))
    except FileNotFoundError:
        raise NotFoundError(f"{store.path} has no job {job}: it was committed, or given up") from None
    source = PartsSource(history, base, read_only=False, options=store._source.options)
    source.path = store._source.path
    source.see(base)  # its manifest may have expired: the job keeps what it names
    source.draft.arrays = dict(state.arrays)
    source.jobs.append(job)
    source._alive.append(Alive(files, f"jobs/{job}"))
    transaction = PartsTransaction(source, message, store)
    transaction._forks.take_over(job, state)
    return transaction


def give_up(store: PartedStore, fork: Fork) -> None:
    """Give up a transaction that was handed over: its folder and all of its parts are deleted, those of workers too.

    Nothing is done if it was ended. A worker that still writes gets an error when it seals its part.

    Parameters
    ----------
    store : PartedStore
        The store, open for writing.
    fork : Fork
        Fork of the transaction, which :func:`hand_over` returned.
    """
    with contextlib.suppress(NotFoundError):
        resume(store, fork).abort()
    _delete_open(store._source.files, fork.job)


def _delete_open(files: Blobs, job: str) -> None:
    for name in files.names("parts"):
        if job_of(name) == job and name.endswith(".open"):
            files.delete(f"parts/{name}")
