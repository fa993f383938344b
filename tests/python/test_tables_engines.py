"""Tables as Arrow datasets: all that Arrow's own datasets do, and three engines, give the rows of a whole scan.

DataFusion and Polars are 300 MB, which `make test` does not install: `pip install '.[engines]'`.
"""

from __future__ import annotations

import datetime
import pickle
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import doors
import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.compute as pc  # noqa: E402
import pyarrow.dataset as ds  # noqa: E402

import nandarray  # noqa: E402
from nandarray.errors import InvalidError, NandarrayError  # noqa: E402
from nandarray.interop import tables  # noqa: E402

SCHEMA = {"id": "int32", "price": "decimal(9,2)", "day": "date", "name": "text(8)", "big": "int64"}
ENGINES = "not installed: pip install '.[engines]'"


def lines(count: int) -> bytes:
    rng = random.Random(3)
    names = ["", "red", "green", "dark red", "reddish"]
    first = datetime.date(1995, 1, 1)
    return "".join(
        f"{rng.randint(-50, 50)}|{rng.randint(-99999, 99999) / 100:.2f}|"
        f"{first + datetime.timedelta(days=rng.randint(0, 3000))}|{rng.choice(names)}|{number * 10**9}|\n"
        for number in range(count)
    ).encode()


@pytest.fixture(params=[*doors.COMPUTING, "columns"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A table of text behind each door, and one of columns in a file."""
    with doors.opened("file" if request.param == "columns" else request.param, tmp_path / "t.nand") as store:
        text = tables.create(store, "text" if request.param == "columns" else "t", lines(900), SCHEMA)
        yield tables.create(store, "t", text.scan(), zone_rows=100) if request.param == "columns" else text


def in_fragments(dataset: Any, read: Any) -> Any:
    return pa.concat_tables(map(read, dataset.get_fragments(ID > 0)))


ID, NAME = pc.field("id"), pc.field("name")
CALLS: dict[str, Any] = {
    "count_rows": lambda d: d.count_rows(),
    "count_rows of a filter": lambda d: d.count_rows(filter=ID > 5),
    "take": lambda d: d.take([5, 3, 899]),
    "take of columns and filters": lambda d: (
        d.take(pa.array([2, 0]), columns=["big"]),
        d.take([2, 0], filter=ID > 5),
        d.filter(ID > 5).take([1]),
    ),
    "head": lambda d: d.head(7),
    "to_table": lambda d: d.to_table(),
    "a column by its number": lambda d: d.to_table(columns=["big"], filter=pc.field(0) > 5),
    "columns that are computed": lambda d: d.to_table(columns={"z": ID * 2, "y": pc.field(4)}, filter=NAME >= "g"),
    "no column": lambda d: d.scanner(columns=[]).to_table().num_rows,
    "filter": lambda d: d.filter(ID > 5).filter(NAME >= "green").to_table(columns=["day"], filter=ID < 30),
    "sort_by": lambda d: d.sort_by([("name", "descending"), ("big", "ascending")]).to_table(),
    "join": lambda d: d.join(d, "big", right_suffix="r").sort_by("big").to_table(),
    "batches": lambda d: max(batch.num_rows for batch in d.to_batches(batch_size=10)),
    "by place": lambda d: d.scanner(["id"], ID > 3, 100).to_table(),
    "fragments": lambda d: in_fragments(d, lambda f: f.to_table(filter=ID > 3, columns=["big"])),
    "counts of fragments": lambda d: sum(f.count_rows(filter=NAME >= "g") for f in d.get_fragments()),
    "the first rows that pass": lambda d: d.head(3, filter=(ID > 5) & (NAME >= "g"), columns=["big"]),
    "its own schema": lambda d: d.replace_schema(d.schema).to_table(),
    "partition_expression": lambda d: str(d.partition_expression),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_dataset_gives_what_one_in_memory_gives(name: str, table: Any) -> None:
    wanted = CALLS[name](ds.dataset(table.scan().read_all()))
    found = CALLS[name](table.dataset())
    if isinstance(wanted, pa.Table):
        assert found.num_rows == wanted.num_rows
        assert found.equals(wanted)
    else:
        assert found == wanted


def test_what_arrow_reads_by_itself_is_an_error_that_says_what_to_do(table: Any) -> None:
    dataset = table.dataset()
    memory, where = ds.dataset(table.scan().read_all()), re.escape(str(table.store.path))
    for call in (
        lambda: ds.Scanner.from_dataset(dataset).to_table(),
        lambda: ds.dataset([dataset, dataset]).to_table(),
        lambda: memory.join(dataset, "big", right_suffix="r"),
    ):
        with pytest.raises(InvalidError, match=rf"{where}: t is a table in a store.*to_table"):
            call()
    # Arrow's own limit: the call came as far as its join.
    with pytest.raises(pa.ArrowInvalid, match="Unsupported type for data field price"):
        dataset.join_asof(pa.table({"big": [0, 5], "x": [1, 2]}), "big", [], 0)
    with pytest.raises(InvalidError, match="must be that of table 't'"):
        dataset.replace_schema(pa.schema([("id", pa.int64())]))
    with pytest.raises(InvalidError, match="filtered dataset has no fragments"):
        dataset.filter(ID > 3).get_fragments()


def test_a_dataset_is_written_and_pickled(table: Any, tmp_path: Path) -> None:
    whole = table.scan().read_all()
    ds.write_dataset(table.dataset(), tmp_path / "files")
    assert ds.dataset(tmp_path / "files", format="ipc").to_table().equals(whole)
    path = table.store.path
    table.store.close()
    with nandarray.open(path) as store:
        dataset = tables.open_table(store, "t").dataset().filter(ID > 3)
        again = pickle.loads(pickle.dumps(dataset))
        assert again.to_table().equals(whole.filter(ID > 3))
        fragments = list(tables.open_table(store, "t").dataset().get_fragments())
        parts = [pickle.loads(pickle.dumps(one)) for one in fragments]
        assert pa.concat_tables(one.to_table(filter=ID > 3) for one in parts).equals(whole.filter(ID > 3))
        again._table.store.close()


def test_what_went_to_the_data_is_counted(table: Any) -> None:
    dataset = table.dataset()
    odd = pc.utf8_length(NAME) > 3  # which no program decides
    assert dataset.count_rows() == 900
    assert dataset.count_rows(filter=ID > 5) == dataset.to_table(filter=ID > 5).num_rows
    assert dataset.pushed[0] == ([], None, True)
    kept = NAME >= "g" if isinstance(table, tables.TextTable) else odd
    assert dataset.to_table(filter=kept & (ID > 5)).num_rows
    assert dataset.to_table(filter=odd, columns=[]).num_rows
    assert dataset.pushed[-1] == (["name"], None, False)
    assert dataset.counts == {"unfiltered": 1, "pushed": 2, "in part": 1, "left to Arrow": 1}


def test_arrow_finds_every_buffer_aligned(table: Any, capfd: Any) -> None:
    one = tables.create(table.store, "one", b"1|2.00|2000-01-01|a|5|\n", SCHEMA)
    for of in (table, one):
        for where in (NAME == "none", NAME >= "none", pc.field("big") == 5):
            for columns in (["id", "big"], ["name", "day", "big", "price"], ["big"]):
                found = of.dataset().to_table(columns=columns, filter=where)
                found.group_by(columns[0]).aggregate([(columns[-1], "count")])
                addresses = [b.address for c in found.columns for a in c.chunks for b in a.buffers() if b is not None]
                assert not [hex(one) for one in addresses if one % 8]
    assert "aligned" not in "".join(capfd.readouterr())


def test_names_that_are_no_words_are_left_to_arrow(table: Any) -> None:
    schema = {"a b": "int32", "id": "int32", "and": "int32", "(id == 1)": "int32"}
    text = b"".join(b"%d|%d|%d|%d|\n" % (i, i + 1, i, -i) for i in range(9))
    odd = tables.create(table.store, "odd", text, schema)
    whole = odd.scan().read_all()
    for where in (
        pc.field("a b") > 3,
        pc.field("(id == 1)") < -3,
        (pc.field("and") > 3) & (ID < 9),
        (pc.field("(id == 1)") == -3) | (ID == 1),
    ):
        assert odd.dataset().to_table(columns=["id"], filter=where).equals(whole.filter(where).select(["id"])), where


WHERE = [
    "id > 5", "id >= -3 and id < 17", "id = 2.5", "id <> 4", "id in (1, 2, 3)", "id not in (1, 2, 3)", "id is null",
    "not (id between 3 and 30)", "id > 5 or name = 'red'", "id + 1 > 40", "id > big", "price <= 1.50",
    "price = -3.35 or price > 900", "price between -10.005 and 10.005", "day >= date '2000-01-20'",
    "day = date '1999-09-09' or day < date '1996-01-01'", "day in (date '1999-09-09', date '2001-03-01')",
    "day > timestamp '2000-01-20 12:00:00'", "name = 'red'", "name <> ''", "name in ('red', 'green')",
    "name like 'red%'", "name like '%d'", "name like '%k r%'", "name >= 'green' and name < 'red'", "name = 'a\"b'",
    "length(name) > 3", "big < 5000000000", "big >= 800000000000 and (id > 0 or name = '')",
    "case when id > 0 then big > 5 else id < -9 end", "not (id > 5 and not (name = 'red'))", "true", "false",
    "id is not null and coalesce(id, 0) > 3",
]  # fmt: skip


@pytest.mark.parametrize("engine", ["duckdb", "datafusion"])
def test_engines_of_sql_give_the_rows_of_a_whole_scan(engine: str, table: Any) -> None:
    module = pytest.importorskip(engine, reason=ENGINES)
    dataset, memory = table.dataset(), ds.dataset(table.scan().read_all())

    def ask(query: str, what: Any) -> list[Any]:
        if engine == "duckdb":
            with module.connect() as connection:
                connection.register("t", what)
                found = connection.sql(query).to_arrow_table()
        else:
            context = module.SessionContext()
            context.register_dataset("t", what)
            found = context.sql(query).to_arrow_table()
        return [tuple(row.values()) for row in found.to_pylist()]

    for where in WHERE:
        query = f"select big, name from t where {where} order by big"
        assert ask(query, dataset) == ask(query, memory), where
    for query in (
        "select count(*) c from t",
        "select name, count(*) n, sum(price) p from t group by name order by name",
        "select t.big, u.id from t join t u on t.id = u.id and u.big < 9000000000 where t.name like 'r%' order by 1, 2",
        "select id from t order by big desc limit 5",
    ):
        assert ask(query, dataset) == ask(query, memory), query
    pushed = [whole for _, test, whole in dataset.pushed if test is not None]
    assert len(pushed) > len(WHERE) / 3
    assert all(pushed)


def test_polars_gives_the_rows_of_a_whole_scan(table: Any) -> None:
    pl = pytest.importorskip("polars", reason=ENGINES)
    dataset, memory = table.dataset(), ds.dataset(table.scan().read_all())
    column = pl.col
    for ask in (
        lambda t: t.filter(column("id") > 5),
        lambda t: t.filter((column("name") == "red") | (column("big") < 5 * 10**10)).select("day", "price"),
        lambda t: t.filter(column("id").is_in([1, 2, 3])).select(pl.len()),
        lambda t: t.filter(column("day") >= datetime.date(2000, 1, 20)).head(5),
        lambda t: t.filter(column("name").str.starts_with("r")).select(column("id").sum()),
        lambda t: t.filter(column("id").is_null()),
        lambda t: t.filter(~(column("id") == 3)).group_by("name").agg(column("price").sum()).sort("name"),
        lambda t: t.filter(column("price") > Decimal("20.5")).select("big"),
        lambda t: t.filter(column("name") > "green", column("id") < 4).sort("big", descending=True).head(3),
        lambda t: t.head(7).filter(column("id") > 0),
        lambda t: t.filter(column("id") > 0).slice(3, 4).select("day"),
        lambda t: t.filter(column("name").str.len_chars() > 3, column("id") < 0).select("id"),
        lambda t: t.filter(column("id") > 2**40),
        lambda t: t.select(pl.len()),
    ):
        wanted = ask(pl.scan_pyarrow_dataset(memory)).collect()
        assert ask(pl.scan_pyarrow_dataset(dataset)).collect().equals(wanted)
        for engine in ("in-memory", "streaming"):
            assert ask(tables.scan_polars(dataset)).collect(engine=engine).equals(wanted)
    assert any(test is not None and whole for _, test, whole in dataset.pushed)


def test_polars_gets_what_is_pushed_and_nan_is_greatest(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars", reason=ENGINES)
    x, i = pl.col("x"), pl.col("i")
    rows = pl.DataFrame({"x": [1.0, float("nan"), None, -0.0, 5.0], "i": [2**31 - 1, -5, 0, None, 7]})
    rows = rows.with_columns(i.cast(pl.Int32), c=pl.Series(["b", "a", None, "c", "a"], dtype=pl.Categorical))
    with nandarray.open(tmp_path / "t.nand", "w") as store:
        dataset = tables.create(store, "t", rows.to_arrow()).dataset()
        lazy = tables.scan_polars(dataset)
        for where, part in (
            (x > 1, "pushed"),
            (x.is_between(1, 9) | ~(x >= 1), "pushed"),
            (x.is_nan() & (i < 0), "pushed"),
            ((x > 1.0) & (x != 5.0), "pushed"),
            (i.is_in([7, 8]) | (pl.col("c") == "b"), "pushed"),
            (i.is_in([7, None]), "left to Arrow"),
            ((i + 1 < 0) & x.is_not_null(), "in part"),  # which wraps around
            (x > x * 0.5, "left to Arrow"),
            (x == float("nan"), "left to Arrow"),  # which JSON does not have
            ((x < float("inf")) & (i > 0), "in part"),
            (x.is_in([1.0, float("inf")]), "pushed"),
            (pl.col("c") < "c", "left to Arrow"),
        ):
            before = dataset.counts[part]
            assert lazy.filter(where).collect().equals(rows.filter(where)), where
            assert dataset.counts[part] == before + 1, where
        with pytest.raises(InvalidError, match="must be of a table or its dataset, not of type DataFrame"):
            tables.scan_polars(rows)
        with pytest.raises(InvalidError, match="filter its lazy frame"):
            tables.scan_polars(dataset.filter(ID > 3))


def test_an_engine_that_counts_asks_no_column_that_its_filter_has_not(tmp_path: Path) -> None:
    data = {"id": range(900), "other": range(900), "name": ["a"] * 900}
    with nandarray.open(tmp_path / "t.nand", "w") as store:
        table = tables.create(store, "t", pa.table(data), zone_rows=100)
        for engine, columns in (("duckdb", ["id"]), ("datafusion", [])):
            module, dataset = pytest.importorskip(engine, reason=ENGINES), table.dataset()
            query = "select count(*) as c from t where id > 100 and id < 300"
            if engine == "duckdb":
                with module.connect() as connection:
                    connection.register("t", dataset)
                    assert connection.sql(query).fetchall() == [(199,)]
            else:
                context = module.SessionContext()
                context.register_dataset("t", dataset)
                assert context.sql(query).to_pydict() == {"c": [199]}
            assert {(*read,) for read, _, _ in dataset.pushed} == {(*columns,)}


def test_a_scanner_of_which_only_the_schema_is_asked_scans_nothing(table: Any, monkeypatch: Any) -> None:
    dataset, begun = table.dataset(), []
    scan = type(table).scan
    monkeypatch.setattr(type(table), "scan", lambda *given, **more: begun.append(1) or scan(*given, **more))
    scanner = dataset.scanner(columns=["name", "big"], filter=NAME >= "g")
    assert scanner.projected_schema.equals(table.schema.empty_table().select(["name", "big"]).schema)
    assert not begun
    assert scanner.to_table().num_rows
    assert begun


def test_a_fault_of_the_text_comes_through_each_engine(table: Any) -> None:
    duckdb = pytest.importorskip("duckdb")
    bad = tables.create(table.store, "bad", b"1|2.00|2000-01-01|a|5|\n1|x|2000-01-01|a|5|\n", SCHEMA, check=False)
    with pytest.raises(NandarrayError, match="bad, line 2"):
        bad.dataset().to_table()
    with duckdb.connect() as connection:
        connection.register("t", bad.dataset())
        with pytest.raises(Exception, match="bad, line 2"):
            connection.execute("select sum(price) from t").fetchall()
