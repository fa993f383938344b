"""A store as an Arrow Flight server: :func:`serve`.

Arrow has the transport (gRPC over HTTP/2, a thread for each call). This file is its handlers, and the start and the end
of a server; what they do is in :mod:`plans`, :mod:`putting`, :mod:`calls` and :mod:`access`.
"""

from __future__ import annotations

import ipaddress
import json
import os
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight as fl

from nandarray import _nandarray
from nandarray.array.store import Store
from nandarray.errors import (
    BusyError,
    CancelledError,
    CorruptError,
    InvalidError,
    NandarrayError,
    ProtectedError,
    ReadOnlyError,
)
from nandarray.flight.access import Access, Guest, Refused
from nandarray.flight.calls import END_S, Call, Calls, Event
from nandarray.flight.catalog import Catalog
from nandarray.flight.faults import tells
from nandarray.flight.plans import Plan, TablePlan, plan_of
from nandarray.flight.putting import put
from nandarray.flight.tickets import VERSION, Command, Ticket
from nandarray.inputs import open_input
from nandarray.nvme.admission import Admission, Secrets
from nandarray.serving.endpoint import MetricsEndpoint
from nandarray.serving.metrics import exposition, observe

__all__ = ["FlightServer", "serve"]

_MIDDLEWARE = "nandarray"
#: Seconds for which a client may take or send nothing, as at the NVMe door.
_PATIENCE_S = 30.0
_PATTERN_BYTES_MAX = 4096
_ACTIONS = {
    "count": "Count the rows of a table that pass a command's filter, at the data; the result is JSON with 'rows'.",
    "health": "Say that the server answers; the result is JSON with 'version' and 'tickets'.",
}


class FlightServer:
    """A running server. What :func:`serve` gives; a context manager, which stops it.

    Stop it before the store is closed.
    """

    def __init__(self, door: _Door, calls: Calls, *, scheme: str, host: str, metrics: str | None) -> None:
        self._door, self._calls = door, calls
        self._scheme, self._host = scheme, host
        self._started, self._since = time.time(), time.monotonic()
        self._stopped = threading.Lock()
        self._endpoint = None if metrics is None else MetricsEndpoint(metrics, self._exposition)

    @property
    def address(self) -> str:
        """Address and port that it listens on."""
        return f"{self._host}:{self._door.port}"

    @property
    def url(self) -> str:
        """The location for Flight clients: ``grpc://HOST:PORT``, or ``grpc+tls://HOST:PORT``."""
        return f"{self._scheme}://{self.address}"

    @property
    def metrics_address(self) -> str | None:
        """Address of ``/metrics``: ``HOST:PORT``, or the path of a socket; None where it is not served."""
        return None if self._endpoint is None else self._endpoint.address

    def status(self) -> dict[str, Any]:
        """Describe the server.

        Returns
        -------
        dict
            ``address``; ``calls`` that last, each with ``id``, ``host``, ``operation``, ``seconds``, ``sent`` and
            ``received`` bytes; ``memory_bytes`` that is reserved, and ``memory_limit_bytes``; ``tenants`` (name, and
            the same two of each); ``in_flight``, calls by tenant; ``refused_logins``; ``started`` in seconds since
            1970, ``uptime_seconds`` since then.
        """
        now = time.monotonic()
        calls = [
            {
                "id": call.number,
                "host": call.guest.host,
                "operation": call.kind,
                "seconds": now - call.begun,
                "sent": call.sent,
                "received": call.received,
            }
            for call in self._calls.open()
        ]
        times = {"started": self._started, "uptime_seconds": now - self._since}
        return {"address": self.address, "calls": calls, **self._calls.access.status(), **times}

    def kill(self, call: int) -> None:
        """Stop a call: it ends with an error.

        Parameters
        ----------
        call : int
            Number of the call, its ``id`` in the status.

        Raises
        ------
        NotFoundError
            No call of this number is there (any more).
        """
        self._calls.kill(call)

    def reload(self, *, secrets: Secrets | None = None, config: str | os.PathLike[str] | None = None) -> list[str]:
        """Replace secrets and rules of tenants, which :func:`serve` took; what is wrong changes nothing.

        Parameters
        ----------
        secrets, config
            As for :func:`serve`.

        Returns
        -------
        list of str
            Names of the hosts whose calls have ended.

        Raises
        ------
        InvalidError
            As :func:`serve`; or the server had secrets and would have none, or the other way round.
        """
        admission = Admission.of((), secrets, config, None, insecure=False, unix=False)
        if bool(admission.secrets) != self._calls.access.asks:
            raise InvalidError("a running server must keep its secrets, or stay without: start it anew")
        self._calls.access.replace(admission)
        return self._calls.end_strangers()

    def events(self, seconds: float) -> Iterator[Event]:
        """Yield events for the log that were not given before; wait at most some seconds for one."""
        yield from self._calls.events(seconds)

    def _exposition(self) -> str:
        try:
            store = self._door.catalog.store.stat()
        except NandarrayError:  # it was closed, or a command of it failed: the server's own numbers are there
            store = {}
        seen = observe(self.status(), started=self._started, transport="flight", store=store)
        return exposition({**seen, **self._calls.counts.operations(), "failures": dict(self._calls.failures)})

    def stop(self) -> None:
        """End all calls, and the server; more than once without effect."""
        if not self._stopped.acquire(blocking=False):
            return
        if self._endpoint is not None:
            self._endpoint.stop()
        self._calls.stop()
        over = threading.Event()
        ends = threading.Thread(
            target=self._calls.end_connections, args=(over,), name="nandarray-flight-end", daemon=True
        )
        ends.start()
        try:
            self._door.shutdown()
        finally:
            over.set()
            ends.join(END_S)

    def __enter__(self) -> FlightServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<nandarray.flight.FlightServer {self.url}>"


