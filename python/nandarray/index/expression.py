"""NumPy index expressions as selections that native commands can carry out.

:func:`parse` reads an index expression against a shape and gives a :class:`Selection`: for every axis of the array
either a :class:`Run` (start, positive step, length) or an array of indices, and where each of them lands in the result.
The selection is one of three things, cheapest first:

box
    only runs: one native ``read`` or ``write``.
outer
    runs and index arrays that do not share a result dimension (one list, ``numpy.ix_``, ``oindex``): one native
    ``read_outer`` or ``write_outer``.
pointwise
    index arrays that walk together: points, times a box of runs; read in batches of bounded memory, written as one.

A negative step is a run read forwards into a reversed view of the caller's buffer, so it costs nothing. Sizes are
Python integers throughout: an axis may have 2**64 elements.

This module knows NumPy's rules and no store; moving the bytes is :mod:`nandarray.index.transfer`'s.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from nandarray.errors import BadIndexError, InvalidError

__all__ = ["Run", "Selection", "everything", "parse"]

Mode = Literal["numpy", "outer", "pointwise"]
_Array = np.ndarray[Any, Any]

_UINT64_MODULUS = 2**64


class Run(NamedTuple):
    """``length`` elements of one axis from ``start`` on, ``step >= 1`` apart; ``flip`` says the result is reversed."""

    start: int
    step: int
    length: int
    flip: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """What an index expression takes from an array, and where it lands in the result.

    Attributes
    ----------
    shape : tuple of int
        The shape of the result.
    scalar : bool
        Whether NumPy gives a scalar rather than a 0-d array.
    axes : tuple of Run or numpy.ndarray
        One entry for each axis of the array: a run, or uint64 indices; flat for an outer selection, and broadcast
        to ``points`` for a pointwise one.
    layout : tuple of tuple of int
        For each axis, the result dimensions that it fills (none for an integer).
    points : tuple of int or None
        The shape over which the index arrays walk together; None unless pointwise.
    point_dims : tuple of int
        The result dimensions that ``points`` fills.
    mask : numpy.ndarray or None
        A boolean mask over the leading axes, kept instead of its index arrays because it is smaller.
    """

    shape: tuple[int, ...]
    scalar: bool
    axes: tuple[Run | _Array, ...]
    layout: tuple[tuple[int, ...], ...]
    points: tuple[int, ...] | None = None
    point_dims: tuple[int, ...] = ()
    mask: _Array | None = None

    @property
    def size(self) -> int:
        """Number of elements of the result."""
        return math.prod(self.shape)

    @property
    def is_box(self) -> bool:
        """Whether runs alone describe the selection."""
        return self.points is None and all(isinstance(axis, Run) for axis in self.axes)

    @property
    def counts(self) -> tuple[int, ...]:
        """The shape in which native commands see the data: points first if any, then one entry for each axis."""
        own = [axis.length if isinstance(axis, Run) else axis.size for axis in self.axes]
        if self.points is None:
            return tuple(own)
        runs = [axis.length for axis in self.axes if isinstance(axis, Run)]
        return (math.prod(self.points), *runs)

    def permutation(self) -> tuple[int, ...]:
        """Give the order of result dimensions which, reshaped to ``counts``, is the native order."""
        order = [*self.point_dims, *(dim for dims in self.layout for dim in dims)]
        new_axes = [dim for dim in range(len(self.shape)) if dim not in order]
        return (*new_axes, *order)

    def flips(self) -> tuple[Any, ...]:
        """Give the index that turns a native array into the caller's direction, and back."""
        runs = [axis for axis in self.axes if self.points is None or isinstance(axis, Run)]
        turned = tuple(slice(None, None, -1 if isinstance(axis, Run) and axis.flip else None) for axis in runs)
        # The ellipsis keeps a 0-d array an array.
        return (*turned, ...) if self.points is None else (slice(None), *turned, ...)

    def batches(self, limit: int) -> Iterator[list[_Array]]:
        """Yield the index arrays of a pointwise selection, flat, about ``limit`` points at a time.

        Parameters
        ----------
        limit : int
            Number of points of one batch; a mask may exceed it by the elements of one row.

        Yields
        ------
        list of numpy.ndarray
            One uint64 array for each axis that is not a run.
        """
        assert self.points is not None
        if self.mask is not None:
            rows = max(1, limit // max(1, math.prod(self.mask.shape[1:])))
            for row in range(0, self.mask.shape[0], rows):
                found = [index.astype(np.uint64) for index in np.nonzero(self.mask[row : row + rows])]
                found[0] += np.uint64(row)
                if found[0].size:
                    yield found
            return
        arrays = [np.broadcast_to(axis, self.points) for axis in self.axes if not isinstance(axis, Run)]
        for low in range(0, math.prod(self.points), limit):
            yield [array.flat[low : low + limit] for array in arrays]


def everything(shape: Sequence[int]) -> Selection:
    """Select a whole array.

    Parameters
    ----------
    shape : sequence of int
        The array's shape.

    Returns
    -------
    Selection
        What ``...`` selects.
    """
    return parse(..., shape)


def parse(key: object, shape: Sequence[int], *, mode: Mode = "numpy", outer: bool = True) -> Selection:
    """Read an index expression.

    Parameters
    ----------
    key : object
        What stood between the brackets.
    shape : sequence of int
        The shape of the array.
    mode : {"numpy", "outer", "pointwise"}
        How index arrays combine: by NumPy's rules, each along its own axis, or all together in front.
    outer : bool
        Whether the reader can carry out an outer selection; if not, it is given as a pointwise one.

    Returns
    -------
    Selection
        The selection, checked against the shape.
    """
    terms = _terms(key, shape)
    if mode == "outer":
        return _orthogonal(terms, len(shape), outer=outer)
    if not any(term.kind == "array" for term in terms):
        return _basic(terms, len(shape))
    return _advanced(terms, len(shape), front=mode == "pointwise", outer=outer)


# --- Reading the expression into terms -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Term:
    """One part of an expression. A "gap" is an ellipsis: it takes no axis, yet it separates index arrays."""

    kind: Literal["run", "int", "array", "new", "gap"]
    axis: int = -1  # -1 for an array: a 0-d boolean, which takes no axis
    run: Run = Run(0, 1, 0)
    array: _Array | None = None
    mask: _Array | None = None  # on the first term that a boolean array became


def _terms(key: object, shape: Sequence[int]) -> list[_Term]:
    parts = [_part(part) for part in (key if isinstance(key, tuple) else (key,))]
    ellipses = sum(part is Ellipsis for part in parts)
    if ellipses > 1:
        raise BadIndexError("an index can only have a single ellipsis ('...')")
    taken = sum(_axes_taken(part) for part in parts)
    if taken > len(shape):
        raise BadIndexError(f"too many indices for array: array is {len(shape)}-dimensional, but {taken} were indexed")
    implied = not ellipses
    if implied:
        parts.append(Ellipsis)
    terms: list[_Term] = []
    axis = 0
    for part in parts:
        if part is Ellipsis:
            if not implied:
                terms.append(_Term("gap"))
            rest = len(shape) - taken
            terms += [_Term("run", axis + i, Run(0, 1, shape[axis + i])) for i in range(rest)]
            axis += rest
        else:
            terms += _terms_of(part, axis, shape)
            axis += _axes_taken(part)
    return terms


def _part(part: object) -> Any:
    """Bring one part to None, Ellipsis, slice, int, or an array of integers or booleans."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, (bool, np.bool_)):
        return np.asarray(part)
    if not isinstance(part, (np.ndarray, list, tuple)):
        try:
            return operator.index(part)  # type: ignore[arg-type]
        except TypeError:
            pass
    if isinstance(part, (str, bytes)) or not hasattr(part, "__len__") and not hasattr(part, "__array__"):
        raise BadIndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are "
            f"valid indices, not {part!r}"
        )
    try:
        array = _index_array(part)
    except (TypeError, ValueError) as error:
        raise BadIndexError(f"{type(part).__name__} cannot be used as an index: {error}") from error
    if array.dtype.kind not in "iub" and not _exact_integers(array):
        raise BadIndexError(f"arrays used as indices must be of integer or boolean type, not {array.dtype}")
    return int(array) if array.ndim == 0 and array.dtype.kind != "b" else array


def _index_array(part: Any) -> _Array:
    array = np.asarray(part)
    if isinstance(part, np.ndarray):
        return array
    if array.size == 0:
        return array.astype(np.intp)  # [] has no type of its own
    if array.dtype.kind == "f":
        # NumPy has no type for integers on both sides of 2**63, so it made floats of them.
        exact = np.asarray(part, object)
        return exact if _exact_integers(exact) else array
    return array


def _exact_integers(array: _Array) -> bool:
    return array.dtype.kind == "O" and all(isinstance(index, int) for index in array.flat)


def _axes_taken(part: object) -> int:
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, np.ndarray) and part.dtype.kind == "b":
        return part.ndim
    return 1


def _terms_of(part: Any, axis: int, shape: Sequence[int]) -> list[_Term]:
    if part is None:
        return [_Term("new")]
    if isinstance(part, slice):
        return [_Term("run", axis, _run(part, shape[axis]))]
    if isinstance(part, int):
        return [_Term("int", axis, Run(_within(part, axis, shape[axis]), 1, 1))]
    if part.dtype.kind != "b":
        return [_Term("array", axis, array=_wrap(part, axis, shape[axis]))]
    for i, (length, size) in enumerate(zip(part.shape, shape[axis:], strict=False)):
        if length != size:
            raise BadIndexError(
                f"boolean index did not match indexed array along axis {axis + i}; size of axis is {size} "
                f"but size of corresponding boolean axis is {length}"
            )
    if part.ndim == 0:
        return [_Term("array", array=np.zeros(int(part), np.uint64))]
    if part.ndim == 1:
        return [_Term("array", axis, array=np.flatnonzero(part).astype(np.uint64))]
    # The index arrays of a large mask are 8 * ndim times its size, so they are only made when something needs them.
    count = int(np.count_nonzero(part))
    terms = [_Term("array", axis + i, array=np.broadcast_to(np.uint64(0), (count,))) for i in range(part.ndim)]
    terms[0].mask = part
    return terms


def _run(part: slice, size: int) -> Run:
    try:
        start, stop, step = part.indices(size)
    except TypeError as error:
        raise BadIndexError(str(error)) from error
    except ValueError as error:
        raise InvalidError(str(error)) from error
    # len(range(...)) would stop at 2**63.
    count = max(0, (stop - start + step - (1 if step > 0 else -1)) // step)
    if count <= 1:
        return Run(start if count else 0, 1, count)
    if step > 0:
        return Run(start, step, count)
    return Run(start + step * (count - 1), -step, count, flip=True)


def _within(index: int, axis: int, size: int) -> int:
    if not -size <= index < size:
        raise BadIndexError(f"index {index} is out of bounds for axis {axis} with size {size}")
    return index + size if index < 0 else index


def _wrap(indices: _Array, axis: int, size: int) -> _Array:
    """Check indices against an axis and bring negative ones to their place; the result is uint64."""
    if indices.size:
        _within(int(indices.min()), axis, size)
        _within(int(indices.max()), axis, size)
    if indices.dtype.kind == "O":
        return np.array([index % size for index in indices.flat], np.uint64).reshape(indices.shape)
    wrapped = indices.astype(np.uint64)
    if indices.size and int(indices.min()) < 0:
        # Unsigned addition wraps around, which is right for every size up to 2**64.
        wrapped[indices < 0] += np.uint64(size % _UINT64_MODULUS)
    return wrapped


# --- Placing the terms in the result ---------------------------------------------------------------------------------


def _basic(terms: list[_Term], ndim: int) -> Selection:
    shape: list[int] = []
    axes: list[Run | _Array] = [Run(0, 1, 0)] * ndim
    layout: list[tuple[int, ...]] = [()] * ndim
    for term in terms:
        if term.kind == "new":
            shape.append(1)
        elif term.kind != "gap":
            axes[term.axis] = term.run
            if term.kind == "run":
                layout[term.axis] = (len(shape),)
                shape.append(term.run.length)
    scalar = all(term.kind == "int" for term in terms)
    return Selection(tuple(shape), scalar, tuple(axes), tuple(layout))


def _orthogonal(terms: list[_Term], ndim: int, *, outer: bool) -> Selection:
    """Each index array along its own axis, in its own place."""
    arrays = [term for term in terms if term.kind == "array"]
    for term in arrays:
        if term.axis < 0 or term.mask is not None or term.array is None or term.array.ndim != 1:
            raise BadIndexError("oindex takes integers, slices and 1-D integer or boolean arrays")
    if not arrays:
        return _basic(terms, ndim)
    for i, term in enumerate(arrays):
        assert term.array is not None
        term.array = term.array.reshape([-1 if i == j else 1 for j in range(len(arrays))])
    shape: list[int] = []
    point_dims: list[int] = []
    run_dims: dict[int, int] = {}
    for term in terms:
        if term.kind == "array":
            assert term.array is not None
            point_dims.append(len(shape))
            shape.append(term.array.size)
        elif term.kind == "run":
            run_dims[term.axis] = len(shape)
            shape.append(term.run.length)
        elif term.kind == "new":
            shape.append(1)
    points = tuple(shape[dim] for dim in point_dims)
    return _place(
        terms, ndim, tuple(shape), points=points, point_dims=tuple(point_dims), run_dims=run_dims, outer=outer
    )


def _advanced(terms: list[_Term], ndim: int, *, front: bool, outer: bool) -> Selection:
    """Index arrays together, by NumPy's rules; integers beside them are index arrays too."""
    fancy = [i for i, term in enumerate(terms) if term.kind in ("array", "int")]
    arrays = [term.array for term in terms if term.array is not None]
    try:
        points = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError as error:
        shapes = " ".join(str(array.shape) for array in arrays)
        raise BadIndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        ) from error
    together = fancy[-1] - fancy[0] == len(fancy) - 1
    position = fancy[0] if together and not front else 0
    shape: list[int] = []
    point_dims: tuple[int, ...] = ()
    run_dims: dict[int, int] = {}
    for i, term in enumerate(terms):
        if i == position:
            point_dims = tuple(range(len(shape), len(shape) + len(points)))
            shape += points
        if term.kind == "run":
            run_dims[term.axis] = len(shape)
            shape.append(term.run.length)
        elif term.kind == "new":
            shape.append(1)
    return _place(terms, ndim, tuple(shape), points=points, point_dims=point_dims, run_dims=run_dims, outer=outer)


