"""A server of small answers to processes of this machine, which none of them can fill, slow down or stop.

One thread holds all connections; each may send one request of limited size and gets one answer, and has a limited time
for both together. One connection more than the limit ends the oldest. Addresses are those of loopback, or sockets in
the file system of mode 0600, whose clients have to be of this user, or root. The meaning of a request is its owner's.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import selectors
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nandarray.errors import InvalidError

__all__ = ["LocalServer", "ask", "bind_path", "listen"]

#: Most connections at once.
CONNECTIONS_MAX = 16
#: Most bytes of a request.
REQUEST_BYTES_MAX = 8192
#: Time from the beginning of a connection to its end.
SECONDS_MAX = 5.0
#: Most bytes of a name in a folder, so that it fits an address behind the number of a descriptor.
_NAME_BYTES_MAX = 80


def bind_path(path: Path) -> socket.socket:
    """Return a listening socket at a path, of mode 0600 from the beginning.

    The socket of a server that has ended is replaced if it is this user's; anything else that is there stays.

    Raises
    ------
    InvalidError
        Something else is there, or a server that runs.
    OSError
        The system refuses it.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        os.fchmod(listener.fileno(), 0o600)  # of the file that bind makes, on Linux
        with _short(path) as short:
            try:
                listener.bind(short)
            except OSError:
                _remove_ended(path, short)
                listener.bind(short)
            mode = stat.S_IMODE(os.lstat(short).st_mode)
            if mode & 0o077:
                os.unlink(short)
                raise InvalidError(f"{path}: a socket of this file system has mode {mode:o}; it must be 600")
        listener.listen(CONNECTIONS_MAX)
        listener.settimeout(0)
    except BaseException:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def _short(path: Path):  # type: ignore[no-untyped-def]  # noqa: ANN202 - a context of a path
    """Give a name of the path that fits a socket's address, which has 108 bytes: by its folder's descriptor."""
    if len(os.fsencode(path.name)) > _NAME_BYTES_MAX:
        raise OSError(f"{path.name!r} must have at most {_NAME_BYTES_MAX} bytes, to be the name of a socket")
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _remove_ended(path: Path, short: str) -> None:
    """Remove the socket of a server of this user that has ended.

    Raises
    ------
    InvalidError
        It is anything else.
    """
    found = os.lstat(short)
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise InvalidError(f"{path} is there, and is no socket of this user's")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(SECONDS_MAX)
        try:
            probe.connect(short)
        except ConnectionRefusedError:
            os.unlink(short)
            return
    raise InvalidError(f"{path}: another server listens there")


def listen(address: str, what: str) -> tuple[socket.socket, Path | None]:
    """Return a listening socket at ``HOST:PORT`` of loopback, or at a path; the latter's path, too.

    Raises
    ------
    InvalidError
        The address is no such one, or is taken.
    """
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address:
        path = Path(address)
        if not address or "/" not in address:
            raise InvalidError(
                f"{what} is {address!r}: must be HOST:PORT of loopback, or the path of a socket with a /"
            )
        try:
            return bind_path(path), path
        except OSError as error:
            raise InvalidError(f"{what} is {address!r}: cannot listen: {error.strerror or error}") from error
    try:
        found = ipaddress.ip_address({"localhost": "127.0.0.1"}.get(host, host.strip("[]")))
    except ValueError:
        raise InvalidError(f"{what} is {address!r}: {host!r} must be an IP address of loopback") from None
    if not found.is_loopback:
        raise InvalidError(f"{what} is {address!r}: {found} must be an address of loopback")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise InvalidError(f"{what} is {address!r}: the port must be a number from 0 to 65535")
    family = socket.AF_INET6 if found.version == 6 else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(found), int(port)))
        listener.listen(CONNECTIONS_MAX)
        listener.settimeout(0)
    except OSError as error:
        listener.close()
        raise InvalidError(f"{what} is {address!r}: cannot listen: {error.strerror or error}") from error
    return listener, None


def _peer_uid(connection: socket.socket) -> int:
    """Return the user of a connection's other end (unix(7), SO_PEERCRED)."""
    size = struct.calcsize("iII")
    _, uid, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(uid)


