"""The makers of blocks for 16-bit instructions, by the formats of ``isa/compressed.rs``.

``arch_formats`` calls :func:`make` for each row; a format without a case is an error.
"""

from __future__ import annotations

from arch_cases import Group, Row
from arch_operands import Rows, few, few_pairs, integers
from arch_system import trap

__all__ = ["make"]

SHORT = ("s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5")
SIX = (-32, -31, -17, -16, -8, -2, -1, 1, 2, 3, 4, 7, 8, 15, 16, 21, 30, 31)
ALL = ("ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", *(f"a{i}" for i in range(8)))
ALL += (*(f"s{i}" for i in range(2, 12)), *(f"t{i}" for i in range(3, 7)))


def short(text: str) -> str:
    """The text in its 16-bit form."""
    return f".option rvc\n{text}\n.option norvc"


def make(group: Group, row: Row) -> None:
    """The blocks of one row."""
    name, width = row.name, group.bits

    def over(text: str, registers: tuple[str, ...], result: str, operands: Rows | None = None) -> None:
        values = few(width) if len(registers) == 1 else few_pairs(width)
        group.loop(name, text, operands or values, registers, (result,), short(text))

    match row.format:
        case "Addi4spn":
            for value in (4, 8, 12, 16, 32, 64, 128, 256, 512, 1020, 340, 680):
                for rd in SHORT[::3]:
                    over(f"{name} {rd}, sp, {value}", ("sp",), rd)
        case "Addi":
            for value in SIX if name == "c.addi" else (*SIX, 0):
                over(f"{name} a0, {value}", ("a0",), "a0")
            for rd in ALL:
                over(f"{name} {rd}, -5", (rd,), rd)
            if name == "c.addi":
                group.once(name, "c.nop", ("zero",), short("c.nop"))
        case "Li":
            for i, value in enumerate((*SIX, 0)):
                group.once(name, f"{name} {ALL[i]}, {value}", (ALL[i],), short(f"{name} {ALL[i]}, {value}"))
        case "Lui":
            for i, value in enumerate((1, 2, 4, 8, 16, 21, 30, 31, 0xFFFE0, 0xFFFE1, 0xFFFF0, 0xFFFFE, 0xFFFFF)):
                rd = ALL[i + 2]
                group.once(name, f"{name} {rd}, {value:#x}", (rd,), short(f"{name} {rd}, {value:#x}"))
        case "Addi16sp":
            for value in (-512, -496, -256, -128, -64, -32, -16, 16, 32, 64, 128, 256, 496, 336):
                over(f"{name} sp, {value}", ("sp",), "sp")
        case "Shift" | "ShiftP":
            for amount in range(1, width):
                over(f"{name} a0, {amount}", ("a0",), "a0")
            for rd in ALL if row.format == "Shift" else SHORT:
                over(f"{name} {rd}, 3", (rd,), rd)
        case "AndiP":
            for value in (*SIX, 0):
                over(f"{name} a0, {value}", ("a0",), "a0", integers(width, 0))
            for rd in SHORT:
                over(f"{name} {rd}, -5", (rd,), rd)
        case "RegisterP":
            for first in SHORT:
                for second in SHORT:
                    if first != second:
                        over(f"{name} {first}, {second}", (first, second), first)
                over(f"{name} {first}, {first}", (first,), first)
        case "Move" | "Add":
            for i, rd in enumerate(ALL):
                other = ALL[(i * 7 + 5) % len(ALL)]
                if other != rd:
                    over(f"{name} {rd}, {other}", (rd, other), rd)
            over(f"{name} a0, a0", ("a0",), "a0")
        case "LoadW" | "LoadD" | "LoadSpW" | "LoadSpD":
            load(group, row)
        case "StoreW" | "StoreD" | "StoreSpW" | "StoreSpD":
            store(group, row)
        case "Jump" | "Link":
            for space in (0, 2, 6, 250, 1000, 2000):
                pad = f".fill {space // 2}, 2, 1\n"
                ahead = short(f"li a2, 1\n{name} 2f\n{pad}2: addi a2, a2, 4")
                group.once(name, f"{name} over {space} bytes", ("a2", "ra"), f"li ra, 0\n{ahead}")
                back = short(f"li a2, 1\nj 3f\n{pad}2: addi a2, a2, 4\nj 4f\n{pad}3: {name} 2b\n4:")
                group.once(name, f"{name} back over {space} bytes", ("a2", "ra"), f"li ra, 0\n{back}")
        case "Branch":
            for register in SHORT:
                ahead = f"li t0, 1\n{short(f'{name} {register}, 2f')}\nli t0, 2\n2:"
                group.loop(name, f"{name} {register}, forward", few(width), (register,), ("t0",), ahead)
                back = f"li t0, 1\nj 3f\n2: addi t0, t0, 4\nj 4f\n3:\n{short(f'{name} {register}, 2b')}\n4:"
                group.loop(name, f"{name} {register}, back", few(width), (register,), ("t0",), back)
            for space in (100, 240):
                gap = f".fill {space // 4}, 4, 0x13\n"
                far = f"li t0, 1\n{short(f'{name} a0, 2f')}\nli t0, 2\nj 3f\n{gap}2: addi t0, t0, 4\n3:"
                group.loop(name, f"{name} a0, over {space} bytes", few(width), ("a0",), ("t0",), far)
        case "JumpRegister" | "LinkRegister":
            for register in ALL:
                other = "a2" if register != "a2" else "a3"
                text = f"la {register}, 2f\nli {other}, 1\n{short(f'{name} {register}')}\nli {other}, 2\n.balign 4\n2:"
                group.once(name, f"{name} {register}", (other, "ra"), f"li ra, 0\n{text}")
        case "Bare":
            trap(group, name, short("c.ebreak"), "ebreak")
            trap(group, name, short("c.ebreak"), "ebreak", short("c.nop"))
        case "Reserved":
            trap(group, name, f".half {row.bits:#06x}\n.half 1", "half")
        case other:
            raise AssertionError(f"no case for the format {other}")


