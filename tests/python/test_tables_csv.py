"""Tables of text with head lines, quotes, missing values: beside Python's csv, pyarrow and DuckDB, and cut anywhere."""

from __future__ import annotations

import csv
import datetime
import io
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import doors
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pytest
from test_tables_model import as_text, damaged_at_random, schema, value

import nandarray
from nandarray.errors import InvalidError, MalformedLineError
from nandarray.interop import tables
from nandarray.interop.tables import Column, Test, col, lines

Row = dict[str, Any]
SCHEMA = {"id": "int32", "note": "text(24)", "price": "decimal(9,2)", "day": "date"}
TEXT = (
    b'id,note,price,day,more\r\n1,"a ""b"", c\nd",1.50,2000-01-01,x\r\n2,,NULL,,"y,\n"\r\n'
    b',"","-3",1999-12-31,\r\nNULL,NULL,7,NULL,z\r\n"5","NULL",2.25,"2001-02-03","last"'
)
ROWS = [
    {"id": 1, "note": 'a "b", c\nd', "price": Decimal("1.50"), "day": datetime.date(2000, 1, 1)},
    {"id": 2, "note": None, "price": None, "day": None},
    {"id": None, "note": "", "price": Decimal(-3), "day": datetime.date(1999, 12, 31)},
    {"id": None, "note": None, "price": Decimal(7), "day": None},
    {"id": 5, "note": "NULL", "price": Decimal("2.25"), "day": datetime.date(2001, 2, 3)},
]
OPTIONS: dict[str, Any] = {"delimiter": ",", "header": True, "quote": '"', "null": ["", "NULL"]}


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.computing(request, tmp_path / "t.nand") as made:
        yield made


def test_a_text_of_csv_is_a_table_of_any_span(store: Any) -> None:
    schema = dict(reversed(SCHEMA.items()))
    for name, source in (("t", TEXT), ("marked", lines.MARK + TEXT + b"\r\n")):
        tables.create(store, name, source, schema, **OPTIONS)
        table = tables.open_table(store, name)
        assert table.schema.names == list(SCHEMA)
        assert all(field.nullable for field in table.schema)
        for span in (1, 40, 1 << 20):
            batches = list(table.scan(batch_bytes=span))
            assert [row for batch in batches for row in batch.to_pylist()] == ROWS
            assert len(batches) == 5 if span == 1 else len(batches) > 1 or span > 40
        assert table.pieces(at_least=3)[-1].end == len(source) + (name == "t")  # the end of the last line
        parts = [table.scan(pieces=[one]).read_all() for one in table.pieces(at_least=3)]
        assert pa.concat_tables(parts).to_pylist() == ROWS
        table.check()
    rows = table.rows(["price", "note"], ~(col("id") > 1))
    assert rows.tolist() == [(b'a "b", c\nd', 150)]
    assert table.rows(["price"])["price"].tolist() == [150, None, -300, 700, 225]
    assert table.rows(["price"], col("id").is_null())["price"].tolist() == [-300, 700]
    assert table.count_rows(~(col("note") == "NULL")) == 2
    assert table.count_rows(~col("note").is_null()) == 3
    there = table.count_rows(col("id").is_valid())
    for never in (col("id") == 10**30, col("id") == 1.5, col("id").isin([])):  # missing where there is no value
        assert (table.count_rows(never), table.count_rows(~never)) == (0, there)
    assert tables.create(store, "empty", b"id,note,price,day\n", SCHEMA, **OPTIONS).scan().read_all().num_rows == 0
    # Without ends of lines within quotes each end of a line is one.
    plain = tables.create(store, "plain", TEXT.replace(b"\nd", b"").replace(b"y,\n", b""), SCHEMA, **OPTIONS)
    assert (plain.cuts, table.cuts) == (None, (table.begin,))
    assert plain.count_rows() == 5


