"""The work that ``bench tables`` measures, by each system: a process each, the peers' without the product.

``python -m bench.tables_work JSON`` makes the data of one system, or does one work on them, and prints its figures.
Processor time is that of the process and all below it. Nothing here compares or judges: that is ``bench/tables.py``.
"""

from __future__ import annotations

import importlib
import json
import math
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.parts_work import tree_cpu

_RESULT = "figures: "
#: Seconds that a measurement takes at least: processor time is counted in hundredths.
_LEAST_S = 0.5
_ROW_BYTES = 1024
_TABLES = ("lineitem", "orders")
_Figures = dict[str, Any]


def _peer(name: str) -> Any:
    """Import a peer's module, of which this package knows no types."""
    return importlib.import_module(name)


def _measured(run: Callable[[], Any], rounds: int) -> _Figures:
    """Do a work once for what it loads, then in rounds of as many as take long enough."""
    run()
    begin = time.perf_counter()
    run()
    times = max(1, math.ceil(_LEAST_S / max(time.perf_counter() - begin, 1e-6)))
    seconds, cpu = [], []
    for _ in range(rounds):
        begin, before = time.perf_counter(), tree_cpu()
        for _ in range(times):
            run()
        seconds.append((time.perf_counter() - begin) / times)
        cpu.append((tree_cpu() - before) / times)
    return {"seconds": seconds, "cpu": cpu}


# --- Data -------------------------------------------------------------------------------------------------------------


def _rows(count: int, kind: Any = None) -> Any:
    """Return rows of 1 KiB that no codec shortens, with a column of doubles, a batch each 16 MiB.

    The long column is of bytes of fixed length, or of ``kind``, another type of bytes.
    """
    import pyarrow as pa

    chance, step = np.random.default_rng(1), (16 << 20) // _ROW_BYTES
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("rest", pa.binary(_ROW_BYTES - 16))])

    def batches() -> Any:
        for first in range(0, count, step):
            number = min(step, count - first)
            rest = pa.py_buffer(chance.bytes(number * (_ROW_BYTES - 16)))
            yield pa.record_batch(
                [
                    pa.array(np.arange(first, first + number)),
                    pa.array(chance.standard_normal(number)),
                    pa.Array.from_buffers(schema.field("rest").type, number, [None, rest]),
                ],
                schema=schema,
            )

    if kind is None:
        return pa.RecordBatchReader.from_batches(schema, batches())
    wanted = schema.set(2, pa.field("rest", kind))
    return pa.RecordBatchReader.from_batches(wanted, (batch.cast(wanted) for batch in batches()))


def _made_nandarray(folder: Path, asked: _Figures) -> _Figures:
    import nandarray
    from nandarray.interop import tables
    from nandarray_papers.tpch.data import store_columns

    with nandarray.open(folder / "tpch.nand", "w") as store:
        store_columns(store, asked["scale"])
    with nandarray.open(folder / "rows.nand", "w") as store:
        tables.create(store, "rows", _rows(asked["rows"]))
    return {"bytes": (folder / "tpch.nand").stat().st_blocks * 512}


def _made_parquet(folder: Path, asked: _Figures) -> _Figures:
    import pyarrow.parquet as pq

    from nandarray_papers.tpch.data import parquet_files

    found = parquet_files(asked["scale"], folder)
    rows = _rows(asked["rows"])
    with pq.ParquetWriter(folder / "rows.parquet", rows.schema, compression="zstd") as writer:
        for batch in rows:
            writer.write_batch(batch)
    return {"bytes": sum(path.stat().st_size for path in found.values())}


def _files(folder: Path) -> list[Path]:
    """Return the files of Parquet, from which the peers make theirs."""
    return sorted(path for path in folder.glob("*.parquet") if path.stem != "rows")


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _made_lance(folder: Path, asked: _Figures) -> _Figures:
    import pyarrow.parquet as pq

    lance = _peer("lance")
    place = folder / "lance"
    for path in _files(folder):
        lance.write_dataset(pq.ParquetFile(path).read(), place / path.stem)
    size = _bytes_below(place)
    lance.write_dataset(_rows(asked["rows"]), folder / "rows.lance")
    return {"bytes": size}


def _made_vortex(folder: Path, asked: _Figures) -> _Figures:
    import pyarrow as pa
    import pyarrow.parquet as pq

    vortex = _peer("vortex")
    place = folder / "vortex"
    place.mkdir(exist_ok=True)
    for path in _files(folder):
        vortex.io.write(pq.ParquetFile(path).read(), str(place / f"{path.stem}.vortex"))
    size = _bytes_below(place)
    # It has no bytes of fixed length.
    vortex.io.write(_rows(asked["rows"], pa.binary()), str(folder / "rows.vortex"))
    return {"bytes": size}


# --- Queries ----------------------------------------------------------------------------------------------------------


def _queries(folder: Path) -> dict[str, str]:
    """Return the queries by name: two of TPC-H, and a thousandth of the rows by the key that they lie in order of."""
    import pyarrow.parquet as pq

    from nandarray_papers.tpch.queries import QUERIES

    keys = pq.ParquetFile(folder / "orders.parquet").metadata.num_rows * 4  # of eight keys two are used
    few = f"l_orderkey between {keys // 2} and {keys // 2 + keys // 1000}"
    sorted_ = f"select sum(l_extendedprice), sum(l_quantity), count(*) from lineitem where {few}"
    return {"q1": QUERIES[1], "q6": QUERIES[6], "sorted": sorted_}


