"""Objects of a store of parts as files of one folder: made whole if they are absent, read, listed, deleted.

An object is never changed. ``put_if_absent`` writes a file of its own under ``tmp/``, makes it durable, and gives it
its name by ``link``, which fails if the name is taken: of two writers one wins, and a reader sees all of an object or
nothing. Nothing is compared by time, and no lock is taken. Ages are by the clock of the file system, not by the host's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nandarray import _nandarray
from nandarray.errors import (
    CorruptError,
    DoorError,
    LockedError,
    MediaError,
    NandarrayError,
    NotAStoreError,
    PartError,
    StoreExistsError,
    StoreFullError,
)
from nandarray.parts.blobs.base import BlobFacts, Blobs, part_key

__all__ = ["Files", "head_of", "in_folder", "reported"]

#: Errors of ``link`` where a file system has no hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Files(Blobs):
    """The objects below one folder."""

    def path(self, key: str) -> str:  # noqa: D102
        return os.path.join(self.root, key)

    def put_if_absent(self, key: str, data: bytes, *, durably: bool = True) -> bool:
        """Make an object if its key is free; return whether this call made it.

        Raises
        ------
        StoreFullError, MediaError
            The file system is full, has no hard links, or reports another error. The object may be there or not.
        """
        made = self.path(f"tmp/{uuid.uuid4().hex}")
        try:
            with open(made, "xb") as file:
                file.write(data)
                file.flush()
                if durably:
                    os.fsync(file.fileno())
            return self.name(made, key, durably=durably)
        except OSError as error:
            raise _told(error, self.path(key)) from error
        finally:
            with contextlib.suppress(OSError):
                os.unlink(made)

    def name(self, file: str, key: str, *, durably: bool = True) -> bool:
        """Give a file the name of an object, if that is free; return whether it was."""
        target = self.path(key)
        try:
            os.link(file, target)
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in _NO_LINKS:
                told = f"its file system cannot link, by which a version is committed: {error.strerror}"
                raise MediaError(error.errno, told, target) from error
            raise _told(error, target) from error
        if durably:
            self.sync(os.path.dirname(key))
        return True

    def keep(self, key: str, data: bytes) -> None:  # noqa: D102
        while not self.touch(key):
            self.put_if_absent(key, data)

    def sync(self, folder: str) -> None:  # noqa: D102
        with reported(self.path(folder)):
            descriptor = os.open(self.path(folder), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def get(self, key: str) -> bytes:  # noqa: D102
        with reported(self.path(key)):
            return Path(self.path(key)).read_bytes()

    def names(self, folder: str) -> list[str]:  # noqa: D102
        with reported(self.path(folder)):
            try:
                return sorted(os.listdir(self.path(folder)))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def listed(self, folder: str) -> dict[str, BlobFacts]:  # noqa: D102
        found = {}
        for name in self.names(folder):
            with contextlib.suppress(FileNotFoundError):  # deleted since
                found[name] = self.facts(f"{folder}/{name}")
        return found

    def facts(self, key: str) -> BlobFacts:  # noqa: D102
        with reported(self.path(key)):
            found = os.stat(self.path(key))
        return BlobFacts(found.st_blocks * 512, found.st_mtime_ns, found.st_size)

    def touch(self, key: str) -> bool:  # noqa: D102
        with reported(self.path(key)):
            try:
                os.utime(self.path(key))
            except FileNotFoundError:
                return False
            except PermissionError:  # another user's, whose age is theirs
                return True
            return True

    def delete(self, key: str) -> None:  # noqa: D102
        with reported(self.path(key)), contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(key))

    def now(self) -> float:
        """Return the time by the file system's clock, in seconds: that of a file made just now."""
        made = self.path(f"tmp/{uuid.uuid4().hex}")
        try:
            with reported(made), open(made, "xb") as file:
                return os.fstat(file.fileno()).st_mtime_ns / 1e9
        finally:
            with contextlib.suppress(OSError):
                os.unlink(made)

    # --- Folders -----------------------------------------------------------------------------------------------------

    def prepare(self, folders: tuple[str, ...], first: str) -> None:  # noqa: D102
        path = self.root
        if os.path.lexists(path) and not (os.path.isdir(path) and _is_begun(path, folders, first)):
            raise StoreExistsError(errno.EEXIST, "is there, and no empty folder", path)
        os.makedirs(path, exist_ok=True)
        for folder in folders:
            os.makedirs(os.path.join(path, folder), exist_ok=True)

    def check_writer(self) -> None:
        """Nothing: ``link`` is one step."""

    def make_folder(self, key: str) -> None:  # noqa: D102
        with reported(self.path(key)):
            os.mkdir(self.path(key))

    def renew_folder(self, key: str) -> None:  # noqa: D102
        self.touch(key)

    def drop_folder(self, key: str) -> None:  # noqa: D102
        for name in self.names(key):
            self.delete(f"{key}/{name}")
        with contextlib.suppress(OSError):
            os.rmdir(self.path(key))

    # --- Parts -------------------------------------------------------------------------------------------------------

    def unsealed(self, part: str) -> str:  # noqa: D102
        return self.path(part_key(part, sealed=False))

    def seal(self, part: str) -> None:  # noqa: D102
        with contextlib.suppress(FileNotFoundError):  # its writer was quicker
            self.name(self.unsealed(part), part_key(part))
        self.delete(part_key(part, sealed=False))

    def adopt(self, part: str) -> bool:  # noqa: D102
        if self.has(part_key(part)):
            return True
        try:
            _nandarray.Store.open(self.unsealed(part), "r+").close()
        except LockedError:
            return False
        except FileNotFoundError:
            if self.has(part_key(part)):
                return True
            raise PartError(f"part {part} of {self.root} is not there") from None
        except (CorruptError, NotAStoreError) as error:
            raise PartError(f"part {part} of {self.root} is damaged: {error}") from error
        self.seal(part)
        return True

    def discard(self, part: str) -> None:  # noqa: D102
        self.delete(part_key(part, sealed=False))

    def is_written(self, name: str) -> bool:  # noqa: D102
        if not name.endswith(".open"):
            return False
        path = self.path(f"parts/{name}")
        with contextlib.suppress(FileNotFoundError, CorruptError, NotAStoreError), reported(path):
            facts = os.stat(path)
            try:
                _nandarray.Store.open(path, "r+").close()
            except LockedError:
                return True
            os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        return False

    def sealed_names(self, jobs: list[str]) -> list[str]:  # noqa: D102
        names = self.names("parts") if jobs else []
        return [name for name in names if name.endswith(".nand") and name.startswith(tuple(jobs))]

    def head(self, part: str, count: int) -> tuple[int, bytes]:  # noqa: D102
        return head_of(self.path(part_key(part)), count)

    def room(self) -> str:  # noqa: D102
        return self.path("tmp")

    @contextmanager
    def file_of(self, part: str, room: str) -> Iterator[str]:  # noqa: D102, ARG002 (it is one)
        with reported(path := self.path(part_key(part))):
            os.stat(path)
        yield path

    def send_part(self, part: str, file: str) -> None:  # noqa: D102
        made = file if os.path.dirname(file) == self.room() else self.path(f"tmp/{uuid.uuid4().hex}")
        try:
            with reported(made):
                if made != file:
                    shutil.copyfile(file, made)
                with open(made, "rb") as written:
                    os.fsync(written.fileno())
            self.name(made, part_key(part))
        finally:
            if made != file:
                with contextlib.suppress(OSError):
                    os.unlink(made)

    def open_part(self, part: str, options: Mapping[str, Any]) -> _nandarray.Store:  # noqa: D102
        return _nandarray.Store.open(self.path(part_key(part)), "r", **options)


