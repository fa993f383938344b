"""Views: the same elements under another shape.

A :class:`View` is an array opened under any dimensionality of equal volume; the elements keep their row-major order, as
``numpy.reshape`` keeps it. Nothing is copied and nothing is stored: the engine translates the view's coordinates into
building blocks at every command (the space translator of the NDS paper, equation 5), so :meth:`View.read` and
:meth:`View.write` are one native command each, straight into or out of the caller's memory.

A view belongs to the shape that its array had. Once the array is resized to another volume, the view is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from nandarray._nandarray import get, get_sub_block
from nandarray.array import notebook
from nandarray.array.base import Grid
from nandarray.array.futures import Collecting, Future
from nandarray.array.methods import Methods
from nandarray.array.pickling import dask_token
from nandarray.errors import BadIndexError, ClosedError, InvalidError, VolumeMismatchError
from nandarray.index import buffers
from nandarray.index.buffers import Elements
from nandarray.index.shapes import check_shape, run_shape
from nandarray.programs.operand import Origin

if TYPE_CHECKING:
    from nandarray import _nandarray
    from nandarray.array.array import Array

__all__ = ["View", "check_volume", "resolve_shape", "translate"]

_Array = np.ndarray[Any, Any]
_Memory = TypeVar("_Memory")
_INT64_MAX = 2**63 - 1


class View(Grid, Methods):
    """An array seen under another shape of equal volume. What :meth:`Array.view` gives.

    Besides :meth:`read` and :meth:`write`, a view takes every index expression that an array takes.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["a"] = np.arange(24).reshape(2, 3, 4)
    >>> v = store["a"].view((6, 4))
    >>> v.read((1, 1), (2, 2))
    array([[10, 11],
           [14, 15]])
    >>> v[-1]
    array([20, 21, 22, 23])
    """

    # The engine's outer commands work in the array's own dimensions.
    _outer = False

    def __init__(self, array: Array, shape: tuple[int, ...]) -> None:
        self._of = array
        self._shape = shape

    def __dask_tokenize__(self) -> Any:
        return dask_token(self._of, "view", self._shape)

    @property
    def array(self) -> Array:
        """The array that this is a view of."""
        return self._of

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each dimension of the view."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._of.dtype

    def __getitem__(self, key: Any) -> Elements:
        # As an array's: by one native call, or else the general way.
        try:
            got: Elements | None = get(self._of._space, key, self._of._dtype, None, self._shape)
        except BadIndexError:
            self._refuse_name(key)
            raise
        return super().__getitem__(key) if got is None else got

    def __repr__(self) -> str:
        return f"<nandarray.View shape={self._shape} of {self._of!r}>"

    def _repr_html_(self) -> str:
        try:
            chunks = run_shape(self._shape, max(1, math.prod(self._of.chunks)))
            what = f"view of {self._of.name!r} {self._of.shape}"
            return notebook.part_html(what, self._shape, self.dtype, self._of.building_block, chunks)
        except ClosedError:
            return "<em>closed array</em>"

    @overload
    def read(self, coordinate: Sequence[int], sub_shape: Sequence[int], out: None = None) -> Elements: ...
    @overload
    def read(self, coordinate: Sequence[int], sub_shape: Sequence[int], out: _Memory) -> _Memory: ...
    def read(self, coordinate: Sequence[int], sub_shape: Sequence[int], out: Any = None) -> Any:
        """Read one sub-block by one command.

        Parameters
        ----------
        coordinate : sequence of int
            Position of the sub-block, counted in sub-blocks: its first element is ``coordinate * sub_shape``.
        sub_shape : sequence of int
            The shape of the sub-blocks that the view is partitioned into. The last one along each axis is smaller
            where the division leaves a rest.
        out : buffer, optional
            Destination: a NumPy array with any strides, a torch tensor in host memory, a ``bytearray``, or
            anything else with the buffer protocol, DLPack or ``__array_interface__``, of the right shape and dtype.

        Returns
        -------
        numpy.ndarray
            The sub-block; ``out`` itself if it was given.

        Raises
        ------
        BadIndexError
            The coordinate lies outside the view.
        InvalidError
            ``out`` does not fit.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(10)
        >>> store["a"].view((2, 5)).read((0, 1), (2, 3))
        array([[3, 4],
               [8, 9]])
        """
        got = get_sub_block(self._of._space, self._shape, coordinate, sub_shape, self._of._dtype, out)
        if got is not None:
            return got
        start, count = self._partition(coordinate, sub_shape)
        memory = buffers.empty(count, self.dtype) if out is None else buffers.as_out(out, count, self.dtype)
        if memory.size:
            self._commands().read(memory, start)
        return memory if out is None else out

    def write(self, coordinate: Sequence[int], data: ArrayLike, sub_shape: Sequence[int] | None = None) -> None:
        """Write one sub-block by one command.

        Parameters
        ----------
        coordinate : sequence of int
            Position of the sub-block, counted in sub-blocks.
        data : array_like
            The new elements.
        sub_shape : sequence of int, optional
            The shape of the sub-blocks; by default the shape of ``data``. Give it to write the smaller sub-block at
            an edge, or to fill a sub-block with values that broadcast.

        Raises
        ------
        BadIndexError
            The coordinate lies outside the view.
        InvalidError
            The data does not fit the sub-block.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> v = store.create("a", 10, "i4").view((2, 5))
        >>> v.write((0, 0), [[1, 2], [3, 4]])
        >>> v.write((0, 2), 9, sub_shape=(2, 2))
        >>> v[:]
        array([[1, 2, 0, 0, 9],
               [3, 4, 0, 0, 9]], dtype=int32)
        """
        source = buffers.as_source(data, self.dtype)
        start, count = self._partition(coordinate, source.shape if sub_shape is None else sub_shape)
        if sub_shape is None and source.shape != count:
            raise InvalidError(
                f"data has shape {source.shape}, the sub-block at {tuple(coordinate)} is cut to {count} by the edge of "
                f"the view {self._shape}; give that data, and sub_shape={source.shape}"
            )
        source = buffers.broadcast(source, count)
        if source.size:
            self._commands().write(source, start)

    @overload
    async def read_async(self, coordinate: Sequence[int], sub_shape: Sequence[int], out: None = None) -> Elements: ...
    @overload
    async def read_async(self, coordinate: Sequence[int], sub_shape: Sequence[int], out: _Memory) -> _Memory: ...
    async def read_async(self, coordinate: Sequence[int], sub_shape: Sequence[int], out: Any = None) -> Any:
        """Read one sub-block without blocking the event loop.

        Parameters
        ----------
        coordinate : sequence of int
            As for :meth:`read`.
        sub_shape : sequence of int
            As for :meth:`read`.
        out : buffer, optional
            As for :meth:`read`.

        Returns
        -------
        numpy.ndarray
            The sub-block; ``out`` itself if it was given.

        Examples
        --------
        >>> import asyncio, nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(10)
        >>> asyncio.run(store["a"].view((2, 5)).read_async((1, 0), (1, 3)))
        array([[5, 6, 7]])
        """
        if self._of.store._is_modelled():
            return await self.submit(coordinate, sub_shape, out)
        return await self._of.store._in_thread(self.read, coordinate, sub_shape, out)

    async def write_async(
        self, coordinate: Sequence[int], data: ArrayLike, sub_shape: Sequence[int] | None = None
    ) -> None:
        """Write one sub-block without blocking the event loop.

        Parameters
        ----------
        coordinate : sequence of int
            As for :meth:`write`.
        data : array_like
            As for :meth:`write`.
        sub_shape : sequence of int, optional
            As for :meth:`write`.

        Examples
        --------
        >>> import asyncio, nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> v = store.create("a", 4, "i4").view((2, 2))
        >>> asyncio.run(v.write_async((1, 0), [[8, 9]]))
        >>> v[1]
        array([8, 9], dtype=int32)
        """
        await self._of.store._in_thread(self.write, coordinate, data, sub_shape)

    def submit(self, coordinate: Sequence[int], sub_shape: Sequence[int], out: Any = None) -> Future:
        """Read one sub-block later, beside whatever else is in flight.

        Parameters
        ----------
        coordinate : sequence of int
            As for :meth:`read`.
        sub_shape : sequence of int
            As for :meth:`read`.
        out : buffer, optional
            As for :meth:`read`; left alone until the read is done.

        Returns
        -------
        nandarray.Future
            Gives the sub-block; ``out`` itself if it was given.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(10)
        >>> store["a"].view((2, 5)).submit((1, 0), (1, 3)).result()
        array([[5, 6, 7]])
        """
        store = self._of.store
        if not store._is_modelled():
            return store._submit_to_thread(lambda: self.read(coordinate, sub_shape, out))
        start, count = self._partition(coordinate, sub_shape)
        memory = buffers.empty(count, self.dtype) if out is None else buffers.as_out(out, count, self.dtype)
        check_volume(self._shape, self._of.shape)
        commands = Collecting(store, self._of._space, lambda space: _ViewCommands(space, self._shape))
        if memory.size:
            commands.read(memory, start)
        return commands.future(lambda: memory if out is None else out)

    def _partition(self, coordinate: Sequence[int], sub_shape: Sequence[int]) -> tuple[list[int], tuple[int, ...]]:
        coordinate = check_shape(coordinate, what="coordinate", error=BadIndexError)
        sub_shape = check_shape(sub_shape, what="sub_shape")
        for what, given in (("coordinate", coordinate), ("sub_shape", sub_shape)):
            if len(given) != len(self._shape):
                raise InvalidError(
                    f"{what} {given} must have {self.ndim} entries, as the view {self._shape}, not {len(given)}"
                )
        start = [index * extent for index, extent in zip(coordinate, sub_shape, strict=True)]
        for axis, (first, extent, length) in enumerate(zip(start, sub_shape, self._shape, strict=True)):
            if extent == 0:
                raise InvalidError(f"sub_shape {sub_shape} must be at least 1 on axis {axis}, not 0")
            # The first sub-block of an empty axis is there, and empty.
            if first >= length and first > 0:
                raise BadIndexError(
                    f"coordinate {coordinate[axis]} (element {first}) is out of bounds for axis {axis}, size {length}"
                )
        edges = zip(start, sub_shape, self._shape, strict=True)
        return start, tuple(min(extent, length - first) for first, extent, length in edges)

    def _origin(self) -> Origin:
        return Origin(self._of, view=list(self._shape))

    def _commands(self) -> _ViewCommands:
        check_volume(self._shape, self._of.shape)
        return _ViewCommands(self._of._space, self._shape)


class _ViewCommands:
    """The native commands under a view's shape."""

    def __init__(self, space: _nandarray.Space, shape: tuple[int, ...]) -> None:
        self._space = space
        self._shape = shape

    def after(self, work: Callable[[], None]) -> None:
        work()

    def read(self, out: _Array, start: Sequence[int], step: Sequence[int] | None = None) -> None:
        self._space.read(out, start, step, self._shape)

    def write(self, src: _Array, start: Sequence[int], step: Sequence[int] | None = None) -> None:
        self._space.write(src, start, step, self._shape)

    def read_boxes(self, out: _Array, starts: _Array, step: Sequence[int]) -> None:
        self._space.read_boxes(out, starts, step, self._shape)

    def write_boxes(self, src: _Array, starts: _Array, step: Sequence[int]) -> None:
        self._space.write_boxes(src, starts, step, self._shape)

    def read_outer(self, out: _Array, axes: Sequence[Any]) -> None:
        raise AssertionError("a view selects by points")

    def write_outer(self, src: _Array, axes: Sequence[Any]) -> None:
        raise AssertionError("a view selects by points")

    def read_points(self, out: _Array, coords: _Array) -> None:
        self._space.read_points(out, translate(coords, self._shape, self._space.shape))

    def write_points(self, src: _Array, coords: _Array) -> None:
        self._space.write_points(src, translate(coords, self._shape, self._space.shape))


