"""The 22 queries of TPC-H with the validation parameters, in DuckDB's SQL (specification, 2.4)."""

from __future__ import annotations

from importlib import resources

__all__ = ["QUERIES"]


def _read() -> dict[int, str]:
    text = resources.files("nandarray_papers.tpch").joinpath("queries.sql").read_text(encoding="utf-8")
    parts = text.split("-- Query ")[1:]
    return {int(part.partition("\n")[0]): part.partition("\n")[2].strip().removesuffix(";") for part in parts}


QUERIES: dict[int, str] = _read()
