"""A region of queue pairs in shared memory, as :class:`~nandarray.array.store.Store` stands on it.

The server's table and catalog say which arrays there are, as they were when it began. Where the server has a socket,
too, :mod:`nandarray.gpu.shared` takes it for all that a region cannot; alone, a region has no more than this. Reads of
any index are bytes and records that are gathered (:class:`~nandarray.gpu.reads.Reads`); writes are runs of elements.
Each run of up to 1 MiB is whole or absent; a write of several runs is not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nandarray import _nandarray
from nandarray.door import Source, Space, described
from nandarray.errors import (
    ClosedError,
    DoorError,
    InvalidError,
    NandarrayError,
    NotFoundError,
    ReadOnlyError,
    VolumeMismatchError,
)
from nandarray.gpu.reads import Reads
from nandarray.urls import shared_url

__all__ = ["RegionSource", "RegionSpace"]

_Array = np.ndarray[Any, Any]

# The status at the end of an error, without the bit by which a controller advises against trying again.
_STATUS = re.compile(r"\((0x[0-9a-f]+)\)$")
_STATUS_MASK = 0x7FF
_RESIZED, _NOT_READY, _PROTECTED = 0x1C2, 0x082, 0x020

_Row = tuple[int, str, str, list[int], int, int, bool]


class RegionSource(Source):
    """The arrays of a region of shared memory.

    Parameters
    ----------
    native : QueueClient
        The client of one queue pair.
    name : str
        Name of the region.
    read_only : bool
        Whether changes are refused on this side.
    """

    door = "shared memory"

    def __init__(self, native: _nandarray.QueueClient, name: str, *, read_only: bool) -> None:
        super().__init__(shared_url(name), read_only=read_only)
        self._native: _nandarray.QueueClient | None = native
        rows: dict[str, _Row] = {row[1]: row for row in native.arrays()}
        self._told, nqn = _catalog(native.catalog(), rows, self.path)
        #: Name of the drive at the server's socket; None if it has none.
        self.nqn: str | None = nqn
        numbered = {one.get("array"): one for one in self._told.values() if one["nsid"] is not None}
        self._numbered = {number: one for number, one in numbered.items() if isinstance(number, int)}

    @property
    def native(self) -> _nandarray.QueueClient:
        """The client, or a ClosedError."""
        if self._native is None:
            raise ClosedError(f"the client of {self.path} is closed")
        return self._native

    @property
    def closed(self) -> bool:
        """Whether the queue pair was given back."""
        return self._native is None

    def close(self) -> None:
        """Give the queue pair back, once no array is used any more."""
        self._native = None

    def flush(self) -> None:
        """Make everything written so far durable."""
        native = self.native
        if (nsid := next((one["nsid"] for one in self._told.values() if one["nsid"] is not None), None)) is not None:
            native.flush(nsid)

    def names(self, prefix: str = "") -> list[str]:
        """List the full names of arrays that begin with a prefix, sorted."""
        _ = self.native
        return sorted(name for name in self._told if name.startswith(prefix))

    def describe(self, name: str) -> dict[str, Any]:
        """Describe an array, or raise NotFoundError."""
        _ = self.native
        if name not in self._told:
            raise NotFoundError(f"no array {name!r} was there when {self.path} was first served")
        return self._told[name]

    def open_space(self, name: str, *, encryption_key: bytes | None = None) -> RegionSpace:
        """Open an array."""
        if encryption_key is not None:
            self.refuse("encrypted arrays: its server opens arrays without a key")
        told = self.describe(name)
        if told["nsid"] is None and math.prod(told["shape"]):
            raise DoorError(
                f"{self.path}: array {name!r} has too many dimensions, or too long a name or dtype, for shared memory"
            )
        return RegionSpace(self, told)

    def served(self, array: int) -> RegionSpace | None:
        """Return the array of a number of the store, if its elements go through the region."""
        told = self._numbered.get(array)
        return None if told is None or told["encrypted"] else RegionSpace(self, told)


def _catalog(text: bytes, rows: dict[str, _Row], path: str) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Return the descriptions of a region's catalog, each with the number of the array in the region's table.

    With them, the name of the drive at the socket of the region's server.
    """
    told: dict[str, dict[str, Any]] = {}
    try:
        found = json.loads(text)
        nqn, arrays = (found["nqn"], found["arrays"]) if isinstance(found, dict) else (None, found)
        if not isinstance(nqn, str | None):
            raise ValueError(f"the name of a drive is {nqn!r}")
        for one in arrays:
            known = described(one, bytes.fromhex(one["fill"]), path)
            row = rows.get(known["name"])
            if row is not None and (tuple(row[3]), row[4]) != (known["shape"], known["itemsize"]):
                raise NandarrayError(f"{path}: table and catalog differ in array {known['name']!r}: {row[3:5]}, {one}")
            told[known["name"]] = {**known, "nsid": None if row is None else row[0]}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise NandarrayError(f"{path}: a catalog that is none: {error}") from None
    return told, nqn


