"""Errors as clients of the Flight door get them: a status of gRPC, and the error's own text.

Arrow sends the traceback of an exception of its own along; what is raised here has none that names files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa
from pyarrow import flight as fl

from nandarray.errors import (
    BusyError,
    CancelledError,
    ClosedError,
    ConflictError,
    CorruptError,
    InternalError,
    MediaError,
    NandarrayError,
    NotFoundError,
    ReadOnlyError,
    StoreFullError,
)

__all__ = ["LateError", "status_of", "tells", "text_of", "told"]

#: Characters of an error's text, at most: Arrow sends it twice, and more of it.
_TEXT_MAX = 1500

_P = ParamSpec("_P")
_R = TypeVar("_R")


class LateError(CancelledError):
    """A call took longer than it may."""


#: Errors, the more special first: the status of gRPC, and what Arrow raises for it.
_STATUSES: tuple[tuple[type[BaseException], str, Callable[[str], Exception]], ...] = (
    (NotFoundError, "NOT_FOUND", pa.ArrowKeyError),
    (ReadOnlyError, "PERMISSION_DENIED", fl.FlightUnauthorizedError),
    (LateError, "DEADLINE_EXCEEDED", fl.FlightTimedOutError),
    # Not CANCELLED: PyArrow takes it for Ctrl-C, and interrupts its process.
    (CancelledError, "UNKNOWN", fl.FlightServerError),
    (BusyError, "UNAVAILABLE", fl.FlightUnavailableError),
    (ClosedError, "UNAVAILABLE", fl.FlightUnavailableError),
    (ConflictError, "UNAVAILABLE", fl.FlightUnavailableError),
    (StoreFullError, "UNKNOWN", fl.FlightServerError),
    (CorruptError, "INTERNAL", fl.FlightInternalError),
    (MediaError, "INTERNAL", fl.FlightInternalError),
    (InternalError, "INTERNAL", fl.FlightInternalError),
    (NotImplementedError, "UNIMPLEMENTED", pa.ArrowNotImplementedError),
    (NandarrayError, "INVALID_ARGUMENT", pa.ArrowInvalid),
    (pa.ArrowInvalid, "INVALID_ARGUMENT", pa.ArrowInvalid),
)


def _found(error: BaseException) -> tuple[str, Callable[[str], Exception]]:
    for kind, status, made in _STATUSES:
        if isinstance(error, kind):
            return status, made
    return "INTERNAL", fl.FlightInternalError


def status_of(error: BaseException) -> str:
    """Return the name of the status of an error."""
    return _found(error)[0]


def text_of(error: BaseException) -> str:
    """Return an error's text, cut where a client could make it of any length: gRPC drops errors beyond 8 KiB."""
    text = str(error)
    plain = text.encode("ascii", "backslashreplace").decode()
    if len(plain) > _TEXT_MAX:
        return f"{plain[:_TEXT_MAX]}..."
    return text.encode(errors="backslashreplace").decode()


def told(error: BaseException, hidden: str = "") -> Exception:
    """Return the exception that Arrow gets for an error; ``hidden`` is the store's path, which clients do not learn."""
    if isinstance(error, fl.FlightError):
        known: Exception = error.with_traceback(None)
        return known
    _, made = _found(error)
    is_ours = isinstance(error, NandarrayError | NotImplementedError | pa.ArrowInvalid)
    if not is_ours:  # its text may have anything of the server
        return made(f"unexpected {type(error).__name__}: the server's log has it")
    text = text_of(error)
    return made(text.replace(hidden, "the store") if hidden else text)


def tells(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have a function that Arrow calls raise its errors as clients get them, without the ``hidden`` of its object."""

    @wraps(work)
    def flight(*given: _P.args, **named: _P.kwargs) -> _R:
        try:
            return work(*given, **named)
        except (StopIteration, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 (a client gets every one of them)
            problem = told(error, getattr(given[0], "hidden", "") if given else "")
        raise problem

    made: Any = flight
    made.__code__ = made.__code__.replace(co_filename="nandarray")
    return flight
