"""A server as its operator has it while it runs: its log, its control socket, and its status in a file.

All doors of ``nandarray serve`` use this. Nothing here ends a server: a file system that is full or read-only, a
socket that cannot be, a terminal that is gone are warnings, or nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from nandarray.array.store import Store
from nandarray.cli.common import FileWatch, say
from nandarray.cli.service import READY, STOPPING, notify
from nandarray.cli.signals import Signals, Told
from nandarray.cli.status_file import StatusFile, status_of
from nandarray.errors import NandarrayError, NotFoundError
from nandarray.serving.control import FORMS as CONTROL_FORMS
from nandarray.serving.control import ControlSocket, send
from nandarray.serving.log import FORMS, LEVELS, ServerLog
from nandarray.serving.spans import SpanSender

__all__ = ["KillRun", "LogForm", "LogLevel", "MetricsAddress", "Operator", "Reload", "SpansUrl", "order"]

MetricsAddress = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS:PORT|PATH", help="Serve /metrics for Prometheus on loopback, or on a socket."),
]
LogForm = Annotated[str, typer.Option("--log", metavar="|".join(FORMS), help="Form of the log on standard error.")]
LogLevel = Annotated[str, typer.Option(metavar="|".join(LEVELS), help="Least important level that is logged.")]
SpansUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Send spans of runs and slow commands to a collector of OpenTelemetry."),
]
KillRun = Annotated[
    int | None,
    typer.Option("--kill", metavar="ID", min=1, help="Stop a run of programs of the running server, by its number."),
]
Reload = Annotated[bool, typer.Option("--reload", help="Have the running server read its files again.")]

#: Time between two looks at the server.
_LOOK_SECONDS = 0.5
#: Least time between two lines about late completions.
_LATE_SECONDS = 10.0
#: Fields of a status that change all the time, and are left out of its file.
_PASSING = {"uptime_seconds"}


def order(store: Path, *, status: bool, kill: int | None, reload: bool) -> bool:
    """Give the running server of a store one of these orders; return whether there was one."""
    if status:
        say(status_of(store))
    elif kill is not None:
        say(_send_any(store, "kill", run=kill)["text"])
    elif reload:
        say(_send_any(store, "reload")["text"])
    return status or kill is not None or reload


def _send_any(store: Path, command: str, **given: Any) -> Mapping[str, Any]:
    """Give an order to the server of a store, whatever its form."""
    first: NotFoundError | None = None
    for form in CONTROL_FORMS:
        try:
            return send(store, form, command, **given)
        except NotFoundError as error:
            first = first or error
    assert first is not None
    raise first


class Operator:
    """Log, control and status of one server, from its start to its end: a context.

    Parameters
    ----------
    path : Path
        The store.
    form : {"tcp", "shm", "flight"}
        The form of the server.
    log, level : str
        Form and level of the log.
    spans : str, optional
        URL of a collector of spans.
    """

    def __init__(self, path: Path, form: str, *, log: str, level: str, spans: str | None = None) -> None:
        for name, value, words in (("--log", log, FORMS), ("--log-level", level, LEVELS)):
            if value not in words:
                raise typer.BadParameter(f"{name} is {value!r}: must be one of {', '.join(words)}")
        self._path, self._form = path, form
        self.log = ServerLog(sys.stderr, log, level)
        # A server that does not begin is an error of the command line, whose text is enough for people.
        self._tells_failures = log == "json"
        self._spans: SpanSender | None = None
        if spans is not None:
            resource = {"service.instance.id": f"{path.name}:{os.getpid()}", "nandarray.store": str(path)}
            self._spans = SpanSender(spans, resource, lambda why: self.log.add("spans_lost", why=why))
            self.log.pass_to(self._spans.add)
        self._late = 0
        self._late_told = float("-inf")

    def __enter__(self) -> Operator:
        self.log.add("start", store=str(self._path), transport=self._form, pid=os.getpid())
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.log.add("stop")
        elif self._tells_failures:
            self.log.add("failed", why=f"{type(error).__name__}: {error}")
        self.log.stop()
        if self._spans is not None:
            self._spans.stop()

    def run(
        self,
        store: Store,
        status: Callable[[], Mapping[str, Any]],
        signals: Signals,
        *,
        ready: str,
        kill: Callable[[int], None] | None = None,
        reload: Callable[[], str] | None = None,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep the status, answer orders and look at the server until it is to stop, or a look raises.

        A service manager gets the words ``ready`` once it serves, and a notice of its end. ``kill`` stops a run by its
        number, ``reload`` reads files again and says in words what has changed.
        """
        handlers: dict[str, Callable[..., Mapping[str, Any]]] = {
            "status": lambda: {"pid": os.getpid(), **status()},
        }
        if kill is not None:
            handlers["kill"] = lambda run: self._kill(kill, run)
        if reload is not None:
            handlers["reload"] = lambda: self._reload(reload)
        self._tells_failures = True
        file, watch = StatusFile(self._path, self._form, store._file_state()), FileWatch(store)
        control = ControlSocket(self._path, self._form, handlers)
        try:
            while True:
                now = status()
                file.write({key: value for key, value in now.items() if key not in _PASSING})
                if ready:  # a manager that gets the notice may ask for the status
                    notify(READY, ready)
                    ready = ""
                self._tell_late(now)
                watch.look()
                told = signals.wait(_LOOK_SECONDS)
                if told is Told.END:
                    return
                if told is Told.REREAD and reload is not None:
                    self._reread(reload)
                look()
        finally:
            notify(STOPPING)
            control.stop()
            file.remove()

    @staticmethod
    def _kill(kill: Callable[[int], None], run: int) -> Mapping[str, Any]:
        kill(run)
        return {"text": f"run {run} is told to stop"}

    def _reload(self, reload: Callable[[], str]) -> Mapping[str, Any]:
        try:
            text = reload()
        except Exception as error:
            self.log.add("reload_failed", why=str(error))
            raise
        self.log.add("reload", why=text)
        return {"text": text}

    def _reread(self, reload: Callable[[], str]) -> None:
        """Have files read again, as a signal asks: what is wrong is in the log."""
        with suppress(NandarrayError, OSError):
            self._reload(reload)

    def _tell_late(self, status: Mapping[str, Any]) -> None:
        """Tell late completions of a paced drive, once in a while."""
        late = status.get("pace", {}).get("late", 0)
        if late > self._late and time.monotonic() - self._late_told >= _LATE_SECONDS:
            self.log.add("late", late=late - self._late)
            self._late, self._late_told = late, time.monotonic()
