"""Stores that another process has: the interface that each door implements in place of the engine.

:class:`~nandarray.array.store.Store` and what is in it stand on two native classes, a store and its spaces. A door has
the same two in Python: a :class:`Source` (what is there, how it is changed, programs) and a :class:`Space` (one array:
its description, and commands that move elements). So arrays, views, groups, Dask, xarray and programs are the same
objects behind every door. Work that a door cannot do is a :class:`~nandarray.errors.DoorError` that names it.

The doors are :mod:`nandarray.nvme.source` (a drive), :mod:`nandarray.gpu.source` (a region of shared memory) and
:mod:`nandarray.gpu.shared` (a region with the drive of its server).
"""

from __future__ import annotations

import grp
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Never

import numpy as np

from nandarray import dtypes
from nandarray.errors import (
    ClosedError,
    CorruptError,
    DoorError,
    InvalidError,
    NandarrayError,
    NotFoundError,
    ReadOnlyError,
)
from nandarray.index.shapes import check_shape

__all__ = ["Source", "Space", "described", "engine_of", "group_number", "native_only"]

_Array = np.ndarray[Any, Any]


class Source:
    """A store behind a door; in place of the native ``Store``.

    Parameters
    ----------
    path : str
        URL or device that was opened.
    read_only : bool
        Whether changes are refused on this side.
    """

    #: A door has no modelled clock of its own.
    clock: None = None
    #: The process that opened the file knows what it left out of a damaged journal.
    dropped: None = None
    #: Whether other processes write to its arrays once these are pickled.
    has_workers = False
    #: Whether the other side chooses the form of programs that come without one.
    chooses_form = True
    #: Function that runs programs at the workers of a client, where workers see the data.
    away: Callable[..., dict[str, Any]] | None = None
    #: Name of the door in errors.
    door = "this door"

    def __init__(self, path: str, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only

    @property
    def closed(self) -> bool:
        """Whether the connection was ended here."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connection."""
        raise NotImplementedError

    def flush(self) -> None:
        """Make everything written so far durable."""
        raise NotImplementedError

    def refresh(self) -> None:
        """See what others have changed."""

    def names(self, prefix: str = "") -> list[str]:
        """List the full names of arrays that begin with a prefix, sorted."""
        raise NotImplementedError

    def describe(self, name: str) -> dict[str, Any]:
        """Describe an array, or raise NotFoundError."""
        raise NotImplementedError

    def open_space(self, name: str, *, encryption_key: bytes | None = None) -> Space:
        """Open an array."""
        raise NotImplementedError

    def __contains__(self, name: str) -> bool:
        try:
            self.describe(name)
        except NotFoundError:
            return False
        return True

    def file_state(self) -> None:
        """Nothing: the file is another process's."""

    def state(self) -> Any:
        """Return what changes with what is read here; None where that is not known."""

    def reduced(self, space: Any) -> tuple[Any, ...] | None:
        """Return how an array that is open for writing is opened in another process; None where it cannot be."""

    def check_writable(self) -> None:
        """Refuse a change of a store that was opened for reading.

        Raises
        ------
        ReadOnlyError
            It was.
        """
        if self.closed:
            raise ClosedError(f"the connection to {self.path} is closed")
        if self.read_only:
            raise ReadOnlyError(f"{self.path} was opened with mode 'r'")

    def refuse(self, what: str) -> Never:
        """Say that the door cannot do something.

        Raises
        ------
        DoorError
            Always.
        """
        raise DoorError(f"{self.path}: {self.door} has no {what}")

    def create(self, name: str, *given: Any, **options: Any) -> Space:
        """Create an array."""
        self.refuse("command that creates arrays")

    def delete(self, name: str) -> None:
        """Delete an array."""
        self.together(delete=[name])

    def rename(self, old: str, new: str) -> None:
        """Rename an array."""
        self.together(rename=[(old, new)])

    def together(
        self,
        *,
        delete: Sequence[str] = (),
        rename: Sequence[tuple[str, str]] = (),
        attrs: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Delete, rename, and set attributes by name, all as one."""
        self.refuse("command that changes names and attributes")

    def load_program(self, elf: bytes, metadata: bytes | None = None) -> int:
        """Take a program for runs."""
        self.refuse("programs")

    def unload_program(self, program: int) -> None:
        """Forget a program."""

    def execute(self, asked: Any, watch: Any) -> dict[str, Any]:
        """Run programs."""
        self.refuse("programs")

    def execute_away(self, asked: Any, watch: Any, client: Any, programs: Any) -> dict[str, Any]:
        """Run programs at the workers of a client."""
        if self.away is None:
            self.refuse("client=: it is for stores of parts, which workers read beside this process")
        return self.away(self, asked, watch, client, programs)

    def end_run(self, watch: Any) -> bool:
        """End the run of programs that ``watch`` was given to; return whether the door could."""
        return False

    # The rest needs the file, or its modelled device, which another process has.

    def session(self, *given: Any) -> Never:
        """Refuse kernels, which need the file."""
        self.refuse("sessions of kernels: they run in the process that has the file")

    def nvme(self) -> Never:
        """Refuse a controller."""
        self.refuse("controller of its own: commands go to the one that is connected")

    def serve_queues(self, *given: Any, **options: Any) -> Never:
        """Refuse to serve what is served."""
        self.refuse("way to be served again")

    #: Reason why there are no snapshots, for errors: only the process that has the file takes and reads them.
    no_snapshots = "snapshots: they are for the process that has the file"

    def at(self, snapshot: str) -> Never:
        """Refuse a snapshot."""
        self.refuse(self.no_snapshots)

    def take_snapshot(self, name: str, time: int) -> Never:
        """Refuse a snapshot."""
        self.refuse(self.no_snapshots)

    def delete_snapshot(self, name: str) -> Never:
        """Refuse a snapshot."""
        self.refuse(self.no_snapshots)

    def snapshots(self) -> Never:
        """Refuse snapshots."""
        self.refuse(self.no_snapshots)

    def choose_identity(self, choice: str) -> Never:
        """Refuse an identity."""
        self.refuse("identity to choose")

    def stat(self) -> Never:
        """Refuse counters."""
        self.refuse("counters of the store")

    def stat_arrays(self) -> Never:
        """Refuse counters."""
        self.refuse("counters of the store")

    def check(self, **options: Any) -> Never:
        """Refuse a check."""
        self.refuse("check of the file: it is for the process that has it")

    def compact(self) -> Never:
        """Refuse to shorten the file."""
        self.refuse("command that shortens the file")

    def geometry(self) -> Never:
        """Refuse the geometry."""
        self.refuse("geometry of flash")


class Space:
    """An array behind a door; in place of the native ``Space``.

    It has the commands of :class:`nandarray.index.transfer.Commands` and a description, which is kept until the source
    is refreshed or the array is changed from here.
    """

    def __init__(self, source: Source, told: dict[str, Any]) -> None:
        self.source = source
        self._told = told

    def known(self) -> dict[str, Any]:
        """Return the description, if the connection is there."""
        if self.source.closed:
            raise ClosedError(f"the connection to {self.source.path} is closed")
        return self._told

    @property
    def name(self) -> str:
        """The full name."""
        return str(self.known()["name"])

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each dimension."""
        found: tuple[int, ...] = self.known()["shape"]
        return found

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.known()["itemsize"])

    @property
    def dtype(self) -> str:
        """Type of the elements, as :func:`nandarray.dtypes.encode` writes it."""
        return str(self.known()["dtype"])

    @property
    def building_block(self) -> tuple[int, ...]:
        """Shape of the unit of storage."""
        found: tuple[int, ...] = self.known()["building_block"]
        return found

    @property
    def compression(self) -> str | None:
        """The compressor."""
        found: str | None = self.known()["compression"]
        return found

    @property
    def encrypted(self) -> bool:
        """Whether it is encrypted."""
        return bool(self.known()["encrypted"])

    @property
    def fill(self) -> bytes:
        """The value of elements that were never written, as bytes."""
        return bytes(self.known()["fill"])

    @property
    def attrs(self) -> str:
        """The attributes as JSON."""
        return str(self.known()["attrs"])

    def set_attrs(self, attrs: str) -> None:
        """Replace the attributes."""
        self.source.refuse("command that changes attributes")

    def resize(self, shape: Sequence[int]) -> None:
        """Give it another shape."""
        self.source.refuse("command that resizes arrays")

    def append(self, src: _Array, axis: int) -> tuple[int, ...]:
        """Grow one axis and write the new part; return the new shape."""
        self.source.refuse("command that appends to arrays")

    def deallocate(self, start: Sequence[int], count: Sequence[int]) -> None:
        """Give a box back."""
        self.write(np.broadcast_to(np.frombuffer(self.fill, f"V{self.itemsize}").reshape(()), tuple(count)), start)

    def blocks(self) -> _Array | None:
        """List the building blocks that have content, as the native store does; None where the door cannot tell."""
        return None

    def stat(self) -> dict[str, Any]:
        """Return the use of space."""
        self.source.refuse("counters of arrays")

    @staticmethod
    def after(work: Callable[[], None]) -> None:
        """Do something now: every command has ended."""
        work()

    def read(
        self, out: _Array, start: Sequence[int], step: Sequence[int] | None = None, view: Sequence[int] | None = None
    ) -> None:
        """Read the box ``start + step * [0, out.shape)`` of the array, or of its view."""
        raise NotImplementedError

    def write(
        self, src: _Array, start: Sequence[int], step: Sequence[int] | None = None, view: Sequence[int] | None = None
    ) -> None:
        """Write the box ``start + step * [0, src.shape)`` of the array, or of its view."""
        raise NotImplementedError


def described(told: Any, fill: bytes, door: str) -> dict[str, Any]:
    """Return a description that came through a door as the native store gives it.

    Raises
    ------
    NandarrayError
        It is none: its fields are missing, or contradict each other.
    """
    try:
        shapes = {key: tuple(check_shape(told[key], what=key)) for key in ("shape", "building_block")}
        known = {**told, **shapes, "fill": fill}
        kinds = {"name": str, "dtype": str, "compression": str | None, "encrypted": bool, "attrs": str}
        if wrong := [key for key, kind in kinds.items() if not isinstance(known[key], kind)]:
            raise InvalidError(f"{wrong[0]} {known[wrong[0]]!r}")
        with suppress(CorruptError):  # an array with such a dtype is listed, and cannot be opened
            if dtypes.decode(known["dtype"]).itemsize != len(fill):
                raise InvalidError(f"a fill value of {len(fill)} bytes, and the dtype {known['dtype']!r}")
        if len(fill) != known["itemsize"]:
            raise InvalidError(f"elements of {known['itemsize']!r} bytes, and a fill value of {len(fill)}")
    except (KeyError, TypeError, ValueError) as error:
        raise NandarrayError(f"{door}: a description that is none: {error}") from None
    return known


def group_number(group: str | int) -> int:
    """Return the number of a group of this machine.

    Raises
    ------
    InvalidError
        There is no such group.
    """
    try:
        return (grp.getgrgid(group) if isinstance(group, int) else grp.getgrnam(group)).gr_gid
    except (KeyError, OverflowError):
        raise InvalidError(f"this machine has no group {group!r}") from None


def engine_of(store: Any) -> Any:
    """Return the engine of a store that is to be served.

    Raises
    ------
    InvalidError
        It is no store, e.g. the path of one.
    """
    engine = getattr(store, "_engine", None)
    if engine is None:
        raise InvalidError(
            f"what is served must be an open store, not {type(store).__name__}: nandarray.serve(nandarray.open(PATH))"
        )
    return engine


def native_only(engine: Any, what: str) -> Any:
    """Return the native store behind a store's engine, for what only the process with the file can do.

    Raises
    ------
    DoorError
        It is behind a door.
    """
    if isinstance(engine, Source):
        engine.refuse(what)
    return engine
