"""Reclaiming: leaves and parts that no version names any more, and remains of jobs that ended without a word.

Versions expire first (:func:`expire`), which deletes manifests that no tag and no lease names; then :func:`collect`
deletes what none of the rest names. A part is kept while its job's folder is there, whose transaction may still commit
it; leaves and parts are kept while they are young. Ages are those of the file system's clock.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

from nandarray.errors import InvalidError
from nandarray.parts import leases, protection
from nandarray.parts.blobs.base import Blobs
from nandarray.parts.history import History
from nandarray.parts.leaves import Leaf
from nandarray.parts.manifest import Manifest, base_key, draft_key, key_of, parse
from nandarray.parts.writer import job_of

__all__ = ["collect", "expire", "seconds", "uses"]

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_AGE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*")


def seconds(age: Any) -> float:
    """Return the seconds of an age, a number of them or a text such as ``"90s"``, ``"10m"``, ``"1h"``, ``"7d"``."""
    if isinstance(age, int | float) and not isinstance(age, bool) and age >= 0:
        return float(age)
    found = _AGE.fullmatch(age) if isinstance(age, str) else None
    if found is None:
        raise InvalidError(f"an age must be a number of seconds, or like '90s', '10m', '1h' or '7d', not {age!r}")
    return float(found[1]) * _UNITS[found[2]]


def uses(history: History, numbers: list[int]) -> tuple[dict[str, Leaf], dict[str, int]]:
    """Return the leaves that versions and forks name, by their hashes, and the parts, with their shards in use.

    Raises
    ------
    CorruptError
        A manifest or a leaf cannot be read: what it names is not known.
    """
    versions = list(map(history.at, numbers))
    named = {leaf.sha: leaf for one in versions for entry in one.arrays.values() for leaf in entry.leaves}
    for one in _drafts(history.files):
        for entry in one.arrays.values():
            # A job may have begun from a version that had expired: its leaves may be gone, and protect nothing.
            named |= {leaf.sha: leaf for leaf in entry.leaves if leaf.sha in named or history.has_leaf(leaf)}
    parts: dict[str, int] = {}
    for leaf in named.values():
        for part in history.load(leaf)["part"]:
            name = part.tobytes().hex()
            parts[name] = parts.get(name, 0) + 1
    return named, parts


def _drafts(files: Blobs) -> list[Manifest]:
    """Return the versions from which jobs began, and the states that forks have.

    Workers read them, and a commit compares with them, whatever has expired since.
    """
    found = []
    for job in files.names("jobs"):
        for key in (base_key(job), draft_key(job)):
            with contextlib.suppress(FileNotFoundError):
                found.append(parse(files.get(key), files.path(key)))
    return found


def expire(history: History, keep: int, older_than: float) -> list[int]:
    """Delete manifests, but not of the newest ``keep``, of those with tags or leases, and of those newest of late."""
    files, now = history.files, history.files.now()
    strays = history.strays()
    numbers = [number for number in history.numbers() if number not in strays]
    named = _named(history, now)
    victims = [
        number
        for newer, number in zip(numbers[keep - 1 :], numbers[keep:], strict=False)
        if number not in named and files.age(key_of(newer), now) >= older_than
    ]
    kept: dict[int, bytes] = {}
    stay = set(victims)  # all of them, if something fails on the way
    try:
        for number in [*strays, *victims]:
            with contextlib.suppress(FileNotFoundError):
                kept[number] = files.get(key_of(number))
                files.delete(key_of(number))
        # A tag or a lease that was made since has seen its version there: it stays.
        stay = _named(history, now).intersection(victims)
    finally:
        for number in stay.intersection(kept):
            files.put_if_absent(key_of(number), kept.pop(number))
    return sorted(number for number in kept if number not in strays)


def _named(history: History, now: float) -> set[int]:
    """Return the versions that tags and leases name."""
    return {*history.tags().values(), *leases.held(history.files, now)}


def collect(history: History, older_than: float, jobs_older_than: float) -> dict[str, int]:
    """Delete what no version names; return how many files of each kind, and their bytes."""
    files = history.files
    now = files.now()
    for job, kept in files.listed("jobs").items():
        if kept.age(now) >= jobs_older_than:
            files.drop_folder(f"jobs/{job}")
    # Jobs first: one that ends after that has made its version by then, which is among those that are read.
    jobs = set(files.names("jobs"))
    leaves, parts = uses(history, history.numbers())
    guards = protection.guards(files)
    needed = protection.kept(guards, parts)
    done = {"leaves": 0, "parts": 0, "bytes": 0}
    for name in files.names("leaves"):
        if name.removesuffix(".npy") not in leaves:
            _delete(files, f"leaves/{name}", now - older_than, done)
    for name, kept in files.listed("parts").items():
        part = name.partition(".")[0]
        if part in parts or part in needed or job_of(part) in jobs or kept.age(now) < older_than:
            continue
        if not files.is_written(name):
            _delete(files, f"parts/{name}", now, done)
    leases.sweep(files, now)
    protection.drop(files, guards, parts, older_than)
    for name, kept in files.listed("tmp").items():
        if kept.age(now) >= max(older_than, 60.0):
            files.delete(f"tmp/{name}")
    return done


def _delete(files: Blobs, key: str, before: float, done: dict[str, int]) -> None:
    with contextlib.suppress(FileNotFoundError):
        kept = files.facts(key)
        if kept.made_ns >= 0 and kept.made_at <= before:
            files.delete(key)
            done[key.partition("/")[0]] += 1
            done["bytes"] += kept.bytes
