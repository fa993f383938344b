"""``nandarray serve`` and ``nandarray nvme``: a store as a drive, its namespaces, and programs on a drive.

``serve`` prints the address and the command that connects a host, and ends on SIGTERM or SIGINT. Its status is in a
file beside the store while it runs, which ``serve --status`` reads; the file of a server that was killed has the number
of a process that is gone. ``nvme program`` talks to a drive over NVMe/TCP, by itself or through the kernel; so do the
commands of namespaces, where a store is given by its URL.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

import nandarray
from nandarray.array.store import Store
from nandarray.cli import serve_shm
from nandarray.cli.common import DeviceName, Json, StorePath, open_store, parse_size, print_json, say
from nandarray.cli.operate import KillRun, LogForm, LogLevel, MetricsAddress, Operator, Reload, SpansUrl, order
from nandarray.cli.signals import Signals
from nandarray.errors import DoorError, InvalidError, NandarrayError
from nandarray.flight.access import token_of
from nandarray.inputs import read_input
from nandarray.nvme import (
    RemoteProgram,
    RemoteStore,
    Server,
    connect,
    new_secret,
    new_tls_key,
    read_secrets,
    read_tls_keys,
)
from nandarray.nvme.names import check_nqn
from nandarray.units import format_size
from nandarray.urls import is_served, shared_name

__all__ = ["app", "serve"]

app = typer.Typer(help="Namespaces of a store, and programs on a drive (NVMe).", no_args_is_help=True)
program_app = typer.Typer(
    help="Programs on a drive: nvme+tcp://HOST:PORT/NQN, nvme+unix:///PATH or /dev/nvmeX.", no_args_is_help=True
)
app.add_typer(program_app, name="program")

T = TypeVar("T")

Nsid = Annotated[int, typer.Argument(help="The namespace's identifier, from 1 to 1021.", min=1, max=1021)]
Url = Annotated[str, typer.Argument(help="nvme+tcp://HOST:PORT/NQN, nvme+unix:///PATH or /dev/nvmeX", metavar="URL")]
StoreOrUrl = Annotated[
    str,
    typer.Argument(help="The store: a file, or the URL or /dev/nvmeX of a served one.", metavar="STORE"),
]
Index = Annotated[int, typer.Option("--index", min=1, max=64, help="Slot of the program.")]
SecretFile = Annotated[
    Path | None,
    typer.Option("--secret-file", metavar="FILE", help="Lines of a host's NQN, its secret, and the controller's."),
]
TlsFile = Annotated[
    Path | None,
    typer.Option("--tls", metavar="FILE", help="Lines of a host's NQN and its key of TLS, which TCP then needs."),
]


Advertised = Annotated[
    str | None, typer.Option(metavar="ADDRESS[:PORT]", help="Address to tell hosts, of a container's host or a router.")
]
DriveName = Annotated[str | None, typer.Option(metavar="NQN", help="Name of the drive; else one of the file's own.")]
Listen = Annotated[
    list[str] | None,
    typer.Option(metavar="ADDRESS:PORT", help="Address, or unix:PATH; may be repeated.  [default: 127.0.0.1:4420]"),
]
ClientGroup = Annotated[
    str | None, typer.Option(metavar="NAME", help="Group whose members may be clients, by --shm or a unix socket.")
]


Shm = Annotated[
    str | None, typer.Option("--shm", metavar="NAME", help="Serve queue pairs in shared memory under this name.")
]
Rules = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Rules of tenants (TOML); SIGHUP reads them, and secrets, anew.")
]
Hosts = Annotated[list[str] | None, typer.Option(metavar="NQN", help="A host that may connect; may be repeated.")]
Fallback = Annotated[
    list[str] | None, typer.Option(metavar="ADDRESS:PORT", help="Address of a path that hosts use as the last.")
]
Flight = Annotated[
    str | None,
    typer.Option("--flight", metavar="ADDRESS:PORT", help="Serve Arrow Flight there, in place of NVMe/TCP."),
]
FlightCert = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificates for TLS, in PEM (with --flight).")]
FlightKey = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Private key of the certificate, in PEM (with --flight).")
]


#: Options of ``serve`` that only some of its doors have.
_OF_TCP = {
    "listen",
    "fallback",
    "advertise",
    "insecure",
    "read_only",
    "no_nd",
    "host",
    "secret_file",
    "tls",
    "config",
    "device",
    "pace",
    "nqn",
    "new_ids",
    "keep_ids",
}
_OF_FLIGHT = {"flight_cert", "flight_key"}
#: Those of NVMe/TCP that Flight has, too.
_SHARED = {"insecure", "read_only", "secret_file", "config", "device"}
_OF_SHM = {"writable", "queues", "depth", "data", "threads"}
_OF_BOTH = {"shm", "flight", "group", "no_programs", "metrics", "spans", "log", "log_level"}
#: Options that give the running server an order, each by itself.
_ORDERS = {"status", "kill", "reload"}


def _check_options(ctx: typer.Context, *, shm: bool, flight: bool, order: bool) -> None:
    """Refuse options that would be without effect."""
    given = {name for name in _OF_TCP | _OF_SHM | _OF_FLIGHT | _OF_BOTH if _is_given(ctx, name)}
    orders = sorted(name for name in _ORDERS if _is_given(ctx, name))
    if order:
        wrong, why = given | set(orders[1:]), f"--{orders[0]} starts no server"
    elif flight:
        wrong = given & (_OF_TCP - _SHARED | _OF_SHM | {"shm", "group"})
        why = "--flight serves without NVMe/TCP and shared memory"
    elif shm:
        wrong, why = given & (_OF_TCP | _OF_FLIGHT), "--shm serves without NVMe/TCP"
    elif wrong := given & _OF_FLIGHT:
        why = "only a server with --flight has that"
    else:
        wrong, why = given & _OF_SHM, "only a server with --shm has that"
    if wrong:
        options = ", ".join("--" + name.replace("_", "-") for name in sorted(wrong))
        raise typer.BadParameter(f"{options}: {why}")


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _raise_limit() -> dict[str, int]:
    """Raise the limit of open files, of which each connection takes four, as far as this user may."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems have a limit below the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return {"open_files_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0], "open_files_limit_before": before}


