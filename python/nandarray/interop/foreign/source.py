"""A file of another format, as :class:`~nandarray.array.store.Store` stands on it: arrays and groups that are read.

Each array is read in units: chunks, or runs of elements side by side where there are none. A read is cut at the borders
of units, which several threads find and decode; the newest decoded ones are kept, within :data:`KEPT_BYTES` for all
arrays of a store. So the memory of a read is its result, what is kept, and a few units.

Rows of variable length are copied into a file of this process without a name when they are first looked at: a store
has them as several arrays. Programs run on copies of what their tasks read (:mod:`.programs`).
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any, Never

import numpy as np

from nandarray import dtypes
from nandarray.array.attribute_types import merged
from nandarray.array.attributes import to_json
from nandarray.array.creation import fill_bytes
from nandarray.array.fork import StoreLock
from nandarray.array.names import MARKER
from nandarray.door import Source, Space
from nandarray.errors import ClosedError, CorruptError, DoorError, InvalidError, NotFoundError, ReadOnlyError
from nandarray.index.shapes import Box, box_shape, run_shape
from nandarray.interop.convert.members import Member
from nandarray.interop.convert.members import Source as Contents
from nandarray.interop.convert.slabs import slab_shape
from nandarray.interop.convert.sources import foreign_errors
from nandarray.interop.foreign.files import File
from nandarray.interop.foreign.hdf5_chunks import Hdf5Chunks
from nandarray.interop.foreign.programs import execute
from nandarray.interop.foreign.rows import CopiedRows
from nandarray.parts.bounds import axes_of, check_axes, check_points
from nandarray.parts.near import ScratchEngine
from nandarray.parts.pieces import Piece, pieces, point_groups
from nandarray.parts.views import move_view

__all__ = ["KEPT_BYTES", "ForeignSource", "ForeignSpace"]

_Array = np.ndarray[Any, Any]

#: Bytes of decoded units that a store keeps.
KEPT_BYTES = 64 << 20
#: Bytes of a run of elements that have no chunks, and of the inner chunks of a shard that are read together.
_UNIT_BYTES = 1 << 20
_THREADS_MAX = 16
#: Bytes of units, decoded, whose stored bytes are fetched together.
_BATCH_BYTES = 32 << 20
#: Bytes of units that are decoded at the same time, if there is more than one.
_FLYING_BYTES = 256 << 20


class _Kept:
    """The newest decoded units."""

    def __init__(self) -> None:
        self._lock = StoreLock()
        self._units: OrderedDict[tuple[str, tuple[int, ...]], _Array] = OrderedDict()
        self._bytes = 0

    def get(self, key: tuple[str, tuple[int, ...]]) -> _Array | None:
        with self._lock:
            found = self._units.get(key)
            if found is not None:
                self._units.move_to_end(key)
            return found

    def put(self, key: tuple[str, tuple[int, ...]], unit: _Array) -> None:
        with self._lock:
            if unit.nbytes > KEPT_BYTES // 2 or key in self._units:
                return
            self._units[key] = unit
            self._bytes += unit.nbytes
            while self._bytes > KEPT_BYTES:
                self._bytes -= self._units.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        with self._lock:
            self._units.clear()
            self._bytes = 0


@dataclass(frozen=True)
class _Stored:
    """An array: its description, and how a unit of it is read."""

    told: dict[str, Any]
    dtype: np.dtype[Any]
    unit: tuple[int, ...]
    load: Callable[[Box], _Array | None]
    #: Fetches what units are made of, before they are read.
    ahead: Callable[[Sequence[Box]], None] | None = None
    #: The dataset of h5py, if it is one.
    item: Any = None


class ForeignSource(Source):
    """The arrays and groups of a file of another format.

    Parameters
    ----------
    path : str
        The path or URL.
    contents : nandarray.interop.convert.members.Source
        The arrays and groups of it.
    file : File or None
        The file, for ranges; None where the objects of a folder are read.
    closing : ExitStack
        Lets go of all of it.
    limit : int
        The most bytes that a chunk may take.
    """

    door = "a file of another format"
    chooses_form = False

    def __init__(self, path: str, contents: Contents, file: File | None, closing: ExitStack, limit: int) -> None:
        super().__init__(path, read_only=True)
        self.file = file
        #: Whether closing waits for reads that are under way: they use descriptors that are closed then.
        self.waits = True
        #: Lets go of the file when this is let go of, and when Python ends: before the libraries are gone.
        self._closing = weakref.finalize(self, closing.close)
        self.scratch = ScratchEngine()
        self.kept = _Kept()
        #: By number, the programs that were loaded: machine code and metadata.
        self.programs: dict[int, tuple[bytes, bytes]] = {}
        self._closed = False
        self._lock = StoreLock()
        self._threads: tuple[int, ThreadPoolExecutor] | None = None
        #: Why an array that is there cannot be read, by its name.
        self.refused = dict(contents.refused)
        self._arrays: dict[str, _Stored] = {}
        self._rows: dict[str, CopiedRows] = {}
        for member in contents.members:
            if member.ragged is not None:
                self._rows[member.name] = CopiedRows(member, self.scratch)
            else:
                self._arrays[member.name] = _stored(member, path, file, limit)
        self._groups = {f"{name}/{MARKER}" if name else MARKER: attrs for name, attrs in contents.groups.items()}

    # --- The store ---------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""
        return self._closed

    def check_open(self) -> None:
        """Refuse what needs an open store."""
        if self._closed:
            raise ClosedError(f"the store {self.path!r} is closed")

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            threads, self._threads = self._threads, None
        if threads is not None and threads[0] == os.getpid():
            threads[1].shutdown(wait=self.waits, cancel_futures=True)
        self.kept.clear()
        self._closing()

    def flush(self) -> None:
        """Do nothing: there is nothing to write."""
        self.check_open()

    def refresh(self) -> None:
        """Refuse a file that was changed or replaced."""
        self.check_open()
        if self.file is not None:
            self.file.check()

    def state(self) -> Any:
        """Return what changes with what is read; no name twice where that is not known."""
        found = None if self.file is None else self.file.state()
        return os.urandom(16).hex() if found is None else (self.path, *found)

    def refuse(self, what: str) -> Never:
        """Say that a file of another format cannot do something, and that a copy can."""
        raise DoorError(f"{self.path}: {self.door} has no {what.partition(':')[0]}; import_ copies it into a store")

    def check_writable(self) -> Never:
        """Refuse a change."""
        self.check_open()
        raise ReadOnlyError(f"{self.path} is read in place: import_ copies it into a store that is written")

    def create(self, name: str, *given: Any, **options: Any) -> Never:
        """Refuse a change."""
        self.check_writable()

    def together(
        self,
        *,
        delete: Sequence[str] = (),
        rename: Sequence[tuple[str, str]] = (),
        attrs: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Refuse a change."""
        self.check_writable()

    def stage(self, spaces: Any) -> Never:
        """Refuse a change."""
        self.check_writable()

    def names(self, prefix: str = "") -> list[str]:
        """List the full names of arrays that begin with a prefix, sorted."""
        self.check_open()
        found = [*self._arrays, *self._groups]
        for path, rows in self._rows.items():
            found += [f"{path}/{base}" for base in rows.bases]
        return sorted(name for name in found if name.startswith(prefix))

    def __contains__(self, name: str) -> bool:
        self.check_open()
        if name in self._arrays or name in self._groups or name in self.refused:
            return True
        group, _, base = name.rpartition("/")
        return group in self._rows and base in self._rows[group].bases

    def describe(self, name: str) -> dict[str, Any]:
        """Describe an array, or raise NotFoundError."""
        self.check_open()
        if name in self._arrays:
            return self._arrays[name].told
        if name in self._groups:
            return _marker(name, self._groups[name])
        group, _, base = name.rpartition("/")
        if group in self._rows and base in self._rows[group].bases:
            return self._rows[group].describe(base)
        if name in self.refused:
            raise InvalidError(self.refused[name])
        raise NotFoundError(f"no array {name!r} in {self.path!r}")

    def open_space(self, name: str, *, encryption_key: bytes | None = None) -> Space:
        """Open an array."""
        if encryption_key is not None:
            self.refuse("encrypted arrays")
        told = self.describe(name)
        group, _, base = name.rpartition("/")
        if name in self._arrays:
            return ForeignSpace(self, self._arrays[name])
        if name in self._groups:
            return ForeignSpace(self, _Stored(told, np.dtype("u1"), (1,), lambda box: None))
        return ForeignSpace(self, _Stored(told, dtypes.decode(told["dtype"]), *self._rows[group].units(base)))

    # --- Programs ----------------------------------------------------------------------------------------------------

    def load_program(self, elf: bytes, metadata: bytes | None = None) -> int:
        """Take a program for runs."""
        self.check_open()
        number = self.scratch.engine.load_program(elf, metadata)
        self.programs[number] = (elf, metadata or b"{}")
        return number

    def unload_program(self, program: int) -> None:
        """Forget a program."""
        self.programs.pop(program, None)
        self.scratch.engine.unload_program(program)

    def execute(self, asked: Any, watch: Any) -> dict[str, Any]:
        """Run programs on what their tasks read."""
        self.check_open()
        if any(isinstance(one, tuple) for stage in asked.stages for one in stage.outputs):
            self.check_writable()
        return execute(self.scratch, self.programs, asked, watch)

    def end_run(self, watch: Any) -> bool:
        """End a run, which looks at ``watch``."""
        watch.cancel()
        return True

    # --- Threads -----------------------------------------------------------------------------------------------------

    def threads(self) -> ThreadPoolExecutor:
        """Return the threads of this process that read units."""
        with self._lock:
            self.check_open()
            if self._threads is None or self._threads[0] != os.getpid():
                count = min(_THREADS_MAX, 2 * (os.cpu_count() or 1))
                self._threads = os.getpid(), ThreadPoolExecutor(count, thread_name_prefix="nandarray-foreign")
            return self._threads[1]


