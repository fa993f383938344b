"""Arrays: one named array of a store, which behaves as NumPy users expect.

An :class:`Array` is a handle, small and cheap; the data stays in the store, and every index expression moves exactly
the elements that it names. Indexing and NumPy's protocols come from :class:`~nandarray.array.base.Grid`; this module
adds the properties of a *stored* array: a building block, attributes, a shape that can change, views.

Arithmetic is left to NumPy (read first, then compute), and so is ``==`` (:mod:`nandarray.index.compare`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from nandarray import dtypes
from nandarray._nandarray import get, select
from nandarray.array import notebook
from nandarray.array.attributes import Attributes
from nandarray.array.base import Grid
from nandarray.array.futures import Collecting, Future, Submitted
from nandarray.array.lazy import Field, field_names
from nandarray.array.masks import read_masked, write_masked
from nandarray.array.methods import Methods
from nandarray.array.pickling import dask_token, reduce_array
from nandarray.array.view import View, resolve_shape
from nandarray.errors import BadIndexError, ClosedError, InvalidError
from nandarray.gpu.gather import gather
from nandarray.index import buffers
from nandarray.index.buffers import Elements
from nandarray.index.shapes import check_axis, check_shape
from nandarray.index.transfer import fetch, put
from nandarray.programs.operand import Origin

if TYPE_CHECKING:
    from nandarray import _nandarray
    from nandarray.array.store import Store
    from nandarray.index.transfer import Mode

__all__ = ["Array"]

_NdArray = np.ndarray[Any, Any]
_Memory = TypeVar("_Memory")


class Array(Grid, Methods):
    """One array of a store. What ``store[name]`` and ``store.create(...)`` give.

    Index expressions follow NumPy: integers, slices with any step, ``...``, ``None``, integer and boolean arrays.
    Reading gives NumPy arrays and scalars; assigning broadcasts and casts as NumPy does.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> a = store.create("a", (4, 6), "i4")
    >>> a[1:3, ::2] = [1, 2, 3]
    >>> a[1]
    array([1, 0, 2, 0, 3, 0], dtype=int32)
    >>> a[[2, 0], ::-2]
    array([[0, 0, 0],
           [0, 0, 0]], dtype=int32)
    >>> a.oindex[[1, 2], [0, 4]]
    array([[1, 3],
           [1, 3]], dtype=int32)
    >>> a.vindex[[1, 2], [0, 4]]
    array([1, 3], dtype=int32)
    """

    def __init__(self, store: Store, space: _nandarray.Space) -> None:
        self._store = store
        self._space = space
        self._dtype = dtypes.decode(space.dtype)

    def __copy__(self) -> Array:
        return Array(self._store, self._space)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_array(self)

    def __dask_tokenize__(self) -> Any:
        return dask_token(self)

    @property
    def store(self) -> Store:
        """The store that holds the array."""
        return self._store

    @property
    def name(self) -> str:
        """The full name, with ``/`` between groups."""
        return self._space.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each dimension."""
        return tuple(self._space.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._dtype

    @property
    def building_block(self) -> tuple[int, ...]:
        """Shape of the unit in which the engine stores the array, one length for each dimension."""
        return tuple(self._space.building_block)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The building block, under the name that other libraries use."""
        return self.building_block

    @property
    def compression(self) -> str | None:
        """The compressor of building blocks; None if they are stored as they are."""
        return self._space.compression

    @property
    def encrypted(self) -> bool:
        """Whether building blocks are encrypted."""
        return self._space.encrypted

    @property
    def fill_value(self) -> np.generic:
        """The value of elements that were never written."""
        found: np.generic = np.frombuffer(self._space.fill, self._dtype)[0]
        return found

    @property
    def attrs(self) -> Attributes:
        """The attributes, a mutable mapping of JSON values that writes through."""
        return Attributes(lambda: self._space.attrs, self._space.set_attrs, self._store._lock)

    def stat(self) -> dict[str, Any]:
        """Return the array's use of space in the store.

        Returns
        -------
        dict
            Building blocks, how many of them are stored, their bytes.
        """
        return self._space.stat()

    # --- Reading and writing -----------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, key: str | list[str]) -> Field: ...
    @overload
    def __getitem__(self, key: Any) -> Elements: ...
    def __getitem__(self, key: Any) -> Any:
        # Small reads of plain dtypes by one native call.
        try:
            got = get(self._space, key, self._dtype)
        except BadIndexError:
            self._refuse_name(key)
            raise
        if got is not None:
            return got
        fields = field_names(key) if self._dtype.names else None
        return super()._get(key) if fields is None else Field(self, fields)

    def __setitem__(self, key: Any, values: ArrayLike) -> None:
        fields = field_names(key) if self._dtype.names else None
        if fields is not None:
            Field(self, fields)[...] = values
            return
        if np.isscalar(values) or (isinstance(values, np.ndarray) and values.ndim == 0):
            values = buffers.as_source(values, self._dtype)  # once: NumPy warns at each conversion
            if self._forget(key, values):
                return
        super().__setitem__(key, values)

    @overload
    def read(self, selection: Any = ..., *, out: None = None) -> Elements: ...
    @overload
    def read(self, selection: Any = ..., *, out: _Memory) -> _Memory: ...
    def read(self, selection: Any = ..., *, out: Any = None) -> Any:
        """Read a selection, into given memory if wanted.

        Parameters
        ----------
        selection : index expression
            Index as between brackets; ``numpy.s_[1:3, ::2]`` makes one. Everything by default.
        out : buffer, optional
            Destination: a NumPy array with any strides, a torch tensor in host memory, a ``bytearray``, or
            anything else with the buffer protocol, DLPack or ``__array_interface__``, of the right shape and dtype.
            Its elements share no memory.

        Returns
        -------
        numpy.ndarray or scalar
            The elements; ``out`` itself if it was given.

        Raises
        ------
        BadIndexError
            The selection lies outside the array.
        InvalidError
            ``out`` does not fit.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6.0).reshape(2, 3)
        >>> buffer = np.zeros((2, 5))
        >>> store["a"].read(np.s_[:, 1:], out=buffer[:, 3:])
        array([[1., 2.],
               [4., 5.]])
        >>> buffer
        array([[0., 0., 0., 1., 2.],
               [0., 0., 0., 4., 5.]])
        """
        got = get(self._space, selection, self._dtype, out)
        return super()._get(selection, out=out) if got is None else got

    def gather(self, indices: Any, *, out: Any = None) -> Any:
        """Read rows by number, ``a[indices]`` along the first dimension, for NumPy, torch or CuPy.

        Parameters
        ----------
        indices : array_like of integers
            Row numbers in an array of NumPy, torch, CuPy or DLPack, of any shape.
        out : array, optional
            Memory for the result; on an accelerator it is filled on the current stream.

        Returns
        -------
        array
            The rows, of shape ``indices.shape + a.shape[1:]``, of the kind of the indices and on their device.

        Raises
        ------
        BadIndexError
            There is no such row.
        InvalidError
            The indices are no integers, or ``out`` does not fit.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6.0).reshape(3, 2)
        >>> store["a"].gather([2, 0])
        array([[4., 5.],
               [0., 1.]])
        """
        if not self.shape:
            raise InvalidError("an array without dimensions has no rows")

        def read(numbers: _NdArray, memory: _NdArray) -> None:
            if memory.size:
                self.read(numbers, out=memory)

        return gather(self.shape, self.dtype, indices, out, read)

    def write(self, selection: Any, values: ArrayLike) -> None:
        """Write a selection: ``a[selection] = values`` as a method.

        Parameters
        ----------
        selection : index expression
            As between brackets.
        values : array_like
            The new elements, which broadcast.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6).reshape(2, 3)
        >>> store["a"].write(np.s_[:, 1], [7, 8])
        >>> store["a"][:]
        array([[0, 7, 2],
               [3, 8, 5]])
        """
        self[selection] = values

    def masked(self, selection: Any = ...) -> np.ma.MaskedArray[tuple[Any, ...], np.dtype[Any]]:
        """Read a selection with its mask.

        An array that was made of a masked one has an attribute ``_MASK``, which names the array of its mask. Any other
        is masked where its elements equal its attribute ``_FillValue`` or ``missing_value``.

        Parameters
        ----------
        selection : index expression
            As for :meth:`read`.

        Returns
        -------
        numpy.ma.MaskedArray or scalar
            The elements; ``numpy.ma.masked`` for a single one that is.

        Raises
        ------
        NotFoundError
            The array that ``_MASK`` names is not there.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.ma.masked_greater(np.arange(4), 2)
        >>> store["a"].masked()
        masked_array(data=[0, 1, 2, --],
                     mask=[False, False, False,  True],
               fill_value=999999)
        >>> store["a"][:], store["a.mask"][2:]
        (array([0, 1, 2, 3]), array([False,  True]))
        """
        found: np.ma.MaskedArray[tuple[Any, ...], np.dtype[Any]] = read_masked(self, selection)
        return found

    def write_masked(self, selection: Any, values: ArrayLike) -> None:
        """Write a selection with its mask, of an array that was made of a masked one.

        The elements are one write, the mask another.

        Parameters
        ----------
        selection : index expression
            As for :meth:`read`.
        values : array_like
            The new elements, which broadcast. Masked ones become masked, all others unmasked.

        Raises
        ------
        InvalidError
            The array has no mask, or that of another array.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.ma.masked_greater(np.arange(4), 2)
        >>> store["a"].write_masked(np.s_[:2], np.ma.masked_equal([9, 1], 9))
        >>> store["a"].masked().tolist()
        [None, 1, 2, None]
        """
        write_masked(self, selection, values)

    @overload
    async def read_async(self, selection: Any = ..., *, out: None = None) -> Elements: ...
    @overload
    async def read_async(self, selection: Any = ..., *, out: _Memory) -> _Memory: ...
    async def read_async(self, selection: Any = ..., *, out: Any = None) -> Any:
        """Read a selection without blocking the event loop; many may be in flight.

        Parameters
        ----------
        selection : index expression
            As for :meth:`read`.
        out : buffer, optional
            As for :meth:`read`.

        Returns
        -------
        numpy.ndarray or scalar
            The elements; ``out`` itself if it was given.

        Examples
        --------
        >>> import asyncio, nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(100).reshape(10, 10)
        >>> async def total():
        ...     rows = await asyncio.gather(*(store["a"].read_async(i) for i in range(10)))
        ...     return sum(int(row.sum()) for row in rows)
        >>> asyncio.run(total())
        4950
        """
        if self._store._is_modelled():
            return await self.submit(selection, out=out)
        return await self._store._in_thread(lambda: self.read(selection, out=out))

    async def write_async(self, selection: Any, values: ArrayLike) -> None:
        """Write a selection without blocking the event loop; many may be in flight.

        Parameters
        ----------
        selection : index expression
            As for :meth:`write`.
        values : array_like
            The new elements; left alone until the write is done.

        Examples
        --------
        >>> import asyncio, nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> a = store.create("a", 3, "i4")
        >>> asyncio.run(a.write_async(np.s_[1:], 5))
        >>> a[:]
        array([0, 5, 5], dtype=int32)
        """
        if self._store._is_modelled():
            await self.submit_write(selection, values)
        else:
            await self._store._in_thread(self.write, selection, values)

    def submit(self, selection: Any = ..., *, out: Any = None) -> Future:
        """Read a selection later, beside whatever else is in flight.

        On a modelled device the read is in flight from now on; modelled time passes while a caller waits. Reads wait
        for earlier writes of the same building blocks, and writes for earlier reads and writes.

        Parameters
        ----------
        selection : index expression
            As for :meth:`read`. Fields of records are read before this returns.
        out : buffer, optional
            As for :meth:`read`; left alone until the read is done.

        Returns
        -------
        nandarray.Future
            Gives the elements; ``out`` itself if it was given.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open(device="mqsim-ideal", mode="w")
        >>> store["a"] = np.arange(100).reshape(10, 10)
        >>> futures = [store["a"].submit(i) for i in range(10)]
        >>> sum(int(future.result().sum()) for future in futures)
        4950
        >>> store.close()
        """
        if not self._store._is_modelled():
            return self._store._submit_to_thread(lambda: self.read(selection, out=out))
        if self._dtype.names and field_names(selection) is not None:
            values = self.read(selection, out=out)
            return Submitted(self._store, [], lambda: values)
        parsed = select(selection, self.shape)
        own = out is None
        memory = buffers.empty(parsed.shape, self._dtype) if own else buffers.as_out(out, parsed.shape, self._dtype)
        commands = Collecting(self._store, self._space)
        fetch(commands, parsed, memory)
        if out is not None:
            return commands.future(lambda: out)
        return commands.future(lambda: memory[()] if parsed.scalar else memory)

    def submit_write(self, selection: Any, values: ArrayLike) -> Future:
        """Write a selection later, beside whatever else is in flight.

        Parameters
        ----------
        selection : index expression
            As for :meth:`write`.
        values : array_like
            The new elements; left alone until the write is done.

        Returns
        -------
        nandarray.Future
            Gives None.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> a = store.create("a", 3, "i4")
        >>> a.submit_write(0, 7).result()
        >>> a[:]
        array([7, 0, 0], dtype=int32)
        """
        if not self._store._is_modelled():
            return self._store._submit_to_thread(lambda: self.write(selection, values))
        parsed = select(selection, self.shape)
        source = buffers.broadcast(buffers.as_source(values, self._dtype), parsed.shape)
        commands = Collecting(self._store, self._space)
        put(commands, parsed, source)
        return commands.future(lambda: None)

    def view(self, shape: int | Sequence[int]) -> View:
        """Open the array under another dimensionality of equal volume.

        Nothing is copied; elements keep their row-major order. (To reinterpret the bytes under another dtype, as
        ``ndarray.view`` does, read first.)

        Parameters
        ----------
        shape : int or sequence of int
            The shape of the view; one length may be -1.

        Returns
        -------
        View
            A handle to read and write sub-blocks, or index expressions.

        Raises
        ------
        VolumeMismatchError
            The volumes differ.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(24).reshape(2, 3, 4)
        >>> store["a"].view((-1, 8)).shape
        (3, 8)
        """
        return View(self, resolve_shape(shape, self.shape))

    # --- Changing the shape ------------------------------------------------------------------------------------------

    def resize(self, shape: int | Sequence[int], *, axis: int | None = None) -> None:
        """Grow or shrink any dimension; elements keep their coordinates, and new ones read as the fill value.

        Parameters
        ----------
        shape : int or sequence of int
            The new shape, or with ``axis`` the new length of that axis.
        axis : int, optional
            The axis to resize alone.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> a = store.create("a", (2, 2), "i4", fill_value=7)
        >>> a[...] = 1
        >>> a.resize((3, 1))
        >>> a[:]
        array([[1],
               [1],
               [7]], dtype=int32)
        """
        with self._store._lock:
            old = self.shape
            if axis is not None:
                if isinstance(shape, Iterable):
                    raise InvalidError(f"with axis={axis} one length is resized, not a shape: {shape!r}")
                (length,) = check_shape(shape, what="length")
                axis = check_axis(axis, len(old))
                new = (*old[:axis], length, *old[axis + 1 :])
            else:
                new = check_shape(shape)
            if len(new) != len(old):
                raise InvalidError(f"shape {new} must have {len(old)} dimensions, as the array {old}, not {len(new)}")
            self._space.resize(new)

    def append(self, values: ArrayLike, axis: int = 0) -> tuple[int, ...]:
        """Grow one axis and write values into the new part, by one command: both are there, or neither.

        Parameters
        ----------
        values : array_like
            New elements, with the array's lengths on every other axis.
        axis : int
            The axis to grow.

        Returns
        -------
        tuple of int
            The new shape.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> log = store.create("log", (0, 2), "f8")
        >>> log.append([[1, 2], [3, 4]])
        (2, 2)
        >>> log[-1]
        array([3., 4.])
        """
        source = buffers.as_source(values, self._dtype)
        with self._store._lock:
            old = self.shape
            axis = check_axis(axis, len(old))
            if source.ndim != len(old) or any(
                given != has for i, (given, has) in enumerate(zip(source.shape, old, strict=True)) if i != axis
            ):
                raise InvalidError(f"values of shape {source.shape} cannot be appended to {old} along axis {axis}")
            return self._space.append(source, axis)

    # --- For people --------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        try:
            text = f"<nandarray.Array {self.name!r} shape={self.shape} dtype={self._dtype}"
            text += f" building_block={self.building_block}"
        except ClosedError:
            return "<nandarray.Array (closed)>"
        return text + (f" compression={self.compression!r}" if self.compression else "") + ">"

    def _repr_html_(self) -> str:
        try:
            return notebook.array_html(self)
        except ClosedError:
            return "<em>closed array</em>"

    # --- Towards the engine ------------------------------------------------------------------------------------------

    def _origin(self) -> Origin:
        return Origin(self)

    def _commands(self) -> _nandarray.Space:
        return self._space

    def _get(self, key: object, mode: Mode = "numpy", out: object = None) -> Any:
        got = get(self._space, key, self._dtype, out, None, mode)
        return super()._get(key, mode, out) if got is None else got

    def _rows_of_block(self) -> int:
        return self.building_block[0]

    def _forget(self, key: object, value: _NdArray) -> bool:
        """Free a box's blocks when it is assigned the fill value, however large it is."""
        if value.tobytes() != self._space.fill:
            return False
        box = select(key, self.shape)
        if not box.is_box or any(step != 1 for step in box.step):
            return False
        if 0 not in box.shape and 0 not in box.lengths:  # `a[False]` has no element, and no axis that says so
            self._space.deallocate(box.start, box.lengths)
        return True
