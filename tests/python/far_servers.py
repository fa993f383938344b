"""Servers of objects for tests: a range server with a set round trip and rate, and faults by number; S3 by moto.

:class:`RangeServer` serves the files of a folder by HTTP/1.1 with ranges, etags and ``If-Match``. The rate is that of
the whole link. A fault is chosen for each request by a function of the test.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

#: Faults that a request may meet: the connection ends at once, in mid-body; an error of the server; another etag.
FAULTS = ("drop", "short", "500", "503", "etag")


class RangeServer:
    """Serves a folder; ``url`` is its address.

    Parameters
    ----------
    folder : Path
        The files, by their names.
    latency_s : float
        Time before the answer to each request begins.
    rate : float
        Bytes in a second that the link carries, all connections together; 0 for as many as can be.
    etags : {"strong", "weak", "none"}
        Kind of the etags; a condition never holds of a weak one.
    fault : callable, optional
        Called with the number of the request, from 0, and its path; returns one of ``FAULTS``, or None.
    """

    def __init__(
        self,
        folder: Path,
        *,
        latency_s: float = 0.0,
        rate: float = 0.0,
        etags: str = "strong",
        fault: Callable[[int, str], str | None] | None = None,
    ) -> None:
        self.folder, self.latency_s, self.rate, self.fault = folder, latency_s, rate, fault
        self.etags = etags
        #: Requests so far: method, name, first byte, byte behind the last.
        self.requests: list[tuple[str, str, int, int]] = []
        self.sent = 0
        self._lock = threading.Lock()
        self._free_at = 0.0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_HEAD(self) -> None:
                server.answer(self, body=False)

            def do_GET(self) -> None:
                server.answer(self, body=True)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RangeServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def answer(self, to: BaseHTTPRequestHandler, *, body: bool) -> None:
        name = to.path.lstrip("/")
        try:
            file = os.open(self.folder / name, os.O_RDONLY)
        except OSError:
            self._refuse(to, 404, name)
            return
        try:
            self._send(to, name, file, body=body)
        except (BrokenPipeError, ConnectionResetError):
            to.close_connection = True
        finally:
            os.close(file)

    def _send(self, to: BaseHTTPRequestHandler, name: str, file: int, *, body: bool) -> None:
        facts = os.fstat(file)
        etag = f'"{facts.st_ino:x}-{facts.st_mtime_ns:x}-{facts.st_size:x}"'
        start, end = _range(to.headers.get("Range"), facts.st_size)
        with self._lock:
            number = len(self.requests)
            self.requests.append((to.command, name, start, end))
        fault = self.fault(number, name) if self.fault else None
        if self.latency_s:
            time.sleep(self.latency_s)
        if fault == "drop":
            to.close_connection = True
            return
        if fault in ("500", "503"):
            self._refuse(to, int(fault), name)
            return
        if (wanted := to.headers.get("If-Match")) is not None and (wanted != etag or self.etags != "strong"):
            self._refuse(to, 412, name)
            return
        if to.headers.get("Range") and start >= facts.st_size:
            self._refuse(to, 416, name)
            return
        to.send_response(206 if to.headers.get("Range") else 200)
        to.send_header("Content-Length", str(end - start))
        to.send_header("Accept-Ranges", "bytes")
        if self.etags != "none":
            kind = "W/" if self.etags == "weak" else ""
            to.send_header("ETag", kind + ('"of-another"' if fault == "etag" else etag))
        to.send_header("Last-Modified", to.date_time_string(int(facts.st_mtime)))
        if to.headers.get("Range"):
            to.send_header("Content-Range", f"bytes {start}-{end - 1}/{facts.st_size}")
        to.end_headers()
        if not body:
            return
        stop = start + (end - start) // 2 if fault == "short" else end
        for at in range(start, stop, 256 << 10):
            data = os.pread(file, min(256 << 10, stop - at), at)
            self._pace(len(data))
            to.wfile.write(data)
        if fault == "short":
            to.wfile.flush()
            to.close_connection = True
            to.connection.close()

    def _pace(self, count: int) -> None:
        """Wait until the link has carried what went before."""
        with self._lock:
            self.sent += count
            if not self.rate:
                return
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self.rate
            left = self._free_at - now
        if left > 0.002:
            time.sleep(left)

    def _refuse(self, to: BaseHTTPRequestHandler, status: int, name: str) -> None:
        told = f"{status} {name}".encode()
        to.send_response(status)
        to.send_header("Content-Length", str(len(told)))
        to.end_headers()
        if to.command != "HEAD":
            to.wfile.write(told)


def _range(header: str | None, size: int) -> tuple[int, int]:
    if header is None:
        return 0, size
    first, _, last = header.removeprefix("bytes=").partition("-")
    if not first:
        return max(size - int(last), 0), size
    return int(first), min(int(last) + 1, size) if last else size


def hasty(url: str) -> Any:
    """Return an obstore store of a server that tries nothing again."""
    from obstore.store import HTTPStore

    return HTTPStore(url, client_options={"allow_http": True}, retry_config={"max_retries": 0})


@contextlib.contextmanager
def s3(bucket: str = "bucket") -> Iterator[object]:
    """Serve a bucket by moto; give the obstore store that reaches it."""
    from moto.server import ThreadedMotoServer
    from obstore.store import S3Store

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        import urllib.request

        made = urllib.request.Request(f"http://{host}:{port}/{bucket}", method="PUT")
        urllib.request.urlopen(made).close()
        yield S3Store(
            bucket,
            endpoint=f"http://{host}:{port}",
            region="us-east-1",
            access_key_id="a",
            secret_access_key="b",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )
    finally:
        server.stop()
