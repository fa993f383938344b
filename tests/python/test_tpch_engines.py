"""The 22 queries of TPC-H with its eight tables of columns: in each engine what it gives over Parquet of the same rows.

DuckDB runs in `make test`; DataFusion, Polars and Spark (Q1, Q6, Q12) where they are installed, by `make test-engines`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sparks

import nandarray
from nandarray.interop.tables import Table, open_table, scan_polars
from nandarray_papers.tpch.data import parquet_files, store_columns
from nandarray_papers.tpch.queries import QUERIES
from nandarray_papers.tpch.schema import TABLES

SCALE = 0.01
MISSING = "not installed: make test-engines"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``tpch.nand`` and eight files of Parquet."""
    place = tmp_path_factory.mktemp("tpch")
    with nandarray.open(place / "tpch.nand", "w") as store:
        store_columns(store, SCALE, folder=place)
    parquet_files(SCALE, place, folder=place)
    return place


@pytest.fixture(scope="module")
def tables(folder: Path) -> Iterator[dict[str, Table]]:
    with nandarray.open(folder / "tpch.nand") as store:
        yield {name: open_table(store, name) for name in TABLES}


def assert_equal(ours: list[Any], theirs: list[Any], query: int) -> None:
    """Compare rows; doubles to rounding, as engines add them in the order of threads."""
    assert len(ours) == len(theirs), query
    for row, other in zip(ours, theirs, strict=True):
        for a, b in zip(row, other, strict=True):
            assert a == b or (isinstance(a, float) and a == pytest.approx(b, rel=1e-12)), query


def test_duckdb(tables: dict[str, Table], folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    datasets = {name: table.dataset() for name, table in tables.items()}
    with duckdb.connect() as ours, duckdb.connect() as theirs:
        for name, dataset in datasets.items():
            ours.register(name, dataset)
            theirs.execute(f"create view {name} as select * from '{folder}/{name}.parquet'")
        for number, query in QUERIES.items():
            assert_equal(ours.execute(query).fetchall(), theirs.execute(query).fetchall(), number)
    filtered = sum(sum(one.counts.values()) - one.counts["unfiltered"] for one in datasets.values())
    assert sum(one.counts["pushed"] for one in datasets.values()) > filtered / 2


def test_datafusion(tables: dict[str, Table], folder: Path) -> None:
    datafusion = pytest.importorskip("datafusion", reason=MISSING)
    ours, theirs = datafusion.SessionContext(), datafusion.SessionContext()
    for name, table in tables.items():
        ours.register_dataset(name, table.dataset())
        theirs.register_parquet(name, f"{folder}/{name}.parquet")
    for number, query in QUERIES.items():
        found, wanted = (
            [tuple(row.values()) for row in context.sql(query).to_arrow_table().to_pylist()]
            for context in (ours, theirs)
        )
        assert_equal(found, wanted, number)


def test_polars(tables: dict[str, Table], folder: Path) -> None:
    pl = pytest.importorskip("polars", reason=MISSING)
    with (
        pl.SQLContext({name: scan_polars(table) for name, table in tables.items()}) as ours,
        pl.SQLContext({name: pl.scan_parquet(f"{folder}/{name}.parquet") for name in tables}) as theirs,
    ):
        for number, query in QUERIES.items():
            assert_equal(ours.execute(query).collect().rows(), theirs.execute(query).collect().rows(), number)


def test_spark(folder: Path) -> None:
    spark = sparks.session()
    for number in (1, 6, 12):
        answers = []
        for ours in (True, False):
            for name in ("lineitem", "orders"):
                path = folder / "tpch.nand"
                frame = (
                    sparks.frame(path, name, pushdown="on") if ours else spark.read.parquet(f"{folder}/{name}.parquet")
                )
                frame.createOrReplaceTempView(name)
            answers.append([tuple(row) for row in spark.sql(QUERIES[number]).collect()])
        assert answers[0]
        assert_equal(*answers, number)
