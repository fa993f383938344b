"""Objects by obstore: S3, Google's and Azure's stores, HTTP, folders, memory.

One class; errors of obstore become this package's in :func:`_reported`. Credentials, endpoints, time limits and proxies
are set on the obstore store that the caller makes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nandarray.errors import ChangedError, DeniedError, MediaError
from nandarray.optional import require
from nandarray.remote.objects import Facts, Objects, interruptible

__all__ = ["Obstores"]

#: Parts of a large object that are sent side by side, and the size of each in bytes.
_SENT_AT_ONCE = 8
_SENT_BYTES = 16 << 20


class Obstores(Objects):
    """Objects of an obstore store.

    Parameters
    ----------
    store : obstore.store.ObjectStore
        The store.
    root : str
        Its URL, for messages.
    """

    def __init__(self, store: Any, root: str) -> None:
        super().__init__(root)
        self._store = store
        self._obstore = require("obstore", "remote")

    def __getstate__(self) -> tuple[Any, str]:
        return self._store, self.root

    def __setstate__(self, state: tuple[Any, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def facts(self, key: str) -> Facts:  # noqa: D102
        with _reported(self.url(key)):
            return _facts(interruptible(lambda: self._obstore.head(self._store, key)))

    def get(self, key: str, most: int | None = None) -> tuple[memoryview, Facts]:  # noqa: D102
        with _reported(self.url(key)):
            meta, _, data = self._got(key, most=most)
            facts = _facts(meta)
        if len(data) != facts.bytes:
            raise MediaError(f"{self.url(key)}: the answer has {len(data)} of {facts.bytes} bytes")
        return data, facts

    def _got(
        self, key: str, options: dict[str, Any] | None = None, most: int | None = None
    ) -> tuple[Any, tuple[int, ...], memoryview]:
        """Return what the answer to a request says of the object, the range that it has, and the bytes."""

        def get() -> tuple[Any, tuple[int, ...], memoryview]:
            found = self._obstore.get(self._store, key, options=options)
            self._bounded(key, _facts(found.meta), most)
            return found.meta, tuple(found.range), memoryview(found.bytes())

        return interruptible(get)

    def head(self, key: str, count: int) -> tuple[memoryview, Facts]:  # noqa: D102
        try:
            with _reported(self.url(key)):
                meta, _, data = self._got(key, {"range": (0, count)})
                facts = _facts(meta)
        except (ChangedError, MediaError):
            # An empty object has no first byte, and says so in as many ways as there are servers; or it is tried again.
            return super().head(key, count)
        if len(data) != min(count, facts.bytes):
            return super().head(key, count)
        return data, facts

    def get_range(self, key: str, start: int, end: int, facts: Facts) -> memoryview:  # noqa: D102
        options: dict[str, Any] = {"range": (start, end)}
        if facts.lasting:  # the condition compares strongly: a weak etag is never equal
            options["if_match"] = facts.etag
        with _reported(self.url(key)):
            meta, given, data = self._got(key, options)
            # A server may ignore the condition, so its answer is held against it, too.
            if not facts.same(_facts(meta)):
                raise ChangedError(f"{self.url(key)}: the object was replaced since it was opened")
            if given != (start, end):
                raise MediaError(f"{self.url(key)}: asked for bytes {start} to {end}, the answer has {given}")
            return data

    def listing(self, folder: str) -> list[tuple[str, Facts]]:  # noqa: D102
        with _reported(self.url(folder)):
            pages = interruptible(lambda: [*self._obstore.list(self._store, folder or None)])
            return sorted((one["path"], _facts(one)) for page in pages for one in page)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:  # noqa: D102
        with _reported(self.url(key)):
            try:
                self._obstore.put(self._store, key, bytes(data), mode="create", use_multipart=False)
            except self._obstore.exceptions.AlreadyExistsError:
                return False
            return True

    def put(self, key: str, data: bytes | memoryview) -> None:  # noqa: D102
        with _reported(self.url(key)):
            self._obstore.put(self._store, key, bytes(data), use_multipart=False)

    def put_file(self, key: str, path: str) -> None:  # noqa: D102
        with _reported(self.url(key)):
            self._obstore.put(self._store, key, Path(path), chunk_size=_SENT_BYTES, max_concurrency=_SENT_AT_ONCE)

    def delete(self, key: str) -> None:  # noqa: D102
        with _reported(self.url(key)):
            try:
                self._obstore.delete(self._store, key)
            except (FileNotFoundError, self._obstore.exceptions.NotFoundError):
                return


def _facts(meta: Any) -> Facts:
    return Facts(int(meta["size"]), meta.get("e_tag"), meta["last_modified"].timestamp())


#: The process in which obstore was called first: its threads are there, and a call in a fork would wait for ever.
_home: int | None = None


def _refuse_forked(url: str) -> None:
    global _home
    if _home is None:
        _home = os.getpid()
    if _home != os.getpid():
        why = "this process was forked from one that has called obstore, whose threads did not come along"
        raise MediaError(f"{url}: {why}: start processes by spawn or forkserver")


@contextmanager
def _reported(url: str) -> Iterator[None]:
    """Raise an error of obstore as one of this package, but a FileNotFoundError where there is no such object."""
    exceptions = require("obstore.exceptions", "remote")
    _refuse_forked(url)
    try:
        yield
    except (FileNotFoundError, exceptions.NotFoundError) as error:
        if "NoSuchBucket" in str(error):
            raise MediaError(errno.ENOENT, "there is no such bucket", url) from error
        raise FileNotFoundError(errno.ENOENT, "there is no such object", url) from error
    except exceptions.PreconditionError as error:
        raise ChangedError(f"{url}: the object was replaced since it was opened") from error
    except (PermissionError, exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise DeniedError(url) from error
    except exceptions.NotSupportedError as error:
        raise MediaError(f"{url}: the server must answer requests of ranges: {_short(error)}") from error
    except (exceptions.BaseError, OSError) as error:
        if isinstance(error, MediaError | ChangedError):
            raise
        raise MediaError(f"{url}: {_short(error)}") from error


def _short(error: BaseException) -> str:
    """Return the first line of what obstore says: the rest is how it is built."""
    return str(error).strip().split("\n\n", 1)[0].splitlines()[0][:500]
