"""VarVE in Python, slowly: packed streams, variable-width vectors and NumE, written from the reference page alone."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

__all__ = ["OPERATIONS", "Unit", "bits_of", "datapath_bits", "huffman_decode", "pack", "unpack", "width"]


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
        self.num_e: int | None = None

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

    def operate(
        self, name: str, a: Sequence[int], b: Sequence[int], mb: int = 64, mask: Sequence[int] | None = None
    ) -> list[int]:
        """One operation on the elements that the datapath takes; those that a mask leaves out are zero."""
        found, bits, used = [], 0, 0
        for i, (x, y) in enumerate(list(zip(a, b, strict=False))[: self.vlen // 4]):
            if mask is not None and not (i < len(mask) and mask[i]):
                found.append(0)
                continue
            bits += -(-datapath_bits(name, x, y) // self.align) * self.align
            if bits > self.vlen:
                break
            value = OPERATIONS[name](x, y)
            if not name.startswith("cmp"):
                value = (value + (1 << (mb - 1))) % (1 << mb) - (1 << (mb - 1))
                used += width(value)
            if used > self.vlen:
                break
            found.append(value)
        self.note(len(found))
        return found

    def repeat(self, first: int, step: int) -> list[int]:
        """What ``index`` yields, and with a step of 0 ``cpy`` and ``dup``."""
        found, bits = [], 0
        for i in range(self.vlen // 4):
            value = first + step * i
            bits += -(-width(value) // self.align) * self.align
            if bits > self.vlen:
                break
            found.append(value)
        self.note(len(found))
        return found


def _quotient(x: int, y: int) -> int:
    if y == 0:
        return -1
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


#: Operations by their names in the instructions.
OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "max": max,
    "min": min,
    "mul": operator.mul,
    "div": _quotient,
    "and": operator.and_,
    "bic": lambda x, y: x & ~y,
    "eor": operator.xor,
    "orr": operator.or_,
    "cmpeq": lambda x, y: int(x == y),
    "cmpne": lambda x, y: int(x != y),
    "cmplt": lambda x, y: int(x < y),
    "cmple": lambda x, y: int(x <= y),
    "asr": lambda x, y: x >> (y & 63),
    "asl": lambda x, y: x << (y & 63),
}


def datapath_bits(name: str, x: int, y: int) -> int:
    """The bits of the datapath that an operation on two values takes, before they are aligned."""
    most = max(width(x), width(y))
    if name in ("add", "sub", "div"):
        return most + (most > 0)
    if name == "mul":
        return width(x) + width(y)
    if name == "asr":
        return width(x)
    if name == "asl":
        return width(x) + (y & 63) if x else 0
    return most
