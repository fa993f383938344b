"""Times of a host for TPC-H's queries in DuckDB, with and without the filtered scans: the host's part of Figure 7.14.

``python -m nandarray_papers.tpch.host`` prints them as TOML; ``host.toml`` beside this file has them of one machine,
since an experiment's results must not depend on the machine that runs it. Without offload a query parses the text of
all of its tables. With it, tables that have a filtered scan in the query come as that scan's rows: the query is run
over offloaded scans (:class:`~nandarray.interop.tables.dataset.TableDataset`), and again over the batches that they
gave. Times are CPU seconds on one thread, to be divided by a number of cores.
"""

from __future__ import annotations

import platform
import re
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import nandarray
from nandarray.errors import InvalidError
from nandarray_papers.tpch.data import files, store_tables
from nandarray_papers.tpch.queries import QUERIES
from nandarray_papers.tpch.scans import SCANS
from nandarray_papers.tpch.schema import TABLES

__all__ = ["HostTime", "filtered_tables", "host_times", "measure"]

_SQL = {"int32": "integer", "int64": "bigint", "date": "date"}


@dataclass(frozen=True)
class HostTime:
    """CPU times of one query: without offload, and with it but without the scans themselves.

    ``passes`` says by offloaded table how often the query scans it.
    """

    alone_s: float
    after_s: float
    passes: Mapping[str, int]


def filtered_tables(query: int) -> dict[str, str]:
    """Return the tables of a query that have a filtered scan, with the name of the first."""
    found: dict[str, str] = {}
    for one in SCANS:
        if int(re.match(r"\d+", one.name)[0]) == query:  # type: ignore[index]
            found.setdefault(one.table, one.name)
    return found


@cache
def host_times() -> tuple[float, dict[int, HostTime]]:
    """Return the scale factor and the stored times by query."""
    data = tomllib.loads(resources.files("nandarray_papers.tpch").joinpath("host.toml").read_text(encoding="utf-8"))
    times = {int(one["query"]): HostTime(one["alone_s"], one["after_s"], dict(one["passes"])) for one in data["query"]}
    return float(data["scale"]), times


class _Kept:
    """A dataset whose scans are read once; later ones get the same batches."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.read: dict[tuple[str, str], Any] = {}
        self.scans = 0

    def of(self) -> Any:
        kept, base = self, type(self.dataset)

        class Dataset(base):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                self.__dict__.update(kept.dataset.__dict__)

            def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:  # noqa: A002
                import pyarrow.dataset as ds

                kept.scans += 1
                key = (str(columns), str(filter))
                if key not in kept.read:
                    kept.read[key] = super().scanner(columns, filter, **options).to_table()
                return ds.InMemoryDataset(kept.read[key]).scanner()

        return Dataset()


def _csv(table: str, path: Path) -> str:
    columns = {
        name: _SQL.get(kind, kind if kind.startswith("decimal") else "varchar") for name, kind in TABLES[table].items()
    }
    columns["nothing"] = "varchar"  # behind the last delimiter
    listed = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
    return (
        f"select * exclude (nothing) from read_csv('{path}', delim='|', header=false, quote='', columns={{{listed}}})"
    )


def _least(connection: Any, query: int, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        before = time.process_time()
        connection.execute(QUERIES[query]).fetchall()
        times.append(time.process_time() - before)
    return min(times)


def measure(scale: float, rounds: int = 3) -> Iterator[tuple[int, HostTime]]:
    """Measure queries that have a filtered scan on this machine; the shortest of some rounds counts."""
    import duckdb

    paths = files(scale)
    with tempfile.TemporaryDirectory() as folder, nandarray.open(Path(folder) / "tpch.nand", mode="w") as store:
        tables = store_tables(store, scale)
        for query in QUERIES:
            offloaded = [name for name in filtered_tables(query) if name in tables]
            if not offloaded:
                continue
            with duckdb.connect() as connection:
                connection.execute("set threads=1")
                for name in TABLES:
                    connection.execute(f"create view {name} as {_csv(name, paths[name])}")
                alone = _least(connection, query, rounds)
                kept = {name: _Kept(tables[name].dataset()) for name in offloaded}
                for name, one in kept.items():
                    connection.execute(f"drop view {name}")
                    connection.register(name, one.of())
                connection.execute(QUERIES[query]).fetchall()
                passes = {name: max(1, one.scans) for name, one in kept.items()}
                yield query, HostTime(alone, _least(connection, query, rounds), passes)


def main(words: list[str]) -> None:
    """Print times as TOML."""
    if len(words) > 1:
        raise InvalidError("one argument at most: the scale factor, 0.1 if left out")
    scale = float(words[0]) if words else 0.1
    print("# CPU times of TPC-H's queries in DuckDB on one thread: python -m nandarray_papers.tpch.host")
    print(f'scale = {scale:g}\nmachine = "{platform.machine()}, {_processor()}"')
    for query, one in measure(scale):
        passes = ", ".join(f"{name} = {number}" for name, number in one.passes.items())
        print(f"\n[[query]]\nquery = {query}\nalone_s = {one.alone_s:.4f}\nafter_s = {one.after_s:.4f}")
        print(f"passes = {{ {passes} }}", flush=True)


def _processor() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return found[1] if found else "?"


if __name__ == "__main__":
    main(sys.argv[1:])
