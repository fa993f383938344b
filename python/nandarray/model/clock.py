"""The modelled clock of a store on a described device: what time it is there, and what runs side by side.

A store that was opened with ``device=`` executes every command on real bytes, one after the other, and lets modelled
time pass for it. Commands of a :meth:`Clock.batch` are executed at once, too, and timed together, as of a host that
keeps ``queue_depth`` of them in flight.

It moves no data itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from nandarray import _nandarray
from nandarray.errors import InvalidError
from nandarray.model.report import Report

__all__ = ["Clock", "Done"]


class Done(NamedTuple):
    """A command that is done: what it moved, and when, in modelled seconds."""

    kind: str
    bytes: int
    submitted_s: float
    done_s: float
    failed: bool

    @property
    def took_s(self) -> float:
        """Seconds from its submission to its answer."""
        return self.done_s - self.submitted_s


class Clock:
    """The modelled clock of a store, ``store.clock``.

    >>> import nandarray
    >>> store = nandarray.open(device="mqsim-ideal", mode="w")
    >>> store["x"] = np.arange(1 << 20, dtype="u4").reshape(1024, 1024)
    >>> before = store.clock.now
    >>> with store.clock.batch(queue_depth=16) as done:
    ...     rows = [store["x"][i * 100] for i in range(10)]
    >>> len(done), store.clock.now > before
    (10, True)
    >>> store.close()
    """

    def __init__(self, engine: _nandarray.Clock) -> None:
        self._engine = engine

    @property
    def now(self) -> float:
        """Modelled seconds since the device was switched on: when the host can give its next command."""
        return self._engine.now_s

    @property
    def mount_time(self) -> float:
        """Modelled seconds that opening took."""
        return self._engine.mount_s

    def think(self, seconds: float) -> None:
        """Let the host do something else for a time; what goes on in the background goes on meanwhile.

        Parameters
        ----------
        seconds : float
            Modelled seconds, from 0 to 10 million.
        """
        self._engine.think(float(seconds))

    @contextmanager
    def later(self, seconds: float) -> Iterator[None]:
        """Let the commands that are submitted in this context arrive later than now.

        A schedule of reads can be submitted so before a program is run beside them: they arrive while it runs, and the
        report's ``programs.host_beside`` has their latencies. Contexts are not nested.

        Parameters
        ----------
        seconds : float
            Modelled seconds from now, from 0 to a million.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open(device="mqsim-ideal", mode="w")
        >>> store["x"] = np.arange(1 << 16, dtype="u4").reshape(256, 256)
        >>> with store.clock.later(0.001):
        ...     row = store["x"].submit(3)
        >>> before = store.clock.now
        >>> int(row.result()[0]), store.clock.now - before > 0.001
        (768, True)
        >>> store.close()
        """
        self._engine.arrive_after(float(seconds))
        try:
            yield
        finally:
            self._engine.arrive_after(0.0)

    @contextmanager
    def batch(self, queue_depth: int) -> Iterator[list[Done]]:
        """Time the commands of this context together, ``queue_depth`` of them in flight.

        Parameters
        ----------
        queue_depth : int
            Commands that the host keeps on their way, at least 1.

        Yields
        ------
        list of Done
            Empty within; the commands in order of their ends after it.
        """
        if queue_depth < 1:
            raise InvalidError(f"queue_depth must be at least 1, not {queue_depth}")
        done: list[Done] = []
        self._engine.batch()
        try:
            yield done
        finally:
            done.extend(Done(*one) for one in self._engine.end_batch(queue_depth))

    def settle(self) -> None:
        """Let everything end that goes on in the background."""
        self._engine.settle()

    def report(self) -> Report:
        """Return the report since the store was opened.

        Returns
        -------
        Report
            Time, throughput, latency percentiles, energy by part, write amplification, utilisation, wear.
        """
        return Report(*self._engine.report())

    def __repr__(self) -> str:
        return f"<Clock at {self.now:.9f} modelled s>"
