"""A draft: a version with changes that are not committed; and how it is moved onto a version that was added since.

The changes are entries of arrays by name, and rows of shards by the array's id. Moving compares three states: the
version that the draft began from, the draft, and the newest version. A change of one side alone is taken from it; one
of both is a :class:`~nandarray.errors.ConflictError`. Elements are compared shard by shard, by their rows, so no data
is read. Shards that both wrote conflict, even where their boxes do not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Never

import numpy as np

from nandarray.errors import ConflictError
from nandarray.parts.leaves import Leaf, Row, find
from nandarray.parts.manifest import Entry, Manifest, Span

__all__ = ["Draft", "moved"]

_Load = Callable[[Leaf], np.ndarray[Any, Any]]


@dataclass
class Draft:
    """A version and what was changed of it."""

    base: Manifest
    arrays: dict[str, Entry] = field(default_factory=dict)
    #: By id of the array and number of the shard; None where a shard was given back.
    rows: dict[str, dict[int, Row | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, base: Manifest) -> Draft:
        """Return a draft without changes."""
        return cls(base, dict(base.arrays))

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to commit."""
        return any(list(self.rows.values())) or self.arrays != self.base.arrays

    def names(self) -> dict[str, str]:
        """Return the name of each array by its id."""
        return {entry.id: name for name, entry in self.arrays.items()}

    def row(self, entry: Entry, number: int, load: _Load) -> Row | None:
        """Return the row of a shard."""
        changes = self.rows.get(entry.id)
        if changes is not None and number in changes:
            return changes[number]
        return find(entry.leaves, number, load)


def moved(draft: Draft, onto: Manifest, load: _Load) -> Draft:
    """Return a draft's changes upon another version.

    Raises
    ------
    ConflictError
        Both have changed the same.
    """
    if onto.commit == draft.base.commit:
        return draft
    return _Move(draft, onto, load).result()


def _by_id(arrays: Mapping[str, Entry]) -> dict[str, tuple[str, Entry]]:
    return {entry.id: (name, entry) for name, entry in arrays.items()}


class _Move:
    def __init__(self, draft: Draft, onto: Manifest, load: _Load) -> None:
        self._draft, self._onto, self._load = draft, onto, load
        self._before, self._now = _by_id(draft.base.arrays), _by_id(onto.arrays)
        self._made = Draft(onto, dict(onto.arrays))

    def result(self) -> Draft:
        ours = _by_id(self._draft.arrays)
        for identity, (name, _) in self._before.items():
            if identity not in ours:
                self._delete(identity, name)
        added: dict[str, Entry] = {}
        for identity, (name, entry) in ours.items():
            rows = self._draft.rows.get(identity, {})
            before = self._before.get(identity)
            if before is None:
                there = self._made.arrays.get(name)
                if there is not None and there.shape == entry.shape == (0,) and there.attrs == entry.attrs:
                    continue  # both made the same group
                added[name] = entry
            elif before != (name, entry) or rows:
                final, entry = self._join(before, (name, entry), rows)
                self._made.arrays.pop(self._now[identity][0], None)
                added[final] = entry
            else:
                continue
            if rows:
                self._made.rows[identity] = rows
        for name, entry in added.items():
            if name in self._made.arrays:
                self._refuse(name, f"both have an array {name!r} of their own")
            self._made.arrays[name] = entry
        self._check_names(set(added))
        return self._made

    def _refuse(self, name: str, what: str, ours: Span | None = None, theirs: Span | None = None) -> Never:
        error = ConflictError(
            f"{what}; version {self._onto.version} was committed since version {self._draft.base.version}, from which "
            "this transaction began: nothing of it was committed"
        )
        error.array, error.ours, error.theirs, error.version = name, ours, theirs, self._onto.version
        raise error

    def _delete(self, identity: str, name: str) -> None:
        now = self._now.get(identity)
        if now is not None and now != self._before[identity]:
            self._refuse(name, f"array {name!r} was deleted here and changed there")
        if now is not None:
            del self._made.arrays[now[0]]
        elif name in self._onto.arrays:
            self._refuse(name, f"array {name!r} was deleted here, and is another one there")

    def _join(
        self, before: tuple[str, Entry], ours: tuple[str, Entry], rows: Mapping[int, Row | None]
    ) -> tuple[str, Entry]:
        (was, old), (name, mine) = before, ours
        if old.id not in self._now:
            self._refuse(was, f"array {was!r} was changed here and deleted there")
        their_name, theirs = self._now[old.id]
        final = self._one(was, "name", was, name, their_name)
        attrs = self._one(was, "attributes", old.attrs, mine.attrs, theirs.attrs)
        shape = self._one(was, "shape", old.shape, mine.shape, theirs.shape, alike=mine.shape == old.shape)
        grown_here, grown_there = mine.shape != old.shape, theirs.shape != old.shape
        changed_there = theirs.leaves != old.leaves
        if (grown_here and changed_there and not _stays(old, mine)) or (
            grown_there and rows and not _stays(old, theirs)
        ):
            told = f"array {was!r} of shape {old.shape} has {mine.shape} here and {theirs.shape} there"
            self._refuse(was, f"{told}, and elements were written", *self._some(old, rows))
        renumbered = mine.leaves != old.leaves
        if changed_there and not renumbered:
            self._check_rows(was, old, theirs, rows)
        leaves = mine.leaves if renumbered else theirs.leaves
        return final, replace(theirs, shape=shape, attrs=attrs, leaves=leaves)

    def _one(self, name: str, what: str, old: Any, mine: Any, theirs: Any, *, alike: bool = True) -> Any:
        """Return the changed one of two values; of two that were changed alike the value, if that is meant alike."""
        if theirs == old:
            return mine
        if mine != old and (mine != theirs or not alike):
            self._refuse(name, f"the {what} of array {name!r} is {mine!r} here and {theirs!r} there")
        return theirs

    def _some(self, entry: Entry, rows: Mapping[int, Row | None]) -> tuple[Span | None, Span | None]:
        return (entry.box(min(rows)) if rows and entry.shard_count > min(rows) else None, None)

    def _check_rows(self, name: str, old: Entry, theirs: Entry, rows: Mapping[int, Row | None]) -> None:
        for number in sorted(rows):
            if find(old.leaves, number, self._load) != find(theirs.leaves, number, self._load):
                box = theirs.box(number)
                told = "x".join(f"[{low}:{high}]" for low, high in zip(*box, strict=True))
                both = f"both wrote shard {number} of array {name!r}, which has the box {told}"
                self._refuse(name, both, box, box)

    def _check_names(self, added: set[str]) -> None:
        arrays = self._made.arrays
        for name in arrays:
            above = name.rpartition("/")[0]
            while above:
                if above in arrays and (name in added or above in added):
                    self._refuse(name, f"{above!r} is an array, so {name!r} cannot lie in it")
                above = above.rpartition("/")[0]


def _stays(old: Entry, new: Entry) -> bool:
    """Whether shards keep their numbers and their elements: only the first axis has grown."""
    return bool(new.shape) and new.shape[1:] == old.shape[1:] and new.shape[0] >= old.shape[0]
