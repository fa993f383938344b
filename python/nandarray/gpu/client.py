"""Arrays of a store that another process serves: ``nandarray.open("shm://NAME")``.

A :class:`SharedStore` claims one queue pair of ``nandarray serve STORE --shm NAME``. Its arrays are read by rows and
elements, and written by whole blocks of 512 bytes; everything else of an array is the serving process's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nandarray import _nandarray
from nandarray._nandarray import select
from nandarray.dtypes import decode
from nandarray.errors import BadIndexError, ClosedError, InvalidError, NotFoundError, VolumeMismatchError
from nandarray.gpu.gather import gather, library_of
from nandarray.gpu.reads import Reads
from nandarray.index import buffers
from nandarray.index.compare import Uncompared
from nandarray.index.shapes import check_number
from nandarray.index.transfer import fetch

__all__ = ["SharedArray", "SharedStore", "connect"]

#: Milliseconds until a call without an answer ends.
DEADLINE_MS = 10_000

_Array = np.ndarray[Any, Any]

# The status at the end of an error, without the bit by which a controller advises against trying again.
_STATUS = re.compile(r"\((0x[0-9a-f]+)\)$")
_STATUS_MASK = 0x7FF
_RESIZED, _NOT_READY = 0x1C2, 0x082


class SharedArray(Uncompared):
    """An array that another process serves.

    Attributes
    ----------
    name : str
        Its name in the store.
    shape : tuple of int
        Its shape when the server began.
    dtype : numpy.dtype
        Its element type.
    writable : bool
        Whether :meth:`write` may be called.
    """

    def __init__(self, native: _nandarray.QueueClient, row: tuple[int, str, str, list[int], int, int, bool]) -> None:
        self._native = native
        self._nsid, self.name, dtype, shape, self._item, self.nbytes, self.writable = row
        self.dtype = decode(dtype)
        self.shape = tuple(shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.nbytes // self._item

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<SharedArray {self.name!r} {self.shape} {self.dtype}>"

    def gather(self, indices: Any, *, out: Any = None) -> Any:
        """Read rows by number: ``array[indices]`` along the first dimension.

        Parameters
        ----------
        indices : array_like of integers
            Row numbers in an array of NumPy, torch, CuPy or DLPack, of any shape.
        out : array, optional
            Memory for the result, of NumPy, torch or CuPy.

        Returns
        -------
        array
            The rows, of shape ``indices.shape + shape[1:]``, of the kind of the indices.

        Raises
        ------
        BadIndexError
            There is no such row.
        ClosedError
            The array was deleted, the server is gone, or it did not answer in time.
        VolumeMismatchError
            The array was resized while it was served.
        """
        if not self.shape:
            raise InvalidError("an array without dimensions has no rows")
        row = self.shape[1:]
        row_bytes = self._item * int(np.prod(row, dtype=np.int64))

        def read(numbers: np.ndarray[Any, Any], memory: np.ndarray[Any, Any]) -> None:
            if memory.nbytes:
                flat = memory.reshape(-1).view(np.uint8)
                self._gather(row_bytes, numbers.astype(np.uint64, copy=False), flat)

        return gather(self.shape, self.dtype, indices, out, read)

    def __getitem__(self, key: Any) -> Any:
        """Read by any index expression of NumPy: integers, slices, ``...``, None, arrays of integers, masks.

        An index of torch or CuPy in front gathers rows into memory of that library.
        """
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        if library_of(first) != "numpy" or (hasattr(first, "__dlpack__") and not isinstance(first, np.ndarray)):
            rows = self.gather(first)
            return rows[(*[slice(None)] * first.ndim, *rest)] if rest else rows
        if isinstance(key, str) and self.dtype.names:
            raise BadIndexError(f"field {key!r} of a served array: read the records, array[:][{key!r}]")
        selection = select(key, self.shape)
        found = buffers.empty(selection.shape, self.dtype)
        reads: Any = Reads(self.shape, self._item, self._read, self._gather)
        fetch(reads, selection, found)
        return found[()] if selection.scalar else found

    def _gather(self, record_bytes: int, numbers: _Array, memory: _Array) -> None:
        self._call(self._native.gather, record_bytes, numbers, memory)

    def _read(self, first_byte: int, memory: _Array) -> None:
        self._call(self._native.read, first_byte, memory)

    def _call(self, command: Callable[..., None], *given: Any) -> None:
        """Execute a command, and say what its status means for the array."""
        try:
            command(self._nsid, *given)
        except InvalidError as error:
            status = _STATUS.search(str(error))
            if status and int(status[1], 16) & _STATUS_MASK == _RESIZED:
                told = f"array {self.name!r} was resized while it was served: it had shape {self.shape}; serve it again"
                raise VolumeMismatchError(told) from error
            if status and int(status[1], 16) & _STATUS_MASK == _NOT_READY:
                told = f"array {self.name!r} was deleted while it was served, or its store is closed or takes no writes"
                raise ClosedError(told) from error
            raise

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise InvalidError("the array lies in another process: reading it copies")
        found: _Array = buffers.converted(np.asarray(self[...]), dtype)
        return found

    def write(self, start: int, values: Any) -> None:
        """Write rows from ``start`` on.

        Parameters
        ----------
        start : int
            The first row. It begins at a multiple of 512 bytes.
        values : array_like
            Rows; they end at a multiple of 512 bytes, or with the array.

        Raises
        ------
        InvalidError
            The rows cut a block of 512 bytes, or lie outside of the array.
        """
        start = check_number("start", start)
        rows = np.ascontiguousarray(buffers.as_source(values, self.dtype))
        length = self.shape[0] if self.shape else 1
        row_bytes = self.nbytes // max(length, 1)
        if rows.shape[1:] != self.shape[1:] or not 0 <= start <= start + len(rows) <= length:
            raise InvalidError(f"rows {start} and on of shape {rows.shape}; the array is {self.shape}")
        first, last = start * row_bytes, (start + len(rows)) * row_bytes
        if first % 512 or (last % 512 and last != self.nbytes):
            raise InvalidError(f"bytes {first} to {last} cut a block of 512 bytes")
        if rows.nbytes:
            self._call(self._native.write, first, rows.reshape(-1).view(np.uint8))

    def flush(self) -> None:
        """Make durable what was written before."""
        self._call(self._native.flush)


class SharedStore:
    """The arrays of a store that another process serves: a read-only mapping of names, and a context manager."""

    def __init__(self, name: str, deadline_ms: int = DEADLINE_MS) -> None:
        self.name = name
        self._native: _nandarray.QueueClient | None = _nandarray.QueueClient.open(name, deadline_ms=deadline_ms)
        rows = self._native.arrays()
        self._served = {row[1]: SharedArray(self._native, row) for row in rows}

    @property
    def _arrays(self) -> dict[str, SharedArray]:
        if self._native is None:
            raise ClosedError(f"the client of shm://{self.name} is closed")
        return self._served

    def __getitem__(self, name: str) -> SharedArray:
        try:
            return self._arrays[name]
        except (KeyError, TypeError):
            why = "no such array was there when service began, or it cannot be served (as one without elements)"
            raise NotFoundError(f"{name!r} is not served by shm://{self.name}: {why}") from None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        what = "closed" if self._native is None else f"{len(self)} arrays"
        return f"<SharedStore shm://{self.name}, {what}>"

    def __enter__(self) -> SharedStore:
        _ = self._arrays
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the queue pair back, once no array is used any more."""
        self._native = None
        self._served = {}


def connect(name: str, *, deadline_ms: int = DEADLINE_MS) -> SharedStore:
    """Open the store that ``nandarray serve STORE --shm NAME`` serves on this machine.

    Parameters
    ----------
    name : str
        The server's name, or the path of its region.
    deadline_ms : int
        Milliseconds until a call without an answer ends with an error.

    Returns
    -------
    SharedStore
        Its arrays.

    Raises
    ------
    InvalidError
        No server has this name, or all its queue pairs are claimed.
    """
    return SharedStore(name, deadline_ms)
