"""Architecture tests of ours: every instruction of the hart's table on operands at the edges, for bare machines.

A :class:`Group` is an assembly program by the community's conventions (``tohost``, ``begin_signature``,
``end_signature``). It is made of blocks: one instruction with its registers and immediate, run over a table of operands
(or once), its results stored into the signature, eight bytes each. A block can say in words what any eight bytes of
the signature are. The list of instructions is read from the rows of ``isa/table.rs`` and ``isa/compressed.rs``, so
that a new one without a case is noticed.

``arch_run`` builds, runs and compares; operands are in ``arch_operands``, and the makers of blocks for each format in
``arch_formats``, ``arch_system`` and ``arch_compressed``. Misaligned atomics, and values of traps that the
specification leaves to the machine, are not tested.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["EXTENSIONS", "Block", "Group", "Row", "rows"]

ISA = Path(__file__).parents[2] / "crates" / "nandarray-hart" / "src" / "isa"
EXTENSIONS = ("I", "M", "A", "F", "D", "C", "Zicsr", "Zifencei", "Zba", "Zbb", "Zbs", "Privileged")
# Registers that a block may take for itself: the table of operands, its end, the signature.
OWN = ("s0", "s1", "s2", "t4", "t5", "t6", "ra", "gp", "tp")
FILL = 0xDEADBEEF

HEAD = """    .option norvc
    .section .text.start, "ax"
    .globl _start
_start:
    la t0, handler
    csrw mtvec, t0
    li t0, 1 << 13 | 1 << 9
    csrs mstatus, t0
    csrw fcsr, zero
    li t0, -1
    csrw pmpaddr0, t0
    li t0, 0x1f
    csrw pmpcfg0, t0
    la s10, lost
    j main
    /* A trap is noted in registers; it returns to where the case says, in machine mode. */
    .balign 4
handler:
    csrr s7, mcause
    csrr s8, mepc
    csrr s9, mtval
    csrw mepc, s10
    li s10, 3 << 11
    csrs mstatus, s10
    la s10, lost
    mret
lost:
    li a0, 3
    j leave
main:
"""
# By semihosting, where the word `dump` asks for it, the signature goes to the file `signature`.
TAIL = """finish:
    li a0, 1
    lw t0, dump
    beqz t0, leave
    li a0, 1
    la a1, open_file
    call host
    la a1, write_file
    STORE a0, 0(a1)
    li a0, 5
    call host
    li a0, 0x18
    la a1, done
    li t0, XLEN
    li t1, 32
    bne t0, t1, host
    li a1, 0x20026
host:
    .balign 16
    slli zero, zero, 0x1f
    ebreak
    srai zero, zero, 7
    ret
leave:
    la t0, tohost
    sw zero, 4(t0)
    sw a0, 0(t0)
    j leave

    /* In a page without code: QEMU's translator cannot go on into one that has a device. */
    .section .tohost, "aw"
    .balign 4096
    .globl tohost, fromhost
    .size tohost, 8
    .size fromhost, 8
tohost: .dword 0
fromhost: .dword 0

    .section .data
    .globl dump, begin_signature, end_signature
    .balign 64
dump: .dword 0
open_file: WORD name, 5, 9
write_file: WORD 0, begin_signature, end_signature - begin_signature
done: WORD 0x20026, 0
name: .asciz "signature"
    .balign 64
    .rept 520
    .byte 0x01, 0x82, 0x7f, 0xff, 0x80, 0x00, 0x93, 0x24, 0xc5, 0x56
    .endr
    .balign 16
pattern:
    .rept 520
    .byte 0xf0, 0x8f, 0x10, 0x91, 0xfe, 0x03, 0xe7, 0x7c, 0x80, 0xaa, 0x00
    .endr
    .balign 64
scratch: .zero 128
"""


@dataclass(frozen=True)
class Row:
    """An instruction of the table."""

    name: str
    extension: str
    width: str
    format: str
    mask: int
    bits: int


def rows(bits: int, table: str = "table") -> list[Row]:
    """The table's instructions (or those of ``compressed``) for one register width, without streams."""
    text = (ISA / f"{table}.rs").read_text()
    found = re.findall(r'^ {4,}(?:\w+ )?"(\S+)" (?:\w+ )??(\w+) (Both|Rv32|Rv64) (\w+) (0x\w+) (0x\w+);$', text, re.M)
    all_of_them = [Row(*some, int(mask, 16), int(match, 16)) for *some, mask, match in found]
    assert len(all_of_them) == len(re.findall(r"^ {4,}.* 0x\w+ 0x\w+;$", text, re.M))
    fitting = [r for r in all_of_them if r.width in ("Both", f"Rv{bits}")]
    return [r for r in fitting if r.extension not in {"Stream", "Varve"} and r.format != "Illegal"]


