"""Views and fields as arrays: what Dask, xarray, exports and notebooks need of either.

An :class:`Array` brings a name, attributes, a chunk and a fill value along; a view and a field of records have those of
the array that they are of, as far as they still hold. :class:`Part` says them, and reads; it holds no data.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.array.array import Array
from nandarray.array.attributes import DIMENSIONS
from nandarray.array.lazy import Field
from nandarray.array.pickling import Opening, has_versions, reopen_array, whereabouts
from nandarray.array.view import View
from nandarray.errors import InvalidError
from nandarray.index.shapes import aligned_chunks, run_shape

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["Part", "part_of", "stored"]

How = tuple[Any, ...]


def stored(given: Any, what: str) -> Array | Part:
    """Return an array as it is, a view or a field as a :class:`Part`.

    Anything else is an InvalidError, which names the function ``what`` that it was given to.
    """
    if isinstance(given, Array | Part):
        return given
    if isinstance(given, View | Field):
        return Part(given)
    raise InvalidError(f"{what} must be given an array, a view or a field of a store, not {type(given).__name__}")


def part_of(array: Array, how: How) -> Array | Part:
    """Return the part of an array that ``Part.how`` names; the array itself for an empty one."""
    if not how:
        return array
    kind, value = how
    return Part(array.view(value) if kind == "view" else Field(array, *value))


class Part:
    """A view of an array, or a field of its records, with what an array has besides."""

    def __init__(self, of: View | Field) -> None:
        self.of = of
        self.array = of.array

    @property
    def how(self) -> How:
        """The kind of part and its argument: plain values, to find the part again in another process."""
        return ("view", self.of.shape) if isinstance(self.of, View) else ("field", (self.of.name, self.of.within))

    @property
    def store(self) -> Store:
        """The store of the array."""
        return self.array.store

    @property
    def name(self) -> str:
        """The full name of the array."""
        return self.array.name

    @property
    def inner(self) -> tuple[int, ...]:
        """Dimensions that a field's own elements have."""
        return self.of.dtype.shape if isinstance(self.of, Field) else ()

    @property
    def shape(self) -> tuple[int, ...]:
        """As NumPy has it: a field's own dimensions come last."""
        return (*self.of.shape, *self.inner)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self.of.dtype.base

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def chunks(self) -> tuple[int, ...]:
        """A box of about a building block's elements: of a view, a run of elements that lie side by side."""
        if isinstance(self.of, View):
            return run_shape(self.of.shape, max(1, math.prod(self.array.chunks)))
        return (*self.array.chunks, *self.inner)

    def merged(self, limit: int) -> tuple[int, ...]:
        """Return a larger chunk, of at most about ``limit`` bytes."""
        if isinstance(self.of, View):
            return run_shape(self.of.shape, max(1, limit // self.dtype.itemsize))
        outer = aligned_chunks(self.array.shape, self.array.chunks, self.array.dtype.itemsize, limit=limit)
        return (*outer, *self.inner)

    @property
    def compression(self) -> str | None:
        """The array's."""
        return self.array.compression

    @property
    def encrypted(self) -> bool:
        """Whether the array is."""
        return self.array.encrypted

    @property
    def fill_value(self) -> Any:
        """The value of elements that were never written; None for fields with dimensions of their own."""
        fill: Any = self.array.fill_value
        if isinstance(self.of, View):
            return fill
        return None if self.inner or self.dtype.names else self.of._convert(fill)

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the array; without names of dimensions where these are others."""
        found = dict(self.array.attrs)
        if self.shape != self.array.shape:
            found.pop(DIMENSIONS, None)
        return found

    def __getitem__(self, key: Any) -> Any:
        """Read a box: integers and slices; of a view any index expression."""
        return self.of[key] if isinstance(self.of, View) else self._field(self.array, key)

    def outer(self, key: tuple[Any, ...]) -> Any:
        """Read with each index array along its own axis."""
        return self.of.oindex[key] if isinstance(self.of, View) else self._field(self.array.oindex, key)

    def points(self, key: tuple[Any, ...]) -> Any:
        """Read point by point."""
        if isinstance(self.of, View):
            return self.of.vindex[key]
        if self.inner:
            raise InvalidError(f"a field with dimensions of its own, {self.inner}, is not read point by point")
        return self.of._convert(self.array.vindex[key])

    def _field(self, reader: Any, key: Any) -> Any:
        """Read whole elements and take the field; what is behind the array's dimensions indexes the field's own."""
        parts = list(key if isinstance(key, tuple) else (key,))
        at = next((place for place, part in enumerate(parts) if part is Ellipsis), len(parts))
        parts[at : at + 1] = [slice(None)] * (self.ndim - len(parts) + (at < len(parts)))
        assert isinstance(self.of, Field)
        read = self.of._convert(reader[tuple(parts[: self.array.ndim])])
        behind = 0
        for part in reversed(parts[self.array.ndim :]):
            if isinstance(part, slice):
                read = read[(..., part, *[slice(None)] * behind)]
                behind += 1
            else:
                places = np.asarray(part)
                read = np.take(read, places, axis=read.ndim - 1 - behind)
                behind += places.ndim
        return read

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.of.__array__(dtype, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.encrypted:
            raise TypeError(f"{self.name!r} is encrypted, and its key stays in this process")
        if has_versions(self.store):  # the array says which
            return part_of, (self.array, self.how)
        if not self.store.read_only:
            self.store.flush()  # another process sees what has been flushed
        return _again, (whereabouts(self.store), self.name, self.how)


def _again(opening: Opening, name: str, how: How) -> Array | Part:
    return part_of(reopen_array(opening, name), how)
