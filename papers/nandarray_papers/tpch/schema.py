"""Columns of TPC-H's eight tables, in the order of a line, with the types of text tables (specification, 1.4)."""

from __future__ import annotations

__all__ = ["NARROW", "OFFLOADED", "TABLES"]

_MONEY = "decimal(15,2)"

TABLES: dict[str, dict[str, str]] = {
    "lineitem": {
        "l_orderkey": "int64",
        "l_partkey": "int64",
        "l_suppkey": "int64",
        "l_linenumber": "int32",
        "l_quantity": _MONEY,
        "l_extendedprice": _MONEY,
        "l_discount": _MONEY,
        "l_tax": _MONEY,
        "l_returnflag": "text(1)",
        "l_linestatus": "text(1)",
        "l_shipdate": "date",
        "l_commitdate": "date",
        "l_receiptdate": "date",
        "l_shipinstruct": "text(25)",
        "l_shipmode": "text(10)",
        "l_comment": "text(44)",
    },
    "orders": {
        "o_orderkey": "int64",
        "o_custkey": "int64",
        "o_orderstatus": "text(1)",
        "o_totalprice": _MONEY,
        "o_orderdate": "date",
        "o_orderpriority": "text(15)",
        "o_clerk": "text(15)",
        "o_shippriority": "int32",
        "o_comment": "text(79)",
    },
    "customer": {
        "c_custkey": "int64",
        "c_name": "text(25)",
        "c_address": "text(40)",
        "c_nationkey": "int32",
        "c_phone": "text(15)",
        "c_acctbal": _MONEY,
        "c_mktsegment": "text(10)",
        "c_comment": "text(117)",
    },
    "part": {
        "p_partkey": "int64",
        "p_name": "text(55)",
        "p_mfgr": "text(25)",
        "p_brand": "text(10)",
        "p_type": "text(25)",
        "p_size": "int32",
        "p_container": "text(10)",
        "p_retailprice": _MONEY,
        "p_comment": "text(23)",
    },
    "partsupp": {
        "ps_partkey": "int64",
        "ps_suppkey": "int64",
        "ps_availqty": "int32",
        "ps_supplycost": _MONEY,
        "ps_comment": "text(199)",
    },
    "supplier": {
        "s_suppkey": "int64",
        "s_name": "text(25)",
        "s_address": "text(40)",
        "s_nationkey": "int32",
        "s_phone": "text(15)",
        "s_acctbal": _MONEY,
        "s_comment": "text(101)",
    },
    "nation": {"n_nationkey": "int32", "n_name": "text(25)", "n_regionkey": "int32", "n_comment": "text(152)"},
    "region": {"r_regionkey": "int32", "r_name": "text(25)", "r_comment": "text(152)"},
}

#: Tables whose scans carry filters.
OFFLOADED = ("lineitem", "orders", "part", "customer")


def _narrow(kind: str) -> str:
    return {"int64": "int32", _MONEY: "decimal(9,2)"}.get(kind, kind)


#: Tables with values of 32 bits, for a core of 32 bits; they hold every value up to scale factor 100.
NARROW = {table: {name: _narrow(kind) for name, kind in columns.items()} for table, columns in TABLES.items()}
