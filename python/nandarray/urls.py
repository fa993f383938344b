"""URLs of stores: those that another process or the kernel serves, and those far away; each beginning is written here.

``s3://BUCKET/KEY`` and the other beginnings in ``REMOTE`` are objects far away. ``shm://NAME`` is a region of shared
memory; ``nvme+tcp://HOST:PORT/NQN``, ``nvme+tls://HOST:PORT/NQN`` and ``nvme+unix:///PATH`` are drives, as is
``/dev/nvmeX``, the device of one that this machine's kernel is connected to. A place where a server listens is
``HOST:PORT`` or ``unix:PATH``. Nothing here connects; :mod:`nandarray.nvme.places`
takes URLs of drives apart.
"""

from __future__ import annotations

import os
import re
from typing import Any, TypeGuard

from nandarray.errors import InvalidError

__all__ = [
    "REMOTE",
    "SHARED",
    "SOCKET",
    "TCP",
    "TLS",
    "UNIX",
    "is_served",
    "is_url",
    "refuse_unknown",
    "shared_name",
    "shared_url",
    "split_remote",
]

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

_ANY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SERVED = re.compile(rf"{re.escape(TCP)}|{re.escape(TLS)}|{re.escape(UNIX)}|{re.escape(SHARED)}|/dev/nvme\d+\Z")


def is_served(path: Any) -> TypeGuard[str]:
    """Whether a path, as :func:`nandarray.open` takes it, is a store that another process or the kernel serves."""
    return isinstance(path, str) and _SERVED.match(path) is not None


def is_url(path: Any) -> TypeGuard[str]:
    """Whether a path is no path of this machine's files: a store that is served, or one far away."""
    return is_served(path) or split_remote(path) is not None


def refuse_unknown(path: str) -> None:
    """Refuse a URL that begins otherwise than those here: as a path it would name a folder ``hdfs:``.

    Raises
    ------
    InvalidError
        It is such a URL, and no folder of that name is there.
    """
    if _ANY.match(path) and not is_url(path) and not os.path.isdir(os.path.dirname(path)):
        raise InvalidError(f"{path!r} is a URL of a kind that is not known; storage= opens what fsspec reaches")


def shared_name(url: str) -> str | None:
    """Return the name of the region of shared memory that a URL names; None if it names a drive."""
    return url.removeprefix(SHARED) if url.startswith(SHARED) else None


def shared_url(name: str) -> str:
    """Return the URL of a region of shared memory."""
    return SHARED + name


#: The beginnings of URLs of objects in buckets and behind HTTP.
REMOTE = (
    "s3://",
    "s3a://",
    "gs://",
    "gcs://",
    "az://",
    "abfs://",
    "abfss://",
    "adl://",
    "azure://",
    "http://",
    "https://",
)


def split_remote(path: Any) -> tuple[str, str] | None:
    """Return the bucket or server of a URL of an object, and the object's key; None if it is no such URL.

    >>> from nandarray.urls import split_remote
    >>> split_remote("s3://bucket/survey/sky.nand")
    ('s3://bucket', 'survey/sky.nand')
    """
    if not isinstance(path, str) or not path.startswith(REMOTE):
        return None
    scheme, _, rest = path.partition("://")
    host, _, key = rest.partition("/")
    return f"{scheme}://{host}", key
