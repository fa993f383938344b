"""Operands at the edges, for ``arch_formats``: integers and floating-point numbers, alone, in pairs and in threes.

Each list is made once for its arguments, so that blocks share it. ``more`` is how many random ones come with them; they
are the same each time. Floating-point numbers are given as the 64 bits of a register: single ones in their box of ones.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import cache

__all__ = [
    "Rows",
    "few",
    "few_pairs",
    "float_pairs",
    "float_singles",
    "float_threes",
    "integer_pairs",
    "integers",
    "specials",
]

Rows = Sequence[tuple[int, ...]]
BOX = 0xFFFF_FFFF << 32


@cache
def corners(bits: int) -> tuple[int, ...]:
    """A few integers that matter."""
    top = 1 << (bits - 1)
    alternating = [int(pair * (bits // 8), 16) for pair in ("55", "aa", "33", "cc", "0f", "80", "7f")]
    words = [0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 1 << 32, 0x8000_0001, -1 << 31, (1 << 63) - (1 << 31)]
    near = [
        0,
        1,
        2,
        3,
        5,
        -1,
        -2,
        -3,
        top,
        top + 1,
        top - 1,
        top - 2,
        bits - 1,
        bits,
        bits + 1,
        0x7F,
        0x80,
        0x8000,
        0xFFFF,
    ]
    return tuple(dict.fromkeys(value & (1 << bits) - 1 for value in near + alternating + words))


def walking(bits: int) -> list[int]:
    """A one through zeros, and a zero through ones."""
    return [1 << i for i in range(bits)] + [((1 << bits) - 1) ^ (1 << i) for i in range(bits)]


@cache
def integers(bits: int, more: int) -> Rows:
    """Integers alone."""
    chance = random.Random(bits)
    found = [*corners(bits), *walking(bits), *(chance.getrandbits(bits) >> chance.randrange(bits) for _ in range(more))]
    return [(value,) for value in dict.fromkeys(found)]


@cache
def integer_pairs(bits: int, more: int) -> Rows:
    """Corners with corners, walking bits with a few, equal ones."""
    chance = random.Random(bits + 1)
    few = [0, 1, (1 << bits) - 1, 1 << (bits - 1), 0x5555_5555]
    pairs = list(itertools.product(corners(bits), repeat=2))
    for value in walking(bits):
        other = chance.choice(few)
        pairs += [(value, other), (other, value), (value, value)]
    for _ in range(more):
        pairs.append(
            (chance.getrandbits(bits) >> chance.randrange(bits), chance.getrandbits(bits) >> chance.randrange(bits))
        )
    return pairs


@cache
def few_pairs(bits: int) -> Rows:
    """For registers and distances that are not the usual ones."""
    top = 1 << (bits - 1)
    values = (0, 1, top, top - 1, (1 << bits) - 1, 0x1234_5678)
    return list(itertools.product(values, repeat=2))


@cache
def few(bits: int) -> Rows:
    """The same, alone."""
    return [(value,) for value in corners(bits)]


@cache
def specials(double: bool) -> tuple[int, ...]:
    """Bits of floating-point numbers at the edges: of formats, of rounding, of integers."""
    mantissa, bias, size = (52, 1023, 64) if double else (23, 127, 32)
    one = bias << mantissa
    infinity = (2 * bias + 1) << mantissa
    least = 1 << mantissa

    def power(exponent: int, plus: int = 0) -> int:
        return ((exponent + bias) << mantissa) + plus

    values = [
        0,
        1,
        2,
        3,
        least // 2,
        least - 2,
        least - 1,
        least,
        least + 1,
        2 * least - 1,
        2 * least,
        one - 2,
        one - 1,
        one,
    ]
    values += [
        one + 1,
        one + 2,
        one + least // 2,
        power(1),
        power(1, -1),
        power(1, least // 2),
        power(1, least // 4),
        power(-1),
    ]
    values += [power(-1, -1), power(-1, 1), power(-2, least // 2), infinity - 1, infinity - 2, infinity, power(bias, 0)]
    values += [
        infinity + 1,
        infinity + least // 2,
        infinity + least - 1,
        infinity + least // 2 + 5,
        infinity + least // 4,
    ]
    values += [
        power(mantissa),
        power(mantissa + 1),
        power(mantissa, 1),
        power(mantissa - 1, 1),
        power(-mantissa),
        power(-mantissa - 1),
    ]
    for width in (31, 32, 63, 64):
        values += [power(width), power(width, -1), power(width, 1)]
    values += [
        power(-bias // 2),
        power(bias // 2),
        power(-bias // 2, 1),
        power(bias // 2, 3),
        power(1, 0x123456),
        power(-3, 0x2AAAAA),
    ]
    if double:
        # The limits of single precision: its largest and least numbers, halfway to the next, and just beside it.
        half = 1 << 28
        values += [power(127, least - 2 * half + d) for d in (0, half, half - 1, half + 1)] + [power(128), power(-126)]
        values += [power(-126, -d) for d in (1, half // 2, half, half + 1, 2 * half)] + [
            power(-149),
            power(-150),
            power(-150, 1),
        ]
        values += [power(0, half + d) for d in (-1, 0, 1)] + [power(0, 3 * half + d) for d in (-1, 0, 1)]
        values += [power(31, -1 << d) for d in (20, 21, 22)] + [power(32, -1 << 20), power(-151)]
    unique = list(dict.fromkeys(values))
    return tuple(value | sign << (size - 1) for value in unique for sign in (0, 1))


def boxed(values: Sequence[int], double: bool) -> tuple[int, ...]:
    """As registers hold them."""
    return tuple(value if double else BOX | value for value in values)


def chance_float(chance: random.Random, double: bool, near: int | None = None) -> int:
    """A random number; near another's exponent, if one is given. Half of them have few bits set."""
    mantissa, bias = (52, 1023) if double else (23, 127)
    exponent = chance.randrange(2 * bias + 2)
    if near is not None:
        exponent = min(
            2 * bias + 1, max(0, (near >> mantissa & 2 * bias + 1) + chance.randrange(-mantissa - 3, mantissa + 4))
        )
    fraction = chance.getrandbits(mantissa)
    if chance.random() < 0.5:
        cut = chance.randrange(mantissa)
        fraction = chance.choice([fraction >> cut << cut, fraction >> cut, (1 << mantissa) - 1 - (fraction >> cut)])
    return sign(chance, double) | exponent << mantissa | fraction


