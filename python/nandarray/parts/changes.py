"""Questions about versions: what changed between two, whether all is readable, what takes space; and compacting."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from nandarray.errors import CorruptError, NandarrayError, PartError
from nandarray.parts.blobs.base import part_key
from nandarray.parts.history import History
from nandarray.parts.leaves import Row, rows_of
from nandarray.parts.manifest import Entry, Manifest, Span
from nandarray.parts.source import PartsSource
from nandarray.parts.writer import OpenParts, misfit

__all__ = ["between", "bring_together", "check", "space"]

#: Parts below this size are brought together, if there are several.
_SMALL_BYTES = 64 << 20


def between(history: History, old: Manifest, new: Manifest, is_hidden: Callable[[str], bool]) -> dict[str, Any]:
    """Return what changed from one version to another; of leaves only those that differ are read."""
    before, after = (
        {entry.id: (name, entry) for name, entry in one.arrays.items() if not is_hidden(name)} for one in (old, new)
    )
    both = [(before[one], after[one]) for one in before if one in after]
    written = {name: boxes for (_, was), (name, now) in both if (boxes := _boxes(history, was, now))}
    for one in after:
        if one not in before and (boxes := _boxes(history, None, after[one][1])):
            written[after[one][0]] = boxes
    return {
        "created": sorted(after[one][0] for one in after if one not in before),
        "deleted": sorted(before[one][0] for one in before if one not in after),
        "renamed": sorted((was[0], now[0]) for was, now in both if was[0] != now[0]),
        "resized": {now[0]: (was[1].shape, now[1].shape) for was, now in both if was[1].shape != now[1].shape},
        "attributes": sorted(now[0] for was, now in both if was[1].attrs != now[1].attrs),
        "written": written,
    }


def _boxes(history: History, old: Entry | None, new: Entry) -> list[Span]:
    """Return the boxes of shards whose rows differ."""
    was = () if old is None else old.leaves
    same = {leaf.sha for leaf in was} & {leaf.sha for leaf in new.leaves}
    if old is not None and old.shape[1:] != new.shape[1:]:
        same = set()
    before: dict[Any, Any] = {}
    if old is not None:
        rows = rows_of([leaf for leaf in old.leaves if leaf.sha not in same], history.load)
        before = {old.place(number): row for number, row in rows}
    after = {new.place(n): row for n, row in rows_of([one for one in new.leaves if one.sha not in same], history.load)}
    changed = [place for place, row in after.items() if before.get(place) != row]
    given_back = [place for place in before if place not in after and _is_in(place, new)]
    return [new.box(new.number(place)) for place in sorted([*changed, *given_back])]


def _is_in(place: tuple[int, ...], entry: Entry) -> bool:
    return all(at < length for at, length in zip(place, entry.grid, strict=True))


def check(history: History, parts: OpenParts, is_hidden: Callable[[str], bool]) -> dict[str, Any]:
    """Verify all versions: manifests, leaves, and each part once, with all of its checksums."""
    made = _Check(history, parts)
    numbers = history.numbers()
    names: set[str] = set()
    for number in numbers:
        try:
            manifest = history.at(number)
        except NandarrayError as error:
            made.errors.append(f"version {number}: {error}")
            continue
        names.update(manifest.arrays)
        for name, entry in manifest.arrays.items():
            made.leaves_of(f"version {number}: array {name!r}", entry)
    made.tags(numbers)
    made.parts_in_use()
    counts = {"versions": len(numbers), "arrays": sum(not is_hidden(one) for one in names)}
    counts |= {"leaves": len(made.leaves), "parts": len(made.users)}
    return {"ok": not made.errors, "errors": made.errors, "repaired": [], **counts}


class _Check:
    def __init__(self, history: History, parts: OpenParts) -> None:
        self._history, self._parts = history, parts
        self.errors: list[str] = []
        #: Each leaf once for each shape and dtype of the array whose it is.
        self.leaves: set[str] = set()
        self._seen: set[tuple[Any, ...]] = set()
        #: By part: one row of it, and each use, with what says where, the array and the shard.
        self.users: dict[str, tuple[Row, list[tuple[str, Entry, int, Row]]]] = {}

    def leaves_of(self, told: str, entry: Entry) -> None:
        """Verify the leaves of an array, and note the parts that they name."""
        ends = [*(leaf.first for leaf in entry.leaves[1:]), entry.shard_count]
        for leaf, end in zip(entry.leaves, ends, strict=False):
            self.leaves.add(leaf.sha)
            key = leaf, end, entry.shape, entry.shard, entry.dtype
            if key in self._seen:
                continue
            self._seen.add(key)
            try:
                for shard, row in rows_of([leaf], self._history.load):
                    if shard >= end:
                        raise CorruptError(f"leaf {leaf.sha} has shard {shard}, which must be less than {end}")
                    self.users.setdefault(row.part, (row, []))[1].append((told, entry, shard, row))
            except NandarrayError as error:
                last = leaf.first + leaf.rows - 1
                self.errors.append(f"{told}, shards from {leaf.first} to {last} or so: {error}")

    def tags(self, numbers: list[int]) -> None:
        """Verify that tags name versions that are there."""
        try:
            tags = self._history.tags()
        except NandarrayError as error:
            self.errors.append(str(error))
            return
        for name, number in tags.items():
            if number not in numbers:
                self.errors.append(f"tag {name!r}: version {number} is not there")

    def parts_in_use(self) -> None:
        """Verify each part once, and that it has what rows say."""
        for row, used in self.users.values():
            told, entry, shard, _ = used[0]
            where = f"{told}, shard {shard}, box {entry.box(shard)} and {len(used) - 1} more"
            try:
                found = self._parts.engine(row).check()
            except NandarrayError as error:
                self.errors.append(f"{where}: {error}")
                continue
            self.errors.extend(f"{where}: {one}" for one in found["errors"])
            for told, entry, shard, one in used:
                self._fits(f"{told}, shard {shard}, box {entry.box(shard)}", entry, shard, one)

    def _fits(self, where: str, entry: Entry, shard: int, row: Row) -> None:
        try:
            wrong = misfit(self._parts.space(row), entry, shard)
        except NandarrayError as error:
            wrong = str(error)
        if wrong is not None:
            self.errors.append(f"{where}: {wrong}")


def space(history: History, version: int) -> dict[str, Any]:
    """Return the files of a store, and their bytes on disk."""
    sizes = [kept.bytes for kept in history.files.listed("parts").values()]
    return {"version": version, "versions": len(history.numbers()), "parts": len(sizes), "bytes_file": sum(sizes)}


def bring_together(source: PartsSource) -> dict[str, Any]:
    """Copy the shards of small parts, and of parts of which less than half is in use, to this transaction's part."""
    rows: dict[str, list[tuple[Entry, int]]] = defaultdict(list)
    sizes: dict[str, int] = {}
    for entry in source.draft.arrays.values():
        for number, row in source.rows_now(entry):
            rows[row.part].append((entry, number))
            sizes[row.part] = row.bytes
    held = Counter({part: _held(source, part) for part in rows})
    small = {part for part in rows if _is_small(source, part)}
    dead = {part for part, used in rows.items() if 2 * len(used) < held[part]}
    victims = (small if len(small) > 1 else set()) | dead
    for part in sorted(victims):
        for entry, number in rows[part]:
            source.own_shard(entry, number)
    return {"parts": len(victims), "shards": sum(len(rows[part]) for part in victims)}


def _is_small(source: PartsSource, part: str) -> bool:
    try:
        return source.files.facts(part_key(part)).bytes < _SMALL_BYTES
    except FileNotFoundError:
        raise PartError(f"part {part} of {source.path} is not there: nothing was brought together") from None


def _held(source: PartsSource, part: str) -> int:
    """Return the number of shards in a part, in use or not."""
    for entry in source.draft.arrays.values():
        for _, row in source.rows_now(entry):
            if row.part == part:
                return len(source.parts.engine(row).names("s/"))
    return 0
