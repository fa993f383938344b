"""The status of a running server, in a file beside its store: ``STORE.serve.json``, with the form's word in it.

The file is a convenience of ``serve --status``: where it cannot be written, one warning says so, and the server goes
on. It has the owner and the mode of the store, since it names the store's hosts. Each status is a new file, with a name
that cannot be guessed and must be new, which takes the place of the one before; a file that is no server's status,
or a link, stays as it is. Several servers may read one store, and one of each form may serve it: the forms have
files of their own, and of servers of one form the first one has the file while it runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from nandarray.array.rights import shared_mode
from nandarray.errors import InvalidError, NandarrayError, NotFoundError
from nandarray.serving.control import send

__all__ = ["StatusFile", "status_of"]

#: The key of a status that tells it from any other file: the number of the server's process.
_PID = "pid"
#: The forms of servers, with what is behind the store's name in that of the file.
_ENDINGS = {"tcp": ".serve.json", "shm": ".serve-shm.json", "flight": ".serve-flight.json"}
#: Age at which a status is of no running server, whatever its process number, which another process may have by then.
_FRESH_SECONDS = 5
#: Age of a status whose server has gone, for those who read it: a running one writes every two seconds, load or not.
_GONE_SECONDS = 60
#: A status that says the same again is written at most once in this time: an idle server costs little.
_SAME_SECONDS = 2


def _path_of(store: Path, form: str) -> Path:
    return store.with_name(store.name + _ENDINGS[form])


def _read(file: Path) -> dict[str, Any] | None:
    """Return the status in a file, or None for one that has none. OSError: it cannot be read, or is a link."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        try:
            found = json.loads(opened.read())
        except ValueError:
            return None
    return found if isinstance(found, dict) and isinstance(found.get(_PID), int) else None


def status_of(store: Path) -> str:
    """Return what the running server of a store says of itself, as JSON; a list where several forms run.

    A server whose control this user may use is asked; of others the file is read.
    """
    running, foreign = [], []
    for form in _ENDINGS:
        file = _path_of(store, form)
        with contextlib.suppress(NandarrayError):
            running.append(send(store, form, "status"))
            continue
        with contextlib.suppress(FileNotFoundError):
            found = _read(file)
            if found is None:
                foreign.append(file)
            elif _runs(found[_PID]) and time.time() - file.lstat().st_mtime < _GONE_SECONDS:
                running.append(_with_uptime(found))
    if running:
        return json.dumps(running if len(running) > 1 else running[0], indent=2) + "\n"
    if foreign:
        raise InvalidError(f"{foreign[0]} is no status of a server")
    raise NotFoundError(f"no server runs on {store}")


def _with_uptime(found: dict[str, Any]) -> dict[str, Any]:
    """Add the time since the start, which the file does not have: it would be another file each time."""
    started = found.get("started")
    return {**found, "uptime_seconds": max(0.0, time.time() - started)} if isinstance(started, int | float) else found


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True  # as another user
    except (ProcessLookupError, OverflowError):
        return False
    return process > 0


class StatusFile:
    """The status file of a server that this process runs.

    ``form`` is the server's ("tcp", "shm" or "flight"), ``access`` what the engine knows of the store's file.
    """

    def __init__(self, store: Path, form: str, access: dict[str, Any] | None) -> None:
        self._file, self._access = _path_of(store, form), access
        self._told = False
        self._written: tuple[dict[str, Any], float] = {}, float("-inf")
        self._foreign = self._is_foreign()
        if self._foreign:
            self._tell("it is no status of a server, and stays as it is")

    def _is_foreign(self) -> bool:
        """Whether something that no server has written has the name."""
        try:
            return _read(self._file) is None
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def _tell(self, why: str) -> None:
        if not self._told:
            self._told = True
            warnings.warn(f"{self._file} has no status of this server: {why}", UserWarning, stacklevel=3)

    def write(self, status: dict[str, Any]) -> None:
        """Replace the status; where that is impossible, warn once."""
        before, at = self._written
        if self._foreign or (status == before and time.monotonic() < at + _SAME_SECONDS):
            return
        try:
            if other := self._other():
                self._tell(f"process {other} serves the store, too, and has its status there")
                return
            self._replace(json.dumps({_PID: os.getpid(), **status}, indent=2) + "\n")
            self._written = dict(status), time.monotonic()
        except OSError as error:
            self._tell(error.strerror or str(error))

    def _other(self) -> int | None:
        """Return the number of another process that keeps its status in the file now."""
        try:
            found, changed = _read(self._file), os.stat(self._file).st_mtime
        except FileNotFoundError:
            return None
        process: int = (found or {}).get(_PID, os.getpid())
        fresh = abs(time.time() - changed) < _FRESH_SECONDS
        return process if process != os.getpid() and fresh and _runs(process) else None

    def _replace(self, text: str) -> None:
        descriptor, new = tempfile.mkstemp(prefix=f".{self._file.name}.", dir=self._file.parent)
        try:
            with os.fdopen(descriptor, "w") as opened:
                self._share(descriptor)
                opened.write(text)
            os.replace(new, self._file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise

    def _share(self, descriptor: int) -> None:
        """Give a new file, which is this user's alone, the owner and the mode of the store, as far as this user may."""
        if self._access is None:
            return
        with contextlib.suppress(OSError):
            os.fchown(descriptor, self._access["uid"], -1)
        with contextlib.suppress(OSError):
            os.fchown(descriptor, -1, self._access["gid"])
        os.fchmod(descriptor, shared_mode(descriptor, self._access) & 0o666)

    def remove(self) -> None:
        """Remove the status of this process."""
        with contextlib.suppress(OSError):
            if (_read(self._file) or {}).get(_PID) == os.getpid():
                self._file.unlink()
