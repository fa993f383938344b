"""Manifests: what a store of parts has at a version, as one immutable text.

A manifest is a JSON object in ``manifests/<number>.json``. The number is ``2**64 - 1 - version`` in 20 digits, so that
the newest is listed first. It has its arrays by name, each with its leaves, and it is whole in itself: no other version
is needed to read one. ``commit`` names the transaction that made it and ``parent_commit`` the one that it was made
upon; by these two a commit whose answer was lost is recognised, and one that is not in the history.

This module turns texts into objects and back, and refuses what is damaged; it knows no files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from nandarray.errors import CorruptError, UnsupportedVersionError
from nandarray.index.shapes import check_shape
from nandarray.parts.leaves import Leaf

__all__ = ["FORMAT", "Entry", "Manifest", "Span", "draft_key", "key_of", "parse", "version_of"]

#: Version of the format that is written, and the newest that is read.
FORMAT = 1
_LAST = 2**64 - 1
_SHA = re.compile("[0-9a-f]{64}")

#: The first coordinates of a box, and those behind its last.
Span = tuple[tuple[int, ...], tuple[int, ...]]


def key_of(version: int) -> str:
    """Return the key of a version's manifest."""
    return f"manifests/{_LAST - version:020d}.json"


def draft_key(job: str) -> str:
    """Return the key of the state from which a job's workers begin."""
    return f"jobs/{job}/draft.json"


def version_of(name: str) -> int | None:
    """Return the version of a manifest by the last part of its key; None for another name."""
    stem, dot, ending = name.partition(".")
    return _LAST - int(stem) if dot and ending == "json" and len(stem) == 20 and stem.isdecimal() else None


@dataclass(frozen=True)
class Entry:
    """An array at a version. ``id`` names it for good, whatever its name is."""

    id: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    shard: tuple[int, ...]
    building_block: tuple[int, ...]
    fill: str
    compression: str | None
    attrs: str
    leaves: tuple[Leaf, ...] = ()

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of shards along each dimension."""
        return tuple(-(-length // step) for length, step in zip(self.shape, self.shard, strict=True))

    @property
    def shard_count(self) -> int:
        """Number of shards, written or not."""
        return prod(self.grid)

    def place(self, number: int) -> tuple[int, ...]:
        """Return the coordinates of a shard in the grid of shards."""
        found = []
        for length in reversed(self.grid):
            number, at = divmod(number, length)
            found.append(at)
        return tuple(reversed(found))

    def number(self, place: tuple[int, ...]) -> int:
        """Return the number of a shard: its place in the grid, counted in C order."""
        number = 0
        for at, length in zip(place, self.grid, strict=True):
            number = number * length + at
        return number

    def box(self, number: int) -> Span:
        """Return the box of a shard within the array."""
        low = tuple(at * step for at, step in zip(self.place(number), self.shard, strict=True))
        high = tuple(min(first + step, end) for first, step, end in zip(low, self.shard, self.shape, strict=True))
        return low, high


@dataclass(frozen=True)
class Manifest:
    """A version of a store of parts."""

    version: int
    parent: int
    commit: str
    parent_commit: str
    message: str = ""
    written_at: str = ""
    writer: str = ""
    arrays: dict[str, Entry] = field(default_factory=dict)

    def text(self) -> bytes:
        """Return the manifest as it is kept."""
        arrays = {name: _told(entry) for name, entry in self.arrays.items()}
        said = {"format": FORMAT, **vars(self), "arrays": arrays}
        said["checksum"] = _checksum(said)
        # A line for each key and each array: json's own indentation takes ten times as long.
        texts = {key: json.dumps(value) for key, value in said.items() if key != "arrays"}
        texts["arrays"] = _lines({name: json.dumps(one) for name, one in arrays.items()}, " ")
        return _lines({key: texts[key] for key in said}).encode()

    def facts(self) -> dict[str, Any]:
        """Return what a list of versions says of it."""
        keys = ("version", "parent", "commit", "message", "written_at", "writer")
        return {**{key: getattr(self, key) for key in keys}, "arrays": len(self.arrays)}


def _lines(texts: Mapping[str, str], before: str = "") -> str:
    """Return an object of JSON whose values are texts of it, one a line."""
    return "{\n" + ",\n".join(f"{before} {json.dumps(key)}: {text}" for key, text in texts.items()) + f"\n{before}}}"


def _told(entry: Entry) -> dict[str, Any]:
    return {**vars(entry), "leaves": [(leaf.first, leaf.rows, leaf.sha) for leaf in entry.leaves]}


def _checksum(said: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def parse(data: bytes, where: str, version: int | None = None) -> Manifest:
    """Return the manifest of a text.

    Raises
    ------
    UnsupportedVersionError
        It is of a newer format.
    CorruptError
        It is damaged, or not of this version.
    """
    try:
        said = json.loads(data)
        if not isinstance(said, dict) or not isinstance(said.get("format"), int):
            raise ValueError("it is no manifest")  # noqa: TRY004 (all that is wrong is one error here)
        if said["format"] > FORMAT:
            raise UnsupportedVersionError(
                f"{where} has format {said['format']}; this program knows formats up to {FORMAT}"
            )
        told = said.pop("checksum", None)
        if told != _checksum(said):
            raise ValueError(f"checksum {told!r} is not that of its content")
        said.pop("format")
        if not isinstance(said["arrays"], dict):
            raise ValueError(f"its arrays are {said['arrays']!r}, which must be an object")  # noqa: TRY004 (as above)
        arrays = {name: _entry(one) for name, one in said.pop("arrays").items()}
        found = Manifest(arrays=arrays, **said)
        if version is not None and found.version != version:
            raise ValueError(f"it is that of version {found.version}")
    except UnsupportedVersionError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        of = "" if version is None else f" of version {version}"
        raise CorruptError(f"{where}: the manifest{of} is damaged: {error}") from None
    return found


def _entry(said: dict[str, Any]) -> Entry:
    known = dict(said)
    for key in ("shape", "shard", "building_block"):
        known[key] = check_shape(known[key], what=key)
    known["leaves"] = tuple(Leaf(int(first), int(rows), str(sha)) for first, rows, sha in known["leaves"])
    made = Entry(**known)
    firsts = [leaf.first for leaf in made.leaves]
    if firsts != sorted(set(firsts)) or not all(_SHA.fullmatch(leaf.sha) for leaf in made.leaves):
        raise ValueError(f"leaves that are not ascending, or not named by a hash: {known['leaves']}")
    for one in (made.id, made.dtype, made.attrs):
        if not isinstance(one, str):
            raise ValueError(f"{one!r} where a text must be")  # noqa: TRY004 (as above)
    lengths = len(made.shape), len(made.shard), len(made.building_block)
    whole = len(set(lengths)) == 1 and not any(
        length == 0 or step == 0 or length % step for length, step in zip(made.shard, made.building_block, strict=True)
    )
    if not whole or len(bytes.fromhex(made.fill)) != made.itemsize:
        raise ValueError(
            f"an array of shape {made.shape} with shards {made.shard} and {made.itemsize} bytes an element"
        )
    return made
