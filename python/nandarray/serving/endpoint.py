"""``/metrics`` over HTTP on a loopback port or a socket of mode 0600, as Prometheus asks for it.

Each connection gets one answer. A request from a browser's page that names another host is refused: a page of a foreign
site may have its name point to loopback. The text is kept for a tenth of a second, so that clients that ask all the
time cost little.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from nandarray.serving.answers import LocalServer, listen

__all__ = ["MetricsEndpoint"]

#: Time for which a text is given again.
_FRESH_SECONDS = 0.1
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class MetricsEndpoint:
    """A thread that answers ``GET /metrics`` with the text that a function makes, until :meth:`stop`."""

    def __init__(self, address: str, text: Callable[[], str]) -> None:
        self._text, self._kept = text, (b"", float("-inf"))
        listener, path = listen(address, "metrics")
        self._local = path is not None
        self._server = LocalServer(listener, path, is_whole=lambda request: b"\r\n\r\n" in request, answer=self._answer)

    @property
    def address(self) -> str:
        """``HOST:PORT``, or the path of the socket."""
        return self._server.address

    def stop(self) -> None:
        """End it."""
        self._server.stop()

    def _answer(self, request: bytes) -> bytes:
        head, _, _ = request.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        target = rest.partition(" ")[0].partition("?")[0]
        if not rest.rpartition(" ")[2].startswith("HTTP/1."):
            return _response("400 Bad Request", b"the request must be one of HTTP/1.1\n")
        if not self._local and not _names_loopback(lines):
            return _response("403 Forbidden", b"the host of the request must be loopback\n")
        if method not in {"GET", "HEAD"}:
            return _response("405 Method Not Allowed", b"the method must be GET\n", "Allow: GET, HEAD\r\n")
        if target != "/metrics":
            return _response("404 Not Found", b"the path must be /metrics\n")
        try:
            body = self._fresh()
        except Exception as error:  # the server is being stopped, or its store was closed
            return _response("503 Service Unavailable", f"{type(error).__name__}\n".encode())
        return _response("200 OK", body, body_left_out=method == "HEAD")

    def _fresh(self) -> bytes:
        body, at = self._kept
        if time.monotonic() - at > _FRESH_SECONDS:
            body = self._text().encode()
            self._kept = body, time.monotonic()
        return body


def _names_loopback(lines: list[str]) -> bool:
    """Whether the host of a request is loopback, or not named."""
    hosts = [line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip().lower() == "host"]
    return all(map(_is_loopback, hosts))


def _is_loopback(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _response(status: str, body: bytes, more: str = "", *, body_left_out: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {_TEXT}\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\nX-Content-Type-Options: nosniff\r\n{more}\r\n"
    )
    return head.encode() + (b"" if body_left_out else body)
