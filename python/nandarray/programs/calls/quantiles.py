"""Exact order statistics of a box in bounded memory: ``median``, ``percentile`` and ``quantile``; along axes, too.

Elements are integers in the order of their bits (``c/ranks.c``). A pass beside the data counts those with each value of
the highest 16 bits; the ranks that are wanted lie in a few of these, and so on with the next 12 bits of those alone. As
soon as the elements that are left are few, one pass more brings them here, where they are sorted. Two or three passes
are the rule, six the most; a pass gives half a mebibyte at most for one rank, and nothing is kept of the box. Along
axes the elements of one place fit a task as a rule, and are looked at there (:mod:`.columns`); else they are a box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.programs import ports, run
from nandarray.programs.annotations import parse_dtype
from nandarray.programs.calls import columns
from nandarray.programs.calls.axes import longest_first
from nandarray.programs.calls.folds import c_type, spelled
from nandarray.programs.forms import COMPILED
from nandarray.programs.operand import Operand
from nandarray.programs.program import Program

__all__ = ["QUANTILES", "quantiles"]

#: Names of these statistics, and the number that stands for all elements.
QUANTILES: Mapping[str, int] = {"median": 1, "quantile": 1, "percentile": 100}
_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")
_SORTED_HERE = 1 << 18  # elements that one pass brings here, at most, to be sorted
_FIRST_BITS, _BITS, _PREFIXES = 16, 12, 64
_HERE = Path(__file__).parent / "c"


def quantiles(
    grid: Operand,
    name: str,
    axis: int | Sequence[int] | None = None,
    *,
    key: Any,
    options: Mapping[str, Any],
    q: Any = None,
    method: str = "linear",
) -> Any:
    """Give the median of a box, the index expression ``key``, or quantiles: for each number of ``q`` one.

    With an axis or axes there is one for each place that is left, whose dimensions stand behind those of ``q``.
    ``options`` are the run's. The dtype is NumPy's; the place of a quantile between two elements is float64. A NaN or
    NaT makes each one that of its elements.
    """
    box = ports.Boxed(run.Box(grid, key))
    shape, taken = tuple(box.shape), parse_dtype(box.dtype)
    folded = sorted(range(len(shape)) if axis is None else longest_first(axis, shape))
    if taken.kind not in "biuf" and not (taken.kind == "m" and name == "median"):
        raise InvalidError(f"{name} takes no elements of {taken}")
    kept = {one: value for one, value in options.items() if one not in COMPILED}
    kind, parts = _wanted(name, taken, q, method)
    count = math.prod(shape[one] for one in folded)
    left = tuple(size for at, size in enumerate(shape) if at not in folded)
    nothing = np.array("NaT" if taken.kind == "m" else np.nan).astype(kind if taken.kind in "fm" else "f8")
    if not count and name != "median":
        raise InvalidError(f"{name}: there is no element in {shape}" if axis is None else
                           f"{name}: there is no element along {axis} of {shape}")  # fmt: skip
    if not count or not math.prod(left):
        made = np.full((len(parts), *left), nothing, kind)
    else:
        places = [_between(part, count, name, method) for part in parts]
        ranks = sorted({rank for low, high, _ in places for rank in (low, high)})
        found = _elements(grid, key, ranks, folded, options=kept)
        made = np.array([_joined(found[low], found[high], part, name, kind) for low, high, part in places], kind)
    made = made[0] if name == "median" or not np.ndim(q) else made.reshape(*np.shape(q), *left)
    return made[()]


def _elements(
    grid: Operand, key: Any, ranks: Sequence[int], axes: Sequence[int], *, options: Mapping[str, Any]
) -> dict[int, np.ndarray[Any, Any]]:
    """Return the elements of some ranks along axes, for each place that is left; NaN or NaT where there is one."""
    box = ports.Boxed(run.Box(grid, key))
    shape, dtype = tuple(box.shape), parse_dtype(box.dtype)

    def passes(key: Any) -> list[Any]:
        found = _Passes(grid, key, dtype, options).elements(ranks, math.prod(shape[one] for one in axes))
        nothing = np.array("NaT" if dtype.kind == "m" else np.nan).astype(dtype if dtype.kind in "fm" else "f8")
        return [nothing[()] if found is None else found[rank] for rank in ranks]

    if len(axes) == len(shape):
        rows = np.array(passes(key), dtype)
    else:
        rows = columns.elements(grid, key, ranks, axes, options=options, passes=passes)
    return dict(zip(ranks, rows, strict=True))


def _wanted(name: str, taken: np.dtype[Any], q: Any, method: str) -> tuple[np.dtype[Any], list[float]]:
    """Return the dtype of the results, and the quantiles as parts of one."""
    if name == "median":
        if q is not None or method != "linear":
            raise InvalidError(f"median takes no {'q' if q is not None else 'method'}; quantile does")
        return (taken if taken.kind in "fm" else np.dtype("f8")), [0.5]
    if q is None:
        raise InvalidError(f"{name} must be given q, numbers from 0 to {QUANTILES[name]}")
    if method not in _METHODS:
        raise InvalidError(f"method must be one of {', '.join(_METHODS)}, not {method!r}")
    try:
        given = np.asarray(q)
        numbers = given.astype("f8", casting="same_kind").reshape(-1) / QUANTILES[name]
    except (TypeError, ValueError) as error:
        raise InvalidError(f"q is {q!r}: {error}") from None
    for number, said in zip(numbers, given.reshape(-1), strict=True):
        if not 0 <= number <= 1:
            raise InvalidError(f"q must be from 0 to {QUANTILES[name]}, not {said}")
    if method in ("lower", "higher", "nearest"):
        return taken, numbers.tolist()
    if taken.kind == "b":
        raise InvalidError(f"{name} takes no truth values by method {method!r}; by 'nearest', 'lower' and 'higher'")
    own = taken if taken.kind == "f" else np.dtype("f8")
    if type(q) in (int, float):
        return own, numbers.tolist()
    return np.result_type(taken, given.dtype if given.dtype.kind == "f" else np.dtype("f8")), numbers.tolist()


def _between(part: float, count: int, name: str, method: str) -> tuple[int, int, float]:
    """Return the two ranks that a quantile lies between, and its place between them."""
    if name == "median":
        return (count - 1) // 2, count // 2, 0.5
    at = (count - 1) * part
    low = min(math.floor(at), count - 1)
    high = min(low + 1, count - 1)
    if method == "nearest":
        low = high = min(int(np.around(at)), count - 1)
    elif method == "lower":
        high = low
    elif method == "higher":
        low = high = min(math.ceil(at), count - 1)
    elif method == "midpoint":
        return low, high if at > low else low, 0.5
    return low, high, at - low


def _joined(low: Any, high: Any, part: float, name: str, kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Join elements of two ranks, place by place, as NumPy does."""
    low, high = np.asarray(low), np.asarray(high)
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "median":
            # The sum of two equal ones may be infinite.
            middle = np.asarray(np.mean(np.stack([low, high]), axis=0))
            own = (low == high) & (low != np.zeros((), low.dtype))
            return np.asarray(np.where(own, low.astype(middle.dtype), middle))
        if not part:
            return np.asarray(low.astype(kind))
        exact = low.dtype.kind in "iu"  # differences of integers are Python's: they do not wrap
        first, last = (one.astype(object if exact else "f8") for one in (low, high))
        apart = last - first
        made = last - apart * (1 - part) if part >= 0.5 else first + apart * part  # noqa: PLR2004
        # Between infinities there is no difference.
        return np.asarray(np.where(low == high, low.astype(kind), np.asarray(made, "f8").astype(kind)))


