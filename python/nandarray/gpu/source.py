"""A store behind queue pairs in shared memory, as :class:`~nandarray.array.store.Store` stands on it.

The server's table says which arrays there are, with dtype and shape as they were when it began; it has no attributes
and no building blocks. Reads of any index are bytes and records that are gathered (:class:`~nandarray.gpu.reads.Reads`).
Writes are whole blocks of 512 bytes; a write that cuts a block is refused, since another client may write the rest of
it at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nandarray import _nandarray
from nandarray.door import Source, Space
from nandarray.errors import ClosedError, DoorError, InvalidError, NotFoundError, VolumeMismatchError
from nandarray.gpu.reads import Reads
from nandarray.index.shapes import run_shape

__all__ = ["RegionSource", "RegionSpace"]

_Array = np.ndarray[Any, Any]

_BLOCK = 512
#: Bytes of the boxes that stand for building blocks: the region does not tell them.
_CHUNK = 1 << 20
# The status at the end of an error, without the bit by which a controller advises against trying again.
_STATUS = re.compile(r"\((0x[0-9a-f]+)\)$")
_STATUS_MASK = 0x7FF
_RESIZED, _NOT_READY = 0x1C2, 0x082

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
        super().__init__(f"shm://{name}", read_only=read_only)
        self._native: _nandarray.QueueClient | None = native
        self._rows: dict[str, _Row] = {row[1]: row for row in native.arrays()}

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
        if row := next(iter(self._rows.values()), None):
            native.flush(row[0])

    def names(self, prefix: str = "") -> list[str]:
        """List the full names of arrays that begin with a prefix, sorted."""
        _ = self.native
        return sorted(name for name in self._rows if name.startswith(prefix))

    def describe(self, name: str) -> dict[str, Any]:
        """Describe an array, or raise NotFoundError."""
        _ = self.native
        if name not in self._rows:
            why = "no such array was there when service began, or it cannot be served (as one without elements)"
            raise NotFoundError(f"{name!r} is not served by {self.path}: {why}")
        nsid, _, dtype, shape, item, size, writable = self._rows[name]
        block = run_shape(tuple(shape), max(1, _CHUNK // item))
        return {
            "nsid": nsid, "name": name, "shape": tuple(shape), "itemsize": item, "dtype": dtype, "bytes": size,
            "writable": writable, "building_block": block, "compression": None, "encrypted": False, "fill": bytes(item),
            "attrs": "{}",
        }  # fmt: skip

    def open_space(self, name: str, *, encryption_key: bytes | None = None) -> RegionSpace:
        """Open an array."""
        if encryption_key is not None:
            self.refuse("encrypted arrays: its server opens arrays without a key")
        return RegionSpace(self, self.describe(name))


class RegionSpace(Space):
    """An array of a region, read and written as its bytes in C order."""

    source: RegionSource

    def __init__(self, source: RegionSource, told: dict[str, Any]) -> None:
        super().__init__(source, told)
        self._nsid = int(told["nsid"])
        self._reads = self._of(told["shape"])
        self.read_outer, self.read_points, self.read_boxes = (
            self._reads.read_outer,
            self._reads.read_points,
            self._reads.read_boxes,
        )

    def _of(self, shape: tuple[int, ...]) -> Reads:
        item = int(self._told["itemsize"])
        return Reads(shape, item, self._read, self._gather)

    @property
    def attrs(self) -> str:
        """Refuse attributes, which the region does not have."""
        self.source.refuse("attributes of arrays")

    @property
    def fill(self) -> bytes:
        """Refuse the fill value, which the region does not have."""
        self.source.refuse("fill values of arrays")

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

    def write(
        self, src: _Array, start: Sequence[int], step: Sequence[int] | None = None, view: Sequence[int] | None = None
    ) -> None:
        """Write a box whose elements lie together, in whole blocks of 512 bytes."""
        self.source.check_writable()
        if not src.size:
            return
        shape = self.shape if view is None else tuple(view)
        at = 0
        for place, length in zip(start, shape, strict=True):
            at = at * length + int(place)
        cut = next((axis for axis, n in enumerate(src.shape) if n > 1), src.ndim)
        together = src.shape[cut + 1 :] == shape[cut + 1 :] and all(one == 1 for one in (step or ())[cut:])
        first, last = at * self.itemsize, at * self.itemsize + src.nbytes
        size = int(self.known()["bytes"])
        if not together or first % _BLOCK or (last % _BLOCK and last != size):
            what = f"bytes {first} to {last} of {self.name!r}" if together else f"elements of {self.name!r} apart"
            raise DoorError(
                f"{self.source.path}: {what}: shared memory writes whole blocks of {_BLOCK} bytes, one behind the"
                " other; the process with the file writes any elements"
            )
        self._call(self.source.native.write, first, np.ascontiguousarray(src).reshape(-1).view(np.uint8))

    def write_boxes(self, src: _Array, starts: _Array, step: Sequence[int], view: Sequence[int] | None = None) -> None:
        """Write boxes, one after the other, each of whole blocks of 512 bytes."""
        for box, start in zip(src, starts, strict=True):
            self.write(box, [int(at) for at in start], step, view)

    def write_outer(self, src: _Array, axes: Sequence[Any]) -> None:
        """Refuse elements apart."""
        self.source.refuse("writes of elements apart: it writes whole blocks of 512 bytes")

    def write_points(self, src: _Array, coords: _Array) -> None:
        """Refuse elements apart."""
        self.source.refuse("writes of elements apart: it writes whole blocks of 512 bytes")

    def deallocate(self, start: Sequence[int], count: Sequence[int]) -> None:
        """Refuse to give a box back."""
        self.source.refuse("command that gives space back")

    def _gather(self, record_bytes: int, numbers: _Array, memory: _Array) -> None:
        self._call(self.source.native.gather, record_bytes, numbers, memory)

    def _read(self, first_byte: int, memory: _Array) -> None:
        self._call(self.source.native.read, first_byte, memory)

    def _call(self, command: Callable[..., None], *given: Any) -> None:
        """Execute a command, and say what its status means for the array."""
        try:
            command(self._nsid, *given)
        except InvalidError as error:
            status = _STATUS.search(str(error))
            found = int(status[1], 16) & _STATUS_MASK if status else None
            if found == _RESIZED:
                told = f"array {self._told['name']!r} was resized while it was served: it had shape"
                raise VolumeMismatchError(f"{told} {self._told['shape']}; serve it again") from error
            if found == _NOT_READY:
                told = f"array {self._told['name']!r} was deleted while it was served, or its store is closed"
                raise ClosedError(f"{told} or takes no writes") from error
            raise
