"""Stores in objects far away: opened as the engine's stores, over :class:`~nandarray.remote.objects.Objects`.

The engine asks for ranges, in threads of its own; they are fetched with the facts of the object as it was opened, and
kept in a :class:`~nandarray.remote.cache.Cache`. When Python ends, requests that are under way are waited for, and no
more are made in the background.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from collections.abc import Iterable
from typing import Any

from nandarray import _nandarray
from nandarray.errors import InvalidError, NotAStoreError, StoreMissingError
from nandarray.remote.cache import Cache, Entry, cache_of
from nandarray.remote.objects import Facts, Objects
from nandarray.remote.places import Place, Storage, place_of

__all__ = ["open_far", "open_place", "opening", "place_of", "refuse"]

#: Bytes that are fetched with the facts of an object: a store's superblocks are there.
_HEAD = 64 << 10
#: Largest object in bytes: each unit of one takes a byte of memory or disk at once, whatever its server says.
_BYTES_MOST = 1 << 46
#: Bytes that are fetched between two looks at the cache's bound.
_LOOKED_AT = 32 << 20


class _Source:
    """The function that the engine calls for ranges of an object."""

    def __init__(self, objects: Objects, key: str, facts: Facts, cache: Cache | None) -> None:
        self._objects, self._key, self._facts, self._cache = objects, key, facts, cache
        #: The entry, whose lock keeps the bytes until the engine drops the function.
        self.entry: Entry | None = None
        self._fetched = 0
        self._lock = threading.Lock()

    def fetch(self, start: int, end: int) -> memoryview:
        """Return the bytes of a range."""
        found = self._objects.piece(self._key, start, end, self._facts)
        if self._cache is not None and self.entry is not None:
            with self._lock:
                self._fetched += end - start
                due = self._fetched >= min(_LOOKED_AT, self._cache.bound // 8)
                if due:
                    self._fetched = 0
            if due:
                self._make_room(self._cache)
        return found

    def _make_room(self, cache: Cache) -> None:
        try:
            cache.make_room()
        except OSError as error:
            self.warn(error.strerror or str(error))

    def warn(self, why: str) -> None:
        """Say that bytes cannot be kept on the disk."""
        url, folder = self._objects.url(self._key), "" if self._cache is None else f" in {self._cache.folder}"
        warnings.warn(f"{url}: bytes are kept in memory, not{folder}: {why}", RuntimeWarning, stacklevel=2)


def open_far(
    objects: Objects,
    key: str,
    facts: Facts | None = None,
    *,
    cache: Cache | None = None,
    verify: str = "once",
    threads: int | None = None,
) -> _nandarray.Store:
    """Open the store in an object, for reading.

    Parameters
    ----------
    objects : Objects
        The objects of its place.
    key : str
        Its key there.
    facts : Facts, optional
        Its facts, if they are known: without them they are requested.
    cache : Cache, optional
        The cache of its bytes; without one they are in memory, a bounded part of them.
    verify : {"once", "always", "never"}
        As in :func:`nandarray.open`.
    threads : int, optional
        As in :func:`nandarray.open`.

    Raises
    ------
    StoreMissingError
        There is no such object.
    NotAStoreError
        It holds something else.
    """
    first = None
    if facts is None:
        facts, first = _begun(objects, key)
    return _opened(objects, key, facts, first, cache, verify=verify, threads=threads)


def _begun(objects: Objects, key: str) -> tuple[Facts, memoryview]:
    """Return the facts of an object and its first bytes, by one request where that can be."""
    try:
        first, facts = objects.head(key, _HEAD)
    except FileNotFoundError as error:
        url = objects.url(key)
        raise StoreMissingError(error.errno, "there is no such object", url) from error
    return facts, first


def _opened(
    objects: Objects, key: str, facts: Facts, first: memoryview | None, cache: Cache | None, **options: Any
) -> _nandarray.Store:
    url, verify = objects.url(key), options["verify"]
    if not facts.bytes:
        raise NotAStoreError(f"{url} is not a nandarray store: it is empty")
    if facts.bytes > _BYTES_MOST:
        raise NotAStoreError(f"{url} must have at most {_BYTES_MOST} bytes; its server says {facts.bytes}")
    if not facts.lasting:
        cache = None  # nothing says whether what was kept is of the same object
    _ends_once()
    source = _Source(objects, key, facts, cache)
    trusting = verify != "never"

    def far_of(entry: Entry | None) -> _nandarray.Far:
        source.entry = entry
        kept = None if entry is None else entry.files
        return _nandarray.Far(url, facts.bytes, source.fetch, source.warn, kept=kept, trusting=trusting)

    far = None
    if cache is not None:
        try:
            far = cache.open(url, facts, far_of)
        except OSError as error:
            source.warn(error.strerror or str(error))
    far = far or far_of(None)
    if first is not None:
        far.give(first)
    return _nandarray.Store.open_far(far, **options)


def open_place(
    place: Place, kept: tuple[Any, int | None], *, facts: Facts | None = None, **options: Any
) -> tuple[_nandarray.Store, Facts]:
    """Open the store in an object, and return it with the object's facts; ``kept`` is ``cache`` and ``cache_bytes``."""
    cache, first = cache_of(*kept), None
    if facts is None:
        facts, first = _begun(place.objects, place.key)
    return _opened(place.objects, place.key, facts, first, cache, **options), facts


def opening(path: str, facts: Facts, storage: Any, cache: Any, bound: int | None, **options: Any) -> Any:
    """Return how a store is opened elsewhere as it was here: what :mod:`nandarray.array.pickling` pickles."""
    folder = os.path.abspath(cache) if cache else cache
    held = None if storage is None else Storage(storage)
    again = {"facts": facts, "storage": held, "cache": folder, "cache_bytes": bound, **options}
    return path, tuple(again.items())


_ended = False


def _ends_once() -> None:
    """Have the end of Python wait for requests; once in a process."""
    global _ended
    if not _ended:
        _ended = True
        atexit.register(_nandarray.far_end)
        os.register_at_fork(after_in_child=_nandarray.far_forked)


def refuse(mode: Any, options: Iterable[str], url: str) -> None:
    """Refuse what only stores on this machine take."""
    if mode != "r":
        raise InvalidError(f"{url} is far away and is read only: mode must be 'r', not {mode!r}; write a file, copy it")
    if wrong := list(options):
        raise InvalidError(f"{url} is far away, and takes no {' or '.join(wrong)}: copy it here first")
