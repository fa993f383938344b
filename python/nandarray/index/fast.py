"""The commonest index expressions, read several times faster than :mod:`nandarray.index.expression` reads them.

A small read takes microseconds, and parsing a general index expression would take most of them. Two kinds of
expression are read here: integers and forward slices alone (:func:`plain`), and a flat index array along every axis
(:func:`plain_points`). All others, and invalid ones, give None: :func:`nandarray.index.expression.parse` then reads the
expression or raises the error. Both must agree; a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Box", "plain", "plain_points"]

_Array = np.ndarray[Any, Any]


class Box(NamedTuple):
    """A selection by integers and forward slices alone, the commonest one: what a native ``read`` takes."""

    start: list[int]
    step: list[int]
    lengths: list[int]  # along every axis of the array; 1 where an integer stood
    shape: tuple[int, ...]


def plain(key: object, shape: Sequence[int]) -> Box | None:
    """Read integers and forward slices.

    Parameters
    ----------
    key : object
        What stood between the brackets.
    shape : sequence of int
        The shape of the array.

    Returns
    -------
    Box or None
        The box; None where anything but integers and forward slices is in the expression, or anything is wrong with it.
    """
    parts = key if type(key) is tuple else (key,)
    if len(parts) > len(shape):
        return None
    start: list[int] = []
    step: list[int] = []
    lengths: list[int] = []
    kept: list[int] = []
    for part, size in zip(parts, shape, strict=False):
        if type(part) is slice:
            try:
                first, stop, stride = part.indices(size)
            except (TypeError, ValueError):
                return None
            if stride < 1:
                return None
            length = max(0, (stop - first + stride - 1) // stride)
            # A slice of one element, or none, needs no step, which may lead out of the axis.
            start.append(first if length else 0)
            step.append(stride if length > 1 else 1)
            lengths.append(length)
            kept.append(length)
        elif type(part) is int:
            at = part + size if part < 0 else part
            if not 0 <= at < size:
                return None
            start.append(at)
            step.append(1)
            lengths.append(1)
        else:
            return None
    if len(parts) < len(shape):
        rest = shape[len(parts) :]
        start += [0] * len(rest)
        step += [1] * len(rest)
        lengths += rest
        kept += rest
    return Box(start, step, lengths, tuple(kept))


def plain_points(key: object, shape: Sequence[int], most: int) -> _Array | None:
    """Read a flat index array along every axis.

    Parameters
    ----------
    key : object
        What stood between the brackets.
    shape : sequence of int
        The shape of the array.
    most : int
        The most points.

    Returns
    -------
    numpy.ndarray or None
        Coordinates [points, axes], uint64, not yet compared with the shape: a negative index is a number beyond every
        axis. None where anything but flat integer arrays of one length is in the expression.
    """
    if type(key) is not tuple or len(key) != len(shape) or len(key) < 2:
        return None
    if type(key[0]) is not np.ndarray or key[0].ndim != 1 or not 0 < len(key[0]) <= most:
        return None
    coords = np.empty((len(key[0]), len(key)), np.uint64)
    for axis, part in enumerate(key):
        if type(part) is not np.ndarray or part.dtype.kind not in "iu" or part.shape != key[0].shape:
            return None
        if shape[axis] > 2**63:
            return None
        coords[:, axis] = part
    return coords
