"""Reading through a transformation: ``a.astype(...)`` and ``a["field"]`` of a larger-than-memory array.

Both are thin handles that read what is indexed and then convert it; neither holds data. A field can also be written:
its elements are read, the field is set, and they are written back, since the engine moves whole elements. Programs run
on both as on an array: fields are taken out of the records, and elements converted, beside the data
(:mod:`nandarray.programs.fields`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from nandarray._nandarray import select
from nandarray.array import notebook
from nandarray.array.arrow import ArrowSource
from nandarray.array.compute import Compute
from nandarray.array.pickling import dask_token
from nandarray.errors import ClosedError, InvalidError
from nandarray.index import buffers
from nandarray.index.buffers import Elements
from nandarray.index.compare import Uncompared
from nandarray.index.transfer import fetch, put
from nandarray.programs.operand import Origin

if TYPE_CHECKING:
    from nandarray.array.array import Array

__all__ = ["AsType", "Field"]


class _Lazy(Uncompared, ArrowSource):
    """An array read through a conversion; indexing gives NumPy arrays."""

    def __init__(self, array: Array, dtype: np.dtype[Any]) -> None:
        self._array = array
        self._dtype = dtype

    def __dask_tokenize__(self) -> Any:
        return dask_token(self._array, type(self).__name__, str(getattr(self, "_name", "")), str(self._dtype))

    @property
    def array(self) -> Array:
        """The stored array."""
        return self._array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the stored array."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions of the stored array."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """Number of elements of the stored array."""
        return self._array.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that indexing gives."""
        return self._dtype

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, key: Any) -> Elements:
        found: Elements = self._convert(self._array[key])
        return found

    def __iter__(self) -> Iterator[Elements]:
        return map(self._convert, self._array)

    def __array__(self, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> Elements:
        """Read and convert everything, once more to ``dtype``; the data must be read, so ``copy=False`` is refused."""
        whole = np.asarray(self._convert(self._array.__array__(copy=copy)))
        found: Elements = buffers.converted(whole, dtype)
        return found

    def _convert(self, read: Any) -> Any:
        raise NotImplementedError


class AsType(_Lazy, Compute):
    """An array converted to another dtype as it is read, or as programs get it. What :meth:`Array.astype` gives."""

    @property
    def building_block(self) -> tuple[int, ...]:
        """The array's."""
        return self._array.building_block

    def _origin(self) -> Origin:
        return Origin(self._array, of=self._array)

    def __repr__(self) -> str:
        return f"<{self._array!r} as {self._dtype}>"

    def _convert(self, read: Any) -> Any:
        return buffers.converted(read, self._dtype)


class Field(_Lazy, Compute):
    """One field, or some, of a structured array: ``array["field"]``.

    The index selects among the dimensions of the array; those of the field itself, if it has any, come along whole.

    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> a = store.create("a", 3, [("x", "i4"), ("y", "f8")])
    >>> a["x"][1:] = [5, 6]
    >>> a["x"][:]
    array([0, 5, 6], dtype=int32)
    >>> a[1].tolist()
    (5, 0.0)
    """

    def __init__(self, array: Array, name: str | list[str]) -> None:
        names = array.dtype.names or ()
        for one in [name] if isinstance(name, str) else name:
            if one not in names:
                raise InvalidError(f"no field named {one!r}; the fields are {', '.join(map(repr, names)) or 'none'}")
        super().__init__(array, array.dtype[name])
        self._name = name

    @property
    def name(self) -> str | list[str]:
        """The field, or the fields."""
        return self._name

    @property
    def building_block(self) -> tuple[int, ...]:
        """The array's."""
        return self._array.building_block

    def _origin(self) -> Origin:
        return Origin(self._array, field=tuple([self._name] if isinstance(self._name, str) else self._name))

    def __repr__(self) -> str:
        return f"<field {self._name!r} of {self._array!r}>"

    def _repr_html_(self) -> str:
        inner = self._dtype.shape
        try:
            what, block = f"field {self._name!r} of {self._array.name!r}", self._array.building_block
            return notebook.part_html(
                what, (*self.shape, *inner), self._dtype.base, block, (*self._array.chunks, *inner)
            )
        except ClosedError:
            return "<em>closed array</em>"

    def __setitem__(self, key: Any, values: ArrayLike) -> None:
        array = self._array
        with array.store._lock:
            selection = select(key, array.shape)
            elements = buffers.empty(selection.shape, array.dtype)
            fetch(array._commands(), selection, elements)
            buffers.refuse_mask(values)
            try:
                plain = isinstance(self._name, str) and self._dtype.base.names is None
                elements[self._name] = buffers.as_source(values, self._dtype.base) if plain else values
            except (TypeError, ValueError, OverflowError, RuntimeError) as error:
                raise InvalidError(f"cannot store {type(values).__name__} in field {self._name!r}: {error}") from error
            put(array._commands(), selection, elements)

    def _convert(self, read: Any) -> Any:
        return read[self._name]
