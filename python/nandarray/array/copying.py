"""Copies of arrays and groups, within a store and between stores behind any doors.

A copy has the dtype, fill value, compression, building block and attributes of its source (another building block only
where the store's geometry does not allow that one), and its elements, moved in bounded memory: as they are stored
where both have the same codec (:mod:`nandarray.array.elements`). In a file it is whole or absent: it is written under
a hidden name and gets its own by one command at the end. A door has no hidden names; there an error removes what was
written. While others write to the source, each box of elements is as it was when it was read; of a ragged array the
offsets are read first, so that its rows are whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from nandarray.array.array import Array
from nandarray.array.attribute_types import merged
from nandarray.array.attributes import from_json, to_json
from nandarray.array.creation import check_key
from nandarray.array.elements import copy_elements
from nandarray.array.group import Group
from nandarray.array.listing import is_array, open_array
from nandarray.array.masks import attrs_under, companion, own_mask
from nandarray.array.names import MARKER, is_unfinished, make_marker
from nandarray.array.ragged import Ragged
from nandarray.array.ragged_creation import found_ragged
from nandarray.array.unfinished import deleted_on_error, hidden
from nandarray.door import Source
from nandarray.errors import InvalidError

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["copy"]


class _Plan(NamedTuple):
    """Full names of the arrays of a copy, and of the hidden arrays that keep its groups, there and here."""

    source: Store
    target: Store
    name: str
    arrays: list[tuple[str, str]]
    markers: list[tuple[str, str]]
    single: bool
    #: Whether the members of a root go into a group that is there.
    merge: bool


def copy(
    group: Group,
    source: str | Array | Group | Ragged,
    dest: str | Group,
    name: str | None,
    key: bytes | bytearray | None,
) -> Array | Group | Ragged:
    """Copy an array, or a group with all that is in it: :meth:`Group.copy`."""
    key = check_key(key)
    plan = _planned(group, source, dest, name)
    if plan.target.read_only:
        plan.target._engine.together()  # the store's own error
    if isinstance(plan.target._engine, Source):
        _write_named(plan, key)
    else:
        _write_hidden(plan, key)
    if plan.single:
        return open_array(plan.target, plan.name, key)
    if not plan.name:
        return plan.target
    return found_ragged(Group(plan.target, plan.name), key)


def _planned(group: Group, source: Any, dest: Any, name: str | None) -> _Plan:
    """Find what is copied, and the names that it gets; a name that is taken is refused before anything is written."""
    if not isinstance(source, str | Array | Group | Ragged):
        raise InvalidError(f"a source of copy must be a name, an array or a group, not {type(source).__name__}")
    start = group.store if isinstance(source, str) else source.store
    path = group._join(source) if isinstance(source, str) else source.name.strip("/")
    single = is_array(start, path)
    if not single and not start._is_group(path):
        raise group._not_found(path)
    if isinstance(dest, str):
        if name is not None:
            raise InvalidError("the new name of a copy must be given once: as a name, or with a group or store")
        target, full = group.store, group._join_new(dest)
    elif isinstance(dest, Group):
        base = path.rpartition("/")[2]
        target = dest.store
        full = dest._join_new(name) if name is not None else dest._join_new(base) if base else dest._path
    else:
        raise InvalidError(f"copy must go to a name, a group or a store, not {type(dest).__name__}")
    if single and not full:
        raise InvalidError("an array must have a name; the root is a group")
    inside = target is start and not single and (not path or f"{full}/".startswith(f"{path}/"))
    if inside:
        raise InvalidError(f"group {path or '/'!r} cannot be copied into itself, to {full or '/'!r}")
    names = [path] if single else _below(start, path)
    pairs = [(one, full if single else f"{full}/{one[len(path) :].lstrip('/')}".lstrip("/")) for one in names]
    arrays = [pair for pair in pairs if single or pair[0].rpartition("/")[2] != MARKER]
    if single and (mask := own_mask(start, path)):
        arrays.append((mask, companion(full)))
    merge = not path and (not full or isinstance(dest, Group) and name is None)
    plan = _Plan(start, target, full, arrays, [pair for pair in pairs if pair not in arrays], single, merge)
    _check_free(plan)
    return plan


def _below(store: Store, path: str) -> list[str]:
    """Return the full names of the arrays of a group, hidden ones that keep groups among them."""
    return [one for one in store._engine.names(f"{path}/" if path else "") if not is_unfinished(one)]


def _check_free(plan: _Plan) -> None:
    for name in [full for _, full in plan.arrays] if plan.merge or plan.single else [plan.name]:
        plan.target._check_free(name)


def _write_hidden(plan: _Plan, key: bytes | None) -> None:
    """Write under hidden names, then rename all at once."""
    store = plan.target
    with hidden(store) as temporary:
        rename = []
        for number, (name, full) in enumerate(plan.arrays):
            _copy_array(plan, name, f"{temporary}/{number}", key, [])
            rename.append((f"{temporary}/{number}", full))
        attrs = []
        with store._lock:  # names that are free stay free until they are taken
            _check_free(plan)
            for number, (name, full) in enumerate(plan.markers):
                text = plan.source._engine.describe(name)["attrs"]
                if is_array(store, full):  # the root of a store, which has attributes of its own
                    attrs.append((full, _both(store._engine.describe(full)["attrs"], text)))
                    continue
                make_marker(store._engine, f"{temporary}/group{number}", text)
                rename.append((f"{temporary}/group{number}", full))
            store._engine.together(rename=rename, attrs=attrs)


def _write_named(plan: _Plan, key: bytes | None) -> None:
    """Write under their names, and delete them if there is an error."""
    store = plan.target
    with deleted_on_error(store) as made:
        for name, full in plan.arrays:
            _copy_array(plan, name, full, key, made)
        for name, full in plan.markers:
            text = plan.source._engine.describe(name)["attrs"]
            if is_array(store, full):
                store._engine.open_space(full).set_attrs(_both(store._engine.describe(full)["attrs"], text))
                continue
            make_marker(store._engine, full, text)
            made.append(full)


def _both(before: str, given: str) -> str:
    return to_json(merged(from_json(before), from_json(given)))


def _copy_array(plan: _Plan, name: str, full: str, key: bytes | None, made: list[str]) -> None:
    """Copy an array to a new full name, which is noted in ``made`` as soon as the new array is there."""
    source = open_array(plan.source, name, key)
    space = source._space
    first_of_two = plan.single and plan.arrays[1:] and name == plan.arrays[0][0]
    attrs = attrs_under(space.attrs, plan.name) if first_of_two else space.attrs

    def create(block: tuple[int, ...] | None) -> Any:
        return plan.target._engine.create(
            full,
            source.shape,
            source.dtype.itemsize,
            space.dtype,
            building_block=block,
            compression=source.compression,
            encryption_key=key if source.encrypted else None,
            fill=space.fill,
            attrs=attrs,
        )

    try:
        new = create(source.building_block)
    except InvalidError:  # as far as it is of the building block: a geometry of larger or smaller pages
        new = create(None)
    made.append(full)
    copy_elements(source, Array(plan.target, new))
