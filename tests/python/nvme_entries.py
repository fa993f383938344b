"""Submission entries by opcode and dwords, packed here by hand: hosts that know nothing of the binding."""

from __future__ import annotations

import struct


def entry(opcode: int, nsid: int, words: dict[int, int]) -> bytes:
    """Pack a submission entry of dwords."""
    made = bytearray(64)
    struct.pack_into("<II", made, 0, opcode, nsid)
    for number, word in words.items():
        struct.pack_into("<I", made, 4 * number, word & 0xFFFFFFFF)
    return bytes(made)