@dataclass(frozen=True)
class _Range:
    """Elements with one prefix: how many are before it, how many it has, and which ranks are wanted of it."""

    prefix: int
    before: int
    count: int
    ranks: tuple[int, ...]


class _Passes:
    """Passes over a box of elements of a dtype."""

    def __init__(self, grid: Operand, key: Any, dtype: np.dtype[Any], options: Mapping[str, Any]) -> None:
        self._grid, self._key, self._dtype, self._options = grid, key, dtype, options

    def elements(self, ranks: Sequence[int], count: int) -> dict[int, Any] | None:
        """Return the elements of some ranks, from 0; None if there is a NaN."""
        left = 8 * self._dtype.itemsize
        ranges = [_Range(0, 0, count, tuple(ranks))]
        while left and (left == 8 * self._dtype.itemsize or sum(one.count for one in ranges) > _SORTED_HERE):
            bits = min(left, _BITS if left < 8 * self._dtype.itemsize else _FIRST_BITS)
            left -= bits
            found: list[_Range] = []
            for at in range(0, len(ranges), _PREFIXES):
                part = ranges[at : at + _PREFIXES]
                counts, others = self._counted(part, left, bits)
                if others:
                    return None
                for one, row in zip(part, counts, strict=False):
                    found += self._finer(one, row)
            ranges = found
        if not left:
            return {rank: self._element(one.prefix) for one in ranges for rank in one.ranks}
        few = np.sort(self._among(ranges, left))
        if few.size != sum(one.count for one in ranges):
            raise self._changed()
        given: dict[int, Any] = {}
        at = 0
        for one in ranges:
            given |= {rank: few[at + rank - one.before] for rank in one.ranks}
            at += one.count
        return given

    def _counted(self, ranges: Sequence[_Range], shift: int, bits: int) -> tuple[np.ndarray[Any, Any], int]:
        """Count the digits of elements in each range, and elements that are no numbers."""
        room = 1 if len(ranges) == 1 else _PREFIXES
        made = _program(self._dtype, bits, room)
        found = self._run(made, ranges, shift).reshape(-1)
        return found[:-1].reshape(room, -1), int(found[-1])

    def _among(self, ranges: Sequence[_Range], shift: int) -> np.ndarray[Any, Any]:
        """Bring the elements in some ranges here."""
        return self._run(_program(self._dtype, None, 0), ranges, shift).reshape(-1)

    def _run(self, made: Program, ranges: Sequence[_Range], shift: int) -> np.ndarray[Any, Any]:
        prefixes = np.array([one.prefix for one in ranges], "u8")
        box = run.Box(self._grid, self._key)
        return np.asarray(run.offload(made, [box, prefixes], {"shift": shift}, **self._options).result)

    def _finer(self, one: _Range, counts: np.ndarray[Any, Any]) -> list[_Range]:
        """Return the ranges within one that have wanted ranks, with a digit more."""
        behind = np.cumsum(counts).astype("i8")
        if behind[-1] != one.count:
            raise self._changed()
        digits: dict[int, list[int]] = {}
        for rank in one.ranks:
            digits.setdefault(int(np.searchsorted(behind, rank - one.before, side="right")), []).append(rank)
        base = one.prefix * len(counts)
        return [
            _Range(base + digit, one.before + int(behind[digit] - counts[digit]), int(counts[digit]), tuple(ranks))
            for digit, ranks in digits.items()
        ]

    def _element(self, bits: int) -> Any:
        """Return the element that a key is of."""
        size = 8 * self._dtype.itemsize
        top = 1 << (size - 1)
        if self._dtype.kind == "f":
            bits = bits ^ top if bits & top else ~bits & ((1 << size) - 1)
        elif self._dtype.kind in "im":
            bits ^= top
        return np.array(bits, f"u{self._dtype.itemsize}").view(self._dtype)[()]

    def _changed(self) -> InvalidError:
        return InvalidError("the elements are others in each pass: the array must not be written meanwhile")


@lru_cache(maxsize=64)
def _program(dtype: np.dtype[Any], bits: int | None, prefixes: int) -> Program:
    """Compile what counts digits of some bits; without bits, what keeps elements."""
    defines: dict[str, Any] = {"T": c_type(dtype), "T_BYTES": dtype.itemsize, "KIND_OF_T": f"'{dtype.kind}'"}
    defines |= {"DTYPE": spelled(dtype), "COUNT": int(bits is not None), "BITS": bits or 1}
    if bits is not None:
        defines |= {"PREFIXES": prefixes, "STATE_BYTES": 8 * ((prefixes << bits) + 1)}
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    return Program.from_c(_HERE / "ranks.c", flags=flags, trusted=True)
