"""Aggregates of all rows by one program beside the data, where one can: no value comes here but the results.

Deleted rows are left out by their mask, another input of the program. Runs of rows are computed one after another and
put together here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from nandarray.interop.tables.choosing import Chooser, Operand
from nandarray.interop.tables.columns.read import Reader
from nandarray.interop.tables.table import Piece
from nandarray.interop.tables.where import Test, col, names

__all__ = ["fold"]


def fold(
    asked: Sequence[tuple[Any, ...]],
    reader: Reader,
    where: Test | None,
    pieces: Sequence[Piece],
    options: dict[str, Any],
) -> list[Any] | None:
    """Compute counts, sums and ends of columns over the rows of pieces that pass.

    Parameters
    ----------
    asked : sequence of tuple
        As :meth:`Chooser.fold` takes them.
    reader : Reader
        The columns that are requested, and those that the test needs.
    where : Test, optional
        The test of the rows that count.
    pieces : sequence of Piece
        The rows to look at.
    options : dict
        Options of programs.

    Returns
    -------
    list or None
        A result for each: numbers, scalars of Arrow, None without a value. None for all: no program computes them.
    """
    used = {*(one[1] for one in asked if len(one) > 1), *(() if where is None else names(where.tree))}
    operands = {name: reader.columns[name].operand for name in sorted(used)}
    length = 0 if reader.deleted is None else min(reader.rows, reader.deleted.shape[0])
    gone = "#".join(["deleted", *operands])  # the name of no column that is used

    @cache
    def chooser(*, masked: bool) -> Chooser:
        if not masked:
            return Chooser(where, operands)
        there = ~(col(gone) == True)  # noqa: E712 (a test of rows)
        mask = Operand(gone, pa.bool_(), reader.deleted)
        return Chooser(there if where is None else where & there, {**operands, gone: mask})

    found: list[Any] | None = None
    runs = [(piece.begin, min(piece.end, length), True) for piece in pieces if piece.begin < length]
    runs += [(max(piece.begin, length), piece.end, False) for piece in pieces if piece.end > length]
    for begin, end, masked in runs or [(0, 0, False)]:
        part = chooser(masked=masked).fold(asked, begin, end, **options)
        if part is None:
            return None
        found = part if found is None else [_joined(one[0], *two) for one, *two in zip(asked, found, part, strict=True)]
    return found


def _joined(function: str, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    if function in ("count", "sum"):
        return one + other
    first, second = map(_number, (one, other))
    if first != first or second != second:  # NaN, which is there only where nothing else is
        return other if first != first else one
    return one if (first <= second) == (function == "min") else other


def _number(value: Any) -> Any:
    """Return a result as Python compares it: times as integers, since Python's end at year 9999."""
    if not isinstance(value, pa.Scalar):
        return value
    return value.value if pa.types.is_temporal(value.type) else value.as_py()
