"""Several arrays read as one: :func:`concat` and :func:`stack`, of arrays of any stores behind any doors.

A :class:`Joined` is a handle: it holds no data, and each index expression is cut at the borders of its parts and read
from those that it touches, straight into the result where a part has the result's dtype. Shapes and dtypes combine as
NumPy's ``concatenate`` and ``stack`` combine them. It is read-only, runs no programs (they run beside one array), and
belongs to the shapes that its parts had: once a part has another, reading is refused.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, Never, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from nandarray.array import notebook
from nandarray.array.array import Array
from nandarray.array.base import Grid
from nandarray.array.lazy import AsType, Field, field_names
from nandarray.array.methods import Hints
from nandarray.array.view import View
from nandarray.errors import BadIndexError, ClosedError, InvalidError
from nandarray.index.buffers import Elements
from nandarray.index.shapes import MAX_AXIS, MAX_DIMS, check_axis, check_shape, run_shape

if TYPE_CHECKING:
    from nandarray.index.transfer import Mode
    from nandarray.programs.operand import Origin

__all__ = ["Joined", "concat", "stack"]

_NdArray = np.ndarray[Any, Any]
_Key = tuple[Any, ...]
_Memory = TypeVar("_Memory")


def concat(arrays: Iterable[Array | View | Joined | Field | AsType], axis: int = 0) -> Joined:
    """Read arrays one behind the other along an axis as one array, without copying them.

    Parameters
    ----------
    arrays : iterable of Array, View, Joined, Field or AsType
        Arrays of any open stores. Their lengths are equal but for that along ``axis``.
    axis : int
        The axis along which they follow each other.

    Returns
    -------
    Joined
        A read-only array of the dtype that :func:`numpy.concatenate` gives. The stores must stay open.

    Raises
    ------
    InvalidError
        There is no array, shapes do not fit, or the dtypes have no common one.
    BadIndexError
        There is no such axis.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["monday"] = np.arange(4)
    >>> store["tuesday"] = np.arange(4, 6.5)
    >>> week = nandarray.concat([store["monday"], store["tuesday"]])
    >>> week.shape, week[2:5]
    ((7,), array([2., 3., 4.]))
    """
    given = _parts(arrays, "concat")
    first = given[0].shape
    if not first:
        raise InvalidError("arrays without dimensions cannot be concatenated; stack makes an axis of them")
    axis = check_axis(axis, len(first))
    for number, one in enumerate(given):
        shape = one.shape
        if len(shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(shape, first, strict=True)) if i != axis
        ):
            raise InvalidError(f"array {number} of shape {shape} does not follow one of {first} along axis {axis}")
    return Joined(given, axis, stacked=False)


def stack(arrays: Iterable[Array | View | Joined | Field | AsType], axis: int = 0) -> Joined:
    """Read arrays of one shape as one array with an axis more, without copying them.

    Parameters
    ----------
    arrays : iterable of Array, View, Joined, Field or AsType
        Arrays of any open stores, of equal shapes.
    axis : int
        Place of the new axis, along which the arrays are numbered.

    Returns
    -------
    Joined
        A read-only array of the dtype that :func:`numpy.stack` gives. The stores must stay open.

    Raises
    ------
    InvalidError
        There is no array, shapes differ, or the dtypes have no common one.
    BadIndexError
        There is no such axis.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["red"], store["blue"] = np.zeros((2, 3)), np.ones((2, 3))
    >>> image = nandarray.stack([store["red"], store["blue"]], axis=-1)
    >>> image.shape, image[1, 2].tolist()
    ((2, 3, 2), [0.0, 1.0])
    """
    given = _parts(arrays, "stack")
    first = given[0].shape
    if len(first) == MAX_DIMS:
        raise InvalidError(f"arrays of {MAX_DIMS} dimensions cannot be stacked; at most {MAX_DIMS} are possible")
    axis = check_axis(axis, len(first) + 1)
    for number, one in enumerate(given):
        if one.shape != first:
            raise InvalidError(f"array {number} has shape {one.shape}, not {first}: those of a stack must be equal")
    return Joined(given, axis, stacked=True)


def _parts(arrays: Any, what: str) -> list[Any]:
    if isinstance(arrays, Grid | Field | AsType):
        raise InvalidError(f"{what} must be given several arrays, in a list, not one {type(arrays).__name__}")
    given = list(arrays)
    if not given:
        raise InvalidError(f"{what} must be given at least one array")
    for one in given:
        if not isinstance(one, Array | View | Joined | Field | AsType):
            raise InvalidError(f"{what} must be given arrays, views and fields of stores, not {type(one).__name__}")
        if isinstance(one, Field | AsType) and one.dtype.shape:
            raise InvalidError(f"{what} takes no field with dimensions of its own, {one.dtype.shape}")
    return given


def _common(dtypes: Sequence[np.dtype[Any]], what: str) -> np.dtype[Any]:
    """Return NumPy's dtype of a concatenation."""
    try:
        return np.concatenate([np.empty(0, dtype) for dtype in dtypes]).dtype
    except TypeError as error:
        raise InvalidError(f"{what} of dtypes {', '.join(sorted({str(one) for one in dtypes}))}: {error}") from error


