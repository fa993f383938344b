"""Ranges of bytes of files that stay as they are: one file, a folder, an archive (.zip).

A :class:`File` gives ranges of one file, :class:`Objects` those of many by their keys. A local file is held open and
compared with what its path names before each read: one that was changed or replaced is an error, since its index was
read before. Links are not followed out of a folder. Nothing here knows a format.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nandarray.array.fork import StoreLock
from nandarray.errors import ChangedError, ClosedError, InvalidError, MediaError
from nandarray.inputs import open_input

__all__ = ["Archive", "File", "Folder", "LocalFile", "Objects", "Range"]

#: First byte and number of bytes.
Range = tuple[int, int]


class File:
    """One file, of which ranges are read."""

    #: The path or URL, for messages.
    path: str
    #: Fetches ranges that will be read next; None where that gains nothing.
    ahead: Callable[[Sequence[Range]], None] | None = None

    def check(self) -> None:
        """Refuse a file that is not the one that was opened any more.

        Raises
        ------
        ChangedError
            It was changed or replaced.
        """

    def state(self) -> Any:
        """Return what changes with the content; None where that is not known."""

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return the bytes of some ranges; a range beyond the end has fewer."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the file."""


class LocalFile(File):
    """A file of this machine."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: Any = open_input(path)
        self._opened = _identity(os.fstat(self._file.fileno()))

    def check(self) -> None:
        """Refuse a file that was changed, replaced or deleted."""
        if self._file is None:
            raise ClosedError(f"{self.path} is closed")
        try:
            same = _identity(os.stat(self.path)) == self._opened == _identity(os.fstat(self._file.fileno()))
        except FileNotFoundError:
            same = False
        except OSError as error:
            raise MediaError(error.errno, error.strerror, self.path) from error
        if not same:
            raise ChangedError(
                f"{self.path}: the file was changed, replaced or deleted since it was opened; open it again"
            )

    def state(self) -> Any:
        """Return what changes with the content."""
        return self._opened

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return the bytes of some ranges; a range beyond the end has fewer."""
        self.check()
        try:
            return [_pread(self._file.fileno(), at, count) for at, count in ranges]
        except OSError as error:
            raise MediaError(error.errno, error.strerror, self.path) from error

    def close(self) -> None:
        """Let go of the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _pread(handle: int, at: int, count: int) -> bytes:
    found = os.pread(handle, count, at)
    if len(found) == count or not found:
        return found
    pieces = [found]
    done = len(found)
    while done < count and (more := os.pread(handle, count - done, at + done)):
        pieces.append(more)
        done += len(more)
    return b"".join(pieces)


class Objects:
    """Many objects, which have keys with ``/`` between their parts."""

    #: The path or URL, for messages.
    path: str
    #: Whether keys can be listed, and whether what a list of names in one object says is taken for that.
    lists, far = True, False
    #: The most bytes of an object that is read whole from far away.
    most: int | None = None

    def size(self, key: str) -> int | None:
        """Return the number of bytes of an object; None where there is none."""
        raise NotImplementedError

    def read(self, key: str, at: int = 0, count: int | None = None) -> bytes | None:
        """Return bytes of an object, all of them by default; None where there is none."""
        raise NotImplementedError

    def names(self, folder: str) -> Iterator[str]:
        """Yield the names of objects and folders directly in a folder, which is empty for the root."""
        raise NotImplementedError

    def state(self) -> Any:
        """Return what changes with the content; None where that is not known."""

    def close(self) -> None:
        """Let go of all."""


class Folder(Objects):
    """The files of a folder of this machine."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._real = os.path.realpath(path)

    def _place(self, key: str) -> str:
        place = os.path.join(self._real, *key.split("/"))
        if os.path.realpath(place) != place:
            raise InvalidError(
                f"{self.path}: {key} is behind a link, which is followed only by an import of a trusted source "
                "(import_ with trusted=True)"
            )
        return place

    def size(self, key: str) -> int | None:
        """Return the number of bytes of an object; None where there is none."""
        try:
            status = os.stat(self._place(key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def read(self, key: str, at: int = 0, count: int | None = None) -> bytes | None:
        """Return bytes of an object, all of them by default; None where there is none."""
        place = self._place(key)
        try:
            if os.path.isdir(place):
                return None
            with open_input(place) as file:
                if not at and count is None:
                    return file.read()
                return _pread(file.fileno(), at, os.fstat(file.fileno()).st_size - at if count is None else count)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise MediaError(error.errno, error.strerror, place) from error

    def names(self, folder: str) -> Iterator[str]:
        """Yield the names directly in a folder."""
        try:
            yield from sorted(os.listdir(self._place(folder) if folder else self._real))
        except (FileNotFoundError, NotADirectoryError):
            return


class Archive(Objects):
    """The members of a .zip file: those that are stored are read by range, compressed ones whole.

    Parameters
    ----------
    file : File
        The archive, for ranges.
    seeks : path or file object
        The archive, for its directory and compressed members.
    limit : int
        The most bytes that a compressed member may have.
    """

    def __init__(self, file: File, seeks: Any, limit: int) -> None:
        self.path, self._limit = file.path, limit
        self._file = file
        try:
            self._zip = zipfile.ZipFile(seeks)
        except zipfile.BadZipFile as error:
            raise InvalidError(f"{file.path} is not a .zip file, or is damaged: {error}") from error
        self._lock = StoreLock()
        self._members = {one.filename: one for one in self._zip.infolist() if not one.is_dir()}
        #: A folder in which everything lies, as many programs write archives.
        tops = {name.partition("/")[0] for name in self._members}
        top = next(iter(tops)) if len(tops) == 1 else ""
        inside = any(f"{top}/{meta}" in self._members for meta in ("zarr.json", ".zgroup", ".zarray"))
        self._top = f"{top}/" if inside else ""
        self._starts: dict[str, int] = {}
        self._folders: dict[str, set[str]] = {}
        for name in self._members:
            if name.startswith(self._top):
                folder, _, base = name[len(self._top) :].rpartition("/")
                self._folders.setdefault(folder, set()).add(base)
                while folder:
                    folder, _, base = folder.rpartition("/")
                    self._folders.setdefault(folder, set()).add(base)

    def size(self, key: str) -> int | None:
        """Return the number of bytes of an object; None where there is none."""
        found = self._members.get(self._top + key)
        return None if found is None else found.file_size

    def read(self, key: str, at: int = 0, count: int | None = None) -> bytes | None:
        """Return bytes of an object, all of them by default; None where there is none."""
        member = self._members.get(self._top + key)
        if member is None:
            return None
        if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1:
            length = member.file_size - at if count is None else min(count, member.file_size - at)
            (found,) = self._file.read([(self._start(member) + at, max(0, length))])
            return found
        self._file.check()
        if member.compress_type != zipfile.ZIP_DEFLATED or member.file_size > self._limit:
            raise InvalidError(
                f"{self.path}: {key} has compression method {member.compress_type} and {member.file_size} bytes; "
                f"stored and deflated members are read, the latter up to {self._limit} bytes"
            )
        try:
            with self._lock:
                whole = self._zip.read(member)
        except (zipfile.BadZipFile, EOFError, RuntimeError) as error:
            raise InvalidError(f"{self.path}: {key} cannot be read: {error}") from error
        return whole[at:] if count is None else whole[at : at + count]

    def _start(self, member: zipfile.ZipInfo) -> int:
        """Return where the bytes of a member begin: behind its local header, whose length only that says."""
        found = self._starts.get(member.filename)
        if found is None:
            (head,) = self._file.read([(member.header_offset, 30)])
            if len(head) < 30 or head[:4] != b"PK\3\4":  # noqa: PLR2004
                raise InvalidError(f"{self.path} is damaged: {member.filename} has no header")
            found = member.header_offset + 30 + int.from_bytes(head[26:28], "little")
            found += int.from_bytes(head[28:30], "little")
            self._starts[member.filename] = found
        return found

    def names(self, folder: str) -> Iterator[str]:
        """Yield the names directly in a folder."""
        yield from sorted(self._folders.get(folder.strip("/"), ()))

    def state(self) -> Any:
        """Return what changes with the content."""
        return self._file.state()

    def close(self) -> None:
        """Let go of the file."""
        self._zip.close()
        self._file.close()
