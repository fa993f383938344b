"""Sixty predicates through four engines over one dataset, and random ones beside DuckDB: the rows that Arrow gives.

Each predicate is a text of SQL, the same for all engines, beside an expression of Arrow, which the whole table in memory
decides. DuckDB runs in `make test`; DataFusion, Polars and Spark where they are installed, by `make test-engines`.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import nandarray  # noqa: E402
from nandarray.interop import tables  # noqa: E402

ROWS = 2000
ZONE = 128
WORDS = ["", "red", "green", "dark red", "reddish", "Rot", "été", "a'b", 'q"q', "50%", "under_score", "zz" * 30]
EPOCH = datetime.date(1999, 6, 1)


def made(rows: int = ROWS, seed: int = 7) -> Any:
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
            "x": column(pa.float64(), lambda _: rng.choice([0.0, -0.0, 0.5, 1e300, -2.25, rng.gauss(0, 3)])),
            "p": column(pa.decimal128(12, 2), lambda _: decimal.Decimal(rng.randint(-9999, 9999)).scaleb(-2)),
            "d": column(pa.date32(), lambda number: EPOCH + datetime.timedelta(days=number // 3)),
            "t": column(pa.timestamp("us"), moment),
            "s": column(pa.string(), lambda _: rng.choice(WORDS)),
            "b": column(pa.bool_(), lambda _: rng.random() < 0.5),
        }
    )


K, I, N, BIG, X, P, D, T, S, B = map(pc.field, ("k", "i", "n", "big", "x", "p", "d", "t", "s", "b"))
DAY = datetime.date(2000, 2, 20)
NOON = datetime.datetime(2000, 2, 20, 12)


def cents(number: int) -> Any:
    return pa.scalar(decimal.Decimal(number).scaleb(-2), pa.decimal128(12, 2))


#: Sixty predicates: SQL, and what it means to Arrow.
PREDICATES: list[tuple[str, Any]] = [
    ("k < 100", K < 100),
    ("k >= 1990", K >= 1990),
    ("k between 500 and 519", (K >= 500) & (K <= 519)),
    ("k = 77 or k = 1400", (K == 77) | (K == 1400)),
    ("i > 5", I > 5),
    ("i <= -49", I <= -49),
    ("i <> 4", I != 4),
    ("i in (1, 2, 3)", I.isin([1, 2, 3])),
    ("i not in (1, 2, 3)", ~I.isin([1, 2, 3]) & I.is_valid()),
    ("i is null", I.is_null()),
    ("i is not null", I.is_valid()),
    ("not (i between -40 and 40)", ~((I >= -40) & (I <= 40))),
    ("i > 5 and b", (I > 5) & B),
    ("i > 45 or s = 'red'", (I > 45) | (S == "red")),
    ("i > 45 or i is null", (I > 45) | I.is_null()),
    ("not (i > 5 and s = 'red')", ~((I > 5) & (S == "red"))),
    ("not (i > 5 or x > 1)", ~((I > 5) | (X > 1))),
    ("i + 1 > 40", (I + 1) > 40),
    ("i * 2 < -90", (I * 2) < -90),
    ("i > n", I > N),
    ("n = 7", N == 7),
    ("n in (0, 3, 49, 70000)", N.isin([0, 3, 49])),
    ("n < 2 and i < 0", (N < 2) & (I < 0)),
    ("big >= 1990000000000000", BIG >= 1990 * 10**12),
    ("big = 5000000000000", BIG == 5 * 10**12),
    ("big < 3000000000000 or big is null", (BIG < 3 * 10**12) | BIG.is_null()),
    ("x > 1", X > 1),
    ("x = 0", X == 0.0),
    ("x < -2.25", X < -2.25),
    ("x <= 0.5 and x >= -0.5", (X <= 0.5) & (X >= -0.5)),
    ("x <> 0.5", X != 0.5),
    ("p <= -90.00", P <= cents(-9000)),
    ("p = 1.50 or p > 95", (P == cents(150)) | (P > cents(9500))),
    ("p between -1.25 and 1.25", (P >= cents(-125)) & (P <= cents(125))),
    ("p is null and i > 0", P.is_null() & (I > 0)),
    ("d >= date '2001-03-01'", D >= datetime.date(2001, 3, 1)),
    ("d = date '2000-02-20'", D == DAY),
    ("d between date '2000-02-20' and date '2000-02-25'", (D >= DAY) & (D <= datetime.date(2000, 2, 25))),
    ("d in (date '2000-02-20', date '2000-06-01')", D.isin([DAY, datetime.date(2000, 6, 1)])),
    ("d <> date '2000-02-20'", D != DAY),
    ("d < date '1999-06-05' or d is null", (D < datetime.date(1999, 6, 5)) | D.is_null()),
    ("t > timestamp '2001-08-01 00:00:00'", pa.scalar(datetime.datetime(2001, 8, 1), pa.timestamp("us")) < T),
    ("t = timestamp '2000-02-20 12:00:00'", pa.scalar(NOON, pa.timestamp("us")) == T),
    ("t <= timestamp '1999-06-20 12:00:00'", pa.scalar(datetime.datetime(1999, 6, 20, 12), pa.timestamp("us")) >= T),
    ("t is not null and t < timestamp '1999-07-01 00:00:00'", pa.scalar(datetime.datetime(1999, 7, 1), pa.timestamp("us")) > T),
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
    "select n, count(*) as c, sum(p) as s from t where i > 0 group by n order by n",
    "select a.k, b.k as o from t a join t b on a.i = b.n where a.k < 50 and b.k > 1000 and b.k < 1300 order by 1, 2",
    "select a.k from t a left join t b on a.k = b.k and b.i > 0 where b.k is null and a.k < 90 order by 1",
    "select k from t where i > 0 order by k desc limit 5",
    "select k from t where s like 'r%' order by p desc, k limit 7",
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
    with pl.SQLContext(t=pl.scan_pyarrow_dataset(data)) as context:
        yield lambda query: context.execute(query).collect().rows()


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


ASKERS = {"duckdb": duckdb_asker, "datafusion": datafusion_asker, "polars": polars_asker}


@pytest.fixture(scope="module")
def memory() -> Any:
    return made()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, memory: Any) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("predicates") / "t.nand"
    with nandarray.open(path, "w") as store:
        yield tables.create(store, "t", memory, zone_rows=ZONE)


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
            assert ask(f"select k from t where {sql} order by k") == [(k,) for k in numbers(where, memory)], sql
        counts = dataset.counts
        with contextlib.contextmanager(ASKERS[engine])(pa.dataset.dataset(memory)) as plain:
            for query in QUERIES:
                assert ask(query) == plain(query), query
    assert counts["pushed"] > len(PREDICATES) / 2, counts
    assert set(dataset.pushed[-1][0]) <= {"k", "i"}
