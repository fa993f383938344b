"""Inputs and outputs of programs: boxes of arrays, arrays in memory, numbers, targets.

Here inputs and targets are matched with a program's ports, and numbers become bit patterns. Running is done in
:mod:`nandarray.programs.run`; programs that feed each other are :mod:`nandarray.programs.step`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from nandarray._nandarray import select
from nandarray.errors import InvalidError
from nandarray.index.text import format_slices
from nandarray.programs import abi
from nandarray.programs.operand import Operand

__all__ = [
    "Box",
    "Boxed",
    "Tiled",
    "at_least_one",
    "bits",
    "counted",
    "dtype_of",
    "in_memory",
    "is_derived",
    "is_stored",
    "matched",
    "scalar_bits",
    "target",
]


@dataclass(frozen=True)
class Box:
    """Part of an array, as an input of a program.

    Parameters
    ----------
    array : Array, View or Field
        Array of the box.
    key : index expression
        Integers and forward slices: ``np.s_[10:20, ::2]``.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["a"] = np.arange(6).reshape(2, 3)
    >>> from nandarray import programs
    >>> total = programs.get("sum", dtype="int64")
    >>> int(nandarray.offload(total, [nandarray.Box(store["a"], np.s_[:, 1])]).result)
    5
    """

    array: Operand
    key: Any = ...


@dataclass(frozen=True)
class Halo:
    """The neighbourhood of tiles: for each dimension the number of elements on each side, and what is beyond the box.

    That is a word, ``"none"``, ``"reflect"``, ``"periodic"``, ``"nearest"``, or ``"constant"`` with an element's bytes.
    """

    depth: tuple[int, ...]
    boundary: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Tiled(Box):
    """A box whose elements come tile by tile, each a task.

    For each dimension of the box, its first tile ends at ``first``, and the ends behind it are ``size`` apart. Tiles of
    an input may have a halo.
    """

    first: tuple[int, ...] = ()
    size: tuple[int, ...] = ()
    halo: Halo | None = None


class Boxed:
    """A box of an array of a store, checked.

    Of a field the box is one of its records; shape and dtype are those of the field's values, its own dimensions last.
    ``is_derived`` says whether a step makes the elements: of a field, or under another dtype.
    """

    def __init__(self, given: Any) -> None:
        box = given if isinstance(given, Box) else Box(given)
        whole = box.array
        self.array, self.view, field, of, _ = whole._origin()
        self.dtype = whole.dtype.base
        found = select(box.key, whole.shape)
        self.kept: tuple[int, ...] = tuple(axis for axis in found.kept if axis is not None)
        if not found.is_box or any(found.reverse) or len(self.kept) < len(found.kept):
            shown = format_slices(box.key if isinstance(box.key, tuple) else (box.key,)).removesuffix(",")
            raise InvalidError(f"[{shown}] of shape {whole.shape}: a program takes integers and forward slices")
        self.start, self.step, self.lengths = list(found.start), list(found.step), list(found.lengths)
        self.shape = (*found.shape, *whole.dtype.shape)
        self.is_derived = field is not None or of is not None
        if not whole.shape:  # the engine has a scalar as one element along one dimension
            self.start, self.step, self.lengths = [0], [1], [1]
        self.tiles: tuple[list[int], list[int], list[int], Any] | None = None
        if isinstance(box, Tiled):
            first, size = [1] * len(self.lengths), [1] * len(self.lengths)
            for axis, end, apart in zip(self.kept, box.first, box.size, strict=True):
                first[axis], size[axis] = end, apart
            halo = None
            if box.halo is not None:
                depth, beyond = [0] * len(self.lengths), [("none", b"")] * len(self.lengths)
                for axis, deep, what in zip(self.kept, box.halo.depth, box.halo.boundary, strict=True):
                    depth[axis], beyond[axis] = deep, what
                halo = depth, beyond
            self.tiles = first, size, list(self.kept), halo

    def part(self, places: Sequence[int | slice]) -> tuple[int | slice, ...]:
        """Give the index expression of a part of the box, an integer or a slice for each axis of the array.

        On the first dimensions of the box ``places`` has a place or a range each, in the box's own coordinates, without
        steps.
        """
        made: list[int | slice] = []
        rest = iter(places)
        for axis, (start, step, length) in enumerate(zip(self.start, self.step, self.lengths, strict=True)):
            run = range(start, start + step * length, step)
            found = run[next(rest, slice(None)) if axis in self.kept else 0]
            made.append(found if isinstance(found, int) else slice(found.start, found.stop, found.step))
        return tuple(made)

    def native(self) -> tuple[Any, ...]:
        """Return the box as the native command takes it."""
        box = self.array._space, self.start, self.step, self.lengths, self.view
        return box if self.tiles is None else (box, self.tiles)


def dtype_of(given: Any) -> np.dtype[Any]:
    """Return the dtype of an input's elements."""
    return np.dtype(given.array.dtype if isinstance(given, Box) else given.dtype)


