"""Pushing, pulling and bringing in step: the versions of one store of parts are copied to another place.

Both places have one store, by its identity, or the target is made with it. Objects are immutable, so what is there is
left alone, and a copy that was interrupted goes on where it ended. Leaves come first, then parts, then manifests in
their order: a version is there when all that it names is, and each is added by create-if-absent, as a commit adds it.
A target with versions of its own that the source has not is refused; nothing is merged.

Parts that no version of the target names yet are kept by jobs: each version on its way is the draft of one, whose name
is made of its text, so that a copy that goes on has the same jobs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from nandarray import _nandarray
from nandarray.errors import (
    ConflictError,
    CorruptError,
    InvalidError,
    NotFoundError,
    PartError,
)
from nandarray.parts.blobs.base import BlobFacts, Blobs, part_key
from nandarray.parts.blobs.places import blobs_of
from nandarray.parts.history import FOLDERS, HEAD, History, is_parted
from nandarray.parts.leases import Alive, Lease
from nandarray.parts.leaves import Leaf, Row
from nandarray.parts.manifest import Manifest, draft_key, key_of
from nandarray.parts.writer import Sealed, facts_of, seal_facts

__all__ = ["Tell", "pull", "push", "sync"]

#: Called with what is copied, how many of them were, and how many there are to copy.
Tell = Callable[[str, int, int], None]

_SIDE_BY_SIDE = 4
_NONE = BlobFacts(0, -1, -1)
_T = TypeVar("_T")
_Path = str | os.PathLike[str]


def push(folder: _Path, url: str, *, storage: Any = None, tell: Tell | None = None) -> dict[str, int]:
    """Copy the versions of a store of parts that a bucket lacks to it; or make the store there.

    Objects that are there are left alone, so that a push which was interrupted goes on where it ended. Each part is
    verified before it is sent. Tags are copied, too.

    Parameters
    ----------
    folder : path_like
        The store.
    url : str
        The place in a bucket (``s3://BUCKET/KEY``), or another folder.
    storage : obstore.store.ObjectStore, optional
        The store of objects of ``url``, as for :func:`create`.
    tell : callable, optional
        Function that is called with what is copied (``"leaves"``, ``"parts"``, ``"versions"``), how many of them were,
        and how many there are.

    Returns
    -------
    dict
        Numbers of ``versions``, ``parts``, ``leaves`` and ``tags`` that were copied, and the ``bytes`` of parts.

    Raises
    ------
    ConflictError
        The target has a version, or a tag, of its own: names it.
    InvalidError
        The target has another store, or cannot keep one.
    PartError, CorruptError
        A part or a leaf is missing or damaged: no version was copied.

    Examples
    --------
    >>> from nandarray import parts
    >>> with parts.create("sky.nand") as store:
    ...     store["a"] = np.arange(3)
    >>> parts.push("sky.nand", "copy.nand")["versions"], parts.push("sky.nand", "copy.nand")["versions"]
    (2, 0)
    """
    return _copied(blobs_of(folder), blobs_of(url, storage), tell)


def pull(url: str, folder: _Path, *, storage: Any = None, tell: Tell | None = None) -> dict[str, int]:
    """Copy the versions of a store of parts in a bucket that a folder lacks to it; or make the store there.

    Parameters
    ----------
    url : str
        The place in a bucket.
    folder : path_like
        The folder of the store.
    storage, tell : optional
        As for :func:`push`.

    Returns
    -------
    dict
        As of :func:`push`, with its errors.
    """
    return _copied(blobs_of(url, storage), blobs_of(folder), tell)


def sync(one: _Path, other: _Path, *, storage: Any = None, tell: Tell | None = None) -> dict[str, int]:
    """Copy both ways the versions and tags of a store of parts that either of two places lacks.

    Parameters
    ----------
    one, other : path_like or str
        Folders, or places in buckets; one of them may be absent.
    storage : obstore.store.ObjectStore or fsspec.AbstractFileSystem, optional
        The store of objects of ``other``.
    tell : callable, optional
        As for :func:`push`.

    Returns
    -------
    dict
        Sums of both ways, as of :func:`push`.

    Raises
    ------
    ConflictError
        Both have versions that the other has not, or a tag of two versions: names it.
    """
    ahead, behind = blobs_of(one), blobs_of(other, storage)
    if not is_parted(ahead) or (is_parted(behind) and History(behind).numbers()[:1] > History(ahead).numbers()[:1]):
        ahead, behind = behind, ahead
    there, back = _copied(ahead, behind, tell), _copied(behind, ahead, tell)
    return {key: there[key] + back[key] for key in there}


def _copied(source: Blobs, target: Blobs, tell: Tell | None) -> dict[str, int]:
    made = _Copy(source, target, tell or (lambda *_: None))
    with made.held():
        return made.done()


class _Copy:
    def __init__(self, source: Blobs, target: Blobs, tell: Tell) -> None:
        self._from, self._to, self._tell = source, target, tell
        self._old, self._new = History(source), History(target)
        self._lease: Lease | None = None
        self._jobs: dict[str, Alive] = {}
        self._count = {"versions": 0, "parts": 0, "leaves": 0, "tags": 0, "bytes": 0}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the source's newest version, so that what it names stays."""
        self._identity = self._old.identity()
        newest = self._old.newest()
        self._lease = Lease(self._from, newest.version)
        try:
            yield
        finally:
            self._lease.release()

    def done(self) -> dict[str, int]:
        """Copy all that the target lacks."""
        there = self._there()
        versions, tags = self._lacking(there), self._tags(there)
        if versions:
            try:
                self._begin(versions, is_new=not there)
                self._fill(versions)
                self._add(versions, there)
                if not there and not self._to.put_if_absent(HEAD, self._from.get(HEAD)):
                    self._there()  # another copy of the same was quicker, or it is refused
            finally:
                for alive in self._jobs.values():
                    alive.release()
            for job in self._jobs:
                self._to.drop_folder(f"jobs/{job}")
        for name, number in tags.items():
            with contextlib.suppress(NotFoundError):  # it has expired there: the tag would hold nothing
                self._new.tag(name, number)
                self._count["tags"] += 1
        return self._count

    # --- Versions to copy --------------------------------------------------------------------------------------------

    def _there(self) -> list[int]:
        """Return the versions that the target has; none if there is no store yet."""
        if not is_parted(self._to):
            return []
        if (has := self._new.identity()) != self._identity:
            raise InvalidError(
                f"{self._to.root} has the store {has}, which must be {self._identity}, that of {self._from.root}: "
                "versions are copied between places of one store"
            )
        strays = self._new.strays()
        return [number for number in self._new.numbers() if number not in strays]

    def _own(self) -> list[int]:
        strays = self._old.strays()
        return [number for number in self._old.numbers() if number not in strays]

    def _lacking(self, there: list[int]) -> list[Manifest]:
        """Return the versions that the target lacks, the oldest first."""
        own = self._own()
        if not there:
            return [self._old.at(number) for number in reversed(own)]
        self._check_history(own, there)
        named = set(self._old.tags().values())
        wanted = [n for n in own if n not in there and (n > there[0] or n in named)]
        return [self._old.at(number) for number in reversed(wanted)]

    def _check_history(self, own: list[int], there: list[int]) -> None:
        """Refuse a target whose newest version is not of the source's history, or the other way round."""
        if there[0] >= own[0]:
            newest, older, who = self._new.newest(), self._old.newest(), self._to.root
        else:
            newest, older, who = self._old.newest(), self._new.newest(), self._from.root
        ahead = self._new if who == self._to.root else self._old
        found = _commit_at(ahead, newest, older.version)
        if found is None:
            raise ConflictError(
                f"{who} is at version {newest.version}, and what it knows of those before it does not reach back to "
                f"version {older.version} of the other: it is not known whether they have one history"
            )
        if found != older.commit:
            first = self._first_difference(own, there)
            error = ConflictError(
                f"version {first} of {self._to.root} is another one than that of {self._from.root}: both have versions "
                "that the other has not, and nothing was copied"
            )
            error.version = first
            raise error

    def _first_difference(self, own: list[int], there: list[int]) -> int:
        both = sorted(set(own) & set(there))
        for number in both:
            if self._old.at(number).commit != self._new.at(number).commit:
                return number
        return min(own[0], there[0])

    def _tags(self, there: list[int]) -> dict[str, int]:
        """Return the tags that the target lacks."""
        has = self._new.tags() if there else {}
        wanted = self._old.tags()
        for name, number in wanted.items():
            if has.get(name, number) != number:
                error = ConflictError(
                    f"the tag {name!r} is version {has[name]} in {self._to.root} and version {number} in "
                    f"{self._from.root}: nothing was copied"
                )
                error.version = number
                raise error
        return {name: number for name, number in wanted.items() if name not in has}

    # --- Copying -----------------------------------------------------------------------------------------------------

    def _begin(self, versions: list[Manifest], *, is_new: bool) -> None:
        """Make room for a new store, and jobs that keep what is copied."""
        self._to.check_writer()
        own = _job(self._identity.encode())
        if is_new and own not in self._to.names("jobs"):  # else an earlier copy has begun it
            self._to.prepare(FOLDERS, key_of(versions[0].version))
        for job in (own, *(_job(one.text()) for one in versions)):
            with contextlib.suppress(FileExistsError):  # an earlier copy's
                self._to.make_folder(f"jobs/{job}")
            self._jobs[job] = Alive(self._to, f"jobs/{job}")

    def _fill(self, versions: list[Manifest]) -> None:
        """Copy leaves and parts of versions."""
        leaves = {leaf.sha: leaf for one in versions for entry in one.arrays.values() for leaf in entry.leaves}
        has = self._to.names("leaves")
        self._each("leaves", [leaf for sha, leaf in leaves.items() if f"{sha}.npy" not in has], self._leaf)
        for one in versions:
            self._to.put_if_absent(draft_key(_job(one.text())), one.text())
        rows: dict[str, Row] = {}
        for leaf in leaves.values():
            for part, size, head in np.unique(self._old.load(leaf)[["part", "bytes", "head"]]).tolist():
                rows[part.hex()] = Row(0, part.hex(), size, head)
        for again in (False, True):  # a gc that had begun before the drafts were there may have taken an old one
            sizes = self._to.listed("parts")
            lacking = [row for part, row in rows.items() if sizes.get(f"{part}.nand", _NONE).length != row.bytes]
            if lacking or not again:
                self._each("parts", sorted(lacking, key=lambda row: row.part), self._part)

    def _leaf(self, leaf: Leaf) -> None:
        key = f"leaves/{leaf.sha}.npy"
        self._old.load(leaf)  # it is whole
        self._to.put_if_absent(key, self._from.get(key))
        self._count["leaves"] += 1

    def _part(self, row: Row) -> None:
        wanted = Sealed(row.bytes, row.head)
        where = self._from.path(part_key(row.part))
        try:
            with self._from.file_of(row.part, self._to.room()) as file:
                if (has := facts_of(file)) != wanted:
                    raise PartError(
                        f"{where} has {has.bytes} bytes and the head {has.head:016x}, which must be {row.bytes} and "
                        f"{row.head:016x}: it was not copied"
                    )
                errors = _nandarray.Store.open(file, "r").check()["errors"]
                if errors:
                    raise PartError(f"{where} is damaged, and was not copied: {errors[0]}")
                self._to.send_part(row.part, file)
            if seal_facts(self._to, row.part) != wanted:
                raise PartError(f"{self._to.path(part_key(row.part))} is there and damaged: it was not copied over")
        except FileNotFoundError:
            raise PartError(f"{where} is not there") from None
        except CorruptError as error:
            raise PartError(f"{where} is damaged, and was not copied: {error}") from error
        self._count["parts"] += 1
        self._count["bytes"] += row.bytes

    def _each(self, what: str, things: list[_T], do: Callable[[_T], None]) -> None:
        """Do something with each, several side by side, and tell how many were done."""
        self._tell(what, 0, len(things))
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="nandarray-copy") as pool:
            left = {pool.submit(do, one) for one in things}
            try:
                while left:
                    done, left = wait(left, return_when=FIRST_EXCEPTION, timeout=0.5)
                    for one in done:
                        one.result()
                    self._tell(what, len(things) - len(left), len(things))
            finally:
                for one in left:
                    one.cancel()

    def _add(self, versions: list[Manifest], there: list[int]) -> None:
        """Add versions, in their order."""
        for at, one in enumerate(versions):
            text = self._from.get(key_of(one.version))
            if there and one.version < there[0]:  # one with a tag, which has expired there: it is of the same history
                added = self._to.put_if_absent(key_of(one.version), text) or self._new.at(one.version) == one
                self._to.sync("manifests")
            else:
                added = self._new.add(one, text)
            if not added:
                error = ConflictError(
                    f"version {one.version} was committed in {self._to.root} while versions were copied to it: those "
                    f"from {one.version} on were not copied"
                )
                error.version = one.version
                raise error
            self._count["versions"] += 1
            self._tell("versions", at + 1, len(versions))


def _job(text: bytes) -> str:
    """Return the name of the job that keeps the parts of what has a text."""
    return hashlib.sha256(text).hexdigest()[:16]


def _commit_at(history: History, newest: Manifest, number: int) -> str | None:
    """Return the ``commit`` of a version of a history whose newest is given; None if that is not known."""
    if number == newest.version:
        return newest.commit
    back = newest.version - number - 1
    if back < len(newest.ancestors):
        return newest.ancestors[back]
    with contextlib.suppress(NotFoundError):
        return history.at(number).commit
    with contextlib.suppress(NotFoundError):
        return history.at(number + 1).parent_commit
    return None
