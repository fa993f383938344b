"""Limits for foreign files: the most that one chunk may unpack to, known before it is unpacked.

A file from elsewhere may say anything. A few hundred bytes can unpack to gigabytes, and the libraries that decode
chunks ask for the memory first. So every stored chunk is looked at before such a library sees it: :func:`check_chunk`
says whether it unpacks to at most a number of bytes. Most codecs write the size in front; of gzip a worst case is
known, and where that is not enough the chunk is unpacked in pieces that are thrown away.

Codecs that run code, or that ask for memory by numbers in their data, are not in the lists below; what uses them is
refused unless the source is trusted. It reads nothing but what it is given, and knows nothing of formats.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nandarray.errors import InvalidError

__all__ = [
    "CHUNK_MIN_BYTES",
    "HARMLESS",
    "HEAD_BYTES",
    "PACKED",
    "TEXT",
    "Stage",
    "check_chunk",
    "chunk_limit",
    "deflated_fits",
    "head_bound",
    "zstd_size",
]

#: A chunk of this size is always read, however small the budget.
CHUNK_MIN_BYTES = 64 << 20
#: Codecs whose output is at most eight times their input.
HARMLESS = {
    "adler32", "astype", "base64", "bitround", "bytes", "crc32", "crc32c", "delta", "endian", "fixedscaleoffset",
    "fletcher32", "jenkins_lookup3", "packbits", "quantize", "shuffle", "transpose",
}  # fmt: skip
#: Codecs of text, each element with its length in front.
TEXT = {"vlen-utf8", "vlen-bytes"}
#: Codecs whose output can be any number of times their input.
PACKED = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
#: Bytes at the front of a chunk that :func:`head_bound` looks at.
HEAD_BYTES = 32
#: A codec: its name, its configuration, and what decodes bytes with it.
Stage = tuple[str, Mapping[str, Any], Callable[[Any], Any]]
#: Codecs that leave the front of a chunk as it is.
_BEHIND = {"bytes", "crc32c", "endian", "transpose"}
_GROWS = {"astype", "fixedscaleoffset", "packbits"}
_GROWTH = 8
#: Bytes of a number of elements, and of a length, in text.
_COUNT = 4
#: The format of deflate cannot do better than 258 bytes from 2 bits.
_DEFLATE_RATIO = 1032
_PIECE = 1 << 20
_ZSTD_BLOCK = 128 << 10
_ZSTD_COMPRESSED, _ZSTD_REPEATED = 2, 1
_ZSTD_HEAD = 6
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A50


def chunk_limit(budget: int) -> int:
    """Return the most bytes that a chunk may take, packed or unpacked."""
    return max(budget, CHUNK_MIN_BYTES)


def head_bound(names: Sequence[str], head: bytes, stored: int) -> int | None:
    """Return the most bytes that a chunk of ``stored`` bytes unpacks to, if its first bytes are enough to know.

    These are the first :data:`HEAD_BYTES`; ``names`` has the codecs in the order in which they decode.
    """
    packed = [name for name in names if name in PACKED]
    if TEXT.intersection(names) or len(packed) > 1:
        return None
    if not packed:
        size = stored
    elif any(name not in _BEHIND for name in names[: names.index(packed[0])]):
        return None
    elif packed[0] in {"gzip", "zlib"}:
        size = stored * _DEFLATE_RATIO
    elif packed[0] in {"bz2", "lzma", "zstd"}:
        return None  # streams and frames may follow the first
    else:
        size = _unpacked(packed[0], {}, head, 0)
    return size * int(_GROWTH ** sum(name in _GROWS for name in names))


def check_chunk(what: str, raw: bytes, stages: Sequence[Stage], limit: int) -> None:
    """Refuse a chunk, ``what``, that unpacks to more than ``limit`` bytes, or not at all, by an InvalidError.

    The stages are its codecs in the order in which they decode: name, configuration, and a function that decodes.
    """
    data: Any = raw
    for number, (name, config, decode) in enumerate(stages):
        later = [name for name, _, _ in stages[number + 1 :]]
        last = not PACKED.union(TEXT).intersection(later)  # from here on these are arrays, and nothing looks at bytes
        size = _unpacked(name, config, data, limit)
        size *= _GROWTH ** sum(name in _GROWS for name in ([name, *later] if last else [name]))
        if size > limit:
            raise InvalidError(f"{what} unpacks to more than the {limit} bytes it may have ({len(raw)} are stored)")
        if name in TEXT and (size < _COUNT or _COUNT + _COUNT * int.from_bytes(bytes(data[:_COUNT]), "little") > size):
            raise InvalidError(f"{what} is damaged: it has fewer elements than it says")
        if last:
            return
        data = memoryview(decode(data)).cast("B")


def _unpacked(name: str, config: Mapping[str, Any], data: Any, limit: int) -> int:
    """Return the bytes that a codec makes of ``data``, or some number above ``limit``."""
    if name in {"gzip", "zlib"}:
        return len(data) if deflated_fits(data, limit, wbits=47) else limit + 1
    if name == "zstd":
        return zstd_size(data, limit)
    if name == "blosc":
        return int.from_bytes(bytes(data[4:8]), "little")
    if name == "lz4":
        return int.from_bytes(bytes(data[:4]), "little")
    if name == "bz2":
        return _streamed(bz2.BZ2Decompressor, data, limit)
    if name == "lzma":
        if config.get("format", lzma.FORMAT_XZ) == lzma.FORMAT_RAW or config.get("filters"):
            raise InvalidError("LZMA without its headers does not say how much memory it needs")
        return _streamed(lambda: lzma.LZMADecompressor(memlimit=max(limit, 1 << 20)), data, limit)
    return len(data)


def deflated_fits(data: Any, limit: int, *, wbits: int) -> bool:
    """Return whether deflated bytes, with any of their headers, unpack to at most ``limit`` bytes."""
    if len(data) * _DEFLATE_RATIO <= limit:
        return True
    return _streamed(lambda: _Inflate(wbits), data, limit) <= limit


class _Inflate:
    """:mod:`zlib` with the methods of the other decompressors."""

    def __init__(self, wbits: int) -> None:
        self._stream = zlib.decompressobj(wbits)

    def decompress(self, data: Any, most: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail or data, most)

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data


def _streamed(new: Callable[[], Any], data: Any, limit: int) -> int:
    """Unpack in pieces, members of the stream one after another, until it ends or is more than ``limit``."""
    size, view = 0, memoryview(data).cast("B")
    while len(view):
        stream, at = new(), 0
        while not stream.eof:
            if stream.needs_input:
                piece, at = view[at : at + _PIECE], at + _PIECE
                if not len(piece):
                    return size  # cut short: the codec will say so
            else:
                piece = view[:0]
            size += len(stream.decompress(piece, _PIECE))
            if size > limit:
                return size
        view = view[min(at, len(view)) - len(stream.unused_data) :]
    return size


def zstd_size(data: Any, limit: int) -> int:
    """Add up what all frames hold, by the size in a frame's header or at most by its blocks, or until above ``limit``.

    Decoders unpack frames that follow one another, so the first frame alone says nothing.
    """
    view = memoryview(data).cast("B")
    total, start = 0, 0
    while total <= limit and start + _ZSTD_HEAD <= len(view):
        magic = int.from_bytes(view[start : start + 4], "little")
        if magic & ~0xF == _ZSTD_SKIPPABLE:
            start += 8 + int.from_bytes(view[start + 4 : start + 8], "little")
            continue
        if magic != _ZSTD_MAGIC:
            break  # no frame: the codec will say so
        flags = view[start + 4]
        single = flags >> 5 & 1
        at = start + 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
        width = (1 if single else 0, 2, 4, 8)[flags >> 6]
        told = int.from_bytes(view[at : at + width], "little") + (256 if flags >> 6 == 1 else 0)
        at += width
        blocks = 0
        while at + 3 <= len(view):
            block = int.from_bytes(view[at : at + 3], "little")
            kind, size = block >> 1 & 3, block >> 3
            blocks += _ZSTD_BLOCK if kind == _ZSTD_COMPRESSED else size
            at += 3 + (1 if kind == _ZSTD_REPEATED else size)
            if block & 1:
                break
        total += told if width else blocks
        start = at + (4 if flags & 4 else 0)
    return total if total or len(view) < _ZSTD_HEAD else len(view)
