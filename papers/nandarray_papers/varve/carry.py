"""Table 8.4 of Zou's dissertation: carries between 8-bit adders where elements have one to eight bytes, bit by bit.

Each adder of a byte gives two signals: generate (its sum alone carries out) and propagate (it carries out if a carry
comes in). A lookahead gives each adder its carry from the signals of the bytes below it in the same element; how many
these are is the adder's number within its element (*ByteID*), which the Element Alignment Unit knows. No carry crosses
the boundary of an element.

Not modelled: the depth of the circuit, or its area.
"""

from __future__ import annotations

from collections.abc import Sequence

from nandarray.errors import InvalidError

__all__ = ["BYTES_MOST", "add", "byte_ids", "carry_in"]

#: Bytes of the largest element.
BYTES_MOST = 8
_BYTE = 256


def carry_in(byte_id: int, generate: Sequence[bool], propagate: Sequence[bool]) -> bool:
    """Return the carry into an adder, as the row of its ByteID in Table 8.4 says.

    ``byte_id`` is its number within its element, 0 for the least significant byte, at most 7; the signals are those of
    the adders below, the nearest first: G(-1), G(-2), ... and P(-1), P(-2), ... The carry is the or, over i from 1 to
    ``byte_id``, of G(-i) and P(-j) for all j below i.
    """
    if not 0 <= byte_id < BYTES_MOST:
        raise InvalidError(f"a ByteID must be from 0 to {BYTES_MOST - 1}, not {byte_id}")
    return any(generate[i] and all(propagate[:i]) for i in range(byte_id))


def byte_ids(sizes: Sequence[int]) -> list[int]:
    """Return the ByteID of each adder, for elements of these sizes in bytes, the lowest element first."""
    for size in sizes:
        if not 1 <= size <= BYTES_MOST:
            raise InvalidError(f"an element must have from 1 to {BYTES_MOST} bytes, not {size}")
    return [number for size in sizes for number in range(size)]


def add(left: bytes, right: bytes, sizes: Sequence[int]) -> bytes:
    """Add vectors of elements of varying sizes by 8-bit adders and the carries of Table 8.4.

    Elements are back to back, little-endian; ``sizes``, in bytes, sum to the length of the vectors. Sums are modulo the
    range of their element.
    """
    ids = byte_ids(sizes)
    if not len(ids) == len(left) == len(right):
        raise InvalidError(f"elements of {len(ids)} bytes, vectors of {len(left)} and {len(right)}")
    generate = [a + b >= _BYTE for a, b in zip(left, right, strict=True)]
    propagate = [a + b == _BYTE - 1 for a, b in zip(left, right, strict=True)]
    out = bytearray()
    for at, number in enumerate(ids):
        below = slice(at - number, at)
        carry = carry_in(number, generate[below][::-1], propagate[below][::-1])
        out.append((left[at] + right[at] + carry) % _BYTE)
    return bytes(out)