def sign(chance: random.Random, double: bool) -> int:
    """Plus or minus."""
    return chance.getrandbits(1) << (63 if double else 31)


# Registers that hold no single-precision number: they count as a quiet NaN.
UNBOXED = (0x3F80_0000, 0xFFFF_FFFE_3F80_0000, 0x7FF0_0000_0000_0000, 0x0000_0000_FFFF_FFFF)


@cache
def float_singles(double: bool, more: int) -> Rows:
    """Alone."""
    chance = random.Random(7 + double)
    found = boxed([*specials(double), *(chance_float(chance, double) for _ in range(more))], double)
    return [(value,) for value in found + (() if double else UNBOXED)]


@cache
def float_pairs(double: bool, more: int, thin: int = 1) -> Rows:
    """Specials with specials (every ``thin``-th), then near ones: where sums cancel and products round."""
    chance = random.Random(9 + double)
    pairs = list(itertools.product(boxed(specials(double), double), repeat=2))[::thin]
    for _ in range(more):
        first = chance_float(chance, double)
        pairs.append(boxed([first, chance_float(chance, double, first)], double))
    if not double:
        one = BOX | 0x3F80_0000
        pairs += [pair for value in UNBOXED for pair in ((value, one), (one, value), (value, value))]
    return pairs


@cache
def float_threes(double: bool, more: int, thin: int = 1) -> Rows:
    """For fused multiply-add: few specials in all threes, and products with what nearly cancels them."""
    chance = random.Random(11 + double)
    mantissa, bias = (52, 1023) if double else (23, 127)
    one, infinity = bias << mantissa, (2 * bias + 1) << mantissa
    top = 1 << (63 if double else 31)
    least = 1 << mantissa
    few_values = [
        0,
        top,
        1,
        top | 1,
        least,
        one,
        top | one,
        one + 1,
        infinity - 1,
        top | infinity - 1,
        infinity,
        top | infinity,
    ]
    few_values += [infinity + 1, infinity + least // 2 + 3]
    threes = [boxed(three, double) for three in list(itertools.product(few_values, repeat=3))[::thin]]
    for _ in range(more):
        first, second = chance_float(chance, double), chance_float(chance, double)
        if chance.random() < 0.7:
            # A product whose exponent can be had, and something about as large.
            second = second & ~((2 * bias + 1) << mantissa) | (bias + chance.randrange(-30, 31)) << mantissa
        exponent = (first >> mantissa & 2 * bias + 1) + (second >> mantissa & 2 * bias + 1) - bias
        third = chance_float(chance, double, max(0, min(2 * bias, exponent)) << mantissa)
        threes.append(boxed([first, second, third], double))
    return threes
