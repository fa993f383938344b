"""Other processes that work for this one: their names, the parts that they hold, and the way to give them work.

A :class:`Crew` stands before a client of an engine. That of ``concurrent.futures`` is here; an engine's own is found by
the name of the client's package (``_ENGINES``), since nothing here knows engines.

A process finds parts in the store's folder, if it sees that, and in folders of its own (:data:`FOLDERS`), such as those
on a disk of its machine to which :meth:`PartedStore.protect` has copied them.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import Any

from nandarray.errors import InvalidError, NandarrayError
from nandarray.parts.blobs.base import Blobs
from nandarray.parts.history import History

__all__ = ["FOLDERS", "Crew", "Held", "crew_of", "held_here", "part_file"]

#: Folders in which this process finds parts, before it looks into the store's.
FOLDERS: list[str] = []
#: Package of a client -> module with a function ``crew`` that takes the client.
_ENGINES = {"distributed": "nandarray.interop.dask_nodes"}


@dataclass(frozen=True)
class Held:
    """The parts of some that a worker has in folders of its own, and whether it sees the store's folder."""

    parts: frozenset[str]
    sees_store: bool


def part_file(folder: str, part: str) -> str:
    """Return the file that a copy of a part has in a folder."""
    return os.path.join(folder, f"{part}.nand")


def held_here(files: Blobs, identity: str, parts: Collection[str]) -> Held:
    """Return what this process has of some parts of a store."""
    # A file that cannot be read now, for whatever reason, is not held: others have the part.
    own = frozenset(part for part in parts if any(os.path.exists(part_file(one, part)) for one in FOLDERS))
    try:
        sees = History(files).identity() == identity
    except (NandarrayError, OSError):
        sees = False
    return Held(own, sees)


class Crew:
    """Workers of a client. A worker has a name; the name of any is None."""

    def workers(self) -> set[str]:
        """Return the names of workers that are there now; none where they have no names."""
        raise NotImplementedError

    def size(self) -> int:
        """Return how many units can run at once."""
        raise NotImplementedError

    def ask(self, function: Callable[..., Any], *given: Any) -> dict[str | None, Any]:
        """Call a function at each worker, and return what each gives, by its name."""
        raise NotImplementedError

    def submit(self, worker: str | None, function: Callable[..., Any], *given: Any) -> Any:
        """Call a function at a worker; return a future of the name of the worker and what the function gives."""
        raise NotImplementedError

    def wait(self, given: Iterable[Any], seconds: float) -> Sequence[Any]:
        """Return those futures that have ended, after this time at most."""
        raise NotImplementedError

    def cancel(self, given: Iterable[Any]) -> None:
        """Give up calls that have not begun."""
        raise NotImplementedError


def _named(function: Callable[..., Any], *given: Any) -> tuple[str, Any]:
    return f"{socket.gethostname()}:{os.getpid()}", function(*given)


class _Executor(Crew):
    """Workers of an executor of ``concurrent.futures``: they have no names, and see what this process sees."""

    def __init__(self, executor: futures.Executor) -> None:
        self._executor = executor

    def workers(self) -> set[str]:
        return set()

    def size(self) -> int:
        found: int = getattr(self._executor, "_max_workers", None) or os.cpu_count() or 1
        return found

    def ask(self, function: Callable[..., Any], *given: Any) -> dict[str | None, Any]:
        return {None: self._executor.submit(function, *given).result()}

    def submit(self, worker: str | None, function: Callable[..., Any], *given: Any) -> Any:
        return self._executor.submit(_named, function, *given)

    def wait(self, given: Iterable[Any], seconds: float) -> Sequence[Any]:
        return list(futures.wait(list(given), seconds, futures.FIRST_COMPLETED).done)

    def cancel(self, given: Iterable[Any]) -> None:
        for one in given:
            one.cancel()


def crew_of(client: Any) -> Crew:
    """Return the workers of a client.

    Raises
    ------
    InvalidError
        It is none.
    """
    if isinstance(client, futures.Executor):
        return _Executor(client)
    for kind in type(client).__mro__:
        module = _ENGINES.get(kind.__module__.partition(".")[0])
        if module is not None:
            made: Crew = importlib.import_module(module).crew(client)
            return made
    raise InvalidError(
        f"client must be a Client of dask.distributed or an Executor of concurrent.futures, not {type(client).__name__}"
    )
