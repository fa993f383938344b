"""Reading and writing by index, and NumPy's protocols: the common base of arrays and views.

:class:`Grid` has a shape, a dtype and six native commands (:class:`~nandarray.index.transfer.Commands`); everything
here is built from these. It holds no data and caches none: each index expression goes to the store.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from nandarray._nandarray import select
from nandarray.array.arrow import ArrowSource
from nandarray.errors import BadIndexError, InvalidError, NandarrayError
from nandarray.index import buffers
from nandarray.index.buffers import Elements
from nandarray.index.transfer import Commands, fetch, put
from nandarray.programs.operand import Operand

if TYPE_CHECKING:
    from nandarray.index.transfer import Mode

__all__ = ["Grid", "Indexer"]

_BAND_BYTES = 8 << 20  # what iteration reads ahead


class Grid(Operand, ArrowSource):
    """An N-dimensional array in a store, seen under one shape. Base of ``Array`` and ``View``."""

    #: Whether the engine's own shape is this grid's: it takes index arrays then, and compares points with the shape.
    #: If not, index arrays go as points, which are translated.
    _outer = True

    # Provided by subclasses, as are shape and dtype.
    def _commands(self) -> Commands:
        raise NotImplementedError

    # Built on these.

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements, a Python integer of any magnitude."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, stored or not."""
        return self.size * self.dtype.itemsize

    @property
    def oindex(self) -> Indexer:
        """Index with each array along its own axis: ``a.oindex[[0, 2], [1, 3]]`` gives a 2 x 2 array."""
        return Indexer(self, "outer")

    @property
    def vindex(self) -> Indexer:
        """Index with all arrays together, point by point, and their dimensions always in front."""
        return Indexer(self, "pointwise")

    def __getitem__(self, key: Any) -> Elements:
        got: Elements = self._get(key)
        return got

    def __setitem__(self, key: Any, values: ArrayLike) -> None:
        self._set(key, values)

    def _get(self, key: object, mode: Mode = "numpy", out: object = None) -> Any:
        self._refuse_name(key)
        selection = select(key, self.shape, mode, outer=self._outer)
        if out is not None:
            fetch(self._commands(), selection, buffers.as_out(out, selection.shape, self.dtype))
            return out
        result = buffers.empty(selection.shape, self.dtype)
        fetch(self._commands(), selection, result)
        return result[()] if selection.scalar else result

    def _set(self, key: object, values: ArrayLike, mode: Mode = "numpy") -> None:
        self._refuse_name(key)
        selection = select(key, self.shape, mode, outer=self._outer)
        source = buffers.as_source(values, self.dtype)
        put(self._commands(), selection, buffers.broadcast(source, selection.shape))

    def _refuse_name(self, key: object) -> None:
        """Refuse the name of a field, or of an array in a group, as an index."""
        names = key if isinstance(key, list) else [key]
        if names and all(isinstance(one, str) for one in names):
            fields = self.dtype.names
            has = f"has elements of {self.dtype}, without fields" if fields is None else "has no fields of its own"
            what = "which is taken of the array itself" if fields is not None else "and it is an array, not a group"
            raise BadIndexError(
                f"an index must be of integers, slices, `...`, None or arrays, not {key!r}: {self!r} {has}, {what}"
            ) from None

    def __array__(self, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> Elements:
        """Read everything into memory, converted to ``dtype``; the data must be read, so ``copy=False`` is refused."""
        if copy is False:
            raise InvalidError("a stored array cannot become a NumPy array without a copy")
        whole: Elements = Grid._get(self, ...)
        found: Elements = buffers.converted(whole, dtype)
        return found

    def __dlpack__(self, **options: Any) -> Any:
        """Read everything into memory and share that through DLPack; options are :meth:`numpy.ndarray.__dlpack__`'s.

        The data must be read, so ``copy=False`` is refused: a BufferError, as the array API has it.
        """
        if options.pop("copy", None) is False:
            raise BufferError("a stored array cannot be shared through DLPack without a copy")
        return self.__array__().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Give DLPack's number of the processor's memory."""
        return (1, 0)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Elements]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (row for band in self._bands() for row in band)

    def _bands(self) -> Iterator[np.ndarray[Any, Any]]:
        """Read the array some whole rows of building blocks at a time."""
        length = self.shape[0]
        row_bytes = max(1, math.prod(self.shape[1:]) * self.itemsize)
        block = self._rows_of_block()
        rows = max(1, _BAND_BYTES // row_bytes)
        if rows > block:
            rows -= rows % block
        for low in range(0, length, rows):
            yield self._get(slice(low, low + rows))

    def _rows_of_block(self) -> int:
        return 1

    def __contains__(self, value: object) -> bool:
        bands = self._bands() if self.shape else iter([self.__array__()])
        try:
            return any(bool(np.any(band == value)) for band in bands)
        except (TypeError, ValueError) as error:
            if isinstance(error, NandarrayError):
                raise
            what = f"elements of {self.dtype} are not compared with {type(value).__name__}"
            raise InvalidError(f"{what}: {error}") from error

    # A single element converts as NumPy's does; more than one raises NumPy's own error without being read.

    def _single(self) -> np.ndarray[Any, Any]:
        return self.__array__() if self.size <= 1 else np.empty(2)

    def __bool__(self) -> bool:
        return bool(self._single())

    def __int__(self) -> int:
        return int(self._single())

    def __float__(self) -> float:
        return float(self._single())

    def __complex__(self) -> complex:
        return complex(self._single())

    def __index__(self) -> int:
        return self._single().__index__()


class Indexer:
    """Reads and writes a grid by another rule than NumPy's: ``oindex`` ("outer"), ``vindex`` ("pointwise")."""

    def __init__(self, grid: Grid, mode: Mode) -> None:
        self._grid = grid
        self._mode = mode

    def __getitem__(self, key: Any) -> Elements:
        got: Elements = self._grid._get(key, self._mode)
        return got

    def __setitem__(self, key: Any, values: ArrayLike) -> None:
        self._grid._set(key, values, self._mode)
