"""A store served by Arrow Flight: what clients read and put, resumption, tenants, deadlines, limits, bad input."""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import ended
from typer.testing import CliRunner

import nandarray
from nandarray.cli import app
from nandarray.errors import InvalidError, NotFoundError
from nandarray.flight import plans, token_of
from nandarray.flight.tickets import Command, Ticket
from nandarray.interop import tables
from nandarray.nvme import new_secret
from nandarray.parts import PartedStore

pa = pytest.importorskip("pyarrow")
fl = pytest.importorskip("pyarrow.flight")
pc = pytest.importorskip("pyarrow.compute")

SALES, LAB = (f"nqn.2026-01.org.example:{name}" for name in ("sales", "lab-*"))
RULES = f"""
[tenants.sales]
hosts = ["{SALES}"]
read = ["shared/*"]
write = ["sales/*"]
programs = true
runs = 1

[tenants.lab]
hosts = ["{LAB}"]
read = ["shared/*"]
memory_mib = 64
seconds = 1
"""
TEXT = "".join(f"{n}|{'green' if n % 3 else 'red'}|\n" for n in range(20_000)).encode()
SCHEMA = {"id": "int32", "colour": "text(8)"}


@pytest.fixture(params=["file", "parts"])
def store(request: Any, tmp_path: Path, monkeypatch: Any) -> Iterator[nandarray.Store]:
    monkeypatch.setattr(plans, "BATCH_BYTES", 1 << 14)
    path = tmp_path / "s.nand"
    made = nandarray.open(path, "w") if request.param == "file" else nandarray.parts.create(path)
    with made:
        made["sky/cube"] = np.arange(3000 * 6, dtype="<f4").reshape(3000, 3, 2)
        shards = {} if request.param == "file" else {"shards": 32_768}
        made.create("line", 100_000, "int64", **shards)[:] = np.arange(100_000)
        made["number"] = np.array(2.5)
        made["records"] = np.array(
            [(1, b"ab", np.datetime64("2020-01-01", "s"))] * 3, [("n", "<i2"), ("t", "S4"), ("d", "M8[s]")]
        )
        made["complex"] = np.zeros(3, "c8")
        tables.create(made, "t", TEXT, SCHEMA)
        yield made


@contextlib.contextmanager
def served(store: Any, **options: Any) -> Iterator[tuple[Any, Any]]:
    with nandarray.serve_flight(store, **options) as server, fl.connect(server.url) as client:
        yield server, client


def command(**keys: Any) -> Any:
    return fl.FlightDescriptor.for_command(json.dumps({"version": 1, **keys}))


def with_token(host: str, secret: str) -> Any:
    return fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token_of(host, secret)}".encode())])


def read(client: Any, descriptor: Any, options: Any = None) -> Any:
    info = client.get_flight_info(descriptor, options)
    parts = [client.do_get(one.ticket, options).read_all() for one in info.endpoints]
    assert all(part.schema.equals(info.schema, check_metadata=True) for part in parts)
    return pa.concat_tables(parts)


def put(client: Any, descriptor: Any, rows: Any, options: Any = None, schema: Any = None) -> dict[str, Any]:
    writer, metadata = client.do_put(descriptor, schema or rows.schema, options)
    with writer:
        writer.write_table(rows)
        writer.done_writing()
        told = metadata.read()
    return json.loads(told.to_pybytes())


