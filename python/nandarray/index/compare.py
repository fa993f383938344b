"""Operators of handles on stored arrays, ``==`` above all: refused, with what to write instead.

A user of ``array == 5`` means the elements, which reading gives: ``array[...] == 5``. An answer by identity would be
False without a word, and one by elements would read the array whole. So comparing raises, two handles included; beside
an array or a scalar of NumPy, NumPy reads and computes. An assignment such as ``array += 1`` is refused beside these,
too: it would leave the store as it is, and the name with an array in memory.

Hashes go by identity, and Python compares no object with itself: dictionaries and sets find a handle. Looked for in a
list, it raises as an array of NumPy does; ``is`` tells whether two names are of one handle, stores and names whether
two handles are of one array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

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
    cure = f"array[...] {sign} 5"
    if sign in ("==", "!=") and isinstance(other, Uncompared):
        cure = f"array[...] {sign} other[...]; whether both are one array, their stores and names tell"
    return TypeError(
        f"{sign!r} not supported between instances of {names}: the elements lie in a store; read them first, as in"
        f" {cure}"
    )


def _refusing_assignment(sign: str) -> Callable[[Any, Any], Never]:
    """Return a method for an assignment that computes."""

    def refuse(self: Any, other: Any) -> Never:
        names = f"{type(self).__name__!r} and {type(other).__name__!r}"
        raise TypeError(
            f"{sign!r} not supported between instances of {names}: the elements lie in a store; change them there, as"
            f" in array[...] {sign} 5"
        )

    return refuse


def _refusing_alone(words: str) -> Callable[[Any], Never]:
    """Return a method for an operator of one operand, or a function of Python's."""

    def refuse(self: Any) -> Never:
        raise TypeError(
            f"{words.format('array')!r} not supported for instances of {type(self).__name__!r}: the elements lie in a"
            f" store; read them first, as in {words.format('array[...]')}"
        )

    return refuse


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

    __lshift__ = __rlshift__ = _refusing("<<")
    __rshift__ = __rrshift__ = _refusing(">>")
    __divmod__ = __rdivmod__ = _refusing("divmod")
    __iadd__, __isub__, __imul__, __itruediv__ = (_refusing_assignment(sign) for sign in ("+=", "-=", "*=", "/="))
    __ifloordiv__, __imod__, __ipow__ = (_refusing_assignment(sign) for sign in ("//=", "%=", "**="))
    __iand__, __ior__, __ixor__ = (_refusing_assignment(sign) for sign in ("&=", "|=", "^="))
    __ilshift__, __irshift__, __imatmul__ = (_refusing_assignment(sign) for sign in ("<<=", ">>=", "@="))
    __neg__, __pos__, __invert__, __abs__ = (_refusing_alone(words) for words in ("-{}", "+{}", "~{}", "abs({})"))

    __hash__ = object.__hash__

    __eq__, __ne__ = _refusing("=="), _refusing("!=")
