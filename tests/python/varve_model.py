"""VarVE in Python, slowly: packed streams, variable-width vectors and NumE, written from the reference page alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["Unit", "bits_of", "huffman_decode", "pack", "unpack", "width"]


def width(value: int) -> int:
    """The bits of a value in two's complement; none of zero."""
    if value == 0:
        return 0
    bits = 1
    while not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        bits += 1
    return bits


def bits_of(data: bytes) -> list[int]:
    """The bits of a stream, the lowest of a byte first."""
    return [byte >> place & 1 for byte in data for place in range(8)]


def pack(values: Sequence[int], widths: Sequence[int]) -> bytes:
    """Values behind each other."""
    number, at = 0, 0
    for value, bits in zip(values, widths, strict=True):
        number |= (value & ((1 << bits) - 1)) << at
        at += bits
    return number.to_bytes(-(-at // 8), "little")


def unpack(data: bytes, widths: Sequence[int], signed: bool) -> list[int]:
    """What :func:`pack` packed."""
    number, at, found = int.from_bytes(data, "little"), 0, []
    for bits in widths:
        value = number >> at & ((1 << bits) - 1)
        found.append(value - (1 << bits) if signed and bits and value >> (bits - 1) else value)
        at += bits
    return found


def huffman_decode(data: bytes, codes: Mapping[str, int], count: int) -> list[int]:
    """Values of codes that are written as texts of digits."""
    found, code = [], ""
    for bit in bits_of(data):
        if len(found) == count:
            break
        code += str(bit)
        if code in codes:
            found.append(codes[code])
            code = ""
    return found


class Unit:
    """Vectors with a width for each value, on registers of ``vlen`` bits."""

    def __init__(self, vlen: int, align: int) -> None:
        """With NumE as after a reset."""
        self.vlen, self.align = vlen, align
        self.num_e = None

    def note(self, count: int) -> None:
        """Count a result in NumE."""
        self.num_e = count if self.num_e is None else min(self.num_e, count)

    def vunpack(self, values: Sequence[int], mask: Sequence[bool] | None = None) -> list[int]:
        """The next values, up to what a register holds."""
        found, bits = [], 0
        for i, value in enumerate(values[: self.vlen // 4]):
            kept = value if mask is None or (i < len(mask) and mask[i]) else 0
            bits += width(kept)
            if bits > self.vlen:
                break
            found.append(kept)
        self.note(len(found))
        return found

    def operate(self, name: str, a: Sequence[int], b: Sequence[int], mb: int = 64) -> list[int]:
        """One operation on the elements that the datapath takes."""
        found, bits, used = [], 0, 0
        for x, y in list(zip(a, b, strict=False))[: self.vlen // 4]:
            most = max(width(x), width(y))
            needed = {"add": most + (most > 0), "sub": most + (most > 0), "mul": width(x) + width(y)}.get(name, most)
            bits += -(-needed // self.align) * self.align
            if bits > self.vlen:
                break
            value = {
                "add": x + y,
                "sub": x - y,
                "mul": x * y,
                "eor": x ^ y,
                "max": max(x, y),
                "cmplt": int(x < y),
            }[name]
            value = (value + (1 << (mb - 1))) % (1 << mb) - (1 << (mb - 1))
            used += width(value)
            if used > self.vlen:
                break
            found.append(value)
        self.note(len(found))
        return found
