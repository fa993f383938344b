"""A store as an NVMe drive over TCP and unix sockets: :func:`serve`.

The native module has the server with its threads; this file starts and ends it.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

from nandarray import _nandarray
from nandarray.door import engine_of, group_number, native_only
from nandarray.errors import InvalidError, NandarrayError, NotFoundError
from nandarray.nvme.admission import Admission, Secrets
from nandarray.nvme.names import check_nqn
from nandarray.nvme.places import is_unix, places, unix_url
from nandarray.serving.endpoint import MetricsEndpoint
from nandarray.serving.metrics import exposition, observe
from nandarray.urls import TCP, TLS

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["Server", "serve"]

Identity: TypeAlias = Literal["own", "kept", "new"]


class Server:
    """A running server. What :func:`serve` gives; a context manager, which stops it.

    Stop it before the store is closed: hosts see errors otherwise.
    """

    def __init__(
        self,
        native: _nandarray.NvmeServer,
        *,
        authenticates: bool = False,
        tls: bool = False,
        advertised: tuple[str, int | None] | None = None,
        insecure: bool = False,
        store: Store | None = None,
        metrics: str | None = None,
    ) -> None:
        self._native = native
        self._authenticates, self._tls = authenticates, tls
        self._advertised = advertised
        self._insecure = insecure
        self._store = store
        self._started, self._since = time.time(), time.monotonic()
        self._endpoint = None if metrics is None else MetricsEndpoint(metrics, self._exposition)

    @property
    def address(self) -> str:
        """Address and port that it listens on, or ``unix:PATH``: the first of its places."""
        return self._native.addresses[0]

    @property
    def addresses(self) -> list[str]:
        """All places where it listens, ``ADDRESS:PORT`` or ``unix:PATH``."""
        return self._native.addresses

    @property
    def nqn(self) -> str:
        """Qualified name of the subsystem."""
        return self._native.nqn

    def _reached(self, place: str) -> tuple[str, str]:
        """Return the address and the port by which hosts reach a place that is no unix socket."""
        address, _, port = place.rpartition(":")
        address = address.strip("[]")
        if self._advertised is not None:
            address, other = self._advertised
            port = port if other is None else str(other)
        elif ipaddress.ip_address(address).is_unspecified:
            address = _own_address(ipaddress.ip_address(address).version)
        return address, port

    @property
    def url(self) -> str:
        """The text that :func:`nandarray.open` connects with, with an address by which hosts reach the server.

        That of the first of its places.
        """
        return self.urls[0]

    @property
    def urls(self) -> list[str]:
        """Texts for :func:`nandarray.open`, one for each place where it listens."""
        return [unix_url(one, self.nqn) if is_unix(one) else self._tcp_url(one) for one in self.addresses]

    def _tcp_url(self, place: str) -> str:
        address, port = self._reached(place)
        return f"{TLS if self._tls else TCP}{f'[{address}]' if ':' in address else address}:{port}/{self.nqn}"

    @property
    def connect_line(self) -> str | None:
        """The command that connects the kernel of a Linux host; None if it listens on unix sockets alone."""
        place = next((one for one in self.addresses if not is_unix(one)), None)
        if place is None:
            return None
        address, port = self._reached(place)
        line = f"nvme connect -t tcp -a {address} -s {port} -n {self.nqn}"
        if self._authenticates or self._tls:
            line += " -q HOSTNQN"
        return line + " --dhchap-secret SECRET" * self._authenticates + " --tls" * self._tls

    def status(self) -> dict[str, Any]:
        """Describe the server.

        Returns
        -------
        dict
            ``address``, ``addresses``, ``nqn``, ``connections``; ``half_open``, those of them that are not yet a queue
            of a host that has proved its identity, where it has to; ``associations`` (controller, host, I/O queues) of
            all other hosts; ``peers`` (controller, user, process) of those that came by a unix socket; ``memory_bytes``
            that hosts have made grow, and ``memory_limit_bytes``; ``tenants`` (name, and the same two of each); and
            numbers since the start: ``refused_logins`` (unknown hosts, wrong secrets), ``unfinished_logins``
            (connections that ended before that), ``reads``, ``writes``, ``bytes_read``, ``bytes_written``, ``failed``.
            ``running`` has a dictionary for each run of programs: its number ``id``, which no other run of this server
            has, ``host``, ``controller``, ``programs``, ``since`` (seconds since 1970), ``seconds``, ``cpu_seconds``,
            ``instructions`` of the tasks that are done, ``tasks_done`` of ``tasks`` (those that are known so far),
            ``bytes_in``, ``memory_bytes`` of its cores, ``stopping``. ``in_flight`` counts commands by tenant,
            ``workers`` those that wait, by the kind of workers; ``pace`` has late completions of a paced drive.
            ``started`` is in seconds since 1970, ``uptime_seconds`` the time since then.
        """
        uptime = time.monotonic() - self._since
        return {**self._native.status(), "started": self._started, "uptime_seconds": uptime}

    @property
    def metrics_address(self) -> str | None:
        """Address of ``/metrics``: ``HOST:PORT``, or the path of a socket; None where it is not served."""
        return None if self._endpoint is None else self._endpoint.address

    def kill(self, run: int) -> None:
        """Stop a run of programs: it ends with an error, and writes nothing unless it is writing already.

        Parameters
        ----------
        run : int
            Number of the run, its ``id`` in the status.

        Raises
        ------
        NotFoundError
            No run of this number is there (any more).
        """
        if not 0 < run < 1 << 64 or not self._native.kill(run):
            raise NotFoundError(f"no run {run} is running")

    def _exposition(self) -> str:
        """Return all metrics in Prometheus' text form."""
        try:
            store = {} if self._store is None else self._store._engine.stat()
        except NandarrayError:  # it was closed, or a command of it failed: the server's own numbers are there
            store = {}
        seen = observe(self._native.status(), started=self._started, transport="tcp", store=store)
        return exposition({**seen, **self._native.operations()})

    def reload(
        self,
        *,
        hosts: Sequence[str] | str = (),
        secrets: Secrets | None = None,
        config: str | os.PathLike[str] | None = None,
        tls: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Replace hosts, secrets, keys and rules of tenants, which :func:`serve` took; what is wrong changes nothing.

        Limits and arrays of a tenant change for the next command of its hosts. The connections of a host that may not
        connect any more, that has another secret or key, or that belongs to another tenant end.

        Parameters
        ----------
        hosts, secrets, config, tls
            As for :func:`serve`: those left out are none.

        Returns
        -------
        list of str
            Names of the hosts whose connections have ended.

        Raises
        ------
        InvalidError
            As :func:`serve`.
        """
        unix = any(map(is_unix, self.addresses))
        made = Admission.of(hosts, secrets, config, tls, insecure=self._insecure, unix=unix)
        if bool(made.secrets) != self._authenticates:
            raise InvalidError("a running server must keep its secrets, or stay without: start it anew")
        if bool(made.tls) != self._tls:
            raise InvalidError("a running server must keep its keys of TLS, or stay without: start it anew")
        return self._native.reload(hosts=made.hosts, secrets=made.secrets, rules=made.rules, tls=made.tls)

    def stop(self) -> None:
        """End all connections, and the server. Commands that have begun are executed."""
        if self._endpoint is not None:
            self._endpoint.stop()
        self._native.stop()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<nandarray.nvme.Server {self.url}>"


def serve(
    store: Store,
    listen: str | Sequence[str] = "127.0.0.1:0",
    *,
    nqn: str | None = None,
    identity: Identity = "own",
    insecure: bool = False,
    read_only: bool = False,
    programs: bool = True,
    hosts: Sequence[str] | str = (),
    secrets: Secrets | None = None,
    config: str | os.PathLike[str] | None = None,
    kill_safe: bool = True,
    pace: bool = False,
    nd: bool = True,
    advertise: str | None = None,
    group: str | int | None = None,
    metrics: str | None = None,
    tls: Mapping[str, str] | None = None,
    fallback: Sequence[str] | str = (),
) -> Server:
    """Serve a store as an NVMe drive, over TCP or a unix socket or several of them.

    Parameters
    ----------
    store : Store
        The open store. Its arrays ``ns/N`` are block namespaces; all arrays are reached by N-D commands.
    listen : str or sequence of str
        Address and port; port 0 takes a free one. Or ``unix:PATH``, a unix socket for processes of this machine whose
        user is this one or root. Or several of these.
    nqn : str, optional
        Qualified name of the subsystem; made of the identity by default.
    identity : {"own", "kept", "new"}
        The drive that the store is, from which the names of the subsystem and its namespaces and its serial number are
        made. "own": that of the file, which no copy of it has. "kept": that which the file had before it was moved to
        another file system, or restored from a backup. "new": another one from now on.
    insecure : bool
        Listen on an address that is not loopback, although hosts may connect without authentication.
    read_only : bool
        Refuse commands that change the store.
    programs : bool
        Whether hosts may load and run programs.
    hosts : sequence of str, or str
        Qualified names of the hosts that may connect, or one such name. Without these and without secrets, all hosts
        may.
    secrets : mapping, optional
        Secrets by the qualified names of hosts (:func:`nandarray.nvme.new_secret`): these hosts may connect once they
        have proved that they know theirs. A pair holds the host's secret, and the controller's, by which a host may
        have the server prove its identity.
    config : path_like, optional
        Rules of tenants: a TOML file that says which hosts belong together, which arrays they may read and write,
        whether they may run programs, and their limits (docs/reference/tenants.md). No other host may connect then.
        Without, each host is a tenant of its own, which may use everything.
    kill_safe : bool
        A completed write survives the end of this process. Without, a flush of the host does that.
    pace : bool
        Pacing of a store on a described device: completions leave when their modelled time has passed on the wall
        clock. Completed writes are those of the described drive, which holds them in its memory until a flush
        (``kill_safe`` is without effect).
    nd : bool
        Whether there are N-D commands, by which hosts reach arrays. Without these and without ``programs`` the drive
        has block namespaces alone.
    advertise : str, optional
        IP address, or address and port, that the discovery service, ``url`` and ``connect_line`` name instead of the
        server's own: those of a container's host, or of a translating router.
    group : str or int, optional
        Group of this machine whose members may connect by unix sockets, too.
    metrics : str, optional
        Address of ``/metrics`` in Prometheus' text form: ``HOST:PORT`` of loopback, or the path of a socket, which has
        mode 0600. Without, there are none.
    tls : mapping, optional
        Keys of TLS by the qualified names of hosts (:func:`nandarray.nvme.new_tls_key`): these hosts may connect, and
        by TCP with TLS 1.3 alone, which proves that they know their key. ``secrets`` may be required besides. Unix
        sockets have no TLS.
    fallback : sequence of str, or str
        Further addresses to listen on, which a host with several paths uses while it has no other (ANA:
        non-optimized). Those of ``listen`` are used in turn.

    Returns
    -------
    Server
        The running server.

    Raises
    ------
    InvalidError
        The address, or that of ``metrics``, cannot be listened on; the address needs ``secrets`` or ``insecure``; the
        path of a unix socket that another server has, or a file that is not the socket of a server that has ended;
        ``pace`` without a described device; a text that is no secret, or no qualified name, or no address; no identity
        to keep; a group that there is not, or one without a unix socket; rules that are wrong, with their lines; a host
        of a tenant without a secret and a key, or without a secret where it may come by a unix socket, or one of no
        tenant; a host without a key beside ``tls``.
    DoorError
        The store is behind a door itself.
    ReadOnlyError
        ``identity="new"`` of a store that is open for reading.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["a"] = [1, 2, 3]
    >>> with nandarray.serve(store) as server, nandarray.open(server.url) as remote:
    ...     remote["a"][1:]
    array([2, 3])
    """
    engine = native_only(engine_of(store), "way to be served again")
    first = places(listen)
    admission = Admission.of(hosts, secrets, config, tls, insecure=insecure, unix=any(map(is_unix, first)))
    if nqn is not None:
        check_nqn(nqn, "the subsystem")
    second = places(fallback) if fallback else []
    if wrong := [place for place in second if is_unix(place)]:
        raise InvalidError(f"fallback must have addresses, HOST:PORT, and not {wrong[0]}: a unix socket is one path")
    listening = first + second
    if group is not None and not any(map(is_unix, listening)):
        raise InvalidError(f"group {group!r} is for unix sockets; the server would listen on {', '.join(listening)}")
    if advertise is not None and all(map(is_unix, listening)):
        raise InvalidError(f"advertise is {advertise!r}, and the server would listen on unix sockets alone")
    access = (None, None if group is None else group_number(group), False)
    before = engine.choose_identity(identity)
    if before is not None:
        warnings.warn(
            f"{store.path} is another file than drive {UUID(bytes=before)} was served from: a copy, restored, or moved "
            "to another file system. It is another drive now; --keep-ids (identity='kept') makes it the same one",
            UserWarning,
            stacklevel=2,
        )
    advertised = None if advertise is None else _parse_advertised(advertise)
    native = _nandarray.NvmeServer.start(
        engine, listening, nqn=nqn, insecure=insecure, read_only=read_only, programs=programs,
        hosts=admission.hosts, secrets=admission.secrets, rules=admission.rules, nd=nd, advertise=advertised,
        kill_safe=kill_safe and not pace, pace=pace,
        access=access, tls=admission.tls, fallback=list(range(len(first), len(listening))),
    )  # fmt: skip
    try:
        return Server(
            native, authenticates=bool(admission.secrets), tls=bool(admission.tls), advertised=advertised,
            insecure=insecure, store=store, metrics=metrics,
        )  # fmt: skip
    except BaseException:
        native.stop()
        raise


def _parse_advertised(text: str) -> tuple[str, int | None]:
    """Return the address and the port, if there is one, of ``ADDRESS``, ``ADDRESS:PORT`` or ``[ADDRESS]:PORT``."""
    address, port = text, ""
    if text.startswith("[") or text.count(":") == 1:
        address, _, port = text.rpartition(":")
        address = address.removeprefix("[").removesuffix("]")
        if not (port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise InvalidError(f"advertise is {text!r}: its port must be a number from 1 to 65535")
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        raise InvalidError(f"advertise is {text!r}: must be an IP address, or one with a port") from None
    if found.is_unspecified:
        raise InvalidError(f"advertise is {text!r}: hosts cannot reach {found}")
    return str(found), int(port) if port else None


def _own_address(version: int) -> str:
    """Return an address by which others reach this machine where it listens on all: that of the default route.

    Without a route it is that of loopback. A socket of IPv6 takes hosts of IPv4, too.
    """
    # Documentation's addresses (RFC 5737, RFC 3849): to connect a datagram socket chooses a route, and sends nothing.
    routes = {6: (socket.AF_INET6, "2001:db8::1"), 4: (socket.AF_INET, "192.0.2.1")}
    for number in (6, 4) if version == 6 else (4,):
        family, other = routes[number]
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as one:
                one.connect((other, 9))
                return str(one.getsockname()[0])
        except OSError:
            continue
    return "::1" if version == 6 else "127.0.0.1"