def offsets(row: Row) -> list[int]:
    """Some that the form has."""
    size = 8 if row.format.endswith("D") else 4
    top = 64 if "Sp" in row.format else 32
    return [size * value for value in (*range(4), 7, 8, 15, 16, 21, 30, 31, top - 1) if value < top]


def load(group: Group, row: Row) -> None:
    """Over its offsets, then over its registers."""
    kind, base = row.name[2:4] == "fl", "sp" if "Sp" in row.format else "a1"
    registers = [f"fa{i}" for i in range(6)] + ["fs0", "fs1"] if kind else [name for name in SHORT if name != base]
    if base == "sp":
        registers = [f"f{i}" for i in range(32)] if kind else list(ALL)
    for rd, offset in [(registers[2], offset) for offset in offsets(row)] + [(name, 8) for name in registers]:
        for start in (0, 1, 40):
            text = f"{row.name} {rd}, {offset}({base})"
            group.once(
                row.name, f"{text} from pattern + {start}", (rd,), f"la {base}, pattern + {start}\n{short(text)}"
            )


def store(group: Group, row: Row) -> None:
    """The same; what is around it must stay."""
    kind, base = row.name[2:4] == "fs", "sp" if "Sp" in row.format else "a1"
    registers = [f"fa{i}" for i in range(6)] + ["fs0", "fs1"] if kind else [name for name in SHORT if name != base]
    if base == "sp":
        registers = [f"f{i}" for i in range(32)] if kind else [name for name in ALL if name != "sp"]
    for i, (name, offset) in enumerate(
        [(registers[2], offset) for offset in offsets(row)] + [(name, 8) for name in registers]
    ):
        for distance in (0, 1):
            text = f"{row.name} {name}, {offset}({base})"
            first = f"la {base}, pattern + {16 * i}\n" + (
                f"fld {name}, 0({base})" if kind else f"{group.load} {name}, 0({base})"
            )
            body = f"{first}\nla {base}, {{slot}} + {8 + distance - offset}\n{short(text)}"
            group.once(row.name, f"{text} at slot + {8 + distance}", ("[before]", "[there]", "[behind]"), body)