def _run(server: Server, store: Store, operator: Operator, signals: Signals, about: dict[str, Any]) -> None:
    """Print a server's addresses, and serve until it is to stop; ``about`` has more for the status, and ``reload``."""
    operator.log.follow(server._native.events)
    for address in server.addresses:
        say(f"address  {address}")
    say(f"NQN      {server.nqn}")
    for url in server.urls:
        say(f"url      {url}")
    if server.connect_line is not None:
        say(f"connect  {server.connect_line}")
    if server.metrics_address is not None:
        say(f"metrics  {server.metrics_address}")
    sys.stdout.flush()
    operator.log.add("ready", address=server.address, nqn=server.nqn, metrics=server.metrics_address)
    reload = about.pop("reload")
    status = {"transport": "tcp", **about}
    operator.run(
        store,
        lambda: {**status, **server.status()},
        signals,
        ready=f"serving {server.url}",
        kill=server.kill,
        reload=reload,
    )


def _serve_drive(
    path: Path,
    listen: list[str] | str,
    operator: Operator,
    *,
    device: str | None,
    secrets: Path | None,
    tls: Path | None,
    how: dict[str, Any],
) -> None:
    """Serve a store as a drive until SIGTERM or SIGINT; ``how`` has options of :func:`nandarray.serve`."""
    about = {**_raise_limit(), "device": device, "paced": how["pace"]}

    def known() -> dict[str, tuple[str, str | None]] | None:
        return None if secrets is None else read_secrets(secrets)

    def keys() -> dict[str, str] | None:
        return None if tls is None else read_tls_keys(tls)

    signals = Signals(rereads=True)
    with signals, operator, open_store(path, "r" if how["read_only"] else "r+", device=device) as opened:
        with nandarray.serve(opened, listen, secrets=known(), tls=keys(), **how) as server:

            def reload() -> str:
                ended = server.reload(hosts=how["hosts"], secrets=known(), config=how["config"], tls=keys())
                return f"rules and secrets are read; connections that have ended: {len(ended)}"

            _run(server, opened, operator, signals, {**about, "reload": reload})
        signals.server_ended()
        if device is not None:
            say(opened.report())


