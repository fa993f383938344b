"""Signals to a server: SIGINT and SIGTERM end it, SIGHUP has it read its files again.

A handler may only note its signal: it runs between any two steps of the main thread, and a lock that this thread holds
(that of a ``threading.Event`` in its ``wait``, too) would never be free for it. The server's loop takes the notes. A
server that has not ended some time after its signal is ended by a thread that needs no lock of Python's, which prints
where all threads are: the store is then as after a kill, whole to its last flush.
"""

from __future__ import annotations

import contextlib
import faulthandler
import queue
import signal
from enum import Enum
from types import FrameType

__all__ = ["Signals", "Told"]

#: Time from a signal to the end of the server: of its connections, commands and runs.
_SERVER_SECONDS = 10.0
#: Time for the store to be closed after that.
_STORE_SECONDS = 60.0


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
        self._is_ending = False

    def __enter__(self) -> Signals:
        self._before = {number: signal.signal(number, self._note) for number in self._of}
        if signal.SIGHUP not in self._of:
            self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        faulthandler.cancel_dump_traceback_later()

    def _note(self, number: int, _: FrameType | None) -> None:
        told = self._of[signal.Signals(number)]
        if told is Told.END and not self._is_ending:
            self._is_ending = True
            _end_in(_SERVER_SECONDS)
        self._notes.put(told)

    def server_ended(self) -> None:
        """Note that the server has ended, and its store is to be closed."""
        if self._is_ending:
            _end_in(_STORE_SECONDS)

    def wait(self, seconds: float) -> Told | None:
        """Wait for a signal; return what it asks for, None if there is none in this time."""
        with contextlib.suppress(queue.Empty):
            return self._notes.get(timeout=seconds)
        return None


def _end_in(seconds: float) -> None:
    """End this process after a time, unless it has ended by then."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=2)  # standard error, which may be closed
