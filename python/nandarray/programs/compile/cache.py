"""Compiled programs on disk, so that a second call costs no compiler.

One file an entry: a line of JSON (checksum of the rest, the files that the compiler read), then the ELF. An entry is
written to a file of its own name and renamed, so writers never meet; one whose checksum is wrong, or whose files
changed, counts as absent and is written anew. Objects that programs are linked with are kept beside them, each with
its checksum behind it, where linkers do not look. The folder is that of :mod:`nandarray.own_folder`. The least
recently used entries go when there are too many. If the folder cannot be written, programs are compiled every time,
and objects last as long as the process.

Kept programs are executed, and the checksum in an entry does not protect it: a user who can write the entry can write
the checksum. A folder that another user owns or can write to, or that lies in one, is replaced by a folder of this
process alone, with a warning; a file of another user, or one that others can write to, is not read.

This module knows bytes and keys, not compilers.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nandarray.errors import refuse_special
from nandarray.own_folder import cache_folder, is_open_to_others, make_folder, why_open_to_others

__all__ = ["Cache", "digest", "folder", "installed", "keep", "kept", "write_whole"]

_ENTRIES_MAX = 2000
_SUFFIX = ".program"
_NEW = ".new-"
#: Seconds after which an unfinished file is stale.
_STALE = 3600.0


def folder() -> Path:
    """Return the folder of compiled programs; it need not exist, and no other user can write to it."""
    wanted = cache_folder()
    why = why_open_to_others(wanted, ("programs", "support"))
    if why is None:
        return wanted
    _warn(f"compiled programs are not kept in {wanted}: {why}")
    return Path(_own().name)


@cache
def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)


def _read_own(path: Path) -> bytes:
    """Read a file that this user owns and no other user can write to; otherwise an OSError is raised."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or is_open_to_others(facts):
            raise PermissionError(f"{path} is another user's, or others can write to it")
        return file.read()


def digest(parts: Iterable[object]) -> str:
    """Return the SHA-256, hexadecimal, of some values, each set off from the next.

    Bytes count as they are, anything else as its text.
    """
    total = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        total.update(len(raw).to_bytes(8, "little") + raw)
    return total.hexdigest()


def installed(package: str) -> str:
    """Return the installed version of a package, without importing it; empty if it is not installed."""
    spec = importlib.util.find_spec(package)
    for place in spec.submodule_search_locations or () if spec is not None else ():
        with contextlib.suppress(OSError):
            # The folder beside the package has the version in its name; asking importlib.metadata takes 10 ms.
            for name in os.listdir(os.path.dirname(place)):
                if name.startswith(f"{package}-") and name.endswith(".dist-info"):
                    return name.removeprefix(f"{package}-").removesuffix(".dist-info")
    if spec is None:
        return ""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


class Cache:
    """A folder of compiled programs, :func:`folder` if none is given."""

    def __init__(self, where: Path | None = None) -> None:
        self.where = (where or folder()) / "programs"

    def get(self, key: str) -> tuple[bytes, dict[str, Any]] | None:
        """Find the ELF and the note of an entry that is whole and whose files are as they were.

        ``key`` is the digest of everything the program follows from, but for the files it includes.
        """
        path = self._path(key)
        try:
            head, _, body = _read_own(path).partition(b"\n")
            facts = json.loads(head)
            good = facts["sha256"] == _digest_entry(facts["files"], facts["note"], body)
            if not good or any(_digest_file(name) != was for name, was in facts["files"].items()):
                return None
            note = facts["note"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return (body, note) if isinstance(note, dict) else None

    def put(self, key: str, elf: bytes, *, files: Iterable[str] = (), note: Mapping[str, Any] | None = None) -> None:
        """Keep an ELF under a key of :meth:`get` with a note of JSON values; what cannot be written is not kept.

        ``files`` are the paths that the compiler read; the entry is good while they stay as they are.
        """
        read, noted = {name: _digest_file(name) for name in files}, dict(note or {})
        facts = {"sha256": _digest_entry(read, noted, elf), "files": read, "note": noted}
        with contextlib.suppress(OSError):
            make_folder(self.where)
            write_whole(self._path(key), json.dumps(facts).encode() + b"\n" + elf)
            self._prune()

    def _path(self, key: str) -> Path:
        return self.where / (key + _SUFFIX)

    def _prune(self) -> None:
        every = list(os.scandir(self.where))
        for entry in every:
            if entry.name.startswith(_NEW):  # of a process that was killed, if it is old
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat().st_mtime > _STALE:
                        os.unlink(entry.path)
        names = [entry for entry in every if entry.name.endswith(_SUFFIX)]
        if len(names) <= _ENTRIES_MAX:
            return
        aged = []
        for entry in names:
            with contextlib.suppress(OSError):
                aged.append((entry.stat().st_mtime, entry.path))
        for _, path in sorted(aged)[: len(aged) - _ENTRIES_MAX * 3 // 4]:
            with contextlib.suppress(OSError):
                os.unlink(path)


@cache
def _own() -> tempfile.TemporaryDirectory[str]:
    """Make a folder that is gone when the process ends."""
    return tempfile.TemporaryDirectory(prefix="nandarray-kept-")


def keep(path: Path, data: bytes) -> Path:
    """Keep an object file; where it cannot be written, in a folder of this process. Return where it is.

    If there is no place at all, an OSError is raised.
    """
    whole = data + hashlib.sha256(data).digest()
    try:
        make_folder(path.parent)
        write_whole(path, whole)
    except OSError:
        path = _beside(path)
        write_whole(path, whole)
    return path


def kept(path: Path) -> Path | None:
    """Return the path of an object of :func:`keep`, if it is whole."""
    for place in (path, _beside(path) if _own.cache_info().currsize else path):
        with contextlib.suppress(OSError):
            raw = _read_own(place)
            if hashlib.sha256(raw[:-32]).digest() == raw[-32:]:
                return place
    return None


def _beside(path: Path) -> Path:
    return Path(_own().name) / path.parent.name / path.name


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, and make its folder, so that others see all of it or nothing; after an OSError nothing is left."""
    refuse_special(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_NEW)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _digest_entry(files: Mapping[str, str], note: Mapping[str, Any], elf: bytes) -> str:
    """Return the checksum of an entry: of what stands before the program, and of the program."""
    return digest([json.dumps([files, note], sort_keys=True), elf])


def _digest_file(name: str) -> str:
    try:
        return hashlib.sha256(Path(name).read_bytes()).hexdigest()
    except OSError:
        return ""
