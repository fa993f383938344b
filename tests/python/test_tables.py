"""Text tables: types, tests of rows against Python, filters of Arrow, and every kind of bad input."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import nandarray
from nandarray.errors import BadIndexError, CorruptError, InvalidError, MalformedLineError, NotFoundError
from nandarray.interop import tables
from nandarray.interop.tables import Column, Test, col, lowered
from nandarray.interop.tables.filters import of_arrow
from nandarray.interop.tables.where import decidable

SCHEMA = {"id": "int32", "price": "decimal(9,2)", "day": "date", "name": "text(8)", "big": "int64"}
COLUMNS = [Column(*one) for one in SCHEMA.items()]


def lines(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "id": rng.randint(-50, 50),
            "price": Decimal(rng.randint(-99999, 99999)).scaleb(-2),
            "day": datetime.date(1960, 1, 1) + datetime.timedelta(days=rng.randint(0, 30000)),
            "name": rng.choice(["", "red", "green", "dark red", "reddish"]),
            "big": rng.randint(-(10**18) + 1, 10**18 - 1),
        }
        for _ in range(count)
    ]


def text(rows: list[dict[str, Any]]) -> bytes:
    return "".join("|".join(map(str, row.values())) + "|\n" for row in rows).encode()


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.computing(request, tmp_path / "t.nand") as made:
        yield made


TESTS: list[tuple[Test, Any]] = [
    (col("id") >= 3, lambda r: r["id"] >= 3),
    ((col("id") > 2.5) & (col("id") < 7.5), lambda r: 2.5 < r["id"] < 7.5),
    (col("id") == 2.5, lambda _r: False),
    (col("id") != 2.5, lambda _r: True),
    (col("price") <= 10.005, lambda r: r["price"] <= Decimal("10.005")),
    (col("price") > Decimal("-3.335"), lambda r: r["price"] > Decimal("-3.335")),
    (col("price") < 10**30, lambda _r: True),
    (col("day") < "1970-01-01", lambda r: r["day"] < datetime.date(1970, 1, 1)),
    (col("day") == datetime.date(1999, 9, 9), lambda r: r["day"] == datetime.date(1999, 9, 9)),
    (col("name").isin(["red", ""]), lambda r: r["name"] in ("red", "")),
    (col("name").isin([]), lambda _r: False),
    (col("name").startswith("red") & ~col("name").endswith("h"), lambda r: r["name"] == "red"),
    (col("name").contains("k r") | (col("big") < 0), lambda r: "k r" in r["name"] or r["big"] < 0),
    (~((col("id") > 0) | col("name").contains("")), lambda _r: False),
    (col("name") != "green", lambda r: r["name"] != "green"),
    (col("id").between(-5, 5) & (col("name") == "red"), lambda r: -5 <= r["id"] <= 5 and r["name"] == "red"),
]


def test_rows_are_those_that_python_keeps(store: Any) -> None:
    rows = lines(2000, 5)
    table = tables.create(store, "t", text(rows), SCHEMA)
    assert table.scan().read_all().to_pylist() == rows
    for number, (test, wanted) in enumerate(TESTS):
        found = table.scan(["name", "id"], test, batch_bytes=1 + 5000 * number).read_all().to_pylist()
        assert found == [{"name": row["name"], "id": row["id"]} for row in rows if wanted(row)], test


def test_a_table_is_found_again_and_of_any_span(store: Any) -> None:
    rows = lines(50, 1)
    tables.create(store, "t", text(rows).replace(b"\n", b"\r\n"), SCHEMA)
    table = tables.open_table(store, "t")
    assert table.columns == tuple(COLUMNS)
    assert len(list(table.scan(batch_bytes=1))) == 50
    assert table.scan(batch_bytes=1).read_all().to_pylist() == rows
    assert table.rows(["big"])["big"].tolist() == [row["big"] for row in rows]
    assert tables.create(store, "none", b"", SCHEMA).scan().read_all().num_rows == 0
    store["array"] = np.arange(3)
    with pytest.raises(NotFoundError, match="is no table"):
        tables.open_table(store, "array")


def test_the_same_on_a_modelled_device() -> None:
    rows = lines(300, 2)
    device = nandarray.devices()["mqsim-ideal"].with_({"compute.cores": 2, "compute.clock": "1 GHz"})
    with nandarray.open(device=device, mode="w") as modelled:
        table = tables.create(modelled, "t", text(rows), SCHEMA)
        modelled.flush()
        assert table.scan(where=col("id") > 0).read_all().to_pylist() == [row for row in rows if row["id"] > 0]
        assert modelled.report()["programs"]["instructions"] > 0


GOOD = b"1|1.00|2000-01-01|a|5\n"
LINES: list[tuple[bytes, int, int | None, str]] = [
    (b"x|1.00|2000-01-01|a|5\n", 2, 0, "is malformed"),
    (b"|1.00|2000-01-01|a|5\n", 2, 0, "is malformed"),
    (b"--1|1.00|2000-01-01|a|5\n", 2, 0, "is malformed"),
    (b"1 |1.00|2000-01-01|a|5\n", 2, 0, "is malformed"),
    (b"1|1.00|2000-01-01|a|5\r|\n", 2, 4, "is malformed"),
    (b"1234567890|1.00|2000-01-01|a|5\n", 2, 0, "is too long"),
    (b"1|1.005|2000-01-01|a|5\n", 2, 1, "is too long"),
    (b"1|1.0.0|2000-01-01|a|5\n", 2, 1, "is malformed"),
    (b"1|1.00|2000-02-30|a|5\n", 2, 2, "is malformed"),
    (b"1|1.00|1900-02-29|a|5\n", 2, 2, "is malformed"),
    (b"1|1.00|2000-1-1|a|5\n", 2, 2, "is malformed"),
    (b"1|1.00|2000-01\n", 2, 2, "is missing"),
    (b"1|1.00|2000-01-01|abcdefghi|5\n", 2, 3, "is too long"),
    (b"1|1.00|2000-01-01|a\n", 2, 4, "is missing"),
    (b"1|1.00|2000-01-01|a\0b|5\n", 2, 3, "has a NUL byte"),
    (b"1|1.00|2000-01-01|a\0|5\n", 2, 3, "has a NUL byte"),
    (b"1|1.00|2000-01-01|\0|5\n", 2, 3, "has a NUL byte"),
    (b"1|1.00|2000-01-01|\xff\xfe|5\n", 2, 3, "is not UTF-8"),
    (b"1|1.00|2000-01-01|\xc3|\xa4\n", 2, 4, "is malformed"),
    (b"1|1.00|2000-01-01|\xc3|5|\xa4\n", 2, 3, "is not UTF-8"),
    (b"1|1.00\n", 2, 2, "is missing"),
    (b"\n", 2, 0, "is malformed"),
    (b"1|1.00|2000-01-01|a|5|" + b"x" * 5000 + b"\n", 2, None, "longer than 4096 bytes"),
    (b"1|1.00|2000-01-01|a|5", 2, None, "cut off"),
    (b"1|1.00|2000-01", 2, None, "cut off"),
]


@pytest.mark.parametrize("case", LINES, ids=[repr(one[0][:24]) for one in LINES])
def test_a_malformed_line_is_named_and_nothing_is_stored(case: tuple[Any, ...], store: Any, tmp_path: Path) -> None:
    line, number, field, said = case
    data = GOOD + line + (GOOD if line.endswith(b"\n") else b"")
    (tmp_path / "t.tbl").write_bytes(data)
    for source, shown in ((data, "t"), (tmp_path / "t.tbl", str(tmp_path / "t.tbl"))):
        with pytest.raises(MalformedLineError, match=said) as caught:
            tables.create(store, "t", source, SCHEMA)
        assert (caught.value.line, caught.value.field) == (number, field)
        assert caught.value.array == shown
        assert "t" not in store


def test_a_scan_names_the_line_in_any_span(store: Any) -> None:
    table = tables.create(store, "t", GOOD * 100 + b"1|1.00|2000-01-01|a|z\n" + GOOD * 100, SCHEMA, check=False)
    for batch in (1, 500, 1 << 20):
        with pytest.raises(MalformedLineError, match=r"t, line 101: field 4, big \(int64\), is malformed") as caught:
            table.scan(["big"], batch_bytes=batch).read_all()
        assert (caught.value.line, caught.value.field) == (101, 4)
    # A field that no scan needs is not read.
    assert table.scan(["name"]).read_all().num_rows == 201
    with pytest.raises(MalformedLineError, match="line 101"):
        table.check()


@pytest.mark.parametrize(("field", "said"), [(b"a\0b", "has a NUL byte"), (b"\xff", "is not UTF-8")])
def test_an_unchecked_scan_names_the_line_of_what_is_no_text(field: bytes, said: str, store: Any) -> None:
    bad = GOOD.replace(b"|a|", b"|" + field + b"|")
    # Fields behind the last column may hold anything.
    good = GOOD.replace(b"\n", b"|\0\xff|\n")
    assert tables.create(store, "good", good * 3, SCHEMA).scan().read_all().num_rows == 3
    table = tables.create(store, "t", good * 100 + bad + good * 100, SCHEMA, check=False)
    for batch in (1, 500, 1 << 20):
        with pytest.raises(MalformedLineError, match=rf"t, line 101: field 3, name \(text\(8\)\), {said}") as caught:
            table.scan(["name"], batch_bytes=batch).read_all()
        assert (caught.value.line, caught.value.field) == (101, 3)
    assert table.scan(["id"]).read_all().num_rows == 201


def test_text_that_was_cut_off_in_the_store(store: Any) -> None:
    tables.create(store, "t", GOOD * 3, SCHEMA)
    described = dict(store["t"].attrs)
    store["cut"] = np.frombuffer(GOOD * 3, np.uint8)[:-5]
    store["cut"].attrs.update(described)
    with pytest.raises(MalformedLineError, match="cut off"):
        tables.open_table(store, "cut").scan().read_all()
    store["long"] = np.frombuffer(GOOD + b"1|" + b"x" * 20000 + b"\n", np.uint8)
    store["long"].attrs.update(described)
    for batch in (30, 6000, 1 << 20):
        with pytest.raises(MalformedLineError, match="line 2") as caught:
            tables.open_table(store, "long").scan(["id"], batch_bytes=batch).read_all()
        assert caught.value.line == 2


def test_what_does_not_fit_is_refused_before_it_runs(store: Any) -> None:
    table = tables.create(store, "t", GOOD, SCHEMA)
    for call, error, said in [
        (lambda: table.scan(["none"]), NotFoundError, "there is no column 'none'"),
        (lambda: table.scan(where=col("none") > 1), NotFoundError, "there is no column 'none'"),
        (lambda: table.scan([]), InvalidError, "at least one column"),
        (lambda: table.scan(where=col("day") > 5), InvalidError, "must be compared with a date"),
        (lambda: table.scan(where=col("day") > "today"), InvalidError, "must be compared with a date"),
        (lambda: table.scan(where=col("id") > "x"), InvalidError, "must be compared with a number"),
        (lambda: table.scan(where=col("id") > float("nan")), InvalidError, "must be compared with a number"),
        (lambda: table.scan(where=col("name") > "x"), InvalidError, "must be compared by =="),
        (lambda: table.scan(where=col("name") == 5), InvalidError, "must be compared with text"),
        (lambda: table.scan(where="id > 5"), TypeError, "'id > 5' is a str"),  # type: ignore[arg-type]
        (lambda: table.rows(where=True), TypeError, "True is a bool"),  # type: ignore[arg-type]
        (lambda: (col("id") > 5) & "x", TypeError, "unsupported operand"),  # type: ignore[operator]
        (lambda: table.scan(where=col("id").isin(range(1001))), InvalidError, "with 1,001 comparisons"),
        (lambda: table.scan(where=col("name").isin(map(str, range(101)))), InvalidError, "with 1,010 comparisons"),
        (lambda: bool(col("id") > 5), InvalidError, "no truth value"),
        (lambda: tables.create(store, "u", GOOD, {"id": "float"}), InvalidError, "must be of type int32"),
        (lambda: tables.create(store, "u", GOOD, {"id": "decimal(20,2)"}), InvalidError, "S < P"),
        (lambda: tables.create(store, "u", GOOD, {"id": "text(0)"}), InvalidError, "1 <= N <= 4096"),
        (lambda: tables.create(store, "u", GOOD, {"id": "text(5000)"}), InvalidError, "1 <= N <= 4096"),
        (lambda: tables.create(store, "u", GOOD, {"id": 5}), InvalidError, "must be of type int32"),
        (lambda: tables.create(store, "u", GOOD, {5: "int32"}), InvalidError, "name must be a text"),
        (lambda: tables.create(store, "u", GOOD, {}), InvalidError, "at least one column"),
        (lambda: tables.create(store, "u", {"id": [1]}, {"id": "int32"}), InvalidError, "must be a path or bytes"),
        (lambda: tables.create(store, "u", GOOD, SCHEMA, delimiter="||"), InvalidError, "must be one ASCII character"),
        (
            lambda: tables.create(store, "u", GOOD, SCHEMA, delimiter="1"),
            InvalidError,
            "the delimiter must be no end of a line and in no number",
        ),
    ]:
        with pytest.raises(error, match=said):
            call()
    assert "u" not in store


FILTERS: list[tuple[Any, bool, bool]] = [
    (pc.field("id") >= 3, True, True),
    ((pc.field("id") >= 3) & (pc.field("name") == "red"), True, True),
    (~(pc.field("id") >= 3) | pc.field("day").isin([datetime.date(2000, 1, 1)]), True, True),
    (pc.field("price") <= pa.scalar(Decimal("1.50")), True, True),
    (pc.field("id").is_null() | (pc.field("big") < -5), True, True),
    (pc.field("id").is_valid(), True, True),
    ((pc.field("id") >= 3) & (pc.field("name") >= "red"), True, False),
    ((pc.field("id") >= 3) | (pc.field("name") >= "red"), False, False),
    (pc.field("name") == 'a"b', True, True),
    (pc.field("id") + 1 > pc.field("big"), False, False),
    (pc.match_substring(pc.field("name"), "x"), True, True),
    (pc.starts_with(pc.field("name"), "re") | ~pc.ends_with(pc.field("name"), "d"), True, True),
    (pc.match_substring(pc.field("name"), "X", ignore_case=True), False, False),
    (pc.field("none") > 1, False, False),
]


def parts_of(expression: Any) -> tuple[Test | None, bool]:
    """The part of a filter that a table of text decides, and whether that is all of it."""
    schema = pa.schema([pa.field(one.name, one.arrow) for one in COLUMNS])
    test, is_all = of_arrow(expression, schema)
    kept, whole = decidable(test, COLUMNS)
    return kept, is_all and whole


@pytest.mark.parametrize(("expression", "some", "whole"), FILTERS, ids=[str(one[0]) for one in FILTERS])
def test_filters_of_arrow_are_understood_or_left_to_arrow(expression: Any, some: bool, whole: bool, store: Any) -> None:
    test, understood = parts_of(expression)
    assert (test is not None, understood) == (some, whole)
    if "none" in str(expression):
        return
    rows = lines(400, 3)
    table = tables.create(store, "t", text(rows), SCHEMA)
    found = table.dataset().scanner(columns=["big", "name"], filter=expression).to_table()
    assert found == table.scan().read_all().filter(expression).select(["big", "name"])


def test_what_has_too_many_comparisons_is_left_to_arrow() -> None:
    one = red = pc.field("name") == "red"
    for _ in range(99):
        one = one | red
    test, whole = parts_of(one & (pc.field("id") > 5))
    assert test is not None
    assert not whole
    assert lowered(test.tree, COLUMNS)[0] == "or"  # type: ignore[index]
    test, whole = parts_of((one | (pc.field("id") > 5)) & (pc.field("id") < 9))
    assert test is not None
    assert (test.tree, whole) == (("<", "id", 9), False)


@pytest.fixture
def drive(tmp_path: Path) -> Any:
    with doors.opened("drive", tmp_path / "d.nand") as made:
        yield made


def test_filter_and_columns_go_to_the_drive(drive: Any) -> None:
    rows = lines(30_000, 6)
    whole = text(rows)
    tables.create(drive, "t", whole, SCHEMA)
    table = tables.open_table(drive, "t")
    wanted = [{"big": row["big"]} for row in rows if row["name"] == "red" and row["id"] == 7]

    def sent(call: Any) -> tuple[Any, int]:
        before = doors.wire_bytes(drive)
        return call(), doors.wire_bytes(drive) - before

    test = (col("name") == "red") & (col("id") == 7)
    batch = len(whole) // 3
    found, moved = sent(lambda: table.scan(["big"], test, batch_bytes=batch).read_all().to_pylist())
    assert found == wanted
    assert 0 < len(wanted) * 8 < moved < len(whole) / 50
    found, moved = sent(lambda: table.rows(["big"], test)["big"].tolist())
    assert found == [row["big"] for row in wanted]
    assert moved < len(whole) / 50
    # ASCII is read and counted where it is; what the dataset of an engine leaves to the table is the same.
    assert sent(table.check)[1] < len(whole) / 50
    dataset = table.dataset()
    expression = (pc.field("name") == "red") & (pc.field("id") == 7)
    found, moved = sent(lambda: dataset.to_table(columns=["big"], filter=expression).to_pylist())
    assert found == wanted
    assert moved < len(whole) / 50
    assert [whole for _, _, whole in dataset.pushed] == [True]
    # An error comes with its line, and the lines before it stay where they are.
    drive["bad"] = np.frombuffer(whole + b"x\n", np.uint8)
    drive["bad"].attrs.update(drive["t"].attrs)

    def refused() -> MalformedLineError:
        with pytest.raises(MalformedLineError) as caught:
            tables.open_table(drive, "bad").scan(["id"], test).read_all()
        return caught.value

    error, moved = sent(refused)
    assert (error.array, error.line, error.field) == ("bad", 30_001, 0)
    assert moved < len(whole) / 50


def test_rows_that_are_too_many_for_one_reply_of_a_drive_come_in_several(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 20_000
    table = tables.create(store, "wide", b"".join(b"%d|\n" % n for n in range(count)), {"word": "text(4096)"})
    assert count * 4096 > 64 << 20
    batches = list(table.scan())
    assert len(batches) == 1
    # As through a kernel, whose one connection gets outputs with the reply alone.
    if doors.has_wire(store) and hasattr(
        store, "_source"
    ):  # as through a kernel, whose one connection gets outputs with the reply alone
        monkeypatch.setattr(store._source, "_again", None)
        batches = list(table.scan())
        assert len(batches) == 2
    assert [word for batch in batches for word in batch["word"].to_pylist()] == [str(n) for n in range(count)]
    found = table.rows(where=col("word").endswith("77"))
    assert found["word"].tolist() == [b"%d" % n for n in range(count) if n % 100 == 77]
    assert len(table.rows()) == count


def test_a_sum_of_76_digits_is_refused_before_it_wraps_around(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "t.nand", "w") as store:
        kind = pa.decimal256(76, 0)
        table = tables.create(store, "t", {"x": pa.array([Decimal("9" * 76)] * 9, kind)})
        with pytest.raises(InvalidError, match="must have at most 76 digits"):
            table.aggregate({"s": ("sum", "x")})
        assert table.aggregate({"s": ("max", "x")}).to_pylist() == [{"s": Decimal("9" * 76)}]


def test_a_number_of_rows_that_lies_is_answered_at_once(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "t.nand", "w") as store:
        table = tables.create(store, "t", {"x": [1, 2]})
        with pytest.raises(BadIndexError, match="must be a list of integers"):
            table.take([[1], [1, 2]])
        store["t/ends"].append([1 << 62])
        for call in (lambda: table.num_rows, table.scan):
            with pytest.raises(CorruptError, match="'t/x' has 2 rows, its table has"):
                call()


def test_constants_of_many_digits_are_compared_exactly(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "t.nand", "w") as store:
        table = tables.create(store, "t", b"1.00|\n1.01|\n", {"x": "decimal(9,2)"})
        for value in (Decimal("1." + "0" * 40 + "1"), Decimal("1.00000000000000000000000000001")):
            assert table.count_rows(col("x") >= value) == table.count_rows(col("x") > value) == 1
            assert table.count_rows(col("x") == value) == 0
