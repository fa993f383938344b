"""Bytes of a run's folder: JSON and Parquet that come out the same whenever they say the same.

JSON has sorted keys, floats as Python's ``repr`` writes them (the shortest text that gives the same number), and no
NaN: it becomes null. Parquet has the same rows with their types. Both are free of time and place, which are in a file
of their own (:func:`environment`).
"""

from __future__ import annotations

import datetime
import filecmp
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nandarray
from nandarray.errors import CorruptError, InvalidError
from nandarray.optional import needs

if TYPE_CHECKING:
    import pandas

__all__ = ["differences", "digest", "environment", "plain", "read_json", "read_parquet", "write_json", "write_table"]

_PACKAGES = ("numpy", "pandas", "pyarrow", "scipy", "numba", "xarray")


def plain(value: Any) -> Any:
    """Return a value as JSON values: NumPy's numbers become Python's, tuples lists, NaN and infinities null."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [plain(item) for item in (_in_order(value) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise InvalidError(f"{value!r} ({type(value).__name__}) cannot be written as JSON")


def _in_order(values: set[Any] | frozenset[Any]) -> list[Any]:
    """Return the elements of a set in an order that does not depend on hashes."""
    try:
        return sorted(values)
    except TypeError:  # of several kinds
        return sorted(values, key=lambda value: (type(value).__name__, repr(value)))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(f"{text[error.start : error.end]!r} in a text is half a character: no UTF-8") from None


def dumps(value: Any, *, lines: bool = False) -> str:
    """Write JSON with sorted keys; a list a line if asked for."""
    if lines and isinstance(value, list):
        inner = ",\n".join(dumps(item) for item in value)
        return f"[\n{inner}\n]" if value else "[]"
    return json.dumps(plain(value), sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def digest(value: Any) -> str:
    """Return a digest of a value: twelve hexadecimal digits."""
    return hashlib.sha256(_utf8(dumps(value))).hexdigest()[:12]


def write_json(file: Path, value: Any, *, rows: bool = False) -> None:
    """Write a JSON file: indented, or a row a line."""
    if rows:
        text = dumps(value, lines=True)
    else:
        text = json.dumps(plain(value), sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)
    file.write_bytes(_utf8(text + "\n"))


def read_json(file: Path) -> Any:
    """Read a JSON file; an error names it."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{file} is damaged: {error}") from None


def write_table(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Write a table into a folder twice, as ``NAME.json`` and as ``NAME.parquet``.

    ``columns``, in order, and the number of ``rows`` are given back. Rows that differ in their columns and a column
    that mixes numbers and texts are an InvalidError.
    """
    with needs("pyarrow", "lab"):
        import pyarrow
        import pyarrow.parquet
    columns = list(rows[0]) if rows else []
    if not all(isinstance(column, str) for column in columns):
        raise InvalidError(f"table {name!r}: the name of a column must be a text, not one of {columns!r}")
    for number, row in enumerate(rows):
        if row.keys() != set(columns):
            apart = sorted(set(columns) ^ set(row))
            raise InvalidError(f"table {name!r}: row {number} differs from the first in {', '.join(map(str, apart))}")
    typed: dict[str, Any] = {}
    for column in columns:
        try:
            typed[column] = pyarrow.array([_typed(row[column]) for row in rows])
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            raise InvalidError(f"table {name!r}: column {column!r} mixes kinds of values: {error}") from None
        except (OverflowError, UnicodeEncodeError, TypeError) as error:
            raise InvalidError(f"table {name!r}: column {column!r} has a value that no table holds: {error}") from None
    write_json(folder / f"{name}.json", list(rows), rows=True)
    pyarrow.parquet.write_table(pyarrow.table(typed), folder / f"{name}.parquet", compression="zstd", version="2.6")
    return {"columns": columns, "rows": len(rows)}


def _typed(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def read_parquet(file: Path) -> pandas.DataFrame:
    """Read a table; needs pandas."""
    with needs("pandas", "lab"):
        import pandas
    with needs("pyarrow", "lab"):
        import pyarrow.parquet
    try:
        found: pandas.DataFrame = pyarrow.parquet.read_table(file).to_pandas()
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        if not file.exists():
            raise
        raise CorruptError(f"{file} is damaged: {' '.join(str(error).split())}") from None
    return found if len(found.columns) else pandas.DataFrame()


def environment(seconds: float) -> dict[str, Any]:
    """Describe the time and the place of a run that took some seconds: all that two equal runs may differ in.

    It has date, seconds, machine, Python, versions of packages, commit, command line.
    """
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "processor": _processor()},
        "python": platform.python_version(),
        "packages": {"nandarray": nandarray.__version__, **versions},
        "commit": _commit(),
        "argv": sys.argv,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _commit() -> str | None:
    """Return the commit that the package's source is of, where that is a checkout of its repository."""
    folder = Path(__file__).resolve().parents[3]
    if not (folder / ".git").exists():
        return None
    try:
        asked = [
            subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=10)
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    return asked[0].stdout.strip() + ("+changes" if asked[1].stdout.strip() else "")


def differences(part: Path, final: Path) -> list[str] | None:
    """Name the files that are not as the same run wrote them before; None if there was none."""
    if not final.is_dir():
        return None
    here, there = ({str(f.relative_to(top)) for f in top.rglob("*") if f.is_file()} for top in (part, final))
    there.discard("environment.json")
    other = {name for name in here & there if not filecmp.cmp(part / name, final / name, shallow=False)}
    return sorted(other | (here ^ there))
