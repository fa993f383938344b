"""Leases: versions that readers and transactions hold, so that they do not expire under them.

A lease is a file ``readers/<id>.json`` with the number of a version. A thread of this process renews all of its leases
each minute by touching them; one that is older than five minutes, by the file system's clock, is that of a process
which is gone or stopped. Where a folder cannot be written, a reader has no lease. Folders of jobs are touched so, too:
a transaction that lasts for days is not taken for dead.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import uuid
import weakref

from nandarray.errors import CorruptError, MediaError
from nandarray.parts.blobs.base import Blobs
from nandarray.parts.manifest import key_of

__all__ = ["LEASE_S", "Alive", "Lease", "held", "sweep"]

#: Age at which a lease counts no more, and between its renewals, in seconds.
LEASE_S = 300.0
_RENEW_S = 60.0
_FOLDER = "readers"


class Lease:
    """A version that this process holds, until :meth:`release` or the end of this object."""

    def __init__(self, files: Blobs, version: int) -> None:
        self.version = version
        self._files, self._key = files, f"{_FOLDER}/{uuid.uuid4().hex}.json"
        self._process = os.getpid()
        self._end = weakref.finalize(self, _release, files, self._key, self._process)
        #: Renewing and releasing take turns: what is released is not made again. The collector of
        #: garbage may release it in the thread that holds it.
        self._lock = threading.RLock()
        self._write()
        _renewals.add(self)

    def _write(self) -> None:
        data = json.dumps({"version": self.version}).encode()
        with contextlib.suppress(OSError):
            try:
                self._files.put_if_absent(self._key, data, durably=False)
            except MediaError as error:
                if error.errno != errno.ENOENT:
                    raise
                self._files.make_folder(_FOLDER)  # the store was made without one
                self._files.put_if_absent(self._key, data, durably=False)

    def renew(self) -> None:
        """Make it young; one that was swept is made again if its version is still there."""
        with self._lock, contextlib.suppress(OSError):
            if self._end.alive and not self._files.touch(self._key) and self._files.has(key_of(self.version)):
                self._write()

    def release(self) -> None:
        """Let the version expire."""
        if os.getpid() != self._process:  # the lock may be that of a thread which stayed behind
            return
        with self._lock:
            self._end()


class Alive:
    """The folder of a job that this process keeps young, until :meth:`release` or the end of this object."""

    def __init__(self, files: Blobs, key: str) -> None:
        self._files, self._key, self._ended = files, key, False
        self._lock = threading.Lock()
        _renewals.add(self)

    def renew(self) -> None:
        """Make it young."""
        with self._lock, contextlib.suppress(OSError):
            if not self._ended:
                self._files.renew_folder(self._key)

    def release(self) -> None:
        """Renew it no more: what was deleted is not made again."""
        with self._lock:
            self._ended = True


def _release(files: Blobs, key: str, process: int) -> None:
    if os.getpid() == process:  # not of one that was forked
        with contextlib.suppress(OSError):
            files.delete(key)


class _Renewals:
    """The leases of this process, and the thread that renews them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: weakref.WeakSet[Lease | Alive] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease | Alive) -> None:
        """Renew a lease, or the age of a job, from now on."""
        with self._lock:
            self._leases.add(lease)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nandarray-leases", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(_RENEW_S):
            self.renew()

    def renew(self) -> None:
        """Renew all."""
        with self._lock:
            leases = list(self._leases)
        for lease in leases:
            lease.renew()


_renewals = _Renewals()


def _forked() -> None:
    """Begin without leases: those of the process that forked are renewed there."""
    global _renewals  # noqa: PLW0603 (a process has one)
    _renewals = _Renewals()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def held(files: Blobs, now: float) -> set[int]:
    """Return the versions that living leases name.

    Raises
    ------
    CorruptError
        A lease cannot be read, so it is not known which version it holds.
    """
    found = set()
    for name, kept in files.listed(_FOLDER).items():
        key = f"{_FOLDER}/{name}"
        if not name.endswith(".json") or kept.age(now) >= LEASE_S:
            continue
        try:
            found.add(int(json.loads(files.get(key))["version"]))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise CorruptError(f"{files.path(key)}: the lease of a reader is damaged: {error}") from None
    return found


def sweep(files: Blobs, now: float) -> None:
    """Delete leases of processes that are gone."""
    for name, kept in files.listed(_FOLDER).items():
        if name.endswith(".json") and kept.age(now) >= LEASE_S:
            files.delete(f"{_FOLDER}/{name}")
