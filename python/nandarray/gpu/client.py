"""Arrays of a store that another process serves: ``nandarray.open("shm://NAME")``.

A :class:`SharedStore` claims one queue pair of ``nandarray serve STORE --shm NAME``. Its arrays are read by rows and
elements, and written by whole blocks of 512 bytes; everything else of an array is the serving process's.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from nandarray import _nandarray
from nandarray.dtypes import decode
from nandarray.errors import InvalidError, NotFoundError
from nandarray.gpu.gather import gather

__all__ = ["SharedArray", "SharedStore", "connect"]

#: Milliseconds until a call without an answer ends.
DEADLINE_MS = 10_000


class SharedArray:
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
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<SharedArray {self.name!r} {self.shape} {self.dtype}>"

    def gather(self, indices: Any, *, out: Any = None) -> Any:
        """Read rows by number: ``array[indices]`` along the first dimension.

        Parameters
        ----------
        indices : array_like of integers
            Of NumPy, torch, CuPy or DLPack, of any shape.
        out : array, optional
            Memory for the result, of NumPy, torch or CuPy.

        Returns
        -------
        array
            Of shape ``indices.shape + shape[1:]``, of the kind of the indices.

        Raises
        ------
        IndexError
            There is no such row.
        ClosedError
            The server is gone, or did not answer in time.
        """
        if not self.shape:
            raise InvalidError("an array without dimensions has no rows")
        row = self.shape[1:]
        row_bytes = self._item * int(np.prod(row, dtype=np.int64))

        def read(numbers: np.ndarray[Any, Any], memory: np.ndarray[Any, Any]) -> None:
            if memory.nbytes:
                flat = memory.reshape(-1).view(np.uint8)
                self._native.gather(self._nsid, row_bytes, numbers.astype(np.uint64, copy=False), flat)

        return gather(self.shape, self.dtype, indices, out, read)

    def __getitem__(self, key: Any) -> Any:
        """Read by an integer, a slice or an array of integers along the first dimension, and NumPy's rest of it."""
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        if first is Ellipsis or first == () or not self.shape:
            return self._rows(0, self.shape[0] if self.shape else 1).reshape(self.shape)[key]
        if isinstance(first, slice):
            numbers = range(*first.indices(self.shape[0]))
            if numbers.step == 1:
                found = self._rows(numbers.start, max(len(numbers), 0))
            else:
                found = self.gather(np.fromiter(numbers, np.int64, len(numbers)))
            return found[(slice(None), *rest)] if rest else found
        found = self.gather(first)
        return found[(*[slice(None)] * np.ndim(first), *rest)] if rest else found[()]

    def _rows(self, start: int, count: int) -> np.ndarray[Any, Any]:
        out = np.empty((count, *self.shape[1:]), self.dtype)
        if out.nbytes:
            row_bytes = out.nbytes // count
            self._native.read(self._nsid, start * row_bytes, out.reshape(-1).view(np.uint8))
        return out

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("the array lies in another process: reading it copies")
        return np.asarray(self[...], dtype)

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
        rows = np.ascontiguousarray(values, self.dtype)
        row_bytes = self.nbytes // max(self.shape[0], 1) if self.shape else self.nbytes
        if rows.shape[1:] != self.shape[1:] or not 0 <= start <= start + len(rows) <= self.shape[0]:
            raise InvalidError(f"rows {start} and on of shape {rows.shape}; the array is {self.shape}")
        first, last = start * row_bytes, (start + len(rows)) * row_bytes
        if first % 512 or (last % 512 and last != self.nbytes):
            raise InvalidError(f"bytes {first} to {last} cut a block of 512 bytes")
        if rows.nbytes:
            self._native.write(self._nsid, first, rows.reshape(-1).view(np.uint8))

    def flush(self) -> None:
        """Make durable what was written before."""
        self._native.flush(self._nsid)


class SharedStore:
    """The arrays of a store that another process serves: a read-only mapping of names, and a context manager."""

    def __init__(self, name: str, deadline_ms: int = DEADLINE_MS) -> None:
        self.name = name
        self._native: _nandarray.QueueClient | None = _nandarray.QueueClient.open(name, deadline_ms=deadline_ms)
        rows = self._native.arrays()
        self._arrays = {row[1]: SharedArray(self._native, row) for row in rows}

    def __getitem__(self, name: str) -> SharedArray:
        try:
            return self._arrays[name]
        except KeyError:
            raise NotFoundError(f"{name!r} is not served by shm://{self.name}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"<SharedStore shm://{self.name}, {len(self)} arrays>"

    def __enter__(self) -> SharedStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the queue pair back, once no array is used any more."""
        self._native = None
        self._arrays = {}


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
