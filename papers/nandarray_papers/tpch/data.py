"""TPC-H data: files of text by ``tpchgen-cli`` (a package of its own), kept in the folder of the cache; tables of them.

The generator is deterministic: the same scale factor gives the same bytes everywhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nandarray.errors import NandarrayError
from nandarray.interop.tables import Column, Table, TextTable, create
from nandarray_papers.tpch.schema import NARROW, OFFLOADED, TABLES

if TYPE_CHECKING:
    import nandarray

__all__ = ["batches", "files", "parquet_files", "store_columns", "store_tables"]


def _generator() -> str:
    beside = Path(sys.executable).with_name("tpchgen-cli")
    found = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if found is None:
        raise NandarrayError("TPC-H data are made by tpchgen-cli: pip install tpchgen-cli")
    return found


def files(scale: float, folder: Path | None = None, tables: Sequence[str] = tuple(TABLES)) -> dict[str, Path]:
    """Return the files of tables, a line a row, ``|`` behind each field; those that are not there yet are made.

    Scale 1 is a gigabyte of text. The folder is ``tpch`` in ``$NANDARRAY_CACHE``, else in ``~/.cache/nandarray``, if
    left out. A NandarrayError says that the generator is not installed, or fails.
    """
    if folder is None:
        cache = os.environ.get("NANDARRAY_CACHE") or Path.home() / ".cache" / "nandarray"
        folder = Path(cache) / "tpch"
    place = folder / f"sf{scale:g}"
    place.mkdir(parents=True, exist_ok=True)
    found = {table: place / f"{table}.tbl" for table in tables}
    missing = [table for table, path in found.items() if not path.exists()]
    if missing:
        with tempfile.TemporaryDirectory(dir=place) as made:
            words = [_generator(), "tbl", "-s", f"{scale:g}", "--tables", ",".join(missing), "--output-dir", made]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NandarrayError(f"tpchgen-cli failed: {done.stderr.strip()[-500:]}")
            for table in missing:
                os.replace(Path(made) / f"{table}.tbl", found[table])
    return found


def store_tables(
    store: nandarray.Store,
    scale: float,
    tables: Sequence[str] = OFFLOADED,
    *,
    folder: Path | None = None,
    narrow: bool = False,
) -> dict[str, TextTable]:
    """Store tables as text tables, and return them by name; ``scale`` and ``folder`` are as for :func:`files`.

    If ``narrow``, numbers have 32 bits.
    """
    found = files(scale, folder, tables)
    schema = NARROW if narrow else TABLES
    return {name: create(store, name, path, schema[name], check=False) for name, path in found.items()}


def batches(table: str, path: Path) -> Any:
    """Return the rows of a file of text as a ``pyarrow.RecordBatchReader``, read as it is asked."""
    import pyarrow.csv as csv

    types = {name: Column(name, kind).arrow for name, kind in TABLES[table].items()}
    return csv.open_csv(
        path,
        csv.ReadOptions(column_names=[*types, "nothing"]),  # behind the last delimiter
        csv.ParseOptions(delimiter="|", quote_char=False),
        csv.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=False),
    )


def store_columns(
    store: nandarray.Store, scale: float, tables: Sequence[str] = tuple(TABLES), *, folder: Path | None = None
) -> dict[str, Table]:
    """Store tables as tables of columns, and return them by name; ``scale`` and ``folder`` are as for :func:`files`."""
    found = files(scale, folder, tables)
    return {name: create(store, name, batches(name, path)) for name, path in found.items()}


def parquet_files(
    scale: float, place: Path, tables: Sequence[str] = tuple(TABLES), *, folder: Path | None = None
) -> dict[str, Path]:
    """Write tables as files of Parquet (zstd) to a folder, and return these; else as :func:`store_columns`."""
    import pyarrow.parquet as pq

    found = {name: place / f"{name}.parquet" for name in tables}
    for name, path in files(scale, folder, tables).items():
        rows = batches(name, path)
        with pq.ParquetWriter(found[name], rows.schema, compression="zstd") as writer:
            for batch in rows:
                writer.write_batch(batch)
    return found
