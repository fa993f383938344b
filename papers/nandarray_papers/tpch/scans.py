"""The 26 scans of the 22 queries that carry a filter which an engine pushes down, and the columns that they need.

They are those that PySpark 4.3 pushes into a Parquet source for the queries with the validation parameters, those of
``nation`` and ``region`` left out. A scan is called after its query and the first letter of its table: ``"6l"``.
Comparisons of two columns, and patterns with more than one gap, are not pushed down.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nandarray.interop.tables import Test, col

__all__ = ["SCANS", "Scan", "filtered_tables"]


@dataclass(frozen=True)
class Scan:
    """A filtered scan of a query: the columns and the rows of a table that it needs.

    ``name`` is the number of the query, then the first letter of the table; of two equal ones of a query the second has
    ``"b"`` behind it.
    """

    name: str
    table: str
    columns: tuple[str, ...]
    where: Test


def _dates(column: str, first: str, end: str) -> Test:
    return (col(column) >= first) & (col(column) < end)


_PRICE = ("l_extendedprice", "l_discount")
_REVENUE_15 = ("l_suppkey", *_PRICE, "l_shipdate")
_QUANTITIES = (
    col("l_quantity").between("1.00", "11.00")
    | col("l_quantity").between("10.00", "20.00")
    | col("l_quantity").between("20.00", "30.00")
)


def _of_19(brand: str, kind: str, kinds: tuple[str, ...], size: int) -> Test:
    containers = [f"{kind} {one}" for one in kinds]
    return (col("p_brand") == brand) & col("p_container").isin(containers) & (col("p_size") <= size)


_PARTS_19 = (
    _of_19("Brand#12", "SM", ("BOX", "CASE", "PACK", "PKG"), 5)
    | _of_19("Brand#23", "MED", ("BAG", "BOX", "PACK", "PKG"), 10)
    | _of_19("Brand#34", "LG", ("BOX", "CASE", "PACK", "PKG"), 15)
)

SCANS = (
    Scan(
        "1l",
        "lineitem",
        ("l_quantity", *_PRICE, "l_tax", "l_returnflag", "l_linestatus", "l_shipdate"),
        col("l_shipdate") <= "1998-09-02",
    ),
    Scan(
        "2p",
        "part",
        ("p_partkey", "p_mfgr", "p_type", "p_size"),
        (col("p_size") == 15) & col("p_type").endswith("BRASS"),
    ),
    Scan("3c", "customer", ("c_custkey", "c_mktsegment"), col("c_mktsegment") == "BUILDING"),
    Scan(
        "3o",
        "orders",
        ("o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"),
        col("o_orderdate") < "1995-03-15",
    ),
    Scan("3l", "lineitem", ("l_orderkey", *_PRICE, "l_shipdate"), col("l_shipdate") > "1995-03-15"),
    Scan(
        "4o",
        "orders",
        ("o_orderkey", "o_orderdate", "o_orderpriority"),
        _dates("o_orderdate", "1993-07-01", "1993-10-01"),
    ),
    Scan("5o", "orders", ("o_orderkey", "o_custkey", "o_orderdate"), _dates("o_orderdate", "1994-01-01", "1995-01-01")),
    Scan(
        "6l",
        "lineitem",
        ("l_quantity", *_PRICE, "l_shipdate"),
        _dates("l_shipdate", "1994-01-01", "1995-01-01")
        & col("l_discount").between("0.05", "0.07")
        & (col("l_quantity") < "24.00"),
    ),
    Scan(
        "7l",
        "lineitem",
        ("l_orderkey", "l_suppkey", *_PRICE, "l_shipdate"),
        col("l_shipdate").between("1995-01-01", "1996-12-31"),
    ),
    Scan("8p", "part", ("p_partkey", "p_type"), col("p_type") == "ECONOMY ANODIZED STEEL"),
    Scan(
        "8o",
        "orders",
        ("o_orderkey", "o_custkey", "o_orderdate"),
        col("o_orderdate").between("1995-01-01", "1996-12-31"),
    ),
    Scan("9p", "part", ("p_partkey", "p_name"), col("p_name").contains("green")),
    Scan(
        "10o", "orders", ("o_orderkey", "o_custkey", "o_orderdate"), _dates("o_orderdate", "1993-10-01", "1994-01-01")
    ),
    Scan("10l", "lineitem", ("l_orderkey", *_PRICE, "l_returnflag"), col("l_returnflag") == "R"),
    Scan(
        "12l",
        "lineitem",
        ("l_orderkey", "l_shipdate", "l_commitdate", "l_receiptdate", "l_shipmode"),
        col("l_shipmode").isin(["MAIL", "SHIP"]) & _dates("l_receiptdate", "1994-01-01", "1995-01-01"),
    ),
    Scan("14l", "lineitem", ("l_partkey", *_PRICE, "l_shipdate"), _dates("l_shipdate", "1995-09-01", "1995-10-01")),
    Scan("15l", "lineitem", _REVENUE_15, _dates("l_shipdate", "1996-01-01", "1996-04-01")),
    Scan("15lb", "lineitem", _REVENUE_15, _dates("l_shipdate", "1996-01-01", "1996-04-01")),
    Scan(
        "16p",
        "part",
        ("p_partkey", "p_brand", "p_type", "p_size"),
        ~(col("p_brand") == "Brand#45")
        & ~col("p_type").startswith("MEDIUM POLISHED")
        & col("p_size").isin([14, 19, 23, 3, 36, 45, 49, 9]),
    ),
    Scan(
        "17p",
        "part",
        ("p_partkey", "p_brand", "p_container"),
        (col("p_brand") == "Brand#23") & (col("p_container") == "MED BOX"),
    ),
    Scan(
        "19l",
        "lineitem",
        ("l_partkey", "l_quantity", *_PRICE, "l_shipinstruct", "l_shipmode"),
        col("l_shipmode").isin(["AIR", "AIR REG"]) & (col("l_shipinstruct") == "DELIVER IN PERSON") & _QUANTITIES,
    ),
    Scan("19p", "part", ("p_partkey", "p_brand", "p_size", "p_container"), (col("p_size") >= 1) & _PARTS_19),
    Scan("20p", "part", ("p_partkey", "p_name"), col("p_name").startswith("forest")),
    Scan(
        "20l",
        "lineitem",
        ("l_partkey", "l_suppkey", "l_quantity", "l_shipdate"),
        _dates("l_shipdate", "1994-01-01", "1995-01-01"),
    ),
    Scan("21o", "orders", ("o_orderkey", "o_orderstatus"), col("o_orderstatus") == "F"),
    Scan("22c", "customer", ("c_phone", "c_acctbal"), col("c_acctbal") > "0.00"),
)


def filtered_tables(query: int) -> dict[str, str]:
    """Return the tables of a query that have a filtered scan, with the name of the first."""
    found: dict[str, str] = {}
    for one in SCANS:
        if int(re.match(r"\d+", one.name)[0]) == query:  # type: ignore[index]
            found.setdefault(one.table, one.name)
    return found
