"""``STORE[:/NAME]``: a store, and a name in it, as ``nandarray cp`` takes them.

A store is a file, the address of a served one (``nvme+tcp://HOST:PORT``, ``shm://NAME``), or the URL of an object.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import nandarray
from nandarray.cli.common import open_store
from nandarray.urls import is_served, split_remote

__all__ = ["is_same", "open_placed", "open_target", "placed"]


def placed(text: str) -> tuple[str, str]:
    """Take a word apart into store and name, which is empty for the whole store."""
    scheme = text.find("://")
    at = text.find(":/", 0 if scheme < 0 else scheme + 3)
    return (text, "") if at < 0 else (text[:at], text[at + 2 :].strip("/"))


def is_same(one: str, other: str) -> bool:
    """Return whether two words for stores are one store."""
    if one == other:
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def open_placed(store: str, mode: str) -> Any:
    """Open a store that is there."""
    return nandarray.open(store, mode) if is_served(store) else open_store(store, mode)  # type: ignore[arg-type]


@contextmanager
def open_target(store: str) -> Iterator[Any]:
    """Open a store for writing; one that is made for that is removed again if there is an error."""
    made = not is_served(store) and split_remote(store) is None and not os.path.exists(store)
    with open_placed(store, "r+") if not made else nandarray.open(store, "x") as opened:
        try:
            yield opened
        except BaseException:
            if made:
                os.unlink(store)
            raise