def until(what: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not become so in time"
        time.sleep(0.02)


def test_what_is_read_is_the_stores_own(store: Any) -> None:
    with served(store) as (_, client):
        names = ["/".join(part.decode() for part in one.descriptor.path) for one in client.list_flights()]
        assert names == ["line", "number", "records", "sky/cube", "t"], "complex numbers have no form in Arrow"
        for pattern, count in (
            (b"sky/*", 1),
            (b"*e*", 4),
            (b"t", 1),
            (b"*/c*e", 1),
            (b"sky", 0),
            (b"*x*", 0),
            (b"**", 5),
        ):
            assert len(list(client.list_flights(pattern))) == count, pattern
        cube = read(client, fl.FlightDescriptor.for_path("sky", "cube"))
        about = json.loads(cube.schema.metadata[b"nandarray.array"])
        assert (about["shape"], about["dtype"]) == ([3000, 3, 2], "<f4")
        assert (cube.column(0).combine_chunks().to_numpy_ndarray() == store["sky/cube"][:]).all()
        box = read(client, command(array="sky/cube", box=[[2990, 2997], [1, 3], [0, 2]])).column(0).combine_chunks()
        assert (box.to_numpy_ndarray() == store["sky/cube"][2990:2997, 1:3]).all()
        assert (np.asarray(read(client, command(array="line")).column(0)) == store["line"][:]).all()
        assert len(client.get_flight_info(command(array="line")).endpoints) > 1
        assert read(client, command(array="line", box=[[7, 7]])).num_rows == 0
        assert read(client, command(array="number"))["values"].to_pylist() == [2.5]
        assert read(client, command(array="records"))["values"].to_pylist() == pa.array(store["records"]).to_pylist()
        table = tables.open_table(store, "t")
        assert read(client, command(table="t")).equals(table.scan().read_all().replace_schema_metadata(None))
        assert client.get_schema(command(table="t", columns=["colour"])).schema.names == ["colour"]
        total = read(client, command(array="sky/cube", box=[[0, 2], [0, 3], [1, 2]], program={"name": "sum"}))
        assert total.to_pydict() == {"result": [float(store["sky/cube"][:2, :, 1].sum())]}
        large = read(client, command(array="line", program={"name": "filter", "scalars": {"low": 11, "high": 99_999}}))
        assert np.asarray(large.column(0)).tolist() == list(range(11, 100_000))


def test_filters_are_those_of_a_scan(store: Any) -> None:
    substrait = pytest.importorskip("pyarrow.substrait")
    schema = pa.schema([("colour", pa.string()), ("id", pa.int32())])

    def text(expression: Any) -> dict[str, str]:
        message = substrait.serialize_expressions([expression], ["f"], schema)
        return {"substrait": base64.b64encode(bytes(message)).decode()}

    whole = tables.open_table(store, "t").scan().read_all()
    low, red, field = ["<", "id", 40], ["==", "colour", "red"], pc.field
    with served(store) as (_, client):
        for tree, expression in (
            (low, field("id") < 40),
            (["and", low, ["not", red]], (field("id") < 40) & ~(field("colour") == "red")),
            (["or", low, ["begins", "colour", "g"]], (field("id") < 40) | pc.starts_with(field("colour"), "g")),
            (["==", "colour", "FieldPath(1)"], field("colour") == "FieldPath(1)"),
        ):
            wanted = whole.filter(expression)["id"].to_pylist()
            for given in (tree, text(expression)):
                found = read(client, command(table="t", columns=["id"], filter=given))
                assert found["id"].to_pylist() == wanted
                body = json.dumps({"version": 1, "table": "t", "filter": given}).encode()
                (result,) = client.do_action(fl.Action("count", body))
                assert json.loads(result.body.to_pybytes()) == {"rows": len(wanted)}
        rest = (field("id") * 2 > 39_990) & (field("colour") == "red")  # arithmetic is Arrow's
        assert read(client, command(table="t", columns=["id"], filter=text(rest)))["id"].to_pylist() == [19_998]


def columns(rows: int) -> Any:
    """Return rows of many types, some values missing."""
    numbers = np.arange(rows)
    gone = numbers % 7 == 0
    day = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    return pa.table(
        {
            "id": pa.array(numbers),
            "price": pa.array([Decimal(n).scaleb(-2) for n in range(rows)], pa.decimal128(12, 2), mask=gone),
            "name": pa.array([f"n{n % 50}" for n in range(rows)], mask=gone),
            "at": pa.array([day + datetime.timedelta(minutes=n) for n in range(rows)], pa.timestamp("ms", "UTC")),
            "tags": pa.array([[n] * (n % 3) for n in range(rows)], pa.list_(pa.int32())),
        }
    )


def test_tables_of_columns_are_read_and_appended_to(store: Any) -> None:
    whole = columns(5000)
    table = tables.create(store, "c", whole.slice(0, 3000), zone_rows=500)
    substrait = pytest.importorskip("pyarrow.substrait")
    with served(store) as (_, client):
        assert [b"/".join(one.descriptor.path) for one in client.list_flights(b"c*")] == [b"c"]
        first = client.get_flight_info(command(table="c")).endpoints[0].ticket
        assert len(list(client.do_get(first))) > 1, "a batch a piece"
        told = put(client, fl.FlightDescriptor.for_path("c"), whole.slice(3000))
        assert told == {"rows": 2000} | ({"version": store.version} if isinstance(store, PartedStore) else {})
        assert read(client, command(table="c")).equals(whole)
        price, name, at = pc.field("price"), pc.field("name"), pc.field("at")
        moment = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)
        for tree, expression in (
            (["in", "name", ["n1", "n2"]], name.isin(["n1", "n2"])),
            (["and", ["null", "price"], [">=", "id", 4000]], price.is_null() & (pc.field("id") >= 4000)),
            (["<", ["*", "id", ["value", 2]], 31], pc.field("id") * 2 < 31),
            (["<", nested("negative", "id", 40), 31], pc.field("id") < 31),
            (["<", "price", {"decimal": "1.50"}], price < pa.scalar(Decimal("1.50"), pa.decimal128(12, 2))),
            (
                [">", "at", {"timestamp": "2020-01-02T00:00:00+00:00"}],
                at > pa.scalar(moment, pa.timestamp("ms", "UTC")),
            ),
        ):
            wanted = whole.filter(expression)
            assert read(client, command(table="c", filter=tree)).equals(wanted), tree
            body = json.dumps({"version": 1, "table": "c", "filter": tree}).encode()
            (result,) = client.do_action(fl.Action("count", body))
            assert json.loads(result.body.to_pybytes()) == {"rows": len(wanted)}
        for expression in (pc.field("id") * 2 < 31, (pc.field("id") < 31) & (pc.abs(pc.field("id")) > 5)):
            message = substrait.serialize_expressions([expression], ["f"], whole.schema)
            text = {"substrait": base64.b64encode(bytes(message)).decode()}
            found = read(client, command(table="c", columns=["at"], filter=text))
            assert found.equals(whole.filter(expression).select(["at"]))
        for wrong, why in (
            (whole.drop_columns("at"), "must have the schema"),
            (whole.cast(whole.schema.set(0, pa.field("id", pa.int32()))), r"id: int64, .* not \(id: int32"),
        ):
            with pytest.raises((pa.ArrowInvalid, fl.FlightServerError), match=why):
                put(client, command(table="c"), wrong)
        with pytest.raises((pa.ArrowInvalid, fl.FlightServerError), match="is a column of table 'c'"):
            put(client, command(array="c/id"), pa.table({"values": pa.array(range(5000))}))
    store.refresh()
    assert table.num_rows == 5000


