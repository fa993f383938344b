"""Twins of the statistics: ``sum``, ``mean``, ``minmax``, ``variance``, ``histogram``.

Floats are added in the order of ``c/common.h``: chunks of 4096 elements from each task's first one, eight lanes in a
chunk, the chunks' sums exactly: here by Python's fractions, in C by a fixed-point number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

__all__ = ["histogram", "mean", "minmax", "stat", "sum_", "variance"]

Array = np.ndarray[Any, Any]
CHUNK = 4096
LANES = 8


def _chunks(x: Array, starts: Sequence[int]) -> Iterator[Array]:
    """Cut into the chunks that a program sees, as float64."""
    edges = [*starts, len(x)]
    for first, last in zip(edges[:-1], edges[1:], strict=True):
        for at in range(first, last, CHUNK):
            yield x[at : min(at + CHUNK, last)].astype(np.float64)


def _lanes(values: Array) -> float:
    """Add element i to lane i mod 8, and the lanes as a tree."""
    lane = np.zeros(LANES)
    whole = len(values) // LANES * LANES
    for row in values[:whole].reshape(-1, LANES):
        lane += row
    rest = values[whole:]
    lane[: len(rest)] += rest
    return float(((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7])))


def _exact(values: Iterable[float]) -> float:
    """Round the exact sum once; infinities and NaN as in IEEE 754."""
    listed = list(values)
    special = {value for value in listed if math.isinf(value)}
    if any(math.isnan(value) for value in listed) or len(special) > 1:
        return math.nan
    if special:
        return special.pop()
    total = sum(map(Fraction, listed), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.copysign(math.inf, total)


@np.errstate(all="ignore")
def sum_(x: Array, *, starts: Sequence[int] = (0,)) -> tuple[Array]:
    """Add all elements: int64 or uint64, wrapping, of integers; float64 of floats. Tasks begin at ``starts``."""
    if x.dtype.kind in "iu":
        wide = np.dtype(x.dtype.kind + "8")
        return (np.add.reduce(x, dtype=wide, keepdims=True),)
    return (np.array([_exact(_lanes(chunk) for chunk in _chunks(x, starts))]),)


def stat(x: Array) -> tuple[Array]:
    """Add 32-bit integers in 32 bits, wrapping."""
    return (np.add.reduce(x.view(np.int32), dtype=np.int32, keepdims=True),)


@np.errstate(all="ignore")
def mean(x: Array, *, starts: Sequence[int] = (0,)) -> tuple[Array]:
    """Divide the sum, in float64 whatever the elements are, by how many there are; NaN of nothing."""
    total = _exact(_lanes(chunk) for chunk in _chunks(x, starts))
    return (np.array([total]) / np.float64(len(x)) if len(x) else np.array([math.nan]),)


def minmax(x: Array) -> tuple[Array, Array]:
    """Find the least and the greatest element.

    -0 is less than +0, a NaN makes both NaN; of nothing they are the type's maximum and minimum (floats: infinities).
    """
    if len(x) == 0:
        ends = (np.inf, -np.inf) if x.dtype.kind == "f" else (np.iinfo(x.dtype).max, np.iinfo(x.dtype).min)
        return np.array([ends[0]], x.dtype), np.array([ends[1]], x.dtype)
    least, greatest = x.min(keepdims=True), x.max(keepdims=True)
    if x.dtype.kind == "f":
        if np.isnan(least[0]):
            return np.full(1, np.nan, x.dtype), np.full(1, np.nan, x.dtype)
        zeros = x[x == 0]
        if least[0] == 0:
            least = np.array([-0.0 if np.signbit(zeros).any() else 0.0], x.dtype)
        if greatest[0] == 0:
            greatest = np.array([-0.0 if np.signbit(zeros).all() else 0.0], x.dtype)
    return least, greatest


def _product(a: float, b: float) -> tuple[float, float]:
    """A * b as the sum of two doubles (Dekker, Veltkamp), step by step as the C does it."""
    ta, tb = 134217729.0 * a, 134217729.0 * b
    ah, bh = ta - (ta - a), tb - (tb - b)
    al, bl = a - ah, b - bh
    high = a * b
    return high, ((ah * bh - high) + ah * bl + al * bh) + al * bl


def _quotient(high: float, low: float, n: float) -> tuple[float, float]:
    first = high / n
    back_high, back_low = _product(first, n)
    return first, ((high - back_high) - back_low + low) / n


@np.errstate(all="ignore")
def variance(x: Array, ddof: int = 0, *, starts: Sequence[int] = (0,)) -> tuple[Array]:
    """Return the mean square of the differences from the mean; see ``c/variance.c`` for how chunks are put together.

    ``ddof`` is taken from n in the divisor; NaN if there are no more elements.
    """
    if len(x) <= ddof:
        return (np.array([math.nan]),)
    sums: list[float] = []
    squares: list[float] = []
    for chunk in _chunks(x, starts):
        size = float(len(chunk))
        k = _lanes(chunk) / size
        a, b = _lanes(chunk - k), _lanes((chunk - k) * (chunk - k))
        high, low = _product(k, k)
        sums += [*_product(size, k), a]
        squares += [b, *_product(2.0 * k, a), *_product(high, size), low * size]
    whole = _exact(sums)
    rest = _exact([*sums, -whole])
    high, low = _product(whole, whole)
    low += 2.0 * whole * rest
    first, second = _quotient(high, low, float(len(x)))
    found = _exact([*squares, -first, -second])
    return (np.array([(0.0 if found < 0 else found) / float(len(x) - ddof)]),)


def histogram(x: Array, low: float, high: float, *, bins: int = 256) -> tuple[Array]:
    """Count elements in equal bins between low and high; what is outside, and NaN, is not counted.

    Elements are compared as float64; high itself is in the last bin. A ValueError says that low is not less than high,
    or that what is between them, or the number of bins for each 1 of it, is not finite.
    """
    with np.errstate(over="ignore"):
        wide = np.float64(high) - np.float64(low) if low < high else np.float64(0)
        finite = bool(0 < wide < np.inf and np.float64(bins) / wide < np.inf)
    if not finite:
        raise ValueError(f"low is {low} and high is {high}; low is less, and high - low and its scale are finite")
    values = x.astype(np.float64)
    inside = values[(values >= low) & (values <= high)]
    at = np.minimum(((inside - low) * (bins / (high - low))).astype(np.int64), bins - 1)
    return (np.bincount(at, minlength=bins).astype(np.uint64),)
