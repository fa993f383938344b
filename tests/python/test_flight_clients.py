"""Clients of the Flight door that speak HTTP/2 by themselves: those that never read, and never send."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

import nandarray
from nandarray.flight.access import CALLS_MAX

fl = pytest.importorskip("pyarrow.flight")


def until(what: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not become so in time"
        time.sleep(0.02)


def unheard(port: int, method: bytes, message: bytes | None) -> socket.socket:
    """Begin a call by HTTP/2 whose client lets the server send nothing, and itself maybe sends no message."""

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    path = b"/arrow.flight.protocol.FlightService/" + method
    words = (
        b":method",
        b"POST",
        b":scheme",
        b"http",
        b":path",
        path,
        b":authority",
        b"x",
        b"content-type",
        b"application/grpc",
        b"te",
        b"trailers",
    )
    pairs = zip(words[::2], words[1::2], strict=True)
    headers = b"".join(b"\0" + b"".join(bytes([len(one)]) + one for one in pair) for pair in pairs)
    sent = b"" if message is None else frame(0, 1, 1, b"\0" + struct.pack(">I", len(message)) + message)
    made = socket.create_connection(("127.0.0.1", port))
    made.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0)))
    made.sendall(frame(1, 4, 1, headers) + sent)
    return made


@pytest.mark.parametrize(("method", "message"), [(b"ListFlights", b""), (b"DoPut", None)])
def test_clients_that_never_read_or_send_are_counted_and_hold_no_end_up(
    store: Any, method: bytes, message: Any
) -> None:
    store["a"] = [1]
    with (
        nandarray.serve_flight(store) as server,
        fl.connect(server.url) as client,
        contextlib.ExitStack() as opened,
    ):
        port = int(server.address.rpartition(":")[2])
        for _ in range(CALLS_MAX):
            opened.enter_context(unheard(port, method, message))
        until(lambda: server.status()["in_flight"] == {"anyone": CALLS_MAX})
        with pytest.raises(fl.FlightUnavailableError, match="64 calls at once"):
            list(client.list_flights())
        opened.close()
        until(lambda: not server.status()["in_flight"])
        with unheard(port, method, message):
            until(lambda: bool(server.status()["in_flight"]))
            since = time.monotonic()
            server.stop()
            assert time.monotonic() - since < 10