def _place(
    terms: list[_Term],
    ndim: int,
    shape: tuple[int, ...],
    *,
    points: tuple[int, ...],
    point_dims: tuple[int, ...],
    run_dims: dict[int, int],
    outer: bool,
) -> Selection:
    """Choose outer where no two index arrays share a dimension of ``points``, else pointwise."""
    arrays = [term for term in terms if term.kind == "array" and term.axis >= 0]
    # For each array the dimensions of points that it alone spans: those where it is not stretched.
    spans = [_span(term.array, len(points)) for term in arrays]
    shared = sum(map(len, spans)) != len({dim for span in spans for dim in span})
    mask = next((term.mask for term in terms if term.mask is not None), None)
    layout: list[tuple[int, ...]] = [(run_dims[axis],) if axis in run_dims else () for axis in range(ndim)]
    axes: list[Run | _Array] = [Run(0, 1, 0)] * ndim
    for term in terms:
        if term.kind in ("run", "int"):
            axes[term.axis] = term.run
    if not arrays or (outer and not shared and mask is None):
        for term, span in zip(arrays, spans, strict=True):
            assert term.array is not None
            axes[term.axis] = np.ascontiguousarray(term.array).reshape(-1)
            layout[term.axis] = tuple(point_dims[dim] for dim in span)
        return Selection(shape, scalar=False, axes=tuple(axes), layout=tuple(layout))
    if mask is not None and sum(term.kind == "array" for term in terms) > mask.ndim:
        _unmask(terms)
        mask = None
    for term in arrays:
        assert term.array is not None
        axes[term.axis] = term.array
    return Selection(
        shape,
        scalar=False,
        axes=tuple(axes),
        layout=tuple(layout),
        points=points,
        point_dims=point_dims,
        mask=mask,
    )


def _span(array: _Array | None, ndim: int) -> tuple[int, ...]:
    assert array is not None
    return tuple(ndim - array.ndim + dim for dim, length in enumerate(array.shape) if length != 1)


def _unmask(terms: list[_Term]) -> None:
    """Replace masks by their index arrays, which other index arrays will walk with."""
    for i, term in enumerate(terms):
        if term.mask is not None:
            for offset, index in enumerate(np.nonzero(term.mask)):
                terms[i + offset].array = index.astype(np.uint64)