def test_a_stream_goes_on_from_any_batch(store: Any) -> None:
    with served(store) as (_, client):
        for descriptor in (command(table="t", filter=["==", "colour", "red"]), command(array="sky/cube")):
            ticket = client.get_flight_info(descriptor).endpoints[0].ticket
            whole = list(client.do_get(ticket))
            numbers = [json.loads(one.app_metadata.to_pybytes())["batch"] for one in whole]
            assert numbers == list(range(len(whole))), "numbers begin at 0"
            assert len(whole) > 2
            for number in (1, len(whole) - 1, len(whole)):
                rest = list(client.do_get(fl.Ticket(nandarray.flight.resumed(ticket.ticket, number))))
                assert [one.data for one in rest] == [one.data for one in whole[number:]]


def test_a_version_is_read_whatever_is_committed_since(tmp_path: Path) -> None:
    with nandarray.parts.create(tmp_path / "p.nand") as store:
        store["a"] = np.zeros(4, "i8")
        with served(store) as (_, client):
            old = client.get_flight_info(command(array="a")).endpoints[0].ticket
            with nandarray.open(tmp_path / "p.nand", "r+") as other:
                other["a"][:] = 1
            assert client.do_get(old).read_all()["values"].to_pylist() == [0] * 4
            assert read(client, command(array="a"))["values"].to_pylist() == [1] * 4


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_a_drive_is_served_as_a_file_is(store: Any) -> None:
    with nandarray.serve(store) as drive, nandarray.open(drive.url, "r+") as remote, served(remote) as (_, client):
        assert read(client, command(table="t", columns=["id"], filter=["<", "id", 9]))["id"].to_pylist() == [*range(9)]
        assert read(client, command(array="line", program={"name": "sum"})).to_pylist() == [{"result": 4_999_950_000}]
        put(client, command(array="line", box=[[0, 2]]), pa.table({"values": [7, 8]}))
        assert read(client, command(array="line", box=[[0, 3]]))["values"].to_pylist() == [7, 8, 2]
    assert store["line"][:3].tolist() == [7, 8, 2]


def test_what_is_put_is_there_whole_or_not_at_all(store: Any) -> None:
    rows = pa.table({"values": pa.array(range(1000), pa.int64())})
    at = command(array="line", box=[[500, 1500]])
    before = store["line"][:]
    with served(store) as (server, client):
        for wrong, text in (
            (rows.slice(1), "must get as many, and got 999"),
            (pa.concat_tables([rows, rows]), "must get as many, and got"),
            (rows.cast(pa.schema([("values", pa.int32())])), r"must have the schema \(values: int64\), not"),
            (pa.table({"values": pa.array([None] * 1000, pa.int64())}), "1000 of 1000 are missing"),
        ):
            with pytest.raises((pa.ArrowInvalid, fl.FlightServerError), match=text):
                put(client, at, wrong)
        writer, _ = client.do_put(at, rows.schema)  # a client that goes in the middle
        writer.write_table(rows.slice(0, 10))
        until(lambda: any(one["received"] for one in server.status()["calls"]))
        with fl.connect(server.url) as other:
            gone, told = other.do_put(at, rows.schema)
            gone.write_table(rows.slice(0, 10))
            until(lambda: len(server.status()["calls"]) == 2)
            del gone, told
        with pytest.raises(pa.ArrowInvalid, match="got 10"):
            writer.close()
        until(lambda: not server.status()["calls"])
        assert (read(client, command(array="line")).column(0).to_numpy() == before).all()
        assert put(client, at, rows)["rows"] == 1000
        cube = read(client, command(array="sky/cube", box=[[0, 5], [0, 3], [0, 2]]))
        put(client, command(array="sky/cube", box=[[5, 10], [0, 3], [0, 2]]), cube)
        put(client, fl.FlightDescriptor.for_path("number"), pa.table({"values": [7.5]}))
        put(client, command(array="records"), read(client, command(array="records")))
        with pytest.raises(pa.ArrowInvalid, match="table 't' is of text"):
            put(client, command(table="t"), pa.table({"id": pa.array([1], pa.int32()), "colour": ["red"]}))
    store.refresh()
    assert (store["line"][500:1500] == np.arange(1000)).all()
    assert (store["line"][:500] == before[:500]).all()
    assert (store["line"][1500:] == before[1500:]).all()
    assert (store["sky/cube"][5:10] == store["sky/cube"][:5]).all()
    assert store["number"][()] == 7.5
    with (
        served(store, read_only=True) as (_, client),
        pytest.raises(fl.FlightUnauthorizedError, match="the store is served for reading"),
    ):
        put(client, at, rows)