def _serve_flight(store: Path, listen: str, given: Mapping[str, Any], operator: Operator) -> None:
    """Serve a store to Arrow Flight clients, as the options of the command line say."""
    from nandarray.cli.serve_flight import serve_flight  # PyArrow takes time to load

    serve_flight(
        store, listen, operator, device=given["device"], secrets=given["secret_file"],
        certificate=(given["flight_cert"], given["flight_key"]),
        how={
            "insecure": given["insecure"], "read_only": given["read_only"], "programs": not given["no_programs"],
            "config": given["config"], "metrics": given["metrics"],
        },
    )  # fmt: skip


def serve(
    ctx: typer.Context,
    *,
    store: StorePath,
    listen: Listen = None,
    fallback: Fallback = None,
    advertise: Advertised = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Listen on any address; hosts need no secret.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse commands that change the store.")] = False,
    no_programs: Annotated[bool, typer.Option("--no-programs", help="Let hosts run no programs.")] = False,
    nqn: DriveName = None,
    new_ids: Annotated[bool, typer.Option("--new-ids", help="Be another drive than before, with new names.")] = False,
    keep_ids: Annotated[
        bool, typer.Option("--keep-ids", help="Be the drive that the file was before it was moved or restored.")
    ] = False,
    no_nd: Annotated[bool, typer.Option("--no-nd", help="Provide no N-D commands.")] = False,
    host: Hosts = None,
    secret_file: SecretFile = None,
    tls: TlsFile = None,
    config: Rules = None,
    device: DeviceName = None,
    pace: Annotated[
        bool, typer.Option("--pace", help="Send completions when their modelled time has passed (with --device).")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Print the status of the running server as JSON.")] = False,
    shm: Shm = None,
    writable: Annotated[bool, typer.Option(help="Let clients write (with --shm).")] = False,
    queues: Annotated[int, typer.Option(help="Number of queue pairs, one or more a client (with --shm).")] = 16,
    depth: Annotated[int, typer.Option(help="Entries of a ring, a power of two (with --shm).")] = 256,
    data: Annotated[str, typer.Option(metavar="SIZE", help="Data of a queue pair (with --shm).")] = "4MiB",
    threads: Annotated[int, typer.Option(help="Number of threads that serve (with --shm).")] = 1,
    group: ClientGroup = None,
    flight: Flight = None,
    flight_cert: FlightCert = None,
    flight_key: FlightKey = None,
    metrics: MetricsAddress = None,
    spans: SpansUrl = None,
    log: LogForm = "text",
    log_level: LogLevel = "warning",
    kill: KillRun = None,
    reload: Reload = False,
) -> None:
    """Serve a store until SIGTERM or SIGINT: as an NVMe drive, to processes of this machine, or by Arrow Flight."""
    _check_options(ctx, shm=shm is not None, flight=flight is not None, order=status or kill is not None or reload)
    if order(store, status=status, kill=kill, reload=reload):
        return
    if shm is not None:
        sizes = {"queues": queues, "depth": depth, "data_bytes": parse_size(data), "threads": threads}
        with Operator(store, "shm", log=log, level=log_level, spans=spans) as operator:
            serve_shm.serve_shm(
                store, shm, operator, writable=writable, group=group, programs=not no_programs, metrics=metrics, **sizes
            )
        return
    if flight is not None:
        _serve_flight(store, flight, ctx.params, Operator(store, "flight", log=log, level=log_level, spans=spans))
        return
    if new_ids and keep_ids:
        raise typer.BadParameter("--new-ids and --keep-ids: the store has the one or the other")
    if pace and device is None:
        raise typer.BadParameter("--pace: only a described device has modelled time; name one with --device")
    how: dict[str, Any] = {
        "nqn": nqn, "identity": "new" if new_ids else "kept" if keep_ids else "own", "insecure": insecure,
        "read_only": read_only, "programs": not no_programs, "nd": not no_nd, "advertise": advertise,
        "hosts": host or (), "pace": pace, "metrics": metrics, "config": config, "group": group,
        "fallback": fallback or (),
    }  # fmt: skip
    operator = Operator(store, "tcp", log=log, level=log_level, spans=spans)
    _serve_drive(store, listen or "127.0.0.1:4420", operator, device=device, secrets=secret_file, tls=tls, how=how)


def _opened(store: str, mode: str, secret_file: Path | None, tls: Path | None, *, device: str | None = None) -> Any:
    """Open a file, or connect to a store that is served."""
    if is_served(store):
        if device is not None:
            raise DoorError(f"{store}: a store is made for its device where its file is, not with --device {device}")
        mode = "r" if mode == "r" else "r+"
        if shared_name(store) is not None:
            return nandarray.open(store, "r+")
        return _connect(store, secret_file, tls, mode)
    if secret_file is not None:
        raise typer.BadParameter("--secret-file: a file asks for no secret, a served store does")
    if tls is not None:
        raise typer.BadParameter("--tls: a file has no connection, a served store does")
    return open_store(Path(store), mode, device=device)


def _host(store: Any) -> Any:
    return store if isinstance(store, RemoteStore) else store.nvme()


def _check(nsid: int, done: Any) -> None:
    if not done.ok:
        raise NandarrayError(f"namespace {nsid}: {done}")


def _blocks(size: str, lba: int) -> int:
    """Return the logical blocks of a size, which they fill without a rest."""
    blocks, rest = divmod(parse_size(size), lba)
    if rest or not blocks:
        raise InvalidError(f"a size must be one or more whole blocks of {lba} bytes, not {size}")
    return blocks


@app.command()
def create(
    *,
    store: StoreOrUrl,
    nsid: Nsid,
    size: Annotated[str, typer.Argument(help="Bytes, like 64GiB.", metavar="SIZE")],
    lba: Annotated[int, typer.Option(help="Bytes of a logical block.")] = 4096,
    device: DeviceName = None,
    secret_file: SecretFile = None,
    tls: TlsFile = None,
) -> None:
    """Create a block namespace, which reads as zeroes, and the store where there is none."""
    if lba not in (1 << bits for bits in range(9, 17)):
        raise InvalidError(f"a logical block must have a power of two from 512 to 65536 bytes, not {lba}")
    blocks = _blocks(size, lba)
    with _opened(store, "a", secret_file, tls, device=device) as opened:
        _check(nsid, _host(opened).create_namespace(nsid, blocks, lba))


@app.command("list")
def list_command(
    *, store: StoreOrUrl, as_json: Json = False, secret_file: SecretFile = None, tls: TlsFile = None
) -> None:
    """List block namespaces."""
    with _opened(store, "r", secret_file, tls) as opened:
        found = []
        for name in opened.get("ns", ()):
            array = opened[f"ns/{name}"]
            if not name.isdecimal() or array.ndim != 1:
                continue  # an array like any other
            lba = array.dtype.itemsize
            found.append({"nsid": int(name), "blocks": array.shape[0], "lba_bytes": lba, "bytes": array.shape[0] * lba})
    found.sort(key=lambda one: one["nsid"])
    if as_json:
        print_json(found)
        return
    for one in found:
        say(f"{one['nsid']:>6}  {format_size(one['bytes']):>12}  {one['blocks']} x {one['lba_bytes']}")


@app.command()
def resize(
    *,
    store: StoreOrUrl,
    nsid: Nsid,
    size: Annotated[str, typer.Argument(help="Bytes.", metavar="SIZE")],
    secret_file: SecretFile = None,
    tls: TlsFile = None,
) -> None:
    """Give a block namespace another size; its first blocks stay."""
    with _opened(store, "r+", secret_file, tls) as opened:
        array = opened[f"ns/{nsid}"]
        array.resize((_blocks(size, array.dtype.itemsize),))


@app.command()
def delete(*, store: StoreOrUrl, nsid: Nsid, secret_file: SecretFile = None, tls: TlsFile = None) -> None:
    """Delete a block namespace and its data."""
    with _opened(store, "r+", secret_file, tls) as opened:
        _check(nsid, _host(opened).delete_namespace(nsid))


@app.command()
def secret(
    nqn: Annotated[str | None, typer.Argument(help="A host's NQN, for a whole line of a file of secrets.")] = None,
    *,
    hash: Annotated[str, typer.Option(help="none, sha256, sha384 or sha512.")] = "sha256",
) -> None:
    """Print a new random secret, by which a host proves its identity."""
    if nqn is not None:
        check_nqn(nqn, "the host")
    made = new_secret(hash)  # type: ignore[arg-type]  # another word is an error of its own
    say(made if nqn is None else f"{nqn} {made}")


@app.command()
def token(
    file: Annotated[Path, typer.Argument(help="A file of secrets.", metavar="FILE")],
) -> None:
    """Print the bearer tokens of hosts for Arrow Flight, which their secrets make."""
    for host, (own, _) in read_secrets(file).items():
        say(f"{host} {token_of(host, own)}")


@app.command("tls-key")
def tls_key(
    nqn: Annotated[str | None, typer.Argument(help="A host's NQN, for a whole line of a file of keys.")] = None,
    *,
    hash: Annotated[str, typer.Option(help="sha256 or sha384: that of the cipher suite.")] = "sha256",
) -> None:
    """Print a new random key of TLS, which a host and the drive have."""
    if nqn is not None:
        check_nqn(nqn, "the host")
    made = new_tls_key(hash)  # type: ignore[arg-type]  # another word is an error of its own
    say(made if nqn is None else f"{nqn} {made}")


def _connect(url: str, secret_file: Path | None, tls: Path | None, mode: Any = "r+") -> RemoteStore:
    """Connect to a drive as the host that a file of secrets, or one of keys, has."""
    host: str | None = None
    pair: tuple[str | None, str | None] = (None, None)
    key: str | None = None
    if secret_file is not None:
        host, pair = _own(read_secrets(secret_file), secret_file, "secrets")
    if tls is not None:
        named, key = _own(read_tls_keys(tls), tls, "keys")
        if host is not None and named != host and not (host.endswith("*") and named.startswith(host[:-1])):
            raise InvalidError(f"{tls} has the key of {named}, and {secret_file} the secret of {host}")
        host = named
    if host is not None and host.endswith("*"):  # a token, for any name that begins so
        host = f"{host[:-1]}{uuid.uuid4()}"
    return connect(url, hostnqn=host, secret=pair[0], controller_secret=pair[1], mode=mode, tls=key)


def _own(found: Mapping[str, T], file: Path, what: str) -> tuple[str, T]:
    """Return the name of this host and what a file has for it."""
    if len(found) != 1:
        raise InvalidError(f"{file} has {what} of {len(found)} hosts; this one needs its own alone")
    ((host, given),) = found.items()
    return host, given


@program_app.command("load")
def program_load(
    *,
    url: Url,
    file: Annotated[Path, typer.Argument(help="An ELF of the program ABI.")],
    index: Index = 1,
    secret_file: SecretFile = None,
    tls: TlsFile = None,
) -> None:
    """Load a program into a slot, in parts, and activate it."""
    with _connect(url, secret_file, tls) as remote:
        remote.load(read_input(file), index=index)


@program_app.command("activate")
def program_activate(*, url: Url, index: Index = 1, secret_file: SecretFile = None, tls: TlsFile = None) -> None:
    """Activate a loaded program."""
    with _connect(url, secret_file, tls) as remote:
        RemoteProgram(remote, index).activate()


@program_app.command("execute")
def program_execute(
    *,
    url: Url,
    inputs: Annotated[list[str], typer.Argument(help="Arrays of the drive, or @FILE for bytes of a file.")],
    index: Index = 1,
    scalar: Annotated[list[int] | None, typer.Option(help="Bit pattern of a scalar; may be repeated.")] = None,
    outputs: Annotated[int, typer.Option(help="Outputs of the program.")] = 1,
    secret_file: SecretFile = None,
    tls: TlsFile = None,
    room: Annotated[str, typer.Option(metavar="SIZE", help="Room for each output.")] = "1MiB",
) -> None:
    """Run a program beside the data and write its outputs to standard output."""
    with _connect(url, secret_file, tls) as remote:
        given = [read_input(one[1:]) if one.startswith("@") else remote[one] for one in inputs]
        program = RemoteProgram(remote, index)
        for output in program.execute(*given, scalars=scalar or (), room=parse_size(room), outputs=outputs):
            sys.stdout.buffer.write(output)