class Joined(Hints, Grid):
    """Arrays read as one, in order along an axis. What :func:`concat` and :func:`stack` give.

    Indexing, ``oindex``, ``vindex``, iteration and NumPy's protocols are those of an :class:`Array`. It can be pickled
    if its parts can, and :func:`to_dask` takes it.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["a"] = np.arange(6).reshape(2, 3)
    >>> both = nandarray.concat([store["a"], store["a"].view((2, 3))])
    >>> both.shape, both[1:3].tolist()
    ((4, 3), [[3, 4, 5], [0, 1, 2]])
    """

    def __init__(self, parts: Sequence[Any], axis: int, *, stacked: bool) -> None:
        self._parts = [_Piece(part, axis if stacked else None) for part in parts]
        self._axis, self._stacked = axis, stacked
        self._dtype = _common([part.dtype for part in parts], "stack" if stacked else "concat")
        self._starts = [0, *accumulate(piece.shape[axis] for piece in self._parts)]
        shape = self._parts[0].shape
        self._shape = check_shape((*shape[:axis], self._starts[-1], *shape[axis + 1 :]))

    @property
    def parts(self) -> tuple[Array | View | Joined | Field | AsType, ...]:
        """The arrays, in order."""
        return tuple(piece.of for piece in self._parts)

    @property
    def axis(self) -> int:
        """The axis along which the parts follow each other, or are numbered."""
        return self._axis

    @property
    def stacked(self) -> bool:
        """Whether each part is one place along the axis."""
        return self._stacked

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each dimension, from when the arrays were joined."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements that are read."""
        return self._dtype

    @property
    def chunks(self) -> tuple[int, ...]:
        """A box of elements that are stored together, within the largest part."""
        piece = max(self._parts, key=lambda piece: piece.shape[self._axis])
        chunks = list(piece.chunks)
        if self._stacked:
            chunks.insert(self._axis, 1)
        return tuple(chunks)

    @overload
    def __getitem__(self, key: str | list[str]) -> Joined: ...
    @overload
    def __getitem__(self, key: Any) -> Elements: ...
    def __getitem__(self, key: Any) -> Any:
        names = field_names(key) if self._dtype.names else None
        if names is None:
            return self._get(key)
        if not all(isinstance(part, Array) for part in self.parts):
            raise InvalidError(f"field {names!r} is one of arrays; take it before they are joined")
        return Joined([part[names] for part in self.parts], self._axis, stacked=self._stacked)

    def _set(self, key: object, values: ArrayLike, mode: Mode = "numpy") -> Never:
        raise InvalidError("joined arrays are read-only: write to their parts")

    @overload
    def read(self, selection: Any = ..., *, out: None = None) -> Elements: ...
    @overload
    def read(self, selection: Any = ..., *, out: _Memory) -> _Memory: ...
    def read(self, selection: Any = ..., *, out: Any = None) -> Any:
        """Read a selection, into given memory if wanted: :meth:`Array.read`.

        Parameters
        ----------
        selection : index expression
            Index as between brackets. Everything by default.
        out : buffer, optional
            Destination of the right shape and dtype.

        Returns
        -------
        numpy.ndarray or scalar
            The elements; ``out`` itself if it was given.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6).reshape(2, 3)
        >>> out = np.zeros((2, 3), int)
        >>> nandarray.concat([store["a"], store["a"]]).read(np.s_[1:3], out=out)
        array([[3, 4, 5],
               [0, 1, 2]])
        """
        return self._get(selection, out=out)

    def __repr__(self) -> str:
        word = "Stack" if self._stacked else "Concatenation"
        return (
            f"<nandarray.Joined: {word.lower()} of {len(self._parts)} along axis {self._axis}, shape={self._shape}"
            f" dtype={self._dtype}>"
        )

    def _repr_html_(self) -> str:
        what = f"{'stack' if self._stacked else 'concatenation'} of {len(self._parts)} along axis {self._axis}"
        try:
            return notebook.part_html(what, self._shape, self._dtype, self.chunks, self.chunks)
        except ClosedError:
            return "<em>closed array</em>"

    def _rows_of_block(self) -> int:
        return self.chunks[0]

    def _origin(self) -> Origin:
        raise InvalidError(
            "programs run beside one array; store the joined ones as one, store.create(name, data=joined)"
        )

    def _commands(self) -> _Cut:
        return _Cut(self._parts, self._starts, self._axis, self._shape)