def serve(
    store: Store,
    listen: str = "127.0.0.1:0",
    *,
    insecure: bool = False,
    read_only: bool = False,
    programs: bool = True,
    secrets: Secrets | None = None,
    config: str | os.PathLike[str] | None = None,
    certificate: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None,
    patience: float = _PATIENCE_S,
    metrics: str | None = None,
) -> FlightServer:
    """Serve a store to Arrow Flight clients: tables, boxes of arrays, and ready-made programs beside them.

    Parameters
    ----------
    store : Store
        The open store: one file, or parts.
    listen : str
        Address and port; port 0 takes a free one.
    insecure : bool
        Listen on an address that is not loopback, although clients come without tokens or without TLS.
    read_only : bool
        Refuse to put.
    programs : bool
        Whether clients may run ready-made programs.
    secrets : mapping, optional
        Secrets by the qualified names of hosts, as for :func:`nandarray.serve`: a client needs the bearer token that
        :func:`nandarray.flight.token_of` makes of one.
    config : path_like, optional
        Rules of tenants (docs/reference/tenants.md).
    certificate : pair of path_like, optional
        Files in PEM of the server's chain of certificates and of its private key, which only its owner may read: TLS.
    patience : float
        Seconds for which a client may take or send nothing before its connection ends.
    metrics : str, optional
        Address of ``/metrics`` in Prometheus' text form: ``HOST:PORT`` of loopback, or the path of a socket.

    Returns
    -------
    FlightServer
        The running server.

    Raises
    ------
    ImportError
        PyArrow is not installed.
    InvalidError
        The address cannot be listened on, or needs ``secrets`` and ``certificate``, or ``insecure``; a text is no
        secret; rules that are wrong, with their lines; a host of a tenant without a secret.

    Examples
    --------
    >>> import nandarray
    >>> from pyarrow import flight
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["a"] = np.arange(6).reshape(3, 2)
    >>> with nandarray.serve_flight(store) as server, flight.connect(server.url) as client:
    ...     found = client.get_flight_info(flight.FlightDescriptor.for_path("a"))
    ...     client.do_get(found.endpoints[0].ticket).read_all().num_rows
    3
    """
    host, port = _parsed(listen)
    admission = Admission.of((), secrets, config, None, insecure=False, unix=False)
    if not ipaddress.ip_address(host).is_loopback and not insecure and not (admission.secrets and certificate):
        raise InvalidError(
            f"{listen} is no address of loopback: clients there need tokens (secrets) and TLS (certificate); insecure "
            "listens without"
        )
    if not patience > 0:
        raise InvalidError(f"patience must be more than 0 s, not {patience!r}")
    chain = None if certificate is None else _certificate(*certificate)
    scheme = "grpc" if chain is None else "grpc+tls"
    shown = f"[{host}]" if ":" in host else host
    access = Access(admission)
    calls = Calls(access, patience)
    try:
        try:
            door = _Door(
                f"{scheme}://{shown}:{port}", calls, Catalog(store), chain, read_only=read_only, programs=programs
            )
        except (pa.ArrowException, OSError) as error:
            raise InvalidError(f"{listen}: cannot listen: {error}") from None
        calls.serve_at(door.port)
        try:
            return FlightServer(door, calls, scheme=scheme, host=shown, metrics=metrics)
        except BaseException:
            door.shutdown()
            raise
    except BaseException:
        calls.stop()
        raise


