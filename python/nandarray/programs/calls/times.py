"""Reductions of dates and durations: as NumPy has them, NaT if there is one.

Programs compute with the integers behind; NaT is the least of them. So a minimum is right as it is, and all else looks
at the minimum first. Along an axis the functions here know it themselves. A sum that becomes NaT on its way stays so,
as in NumPy; only where elements are so long that it may, they are added one after the other (``c/durations.c``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.programs import get, run
from nandarray.programs.operand import Converted, Operand
from nandarray.programs.ports import Boxed
from nandarray.programs.program import Program

__all__ = ["along", "integers", "reduced", "running_total"]

_NAT = -(2**63)
_LONG = np.dtype("i8")


def integers(grid: Operand) -> Operand:
    """Return dates or durations as the integers behind them."""
    kind = grid.dtype.base
    return Converted(grid, _LONG.newbyteorder(kind.byteorder), bits=True)


def reduced(grid: Operand, name: str, key: Any, options: Any) -> Any:
    """Return the ``"sum"``, ``"mean"``, ``"min"`` or ``"max"`` of a box of dates or durations that is not empty."""
    kind = _checked(grid, name)
    box = run.Box(_native(grid), key)
    ends = get("minmax", dtype="int64").on(box)
    steps: dict[str, Any] = {"least": ends["least"], "greatest": ends["greatest"]}
    if name in ("sum", "mean"):
        steps |= {"sum": get("sum", dtype="int64").on(box)}
    found = {part: int(np.ravel(value)[0]) for part, value in run.offload(steps, **options).outputs.items()}
    if found["least"] == _NAT:
        return np.array(_NAT, _LONG).view(kind.newbyteorder("="))[()]
    number = found[{"min": "least", "max": "greatest"}.get(name, "sum")]
    count = math.prod(Boxed(box).shape)
    if name in ("sum", "mean") and count * max(-found["least"], found["greatest"]) >= -_NAT:
        number = int(np.ravel(np.asarray(run.offload(running_total(1), [box], **options).result))[0])
    value = np.array(number, _LONG).view(kind.newbyteorder("="))[()]
    return value / count if name == "mean" else value


def _native(grid: Operand) -> Operand:
    """Return the integers behind dates or durations in this machine's byte order."""
    return integers(grid) if grid.dtype.base.isnative else Converted(integers(grid), _LONG)


@lru_cache(maxsize=16)
def running_total(inner: int) -> Program:
    """Compile what adds rows of durations, given as integers, one after the other."""
    flags = ["-DT=int64_t", "-DKIND_OF_T='m'", f"-DINNER={inner}", f"-DRESULT_BYTES={8 * inner}"]
    return Program.from_c(Path(__file__).parent / "c" / "durations.c", flags=flags, trusted=True)


def _checked(grid: Operand, name: str) -> np.dtype[Any]:
    """Return the dtype of dates or durations that have this reduction; of dates NumPy has no sums either."""
    kind = grid.dtype.base
    there = ("min", "max") if kind.kind == "M" else ("sum", "mean", "min", "max")
    if name not in there:
        raise InvalidError(f"{name} of {kind}: the reduction must be one of {', '.join(there)}")
    return kind


def along(grid: Operand, name: Any) -> tuple[Operand, Callable[[Any, Any], Any], np.dtype[Any]]:
    """Return what is folded along an axis for ``name``: integers, the function of two of them, and the result's dtype.

    A mean is a sum here.
    """
    kind = _checked(grid, name)
    return _native(grid), {"min": _earliest, "max": _latest}.get(name, _total), kind.newbyteorder("=")


def _earliest(x: Any, y: Any) -> Any:
    return min(x, y)


def _latest(x: Any, y: Any) -> Any:
    return x if x == _NAT or (y != _NAT and x >= y) else y


def _total(x: Any, y: Any) -> Any:
    return x if x == _NAT else y if y == _NAT else x + y
