"""Committing: a draft becomes the next version, by the creation of one object.

The part of this process is sealed, changed leaves are put, and the manifest of the next version is made if its number
is free. If it is not, the draft is moved onto the version that has it (:mod:`nandarray.parts.draft`), which reads no
data, and the next number is tried. Until the manifest is there, nothing that was put is named by any version: it is
garbage, which :mod:`nandarray.parts.reclaim` removes. An answer that is lost is recognised by the manifest's text. If
the folder cannot be read for that, the attempt is kept, and the next commit of the source begins with it.
"""

from __future__ import annotations

import os
import random
import socket
import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from nandarray.errors import CommitUnknownError, ConflictError, PartError
from nandarray.parts.blobs.base import part_key
from nandarray.parts.draft import Draft, moved
from nandarray.parts.history import History, unknown
from nandarray.parts.leaves import Row, updated
from nandarray.parts.manifest import ANCESTORS, Entry, Manifest
from nandarray.parts.source import PartsSource

__all__ = ["TRIES", "commit", "drafted", "empty"]

#: Versions that others may commit in between before a transaction gives up.
TRIES = 64
_PAUSE_S = 0.02


def empty(message: str = "") -> Manifest:
    """Return the first version of a store, which has no arrays."""
    return _manifest(None, {}, message)


def drafted(history: History, draft: Draft) -> dict[str, Entry]:
    """Return the arrays of a draft with leaves that have its rows, which are put."""
    return {
        name: replace(entry, leaves=updated(entry.leaves, draft.rows.get(entry.id, {}), history.load, history.put))
        for name, entry in draft.arrays.items()
    }


def _manifest(parent: Manifest | None, arrays: dict[str, Entry], message: str) -> Manifest:
    return Manifest(
        version=parent.version + 1 if parent else 1,
        parent=parent.version if parent else 0,
        commit=uuid.uuid4().hex,
        parent_commit=parent.commit if parent else "",
        ancestors=(parent.commit, *parent.ancestors)[:ANCESTORS] if parent else (),
        message=message,
        written_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        writer=f"{socket.gethostname()}:{os.getpid()}",
        arrays=arrays,
    )


@dataclass
class _Tried:
    """An attempt whose outcome is not known: its version, and the draft that it is of."""

    manifest: Manifest
    arrays: dict[str, Entry]
    rows: dict[str, dict[int, Row | None]]
    named: set[str]

    @classmethod
    def of(cls, manifest: Manifest, draft: Draft, named: set[str]) -> _Tried:
        return cls(manifest, dict(draft.arrays), {one: dict(rows) for one, rows in draft.rows.items()}, set(named))

    def rest(self, draft: Draft) -> Draft:
        """Return what a draft has beside, upon the version."""
        before = {entry.id: (name, entry) for name, entry in self.arrays.items()}
        there = {entry.id: (name, entry) for name, entry in self.manifest.arrays.items()}
        arrays = {name: entry for name, entry in self.manifest.arrays.items() if entry.id not in before}
        made = Draft(self.manifest, arrays)
        for name, entry in draft.arrays.items():
            was, now, rows = before.get(entry.id), there.get(entry.id), draft.rows.get(entry.id, {})
            # Numbers of shards are those of the shape: where it has changed beyond the first axis, none is comparable.
            if was is None or now is None or (was[1].leaves, was[1].shape[1:]) != (entry.leaves, entry.shape[1:]):
                arrays[name] = entry
            else:
                known = self.rows.get(entry.id, {})
                rows = {number: row for number, row in rows.items() if known.get(number, ...) != row}
                changed = {
                    key: getattr(entry, key)
                    for key in ("shape", "attrs")
                    if getattr(entry, key) != getattr(was[1], key)
                }
                arrays[now[0] if name == was[0] else name] = replace(now[1], **changed)
            if rows:
                made.rows[entry.id] = rows
        return made


def commit(source: PartsSource, message: str = "") -> int:
    """Make what a source has changed the next version; return its number, or the present one if nothing was changed.

    Raises
    ------
    ConflictError
        Another transaction has changed the same since. The changes are still in the source.
    CommitUnknownError
        The version may be there. The next commit looks for it, and makes it if it is not.
    PartError
        A part with elements of the transaction is not there any more.
    """
    source.check_writable()
    if not source.draft.is_changed and source.tried is None:  # no thread has to wait for that
        return source.draft.base.version
    with source.alone():
        named = _recognised(source)
        if source.draft.is_changed:
            source.seal_own()
            named |= _check_parts(source)
            manifest = _added(source, message, named)
            source.may_be_named = False
            source.see(manifest)
        elif not named:
            return source.draft.base.version
        source.end_jobs(named)
        return source.draft.base.version


def _recognised(source: PartsSource) -> set[str]:
    """Look for the version of an attempt whose outcome was not known; return the parts that it names."""
    tried: _Tried | None = source.tried
    if tried is None:
        return set()
    try:
        there = source.history.has(tried.manifest)
    except OSError as error:
        raise unknown(tried.manifest, error) from error
    source.tried, source.may_be_named = None, False
    if not there:
        return set()
    draft = tried.rest(source.draft)
    source.see(tried.manifest)
    source.draft = draft
    return tried.named


def _check_parts(source: PartsSource) -> set[str]:
    """Return the parts that a draft names, all of which are there."""
    named = {row.part for rows in source.draft.rows.values() for row in rows.values() if row is not None}
    for part in sorted(named):
        if not source.files.has(part_key(part)):
            raise PartError(f"part {part} of {source.path} is not there: this transaction cannot be committed")
    return named


def _added(source: PartsSource, message: str, named: set[str]) -> Manifest:
    history, draft = source.history, source.draft
    for attempt in range(TRIES):
        is_newest = attempt == 0 and history.numbers()[:1] == [draft.base.version]
        newest = draft.base if is_newest else history.newest()
        now = moved(draft, newest, history.load)
        source.stats.tries += 1
        made = _manifest(newest, drafted(history, now), message)
        source.may_be_named, source.tried = True, _Tried.of(made, draft, named)
        try:
            done = history.add(made)
        except CommitUnknownError:
            raise
        except Exception:
            source.may_be_named, source.tried = False, None
            raise
        source.tried = None
        if done:
            return made
        source.may_be_named = False
        time.sleep(random.random() * _PAUSE_S * min(8, attempt + 1))  # noqa: S311 (a pause)
    raise ConflictError(f"{TRIES} tries, and others committed in between each time: nothing was committed")
