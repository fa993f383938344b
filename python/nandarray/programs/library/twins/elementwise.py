"""Twins of CoDEN's twenty kernels.

Arithmetic, ``scan``, ``recip`` and ``sqrt`` are equal to the bit, but for what a NaN carries. The others are computed
in ``numpy.longdouble`` and rounded: the right result where that has more digits than float64 (x86). Programs are
within the bounds of ``docs/reference/programs.md`` of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Twin = Callable[..., tuple[Array]]


def _exact(function: Callable[..., Array], what: str) -> Twin:
    def twin(*inputs: Array) -> tuple[Array]:
        with np.errstate(all="ignore"):
            return (function(*inputs),)

    twin.__doc__ = f"Compute {what} of arrays of one dtype."
    return twin


def _rounded(function: Callable[..., Array], what: str) -> Twin:
    def twin(*inputs: Array) -> tuple[Array]:
        with np.errstate(all="ignore"):
            return (function(*(one.astype(np.longdouble) for one in inputs)).astype(inputs[0].dtype),)

    twin.__doc__ = f"Compute {what}, in long double, rounded to the inputs' dtype."
    return twin


def _exp10(a: Array) -> Array:
    return np.asarray(np.power(np.longdouble(10), a))


add = _exact(lambda a, b: a + b, "a + b")
sub = _exact(lambda a, b: a - b, "a - b")
mult = _exact(lambda a, b: a * b, "a * b")
multi = _exact(lambda a, factor: a * a.dtype.type(factor), "a * factor")
div = _exact(lambda a, b: a / b, "a / b")
scan = _exact(lambda a, b: (a == b).astype(np.uint8), "a == b, as 0 or 1,")
recip = _exact(lambda a: a.dtype.type(1) / a, "1 / a")
sqrt = _exact(np.sqrt, "the square root")
rsqrt = _rounded(lambda a: np.longdouble(1) / np.sqrt(a), "1 / square root")
atan2 = _rounded(np.arctan2, "the angle of (b, a)")
atan = _rounded(np.arctan, "the arc tangent")
sin = _rounded(np.sin, "the sine")
cos = _rounded(np.cos, "the cosine")
exp = _rounded(np.exp, "e to the power of a")
exp2 = _rounded(np.exp2, "2 to the power of a")
exp10 = _rounded(_exp10, "10 to the power of a")
log = _rounded(np.log, "the natural logarithm")
log2 = _rounded(np.log2, "the logarithm of base 2")
log10 = _rounded(np.log10, "the logarithm of base 10")
pow = _rounded(np.power, "a to the power of b")  # noqa: A001
