"""Pickling: a store, and what is in it, is opened again where it is unpickled.

A pickle has the absolute path, the options of opening and a name, never elements and never a key. So worker processes
(``multiprocessing``, Dask, a DataLoader that spawns) each have a store of their own, which all arrays of one file that
arrive there share; it sees what the file holds when they arrive. Of a file that is open for writing, which one process
has, they are at its door (:mod:`nandarray.array.writer_door`). Of a store behind any other door they connect to it
themselves, in the mode that it has here. Arrays of a store of parts write into parts of their own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from nandarray.array.fork import StoreLock
from nandarray.array.served import connect
from nandarray.array.writer_door import WriterAddress, address_of, connected, store_here
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
    "whereabouts",
]

#: The arguments to open a store again: its path and the options that were given.
Opening = tuple[str, tuple[tuple[str, Any], ...]]

_Version = tuple[int, int, int]
#: Version of what is behind a door, which may change at any time.
_SERVED: _Version = (0, 0, 0)
_Found = TypeVar("_Found")

#: Stores that were opened here for what arrived, by the process, which has its own connections; the least recently used
#: one is let go of.
_KEPT = 16
_stores: OrderedDict[tuple[int, Opening | WriterAddress], tuple[_Version, Store]] = OrderedDict()
_lock = StoreLock()


def reduce_store(store: Store, what_for: str = "pickled") -> tuple[Any, ...]:
    """Return how to open a store again, or raise; ``what_for`` is the word for that in errors."""
    if what_for == "copied" and not store.closed and not (store.read_only or isinstance(store._engine, Source)):
        raise TypeError(
            f"the store cannot be copied: {store.path!r} is open for writing here, and one process writes a store;"
            " arrays and groups can be copied"
        )
    return _open, (_opening(store, "the store", what_for),)


def reduce_group(group: Members) -> tuple[Any, ...]:
    """Return how to open a group again, or raise."""
    return _reopen_group, (_opening(group.store, f"group {group.name!r}"), group.name.strip("/"))


def reduce_ragged(ragged: Ragged) -> tuple[Any, ...]:
    """Return how to open a ragged array again, or raise."""
    what = f"ragged array {ragged.name!r}"
    if ragged.encrypted:
        raise TypeError(_keyed(what))
    return _reopen_group, (_opening(ragged.store, what), ragged.name)


def reduce_array(array: Array) -> tuple[Any, ...]:
    """Return how to open an array again, or raise."""
    engine: Any = array.store._engine
    if isinstance(engine, Source) and not array.store.read_only:
        again = engine.reduced(array._space)
        if again is not None:
            return again
    what = f"array {array.name!r}"
    if array.encrypted:
        raise TypeError(_keyed(what))
    return reopen_array, (_opening(array.store, what), array.name)


def _keyed(what: str) -> str:
    return f"{what} is encrypted, and its key stays in this process: open the store there with the key"


def location(store: Store) -> str:
    """Return by what another process opens a store: an absolute path, or the URL or device of a door."""
    here = not isinstance(store._engine, Source) and store._facts is None
    return os.path.abspath(store.path) if here else store.path


def whereabouts(store: Store) -> Opening:
    """Return how another process opens a store for reading: as it was opened here, if it is far away."""
    return store._opening if store._facts is not None and store._opening is not None else (location(store), ())


def state_of(store: Store) -> Any:
    """Return what changes with the content of a store that is open for reading, for names of results."""
    engine: Any = store._engine
    if isinstance(engine, Source) and (state := engine.state()) is not None:
        return state
    if store._facts is not None:
        return tuple(store._facts)
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
            what = f"array {array.name!r}"
            reason = _keyed(what) if array.encrypted else _stays(store, what)
            if reason is not None:
                raise InvalidError(
                    f"{reason}; Dask's scheduler would use it in other processes, and with"
                    " dask.config.set(scheduler='threads') all is done here"
                )
        return uuid.uuid4().hex  # its elements may change at any time
    path = location(store)
    lasts = store._facts is not None or isinstance(store._engine, Source) or has_versions(store) or os.path.exists(path)
    version = state_of(store) if lasts else None
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


def _stays(store: Store, what: str, what_for: str = "pickled") -> str | None:
    """Return why something in a store cannot leave this process; None if it can."""
    engine: Any = store._engine
    if isinstance(engine, Source) and engine.has_workers and not store.read_only:
        return (
            f"{what} cannot be {what_for}: {store.path!r} is open for writing here; arrays of a store of parts can, and"
            " a transaction's fork()"
        )
    if store._opening is not None:
        return None
    if isinstance(engine, Source):
        return f"{what} cannot be {what_for}: {store.path!r} was opened with a secret, which stays in this process"
    return f"{what} cannot be {what_for}: {store.path!r} runs on a modelled device, which is in this process"


def _opening(store: Store, what: str, what_for: str = "pickled") -> Opening | WriterAddress:
    """Return how a store is opened in another process, or raise."""
    if store.closed:
        raise ClosedError(f"{what} cannot be {what_for}: the store {store.path!r} is closed")
    reason = _stays(store, what, what_for)
    if reason is not None:
        raise TypeError(reason)
    assert store._opening is not None
    if store.read_only:
        return store._opening
    if store._writer is not None or not isinstance(store._engine, Source):
        return address_of(store)
    path, options = store._opening
    return path, (*options, ("mode", store.mode))


def _open(opening: Opening | WriterAddress) -> Store:
    import nandarray

    if not isinstance(opening, tuple):
        return connected(opening)
    path, options = opening
    if "facts" in dict(options):
        from nandarray.array.opening import open_again

        return open_again(path, dict(options))
    given = {"mode": "r", **dict(options)}
    if is_served(path):
        return connect(path, **given)
    version, snapshot = given.pop("version", None), given.pop("snapshot", None)
    store: Any = nandarray.open(path, **given)
    if snapshot is not None:
        return store.at(snapshot)  # type: ignore[no-any-return]
    return store if version is None else store.at(version=version)  # type: ignore[no-any-return]


def _in_store(opening: Opening | WriterAddress, use: Callable[[Store], _Found]) -> _Found:
    """Return what ``use`` finds in this process's store of a file, refreshed."""
    own = store_here(opening) if isinstance(opening, WriterAddress) else None
    if own is not None:
        return use(own)
    key = (os.getpid(), opening)
    with _lock:
        kept = _stores.get(key)
        # An object far away is named with its version.
        now = _version(opening[0]) if isinstance(opening, tuple) and "storage" not in dict(opening[1]) else _SERVED
        if kept is not None and not kept[1].closed and kept[0][0] == now[0]:
            with contextlib.suppress(NandarrayError):  # replaced in place, or its connection broke: open it anew
                # Always: two commits within one tick of the file system's clock leave time and size as they were.
                kept[1].refresh()
                _stores[key] = (now, kept[1])
                _stores.move_to_end(key)
                return use(kept[1])
        store = _open(opening)
        _stores[key] = (now, store)
        _stores.move_to_end(key)
        while len(_stores) > _KEPT:
            _stores.popitem(last=False)
        return use(store)


def _version(path: str) -> _Version:
    if is_served(path):
        return _SERVED
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise StoreMissingError(error.errno, error.strerror, path) from None
    return status.st_ino, status.st_mtime_ns, status.st_size


def reopen_array(opening: Opening | WriterAddress, name: str) -> Array:
    """Open an array of a store in this process."""
    return _in_store(opening, lambda store: store.open_array(f"/{name}"))


def _reopen_group(opening: Opening | WriterAddress, name: str) -> Any:
    return _in_store(opening, lambda store: store[f"/{name}"])
