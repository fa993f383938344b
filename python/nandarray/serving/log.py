"""Lines of a server's log: what happened, one line each, as text or JSON on a stream.

:data:`LINES` declares the kinds of lines with their levels and fields, :data:`FIELDS` the fields. Lines come from this
process and from the engine's threads, whose events are limited (``crates/nandarray-nvme/src/events.rs``). One thread
writes; a thread that adds a line never waits for it. Texts of hosts reach no terminal raw.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from nandarray.errors import InvalidError
from nandarray.present.plain import plain

__all__ = ["FIELDS", "FORMS", "LEVELS", "LINES", "LineKind", "ServerLog", "page_tables"]

FORMS = ("text", "json")
#: Levels from the least important on.
LEVELS = ("debug", "info", "warning", "error")

#: An event of the engine: its kind, its time in seconds since 1970, its fields.
Event = tuple[str, float, Mapping[str, Any]]

#: All fields beside ``time``, ``level`` and ``event``, which every line has.
FIELDS: dict[str, str] = {
    "store": "path of the store",
    "transport": "form of the server: tcp, shm or flight",
    "address": "address, or name of the region, that hosts connect to",
    "nqn": "qualified name of the drive",
    "metrics": "address of `/metrics`",
    "pid": "number of the process",
    "host": "qualified name of the host, as it says",
    "controller": "number of the host's controller",
    "queue": "number of the queue",
    "operation": "kind of the command, as in the metrics",
    "status": "name of the command's NVMe status, or of the call's in gRPC",
    "run": "number of the run",
    "programs": "name of the program, or of the programs",
    "duration_ns": "duration in nanoseconds",
    "cpu_ns": "processor time in nanoseconds",
    "instructions": "instructions of the tasks that are done",
    "late": "completions that left late since the last such line",
    "of": "kind of the lines that were left out",
    "events": "how many there were",
    "why": "reason, in words",
}


@dataclass(frozen=True)
class LineKind:
    """A kind of line: its level, what happened, and its fields."""

    level: str
    help: str
    fields: tuple[str, ...] = ()


LINES: dict[str, LineKind] = {
    "start": LineKind("info", "The server starts.", ("store", "transport", "pid")),
    "ready": LineKind("info", "Hosts can connect.", ("address", "nqn", "metrics")),
    "connect": LineKind("info", "A host has connected, and has proved its identity.", ("host", "controller")),
    "disconnect": LineKind("info", "A host has gone.", ("host", "controller")),
    "login_refused": LineKind("warning", "A login was refused.", ("host", "why")),
    "run_begin": LineKind("debug", "A run of programs begins.", ("host", "run", "programs")),
    "run_end": LineKind(
        "info",
        "A run has ended.",
        ("host", "controller", "run", "programs", "duration_ns", "cpu_ns", "instructions"),
    ),
    "run_failed": LineKind(
        "warning",
        "A run has failed.",
        ("host", "controller", "run", "programs", "duration_ns", "cpu_ns", "instructions", "why"),
    ),
    "run_killed": LineKind(
        "warning",
        "A run was stopped: by the operator, by its host, or at the time that it may take.",
        ("host", "controller", "run", "programs", "duration_ns", "cpu_ns", "instructions", "why"),
    ),
    "command_slow": LineKind(
        "warning",
        "A command other than a run took a second or more.",
        ("host", "controller", "queue", "operation", "duration_ns", "status"),
    ),
    "call_failed": LineKind(
        "info", "A call of an Arrow Flight client failed.", ("host", "operation", "duration_ns", "status", "why")
    ),
    "stalled": LineKind(
        "warning",
        "A connection was ended whose Arrow Flight client took or sent nothing.",
        ("host", "operation", "why"),
    ),
    "late": LineKind("warning", "Completions of a paced drive left late; told once in ten seconds.", ("late",)),
    "reload": LineKind("info", "The server has read its files again.", ("why",)),
    "reload_failed": LineKind("error", "The server goes on with what it had.", ("why",)),
    "spans_lost": LineKind("warning", "Spans could not be sent; told once in ten seconds.", ("why",)),
    "suppressed": LineKind("warning", "Lines of a kind were too many, and were left out.", ("of", "events")),
    "stop": LineKind("info", "The server stops.", ("why",)),
    "failed": LineKind("error", "The server ends since it cannot serve.", ("why",)),
}


class ServerLog:
    """The log of a server, written by a thread of its own until :meth:`stop`.

    Parameters
    ----------
    stream : TextIO
        Stream of the lines. One that cannot be written any more ends the log, not the server.
    form : {"text", "json"}
        The form of lines.
    level : {"debug", "info", "warning", "error"}
        The least important level that is written.
    """

    #: Most lines of this process that wait for the thread.
    _WAITING_MAX = 256
    #: Time for which the end waits for a stream that no process reads.
    _END_SECONDS = 2.0

    def __init__(self, stream: TextIO, form: str = "text", level: str = "warning") -> None:
        if form not in FORMS:
            raise InvalidError(f"the form of the log is {form!r}: must be one of {', '.join(FORMS)}")
        if level not in LEVELS:
            raise InvalidError(f"the level of the log is {level!r}: must be one of {', '.join(LEVELS)}")
        self._stream, self._form, self._least = stream, form, LEVELS.index(level)
        self._waiting: deque[Event] = deque(maxlen=self._WAITING_MAX)
        self._events: Callable[[float], Iterable[Event]] | None = None
        self._passed_to: Callable[[str, float, Mapping[str, Any]], None] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nandarray-log", daemon=True)
        self._thread.start()

    def add(self, kind: str, **fields: Any) -> None:
        """Add a line; fields that are None are left out."""
        given = {name: value for name, value in fields.items() if value is not None}
        assert set(given) <= set(LINES[kind].fields), (kind, given)
        self._waiting.append((kind, time.time(), given))

    def follow(self, events: Callable[[float], Iterable[Event]]) -> None:
        """Write the events of a server, too, which a function returns that waits some seconds for them."""
        events(0.0)  # from now on they are kept
        self._events = events

    def pass_to(self, taker: Callable[[str, float, Mapping[str, Any]], None]) -> None:
        """Pass kind, time and fields of every line, whatever its level, to a function that does not wait."""
        self._passed_to = taker

    def stop(self) -> None:
        """Write what is left, and end."""
        self._over.set()
        self._thread.join(self._END_SECONDS)

    def _run(self) -> None:
        is_last, can_write = False, True
        while not is_last:
            is_last = self._over.is_set()
            found: list[Event] = []
            follow = self._events
            if follow is not None:
                try:
                    found.extend(follow(0.0 if is_last else 0.2))
                except Exception:  # the server has gone
                    self._events = None
            else:
                self._over.wait(0.1)
            while self._waiting:
                found.append(self._waiting.popleft())
            taker = self._passed_to
            if taker is not None:
                for one in found:
                    taker(*one)
            try:
                if can_write:
                    self._write(sorted(found, key=lambda one: one[1]))
            except (OSError, ValueError):
                can_write = False
                if taker is None:
                    return

    def _write(self, found: Iterable[Event]) -> None:
        lines = [self.line(*one) for one in found if LEVELS.index(LINES[one[0]].level) >= self._least]
        if lines:
            self._stream.write("".join(lines))
            self._stream.flush()

    def line(self, kind: str, at: float, fields: Mapping[str, Any]) -> str:
        """Return one line, with its end."""
        when = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        level = LINES[kind].level
        if self._form == "json":
            text = json.dumps({"time": when, "level": level, "event": kind, **fields})
            return text.replace("\x7f", "\\u007f") + "\n"
        return " ".join([when, level, kind, *(f"{name}={_value(value)}" for name, value in fields.items())]) + "\n"


def _value(value: Any) -> str:
    """Return a value as a line of text has it: in quotation marks where it would not be one word."""
    text = str(value)
    if isinstance(value, str) and (not text or any(one.isspace() or one in '"=\\' for one in text)):
        text = json.dumps(text, ensure_ascii=False)
    return plain(text)


def page_tables() -> str:
    """Return the tables of lines and fields, as docs/reference/metrics.md has them."""
    lines = [
        f"| `{name}` | {kind.level} | {kind.help} | {', '.join(f'`{one}`' for one in kind.fields)} |"
        for name, kind in LINES.items()
    ]
    fields = [f"| `{name}` | {text} |" for name, text in FIELDS.items()]
    return "\n".join(
        [
            "| event | level | meaning | fields |",
            "| --- | --- | --- | --- |",
            *lines,
            "",
            "| field | meaning |",
            "| --- | --- |",
            *fields,
            "",
        ]
    )
