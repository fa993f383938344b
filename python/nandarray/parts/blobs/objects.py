"""Objects of a store of parts as objects of a bucket, below one key.

``put_if_absent`` is the store's own create-if-absent (``If-None-Match: *``): of two writers one wins. Its answer may be
lost, here or beneath, where a library sends a request again: what is there is then compared with what was sent, so that
of two texts that differ each writer learns its own outcome. :meth:`ObjectBlobs.prepare` tries that a store keeps this
promise before anything is made in it. Listings may be late; a reader of one asks on (``lists_late``).

Ages are by the bucket's clock: an object's is when it was made, and it is made again to be young. There are no
folders: one of a job is there while the object ``alive`` in it is. A part is written to a file of this process
(:mod:`nandarray.parts.blobs.working`), and is sent when it is sealed; an upload that lasts shows by an object
``s-<part>`` in its job's folder that it goes on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from nandarray import _nandarray
from nandarray.errors import DeniedError, InvalidError, MediaError, StoreExistsError
from nandarray.parts.blobs.base import BlobFacts, Blobs, part_key
from nandarray.parts.blobs.files import head_of, reported
from nandarray.parts.blobs.working import working
from nandarray.remote.cache import Cache, cache_of
from nandarray.remote.objects import Facts, Objects, merged
from nandarray.remote.source import open_far

__all__ = ["KeptBytes", "ObjectBlobs"]

#: Folder and bound of a cache.
KeptBytes = tuple[Any, int | None]

#: Requests for one object before an error counts, and the first pause between them in seconds.
_TRIES = 4
_PAUSE_S = 0.1
#: Time between two signs of an upload that it goes on, in seconds.
_SIGN_S = 4.0
#: Bytes of a part by which it is known, that are kept of those that this process has sealed.
_HEAD_BYTES = 8192
_ALIVE = "alive"
#: Options of parts that are read.
_READING = ("verify", "threads")

_T = TypeVar("_T")


class ObjectBlobs(Blobs):
    """The objects below one key.

    Parameters
    ----------
    objects : Objects
        The objects of a bucket.
    prefix : str
        The key below which they are, without a slash at its end.
    kept : tuple
        Place and bound of what is kept of sealed parts on this machine, as ``cache`` and ``cache_bytes`` of
        :func:`nandarray.open`.
    """

    settles = False
    #: An upload has the room between a part's elements, too: 1 MiB of it, where a file's usual blocks leave 14.
    geometry: ClassVar[dict[str, int] | None] = {"channels": 1, "banks": 1, "pages_per_block": 64}
    poll_s = 0.5
    lists_late = True
    adopts = False

    def __init__(self, objects: Objects, prefix: str, kept: KeptBytes = (None, None)) -> None:
        super().__init__(objects.url(prefix))
        self.objects, self.prefix, self._kept_bytes = objects, prefix, kept
        self._cache: Cache | None = None
        self._is_cached = True
        #: Lengths and heads of parts that this process has sealed.
        self._heads: dict[str, tuple[int, bytes]] = {}

    def __getstate__(self) -> tuple[Objects, str, KeptBytes]:
        return self.objects, self.prefix, self._kept_bytes

    def __setstate__(self, state: tuple[Objects, str, KeptBytes]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    # --- Objects -----------------------------------------------------------------------------------------------------

    def path(self, key: str) -> str:  # noqa: D102
        return self.objects.url(self._key(key))

    def put_if_absent(self, key: str, data: bytes, *, durably: bool = True) -> bool:  # noqa: D102, ARG002 (it is)
        full = self._key(key)
        failed: MediaError | None = None
        for attempt in range(_TRIES):
            _pause(attempt)
            try:
                if self.objects.put_if_absent(full, data):
                    return True
                failed = None
            except DeniedError:
                raise
            except MediaError as error:
                failed = error
            try:  # the answer to this request, or to one before it, may be what was lost
                return bytes(self.objects.get(full)[0]) == data
            except FileNotFoundError:  # refused since another request was under way, or deleted since
                continue
            except MediaError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return False

    def keep(self, key: str, data: bytes) -> None:  # noqa: D102
        self._put(key, data)

    def _put(self, key: str, data: bytes | memoryview) -> None:
        """Make an object, in place of one that is there."""
        _tried(lambda: self.objects.put(self._key(key), data))

    def sync(self, folder: str) -> None:
        """Nothing: an object is durable when its request is answered."""

    def get(self, key: str) -> bytes:  # noqa: D102
        return bytes(_tried(lambda: self.objects.get(self._key(key)))[0])

    def listed(self, folder: str) -> dict[str, BlobFacts]:  # noqa: D102
        found: dict[str, BlobFacts] = {}
        top = self._key(folder)
        for key, facts in _tried(lambda: self.objects.listing(top)):
            name = key.removeprefix(f"{top}/").partition("/")[0]
            kept, has = _kept(facts), found.get(name, BlobFacts(0, -1))
            total = has.bytes + kept.bytes
            found[name] = BlobFacts(total, max(has.made_ns, kept.made_ns), total)
        return dict(sorted(found.items()))

    def facts(self, key: str) -> BlobFacts:  # noqa: D102
        return _kept(self._facts(key))

    def _facts(self, key: str) -> Facts:
        return _tried(lambda: self.objects.facts(self._key(key)))

    def touch(self, key: str) -> bool:  # noqa: D102
        try:
            self._put(key, self.get(key))
        except FileNotFoundError:
            return False
        return True

    def delete(self, key: str) -> None:  # noqa: D102
        _tried(lambda: self.objects.delete(self._key(key)))

    def now(self) -> float:
        """Return the time by the bucket's clock, in seconds: that of an object made just now."""
        key = f"tmp/{uuid.uuid4().hex}"
        try:
            self._put(key, b"")
            made = self.facts(key)
        finally:
            with contextlib.suppress(OSError):
                self.delete(key)
        if made.made_ns < 0:
            raise MediaError(f"{self.path(key)}: its store does not say when it was made, so no age is known")
        return made.made_at

    # --- Folders -----------------------------------------------------------------------------------------------------

    def prepare(self, folders: tuple[str, ...], first: str) -> None:  # noqa: D102, ARG002 (a bucket has no folders)
        self.check_writer()
        there = [key.removeprefix(f"{self.prefix}/") for key, _ in self.objects.listing(self.prefix)]
        if other := [key for key in there if key != first and not key.startswith("tmp/")]:
            raise StoreExistsError(errno.EEXIST, f"has {other[0]!r}, and a new store must begin empty", self.root)
        with contextlib.suppress(FileNotFoundError):
            self.objects.facts(self.prefix)
            raise StoreExistsError(errno.EEXIST, "is an object, not the beginning of several", self.root)
        self._try_promises()

    def _try_promises(self) -> None:
        """Make an object twice: the second time must be refused, and its age must be known."""
        key = f"tmp/{uuid.uuid4().hex}"
        full = self._key(key)
        try:
            self.objects.put_if_absent(full, b"first")
            again = self.objects.put_if_absent(full, b"second")
            has, facts = self.objects.get(full)
        finally:
            with contextlib.suppress(OSError):
                self.objects.delete(full)
        if again or bytes(has) != b"first":
            raise InvalidError(
                f"{self.root}: this server made an object that was there already, so it has no create-if-absent "
                "(If-None-Match: *), by which a version is committed: two writers would lose each other's versions"
            )
        if not facts.made_at:
            raise InvalidError(f"{self.root}: this store does not say when objects were made, so nothing could age")

    def check_writer(self) -> None:  # noqa: D102
        if not self.objects.creates_at_once:
            raise InvalidError(
                f"{self.root}: a file system of fsspec may look whether an object is there and make it then, so two "
                "writers could lose each other's versions; write with a store of obstore, which makes it in one step"
            )

    def make_folder(self, key: str) -> None:  # noqa: D102
        if not self.put_if_absent(f"{key}/{_ALIVE}", uuid.uuid4().bytes):
            raise FileExistsError(errno.EEXIST, "is there", self.path(key))

    def renew_folder(self, key: str) -> None:  # noqa: D102
        self.touch(f"{key}/{_ALIVE}")

    def drop_folder(self, key: str) -> None:  # noqa: D102
        for name in self.names(key):
            self.delete(f"{key}/{name}")

    # --- Parts -------------------------------------------------------------------------------------------------------

    def unsealed(self, part: str) -> str:  # noqa: D102
        return os.path.join(working(), f"{part}.open")

    def seal(self, part: str) -> None:  # noqa: D102
        file = self.unsealed(part)
        if not os.path.exists(file) and self.has(part_key(part)):  # it was sealed before
            return
        self._heads[part] = head_of(file, _HEAD_BYTES)
        self.send_part(part, file)
        os.unlink(file)

    def send_part(self, part: str, file: str) -> None:  # noqa: D102
        key, size = part_key(part), os.stat(file).st_size
        with self._signs(part):
            _tried(lambda: self.objects.put_file(self._key(key), file))
        if (has := self._facts(key).bytes) != size:
            raise MediaError(f"{self.path(key)}: {has} of {size} bytes arrived")

    @contextmanager
    def _signs(self, part: str) -> Iterator[None]:
        """Show each few seconds that an upload goes on."""
        ended, key = threading.Event(), _sign_key(part)
        shown = []

        def show() -> None:
            while not ended.wait(_SIGN_S):
                with contextlib.suppress(OSError):
                    shown.append(key)
                    self.objects.put(self._key(key), uuid.uuid4().bytes)

        thread = threading.Thread(target=show, name="nandarray-upload", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            if shown:
                with contextlib.suppress(OSError):
                    self.delete(key)

    def sign_of(self, part: str) -> Any:  # noqa: D102
        try:
            return bytes(self.objects.get(self._key(_sign_key(part)))[0])
        except OSError:
            return None

    def adopt(self, part: str) -> bool:  # noqa: D102
        return self.has(part_key(part))  # the file of one that is not there is its writer's alone

    def discard(self, part: str) -> None:  # noqa: D102
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.unsealed(part))

    def is_written(self, name: str) -> bool:  # noqa: D102, ARG002 (what is there is sealed)
        return False

    def sealed_names(self, jobs: list[str]) -> list[str]:
        """Return none: all parts would be listed."""
        return []

    def head(self, part: str, count: int) -> tuple[int, bytes]:  # noqa: D102
        if part in self._heads and count == _HEAD_BYTES:
            return self._heads[part]
        key = part_key(part)
        facts = self._facts(key)
        found = self.objects.read(self._key(key), [(0, min(count, facts.bytes))], facts) if facts.bytes else [b""]
        return facts.bytes, bytes(found[0])

    def room(self) -> str:  # noqa: D102
        return working()

    @contextmanager
    def file_of(self, part: str, room: str) -> Iterator[str]:  # noqa: D102
        key = self._key(part_key(part))
        facts, path = self._facts(part_key(part)), os.path.join(room, uuid.uuid4().hex)
        try:
            with reported(path), open(path, "xb") as file:
                number = file.fileno()
                pieces = merged([(0, facts.bytes)])
                if pieces:
                    self.objects.fetch(key, pieces, facts, lambda start, data: _write(number, data, start))
            yield path
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def open_part(self, part: str, options: Mapping[str, Any]) -> _nandarray.Store:  # noqa: D102
        if self._is_cached and self._cache is None:
            self._cache = cache_of(*self._kept_bytes)
            self._is_cached = self._cache is not None
        facts, how = self._facts(part_key(part)), {key: options[key] for key in _READING if key in options}
        return open_far(self.objects, self._key(part_key(part)), facts, cache=self._cache, **how)


def _write(number: int, data: memoryview, start: int) -> None:
    while data:
        count = os.pwrite(number, data, start)
        data, start = data[count:], start + count


def _sign_key(part: str) -> str:
    return f"jobs/{part[:16]}/s-{part}"


def _kept(facts: Facts) -> BlobFacts:
    return BlobFacts(facts.bytes, int(facts.made_at * 1e9) if facts.made_at else -1, facts.bytes)


def _pause(attempt: int) -> None:
    if attempt:
        time.sleep(_PAUSE_S * 2 ** (attempt - 1) * (0.5 + random.random()))  # noqa: S311 (a pause)


def _tried(request: Callable[[], _T]) -> _T:
    """Return what a request gives that may be sent more than once."""
    for attempt in range(_TRIES):
        _pause(attempt)
        try:
            return request()
        except DeniedError:
            raise
        except MediaError as error:
            failed = error
    raise failed
