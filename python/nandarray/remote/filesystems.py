"""Objects by fsspec: every file system that has an implementation of it.

fsspec's calls carry no etag, so each range is followed by a look at the object: one that was replaced is noticed before
its bytes are used. Local files have number and time as an etag; what has none is held by size and time.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from nandarray.errors import ChangedError, DeniedError, InvalidError, MediaError, NandarrayError
from nandarray.remote.objects import Facts, Objects

__all__ = ["Filesystems"]

#: Names under which file systems tell when an object was last written.
_TIMES = ("LastModified", "last_modified", "Last-Modified", "updated", "mtime", "modified", "created")


class Filesystems(Objects):
    """Objects of a file system of fsspec.

    Parameters
    ----------
    system : fsspec.AbstractFileSystem
        The file system.
    root : str
        A path in it below which the keys are, as the file system writes it.
    """

    #: Nothing of fsspec says that a file system makes an object in one step, and that of local files does not.
    creates_at_once = False

    def __init__(self, system: Any, root: str) -> None:
        super().__init__(root)
        self._system = system

    def facts(self, key: str) -> Facts:  # noqa: D102
        with _reported(self.url(key)):
            self._system.invalidate_cache()
            found = self._system.info(self.url(key))
        if found.get("type") == "directory":
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self.url(key))
        if found.get("size") is None:
            raise MediaError(f"{self.url(key)}: nothing says how large the object is, so no range of it can be read")
        return _facts(found)

    def get(self, key: str, most: int | None = None) -> tuple[memoryview, Facts]:  # noqa: D102
        facts = self.facts(key)
        self._bounded(key, facts, most)
        with _reported(self.url(key)):
            data = memoryview(self._system.cat_file(self.url(key)))
        if not facts.same(self.facts(key)):
            raise ChangedError(f"{self.url(key)}: the object was replaced while it was read")
        if len(data) != facts.bytes:
            raise MediaError(f"{self.url(key)}: the answer has {len(data)} of {facts.bytes} bytes")
        return data, facts

    def get_range(self, key: str, start: int, end: int, facts: Facts) -> memoryview:  # noqa: D102
        with _reported(self.url(key)):
            found = memoryview(self._system.cat_file(self.url(key), start=start, end=end))
        if not facts.same(self.facts(key)):
            raise ChangedError(f"{self.url(key)}: the object was replaced since it was opened")
        return found

    def listing(self, folder: str) -> list[tuple[str, Facts]]:  # noqa: D102
        top = str(self._system._strip_protocol(self.url("")))
        with _reported(self.url(folder)):
            self._system.invalidate_cache()
            try:
                found = self._system.find(self.url(folder), detail=True)
            except FileNotFoundError:
                return []
        names = ((str(self._system._strip_protocol(name)), info) for name, info in found.items())
        return sorted((name.removeprefix(top).lstrip("/"), _facts(info)) for name, info in names)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:  # noqa: D102
        with _reported(self.url(key)):
            try:
                self._made_for(key)
                self._system.pipe_file(self.url(key), bytes(data), mode="create")
            except FileExistsError:
                return False
            except TypeError as error:
                kind = type(self._system).__name__
                raise InvalidError(f"{self.url(key)}: {kind} cannot make an object only if it is absent") from error
            return True

    def put(self, key: str, data: bytes | memoryview) -> None:  # noqa: D102
        with _reported(self.url(key)):
            self._made_for(key)
            self._system.pipe_file(self.url(key), bytes(data))

    def put_file(self, key: str, path: str) -> None:  # noqa: D102
        with _reported(self.url(key)):
            self._made_for(key)
            self._system.put_file(path, self.url(key))

    def delete(self, key: str) -> None:  # noqa: D102
        with _reported(self.url(key)):
            try:
                self._system.rm_file(self.url(key))
            except FileNotFoundError:
                return

    def _made_for(self, key: str) -> None:
        """Make the folders of a key, where a file system has some."""
        self._system.makedirs(self.url(key).rpartition("/")[0], exist_ok=True)


def _facts(info: dict[str, Any]) -> Facts:
    etag = next((str(info[key]) for key in ("ETag", "etag", "e_tag", "md5") if info.get(key)), None)
    made_at = next((_seconds(info[key]) for key in _TIMES if info.get(key)), 0.0)
    if etag is None and info.get("ino") and info.get("mtime"):
        # A file that is written anew in its place keeps its number.
        etag = f"{info['ino']}-{info['mtime']}"
    return Facts(int(info["size"] or 0), etag, made_at)


def _seconds(when: Any) -> float:
    """Return a time in seconds since 1970; 0 for one in a form of its own."""
    try:
        if isinstance(when, str):
            when = datetime.fromisoformat(when) if when[:4].isdigit() else parsedate_to_datetime(when)
        return when.timestamp() if isinstance(when, datetime) else float(when)
    except (TypeError, ValueError, OverflowError):
        return 0.0


@contextmanager
def _reported(url: str) -> Iterator[None]:
    """Raise an error of a file system as one of this package, but one that says that an object is not there."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", url) from error
    except (FileExistsError, NandarrayError):
        raise
    except PermissionError as error:
        raise DeniedError(url) from error
    except Exception as error:  # of any library that a file system is made with
        raise MediaError(f"{url}: {type(error).__name__}: {error}") from error
