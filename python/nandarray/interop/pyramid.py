"""Pyramids of images: the same image at ever coarser scales, described as OME-Zarr is (OME-NGFF 0.5, "multiscales").

:func:`write_pyramid` writes the levels into a group, in bounded memory, with the group's attributes. Viewers read the
group by :class:`nandarray.interop.zarr_store.ZarrStore`, or after ``nandarray.export(group, "image.zarr")``. Not here:
plates and wells, labels' own metadata, and rendering.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from nandarray.array.attributes import DIMENSIONS
from nandarray.array.group import Group
from nandarray.errors import ExistsError, InvalidError

__all__ = ["write_pyramid"]

#: Types of axes by their names; all others are of space.
_TYPES = {"t": "time", "c": "channel"}
#: The side at which no coarser level is made by default.
_SIDE = 256
#: Bytes of the finer level that are read together.
_PIECE_BYTES = 64 << 20
_LEVELS_MOST = 32


def write_pyramid(
    group: Group,
    image: Any,
    axes: str | Sequence[str],
    *,
    scale: Sequence[float] | None = None,
    units: Sequence[str | None] | None = None,
    levels: int | None = None,
    method: Literal["mean", "nearest"] = "mean",
    compression: str | None = None,
    name: str | None = None,
) -> list[Any]:
    """Write an image and its coarser levels into a group, each half as large along the axes of space.

    Level 0 is the image itself, by name "0". An element of a coarser level is the mean of up to two elements along each
    axis of space, rounded to even where the dtype is one of integers; or, for labels, the first of them.

    Parameters
    ----------
    group : Store or Group
        The group, which must not have arrays of these names, nor ``ome`` among its attributes.
    image : array_like or array
        The image, of an integer, float or bool dtype; an array of any store, or of NumPy.
    axes : str or sequence of str
        Names of the axes: some of "t", "c", then two or three of space, such as "zyx" or "cyx".
    scale : sequence of float, optional
        Distance of two elements of the image along each axis, in ``units``; 1 by default.
    units : sequence of str, optional
        Units of the axes as UDUNITS has them ("micrometer", "second"), None for an axis without one.
    levels : int, optional
        Number of levels, from 1 to 32; by default no axis of space of the last is longer than 256.
    method : {"mean", "nearest"}
        The way in which elements are joined.
    compression : str, optional
        Compression of the levels, as for :meth:`Group.create`.
    name : str, optional
        Name of the image.

    Returns
    -------
    list of Array
        The levels, the image first.

    Raises
    ------
    InvalidError
        Axes that do not fit the image, or are none of OME-Zarr's; a number of levels, a scale or a dtype that is out of
        range; a method that there is not.
    ExistsError
        The group has an array "0", "1", ... already.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> image = np.arange(35, dtype="u2").reshape(5, 7)
    >>> finest, coarser = write_pyramid(store.create_group("brain"), image, "yx", levels=2)
    >>> coarser[...]
    array([[ 4,  6,  8, 10],
           [18, 20, 22, 24],
           [28, 30, 32, 34]], dtype=uint16)
    """
    source = image if hasattr(image, "shape") and hasattr(image, "dtype") else np.asarray(image)
    names = tuple(axes)
    spatial = _check_axes(names, source.shape)
    if source.dtype.kind not in "biuf":
        raise InvalidError(f"the image has dtype {source.dtype}: must be one of integers, floats or bool")
    if method not in ("mean", "nearest"):
        raise InvalidError(f"method is {method!r}: must be 'mean' or 'nearest'")
    base = _scales(scale, len(names))
    count = _count(levels, [source.shape[axis] for axis in spatial])
    if "ome" in group.attrs:
        raise InvalidError(f"group {group.name} must have no attribute 'ome': it is an image, or more of OME-Zarr")
    if taken := [str(level) for level in range(count) if str(level) in group]:
        raise ExistsError(f"group {group.name} must not have {', '.join(taken)}, the names of levels")
    description = _description(names, base, units, spatial=spatial, count=count, method=method)
    found: list[Any] = []
    for level in range(count):
        before = found[-1] if found else source
        shape = tuple(-(-n // 2) if level and axis in spatial else n for axis, n in enumerate(before.shape))
        attrs = {DIMENSIONS: list(names)}
        made = group.create(str(level), shape, source.dtype, compression=compression, attrs=attrs)
        for box in _pieces(shape, source.dtype.itemsize):
            made[box] = _joined(before, box, spatial, method) if level else np.asarray(source[box])
        found.append(made)
    if name is not None:
        description["multiscales"][0]["name"] = name
    group.attrs["ome"] = description
    return found


def _check_axes(names: tuple[str, ...], shape: tuple[int, ...]) -> list[int]:
    """Check names of axes; return the numbers of those of space."""
    if len(names) != len(shape):
        raise InvalidError(f"axes is {''.join(names)!r}: must have a name for each of the {len(shape)} dimensions")
    spatial = [axis for axis, one in enumerate(names) if one not in _TYPES]
    order = ["tc".find(one) if one in _TYPES else 2 for one in names]
    if len(set(names)) != len(names) or not 2 <= len(spatial) <= 3 or order != sorted(order):
        raise InvalidError(
            f"axes is {names}: must be some of t and c, in this order, then two or three others, of space"
        )
    if 0 in shape:
        raise InvalidError(f"the image has shape {tuple(shape)}: must have elements")
    return spatial


def _scales(scale: Sequence[float] | None, ndim: int) -> list[float]:
    base = [1.0] * ndim if scale is None else [float(one) for one in scale]
    if len(base) != ndim or not all(0 < one < float("inf") for one in base):
        raise InvalidError(f"scale is {scale}: must have a number above 0 for each of the {ndim} axes")
    return base


def _count(levels: int | None, sides: list[int]) -> int:
    if levels is None:
        return 1 + max(0, (-(-max(sides) // _SIDE) - 1).bit_length())
    try:
        count = operator.index(levels)
    except TypeError as error:
        raise InvalidError(f"levels is {levels!r}: must be an integer") from error
    if not 1 <= count <= _LEVELS_MOST:
        raise InvalidError(f"levels is {count}: must be from 1 to {_LEVELS_MOST}")
    return count


def _pieces(shape: tuple[int, ...], itemsize: int) -> Iterator[tuple[slice, ...]]:
    """Cut a level into boxes, each with at most ``_PIECE_BYTES`` of the finer level."""
    sides = list(shape)
    while np.prod(sides, dtype=float) * itemsize * 8 > _PIECE_BYTES and max(sides) > 1:
        axis = next(i for i, n in enumerate(sides) if n > 1) if max(sides[:-2] or [1]) > 1 else int(np.argmax(sides))
        sides[axis] = -(-sides[axis] // 2)
    ranges = [range(0, n, side) for n, side in zip(shape, sides, strict=True)]
    for first in itertools.product(*ranges):
        yield tuple(slice(at, min(at + side, n)) for at, side, n in zip(first, sides, shape, strict=True))


def _joined(finer: Any, box: tuple[slice, ...], spatial: list[int], method: str) -> np.ndarray[Any, Any]:
    """Make a box of the coarser level."""
    wanted = tuple(
        slice(2 * one.start, min(2 * one.stop, n)) if axis in spatial else one
        for axis, (one, n) in enumerate(zip(box, finer.shape, strict=True))
    )
    part = np.asarray(finer[wanted])
    if method == "nearest":
        return part[tuple(slice(None, None, 2 if axis in spatial else 1) for axis in range(part.ndim))]
    counts = np.ones((1,) * part.ndim, np.int64)
    for axis in spatial:
        sides = np.minimum(2, part.shape[axis] - np.arange(0, part.shape[axis], 2))
        counts = counts * sides.reshape([-1 if i == axis else 1 for i in range(part.ndim)])
    each = counts
    for axis in spatial:  # for each element, the number of those that it is joined with
        each = np.repeat(each, 2, axis=axis).take(np.arange(part.shape[axis]), axis)
    if part.dtype.kind == "f":
        return _summed(part / each.astype("f8"), spatial).astype(part.dtype)
    # Quotients and remainders apart: the sum of several 64-bit numbers may have no dtype.
    whole = part.astype(np.uint64 if part.dtype.kind in "bu" else np.int64)
    quotients = whole // each.astype(whole.dtype)
    rest = _summed(whole - quotients * each.astype(whole.dtype), spatial).astype("f8") / counts
    mean = _summed(quotients, spatial) + np.floor(rest).astype(whole.dtype)
    part_left = rest - np.floor(rest)
    half = 0.5
    up = (part_left > half) | ((part_left == half) & (mean % 2 == 1))  # to even
    result: np.ndarray[Any, Any] = (mean + up.astype(whole.dtype)).astype(part.dtype)
    return result


def _summed(values: np.ndarray[Any, Any], spatial: list[int]) -> np.ndarray[Any, Any]:
    """Add the elements that are joined."""
    for axis in spatial:
        values = np.add.reduceat(values, np.arange(0, values.shape[axis], 2), axis=axis)
    return values


def _description(
    names: tuple[str, ...],
    base: list[float],
    units: Sequence[str | None] | None,
    *,
    spatial: list[int],
    count: int,
    method: str,
) -> dict[str, Any]:
    """Return the attribute "ome" of OME-NGFF 0.5, sections "axes", "coordinateTransformations" and "multiscales"."""
    given = [None] * len(names) if units is None else list(units)
    if len(given) != len(names):
        raise InvalidError(f"units is {units}: must have one, or None, for each of the {len(names)} axes")
    axes = [
        {"name": one, "type": _TYPES.get(one, "space"), **({} if unit is None else {"unit": unit})}
        for one, unit in zip(names, given, strict=True)
    ]
    datasets = []
    for level in range(count):
        factors = [2**level if axis in spatial else 1 for axis in range(len(names))]
        scale = [one * factor for one, factor in zip(base, factors, strict=True)]
        transforms: list[dict[str, Any]] = [{"type": "scale", "scale": scale}]
        if method == "mean" and level:
            middle = [one * (factor - 1) / 2 for one, factor in zip(base, factors, strict=True)]
            transforms.append({"type": "translation", "translation": middle})
        datasets.append({"path": str(level), "coordinateTransformations": transforms})
    return {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets, "type": method}]}
