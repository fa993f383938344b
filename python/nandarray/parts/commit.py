"""Committing: a draft becomes the next version, by the creation of one object.

The part of this process is sealed, changed leaves are put, and the manifest of the next version is made if its number
is free. If it is not, the draft is moved onto the version that has it (:mod:`nandarray.parts.draft`), which reads no
data, and the next number is tried. Until the manifest is there, nothing that was put is named by any version: it is
garbage, which :mod:`nandarray.parts.reclaim` removes. An answer that is lost is recognised by the manifest's text.
"""

from __future__ import annotations

import os
import random
import socket
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime

from nandarray.errors import ConflictError, PartError
from nandarray.parts.draft import Draft, moved
from nandarray.parts.history import History
from nandarray.parts.leaves import updated
from nandarray.parts.manifest import Entry, Manifest
from nandarray.parts.source import PartsSource
from nandarray.parts.writer import part_key

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
        message=message,
        written_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        writer=f"{socket.gethostname()}:{os.getpid()}",
        arrays=arrays,
    )


def commit(source: PartsSource, message: str = "") -> int:
    """Make what a source has changed the next version; return its number, or the present one if nothing was changed.

    Raises
    ------
    ConflictError
        Another transaction has changed the same since. The changes are still in the source.
    PartError
        A part with elements of the transaction is not there any more.
    """
    source.check_writable()
    with source.alone():
        if not source.draft.is_changed:
            return source.draft.base.version
        source.seal_own()
        named = _check_parts(source)
        manifest = _added(source, message)
        source.draft, source.may_be_named = Draft.of(manifest), False
        source.end_jobs(named)
        return manifest.version


def _check_parts(source: PartsSource) -> set[str]:
    """Return the parts that a draft names, all of which are there."""
    named = {row.part for rows in source.draft.rows.values() for row in rows.values() if row is not None}
    for part in sorted(named):
        if not source.files.has(part_key(part)):
            raise PartError(f"part {part} of {source.path} is not there: this transaction cannot be committed")
    return named


def _added(source: PartsSource, message: str) -> Manifest:
    history, draft = source.history, source.draft
    for attempt in range(TRIES):
        newest = draft.base if attempt == 0 else history.newest()
        if attempt == 0 and (numbers := history.numbers())[0] != newest.version:
            newest = history.at(numbers[0])
        now = moved(draft, newest, history.load)
        source.stats.tries += 1
        made = _manifest(newest, drafted(history, now), message)
        source.may_be_named = True
        if history.add(made):
            return made
        source.may_be_named = False
        time.sleep(random.random() * _PAUSE_S * min(8, attempt + 1))  # noqa: S311 (a pause)
    raise ConflictError(f"{TRIES} tries, and others committed in between each time: nothing was committed")
