"""The versions of a store of parts: found, read, added to; and its leaves.

A version is added by making its manifest, whose number must be free: that is the commit. A version is in the history if
the next one was made upon it; a commit looks afterwards whether that is so, since the number may have been free
because the version that had it has expired.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import OrderedDict
from typing import Any

import numpy as np

from nandarray.errors import (
    CommitUnknownError,
    CorruptError,
    DeniedError,
    MediaError,
    NotAStoreError,
    NotFoundError,
    StoreExistsError,
    UnsupportedVersionError,
)
from nandarray.parts import leaves as tables
from nandarray.parts.blobs.base import Blobs
from nandarray.parts.leaves import Leaf
from nandarray.parts.manifest import FORMAT, Manifest, key_of, parse, version_of

__all__ = ["FOLDERS", "HEAD", "History", "is_parted", "unknown"]

#: The object that says what a folder is.
HEAD = "nandarray.json"
#: The folders of a store, some of which only a program that writes makes.
FOLDERS = ("manifests", "leaves", "parts", "tags", "jobs", "readers", "tmp")
#: Pause between attempts to see a version that was made, in seconds.
_PAUSE_S = 0.05
#: Leaves that a process keeps in memory, of 352 KiB as they are written, and of at most 3 MiB.
_LEAVES = 64


def is_parted(files: Blobs) -> bool:
    """Return whether there is a store of parts."""
    return files.has(HEAD)


class History:
    """The manifests, leaves and tags of one store."""

    def __init__(self, files: Blobs) -> None:
        self.files = files
        self._lock = threading.Lock()
        self._parsed: tuple[bytes, Manifest] | None = None
        self._tables: OrderedDict[Leaf, np.ndarray[Any, Any]] = OrderedDict()

    @staticmethod
    def make(files: Blobs, identity: str, first: Manifest) -> None:
        """Make a store of parts with a first version, where there is nothing, or what was begun so.

        Raises
        ------
        StoreExistsError
            There is something else.
        InvalidError
            The place cannot keep a store.
        """
        files.prepare(FOLDERS, key_of(first.version))
        said = {"format": "parts", "version": FORMAT, "uuid": identity}
        # The head comes last: a folder without one is no store yet.
        files.put_if_absent(key_of(first.version), first.text())
        if not files.put_if_absent(HEAD, json.dumps(said).encode()):
            raise StoreExistsError(files.root)

    def identity(self) -> str:
        """Return the identity of the store.

        Raises
        ------
        NotAStoreError, UnsupportedVersionError
            The folder has none, or a newer one.
        """
        where = self.files.path(HEAD)
        try:
            said = json.loads(self.files.get(HEAD))
            if said["format"] != "parts":
                raise ValueError(f"its format is {said['format']!r}")
            if said["version"] > FORMAT:
                raise UnsupportedVersionError(
                    f"{where} has format {said['version']}; this program knows formats up to {FORMAT}"
                )
            return str(said["uuid"])
        except (UnsupportedVersionError, MediaError):
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NotAStoreError(f"{self.files.root} has no store of parts: {error}") from None

    # --- Versions ----------------------------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """List the versions there are, the newest first."""
        names = map(version_of, self.files.names("manifests"))
        found = sorted((one for one in names if one is not None), reverse=True)
        if self.files.lists_late:
            while self.files.has(key_of(after := found[0] + 1 if found else 1)):
                found.insert(0, after)
        return found

    def at(self, version: int) -> Manifest:
        """Read a version.

        Raises
        ------
        NotFoundError
            There is none of this number, or none any more.
        CorruptError
            Its manifest is damaged.
        """
        key = key_of(version)
        try:
            data = self.files.get(key)
        except FileNotFoundError:
            there = self.numbers()
            has = f"the versions there are go from {there[-1]} to {there[0]}" if there else "it has no version"
            raise NotFoundError(f"{self.files.root} has no version {version}: {has}") from None
        known = self._parsed  # a transaction reads the newest several times
        if known is None or known[0] != data or known[1].version != version:
            known = self._parsed = data, parse(data, self.files.path(key), version)
        return known[1]

    def newest(self, *, intact: bool = False) -> Manifest:
        """Read the newest version, with ``intact`` the newest of those that can be read."""
        while True:
            there = self.numbers()
            for number in there:
                try:
                    return self.at(number)
                except NotFoundError:  # it has expired since: list again
                    if self.files.lists_late:
                        time.sleep(_PAUSE_S)
                    break
                except CorruptError:
                    if not intact:
                        raise
            else:
                self.identity()  # a newer store may have none here
                raise CorruptError(f"{self.files.root} has no manifest that can be read, of {len(there)}")

    def add(self, manifest: Manifest, text: bytes = b"") -> bool:
        """Add a version if its number is free; return whether it is in the history now.

        ``text`` is that of another place's manifest, if it is a copy.

        Raises
        ------
        CommitUnknownError
            It may be there: the folder could not be read afterwards.
        StoreFullError, MediaError
            It is not there.
        """
        key, text = key_of(manifest.version), text or manifest.text()
        failed: OSError | None = None
        try:
            made = self.files.put_if_absent(key, text)
        except OSError as error:
            made, failed = False, error
        for last in (False, False, True):
            try:
                if not made:
                    if not self._is_there(key, text):  # else the answer may be what was lost
                        break
                    self.files.sync("manifests")
                if self.has(manifest, text):
                    return True
                # Its number was free because the version that had it has expired: a stray that counts for nothing.
                self.files.delete(key)
            except OSError as error:
                if last:
                    raise unknown(manifest, error) from error
                time.sleep(_PAUSE_S)
            else:
                return False
        if failed is not None:
            if not self.files.settles and not isinstance(failed, DeniedError):
                raise unknown(manifest, failed) from failed
            raise failed
        return False

    def _is_there(self, key: str, text: bytes) -> bool:
        try:
            return self.files.get(key) == text
        except FileNotFoundError:
            return False

    def has(self, manifest: Manifest, text: bytes = b"") -> bool:
        """Return whether a version is in the history: the newest, or one that the newest was made upon."""
        numbers = self.numbers()
        if not numbers or numbers[0] <= manifest.version:  # the newest; a list may be late, too
            return self._is_there(key_of(manifest.version), text or manifest.text())
        newest = self.newest()
        found = _ancestor(newest, manifest.version)
        if found is not None:
            return found == manifest.commit
        try:
            return self.at(manifest.version + 1).parent_commit == manifest.commit
        except NotFoundError:
            return False

    def is_stray(self, manifest: Manifest, newest: Manifest | None = None) -> bool:
        """Return whether a manifest is in no history: made in place of one that had expired, by a commit that died."""
        known = _ancestor(newest or self.newest(intact=True), manifest.version)
        return known is not None and known != manifest.commit

    def strays(self) -> set[int]:
        """Return the numbers of manifests that are in no history."""
        numbers, found = self.numbers(), set[int]()
        if len(numbers) < 2:
            return found
        newest = self.newest(intact=True)
        for number in numbers:
            if _ancestor(newest, number) is not None:
                with contextlib.suppress(NotFoundError, CorruptError):
                    if self.is_stray(self.at(number), newest):
                        found.add(number)
        return found

    # --- Tags --------------------------------------------------------------------------------------------------------

    def tag(self, name: str, version: int) -> None:
        """Give a version a name, for good.

        Raises
        ------
        StoreExistsError
            Another version has it.
        NotFoundError
            The version has expired.
        """
        key = f"tags/{name}.json"
        if not self.files.put_if_absent(key, json.dumps({"version": version}).encode()):
            if (has := self.tags().get(name)) != version:
                raise StoreExistsError(f"the tag {name!r} is that of version {has}")
        elif not self.files.has(key_of(version)):  # what expires after that sees the tag
            self.files.delete(key)
            raise NotFoundError(f"{self.files.root} has no version {version} any more: it expired before it was tagged")

    def tags(self) -> dict[str, int]:
        """Return the names of versions."""
        found = {}
        for name in self.files.names("tags"):
            if not name.endswith(".json"):
                continue
            try:
                found[name.removesuffix(".json")] = int(json.loads(self.files.get(f"tags/{name}"))["version"])
            except FileNotFoundError:
                continue
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                raise CorruptError(f"{self.files.path('tags')}/{name}: the tag is damaged: {error}") from None
        return found

    # --- Leaves ------------------------------------------------------------------------------------------------------

    def load(self, leaf: Leaf) -> np.ndarray[Any, Any]:
        """Read a leaf.

        Raises
        ------
        CorruptError
            It is damaged, or not there.
        """
        with self._lock:
            if leaf in self._tables:
                self._tables.move_to_end(leaf)
                return self._tables[leaf]
        key = f"leaves/{leaf.sha}.npy"
        try:
            table = tables.decode(self.files.get(key), leaf, self.files.path(key))
        except FileNotFoundError:
            told = f"leaf {leaf.sha} of {leaf.rows} shards from {leaf.first} on is not there"
            raise CorruptError(f"{self.files.root}: {told}") from None
        self._keep(leaf, table)
        return table

    def _keep(self, leaf: Leaf, table: np.ndarray[Any, Any]) -> None:
        table.flags.writeable = False
        with self._lock:
            self._tables[leaf] = table
            while len(self._tables) > _LEAVES:
                self._tables.popitem(last=False)

    def has_leaf(self, leaf: Leaf) -> bool:
        """Return whether a leaf is there."""
        return self.files.has(f"leaves/{leaf.sha}.npy")

    def put(self, sha: str, data: bytes) -> None:
        """Keep a leaf."""
        key = f"leaves/{sha}.npy"
        self.files.keep(key, data)  # one that is there may be old and named by no version any more: it is young again
        table = tables.table_of(data)
        if len(table):  # the next change of the same shards begins with it
            self._keep(Leaf(int(table["shard"][0]), len(table), sha), table)


def _ancestor(newest: Manifest, number: int) -> str | None:
    """Return the ``commit`` of a version by what a newer one knows of those before it; None if that is not known."""
    back = newest.version - number - 1
    return newest.ancestors[back] if 0 <= back < len(newest.ancestors) else None


def unknown(manifest: Manifest, error: OSError) -> CommitUnknownError:
    """Return the error of a commit that may have made a version."""
    found = CommitUnknownError(
        f"version {manifest.version} may have been committed, as {manifest.commit}: {error}; another commit() or "
        "flush() of the same changes looks for it first"
    )
    found.version, found.commit = manifest.version, manifest.commit
    return found