def in_folder(files: Blobs) -> Files:
    """Return the objects of a store that is a folder, or raise a DoorError."""
    if not isinstance(files, Files):
        raise DoorError(f"{files.root}: protect and repair are for folders; a bucket keeps its objects itself")
    return files


def head_of(path: str, count: int) -> tuple[int, bytes]:
    """Return the length of a file, and its first bytes."""
    with reported(path), open(path, "rb") as file:
        return os.fstat(file.fileno()).st_size, file.read(count)


def _is_begun(path: str, folders: tuple[str, ...], first: str) -> bool:
    """Return whether a folder has nothing but what a creation makes that died before its end."""
    allowed = {os.path.dirname(first): {os.path.basename(first)}, "tmp": None}
    for name in os.listdir(path):
        if name not in folders or not os.path.isdir(os.path.join(path, name)):
            return False
        inside = allowed.get(name, set())
        if inside is not None and not inside.issuperset(os.listdir(os.path.join(path, name))):
            return False
    return True


@contextmanager
def reported(path: str) -> Iterator[None]:
    """Raise an error of the file system as one of this package, but one that says that a file is not there."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except NotADirectoryError as error:
        raise FileNotFoundError(error.errno, error.strerror, path) from error
    except OSError as error:
        raise _told(error, path) from error


def _told(error: OSError, path: str) -> OSError:
    if isinstance(error, NandarrayError):
        return error
    if error.errno in _FULL:
        return StoreFullError(error.errno, error.strerror, path)
    return MediaError(error.errno, error.strerror, path)
