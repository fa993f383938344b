"""Times of a host for TPC-H's queries in Spark, with and without the filtered scans; :mod:`host` prints and keeps them.

One Spark, ``local[1]`` with its defaults, reads the text of all tables by its own source of CSV (it parses the columns
that a query needs, and tests its filters while it parses). With offload, a table whose every scan in the query carries
the same filter is there as the rows and columns that the device's scan gives, in Spark's memory (``cache()``, without
compression); where scans of one table differ, as the two of customer in query 22, it is there with all of its rows.

Times are CPU seconds (user and system) of the whole tree of processes, the JVM with its collector and compiler
included, and wall seconds; the median of some rounds, behind one that is not counted, in which the JVM compiles. CPU
seconds are what counts, as other work may load the machine, which wall seconds would show.
"""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nandarray
from nandarray.errors import NandarrayError
from nandarray.interop.tables import Table
from nandarray_papers.tpch.data import files, store_tables
from nandarray_papers.tpch.host_times import HostTime
from nandarray_papers.tpch.queries import QUERIES
from nandarray_papers.tpch.scans import SCANS, filtered_tables
from nandarray_papers.tpch.schema import OFFLOADED, TABLES

__all__ = ["measure", "versions"]

_SQL = {"int32": "int", "int64": "bigint", "date": "date"}
_OPTIONS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.maxMetadataStringLength": "100000",  # plans are read here: places and filters must not be cut
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_NOTHING = "nothing"  # the name of what is behind the last delimiter of a line


def measure(scale: float, rounds: int = 3) -> Iterator[tuple[int, HostTime]]:
    """Measure queries that have a filtered scan on this machine: medians of ``rounds``, behind one that is not counted.

    A NandarrayError says that PySpark is not installed, or that answers with and without offload differ.
    """
    session = _session()
    paths = files(scale)
    try:
        for name in TABLES:
            _text(session, name, paths[name])
        with tempfile.TemporaryDirectory() as folder, nandarray.open(Path(folder) / "tpch.nand", mode="w") as store:
            tables = store_tables(store, scale, OFFLOADED)
            for query in QUERIES:
                offloaded = [name for name in filtered_tables(query) if name in tables]
                if offloaded:
                    yield query, _measured(session, query, {name: tables[name] for name in offloaded}, paths, rounds)
    finally:
        session.stop()


def versions() -> str:
    """Return the versions of what is measured."""
    session = _session()
    machine = session.sparkContext._jvm.System.getProperty("java.version")
    return f"Spark {session.version}, Java {machine}"


def _session() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise NandarrayError("Spark's times need pyspark, and Java 17: pip install pyspark") from None
    builder = SparkSession.builder.master("local[1]").appName("tpch")
    for key, value in _OPTIONS.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _text(session: Any, table: str, path: Path) -> None:
    """Let a table's name be its text."""
    columns = {
        name: _SQL.get(kind, kind if kind.startswith("decimal") else "string") for name, kind in TABLES[table].items()
    }
    listed = ", ".join(f"{name} {kind}" for name, kind in (columns | {_NOTHING: "string"}).items())
    reader = session.read.schema(listed).option("sep", "|").option("quote", "").option("emptyValue", "")
    reader.csv(str(path)).drop(_NOTHING).createOrReplaceTempView(table)


def _measured(  # noqa: PLR0913, PLR0917 (the session, and what is measured how)
    session: Any, query: int, tables: Mapping[str, Table], paths: Mapping[str, Path], rounds: int
) -> HostTime:
    answer = session.sql(QUERIES[query])
    rows = answer.collect()
    scans = {name: _scans(answer, paths[name]) for name in tables}
    alone = _medians(session, query, rounds)
    with tempfile.TemporaryDirectory() as folder:
        kept = [_cache(session, query, table, len(set(scans[name])) == 1, folder) for name, table in tables.items()]
        found = session.sql(QUERIES[query]).collect()
        if found != rows:
            raise NandarrayError(f"query {query} must have the same answer over the scans' rows: {found} and {rows}")
        after = _medians(session, query, rounds)
        for frame in kept:
            frame.unpersist(blocking=True)
        for name in tables:
            _text(session, name, paths[name])
    return HostTime(
        alone[0],
        after[0],
        {name: len(told) for name, told in scans.items()},
        alone_wall_s=alone[1],
        after_wall_s=after[1],
    )


def _cache(session: Any, query: int, table: Table, is_one: bool, folder: str) -> Any:  # noqa: FBT001 (own)
    """Let a table's name be the rows of its scan, in Spark's memory, and return their frame."""
    import pyarrow.parquet as pq

    (scan,) = [one for one in SCANS if one.name == filtered_tables(query)[table.name]]
    words = set(re.findall(r"\w+", QUERIES[query]))
    columns = [name for name in TABLES[table.name] if name in words]
    path = f"{folder}/{table.name}.parquet"
    with table.scan(columns, scan.where if is_one else None) as batches, pq.ParquetWriter(path, batches.schema) as file:
        for batch in batches:
            file.write_batch(batch)
    frame = session.read.parquet(path).cache()
    frame.count()
    frame.createOrReplaceTempView(table.name)
    return frame


def _scans(answer: Any, path: Path) -> list[str]:
    """Return the filters of each scan of a file in the plan of an answer, those of missing values left out."""
    told = [line for line in _final(answer._jdf.queryExecution().executedPlan().toString()) if f"{path}]" in line]
    filters = [re.search(r"PushedFilters: \[(.*?)\], ReadSchema", line) for line in told if "FileScan csv" in line]
    return [re.sub(r"IsNotNull\(\w+\)(, )?", "", one[1]).removesuffix(", ") for one in filters if one]


def _final(plan: str) -> Iterator[str]:
    """Give the lines of a plan without those of plans that it began as, which stand below a line of their own."""
    without: int | None = None
    for line in plan.splitlines():
        depth = len(re.match(r"[\s:|+-]*", line)[0])  # type: ignore[index]
        if without is not None and depth >= without:
            continue
        without = depth if "== Initial Plan ==" in line else None
        if without is None:
            yield line


def _medians(session: Any, query: int, rounds: int) -> tuple[float, float]:
    times: list[tuple[float, float]] = []
    for _ in range(rounds):
        cpu, wall = tree_cpu(), time.perf_counter()
        session.sql(QUERIES[query]).collect()
        times.append((tree_cpu() - cpu, time.perf_counter() - wall))
    cpus, walls = zip(*times, strict=True)
    return statistics.median(cpus), statistics.median(walls)


def tree_cpu() -> float:
    """Return the seconds of processor time of this process and of those that descend from it."""
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            pid = int(folder.name)
            # Behind the name: state, parent, ...; the 14th to 17th of the file are times, of ended children too.
            parents[pid], spent[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    tree = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sum(spent.get(pid, 0) for pid in tree) / os.sysconf("SC_CLK_TCK")
