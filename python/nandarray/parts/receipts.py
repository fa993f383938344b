"""Receipts are settled: each shard that workers wrote gets one row, each box is taken once.

Parts that receipts name are sealed by their writers, or adopted if those are gone. A part whose writer holds its lock
and does not answer, or that is lost, is left out. If boxes are missing then, nothing is taken, and a
:class:`~nandarray.errors.ReceiptError` has them. Of several parts with the same shard the one with most of it is taken,
and boxes that others have, or have written later, are copied over: so no cut of the work is unsafe, and one along
shards copies nothing.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from nandarray.errors import InvalidError, PartError, ReceiptError
from nandarray.parts.forks import Receipt
from nandarray.parts.leaves import Row, find
from nandarray.parts.manifest import Entry, Manifest, Span
from nandarray.parts.pieces import subtract
from nandarray.parts.source import PartsSource
from nandarray.parts.writer import job_of, misfit, seal_facts

__all__ = ["check_all", "settle"]

_PART = re.compile("[0-9a-f]{32}")

#: The id of an array and the number of a shard.
_Key = tuple[str, int]


@dataclass
class _Share:
    """The boxes of a shard that one part has."""

    job: str
    row: Row
    #: Each with the place of its receipt among all.
    boxes: list[tuple[int, Span]] = field(default_factory=list)


def _size(boxes: Iterable[Span]) -> int:
    return sum(prod(b - a for a, b in zip(*box, strict=True)) for box in boxes)


def check_all(
    source: PartsSource, receipts: Iterable[Receipt], forks: Mapping[str, Manifest], *, gone: bool = False
) -> list[Receipt]:
    """Return receipts, each once, the last of equal ones; with ``gone`` without those of arrays deleted since.

    Raises
    ------
    InvalidError
        One is of another job, of an array that was deleted or has another shape by now, or of what is not there.
    """
    given = list(dict.fromkeys(reversed(list(receipts))))[::-1]
    entries = {entry.id: (name, entry) for name, entry in source.draft.arrays.items()}
    kept = []
    for receipt in given:
        if receipt.job not in forks or job_of(receipt.part) != receipt.job or not _PART.fullmatch(receipt.part):
            raise InvalidError(f"a receipt of job {receipt.job}, which is not of this transaction: {sorted(forks)}")
        if receipt.array in entries:
            name, entry = entries[receipt.array]
            _check_shape(name, entry, forks[receipt.job])
            _check_box(name, entry, receipt)
            kept.append(receipt)
        elif not gone or all(one.id != receipt.array for one in forks[receipt.job].arrays.values()):
            raise InvalidError(f"a receipt of an array {receipt.array} that this transaction has not, or has deleted")
    return kept


def settle(
    source: PartsSource,
    receipts: Sequence[Receipt],
    forks: Mapping[str, Manifest],
    wait_s: float,
    before: Mapping[_Key, Sequence[tuple[str, Span]]],
    *,
    partly: bool = False,
) -> set[_Key]:
    """Bring what receipts name into a source's draft; return the shards, each with its array's id.

    ``forks`` has the states from which their jobs began, ``before`` the jobs and boxes that were brought in earlier:
    those of later forks stay. The receipts were checked (:func:`check_all`).

    Raises
    ------
    ReceiptError
        Parts are missing, and with them boxes. With ``partly`` these shards are left out instead.
    """
    sealed = _sealed(source, {receipt.part for receipt in receipts}, wait_s)
    entries = {entry.id: (name, entry) for name, entry in source.draft.arrays.items()}
    shards: dict[_Key, dict[str, _Share]] = defaultdict(dict)
    lost: dict[_Key, list[Span]] = defaultdict(list)
    parts: set[str] = set()
    for turn, receipt in enumerate(receipts):
        entry = entries[receipt.array][1]
        for number, at in receipt.shards:
            box = _common(receipt.box, entry.box(number))
            row = sealed.get(receipt.part)
            if row is None or not _has(source, replace(row, array=at), entry, number, box):
                parts.add(receipt.part)
                lost[receipt.array, number].append(box)
                continue
            share = shards[receipt.array, number].setdefault(receipt.part, _Share(receipt.job, replace(row, array=at)))
            share.boxes.append((turn, box))
    if partly:
        for key in lost:
            shards.pop(key, None)
    else:
        _check_lost(entries, shards, lost, sorted(parts))
    for (identity, number), shares in shards.items():
        with source.gate.shared():
            earlier = before.get((identity, number), ())
            _take(source, entries[identity][1], number, list(shares.values()), forks, before=earlier)
    return set(shards) if partly else {*shards, *lost}


def _has(source: PartsSource, row: Row, entry: Entry, number: int, box: Span) -> bool:
    """Return whether a part has the shard that a receipt says, with the box."""
    try:
        space = source.parts.space(row)
    except PartError:
        return False
    end = [high - first for high, first in zip(box[1], entry.box(number)[0], strict=True)]
    return misfit(space, entry, number) is None and all(a <= b for a, b in zip(end, space.shape, strict=True))


def _check_shape(name: str, entry: Entry, fork: Manifest) -> None:
    """Refuse boxes of an array whose shards have other numbers or shapes by now than those that workers saw."""
    then = next((one.shape for one in fork.arrays.values() if one.id == entry.id), entry.shape)
    if len(then) != len(entry.shape) or then[1:] != entry.shape[1:] or then[:1] > entry.shape[:1]:
        raise InvalidError(
            f"array {name!r} had the shape {then} when its workers began, and was resized to {entry.shape} before what "
            "they wrote was brought in: collect() must come before resize()"
        )


def _check_box(name: str, entry: Entry, receipt: Receipt) -> None:
    """Refuse a receipt whose box the array has not, or whose shards are not those of the box."""
    low, high = receipt.box
    inside = len(low) == len(high) == len(entry.shape) and all(
        0 <= a < b <= end for a, b, end in zip(low, high, entry.shape, strict=True)
    )
    ranges = [range(a // step, -(-b // step)) for a, b, step in zip(low, high, entry.shard, strict=inside)]
    named = [number for number, _ in receipt.shards]
    if (
        not inside
        or len(named) != prod(map(len, ranges))
        or set(named) != set(map(entry.number, itertools.product(*ranges)))
        or any(at < 0 for _, at in receipt.shards)
    ):
        raise InvalidError(
            f"a receipt of the box from {low} to {high} and shards {receipt.shards}, which array {name!r} of shape "
            f"{entry.shape} with {entry.shard_count} shards has not"
        )


def _sealed(source: PartsSource, parts: set[str], wait_s: float) -> dict[str, Row]:
    """Seal parts, or see them sealed; return what each is known by, without those that cannot be had."""
    until = time.monotonic() + wait_s
    waiting, found, signs = sorted(parts), dict[str, Row](), dict[str, Any]()
    while waiting:
        left = []
        for part in waiting:
            try:
                if not source.files.adopt(part):
                    left.append(part)
                    continue
                facts = seal_facts(source.files, part)
            except (PartError, FileNotFoundError):
                continue  # lost: its boxes have to be written again
            found[part] = Row(0, part, facts.bytes, facts.head)
            source.stats.parts_sealed += 1
        waiting = left
        if waiting and time.monotonic() > until:
            now = {part: sign for part in waiting if (sign := source.files.sign_of(part)) is not None}
            if not wait_s or all(sign == signs.get(part) for part, sign in now.items()):
                break
            signs, until = now, time.monotonic() + wait_s  # what is being sent arrives
        if waiting:
            time.sleep(source.files.poll_s)
    return found


def _common(box: Span, other: Span) -> Span:
    low = tuple(max(a, b) for a, b in zip(box[0], other[0], strict=True))
    return low, tuple(min(a, b) for a, b in zip(box[1], other[1], strict=True))


def _left(boxes: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return what is left of boxes without others."""
    left = list(boxes)
    for other in others:
        left = [rest for box in left for rest in subtract(box, other)]
    return left


