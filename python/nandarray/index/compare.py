"""``==`` of handles on stored arrays: refused, as ``<`` is.

A user of ``array == 5`` means the elements, which reading gives: ``array[...] == 5``. An answer by identity would be
False without a word, and one by elements would read the array whole. So comparing raises; beside an
array or a scalar of NumPy, NumPy reads and compares, as it does for ``<``. Handles equal themselves alone, and hashes
go by identity, so that dictionaries, sets, ``in``, ``list.index`` and ``list.remove`` find a handle among others (two
handles are of one array if their stores and names are the same).
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Uncompared"]


class Uncompared:
    """A base of handles on stored arrays, whose elements ``==`` does not compare."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return self._compared("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compared("!=", other)

    def _compared(self, sign: str, other: object) -> Any:
        if other is self:
            return sign == "=="
        if isinstance(other, np.ndarray | np.generic | Uncompared):
            return NotImplemented  # NumPy's own comparison follows; of two handles, identity decides
        names = f"{type(self).__name__!r} and {type(other).__name__!r}"
        raise TypeError(
            f"{sign!r} not supported between instances of {names}: the elements lie in a store; read them first, as in"
            f" array[...] {sign} 5"
        )
