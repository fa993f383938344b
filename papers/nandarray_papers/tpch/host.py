"""Times of a host for TPC-H's queries, with and without the filtered scans: the host's part of Figure 7.14.

``python -m nandarray_papers.tpch.host ENGINE`` prints those of ``spark`` or ``duckdb`` as TOML; ``host.toml`` beside
this file has both, of one machine, since an experiment's results must not depend on the machine that runs it. Without
offload a query parses the text of all of its tables. With it, tables that have a filtered scan in the query come as
that scan's rows. Times are CPU seconds on one thread, to be divided by a number of cores.

How Spark is measured, :mod:`host_spark` says. In DuckDB the query is run over offloaded scans
(:class:`~nandarray.interop.tables.dataset.TableDataset`), and again over the batches that they gave; the shortest of
some rounds counts.
"""

from __future__ import annotations

import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import nandarray
from nandarray.errors import InvalidError
from nandarray_papers.tpch import host_spark
from nandarray_papers.tpch.data import files, store_tables
from nandarray_papers.tpch.host_times import HOSTS, HostTime
from nandarray_papers.tpch.queries import QUERIES
from nandarray_papers.tpch.scans import filtered_tables
from nandarray_papers.tpch.schema import TABLES

__all__ = ["measure"]

_SQL = {"int32": "integer", "int64": "bigint", "date": "date"}


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
    """Measure queries that have a filtered scan in DuckDB on this machine; the shortest of some rounds counts."""
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
    """Print times of an engine as TOML."""
    if not words or len(words) > 2 or words[0] not in _ENGINES:  # noqa: PLR2004 (an engine and a scale factor)
        raise InvalidError(f"one of {', '.join(_ENGINES)} must be given, and at most a scale factor, not {words}")
    engine, scale = words[0], float(words[1]) if len(words) > 1 else 0.1
    measured, versions = _ENGINES[engine]()
    print(f'[{engine}]\ncommand = "python -m nandarray_papers.tpch.host {engine} {scale:g}"\nscale = {scale:g}')
    print(f'machine = "{platform.machine()}, {_processor()}"\nversions = "{versions}"')
    for query, one in measured(scale):
        print(f"\n[[{engine}.query]]\nquery = {query}")
        for name, value in asdict(one).items():
            if isinstance(value, float):
                print(f"{name} = {value:.4f}")
        passes = ", ".join(f"{name} = {number}" for name, number in one.passes.items())
        print(f"passes = {{ {passes} }}", flush=True)


def _duckdb() -> tuple[Any, str]:
    import duckdb

    return measure, f"DuckDB {duckdb.__version__}"


def _spark() -> tuple[Any, str]:
    return host_spark.measure, host_spark.versions()


_ENGINES = dict(zip(HOSTS, (_spark, _duckdb), strict=True))


def _processor() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return found[1] if found else "?"


if __name__ == "__main__":
    main(sys.argv[1:])
