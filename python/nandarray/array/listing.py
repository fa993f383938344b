"""Arrays and groups by name, without opening them: what kind a name is, and the facts in the store's index."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

from nandarray import dtypes

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.array.group import Group
    from nandarray.array.store import Store

__all__ = ["facts", "groups_below", "is_array", "open_array"]


def is_array(store: Store, name: str) -> bool:
    """Return whether an array has this full name."""
    return name in store._engine


def facts(store: Store, name: str) -> dict[str, Any]:
    """Return the properties of an array that the index has, as JSON values."""
    known = store._engine.describe(name)
    shape = tuple(known["shape"])
    return {
        "name": name,
        "shape": list(shape),
        "dtype": str(dtypes.decode(known["dtype"])),
        "building_block": list(known["building_block"]),
        "compression": known["compression"],
        "encrypted": bool(known["encrypted"]),
        "bytes": prod(shape) * known["itemsize"],
        "attrs": json.loads(known["attrs"]),
    }


def open_array(store: Store, name: str, key: bytes | None) -> Array:
    """Open an array by its full name, with the key if it is an encrypted one."""
    encrypted = is_array(store, name) and bool(store._engine.describe(name)["encrypted"])
    return store.open_array(name, encryption_key=key if encrypted else None)


def groups_below(group: Group) -> list[str]:
    """Return the names of all groups below ``group``, relative to it, parents first."""
    found: set[str] = set()
    for name in group._below():  # with the hidden arrays that keep empty groups
        parent = name.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return sorted(found)