def nested(op: str, inner: Any, levels: int) -> Any:
    for _ in range(levels):
        inner = [op, inner]
    return inner


WRONG: list[tuple[dict[str, Any] | bytes, str]] = [
    (b"{", "must be JSON"),
    (b"[" * 100_000, "must be JSON"),
    (b"7", "must be an object"),
    ({"version": 2, "table": "t"}, "must have version 1, which this server has, not 2"),
    ({"table": "t"}, "not None"),
    ({"version": True, "table": "t"}, "not True"),
    ({"version": 1, "table": "\ud800"}, "must be JSON"),
    ({"version": 1, "table": ["é" * 100_000]}, "must be a text, not"),
    ({"version": 1, "array": "line", "program": {"name": "sum", "parameters": {"name": "x"}}}, "'name' must not be"),
    ({"version": 1}, "either a table or an array"),
    ({"version": 1, "table": "t", "array": "t"}, "either a table or an array"),
    ({"version": 1, "table": "t", "box": []}, "must be of an array"),
    ({"version": 1, "array": "line", "columns": ["a"]}, "must be of a table"),
    ({"version": 1, "table": "t", "colour": 1}, "must not have the key 'colour'"),
    ({"version": 1, "table": "t", "columns": []}, "at least one name"),
    ({"version": 1, "table": "t", "columns": [3]}, "must be a text, not 3"),
    ({"version": 1, "table": "t", "filter": ["like", "colour", "r%"]}, "must be one of and, or, not"),
    ({"version": 1, "table": "t", "filter": ["<", "id", None]}, "a constant must be a number, a text"),
    ({"version": 1, "table": "t", "filter": ["<", ["^", "id"], 3]}, "a value must be a column's name"),
    ({"version": 1, "table": "t", "filter": ["<", [["+"], "id", "id"], 3]}, "a value must be a column's name"),
    ({"version": 1, "table": "t", "filter": ["<", "id", {"decimal": "1e-999999999"}]}, "at most 76 places"),
    ({"version": 1, "table": "t", "filter": ["<", "id", 10**400]}, "at most 76 digits"),
    ({"version": 1, "table": "t", "filter": nested("not", ["<", "id", 3], 400)}, "at most 200 lists within"),
    ({"version": 1, "table": "t", "filter": ["not"]}, "must have what belongs to it"),
    ({"version": 1, "table": "t", "filter": ["<", ["+", "id", "id"], 3]}, "a column with a value, not with what is"),
    ({"version": 1, "table": "t", "filter": ["<", "id", "red"]}, "must be compared with a number, not with 'red'"),
    ({"version": 1, "table": "t", "filter": {"substrait": "!"}}, "base64"),
    ({"version": 1, "table": "t", "filter": {"substrait": "AAAA"}}, "expression of Substrait"),
    ({"version": 1, "array": "line", "box": [[0, 100_001]]}, "axis 0 has 100000 elements, not 100001"),
    ({"version": 1, "array": "line", "box": [[5, 4]]}, "must begin before it ends"),
    ({"version": 1, "array": "line", "box": [[0, 1], [0, 1]]}, "must have 1 pairs, one an axis, not 2"),
    ({"version": 1, "array": "line", "program": {"name": "sum", "elf": ""}}, "name, parameters, scalars and output"),
    ({"version": 1, "array": "complex"}, "no type for complex64"),
]
LAST = ({"rows": 1, "from_batch": 99_999, "box": [[0, 100_000]]}, {"rows": 1, "from_batch": (1 << 63) - 1})
MISSING: list[tuple[dict[str, Any], str]] = [
    ({"version": 1, "table": "u"}, "no table or array 'u'"),
    ({"version": 1, "table": "line"}, "line is no table"),
    ({"version": 1, "array": "sky"}, "must be an array or a table"),
    ({"version": 1, "table": "t", "columns": ["size"]}, "no column 'size'"),
    ({"version": 1, "array": "line", "program": {"name": "sums"}}, "did you mean 'sum'"),
    ({"version": 1, "array": "line", "program": {"name": "sum", "output": "x"}}, "output must be one of result"),
]


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_wrong_commands_and_tickets_are_told_what_is_wrong(store: Any) -> None:
    with served(store) as (server, client):
        for kind, cases in ((pa.ArrowInvalid, WRONG), (pa.ArrowKeyError, MISSING)):
            for given, text in cases:
                body = given if isinstance(given, bytes) else json.dumps(given).encode()
                with pytest.raises(kind, match=text) as caught:
                    client.get_flight_info(fl.FlightDescriptor.for_command(body))
                assert str(Path(nandarray.__file__).parent) not in str(caught.value), "no file of the server's"
                with pytest.raises((pa.ArrowInvalid, pa.ArrowKeyError)):
                    client.do_get(fl.Ticket(body)).read_all()
        ticket = json.loads(client.get_flight_info(command(array="line")).endpoints[0].ticket.ticket)
        assert Ticket.parse(json.dumps(ticket).encode()).encode() == json.dumps(ticket, separators=(",", ":")).encode()
        for change, text in (
            ({"version": 9}, "must have version 1"),
            ({"schema": "0" * 16}, "must have the schema of 'line'"),
            ({"at": 3}, "must have no version of this store"),
            ({"from_batch": -1}, "from 0 on"),
            ({"rows": 0}, "at least 1"),
            ({"box": [[0, 1 << 40]]}, "axis 0 has 100000"),
        ):
            with pytest.raises(pa.ArrowInvalid, match=text):
                client.do_get(fl.Ticket(json.dumps(ticket | change))).read_all()
        with pytest.raises(pa.ArrowNotImplementedError, match="no action 'drop'; there is count, health"):
            list(client.do_action(fl.Action("drop", b"")))
        (told,) = client.do_action(fl.Action("health", b""))
        assert json.loads(told.body.to_pybytes())["tickets"] == 1
        rows = [
            one.num_rows
            for one in (client.do_get(fl.Ticket(json.dumps(ticket | change))).read_all() for change in LAST)
        ]
        assert rows == [1, 0], "at once, without a look at those before"
        pieces = json.loads(client.get_flight_info(command(table="t")).endpoints[0].ticket.ticket)
        with pytest.raises(fl.FlightUnavailableError, match="bytes of memory left"):
            client.do_get(fl.Ticket(json.dumps(pieces | {"pieces": [[0, (1 << 63) - 1]] * 2}))).read_all()
        long = json.dumps({"version": 1, "table": "é" * 400_000}, ensure_ascii=False).encode()
        assert Ticket.parse(Ticket(Command.parse(long), "").encode()).command == Command.parse(long)
        with pytest.raises(pa.ArrowInvalid, match="must fit a command line"):
            read(client, command(table="t", filter=["in", "colour", ["é" * 100_000, "red"]]))
        with pytest.raises(pa.ArrowInvalid, match="at most 4096 bytes, not 5000"):
            list(client.list_flights(b"*" * 5000))
        store.create("sparse", 1 << 50, "u1")
        assert len(client.get_flight_info(command(array="sparse")).endpoints) == 4096
        # A table of another shape in the old one's place.
        old = client.get_flight_info(command(table="t")).endpoints[0].ticket
        del store["t"]
        tables.create(store, "t", b"1|\n", {"id": "int32"})
        with pytest.raises(pa.ArrowInvalid, match="is another one now"):
            client.do_get(old).read_all()
        until(lambda: not server.status()["calls"])
        assert server.status()["memory_bytes"] == 0
    for listen, text in (("127.0.0.1", "HOST:PORT"), ("all:1", "IP address"), ("0.0.0.0:0", "tokens .* and TLS")):
        with pytest.raises(InvalidError, match=text):
            nandarray.serve_flight(store, listen)
    with nandarray.serve_flight(store) as server, pytest.raises(InvalidError, match="cannot listen"):
        nandarray.serve_flight(store, server.address)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[tuple[Any, dict[str, str], Path]]:
    config = tmp_path / "node.toml"
    config.write_text(RULES)
    with nandarray.open(tmp_path / "s.nand", "w") as store:
        for name in ("shared/a", "sales/b", "secret"):
            store[name] = np.arange(1000)
        yield store, {SALES: new_secret(), LAB: new_secret("sha512")}, config