def in_memory(given: Any) -> np.ndarray[Any, Any]:
    """Return an input that lies in no store as an array; an InvalidError says that it makes none."""
    try:
        return np.asarray(given)
    except (TypeError, ValueError) as error:
        raise InvalidError(f"an input of {type(given).__name__} is no array: {error}") from error


def is_stored(given: Any) -> bool:
    """Return whether this is an array of a store, a view, a field, or a box of one."""
    return isinstance(given, Box | Operand)


def is_derived(given: Any) -> bool:
    """Return whether this is a field of records, or elements under another dtype, or a box of one."""
    operand = given.array if isinstance(given, Box) else given
    if not isinstance(operand, Operand):
        return False
    origin = operand._origin()
    return origin.field is not None or origin.of is not None


def counted(inputs: Sequence[Any], metadata: Mapping[str, Any]) -> Sequence[Any]:
    """Return the inputs, as many as the program takes."""
    wanted = metadata["inputs"]
    if len(inputs) != len(wanted):
        names = ", ".join(one["name"] for one in wanted)
        raise InvalidError(f"{len(inputs)} inputs for a program that takes {len(wanted)}: {names}")
    return inputs


def matched(dtype: np.dtype[Any], port: Mapping[str, Any], where: str = "") -> None:
    """Refuse an input, from ``where``, whose elements are not those that the program takes, by an InvalidError.

    A program may take bytes: then everything fits.
    """
    wanted = abi.record(port["dtype"], port["name"])
    # Bytes are bytes: a program over uint8 takes anything.
    if dtype != wanted and wanted != np.dtype("u1"):
        says = f"input {port['name']} has dtype {dtype}{where}; the program takes {wanted}"
        if dtype.kind in "biufc" and wanted.kind in "biufc":
            says += f": convert it by astype({wanted.name!r}), or take a program made for {dtype}"
        raise InvalidError(says)


def scalar_bits(given: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[int]:
    """Return a program's scalars as bit patterns, in its order."""
    unknown = sorted(set(given) - {one["name"] for one in metadata["scalars"]})
    if unknown:
        names = ", ".join(one["name"] for one in metadata["scalars"]) or "none"
        raise InvalidError(f"the program has no scalar {unknown[0]!r}; it has {names}")
    found = []
    for port in metadata["scalars"]:
        if port["name"] not in given and "default" not in port:
            raise InvalidError(f"scalar {port['name']} is missing, and has no default")
        found.append(bits(given.get(port["name"], port.get("default")), port))
    return found


def at_least_one(**numbers: Any) -> None:
    """Refuse settings of a run that are no positive integers, by an InvalidError that names one; None is not set."""
    for name, value in numbers.items():
        good = isinstance(value, int | np.integer) and not isinstance(value, bool) and 1 <= value < 1 << 63
        if value is not None and not good:
            raise InvalidError(f"{name} must be a number, at least 1, not {value!r}")


def bits(value: Any, port: Mapping[str, Any]) -> int:
    """Return a scalar as the 64 bits of the argument block: signed integers extended by their sign, others by zeros."""
    dtype = abi.record(port["dtype"], port["name"])
    if dtype.kind == "f" and isinstance(value, Fraction | Decimal):
        value = float(value)
    try:
        given = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InvalidError(f"scalar {port['name']} is {value!r}: {error}") from None
    if given.ndim:
        raise InvalidError(f"scalar {port['name']} must be one number, not {value!r}")
    if given.dtype.kind not in "biuf" and not isinstance(value, int):
        raise InvalidError(f"scalar {port['name']} must be one real number, not {value!r}")
    try:
        if given.dtype.kind == "f":
            with np.errstate(over="ignore"):
                made = given.astype(dtype, casting="same_kind")
        else:
            # A number of Python is checked against the range, one of NumPy's would lose bits.
            made = np.array(value if isinstance(value, int) else given.item(), dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidError(f"scalar {port['name']} is {value!r}: {error}") from None
    if dtype.kind in "iub":
        return int(made) & (2**64 - 1)
    return int.from_bytes(made.tobytes(), "little")


def target(given: Any, port: Mapping[str, Any]) -> Boxed:
    """Return the box that an output goes into, checked: without steps and of the output's dtype, or an InvalidError."""
    if not is_stored(given):
        raise InvalidError(
            f"output {port['name']} cannot go into {type(given).__name__}: out takes arrays of the store"
        )
    box = Boxed(given)
    if box.is_derived:
        raise InvalidError(
            f"output {port['name']} cannot go into a field or a conversion: out takes elements as an array has them"
        )
    wanted = abi.record(port["dtype"], port["name"])
    if box.dtype != wanted:
        raise InvalidError(f"output {port['name']} must go into an array of {wanted}, not of {box.dtype}")
    if any(step != 1 for step in box.step):
        raise InvalidError(f"output {port['name']}: a box with steps cannot be written")
    return box
