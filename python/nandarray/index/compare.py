"""Operators of handles on stored arrays, ``==`` above all: refused, with what to write instead.

A user of ``array == 5`` means the elements, which reading gives: ``array[...] == 5``. An answer by identity would be
False without a word, and one by elements would read the array whole. So comparing raises; beside an
array or a scalar of NumPy, NumPy reads and compares, as it does for ``<``. Handles equal themselves alone, and hashes
go by identity, so that dictionaries, sets, ``in``, ``list.index`` and ``list.remove`` find a handle among others (two
handles are of one array if their stores and names are the same).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Uncompared"]


def _refusing(sign: str) -> Callable[[Any, Any], Any]:
    """Return a method for an operator that handles do not have; beside NumPy's arrays and scalars, NumPy computes."""

    def refuse(self: Any, other: Any) -> Any:
        if isinstance(other, np.ndarray | np.generic):
            return NotImplemented
        raise _error(sign, self, other)

    return refuse


def _error(sign: str, one: Any, other: Any) -> TypeError:
    names = f"{type(one).__name__!r} and {type(other).__name__!r}"
    return TypeError(
        f"{sign!r} not supported between instances of {names}: the elements lie in a store; read them first, as in"
        f" array[...] {sign} 5"
    )


class Uncompared:
    """A base of handles on stored arrays, with whose elements no operator computes."""

    __lt__, __le__, __gt__, __ge__ = (_refusing(sign) for sign in ("<", "<=", ">", ">="))
    __add__ = __radd__ = _refusing("+")
    __sub__ = __rsub__ = _refusing("-")
    __mul__ = __rmul__ = _refusing("*")
    __truediv__ = __rtruediv__ = _refusing("/")
    __floordiv__ = __rfloordiv__ = _refusing("//")
    __mod__ = __rmod__ = _refusing("%")
    __pow__ = __rpow__ = _refusing("**")
    __and__ = __rand__ = _refusing("&")
    __or__ = __ror__ = _refusing("|")
    __xor__ = __rxor__ = _refusing("^")
    __matmul__ = __rmatmul__ = _refusing("@")

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
        raise _error(sign, self, other)
