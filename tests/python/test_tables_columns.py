"""Tables of columns beside tables of Arrow in memory, behind every door: rows, zones, aggregates, tests, sources."""

from __future__ import annotations

import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from decimal import localcontext
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from column_rows import TYPES, rows, same

import nandarray
from nandarray.errors import InvalidError, NotFoundError
from nandarray.interop import tables
from nandarray.interop.tables import ColumnTable, Piece, Test, col
from nandarray.interop.tables.expressions import expression_of
from nandarray.interop.tables.where import as_test


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.opened(request.param, tmp_path / "t.nand") as made:
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


def test_fields_of_structs_are_columns(file: nandarray.Store) -> None:
    inner = pa.struct([pa.field("y", pa.string(), nullable=False), pa.field("z", pa.list_(pa.int8()))])
    kind = pa.struct([("x", pa.int32()), ("in", inner), ("none", pa.struct([("d", pa.date32())]))])
    values = [
        {"x": 1, "in": {"y": "a", "z": [1]}, "none": {"d": None}}, None, {"x": None, "in": None, "none": None},
        {"x": 4, "in": {"y": "b", "z": None}, "none": None},
    ]  # fmt: skip
    given = pa.table({"id": range(4), "s": pa.array(values, kind)})
    flat = given.flatten().flatten()
    flat = flat.cast(pa.schema([field.with_nullable(True) for field in flat.schema]))
    table = tables.create(file, "t", given.slice(0, 3))
    assert table.schema.names == ["id", "s.x", "s.in.y", "s.in.z", "s.none.d"]
    assert table.append(given.slice(3).to_reader()) == 4
    same(table.scan().read_all(), flat)
    same(table.scan(where=col("s.x") > 1).read_all(), flat.slice(3))
    assert table.append(flat) == 8
    again = tables.create(
        file, "u", given, schema=given.schema.set(0, pa.field("id", pa.int16())), columns=["id", "s.x"]
    )
    assert again.schema.types == [pa.int16(), pa.int32()]
    with pytest.raises(InvalidError, match="'s.x' is there twice"):
        tables.create(file, "new", given.append_column("s.x", pa.array(range(4))))
    with pytest.raises(InvalidError, match="the columns id, s.x; they must be id, s.x, s.in.y"):
        table.append(pa.table({"id": [1], "s": [{"x": 1}]}))
    with pytest.raises(InvalidError, match="column 's' must be of numbers"):
        tables.create(file, "new", pa.table({"s": pa.array([{}], pa.struct([]))}))


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


# --- Sources, several handles -----------------------------------------------------------------------------------------


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