@pytest.mark.parametrize("form", ["interpreted", "translated", "native"])
def test_no_row_depends_on_where_tasks_are_cut(form: str, file: Any) -> None:
    table = tables.create(file, "t", TEXT, SCHEMA, **OPTIONS)
    test = ~(col("price") < 2) & (col("id").is_valid() | (col("note") != "x"))
    wanted = [
        row
        for row in ROWS
        if row["price"] is not None and row["price"] >= 2 and row["note"] is not None or row["id"] == 5
    ]
    for size in (1, 7, 64, 4096):
        assert table.scan(where=test, form=form, task_bytes=size, threads=2).read_all().to_pylist() == wanted
    # Lines that fill the window that a task sees, and one that is a byte longer.
    longest = max(map(len, TEXT.split(b"\r\n")[:-1])) + 2
    short = tables.create(file, "short", TEXT, SCHEMA, line_bytes=longest, **OPTIONS)
    assert short.scan(form=form, task_bytes=1).read_all().to_pylist() == ROWS
    for size in (1, 4096):
        with pytest.raises(MalformedLineError, match=f"longer than {longest - 1} bytes") as caught:
            tables.create(file, "none", TEXT, SCHEMA, line_bytes=longest - 1, check=False, **OPTIONS).scan(
                form=form, task_bytes=size
            ).read_all()
        assert caught.value.line == 2
        del file["none"]


def test_streams_and_a_modelled_device_give_the_same(file: Any) -> None:
    table = tables.create(file, "t", TEXT, SCHEMA, **OPTIONS)
    plain = tables.create(file, "plain", TEXT.replace(b"\nd", b"").replace(b"y,\n", b""), SCHEMA, **OPTIONS)
    for one in (table, plain):
        wanted = one.rows(where=col("price") > 0)
        body = one.text[one.begin :]
        found = nandarray.offload(one.program(where=col("price") > 0, kind="stream"), [body]).result
        assert found["c2"].tolist() == wanted["price"].tolist()
        assert (found["valid"] & 1).tolist() == (~wanted["id"].mask).astype(int).tolist()
    device = nandarray.devices()["mqsim-ideal"].with_({"compute.cores": 2, "compute.clock": "1 GHz"})
    with nandarray.open(device=device, mode="w") as modelled:
        table = tables.create(modelled, "t", TEXT, SCHEMA, **OPTIONS)
        modelled.flush()
        assert table.scan(task_bytes=16).read_all().to_pylist() == ROWS
        assert modelled.report()["programs"]["instructions"] > 0


# --- random texts -----------------------------------------------------------------------------------------------------


def truth(tree: tuple[Any, ...], row: Row) -> bool | None:
    """A test's value for a row, by SQL's logic."""
    op, *rest = tree
    if op in ("and", "or"):
        parts = [truth(part, row) for part in rest]
        return op == "or" if (op == "or") in parts else None if None in parts else op == "and"
    if op == "not":
        inner = truth(rest[0], row)
        return None if inner is None else not inner
    one = row[rest[0]]
    if op in ("null", "valid"):
        return (one is None) == (op == "null")
    if one is None:
        return None
    return bool(
        {
            "<": lambda a, b: a < b, ">=": lambda a, b: a >= b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
            "in": lambda a, b: a in b, "begins": lambda a, b: a.startswith(b), "holds": lambda a, b: b in a,
        }[op](one, rest[1])
    )  # fmt: skip


def drawn(rng: random.Random, kinds: dict[str, str], depth: int = 0) -> Test:
    if depth < 3 and rng.random() < 0.6:
        one = drawn(rng, kinds, depth + 1)
        how = rng.choice(["not", "and", "or"])
        return ~one if how == "not" else Test((how, one.tree, drawn(rng, kinds, depth + 1).tree))
    name = rng.choice(list(kinds))
    if rng.random() < 0.2:
        return rng.choice([col(name).is_null(), col(name).is_valid()])
    if rng.random() < 0.2:
        return col(name).isin([value(rng, kinds[name]) for _ in range(rng.randint(1, 3))])
    some = value(rng, "text(2)" if kinds[name].startswith("text") else kinds[name])
    ops = ["==", "!=", *(["begins", "holds"] if kinds[name].startswith("text") else ["<", ">="])]
    bound = rng.choice([some, 10**30, 2.5]) if kinds[name].startswith(("int", "decimal")) else some
    return Test((rng.choice(ops), name, bound))


