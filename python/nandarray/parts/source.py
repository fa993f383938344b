"""A store of parts, as :class:`~nandarray.array.store.Store` stands on it: a version, and changes that are to follow.

Reads go to the sealed parts that have the shards. Changes are a draft (:mod:`nandarray.parts.draft`): names, shapes and
attributes in memory, shards in one part of this process. A shard that is written in part is first copied into it
whole; once there, it is written in place. A commit makes them the next version; until then only this source has them.
A write is one command on each shard that it touches.

In a worker, a source has a fork's draft for its version and can write elements alone (:mod:`nandarray.parts.forks`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nandarray import _nandarray
from nandarray.door import Source, Space
from nandarray.errors import (
    ClosedError,
    CorruptError,
    InvalidError,
    NandarrayError,
    NotFoundError,
    PartError,
    ReadOnlyError,
)
from nandarray.parts import resizing
from nandarray.parts.arrivals import Arrivals, arriving
from nandarray.parts.bounds import axes_of, check_axes, check_points, read_inside
from nandarray.parts.draft import Draft
from nandarray.parts.gate import Gate, sharing
from nandarray.parts.history import History
from nandarray.parts.leases import Alive, Lease
from nandarray.parts.leaves import Row, rows_of
from nandarray.parts.manifest import Entry, Manifest, Span, base_key, key_of
from nandarray.parts.near import ScratchEngine
from nandarray.parts.pieces import Piece, pieces, point_groups
from nandarray.parts.staging import Staging
from nandarray.parts.views import move_view
from nandarray.parts.writer import OpenPart, OpenParts, misfit, new_job, shard_name

__all__ = ["SHARD_BYTES", "PartSpace", "PartsSource", "Stats"]

_Array = np.ndarray[Any, Any]

#: Bytes of the elements of a shard, if its array is that large.
SHARD_BYTES = 256 << 20
#: Shards beyond which an array does not list its building blocks.
_LISTED = 4096
_BOXES = "a worker writes boxes without steps: no index arrays, no masks"


@dataclass
class Stats:
    """Counts of a transaction: what it wrote and what that cost."""

    shards_written: int = 0
    shards_copied: int = 0
    bytes_copied: int = 0
    shards_merged: int = 0
    bytes_merged: int = 0
    receipts: int = 0
    parts_sealed: int = 0
    tries: int = 0


class PartsSource(Source):
    """A version of a store of parts, with changes."""

    door = "a store of parts"
    no_snapshots = "snapshots: it has versions, which tag() names and at() opens"
    has_workers = True
    chooses_form = False

    def __init__(
        self,
        history: History,
        base: Manifest,
        *,
        read_only: bool,
        options: Mapping[str, Any],
        pinned: bool = False,
        job: str | None = None,
    ) -> None:
        super().__init__(history.files.root, read_only=read_only)
        self.history, self.files = history, history.files
        self.draft = Draft.of(base)
        self.pinned = pinned
        #: The job of a fork, in whose worker this is; None in the process that commits.
        self.fork_job = job
        self.job = job or new_job()
        self.parts = OpenParts(self.files, options)
        self.options = dict(options)
        self.scratch = ScratchEngine()
        self.stats = Stats()
        #: Passed before the lock is taken, never with it.
        self.gate = Gate()
        self.lock = threading.RLock()
        self._closed = False
        self._process = os.getpid()
        self._own: OpenPart | None = None
        self._spaces: dict[int, _nandarray.Space] = {}
        self._locks: dict[tuple[str, int], threading.Lock] = {}
        self._sharding = threading.local()
        #: Called with the shards and the box of each write: in a worker, for its receipts.
        self.notes: Callable[[Entry, Span, list[tuple[int, int]]], None] | None = None
        #: Holds off the sealing of a worker's part while elements are written.
        self.writing: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        #: Function that says how an array is opened in another process.
        self.reduces: Callable[[PartSpace], tuple[Any, ...] | None] | None = None
        self._arrivals: Callable[[], Arrivals | None] = lambda: None
        #: Options by which another process opens what is in a bucket.
        self.far: tuple[tuple[str, Any], ...] = ()
        #: Names of jobs whose folders are to be deleted.
        self.jobs: list[str] = []
        #: Whether a version may be there that names this source's parts, though no answer says so.
        self.may_be_named = False
        #: An attempt to commit of which that is so, for the next one (:mod:`nandarray.parts.commit`).
        self.tried: Any = None
        self._lease: Lease | None = None
        self._alive: list[Alive] = []
        #: Counts changes, or attempts of them.
        self.changes = 0
        #: By the id of its watch, the event that ends a run at workers.
        self.ending: dict[int, threading.Event] = {}

    # --- The store ---------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""
        return self._closed

    @property
    def arrivals(self) -> Arrivals | None:
        """The receipts that workers have handed over; None in a worker, and when the store is gone."""
        return self._arrivals()

    @arrivals.setter
    def arrivals(self, arrivals: Arrivals) -> None:
        # Not held: a store that is let go of without being closed ends at once, and its lease with it.
        self._arrivals = weakref.ref(arrivals)

    @property
    def is_home(self) -> bool:
        """Whether this is the process that opened it: one that was forked neither commits nor deletes."""
        return os.getpid() == self._process

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold off all other threads that read, write or change it."""
        with self.gate.alone(), self.lock:
            yield

    def close(self) -> None:
        """Let go of all parts; what was not committed is gone."""
        self.discard()
        self._closed = True
        self.parts.forget()
        if self._lease is not None:
            self._lease.release()

    def flush(self) -> None:
        """Do nothing: the store commits."""
        self._check_open()

    def refresh(self) -> None:
        """See the newest version, if nothing was changed here and none was chosen."""
        self._check_open()
        with self.alone():
            if not self.pinned and not self.draft.is_changed and self.fork_job is None:
                number = self.history.numbers()
                if number and number[0] != self.draft.base.version:
                    self.begin(lambda: self.history.newest(intact=self.read_only))

    def begin(self, read: Callable[[], Manifest], base: Manifest | None = None) -> None:
        """See a version that ``read`` gives, or has given, and hold it, so that it does not expire."""
        self.see(base or read())
        while not self.files.has(key_of(self.draft.base.version)):  # it expired before it was held
            self.see(read())

    def see(self, base: Manifest) -> None:
        """See a version, and hold it."""
        old, self._lease = self._lease, Lease(self.files, base.version)
        self.draft = Draft.of(base)
        if old is not None:
            old.release()

    def discard(self) -> None:
        """Forget what was changed."""
        with self.alone():
            self.drop_own()
            self.draft, self.tried = Draft.of(self.draft.base), None

    def drop_own(self, *, leave: bool = False) -> None:
        """Delete the part of this process, or leave it for adoption; no row of the draft may have it."""
        own, self._own = self._own, None
        self._spaces, self._locks = {}, {}
        if own is not None and self.is_home:
            (own.let_go if leave else own.discard)()

    def stage(self, spaces: Sequence[tuple[Any, Sequence[int]]]) -> Staging:
        """Begin several changes that are made as one, with the shapes that arrays will have."""
        self._check_names()
        return Staging(self, spaces)

    def names(self, prefix: str = "") -> list[str]:
        """List the full names of arrays that begin with a prefix, sorted."""
        self._check_open()
        return sorted(name for name in self.draft.arrays if name.startswith(prefix))

    def __contains__(self, name: str) -> bool:
        self._check_open()
        return name in self.draft.arrays

    def describe(self, name: str) -> dict[str, Any]:
        """Describe an array, or raise NotFoundError."""
        return _told(name, self._entry(name))

    def open_space(self, name: str, *, encryption_key: bytes | None = None) -> PartSpace:
        """Open an array."""
        if encryption_key is not None:
            self.refuse("encrypted arrays")
        return PartSpace(self, self._entry(name).id)

    def _entry(self, name: str) -> Entry:
        self._check_open()
        try:
            return self.draft.arrays[name]
        except KeyError:
            raise NotFoundError(f"no array {name!r} in {self.path!r}") from None

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the store {self.path!r} is closed")

    def check_writable(self) -> None:
        """Refuse a change of a store that was opened for reading, or whose version was chosen."""
        self._check_open()
        if self.read_only:
            raise ReadOnlyError(f"{self.path} was opened with mode 'r'")
        if not self.is_home:
            raise ClosedError(
                f"this process was forked from the one that has {self.path!r} open for writing; open it here"
            )

    def begin_change(self) -> None:
        """Refuse a change where :meth:`check_writable` does, or count it."""
        self.check_writable()
        self.changes += 1

    def _check_names(self) -> None:
        """Refuse a change of names in a worker."""
        self.begin_change()
        if self.fork_job is not None:
            self.refuse("change of names, shapes and attributes by a worker: make it in the transaction")

    # --- Names -------------------------------------------------------------------------------------------------------

    @contextmanager
    def sharding(self, shards: Sequence[int] | None) -> Iterator[None]:
        """Make arrays of this thread with shards of this shape."""
        self._sharding.shape = shards
        try:
            yield
        finally:
            self._sharding.shape = None

    def create(
        self,
        name: str,
        shape: Sequence[int],
        itemsize: int,
        dtype: str,
        *,
        building_block: Sequence[int] | None = None,
        compression: str | None = None,
        encryption_key: bytes | None = None,
        fill: bytes | None = None,
        attrs: str = "{}",
    ) -> PartSpace:
        """Create an array."""
        self._check_names()
        if encryption_key is not None:
            self.refuse("encrypted arrays")
        options = {"building_block": building_block, "compression": compression, "fill": fill, "attrs": attrs}
        told = self.scratch.judged(name, shape, itemsize, dtype, **options)
        block = told["building_block"]
        shard = resizing.shard_shape(
            getattr(self._sharding, "shape", None), told["shape"], block, itemsize, SHARD_BYTES
        )
        entry = Entry(
            id=uuid.uuid4().hex,
            shape=tuple(told["shape"]),
            dtype=dtype,
            itemsize=itemsize,
            shard=shard,
            building_block=tuple(block),
            fill=bytes(told["fill"]).hex(),
            compression=told["compression"],
            attrs=attrs,
        )
        resizing.check_count(entry)
        with self.lock:
            self.draft.arrays = {**self.draft.arrays, name: entry}
        return PartSpace(self, entry.id)

    def together(
        self,
        *,
        delete: Sequence[str] = (),
        rename: Sequence[tuple[str, str]] = (),
        attrs: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Delete, rename, and set attributes by name, all as one."""
        self._check_names()
        with self.lock:
            arrays = dict(self.draft.arrays)
            try:
                gone = [arrays.pop(name) for name in delete]
                moving = [(new, arrays.pop(old)) for old, new in rename]
                arrays.update(moving)
                for name, text in attrs:
                    arrays[name] = replace(arrays[name], attrs=text)
            except KeyError as error:
                raise NotFoundError(f"no array {error.args[0]!r} in {self.path!r}") from None
            self.draft.arrays = arrays
            for entry in gone:
                self.draft.rows.pop(entry.id, None)

    def changed(self, entry: Entry, **changes: Any) -> None:
        """Change an entry."""
        self._check_names()
        with self.lock:
            name = self.draft.names()[entry.id]
            self.draft.arrays = {**self.draft.arrays, name: replace(self.draft.arrays[name], **changes)}

    # --- Programs ----------------------------------------------------------------------------------------------------

    def load_program(self, elf: bytes, metadata: bytes | None = None) -> int:
        """Take a program for runs."""
        self._check_open()
        return self.scratch.engine.load_program(elf, metadata)

    def unload_program(self, program: int) -> None:
        """Forget a program."""
        self.scratch.engine.unload_program(program)

    def execute(self, asked: Any, watch: _nandarray.Watch) -> dict[str, Any]:
        """Run programs on what is gathered of the arrays."""
        self._check_open()
        if any(isinstance(one, tuple) for stage in asked.stages for one in stage.outputs):
            self.check_writable()
        return self.scratch.execute(asked, watch)

    def end_run(self, watch: Any) -> bool:
        """End a run, which looks at ``watch``, or at workers at its event."""
        watch.cancel()
        if (ended := self.ending.get(id(watch))) is not None:
            ended.set()
        return True

    # --- Shards ------------------------------------------------------------------------------------------------------

    def shard(self, entry: Entry, number: int) -> _nandarray.Space | None:
        """Return the array that has a shard; None if it was never written.

        Raises
        ------
        PartError
            Its part is missing or damaged: named with the version, the shard and its box.
        """
        row = self.draft.row(entry, number, self.history.load)
        if row is None:
            return None
        if self._own is not None and row.part == self._own.part:
            return self._spaces[row.array]
        try:
            space = self.parts.space(row)
            if (wrong := misfit(space, entry, number)) is not None:
                raise PartError(f"array {row.array} of part {row.part}: {wrong}")
        except PartError as error:
            raise self._located(entry, number, error) from error
        return space

    def _located(self, entry: Entry, number: int, error: Exception) -> PartError:
        name, box = self.draft.names().get(entry.id, entry.id), entry.box(number)
        told = "x".join(f"[{low}:{high}]" for low, high in zip(*box, strict=True))
        version = self.draft.base.version
        return PartError(f"version {version}: array {name!r}, shard {number} with the box {told}: {error}")

    def own_part(self) -> OpenPart:
        """Return the part that this process writes; made when it is first needed."""
        with self.lock:
            if self._own is None:
                if self.fork_job is None:
                    self.make_job(self.job)
                self._own = OpenPart(self.files, self.job, self.options)
            return self._own

    def make_job(self, job: str) -> None:
        """Make the folder of a job, if it is absent; it keeps the version from which the job began."""
        with contextlib.suppress(FileExistsError):
            self.files.make_folder(f"jobs/{job}")
            self.jobs.append(job)
            self._alive.append(Alive(self.files, f"jobs/{job}"))
            self.files.put_if_absent(base_key(job), self.draft.base.text())

    def own_shard(
        self, entry: Entry, number: int, *, whole: bool = False, shape: tuple[int, ...] | None = None
    ) -> tuple[int, _nandarray.Space]:
        """Return a shard to write to, in this process's own part, and its number there.

        Unless it is to be written ``whole``, it has what the shard has so far. It has the shape of the shard's box, or
        the given one.
        """
        if shape is None:
            shape = tuple(b - a for a, b in zip(*entry.box(number), strict=True))
        with self.lock:
            guard = self._locks.setdefault((entry.id, number), threading.Lock())
        with guard:
            row = self.draft.row(entry, number, self.history.load)
            if row is not None and self._own is not None and row.part == self._own.part:
                space = self._spaces[row.array]
                if tuple(space.shape) != shape:
                    space.resize(shape)
                return row.array, space
            own = self.own_part()
            at, space = own.create(entry, shape)
            old = None if whole or row is None else self.shard(entry, number)
            moved = 0 if old is None else resizing.copy_blocks(old, space)
            with self.lock:
                self._spaces[at] = space
                self.draft.rows.setdefault(entry.id, {})[number] = Row(at, own.part)
                self.stats.shards_written += 1
                self.stats.shards_copied += old is not None
                self.stats.bytes_copied += moved
            return at, space

    def rows_now(self, entry: Entry) -> Iterator[tuple[int, Row]]:
        """Yield all shards that have rows."""
        changes = self.draft.rows.get(entry.id, {})
        for number, row in rows_of(entry.leaves, self.history.load):
            if number not in changes:
                if number >= entry.shard_count:
                    raise CorruptError(f"{self.path}: shard {number} of an array that has {entry.shard_count}")
                yield number, row
        yield from ((number, row) for number, row in list(changes.items()) if row is not None)

    def drop_shard(self, entry: Entry, number: int) -> None:
        """Give a shard back: its elements are the fill value from now on."""
        with self.lock:
            if self.draft.row(entry, number, self.history.load) is not None:
                self.draft.rows.setdefault(entry.id, {})[number] = None

    def seal_own(self) -> None:
        """Seal this process's part, so that others may read it."""
        with self.alone():
            own = self._own
            if own is None or not self.is_home:
                return
            try:
                facts = own.seal()
            except BaseException:
                with contextlib.suppress(NandarrayError, OSError):
                    self._spaces = {at: own.engine.open_space(shard_name(at)) for at in self._spaces}
                raise
            self._own, self._spaces, self._locks = None, {}, {}
            self.stats.parts_sealed += 1
            for rows in self.draft.rows.values():
                for number, row in rows.items():
                    if row is not None and row.part == own.part:
                        rows[number] = replace(row, bytes=facts.bytes, head=facts.head)

    def let_jobs_go(self) -> None:
        """Leave the folders of all jobs to the process that goes on with them."""
        with self.lock:
            alive, self.jobs, self._alive = self._alive, [], []
            for one in alive:
                one.release()

    def end_jobs(self, named: Collection[str] | None = None) -> None:
        """Delete the folders of all jobs, which were committed or given up, and their sealed parts but the named."""
        with self.lock:
            jobs, self.jobs, alive, self._alive = self.jobs, [], self._alive, []
            if not self.is_home:
                return
            for one in alive:
                one.release()
            kept = None if self.may_be_named else named
            for job in jobs:
                self.files.drop_folder(f"jobs/{job}")
            for name in () if kept is None else self.files.sealed_names(jobs):
                if kept is not None and name.removesuffix(".nand") not in kept:
                    self.files.delete(f"parts/{name}")
            if self.fork_job is None:
                self.job = new_job()

    def state(self) -> Any:
        """Return what changes with what is read."""
        return self.draft.base.commit

    def reduced(self, space: Any) -> tuple[Any, ...] | None:
        """Return how an array that may be written is opened in another process."""
        return None if self.reduces is None else self.reduces(space)

    def flush_own(self) -> None:
        """Make what was written to this process's part durable."""
        with self.gate.shared():
            if self._own is not None:
                self._own.engine.flush()


class PartSpace(Space):
    """An array of a store of parts."""

    source: PartsSource
    #: Keys of its description that a copy has on which programs run.
    copied_with = ("building_block", "compression", "fill")

    def __init__(self, source: PartsSource, identity: str) -> None:
        super().__init__(source, {})
        self.id = identity
        self._last: tuple[dict[str, Entry], str, Entry] | None = None

    @property
    def scratch(self) -> ScratchEngine:
        """The engine beside which programs on this array run."""
        return self.source.scratch

    def named(self) -> tuple[str, Entry]:
        """Return the name and the entry as they are now."""
        self.source._check_open()
        arrays = self.source.draft.arrays
        if self._last is None or self._last[0] is not arrays:
            found = next(((name, one) for name, one in arrays.items() if one.id == self.id), None)
            if found is None:
                known = "an array" if self._last is None else f"array {self._last[1]!r}"
                raise ClosedError(f"{known} was deleted")
            self._last = (arrays, *found)
        return self._last[1], self._last[2]

    @property
    def entry(self) -> Entry:
        """The entry as it is now."""
        return self.named()[1]

    @property
    def shard(self) -> tuple[int, ...]:
        """Shape of a shard."""
        return self.entry.shard

    def known(self) -> dict[str, Any]:
        """Return the description as it is now."""
        return _told(*self.named())

    def set_attrs(self, attrs: str) -> None:
        """Replace the attributes."""
        self.source.changed(self.entry, attrs=attrs)

    @arriving(writes=True)
    def resize(self, shape: Sequence[int]) -> None:
        """Give it another shape."""
        self.source._check_names()
        with self.source.alone():
            resizing.resize(self.source, self.named()[0], self.entry, tuple(shape))

    @arriving(writes=True)
    def append(self, src: _Array, axis: int) -> tuple[int, ...]:
        """Grow one axis and write the new part; return the new shape."""
        with self.source.alone():
            old = self.shape
            self.resize([has + src.shape[axis] if at == axis else has for at, has in enumerate(old)])
            try:
                self.write(src, [has if at == axis else 0 for at, has in enumerate(old)])
            except BaseException:
                self.resize(old)
                raise
            return self.shape

    @arriving(writes=True)
    @sharing
    def deallocate(self, start: Sequence[int], count: Sequence[int]) -> None:
        """Give a box back: whole shards are dropped."""
        self.source.begin_change()
        entry = self.entry
        axes = [(low, 1, length) for low, length in zip(start, count, strict=True)]
        check_axes(axes, entry.shape)
        if self.source.fork_job is not None:
            super().deallocate(start, count)
            return
        for piece, number in self._written(entry, axes):
            low, high = entry.box(number)
            if piece.covers([b - a for a, b in zip(low, high, strict=True)]):
                self.source.drop_shard(entry, number)
            else:
                first, lengths = [one[0] for one in piece.taken], list(piece.counts)
                self.source.own_shard(entry, number)[1].deallocate(first, lengths)

    def _written(self, entry: Entry, axes: Sequence[Any]) -> Iterator[tuple[Piece, int]]:
        """Yield the pieces of a box whose shards were written, and their shards' numbers."""
        for number in sorted(number for number, _ in self.source.rows_now(entry)):
            low, high = entry.box(number)
            own = [
                (max(0, start - a), 1, min(b, start + length) - max(a, start))
                for (start, _, length), a, b in zip(axes, low, high, strict=True)
            ]
            if all(one[2] > 0 for one in own):
                yield Piece(entry.place(number), (), tuple(own)), number

    @arriving()
    @sharing
    def blocks(self) -> _Array | None:
        """List the building blocks that have content; None where there are many shards."""
        entry = self.entry
        if sum(leaf.rows for leaf in entry.leaves) > _LISTED:
            return None
        found = []
        for number, _ in self.source.rows_now(entry):
            if (space := self.source.shard(entry, number)) is None:
                continue
            low, _ = entry.box(number)
            first = np.array(
                [at // block for at, block in zip(low, entry.building_block, strict=True)] or [0], np.uint64
            )
            found.append(space.blocks().reshape(-1, max(1, len(entry.shape))) + first)
        if not found:
            return np.empty(0, np.uint64)
        every = np.concatenate(found)
        inside = [-(-length // block) for length, block in zip(entry.shape, entry.building_block, strict=True)] or [1]
        every = every[(every < np.array(inside, np.uint64)).all(axis=1)]
        return np.ascontiguousarray(every[np.lexsort(every.T[::-1])]).reshape(-1)

    @arriving()
    @sharing
    def stat(self) -> dict[str, Any]:
        """Return the use of space: the sum of its shards."""
        entry, total = self.entry, dict[str, Any]()
        for number, _ in self.source.rows_now(entry):
            space = self.source.shard(entry, number)
            for key, value in {} if space is None else space.stat().items():
                total[key] = total.get(key, 0) + value if isinstance(value, int) else value
        shards = sum(1 for _ in self.source.rows_now(entry))
        return {**total, "shards": entry.shard_count, "shards_written": shards}

    # --- Moving elements ---------------------------------------------------------------------------------------------

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
        """Write the box ``start + step * [0, src.shape)`` of the array, or of its view."""
        if view is not None and tuple(view) != self.shape:
            move_view(self, src, start, step, tuple(view), reads=False)
            return
        self.write_outer(src, axes_of(start, step, src.shape))

    def read_boxes(self, out: _Array, starts: _Array, step: Sequence[int], view: Sequence[int] | None = None) -> None:
        """Read boxes of the shape of ``out[0]``, one a row of ``starts``."""
        for box, start in zip(out, starts, strict=True):
            self.read(box, [int(at) for at in start], step, view)

    def write_boxes(self, src: _Array, starts: _Array, step: Sequence[int], view: Sequence[int] | None = None) -> None:
        """Write boxes of the shape of ``src[0]``, one after the other."""
        for box, start in zip(src, starts, strict=True):
            self.write(box, [int(at) for at in start], step, view)

    @arriving(2)
    @sharing
    def read_outer(self, out: _Array, axes: Sequence[Any]) -> None:
        """Read the product of runs and index arrays."""
        entry = self.entry
        check_axes(axes, entry.shape)
        if out.size:
            for piece in pieces(axes, entry.shard):
                self._read_piece(out, piece, entry)

    def _read_piece(self, out: _Array, piece: Piece, entry: Entry) -> None:
        where = piece.place_in(out)
        direct = isinstance(where, tuple) and all(isinstance(one, slice) for one in where)
        space = self.source.shard(entry, entry.number(piece.place))
        memory = out[(*where, ...)] if direct else np.empty(piece.counts, out.dtype)
        shape = () if space is None else space.shape
        if space is None or not piece.lies_in(shape):
            memory[...] = np.frombuffer(bytes.fromhex(entry.fill), out.dtype)[0]
        if space is not None:
            read_inside(space, memory, piece)
        if not direct:
            out[where] = memory

    @arriving(2, writes=True)
    @sharing
    def write_outer(self, src: _Array, axes: Sequence[Any]) -> None:
        """Write the product of runs and index arrays."""
        self.source.begin_change()
        entry = self.entry
        check_axes(axes, entry.shape)
        if not src.size:
            return
        notes = self.source.notes
        if notes is not None and any(not isinstance(one, tuple) or (one[1] != 1 and one[2] != 1) for one in axes):
            raise InvalidError(_BOXES)
        with self.source.writing():
            touched = [self._write_piece(src, piece, entry) for piece in pieces(axes, entry.shard)]
            if notes is not None:
                notes(entry, (tuple(one[0] for one in axes), tuple(one[0] + one[2] for one in axes)), touched)

    def _write_piece(self, src: _Array, piece: Piece, entry: Entry) -> tuple[int, int]:
        number = entry.number(piece.place)
        low, high = entry.box(number)
        whole = piece.covers([b - a for a, b in zip(low, high, strict=True)])
        at, space = self.source.own_shard(entry, number, whole=whole)
        part = src[piece.place_in(src)] if src.ndim else src
        if piece.is_box:
            space.write(part, [one[0] for one in piece.taken], [one[1] for one in piece.taken])
        else:
            space.write_outer(np.ascontiguousarray(part), list(piece.taken))
        return number, at

    @arriving(2)
    @sharing
    def read_points(self, out: _Array, coords: _Array) -> None:
        """Read single elements."""
        entry = self.entry
        check_points(coords, entry.shape)
        fill = np.frombuffer(bytes.fromhex(entry.fill), out.dtype)[0]
        if not entry.shape:
            one = np.empty((), out.dtype)
            self.read(one, ())
            out[...] = one
            return
        for place, own, local in point_groups(coords, entry.shard):
            space = self.source.shard(entry, entry.number(place))
            if space is None:
                out[own] = fill
                continue
            inside = (local < np.array(space.shape, np.uint64)).all(axis=1)
            found = np.empty(len(own), out.dtype)
            if inside.all():
                space.read_points(found, local)
            else:
                some = np.empty(int(inside.sum()), out.dtype)
                space.read_points(some, np.ascontiguousarray(local[inside]))
                found[inside], found[~inside] = some, fill
            out[own] = found

    @arriving(2, writes=True)
    @sharing
    def write_points(self, src: _Array, coords: _Array) -> None:
        """Write single elements; of equal ones the last."""
        self.source.begin_change()
        if self.source.notes is not None:
            raise InvalidError(_BOXES)
        entry = self.entry
        check_points(coords, entry.shape)
        if not entry.shape:
            self.write(src[-1:].reshape(()), ())
            return
        for place, own, local in point_groups(coords, entry.shard):
            _, space = self.source.own_shard(entry, entry.number(place))
            space.write_points(np.ascontiguousarray(src[own]), local)


def _told(name: str, entry: Entry) -> dict[str, Any]:
    return {
        "name": name,
        "shape": entry.shape,
        "itemsize": entry.itemsize,
        "dtype": entry.dtype,
        "building_block": entry.building_block,
        "compression": entry.compression,
        "encrypted": False,
        "fill": bytes.fromhex(entry.fill),
        "attrs": entry.attrs,
    }
