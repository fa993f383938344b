"""Reductions by a program of our own: ``any``, ``all``, ``prod``, ``count``, ``argmin``, ``argmax``; complex ends.

``c/fold.c`` is compiled for an operation, a dtype and the shape of a row, the elements behind the axis; the whole box
is one axis with rows of one element. Here a box becomes rows, and what comes out NumPy's dtype and shape. The other
reductions are ready-made programs (:mod:`.wrappers`) or functions of two values (:mod:`.axes`).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.programs import ports, run
from nandarray.programs.annotations import parse_dtype
from nandarray.programs.calls import axes
from nandarray.programs.forms import COMPILED
from nandarray.programs.operand import Operand
from nandarray.programs.program import Program

__all__ = ["c_type", "fold_box", "spelled"]

_HERE = Path(__file__).parent / "c"
#: Reductions that choose an element, with NumPy's function where it takes several axes.
_CHOSEN: Mapping[str, Any] = {"argmin": None, "argmax": None, "min": np.min, "max": np.max}
#: By their numbers in ``c/fold.c``.
_OPS: Mapping[str, int] = {**axes.FOLDS, "min": 6, "max": 7}
#: C's types by NumPy's kinds and sizes; of complex numbers that of a part.
_TYPES = {"f4": "float", "f8": "double", "c8": "float", "c16": "double", "b1": "uint8_t"}


def fold_box(
    grid: Operand, name: str, axis: int | Sequence[int] | None, *, key: Any, options: Mapping[str, Any]
) -> Any:
    """Fold a box, the index expression ``key``, along an axis or axes; all of it if there is none.

    A box without an element, of which one is wanted, gives None if it is folded whole, and is an InvalidError along
    an axis. ``options`` are the run's.
    """
    box = ports.Boxed(run.Box(grid, key))
    kind = _result(name, box.dtype)
    place, needs = name.startswith("arg"), name in _CHOSEN
    kept = {one: value for one, value in options.items() if one not in COMPILED}
    if axis is None:
        if not math.prod(box.shape):
            return None if needs else _of_nothing(name, kind, ())[()]
        made = _program(name, box.dtype, None, 1)
        return np.asarray(run.offload(made, [run.Box(grid, key)], **kept).result).astype(kind).reshape(())[()]
    shape = tuple(box.shape)
    first, *others = axes.longest_first(axis, shape)
    if place and others:
        raise InvalidError(f"{name} must have one axis, not {axis!r}: the place of an element is along one")
    left = tuple(size for at, size in enumerate(shape) if at not in (first, *others))
    if not math.prod(shape):
        if needs and math.prod(left):
            raise InvalidError(f"there is no element along axis {first} of {shape}")
        return _of_nothing(name, kind, left)
    length, inner = shape[first], math.prod(shape[first + 1 :])
    found = _along(grid, box, name, first, (length, inner), key=key, options=kept)
    found = found.reshape(shape[:first] + shape[first + 1 :])
    if others:
        rest = tuple(one - (one > first) for one in others)
        joined: Any = {"any": np.any, "all": np.all, "prod": np.prod, "count": np.sum, **_CHOSEN}[name]
        found = np.asarray(joined(found, axis=rest))
    return found.astype(kind, copy=False)


def _along(
    grid: Operand,
    box: ports.Boxed,
    name: str,
    axis: int,
    sizes: tuple[int, int],
    *,
    key: Any,
    options: Mapping[str, Any],
) -> np.ndarray[Any, Any]:
    """Fold along one axis, in a run or, where a record does not fit a task, in one for each place before it."""
    length, inner = sizes
    shape, item = tuple(box.shape), box.dtype.itemsize
    wide = inner * (item + 8 if name in _CHOSEN else max(item, 8))
    whole = math.prod(shape[:axis]) == 1 or length * inner * max(item, 8) > axes.SLAB_BYTES
    if whole and wide > axes.ROW_BYTES:
        raise InvalidError(
            f"what is behind axis {axis} has {inner} elements, {wide} bytes; at most {axes.ROW_BYTES} are possible: "
            "fold a part at a time, with key="
        )
    made = _program(name, box.dtype, None if whole else length, inner)
    before = itertools.product(*map(range, shape[:axis] if whole else ()))
    keys = [box.part(places) for places in before] if whole else [key]
    found: list[Any] = [run.offload(made, [run.Box(grid, one)], **options).result for one in keys]
    return np.concatenate([np.reshape(one, -1) for one in found])


def _result(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Choose the dtype of a result: NumPy's, and that of ``"sum"`` for products of floats."""
    taken = parse_dtype(dtype)
    kinds = "biufcMm" if name.startswith("arg") else "biufc"
    if taken.kind not in kinds or taken.names is not None:
        raise InvalidError(f"{name} takes no elements of {dtype}")
    if name in ("any", "all"):
        return np.dtype("?")
    if name in ("min", "max"):
        return taken
    if name != "prod":
        return np.dtype("i8")
    return np.dtype({"u": "u8", "f": "f8", "c": "c16"}.get(taken.kind, "i8"))


def _of_nothing(name: str, kind: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return what no elements are folded into."""
    return np.full(shape, name in ("all", "prod"), kind)


def c_type(dtype: np.dtype[Any]) -> str:
    """Name the type in C of an element, or of a part of a complex number."""
    if dtype.kind in "iuMm":
        return f"{'u' if dtype.kind == 'u' else ''}int{8 * dtype.itemsize}_t"
    return _TYPES[f"{dtype.kind}{dtype.itemsize}"]


def spelled(dtype: np.dtype[Any]) -> str:
    """Write a dtype as a flag's text of C, for metadata."""
    return json.dumps(dtype.name if dtype.kind in "biuf" else dtype.str)


@lru_cache(maxsize=256)
def _program(name: str, dtype: np.dtype[Any], length: int | None, inner: int) -> Program:
    """Compile the operation for rows of ``inner`` elements; ``length`` is the axis where it is within records."""
    value = _result(name, dtype)
    column = 8 + max(8, dtype.itemsize) if name in _CHOSEN else value.itemsize
    defines = {
        "OP": _OPS[name],
        "NAME": json.dumps(name),
        "T": c_type(dtype),
        "KIND_OF_T": f"'{dtype.kind}'",
        "DTYPE": spelled(dtype),
        "RESULT": spelled(value),
        "RESULT_BYTES": inner * value.itemsize,
        "WHOLE": int(length is None),
        "INNER": inner,
        "LENGTH": length or 1,
        "RECORD_BYTES": (length or 1) * inner * dtype.itemsize,
        "STATE_BYTES": inner * column,
    }
    flags = [f"-D{one}={value}" for one, value in defines.items()]
    return Program.from_c(_HERE / "fold.c", flags=flags, trusted=True)
