"""Clients of the Flight door that speak HTTP/2 by themselves: those that never read, and never send."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

import nandarray
from nandarray.flight import plans
from nandarray.flight.access import CALLS_MAX
from nandarray.flight.calls import Call
from nandarray.interop import tables

pa = pytest.importorskip("pyarrow")
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


def test_a_damaged_table_is_left_out_of_lists(store: Any) -> None:
    for name in ("a", "b"):
        tables.create(store, name, {"id": [1, 2]})
    store["a/ends"].append([1 << 62])
    with nandarray.serve_flight(store) as server, fl.connect(server.url) as client:
        names = {b"/".join(one.descriptor.path) for one in client.list_flights()}
        assert b"b" in names
        assert b"a" not in names
        with pytest.raises(pa.ArrowException, match="its table has"):
            client.get_flight_info(fl.FlightDescriptor.for_path("a"))


def test_tickets_are_reserved_before_they_are_told(store: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(plans, "BATCH_BYTES", 1 << 10)
    reserved: list[int] = []
    monkeypatch.setattr(Call, "reserve", lambda _, size: reserved.append(size))
    tables.create(store, "t", pa.table({"id": range(20_000)}), zone_rows=100)
    asked = {"version": 1, "table": "t", "filter": ["in", "id", [*range(0, 20_000, 50)]]}
    with nandarray.serve_flight(store) as server, fl.connect(server.url) as client:
        info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(asked)))
    assert len(info.endpoints) > 2
    assert reserved[-1] == sum(len(one.ticket.ticket) for one in info.endpoints)
