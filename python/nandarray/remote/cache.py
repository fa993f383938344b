"""The folder in which bytes of objects far away are kept, shared by the processes of a user.

An entry is an object as it was at one time: its URL, etag and size give its name. ``NAME.data`` has its bytes, sparse,
``NAME.marks`` says which are there (the engine reads and writes both: ``media/remote/units.rs``), ``NAME.json`` says of
which object they are, and its time is that of the last opening. A process that has an entry open holds a shared lock
(``flock``) of its marks; entries are opened, evicted and cleared under an exclusive lock of ``lock``.

The folder is bounded. Bytes of an open entry are lent in place and never evicted, as long as all such entries are no
larger than half of the bound; those of entries beyond it are copied, and may be evicted at any time. When the bound is
passed, the entries that were not opened for the longest time go first, then units of open ones by a clock.

Only its user can read the folder: what an array holds in the clear is in the clear there, what is encrypted stays so.
Where nothing can be kept (a disk that is full or read only), bytes are kept in memory, and that is said once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import random
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from nandarray import _nandarray
from nandarray.errors import InvalidError, MediaError
from nandarray.own_folder import cache_folder, make_folder, why_open_to_others
from nandarray.remote.objects import Facts

__all__ = ["Cache", "Entry", "Kept", "cache_of"]

#: Bytes that a cache holds at most without another bound, and the share of the disk that it takes at most.
_BYTES = 20 << 30
_DISK_SHARE = 10
#: Smallest bound: the units of a few commands.
_BYTES_MIN = 64 << 20
#: Part of the bound that is free after an eviction, as a divisor.
_FREED_SHARE = 8
#: Offset in the marks of the byte that is 1 if an entry may be evicted while it is open (``media/remote/units.rs``).
_MODE_AT = 12
_SUFFIXES = (".data", ".marks", ".json")
_T = TypeVar("_T")


class Kept(NamedTuple):
    """An entry of a cache as ``nandarray cache info`` lists it."""

    #: URL of the object.
    url: str
    #: Size of the object, and of the part of it that is here, in bytes.
    bytes: int
    held: int
    #: Time of the last opening, in seconds since 1970.
    used_at: float
    #: Whether a process has it open.
    open: bool


class Entry:
    """An open entry: its files, until it is dropped."""

    #: Kept for entries that are dropped after the modules, when Python ends.
    _close = staticmethod(os.close)

    def __init__(self, data: int, marks: int) -> None:
        self.data, self.marks = data, marks
        #: Whether its bytes may be evicted while it is open; and whether no other process has it open.
        self.turning, self.alone = False, True

    @property
    def files(self) -> tuple[int, int, bool, bool]:
        """The files and the mode, as the engine takes them."""
        return self.data, self.marks, self.turning, self.alone

    def close(self) -> None:
        """Close the files, which ends the lock."""
        files, self.data, self.marks = (self.data, self.marks), -1, -1
        for file in files:
            if file >= 0:
                self._close(file)

    def __del__(self) -> None:
        """Close the files."""
        self.close()


def cache_of(folder: str | os.PathLike[str] | Literal[False] | None, bound: int | None) -> Cache | None:
    """Return the cache that a caller asks for; None if nothing is to be kept on a disk, or can be.

    Parameters
    ----------
    folder : path_like, False or None
        The folder; False for none; None for that of the user.
    bound : int or None
        Bytes that it holds at most; None for 20 GiB, or a tenth of the disk if that is less.

    Raises
    ------
    InvalidError
        Other users can change the folder that was given, or the bound is too small.
    """
    if bound is not None and bound < _BYTES_MIN:
        raise InvalidError(f"cache_bytes must be at least {_BYTES_MIN}, not {bound}")
    if folder is False:
        return None
    if not isinstance(folder, str | os.PathLike | None):
        raise InvalidError(f"cache must be a folder, False or None, not {folder!r}")
    place = cache_folder() / "far" if folder is None else Path(folder)
    why = why_open_to_others(place)
    if why is not None:
        if folder is not None:
            raise InvalidError(f"cache={os.fspath(place)!r} must be a folder that no other user can change: {why}")
        _warn(f"bytes from far away are kept in memory, not in {place}: {why}")
        return None
    try:
        make_folder(place)
        os.chmod(place, 0o700)
        return Cache(place, bound)
    except OSError as error:
        _warn(f"bytes from far away are kept in memory, not in {place}: {error.strerror or error}")
        return None


@cache
def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=5)


class Cache:
    """A folder of entries.

    Parameters
    ----------
    folder : Path
        The folder, which is there.
    bound : int, optional
        Bytes that it holds at most.
    """

    def __init__(self, folder: Path, bound: int | None = None) -> None:
        self.folder = folder
        self.bound = bound if bound is not None else min(_BYTES, shutil.disk_usage(folder).total // _DISK_SHARE)

    def open(self, url: str, facts: Facts, use: Callable[[Entry], _T]) -> _T:
        """Open the entry of an object, which is made if there is none, and return what ``use`` makes of it.

        ``use`` is called under the lock of the folder. An OSError says that there can be no entry.
        """
        name = hashlib.sha256(f"{url}\0{facts.etag}\0{facts.bytes}\0".encode()).hexdigest()[:32]
        with self._alone():
            entry = self._files(name, os.O_CREAT)
            try:
                entry.alone = _locks(entry.marks, fcntl.LOCK_EX)
                if entry.alone:
                    entry.turning = self._lent_elsewhere(name) + facts.bytes > self.bound // 2
                else:
                    entry.turning = _turns_over(entry.marks)
                told = {"url": url, "etag": facts.etag, "bytes": facts.bytes}
                _write(self.folder / f"{name}.json", json.dumps(told).encode())
                made = use(entry)
                fcntl.flock(entry.marks, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BaseException:
                entry.close()
                raise
            return made

    def _files(self, name: str, flags: int = 0) -> Entry:
        flags |= os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        data = os.open(self.folder / f"{name}.data", flags, 0o600)
        try:
            return Entry(data, os.open(self.folder / f"{name}.marks", flags, 0o600))
        except BaseException:
            os.close(data)
            raise

    def _lent_elsewhere(self, name: str) -> int:
        """Return the sizes of the other entries that are open and lent in place."""
        total = 0
        for other in self._names():
            with contextlib.suppress(OSError), _opened(self.folder / f"{other}.marks") as marks:
                if other != name and not _locks(marks, fcntl.LOCK_EX) and not _turns_over(marks):
                    total += (self.folder / f"{other}.data").stat().st_size
        return total

    @contextlib.contextmanager
    def _alone(self, *, wait: bool = True) -> Iterator[bool]:
        """Hold the lock of the folder; without ``wait``, give False if another has it."""
        with _opened(self.folder / "lock", os.O_RDWR | os.O_CREAT) as lock:
            if wait:
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield wait or _locks(lock, fcntl.LOCK_EX)

    def _names(self) -> list[str]:
        return [name.removesuffix(".marks") for name in os.listdir(self.folder) if name.endswith(".marks")]

    def held(self) -> int:
        """Return the bytes that the entries take on the disk."""
        return sum(self._held(name) for name in self._names())

    def _held(self, name: str) -> int:
        try:
            return os.stat(self.folder / f"{name}.data").st_blocks * 512
        except OSError:
            return 0

    def make_room(self) -> None:
        """Evict until the bound is kept, unless another process is at it."""
        if self.held() <= self.bound:
            return
        with self._alone(wait=False) as mine:
            need = self.held() - self.bound + self.bound // _FREED_SHARE
            if not mine or need <= self.bound // _FREED_SHARE:
                return
            for name in sorted(self._names(), key=self._used_at):
                if need <= 0:
                    return
                need -= self._closed_evicted(name, need)
            for name in self._names():
                if need <= 0:
                    return
                need -= self._open_evicted(name, need)

    def _used_at(self, name: str) -> float:
        try:
            return os.stat(self.folder / f"{name}.json").st_mtime
        except OSError:
            return 0.0

    def _closed_evicted(self, name: str, need: int) -> int:
        """Evict bytes of an entry that no process has open, or all of it; return how many."""
        try:
            entry = self._files(name)
        except OSError:
            return 0
        try:
            if not _locks(entry.marks, fcntl.LOCK_EX):
                return 0
            held = self._held(name)
            if held > need:
                return _evicted(entry, need)
            self._remove(name)
            return held
        finally:
            entry.close()

    def _open_evicted(self, name: str, need: int) -> int:
        """Evict bytes of an entry that turns over; return how many."""
        try:
            entry = self._files(name)
        except OSError:
            return 0
        try:
            entry.alone = False
            return _evicted(entry, need) if _turns_over(entry.marks) else 0
        finally:
            entry.close()

    def _remove(self, name: str) -> None:
        for suffix in _SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.folder / f"{name}{suffix}")

    # --- The command line --------------------------------------------------------------------------------------------

    def entries(self) -> list[Kept]:
        """List the entries, that of the last opening first."""
        found = []
        with self._alone():
            for name in self._names():
                told: dict[str, Any] = {}
                with contextlib.suppress(OSError, ValueError):
                    told = json.loads((self.folder / f"{name}.json").read_bytes())
                with contextlib.suppress(OSError), _opened(self.folder / f"{name}.marks") as marks:
                    in_use = not _locks(marks, fcntl.LOCK_EX)
                    size = os.stat(self.folder / f"{name}.data").st_size
                    url = str(told.get("url", name))
                    found.append(Kept(url, size, self._held(name), self._used_at(name), in_use))
        return sorted(found, key=lambda one: -one.used_at)

    def clear(self) -> tuple[int, int]:
        """Remove all entries that no process has open; return the bytes freed, and the number of entries left."""
        freed, left = 0, 0
        with self._alone():
            for name in self._names():
                with contextlib.suppress(OSError), _opened(self.folder / f"{name}.marks") as marks:
                    if _locks(marks, fcntl.LOCK_EX):
                        freed += self._held(name)
                        self._remove(name)
                    else:
                        left += 1
        return freed, left


def _evicted(entry: Entry, need: int) -> int:
    size = os.fstat(entry.data).st_size
    if not size:
        return 0
    entry.turning = True
    try:
        return _nandarray.far_evict(entry.files, size, need, random.getrandbits(63))
    except OSError as error:
        raise MediaError(error.errno, f"evicting from the cache: {error.strerror}") from error


def _turns_over(marks: int) -> bool:
    return os.pread(marks, 1, _MODE_AT) == b"\1"


@contextlib.contextmanager
def _opened(path: Path, flags: int = os.O_RDWR) -> Iterator[int]:
    file = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _locks(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(path: Path, data: bytes) -> None:
    with _opened(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as file:
        os.write(file, data)
    now = time.time()
    os.utime(path, (now, now))
