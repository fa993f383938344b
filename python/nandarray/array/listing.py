"""Arrays and groups by name, without opening them: what kind a name is, and the facts in the store's index.

A ragged array is a group whose attribute ``_RAGGED`` says so (:mod:`nandarray.array.ragged`); here it is one thing.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any

from nandarray import dtypes
from nandarray.array.attributes import from_json
from nandarray.errors import CorruptError

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.array.members import Members
    from nandarray.array.store import Store

__all__ = ["RAGGED", "facts", "groups_below", "is_array", "listed", "open_array", "ragged_facts", "ragged_kind"]

#: The attribute of a group that makes it a ragged array: "text", "bytes" or "list".
RAGGED = "_RAGGED"
#: As :data:`nandarray.array.group.MARKER`, the name of the hidden array that keeps a group and its attributes.
_MARKER = ".group"


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


def ragged_kind(store: Store, path: str) -> str | None:
    """Return the kind of a ragged array by its full name, as its attribute has it; None if it is none."""
    marker = f"{path}/{_MARKER}"
    if not path or marker not in store._engine:
        return None
    text = store._engine.describe(marker)["attrs"]
    if RAGGED in text:
        with suppress(CorruptError):  # attributes that cannot be read say nothing
            kind = from_json(text).get(RAGGED)
            return None if kind is None else str(kind)
    return None


def ragged_facts(store: Store, path: str, kind: str) -> dict[str, Any]:
    """Return the properties of a ragged array that the index has, under the names that those of an array have."""
    parts = {
        base: facts(store, f"{path}/{base}")
        for base in ("offsets", "values", "valid")
        if is_array(store, f"{path}/{base}")
    }
    values, offsets = parts.get("values", {}), parts.get("offsets", {})
    inner = values.get("shape", [0])[1:]
    what = f"list of {values.get('dtype')}" + (f" {tuple(inner)}" if inner else "")
    return {
        "name": path,
        "shape": [max(0, offsets.get("shape", [1])[0] - 1)],
        "dtype": what if kind == "list" else kind,
        "building_block": values.get("building_block", []),
        "compression": values.get("compression"),
        "encrypted": bool(values.get("encrypted")),
        "bytes": sum(one["bytes"] for one in parts.values()),
        "attrs": _attributes(store._engine.describe(f"{path}/{_MARKER}")["attrs"]),
    }


def listed(store: Store, names: list[str]) -> dict[str, str | None]:
    """Return full names of arrays, ragged ones as one with their kind, in place of their parts."""
    above = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == "offsets"}
    kinds = {path: kind for path in above if (kind := ragged_kind(store, path)) is not None}
    found: dict[str, str | None] = {}
    for name in names:
        group, _, base = name.rpartition("/")
        own = group in kinds and base in ("offsets", "values", "valid")
        found[group if own else name] = kinds[group] if own else None
    return found


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


def groups_below(group: Members) -> list[str]:
    """Return the names of all groups below ``group``, relative to it, parents first."""
    found: set[str] = set()
    for name in group._below():  # with the hidden arrays that keep empty groups
        parent = name.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return sorted(found)
