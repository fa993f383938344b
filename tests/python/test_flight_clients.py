"""Clients of the Flight door that never read, never send, or ask for too much; some speak HTTP/2 by themselves."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray.flight import plans
from nandarray.flight.access import CALLS_MAX
from nandarray.flight.calls import Call
from nandarray.interop import tables
from nandarray.interop.tables.substrait import _fields as substrait_fields

pa = pytest.importorskip("pyarrow")
fl = pytest.importorskip("pyarrow.flight")
pc = pytest.importorskip("pyarrow.compute")


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


@pytest.mark.parametrize("method", [b"GetFlightInfo", b"GetSchema"])
def test_answers_that_no_client_takes_hold_few_threads_and_end(store: Any, method: bytes) -> None:
    store["a"] = [1]

    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    with (
        nandarray.serve_flight(store, patience=600) as server,
        fl.connect(server.url) as client,
        contextlib.ExitStack() as opened,
    ):
        path = fl.FlightDescriptor.for_path("a")
        client.get_flight_info(path)
        port, before = int(server.address.rpartition(":")[2]), threads()
        for _ in range(3 * CALLS_MAX):
            opened.enter_context(unheard(port, method, b"\x08\x01\x1a\x01a"))
        until(lambda: threads() > before + CALLS_MAX // 2)
        assert "answers that no client has taken" in str(refused(lambda: client.get_flight_info(path)))
        assert threads() < before + 2 * CALLS_MAX
        server._calls.patience = 0.5
        until(lambda: threads() < before + CALLS_MAX // 2)
        until(lambda: len(server._calls._answers) < CALLS_MAX)  # a look sees it
        assert client.get_flight_info(path).schema.names == ["values"]
        assert any(kind == "stalled" for kind, _, _ in server.events(0))


def refused(ask: Callable[[], Any]) -> fl.FlightUnavailableError:
    """Ask until the server refuses."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            ask()
        except fl.FlightUnavailableError as error:
            return error
    raise AssertionError("the server went on")


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


def test_a_look_that_fails_ends_its_own_call_and_no_later_limit(store: Any, monkeypatch: Any) -> None:
    store["large"] = np.zeros(64 << 20, "u1")
    listed, full = os.listdir, [True]

    def without_a_number(path: Any) -> list[str]:
        if path == "/proc/self/fd" and full:
            full.clear()
            raise OSError(24, "Too many open files")
        return listed(path)

    def fails(*_: Any) -> None:
        raise MemoryError

    with nandarray.serve_flight(store, patience=0.5) as server, fl.connect(server.url) as client:
        ticket = client.get_flight_info(fl.FlightDescriptor.for_path("large")).endpoints[0].ticket
        for where, name, why in ((Call, "look", "look at the call failed: MemoryError"), (os, "listdir", "0.5 s")):
            with monkeypatch.context() as broken:
                lazy = client.do_get(ticket)
                lazy.read_chunk()
                broken.setattr(where, name, fails if where is Call else without_a_number)
                until(lambda: not server.status()["calls"])
            assert any(why in fields["why"] for kind, _, fields in server.events(0) if kind == "call_failed")
    assert not full


def test_arrow_decides_functions_whose_values_are_bounded(store: Any) -> None:
    substrait = pytest.importorskip("pyarrow.substrait")
    rows = pa.table({"id": range(20_000), "name": [f"n{n}" * 20 for n in range(20_000)]})
    tables.create(store, "t", rows)
    field = pc.field
    longest = pc.if_else(field("id") > 7, "x" * 100_000, field("name")) == "n3" * 20  # 2 GB in one step

    def told(expression: Any) -> dict[str, Any]:
        message = bytes(substrait.serialize_expressions([expression], ["f"], rows.schema))
        return {"version": 1, "table": "t", "filter": {"substrait": base64.b64encode(message).decode()}}

    with nandarray.serve_flight(store) as server, fl.connect(server.url) as client:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (found,) = client.do_action(fl.Action("count", json.dumps(told(longest)).encode()))
        assert json.loads(found.body.to_pybytes()) == {"rows": 1}
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10
        for expression in (pc.bit_wise_and(field("id"), 1) == 1, (pc.abs(field("id")) > 5) & (field("id") < 31)):
            info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(told(expression))))
            parts = [client.do_get(one.ticket).read_all() for one in info.endpoints]
            assert pa.concat_tables(parts).equals(rows.filter(expression))
        whole = wire(told(field("name") == "n")["filter"]["substrait"])
        uri = lengthened(2, b"https://github.com/substrait-io/substrait/blob/main/extensions/functions_string.yaml")
        concat = lengthened(1, uri) + lengthened(2, lengthened(3, lengthened(3, b"concat")))
        asked = told(field("name") == "n")
        asked["filter"]["substrait"] = base64.b64encode(concat + whole).decode()
        with pytest.raises(pa.ArrowInvalid, match="must not have the function 'concat', whose values may be"):
            client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(asked)))


def lengthened(number: int, inner: bytes) -> bytes:
    """Return a field of Protocol Buffers, of less than 128 bytes."""
    return bytes([number << 3 | 2, len(inner)]) + inner


def wire(text: str) -> bytes:
    """Return an expression of Substrait without its functions and where they come from."""
    found = substrait_fields(base64.b64decode(text))
    head = b"".join(lengthened(number, one) for number in (1, 2) for one in found[number])
    message = base64.b64decode(text)
    assert message.startswith(head)
    return message[len(head) :]


def test_a_put_of_many_small_batches_reserves_what_they_hold(store: Any, monkeypatch: Any) -> None:
    reserved: list[int] = []
    reserve = Call.reserve
    monkeypatch.setattr(Call, "reserve", lambda self, size: (reserved.append(size), reserve(self, size))[1])
    store["a"] = np.zeros(100, "i8")
    rows = pa.table({"values": pa.array(range(100), pa.int64())})
    with nandarray.serve_flight(store) as server, fl.connect(server.url) as client:
        writer, answer = client.do_put(fl.FlightDescriptor.for_path("a"), rows.schema)
        with writer:
            writer.write_table(rows, max_chunksize=1)
            writer.done_writing()
            assert json.loads(answer.read().to_pybytes())["rows"] == 100
    assert max(reserved) >= 100 * 2 * 1024
    assert (store["a"][:] == np.arange(100)).all()