def test_a_tenant_sees_and_changes_what_its_rules_say(shared: Any) -> None:
    store, secrets, config = shared
    with served(store, secrets=secrets, config=config) as (server, client):
        sales, lab = (with_token(host, secrets[host]) for host in (SALES, LAB))
        for wrong in (None, with_token(SALES, secrets[LAB]), fl.FlightCallOptions(headers=[(b"authorization", b"x")])):
            with pytest.raises(fl.FlightUnauthenticatedError, match="bearer token"):
                list(client.list_flights(b"", wrong))
        assert server.status()["refused_logins"] == 3
        since = time.monotonic()
        for _ in range(14):  # the seventeenth of a minute waits
            with pytest.raises(fl.FlightUnauthenticatedError):
                list(client.list_flights())
        assert time.monotonic() - since > 0.9

        def names(options: Any) -> list[Any]:
            return [b"/".join(one.descriptor.path) for one in client.list_flights(b"", options)]

        assert names(sales) == [b"sales/b", b"shared/a"]
        assert names(lab) == [b"shared/a"]
        for hidden in ("secret", "sales/b"):
            with pytest.raises(pa.ArrowKeyError, match="no table or array"):
                client.get_flight_info(command(array=hidden), lab)
        rows = pa.table({"values": pa.array(range(1000), pa.int64())})
        put(client, command(array="sales/b"), rows, sales)
        with pytest.raises(fl.FlightUnauthorizedError, match="sales may not write 'shared/a'"):
            put(client, command(array="shared/a"), rows, sales)
        assert read(client, command(array="shared/a", program={"name": "sum"}), sales).num_rows == 1
        with pytest.raises(fl.FlightUnauthorizedError, match="lab may run no programs"):
            client.get_flight_info(command(array="shared/a", program={"name": "sum"}), lab)
        # A ticket is none of rights.
        ticket = client.get_flight_info(command(array="sales/b"), sales).endpoints[0].ticket
        with pytest.raises(pa.ArrowKeyError):
            client.do_get(ticket, lab).read_all()
        config.write_text(RULES.replace('read = ["shared/*"]\nmemory', 'read = ["sales/*", "secret/*"]\nmemory'))
        server.reload(secrets={**secrets, SALES: new_secret()}, config=config)
        assert names(lab) == [b"sales/b"]
        with pytest.raises(pa.ArrowKeyError, match="no table or array 'secret/'"):  # the rule has what is within
            client.get_flight_info(command(array="secret/"), lab)
        with pytest.raises(fl.FlightUnauthenticatedError):
            names(sales)
        config.write_text("[tenants.x]\nhosts = 3\n")
        with pytest.raises(InvalidError, match="line 2"):
            server.reload(secrets=secrets, config=config)
        with pytest.raises(InvalidError, match="keep its secrets"):
            server.reload()
    config.write_text(RULES)
    with pytest.raises(InvalidError, match="has no secret"):
        nandarray.serve_flight(store, config=config)


