"""Holders of a store's lock: the place in this process' program that opened it, or the number of another process.

The engine only learns that a lock is taken: locks of open files name no process. So a store notes where it was opened,
and of other processes Linux tells which of their open files hold locks (``/proc/PID/fdinfo``), as far as this user may
look. Looked up after a :class:`~nandarray.errors.LockedError`, never before.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from nandarray.errors import LockedError

__all__ = ["named", "opened", "processes"]

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: Stores of this process, with the absolute path of each, and the file and line of the program that opened it.
_places: WeakKeyDictionary[Any, tuple[str, str]] = WeakKeyDictionary()
#: Holders that an error names.
_NAMED = 3


def opened(store: Any) -> None:
    """Note where a store is opened: the nearest line that is not of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    _places[store] = os.path.abspath(store.path), f"{frame.f_code.co_filename}:{frame.f_lineno}"


@contextlib.contextmanager
def named(path: str) -> Iterator[None]:
    """Let a LockedError of opening a file say who holds it."""
    try:
        yield
    except LockedError as error:
        writer = str(error.strerror).endswith("for writing")  # the other kind of holder are readers
        open_here = [(store, *where) for store, where in list(_places.items()) if not store.closed]
        places = [place for store, at, place in open_here if store.read_only != writer and _same(at, path)]
        found = [f"this process, opened at {place}" for place in places]
        found = found or processes(path, "WRITE" if writer else "READ")
        if found:
            raise LockedError(f"{error.strerror}: {'; '.join(found[:_NAMED])}") from None
        raise


def processes(path: str | os.PathLike[str], kind: str = "WRITE") -> list[str]:
    """Name the processes that hold a lock of a file or a folder, as far as this user may see their open files.

    ``kind`` is the lock's, as ``fdinfo`` has it: READ (shared) or WRITE (exclusive).
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            for number in os.listdir(folder / "fd"):
                if _same(folder / "fd" / number, path) and _locks(folder / "fdinfo" / number, kind):
                    found.append(f"process {folder.name} ({_name(folder.name)})")
                    break
    return found


def _locks(facts: Path, kind: str) -> bool:
    """Whether an open file, of which Linux tells in ``facts``, holds a lock of a kind."""
    return any(line.startswith("lock:") and kind in line.split() for line in facts.read_text().splitlines())


def _same(path: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def _name(process: str) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text(errors="replace").strip()
    except OSError:
        return "ended"
