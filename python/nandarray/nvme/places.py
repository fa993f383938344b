"""Places where a drive is served: addresses and unix sockets, as texts and in URLs.

A place is ``HOST:PORT`` or ``unix:PATH``. Its URL is ``nvme+tcp://HOST:PORT/NQN``, with TLS
``nvme+tls://HOST:PORT/NQN``, or ``nvme+unix://PATH/NQN``, where the path is absolute; a drive at a unix socket is
found without its name, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nandarray.errors import InvalidError
from nandarray.urls import SOCKET, TCP, TLS, UNIX

__all__ = ["has_tls", "is_unix", "parse_url", "places", "unix_url"]

_TCP_URL = re.compile(rf"(?:{re.escape(TCP)}|{re.escape(TLS)})" + r"(?P<address>[^/]+)/(?P<nqn>nqn\..+)", re.DOTALL)
# The first name in the path that is one of a drive ends the path.
_UNIX_URL = re.compile(re.escape(UNIX) + r"(?P<path>/.+?)(?:/(?P<nqn>nqn\..+))?", re.DOTALL)


def is_unix(place: str) -> bool:
    """Whether a place is a unix socket."""
    return place.startswith(SOCKET)


def has_tls(url: str) -> bool:
    """Whether the connections of a drive with this URL have TLS."""
    return url.startswith(TLS)


def places(listen: str | Sequence[str]) -> list[str]:
    """Return the places of one text, or of a sequence of texts.

    Raises
    ------
    InvalidError
        There is none, or something that is no text.
    """
    found = [listen] if isinstance(listen, str) else list(listen)
    if not found or not all(isinstance(one, str) for one in found):
        raise InvalidError(f"listen must be one or more texts, HOST:PORT or unix:PATH, not {listen!r}")
    return found


def parse_url(url: str) -> tuple[str, str]:
    """Return the place and the name of the drive that a URL names; the name is empty if the URL has none.

    Raises
    ------
    InvalidError
        It is no URL of a drive.
    """
    if found := _TCP_URL.fullmatch(url):
        return found["address"], found["nqn"]
    if found := _UNIX_URL.fullmatch(url):
        return SOCKET + found["path"], found["nqn"] or ""
    raise InvalidError(
        f"the URL of a drive must be {TCP}HOST:PORT/NQN, {TLS}..., {UNIX}/PATH or /dev/nvmeX, with an NQN that begins "
        f"with 'nqn.', not {url!r}"
    )


def unix_url(place: str, nqn: str) -> str:
    """Return the URL of a drive at a unix socket."""
    return f"{UNIX}{place.removeprefix(SOCKET)}/{nqn}"
