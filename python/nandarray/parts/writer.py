"""Parts: ordinary store files, each written by one process for one job, then sealed and never changed again.

An unsealed part is ``parts/<id>.open``; its writer holds the lock of the file. Sealing closes it and links it to
``parts/<id>.nand``. The first half of an id names the job. A part whose writer was lost is adopted: opened for
writing, which its lock lets only if no process has it, and sealed. Shards are its arrays ``s/0``, ``s/1``, ...

A sealed part is known by its length and by the hash of its first 8192 bytes, which are the superblocks: its identity,
and where its last checkpoint lies. The pages behind have checksums of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nandarray import _nandarray
from nandarray.errors import (
    CorruptError,
    NandarrayError,
    NotAStoreError,
    NotFoundError,
    PartError,
    UnsupportedVersionError,
)
from nandarray.parts.blobs.base import Blobs, part_key
from nandarray.parts.blobs.files import head_of
from nandarray.parts.leaves import Row
from nandarray.parts.manifest import Entry

__all__ = [
    "OpenPart",
    "OpenParts",
    "Sealed",
    "facts_of",
    "job_of",
    "misfit",
    "new_job",
    "seal_facts",
    "shard_name",
]

_HEAD_BYTES = 8192
#: Sealed parts that a process keeps open.
_KEPT = 64


@dataclass(frozen=True)
class Sealed:
    """By what a sealed part is known: its length in bytes, and the first eight bytes of its head's SHA-256."""

    bytes: int
    head: int


def new_job() -> str:
    """Return the name of a new job: 16 hexadecimal digits."""
    return secrets.token_hex(8)


def job_of(part: str) -> str:
    """Return the job of a part."""
    return part[:16]


def shard_name(number: int) -> str:
    """Return the name that a shard has in its part."""
    return f"s/{number}"


def seal_facts(files: Blobs, part: str) -> Sealed:
    """Return by what a sealed part is known."""
    return _sealed(*files.head(part, _HEAD_BYTES))


def facts_of(path: str) -> Sealed:
    """Return by what a sealed part in a file is known."""
    return _sealed(*head_of(path, _HEAD_BYTES))


def _sealed(count: int, head: bytes) -> Sealed:
    return Sealed(count, int.from_bytes(hashlib.sha256(head).digest()[:8], "little"))


def misfit(space: _nandarray.Space, entry: Entry, number: int) -> str | None:
    """Return why an array of a part is no shard of an array; None if it may be."""
    box = entry.box(number)
    most = tuple(high - low for low, high in zip(*box, strict=True))
    if (space.itemsize, space.dtype) != (entry.itemsize, entry.dtype):
        return f"it has {space.dtype} of {space.itemsize} bytes, which must be {entry.dtype} of {entry.itemsize}"
    if len(space.shape) != len(most) or any(a > b for a, b in zip(space.shape, most, strict=True)):
        return f"it has the shape {tuple(space.shape)}, which must be at most {most}"
    return None


class OpenPart:
    """A part that this process writes."""

    def __init__(self, files: Blobs, job: str, options: Mapping[str, Any]) -> None:
        self.part = job + secrets.token_hex(8)
        self._files, self._options = files, dict(options)
        self.engine = _nandarray.Store.open(files.unsealed(self.part), "x", geometry=files.geometry, **options)
        self._numbers = itertools.count()

    def create(self, entry: Entry, shape: tuple[int, ...]) -> tuple[int, _nandarray.Space]:
        """Make an array for a shard; return its number and itself."""
        number = next(self._numbers)
        space = self.engine.create(
            shard_name(number),
            shape,
            entry.itemsize,
            entry.dtype,
            building_block=entry.building_block,
            compression=entry.compression,
            fill=bytes.fromhex(entry.fill),
        )
        return number, space

    def seal(self) -> Sealed:
        """End writing, and give the part the name that says so; if that fails, it is open for writing again."""
        try:
            self.engine.close()
            self._files.seal(self.part)
            return seal_facts(self._files, self.part)
        except FileNotFoundError:
            told = f"part {self.part} of {self._files.root} is not there any more: its job was ended"
            raise PartError(told) from None
        except BaseException:
            with contextlib.suppress(NandarrayError, OSError):
                self.engine = _nandarray.Store.open(self._files.unsealed(self.part), "r+", **self._options)
            raise

    def let_go(self) -> None:
        """End writing, and leave the part for a process that adopts it."""
        with contextlib.suppress(NandarrayError):
            self.engine.close()

    def discard(self) -> None:
        """Delete the part."""
        self.let_go()
        self._files.discard(self.part)


class _Kept:
    """The sealed parts of all stores that this process has open for reading, and their arrays; the newest used last."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.open: OrderedDict[tuple[int, str], tuple[_nandarray.Store, dict[int, _nandarray.Space]]] = OrderedDict()

    def forget(self, owner: int) -> None:
        """Let go of those of one owner."""
        with self.lock:
            for key in [key for key in self.open if key[0] == owner]:
                del self.open[key]

    def forked(self) -> None:
        """Begin with a free lock: the thread that may have had it stayed behind."""
        self.lock = threading.RLock()


_kept = _Kept()
_owners = itertools.count()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_kept.forked)


class OpenParts:
    """The sealed parts of a source that are open for reading: with those of other sources at most 64 a process."""

    def __init__(self, files: Blobs, options: Mapping[str, Any]) -> None:
        self._files = files
        self._options = dict(options)
        self._owner = next(_owners)
        weakref.finalize(self, _kept.forget, self._owner)

    def space(self, row: Row) -> _nandarray.Space:
        """Return a shard.

        Raises
        ------
        PartError
            Its part is not there, is not what was sealed, or is damaged.
        """
        key = self._owner, row.part
        with _kept.lock:
            kept = _kept.open.get(key)
            if kept is not None:
                _kept.open.move_to_end(key)
                if row.array in kept[1]:
                    return kept[1][row.array]
        engine, spaces = kept or (self.engine(row), {})
        try:
            space = engine.open_space(shard_name(row.array))
        except (NotFoundError, CorruptError) as error:
            raise PartError(f"part {row.part} of {self._files.root} has no shard {row.array}: {error}") from error
        with _kept.lock:
            engine, spaces = _kept.open.setdefault(key, (engine, spaces))
            spaces[row.array] = space
            while len(_kept.open) > _KEPT:
                _kept.open.popitem(last=False)
        return space

    def engine(self, row: Row) -> _nandarray.Store:
        """Open a part, and compare it with what was sealed."""
        path = self._files.path(part_key(row.part))
        try:
            if (facts := seal_facts(self._files, row.part)) != Sealed(row.bytes, row.head):
                has = f"it has {facts.bytes} bytes and the head {facts.head:016x}"
                raise PartError(
                    f"{path} is not the part that was sealed: {has}, which must be {row.bytes} and {row.head:016x}"
                )
            return self._files.open_part(row.part, self._options)
        except PartError:
            raise
        except FileNotFoundError:
            raise PartError(f"{path} is not there") from None
        except (CorruptError, NotAStoreError, UnsupportedVersionError) as error:
            raise PartError(f"{path} cannot be read: {error}") from error

    def forget(self) -> None:
        """Let go of all parts."""
        _kept.forget(self._owner)
