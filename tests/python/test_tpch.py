"""TPC-H at a small scale factor: rows of every filtered scan, and every query over offloaded scans, as DuckDB."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pytest

import nandarray
from nandarray.interop.tables import Table
from nandarray.interop.tables.dataset import TableDataset
from nandarray_papers.tpch.data import files, store_tables
from nandarray_papers.tpch.queries import QUERIES
from nandarray_papers.tpch.scans import SCANS, Scan
from nandarray_papers.tpch.schema import NARROW, OFFLOADED, TABLES

SCALE = 0.1 if os.environ.get("NANDARRAY_DEEP") else 0.01
SQL = {"int32": "integer", "int64": "bigint", "date": "date"}


def read_csv(table: str, path: Any) -> str:
    """Return the text by which DuckDB reads a file itself."""
    columns = {
        name: SQL.get(kind, kind if kind.startswith("decimal") else "varchar") for name, kind in TABLES[table].items()
    }
    columns["nothing"] = "varchar"  # behind the last delimiter
    listed = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
    return (
        f"select * exclude (nothing) from read_csv('{path}', delim='|', header=false, quote='', columns={{{listed}}})"
    )


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return files(SCALE, tmp_path_factory.mktemp("tpch"))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, texts: dict[str, Any]) -> Iterator[dict[str, Table]]:
    folder = tmp_path_factory.mktemp("store")
    with nandarray.open(folder / "tpch.nand", mode="w") as store:
        yield store_tables(store, SCALE, folder=texts["orders"].parent.parent)


@pytest.fixture(scope="module")
def plain(texts: dict[str, Any]) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for table, path in texts.items():
            connection.execute(f"create table {table} as {read_csv(table, path)}")
        yield connection


def sql_of_values(values: list[str]) -> str:
    return "(" + ", ".join(f"'{one}'" for one in values) + ")"


def sql_of(tree: tuple[Any, ...]) -> str:
    """Write a test in SQL."""
    op, *rest = tree
    if op == "not":
        return f"(not {sql_of(rest[0])})"
    if op in ("and", "or"):
        return "(" + f" {op} ".join(map(sql_of, rest)) + ")"
    column, value = rest
    if op == "in":
        return f"{column} in {sql_of_values(value)}"
    if op in ("begins", "ends", "holds"):
        pattern = {"begins": f"{value}%", "ends": f"%{value}", "holds": f"%{value}%"}[op]
        return f"{column} like '{pattern}'"
    return f"{column} {op if op != '==' else '='} '{value}'"


def test_there_are_26_scans_with_25_names_of_query_and_table() -> None:
    assert len(SCANS) == 26
    assert len({scan.name.removesuffix("b") for scan in SCANS}) == 25
    assert {scan.table for scan in SCANS} == set(OFFLOADED)
    assert set(QUERIES) == set(range(1, 23))


@pytest.mark.parametrize("scan", SCANS, ids=lambda scan: scan.name)
def test_rows_of_a_scan_are_duckdbs(scan: Scan, tables: dict[str, Table], plain: duckdb.DuckDBPyConnection) -> None:
    ours = tables[scan.table].scan(scan.columns, scan.where, batch_bytes=3 << 20).read_all()
    words = f"select {', '.join(scan.columns)} from {scan.table} where {sql_of(scan.where.tree)} order by rowid"
    theirs = plain.execute(words).fetchall()
    assert [tuple(row.values()) for row in ours.to_pylist()] == theirs
    assert theirs or scan.name in ("19p", "2p", "17p", "8p"), "a scan without rows shows little"


@pytest.mark.parametrize("query", QUERIES)
def test_queries_over_offloaded_scans_give_the_same(
    query: int, tables: dict[str, Table], texts: dict[str, Any], plain: duckdb.DuckDBPyConnection
) -> None:
    wanted = plain.execute(QUERIES[query]).fetchall()
    with duckdb.connect() as connection:
        datasets = {name: table.dataset() for name, table in tables.items()}
        for name, dataset in datasets.items():
            connection.register(name, dataset)
        for name in set(TABLES) - set(tables):
            connection.execute(f"create view {name} as {read_csv(name, texts[name])}")
        assert _equal(connection.execute(QUERIES[query]).fetchall(), wanted)
        _check_pushed(query, datasets)
        for name in datasets:
            connection.unregister(name)


def _equal(ours: list[Any], theirs: list[Any]) -> bool:
    """Compare rows; averages of doubles to rounding, as DuckDB adds them in the order of threads."""
    return len(ours) == len(theirs) and all(
        a == b or (isinstance(a, float) and a == pytest.approx(b, rel=1e-12))
        for row, other in zip(ours, theirs, strict=True)
        for a, b in zip(row, other, strict=True)
    )


def _check_pushed(query: int, datasets: dict[str, TableDataset]) -> None:
    """Filters of numbers and dates went to the data, and no column that the query does not need came back."""
    for dataset in datasets.values():
        for columns, _test, whole in dataset.pushed:
            assert whole
            assert not any(name.endswith("_comment") and name not in QUERIES[query] for name in columns)
    if query in (1, 3, 4, 5, 6, 10, 14, 15, 20):
        tests = [test for dataset in datasets.values() for _, test, _ in dataset.pushed if test is not None]
        assert tests


def test_narrow_numbers_are_the_same(tmp_path: Any, texts: dict[str, Any], tables: dict[str, Table]) -> None:
    with nandarray.open(tmp_path / "narrow.nand", mode="w") as store:
        narrow = store_tables(store, SCALE, ["orders"], folder=texts["orders"].parent.parent, narrow=True)["orders"]
        assert [one.type for one in narrow.columns] == list(NARROW["orders"].values())
        ours, wide = narrow.rows(), tables["orders"].rows()
        for name in ours.dtype.names or ():
            assert (ours[name] == wide[name]).all()
        for form in ("block", "stream"):
            program = narrow.program(["o_orderkey", "o_totalprice"], kind=form, target="rv32")
            again = nandarray.offload(program, [narrow.text]).result
            assert (again["c3"] == ours["o_totalprice"]).all()


def test_values_come_as_they_are(tables: dict[str, Table]) -> None:
    first = tables["orders"].scan(["o_orderdate", "o_totalprice", "o_orderpriority"]).read_next_batch().to_pylist()[0]
    assert isinstance(first["o_orderdate"], datetime.date)
    assert isinstance(first["o_totalprice"], Decimal)
    assert isinstance(first["o_orderpriority"], str)
