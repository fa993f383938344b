"""Signals to a server: SIGINT and SIGTERM end it, SIGHUP has it read its files again.

A handler may only note its signal: it runs between any two steps of the main thread, and a lock that this thread holds
(that of a ``threading.Event`` in its ``wait``, too) would never be free for it. The server's loop takes the notes.
"""

from __future__ import annotations

import queue
import signal
from contextlib import suppress
from enum import Enum
from types import FrameType

__all__ = ["Signals", "Told"]


class Told(Enum):
    """An order that a signal stands for."""

    END = "end"
    REREAD = "reread"


class Signals:
    """The signals to this process's server: a context, behind which the handlers are those before it.

    Parameters
    ----------
    rereads : bool
        Whether SIGHUP asks for something; it is ignored otherwise.
    """

    def __init__(self, *, rereads: bool) -> None:
        self._notes: queue.SimpleQueue[Told] = queue.SimpleQueue()  # its put may be called by a handler
        self._of = {signal.SIGINT: Told.END, signal.SIGTERM: Told.END}
        if rereads:
            self._of[signal.SIGHUP] = Told.REREAD

    def __enter__(self) -> Signals:
        self._before = {number: signal.signal(number, self._note) for number in self._of}
        if signal.SIGHUP not in self._of:
            self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._notes.put(self._of[signal.Signals(number)])

    def wait(self, seconds: float) -> Told | None:
        """Wait for a signal; return what it asks for, None if there is none in this time."""
        with suppress(queue.Empty):
            return self._notes.get(timeout=seconds)
        return None
