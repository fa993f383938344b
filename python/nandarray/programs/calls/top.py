"""The greatest or least elements of a box with their places: ``reduce("top", k=...)``, by ``c/top.c``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.programs import ports, run
from nandarray.programs.annotations import parse_dtype
from nandarray.programs.calls.folds import c_type, spelled
from nandarray.programs.forms import COMPILED
from nandarray.programs.operand import Operand
from nandarray.programs.program import Program

__all__ = ["top_of"]

_MOST = 1 << 16  # a state has 16 bytes for each, and every core keeps one


def top_of(
    grid: Operand, *, key: Any, options: Mapping[str, Any], k: Any = None, largest: Any = True
) -> dict[str, np.ndarray[Any, Any]]:
    """Give the best elements of a box, the index expression ``key``, the best first, and their places in it.

    There are ``k``, from 1 to 65536, or as many as the box has. Of equal ones the first is better; a NaN is the best.
    ``options`` are the run's.
    """
    kind = parse_dtype(ports.Boxed(run.Box(grid, key)).dtype)
    if kind.kind not in "biufMm":
        raise InvalidError(f"top takes no elements of {kind}")
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 1 <= k <= _MOST:
        raise InvalidError(f"k must be from 1 to {_MOST}, not {k!r}")
    if not isinstance(largest, bool | np.bool):
        raise InvalidError(f"largest must be True or False, not {largest!r}")
    kept = {one: value for one, value in options.items() if one not in COMPILED}
    found = run.offload(_program(kind, int(k), int(largest)), [run.Box(grid, key)], **kept).outputs
    return {name: np.reshape(one, -1) for name, one in found.items()}


@lru_cache(maxsize=64)
def _program(dtype: np.dtype[Any], k: int, largest: int) -> Program:
    defines = {
        "T": c_type(dtype),
        "KIND_OF_T": f"'{dtype.kind}'",
        "DTYPE": spelled(dtype),
        "K": k,
        "LARGEST": largest,
        "STATE_BYTES": 8 + 16 * k,
        "VALUES_BYTES": dtype.itemsize * k,
        "PLACES_BYTES": 8 * k,
    }
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    return Program.from_c(Path(__file__).parent / "c" / "top.c", flags=flags, trusted=True)