def _check_lost(
    entries: Mapping[str, tuple[str, Entry]],
    shards: Mapping[_Key, Mapping[str, _Share]],
    lost: Mapping[_Key, list[Span]],
    parts: list[str],
) -> None:
    missing: dict[str, list[Span]] = defaultdict(list)
    for key, boxes in lost.items():
        has = [box for share in shards.get(key, {}).values() for _, box in share.boxes]
        if left := _left(dict.fromkeys(boxes), has):
            missing[entries[key[0]][0]].extend(left)
    if missing:
        count = sum(map(len, missing.values()))
        held = f"{len(parts)} parts are lost, or held by processes that do not answer, or lack the boxes of receipts"
        arrays = ", ".join(map(repr, missing))
        told = f"{held}: {', '.join(parts)}; {count} boxes of {arrays} must be written again"
        raise ReceiptError(told, dict(missing))


def _take(
    source: PartsSource,
    entry: Entry,
    number: int,
    shares: list[_Share],
    forks: Mapping[str, Manifest],
    *,
    before: Sequence[tuple[str, Span]],
) -> None:
    """Choose one part's shard, and copy over what others have beside."""
    now = source.draft.row(entry, number, source.history.load)
    claims = _claims(shares, list(forks), before)
    bases = {share.job: _row_at(forks[share.job], entry.id, number, source) for share in shares}
    shares.sort(key=lambda share: (-_size(claims[share.row.part]), share.row.part))
    # One that was taken before, with other boxes, is there as a whole.
    chosen = next((share for share in shares if now == share.row), None) or next(
        (share for share in shares if now == bases[share.job]), None
    )
    if chosen is not None:
        shares.remove(chosen)
        with source.lock:
            source.draft.rows.setdefault(entry.id, {})[number] = chosen.row
    for share in shares:
        left = claims[share.row.part]
        if not left:
            continue
        _, target = source.own_shard(entry, number)
        there = source.parts.space(share.row)
        origin = entry.box(number)[0]
        for low, high in left:
            start = [a - o for a, o in zip(low, origin, strict=True)]
            values = np.empty([b - a for a, b in zip(low, high, strict=True)], f"V{entry.itemsize}")
            there.read(values, start)
            target.write(values, start)
            source.stats.bytes_merged += values.nbytes
        source.stats.shards_merged += 1