def text_of(rng: random.Random, rows: list[Row], form: dict[str, Any], end: str) -> str:
    """Rows as a text; fields are quoted if they must be, and others by chance."""
    quote = form["quote"]
    must = {form["delimiter"], quote, "\n", "\r"}

    def field(one: Any) -> str:
        if one is None:
            return rng.choice(form["null"])
        text = as_text(one)
        if must & set(text) or text in form["null"] or rng.random() < 0.2:
            return quote + text.replace(quote, quote * 2) + quote
        return text

    lines = [form["delimiter"].join(map(field, row.values())) for row in rows]
    if form["header"] and rows:
        lines.insert(0, form["delimiter"].join(map(field, rows[0])))
    return end.join(lines) + (end if rng.random() < 0.7 or not lines else "")


@pytest.mark.parametrize("seed", range(8))
def test_random_texts_are_read_as_csv_pyarrow_and_duckdb_read_them(seed: int, file: Any, tmp_path: Path) -> None:
    rng = random.Random(seed)
    kinds = {**schema(rng), "last": "text(9)"}
    form: dict[str, Any] = {
        "delimiter": rng.choice(",\t;|"), "quote": rng.choice("\"'"), "header": rng.random() < 0.7,
        "null": rng.choice([[""], ["NULL"], ["", "n/a"], ["-", "0"]]),
    }  # fmt: skip
    rows = [
        {name: None if rng.random() < 0.2 else value(rng, kind) for name, kind in kinds.items()}
        for _ in range(rng.choice([1, 7, 90]))
    ]
    for row in rows:
        if row["last"] and rng.random() < 0.5:
            at = rng.randrange(len(row["last"]))
            row["last"] = row["last"][:at] + rng.choice(["\n", "\r\n", form["quote"], form["delimiter"], "\r"])
            row["last"] = row["last"].encode()[:9].decode(errors="ignore")
    text = text_of(rng, rows, form, end := rng.choice(["\n", "\r\n"]))
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    # Tables, cut in any way.
    given = dict(rng.sample(list(kinds.items()), len(kinds))) if form["header"] else kinds
    table = tables.create(file, "t", path, given, line_bytes=rng.choice([len(text.encode()) + 2, 4096]), **form)
    size = len(text)
    for span in (1, rng.randint(1, size), 2 * size):
        found = table.scan(batch_bytes=span, task_bytes=rng.choice([1, 100, 4096])).read_all()
        assert found.to_pylist() == rows, seed
    for _ in range(4):
        test = drawn(rng, kinds)
        columns = rng.sample(list(kinds), rng.randint(1, len(kinds)))
        wanted = [{name: row[name] for name in columns} for row in rows if truth(test.tree, row)]
        assert table.scan(columns, test, batch_bytes=rng.randint(1, size)).read_all().to_pylist() == wanted, (
            seed,
            test,
        )
        assert len(table.rows(columns[:1], test)) == len(wanted)
    # Others.
    options = {"delimiter": form["delimiter"], "quotechar": form["quote"]}
    fields = list(csv.reader(io.StringIO(text, newline=""), strict=True, **options))[form["header"] :]
    assert [len(one) for one in fields] == [len(kinds)] * len(rows)
    for line, row in zip(fields, rows, strict=True):
        assert all(text == as_text(one) for text, one in zip(line, row.values(), strict=True) if one is not None)
    types = {name: Column(name, kind).arrow for name, kind in kinds.items()}
    names = None if form["header"] else list(kinds)
    theirs = pyarrow.csv.read_csv(
        path, pyarrow.csv.ReadOptions(column_names=names),
        pyarrow.csv.ParseOptions(delimiter=form["delimiter"], quote_char=form["quote"], newlines_in_values=True),
        pyarrow.csv.ConvertOptions(
            column_types=types, null_values=form["null"], strings_can_be_null=True, quoted_strings_can_be_null=False,
        ),
    )  # fmt: skip
    assert table.scan(list(kinds)).read_all().to_pylist() == theirs.to_pylist(), seed
    with duckdb.connect() as base:
        listed = ", ".join(f"'{name}': '{Column(name, kind).arrow}'" for name, kind in kinds.items())
        listed = listed.replace("string", "varchar").replace("date32[day]", "date").replace("decimal128", "decimal")
        query = (
            f"select * from read_csv(?, header={form['header']}, delim=?, quote=?, escape=?, nullstr=?, new_line=?, "
            f"columns={{{listed}}}, allow_quoted_nulls=false, auto_detect=false, parallel=false)"
        )
        shown = {"\n": "\\n", "\r\n": "\\r\\n"}[end]
        asked = [str(path), form["delimiter"], form["quote"], form["quote"], form["null"], shown]
        assert base.execute(query, asked).fetchall() == [tuple(row.values()) for row in rows], seed