def translate(coords: _Array, source: tuple[int, ...], target: tuple[int, ...]) -> _Array:
    """Translate points of the shape ``source`` into points of ``target``, which has equal volume.

    Points are rows of uint64 coordinates.
    """
    # Row-major positions of very large arrays exceed 64 bits; Python integers then carry them.
    exact = np.int64 if math.prod(source) <= _INT64_MAX else object
    position = np.zeros(len(coords), exact)
    for axis, length in enumerate(source):
        position = position * length + coords[:, axis].astype(exact)
    found = np.empty((len(coords), len(target)), np.uint64)
    for axis in range(len(target) - 1, -1, -1):
        found[:, axis] = position % target[axis]
        position = position // target[axis]
    return found


def resolve_shape(shape: int | Sequence[int], of: tuple[int, ...]) -> tuple[int, ...]:
    """Read the shape of a view of an array of shape ``of``; one length may be -1, and the volumes are equal."""
    if isinstance(shape, str | bytes | np.dtype | type):
        raise InvalidError(
            f"view must be given a shape, not the dtype {shape!r}: astype converts elements as they are read, and "
            "a[...].view(dtype) reads their bytes anew"
        )
    asked = list(shape) if isinstance(shape, Iterable) else [shape]
    open_axes = [axis for axis, length in enumerate(asked) if isinstance(length, int | np.integer) and length == -1]
    if len(open_axes) > 1:
        raise InvalidError(f"view {tuple(asked)} must leave at most one axis open (-1), not {len(open_axes)}")
    for axis in open_axes:
        asked[axis] = 1
    known = check_shape(asked, what="view")
    volume = math.prod(of)
    for axis in open_axes:
        rest = math.prod(known)
        if rest == 0 or volume % rest:
            raise VolumeMismatchError(
                f"the array {of} has {volume} elements, which axis {axis} of the view cannot share out among {rest}"
            )
        known = check_shape((*known[:axis], volume // rest, *known[axis + 1 :]), what="view")
    check_volume(known, of)
    return known


def check_volume(shape: tuple[int, ...], of: tuple[int, ...]) -> None:
    """Refuse a view whose shape has another volume than ``of``, the array's."""
    if math.prod(shape) != math.prod(of):
        raise VolumeMismatchError(f"view {shape} has {math.prod(shape)} elements, the array {of} has {math.prod(of)}")
