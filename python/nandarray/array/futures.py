"""Futures: reads, writes and flushes that were submitted and end later.

On a modelled device (``device=``) a submitted command is in flight: the modelled clock runs only while a caller waits
for a command, so the number of commands in flight and the order of their completions depend on the program alone. On
the wall clock a submitted command runs in a thread of the store's pool. Both give a :class:`Future`.

``await`` works on both. In an event loop the modelled clock is driven when the loop has nothing else to do for some
rounds, so that tasks that were woken can submit what they want in flight beside the others.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from nandarray.errors import CancelledError, ClosedError, InvalidError, NandarrayError

if TYPE_CHECKING:
    import asyncio

    from nandarray import _nandarray
    from nandarray.array.store import Store

__all__ = ["Future", "as_completed"]

# Rounds of an event loop that a task may take from being woken to submitting its next command.
_ROUNDS = 8


class Future(ABC):
    """The result of a submitted command, now or later. Made by ``submit``, ``submit_write`` and ``submit_flush``.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open(device="mqsim-ideal", mode="w")
    >>> store["x"] = np.arange(1 << 16, dtype="u4").reshape(256, 256)
    >>> rows = [store["x"].submit(i) for i in (3, 200)]
    >>> [int(row.result()[0]) for row in rows]
    [768, 51200]
    >>> store.close()
    """

    @abstractmethod
    def done(self) -> bool:
        """Return whether the result is there; no time passes."""

    @abstractmethod
    def result(self) -> Any:
        """Wait for the command, and give its result or raise its error.

        Returns
        -------
        numpy.ndarray or scalar or None
            The elements of a read; None of a write or a flush.
        """

    def exception(self) -> BaseException | None:
        """Wait for the command, and give its error, or None."""
        try:
            self.result()
        except Exception as error:
            return error
        return None

    @abstractmethod
    def cancel(self) -> bool:
        """Cancel the command if it has not begun.

        Returns
        -------
        bool
            Whether it will not happen; its result raises :class:`CancelledError` then.
        """

    @abstractmethod
    def __await__(self) -> Generator[Any, None, Any]: ...


class Submitted(Future):
    """A future on a modelled device."""

    def __init__(self, store: Store, flights: list[_nandarray.Flight], finish: Callable[[], Any]) -> None:
        self._store = store
        self._flights = flights
        self._finish: Callable[[], Any] | None = finish
        self._result: Any = None
        self._lock = threading.Lock()

    def done(self) -> bool:
        return all(flight.done() for flight in self._flights)

    def result(self) -> Any:
        failed: BaseException | None = None
        for flight in self._flights:
            # Wait for all: an error is raised only when no command writes to the caller's memory any more.
            try:
                flight.wait()
            except NandarrayError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        with self._lock:
            if self._finish is not None:
                self._result, self._finish = self._finish(), None
            return self._result

    def cancel(self) -> bool:
        # A future of several commands is not cancelled: some of them may have begun.
        return len(self._flights) == 1 and self._flights[0].cancel()

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done():
            yield from _Pump.of(self._store).wait_for(self).__await__()
        return self.result()


class Threaded(Future):
    """A future on the wall clock: a call in a thread.

    In a forked process that thread is not there: what has not ended before the fork is an error, and never awaited.
    """

    def __init__(self, call: concurrent.futures.Future[Any]) -> None:
        self._call = call
        self._process = os.getpid()
        self._ended = False
        call.add_done_callback(self._note)

    def _note(self, _call: concurrent.futures.Future[Any]) -> None:
        self._ended = True

    def _check_process(self) -> None:
        if not self._ended and os.getpid() != self._process:
            raise ClosedError("the command was submitted in the process that this one was forked from")

    def done(self) -> bool:
        self._check_process()
        return self._call.done()

    def result(self) -> Any:
        self._check_process()
        try:
            return self._call.result()
        except concurrent.futures.CancelledError:
            raise CancelledError("the command was cancelled before it began") from None

    def cancel(self) -> bool:
        self._check_process()
        return self._call.cancel()

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        self._check_process()
        yield from asyncio.wait([asyncio.wrap_future(self._call)]).__await__()
        return self.result()


class Collecting:
    """Native commands that are submitted: reads and writes of one future, and what is to be done after them."""

    def __init__(
        self, store: Store, space: _nandarray.Space, commands: Callable[[_nandarray.Space], Any] | None = None
    ) -> None:
        self._store = store
        self._space = space.in_flight()
        self._commands = commands(self._space) if commands else self._space
        self._after: list[Callable[[], None]] = []

    def after(self, work: Callable[[], None]) -> None:
        self._after.append(work)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._commands, name)

    def future(self, finish: Callable[[], Any]) -> Submitted:
        def all_of_it() -> Any:
            for work in self._after:
                work()
            return finish()

        return Submitted(self._store, self._space.take_flights(), all_of_it)


class _Pump:
    """Drives the modelled clock of one store in one event loop."""

    @staticmethod
    def of(store: Store) -> _Pump:
        import asyncio

        loop = asyncio.get_running_loop()
        pump: _Pump | None = store._pump
        if pump is None or pump._loop is not loop:
            pump = store._pump = _Pump(store, loop)
        return pump

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._waiting: list[tuple[Submitted, asyncio.Future[None]]] = []
        self._rounds = 0

    def wait_for(self, future: Submitted) -> asyncio.Future[None]:
        waiter = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._round)
        self._waiting.append((future, waiter))
        self._rounds = _ROUNDS
        return waiter

    def _round(self) -> None:
        if self._rounds > 0:
            self._rounds -= 1
        else:
            # An error is raised by each waiting command itself.
            try:
                more = not self._store.closed and self._store._engine.drive()
            except NandarrayError:
                more = False
            waiting, self._waiting = self._waiting, []
            for future, waiter in waiting:
                # Tested only once: another thread may let time pass, too.
                if more and not future.done():
                    self._waiting.append((future, waiter))
                elif not waiter.done():
                    waiter.set_result(None)
            self._rounds = _ROUNDS
        if self._waiting:
            self._loop.call_soon(self._round)


def as_completed(futures: Iterable[Future]) -> Iterator[Future]:
    """Yield futures as their commands end, letting modelled time pass or waiting for threads.

    Parameters
    ----------
    futures : iterable of Future
        Futures of one store.

    Yields
    ------
    Future
        One that is done: on a modelled device in the order of their ends.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open(device="mqsim-ideal", mode="w")
    >>> store["x"] = np.arange(100, dtype="u4").reshape(10, 10)
    >>> sum(int(row.result().sum()) for row in nandarray.as_completed([store["x"].submit(i) for i in range(10)]))
    4950
    >>> store.close()
    """
    waiting = list(dict.fromkeys(futures))
    strange = [future for future in waiting if not isinstance(future, Future)]
    if strange:
        raise InvalidError(f"{strange[0]!r} must be a future, as `submit` gives it")
    threaded = [future for future in waiting if isinstance(future, Threaded)]
    if threaded:
        if len(threaded) < len(waiting):
            raise InvalidError("futures of a modelled device and of the wall clock cannot be waited for together")
        for one in threaded:
            one._check_process()
        by_call = {future._call: future for future in threaded}
        for call in concurrent.futures.as_completed(by_call):
            yield by_call[call]
        return
    modelled = [future for future in waiting if isinstance(future, Submitted)]
    if len({id(future._store) for future in modelled}) > 1:
        raise InvalidError("futures of two modelled devices cannot be waited for together: each has a clock of its own")
    while modelled:
        left = []
        for future in modelled:
            # Tested only once: another thread may let time pass, too.
            if future.done():
                yield future
            else:
                left.append(future)
        stands = len(left) == len(modelled)
        modelled = left
        if stands and not modelled[0]._store._engine.drive():
            # Nothing is in flight any more: they are done meanwhile, or the clock has stopped and each says so.
            yield from modelled
            return
