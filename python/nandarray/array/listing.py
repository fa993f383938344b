"""Arrays and groups by name, without opening them: what kind a name is, and the facts in the store's index."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from nandarray import dtypes
from nandarray.array.attributes import from_json
from nandarray.errors import CorruptError

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
        "dtype": dtypes.shown(known["dtype"]),
        "building_block": list(known["building_block"]),
        "compression": known["compression"],
        "encrypted": bool(known["encrypted"]),
        "bytes": prod(shape) * known["itemsize"],
        "attrs": _attributes(known["attrs"]),
    }


def _attributes(text: str) -> Any:
    """Return attributes for a list of arrays, which has the text of those that cannot be read."""
    try:
        return from_json(text)
    except CorruptError:
        return text


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