@pytest.mark.parametrize("seed", range(3))
def test_queries_of_duckdb_find_missing_values(seed: int, file: Any) -> None:
    rng = random.Random(seed)
    kinds = {"n": "int32", "big": "int64", "price": "decimal(9,2)", "day": "date", "name": "text(12)"}
    rows = [{k: None if rng.random() < 0.3 else value(rng, kind) for k, kind in kinds.items()} for _ in range(80)]
    form = {"delimiter": ",", "quote": '"', "header": True, "null": [""]}
    ours = tables.create(file, "t", text_of(rng, rows, form, "\n").encode(), kinds, **form).dataset()
    arrow = pa.schema([(one, Column(one, kind).arrow) for one, kind in kinds.items()])
    theirs = pa.Table.from_pylist(rows, schema=arrow)
    queries = [
        "select * from {} where n is null and big is not null order by all",
        "select count(*), count(n), sum(price) from {} where not (n > 0) or price < 0.5",
        "select n from {} where name in ('a', 'b', '') or n is null order by all",
        "select n from {} where name not in ('a', 'b', '') order by all",
        "select n from {} where n not in (1, 2) and not (name like 'a%') order by all",
        "select day from {} where (day is null) = (name is null) order by all",
        "select big from {} where coalesce(n, 0) = 0 or price is distinct from 5 order by all",
        "select a.n from {0} a join {0} b on a.n = b.n where b.price >= 0 order by all",
        "select n from {} where case when n > 0 then big > 5 else n < -9 end order by all",
    ]
    with duckdb.connect() as base:
        base.register("ours", ours)
        base.register("theirs", theirs)
        for query in queries:
            found = base.execute(query.format("ours")).fetchall()
            assert found == base.execute(query.format("theirs")).fetchall(), query


WHERE = [
    "n is null", "n is not null and big < 0", "not (n > 0)", "n in (1, 2, -3)", "n not in (1, 2, -3)", "name = 'a'",
    "not (n in (1, 2)) or name is null", "name <> 'a' and price >= 0", "day < date '1990-01-01' or day is null",
    "coalesce(n, 0) = 0", "n is distinct from 3", "not (n is null or name like 'a%')", "name like '%b%'",
]  # fmt: skip


