"""The status of a running server, in a file beside its store: ``STORE.serve.json``.

The file is a convenience of ``serve --status``: where it cannot be written, one warning says so, and the server goes
on. It has the owner and the mode of the store, since it names the store's hosts. Each status is a new file, with a name
that cannot be guessed and must be new, which takes the place of the one before; a file that is no server's status,
or a link, stays as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import warnings
from pathlib import Path
from typing import Any

from nandarray.array.rights import shared_mode
from nandarray.errors import InvalidError, NotFoundError

__all__ = ["StatusFile", "status_of"]

#: The key of a status that tells it from any other file: the number of the server's process.
_PID = "pid"


def _path_of(store: Path) -> Path:
    return store.with_name(f"{store.name}.serve.json")


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
    """Return what the running server of a store says of itself, as JSON."""
    file = _path_of(store)
    nobody = NotFoundError(f"no server runs on {store}")
    try:
        found = _read(file)
    except FileNotFoundError:
        raise nobody from None
    if found is None:
        raise InvalidError(f"{file} is no status of a server")
    try:
        os.kill(found[_PID], 0)
    except PermissionError:
        pass  # it runs, as another user
    except ProcessLookupError:
        raise nobody from None
    return json.dumps(found, indent=2) + "\n"


class StatusFile:
    """The status file of a server that this process runs; ``access`` is what the engine knows of the store's file."""

    def __init__(self, store: Path, access: dict[str, Any] | None) -> None:
        self._file, self._access = _path_of(store), access
        self._told = False
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
        if self._foreign:
            return
        try:
            self._replace(json.dumps({_PID: os.getpid(), **status}, indent=2) + "\n")
        except OSError as error:
            self._tell(error.strerror or str(error))

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