class _Piece:
    """A part as its joined array has it: with the axis that a stack adds, and converted by assignment."""

    def __init__(self, of: Any, added: int | None) -> None:
        self.of, self.added = of, added
        self._known = of.shape
        self.shape = of.shape if added is None else (*of.shape[:added], 1, *of.shape[added:])

    @property
    def _grid(self) -> Grid:
        return self.of if isinstance(self.of, Grid) else self.of._grid

    @property
    def chunks(self) -> tuple[int, ...]:
        if isinstance(self._grid, View):
            return run_shape(self._grid.shape, max(1, prod(self._grid.array.chunks)))
        found: tuple[int, ...] = self._grid.chunks  # type: ignore[attr-defined]
        return found

    def fill(self, out: _NdArray, key: _Key, mode: Mode) -> None:
        """Read slices and flat index arrays, one an axis, into memory of the selection's shape.

        ``mode`` says how index arrays combine; with "pointwise" there are some, and their dimension is the first.
        """
        now = self.of.shape
        if now != self._known:
            raise InvalidError(f"a joined array had shape {self._known} and has {now} now: join them again")
        if self.added is not None:
            at = key[self.added]
            key = (*key[: self.added], *key[self.added + 1 :])
            if mode == "pointwise":
                if not any(isinstance(one, np.ndarray) for one in key):  # the same for all points
                    self._read(out[0, ...], key, "outer")
                    out[1:] = out[0]
                    return
                if isinstance(at, slice):
                    before = sum(isinstance(one, slice) for one in key[: self.added])
                    out = out[(slice(None),) * (1 + before) + (0,)]
            else:
                all_of: _Key = (slice(None),) * self.added
                self._read(out[(*all_of, 0, ...)], key, mode)
                out[(*all_of, slice(1, None))] = out[(*all_of, slice(0, 1))]
                return
        self._read(out, key, mode)

    def _read(self, out: _NdArray, key: _Key, mode: Mode) -> None:
        grid = self._grid
        if grid is self.of and grid.dtype == out.dtype:
            grid._get(key, mode, out)
            return
        read = grid._get(key, mode)
        out[...] = read if grid is self.of else self.of._convert(read)


