"""A second reader of the file format, written from docs/reference/file-format.md and from nothing else.

It reads a store that was closed properly: superblock, checkpoint, directory, index, journal, and then the elements of
plain arrays. Slow and simple; what it does not read it does not excuse: every checksum on the way is compared. It
shares no code with the engine, so that the page and the engine can only agree by being right.

Not read: compressed and encrypted blocks, stores that need recovery.
"""

from __future__ import annotations

import copy
import itertools
import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), a byte at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Postcard:
    """Takes values from bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def raw(self, count: int) -> bytes:
        """Bytes as they are."""
        self.at += count
        assert self.at <= len(self.data)
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        """An integer wider than 8 bits."""
        value = shift = 0
        while True:
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def blob(self) -> bytes:
        """A sequence of bytes, or a text."""
        return self.raw(self.varint())

    def numbers(self) -> list[int]:
        """A sequence of integers."""
        return [self.varint() for _ in range(self.varint())]

    def option(self, what: Any) -> Any:
        """Nothing, or a value."""
        return what() if self.raw(1)[0] else None


@dataclass
class Space:
    """A space as the directory or the journal tells it; its blocks as {coordinate: {unit: PPA}}."""

    number: int
    name: str
    shape: list[int]
    item_bytes: int
    dtype: str
    block: list[int]
    compression: str | None
    fill: bytes
    attrs: str
    blocks: dict[tuple[int, ...], dict[int, int]] = field(default_factory=dict)


def _space(take: Postcard) -> Space:
    number, name, shape = take.varint(), take.blob().decode(), take.numbers()
    take.raw(1)  # scalar
    item_bytes, dtype, block = take.varint(), take.blob().decode(), take.numbers()
    compression = take.option(lambda: take.blob().decode())
    take.option(lambda: (take.raw(16), take.blob()))  # encryption
    return Space(number, name, shape, item_bytes, dtype, block, compression, take.blob(), take.blob().decode())


class Image:
    """A store file."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        slots = [slot for at in (0, 4096) if (slot := self._slot(self.data[at : at + 4096])) is not None]
        slot = max(slots, key=lambda one: one["generation"])
        self.superblock = slot
        self.pages = slot["channels"] * slot["banks"] * slot["pages_per_block"]
        self.page_bytes = slot["page_bytes"]
        self.data_bytes = self.pages * self.page_bytes
        self.records_bytes = -(-(64 + 32 * self.pages) // 512) * 512
        self.segment_bytes = -(-(self.data_bytes + 32 * self.pages + 64) // 4096) * 4096
        if slot["version"] >= 3:
            self.segment_bytes = self.data_bytes + self.records_bytes
        self.spaces: dict[int, Space] = {}
        self.snapshots: dict[str, dict[int, Space]] = {}
        stream = self._chain(slot["checkpoint_first"], slot["checkpoint_nonce"])
        self._directory(stream)
        self._journal()

    @staticmethod
    def _slot(slot: bytes) -> dict[str, int] | None:
        crc = crc32c(slot[8:12] + bytes(4) + slot[16:])
        if slot[:8] != b"\x89NANDAR\n" or crc != struct.unpack_from("<I", slot, 12)[0]:
            return None
        (version,) = struct.unpack_from("<I", slot, 8)
        assert version in (1, 2, 3, 4)
        names = "generation page_bytes channels banks pages_per_block capacity checkpoint_nonce checkpoint_first "
        names += (
            "directory_crc directory_at directory_at2 directory_bytes checkpoint_bytes journal_nonce journal_first "
        )
        names += "clean journal_lsn clean_lsn open_segment"
        values = struct.unpack_from("<QIIIIQQIIQQQQQIIQQI", slot, 32)
        return {"version": version, **dict(zip(names.split(), values, strict=True))}

    def _segment(self, number: int) -> tuple[int, int]:
        """Where a segment's pages begin, and its header."""
        if self.superblock["version"] < 3:
            at = 65536 + number * self.segment_bytes
            return at, at + self.data_bytes
        align = min(self.data_bytes & -self.data_bytes, 2 << 20)
        first = -(-(65536 + self.records_bytes) // align) * align
        count = (first - 65536) // self.records_bytes
        group, i = divmod(number, count)
        start = first + group * (-(-count * self.records_bytes // align) * align + count * self.data_bytes)
        return start + i * self.data_bytes, start - (count - i) * self.records_bytes

    def _chain(self, segment: int, nonce: int) -> bytes:
        """The whole stream of a chain."""
        room = self.pages * self.page_bytes - 32
        stream = b""
        while True:
            at, _ = self._segment(segment)
            stream += self.data[at : at + room]
            magic, linked, following, crc = struct.unpack_from("<8sQII", self.data, at + room)
            if magic != b"NANDLINK" or linked != nonce or crc != crc32c(self.data[at + room : at + room + 20]):
                return stream
            segment = following

    def _directory(self, stream: bytes) -> None:
        slot = self.superblock
        for at in (slot["directory_at"], slot["directory_at2"]):
            text = stream[at : at + slot["directory_bytes"]]
            assert crc32c(text) == slot["directory_crc"]
        take = Postcard(text)
        take.varint(), take.varint()  # seq, next_space
        for _ in range(take.varint()):
            take.varint(), take.varint(), take.raw(1)  # live, erases, bad
        self._spaces(stream, take, self.spaces)
        for _ in range(take.varint() if slot["version"] >= 4 else 0):
            spaces = self.snapshots[take.blob().decode()] = {}
            take.varint(), take.varint()  # time, seq
            self._spaces(stream, take, spaces)
        assert take.at == len(text)

    def _spaces(self, stream: bytes, take: Postcard, spaces: dict[int, Space]) -> None:
        for _ in range(take.varint()):
            space = _space(take)
            at, count, crc, blocks = (take.varint() for _ in range(4))
            assert crc32c(stream[at : at + count]) == crc
            self._index(space, Postcard(stream[at : at + count]))
            assert len(space.blocks) == blocks
            spaces[space.number] = space

    @staticmethod
    def _index(space: Space, take: Postcard) -> None:
        last: list[int] = []
        behind = 0
        while take.at < len(take.data):
            shared = take.varint()
            at = last[:shared] + [take.varint() + (last[shared] if last else 0)]
            at += [take.varint() for _ in range(len(space.block) - len(at))]
            units = space.blocks[tuple(at)] = {}
            for _ in range(take.varint()):
                unit, count, zigzag = take.varint(), take.varint(), take.varint()
                ppa = behind + (zigzag >> 1 if not zigzag & 1 else -(zigzag >> 1) - 1)
                units.update({unit + i: ppa + i for i in range(count)})
                behind = ppa + count
            last = at

    def _journal(self) -> None:
        slot = self.superblock
        nonce, stream = slot["journal_nonce"], self._chain(slot["journal_first"], slot["journal_nonce"])
        at, number, before = 0, slot["journal_lsn"], 0
        while True:
            crc, magic, lsn, of, _durable, length, follows = struct.unpack_from("<I4sQQQII", stream, at)
            if (magic, lsn, of) != (b"NREC", number, nonce) or crc32c(stream[at + 4 : at + 40 + length]) != crc:
                break
            assert follows == before
            before = crc
            take = Postcard(stream[at + 40 : at + 40 + length])
            take.varint()  # seq
            for _ in range(take.varint()):
                self._op(take)
            assert take.at == length
            at, number = at + -(-(40 + length) // 8) * 8, number + 1
        assert slot["clean"] == 1
        assert slot["clean_lsn"] == number - 1, "the journal ends where the superblock says that it does"

    def _op(self, take: Postcard) -> None:
        kind = take.raw(1)[0]
        if kind == 0:
            space = _space(take)
            self.spaces[space.number] = space
            return
        if kind == 7:
            self.snapshots[take.blob().decode()] = copy.deepcopy(self.spaces)
            take.varint(), take.varint()  # time, seq
            return
        if kind == 8:
            del self.snapshots[take.blob().decode()]
            return
        if kind == 9:
            self._move(take)
            return
        assert kind in (1, 2, 3, 4, 5), "a switch is not in the journal that counts"
        space = self.spaces[take.varint()]
        if kind == 1:
            del self.spaces[space.number]
        elif kind == 2:
            space.shape = take.numbers()
        elif kind == 3:
            space.attrs = take.blob().decode()
        elif kind == 4:
            space.name = take.blob().decode()
        else:
            self._update(space, take)

    @staticmethod
    def _update(space: Space, take: Postcard) -> None:
        take.varint()  # seq
        at = tuple(take.numbers())
        gone = take.option(lambda: [(take.varint(), take.varint()) for _ in range(take.varint())])
        runs = [(take.varint(), take.varint(), take.varint()) for _ in range(take.varint())]
        old = space.blocks.pop(at, {})
        units = {} if gone is None else {u: p for u, p in old.items() if not any(a <= u < b for a, b in gone)}
        for unit, count, ppa in runs:
            units.update({unit + i: ppa + i for i in range(count)})
        if units:
            space.blocks[at] = units

    def _move(self, take: Postcard) -> None:
        number, _seq, at = take.varint(), take.varint(), tuple(take.numbers())
        pages = []
        for _ in range(2):
            runs = [(take.varint(), take.varint(), take.varint()) for _ in range(take.varint())]
            pages.append({unit + i: ppa + i for unit, count, ppa in runs for i in range(count)})
        before, after = pages
        assert before.keys() == after.keys()
        for spaces in (self.spaces, *self.snapshots.values()):
            units = spaces[number].blocks.get(at, {}) if number in spaces else {}
            units.update({unit: after[unit] for unit, ppa in before.items() if units.get(unit) == ppa})

    def page(self, space: Space, at: tuple[int, ...], unit: int) -> bytes:
        """One page, compared with its record, and that with its owner."""
        segment, i = divmod(space.blocks[at][unit], self.pages + 1)
        pages, header = self._segment(segment)
        where = pages + i * self.page_bytes
        data = self.data[where : where + self.page_bytes]
        where = header + 64 + 32 * i
        record = self.data[where : where + 32]
        crc_record, crc_page, _seq, owner, number = struct.unpack_from("<IIQIH", record)
        assert crc_record == crc32c(record[4:]) ^ 0x6E616E64
        assert crc_page == crc32c(data)
        assert (owner, number) == (space.number, unit)
        key = Postcard(record[22:])
        assert tuple(key.varint() for _ in at) == at
        return data

    def array(self, name: str, snapshot: str | None = None) -> np.ndarray[Any, Any]:
        """The elements of a plain array, or of one of packed integers."""
        spaces = self.spaces if snapshot is None else self.snapshots[snapshot]
        space = next(one for one in spaces.values() if one.name == name)
        assert space.compression in (None, "bitpack", "varwidth")
        dtype = np.dtype(space.dtype)
        whole = np.full(space.shape, np.frombuffer(space.fill, dtype)[0])
        size = math.prod(space.block) * space.item_bytes
        counts = [range(-(-n // b)) for n, b in zip(space.shape, space.block, strict=True)]
        for at in itertools.product(*counts):
            if at not in space.blocks:
                continue
            data = bytearray(space.fill * math.prod(space.block))
            units = 1 + max(space.blocks[at])
            data += bytes(max(units * self.page_bytes - size, -size % self.page_bytes))
            for unit in space.blocks[at]:
                data[unit * self.page_bytes : (unit + 1) * self.page_bytes] = self.page(space, at, unit)
            if space.compression:
                data = bytearray(payload(bytes(data), size, space.item_bytes))
            block = np.frombuffer(bytes(data[:size]), dtype).reshape(space.block)
            box = tuple(slice(c * b, min((c + 1) * b, n)) for c, b, n in zip(at, space.block, space.shape, strict=True))
            whole[box] = block[tuple(slice(s.stop - s.start) for s in box)]
        return whole


def payload(data: bytes, size: int, item_bytes: int) -> bytes:
    """The bytes of a block of packed integers."""
    magic, _version, method, filtered, sealed, item, frame_bytes, count, block_bytes, sequence = struct.unpack_from(
        "<4s4B4IQ", data
    )
    assert (magic, filtered, sealed, item, block_bytes, sequence) == (b"nafr", 0, 0, item_bytes, size, 0)
    out, at = b"", 32 + 4 * count
    for frame in range(count):
        (end,) = struct.unpack_from("<I", data, 32 + 4 * frame)
        raw = min(frame_bytes, size - frame * frame_bytes)
        text, at = data[at : end & 0x7FFF_FFFF], end & 0x7FFF_FFFF
        out += text if end >> 31 else _unpack(text, method, raw // item, item) + text[len(text) - raw % item :]
    return out


def _unpack(text: bytes, method: int, count: int, item: int) -> bytes:
    """The whole values of a frame, bit by bit."""
    widths, reference, text = {
        3: lambda: ([text[0]] * count, int.from_bytes(text[1 : 1 + item], "little"), text[1 + item :]),
        4: lambda: (list(text[:count]), 0, text[count:]),
    }[method]()
    bits, out = int.from_bytes(text, "little"), b""
    for width in widths:
        out += (((bits & (1 << width) - 1) + reference) % 256**item).to_bytes(item, "little")
        bits >>= width
    return out