def test_a_tenants_memory_and_rates_are_those_of_the_rules(shared: Any) -> None:
    store, secrets, config = shared
    config.write_text(RULES.replace("seconds = 1", "seconds = 60\nbandwidth_mib = 8\nprograms = true"))
    tables.create(store, "shared/c", columns(100))
    store["shared/wide"] = np.zeros((2, 40 << 20), "u1")
    store["shared/slow"] = np.zeros(8 << 20, "u1")
    with served(store, secrets=secrets, config=config) as (server, client):
        lab = with_token(LAB, secrets[LAB])
        with pytest.raises(fl.FlightUnavailableError, match="lab has no 83886080 bytes of memory left of its 64 MiB"):
            read(client, command(array="shared/wide"), lab)
        with pytest.raises(fl.FlightUnavailableError, match="lab has no 83886080 bytes"):  # before it runs
            read(
                client, command(array="shared/wide", program={"name": "filter", "scalars": {"low": 1, "high": 2}}), lab
            )
        ticket = json.loads(client.get_flight_info(command(table="shared/c"), lab).endpoints[0].ticket.ticket)
        ticket["pieces"] = [[0, (1 << 63) - 1]]
        with pytest.raises(fl.FlightUnavailableError, match="bytes of memory left"):
            client.do_get(fl.Ticket(json.dumps(ticket)), lab).read_all()
        begun = time.monotonic()
        read(client, command(array="shared/slow"), lab)
        assert 0.3 < time.monotonic() - begun < 20, "the second half waits for the first one"
        assert server.status()["memory_bytes"] == 0


ENDLESS = """
#include <nandarray.h>
ND_PROGRAM("name": "endless", "kind": "block", "inputs": [{"name": "x", "dtype": "uint8"}],
           "outputs": [{"name": "y", "dtype": "uint8"}])
int64_t nd_block(nd_args *args) { for (;;) __asm__ volatile (""); }
"""


def endless(*_: Any, **options: Any) -> Any:
    """Run a program that ends when it has to, in place of a ready-made one."""
    made = nandarray.Program.from_c(ENDLESS)
    return nandarray.offload(made, [np.zeros(8, "u1")], **options)


