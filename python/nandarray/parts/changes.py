"""Questions about versions: what changed between two, whether all is readable, what takes space; and compacting."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from nandarray.errors import NandarrayError, PartError
from nandarray.parts.history import History
from nandarray.parts.leaves import rows_of
from nandarray.parts.manifest import Entry, Manifest, Span
from nandarray.parts.source import PartsSource
from nandarray.parts.writer import OpenParts, part_key

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
    errors: list[str] = []
    users: dict[str, tuple[Any, list[str]]] = {}
    leaves: set[str] = set()
    names: set[str] = set()
    numbers = history.numbers()
    for number in numbers:
        try:
            manifest = history.at(number)
        except NandarrayError as error:
            errors.append(f"version {number}: {error}")
            continue
        for name, entry in manifest.arrays.items():
            names.add(name)
            for leaf in entry.leaves:
                if leaf.sha in leaves:
                    continue
                leaves.add(leaf.sha)
                try:
                    for shard, row in rows_of([leaf], history.load):
                        used = users.setdefault(row.part, (row, []))[1]
                        used.append(f"version {number}: array {name!r}, shard {shard}, box {entry.box(shard)}")
                except NandarrayError as error:
                    last = leaf.first + leaf.rows - 1
                    errors.append(
                        f"version {number}: array {name!r}, shards from {leaf.first} to {last} or so: {error}"
                    )
    for row, used in users.values():
        try:
            found = parts.engine(row).check()
            told = [str(one) for one in found["errors"]]
        except NandarrayError as error:
            told = [str(error)]
        errors.extend(f"{used[0]} and {len(used) - 1} more: {one}" for one in told)
    counts = {"versions": len(numbers), "arrays": sum(not is_hidden(one) for one in names)}
    return {"ok": not errors, "errors": errors, "repaired": [], **counts, "leaves": len(leaves), "parts": len(users)}


def space(history: History, version: int) -> dict[str, Any]:
    """Return the files of a store, and their bytes on disk."""
    sizes = []
    for name in history.files.names("parts"):
        with contextlib.suppress(FileNotFoundError):  # deleted since
            sizes.append(history.files.facts(f"parts/{name}").st_blocks * 512)
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
        return source.files.facts(part_key(part)).st_blocks * 512 < _SMALL_BYTES
    except FileNotFoundError:
        raise PartError(f"part {part} of {source.path} is not there: nothing was brought together") from None


def _held(source: PartsSource, part: str) -> int:
    """Return the number of shards in a part, in use or not."""
    for entry in source.draft.arrays.values():
        for _, row in source.rows_now(entry):
            if row.part == part:
                return len(source.parts.engine(row).names("s/"))
    return 0
