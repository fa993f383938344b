"""The makers of blocks for ``arch_cases``: for each format of the table, registers, immediates and operands.

:func:`groups` gives the programs for one register width. A format without a maker is an error, so that none is
forgotten. A maker takes the program, the row, and how many random operands come with those at the edges.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import arch_compressed
import arch_system
from arch_cases import Group, Row, rows
from arch_operands import Rows, few, few_pairs, float_pairs, float_singles, float_threes, integer_pairs, integers

__all__ = ["groups"]

Inputs = Sequence[str]
INTEGER = [f"x{i}" for i in range(1, 32)]
MODES = ("rne", "rtz", "rdn", "rup", "rmm")
IMMEDIATES = [
    0,
    1,
    -1,
    2,
    -2,
    2047,
    -2048,
    -2047,
    1365,
    -1366,
    4,
    8,
    16,
    31,
    32,
    63,
    64,
    127,
    255,
    256,
    512,
    1023,
    1024,
    -1024,
]
OFFSETS = [0, 1, -1, 2, 4, -8, 8, 100, 2047, 2046, 2040, -2048, -2047, -2040]


def groups(bits: int, more: int) -> Iterator[Group]:
    """All programs; ``more`` random operands come with those at the edges."""
    by_extension: dict[str, Group] = {}
    for row in rows(bits):
        name = "I" if row.extension in ("Zicsr", "Zifencei", "Privileged") else row.extension
        # Floating-point signatures are long: a program for each kind.
        if row.format in ("FloatFused", "FloatRounded"):
            name += row.name[:3]
        group = by_extension.setdefault(name, Group(f"{name}-{bits}", bits))
        MAKERS[row.format](group, row, more)
    arch_system.traps(by_extension["I"])
    yield from by_extension.values()
    compressed = Group(f"C-{bits}", bits)
    for row in rows(bits, "compressed"):
        arch_compressed.make(compressed, row)
    yield compressed


def others(row: Row, count: int, takes: int) -> Iterator[list[str]]:
    """Registers at random, and each as a destination once; few are left for the block itself."""
    chance = random.Random(row.name)
    for i in range(count):
        yield [f"x{i % 31 + 1}", *(chance.choice(INTEGER) for _ in range(takes))]


# The names that the assembler takes for registers by number: blocks look for these.
ABI = ["zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", *(f"a{i}" for i in range(8))]
ABI += [*(f"s{i}" for i in range(2, 12)), *(f"t{i}" for i in range(3, 7))]


def named(registers: list[str]) -> list[str]:
    """Registers by the names that the rest uses."""
    return [ABI[int(register[1:])] for register in registers]


def register(group: Group, row: Row, more: int) -> None:
    """Two sources."""
    pairs, small = integer_pairs(group.bits, more), few_pairs(group.bits)
    group.loop(row.name, f"{row.name} a2, a0, a1", pairs, ("a0", "a1"), ("a2",))
    for rd, first, second in [
        ("a0", "a0", "a1"),
        ("a1", "a0", "a1"),
        ("a2", "zero", "a1"),
        ("a2", "a0", "zero"),
        ("zero", "a0", "a1"),
    ]:
        group.loop(row.name, f"{row.name} {rd}, {first}, {second}", small, (first, second), (rd,))
    for rd in ("a2", "a0"):
        group.loop(row.name, f"{row.name} {rd}, a0, a0", integers(group.bits, more), ("a0",), (rd,))
    for rd, first, second in map(named, others(row, 31, 2)):
        group.loop(row.name, f"{row.name} {rd}, {first}, {second}", small[1::5], (first, second), (rd,))


def unary(group: Group, row: Row, more: int) -> None:
    """One source."""
    for rd in ("a2", "a0", "zero"):
        group.loop(row.name, f"{row.name} {rd}, a0", integers(group.bits, more), ("a0",), (rd,))
    for rd, first in map(named, others(row, 31, 1)):
        group.loop(row.name, f"{row.name} {rd}, {first}", few(group.bits)[::5], (first,), (rd,))


def immediate(group: Group, row: Row, more: int) -> None:
    """A source and twelve bits."""
    for value in IMMEDIATES:
        group.loop(row.name, f"{row.name} a2, a0, {value}", few(group.bits), ("a0",), ("a2",))
    for value in (0, 1, -1, 2047, -2048):
        group.loop(row.name, f"{row.name} a0, a0, {value}", integers(group.bits, more), ("a0",), ("a0",))
    for rd, first in map(named, others(row, 31, 1)):
        group.loop(row.name, f"{row.name} {rd}, {first}, -3", few(group.bits)[::5], (first,), (rd,))
    group.loop(row.name, f"{row.name} zero, a0, 5", few(group.bits), ("a0",), ("zero",))
    group.loop(row.name, f"{row.name} a2, zero, -5", few(group.bits), ("zero",), ("a2",))


def shift(group: Group, row: Row, more: int) -> None:
    """Every amount."""
    amounts = 32 if row.format == "ShiftWord" else group.bits
    for amount in range(amounts):
        group.loop(row.name, f"{row.name} a2, a0, {amount}", few(group.bits), ("a0",), ("a2",))
    for amount in (0, 1, amounts - 1):
        group.loop(row.name, f"{row.name} a0, a0, {amount}", integers(group.bits, more), ("a0",), ("a0",))
    for rd, first in map(named, others(row, 31, 1)):
        group.loop(row.name, f"{row.name} {rd}, {first}, 7", few(group.bits)[::5], (first,), (rd,))


def upper(group: Group, row: Row, more: int) -> None:
    """Twenty bits."""
    values = [0, 1, 2, 0x7FFFF, 0x80000, 0x80001, 0xFFFFF, 0xFFFFE, 0x55555, 0xAAAAA, *(1 << i for i in range(20))]
    for i, value in enumerate(values):
        rd = ABI[i % 31 + 1]
        group.once(row.name, f"{row.name} {rd}, {value:#x}", (rd,))
    group.once(row.name, f"{row.name} zero, 1", ("zero",))


def load(group: Group, row: Row, more: int) -> None:
    """Every distance from alignment, over positive and negative offsets."""
    rd = "fa0" if row.format == "FloatLoad" else "a0"
    for offset in OFFSETS:
        for distance in range(8):
            text = f"{row.name} {rd}, {offset}(a1)"
            group.once(
                row.name, f"{text} from pattern + {distance}", (rd,), f"la a1, pattern + {distance - offset}\n{text}"
            )
    for distance in range(0, 400, 8):
        text = f"{row.name} {rd}, {distance}(a1)"
        group.once(row.name, f"{text} from pattern", (rd,), f"la a1, pattern\n{text}")
    if rd == "a0":
        group.once(row.name, f"{row.name} a1, 8(a1)", ("a1",), f"la a1, pattern\n{row.name} a1, 8(a1)")
        group.once(row.name, f"{row.name} zero, 8(a1)", ("zero",), f"la a1, pattern\n{row.name} zero, 8(a1)")


def store(group: Group, row: Row, more: int) -> None:
    """The same; what is around it must stay."""
    from_ = "fa0" if row.format == "FloatStore" else "a0"
    source = "fld fa0, 0(a2)" if from_ == "fa0" else f"{group.load} a0, 0(a2)"
    for offset in OFFSETS:
        for distance in range(8):
            text = f"{row.name} {from_}, {offset}(a1)"
            body = f"la a2, pattern + {16 * distance}\n{source}\nla a1, {{slot}} + {8 + distance - offset}\n{text}"
            group.once(row.name, f"{text} at slot + {8 + distance}", ("[before]", "[there]", "[behind]"), body)
    for i, name in enumerate(ABI[1:] if from_ == "a0" else [f"fa{i}" for i in range(8)]):
        base = "a2" if name == "a1" else "a1"
        first = f"la a2, pattern + {8 * i}\n" + (
            f"fld {name}, 0(a2)" if from_ == "fa0" else f"{group.load} {name}, 0(a2)"
        )
        text = f"{row.name} {name}, 8({base})"
        group.once(row.name, text, ("[before]", "[there]", "[behind]"), f"{first}\nla {base}, {{slot}}\n{text}")
    group.once(
        row.name, f"{row.name} {from_}, -8(sp)", ("[there]",), f"la sp, {{slot}} + 8\n{row.name} {from_}, -8(sp)"
    )


def branch(group: Group, row: Row, more: int) -> None:
    """Forward and back, near and far, taken or not."""
    for registers in ("a0, a1", "a1, a0"):
        ahead = f"li a2, 1\n{row.name} {registers}, 2f\nli a2, 2\n2:"
        group.loop(
            row.name, f"{row.name} {registers}, forward", integer_pairs(group.bits, more), ("a0", "a1"), ("a2",), ahead
        )
    for what, space in (("near", ""), ("far", ".fill 1015, 4, 0x13\n")):
        back = f"li a2, 1\nj 3f\n2: li a2, 4\nj 4f\n{space}3: {row.name} a0, a1, 2b\nli a2, 2\n4:"
        ahead = f"li a2, 1\n{row.name} a0, a1, 2f\nli a2, 2\nj 3f\n{space}2: addi a2, a2, 4\n3:"
        group.loop(row.name, f"{row.name} a0, a1, {what} back", few_pairs(group.bits), ("a0", "a1"), ("a2",), back)
        group.loop(row.name, f"{row.name} a0, a1, {what} ahead", few_pairs(group.bits), ("a0", "a1"), ("a2",), ahead)
    for first, second in (("a0", "a0"), ("a0", "zero"), ("zero", "a0"), ("zero", "zero")):
        text = f"{row.name} {first}, {second}, 2f"
        group.loop(row.name, text, few(group.bits), ("a0",), ("a2",), f"li a2, 1\n{text}\nli a2, 2\n2:")


def jump(group: Group, row: Row, more: int) -> None:
    """Forward and back, near and far, with every register for the way back."""
    for rd in [name for name in ABI if name != "a2"]:
        text = f"li a2, 1\n{row.name} {rd}, 2f\nli a2, 2\n2:"
        group.once(row.name, f"{row.name} {rd}, forward", ("a2", rd), text)
        text = f"li a2, 1\nj 3f\n2: addi a2, a2, 4\nj 4f\n3: {row.name} {rd}, 2b\nli a2, 2\n4:"
        group.once(row.name, f"{row.name} {rd}, back", ("a2", rd), text)
    for words in (1, 2, 1022, 1023, 1024, 5000, 65536):
        text = f"li a2, 1\n{row.name} a0, 2f\nli a2, 2\n.fill {words}, 4, 0x13\n2: addi a2, a2, 8"
        group.once(row.name, f"{row.name} a0, over {words} words", ("a2", "a0"), text)
        text = f"li a2, 1\nj 3f\n2: addi a2, a2, 4\nj 4f\n.fill {words}, 4, 0x13\n3: {row.name} a0, 2b\n4:"
        group.once(row.name, f"{row.name} a0, back over {words} words", ("a2", "a0"), text)


def jump_register(group: Group, row: Row, more: int) -> None:
    """The lowest bit of where it goes does not count; the register may be the one that is written."""
    for offset in (0, 1, -1, 2, 3, 4, 2047, 2046, -2048, -2047, 100):
        for rd, base in (
            ("a0", "a1"),
            ("a1", "a1"),
            ("ra", "a1"),
            ("a0", "ra"),
            ("zero", "t0"),
            ("t0", "t0"),
            ("ra", "ra"),
        ):
            for odd in (0, 1):
                whole = offset if (offset + odd) % 2 == 0 else offset - 1
                # Odd sums are cut to the even address below.
                at = f"2f - {whole}" if whole >= 0 else f"2f + {-whole}"
                text = f"la {base}, {at}\n{row.name} {rd}, {offset}({base})\nli a2, 2\n2:"
                group.once(row.name, f"{row.name} {rd}, {offset}({base})", ("a2", rd), f"li a2, 1\n{text}")


def thin(more: int) -> int:
    """In a short run only some of all combinations are taken; a prime, so that it is not always the same ones."""
    return 1 if more > 100 else 7


def fused(group: Group, row: Row, more: int) -> None:
    """Three sources in all rounding modes."""
    threes = float_threes(row.name.endswith("d"), 4 * more, thin(more))
    rounded(group, row, f"{row.name} fa3, fa0, fa1, fa2", threes, ("fa0", "fa1", "fa2"), "fa3")


def float_rounded(group: Group, row: Row, more: int) -> None:
    """Two sources in all rounding modes."""
    pairs = float_pairs(row.name.endswith("d"), 4 * more, thin(more))
    rounded(group, row, f"{row.name} fa3, fa0, fa1", pairs, ("fa0", "fa1"), "fa3")


def float_unary_rounded(group: Group, row: Row, more: int) -> None:
    """A square root, or one size to the other."""
    rounded(group, row, f"{row.name} fa3, fa0", float_singles(row.name.endswith("d"), 4 * more), ("fa0",), "fa3")


def to_integer_rounded(group: Group, row: Row, more: int) -> None:
    """Floating point to integer."""
    rounded(group, row, f"{row.name} a2, fa0", float_singles(row.name.endswith("d"), 4 * more), ("fa0",), "a2")


def from_integer_rounded(group: Group, row: Row, more: int) -> None:
    """Integer to floating point."""
    rounded(group, row, f"{row.name} fa3, a0", integers(group.bits, 4 * more), ("a0",), "fa3")


def rounded(  # noqa: PLR0917 - as a sentence
    group: Group, row: Row, text: str, operands: Rows, inputs: Inputs, out: str
) -> None:
    """Each mode in the instruction, with another one in ``frm``; then each in ``frm``."""
    for i, mode in enumerate(MODES):
        flags(group, row, f"{text}, {mode}", operands, inputs, out, f"csrwi frm, {(i + 1) % 5}")
        flags(group, row, f"{text}, dyn", operands, inputs, out, f"csrwi frm, {i}", f" (frm = {mode})")
    for first in inputs[:1]:
        if first[0] == out[0]:
            same = text.replace(out, first, 1)
            flags(group, row, f"{same}, rne", operands[::11], inputs, first, "csrwi frm, 1")


def flags(  # noqa: PLR0917 - as a sentence
    group: Group, row: Row, text: str, operands: Rows, inputs: Inputs, out: str, before: str = "", note: str = ""
) -> None:
    """A floating-point instruction with the flags that it raises."""
    group.loop(row.name, text + note, operands, inputs, (out, "a5"), f"{text}\ncsrrwi a5, fflags, 0", before)


def float_register(group: Group, row: Row, more: int) -> None:
    """Two sources, nothing rounded."""
    pairs = float_pairs(row.name.endswith("d"), more, thin(more))
    out = "a2" if row.format == "FloatCompare" else "fa3"
    flags(group, row, f"{row.name} {out}, fa0, fa1", pairs, ("fa0", "fa1"), out)
    flags(group, row, f"{row.name} {out}, fa0, fa0", float_singles(row.name.endswith("d"), more), ("fa0",), out)
    # Every register, as source and destination.
    for i in range(32):
        a, b, c = f"f{i}", f"f{(i * 7 + 3) % 32}", f"f{(i * 5 + 1) % 32}"
        out = ABI[i] if out[0] != "f" else a
        group.loop(row.name, f"{row.name} {out}, {b}, {c}", pairs[5::97][:40], (b, c), (out,))


def to_integer(group: Group, row: Row, more: int) -> None:
    """Bits and classes."""
    double = row.name.endswith("d")
    flags(group, row, f"{row.name} a2, fa0", float_singles(double, more), ("fa0",), "a2")


def from_integer(group: Group, row: Row, more: int) -> None:
    """Bits."""
    flags(group, row, f"{row.name} fa3, a0", integers(group.bits, more), ("a0",), "fa3")


MAKERS: dict[str, Callable[[Group, Row, int], None]] = {
    "Register": register,
    "Unary": unary,
    "Immediate": immediate,
    "Shift": shift,
    "ShiftWord": shift,
    "Upper": upper,
    "Load": load,
    "FloatLoad": load,
    "Store": store,
    "FloatStore": store,
    "Branch": branch,
    "Jump": jump,
    "JumpRegister": jump_register,
    "FloatFused": fused,
    "FloatRounded": float_rounded,
    "FloatUnaryRounded": float_unary_rounded,
    "FloatToIntRounded": to_integer_rounded,
    "IntToFloatRounded": from_integer_rounded,
    "FloatRegister": float_register,
    "FloatCompare": float_register,
    "FloatToInt": to_integer,
    "IntToFloat": from_integer,
    "Atomic": arch_system.atomic,
    "LoadReserved": arch_system.reserved,
    "Csr": arch_system.csr,
    "CsrImmediate": arch_system.csr_immediate,
    "Fence": arch_system.fence,
    "FenceVma": arch_system.fence_vma,
    "Bare": arch_system.bare,
}