def _claims(shares: list[_Share], jobs: list[str], before: Sequence[tuple[str, Span]]) -> dict[str, list[Span]]:
    """Return what counts of each part: of two that have an element, the later fork's, and within one the later box."""
    order = {job: at for at, job in enumerate(jobs)}

    def stays(job: str) -> list[Span]:
        return [box for other, box in before if order.get(other, -1) > order[job]]

    if len(shares) == 1:  # what it wrote is in it, in its order
        (share,) = shares
        return {share.row.part: _left(dict.fromkeys(box for _, box in share.boxes), stays(share.job))}
    every = [(order[share.job], at, share, box) for share in shares for at, box in share.boxes]
    claims: dict[str, list[Span]] = {share.row.part: [] for *_, share, _ in every}
    has: dict[Span, None] = {}
    for *_, share, box in sorted(every, key=lambda one: one[:2], reverse=True):
        if box not in has:
            claims[share.row.part].extend(_left([box], [*has, *stays(share.job)]))
            has[box] = None
    return claims


def _row_at(manifest: Manifest, identity: str, number: int, source: PartsSource) -> Row | None:
    """Return the row that a shard had when a job began."""
    for entry in manifest.arrays.values():
        if entry.id == identity:
            return find(entry.leaves, number, source.history.load)
    return None