@dataclass
class Block:
    """Cases that lie together in the signature: one instruction over a table of operands."""

    name: str
    text: str
    offset: int
    names: Sequence[str]
    operands: Sequence[Sequence[int]]
    results: Sequence[str]

    @property
    def end(self) -> int:
        """The offset of the next block."""
        return self.offset + 8 * len(self.results) * len(self.operands)

    def describe(self, at: int) -> tuple[str, str]:
        """Return the case and the name of the result at an offset in the signature."""
        case, result = divmod((at - self.offset) // 8, len(self.results))
        with_ = " ".join(f"{name}={value:#x}" for name, value in zip(self.names, self.operands[case], strict=True))
        return f"`{self.text}`" + (f" with {with_}" if with_ else ""), self.results[result]


@dataclass
class Group:
    """One program: blocks, and the tables that they share."""

    name: str
    bits: int
    code: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    tables: dict[int, tuple[str, Sequence[Sequence[int]]]] = field(default_factory=dict)
    size: int = 0

    @property
    def load(self) -> str:
        return "ld" if self.bits == 64 else "lw"

    @property
    def store(self) -> str:
        return "sd" if self.bits == 64 else "sw"

    @property
    def cases(self) -> int:
        """Number of cases."""
        return sum(len(block.operands) for block in self.blocks)

    def loop(  # noqa: PLR0917 - as a sentence
        self,
        name: str,
        text: str,
        operands: Sequence[Sequence[int]],
        inputs: Sequence[str],
        results: Sequence[str],
        body: str = "",
        before: str = "",
    ) -> None:
        """One instruction over a table of operands.

        ``inputs`` are the registers that take a row's values; ``results`` the registers that are stored behind each
        other, where one in brackets says what is in memory there already. ``body`` is what is run, if it is more than
        ``text``, with ``{s}`` for the register that points into the signature.
        """
        body = body or text
        used = set(re.findall(r"[a-z]+\d*", " ".join([body, *inputs, *results])))
        table, end, here = [register for register in OWN if register not in used][:3]
        label = self.tables.setdefault(id(operands), (f"operands_{len(self.tables)}", operands))[0]
        lines = [
            before,
            f"la {table}, {label}",
            f"la {end}, {label}_end",
            f"la {here}, begin_signature + {self.size}",
            "1:",
        ]
        for i, register in enumerate(inputs):
            if register != "zero":
                lines.append(f"{'fld' if is_float(register) else self.load} {register}, {8 * i}({table})")
        lines.append(body.format(s=here))
        lines += self.stores(results, here)
        lines += [f"addi {table}, {table}, {8 * max(1, len(inputs))}", f"addi {here}, {here}, {8 * len(results)}"]
        # Not a branch: what lies between may be far.
        lines += [f"beq {table}, {end}, 1f", "j 1b", "1:"]
        self.add(name, text, inputs, operands, results, lines)

    def once(self, name: str, text: str, results: Sequence[str], body: str = "") -> None:
        """Something that has no operands but what is in its text. In it, ``{slot}`` is its place in the signature."""
        body = (body or text).replace("{slot}", f"begin_signature + {self.size}")
        used = set(re.findall(r"[a-z]+\d*", " ".join([body, *results])))
        here = next(register for register in OWN if register not in used)
        lines = [body, f"la {here}, begin_signature + {self.size}", *self.stores(results, here)]
        self.add(name, text, (), [()], results, lines)

    def stores(self, results: Sequence[str], here: str) -> Iterator[str]:
        """The results, behind each other."""
        for i, register in enumerate(results):
            if not register.startswith("["):
                yield f"{'fsd' if is_float(register) else self.store} {register}, {8 * i}({here})"

    def add(  # noqa: PLR0917 - as a sentence
        self,
        name: str,
        text: str,
        names: Sequence[str],
        operands: Sequence[Sequence[int]],
        results: Sequence[str],
        lines: list[str],
    ) -> None:
        """A block with its code."""
        self.blocks.append(Block(name, " ".join(text.split()), self.size, names, operands, results))
        self.size = self.blocks[-1].end
        self.code += lines

    def source(self) -> str:
        """The program."""
        tail = TAIL.replace("XLEN", str(self.bits)).replace("WORD", ".dword" if self.bits == 64 else ".word")
        tail = tail.replace("STORE", self.store)
        lines = [HEAD, *self.code, "j finish", tail]
        for label, operands in self.tables.values():
            # A loop without operands still takes a step for each row.
            values = [", ".join(hex(value & (1 << 64) - 1) for value in row or (0,)) for row in operands]
            lines += [".balign 8", f"{label}:", *(f".dword {row}" for row in values), f"{label}_end:"]
        lines += [".balign 64", "begin_signature:", f".fill {self.size // 4}, 4, {FILL:#x}", "end_signature:", ""]
        return "\n".join(lines)

    def find(self, at: int) -> Block:
        """The block that an offset in the signature is in."""
        return next(block for block in self.blocks if at < block.end)


def is_float(register: str) -> bool:
    """Whether it is a floating-point register's name."""
    return register.startswith("f")
