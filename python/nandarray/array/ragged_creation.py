"""Creating a ragged array: its kind settled, its arrays made, its first rows written; and finding one by its name.

In a file it is written under a hidden name and gets its own by one command at the end. A door has no hidden names;
there its group gets the attribute that makes it a ragged array last, and an error removes what was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from nandarray.array.attributes import from_json, to_json
from nandarray.array.group import Group
from nandarray.array.listing import RAGGED, ragged_kind
from nandarray.array.names import MARKER, make_marker
from nandarray.array.ragged import Ragged
from nandarray.array.ragged_values import RaggedKind, settle_kind
from nandarray.array.unfinished import hidden
from nandarray.door import Source
from nandarray.errors import InvalidError, NandarrayError

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["create_ragged", "found_ragged", "make_ragged"]


def create_ragged(
    group: Group,
    name: str,
    data: Any,
    dtype: DTypeLike | None,
    *,
    compression: str | None,
    encryption_key: bytes | None,
    attrs: Mapping[str, Any] | None,
) -> Ragged:
    """Create a ragged array with its first rows, whole or not at all: :meth:`Group.create_ragged`."""
    path, store = group._join_new(name), group.store
    if not path:
        raise InvalidError("a ragged array must have a name; the root is a group")
    if attrs is not None and RAGGED in from_json(to_json(attrs)):
        raise InvalidError(f"attribute {RAGGED!r} says what a ragged array is, and cannot be given")
    kind, item = data._kind_and_item() if isinstance(data, Ragged) and dtype is None else settle_kind(data, dtype)
    store._check_free(path)
    how: dict[str, Any] = {"compression": compression, "encryption_key": encryption_key}
    told = {} if attrs is None else attrs
    if isinstance(store._engine, Source):
        try:
            make_ragged(store, path, data, (kind, item), told, **how)
        except BaseException:
            if not store.closed:
                ours = {f"{path}/{base}" for base in ("offsets", "values", "valid", MARKER)}
                with suppress(NandarrayError):
                    store._engine.together(delete=sorted(ours.intersection(store._engine.names(f"{path}/"))))
            raise
    else:
        with hidden(store) as temporary:
            make_ragged(store, f"{temporary}/0", data, (kind, item), told, **how)
            with store._lock:
                store._check_free(path)
                store._engine.together(
                    rename=[(one, path + one[len(temporary) + 2 :]) for one in store._engine.names(f"{temporary}/")]
                )
    return Ragged(store, path, kind, encryption_key)


def make_ragged(
    store: Store,
    path: str,
    data: Any,
    what: tuple[RaggedKind, np.dtype[Any]],
    attrs: Mapping[str, Any],
    *,
    compression: str | None,
    encryption_key: bytes | None,
    packed: bool = False,
) -> Ragged:
    """Make one under a full name, which may be hidden, by a command for each part; the group's attribute comes last.

    The compression is that of all parts; if ``packed``, offsets are packed by their bits instead.
    """
    kind, item = what
    how: dict[str, Any] = {"compression": compression, "encryption_key": encryption_key}
    told = to_json({**attrs, RAGGED: kind})
    store._create(f"{path}/offsets", (1,), np.int64, **{**how, **({"compression": "bitpack"} if packed else {})})
    store._create(f"{path}/values", (0, *item.shape), item.base, **how)
    made = Ragged(store, path, kind, encryption_key)
    if data is not None:
        made.append(data)
    make_marker(store._engine, f"{path}/{MARKER}", told)
    return made


def found_ragged(group: Group, key: bytes | None) -> Group | Ragged:
    """Return the ragged array that a group is; the group itself if it is a plain one."""
    path = group.name.strip("/")
    kind = ragged_kind(group.store, path)
    return group if kind is None else Ragged(group.store, path, kind, key)
