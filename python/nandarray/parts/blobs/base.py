"""The keeper of a store's objects, a folder or a bucket, as the rest of :mod:`nandarray.parts` sees it.

An object is made whole if it is absent, and never changed; it is read, listed, deleted. Ages are by the clock of the
folder or the bucket, never by this machine's. Sealed parts are objects, too; a part that is being written is a file of
this machine, which :meth:`Blobs.seal` makes one. :mod:`nandarray.parts.blobs.files` and
:mod:`nandarray.parts.blobs.objects` implement it.

Nothing here knows what is in an object.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple

from nandarray import _nandarray

__all__ = ["Blobs", "BlobFacts", "part_key"]


class BlobFacts(NamedTuple):
    """Size and age of an object."""

    #: Bytes that it takes.
    bytes: int
    #: Time when it was made or touched, in nanoseconds since 1970, by the clock of what keeps it; -1 where that is not
    #: known.
    made_ns: int
    #: Length in bytes.
    length: int = 0

    @property
    def made_at(self) -> float:
        """The time in seconds."""
        return self.made_ns / 1e9

    def age(self, now: float) -> float:
        """Return the seconds since then; 0 where the time is not known, so that the object is never old."""
        return now - self.made_at if self.made_ns >= 0 else 0.0


class Blobs(abc.ABC):
    """The objects below one root, by keys such as ``"leaves/ab12.npy"``.

    Parameters
    ----------
    root : str
        Folder or URL of the store.

    Errors: a FileNotFoundError says that there is no such object; every other error is one of this package.
    """

    #: Whether an object that is not seen after an error of :meth:`put_if_absent` will not appear later.
    settles = True
    #: Seconds between looks at an object that another process is to make.
    poll_s = 0.05
    #: Whether a listing may lack what was made of late.
    lists_late = False
    #: Whether another process can seal a part whose writer has ended.
    adopts = True
    #: Flash geometry of parts that are written; None for the usual one.
    geometry: ClassVar[dict[str, int] | None] = None

    def __init__(self, root: str) -> None:
        self.root = root

    # --- Objects -----------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def path(self, key: str) -> str:
        """Return the file or the URL of an object."""

    @abc.abstractmethod
    def put_if_absent(self, key: str, data: bytes, *, durably: bool = True) -> bool:
        """Make an object if its key is free; return whether this call made it.

        Raises
        ------
        StoreFullError, MediaError, DeniedError
            The object may be there or not.
        """

    @abc.abstractmethod
    def keep(self, key: str, data: bytes) -> None:
        """Have an object whose key tells its content, as young as one that was made just now."""

    @abc.abstractmethod
    def sync(self, folder: str) -> None:
        """Make the names in a folder durable."""

    @abc.abstractmethod
    def get(self, key: str) -> bytes:
        """Read an object."""

    @abc.abstractmethod
    def listed(self, folder: str) -> dict[str, BlobFacts]:
        """List what is in a folder, by the last parts of the keys, sorted; nothing where there is no such folder.

        A folder in it is as young as the youngest object below it.
        """

    def names(self, folder: str) -> list[str]:
        """List the last parts of the keys in a folder, sorted; none where there is no such folder."""
        return list(self.listed(folder))

    @abc.abstractmethod
    def facts(self, key: str) -> BlobFacts:
        """Return size and age of an object."""

    def has(self, key: str) -> bool:
        """Return whether there is an object; an error of what keeps it is a MediaError, not a "no"."""
        try:
            self.facts(key)
        except FileNotFoundError:
            return False
        return True

    def age(self, key: str, now: float) -> float:
        """Return the seconds since an object was made; those since the beginning of time where it is gone."""
        try:
            return self.facts(key).age(now)
        except FileNotFoundError:
            return now

    @abc.abstractmethod
    def touch(self, key: str) -> bool:
        """Make an object as young as one that was made just now; return whether there is one."""

    @abc.abstractmethod
    def delete(self, key: str) -> None:
        """Delete an object, if there is one."""

    @abc.abstractmethod
    def now(self) -> float:
        """Return the time by the clock of what keeps the objects, in seconds."""

    # --- Folders -----------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def prepare(self, folders: tuple[str, ...], first: str) -> None:
        """Make room for a new store with these folders, whose creation begins with the object ``first``.

        Raises
        ------
        StoreExistsError
            There is something else than what a creation leaves that was killed.
        InvalidError
            The place cannot keep a store: it makes objects though they are there, or does not say when it made them.
        """

    @abc.abstractmethod
    def check_writer(self) -> None:
        """Refuse a writer where objects are not made if absent in one step.

        Raises
        ------
        InvalidError
            They are not: two writers would lose each other's versions.
        """

    @abc.abstractmethod
    def make_folder(self, key: str) -> None:
        """Make a folder below the root; a FileExistsError says that it is there."""

    @abc.abstractmethod
    def renew_folder(self, key: str) -> None:
        """Make a folder as young as one that was made just now, if it is there."""

    @abc.abstractmethod
    def drop_folder(self, key: str) -> None:
        """Delete a folder, with the objects in it."""

    # --- Parts -------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def unsealed(self, part: str) -> str:
        """Return the file of this machine to which this process writes a part."""

    @abc.abstractmethod
    def seal(self, part: str) -> None:
        """Make a part that no process writes any more an object, and delete its file.

        Raises
        ------
        FileNotFoundError
            The file is not there, and there is no such object.
        """

    def sign_of(self, part: str) -> Any:
        """Return what differs from look to look while a process elsewhere seals a part; None where that is unknown."""
        return None

    @abc.abstractmethod
    def adopt(self, part: str) -> bool:
        """Seal a part whose writer is gone; return whether it is sealed now, by whatever process.

        Raises
        ------
        PartError
            It is not there, or damaged.
        """

    @abc.abstractmethod
    def discard(self, part: str) -> None:
        """Delete the file of a part that this process has written."""

    @abc.abstractmethod
    def is_written(self, name: str) -> bool:
        """Return whether a process writes the part with this name in ``parts``; its age stays."""

    @abc.abstractmethod
    def sealed_names(self, jobs: list[str]) -> list[str]:
        """List the names in ``parts`` of sealed parts of some jobs, where that costs little; else none."""

    @abc.abstractmethod
    def head(self, part: str, count: int) -> tuple[int, bytes]:
        """Return the length of a sealed part, and its first bytes."""

    @abc.abstractmethod
    def room(self) -> str:
        """Return a folder of this machine for files that become sealed parts here."""

    @abc.abstractmethod
    def file_of(self, part: str, room: str) -> AbstractContextManager[str]:
        """Give a sealed part as a file of this machine; one that is made for that is in ``room``, and goes again."""

    @abc.abstractmethod
    def send_part(self, part: str, file: str) -> None:
        """Make a sealed part with the bytes of a file, which stays."""

    @abc.abstractmethod
    def open_part(self, part: str, options: Mapping[str, Any]) -> _nandarray.Store:
        """Open a sealed part for reading."""


def part_key(part: str, *, sealed: bool = True) -> str:
    """Return the key of a part."""
    return f"parts/{part}.{'nand' if sealed else 'open'}"
