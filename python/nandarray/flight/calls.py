"""Calls of clients while they last: their ends, limits, and counts.

Each call is a thread of the transport, which waits for its client within Arrow. One thread of this file looks at all
calls: it ends work whose client has gone or whose time is over, and the connection of a client that takes or sends
nothing. A look that fails ends its own call and connection, and the thread goes on until the server stops. Between two
batches a call holds the memory of one batch, and no turn.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote

from nandarray import _nandarray
from nandarray.errors import BusyError, CancelledError, ClosedError, InternalError, NotFoundError, ProgramFailedError
from nandarray.flight.access import CALLS_MAX, Access, Guest
from nandarray.flight.faults import LateError, status_of, text_of
from nandarray.serving.counts import OperationCounts

__all__ = ["END_S", "Call", "Calls", "Event"]

#: Time between two looks at all calls.
_LOOK_S = 0.2
#: Time for calls to end by themselves when the server stops.
END_S = 2.0
#: Instructions of a run where a tenant's rules say no fewer (docs/reference/tenants.md).
_INSTRUCTIONS_MAX = 20_000_000_000_000
#: A number of bytes that no tenant has.
_BYTES_MAX = 1 << 62
#: Threads of the transport that wait for work, at most: their last answers have been taken.
_IDLE_MAX = 8
#: Events that wait for the log, at most.
_EVENTS_MAX = 256
#: An event of the log: its kind, its time in seconds since 1970, its fields.
Event = tuple[str, float, Mapping[str, Any]]
_T = TypeVar("_T")


class Call:
    """One call, from its arrival to its end; :meth:`close` ends it."""

    def __init__(self, calls: Calls, number: int, kind: str, guest: Guest, context: Any) -> None:
        self.number, self.kind, self.guest, self.peer = number, kind, guest, context.peer()
        self.begun, self.sent, self.received = time.monotonic(), 0, 0
        self.until = self.begun + guest.limit("seconds")
        self._calls, self._context = calls, context
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._over_since = 0.0
        self._reason: Exception | None = None
        self._watch: _nandarray.Watch | None = None
        self._memory: _nandarray.DoorMemory | None = None
        self._waits_since: float | None = None

    @property
    def reason(self) -> Exception | None:
        """The error that the call ends with; None if it goes on."""
        return self._reason

    def check(self) -> None:
        """Raise what the call ends with, if it is to end."""
        if self._reason is not None:
            raise self._reason

    def end_with(self, reason: Exception) -> None:
        """Have the call end with an error, and what it runs."""
        with self._lock:
            if self._reason is None:
                self._reason, self._over_since = reason, time.monotonic()
            if self._watch is not None:
                self._watch.cancel()
        self._over.set()

    def work(self, size: int, work: Callable[[Mapping[str, Any]], _T]) -> _T:
        """Do a piece of work at the data in a turn; ``work`` takes options of :func:`nandarray.offload`.

        Parameters
        ----------
        size : int
            Bytes of memory that it needs, about, which the tenant has to have left.
        work : callable
            The work.
        """
        self.reserve(size)
        with self._calls.access.turn(self.guest, self.check):
            watch = _nandarray.Watch()
            with self._lock:
                self.check()
                self._watch = watch
            try:
                return work(self._options(watch))
            except (ProgramFailedError, CancelledError):
                self.check()
                if time.monotonic() >= self.until:
                    raise self._late() from None
                raise
            finally:
                self._watch = None

    def _options(self, watch: _nandarray.Watch) -> dict[str, Any]:
        options = {"seconds": max(self.until - time.monotonic(), 0.001), "_watch": watch}
        most = self.guest.limit("instructions")
        # Native forms count none, so that a limit is for tenants that have one.
        return options if most >= _INSTRUCTIONS_MAX else options | {"instructions": most}

    def reserve(self, size: int) -> None:
        """Have a number of bytes of memory reserved, and no others.

        Raises
        ------
        BusyError
            The tenant, or the node, has fewer left.
        """
        self.give_back()
        self._memory = self.guest.tenant.reserve(min(size, _BYTES_MAX))
        if self._memory is None:
            most = self.guest.limit("memory_mib")
            raise BusyError(
                f"{self.guest.tenant.name} has no {size} bytes of memory left of its {most} MiB, or the node has not: "
                "read what is there, or try again later"
            )

    def give_back(self) -> None:
        """Give reserved memory back."""
        if self._memory is not None:
            self._memory.give_back()
            self._memory = None

    def keep_pace(self, size: int) -> None:
        """Wait until the tenant keeps its rates with a number of bytes more."""
        self._over.wait(self._calls.access.pace(self.guest, size))
        self.check()

    def waits(self) -> None:
        """Say that it waits for its client from now on."""
        self._waits_since = time.monotonic()

    def goes_on(self) -> None:
        """Say that its client has taken or sent what it waited for."""
        self._waits_since = None
        self.check()

    def look(self, now: float, patience: float) -> str | None:
        """End what has to end; return why the connection has to be ended, if it has to."""
        with self._lock:
            context = self._context
            is_gone = context is not None and context.is_cancelled()
        if is_gone:
            self.end_with(CancelledError("the client has gone, or its deadline has passed"))
        elif now >= self.until:
            self.end_with(self._late())
        since = self._waits_since
        if since is None:
            return None
        if now - since >= patience:
            return f"the client took or sent nothing for {patience:g} s"
        # A client that goes on gets the error; of one that does not, the connection ends.
        is_late = self._over.is_set() and now - max(since, self._over_since) >= END_S
        return "the call had to end, and its client took or sent nothing" if is_late else None

    def _late(self) -> LateError:
        return LateError(f"the call took more than {self.guest.limit('seconds')} s, which its tenant has for one")

    def close(self, error: BaseException | None = None) -> None:
        """End it; a second time without effect."""
        with self._lock:
            if self._context is None:
                return
            self._context = None  # Arrow's object lives no longer than the call
        self.give_back()
        self._calls.ended(self, error)


class Calls:
    """All calls of a server.

    Parameters
    ----------
    access : Access
        Tenants and turns.
    patience : float
        Seconds for which a client may take or send nothing.
    """

    def __init__(self, access: Access, patience: float) -> None:
        self.access, self.patience = access, patience
        self.counts = OperationCounts()
        self.failures: Counter[str] = Counter()
        self._open: dict[int, Call] = {}
        #: Answers that may not have been taken yet, by the number of the thread, which sends one after its call.
        self._answers: dict[int, tuple[Guest, str, float]] = {}
        self._lock = threading.Condition()
        self._last, self._port, self._stops = 0, 0, False
        self._events: deque[Event] = deque(maxlen=_EVENTS_MAX)
        self._has_event = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="nandarray-flight", daemon=True)
        self._thread.start()

    def serve_at(self, port: int) -> None:
        """Take the number of the port, by which connections are found."""
        self._port = port

    def begin(self, kind: str, guest: Guest, context: Any) -> Call:
        """Begin a call."""
        with self._lock:
            if self._stops:
                raise ClosedError("the server stops")
            self._answers.pop(threading.get_native_id(), None)
            tenant = guest.tenant.name
            count = sum(one.tenant.name == tenant for one, _, _ in self._answers.values())
            if count >= CALLS_MAX + _IDLE_MAX:
                raise BusyError(f"{tenant} has {count} answers that no client has taken: take them, or try again")
            self._last += 1
            call = Call(self, self._last, kind, guest, context)
            self._open[call.number] = call
        return call

    def ended(self, call: Call, error: BaseException | None) -> None:
        """Count a call that has ended."""
        took = time.monotonic() - call.begun
        tenant = call.guest.tenant.name
        self.counts.add((tenant, call.kind), took, failed=error is not None, received=call.received, sent=call.sent)
        if error is not None:
            status = status_of(error)
            self.failures[status] += 1
            self.tell(
                "call_failed", host=call.guest.host, operation=call.kind, duration_ns=int(took * 1e9), status=status,
                why=text_of(error),
            )  # fmt: skip
        with self._lock:
            self._open.pop(call.number, None)
            self._lock.notify_all()

    def answers(self, call: Call) -> None:
        """Say that this thread sends the answer of a call, which has ended, until a client has taken it."""
        with self._lock:
            self._answers[threading.get_native_id()] = call.guest, call.peer, time.monotonic()

    def _look_at_answers(self, now: float) -> None:
        """Forget answers whose threads have ended; end the connections of those that are too many, and old."""
        with self._lock:
            for thread in [one for one in self._answers if not os.path.exists(f"/proc/self/task/{one}")]:
                del self._answers[thread]
            late = [one for one in self._answers.values() if now - one[2] >= self.patience]
        if len(late) > _IDLE_MAX:
            for peer, guest in {peer: guest for guest, peer, _ in late}.items():
                why = f"the client took no answer for {self.patience:g} s"
                self.tell("stalled", host=guest.host, operation="flight_info", why=why)
                self._end_connection(peer)

    def tell(self, kind: str, **fields: Any) -> None:
        """Keep an event for the log."""
        self._events.append((kind, time.time(), fields))
        self._has_event.set()

    def events(self, seconds: float) -> Iterable[Event]:
        """Return events that were not returned before, after some seconds if there are none before."""
        self._has_event.wait(seconds)
        self._has_event.clear()
        while self._events:
            yield self._events.popleft()

    def open(self) -> list[Call]:
        """Return the calls that last."""
        with self._lock:
            return list(self._open.values())

    def kill(self, number: int) -> None:
        """Have a call end.

        Raises
        ------
        NotFoundError
            There is none of this number (any more).
        """
        with self._lock:
            call = self._open.get(number)
        if call is None:
            raise NotFoundError(f"no call {number} is running")
        call.end_with(CancelledError(f"call {number} was stopped by the operator"))

    def end_strangers(self) -> list[str]:
        """End the calls of clients that would not be admitted any more; return their hosts."""
        ended = [call for call in self.open() if not self.access.still_admits(call.guest)]
        for call in ended:
            call.end_with(ClosedError("the client's token or tenant is another one now"))
        return sorted({call.guest.host for call in ended})

    def stop(self) -> None:
        """End all calls, and the connections of those that do not end by themselves."""
        with self._lock:
            self._stops = True
        for call in self.open():
            call.end_with(ClosedError("the server stops"))
        with self._lock:
            self._lock.wait_for(lambda: not self._open, END_S)
        for call in self.open():
            self._end_connection(call.peer)
        with self._lock:
            self._lock.wait_for(lambda: not self._open, END_S)
        self._over.set()
        self._thread.join(END_S)

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            now = time.monotonic()
            with contextlib.suppress(Exception):  # the next look tries again
                self._look_at_answers(now)
            for call in self.open():
                try:
                    self._look_at(call, now)
                except Exception as error:  # the limits of all other calls hold on
                    call.end_with(InternalError(f"a look at the call failed: {type(error).__name__}"))
                    with contextlib.suppress(Exception):
                        self._end_connection(call.peer)

    def _look_at(self, call: Call, now: float) -> None:
        why = call.look(now, self.patience)
        if why is not None:
            self.tell("stalled", host=call.guest.host, operation=call.kind, why=why)
            call.end_with(LateError(why))
            self._end_connection(call.peer)

    def end_connections(self, over: threading.Event) -> None:
        """End all connections, after a while, until the server is over: it waits for answers that no client takes."""
        while not over.wait(END_S / 2):
            self._end_connection(None)

    def _end_connection(self, peer: str | None) -> None:
        """End the connection of a client, or of all: Arrow has no way to end a call that waits for its client."""
        address = None if peer is None else _address(peer)
        try:
            names = os.listdir("/proc/self/fd")
        except OSError:
            return  # no number of a file is free to list them with: the next look tries again
        for name in names:
            try:
                if not stat.S_ISSOCK(os.stat(int(name)).st_mode):
                    continue
                own_copy = os.dup(int(name))
            except OSError:
                continue  # it has been closed meanwhile
            try:
                found = socket.socket(fileno=own_copy)
            except OSError:
                os.close(own_copy)  # its number is another file's by now
                continue
            with found, contextlib.suppress(OSError):
                own, other = found.getsockname(), found.getpeername()
                if isinstance(other, tuple) and own[1] == self._port and address in (None, _plain(other)):
                    found.shutdown(socket.SHUT_RDWR)


def _address(peer: str) -> tuple[str, int]:
    """Return address and port of a peer, as gRPC writes it: ``ipv4:127.0.0.1:1234``, ``ipv6:%5B::1%5D:1234``."""
    host, _, port = unquote(peer.partition(":")[2]).rpartition(":")
    return host.strip("[]").removeprefix("::ffff:"), int(port) if port.isdecimal() else -1


def _plain(address: tuple[Any, ...]) -> tuple[str, int]:
    return str(address[0]).removeprefix("::ffff:"), int(address[1])