def test_other_engines_find_missing_values(file: Any) -> None:
    datafusion = pytest.importorskip("datafusion", reason="not installed: pip install '.[engines]'")
    pl = pytest.importorskip("polars", reason="not installed: pip install '.[engines]'")
    rng = random.Random(4)
    kinds = {"n": "int32", "big": "int64", "price": "decimal(9,2)", "day": "date", "name": "text(12)"}
    rows = [{k: None if rng.random() < 0.3 else value(rng, kind) for k, kind in kinds.items()} for _ in range(200)]
    form = {"delimiter": ",", "quote": '"', "header": True, "null": [""]}
    table = tables.create(file, "t", text_of(rng, rows, form, "\n").encode(), kinds, **form)
    ours, theirs = table.dataset(), ds.dataset(table.scan().read_all())

    def asked(where: str, of: Any) -> Any:
        context = datafusion.SessionContext()
        context.register_dataset("t", of)
        query = f"select big, n, name from t where {where} order by big, n, name"
        return context.sql(query).to_arrow_table().to_pylist()

    for where in WHERE:
        assert asked(where, ours) == asked(where, theirs), where
    n = pl.col("n")
    for test in (
        n > 0,
        ~(n > 0),
        n.is_null(),
        n.is_in([1, 2]),
        ~n.is_in([1, 2]),
        (pl.col("name") == "a") | n.is_null(),
    ):
        found, wanted = (pl.scan_pyarrow_dataset(one).filter(test).collect() for one in (ours, theirs))
        assert found.equals(wanted), test


@pytest.mark.parametrize("seed", range(8))
def test_spoilt_texts_are_read_as_csv_reads_them_or_refused_by_their_line(seed: int, file: Any) -> None:
    rng = random.Random(seed)
    kinds = {"n": "int32", "name": "text(6)", "note": "text(6)"}
    rows = [{name: value(rng, kind) for name, kind in kinds.items()} for _ in range(9)]
    form: dict[str, Any] = {"delimiter": ",", "quote": '"', "header": False, "null": []}
    good = text_of(rng, rows, form, "\n").encode()
    for number in range(12):
        text = bytearray(good)
        for _ in range(rng.randint(1, 2)):
            text[rng.randrange(len(text))] = rng.choice([*b'",\n\r 0"', 0xFF, rng.randrange(256)])
        name = f"t{number}"
        error = None
        try:
            table = tables.create(file, name, bytes(text), kinds, delimiter=",", quote='"')
        except MalformedLineError as caught:
            error = caught
        if error is not None:
            assert error.line is not None
            assert 1 <= error.line <= text.count(b"\n") + 1, seed
            assert name not in file
            continue
        found = table.scan(batch_bytes=rng.randint(1, 99)).read_all().to_pylist()
        # Python's reader ends a line at each \r without quotes, and passes over empty lines.
        read = list(csv.reader(io.StringIO(text.decode(), newline=""), strict=True))
        if len(read) == len(found):
            assert found == [{"n": int(one[0]), "name": one[1], "note": one[2]} for one in read], (seed, text)


# --- bad input --------------------------------------------------------------------------------------------------------

GOOD = b'1,"a",2\n'
BAD: list[tuple[bytes, int, int | None, str]] = [
    (b'2,"b,3\n', 2, 1, r"field 1, name \(text\(4\)\), has a quote that is not closed"),
    (b'2,"b"x,3\n', 2, 1, "is malformed"),
    (b'2,b"x,3\n', 2, 1, "is malformed"),
    (b'2,"b" ,3\n', 2, 1, "is malformed"),
    (b'"2"1,b,3\n', 2, 0, "is malformed"),
    (b'"2\n",b,3\n', 2, 0, "is malformed"),
    (b'2"",b,3\n', 2, 0, "is malformed"),
    (b'"",b,3\n', 2, 0, "is malformed"),
    (b'"2\n', 2, 0, "is malformed"),
    (b'2,"abcde",3\n', 2, 1, "is too long"),
    (b'2,"ab""cd",3\n', 2, 1, "is too long"),
    (b'"12345678901",b,3\n', 2, 0, "is too long"),
    (b'2,"a\n\nb"\n', 2, 2, "is missing"),
    (b'"a\r\n",b,3\n', 2, 0, "is malformed"),
    (b"2\r\n", 2, 1, "is missing"),
    (b'2,"\xff",3\n', 2, 1, "is not UTF-8"),
    (b'2,"\0x",3\n', 2, 1, "has a NUL byte"),
    (b'2,"a\nb",3,x"\n', 2, 3, "field 3, behind all columns, is malformed"),
    (b'2,b,3,"x\n', 2, 3, "field 3, behind all columns, has a quote that is not closed"),
    (b'2,"' + b"b\n" * 5000 + b'",3\n', 2, None, "longer than 4096 bytes"),
    (b"2,b,3" + b"," * 5000 + b"\n", 2, None, "longer than 4096 bytes"),
    (b"2,b,3" + b",x" * 70 + b',"\n', 2, 63, "field 63 or one behind it"),
]


