"""Manifests: what a store of parts has at a version, as one immutable text.

A manifest is a JSON object in ``manifests/<number>.json``. The number is ``2**64 - 1 - version`` in 20 digits, so that
the newest is listed first. It has its arrays by name, each with its leaves, and it is whole in itself: no other version
is needed to read one. ``commit`` names the transaction that made it and ``parent_commit`` the one that it was made
upon; by these two a commit whose answer was lost is recognised, and one that is not in the history.

This module turns texts into objects and back, and refuses what is damaged; it knows no files.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from nandarray import _nandarray, dtypes
from nandarray.errors import CorruptError, UnsupportedVersionError
from nandarray.index.shapes import check_shape
from nandarray.parts.leaves import LEAF_ROWS, Leaf

__all__ = ["ANCESTORS", "FORMAT", "Entry", "Manifest", "Span", "base_key", "draft_key", "key_of", "parse", "version_of"]

#: Version of the format that is written, and the newest that is read.
FORMAT = 1
_LAST = 2**64 - 1
#: Versions before it that a manifest knows: by them a commit is recognised though its own manifest has expired.
ANCESTORS = 16
_SHA = re.compile("[0-9a-f]{64}")
_ID = re.compile("[0-9a-f]{32}")

#: The first coordinates of a box, and those behind its last.
Span = tuple[tuple[int, ...], tuple[int, ...]]


def key_of(version: int) -> str:
    """Return the key of a version's manifest."""
    return f"manifests/{_LAST - version:020d}.json"


def base_key(job: str) -> str:
    """Return the key of the version from which a job began."""
    return f"jobs/{job}/base.json"


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
    #: ``commit`` of the versions before, from the parent on, the last ``ANCESTORS`` of them.
    ancestors: tuple[str, ...] = ()
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
        found = _manifest(said)
        if version is not None and found.version != version:
            raise ValueError(f"it is that of version {found.version}")
    except UnsupportedVersionError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        of = "" if version is None else f" of version {version}"
        raise CorruptError(f"{where}: the manifest{of} is damaged: {error}") from None
    return found


def _manifest(said: dict[str, Any]) -> Manifest:
    arrays = said.pop("arrays")
    _must(isinstance(arrays, dict), "arrays", arrays, "an object")
    _must(isinstance(said["ancestors"], list), "ancestors", said["ancestors"], "a list")
    said["ancestors"] = tuple(said["ancestors"])
    found = Manifest(arrays={name: _named(name, one) for name, one in arrays.items()}, **said)
    _must(_is_number(found.version, 1), "version", found.version, "a number from 1")
    before = found.version - 1
    _must(_is_number(found.parent) and found.parent == before, "parent", found.parent, f"{before}")
    for commit in (found.commit, *found.ancestors):
        _must(isinstance(commit, str) and bool(_ID.fullmatch(commit)), "commit", commit, "32 hexadecimal digits")
    first = (found.parent_commit,) if before else ()
    knows = found.ancestors[:1] == first and len(found.ancestors) <= ANCESTORS and (before or not found.parent_commit)
    _must(bool(knows), "ancestors", found.ancestors[:2], "those before, from the parent on")
    for key in ("message", "written_at", "writer"):
        _must(isinstance(getattr(found, key), str), key, getattr(found, key), "a text")
    ids: dict[str, str] = {}
    for name, entry in found.arrays.items():
        if (other := ids.setdefault(entry.id, name)) != name:
            raise ValueError(f"arrays {other!r} and {name!r} have the same id {entry.id}")
        above = name.rpartition("/")[0]
        while above:
            if above in found.arrays:
                raise ValueError(f"array {name!r} lies in {above!r}, which is an array")
            above = above.rpartition("/")[0]
    return found


def _must(holds: bool, what: str, value: Any, must: str) -> None:  # noqa: FBT001 (what is stated)
    if not holds:
        raise ValueError(f"{what} must be {must}, not {value!r:.80}")


def _is_number(value: Any, least: int = 0) -> bool:
    return type(value) is int and value >= least


def _named(name: str, said: Any) -> Entry:
    try:
        _nandarray.check_name(name, chosen=False)
        return _entry(said)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        what = f"{error} is missing" if type(error) is KeyError else error
        raise ValueError(f"array {name!r}: {what}") from None


def _entry(said: Any) -> Entry:
    _must(isinstance(said, dict), "an array", said, "an object")
    known = dict(said)
    for key in ("shape", "shard", "building_block"):
        _must(isinstance(known[key], list) and all(map(_is_number, known[key])), key, known[key], "a list of numbers")
        known[key] = check_shape(known[key], what=key)
    _must(isinstance(known["leaves"], list), "leaves", known["leaves"], "a list")
    known["leaves"] = tuple(_leaf(one) for one in known["leaves"])
    made = Entry(**known)
    for key in ("id", "dtype", "fill", "attrs"):
        _must(isinstance(getattr(made, key), str), key, getattr(made, key), "a text")
    _must(bool(_ID.fullmatch(made.id)), "id", made.id, "32 hexadecimal digits")
    _must(made.compression is None or isinstance(made.compression, str), "compression", made.compression, "a text")
    _must(isinstance(json.loads(made.attrs), dict), "attrs", made.attrs, "the text of an object")
    _must(_is_number(made.itemsize, 1), "itemsize", made.itemsize, "a number from 1")
    has = _itemsize(made.dtype)
    _must(has in (None, made.itemsize), "itemsize", made.itemsize, f"{has}, that of {made.dtype}")
    _must(len(bytes.fromhex(made.fill)) == made.itemsize, "fill", made.fill, f"of {made.itemsize} bytes")
    lengths = len(made.shape), len(made.shard), len(made.building_block)
    _must(len(set(lengths)) == 1, "numbers of dimensions of shape, shard and building_block", lengths, "equal")
    for length, step in zip(made.shard, made.building_block, strict=True):
        _must(bool(length and step) and length % step == 0, "shard", made.shard, f"multiples of {made.building_block}")
    _must(made.shard_count < 2**63, "number of shards", made.shard_count, "less than 2**63")
    ends = [*(leaf.first for leaf in made.leaves[1:]), made.shard_count]
    for leaf, end in zip(made.leaves, ends, strict=False):
        room = f"at most {end - leaf.first}, for shards from {leaf.first} to before {end}"
        _must(leaf.rows <= end - leaf.first, "rows of a leaf", leaf.rows, room)
    return made


def _leaf(said: Any) -> Leaf:
    _must(isinstance(said, list) and len(said) == 3, "a leaf", said, "[first shard, rows, hash]")
    first, rows, sha = said
    _must(_is_number(first), "first shard of a leaf", first, "a number")
    _must(_is_number(rows, 1) and rows <= LEAF_ROWS, "rows of a leaf", rows, f"from 1 to {LEAF_ROWS}")
    _must(isinstance(sha, str) and bool(_SHA.fullmatch(sha)), "hash of a leaf", sha, "64 hexadecimal digits")
    return Leaf(first, rows, sha)


@functools.lru_cache(256)
def _itemsize(dtype: str) -> int | None:
    """Return the bytes of an element; None of a dtype that this program does not know."""
    try:
        return int(dtypes.decode(dtype).itemsize)
    except (CorruptError, ImportError):
        return None
