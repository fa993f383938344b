"""Notices to a service manager: ``READY=1`` when a store is served, ``STOPPING=1`` when its server ends.

The protocol is that of ``sd_notify(3)``: a datagram to the socket that ``NOTIFY_SOCKET`` names, a path or, behind
``@``, an abstract name. Where there is none, nothing is sent. Watchdogs are not here: the engine has no loop that could
stop without the process.
"""

from __future__ import annotations

import os
import socket
import warnings

__all__ = ["READY", "STOPPING", "notify"]

READY, STOPPING = "READY=1", "STOPPING=1"


def notify(state: str, status: str = "") -> None:
    """Tell the service manager, if there is one.

    Parameters
    ----------
    state : str
        :data:`READY` or :data:`STOPPING`.
    status : str
        A line on the service for people.
    """
    name = os.environ.get("NOTIFY_SOCKET", "")
    if not name.startswith(("/", "@")):
        return
    address = f"\0{name[1:]}" if name.startswith("@") else name
    said = state if not status else f"{state}\nSTATUS={status}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.settimeout(1)  # a manager that does not read must not hold the server
            manager.sendto(said.encode(), address)
    except OSError as error:
        warnings.warn(f"NOTIFY_SOCKET={name}: {error.strerror or error}", UserWarning, stacklevel=2)