@pytest.mark.parametrize("case", BAD, ids=[repr(one[0][:20]) for one in BAD])
def test_a_malformed_line_is_named_by_line_field_and_column(case: tuple[Any, ...], file: Any) -> None:
    line, number, field, said = case
    kinds = {"id": "int32", "name": "text(4)", "n": "int32"}
    for before, after in ((b"", b""), (b'9,"\n\n",9\n', b"3,c,4\n" * 5)):
        data, wanted = before + GOOD + line + after, (number + before.count(b"\n"), field)
        with pytest.raises(MalformedLineError, match=said) as caught:
            tables.create(file, "t", data, kinds, delimiter=",", quote='"')
        assert (caught.value.line, caught.value.field) == wanted
        assert "t" not in file
        # Unchecked, a text whose quotes do not pair is refused, and others by the scan that reads the line.
        with pytest.raises(MalformedLineError, match=said) as caught:
            _scanned(file, data, kinds, None if field is None or field < 3 else col("id") > 100)
        assert (caught.value.line, caught.value.field) == wanted
        if "t" in file:
            del file["t"]


def _scanned(file: Any, data: bytes, kinds: dict[str, str], test: Any) -> Any:
    table = tables.create(file, "t", data, kinds, delimiter=",", quote='"', check=False)
    return table.scan(where=test, task_bytes=16).read_all()


def test_heads_and_options_that_do_not_fit_are_refused(file: Any) -> None:
    kinds = {"id": "int32", "name": "text(4)"}

    def made(text: bytes, **options: Any) -> Any:
        given = {"delimiter": ",", "header": True, "quote": '"', **options}
        return tables.create(file, "t", text, kinds, **given)

    for text, said in [
        (b"id,nam\n1,a\n", "line 1: the head line must name column 'name' once: it names 'id', 'nam'"),
        (b"id,name,id\n1,a,2\n", "must name column 'id' once: in fields 0 and 2"),
        (b"", "must name column 'id' once: it names ''"),
        (b'id,"na"me\n1,a\n', "field 1 is malformed"),
        (b"id,name\xff\n1,a\n", "must be UTF-8"),
        (b"x" * 5000 + b"\n1,a\n", "the head line must have at most 4096 bytes"),
        (b'id,"name\n1,a\n', "field 1 is malformed"),
    ]:
        with pytest.raises(MalformedLineError, match=said) as caught:
            made(text)
        assert (caught.value.array, caught.value.line) == ("t", 1)
    good = b"id,name\n1,a\n"
    for options, said in [
        ({"quote": ","}, "must be no end of a line, and another than the delimiter"),
        ({"quote": "5"}, "the quote must be no delimiter"),
        ({"quote": '""'}, "the quote must be one ASCII character"),
        ({"quote": "\0"}, "the quote must be one ASCII character"),
        ({"null": [""] * 2}, "at most 16 different spellings"),
        ({"null": ["x" * 65]}, "at most 64 bytes"),
        ({"null": ["a,b"]}, "without delimiter"),
        ({"null": ['"']}, "without delimiter, quote"),
        ({"null": ["\n"]}, "end of a line"),
        ({"null": [5]}, "null must be texts"),
        ({"null": 5}, "null must be texts"),
    ]:
        with pytest.raises(InvalidError, match=said):
            made(good, **options)
        assert "t" not in file
    with pytest.raises(InvalidError, match="must have columns of different names"):
        tables.create(file, "t", b"1,2\n", {"a": "skip", "b": "skip"}, delimiter=",")
    table = tables.create(file, "t", b"1,x,2\n", {"a": "int32", "b": "skip", "c": "int32"}, delimiter=",")
    assert table.scan().read_all().to_pylist() == [{"a": 1, "c": 2}]
    with pytest.raises(InvalidError, match="column b must have a type"):
        table.scan(where=col("b") == 5)
    with pytest.raises(nandarray.NotFoundError, match="there is no column 'b'; there is a, c"):
        table.scan(["b"])
    with pytest.raises(nandarray.ExistsError):
        tables.create(file, "t", good, kinds, delimiter=",", header=True)
    assert tables.open_table(file, "t").count_rows() == 1


