"""Leaves: the tables that say which part has a shard, named by the hash of their bytes.

A leaf is a NumPy file of at most 65,536 rows, ascending by shard; ``LEAF_ROWS`` of them are written. A row says all
that a reader needs to find and to know the part: there is no list of parts beside the leaves, so that two commits
never have to agree on one. An array has a list of leaves (:class:`Leaf`), which divide its shards by ranges: a leaf
owns those from its first on up to the next leaf's first. A shard without a row has never been written.

Leaves are made anew where a row changes, never changed. This module knows no files: it is given ``load`` and ``put``.
"""

from __future__ import annotations

import hashlib
import io
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nandarray.errors import CorruptError

__all__ = ["LEAF_ROWS", "ROW", "Leaf", "Row", "decode", "find", "rows_of", "table_of", "updated"]

#: The most rows of a leaf that is written, in 352 KiB. A commit writes the leaves that it touches, and a manifest with
#: about 100 bytes for each of an array's leaves: 50 KB of 4 million shards.
LEAF_ROWS = 8192
#: Shard, number of its array in the part, the part's name, the part's bytes, the beginning of its head's hash.
ROW = np.dtype([("shard", "<u8"), ("array", "<u8"), ("part", "V16"), ("bytes", "<u8"), ("head", "<u8")])

_Table = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Leaf:
    """A leaf of an array: the first shard that it has a row of, how many rows, the SHA-256 of its file."""

    first: int
    rows: int
    sha: str


@dataclass(frozen=True)
class Row:
    """Place of a shard: array ``s/<array>`` of a part; and by what the sealed part is known."""

    array: int
    part: str
    bytes: int = 0
    head: int = 0


def encode(table: _Table) -> tuple[str, bytes]:
    """Return the name of a leaf, and its file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(table), version=(1, 0), allow_pickle=False)
    data = file.getvalue()
    return hashlib.sha256(data).hexdigest(), data


def decode(data: bytes, leaf: Leaf, where: str) -> _Table:
    """Return the rows of a leaf's file.

    Raises
    ------
    CorruptError
        It is damaged, or another leaf's.
    """
    if hashlib.sha256(data).hexdigest() != leaf.sha:
        raise CorruptError(f"{where}: leaf {leaf.sha} is damaged: its {len(data)} bytes have another hash")
    try:
        table = table_of(data)
    except (ValueError, EOFError) as error:
        raise CorruptError(f"{where}: leaf {leaf.sha} is no table: {error}") from None
    if table.dtype != ROW or table.ndim != 1 or len(table) != leaf.rows:
        raise CorruptError(f"{where}: leaf {leaf.sha} has {table.dtype} of shape {table.shape}, not {leaf.rows} rows")
    if len(table) and (int(table["shard"][0]) != leaf.first or (table["shard"][1:] <= table["shard"][:-1]).any()):
        raise CorruptError(f"{where}: leaf {leaf.sha} must have shards from {leaf.first} on, ascending")
    return table


def table_of(data: bytes) -> _Table:
    """Return the table in the bytes of a leaf's file."""
    table: _Table = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return table


def _row(table: _Table, at: int) -> Row:
    one = table[at]
    return Row(int(one["array"]), one["part"].tobytes().hex(), int(one["bytes"]), int(one["head"]))


def find(leaves: Sequence[Leaf], shard: int, load: Callable[[Leaf], _Table]) -> Row | None:
    """Return the row of a shard; None if it was never written."""
    at = bisect_right(leaves, shard, key=lambda leaf: leaf.first) - 1
    if at < 0:
        return None
    table = load(leaves[at])
    place = int(np.searchsorted(table["shard"], np.uint64(shard)))
    if place == len(table) or int(table["shard"][place]) != shard:
        return None
    return _row(table, place)


def rows_of(leaves: Sequence[Leaf], load: Callable[[Leaf], _Table]) -> Iterator[tuple[int, Row]]:
    """Yield all shards that were written, with their rows, ascending."""
    for leaf, after in zip(leaves, [*leaves[1:], None], strict=False):
        table = load(leaf)
        if after is not None and len(table) and int(table["shard"][-1]) >= after.first:
            raise CorruptError(f"leaf {leaf.sha} has shards up to {table['shard'][-1]}, of which {after.sha} begins")
        for at in range(len(table)):
            yield int(table["shard"][at]), _row(table, at)


def updated(
    leaves: Sequence[Leaf],
    changes: Mapping[int, Row | None],
    load: Callable[[Leaf], _Table],
    put: Callable[[str, bytes], None],
) -> tuple[Leaf, ...]:
    """Return the leaves with changed rows, of which those that changed are put; None takes a row away."""
    if not changes:
        return tuple(leaves)
    of: dict[int, dict[int, Row | None]] = {}
    for shard, row in changes.items():
        at = max(0, bisect_right(leaves, shard, key=lambda leaf: leaf.first) - 1)
        of.setdefault(at, {})[shard] = row
    made: list[Leaf] = []
    for at in range(max(1, len(leaves))):
        changed = of.get(at)
        if changed is None:
            made.append(leaves[at])
            continue
        table = _changed(load(leaves[at]) if leaves else np.empty(0, ROW), changed)
        for low in range(0, len(table), LEAF_ROWS):
            part = table[low : low + LEAF_ROWS]
            sha, data = encode(part)
            put(sha, data)
            made.append(Leaf(int(part["shard"][0]), len(part), sha))
    return tuple(made)


def _changed(old: _Table, changes: Mapping[int, Row | None]) -> _Table:
    """Return a table with changed rows."""
    shards = np.array(sorted(changes), np.uint64)
    rows = [(shard, changes[shard]) for shard in sorted(changes)]
    new = np.array(
        [(n, row.array, np.void(bytes.fromhex(row.part)), row.bytes, row.head) for n, row in rows if row is not None],
        ROW,
    )
    numbers = np.ascontiguousarray(old["shard"])
    places = np.searchsorted(numbers, shards)
    there = places < len(old)
    there[there] = numbers[places[there]] == shards[there]
    if there.all() and len(new) == len(shards):  # the same shards: most commits are such
        table = old.copy()
        table[places] = new
        return table
    kept = np.delete(old, places[there])
    return np.insert(kept, np.searchsorted(kept["shard"], new["shard"]), new)
