"""The catalog of a served store for a tenant: tables and arrays by name, at one version.

A store of parts is read at a version that a ticket names, whatever was committed since; a store of one file as it is.
Changes that its process has not committed are none of a version: those from before are committed at the start.
A table is there for a tenant that may read all of its arrays.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from nandarray.array.array import Array
from nandarray.array.group import Group
from nandarray.array.store import Store
from nandarray.errors import CorruptError, InvalidError, NotFoundError, ProtectedError
from nandarray.flight.access import Guest
from nandarray.interop import tables
from nandarray.parts.store import PartedStore

__all__ = ["Catalog"]

#: Versions of a store of parts that are kept open.
_KEPT = 4


class Catalog:
    """Tables and arrays of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._kept: OrderedDict[int, PartedStore] = OrderedDict()
        self._lock = threading.Lock()
        if isinstance(store, PartedStore) and not store.read_only:
            store.flush()

    def newest(self) -> tuple[Store, int | None]:
        """Return the store as it is now, with its version if it has some."""
        if not isinstance(self.store, PartedStore):
            if self.store.read_only:  # another process may write to it
                self.store.refresh()
            return self.store, None
        with self._lock:
            self.store.refresh()
            version = self.store.version
        return self.at(version), version

    def at(self, version: int | None) -> Store:
        """Return the store at a version.

        Raises
        ------
        InvalidError
            There are versions and it is none, or the other way round.
        NotFoundError
            It has expired.
        """
        if not isinstance(self.store, PartedStore):
            if version is not None:
                raise InvalidError(f"a ticket must have no version of this store, which is one file, and has {version}")
            return self.store
        if version is None:
            raise InvalidError("a ticket must have a version of this store, which has parts: ask get_flight_info")
        with self._lock:
            found = self._kept.pop(version, None) or self.store.at(version=version)
            self._kept[version] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)  # calls that read it have it still
        return found

    def listed(self, store: Store, guest: Guest, pattern: str) -> Iterator[tuple[str, str, Any]]:
        """Yield kind, name, and the table or array of all that a tenant may read and whose names fit a pattern."""
        inside: str | None = None
        for name, item in _walked(store):
            if inside is not None and name.startswith(inside):
                continue
            table = _table(store, name)
            if table is not None and not isinstance(item, Array):
                inside = f"{name}/"
            if not _fits(name, pattern) or not all(map(guest.tenant.reads, _arrays(store, name))):
                continue
            if table is not None:
                yield "table", name, table
            elif isinstance(item, Array):
                yield "array", name, item

    def kind(self, store: Store, guest: Guest, name: str) -> str:
        """Return whether a name is a table's or an array's.

        Raises
        ------
        NotFoundError
            It is of neither, or of none that the tenant may read.
        """
        self._check_readable(store, guest, name)
        return "array" if _table(store, name) is None else "table"

    def open(self, store: Store, guest: Guest, kind: str, name: str, *, write: bool = False) -> Any:
        """Open a table or an array.

        Raises
        ------
        NotFoundError
            There is none that the tenant may read.
        ProtectedError
            It may not write it.
        """
        names = self._check_readable(store, guest, name)
        if write and not all(map(guest.tenant.writes, names)):
            raise ProtectedError(f"{guest.tenant.name} may not write {name!r}")
        if write and kind == "array" and (whole := _table_around(store, name)) is not None:
            raise InvalidError(f"{name!r} is a column of table {whole!r}, which knows what it has: append rows to that")
        if kind == "table":
            return tables.open_table(store, name)
        found = store[name]
        if not isinstance(found, Array):
            raise NotFoundError(f"{name!r} must be an array or a table, and is a {type(found).__name__}")
        return found

    @staticmethod
    def _check_readable(store: Store, guest: Guest, name: str) -> list[str]:
        # One name each: rules of tenants are patterns of names, and ``shared/`` would fit ``shared/*``.
        is_own = bool(name) and name == name.strip("/")
        names = _arrays(store, name) if is_own and name in store else []
        if not names or not all(map(guest.tenant.reads, names)):
            raise NotFoundError(f"there is no table or array {name!r} for {guest.tenant.name}")
        return names


def _walked(store: Store) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    store.visititems(lambda name, item: found.append((name, item)))
    return sorted(found, key=lambda one: one[0].split("/"))


def _arrays(store: Store, name: str) -> list[str]:
    """Return the full names of the arrays that something consists of."""
    item = store[name]
    return [f"{name}/{inner}" for inner in item.array_names()] if isinstance(item, Group) else [name]


def _fits(name: str, pattern: str) -> bool:
    """Whether a name fits a pattern, in which ``*`` stands for any characters, as in rules of tenants."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == first
    *inner, last = rest
    if not name.startswith(first):
        return False
    at = len(first)
    for part in inner:
        found = name.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(name) - len(last) >= at and name.endswith(last)


def _table_around(store: Store, name: str) -> str | None:
    """Return the table of columns that an array belongs to, if it is one's."""
    parts = name.split("/")
    above = ("/".join(parts[:count]) for count in range(1, len(parts)))
    return next((one for one in above if _table(store, one) is not None), None)


def _table(store: Store, name: str) -> Any:
    try:
        return tables.open_table(store, name)
    except (NotFoundError, InvalidError, CorruptError):
        return None
