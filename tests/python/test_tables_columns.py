"""Tables of columns beside tables of Arrow in memory, behind every door; crashes, bad input, zones."""

from __future__ import annotations

import datetime
import itertools
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import nandarray
from nandarray import parts
from nandarray.errors import BadIndexError, CorruptError, ExistsError, InvalidError, NotFoundError
from nandarray.interop import tables
from nandarray.interop.tables import ColumnTable, Piece, Test, col
from nandarray.interop.tables.expressions import expression_of
from nandarray.interop.tables.where import as_test

DAY = datetime.date(2000, 1, 1)
WORDS = ["", "a", "é\0", "漢🙂", "same", "same again" * 9]


def _days(random_: random.Random) -> datetime.date:
    return DAY + datetime.timedelta(days=random_.randrange(-9999, 9999))


#: A type, and a value of it.
TYPES: dict[str, tuple[Any, Any]] = {
    "bool": (pa.bool_(), lambda r: r.random() < 0.5),
    "int8": (pa.int8(), lambda r: r.randrange(-128, 128)),
    "uint64": (pa.uint64(), lambda r: r.choice([0, r.randrange(1 << 64)])),
    "int64": (pa.int64(), lambda r: r.choice([-(1 << 63), r.randrange(100)])),
    "float16": (pa.float16(), lambda r: np.float16(r.random())),
    "float32": (pa.float32(), lambda r: r.choice([0.5, float("inf"), r.randrange(99) / 4])),
    "float64": (pa.float64(), lambda r: r.choice([0.1, -0.0, float("-inf"), r.random()])),
    "decimal32": (pa.decimal32(9, 2), lambda r: Decimal(r.randrange(-(10**9) + 1, 10**9)).scaleb(-2)),
    "decimal64": (pa.decimal64(18, 3), lambda r: Decimal(r.randrange(-(10**18) + 1, 10**18)).scaleb(-3)),
    "decimal9": (pa.decimal128(9, 2), lambda r: Decimal(r.randrange(-(10**9) + 1, 10**9)).scaleb(-2)),
    "decimal30": (pa.decimal128(30, 4), lambda r: Decimal(r.randrange(-(10**30) + 1, 10**30)).scaleb(-4)),
    "decimal60": (pa.decimal256(60, 0), lambda r: Decimal(r.randrange(-(10**60) + 1, 10**60))),
    "date32": (pa.date32(), _days),
    "date64": (pa.date64(), _days),
    "time32": (pa.time32("s"), lambda r: datetime.time(r.randrange(24), r.randrange(60))),
    "time64": (pa.time64("ns"), lambda r: datetime.time(r.randrange(24), r.randrange(60), 1, 5)),
    "timestamp": (pa.timestamp("us"), lambda r: datetime.datetime(2000, 1, 1, 12, 0, r.randrange(60), 7)),
    "zoned": (pa.timestamp("ms", "Europe/Berlin"), lambda r: r.randrange(1 << 40)),
    "duration": (pa.duration("ns"), lambda r: r.randrange(1 << 40)),
    "fixed": (pa.binary(3), lambda r: r.randbytes(3)),
    "text": (pa.string(), lambda r: r.choice(WORDS) + str(r.randrange(999))),
    "few": (pa.large_string(), lambda r: r.choice(WORDS)),
    "bytes": (pa.binary(), lambda r: r.randbytes(r.randrange(5))),
    "codes": (pa.dictionary(pa.int8(), pa.string()), lambda r: r.choice(WORDS)),
    "ordered": (pa.dictionary(pa.uint16(), pa.int64(), ordered=True), lambda r: r.randrange(9)),
    "list": (pa.list_(pa.int32()), lambda r: [r.randrange(9) for _ in range(r.randrange(4))]),
    "dates": (pa.large_list(pa.date32()), lambda r: [_days(r) for _ in range(r.randrange(4))]),
    "pair": (pa.list_(pa.float32(), 2), lambda r: [r.randrange(9) / 2, 0.5]),
    "a/b..": (pa.int16(), lambda r: r.randrange(9)),
    "ends": (pa.uint8(), lambda r: r.randrange(9)),
}


def rows(random_: random.Random, count: int, names: list[str]) -> Any:
    missing = random_.choice([0, 0.2])
    columns = {}
    for name in names:
        kind, make = TYPES[name]
        values = [None if random_.random() < missing else make(random_) for _ in range(count)]
        columns[name] = pa.array(values, pa.string() if name == "codes" else kind).cast(kind)
    return pa.table(columns)


def same(found: Any, wanted: Any) -> None:
    assert found.schema.equals(wanted.schema), found.schema
    assert found.num_rows == wanted.num_rows
    for name in wanted.column_names:
        assert found[name].to_pylist() == wanted[name].to_pylist(), name


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.opened(request.param, tmp_path / "t.nand") as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Any:
    with nandarray.open(tmp_path / "f.nand", "w") as made:
        yield made


