"""Objects of a store of parts as files of one folder: made whole if they are absent, read, listed, deleted.

An object is never changed. ``put_if_absent`` writes a file of its own under ``tmp/``, makes it durable, and gives it
its name by ``link``, which fails if the name is taken: of two writers one wins, and a reader sees all of an object or
nothing. Nothing is compared by time, and no lock is taken. Ages are by the clock of the file system, not by the host's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nandarray.errors import MediaError, NandarrayError, StoreFullError

__all__ = ["Files", "reported"]

#: Errors of ``link`` where a file system has no hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Files:
    """The objects below one folder, by keys such as ``"leaves/ab12.npy"``."""

    def __init__(self, root: str) -> None:
        self.root = root

    def path(self, key: str) -> str:
        """Return the file of an object."""
        return os.path.join(self.root, key)

    def put_if_absent(self, key: str, data: bytes, *, durably: bool = True) -> bool:
        """Make an object if its key is free; return whether it was.

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

    def sync(self, folder: str) -> None:
        """Make the names in a folder durable."""
        with reported(self.path(folder)):
            descriptor = os.open(self.path(folder), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def get(self, key: str) -> bytes:
        """Read an object; a FileNotFoundError says that there is none."""
        with reported(self.path(key)):
            return Path(self.path(key)).read_bytes()

    def names(self, folder: str) -> list[str]:
        """List the last parts of the keys in a folder, sorted; none where there is no such folder."""
        with reported(self.path(folder)):
            try:
                return sorted(os.listdir(self.path(folder)))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def has(self, key: str) -> bool:
        """Return whether there is an object; an error of the file system is a MediaError, not a "no"."""
        try:
            self.facts(key)
        except FileNotFoundError:
            return False
        return True

    def touch(self, key: str) -> bool:
        """Make an object as young as one that was made just now; return whether there is one."""
        with reported(self.path(key)):
            try:
                os.utime(self.path(key))
            except FileNotFoundError:
                return False
            except PermissionError:  # another user's, whose age is theirs
                return True
            return True

    def delete(self, key: str) -> None:
        """Delete an object, if there is one."""
        with reported(self.path(key)), contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(key))

    def make_folder(self, key: str) -> None:
        """Make a folder below the root; a FileExistsError says that it is there."""
        with reported(self.path(key)):
            os.mkdir(self.path(key))

    def now(self) -> float:
        """Return the time by the file system's clock, in seconds: that of a file made just now."""
        made = self.path(f"tmp/{uuid.uuid4().hex}")
        try:
            with reported(made), open(made, "xb") as file:
                return os.fstat(file.fileno()).st_mtime
        finally:
            with contextlib.suppress(OSError):
                os.unlink(made)

    def facts(self, key: str) -> os.stat_result:
        """Return what the file system says of an object; a FileNotFoundError says that there is none."""
        with reported(self.path(key)):
            return os.stat(self.path(key))

    def age(self, key: str, now: float) -> float:
        """Return the seconds since an object was made; those since the beginning of time where it is gone."""
        try:
            return now - self.facts(key).st_mtime
        except FileNotFoundError:
            return now


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
