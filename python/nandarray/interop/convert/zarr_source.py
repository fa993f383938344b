"""Zarr directories as sources of an import: what is stored in them, looked at before Zarr decodes it.

Zarr's own library opens the metadata and decodes chunks. This module decides what it is let near: it lists the chunks
that exist, so that places without one cost nothing however large the shape is; it compares what each unpacks to with
the memory that an import may use (:mod:`.limits`); and it refuses links, devices and pipes in the
directory, and codecs that nothing bounds, unless the source is trusted.

Formats 2 and 3, with shards. Arrays, groups and their members come out as in :mod:`.sources`.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.index.shapes import Box
from nandarray.interop.convert.limits import HARMLESS, HEAD_BYTES, PACKED, TEXT, Stage, check_chunk, head_bound

__all__ = ["ChunkBounds", "check_directory", "codecs_unbounded", "compression_of", "stored_boxes"]

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_SAME_SIZE = {"bytes", "endian", "transpose", "shuffle", "crc32c"}
_MISSING = 2**64 - 1
#: Bytes that a chunk may have more than its elements need, for headers and what does not get smaller.
_SLACK = 64 << 10
#: An array's filters may make its elements smaller, from 16 bytes to one.
_NARROWED = 16
_CHECKSUM = 4


def check_directory(path: Path) -> None:
    """Refuse what leads out of a Zarr directory, and what cannot be read as a file, by an InvalidError.

    These are symbolic links, pipes, sockets and devices.
    """
    for folder, folders, files in os.walk(path):
        for name in itertools.chain(folders, files):
            entry = os.path.join(folder, name)
            mode = os.lstat(entry).st_mode
            if stat.S_ISLNK(mode):
                raise InvalidError(
                    f"{entry} is a link to {os.readlink(entry)!r}; links in a Zarr directory are followed only if the "
                    f"source is trusted (trusted=True, --trusted)"
                )
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise InvalidError(f"{entry} is neither a file nor a directory")


def codecs_unbounded(array: Any) -> list[str]:
    """Name the codecs of a Zarr array whose use of memory nothing bounds."""
    shard = _shard(array)
    if shard is not None and len(array.metadata.codecs) > 1:
        return ["sharding_indexed with others around it"]
    known = HARMLESS | PACKED | TEXT
    return [name for name, _, _ in _stages(array, shard) if name not in known]


def compression_of(array: Any) -> str | None:
    """Return what compresses an array by the nearest name that a store has: other methods are Zstandard."""
    found = {name: config for name, config, _ in _stages(array, _shard(array))}
    packer = next((name for name in found if name in PACKED), None)
    if packer is None:
        return None
    config = found[packer]
    method = "lz4" if packer == "lz4" or str(config.get("cname")).endswith("lz4") else "zstd"
    level = config.get("level") if packer in {"gzip", "zlib", "zstd"} else None
    shuffle = str(getattr(config.get("shuffle"), "value", config.get("shuffle"))) if packer == "blosc" else ""
    shuffles = {"1": "+shuffle", "shuffle": "+shuffle", "2": "+bitshuffle", "bitshuffle": "+bitshuffle"}
    shuffled = "+shuffle" if "shuffle" in found else shuffles.get(shuffle, "")
    named = f":{level}" if method == "zstd" and isinstance(level, int) and level > 0 else ""
    return method + named + (shuffled if np.dtype(array.dtype).itemsize > 1 else "")


def stored_boxes(array: Any, folder: Path, name: str, limit: int) -> Iterator[Box]:
    """Return the boxes of an array, which messages call ``name``, that something is stored for in its directory.

    A chunk that would take more than ``limit`` bytes of memory, or is damaged, is an InvalidError.
    """
    bounds = ChunkBounds(array, limit)
    inner = tuple(array.chunks)
    outer = tuple(array.shards or array.chunks)
    for at, path in _chunk_files(array, folder):
        low = [i * n for i, n in zip(at, outer, strict=True)]
        if any(start >= n for start, n in zip(low, array.shape, strict=True)):
            continue
        with open(path, "rb") as file:
            for place in bounds.places(file, os.path.getsize(path), f"chunk {at} of {name or folder.name}"):
                if place is None:
                    yield _clipped(low, outer, array.shape)
                else:
                    yield _clipped([s + p * n for s, p, n in zip(low, place, inner, strict=True)], inner, array.shape)


class ChunkBounds:
    """Bounds of the memory of an array's chunks; one that takes more than ``limit`` bytes is refused."""

    def __init__(self, array: Any, limit: int) -> None:
        self._shard = _shard(array)
        self._stages = _stages(array, self._shard)
        if any(name not in HARMLESS | PACKED | TEXT for name, _, _ in self._stages):
            self._stages = []  # of a trusted source
        self._limit = self._most = limit
        if not TEXT.intersection(name for name, _, _ in self._stages):
            exact = all(name in PACKED or name in _SAME_SIZE for name, _, _ in self._stages)
            narrowed = 1 if exact else _NARROWED
            self._most = min(limit, prod(array.chunks) * array.dtype.itemsize * narrowed) + _SLACK
        self._whole = prod(array.shards or array.chunks) * array.dtype.itemsize
        self._grid: tuple[int, ...] | None = None
        if array.shards is not None:
            self._grid = tuple(o // i for o, i in zip(array.shards, array.chunks, strict=True))

    def places(self, file: Any, size: int, label: str) -> Iterator[tuple[int, ...] | None]:
        """Check a chunk's file, and yield the places in it that have inner chunks; None where all of it is one.

        One that is damaged, or would take too much, is an InvalidError.
        """
        if self._grid is None:
            self.check(file, 0, size, label=label)
            yield None
            return
        if size > self._limit and self._whole <= self._limit:
            raise InvalidError(f"{label} has {size} bytes, which is more than it can need")
        shard = self._shard
        if shard is None or any(name not in {"bytes", "crc32c"} for name in _names(shard.index_codecs)):
            yield None  # of a trusted source
            return
        for place, offset, length in _index(file, size, shard, self._grid, label=label, limit=self._limit):
            self.check(file, offset, length, label=f"inner {label}")
            yield place

    def check(self, file: Any, offset: int, size: int, *, label: str) -> None:
        """Check the bytes of one chunk, or inner chunk."""
        _check(file, offset, size, label=label, stages=self._stages, most=self._most)


def _clipped(low: Sequence[int], extent: Sequence[int], shape: Sequence[int]) -> Box:
    return tuple(slice(start, min(start + n, end)) for start, n, end in zip(low, extent, shape, strict=True))


def _check(file: Any, offset: int, size: int, *, label: str, stages: Sequence[Stage], most: int) -> None:
    if size > most + _SLACK:
        raise InvalidError(f"{label} has {size} bytes stored, more than the {most} that it may have")
    file.seek(offset)
    bound = head_bound([name for name, _, _ in stages], file.read(min(size, HEAD_BYTES)), size)
    if bound is None or bound > most:
        file.seek(offset)
        check_chunk(label, file.read(size), stages, most)


# --- where chunks are -------------------------------------------------------------------------------------------------


def _chunk_files(array: Any, folder: Path) -> Iterator[tuple[tuple[int, ...], str]]:
    """Return the chunks that exist: where each is in the grid, and its file."""
    metadata = array.metadata
    ndim = len(array.shape)
    if metadata.zarr_format == 2:  # noqa: PLR2004
        start, separator, prefix = folder, metadata.dimension_separator, ""
    else:
        encoding = metadata.chunk_key_encoding
        separator = encoding.separator
        start, prefix = folder, ""
        if encoding.name == "default":
            if not ndim or separator == ".":
                prefix = "c" if not ndim else "c."
            else:
                start = folder / "c"
        elif encoding.name != "v2":
            raise InvalidError(f"chunk key encoding {encoding.name!r} is not known")
    if not ndim:
        path = start / (prefix or "0")
        if path.is_file():
            yield (), str(path)
    elif separator == ".":
        for entry in _scan(start):
            parts = entry.name.removeprefix(prefix).split(".")
            if entry.name.startswith(prefix) and len(parts) == ndim and all(map(_NUMBER.fullmatch, parts)):
                yield tuple(map(int, parts)), entry.path
    else:
        yield from _nested(str(start), ndim)


def _nested(folder: str, depth: int, before: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], str]]:
    for entry in _scan(folder):
        if not _NUMBER.fullmatch(entry.name):
            continue
        at = (*before, int(entry.name))
        if depth == 1:
            yield at, entry.path
        elif entry.is_dir():
            yield from _nested(entry.path, depth - 1, at)


