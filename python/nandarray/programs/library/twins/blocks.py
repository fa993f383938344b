"""Twins of what works on blocks of bytes: ``lz4_decompress``, ``deduplicate``, ``sha256``, ``crc32c``, ``wal_replay``.

SHA-256 is the standard library's. The other ones are written from their specifications, all blocks side by side where
that can be.
"""

from __future__ import annotations

import hashlib
import struct
from functools import cache
from typing import Any

import numpy as np

from nandarray.errors import CorruptError

__all__ = ["crc32c", "deduplicate", "lz4_decompress", "sha256", "wal_record", "wal_replay"]

Array = np.ndarray[Any, Any]
_CASTAGNOLI = 0x82F63B78
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_HEAD = struct.Struct("<IIQQII")


def _raw(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _lz4_length(raw: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:  # noqa: PLR2004
        while True:
            length += raw[at]
            at += 1
            if raw[at - 1] != 255:  # noqa: PLR2004
                break
    return length, at


def _lz4_block(raw: bytes) -> bytes:
    made, at = bytearray(), 0
    while at < len(raw):
        token = raw[at]
        length, at = _lz4_length(raw, at + 1, token >> 4)
        if at + length > len(raw):
            raise IndexError
        made += raw[at : at + length]
        at += length
        if at == len(raw):
            break
        offset = raw[at] | raw[at + 1] << 8
        length, at = _lz4_length(raw, at + 2, token & 15)
        if not 1 <= offset <= len(made) or at == len(raw):
            raise IndexError
        for _ in range(length + 4):
            made.append(made[-offset])
    return bytes(made)


def lz4_decompress(blocks: Array) -> tuple[Array]:
    """Decompress LZ4 blocks, one behind the other, each with its bytes before it.

    That number is a uint32; its highest bit says that the block is not compressed. A length or an offset that leads
    outside is a CorruptError.
    """
    raw, at, made = _raw(blocks).tobytes(), 0, []
    try:
        while at < len(raw):
            (head,) = struct.unpack_from("<I", raw, at)
            size = head & 0x7FFFFFFF
            block = raw[at + 4 : at + 4 + size]
            if len(block) != size:
                raise IndexError
            made.append(block if head >> 31 else _lz4_block(block))
            at += 4 + size
    except (IndexError, struct.error):
        raise CorruptError(f"the LZ4 block at byte {at} is not well formed") from None
    return (np.frombuffer(b"".join(made), np.uint8),)


def _left(value: Array, by: int) -> Array:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


def deduplicate(blocks: Array, *, block_bytes: int = 4096) -> tuple[Array]:
    """Hash each block of ``block_bytes``, a multiple of 8, with XXH64, seed 0; blocks are whole, a hash is a uint64."""
    words = _raw(blocks).view("<u8").reshape(-1, block_bytes // 8).T
    one, two, three, four, five = (np.uint64(prime) for prime in _PRIMES)

    def turn(lane: Array, word: Array) -> Array:
        return _left(lane + word * two, 31) * one

    zero, done = np.zeros(words.shape[1], np.uint64), 0
    with np.errstate(over="ignore"):
        found = zero + five
        if block_bytes >= 32:  # noqa: PLR2004
            lanes = [zero + (one + two), zero + two, zero, zero - one]
            for done in range(0, len(words) - 3, 4):
                lanes = [turn(lane, words[done + number]) for number, lane in enumerate(lanes)]
            done += 4
            found = sum((_left(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)), zero)
            for lane in lanes:
                found = (found ^ turn(zero, lane)) * one + four
        found = found + np.uint64(block_bytes)
        for word in words[done:]:
            found = _left(found ^ turn(zero, word), 27) * one + four
        found = (found ^ (found >> np.uint64(33))) * two
        found = (found ^ (found >> np.uint64(29))) * three
        return (found ^ (found >> np.uint64(32)),)


def sha256(blocks: Array, *, block_bytes: int = 4096) -> tuple[Array]:
    """Hash each block of ``block_bytes`` with SHA-256; blocks are whole, a hash is 32 bytes."""
    rows = _raw(blocks).reshape(-1, block_bytes)
    return (np.frombuffer(b"".join(hashlib.sha256(row.tobytes()).digest() for row in rows), np.uint8),)


@cache
def _table() -> Array:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ np.where(table & np.uint32(1), np.uint32(_CASTAGNOLI), np.uint32(0))
    return table


def crc32c(blocks: Array, *, block_bytes: int = 4096) -> tuple[Array]:
    """Return each block's CRC-32C, a uint32; blocks of ``block_bytes`` are whole."""
    rows, table = _raw(blocks).reshape(-1, block_bytes), _table()
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = (crc >> np.uint32(8)) ^ table[(crc ^ column) & np.uint32(0xFF)]
    return (~crc,)


def wal_record(number: int, page: int, offset: int, data: bytes) -> bytes:
    """Make a record of a write-ahead log, as ``wal_replay`` reads it.

    Parameters
    ----------
    number : int
        Its sequence number, larger than the last one's; from 1.
    page, offset : int
        Page number and offset of the data: the offset counts from the page's beginning, and is 8 at least.
    data : bytes
        Bytes that are written there.

    Returns
    -------
    bytes
        The record, a multiple of 8 bytes.
    """
    body = struct.pack("<QQII", number, page, offset, len(data)) + data + bytes(-len(data) % 8)
    (crc,) = crc32c(np.frombuffer(body, np.uint8), block_bytes=len(body))
    return struct.pack("<II", len(body) + 8, int(crc[0])) + body


def wal_replay(pages: Array, log: Array, *, page_bytes: int = 4096) -> tuple[Array]:
    """Apply a log to whole pages, each beginning with its sequence number.

    The log has records of :func:`wal_record`; the first one that is not sound ends it. A sound record that lies outside
    its page is a CorruptError.
    """
    result, raw, at, last = _raw(pages).copy(), log.tobytes(), 0, 0
    while at + _HEAD.size <= len(raw):
        size, crc, number, page, offset, length = _HEAD.unpack_from(raw, at)
        if size != _HEAD.size + -(-length // 8) * 8 or at + size > len(raw) or number <= last:
            break
        body = np.frombuffer(raw, np.uint8, size - 8, at + 8)
        if crc32c(body, block_bytes=len(body))[0][0] != crc:
            break
        if offset < 8 or offset + length > page_bytes:  # noqa: PLR2004
            raise CorruptError(f"record {number} writes {length} bytes at {offset} of a page of {page_bytes}")
        last = number
        if page < len(result) // page_bytes:
            held = result[page * page_bytes : (page + 1) * page_bytes]
            if held[:8].view("<u8")[0] < number:
                held[offset : offset + length] = body[24 : 24 + length]
                held[:8].view("<u8")[0] = number
        at += size
    return (result,)
