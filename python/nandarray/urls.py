"""URLs of stores that another process or the kernel serves: how each begins, written here alone.

``shm://NAME`` is a region of shared memory; ``nvme+tcp://HOST:PORT/NQN``, ``nvme+tls://HOST:PORT/NQN`` and
``nvme+unix:///PATH`` are drives, as is ``/dev/nvmeX``, the device of one that this machine's kernel is connected to.
A place where a server listens is ``HOST:PORT`` or ``unix:PATH``. Nothing here connects; :mod:`nandarray.nvme.places`
takes URLs of drives apart.
"""

from __future__ import annotations

import re
from typing import Any, TypeGuard

__all__ = ["SHARED", "SOCKET", "TCP", "TLS", "UNIX", "is_served", "shared_name", "shared_url"]

#: The beginning of the URL of a region of shared memory.
SHARED = "shm://"
#: The beginning of the URL of a drive at an address.
TCP = "nvme+tcp://"
#: The beginning of the URL of a drive at an address, whose connections have TLS.
TLS = "nvme+tls://"
#: The beginning of the URL of a drive at a unix socket.
UNIX = "nvme+unix://"
#: The beginning of a place that is a unix socket, for servers and connections.
SOCKET = "unix:"

_SERVED = re.compile(rf"{re.escape(TCP)}|{re.escape(TLS)}|{re.escape(UNIX)}|{re.escape(SHARED)}|/dev/nvme\d+\Z")


def is_served(path: Any) -> TypeGuard[str]:
    """Whether a path, as :func:`nandarray.open` takes it, is a store that another process or the kernel serves."""
    return isinstance(path, str) and _SERVED.match(path) is not None


def shared_name(url: str) -> str | None:
    """Return the name of the region of shared memory that a URL names; None if it names a drive."""
    return url.removeprefix(SHARED) if url.startswith(SHARED) else None


def shared_url(name: str) -> str:
    """Return the URL of a region of shared memory."""
    return SHARED + name
