"""A folder of this process for parts that are being written, where the store is no folder of this machine.

It lies in the temporary folder (``TMPDIR``), has the rights of its user alone, and is locked while the process lives.
The next process that makes one removes those whose lock is free: their processes were killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import time
import weakref

__all__ = ["Working", "working"]

_PREFIX = "nandarray-parts-written-"
#: Age in seconds at which a folder without a lock is removed: a younger one may not be locked yet.
_STALE_S = 60.0


class Working:
    """The folder of one process."""

    def __init__(self) -> None:
        _sweep(tempfile.gettempdir())
        self.process = os.getpid()
        self.folder = tempfile.mkdtemp(prefix=_PREFIX)
        self._held = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self._end = weakref.finalize(self, _remove, self.folder, self.process)


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # not of one that was forked
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(place: str) -> None:
    """Remove folders of processes that are gone."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_free(entry)


def _remove_if_free(entry: os.DirEntry[str]) -> None:
    facts = entry.stat(follow_symlinks=False)
    if facts.st_uid != os.geteuid() or not entry.is_dir(follow_symlinks=False):
        return
    if time.time() - facts.st_mtime < _STALE_S:
        return
    held = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(held)


_lock = threading.Lock()
_own: Working | None = None


def working() -> str:
    """Return the folder of this process."""
    global _own  # noqa: PLW0603 (a process has one)
    with _lock:
        if _own is None or _own.process != os.getpid():
            _own = Working()
        return _own.folder


def _forked() -> None:
    global _lock  # noqa: PLW0603 (the thread that may have had it stayed behind)
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)
