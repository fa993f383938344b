"""A store as an NVMe/TCP drive: :func:`serve`.

The native module has the server with its threads; this file starts and ends it.
"""

from __future__ import annotations

import ipaddress
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

from nandarray import _nandarray
from nandarray.errors import InvalidError, NandarrayError, NotFoundError
from nandarray.nvme.names import check_nqn
from nandarray.serving.endpoint import MetricsEndpoint
from nandarray.serving.metrics import exposition, observe

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
        advertised: tuple[str, int | None] | None = None,
        store: Store | None = None,
        metrics: str | None = None,
    ) -> None:
        self._native = native
        self._authenticates = authenticates
        self._advertised = advertised
        self._store = store
        self._started, self._since = time.time(), time.monotonic()
        self._endpoint = None if metrics is None else MetricsEndpoint(metrics, self._exposition)

    @property
    def address(self) -> str:
        """Address and port that it listens on."""
        return self._native.address

    @property
    def nqn(self) -> str:
        """Qualified name of the subsystem."""
        return self._native.nqn

    def _reached(self) -> tuple[str, str]:
        """Return the address and the port by which hosts reach it."""
        address, _, port = self.address.rpartition(":")
        address = address.strip("[]")
        if self._advertised is not None:
            address, other = self._advertised
            port = port if other is None else str(other)
        elif ipaddress.ip_address(address).is_unspecified:
            address = _own_address(ipaddress.ip_address(address).version)
        return address, port

    @property
    def url(self) -> str:
        """The text that :func:`nandarray.open` connects with, with an address by which hosts reach the server."""
        address, port = self._reached()
        return f"nvme+tcp://{f'[{address}]' if ':' in address else address}:{port}/{self.nqn}"

    @property
    def connect_line(self) -> str:
        """The command that connects the kernel of a Linux host."""
        address, port = self._reached()
        line = f"nvme connect -t tcp -a {address} -s {port} -n {self.nqn}"
        return line + " -q HOSTNQN --dhchap-secret SECRET" if self._authenticates else line

    def status(self) -> dict[str, Any]:
        """Describe the server.

        Returns
        -------
        dict
            ``address``, ``nqn``, ``connections``; ``half_open``, those of them that are not yet a queue of a host that
            has proved its identity, where it has to; ``associations`` (controller, host, I/O queues) of all other
            hosts; and numbers since the start: ``refused_logins`` (unknown hosts, wrong secrets), ``unfinished_logins``
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
    listen: str = "127.0.0.1:0",
    *,
    nqn: str | None = None,
    identity: Identity = "own",
    insecure: bool = False,
    read_only: bool = False,
    programs: bool = True,
    hosts: Sequence[str] | str = (),
    secrets: Mapping[str, str | tuple[str, str | None]] | None = None,
    kill_safe: bool = True,
    pace: bool = False,
    nd: bool = True,
    advertise: str | None = None,
    metrics: str | None = None,
) -> Server:
    """Serve a store as an NVMe/TCP drive.

    Parameters
    ----------
    store : Store
        The store. Its arrays ``ns/N`` are block namespaces; all arrays are reached by N-D commands.
    listen : str
        Address and port; port 0 takes a free one.
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
    metrics : str, optional
        Address of ``/metrics`` in Prometheus' text form: ``HOST:PORT`` of loopback, or the path of a socket, which has
        mode 0600. Without, there are none.

    Returns
    -------
    Server
        The running server.

    Raises
    ------
    InvalidError
        The address, or that of ``metrics``, cannot be listened on; the address needs ``secrets`` or ``insecure``;
        ``pace`` without a described device; a text that is no secret, or no qualified name, or no address; no identity
        to keep.
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
    if secrets is not None and not secrets:
        raise InvalidError("secrets is empty: no host could connect; None is for a server without authentication")
    pairs = {check_nqn(host, "a host"): _pair(host, given) for host, given in (secrets or {}).items()}
    known = [check_nqn(host, "a host") for host in ([hosts] if isinstance(hosts, str) else hosts)]
    if nqn is not None:
        check_nqn(nqn, "the subsystem")
    before = store._engine.choose_identity(identity)
    if before is not None:
        warnings.warn(
            f"{store.path} is another file than drive {UUID(bytes=before)} was served from: a copy, restored, or moved "
            "to another file system. It is another drive now; --keep-ids (identity='kept') makes it the same one",
            UserWarning,
            stacklevel=2,
        )
    advertised = None if advertise is None else _parse_advertised(advertise)
    native = _nandarray.NvmeServer.start(
        store._engine, listen, nqn=nqn, insecure=insecure, read_only=read_only, programs=programs,
        hosts=known, secrets=pairs, kill_safe=kill_safe and not pace, pace=pace, nd=nd, advertise=advertised,
    )  # fmt: skip
    try:
        return Server(native, authenticates=bool(pairs), advertised=advertised, store=store, metrics=metrics)
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


def _pair(host: str, given: Any) -> tuple[str, str | None]:
    """Return a host's secret and the controller's secret for it."""
    if isinstance(given, str):
        return given, None
    if isinstance(given, tuple | list) and len(given) == 2:
        own, controller = given
        if isinstance(own, str) and isinstance(controller, str | None):
            return own, controller
    raise InvalidError(
        f"secrets of {host}: a text, or a pair of the host's and the controller's; not {type(given).__name__}"
        + (f" of {len(given)}" if isinstance(given, tuple | list) else "")
    )