def _marker(name: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    return _told(name, (0,), np.dtype("u1"), (1,), attrs)


def _told(
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    block: tuple[int, ...],
    attrs: Mapping[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """Return the description of an array."""
    fill = more.get("fill") or bytes(dtype.itemsize)
    return {
        "name": name,
        "shape": shape,
        "itemsize": dtype.itemsize,
        "dtype": dtypes.encode(dtype),
        "building_block": block,
        "compression": more.get("compression"),
        "encrypted": False,
        "fill": fill,
        "attrs": to_json(merged({}, attrs)),
    }


def _stored(member: Member, path: str, file: File | None, limit: int) -> _Stored:
    """Return an array by its member."""
    dtype = dtypes.check(member.dtype)
    shape = tuple(member.shape)
    chunks = None
    if member.chunks is not None:
        chunks = tuple(max(1, min(c, max(1, n))) for c, n in zip(member.chunks, shape, strict=True))
    most = max(1, _UNIT_BYTES // max(1, dtype.itemsize))
    load: Callable[[Box], _Array | None] = member.read
    ahead: Callable[[Sequence[Box]], None] | None = None
    if member.item is not None and file is not None and shape:
        found = Hdf5Chunks(member.item, file, member.name, dtype, limit)
        unit = found.unit
        ahead = found.ahead if file.ahead is not None else None

        def load(box: Box) -> _Array | None:
            return found.read(box, member.read)

    elif chunks is None:
        unit = run_shape(shape, most)
    elif member.grain is not None and tuple(member.grain) != chunks:
        unit = slab_shape(chunks, most, block=member.grain)
    else:
        unit = chunks
    block = unit if chunks is None or member.grain is None else member.grain
    fill = fill_bytes(member.fill, dtype)
    told = _told(member.name, shape, dtype, block, member.attrs, fill=fill, compression=member.compression)

    looked = member.item is not None
    lock = StoreLock()

    def named(box: Box) -> _Array | None:
        nonlocal looked
        try:
            with foreign_errors(path), lock if not looked else nullcontext():
                # Chunks that the library decodes on its own are compared with the memory that they may take, once.
                for _ in () if looked else member.stored() or ():
                    pass
                looked = True
            with foreign_errors(path):
                return load(box)
        except (CorruptError, ClosedError):
            raise
        except InvalidError as error:
            where = tuple(one.start for one in box)
            raise CorruptError(f"array {member.name!r}, chunk at {where} in {path}: {error}") from error

    return _Stored(told, dtype, tuple(max(1, n) for n in unit), named, ahead, member.item)


class ForeignSpace(Space):
    """An array of a file of another format."""

    source: ForeignSource
    #: Keys of its description that a copy has on which programs run: the copy is as an import makes it.
    copied_with = ("fill",)

    def __init__(self, source: ForeignSource, stored: _Stored) -> None:
        super().__init__(source, stored.told)
        self._stored = stored
        self.id = str(stored.told["name"])

    @property
    def scratch(self) -> ScratchEngine:
        """The engine beside which programs on this array run."""
        return self.source.scratch

    def stat(self) -> dict[str, Any]:
        """Return the number of chunks; of HDF5 also how many there are, and their bytes in the file."""
        sides = zip(self.shape, self.building_block, strict=True)
        found = {"blocks": prod(-(-n // side) for n, side in sides)}
        if (item := self._stored.item) is not None:
            with foreign_errors(self.source.path):
                stored = int(item.id.get_storage_size())
                chunks = int(item.id.get_num_chunks()) if item.chunks is not None else found["blocks"] * bool(stored)
            found |= {"blocks_allocated": chunks, "bytes_stored": stored}
        return found

    # --- Reading -----------------------------------------------------------------------------------------------------

    def read(
        self, out: _Array, start: Sequence[int], step: Sequence[int] | None = None, view: Sequence[int] | None = None
    ) -> None:
        """Read the box ``start + step * [0, out.shape)`` of the array, or of its view."""
        if view is not None and tuple(view) != self.shape:
            move_view(self, out, start, step, tuple(view), reads=True)
            return
        self.read_outer(out, axes_of(start, step, out.shape))

    def write(
        self, src: _Array, start: Sequence[int], step: Sequence[int] | None = None, view: Sequence[int] | None = None
    ) -> None:
        """Refuse a change."""
        self.source.check_writable()

    def write_boxes(self, src: _Array, starts: _Array, step: Sequence[int], view: Sequence[int] | None = None) -> None:
        """Refuse a change."""
        self.source.check_writable()

    def write_outer(self, src: _Array, axes: Sequence[Any]) -> None:
        """Refuse a change."""
        self.source.check_writable()

    def write_points(self, src: _Array, coords: _Array) -> None:
        """Refuse a change."""
        self.source.check_writable()

    def set_attrs(self, attrs: str) -> None:
        """Refuse a change."""
        self.source.check_writable()

    def resize(self, shape: Sequence[int]) -> None:
        """Refuse a change."""
        self.source.check_writable()

    def append(self, src: _Array, axis: int) -> Never:
        """Refuse a change."""
        self.source.check_writable()

    def deallocate(self, start: Sequence[int], count: Sequence[int]) -> None:
        """Refuse a change."""
        self.source.check_writable()

    def read_boxes(self, out: _Array, starts: _Array, step: Sequence[int], view: Sequence[int] | None = None) -> None:
        """Read boxes of the shape of ``out[0]``, one a row of ``starts``."""
        for box, start in zip(out, starts, strict=True):
            self.read(box, [int(at) for at in start], step, view)

    def read_outer(self, out: _Array, axes: Sequence[Any]) -> None:
        """Read the product of runs and index arrays."""
        check_axes(axes, self.shape)
        if out.size:
            memory = _plain(out)
            self._each(
                pieces(axes, self._stored.unit), lambda piece: self._piece(memory, piece), lambda piece: piece.place
            )

    def _piece(self, out: _Array, piece: Piece) -> None:
        unit = self._unit(piece.place)
        where = piece.place_in(out)
        if unit is None:
            out[where] = self._fill(out.dtype)
            return
        if piece.is_box:
            taken: Any = tuple(slice(at, at + by * (count - 1) + 1, by) for at, by, count in piece.taken)
            out[(*where, ...)] = unit.view(out.dtype)[(*taken, ...)]
            return
        lists = [
            np.arange(one[0], one[0] + one[1] * (one[2] - 1) + 1, one[1]) if isinstance(one, tuple) else one
            for one in piece.taken
        ]
        out[where] = unit.view(out.dtype)[np.ix_(*(one.astype(np.intp) for one in lists))]

    def read_points(self, out: _Array, coords: _Array) -> None:
        """Read single elements."""
        check_points(coords, self.shape)
        memory = _plain(out)
        if not self.shape:
            unit = self._unit(())
            memory[...] = self._fill(memory.dtype) if unit is None else unit.view(memory.dtype)
            return

        def some(group: tuple[tuple[int, ...], _Array, _Array]) -> None:
            place, own, local = group
            unit = self._unit(place)
            taken = tuple(local.T.astype(np.intp))
            memory[own] = self._fill(memory.dtype) if unit is None else unit.view(memory.dtype)[taken]

        self._each(point_groups(coords, self._stored.unit), some, lambda group: group[0])

    def _fill(self, dtype: np.dtype[Any]) -> Any:
        return np.frombuffer(self._stored.told["fill"], dtype)[0]

    def _box(self, place: Sequence[int]) -> Box:
        """Return the box of a unit."""
        sides = zip(place, self._stored.unit, self.shape, strict=True) if self.shape else ()
        return tuple(slice(at * n, min(at * n + n, end)) for at, n, end in sides)

    def _unit(self, place: Sequence[int]) -> _Array | None:
        """Return the elements of a unit; None where nothing is stored for it."""
        key = (self.id, tuple(int(at) for at in place))
        kept = self.source.kept.get(key)
        if kept is not None:
            return kept
        self.source.check_open()
        box = self._box(key[1])
        found = self._stored.load(box)
        if found is None:
            return None
        if found.shape != box_shape(box):
            raise CorruptError(f"array {self.id!r} of {self.source.path} gives {found.shape} for {box_shape(box)}")
        unit = np.asarray(found)
        if unit.dtype != self._stored.dtype:
            unit = unit.astype(self._stored.dtype)
        unit = np.ascontiguousarray(unit).reshape(box_shape(box))
        self.source.kept.put(key, unit)
        return unit

    def _each(self, given: Iterator[Any], work: Callable[[Any], None], place_of: Callable[[Any], Any]) -> None:
        """Do work for each of some, several at once where there are several; ``place_of`` gives the unit of one."""
        first = next(given, None)
        second = next(given, None)
        if first is None:
            return
        if second is None:
            work(first)
            return
        threads = self.source.threads()
        every = _chain(first, second, given)
        if self._stored.ahead is None:
            self._together(threads, every, work)
            return
        batches = self._batches(every)
        batch = next(batches, None)
        coming = None if batch is None else threads.submit(self._ahead, batch, place_of)
        while batch is not None and coming is not None:
            coming.result()
            following = next(batches, None)
            coming = None if following is None else threads.submit(self._ahead, following, place_of)
            try:
                self._together(threads, iter(batch), work)
            except BaseException:
                if coming is not None:
                    coming.cancel()
                raise
            batch = following

    def _batches(self, given: Iterator[Any]) -> Iterator[list[Any]]:
        most = max(1, _BATCH_BYTES // (prod(self._stored.unit) * self._stored.dtype.itemsize))
        while batch := list(islice(given, most)):
            yield batch

    def _ahead(self, batch: list[Any], place_of: Callable[[Any], Any]) -> None:
        places = [tuple(int(at) for at in place_of(one)) for one in batch]
        missing = [one for one in dict.fromkeys(places) if self.source.kept.get((self.id, one)) is None]
        assert self._stored.ahead is not None
        with foreign_errors(self.source.path):
            self._stored.ahead([self._box(one) for one in missing])

    def _together(self, threads: ThreadPoolExecutor, given: Iterator[Any], work: Callable[[Any], None]) -> None:
        room = max(1, min(2 * _THREADS_MAX, _FLYING_BYTES // (prod(self._stored.unit) * self._stored.dtype.itemsize)))
        flying: set[Future[None]] = set()
        try:
            for one in given:
                flying.add(threads.submit(work, one))
                if len(flying) >= room:
                    done, flying = wait(flying, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
            for future in flying:
                future.result()
        finally:
            for future in flying:
                future.cancel()
            wait(flying)


def _chain(first: Any, second: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield second
    yield from rest


def _plain(memory: _Array) -> _Array:
    """Return memory of raw elements as one of integers, where there are such: they are copied many times faster."""
    size = memory.dtype.itemsize
    if memory.dtype.kind == "V" and memory.dtype.names is None and size in (1, 2, 4, 8):
        return memory.view(f"u{size}")
    return memory
