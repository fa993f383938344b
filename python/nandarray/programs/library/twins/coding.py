"""Twins of copies and erasure codes: ``replicate``, RAID4, RAID5, RAID6, encoded and rebuilt.

The field of RAID6 is tables of logarithms here, where the C doubles words.
"""

from __future__ import annotations

from functools import cache, reduce
from typing import Any

import numpy as np

__all__ = ["raid5", "raid6", "raid6_rebuild", "replicate", "xor"]

Array = np.ndarray[Any, Any]
_POLYNOMIAL = 0x11D


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def replicate(data: Array, *, copies: int = 3) -> tuple[Array, ...]:
    """Return a number of copies of the data, as bytes."""
    return tuple(_bytes(data).copy() for _ in range(copies))


def xor(*disks: Array) -> tuple[Array]:
    """Return the parity of disks of equal size; of all but one and the parity, that one."""
    return (reduce(np.bitwise_xor, map(_bytes, disks)),)


def raid5(data: Array, *, disks: int = 4, chunk_bytes: int = 4096) -> tuple[Array, ...]:
    """Lay whole stripes of ``(disks - 1) * chunk_bytes`` on disks with a rotating parity, left-symmetric."""
    chunks = _bytes(data).reshape(-1, disks - 1, chunk_bytes)
    held = np.empty((disks, len(chunks), chunk_bytes), np.uint8)
    for stripe, parts in enumerate(chunks):
        parity = disks - 1 - stripe % disks
        held[parity, stripe] = np.bitwise_xor.reduce(parts, axis=0)
        for number, part in enumerate(parts):
            held[(parity + 1 + number) % disks, stripe] = part
    return tuple(disk.reshape(-1) for disk in held)


@cache
def _logarithms() -> tuple[Array, Array]:
    """Powers of 2, and the power that gives each element."""
    power, log = np.zeros(510, np.uint8), np.zeros(256, np.int64)
    value = 1
    for number in range(255):
        power[number] = power[number + 255] = value
        log[value] = number
        value = value << 1 ^ (_POLYNOMIAL if value & 0x80 else 0)
    return power, log


def _times(array: Array, by: int) -> Array:
    power, log = _logarithms()
    if by == 0:
        return np.zeros_like(array)
    return np.where(array == 0, 0, power[log[array] + log[by]]).astype(np.uint8)


def _power(number: int) -> int:
    return int(_logarithms()[0][number % 255])


def _inverse(value: int) -> int:
    return _power(255 - int(_logarithms()[1][value]))


def raid6(*disks: Array) -> tuple[Array, Array]:
    """Return P and Q of data disks of equal size: the exclusive or, and the sum of 2^i times disk i."""
    q = reduce(np.bitwise_xor, (_times(_bytes(disk), _power(number)) for number, disk in enumerate(disks)))
    return xor(*disks)[0], q


def raid6_rebuild(*left: Array, a: int | None = None, b: int | None = None) -> tuple[Array, Array]:
    """Return two lost disks, a < b, from the remaining ones.

    These are data disks, P and Q, but for the two; then, if not by name, a and b. Data disks have the numbers 0 to k -
    1, P is k, Q is k + 1.
    """
    if a is None or b is None:
        *left, a, b = left  # type: ignore[assignment]
    assert a is not None
    assert b is not None
    data = len(left)
    numbers = [number for number in range(data + 2) if number not in (a, b)]
    disk = dict(zip(numbers, map(_bytes, left), strict=True))
    zero = np.zeros_like(next(iter(disk.values())))
    x = reduce(np.bitwise_xor, (disk.get(number, zero) for number in [*range(data), data]))
    y = reduce(np.bitwise_xor, (_times(disk.get(number, zero), _power(number)) for number in range(data)))
    y = y ^ disk.get(data + 1, zero)
    if b < data:
        second = _times(y ^ _times(x, _power(a)), _inverse(_power(a) ^ _power(b)))
        return x ^ second, second
    if a == data:
        return x, y
    if b == data:
        first = _times(y, _inverse(_power(a)))
        return first, x ^ first
    return x, y ^ _times(x, _power(a))