def test_deadlines_end_a_call_on_both_sides(shared: Any, monkeypatch: Any) -> None:
    store, secrets, config = shared
    config.write_text(RULES.replace("memory_mib = 64", "programs = true"))
    monkeypatch.setattr(plans, "offload", endless)
    ask = command(array="shared/a", program={"name": "sum"})
    with served(store, secrets=secrets, config=config) as (server, client):
        sales, lab = (with_token(host, secrets[host]) for host in (SALES, LAB))
        ticket = client.get_flight_info(ask, sales).endpoints[0].ticket
        header = (b"authorization", f"Bearer {token_of(SALES, secrets[SALES])}".encode())
        with pytest.raises(fl.FlightTimedOutError):
            client.do_get(ticket, fl.FlightCallOptions(timeout=0.3, headers=[header])).read_all()
        until(lambda: not server.status()["calls"], 5)
        with pytest.raises(fl.FlightTimedOutError, match="more than 1 s, which its tenant has"):
            client.do_get(ticket, lab).read_all()

        def begun() -> Any:
            reader = client.do_get(ticket, sales)
            thread = threading.Thread(target=lambda: caught.append(error_of(reader.read_all)))
            thread.start()
            until(lambda: bool(server.status()["calls"]))
            return thread

        caught: list[Any] = []
        running = begun()
        server.kill(server.status()["calls"][0]["id"])
        running.join(10)
        assert not running.is_alive()
        assert isinstance(caught[0], fl.FlightServerError), caught
        assert "stopped by the operator" in str(caught[0])
        with pytest.raises(NotFoundError):
            server.kill(1 << 40)
        other = new_secret()
        running = begun()
        assert server.reload(secrets={**secrets, SALES: other}, config=config) == [SALES]
        running.join(10)
        assert not running.is_alive()
        assert "token or tenant is another one now" in str(caught[1])
        server.reload(secrets=secrets, config=config)
        running = begun()
        since = time.monotonic()
        server.stop()
        assert time.monotonic() - since < 5
        running.join(10)
        assert not running.is_alive()
        assert isinstance(caught[2], fl.FlightUnavailableError), caught


def error_of(work: Callable[[], Any]) -> Exception | None:
    try:
        work()
    except Exception as error:
        return error
    return None


def test_a_client_that_stops_reading_holds_no_turn_and_ends(shared: Any) -> None:
    store, secrets, config = shared
    store["shared/large"] = np.zeros(64 << 20, "u1")
    sales = with_token(SALES, secrets[SALES])
    with served(store, secrets=secrets, config=config, patience=1.5) as (server, client):
        whole = client.get_flight_info(command(array="shared/large"), sales).endpoints
        lazy = client.do_get(whole[0].ticket, sales)
        lazy.read_chunk()
        until(lambda: 0 < server.status()["memory_bytes"] <= plans.BATCH_BYTES + 64)  # one batch
        with fl.connect(server.url) as other:  # the tenant has one turn
            assert read(other, command(array="shared/a"), sales).num_rows == 1000
        files = len(os.listdir("/proc/self/fd"))
        until(lambda: not server.status()["calls"])
        assert len(os.listdir("/proc/self/fd")) <= files, "looking for its connection leaves no files open"
        (stalled,) = [fields for kind, _, fields in server.events(0) if kind == "stalled"]
        assert (stalled["host"], stalled["operation"]) == (SALES, "flight_get")
        assert "took or sent nothing for 1.5 s" in stalled["why"]
        with pytest.raises(fl.FlightUnavailableError):
            lazy.read_all()
        silent, _ = client.do_put(command(array="sales/b"), pa.schema([("values", pa.int64())]), sales)
        until(lambda: bool(server.status()["calls"]))
        until(lambda: not server.status()["calls"])
        with pytest.raises(fl.FlightUnavailableError):
            silent.close()
        lazy = client.do_get(whole[0].ticket, sales)
        lazy.read_chunk()
        since = time.monotonic()
        server.stop()
        assert time.monotonic() - since < 10, "SIGTERM leaves no more"
        with pytest.raises(fl.FlightUnavailableError):
            lazy.read_all()
    assert server.status()["memory_bytes"] == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_store_is_read_over_tls(shared: Any, tmp_path: Path) -> None:
    store, secrets, _ = shared
    chain, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    named = [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(chain),
    ]
    subprocess.run([*made, *named], check=True, capture_output=True)
    key.chmod(0o600)
    options = with_token(SALES, secrets[SALES])
    with nandarray.serve_flight(store, secrets=secrets, certificate=(chain, key)) as server:
        assert server.url.startswith("grpc+tls://127.0.0.1:")
        with fl.connect(server.url, tls_root_certs=chain.read_bytes()) as client:
            assert read(client, command(array="secret"), options).num_rows == 1000, "a tenant of its own"
        with fl.connect(server.url) as client, pytest.raises(fl.FlightUnavailableError):
            client.get_flight_info(command(array="secret"), options)
    key.chmod(0o644)
    with pytest.raises(InvalidError, match="other users may read the key"):
        nandarray.serve_flight(store, certificate=(chain, key))