@pytest.mark.parametrize("seed", range(4))
def test_any_description_is_a_table_or_refused(seed: int, file: Any) -> None:
    rng = random.Random(seed)
    table = tables.create(file, "t", TEXT, SCHEMA, **OPTIONS)
    described = dict(table.text.attrs["nandarray.table"])
    wrong = [
        None, 1, "x", [], {}, [[]], [["n", "int32"], 5], [["n", "skip"]], -1, 2**70, "é", "", 0, True, 1.5, [0], [5, 3],
        [described["begin"], 10**9], [[1]], ["", ""], ["\n"], '"', ",",
    ]  # fmt: skip
    damaged_at_random(rng, table, wrong, 30)
    table.text.attrs["nandarray.table"] = {**described, "version": 3}
    with pytest.raises(InvalidError, match="version must be at most 2, not 3"):
        tables.open_table(file, "t")


def test_tables_without_these_options_are_described_as_ever(file: Any) -> None:
    table = tables.create(file, "t", b"1|a\n", {"n": "int32", "name": "text(4)"})
    wanted = {"columns": [["n", "int32"], ["name", "text(4)"]], "delimiter": "|", "line_bytes": 4096}
    assert dict(table.text.attrs) == {"nandarray.table": wanted}
    assert tables.open_table(file, "t").form == table.form


def test_long_texts_are_cut_at_noted_lines(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_CUT_BYTES", 200)
    monkeypatch.setattr(lines, "_AT_ONCE", 77)
    rng = random.Random(1)
    rows = [{"n": n, "name": rng.choice(["a\nb\n", 'c"\n', "d,\r\n", ""])} for n in range(400)]
    form = {"delimiter": ",", "quote": '"', "header": True, "null": []}
    text = text_of(rng, rows, form, "\n").encode()
    table = tables.create(file, "t", text, {"n": "int32", "name": "text(8)"}, **form)
    assert table.cuts is not None
    assert len(text) / 300 < len(table.cuts) < len(text) / 200 + 2
    read: list[int] = []
    counts = type(table)._counts

    def counted(self: Any, span: slice) -> Any:
        read.append(span.stop - span.start)
        return counts(self, span)

    monkeypatch.setattr(type(table), "_counts", counted)
    for span in (1, 150, 201, 1000):
        read.clear()
        batches = list(table.scan(batch_bytes=span))
        assert [row for batch in batches for row in batch.to_pylist()] == rows
        assert len(batches) >= min(400, len(text) / (2 * span + 300)) - 1
        assert max(read, default=0) < 300
        assert not read or span < 200
    found = np.concatenate([table.rows(["n"])["n"]])
    assert found.tolist() == list(range(400))
    assert table.scan(pieces=table.pieces(at_least=7)).read_all().num_rows == 400
