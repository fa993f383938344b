"""Rows of different lengths between a store and other formats: ragged arrays.

In an import, one dimension of variable-length lists, of bytes, or of text that no fixed width holds becomes a ragged
array, read some rows at a time; rows of chunks that do not exist are not read. In an export, text, bytes and lists
without missing rows go into the format's own type of variable length where it has one (text and bytes of Zarr; text of
HDF5, and lists of it, which bytes become, too), with the attribute ``_RAGGED``, by which an import makes the same of
them again. All others are groups of their parts (offsets, values, valid), with the same attribute.

A row's length is bounded by nothing but the source: about a thousand rows are in memory at a time, or a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.array.listing import RAGGED, ragged_kind
from nandarray.array.ragged import Ragged
from nandarray.array.ragged_creation import make_ragged
from nandarray.interop.convert.limits import CHUNK_MIN_BYTES

if TYPE_CHECKING:
    from nandarray.array.group import Group
    from nandarray.array.store import Store
    from nandarray.interop.convert.members import Member
    from nandarray.interop.convert.sinks import Sink

__all__ = ["copy_in", "copy_out", "ragged_below", "split"]

#: Rows that are read at once where chunks have fewer.
_ROWS = 1024
#: Rows without a chunk that are added at once.
_EMPTY_ROWS = 1 << 16


def copy_in(member: Member, store: Store, path: str, how: dict[str, Any], done: Callable[[int], None]) -> None:
    """Copy a member of rows into a new ragged array of a full name, which may be a hidden one."""
    assert member.ragged is not None
    kind, item = member.ragged
    key = how.get("encryption_key")
    attrs = {name: value for name, value in member.attrs.items() if name != RAGGED}
    made = make_ragged(store, path, None, (kind, item), attrs, compression=how.get("compression"), encryption_key=key)
    empty: Any = {"text": "", "bytes": b"", "list": ()}[kind] if member.fill is None else member.fill
    for low, high, there in _runs(member):
        made.append(member.read((slice(low, high),)) if there else [empty] * (high - low))
        done(high - low)


def _runs(member: Member) -> Iterator[tuple[int, int, bool]]:
    """Yield runs of rows in order, and whether something is stored for them."""
    count, chunk = member.shape[0], (member.chunks or (_ROWS,))[0]
    step = max(1, chunk) * max(1, _ROWS // max(1, chunk))
    found = member.stored()
    at = 0
    for low, high in [(0, count)] if found is None else _joined(found):
        yield from ((gap, min(gap + _EMPTY_ROWS, low), False) for gap in range(at, low, _EMPTY_ROWS))
        yield from ((one, min(one + step, high), True) for one in range(low, high, step))
        at = high
    yield from ((gap, min(gap + _EMPTY_ROWS, count), False) for gap in range(at, count, _EMPTY_ROWS))


def _joined(found: Iterator[Any]) -> Iterator[tuple[int, int]]:
    """Join boxes of rows that follow each other."""
    low = high = 0
    for box in sorted(found, key=lambda box: box[0].start):
        if box[0].start > high:
            if high > low:
                yield low, high
            low = box[0].start
        high = max(high, box[0].stop)
    if high > low:
        yield low, high


def ragged_below(group: Group, key: bytes | None) -> dict[str, Ragged]:
    """Return the ragged arrays below a group, by their names relative to it."""
    found = {}
    for name in group.array_names():
        path, _, base = name.rpartition("/")
        full = f"{group._prefix}{path}"
        if path and base == "offsets" and ragged_kind(group.store, full) is not None:
            found[path] = Ragged(group.store, full, str(ragged_kind(group.store, full)), key)
    return found


def split(found: dict[str, Ragged], sink: Sink) -> dict[str, Ragged]:
    """Return those that a sink has a type for."""
    return {
        name: one for name, one in found.items() if one.valid is None and sink.takes_rows(one.kind, one.values.dtype)
        and one.values.ndim == 1 and not (one.kind == "text" and sink.ends_text and _has_nul(one))
    }  # fmt: skip


def _has_nul(ragged: Ragged) -> bool:
    values, step = ragged.values, 8 << 20
    return any((np.asarray(values[low : low + step]) == 0).any() for low in range(0, values.shape[0], step))


def copy_out(name: str, ragged: Ragged, sink: Sink, budget: int, done: Callable[[int], None]) -> None:
    """Copy a ragged array into a sink that takes its rows."""
    count = len(ragged)
    mean = max(1, ceil(ragged.nbytes / max(1, count)))
    rows = max(1, min(count, min(budget, CHUNK_MIN_BYTES) // 8 // mean))
    write = sink.rows(name, dict(ragged.attrs), ragged.kind, ragged.values.dtype, (count, rows))
    for low in range(0, count, rows):
        part = slice(low, min(low + rows, count))
        write((part,), ragged[part])
        done(part.stop - low)