class _Cut:
    """The commands of joined arrays: each is cut at the borders of parts."""

    def __init__(self, parts: list[_Piece], starts: list[int], axis: int, shape: tuple[int, ...]) -> None:
        self._parts, self._starts, self._axis, self._shape = parts, starts, axis, shape

    def after(self, work: Callable[[], None]) -> None:
        work()

    def read(self, out: _NdArray, start: Sequence[int], step: Sequence[int]) -> None:
        self._pieces(out, [_run(*one) for one in zip(start, step, out.shape, strict=True)], "outer", range(out.ndim))

    def read_outer(self, out: _NdArray, axes: Sequence[Any]) -> None:
        key = [_run(*taken) if isinstance(taken, tuple) else taken for taken in axes]
        for axis, taken in enumerate(key):
            self._check(taken, axis)
        self._pieces(out, key, "outer", range(out.ndim))

    def read_points(self, out: _NdArray, coords: _NdArray) -> None:
        key = [coords[:, axis] for axis in range(coords.shape[1])]
        for axis, taken in enumerate(key):
            self._check(taken, axis)
        self._pieces(out, key, "pointwise", [0] * len(key))

    def read_boxes(self, out: _NdArray, starts: _NdArray, step: Sequence[int]) -> None:
        # Along each axis a box has one element, or all boxes start at one place.
        key: list[Any] = []
        places, kept = [], [0]
        for axis, length in enumerate(out.shape[1:]):
            if length == 1:
                key.append(starts[:, axis])
                self._check(key[-1], axis)
                places.append(0)
            else:
                key.append(_run(int(starts[0, axis]), step[axis], length))
                places.append(len(kept))
                kept.append(1 + axis)
        shape = [out.shape[at] for at in kept]
        memory = out.reshape(shape)
        assert np.may_share_memory(memory, out)
        self._pieces(memory, key, "pointwise", places)

    def write(self, *given: Any) -> Never:
        raise AssertionError("joined arrays are not written")

    write_boxes = write_outer = write_points = write

    def _check(self, taken: Any, axis: int) -> None:
        if isinstance(taken, np.ndarray) and taken.size and (most := int(taken.max())) >= self._shape[axis]:
            raise BadIndexError(f"index {most} is out of bounds for axis {axis} with size {self._shape[axis]}")

    def _pieces(self, out: _NdArray, key: list[Any], mode: Mode, places: Sequence[int]) -> None:
        """Read from each part its share; ``places`` has the dimension of ``out`` that belongs to each axis."""
        axis, place = self._axis, places[self._axis]
        for piece, where, taken in self._shares(key[axis]):
            own = list(key)
            own[axis] = taken
            if mode == "pointwise" and isinstance(taken, np.ndarray):
                own = [one[where] if isinstance(one, np.ndarray) and one is not taken else one for one in own]
            share = (slice(None),) * place + (where,)
            if isinstance(where, slice):
                piece.fill(out[share], tuple(own), mode)
                continue
            memory = np.empty([len(where) if at == place else n for at, n in enumerate(out.shape)], out.dtype)
            piece.fill(memory, tuple(own), mode)
            out[share] = memory

    def _shares(self, taken: Any) -> Iterator[tuple[_Piece, Any, Any]]:
        """Yield the parts that a run or indices along the axis touch: where in the result, and what of the part."""
        if isinstance(taken, np.ndarray):
            borders = [at for at in self._starts[1:-1] if at < MAX_AXIS]
            number = np.searchsorted(np.array(borders, np.uint64), taken, side="right")
            for part in np.unique(number).tolist():
                own = taken if len(self._parts) == 1 else taken[number == part]
                everything = len(own) == len(taken)
                where = slice(None) if everything else np.flatnonzero(number == part)
                yield self._parts[part], where, own - np.uint64(self._starts[part])
            return
        start, step, count = taken.start, taken.step, len(range(taken.start, taken.stop, taken.step))
        done = 0
        while done < count:
            at = start + done * step
            part = bisect_right(self._starts, at) - 1
            low, high = self._starts[part], self._starts[part + 1]
            own = min(count - done, -(-(high - at) // step))
            yield self._parts[part], slice(done, done + own), _run(at - low, step, own)
            done += own


def _run(start: int, step: int, count: int) -> slice:
    return slice(start, start + step * (count - 1) + 1, step)