def test_rows_are_those_of_a_table_in_memory(store: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("nandarray.interop.tables.columns.write._SLAB_ROWS", 13)
    for seed in range(4 if doors.is_file(store) else 1):
        random_ = random.Random(seed)
        names = list(TYPES) if seed == 0 else random_.sample(list(TYPES), 5)
        if "int8" not in names:
            names.append("int8")
        model = rows(random_, random_.choice([0, 1, 60]), names)
        table = tables.create(store, f"g/{seed}", model, zone_rows=random_.choice([1, 16, 65536]))
        for step in range(6):
            same(table.scan(batch_rows=random_.choice([1, 7, 1000])).read_all(), model)
            assert table.num_rows == table.count_rows() == len(model)
            chosen = [random_.randrange(len(model)) for _ in range(9)] if len(model) else []
            same(table.take(chosen), model.take(pa.array(chosen, pa.int64())))
            limit = random_.randrange(-128, 128)
            passing = model.filter(pc.field("int8") > limit)
            same(table.scan(names[::-1], col("int8") > limit, batch_rows=50).read_all(), passing.select(names[::-1]))
            assert table.count_rows(col("int8") > limit) == len(passing)
            if step % 3 == 2:
                assert table.delete(col("int8") > limit) == len(passing)
                model = model.filter(pc.fill_null(pc.less_equal(model["int8"], limit), fill_value=True))
            else:
                more = rows(random_, random_.randrange(40), names)
                model = pa.concat_tables([model, more])
                assert table.append(random_.choice([more, more.to_reader(9)])) == len(model)
        again = tables.open_table(store, f"g/{seed}")
        assert isinstance(again, ColumnTable)
        same(again.scan().read_all(), model)
        found = [batch for piece in again.pieces(at_least=4) for batch in again.scan(pieces=[piece])]
        same(pa.Table.from_batches(found, model.schema), model)


def test_zones_bound_every_value_and_hold_nan_and_missing_ones(file: nandarray.Store) -> None:
    random_ = random.Random(3)
    model = rows(random_, 150, list(TYPES))
    model = model.append_column(
        "nan", pa.array([None if i % 7 == 0 else float("nan") if i % 5 == 0 else i for i in range(150)])
    )
    long = [
        random_.choice(["", "\0", "z" * 40, "z" * 32, "a" * 31 + "\0" * 3]) + chr(random_.randrange(0x10FFFF // 2))
        for _ in range(149)
    ]
    high = pa.array([b"\xff" * 40, *(one.encode(errors="replace") for one in long)], pa.large_binary())
    model = model.append_column("long", high)
    table = tables.create(file, "t", model.slice(0, 70), zone_rows=16)
    table.append(model.slice(70, 3))
    table.append(model.slice(73))
    assert table.pieces(at_least=100) == [Piece(at, min(at + 16, 150)) for at in range(0, 150, 16)]
    for name in model.column_names:
        zones = table.zones(name).to_pylist()
        assert [zone["begin"] for zone in zones] == list(range(0, 150, 16))
        for zone in zones:
            values = model[name].slice(zone["begin"], zone["rows"]).to_pylist()
            there = [one for one in values if one is not None]
            assert zone["nulls"] == len(values) - len(there), name
            assert zone["nan"] == any(one != one for one in there), name
            if isinstance(there[0], list):
                assert [zone["low"], zone["high"]] == [None, None]
                continue
            plain = [one.encode() if isinstance(one, str) else one for one in there if one == one]
            assert zone["low"] <= min(plain), name
            assert zone["high"] is None or zone["high"] >= max(plain), name
            if not isinstance(plain[0], bytes):
                assert (zone["low"], zone["high"]) == (min(plain), max(plain)), name
    assert table.zones("long")["high"].null_count == 1
    told = {row["column"]: row for row in table.statistics().to_pylist()}
    assert told["decimal30"]["max"] == str(max(one for one in model["decimal30"].to_pylist() if one is not None))
    assert (told["few"]["encoding"], told["long"]["max"]) == ("codes bitpack", None)
    assert all(row["bytes"] > 0 for row in told.values())


PYTHON: dict[str, Any] = {"count": len, "min": min, "max": max, "sum": sum, "mean": lambda x: sum(x) / len(x)}


def test_aggregates_are_those_of_python(store: Any) -> None:
    random_ = random.Random(4)
    names = [
        "int8",
        "uint64",
        "float64",
        "decimal9",
        "decimal32",
        "decimal30",
        "text",
        "few",
        "codes",
        "date32",
        "duration",
        "bool",
    ]
    model = rows(random_, 200, names)
    table = tables.create(store, "t", model, zone_rows=16)
    asked: dict[str, Any] = {}
    for name in names:
        functions = ["count", "min", "max"] + (
            ["sum", "mean"] if name not in ("text", "few", "codes", "date32", "duration") else []
        )
        asked |= {f"{one} {name}": (one, name) for one in functions if (one, name) != ("sum", "uint64")}
    for by in ([], ["few"], ["codes", "bool"]):
        groups: dict[Any, list[dict[str, Any]]] = {}
        for row in model.to_pylist():
            if row["int8"] is not None and row["int8"] > -50:
                groups.setdefault(tuple(row[one] for one in by), []).append(row)
        found = table.aggregate({"n": "count", **asked}, by, col("int8") > -50, batch_rows=23)
        assert [tuple(row[one] for one in by) for row in found.to_pylist()] == list(groups)
        for row, members in zip(found.to_pylist(), groups.values(), strict=True):
            assert row["n"] == len(members)
            for name, (function, column) in asked.items():
                values = [one[column] for one in members if one[column] is not None]
                with localcontext(prec=100):
                    wanted = PYTHON[function](values) if values or function == "count" else None
                if isinstance(row[name], float) and abs(row[name]) < float("inf"):
                    assert row[name] == pytest.approx(float(wanted)), name
                else:
                    assert row[name] == wanted or wanted != wanted, name
    assert table.aggregate({"n": "count"}, where=col("int8") > 200).to_pylist() == [{"n": 0}]
    least = {"n": ("min", "int8"), "m": ("mean", "decimal9"), "k": ("count", "text"), "d": ("max", "date32")}
    assert table.aggregate(least, where=col("few") == "none").to_pylist() == [{"n": None, "m": None, "k": 0, "d": None}]
    table.delete(col("int8") < 0)
    table.append(model.slice(0, 50))
    whole = pc.field("int8") >= 0
    model = pa.concat_tables([model.filter(whole | pc.field("int8").is_null()), model.slice(0, 50)])
    some = [one for one in model["int8"].to_pylist() if one is not None and one < 90]
    sums = {"n": ("min", "int8"), "m": ("max", "int8"), "s": ("sum", "int8"), "k": "count"}
    wanted_sums = {"n": min(some), "m": max(some), "s": sum(some), "k": len(some)}
    assert table.aggregate(sums, where=col("int8") < 90).to_pylist() == [wanted_sums]
    assert table.aggregate({"n": ("sum", "int8")}, ["few"], where=col("int8") > 200).num_rows == 0
    wide = tables.create(store, "w", {"x": pa.array([1 << 62] * 3 + [-(1 << 62)] * 2, pa.int64())})
    assert wide.aggregate({"s": ("sum", "x")}).to_pylist() == [{"s": 1 << 62}]
    far = tables.create(store, "far", {"x": pa.array([1 << 62, 5]).cast(pa.timestamp("s"))})  # behind Python's times
    assert far.aggregate({"m": ("max", "x")})["m"].cast(pa.int64()).to_pylist() == [1 << 62]
    for wrong in ({"s": ("sum", "few")}, {"s": "sum"}, {"s": ("sum", "none")}, {}, {"few": "count"}):
        with pytest.raises(InvalidError):
            table.aggregate(wrong, ["few"] if wrong == {"few": "count"} else [])
    wide.append({"x": [1 << 62] * 3})
    with pytest.raises(InvalidError, match="'s' must fit int64"):
        wide.aggregate({"s": ("sum", "x")})


def test_ends_and_groups_of_every_type(file: nandarray.Store) -> None:
    random_ = random.Random(11)
    names = [name for name in TYPES if name not in ("list", "dates", "pair")]
    model = rows(random_, 40, names).append_column("half", pa.array([0, 1] * 20))
    table = tables.create(file, "t", model)
    for name in names:
        values = [one for one in model[name].to_pylist() if one is not None]
        for by in ([], ["half"]):
            found = table.aggregate({"low": ("min", name), "high": ("max", name)}, by, batch_rows=7)
            assert found["low"].type == found["high"].type == table.schema.field(name).type, name
            ends = (min(found["low"].to_pylist()), max(found["high"].to_pylist()))
            assert ends == (min(values), max(values)), name
        groups = table.aggregate({"n": "count"}, [name], batch_rows=7)
        assert groups.schema.field(name).type == table.schema.field(name).type
        keys = [str(0.0 if one == 0.0 else one) for one in groups[name].to_pylist()]
        assert sorted(keys) == sorted({str(0.0 if one == 0.0 else one) for one in model[name].to_pylist()}), name


# --- Tests of rows ----------------------------------------------------------------------------------------------------


def some_test(random_: random.Random, model: Any) -> Test:
    """A test of some columns, with values that these have."""
    if random_.random() < 0.4:
        one, other = some_test(random_, model), some_test(random_, model)
        return random_.choice([one & other, one | other, ~one])
    name = random_.choice(model.column_names)
    x = col(name)
    values = [one for one in model[name].to_pylist() if one is not None]
    if random_.random() < 0.2 or not values or isinstance(values[0], list):
        return random_.choice([x.is_null(), x.is_valid()])
    value, other = random_.choice(values), random_.choice(values)
    made = [x < value, x <= value, x > value, x >= value, x == value, x != value, x.isin([value, other])]
    if isinstance(value, bool):
        return random_.choice([x == value, x != value, x.isin([value]), as_test(x)])
    if isinstance(value, str | bytes):
        made += [x.startswith(value[:2]), x.endswith(value[-1:]), x.contains(value[1:2])]
    return random_.choice([*made, x.between(value, other)])


def test_random_tests_give_what_arrow_gives(file: nandarray.Store) -> None:
    random_ = random.Random(8)
    names = [name for name in TYPES if name not in ("float16", "zoned")]
    model = rows(random_, 120, names).sort_by("int64")
    nan = [random_.choice([float("nan"), 1.5, -2.0, None]) for _ in range(len(model))]
    model = model.append_column("nan", pa.array([2.5] * 40 + nan[40:], pa.float64()))
    table = tables.create(file, "t", model.slice(0, 50), zone_rows=8)
    table.append(model.slice(50))
    table.delete(col("int8").between(-20, 5))
    live = model.filter(expression_of(~col("int8").between(-20, 5) | col("int8").is_null(), model.schema))
    left_out = 0
    for _ in range(30):
        test = some_test(random_, model)
        wanted = live.filter(expression_of(test, live.schema))
        found = table.scan(["decimal9", "few", "list"], test, batch_rows=random_.choice([5, 1000])).read_all()
        same(found, wanted.select(["decimal9", "few", "list"]))
        assert table.count_rows(test) == len(wanted), test
        left_out += sum(piece.end - piece.begin for piece in table.pieces(test)) < len(model)
    assert left_out > 7


def test_values_of_dictionaries_that_are_null_are_missing_rows(file: nandarray.Store) -> None:
    for number, values in enumerate(([5, None, 7], ["a", None, "b"], [0.5, None, -0.0], [True, None, False])):
        codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1, 0], pa.int8()), pa.array(values))
        rows = pa.table({"x": pa.chunked_array([codes.slice(0, 2), codes.slice(2)])})
        table = tables.create(file, f"t{number}", rows)
        table.append(rows)
        assert table.scan().read_all()["x"].to_pylist() == 2 * codes.to_pylist()
        assert table.count_rows(col("x").is_null()) == table.zones("x")["nulls"][0].as_py() == 4
        found = table.aggregate({"n": "count", "most": ("max", "x")}, by=["x"])
        assert found.to_pylist() == [
            {"x": value, "n": count, "most": value} for value, count in zip(values, [4, 4, 2], strict=True)
        ]
        assert found.schema.field("x").type == codes.type
        with pytest.raises(InvalidError, match="missing values"):
            tables.create(file, "no", rows, schema=pa.schema([pa.field("x", codes.type, nullable=False)]))


