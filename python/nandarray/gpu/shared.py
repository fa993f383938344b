"""A store in shared memory with all that a store has: a region, and the unix socket of the region's server.

Elements go through the region where the array is in its table, under the number that it has in the store, and has the
shape that it had. Everything else goes through the socket, as to any drive (:mod:`nandarray.nvme.source`): what there
is, names, shapes, attributes, programs, and the elements of arrays that are new, of another shape, encrypted, or too
large for the table. A region that answers that an array is no more what it serves is asked no more; the command goes
through the socket then, which says what became of the array.

Of a write through the region each run of up to 1 MiB is whole or absent; one through the socket is so up to 64 MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.errors import NandarrayError
from nandarray.nvme.source import DriveSource, DriveSpace

if TYPE_CHECKING:
    from nandarray import _nandarray
    from nandarray.gpu.source import RegionSource, RegionSpace

__all__ = ["SharedSource", "SharedSpace"]

_Array = np.ndarray[Any, Any]


class SharedSource(DriveSource):
    """The store of a server in shared memory.

    Parameters
    ----------
    native : NvmeHost
        The connection to its socket.
    region : RegionSource
        Its region.
    read_only : bool
        Whether changes are refused on this side.
    again : callable
        Connects to the socket once more, for runs of programs.
    """

    door = "shared memory"

    def __init__(
        self,
        native: _nandarray.NvmeHost,
        region: RegionSource,
        *,
        read_only: bool,
        again: Callable[[], _nandarray.NvmeHost],
    ) -> None:
        super().__init__(native, region.path, read_only=read_only, again=again)
        self.region = region

    def close(self) -> None:
        """End the connection, and give the queue pair back."""
        super().close()
        self.region.close()

    def space(self, told: dict[str, Any], key: bytes | None) -> SharedSpace:
        """Return the array of a description."""
        return SharedSpace(self, told, key)


class SharedSpace(DriveSpace):
    """An array whose elements go through a region where they can."""

    source: SharedSource

    def __init__(self, source: SharedSource, told: dict[str, Any], key: bytes | None = None) -> None:
        super().__init__(source, told, key)
        self._served = source.region.served(told["array"])

    def _by_region(self, command: Callable[[RegionSpace], None]) -> bool:
        """Execute a command by the region; return False if it is for the socket."""
        served = self._served
        if served is None or served.told_shape != self._told["shape"] or self.source.closed:
            return False
        try:
            command(served)
        except NandarrayError:
            if not served.is_gone:
                raise
            self._served = None
            return False
        return True

    def read(
        self, out: _Array, start: Sequence[int], step: Sequence[int] | None = None, view: Sequence[int] | None = None
    ) -> None:
        """Read the box ``start + step * [0, out.shape)`` of the array, or of its view."""
        if not self._by_region(lambda served: served.read(out, start, step, view)):
            super().read(out, start, step, view)

    def write(
        self, src: _Array, start: Sequence[int], step: Sequence[int] | None = None, view: Sequence[int] | None = None
    ) -> None:
        """Write the box ``start + step * [0, src.shape)`` of the array, or of its view."""
        self.source.check_writable()
        if not self._by_region(lambda served: served.write(src, start, step, view)):
            super().write(src, start, step, view)

    def read_boxes(self, out: _Array, starts: _Array, step: Sequence[int], view: Sequence[int] | None = None) -> None:
        """Read boxes of the shape of ``out[0]``, one a row of ``starts``."""
        if not self._by_region(lambda served: served.read_boxes(out, starts, step, view)):
            super().read_boxes(out, starts, step, view)

    def write_boxes(self, src: _Array, starts: _Array, step: Sequence[int], view: Sequence[int] | None = None) -> None:
        """Write boxes of the shape of ``src[0]``, one a row of ``starts``; of equal ones the last."""
        self.source.check_writable()
        if not self._by_region(lambda served: served.write_boxes(src, starts, step, view)):
            super().write_boxes(src, starts, step, view)

    def read_outer(self, out: _Array, axes: Sequence[Any]) -> None:
        """Read the product of runs and index arrays."""
        if not self._by_region(lambda served: served.read_outer(out, axes)):
            super().read_outer(out, axes)

    def write_outer(self, src: _Array, axes: Sequence[Any]) -> None:
        """Write the product of runs and index arrays."""
        self.source.check_writable()
        if not self._by_region(lambda served: served.write_outer(src, axes)):
            super().write_outer(src, axes)

    def read_points(self, out: _Array, coords: _Array) -> None:
        """Read single elements."""
        if not self._by_region(lambda served: served.read_points(out, coords)):
            super().read_points(out, coords)

    def write_points(self, src: _Array, coords: _Array) -> None:
        """Write single elements."""
        self.source.check_writable()
        if not self._by_region(lambda served: served.write_points(src, coords)):
            super().write_points(src, coords)
