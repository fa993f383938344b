"""Pickling: a store that is open for reading, and what is in it, is opened again where it is unpickled.

A pickle has the absolute path, the options of opening and a name, never elements and never a key. So worker processes
(``multiprocessing``, Dask, a DataLoader that spawns) each have a store of their own, which all arrays of one file that
arrive there share; it sees what the file holds when they arrive. A store that is open for writing cannot be pickled:
only one process writes a store.
"""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from nandarray.array.fork import StoreLock
from nandarray.array.served import connect
from nandarray.door import Source
from nandarray.errors import ClosedError, InvalidError, NandarrayError, StoreMissingError
from nandarray.urls import is_served

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.array.members import Members
    from nandarray.array.ragged import Ragged
    from nandarray.array.store import Store

__all__ = [
    "dask_runs_elsewhere",
    "dask_token",
    "has_versions",
    "location",
    "reduce_array",
    "reduce_group",
    "reduce_ragged",
    "reduce_store",
    "reopen_array",
    "state_of",
    "takes_workers",
]

#: The arguments to open a store again: its path and the options that were given.
Opening = tuple[str, tuple[tuple[str, Any], ...]]

_Version = tuple[int, int, int]

#: Stores that were opened here for what arrived; the least recently used one is let go of.
_KEPT = 16
_stores: OrderedDict[Opening, tuple[_Version, Store]] = OrderedDict()
_lock = StoreLock()


def reduce_store(store: Store, what_for: str = "pickled") -> tuple[Any, ...]:
    """Return how to open a store again, or raise; ``what_for`` is the word for that in errors."""
    return _open, (_opening(store, "the store", what_for),)


def reduce_group(group: Members) -> tuple[Any, ...]:
    """Return how to open a group again, or raise."""
    return _reopen_group, (_opening(group.store, f"group {group.name!r}"), group.name.strip("/"))


def reduce_ragged(ragged: Ragged) -> tuple[Any, ...]:
    """Return how to open a ragged array again, or raise."""
    opening = _opening(ragged.store, f"ragged array {ragged.name!r}")
    if ragged.encrypted:
        raise TypeError(
            f"ragged array {ragged.name!r} is encrypted, and its key stays in this process: open the store there with"
            " the key"
        )
    return _reopen_group, (opening, ragged.name)


def reduce_array(array: Array) -> tuple[Any, ...]:
    """Return how to open an array again, or raise."""
    engine: Any = array.store._engine
    if isinstance(engine, Source) and not array.store.read_only:
        again = engine.reduced(array._space)
        if again is not None:
            return again
    opening = _opening(array.store, f"array {array.name!r}")
    if array.encrypted:
        raise TypeError(
            f"array {array.name!r} is encrypted, and its key stays in this process: open the store there with the key"
        )
    return reopen_array, (opening, array.name)


def location(store: Store) -> str:
    """Return by what another process opens a store: an absolute path, or the URL or device of a door."""
    return store.path if isinstance(store._engine, Source) else os.path.abspath(store.path)


def state_of(store: Store) -> Any:
    """Return what changes with the content of a store that is open for reading, for names of results."""
    engine: Any = store._engine
    if isinstance(engine, Source) and (state := engine.state()) is not None:
        return state
    path = location(store)
    # Others may change the elements behind a door at any time.
    return uuid.uuid4().hex if is_served(path) else _version(path)


def dask_token(array: Array, *how: Any) -> Any:
    """Return what names an array, or a part of it, in a graph of Dask's, which is being made.

    Raises
    ------
    InvalidError
        Dask would use it in other processes, which cannot have it: said here, since there the reason gets lost.
    """
    store = array.store
    if not store.read_only:
        if dask_runs_elsewhere() and not takes_workers(store):
            raise InvalidError(
                f"array {array.name!r} of {store.path!r} is open for writing in this process, and Dask's scheduler"
                " would use it in others: nandarray.from_dask computes there and writes here, what nandarray.to_dask"
                " gives is read there; with dask.config.set(scheduler='threads') all is done here"
            )
        return uuid.uuid4().hex  # its elements may change at any time
    path = location(store)
    version = state_of(store) if is_served(path) or os.path.exists(path) else None
    return ("nandarray", path, array.name, how, array.shape, str(array.dtype), version)


def takes_workers(store: Store) -> bool:
    """Return whether other processes may write to a store's arrays that are pickled."""
    return has_versions(store) and not store.read_only


def has_versions(store: Store) -> bool:
    """Return whether a store has versions, one of which its arrays are of."""
    engine: Any = store._engine
    return isinstance(engine, Source) and engine.has_workers


def dask_runs_elsewhere() -> bool:
    """Return whether the scheduler that Dask would use now runs tasks in other processes."""
    from dask.base import get_scheduler
    from dask.local import SynchronousExecutor

    scheduler = get_scheduler()  # type: ignore[no-untyped-call]
    if isinstance(scheduler, functools.partial):  # of an executor that was given: its method `submit`
        executor = getattr(next(iter(scheduler.args), None), "__self__", None)
        return not isinstance(executor, ThreadPoolExecutor | SynchronousExecutor)
    return scheduler is not None and getattr(scheduler, "__module__", "") not in ("dask.threaded", "dask.local")


def _opening(store: Store, what: str, what_for: str = "pickled") -> Opening:
    if store.closed:
        raise ClosedError(f"{what} cannot be {what_for}: the store {store.path!r} is closed")
    if not store.read_only:
        raise TypeError(
            f"{what} cannot be {what_for}: {store.path!r} is open for writing here, and one process writes a store; for"
            " other processes to read, open it with mode 'r'; to write what they compute, gather it here"
        )
    if store._opening is None and isinstance(store._engine, Source):
        raise TypeError(
            f"{what} cannot be {what_for}: {store.path!r} was opened with a secret, which stays in this process"
        )
    if store._opening is None:
        raise TypeError(
            f"{what} cannot be {what_for}: {store.path!r} runs on a modelled device, which is in this process"
        )
    return store._opening


def _open(opening: Opening) -> Store:
    import nandarray

    path, options = opening
    if is_served(path):
        return connect(path, mode="r", **dict(options))
    given = dict(options)
    version = given.pop("version", None)
    store: Any = nandarray.open(path, "r", **given)
    return store if version is None else store.at(version=version)  # type: ignore[no-any-return]


def _shared(opening: Opening) -> Store:
    """Return this process's store of a file, refreshed."""
    with _lock:
        kept = _stores.get(opening)
        now = _version(opening[0])
        if kept is not None and not kept[1].closed and kept[0][0] == now[0]:
            with contextlib.suppress(NandarrayError):  # replaced in place: open it anew
                # Always: two commits within one tick of the file system's clock leave time and size as they were.
                kept[1].refresh()
                _stores[opening] = (now, kept[1])
                _stores.move_to_end(opening)
                return kept[1]
        store = _open(opening)
        _stores[opening] = (now, store)
        _stores.move_to_end(opening)
        while len(_stores) > _KEPT:
            _stores.popitem(last=False)
        return store


def _version(path: str) -> _Version:
    if is_served(path):
        return 0, 0, 0
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise StoreMissingError(error.errno, error.strerror, path) from None
    return status.st_ino, status.st_mtime_ns, status.st_size


def reopen_array(opening: Opening, name: str) -> Array:
    """Open an array of a file in this process."""
    return _shared(opening).open_array(f"/{name}")


def _reopen_group(opening: Opening, name: str) -> Any:
    return _shared(opening)[f"/{name}"]
