"""Temporary folders for compilers: in memory where the machine has such a place.

Zig writes a hundred small files to parse its library, which many file systems take longer to make and to remove than
Zig takes to compile. So a folder is made in ``/dev/shm`` where that has room, unless ``$TMPDIR`` names a place; what a
killed process left there is removed by the next one. It does not bound what is written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["folder"]

_MEMORY = "/dev/shm"  # noqa: S108 (mkdtemp makes the folder, with a name that cannot be guessed)
#: Beginning of their names, which no file or folder of a user or of another part of the package has.
_PREFIX = "nandarray-compiles-"
#: Bytes that must be free there; a compilation writes 10 MB, and 40 MB if all of Zig's library is parsed.
_ROOM = 256 << 20
#: Seconds after which a folder there is stale: no compilation takes as long.
_STALE = 3600.0


@contextmanager
def folder() -> Iterator[Path]:
    """Make a folder that is gone afterwards; without a place for it, an OSError is raised."""
    place = _place()
    if place is not None:
        _sweep(place)
    made = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _place() -> str | None:
    """Name the folder in memory; none if there is none, or no room in it, or the user named another."""
    if any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")):
        return None
    with contextlib.suppress(OSError):
        found = os.statvfs(_MEMORY)
        if found.f_bavail * found.f_frsize >= _ROOM and os.access(_MEMORY, os.W_OK | os.X_OK):
            return _MEMORY
    return None


def _sweep(place: str) -> None:
    """Remove what processes of this user left there that ended in the middle."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if not entry.name.startswith(_PREFIX):
                continue
            with contextlib.suppress(OSError):
                stat = entry.stat(follow_symlinks=False)
                mine = stat.st_uid == os.getuid() and entry.is_dir(follow_symlinks=False)
                if mine and time.time() - stat.st_mtime > _STALE:
                    shutil.rmtree(entry.path, ignore_errors=True)
