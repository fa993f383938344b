"""Secrets of DH-HMAC-CHAP, by which hosts and drives prove their identity to each other.

A secret is a text, ``DHHC-1:hh:BASE64:``, as ``nvme gen-dhchap-key`` prints it and ``nvme connect --dhchap-secret``
takes it. A file of secrets has a line for each host: its qualified name, its secret and, if the drive is to prove its
own identity, the controller's secret for this host.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Literal

from nandarray import _nandarray
from nandarray.errors import InvalidError
from nandarray.inputs import open_input

__all__ = ["new_secret", "read_secrets"]

_HASHES = {"none": (0, 32), "sha256": (1, 32), "sha384": (2, 48), "sha512": (3, 64)}


def new_secret(hash: Literal["none", "sha256", "sha384", "sha512"] = "sha256") -> str:
    """Make a random secret.

    Parameters
    ----------
    hash : {"none", "sha256", "sha384", "sha512"}
        Hash function that transforms the key for its host; the key has the length of a digest.

    Returns
    -------
    str
        The secret's text.

    Examples
    --------
    >>> new_secret()[:10]
    'DHHC-1:01:'
    """
    if hash not in _HASHES:
        raise InvalidError(f"hash must be one of {', '.join(_HASHES)}, not {hash!r}")
    number, length = _HASHES[hash]
    return _nandarray.dhchap_secret(number, secrets.token_bytes(length))


def read_secrets(path: str | os.PathLike[str]) -> dict[str, tuple[str, str | None]]:
    """Read a file of secrets.

    Parameters
    ----------
    path : path_like
        The file. Empty lines, and lines that begin with ``#``, are passed over.

    Returns
    -------
    dict
        Pairs of secrets (host's, controller's or None) by the qualified names of hosts.

    Raises
    ------
    InvalidError
        It is no text, a line has another form, a host has two lines, there is no line, other users may read the file,
        or it is of another user.
    """
    file = Path(path)
    with open_input(file) as opened:
        told = os.fstat(opened.fileno())
        if told.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            mode = stat.S_IMODE(told.st_mode)
            raise InvalidError(f"{file} has mode {mode:o}: other users may read the secrets (chmod 600)")
        if told.st_uid not in (0, os.geteuid()):
            raise InvalidError(f"{file} belongs to user {told.st_uid}, who may change the secrets")
        try:
            text = opened.read().decode()
        except UnicodeDecodeError as error:
            raise InvalidError(
                f"{file} must be text in UTF-8 with a line for each host; byte {error.start} is not"
            ) from None
    found: dict[str, tuple[str, str | None]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) not in (2, 3) or not words[0].startswith("nqn."):
            raise InvalidError(f"{file}, line {number} must be a host's NQN, its secret and perhaps the controller's")
        if words[0] in found:
            raise InvalidError(f"{file}, line {number}: a second secret of {words[0]}")
        found[words[0]] = (words[1], words[2] if len(words) == 3 else None)
    if not found:
        raise InvalidError(f"{file} has no secret: no host could connect")
    return found
