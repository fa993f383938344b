"""Qualified names of NVMe (NQNs): the texts by which hosts and subsystems are known."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from nandarray.errors import InvalidError

__all__ = ["check_nqn", "own_nqn"]

#: Name space of the identifiers of hosts.
_HOSTS = uuid.UUID("6e616e64-6172-4172-a179-686f73747300")
#: Bytes of the longest qualified name.
_BYTES_MOST = 223


def check_nqn(name: str, what: str) -> str:
    """Return a qualified name, or say why it is none by an InvalidError.

    It begins with ``nqn.``, has 223 bytes at most, and no white space or control characters. ``what`` bears it: "the
    subsystem", "this host".
    """
    if not isinstance(name, str):
        raise InvalidError(f"the name of {what} must be a text that begins with 'nqn.', not {type(name).__name__}")
    if not name.startswith("nqn.") or name == "nqn.":
        raise InvalidError(f"the name of {what} must be an NQN, which begins with 'nqn.', not {_shown(name)}")
    if any(char.isspace() or not char.isprintable() for char in name):
        raise InvalidError(f"the name of {what} must be without spaces and control characters, not {_shown(name)}")
    size = len(name.encode())
    if size > _BYTES_MOST:
        raise InvalidError(f"the name of {what}, {_shown(name)}, has {size} bytes, and must have {_BYTES_MOST} at most")
    return name


def own_nqn() -> str:
    """Return the qualified name of this machine's user as a host: one for all of the user's processes.

    It is made of the machine's identifier (machine-id(5), or the hardware address of its network) and the user's
    number, by which the identifier cannot be found out.
    """
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        machine = ""
    name = f"{machine or hex(uuid.getnode())}:{os.geteuid()}"
    return f"nqn.2014-08.org.nvmexpress:uuid:{uuid.uuid5(_HOSTS, name)}"


def _shown(name: str) -> str:
    return repr(name if len(name) <= 64 else name[:61] + "...")
