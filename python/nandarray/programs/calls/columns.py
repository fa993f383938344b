"""Elements of some ranks along axes, by ``c/columns.c``: for each place that is left, in one pass beside the data.

A record begins with the first of the axes and has to fit a task. One that does not is cut along a dimension that is
left; where the elements of a single place do not fit, the caller finds them in passes over that place's alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.programs import ports, run
from nandarray.programs.calls import axes as along
from nandarray.programs.calls.folds import c_type, spelled
from nandarray.programs.operand import Operand
from nandarray.programs.program import Program

__all__ = ["elements"]

_Array = np.ndarray[Any, Any]


def elements(
    grid: Operand,
    key: Any,
    ranks: Sequence[int],
    axes: Sequence[int],
    *,
    options: Mapping[str, Any],
    passes: Callable[[Any], list[Any]],
) -> _Array:
    """Return the elements of ranks, of shape (ranks, ...) with the dimensions that are left of a box.

    The box is the index expression ``key``, of little-endian elements; ``axes``, in order, are some of its own, none of
    length 0, and ``ranks`` are places in the order of the elements along them. ``passes`` gives the elements of a part
    in which one place is left.
    """
    box = ports.Boxed(run.Box(grid, key))
    shape, first, dtype = tuple(box.shape), axes[0], box.dtype
    left = [at for at in range(len(shape)) if at not in axes]
    record = math.prod(shape[first:]) * dtype.itemsize
    if record <= along.SLAB_BYTES:
        sizes = tuple((at in axes, size) for at, size in enumerate(shape[first:], first))
        made = _program(dtype, sizes, len(ranks))
        found: Any = run.offload(made, [run.Box(grid, key), np.array(ranks, "u8")], **options).result
        rows = np.reshape(found, (math.prod(shape[:first]), len(ranks), -1))
        return np.moveaxis(rows, 1, 0).reshape(len(ranks), *(shape[at] for at in left))
    column = math.prod(shape[at] for at in axes) * dtype.itemsize
    inner = [at for at in left if at > first and shape[at] > 1]
    if any(at >= len(box.kept) for at in (inner or left) if shape[at] > 1):
        raise InvalidError(f"records of {record} bytes do not fit a task, and the elements' own dimensions are not cut")
    if column > along.SLAB_BYTES:
        places = itertools.product(*(range(shape[at]) for at in left))
        parts = [passes(_part(box, dict(zip(left, one, strict=True)))) for one in places]
        return np.array(parts, dtype).T.reshape(len(ranks), *(shape[at] for at in left))
    cut = inner[0]
    step = max(1, along.SLAB_BYTES * shape[cut] // record)
    given = [
        elements(grid, _part(box, {cut: slice(at, at + step)}), ranks, axes, options=options, passes=passes)
        for at in range(0, shape[cut], step)
    ]
    return np.concatenate(given, axis=1 + left.index(cut))


def _part(box: ports.Boxed, places: Mapping[int, int | slice]) -> tuple[int | slice, ...]:
    """Give the index expression of a part of a box; places of its dimensions that are not named are all taken.

    A dimension of which one place is taken stays, if it is named by a slice.
    """
    most = max(places, default=-1)
    return box.part([places.get(at, slice(None)) for at in range(most + 1)])


@lru_cache(maxsize=64)
def _program(dtype: np.dtype[Any], sizes: tuple[tuple[bool, int], ...], ranks: int) -> Program:
    """Compile it for the dimensions of a record, of which some are folded."""
    lists: dict[bool, list[str]] = {True: [], False: []}
    count, apart = {True: 1, False: 1}, 1
    for is_folded, size in reversed(sizes):
        lists[is_folded].append(f"{{{size}, {apart}}}")
        count[is_folded] *= size
        apart *= size
    defines = {
        "T": c_type(dtype),
        "KIND_OF_T": f"'{dtype.kind}'",
        "DTYPE": spelled(dtype),
        "LENGTH": count[True],
        "INNER": count[False],
        "RANKS": ranks,
        "FOLDED": ", ".join(lists[True]),
        "KEPT": ", ".join(lists[False]),
        "RECORD_BYTES": apart * dtype.itemsize,
        "RESULT_BYTES": count[False] * ranks * dtype.itemsize,
        "SCRATCHPAD_BYTES": count[True] * dtype.itemsize,
    }
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    return Program.from_c(Path(__file__).parent / "c" / "columns.c", flags=flags, trusted=True)
