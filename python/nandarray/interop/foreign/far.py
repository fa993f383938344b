"""Files and objects far away, for readers of other formats: ranges over :mod:`nandarray.remote`.

A :class:`FarFile` is one object, as it was when it was opened: one that was replaced since is a ChangedError.
:class:`RangeFile` makes a file object of it for libraries that seek and read, with blocks of it in memory: what HDF5
reads of itself is small and scattered. :class:`FarObjects` are the objects below a key.
"""

from __future__ import annotations

import errno
import io
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

from nandarray.array.fork import StoreLock
from nandarray.errors import InvalidError, StoreMissingError
from nandarray.interop.foreign.files import File, Objects, Range
from nandarray.remote.objects import Facts
from nandarray.remote.objects import Objects as Far

__all__ = ["FarFile", "FarObjects", "RangeFile"]

_BLOCK = 256 << 10
_BLOCKS = 256
#: Most bytes that are fetched before they are read.
_AHEAD_BYTES = 64 << 20
#: Most keys whose facts are remembered.
_FACTS_MOST = 1 << 14


class FarFile(File):
    """One object, by its key, as it is now, or as it was when it had some facts.

    Raises
    ------
    StoreMissingError
        There is no such object.
    """

    def __init__(self, objects: Far, key: str, facts: Facts | None = None) -> None:
        self.path = objects.url(key)
        self._objects, self._key = objects, key
        try:
            self.facts = facts or objects.facts(key)
        except FileNotFoundError as error:
            raise StoreMissingError(errno.ENOENT, "there is no such object", self.path) from error
        self._ahead: OrderedDict[Range, bytes] = OrderedDict()
        self._ahead_bytes = 0
        self._lock = StoreLock()

    def state(self) -> Any:
        """Return the object's version and size; None where its store has no versions that last."""
        return (self.facts.etag, self.facts.bytes) if self.facts.lasting else None

    def ahead(self, ranges: Sequence[Range]) -> None:
        """Fetch ranges that will be read next, one request for those that lie together; each is kept for one read."""
        found = self._fetched(ranges)
        with self._lock:
            for one, data in zip(ranges, found, strict=True):
                self._ahead_bytes += len(data) - len(self._ahead.pop(one, b""))
                self._ahead[one] = data
            while self._ahead_bytes > _AHEAD_BYTES:
                self._ahead_bytes -= len(self._ahead.popitem(last=False)[1])

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return the bytes of some ranges; a range beyond the end has fewer."""
        with self._lock:
            found = {one: self._ahead.pop(one) for one in ranges if one in self._ahead}
            self._ahead_bytes -= sum(map(len, found.values()))
        missing = [one for one in ranges if one not in found]
        found.update(zip(missing, self._fetched(missing) if missing else (), strict=True))
        return [found[one] for one in ranges]

    def _fetched(self, ranges: Sequence[Range]) -> list[bytes]:
        end = self.facts.bytes
        asked = [(min(at, end), min(at + max(0, count), end)) for at, count in ranges]
        return [bytes(one) for one in self._objects.read(self._key, asked, self.facts)]


class RangeFile(io.RawIOBase):
    """A file object over the ranges of a file, which keeps blocks.

    Parameters
    ----------
    file : FarFile
        The file.
    """

    def __init__(self, file: FarFile) -> None:
        super().__init__()
        self._file, self._size, self._at = file, file.facts.bytes, 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._lock = StoreLock()

    @property
    def name(self) -> str:
        """The URL."""
        return self._file.path

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the place of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the place of the next read; return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read into memory; return how many bytes there were."""
        view = memoryview(buffer).cast("B")
        found = self._bytes(self._at, min(len(view), max(0, self._size - self._at)))
        view[: len(found)] = found
        self._at += len(found)
        return len(found)

    def _bytes(self, at: int, count: int) -> bytes:
        if count <= 0:
            return b""
        first, last = at // _BLOCK, (at + count - 1) // _BLOCK
        if last - first >= _BLOCKS // 4:
            return self._file.read([(at, count)])[0]
        with self._lock:
            missing = [one for one in range(first, last + 1) if one not in self._blocks]
            got = dict(zip(missing, self._file.read([(one * _BLOCK, _BLOCK) for one in missing]), strict=True))
            self._blocks.update(got)
            found = b"".join(self._blocks[one] for one in range(first, last + 1))
            for one in range(first, last + 1):
                self._blocks.move_to_end(one)
            while len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        return found[at - first * _BLOCK :][:count]


class FarObjects(Objects):
    """The objects whose keys begin with a prefix and a slash.

    Parameters
    ----------
    objects : nandarray.remote.objects.Objects
        The objects of the place.
    prefix : str
        The prefix.
    """

    far = True

    def __init__(self, objects: Far, prefix: str) -> None:
        self.path = objects.url(prefix)
        self.lists = not self.path.startswith(("http://", "https://"))
        self._objects, self._prefix = objects, prefix.strip("/")
        self._facts: OrderedDict[str, Facts] = OrderedDict()
        self._lock = StoreLock()
        self._folders: dict[str, set[str]] | None = None

    def _key(self, key: str) -> str:
        if any(part in ("", ".", "..") for part in key.split("/")):
            raise InvalidError(f"{self.path}: {key!r} must be a key without empty parts, '.' and '..'")
        return f"{self._prefix}/{key}"

    def _known(self, key: str) -> Facts | None:
        with self._lock:
            found = self._facts.get(key)
        if found is None:
            try:
                found = self._objects.facts(self._key(key))
            except FileNotFoundError:
                return None
            with self._lock:
                self._facts[key] = found
                if len(self._facts) > _FACTS_MOST:
                    self._facts.popitem(last=False)
        return found

    def size(self, key: str) -> int | None:
        """Return the number of bytes of an object; None where there is none."""
        found = self._known(key)
        return None if found is None else found.bytes

    def read(self, key: str, at: int = 0, count: int | None = None) -> bytes | None:
        """Return bytes of an object, all of them by default; None where there is none."""
        if not at and count is None:
            try:
                return bytes(self._objects.get(self._key(key), self.most)[0])
            except FileNotFoundError:
                return None
        facts = self._known(key)
        if facts is None:
            return None
        end = facts.bytes if count is None else min(facts.bytes, at + count)
        return bytes(self._objects.read(self._key(key), [(min(at, end), end)], facts)[0])

    def names(self, folder: str) -> Iterator[str]:
        """Yield the names of objects and folders directly in a folder; all keys are listed once."""
        with self._lock:
            if self._folders is None:
                found: dict[str, set[str]] = {}
                for key, _ in self._objects.listing(self._prefix):
                    above, _, base = key[len(self._prefix) + 1 :].rpartition("/")
                    found.setdefault(above, set()).add(base)
                    while above:
                        above, _, base = above.rpartition("/")
                        found.setdefault(above, set()).add(base)
                self._folders = found
            names = sorted(self._folders.get(folder.strip("/"), ()))
        yield from names
