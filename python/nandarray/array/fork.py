"""State that a forked process must not inherit: locks that threads hold, and pools of threads, which stayed behind.

``StoreLock`` is a lock that is free in a forked process; ``own_again`` registers a function to call there with an
object. A thread that forks while it holds a lock (none here does) would find it free, too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

_renew: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def own_again(thing: Any, renew: Callable[[Any], None]) -> None:
    """In processes forked from here on, call ``renew(thing)`` first, as long as the thing lives."""
    _renew[thing] = renew


def _in_child() -> None:
    for thing, renew in list(_renew.items()):
        renew(thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class StoreLock:
    """A lock that a thread may take several times, and that is free in a forked process."""

    def __init__(self) -> None:
        self._renew()
        own_again(self, StoreLock._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
