"""What goes into programs and comes out of them: boxes of arrays, arrays in memory, numbers, targets.

Here inputs and targets are matched with a program's ports, and numbers become bit patterns. Running is done in
:mod:`nandarray.programs.run`; programs that feed each other are :mod:`nandarray.programs.step`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.index.expression import parse
from nandarray.index.fast import plain
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
    "expanded",
    "is_field",
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
        Which array.
    key : index expression
        Integers and forward slices: ``np.s_[10:20, ::2]``.
    """

    array: Operand
    key: Any = ...


@dataclass(frozen=True)
class Tiled(Box):
    """A box whose elements come tile by tile, each a task.

    Parameters
    ----------
    first, size : tuple of int
        For each dimension of the box where its first tile ends, and how far the ends behind it are apart.
    """

    first: tuple[int, ...] = ()
    size: tuple[int, ...] = ()


class Boxed:
    """A box of an array of a store, checked.

    Of a field the box is one of its records; shape and dtype are those of the field's values, its own dimensions last.
    """

    def __init__(self, given: Any) -> None:
        box = given if isinstance(given, Box) else Box(given)
        whole = box.array
        self.array, self.view, field = whole._origin()
        self.dtype = whole.dtype.base
        key = expanded(box.key, len(whole.shape))
        found = plain(key, whole.shape)
        if found is None:
            parse(box.key, whole.shape)  # raises if this is no index expression at all
            shown = format_slices(box.key if isinstance(box.key, tuple) else (box.key,)).removesuffix(",")
            raise InvalidError(f"[{shown}] of shape {whole.shape}: a program takes integers and forward slices")
        self.start, self.step, self.lengths, self.shape = found
        self.is_field = field is not None
        self.shape = (*self.shape, *whole.dtype.shape)
        if not whole.shape:  # the engine has a scalar as one element along one dimension
            self.start, self.step, self.lengths = [0], [1], [1]
        self.tiles: tuple[list[int], list[int], list[int]] | None = None
        if isinstance(box, Tiled):
            told = [axis for axis, part in enumerate(key) if not isinstance(part, int)]
            first, size = [1] * len(key), [1] * len(key)
            for axis, end, apart in zip(told, box.first, box.size, strict=True):
                first[axis], size[axis] = end, apart
            self.tiles = first, size, told

    def native(self) -> tuple[Any, ...]:
        """Give what the native command takes for it."""
        box = self.array._space, self.start, self.step, self.lengths, self.view
        return box if self.tiles is None else (box, self.tiles)


def expanded(key: Any, ndim: int) -> tuple[Any, ...]:
    """Give an index expression with a part for each dimension: an ellipsis, and what is left out, are whole slices.

    Parameters
    ----------
    key : index expression
        What a :class:`Box` has.
    ndim : int
        Dimensions.

    Returns
    -------
    tuple
        As it was, if it has more parts than there are dimensions, or is none.
    """
    parts = tuple(map(_builtin, key if isinstance(key, tuple) else (key,)))
    dots = [place for place, part in enumerate(parts) if part is ...] or [len(parts)]
    before, after = parts[: dots[0]], parts[dots[0] + 1 :]
    return (*before, *[slice(None)] * (ndim - len(before) - len(after)), *after)


def _builtin(part: Any) -> Any:
    """Give NumPy's integers as Python's."""
    if isinstance(part, slice):
        return slice(*map(_builtin, (part.start, part.stop, part.step)))
    return int(part) if isinstance(part, np.integer) else part


def dtype_of(given: Any) -> np.dtype[Any]:
    """Give the dtype of an input's elements."""
    return np.dtype(given.array.dtype if isinstance(given, Box) else given.dtype)


def is_stored(given: Any) -> bool:
    """Say whether this is an array of a store, a view, a field, or a box of one."""
    return isinstance(given, Box | Operand)


def is_field(given: Any) -> bool:
    """Say whether this is a field of records, or a box of one."""
    operand = given.array if isinstance(given, Box) else given
    return isinstance(operand, Operand) and operand._origin().field is not None


def counted(inputs: Sequence[Any], metadata: Mapping[str, Any]) -> Sequence[Any]:
    """Give the inputs, as many as the program takes."""
    wanted = metadata["inputs"]
    if len(inputs) != len(wanted):
        names = ", ".join(one["name"] for one in wanted)
        raise InvalidError(f"{len(inputs)} inputs for a program that takes {len(wanted)}: {names}")
    return inputs


def matched(dtype: np.dtype[Any], port: Mapping[str, Any], where: str = "") -> None:
    """Refuse an input whose elements are not those that the program takes.

    Parameters
    ----------
    dtype : numpy.dtype
        What the input has.
    port : mapping
        The program's.
    where : str, optional
        Where the input comes from, for the error.

    Raises
    ------
    InvalidError
        They differ, and the program does not take bytes.
    """
    wanted = abi.record(port["dtype"], port["name"])
    # Bytes are bytes: a program over uint8 takes anything.
    if dtype != wanted and wanted != np.dtype("u1"):
        raise InvalidError(f"input {port['name']} has dtype {dtype}{where}; the program takes {wanted}")


def scalar_bits(given: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[int]:
    """Give a program's scalars as bit patterns, in its order."""
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
    """Refuse settings of a run that are no positive integers; None is not set.

    Raises
    ------
    InvalidError
        One is; names it.
    """
    for name, value in numbers.items():
        good = isinstance(value, int | np.integer) and not isinstance(value, bool) and 1 <= value < 1 << 63
        if value is not None and not good:
            raise InvalidError(f"{name} is {value!r}; it is a number, at least 1")


def bits(value: Any, port: Mapping[str, Any]) -> int:
    """Give a scalar as the 64 bits that the argument block has.

    Parameters
    ----------
    value : number
        The scalar.
    port : mapping
        Its name and dtype.

    Returns
    -------
    int
        Signed integers extended by their sign, others by zeros.
    """
    dtype = abi.record(port["dtype"], port["name"])
    try:
        made = np.array(value).astype(dtype, casting="same_kind") if np.array(value).dtype.kind == "f" else None
        made = np.array(value, dtype=dtype) if made is None else made
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidError(f"scalar {port['name']} is {value!r}: {error}") from None
    if made.ndim:
        raise InvalidError(f"scalar {port['name']} is {value!r}; it is one number")
    if dtype.kind in "iub":
        return int(made) & (2**64 - 1)
    return int.from_bytes(made.tobytes(), "little")


def target(given: Any, port: Mapping[str, Any]) -> Boxed:
    """Give the box that an output goes into.

    Parameters
    ----------
    given : Array, View or Box
        Where to.
    port : mapping
        The output's.

    Returns
    -------
    Boxed
        Checked.

    Raises
    ------
    InvalidError
        It is no box without steps, or has another dtype.
    """
    if not is_stored(given):
        raise InvalidError(
            f"output {port['name']} cannot go into {type(given).__name__}: out takes arrays of the store"
        )
    box = Boxed(given)
    if box.is_field:
        raise InvalidError(f"output {port['name']} cannot go into a field: out takes whole elements of an array")
    wanted = abi.record(port["dtype"], port["name"])
    if box.dtype != wanted:
        raise InvalidError(f"output {port['name']} has dtype {wanted}; the array has {box.dtype}")
    if any(step != 1 for step in box.step):
        raise InvalidError(f"output {port['name']}: a box with steps cannot be written")
    return box
