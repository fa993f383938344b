"""Columns of TPC-H as the dissertation's filters read them: fixed widths, the first rows of a file in order.

Keys, dates (days since 1970) and money (in hundredths) have 32 bits; flags of one character 8; strings are numbers of
dictionary entries in 8 bits, in the order of the alphabet.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from nandarray_papers.tpch.data import files
from nandarray_papers.tpch.schema import TABLES

__all__ = ["LINES", "code_of", "column", "days"]

#: Rows of a table that are read at most.
LINES = 1 << 16
#: Columns that are numbers of dictionary entries.
_CODED = ("c_mktsegment", "p_brand")


@cache
def _lines(table: str, scale: float) -> list[list[str]]:
    with files(scale, tables=[table])[table].open(encoding="ascii") as opened:
        return [line.split("|") for line in islice(opened, LINES)]


@cache
def _texts(name: str, scale: float) -> list[str]:
    table = next(table for table, columns in TABLES.items() if name in columns)
    at = list(TABLES[table]).index(name)
    return [fields[at] for fields in _lines(table, scale)]


def days(date: str) -> int:
    """Return the days from 1970 to a date."""
    return int(np.datetime64(date, "D").astype(np.int64))


def code_of(name: str, text: str, scale: float) -> int:
    """Return the number of a text in its column's dictionary."""
    return sorted(set(_texts(name, scale))).index(text)


@cache
def column(name: str, scale: float) -> np.ndarray[Any, Any]:
    """Return a column of TPC-H's schema at a scale factor, as ``int32`` or ``uint8``."""
    texts = _texts(name, scale)
    kind = next(columns[name] for columns in TABLES.values() if name in columns)
    if name in _CODED:
        _, codes = np.unique(np.array(texts), return_inverse=True)
        return np.asarray(codes, np.uint8)
    if kind == "text(1)":
        return np.array([ord(text) for text in texts], np.uint8)
    if kind == "date":
        return np.array(texts, "datetime64[D]").astype(np.int32)
    if kind.startswith("decimal"):
        return np.array([int(text.replace(".", "")) for text in texts], np.int32)
    return np.array(texts, np.int32)
