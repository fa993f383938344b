"""Reading through a transformation: ``a.astype(...)`` and ``a["field"]`` of a larger-than-memory array.

Both are thin handles that read what is indexed and then convert it; neither holds data. A field can also be written:
its elements are read, the field is set, and they are written back, since the engine moves whole elements. Programs run
on both as on an array: fields are taken out of the records, and elements converted, beside the data
(:mod:`nandarray.programs.fields`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from nandarray._nandarray import select
from nandarray.array import notebook
from nandarray.array.arrow import ArrowSource
from nandarray.array.methods import Methods
from nandarray.array.pickling import dask_token
from nandarray.errors import ClosedError, InvalidError
from nandarray.index import buffers
from nandarray.index.buffers import Elements
from nandarray.index.compare import Uncompared
from nandarray.index.transfer import fetch, put
from nandarray.programs.operand import Origin

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.array.view import View

__all__ = ["AsType", "Field", "field_names"]


class _Lazy(Uncompared, ArrowSource):
    """An array, or a view, read through a conversion; indexing gives NumPy arrays."""

    def __init__(self, grid: Array | View, dtype: np.dtype[Any]) -> None:
        self._grid = grid
        self._dtype = dtype

    @property
    def array(self) -> Array:
        """The stored array."""
        return self._grid._origin().array  # type: ignore[no-any-return]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array or view behind it."""
        return self._grid.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions of the array or view behind it."""
        return self._grid.ndim

    @property
    def size(self) -> int:
        """Number of elements of the array or view behind it."""
        return self._grid.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that indexing gives."""
        return self._dtype

    @property
    def building_block(self) -> tuple[int, ...]:
        """The array's; a view has none."""
        found: tuple[int, ...] = self._grid.building_block  # type: ignore[union-attr]
        return found

    def __len__(self) -> int:
        return len(self._grid)

    def __getitem__(self, key: Any) -> Elements:
        found: Elements = self._convert(self._grid[key])
        return found

    def __iter__(self) -> Iterator[Elements]:
        return map(self._convert, self._grid)

    def __array__(self, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> Elements:
        """Read and convert everything, once more to ``dtype``; the data must be read, so ``copy=False`` is refused."""
        whole = np.asarray(self._convert(self._grid.__array__(copy=copy)))
        found: Elements = buffers.converted(whole, dtype)
        return found

    def _convert(self, read: Any) -> Any:
        raise NotImplementedError


class AsType(_Lazy, Methods):
    """Elements converted to another dtype as they are read, or as programs get them. What ``astype`` gives.

    Of an array (:meth:`Array.astype`), a view, a field, or another conversion. A field's own dimensions come along.
    """

    def __init__(self, of: Array | View | Field | AsType, dtype: np.dtype[Any]) -> None:
        inner = of.dtype.shape
        super().__init__(of._grid if isinstance(of, _Lazy) else of, np.dtype((dtype, inner)) if inner else dtype)
        self._of = of

    def __dask_tokenize__(self) -> Any:
        return dask_token(self.array, "astype", self._of.__dask_tokenize__(), str(self._dtype))

    @property
    def of(self) -> Array | View | Field | AsType:
        """The array, view, field or conversion whose elements are converted."""
        return self._of

    def _origin(self) -> Origin:
        return Origin(self.array, of=self._of)

    def __repr__(self) -> str:
        return f"<{self._of!r} as {self._dtype}>"

    def _convert(self, read: Any) -> Any:
        return buffers.converted(self._of._convert(read) if isinstance(self._of, _Lazy) else read, self._dtype.base)


class Field(_Lazy, Methods):
    """One field, or some, of a structured array: ``array["field"]``.

    A field of a record within the elements is ``array["record"]["field"]``.

    The index selects among the dimensions of the array; those of the field itself, if it has any, come along whole.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> a = store.create("a", 3, [("x", "i4"), ("y", [("re", "f8"), ("im", "f8")])])
    >>> a["x"][1:] = [5, 6]
    >>> a["x"][:]
    array([0, 5, 6], dtype=int32)
    >>> a["y"]["im"][2] = 0.5
    >>> a[2].tolist()
    (6, (0.0, 0.5))
    """

    _grid: Array

    def __init__(self, array: Array, name: str | list[str], within: tuple[str, ...] = ()) -> None:
        record, inner = array.dtype, ()
        for one in within:
            _check_names(record, one)
            record = record[one]
            record, inner = record.base, (*inner, *record.shape)
        _check_names(record, name)
        super().__init__(array, np.dtype((record[name], inner)) if inner else record[name])
        self._name, self._within = name, within

    def __dask_tokenize__(self) -> Any:
        return dask_token(self._grid, "field", self._within, str(self._name), str(self._dtype))

    @property
    def name(self) -> str | list[str]:
        """The field, or the fields."""
        return self._name

    @property
    def within(self) -> tuple[str, ...]:
        """The records that the field is within, from the outside; empty for a field of the array's elements."""
        return self._within

    @overload
    def __getitem__(self, key: str | list[str]) -> Field: ...
    @overload
    def __getitem__(self, key: Any) -> Elements: ...
    def __getitem__(self, key: Any) -> Any:
        fields = field_names(key)
        if fields is None:
            return super().__getitem__(key)
        if isinstance(self._name, str):
            return Field(self._grid, fields, (*self._within, self._name))
        _check_names(self._dtype, fields)
        return Field(self._grid, fields, self._within)

    def _origin(self) -> Origin:
        names = tuple([self._name] if isinstance(self._name, str) else self._name)
        return Origin(self._grid, field=names, within=self._within)

    def __repr__(self) -> str:
        return f"<field {self._shown!r} of {self._grid!r}>"

    def _repr_html_(self) -> str:
        inner = self._dtype.shape
        try:
            what, block = f"field {self._shown!r} of {self._grid.name!r}", self._grid.building_block
            return notebook.part_html(
                what, (*self.shape, *inner), self._dtype.base, block, (*self._grid.chunks, *inner)
            )
        except ClosedError:
            return "<em>closed array</em>"

    def __setitem__(self, key: Any, values: ArrayLike) -> None:
        if isinstance(key, str) or field_names(key) is not None:
            self[key][...] = values
            return
        array = self._grid
        with array.store._lock:
            selection = select(key, array.shape)
            elements = buffers.empty(selection.shape, array.dtype)
            fetch(array._commands(), selection, elements)
            buffers.refuse_mask(values)
            try:
                plain = isinstance(self._name, str) and self._dtype.base.names is None
                target = elements
                for one in self._within:
                    target = target[one]
                target[self._name] = buffers.as_source(values, self._dtype.base) if plain else values
            except (TypeError, ValueError, OverflowError, RuntimeError) as error:
                raise InvalidError(f"cannot store {type(values).__name__} in field {self._shown!r}: {error}") from error
            put(array._commands(), selection, elements)

    @property
    def _shown(self) -> str | list[str]:
        return ".".join((*self._within, self._name)) if isinstance(self._name, str) else self._name

    def _convert(self, read: Any) -> Any:
        for one in self._within:
            read = read[one]
        return read[self._name]


def _check_names(record: np.dtype[Any], name: str | list[str]) -> None:
    names = record.names or ()
    for one in [name] if isinstance(name, str) else name:
        if one not in names:
            raise InvalidError(f"no field named {one!r}; the fields are {', '.join(map(repr, names)) or 'none'}")


def field_names(key: object) -> str | list[str] | None:
    """Return the names of fields that an index consists of; None for any other index."""
    if isinstance(key, str):
        return key
    if isinstance(key, list) and key and all(isinstance(name, str) for name in key):
        return key
    return None
