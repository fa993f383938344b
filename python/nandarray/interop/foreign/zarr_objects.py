"""Objects as a store of zarr-python, which finds chunks by their keys and the indices of shards, and decodes them.

Zarr's own library reads metadata and decodes; here are the bytes, in ranges where Zarr asks for such. Before Zarr has
the bytes of a chunk they are compared with the memory that it may take (:meth:`ZarrObjects.guard`), as an import does.
Reading alone is possible.
"""

from __future__ import annotations

import asyncio
import io
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from typing import Any, Never

from nandarray.array.fork import StoreLock
from nandarray.errors import InvalidError
from nandarray.interop.convert import zarr_source
from nandarray.interop.convert.formats import BUDGET
from nandarray.interop.convert.limits import chunk_limit
from nandarray.interop.foreign.files import Objects
from nandarray.optional import require

__all__ = ["ZarrObjects"]

zarr: Any = require("zarr", "zarr")
zarr_abc: Any = require("zarr.abc.store", "zarr")
zarr_buffer: Any = require("zarr.core.buffer", "zarr")

_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
#: Most bytes of metadata.
_METADATA_MOST = 64 << 20
#: Most bytes of a chunk that is read whole, packed: no larger one is decoded.
_WHOLE_MOST = 2 * chunk_limit(BUDGET)
#: Most bytes of indices of shards that are remembered.
_INDICES_MOST = 32 << 20


class ZarrObjects(zarr_abc.Store):  # type: ignore[misc]  # of whatever version is installed
    """A store of zarr-python over objects.

    Parameters
    ----------
    objects : Objects
        The objects.
    """

    supports_writes = False
    supports_deletes = False

    def __init__(self, objects: Objects) -> None:
        super().__init__(read_only=True)
        self._objects = objects
        objects.most = _WHOLE_MOST
        #: By the prefix of an array's keys, what refuses bytes of its chunks.
        self._guards: dict[str, Any] = {}
        self._lock = StoreLock()
        self._indices: OrderedDict[tuple[str, int, int | None], bytes] = OrderedDict()
        self._index_bytes = 0

    @property
    def supports_listing(self) -> bool:
        """Whether keys can be listed."""
        return self._objects.lists

    @property
    def consolidated(self) -> bool:
        """Whether names are those that consolidated metadata say, where there are such."""
        return self._objects.far

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZarrObjects) and self._objects is other._objects

    def __hash__(self) -> int:
        return id(self._objects)

    def __str__(self) -> str:
        return self._objects.path

    def with_read_only(self, read_only: bool = False) -> ZarrObjects:  # noqa: FBT001, FBT002 - Zarr's signature
        """Return this store, which cannot be written."""
        if not read_only:
            raise InvalidError(f"{self._objects.path} must be read only: import_ makes a store of it that is written")
        return self

    def names(self, folder: str) -> list[str]:
        """Return the names directly in a folder."""
        return list_of(self._objects, _text(folder))

    def guard(self, array: Any, name: str, limit: int) -> None:
        """Compare the chunks of an array with the memory that they may take, whenever they are read."""
        if not isinstance(array, zarr.Array):
            raise InvalidError(f"array must be one of Zarr's, not {type(array).__name__}")
        path = array.path.strip("/")
        label = name or self._objects.path
        self._guards[f"{path}/" if path else ""] = (zarr_source.ChunkBounds(array, limit), label)

    # --- Reading -----------------------------------------------------------------------------------------------------

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return the value of a key, or a range of its bytes; None where there is none."""
        found = await asyncio.to_thread(self._get, _text(key), byte_range)
        prototype = prototype or zarr_buffer.default_buffer_prototype()
        return None if found is None else prototype.buffer.from_bytes(found)

    def _get(self, key: str, byte_range: Any) -> bytes | None:
        metadata = key.rpartition("/")[2] in _METADATA
        most = _METADATA_MOST if metadata else _WHOLE_MOST
        # Far away the size of a chunk would take a request of its own.
        if byte_range is None and (metadata or not self._objects.far) and (self._objects.size(key) or 0) > most:
            raise InvalidError(f"{self._objects.path}: {key} has more than {most} bytes")
        at, count = 0, None
        if byte_range is None:
            pass
        elif hasattr(byte_range, "end"):
            at, count = byte_range.start, byte_range.end - byte_range.start
        elif hasattr(byte_range, "offset"):
            at = byte_range.offset
        else:
            size = self._objects.size(key)
            if size is None:
                return None
            at = max(0, size - byte_range.suffix)
        if byte_range is not None:
            length = (self._objects.size(key) or 0) - at if count is None else count
            if length > most:
                raise InvalidError(f"{self._objects.path}: {length} bytes of {key} are asked for, more than {most}")
        if not self._objects.far or byte_range is None or getattr(byte_range, "start", None):
            found = self._objects.read(key, at, count)
        else:
            found = self._index(key, at, count)
        if found is not None and not metadata:
            self._check(key, found, byte_range)
        return found

    def _index(self, key: str, at: int, count: int | None) -> bytes | None:
        """Return the index of a shard far away, which is at one of its ends; it is remembered."""
        asked = (key, at, count)
        with self._lock:
            if asked in self._indices:
                self._indices.move_to_end(asked)
                return self._indices[asked]
        found = self._objects.read(key, at, count)
        if found is not None:
            with self._lock:
                self._index_bytes += 0 if asked in self._indices else len(found)
                self._indices[asked] = found
                while self._index_bytes > _INDICES_MOST:
                    self._index_bytes -= len(self._indices.popitem(last=False)[1])
        return found

    def _check(self, key: str, found: bytes, byte_range: Any) -> None:
        prefix = next((one for one in sorted(self._guards, key=len, reverse=True) if key.startswith(one)), None)
        if prefix is None:
            return
        bounds, label = self._guards[prefix]
        chunk = f"chunk {key} of {label}"
        if byte_range is None:
            for _ in bounds.places(io.BytesIO(found), len(found), chunk):
                pass
        elif getattr(byte_range, "start", None):  # not the index of a shard, which is at one of its ends
            bounds.check(io.BytesIO(found), 0, len(found), label=chunk)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Return the values of several keys, or ranges of them."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether there is such a key."""
        return await asyncio.to_thread(self._objects.size, _text(key)) is not None

    async def list(self) -> AsyncIterator[str]:
        """Yield all keys."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield all keys that begin with a prefix."""
        folder = _text(prefix).rpartition("/")[0]
        todo = [folder]
        while todo:
            folder = todo.pop()
            for name in await asyncio.to_thread(list_of, self._objects, folder):
                key = f"{folder}/{name}" if folder else name
                if await self.exists(key):
                    if key.startswith(prefix):
                        yield key
                else:
                    todo.append(key)

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield what is directly in a folder."""
        for name in await asyncio.to_thread(list_of, self._objects, _text(prefix).strip("/")):
            yield name

    # --- Never -------------------------------------------------------------------------------------------------------

    async def set(self, key: str, value: Any) -> Never:
        """Refuse a change."""
        self.with_read_only(read_only=False)
        raise AssertionError

    async def delete(self, key: str) -> Never:
        """Refuse a change."""
        self.with_read_only(read_only=False)
        raise AssertionError


def _text(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidError(f"a key must be str, not {type(key).__name__}: {key!r}")
    return key


def list_of(objects: Objects, folder: str) -> list[str]:
    """Return the names directly in a folder."""
    return [*objects.names(folder)]