def test_codes_are_not_computed_with(file: nandarray.Store) -> None:
    rows = {"x": pa.array([50, 60, 50, None]).dictionary_encode(), "y": [50, 1, 0, 2]}
    table = tables.create(file, "t", rows)
    asked = {"s": ("sum", "x"), "m": ("max", "x"), "a": ("mean", "x")}
    assert table.aggregate(asked).to_pylist() == [{"s": 160, "m": 60, "a": 160 / 3}]
    for test in (col("x") * 2 > 100, col("y") == col("x"), col("x") == col("y"), col("x") + col("y") == 100):
        assert table.count_rows(test) == 1


def test_groups_are_of_equal_values_in_the_order_of_their_first_rows(file: nandarray.Store) -> None:
    floats = np.concatenate([[2, 0.0, -0.0, float("nan")], np.array([0xFFF8000000000001], "u8").view("f8")])
    table = tables.create(file, "f", {"x": floats})
    assert table.aggregate({"n": "count"}, by=["x"])["n"].to_pylist() == [1, 2, 2]
    keys = [0, 0, None, 1, None, 2, 1]  # which Arrow gives as 0, 1, None
    table = tables.create(file, "t", {"x": pa.array(keys), "y": pa.array(keys).dictionary_encode()})
    for by in (["x"], ["y"], ["x", "y"]):
        assert table.aggregate({"n": "count"}, by=by, batch_rows=5)[by[0]].to_pylist() == [0, None, 1, 2]
    table = tables.create(file, "u", {"x": pa.array([b"b" * 16, b"a" * 16, b"b" * 16], pa.uuid())})
    assert table.aggregate({"n": "count"}, by=["x"]).schema.field("x").type == pa.uuid()


