"""Sixty predicates through four engines over one dataset, and random ones beside DuckDB: the rows that Arrow gives.

Each predicate is a text of SQL, the same for all engines, beside an expression of Arrow, which is decided over the
whole table in memory. DuckDB runs in `make test`; others where they are installed, by `make test-engines`.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sparks

pa = pytest.importorskip("pyarrow")
import pyarrow.compute as pc  # noqa: E402
import pyarrow.dataset as ds  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import nandarray  # noqa: E402
from nandarray.interop import tables  # noqa: E402
from nandarray.interop.tables.dataset import TableDataset  # noqa: E402

ROWS = 2000
ZONE = 128
WORDS = ["", "red", "green", "dark red", "reddish", "Rot", "été", "a'b", 'q"q', "50%", "under_score", "zz" * 30]
EPOCH = datetime.date(1999, 6, 1)


def made(rows: int = ROWS, seed: int = 7, more: tuple[float, ...] = ()) -> Any:
    """A table with every kind of column that all engines know, a tenth of each missing; ``k`` numbers the rows."""
    rng = random.Random(seed)

    def column(kind: Any, make: Callable[[int], Any]) -> Any:
        return pa.array([None if rng.random() < 0.1 else make(number) for number in range(rows)], kind)

    def moment(_: int) -> datetime.datetime:
        day = EPOCH + datetime.timedelta(days=rng.randint(0, 900))
        return datetime.datetime.combine(day, datetime.time(rng.choice([0, 12]), 0, 0, rng.choice([0, 1])))

    return pa.table(
        {
            "k": pa.array(range(rows), pa.int64()),
            "i": column(pa.int32(), lambda _: rng.randint(-50, 50)),
            "n": column(pa.int16(), lambda number: number // 40),
            "big": column(pa.int64(), lambda number: number * 10**12),
            "x": column(pa.float64(), lambda _: rng.choice([0.0, -0.0, 0.5, 1e300, -2.25, rng.gauss(0, 3), *more])),
            "p": column(pa.decimal128(12, 2), lambda _: decimal.Decimal(rng.randint(-9999, 9999)).scaleb(-2)),
            "d": column(pa.date32(), lambda number: EPOCH + datetime.timedelta(days=number // 3)),
            "t": column(pa.timestamp("us"), moment),
            "s": column(pa.string(), lambda _: rng.choice(WORDS)),
            "b": column(pa.bool_(), lambda _: rng.random() < 0.5),
        }
    )


K, INT, N, BIG, X, P, D, T, S, B = map(pc.field, ("k", "i", "n", "big", "x", "p", "d", "t", "s", "b"))
DAY = datetime.date(2000, 2, 20)


def cents(number: int) -> Any:
    return pa.scalar(decimal.Decimal(number).scaleb(-2), pa.decimal128(12, 2))


def moment(*when: int) -> Any:
    return pa.scalar(datetime.datetime(*when), pa.timestamp("us"))


#: Sixty predicates: SQL, and what it means to Arrow.
PREDICATES: list[tuple[str, Any]] = [
    ("k < 100", K < 100),
    ("k >= 1990", K >= 1990),
    ("k between 500 and 519", (K >= 500) & (K <= 519)),
    ("k = 77 or k = 1400", (K == 77) | (K == 1400)),
    ("i > 5", INT > 5),
    ("i <= -49", INT <= -49),
    ("i <> 4", INT != 4),
    ("i in (1, 2, 3)", INT.isin([1, 2, 3])),
    ("i not in (1, 2, 3)", ~INT.isin([1, 2, 3]) & INT.is_valid()),
    ("i is null", INT.is_null()),
    ("i is not null", INT.is_valid()),
    ("not (i between -40 and 40)", ~((INT >= -40) & (INT <= 40))),
    ("i > 5 and b", (INT > 5) & B),
    ("i > 45 or s = 'red'", (INT > 45) | (S == "red")),
    ("i > 45 or i is null", (INT > 45) | INT.is_null()),
    ("not (i > 5 and s = 'red')", ~((INT > 5) & (S == "red"))),
    ("not (i > 5 or x > 1)", ~((INT > 5) | (X > 1))),
    ("i + 1 > 40", (INT + 1) > 40),
    ("i * 2 < -90", (INT * 2) < -90),
    ("i > n", INT > N),
    ("n = 7", N == 7),
    ("n in (0, 3, 49, 70000)", N.isin([0, 3, 49])),
    ("n < 2 and i < 0", (N < 2) & (INT < 0)),
    ("big >= 1990000000000000", BIG >= 1990 * 10**12),
    ("big = 5000000000000", BIG == 5 * 10**12),
    ("big < 3000000000000 or big is null", (BIG < 3 * 10**12) | BIG.is_null()),
    ("x > 1", X > 1),
    ("x = 0", X == 0.0),
    ("x < -2.25", X < -2.25),
    ("x <= 0.5 and x >= -0.5", (X <= 0.5) & (X >= -0.5)),
    ("x <> 0.5", X != 0.5),
    ("p <= -90.00", cents(-9000) >= P),
    ("p = 1.50 or p > 95", (cents(150) == P) | (cents(9500) < P)),
    ("p between -1.25 and 1.25", (cents(-125) <= P) & (cents(125) >= P)),
    ("p is null and i > 0", P.is_null() & (INT > 0)),
    ("d >= date '2001-03-01'", datetime.date(2001, 3, 1) <= D),
    ("d = date '2000-02-20'", D == DAY),
    ("d between date '2000-02-20' and date '2000-02-25'", (D >= DAY) & (datetime.date(2000, 2, 25) >= D)),
    ("d in (date '2000-02-20', date '2000-06-01')", D.isin([DAY, datetime.date(2000, 6, 1)])),
    ("d <> date '2000-02-20'", D != DAY),
    ("d < date '1999-06-05' or d is null", (datetime.date(1999, 6, 5) > D) | D.is_null()),
    ("t > timestamp '2001-08-01 00:00:00'", moment(2001, 8, 1) < T),
    ("t = timestamp '2000-09-06 00:00:00'", moment(2000, 9, 6) == T),
    ("t <= timestamp '1999-06-20 12:00:00'", moment(1999, 6, 20, 12) >= T),
    ("t is not null and t < timestamp '1999-07-01 00:00:00'", moment(1999, 7, 1) > T),
    ("s = 'red'", S == "red"),
    ("s <> ''", S != ""),
    ("s = ''", S == ""),
    ("s in ('red', 'green', 'été')", S.isin(["red", "green", "été"])),
    ("s not in ('red', '')", ~S.isin(["red", ""]) & S.is_valid()),
    ("s like 'red%'", pc.starts_with(S, "red")),
    ("s like '%d'", pc.ends_with(S, "d")),
    ("s like '%k r%'", pc.match_substring(S, "k r")),
    ("s not like 'r%'", ~pc.starts_with(S, "r")),
    ("s >= 'green' and s < 'red'", (S >= "green") & (S < "red")),
    ("s > 'z'", S > "z"),
    ("s = 'a''b' or s = 'q\"q'", (S == "a'b") | (S == 'q"q')),
    ("s is null or s = '50%'", S.is_null() | (S == "50%")),
    ("not b", ~B),
    ("b is null and s > 'r'", B.is_null() & (S > "r")),
]
#: Queries whose answers are the same in every engine, beside the predicates.
QUERIES = [
    "select count(*) as c from t",
    "select count(*) as c, sum(i) as s, min(d) as l, max(d) as h from t where n < 20",
    "select n, count(*) as c, sum(p) as s from t where i > 0 and n >= 0 group by n order by n",
    "select a.k, b.k as o from t a join t b on a.i = b.n where a.k < 50 and b.k > 1000 and b.k < 1300 order by 1, 2",
    "select a.k from t a left join t b on a.k = b.k and b.i > 0 where b.k is null and a.k < 90 order by 1",
    "select k from t where i > 0 order by k desc limit 5",
    "select k from t where s like 'r%' and p < 90 order by p desc, k limit 7",
    "select count(*) as c from (select k from t where i > 0 limit 11) as u",
    "select count(*) as c from (select k from t where i + 1 > 10 limit 9) as u",
]


def duckdb_asker(data: Any) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("t", data)
        yield lambda query: connection.execute(query).fetchall()


def datafusion_asker(data: Any) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    datafusion = pytest.importorskip("datafusion", reason="DataFusion is not installed: make test-engines")
    context = datafusion.SessionContext()
    context.register_dataset("t", data)
    yield lambda query: rows_of(context.sql(query).to_arrow_table())


def polars_asker(data: Any) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    pl = pytest.importorskip("polars", reason="Polars is not installed: make test-engines")
    scan = tables.scan_polars if isinstance(data, TableDataset) else pl.scan_pyarrow_dataset
    with pl.SQLContext(t=scan(data)) as context:
        yield lambda query: context.execute(query).collect().rows()


def polars_dataset_asker(data: Any) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    pl = pytest.importorskip("polars", reason="Polars is not installed: make test-engines")
    with pl.SQLContext(t=pl.scan_pyarrow_dataset(data)) as context:
        yield lambda query: context.execute(query).collect().rows()


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


#: Predicates for which an engine gives Arrow's datasets another expression than it decides itself.
ODD = {("polars dataset", "s not in ('red', '')")}
#: Arithmetic, whose integers wrap around in Polars: it decides that by itself.
WRAPS = {"i + 1 > 40", "i * 2 < -90"}

ASKERS = {
    "duckdb": duckdb_asker,
    "datafusion": datafusion_asker,
    "polars": polars_asker,
    "polars dataset": polars_dataset_asker,
}


@pytest.fixture(scope="module")
def memory() -> Any:
    return made()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, memory: Any) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("predicates") / "t.nand"
    with nandarray.open(path, "w") as store:
        tables.create(store, "t", memory, zone_rows=ZONE)
    with nandarray.open(path) as store:
        yield tables.open_table(store, "t")


def numbers(expression: Any, memory: Any) -> list[int]:
    found: list[int] = memory.filter(expression)["k"].to_pylist()
    return found


def test_there_are_sixty_and_few_show_little(memory: Any) -> None:
    assert len(PREDICATES) == 60
    assert len({sql for sql, _ in PREDICATES}) == 60
    assert [sql for sql, where in PREDICATES if not 0 < len(numbers(where, memory)) < ROWS] == []


def test_arrow_gives_the_rows_of_the_whole_table(table: Any, memory: Any) -> None:
    dataset = table.dataset()
    for sql, where in PREDICATES:
        wanted = numbers(where, memory)
        assert dataset.to_table(columns=["k"], filter=where)["k"].to_pylist() == wanted, sql
        assert dataset.count_rows(filter=where) == len(wanted), sql
        assert dataset.head(3, columns=["k"], filter=where)["k"].to_pylist() == wanted[:3], sql
        parts = [one.to_table(columns=["k"], filter=where)["k"].to_pylist() for one in dataset.get_fragments(where)]
        assert sum(parts, []) == wanted, sql


@pytest.mark.parametrize("engine", ASKERS)
def test_an_engine_gives_the_rows_of_the_whole_table(engine: str, table: Any, memory: Any) -> None:
    dataset = table.dataset()
    with contextlib.contextmanager(ASKERS[engine])(dataset) as ask:
        for sql, where in PREDICATES:
            if (engine, sql) in ODD:
                continue
            assert ask(f"select k from t where {sql} order by k") == [(k,) for k in numbers(where, memory)], sql
        with contextlib.contextmanager(ASKERS[engine])(ds.dataset(memory)) as plain:
            for query in QUERIES:
                assert ask(query) == plain(query), query
    # Engines keep some filters to themselves; all that they send is decided at the data.
    assert dataset.counts["pushed"] > len(PREDICATES) / 2
    kept = len(WRAPS) + 1 if engine == "polars" else 0  # one of the queries has such arithmetic, too
    assert dataset.counts["in part"] + dataset.counts["left to Arrow"] == kept


@pytest.mark.parametrize("pushdown", ["on", "off"])
def test_spark_gives_the_rows_of_the_whole_table(pushdown: str, table: Any, memory: Any) -> None:
    spark = sparks.session()
    path = table.store.path
    kept = sparks.frame(path, pushdown="off")
    for sql, where in PREDICATES if pushdown == "on" else PREDICATES[::10]:
        frame = sparks.frame(path, pushdown="on") if pushdown == "on" else kept
        found = [row.k for row in frame.where(sql).select("k").collect()]
        assert sorted(found) == numbers(where, memory), sql
    if pushdown == "off":
        kept.createOrReplaceTempView("t")
        duck = contextlib.contextmanager(duckdb_asker)
        with duck(ds.dataset(memory)) as plain:
            for query in QUERIES:
                if "order by p" not in query:  # a missing value is the first in Spark, the last in DuckDB
                    assert [tuple(row) for row in spark.sql(query).collect()] == plain(query), query


# --- Random predicates beside DuckDB over Parquet ---------------------------------------------------------------------

#: Constants that are compared with a column, by its name.
CONSTANTS = {
    "k": st.integers(-5, ROWS + 5).map(str),
    "i": st.one_of(st.integers(-60, 60).map(str), st.sampled_from(["2.5", "3000000000"])),
    "n": st.integers(-1, 51).map(str),
    "big": st.integers(-1, ROWS).map(lambda number: str(number * 10**12)),
    "x": st.sampled_from(["0", "0.5", "-2.25", "1e300", "'nan'::double", "'inf'::double", "0.1"]),
    "p": st.sampled_from(["0", "1.5", "-12.34", "0.005", "99.99"]),
    "d": st.integers(-3, 700).map(lambda day: f"date '{EPOCH + datetime.timedelta(days=day)}'"),
    "t": st.integers(-3, 900).map(lambda day: f"timestamp '{EPOCH + datetime.timedelta(days=day)} 12:00:00.000001'"),
    "s": st.sampled_from(WORDS).map(lambda word: "'" + word.replace("'", "''") + "'"),
    "b": st.sampled_from(["true", "false"]),
}
COLUMNS = st.sampled_from(sorted(CONSTANTS))


@st.composite
def leaves(draw: st.DrawFn) -> str:
    column = draw(COLUMNS)
    constant = CONSTANTS[column]
    kind = draw(st.sampled_from(["compare"] * 4 + ["in", "null", "between", "like", "columns"]))
    if kind == "in":
        return f"{column} in ({', '.join(draw(st.lists(constant, min_size=1, max_size=4)))})"
    if kind == "null":
        return f"{column} is {draw(st.sampled_from(['null', 'not null']))}"
    if kind == "between":
        return f"{column} between {draw(constant)} and {draw(constant)}"
    if kind == "like":
        return f"s like '{draw(st.sampled_from(['r%', '%d', '%e%', 'red', '%_s%', '_ed']))}'"
    op = draw(st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]))
    if kind == "columns":
        return f"{draw(st.sampled_from(['i', 'n', 'k', 'x']))} {op} {draw(st.sampled_from(['i', 'n', 'x', 'i + n']))}"
    return f"{column} {op} {draw(constant)}"


PREDICATE = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        inner.map(lambda one: f"not ({one})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """DuckDB with a table ``ours``, and ``theirs`` of the same rows in a file of Parquet; NaN is among the floats."""
    duckdb = pytest.importorskip("duckdb")
    folder = tmp_path_factory.mktemp("beside")
    rows = made(more=(float("nan"), float("inf")))
    pq.write_table(rows, folder / "t.parquet", compression="zstd")
    with nandarray.open(folder / "t.nand", "w") as store, duckdb.connect() as connection:
        connection.register("ours", tables.create(store, "t", rows, zone_rows=ZONE).dataset())
        connection.execute(f"create view theirs as select * from '{folder}/t.parquet'")
        yield connection


@settings(max_examples=30, deadline=None)
@given(where=PREDICATE)
def test_random_predicates_give_duckdbs_rows_of_parquet(where: str, beside: Any) -> None:
    query = "select k from {} where {} order by k"
    ours = beside.execute(query.format("ours", where)).fetchall()
    assert ours == beside.execute(query.format("theirs", where)).fetchall(), where


# --- ... and Polars over the same rows in memory ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def beside_polars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Lazy frames of the same rows, of a table and of memory; NaN is among the floats."""
    pl = pytest.importorskip("polars", reason="Polars is not installed: make test-engines")
    rows = made(more=(float("nan"), float("inf")))
    with nandarray.open(tmp_path_factory.mktemp("polars") / "t.nand", "w") as store:
        dataset = tables.create(store, "t", rows, zone_rows=ZONE).dataset()
        with pl.SQLContext(ours=tables.scan_polars(dataset), theirs=pl.DataFrame(rows).lazy()) as context:
            yield lambda query: context.execute(query).collect().rows()


@settings(max_examples=40, deadline=None)
@given(where=PREDICATE.filter(lambda where: "::" not in where))
def test_random_predicates_give_polars_rows_of_memory(where: str, beside_polars: Any) -> None:
    query = "select k from {} where {} order by k"
    assert beside_polars(query.format("ours", where)) == beside_polars(query.format("theirs", where)), where