def _scan(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:
        return


def _index(
    file: Any, size: int, shard: Any, grid: tuple[int, ...], *, label: str, limit: int
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Read a shard's index: for each inner chunk that exists its place, and the bytes that it takes in the file."""
    length = 16 * prod(grid)
    whole = length + (_CHECKSUM if "crc32c" in _names(shard.index_codecs) else 0)
    if whole > min(size, limit):
        raise InvalidError(f"{label} is damaged: its index would take {whole} of its {size} bytes")
    at_end = str(getattr(shard.index_location, "value", shard.index_location)) == "end"
    file.seek(size - whole if at_end else 0)
    little = all(_endian(codec) == "little" for codec in shard.index_codecs if _name(codec) == "bytes")
    pairs = np.frombuffer(file.read(length), "<u8" if little else ">u8").reshape(-1, 2)
    for number in np.flatnonzero((pairs != _MISSING).any(axis=1)):
        offset, count = (int(n) for n in pairs[number])
        if offset + count > size:
            raise InvalidError(f"{label} is damaged: an inner chunk lies behind the end of the file")
        yield tuple(int(i) for i in np.unravel_index(number, grid)), offset, count


def _endian(codec: Any) -> str:
    endian = getattr(codec, "endian", None)
    return str(getattr(endian, "value", endian) or "little")


# --- codecs -----------------------------------------------------------------------------------------------------------


def _shard(array: Any) -> Any:
    """Return the codec of shards, if the array has them."""
    if array.metadata.zarr_format == 2:  # noqa: PLR2004
        return None
    return next((codec for codec in array.metadata.codecs if _name(codec) == "sharding_indexed"), None)


def _stages(array: Any, shard: Any) -> list[Stage]:
    """Return the codecs of a chunk in the order in which they decode."""
    metadata = array.metadata
    if metadata.zarr_format == 2:  # noqa: PLR2004
        codecs = [*(metadata.filters or ()), *((metadata.compressor,) if metadata.compressor else ())]
        return [(codec.codec_id, codec.get_config(), codec.decode) for codec in reversed(codecs)]
    stages: list[Stage] = []
    for codec in reversed(metadata.codecs if shard is None else shard.codecs):
        name = _name(codec)
        config = dict(codec.to_dict().get("configuration") or {})
        stages.append((name, config, _decoder(name, config, ours=type(codec).__module__.startswith("zarr.codecs.n"))))
    return stages


def _decoder(name: str, config: Mapping[str, Any], *, ours: bool) -> Callable[[Any], Any]:
    if name == "crc32c" and not ours:
        return lambda data: data[:-_CHECKSUM]
    if name in {"bytes", "transpose"}:
        return lambda data: data

    def decode(data: Any) -> Any:
        numcodecs = importlib.import_module("numcodecs")
        return numcodecs.get_codec({"id": name, **(config if ours else {})}).decode(bytes(data))

    return decode


def _names(codecs: Sequence[Any]) -> list[str]:
    return [_name(codec) for codec in codecs]


def _name(codec: Any) -> str:
    return str(codec.to_dict()["name"]).removeprefix("numcodecs.")