@contextlib.contextmanager
def process(store: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = [sys.executable, "-m", "nandarray", "serve", str(store), "--flight", "127.0.0.1:0", *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            lines = [server.stdout.readline().split() for _ in range(2)]
            yield server, dict(map(tuple, lines))["url"]  # type: ignore[arg-type]
        finally:
            if server.poll() is None:
                server.send_signal(signal.SIGTERM)
                assert ended(server) == 0


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_a_server_that_was_killed_is_gone_on_with(store: Any) -> None:
    store["large"] = np.arange(16 << 20, dtype="u1").reshape(-1, 64)
    path, values = Path(store.path), store["large"][:]
    store.close()
    got = []
    with process(path) as (server, url), fl.connect(url) as client:
        ticket = ticket_of(client, command(array="large"))
        reader = client.do_get(ticket)
        got.append(reader.read_chunk())
        server.kill()
        with pytest.raises(fl.FlightUnavailableError):
            got.extend(reader)
        ended(server)
    last = json.loads(got[-1].app_metadata.to_pybytes())["batch"]
    assert last == len(got) - 1
    with process(path) as (_, url), fl.connect(url) as client:
        got += list(client.do_get(fl.Ticket(nandarray.flight.resumed(ticket.ticket, last + 1))))
    found = np.concatenate([one.data.column(0).to_numpy_ndarray() for one in got])
    assert (found == values).all()


def ticket_of(client: Any, descriptor: Any) -> Any:
    (endpoint,) = client.get_flight_info(descriptor).endpoints
    return endpoint.ticket


@pytest.mark.parametrize("store", ["parts"], indirect=True)
def test_the_command_line_serves_and_operates(store: Any, tmp_path: Path) -> None:
    path = Path(store.path)
    store.close()
    secret, secrets = new_secret(), tmp_path / "secrets"
    secrets.write_text(f"{SALES} {secret}\n")
    secrets.chmod(0o600)
    config = tmp_path / "node.toml"
    config.write_text(f'[tenants.all]\nhosts = ["{SALES}"]\nread = ["*"]\n')

    assert nand("nvme", "token", str(secrets)).split() == [SALES, token_of(SALES, secret)]
    metrics = tmp_path / "metrics.sock"
    options = ["--secret-file", str(secrets), "--config", str(config), "--metrics", str(metrics), "--log-level", "info"]
    with process(path, *options) as (server, url), fl.connect(url) as client:
        assert read(client, command(table="t"), with_token(SALES, secret)).num_rows == 20_000
        with pytest.raises(fl.FlightUnauthorizedError):
            put(client, command(array="number"), pa.table({"values": [7.5]}), with_token(SALES, secret))
        with pytest.raises(fl.FlightUnauthenticatedError):
            list(client.list_flights())
        status = json.loads(nand("serve", str(path), "--status"))
        assert (status["transport"], status["refused_logins"], status["calls"]) == ("flight", 1, [])
        assert "0" in nand("serve", str(path), "--reload")
        told = asked(metrics)
        assert 'nandarray_operation_duration_seconds_count{tenant="all",kind="flight_put"} 1' in told
        assert 'nandarray_failures_total{status="PERMISSION_DENIED"} 1' in told
        sent = next(line for line in told.splitlines() if 'sent_bytes_total{tenant="all",kind="flight_get"}' in line)
        assert int(sent.split()[-1]) > len(TEXT) // 2
        server.send_signal(signal.SIGTERM)
        since = time.monotonic()
        assert ended(server, 10) == 0
        assert time.monotonic() - since < 10
        assert server.stderr is not None
        log = server.stderr.read()
    for word in (
        "info start",
        "transport=flight",
        "info ready",
        "warning login_refused",
        "info call_failed",
        "info stop",
    ):
        assert word in log


def asked(path: Path) -> str:
    import socket

    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(path))
        one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        parts = []
        while part := one.recv(1 << 16):
            parts.append(part)
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    "options",
    [
        ["--flight-cert", "a"],
        ["--flight", "127.0.0.1:0", "--shm", "x"],
        ["--flight", "127.0.0.1:0", "--flight-key", "a"],
    ],
)
def test_options_that_would_be_without_effect_are_refused(options: list[str], tmp_path: Path) -> None:
    nandarray.open(tmp_path / "a.nand", "w").close()
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "a.nand"), *options])
    assert (done.exit_code, "--flight" in done.output) == (2, True)


def nand(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.output


JARS = Path(__file__).resolve().parents[2] / "target" / "flight-jars"
HOW = "mvn -f tests/flight/pom.xml dependency:copy-dependencies brings Arrow's Flight client in Java"


@pytest.mark.skipif(shutil.which("java") is None or not list(JARS.glob("flight-core-*.jar")), reason=HOW)
@pytest.mark.parametrize("store", ["parts"], indirect=True)
def test_a_client_in_java_reads_tables_and_arrays(store: Any) -> None:
    source = Path(__file__).resolve().parents[1] / "flight" / "FlightReader.java"
    secret = new_secret()
    commands = [
        {"version": 1, "table": "t", "columns": ["id"], "filter": ["<", "id", 100]},
        {"version": 1, "array": "sky/cube", "box": [[0, 5], [0, 3], [0, 2]]},
    ]
    with nandarray.serve_flight(store, secrets={SALES: secret}) as server:
        location = server.url.replace("grpc://", "grpc+tcp://")
        words = [location, token_of(SALES, secret), *map(json.dumps, commands)]
        java = ["java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", f"{JARS}/*", str(source)]
        done = subprocess.run([*java, *words], capture_output=True, text=True, timeout=60)
    names = [f"listed {name}" for name in ("line", "number", "records", "sky/cube", "t")]
    assert done.stdout.splitlines() == [
        *names,
        "read 100 4950",
        "read 5 435",
        "failed NOT_FOUND",
        "failed UNAUTHENTICATED",
    ]