def ask(path: Path, request: bytes, *, users: set[int]) -> bytes:
    """Send a request to the socket at a path, whose server must be of one of some users; return the answer.

    Raises
    ------
    OSError
        There is no such server, or it does not answer in time.
    """
    until = time.monotonic() + 2 * SECONDS_MAX
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(SECONDS_MAX)
        with _short(path) as short:
            connection.connect(short)
        if (user := _peer_uid(connection)) not in users:
            raise PermissionError(f"{path} is the socket of user {user}'s server")
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        parts: list[bytes] = []
        while part := connection.recv(1 << 16):
            parts.append(part)
            if time.monotonic() > until:
                raise TimeoutError(f"the server at {path} takes too long to answer")
        return b"".join(parts)


@dataclass(eq=False)
class _Connection:
    """A connection: it sends its request until ``rest`` is there, which is then what is left of the answer."""

    socket: socket.socket
    until: float
    request: bytes = b""
    rest: memoryview | None = None


class LocalServer:
    """A thread that answers requests on a listening socket until :meth:`stop`.

    Parameters
    ----------
    listener : socket
        Listening socket, without blocking; this object closes it.
    path : Path, optional
        The path of the socket, which is removed at the end.
    is_whole : callable
        Whether some bytes are a whole request. The end of what a client sends ends its request, too.
    answer : callable
        The answer to a request. It must not raise.
    """

    def __init__(
        self,
        listener: socket.socket,
        path: Path | None,
        *,
        is_whole: Callable[[bytes], bool],
        answer: Callable[[bytes], bytes],
    ) -> None:
        self._listener, self._path = listener, path
        self._is_whole, self._answer = is_whole, answer
        self._process = os.getpid()
        self._file = None if path is None else _identity(path)
        self._open: dict[_Connection, None] = {}  # the oldest first
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="nandarray-answers", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Address that it listens on: ``HOST:PORT``, or a path."""
        if self._path is not None:
            return str(self._path)
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _run(self) -> None:
        while True:
            first = next(iter(self._open), None)
            left = None if first is None else max(0.0, first.until - time.monotonic())
            for key, _ in self._selector.select(left):
                if key.fd == self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif key.data in self._open:  # it may have been ended for a new one
                    self._go_on(key.data)
            now = time.monotonic()
            for connection in [one for one in self._open if one.until <= now]:
                self._end(connection)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            # It has gone, or no descriptors are left, which would come back at once.
            time.sleep(0.01)
            return
        accepted.settimeout(0)
        if self._path is not None and _peer_uid(accepted) not in {0, os.geteuid()}:
            accepted.close()
            return
        if len(self._open) >= CONNECTIONS_MAX:
            self._end(next(iter(self._open)))
        connection = _Connection(accepted, time.monotonic() + SECONDS_MAX)
        self._open[connection] = None
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _go_on(self, connection: _Connection) -> None:
        """Receive a part of a request, or send a part of an answer."""
        try:
            if connection.rest is None:
                part = connection.socket.recv(REQUEST_BYTES_MAX)
                connection.request += part
                if len(connection.request) > REQUEST_BYTES_MAX:
                    self._end(connection)
                    return
                if part and not self._is_whole(connection.request):
                    return
                connection.rest = memoryview(self._answer(connection.request))
                self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
            connection.rest = connection.rest[connection.socket.send(connection.rest) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end(connection)
            return
        if not connection.rest:
            self._end(connection)

    def _end(self, connection: _Connection) -> None:
        self._open.pop(connection, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        with contextlib.suppress(OSError):  # without it, bytes that were not read would reset what was sent
            connection.socket.shutdown(socket.SHUT_WR)
        connection.socket.close()

    def stop(self) -> None:
        """End all connections and the thread, and remove the socket; more than once without effect."""
        if self._process != os.getpid() or self._wake < 0:
            return  # a process forked from the server's has copies of its sockets, and leaves them alone
        wake, self._wake = self._wake, -1
        os.write(wake, b"1")
        self._thread.join()
        for connection in list(self._open):
            self._end(connection)
        self._selector.close()
        self._listener.close()
        os.close(wake)
        os.close(self._woken)
        if self._path is not None and self._file is not None and _identity(self._path) == self._file:
            with contextlib.suppress(OSError):
                self._path.unlink()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells the file at a path from any other; None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
