"""One store behind each door, for tests that run over all of them: a file, a drive, shared memory, parts.

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

import pytest

import nandarray
from nandarray import gpu, parts

DOORS = ("file", "drive", "shared", "region", "parts")
#: Those with programs beside the data.
COMPUTING = ("file", "drive", "shared", "parts")

_FILES: weakref.WeakKeyDictionary[Any, nandarray.Store] = weakref.WeakKeyDictionary()
_WIRES: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
_numbers = itertools.count()


def file_of(store: Any) -> nandarray.Store:
    """The store in this process that is behind a door, for its counters; a store of parts is its own."""
    return _FILES.get(store, store)


def is_file(store: Any) -> bool:
    """Whether a store is that of the file, in this process."""
    return file_of(store) is store and not isinstance(store, parts.PartedStore)


def has_wire(store: Any) -> bool:
    """Whether programs and their outputs go to another process and back."""
    return file_of(store) is not store


def cancelled(store: Any, where: str = "") -> str:
    """The words for a run whose time is over: it is ended; only the process with the file tells where."""
    return f"cancelled{where}" if is_file(store) else "cancelled"


class Wire:
    """A connection of a drive; the data of all its completions is counted in a list of one number."""

    def __init__(self, native: Any, received: list[int]) -> None:
        self._native, self._received = native, received

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def call(self, *given: Any, **options: Any) -> Any:
        entry, found = self._native.call(*given, **options)
        self._received[0] += len(found)
        return entry, found

    def call_many(self, *given: Any) -> Any:
        found = self._native.call_many(*given)
        self._received[0] += sum(len(data) for _, data in found)
        return found


def wire_bytes(store: Any) -> int:
    """The bytes that a drive has sent to this host."""
    return _WIRES[store][0]


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
    if door == "parts":
        with parts.create(path) as folder:
            yield folder
        return
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(nandarray.open(path, "w"))
        store: Any = file
        if door == "drive":
            server = stack.enter_context(nandarray.serve(file, "127.0.0.1:0"))
            store = stack.enter_context(nandarray.open(server.url, "r+"))
            source, received = store._source, [0]
            again = source._again
            source._native, source._again = Wire(source._native, received), lambda: Wire(again(), received)
            _WIRES[store] = received
        elif door == "shared":  # whose arrays are made later: they go through the socket
            stack.callback(gpu.serve(file, f"{path}.region", writable=True, queues=4, depth=16).stop)
            store = stack.enter_context(nandarray.open(f"shm://{path}.region", "r+"))
        elif door == "region":
            store = Shelf(file)
            stack.callback(store.close)
        _FILES[store] = file
        yield store


@contextlib.contextmanager
def computing(request: pytest.FixtureRequest, path: Path) -> Iterator[Any]:
    """A new store behind the door that a fixture is for; without a test's native form, which is for the file alone."""
    form = getattr(request.node, "callspec", None)
    if request.param != "file" and form is not None and form.params.get("form") == "native":
        pytest.skip("a drive executes no machine code of its clients: test_doors.py has its error")
    with opened(request.param, path) as store:
        yield store
