"""Arrays under hidden names until all of them are whole: the names of imports and copies that are under way.

The remains of a killed process are removed when the store is next opened for writing, or by the next that
makes some; those of this process that are under way are known here, and left alone.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nandarray.array.names import UNFINISHED, is_unfinished

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["active", "active_lock", "delete_all", "deleted_on_error", "hidden", "sweep"]

#: Hidden groups of this process that are under way, and what guards them.
active: set[str] = set()
active_lock = threading.Lock()


@contextmanager
def hidden(store: Store) -> Iterator[str]:
    """Give the name of a new hidden group; what is left in it at the end is deleted if there is an error."""
    sweep(store)
    name = f"{UNFINISHED}{uuid.uuid4().hex[:12]}"
    with active_lock:
        active.add(name)
    try:
        yield name
    except BaseException:
        if not store.closed:
            delete_all(store, [name])
        raise
    finally:
        with active_lock:
            active.discard(name)


@contextmanager
def deleted_on_error(store: Store) -> Iterator[list[str]]:
    """Give a list for the full names of what is made behind a door, which has no hidden names; an error deletes it."""
    made: list[str] = []
    try:
        yield made
    except BaseException:
        if not store.closed:
            store._engine.together(delete=[one for one in made if one in store._engine])
        raise


def sweep(store: Store) -> None:
    """Remove what killed processes left: no other process can be writing while this one has the store."""
    with active_lock:
        stale = {name.partition("/")[0] for name in store._engine.names(UNFINISHED) if is_unfinished(name)} - active
    delete_all(store, sorted(stale))


def delete_all(store: Store, names: Sequence[str]) -> None:
    """Delete arrays and groups by full names, those that are there."""
    for name in names:
        if name in store:
            del store[name]
