"""Commands that other processes of the same user send to a running server: one line of JSON, and one in answer.

:data:`COMMANDS` declares them. The server listens on a socket of mode 0600: beside its store, ``STORE.serve.sock``
(``serve-shm``, ``serve-flight``), or where no socket can be there, in ``$XDG_RUNTIME_DIR/nandarray`` or else a folder
of this user in ``/tmp``. Server and client check each other's user; nothing that is planted at the path is followed, or
replaced. A server without a socket goes on: control is a convenience.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nandarray.errors import BY_KIND, InvalidError, NandarrayError, NotFoundError
from nandarray.serving.answers import LocalServer, ask, bind_path

__all__ = ["COMMANDS", "FORMS", "ControlCommand", "ControlSocket", "send"]

#: The forms of servers, with what is behind the store's name in that of the socket.
FORMS = {"tcp": ".serve.sock", "shm": ".serve-shm.sock", "flight": ".serve-flight.sock"}


@dataclass(frozen=True)
class ControlCommand:
    """A command: what it does, its parameters with their types, and the answer where the server has no such ability."""

    help: str
    parameters: Mapping[str, type] = field(default_factory=dict)
    otherwise: Mapping[str, Any] | None = None


COMMANDS: dict[str, ControlCommand] = {
    "status": ControlCommand("The server's status."),
    "kill": ControlCommand("Stop a run of programs by its number; it ends with an error.", {"run": int}),
    "reload": ControlCommand("Read again what the server was told in files.", otherwise={"text": "nothing to reload"}),
}


class ControlSocket:
    """The control of a server that this process runs, until :meth:`stop`.

    Parameters
    ----------
    store : Path
        The store.
    form : {"tcp", "shm", "flight"}
        The form of the server.
    handlers : mapping
        For each command that the server has, a function of its parameters that returns the answer, a dictionary.
    """

    def __init__(self, store: Path, form: str, handlers: Mapping[str, Callable[..., Mapping[str, Any]]]) -> None:
        unknown = set(handlers) - set(COMMANDS)
        assert not unknown, f"{unknown} are no commands"
        self._handlers = handlers
        self._server: LocalServer | None = None
        why = "no place for it"
        for path in _paths(store, form, make=True):
            try:
                listener = bind_path(path)
            except (OSError, NandarrayError) as error:
                why = str(error)
                continue
            self._server = LocalServer(
                listener, path, is_whole=lambda request: request.endswith(b"\n"), answer=self._answer
            )
            return
        warnings.warn(f"the server has no control socket: {why}", UserWarning, stacklevel=2)

    @property
    def address(self) -> str | None:
        """The path of the socket; None where there is none."""
        return None if self._server is None else self._server.address

    def _answer(self, request: bytes) -> bytes:
        try:
            done = {"ok": True, **self._execute(request)}
        except NandarrayError as error:
            done = {"ok": False, "kind": error.kind, "text": str(error)}
        except Exception as error:
            done = {"ok": False, "kind": "internal", "text": f"{type(error).__name__}: {error}"}
        return json.dumps(done).encode() + b"\n"

    def _execute(self, request: bytes) -> Mapping[str, Any]:
        try:
            given = json.loads(request)
        except (ValueError, RecursionError):
            raise InvalidError("a request must be a line of JSON") from None
        name = given.pop("command", None) if isinstance(given, dict) else None
        command = COMMANDS.get(name) if isinstance(name, str) else None
        if not isinstance(name, str) or command is None:
            raise InvalidError(f"command is {name!r}: must be one of {', '.join(COMMANDS)}")
        if set(given) != set(command.parameters):
            raise InvalidError(f"{name} must have the parameters {sorted(command.parameters)}, not {sorted(given)}")
        for parameter, wanted in command.parameters.items():
            if type(given[parameter]) is not wanted:
                raise InvalidError(f"{parameter} of {name} must be of type {wanted.__name__}, not {given[parameter]!r}")
        handler = self._handlers.get(name)
        if handler is not None:
            return handler(**given)
        if command.otherwise is None:
            raise InvalidError(f"this server has no command {name}")
        return command.otherwise

    def stop(self) -> None:
        """End it."""
        if self._server is not None:
            self._server.stop()


def send(store: Path, form: str, command: str, **parameters: Any) -> dict[str, Any]:
    """Send a command to the server of a store; return its answer.

    Raises
    ------
    NotFoundError
        No server of this form is there that this user may control.
    NandarrayError
        The server refused the command; the kind of the error is the server's.
    """
    request = json.dumps({"command": command, **parameters}).encode() + b"\n"
    users = {0, os.geteuid()}
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            users.add(store.stat().st_uid)  # root may order a server that the store's owner runs
    for path in _paths(store, form, make=False):
        try:
            found = json.loads(ask(path, request, users=users))
        except (OSError, ValueError, RecursionError):
            continue  # no server is there, or none that this user may control
        if isinstance(found, dict) and found.pop("ok", False) is True:
            return found
        told = found if isinstance(found, dict) else {}
        raise BY_KIND.get(str(told.get("kind")), NandarrayError)(str(told.get("text", "the server's answer is none")))
    raise NotFoundError(f"no server runs on {store} that this user may control")


def _paths(store: Path, form: str, *, make: bool) -> list[Path]:
    """Return the places of a socket, the best first."""
    beside = store.with_name(store.name + FORMS[form])
    folder = _own_folder(make=make)
    if folder is None:
        return [beside]
    name = hashlib.sha256(os.fsencode(beside.absolute())).hexdigest()[:32]
    return [beside, folder / f"{name}.sock"]


def _own_folder(*, make: bool) -> Path | None:
    """Return a folder that is this user's alone; None where there is none."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime, "nandarray") if runtime else Path(tempfile.gettempdir(), f"nandarray-{os.geteuid()}")
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return folder if own else None
