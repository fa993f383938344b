"""Deleting rows of a table of columns: a mask of truth values, changed by one command.

Rows stay where they are, and so do their zones. The mask may be shorter than the table: rows behind its end are not
deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.interop.tables.columns.layout import DELETED

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["delete"]

_NdArray = np.ndarray[Any, Any]
#: A range of the mask is written whole where at least one of this number of its rows is deleted: a point takes more
#: memory.
_NEAR = 64


def delete(store: Store, path: str, rows: int, numbers: _NdArray) -> None:
    """Mark rows as deleted, all of them or none; ``numbers`` ascend."""
    if not len(numbers):
        return
    name = f"{path}/{DELETED}"
    mask = store.open_array(f"/{name}") if name in store else store._create(name, (0,), bool, compression="bitpack")
    if mask.shape[0] < rows:
        mask.resize((rows,))
    low, high = int(numbers[0]), int(numbers[-1]) + 1
    if high - low <= _NEAR * len(numbers):
        found = np.asarray(mask[low:high], bool)
        found[numbers - low] = True
        mask[low:high] = found
    else:
        mask[numbers] = True