def test_zones_leave_out_blocks_before_a_byte_of_them_is_read(file: nandarray.Store) -> None:
    count = 400_000
    random_ = np.random.default_rng(1)
    model = pa.table(
        {"id": np.arange(count) // 3, "x": random_.random(count), "t": [f"{at:07d}" for at in range(count)]}
    )
    tables.create(file, "t", model, zone_rows=1 << 14)
    file.flush()
    with nandarray.open(file.path) as store:  # whose counters begin at zero
        table = tables.open_table(store, "t")
        for test, zones in [
            (col("id") == 100_000, 1), (col("id").between(5, 6), 1), (col("t").startswith("00123"), 1),
            ((col("id") < 10) | (col("t") >= "0399990"), 2), (col("id") < 0, 0), (col("x") > 2, 0),
            ((col("id") > 130_000) & (col("t") < "0000009"), 0), (col("t").isin(["0000001", "0399999"]), 2),
        ]:  # fmt: skip
            before = store.stat()["bytes_read"]
            found = table.scan(["id", "x", "t"], test).read_all()
            same(found, model.filter(expression_of(test, model.schema)))
            assert sum(-(-(piece.end - piece.begin) // (1 << 14)) for piece in table.pieces(test)) == zones, test
            asked = store.stat()["bytes_read"] - before
            assert asked < 30_000 + zones * (1 << 14) * 40, (test, asked)


def test_what_crosses_to_a_drives_host_is_the_rows_that_pass(tmp_path: Path) -> None:
    count = 100_000
    random_ = np.random.default_rng(2)
    model = pa.table({
        "id": random_.permutation(count), "x": random_.random(count), "code": random_.choice(["a", "b", "c"], count),
        "valid": pa.array(range(count), mask=random_.random(count) < 0.1),
    })  # fmt: skip
    with doors.opened("drive", tmp_path / "d.nand") as store:
        table = tables.create(store, "t", model)
        table.scan(["id"], col("id") < 0).read_all()
        before = doors.wire_bytes(store)
        test = (col("id") < 1000) & (col("code") != "b") & col("valid").is_valid()
        found = table.scan(["x", "code"], test).read_all()
        crossed = doors.wire_bytes(store) - before
        same(found, model.filter(expression_of(test, model.schema)).select(["x", "code"]))
        assert len(found) > 400
        # A number of four bytes, eight bytes and a code of four a row; descriptions and zones of the arrays.
        assert crossed < len(found) * (4 + 8 + 4 + 1) + 16_384, crossed
        few, many = col("id").isin([1, 5, 7]), col("id") < 50_000  # by their places, and as a range
        assert (table.delete(few), table.delete(few), table.delete(many)) == (3, 0, 49_997)
        same(table.scan().read_all(), model.filter(pc.field("id") >= 50_000))


def test_the_same_on_a_modelled_device() -> None:
    random_ = random.Random(9)
    model = rows(random_, 300, ["int8", "text", "few", "decimal9", "float64"])
    device = nandarray.devices()["mqsim-ideal"].with_({"compute.cores": 2, "compute.clock": "1 GHz"})
    with nandarray.open(device=device, mode="w") as store:
        table = tables.create(store, "t", model, zone_rows=64)
        store.flush()
        same(table.scan(where=col("int8") > 0).read_all(), model.filter(pc.field("int8") > 0))
        assert store.report()["programs"]["instructions"] > 0
        assert table.append(model) == 600
        assert table.delete(col("few") == "same") > 0
        assert table.num_rows == table.scan().read_all().num_rows == table.aggregate({"n": "count"})["n"][0].as_py()


# --- Sources, bad input -----------------------------------------------------------------------------------------------


def test_a_table_replaces_another_when_all_of_its_rows_are_there(store: Any) -> None:
    schema = pa.schema([("b", pa.string())])

    def broken() -> Any:
        yield pa.record_batch([["x"]], schema=schema)
        raise OSError("the stream broke")

    tables.create(store, "t", {"a": [1, 2], "valid": [None, 1]})
    with pytest.raises(OSError, match="the stream broke"):
        tables.create(store, "t", pa.RecordBatchReader.from_batches(schema, broken()), overwrite=True)
    old = tables.open_table(store, "t")
    assert old.count_rows() == 2
    assert store.keys() == ["t"]
    tables.create(store, "t", old.scan(["a"], col("a") > 1), overwrite=True)  # of the table that it replaces
    assert tables.open_table(store, "t").scan().read_all().to_pylist() == [{"a": 2}]
    tables.create(store, "lines", b"1|\n", {"id": "int32"})
    tables.create(store, "lines", {"b": ["x"]}, overwrite=True)
    assert tables.open_table(store, "lines").schema.names == ["b"]
    tables.create(store, "new", {"b": ["x"]}, overwrite=True)
    store.create("array", data=np.zeros(2))
    with pytest.raises(NotFoundError, match="array is no table"):
        tables.create(store, "array", {"b": ["x"]}, overwrite=True)
    with pytest.raises(InvalidError, match="overwrite must be left out"):
        tables.create(store, "t", b"1|\n", {"id": "int32"}, overwrite=True)
    assert sorted(store.keys()) == ["array", "lines", "new", "t"]


def test_text_that_gets_many_values_lies_plainly(store: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("nandarray.interop.tables.columns.encoding.CROWD", 20)
    monkeypatch.setattr("nandarray.interop.tables.columns.write._SLAB_ROWS", 20)
    first = ["a", "b", None, "b"] * 10
    model = pa.table({"x": first + [f"{at}" for at in range(60)] + first, "y": first * 2 + first[:20] + first})
    table = tables.create(store, "t", model, zone_rows=5)
    assert [row["encoding"] for row in table.statistics().to_pylist()] == ["zstd", "codes bitpack"]
    same(table.scan().read_all(), model)
    assert table.zones("x")["high"].to_pylist()[:9] == [b"b"] * 8 + [b"4"]
    assert table.append(model) == 2 * len(model)
    same(table.scan().read_all(), pa.concat_tables([model, model]))
    assert not [name for name in store.array_names() if ".text" in name or name.startswith("t/x.d")]
    monkeypatch.setattr("nandarray.interop.tables.columns.encoding.CROWD_MAX", 50)
    few = tables.create(store, "few", {"x": first})
    assert few.append({"x": [f"{at}" for at in range(48)]}) == 88
    with pytest.raises(InvalidError, match=r"'x' has 51 different values; text by codes must have 50 at most"):
        few.append({"x": ["more"]})
    assert few.num_rows == 88
    anew = tables.create(store, "few", few.scan(), overwrite=True)
    assert anew.append({"x": ["more"]}) == 89


class Stream:
    """Rows that only Arrow's PyCapsule interface gives."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested: object = None) -> object:
        return self._table.__arrow_c_stream__(requested)


def test_rows_come_from_files_streams_and_views(file: nandarray.Store, tmp_path: Path) -> None:
    plain = pa.table({"id": [1, 2, 3], "name": ["x", None, "z"], "at": pa.array([1, 2, 3], pa.timestamp("s"))})
    pq.write_table(plain, tmp_path / "a.parquet")
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, plain.schema) as writer:
        writer.write_table(plain)
    with pa.OSFile(str(tmp_path / "a.feather"), "wb") as sink, pa.ipc.new_stream(sink, plain.schema) as writer:
        writer.write_table(plain)
    (tmp_path / "a.csv").write_text(
        'id,name,at\n1,x,1970-01-01 00:00:01\n2,,1970-01-01 00:00:02\n3,"z",1970-01-01 00:00:03\n'
    )
    seconds = pq.read_schema(tmp_path / "a.parquet")  # Parquet has no seconds
    cases: list[tuple[Any, Any]] = [(tmp_path / "a.parquet", plain.cast(seconds)), (str(tmp_path / "a.arrow"), plain)]
    cases += [
        (tmp_path / "a.feather", plain),
        (Stream(plain), plain),
        (plain.to_reader(), plain),
        (plain.to_pydict(), None),
    ]
    cases += [(plain.to_batches()[0], plain), (tmp_path / "a.csv", None)]
    for number, (source, wanted) in enumerate(cases):
        table = tables.create(file, f"t{number}", source)
        found = table.scan().read_all()
        assert found["id"].to_pylist() == [1, 2, 3]
        if wanted is not None:
            same(found, wanted)
    csv = tables.create(file, "csv", tmp_path / "a.csv", pa.schema([("name", pa.string()), ("id", pa.int8())]))
    assert csv.scan().read_all().to_pylist()[0] == {"name": "x", "id": 1}
    views = pa.table({"v": pa.array(["a", "b"], pa.string_view()), "w": pa.array([b"", None], pa.binary_view())})
    table = tables.create(file, "views", views, columns=["w", "v"])
    assert table.schema.types == [pa.large_binary(), pa.large_string()]
    assert table.append(views.select(["w", "v"])) == 4
    assert table.scan(where=col("v") == "a").read_all()["w"].to_pylist() == [b"", b""]
    with pytest.raises(InvalidError, match="has the columns v, w; they must be w, v"):
        table.append(views)
    again = pickle.loads(pickle.dumps(tables.open_table(file, "t1")))
    same(again.scan().read_all(), plain)


def test_handles_and_processes_see_what_others_did(tmp_path: Path) -> None:
    model = pa.table({"id": [1, 2], "name": ["a", None], "list": [[1], None]})
    with (
        nandarray.open(tmp_path / "s.nand", "w") as file,
        nandarray.serve(file, "127.0.0.1:0") as server,
        nandarray.open(server.url, "r+") as one,
        nandarray.open(server.url, "r+") as other,
    ):
        first = tables.create(one, "g/t", model)
        second = tables.open_table(other, "g/t")
        assert isinstance(second, ColumnTable)
        whole = model
        for table, again in ((first, second), (second, first), (first, second)):
            begun = again.scan(batch_rows=1)
            assert table.append(model) == len(whole) + 2
            same(begun.read_all(), whole)  # as it was when the scan began
            whole = pa.concat_tables([whole, model])
            same(again.scan().read_all(), whole)
            assert (again.take([len(whole) - 1])["id"].to_pylist(), again.zones("id")["rows"][0].as_py()) == (
                [2],
                len(whole),
            )
        assert (first.delete(col("name") == "a"), second.num_rows) == (4, 4)
        same(pa.table(second), whole.filter(pc.field("id") == 2))
        copy = tables.create(other, "copy", second)
        one.rename("g/t", "moved")
        same(pa.table(tables.open_table(other, "moved")), pa.table(copy))


def test_threads_append_and_scan_at_the_same_time(file: nandarray.Store) -> None:
    table = tables.create(file, "t", {"id": [0] * 10, "text": ["0"] * 10}, zone_rows=7)
    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(table.append, {"id": [at] * 10, "text": [str(at)] * 10}) for at in range(1, 25)]
        reads = [pool.submit(lambda: pa.table(table).to_pydict()) for _ in range(24)]
        assert sorted(one.result() for one in writes)[-1] == 250
        for found in [one.result() for one in reads] + [pa.table(table).to_pydict()]:
            runs = np.array(found["id"]).reshape(-1, 10)
            assert (runs == runs[:, :1]).all()
            assert found["text"] == [str(at) for at in found["id"]]


def _broken(table: Any, error: Any) -> Any:
    def batches() -> Any:
        yield from table.to_batches(max_chunksize=1)
        raise error

    return pa.RecordBatchReader.from_batches(table.schema, batches())


def _not_utf8(values: list[bytes]) -> Any:
    made = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), made.buffers())


def test_what_cannot_be_created_leaves_nothing(store: Any, tmp_path: Path) -> None:
    good = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", None]})
    tables.create(store, "t", good)
    names = sorted(store)
    (tmp_path / "bad.csv").write_text("id,name\n1,a\n2,b,c\n")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "a.txt").write_text("1")
    structs = pa.table({"id": [1], "s": [{"x": 1}]})
    for source, match in [
        (structs, "column 's' must be of numbers, .* not of struct"),
        (pa.table({"u": pa.array([[[1]]], pa.list_(pa.list_(pa.int8())))}), "column 'u' must be"),
        (pa.table({"u": pa.array([["a"]], pa.list_(pa.string()))}), "column 'u' must be"),
        (pa.table({"u": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))}), "column 'u' must be"),
        (pa.table({"u": pa.array([None], pa.null())}), "column 'u' must be"),
        (pa.table({"u": pa.array([[1, None]], pa.list_(pa.int8()))}), "column 'u' has 1 elements within lists"),
        (pa.table({"u": pa.array([[1, None]], pa.list_(pa.int8(), 2))}), "column 'u' has elements within lists"),
        (pa.table({"u": _not_utf8([b"a", b"\xff"])}), "column 'u' of the Table: .*UTF8"),
        (pa.table([pa.array([1]), pa.array([2])], names=["x", "x"]), "'x' is there twice"),
        (pa.table({}), "at least one column"),
        (tmp_path / "bad.csv", "bad.csv cannot be read: .*Expected 2 columns, got 3"),
        (tmp_path / "bad.parquet", "bad.parquet cannot be read"),
        (tmp_path / "a.txt", "must end in one of"),
        (3, "rows must be a table, batch or stream of Arrow"),
    ]:
        with pytest.raises(InvalidError, match=match):
            tables.create(store, "new", source)
    with pytest.raises(FileNotFoundError):
        tables.create(store, "new", tmp_path / "none.parquet")
    with pytest.raises(ExistsError):
        tables.create(store, "t", good)
    for options, match in [
        ({"zone_rows": 0}, "zone_rows must be"), ({"compression": {"none": "zstd"}}, "compression is given for column"),
        ({"compression": "gzip"}, "unknown compression"), ({"schema": 5}, "schema must be a schema"),
    ]:  # fmt: skip
        with pytest.raises(InvalidError, match=match):
            tables.create(store, "new", good, **options)
    with pytest.raises(NotFoundError, match="no column 'none'"):
        tables.create(store, "new", good, columns=["none"])
    assert sorted(store) == names


def test_what_cannot_be_appended_or_read_changes_nothing(store: Any) -> None:
    good = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", None]})
    table = tables.create(store, "t", good, zone_rows=1)
    appended: list[tuple[Any, Any, str]] = [
        (pa.table({"id": [1]}), InvalidError, "they must be id, name"),
        (good.set_column(0, "id", pa.array([1, 2])), InvalidError, "column 'id' .* has type int64; it must be int32"),
        (good.set_column(1, "name", _not_utf8([b"\xff", b""])), InvalidError, "column 'name' of the Table: .*UTF8"),
        (_broken(good, pa.ArrowInvalid("torn")), InvalidError, "cannot be read: torn"),
        (_broken(good, OSError("gone")), OSError, "gone"),
        (_broken(good, KeyboardInterrupt("now")), KeyboardInterrupt, "now"),
    ]
    for source, error, match in appended:
        with pytest.raises(error, match=match):
            table.append(source)
        same(table.scan().read_all(), good)
        assert table.append(good.slice(0, 0)) == 2
    assert table.append(good) == 4
    assert table.append({"id": [None], "name": [None]}) == 5  # of no type, which fits all
    assert table.delete(col("id").is_null()) == 1
    same(table.scan().read_all(), pa.concat_tables([good, good]))
    for rows_, error in [([4], BadIndexError), ([-1], BadIndexError), ([0.5], BadIndexError), ([[0]], BadIndexError)]:
        with pytest.raises(error):
            table.take(rows_)
    for call in (
        lambda: table.scan(["none"]), lambda: table.scan(where=col("none") > 1), lambda: table.delete(col("none") > 1),
        lambda: table.zones("none"), lambda: table.aggregate({"n": "count"}, ["none"]),
    ):  # fmt: skip
        with pytest.raises(NotFoundError, match="no column 'none'; there is id, name"):
            call()


def test_names_and_pieces_that_are_no_list_of_such_are_refused(file: nandarray.Store) -> None:
    rows_of = tables.create(file, "t", {"id": [1, 2]})
    text = tables.create(file, "text", b"1|\n2|\n", {"id": "int32"})
    file.create("x", data=np.arange(3))
    elements = tables.elements(file, "x")
    for names in ("id", 5):
        calls: list[Any] = [rows_of.scan, text.scan, text.rows, elements.scan, lambda given: rows_of.take([0], given)]
        for call in (*calls, lambda given: tables.create(file, "new", rows_of, columns=given)):
            with pytest.raises(InvalidError, match="columns must be a list of names"):
                call(names)
    for by in (None, "id", 5):
        with pytest.raises(InvalidError, match="by must be a list of names"):
            rows_of.aggregate({"n": "count"}, by=by)
    for pieces in ([(0, 1)], Piece, 5):
        for one in (rows_of, text, elements):
            with pytest.raises(InvalidError, match="pieces must be a list of those that pieces"):
                one.scan(pieces=pieces)
        with pytest.raises(InvalidError, match="pieces must be a list"):
            rows_of.aggregate({"n": ("sum", "id")}, pieces=pieces)


def test_values_that_a_column_cannot_take_are_refused(store: Any) -> None:
    good = pa.table({"id": pa.array([1, 2], pa.int32())})
    required = pa.schema([pa.field("id", pa.int32(), nullable=False)])
    strict = tables.create(store, "strict", good, required)
    with pytest.raises(InvalidError, match="has 1 missing values; it must have none"):
        strict.append({"id": pa.array([None], pa.int32())})
    few = tables.create(store, "few", {"c": pa.array(["a"]).cast(pa.dictionary(pa.int8(), pa.string()))})
    with pytest.raises(InvalidError, match="column 'c' has 201 different values; dictionary.* must have 128 at most"):
        few.append({"c": pa.array([str(at) for at in range(200)]).dictionary_encode()})


def test_arrays_that_are_no_table_are_named(file: nandarray.Store) -> None:
    table = tables.create(file, "t", {"id": [1, 2, 3], "c": ["a", "a", "a"]}, zone_rows=2)
    file.create_group("g")
    for name in ("g", "t/id"):
        with pytest.raises(NotFoundError, match="is no table"):
            tables.open_table(file, name)
    told = dict(file["t"].attrs["_TABLE"])
    for wrong in (1, {"version": 1}, {**told, "columns": []}, {**told, "schema": "AA=="}, {**told, "zone_rows": 0}):
        file["t"].attrs["_TABLE"] = wrong
        with pytest.raises(CorruptError, match="describes no table"):
            tables.open_table(file, "t")
    file["t"].attrs["_TABLE"] = {**told, "version": 2}
    with pytest.raises(nandarray.UnsupportedVersionError, match="has version 2"):
        tables.open_table(file, "t")
    file["t"].attrs["_TABLE"] = told
    dates = {"d": pa.array([[1]] * 40, pa.list_(pa.date32())), "k": pa.array(range(40)).dictionary_encode()}
    model = pa.table({"x": pa.array([1] * 40, pa.int64()), "v": [None] * 20 + [1] * 20, **dates})
    other = tables.create(file, "u", model)
    other.delete(col("x") == 2)
    other.delete(col("v") == 1)
    for name, what in [
        ("x", "i4"),
        ("v.valid", "u1"),
        ("d/values", "u1"),
        ("k", "i8"),
        ("k.dictionary", "i4"),
        ("deleted", "u1"),
    ]:
        kept = file[f"u/{name}"][:]
        del file[f"u/{name}"]
        file.create(f"u/{name}", data=kept.astype(what))
        with pytest.raises(CorruptError, match=f"'u/{name}' must have rows of"):
            other.scan().read_all()
        del file[f"u/{name}"]
        file.create(f"u/{name}", data=kept)
    for name in ("x", "x.zones", "d/offsets", "k", "k.dictionary", "ends"):
        file.rename(f"u/{name}", f"kept/{name}")
        calls = [lambda: other.scan().read_all(), lambda: other.append(model), other.statistics]
        unread = {"x.zones": 0, "k.dictionary": 2, "d/offsets": 2}.get(name)  # the call that does not read it
        for number, call in enumerate(calls):
            if number != unread:
                with pytest.raises(CorruptError, match=r"has no array 'offsets'|must have an array 'u/"):
                    call()
        file.rename(f"kept/{name}", f"u/{name}")
    assert other.scan().read_all().num_rows == 20
    for code in (-1, 40):
        file["u/k"][3] = code
        for read in (other.take, lambda _: other.scan(["k"]).read_all()):
            with pytest.raises(CorruptError, match="codes of 'u/k' must be of its 40 values"):
                read([3])
    file["u/ends"][-1] = -1
    for change in (other.scan, lambda: other.append(model)):
        with pytest.raises(CorruptError, match="must have a number of rows, not -1"):
            change()
    file["u/ends"][-1] = 1 << 60
    with pytest.raises(CorruptError, match="its table has 1152921504606846976"):
        other.num_rows  # noqa: B018
    file["t/id"].resize((2,))
    with pytest.raises(CorruptError, match="'t/id' has 2 rows, its table has 3"):
        table.scan()
    file["t/id.zones"].resize((1,))
    with pytest.raises(CorruptError, match="at least 2 elements"):
        table.zones("id")


# --- Crashes ----------------------------------------------------------------------------------------------------------


def _stopped(monkeypatch: Any, at: int) -> None:
    """Let the command of that number, of all that change arrays, stop with an error before it changes anything."""
    count = itertools.count()

    def stopping(real: Any) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            if next(count) >= at:
                raise MemoryError("stopped")
            return real(*given, **options)

        return call

    for kind, name in [
        (nandarray.Array, "append"), (nandarray.Array, "resize"), (nandarray.Array, "__setitem__"),
        (nandarray.Group, "_create"),
    ]:  # fmt: skip
        monkeypatch.setattr(kind, name, stopping(getattr(kind, name)))


def test_an_append_or_a_deletion_that_stops_anywhere_changes_nothing(file: nandarray.Store, monkeypatch: Any) -> None:
    random_ = random.Random(10)
    names = ["int8", "few", "text", "codes", "list", "pair"]
    model = pa.table({"id": range(20), **rows(random_, 20, names).to_pydict()})
    model = model.cast(pa.schema([pa.field("id", pa.int64()), *(pa.field(name, TYPES[name][0]) for name in names)]))
    table = tables.create(file, "t", model, zone_rows=8)
    steps = 0
    for what in ("append", "delete", "append"):
        for at in range(1000):
            more = rows(random_, 10, names).add_column(0, "id", pa.array(range(len(model), len(model) + 10)))
            with monkeypatch.context() as patch:
                _stopped(patch, at)
                try:
                    done = table.append(more) if what == "append" else table.delete(col("id").isin([3, 17]))
                except MemoryError:
                    done = None
            if done is not None:
                break
            steps += 1
            same(table.scan().read_all(), model)
            zones = table.zones("id").to_pylist()
            for zone in zones:
                ids = [one for one in model["id"].to_pylist() if zone["begin"] <= one < zone["begin"] + 8]
                assert zone["low"] <= min(ids) <= max(ids) <= zone["high"]
        model = pa.concat_tables([model, more]) if what == "append" else model.filter(~pc.field("id").isin([3, 17]))
        same(table.scan().read_all(), model)
    assert steps > 30
    assert file.check()["ok"]


def test_a_missing_row_is_found_whatever_a_stopped_append_left_in_its_zone(
    file: nandarray.Store, monkeypatch: Any
) -> None:
    table = tables.create(file, "t", {"x": pa.array([None], pa.int64())})
    append = nandarray.Array.append

    def stopped(array: Any, *rows: Any) -> Any:
        if array.name.endswith("ends"):
            raise MemoryError
        return append(array, *rows)

    monkeypatch.setattr(nandarray.Array, "append", stopped)
    with pytest.raises(MemoryError):
        table.append({"x": [5]})
    assert (table.count_rows(col("x").is_null()), table.count_rows(col("x") == 5)) == (1, 0)


WRITER = """
import sys
import nandarray, pyarrow as pa
from nandarray.interop import tables
from nandarray.interop.tables import col

def rows(step):
    ids = [step] * 50
    text = [None if at == step % 50 else f"{step} " * (step % 40) for at in range(50)]
    return pa.table({"id": ids, "text": text, "code": pa.array([f"v{step}"] * 50).dictionary_encode()})

store = nandarray.open(sys.argv[1], mode="a")
table = tables.open_table(store, "t") if "t" in store else tables.create(store, "t", rows(0), zone_rows=64)
step = table.scan(["id"]).read_all()["id"].to_pylist()[-1] + 1
print(step, flush=True)
while True:
    table.append(rows(step))
    if step % 3 == 0:
        table.delete(col("id") == step - 1)
    step += 1
    if step % 4 == 0:
        store.flush()
        print(step, flush=True)
"""


def test_a_killed_writer_leaves_whole_appends_and_deletions(tmp_path: Path) -> None:
    path = tmp_path / "k.nand"
    for seed in range(3):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(random.Random(seed).random() * 0.3)
        os.kill(child.pid, signal.SIGKILL)
        told = [int(line) for line in child.stdout.read().split("\n")[:-1] if line]
        child.wait()
        child.stdout.close()
        with nandarray.open(path) as store:
            assert store.check()["ok"]
            if "t" not in store:
                assert not told, seed
                continue
            table = tables.open_table(store, "t")
            assert isinstance(table, ColumnTable)
            found = table.scan().read_all().to_pylist()
            steps = [row["id"] for row in found]
            last = steps[-1]
            assert last + 1 >= max(told, default=0), f"seed {seed}: what was flushed is lost"
            there = [step for step in range(last + 1) if step % 3 != 2]
            there += [] if last in there else [last]
            if last % 3 == 0 and last - 1 in steps:  # the deletion did not come
                there = sorted({*there, last - 1})
            assert steps == [step for step in there for _ in range(50)], f"seed {seed}: an append or a deletion is torn"
            for at, row in enumerate(found):
                step = row["id"]
                assert row["code"] == f"v{step}"
                assert row["text"] == (None if at % 50 == step % 50 else f"{step} " * (step % 40))
            zones = table.zones("id").to_pylist()
            assert all(zone["low"] <= zone["begin"] // 50 and zone["high"] >= zone["begin"] // 50 for zone in zones)


def test_a_transaction_has_an_append_or_not(tmp_path: Path) -> None:
    model = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]})
    with parts.create(tmp_path / "p.nand") as store:
        with store.transaction() as tx:
            tables.create(tx, "t", model)
        table = tables.open_table(store, "t")
        assert isinstance(table, ColumnTable)
        tx = store.transaction()
        inside = tables.open_table(tx, "t")
        assert isinstance(inside, ColumnTable)
        assert (inside.append(model), inside.delete(col("id") == 1)) == (6, 2)
        tx.abort()
        same(table.scan().read_all(), model)
        with store.transaction() as tx:
            inside = tables.open_table(tx, "t")
            assert isinstance(inside, ColumnTable)
            inside.append(model)
            inside.delete(col("id") == 1)
        assert table.scan().read_all()["id"].to_pylist() == [2, 3, 2, 3]
        assert store.at(version=store.version - 1)["t/ends"][-1] == 3
        one, other = store.transaction(), store.transaction()
        for tx in (one, other):
            inside = tables.open_table(tx, "t")
            assert isinstance(inside, ColumnTable)
            inside.append(model)
        one.commit()
        with pytest.raises(nandarray.ConflictError):
            other.commit()
        store.refresh()
        assert pa.table(tables.open_table(store, "t"))["id"].to_pylist() == [2, 3, 2, 3, 1, 2, 3]
