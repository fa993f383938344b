"""A store as Zarr's own readers and writers see one: :class:`ZarrStore`, a ``Store`` of zarr-python 3.

Keys are those of Zarr format 3. ``zarr.json`` of an array or a group is made of what the store knows; a chunk is a box
of the array, which is read, and encoded by the codecs of the array's metadata, when it is wanted. Nothing is kept
twice: what Zarr writes are elements of arrays with checksums, commits and every index expression, and what was written
otherwise is there for Zarr. An array that Zarr creates keeps its chunks and codecs, as Zarr knows them, in the
attribute :data:`KEPT`, and the chunks are its building blocks where the store can have such; other arrays have chunks
of a building block, and no codec but ``bytes``.

Not here: Zarr format 2, arrays of objects and of text of variable length, and copies (:mod:`.convert`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np
from zarr.abc.store import ByteRequest, Store
from zarr.codecs import BytesCodec
from zarr.core.array import create_codec_pipeline
from zarr.core.array_spec import ArrayConfig
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.dtype import parse_dtype
from zarr.storage._utils import _normalize_byte_range_index

from nandarray.array.attributes import DIMENSIONS
from nandarray.array.base import Grid
from nandarray.array.group import Group
from nandarray.array.pickling import snapshot_of
from nandarray.array.ragged import Ragged
from nandarray.errors import InvalidError, NandarrayError, NotFoundError

__all__ = ["KEPT", "ZarrStore"]

#: Attribute with the chunks and codecs of an array that Zarr created.
KEPT = "_ZARR_ARRAY"
_META = "zarr.json"
_CHUNK = re.compile(r"(?P<array>.+)/c(?P<at>(?:/(?:0|[1-9][0-9]{0,18}))*)")
#: Most arrays whose metadata a store remembers.
_MADE_MAX = 256
_ENCODING = {"name": "default", "configuration": {"separator": "/"}}
_PLAIN = [{"name": "bytes", "configuration": {"endian": "little"}}]


@dataclass(frozen=True)
class _Chunk:
    """A chunk of an array: its box in the array, cut at the array's edges, and the shape that Zarr sees."""

    box: tuple[slice, ...]
    shape: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the array has all elements of the chunk."""
        return all(one.stop - one.start == n for one, n in zip(self.box, self.shape, strict=True))


class ZarrStore(Store):
    """A store for ``zarr.open``, ``xarray.open_zarr`` and all that takes a Zarr store.

    Parameters
    ----------
    group : Store or Group
        The store, or a group of it, which is the root then; of a file or behind any door.
    read_only : bool, optional
        Whether changes are refused; by default those of a store that is open for reading.

    Examples
    --------
    >>> import nandarray, zarr
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["x"] = np.arange(6).reshape(2, 3)
    >>> root = zarr.open_group(ZarrStore(store))
    >>> root["x"][1]
    array([3, 4, 5])
    >>> made = root.create_array("y", shape=(4,), dtype="f4", chunks=(2,))
    >>> made[:3] = 7
    >>> store["y"][:]
    array([7., 7., 7., 0.], dtype=float32)
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, group: Group, *, read_only: bool | None = None) -> None:
        super().__init__(read_only=bool(group.store.read_only if read_only is None else read_only))
        self._group = group
        # A group that has nothing is none for Zarr until Zarr has created it.
        self._created = False
        # Metadata that were made, by the names of arrays, each with what they were made of.
        self._made: dict[str, tuple[Any, ArrayV3Metadata]] = {}

    def with_read_only(self, read_only: bool = False) -> ZarrStore:  # noqa: FBT001, FBT002 - Zarr's signature
        """Return this store with or without permission to change it."""
        return type(self)(self._group, read_only=read_only)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ZarrStore):
            return False
        one, two = ((*it._where, snapshot_of(it._group.store), it.read_only) for it in (self, other))
        return one == two

    def __hash__(self) -> int:
        return hash(self._where)

    @property
    def _where(self) -> tuple[str, str]:
        return str(self._group.store.path), self._group.name

    def __str__(self) -> str:
        return "nandarray://" + "/".join(part.strip("/") for part in self._where)

    def __repr__(self) -> str:
        return f"ZarrStore('{self}')"

    # --- Reading -----------------------------------------------------------------------------------------------------

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the value of a key, or a range of its bytes; None where there is none."""
        await self._ensure_open()
        prototype = prototype or default_buffer_prototype()
        found = await self._value(key, prototype)
        if found is None or byte_range is None:
            return found
        start, stop = _normalize_byte_range_index(found, byte_range)
        return found[start:stop]

    async def _value(self, key: str, prototype: BufferPrototype) -> Buffer | None:
        node = _node_of(key)
        if node is not None:
            found = await asyncio.to_thread(self._metadata_text, node)
            return None if found is None else prototype.buffer.from_bytes(found)
        read = await asyncio.to_thread(self._part, key)
        if read is None:
            return None
        part, chunk, metadata = read
        if _is_plain(metadata):
            return prototype.buffer.from_array_like(part.reshape(-1).view("B"))
        spec = metadata.get_chunk_spec(
            (0,) * len(chunk.shape), ArrayConfig(order="C", write_empty_chunks=True), prototype
        )
        values = prototype.nd_buffer.from_ndarray_like(cast("Any", part.reshape(chunk.shape)))
        (encoded,) = await create_codec_pipeline(metadata).encode([(values, spec)])
        return encoded

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return ranges of the values of keys."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether there is a value; every chunk of an array has one."""
        node = _node_of(key)
        if node is not None:
            return await asyncio.to_thread(lambda: self._find(node) is not None)
        array, chunk, _ = await asyncio.to_thread(self._chunk_of, key)
        return array is not None and chunk is not None

    def _find(self, name: str) -> Any:
        """Return the array or group of a name, None where there is none."""
        if not name:
            return self._group if self._created or len(self._group) or dict(self._group.attrs) else None
        try:
            found = self._group.get(name)
            return found.parts if isinstance(found, Ragged) else found
        except NotFoundError:
            return None

    def _chunk_of(self, key: str) -> tuple[Any, _Chunk | None, ArrayV3Metadata | None]:
        match = _CHUNK.fullmatch(key)
        array = self._find(match["array"]) if match else None
        if match is None or not isinstance(array, Grid):
            return None, None, None
        metadata = self._metadata(array)
        at = tuple(map(int, match["at"].split("/")[1:]))
        chunks = _chunk_shape(metadata)
        if len(at) != len(chunks) or any(i * n >= size for i, n, size in zip(at, chunks, array.shape, strict=True)):
            return array, None, metadata
        box = tuple(slice(i * n, min((i + 1) * n, size)) for i, n, size in zip(at, chunks, array.shape, strict=True))
        return array, _Chunk(box, chunks), metadata

    def _metadata(self, array: Any) -> ArrayV3Metadata:
        """Return the metadata of an array, made anew if the array has changed."""
        fill = np.asarray(array.fill_value).tobytes()  # NaN is no key
        of = (array.shape, array.dtype, array.building_block, fill, array.attrs._load())
        known = self._made.get(array.name)
        if known is not None and known[0] == of:
            return known[1]
        if len(self._made) >= _MADE_MAX:
            self._made.clear()
        made = _metadata_of(array)
        self._made[array.name] = of, made
        return made

    def _part(self, key: str) -> tuple[np.ndarray[Any, Any], _Chunk, ArrayV3Metadata] | None:
        """Read a chunk; None where there is none."""
        array, chunk, metadata = self._chunk_of(key)
        if array is None or chunk is None or metadata is None:
            return None
        return _read(array, chunk), chunk, metadata

    def _metadata_text(self, name: str) -> bytes | None:
        found = self._find(name)
        if found is None:
            return None
        if isinstance(found, Grid):
            return _metadata_of(found).to_buffer_dict(default_buffer_prototype())[_META].to_bytes()
        return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": dict(found.attrs)}).encode()

    # --- Writing -----------------------------------------------------------------------------------------------------

    async def set(self, key: str, value: Buffer) -> None:
        """Set the value of a key: metadata creates or changes an array or a group, a chunk is a box of an array.

        Raises
        ------
        InvalidError
            The key is none of Zarr format 3, or the array cannot be kept.
        """
        self._check_writable()
        await self._ensure_open()
        if not isinstance(value, Buffer):
            raise TypeError(f"the value of {key} must be a Buffer, not {type(value).__name__}")
        node = _node_of(key)
        if node is not None:
            await asyncio.to_thread(self._set_metadata, node, value.to_bytes())
            return
        array, chunk, metadata = await asyncio.to_thread(self._chunk_of, key)
        if array is None or chunk is None or metadata is None:
            raise InvalidError(
                f"{key!r} must be {_META} of an array or a group, or a chunk of an array of Zarr format 3"
            )
        if _is_plain(metadata):
            wanted = prod(chunk.shape) * array.dtype.itemsize
            if len(value) != wanted:
                raise InvalidError(f"{key!r} must have {wanted} bytes, not {len(value)}")
            part = np.frombuffer(value.to_bytes(), array.dtype).reshape(chunk.shape)
        else:
            spec = metadata.get_chunk_spec(
                (0,) * len(chunk.shape), ArrayConfig(order="C", write_empty_chunks=True), default_buffer_prototype()
            )
            (decoded,) = await create_codec_pipeline(metadata).decode([(value, spec)])
            assert decoded is not None
            part = decoded.as_numpy_array().reshape(chunk.shape)
        await asyncio.to_thread(_write, array, chunk, part)

    def _set_metadata(self, name: str, text: bytes) -> None:
        try:
            given = json.loads(text)
        except ValueError as error:
            raise InvalidError(f"{_META} of {name or '/'} must be JSON: {error}") from None
        if not isinstance(given, dict):
            raise InvalidError(f"{_META} of {name or '/'} must be a JSON object, not {type(given).__name__}")
        if given.get("zarr_format") != 3:
            raise InvalidError(f"{name or '/'}: zarr_format is {given.get('zarr_format')!r}: must be 3")
        if given.get("node_type") == "group":
            found = self._group.require_group(name) if name else self._group
            self._created = self._created or not name
            _replace_attributes(found, given.get("attributes") or {})
            return
        if not name:
            raise InvalidError("the root of a store must be a group: give the array a name, as path=")
        try:
            metadata = ArrayV3Metadata.from_dict(given)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidError(f"{_META} of {name} must be metadata of Zarr format 3: {error}") from error
        self._set_array(name, metadata)

    def _set_array(self, name: str, metadata: ArrayV3Metadata) -> None:
        """Create an array, or change the shape and the attributes of the one that is there."""
        told = cast("dict[str, Any]", metadata.to_dict())
        if told["chunk_key_encoding"] != _ENCODING:
            raise InvalidError(f"{name}: chunk_key_encoding is {told['chunk_key_encoding']}: must be {_ENCODING}")
        if told.get("storage_transformers"):
            raise InvalidError(f"{name}: storage_transformers must be left out")
        dtype = metadata.data_type.to_native_dtype()
        if dtype.hasobject or dtype.kind == "T":
            raise InvalidError(f"{name}: data_type is {told['data_type']!r}: text of variable length is not kept")
        chunks = _chunk_shape(metadata)
        attributes = dict(metadata.attributes)
        if metadata.dimension_names is not None:
            attributes[DIMENSIONS] = [one or "" for one in metadata.dimension_names]
        kept = {"chunk_shape": list(chunks), "codecs": list(told["codecs"])}
        array = self._find(name)
        same = isinstance(array, Grid) and array.dtype == dtype and array.ndim == len(metadata.shape)
        if same and _chunk_shape(_metadata_of(array)) == chunks:
            if tuple(array.shape) != tuple(metadata.shape):
                array.resize(metadata.shape)
            _set_attributes(array, attributes, kept)
            return
        if array is not None:
            del self._group[name]
        fill = np.array(metadata.fill_value, dtype)[()]
        block = None if not chunks or 0 in chunks else chunks
        try:
            made = self._group.create(name, metadata.shape, dtype, building_block=block, fill_value=fill)
        except InvalidError:
            if block is None:
                raise
            made = self._group.create(name, metadata.shape, dtype, fill_value=fill)  # no block of a store
        _set_attributes(made, attributes, kept)

    async def delete(self, key: str) -> None:
        """Delete an array by its metadata; a chunk has the array's fill value from now on."""
        self._check_writable()
        await self._ensure_open()
        await asyncio.to_thread(self._delete, key)

    def _delete(self, key: str) -> None:
        node = _node_of(key)
        if node is None:
            array, chunk, _ = self._chunk_of(key)
            if array is not None and chunk is not None:
                array[chunk.box] = array.fill_value
            return
        found = self._find(node)
        if isinstance(found, Grid):
            del self._group[node]
        elif found is not None:
            _replace_attributes(found, {})
            self._created = self._created and bool(node)
            if node and not len(found):
                del self._group[node]

    async def delete_dir(self, prefix: str) -> None:
        """Delete an array, or a group with all that is in it."""
        self._check_writable()
        await self._ensure_open()
        await asyncio.to_thread(self._delete_all, _text(prefix, "prefix").strip("/"))

    def _delete_all(self, prefix: str) -> None:
        if not prefix:
            for name in list(self._group.keys()):
                del self._group[name]
            _replace_attributes(self._group, {})
            self._created = False
        elif self._find(prefix) is not None:
            del self._group[prefix]
        else:
            for key in list(self._keys(prefix + "/")):  # chunks of an array
                self._delete(key)

    async def clear(self) -> None:
        """Delete everything."""
        await self.delete_dir("")

    # --- Listing -----------------------------------------------------------------------------------------------------

    def _keys(self, prefix: str) -> Iterator[str]:
        """Return all keys that begin with a text."""
        for name, node in self._nodes("", self._group):
            path = f"{name}/" if name else ""
            if not (path.startswith(prefix) or prefix.startswith(path)):
                continue
            if f"{path}{_META}".startswith(prefix) and self._find(name) is not None:
                yield f"{path}{_META}"
            if isinstance(node, Grid):
                chunks = _chunk_shape(_metadata_of(node))
                counts = [range(-(-size // n)) for size, n in zip(node.shape, chunks, strict=True)]
                keys = ("/".join([f"{name}/c", *map(str, at)]) for at in itertools.product(*counts))
                yield from (key for key in keys if key.startswith(prefix))

    def _nodes(self, name: str, node: Any) -> Iterator[tuple[str, Any]]:
        node = (
            node.parts if isinstance(node, Ragged) else node
        )  # an encrypted one has no key here, as an array has none
        yield name, node
        if isinstance(node, Group):
            for part, inner in node.items():
                yield from self._nodes(f"{name}/{part}" if name else part, inner)

    async def list(self) -> AsyncIterator[str]:
        """Return all keys."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Return all keys that begin with a text."""
        await self._ensure_open()
        _text(prefix, "prefix")
        for key in await asyncio.to_thread(lambda: [*self._keys(prefix)]):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Return the next parts of all keys below a path."""
        await self._ensure_open()
        for part in await asyncio.to_thread(self._inside, _text(prefix, "prefix").strip("/")):
            yield part

    def _inside(self, path: str) -> Iterable[str]:
        found = self._find(path)
        if isinstance(found, Grid):
            return [_META, "c"]
        if found is not None:
            return [_META, *found.keys()]
        start = path + "/"
        return sorted({key.removeprefix(start).partition("/")[0] for key in self._keys(start)})


def _text(given: Any, what: str) -> str:
    """Check that a key, or a part of one, is text."""
    if not isinstance(given, str):
        raise InvalidError(f"{what} is {given!r}: must be text")
    return given


def _node_of(key: str) -> str | None:
    """Return the name of the array or group whose metadata a key is; None for other keys."""
    _text(key, "key")
    if key == _META:
        return ""
    return key.removesuffix("/" + _META) if key.endswith("/" + _META) else None


def _chunk_shape(metadata: ArrayV3Metadata) -> tuple[int, ...]:
    grid = cast("dict[str, Any]", metadata.chunk_grid.to_dict())
    if grid["name"] != "regular":
        raise InvalidError(f"chunk_grid is {grid['name']!r}: must be regular")
    return tuple(grid["configuration"]["chunk_shape"])


def _metadata_of(array: Any) -> ArrayV3Metadata:
    """Make the metadata of an array."""
    attributes = dict(array.attrs)
    kept = attributes.pop(KEPT, None) or {}
    names = attributes.pop(DIMENSIONS, None)
    given = kept.get("chunk_shape")
    if not given or len(given) != array.ndim:
        given = _own_chunks(array)
    if array.dtype.hasobject or array.dtype.subdtype is not None:
        raise InvalidError(f"{array.name}: Zarr has no data type for {array.dtype}")
    try:
        return ArrayV3Metadata(
            shape=array.shape,
            data_type=parse_dtype(array.dtype, zarr_format=3),
            chunk_grid={"name": "regular", "configuration": {"chunk_shape": given}},
            chunk_key_encoding=cast("Any", _ENCODING),
            fill_value=array.fill_value,
            codecs=cast("Any", kept.get("codecs") or _PLAIN),
            attributes=attributes,
            dimension_names=[one or None for one in names] if names and len(names) == array.ndim else None,
        )
    except (TypeError, ValueError, KeyError) as error:
        if isinstance(error, NandarrayError):
            raise
        raise InvalidError(f"{array.name}: Zarr has no such array: {error}") from error


def _set_attributes(array: Any, attributes: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Replace an array's attributes, and keep chunks and codecs that it would not have without."""
    own = kept["codecs"] == _PLAIN and kept["chunk_shape"] == _own_chunks(array)
    _replace_attributes(array, attributes if own else {**attributes, KEPT: kept})


def _own_chunks(array: Any) -> list[int]:
    """Return the chunks of an array that has none of Zarr's."""
    return [max(1, min(n, size)) for n, size in zip(array.building_block, array.shape, strict=True)]


def _is_plain(metadata: ArrayV3Metadata) -> bool:
    """Whether a chunk's bytes are those of its elements."""
    (first, *others) = metadata.codecs
    dtype = metadata.data_type.to_native_dtype()
    little = dtype.newbyteorder("<") == dtype
    return (
        not others
        and isinstance(first, BytesCodec)
        and little
        and (first.endian is None or first.endian.value == "little")
    )


def _read(array: Any, chunk: _Chunk) -> np.ndarray[Any, Any]:
    """Read a chunk; beyond the edges of the array it has the fill value."""
    if chunk.is_whole:
        return np.ascontiguousarray(array[chunk.box])
    part = np.full(chunk.shape, array.fill_value, array.dtype)
    part[tuple(slice(0, one.stop - one.start) for one in chunk.box)] = array[chunk.box]
    return part


def _write(array: Any, chunk: _Chunk, part: np.ndarray[Any, Any]) -> None:
    """Write the elements of a chunk that are within the array."""
    array[chunk.box] = part[tuple(slice(0, one.stop - one.start) for one in chunk.box)]


def _replace_attributes(of: Any, attributes: Mapping[str, Any]) -> None:
    """Make these the attributes of an array or a group."""
    if dict(of.attrs) != dict(attributes):
        of.attrs._replace(attributes)
