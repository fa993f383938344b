"""A gate that many threads pass at once, or one alone.

Threads that move elements share it; what seals parts or changes shapes, and a commit, has it alone: so none of the
others has a part in hand that is closed under it, or an entry that holds no more. A thread may pass again while it is
in, in the same way or as one of those that share. In a forked process there is no waiting: the threads stayed behind.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

__all__ = ["Gate", "sharing"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Gate:
    """A lock of readers and writers, who take turns.

    A waiting writer goes before readers that come later, and readers that wait when a writer leaves before the next
    writer: neither can keep the other out by coming again and again.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._state = threading.Condition()
        self._inside: dict[int, int] = {}
        self._alone: int | None = None
        self._depth = 0
        self._waiting = 0
        #: Threads that wait to share, and how many of them go before the next writer.
        self._queued = 0
        self._admitted = 0

    @property
    def is_inside(self) -> bool:
        """Whether this thread has passed it."""
        me = threading.get_ident()
        return self._alone == me or me in self._inside

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Pass beside others that share."""
        me = threading.get_ident()
        if os.getpid() != self._process or self._alone == me:
            yield
            return
        with self._state:
            if me not in self._inside:
                self._queue()
            self._inside[me] = self._inside.get(me, 0) + 1
        try:
            yield
        finally:
            with self._state:
                self._inside[me] -= 1
                if not self._inside[me]:
                    del self._inside[me]
                    self._state.notify_all()

    def _queue(self) -> None:
        """Wait until sharing is possible."""
        self._queued += 1
        try:
            while self._alone is not None or (self._waiting and not self._admitted):
                self._state.wait()
            self._admitted = max(0, self._admitted - 1)
        finally:
            self._queued -= 1
            self._admitted = min(self._admitted, self._queued)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Pass when no other thread is in; not from within :meth:`shared`."""
        me = threading.get_ident()
        if os.getpid() != self._process:
            yield
            return
        with self._state:
            if self._alone != me:
                if me in self._inside:
                    raise RuntimeError("a thread that shares the gate cannot have it alone")
                self._waiting += 1
                try:
                    while self._alone is not None or self._inside or self._admitted:
                        self._state.wait()
                finally:
                    self._waiting -= 1
                    self._state.notify_all()
                self._alone = me
            self._depth += 1
        try:
            yield
        finally:
            with self._state:
                self._depth -= 1
                if not self._depth:
                    self._alone, self._admitted = None, self._queued
                    self._state.notify_all()


def sharing(moves: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a method of an array share the gate of its source."""

    @functools.wraps(moves)
    def held(*given: _P.args, **named: _P.kwargs) -> _R:
        array: Any = given[0]
        with array.source.gate.shared():
            return moves(*given, **named)

    return held