def _in_engine(folder: Path, asked: _Figures) -> _Figures:
    """Run a query in an engine, over our tables or Parquet."""
    query = _queries(folder)[asked["query"]]
    asker = {"DuckDB": _duckdb, "DataFusion": _datafusion, "Spark": _spark}[asked["engine"]]
    run = asker(folder, ours=asked["system"] == "nandarray")
    answer = run(query)
    return {**_measured(lambda: run(query), asked["rounds"]), "answer": repr(answer)}


def _tables(folder: Path) -> dict[str, Any]:
    import nandarray
    from nandarray.interop import tables

    store = nandarray.open(folder / "tpch.nand")
    return {name: tables.open_table(store, name) for name in _TABLES}


def _duckdb(folder: Path, *, ours: bool) -> Callable[[str], Any]:
    connection = _peer("duckdb").connect()
    for name in _TABLES:
        if ours:
            connection.register(name, _tables(folder)[name].dataset())
        else:
            connection.execute(f"create view {name} as select * from '{folder}/{name}.parquet'")
    return lambda query: connection.execute(query).fetchall()


def _datafusion(folder: Path, *, ours: bool) -> Callable[[str], Any]:
    context = _peer("datafusion").SessionContext()
    for name in _TABLES:
        if ours:
            context.register_dataset(name, _tables(folder)[name].dataset())
        else:
            context.register_parquet(name, f"{folder}/{name}.parquet")
    return lambda query: [tuple(row.values()) for row in context.sql(query).to_arrow_table().to_pylist()]


def _spark(folder: Path, *, ours: bool) -> Callable[[str], Any]:
    from nandarray.interop import spark

    builder = _peer("pyspark.sql").SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    spark.register(session)

    def run(query: str) -> Any:
        for name in _TABLES:
            if ours:
                reader = session.read.format("nandarray").option("table", name).option("pushdown", "on")
                frame = reader.load(str(folder / "tpch.nand"))
            else:
                frame = session.read.parquet(f"{folder}/{name}.parquet")
            frame.createOrReplaceTempView(name)
        return [tuple(row) for row in session.sql(query).collect()]

    return run


# --- Rows and columns -------------------------------------------------------------------------------------------------


def _take(folder: Path, asked: _Figures) -> _Figures:
    """Read a thousand rows by number, others each time."""
    chance = np.random.default_rng(2)
    taker = {"nandarray": _take_nandarray, "Parquet": _take_parquet, "Lance": _take_lance, "Vortex": _take_vortex}
    take = taker[asked["system"]](folder)

    def run() -> None:
        numbers = np.sort(chance.choice(asked["rows"], min(1000, asked["rows"]), replace=False))
        assert take(numbers) == len(numbers)

    return _measured(run, asked["rounds"])


def _take_nandarray(folder: Path) -> Callable[[Any], int]:
    import nandarray
    from nandarray.interop import tables

    table: Any = tables.open_table(nandarray.open(folder / "rows.nand"), "rows")
    return lambda numbers: int(table.take(numbers).num_rows)


def _take_parquet(folder: Path) -> Callable[[Any], int]:
    import pyarrow.dataset as ds

    rows = ds.dataset(folder / "rows.parquet")
    return lambda numbers: int(rows.take(numbers).num_rows)


def _take_lance(folder: Path) -> Callable[[Any], int]:
    rows = _peer("lance").dataset(folder / "rows.lance")
    return lambda numbers: int(rows.take(numbers).num_rows)


def _take_vortex(folder: Path) -> Callable[[Any], int]:
    import pyarrow as pa

    vortex = _peer("vortex")
    rows = vortex.open(str(folder / "rows.vortex"))
    return lambda numbers: len(rows.scan(indices=vortex.array(pa.array(numbers, pa.uint64()))).read_all())


def _scan(folder: Path, asked: _Figures) -> _Figures:
    """Read a column of doubles, all of it; or copy as many bytes in memory."""
    import pyarrow.dataset as ds

    if asked["system"] == "a copy in memory":
        source: Any = np.random.default_rng(1).standard_normal(asked["rows"])
        target = np.empty_like(source)
        return {**_measured(lambda: np.copyto(target, source), asked["rounds"]), "read": source.nbytes}
    rows: Any
    if asked["system"] == "nandarray":
        import nandarray
        from nandarray.interop import tables

        rows = tables.open_table(nandarray.open(folder / "rows.nand"), "rows")
    else:
        rows = ds.dataset(folder / "rows.parquet").scanner(columns=["x"])

    def run() -> None:
        batches = rows.scan(["x"]) if asked["system"] == "nandarray" else rows.to_batches()
        assert sum(batch.num_rows for batch in batches) == asked["rows"]

    return {**_measured(run, asked["rounds"]), "read": asked["rows"] * 8}


_MADE = {"nandarray": _made_nandarray, "Parquet": _made_parquet, "Lance": _made_lance, "Vortex": _made_vortex}
_WORKS = {"query": _in_engine, "take": _take, "scan": _scan}


def main(words: list[str]) -> None:
    """Do what is asked, and print the figures."""
    asked = json.loads(words[0])
    folder = Path(asked["folder"])
    try:
        act = _MADE[asked["system"]] if asked["work"] == "make" else _WORKS[asked["work"]]
        if asked.get("engine") == "Spark" and shutil.which("java") is None:
            raise ImportError("Java is not installed")
        figures = act(folder, asked)
    except ImportError as error:
        figures = {"missing": str(error)}
    print(_RESULT + json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