class RegionSpace(Space):
    """An array of a region, read and written as its bytes in C order."""

    source: RegionSource

    def __init__(self, source: RegionSource, told: dict[str, Any]) -> None:
        super().__init__(source, told)
        #: Whether the server has said that the array is not what it serves any more: deleted, or of another shape.
        self.is_gone = False
        self._reads = self._of(told["shape"])
        self.read_outer, self.read_points = self._reads.read_outer, self._reads.read_points

    @property
    def told_shape(self) -> tuple[int, ...]:
        """The shape by which the region serves it."""
        found: tuple[int, ...] = self._told["shape"]
        return found

    def _of(self, shape: tuple[int, ...]) -> Reads:
        return Reads(shape, int(self._told["itemsize"]), self._read, self._gather)

    def gather(self, record_bytes: int, numbers: _Array, memory: _Array) -> None:
        """Read records of equal size by number: the way of :meth:`nandarray.Array.gather`, without an index."""
        self._gather(record_bytes, numbers, memory)

    def read(
        self, out: _Array, start: Sequence[int], step: Sequence[int] | None = None, view: Sequence[int] | None = None
    ) -> None:
        """Read the box ``start + step * [0, out.shape)`` of the array, or of its view."""
        reads = self._reads if view is None else self._of(tuple(view))
        if out.size:
            reads.read(out, start, step or [1] * out.ndim)

    def read_boxes(self, out: _Array, starts: _Array, step: Sequence[int], view: Sequence[int] | None = None) -> None:
        """Read boxes of the shape of ``out[0]``, one a row of ``starts``."""
        for box, start in zip(out, starts, strict=True):
            self.read(box, [int(at) for at in start], step, view)

    def write(
        self, src: _Array, start: Sequence[int], step: Sequence[int] | None = None, view: Sequence[int] | None = None
    ) -> None:
        """Write the box ``start + step * [0, src.shape)`` of the array, or of its view."""
        self._write_axes(src, list(zip(start, step or [1] * src.ndim, src.shape, strict=True)), view)

    def write_boxes(self, src: _Array, starts: _Array, step: Sequence[int], view: Sequence[int] | None = None) -> None:
        """Write boxes, one after the other."""
        for box, start in zip(src, starts, strict=True):
            self.write(box, [int(at) for at in start], step, view)

    def write_outer(self, src: _Array, axes: Sequence[Any]) -> None:
        """Write the product of runs and index arrays."""
        self._write_axes(src, axes, None)

    def write_points(self, src: _Array, coords: _Array) -> None:
        """Write single elements; of equal ones the last."""
        numbers = np.zeros(len(coords), np.uint64)
        for axis, size in enumerate(self.shape):
            numbers = numbers * np.uint64(size) + coords[:, axis]
        self._write_runs(numbers, src)

    def _write_axes(self, src: _Array, axes: Sequence[Any], view: Sequence[int] | None) -> None:
        """Write the product of runs and index arrays, as runs of elements that lie together."""
        if not src.size:
            return
        shape = self.shape if view is None else tuple(view)
        # The axes behind `cut` are whole; the elements along it lie together if it is a run without steps.
        cut = len(axes)
        while cut and _is_whole(axes[cut - 1], shape[cut - 1]):
            cut -= 1
        together = cut > 0 and isinstance(axes[cut - 1], tuple) and (axes[cut - 1][1] == 1 or axes[cut - 1][2] == 1)
        outer = cut - 1 if together else cut
        numbers = np.zeros((), np.uint64)
        for axis, size in enumerate(shape):
            places = _places(axes[axis]) if axis < outer else np.uint64(axes[axis][0])
            numbers = numbers[..., np.newaxis] if axis < outer else numbers
            numbers = numbers * np.uint64(size) + places
        self._write_runs(numbers.reshape(-1), src)

    def _write_runs(self, firsts: _Array, src: _Array) -> None:
        """Write runs of as many elements each, from the elements ``firsts`` on."""
        self.source.check_writable()
        if not src.size:
            return
        numbers = np.ascontiguousarray(firsts * np.uint64(self.itemsize))
        data = np.ascontiguousarray(src).reshape(-1).view(np.uint8)
        self._call(self.source.native.write_runs, self.itemsize, numbers, data)

    def _gather(self, record_bytes: int, numbers: _Array, memory: _Array) -> None:
        self._call(self.source.native.gather, record_bytes, numbers, memory)

    def _read(self, first_byte: int, memory: _Array) -> None:
        self._call(self.source.native.read, first_byte, memory)

    def _call(self, command: Callable[..., None], *given: Any) -> None:
        """Execute a command, and say what its status means for the array."""
        try:
            command(self._told["nsid"], *given)
        except InvalidError as error:
            status = _STATUS.search(str(error))
            found = int(status[1], 16) & _STATUS_MASK if status else None
            self.is_gone = found in (_RESIZED, _NOT_READY)
            if found == _RESIZED:
                told = f"array {self._told['name']!r} was resized while it was served: it had shape"
                raise VolumeMismatchError(f"{told} {self._told['shape']}; serve it again") from error
            if found == _NOT_READY:
                told = f"array {self._told['name']!r} was deleted while it was served, or its store is closed"
                raise ClosedError(f"{told} or takes no writes") from error
            if found == _PROTECTED:
                raise ReadOnlyError(f"{self.source.path} is served for reading only") from error
            raise


def _is_whole(axis: Any, size: int) -> bool:
    return isinstance(axis, tuple) and tuple(axis) == (0, 1, size)


def _places(axis: Any) -> _Array:
    """Return the coordinates along an axis."""
    if not isinstance(axis, tuple):
        return np.asarray(axis, np.uint64)
    start, step, count = axis
    return np.arange(count, dtype=np.uint64) * np.uint64(step) + np.uint64(start)
