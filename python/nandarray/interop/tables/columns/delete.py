"""Deleting rows of a table of columns: a mask of truth values, changed by one command.

Rows stay where they are, and so do their zones. The mask may be shorter than the table: rows behind its end are not
deleted. Of the rows to delete a byte each is in memory, or their numbers where they are few.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.interop.tables.columns.layout import DELETED, part_of

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["delete"]

_NdArray = np.ndarray[Any, Any]
#: A range of the mask is kept, and written, whole where at least one of this number of its rows is deleted: a number
#: takes more memory.
_NEAR = 64


def delete(store: Store, path: str, rows: int, found: Iterable[_NdArray]) -> int:
    """Mark rows as deleted, all of them or none; return how many there were.

    Parameters
    ----------
    store : Store
        The store.
    path : str
        The full name of the table.
    rows : int
        Its rows.
    found : iterable of numpy.ndarray
        Numbers of the rows, ascending, some at a time.
    """
    kept: list[tuple[int, _NdArray]] = []
    count, end = 0, 0
    for numbers in found:
        if len(numbers):
            count += len(numbers)
            first, end = int(numbers[0]), int(numbers[-1]) + 1
            kept.append((first, _mask(numbers) if end - first <= _NEAR * len(numbers) else numbers))
    if not kept:
        return 0
    name = f"{path}/{DELETED}"
    array = part_of(store, path, DELETED) if name in store else store._create(name, (0,), bool, compression="bitpack")
    if array.shape[0] < rows:
        array.resize((rows,))
    begin = kept[0][0]
    if end - begin <= _NEAR * count:
        whole = np.asarray(array[begin:end], bool)
        for first, part in kept:
            if part.dtype == bool:
                whole[first - begin : first - begin + len(part)] |= part
            else:
                whole[part - begin] = True
        array[begin:end] = whole
    else:
        array[
            np.concatenate([part if part.dtype != bool else first + np.flatnonzero(part) for first, part in kept])
        ] = True
    return count


def _mask(numbers: _NdArray) -> _NdArray:
    found = np.zeros(int(numbers[-1] - numbers[0]) + 1, bool)
    found[numbers - numbers[0]] = True
    return found
