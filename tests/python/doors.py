"""One store behind each door, for tests that run over all of them: a file, a drive, shared memory.

A test makes arrays by ``create`` and deletes them by ``del``, whatever the door. Elements go through a region of shared
memory where the array was there when its server began: a :class:`Shelf` serves the file anew for each new array.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nandarray
from nandarray import gpu

DOORS = ("file", "drive", "shared", "region")

_FILES: weakref.WeakKeyDictionary[Any, nandarray.Store] = weakref.WeakKeyDictionary()
_numbers = itertools.count()


def file_of(store: Any) -> nandarray.Store:
    """The store in this process that is behind a door, for its counters."""
    return _FILES[store]


class Shelf:
    """Arrays of a file, seen through shared memory."""

    def __init__(self, store: nandarray.Store) -> None:
        self._store = store
        self._open = contextlib.ExitStack()
        self._client: Any = None

    def __contains__(self, name: object) -> bool:
        return name in self._store

    def __delitem__(self, name: str) -> None:
        self.close()
        del self._store[name]

    def create(self, name: str, *given: Any, **options: Any) -> Any:
        self.close()
        self._store.create(name, *given, **options)
        return self[name]

    def __getitem__(self, name: str) -> Any:
        if self._client is not None:
            return self._client[name]
        region = Path(self._store.path).with_suffix(f".region{next(_numbers)}")
        self._open.callback(gpu.serve(self._store, str(region), writable=True, queues=1, depth=16).stop)
        self._client = self._open.enter_context(nandarray.open(f"shm://{region}", "r+"))
        return self._client[name]

    def close(self) -> None:
        self._client = None
        self._open.close()


@contextlib.contextmanager
def opened(door: str, path: Path) -> Iterator[Any]:
    """A new store, behind a door."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(nandarray.open(path, "w"))
        store: Any = file
        if door == "drive":
            server = stack.enter_context(nandarray.serve(file, "127.0.0.1:0"))
            store = stack.enter_context(nandarray.open(server.url, "r+"))
        elif door == "shared":  # whose arrays are made later: they go through the socket
            stack.callback(gpu.serve(file, f"{path}.region", writable=True, queues=1, depth=16).stop)
            store = stack.enter_context(nandarray.open(f"shm://{path}.region", "r+"))
        elif door == "region":
            store = Shelf(file)
            stack.callback(store.close)
        _FILES[store] = file
        yield store