def _parsed(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise InvalidError(f"{listen!r} must be HOST:PORT, with a port from 0 to 65535")
    try:
        return str(ipaddress.ip_address({"localhost": "127.0.0.1"}.get(host, host.strip("[]")))), int(port)
    except ValueError:
        raise InvalidError(f"{listen!r}: {host!r} must be an IP address") from None


def _certificate(chain: str | os.PathLike[str], key: str | os.PathLike[str]) -> tuple[bytes, bytes]:
    with open_input(Path(key)) as opened:
        mode = os.fstat(opened.fileno()).st_mode & 0o777
        if mode & 0o077:
            raise InvalidError(f"{os.fspath(key)} has mode {mode:o}: other users may read the key (chmod 600)")
        secret = opened.read()
    with open_input(Path(chain)) as opened:
        return opened.read(), secret


class _Admitted(fl.ServerMiddleware):  # type: ignore[misc]
    """The client of a call, counted from before its first message until its last one has been taken.

    The transport has a thread for all of that time; a handler is called for a part of it.
    """

    def __init__(self, access: Access, guest: Guest) -> None:
        self.guest = guest
        self._counted = ExitStack()
        self._counted.enter_context(access.call(guest))

    def call_completed(self, _: Any) -> None:
        """Count it no more."""
        self._counted.close()


class _Door(fl.FlightServerBase):  # type: ignore[misc]
    """Arrow's server with the handlers of this door."""

    def __init__(
        self,
        location: str,
        calls: Calls,
        catalog: Catalog,
        certificate: tuple[bytes, bytes] | None,
        *,
        read_only: bool,
        programs: bool,
    ) -> None:
        self.calls, self.catalog, self.hidden = calls, catalog, str(catalog.store.path)
        self._read_only, self._programs = read_only, programs

        class Admits(fl.ServerMiddlewareFactory):  # type: ignore[misc]
            def start_call(self, _: Any, headers: Any) -> _Admitted:
                found = [
                    value for name, values in headers.items() if name.lower() == "authorization" for value in values
                ]
                try:
                    return _Admitted(calls.access, calls.access.guest(found[0] if found else None))
                except Refused as error:
                    calls.tell("login_refused", host=None, why=str(error))
                    raise fl.FlightUnauthenticatedError(str(error)) from None
                except BusyError as error:
                    calls.failures["UNAVAILABLE"] += 1
                    raise fl.FlightUnavailableError(str(error)) from None

        super().__init__(
            location,
            tls_certificates=[] if certificate is None else [certificate],
            middleware={_MIDDLEWARE: Admits()},
        )

    @contextmanager
    def _call(self, context: Any, kind: str, *, answers: bool = False) -> Iterator[Call]:
        """Have a call that ends with the handler; the transport perhaps ``answers`` only then."""
        call = self._begun(context, kind)
        try:
            yield call
        except BaseException as error:
            call.close(error)
            raise
        call.close()
        if answers:
            self.calls.answers(call)

    def _begun(self, context: Any, kind: str) -> Call:
        return self.calls.begin(kind, context.get_middleware(_MIDDLEWARE).guest, context)

    def _plan(self, call: Call, command: Command, store: Store) -> Plan:
        if command.program is not None and not (self._programs and call.guest.limit("programs")):
            raise ProtectedError(f"{call.guest.tenant.name} may run no programs")
        return plan_of(command, self.catalog.open(store, call.guest, command.kind, command.name))

    def _command(self, call: Call, descriptor: Any, store: Store) -> Command:
        if descriptor.descriptor_type == fl.DescriptorType.CMD:
            return Command.parse(descriptor.command)
        try:
            name = "/".join(part.decode() for part in descriptor.path)
        except UnicodeDecodeError:
            raise InvalidError(f"a path must be text in UTF-8, not {descriptor.path!r}") from None
        return Command(self.catalog.kind(store, call.guest, name), name)

    def _info(self, call: Call, plan: Plan, descriptor: Any, version: int | None, before: int = 0) -> tuple[Any, int]:
        """Describe a plan; also give the bytes of its tickets and those ``before``, which are reserved together."""
        endpoints, size = [], before
        for ticket in plan.tickets(version):
            encoded = ticket.encode()
            size += len(encoded)
            call.reserve(size)
            endpoints.append(fl.FlightEndpoint(fl.Ticket(encoded), []))
        return fl.FlightInfo(plan.schema, descriptor, endpoints, -1, -1, ordered=True), size

    @tells
    def list_flights(self, context: Any, criteria: bytes) -> Any:
        """List tables and arrays; the criteria are a pattern of names, in which ``*`` stands for any characters."""
        with self._call(context, "flight_list") as call:
            if len(criteria) > _PATTERN_BYTES_MAX:
                raise InvalidError(f"the criteria must have at most {_PATTERN_BYTES_MAX} bytes, not {len(criteria)}")
            try:
                pattern = criteria.decode() or "*"
            except UnicodeDecodeError:
                raise InvalidError("the criteria must be a pattern of names in UTF-8") from None
            store, version = self.catalog.newest()
            found, size = [], 0
            for kind, name, opened in self.catalog.listed(store, call.guest, pattern):
                call.check()
                path = fl.FlightDescriptor.for_path(*name.split("/"))
                try:
                    info, size = self._info(call, plan_of(Command(kind, name), opened), path, version, size)
                except (InvalidError, CorruptError):
                    continue  # Arrow has no form for it, or it is damaged: the others are listed all the same
                found.append(info)
        return iter(found)

    @tells
    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Cut a command, or a name, into endpoints."""
        with self._call(context, "flight_info", answers=True) as call:
            store, version = self.catalog.newest()
            command = self._command(call, descriptor, store)
            return call.work(0, lambda _: self._info(call, self._plan(call, command, store), descriptor, version))[0]

    @tells
    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Return the schema of a command, or of a name."""
        with self._call(context, "flight_info", answers=True) as call:
            store, _ = self.catalog.newest()
            command = self._command(call, descriptor, store)
            return fl.SchemaResult(call.work(0, lambda _: self._plan(call, command, store)).schema)

    @tells
    def do_get(self, context: Any, ticket: Any) -> Any:
        """Send the batches of a ticket."""
        call = self._begun(context, "flight_get")
        try:
            wanted = Ticket.parse(ticket.ticket)
            plan = call.work(0, lambda _: self._plan(call, wanted.command, self.catalog.at(wanted.at)))
            plan.check(wanted)
        except BaseException as error:
            call.close(error)
            raise
        return fl.GeneratorStream(plan.schema, _Stream(call, plan, wanted, self.hidden))

    @tells
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Append to a table, or write a box of an array; what is put is there as a whole when this has ended."""
        with self._call(context, "flight_put") as call:
            if self._read_only or self.catalog.store.read_only:
                raise ReadOnlyError("the store is served for reading")
            put(call, self.catalog, self._command(call, descriptor, self.catalog.store), reader, writer)

    @tells
    def list_actions(self, _: Any) -> list[tuple[str, str]]:
        """Return the actions with what they do."""
        return list(_ACTIONS.items())

    @tells
    def do_action(self, context: Any, action: Any) -> Any:
        """Do one of the actions; their bodies are commands."""
        with self._call(context, "flight_action") as call:
            if action.type == "health":
                told: dict[str, Any] = {"version": _nandarray.__version__, "tickets": VERSION}
            elif action.type == "count":
                store, _ = self.catalog.newest()
                command = Command.parse(action.body.to_pybytes())
                plan = call.work(0, lambda _: self._plan(call, command, store))
                if not isinstance(plan, TablePlan):
                    raise InvalidError("a count must be of a table")
                told = {"rows": plan.count(call.work)}
            else:
                raise NotImplementedError(f"there is no action {action.type!r}; there is {', '.join(_ACTIONS)}")
            return iter([fl.Result(json.dumps(told).encode())])


class _Stream:
    """The batches of a call, made as Arrow asks for them; the call ends with this object."""

    def __init__(self, call: Call, plan: Plan, ticket: Ticket, hidden: str) -> None:
        self._batches = _batches(call, plan, ticket)
        self._call, self.hidden = call, hidden

    def __iter__(self) -> _Stream:
        return self

    @tells
    def __next__(self) -> Any:
        return next(self._batches)

    def __del__(self) -> None:
        self._batches.close()
        self._call.close()


def _batches(call: Call, plan: Plan, ticket: Ticket) -> Generator[Any]:
    try:
        for batch in plan.batches(ticket):
            call.goes_on()
            made = call.work(batch.size + plan.held, batch.work)
            call.reserve(made.nbytes + plan.held)
            call.keep_pace(made.nbytes)
            call.sent += made.nbytes
            about = json.dumps({"batch": batch.number, **batch.where}).encode()
            call.waits()
            yield made, about
        call.goes_on()
    except GeneratorExit:
        call.close(call.reason or CancelledError("the client has gone"))
        raise
    except BaseException as error:
        call.close(error)
        raise
    call.close()
