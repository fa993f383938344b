"""Twins of AES-128: encrypt, decrypt, counter mode, as FIPS 197 describes them, on all blocks at once.

Written from the standard's description (bytes in a square, steps one by one), not from the C's tables: an oracle.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

__all__ = ["aes128_ctr", "aes128_decrypt", "aes128_encrypt"]

Array = np.ndarray[Any, Any]
_ROUNDS = 10
# The source of each byte of a block when rows shift, column by column.
_SHIFT = np.array([4 * ((column + row) % 4) + row for column in range(4) for row in range(4)])
_BACK = np.argsort(_SHIFT)


def _twice(value: Any) -> Any:
    return (value << 1) ^ np.where(value & 0x80, 0x11B, 0)


def _times(value: Any, by: int) -> Any:
    product = np.zeros_like(value)
    for bit in range(4):
        if by >> bit & 1:
            product = product ^ value
        value = _twice(value)
    return product


@cache
def _boxes() -> tuple[Array, Array]:
    """The S-box and its inverse: the inverse in the field, then an affine map."""
    every = np.arange(256)
    inverse = every.copy()
    for a in range(1, 256):
        product, value = np.zeros(256, np.int64), every
        for bit in range(8):
            product = product ^ np.where(a >> bit & 1, value, 0)
            value = _twice(value)
        inverse[a] = np.flatnonzero(product == 1)[0]
    turned = inverse
    for turn in range(1, 5):
        turned = turned ^ (((inverse << turn) | (inverse >> (8 - turn))) & 0xFF)
    box = turned ^ 0x63
    return box, np.argsort(box)


def _keys(low: int, high: int) -> Array:
    box, _ = _boxes()
    words = [list(raw) for raw in np.array([low, high], "<u8").view(np.uint8).reshape(4, 4)]
    constant = 1
    for number in range(4, 4 * (_ROUNDS + 1)):
        word = list(words[-1])
        if number % 4 == 0:
            word = [int(box[one]) for one in [*word[1:], word[0]]]
            word[0] ^= constant
            constant = int(_twice(np.int64(constant)))
        words.append([one ^ other for one, other in zip(words[-4], word, strict=True)])
    return np.array(words, np.int64).reshape(_ROUNDS + 1, 16)


def _mixed(square: Array, factors: tuple[int, ...]) -> Array:
    total = np.zeros_like(square)
    for turn, factor in enumerate(factors):
        total = total ^ _times(np.roll(square, -turn, axis=2), factor)
    return total


def _blocks(data: Array) -> Array:
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8).reshape(-1, 16).astype(np.int64)


def aes128_encrypt(data: Array, key_low: int, key_high: int) -> tuple[Array]:
    """Encrypt each whole block of 16 bytes by itself; :func:`nandarray.programs.key_scalars` gives the key."""
    box, _ = _boxes()
    keys = _keys(key_low, key_high)
    state = _blocks(data) ^ keys[0]
    for number in range(1, _ROUNDS + 1):
        state = box[state][:, _SHIFT]
        if number < _ROUNDS:
            state = _mixed(state.reshape(-1, 4, 4), (2, 3, 1, 1)).reshape(-1, 16)
        state = state ^ keys[number]
    return (state.astype(np.uint8).reshape(-1),)


def aes128_decrypt(data: Array, key_low: int, key_high: int) -> tuple[Array]:
    """Undo :func:`aes128_encrypt`."""
    _, box = _boxes()
    keys = _keys(key_low, key_high)
    state = _blocks(data) ^ keys[_ROUNDS]
    for number in range(_ROUNDS - 1, -1, -1):
        state = box[state[:, _BACK]] ^ keys[number]
        if number:
            state = _mixed(state.reshape(-1, 4, 4), (14, 11, 13, 9)).reshape(-1, 16)
    return (state.astype(np.uint8).reshape(-1),)


def aes128_ctr(data: Array, key_low: int, key_high: int, start_low: int, start_high: int) -> tuple[Array]:
    """Encrypt or decrypt whole blocks in counter mode.

    Key and first counter, of 16 bytes, are as :func:`nandarray.programs.key_scalars` gives them.
    """
    raw = _blocks(data).astype(np.uint8)
    start = int.from_bytes(np.array([start_low, start_high], "<u8").tobytes(), "big")
    counters = b"".join(((start + number) % 2**128).to_bytes(16, "big") for number in range(len(raw)))
    (stream,) = aes128_encrypt(np.frombuffer(counters, np.uint8), key_low, key_high)
    return (raw.reshape(-1) ^ stream,)
