"""Secrets of DH-HMAC-CHAP, by which hosts and drives prove their identity to each other, and keys of TLS.

A secret is a text, ``DHHC-1:hh:BASE64:``, as ``nvme gen-dhchap-key`` prints it and ``nvme connect --dhchap-secret``
takes it. A file of secrets has a line for each host: its qualified name, its secret and, if the drive is to prove its
own identity, the controller's secret for this host.

A key of TLS is a text, ``NVMeTLSkey-1:hh:BASE64:``, as ``nvme gen-tls-key`` prints it and ``nvme check-tls-key`` takes
it. A file of keys has a line for each host: its qualified name and its key, and ``compat`` where the host's libnvme
(before 1.16) derives keys otherwise than the specification.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from nandarray import _nandarray
from nandarray.errors import InvalidError
from nandarray.inputs import open_input

__all__ = ["new_secret", "new_tls_key", "read_secrets", "read_tls_keys"]

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
    found: dict[str, tuple[str, str | None]] = {}
    for at, words in _lines(path, "secrets"):
        if len(words) not in (2, 3) or not words[0].startswith("nqn."):
            raise InvalidError(f"{at} must be a host's NQN, its secret and perhaps the controller's")
        if words[0] in found:
            raise InvalidError(f"{at}: a second secret of {words[0]}")
        found[words[0]] = (words[1], words[2] if len(words) == 3 else None)
    if not found:
        raise InvalidError(f"{os.fspath(path)} has no secret: no host could connect")
    return found


def new_tls_key(hash: Literal["sha256", "sha384"] = "sha256") -> str:
    """Make a random key of TLS.

    Parameters
    ----------
    hash : {"sha256", "sha384"}
        Hash function of the cipher suite: ``TLS_AES_128_GCM_SHA256`` with a key of 32 bytes, or
        ``TLS_AES_256_GCM_SHA384`` with one of 48. Each host's own key is derived of it by the same function.

    Returns
    -------
    str
        The key's text.

    Raises
    ------
    InvalidError
        Another hash function.

    Examples
    --------
    >>> new_tls_key()[:16]
    'NVMeTLSkey-1:01:'
    """
    sizes = {"sha256": 32, "sha384": 48}
    if hash not in sizes:
        raise InvalidError(f"hash must be one of {', '.join(sizes)}, not {hash!r}")
    return _nandarray.nvme_tls_key(secrets.token_bytes(sizes[hash]), transformed=True)


def read_tls_keys(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a file of keys of TLS.

    Parameters
    ----------
    path : path_like
        The file. Empty lines, and lines that begin with ``#``, are passed over.

    Returns
    -------
    dict
        Keys by the qualified names of hosts.

    Raises
    ------
    InvalidError
        As :func:`read_secrets`.
    """
    found: dict[str, str] = {}
    for at, words in _lines(path, "keys"):
        if words[2:] not in ([], ["compat"]) or len(words) < 2 or not words[0].startswith("nqn."):
            raise InvalidError(f"{at} must be a host's NQN, its key of TLS and perhaps the word compat")
        if words[0] in found:
            raise InvalidError(f"{at}: a second key of {words[0]}")
        found[words[0]] = " ".join(words[1:])
    if not found:
        raise InvalidError(f"{os.fspath(path)} has no key of TLS: no host could connect")
    return found


def _lines(path: str | os.PathLike[str], what: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines of a file that only its owner may read, as a name for errors and the words."""
    file = Path(path)
    with open_input(file) as opened:
        told = os.fstat(opened.fileno())
        if told.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            mode = stat.S_IMODE(told.st_mode)
            raise InvalidError(f"{file} has mode {mode:o}: other users may read the {what} (chmod 600)")
        if told.st_uid not in (0, os.geteuid()):
            raise InvalidError(f"{file} belongs to user {told.st_uid}, who may change the {what}")
        try:
            text = opened.read().decode()
        except UnicodeDecodeError as error:
            raise InvalidError(
                f"{file} must be text in UTF-8 with a line for each host; byte {error.start} is not"
            ) from None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield f"{file}, line {number}", words
