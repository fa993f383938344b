"""Decoding of words: all of 16 bits, and many of 32 bits, near those of the table and anywhere.

Each is run once, in user mode, with registers that hold zero, in a page from which instructions can be fetched and
nothing can be loaded; nothing else can be reached. Whatever it is ends in a trap, and its cause (illegal, a fault of a
load, store or fetch, or the call behind it) and program counter are what is compared. Words that would go on for ever
are left out, and `wfi`, which machines may refuse to user mode.
"""

from __future__ import annotations

import random

from arch_cases import Group, rows

__all__ = ["ISA", "words"]

# Without streams, which have opcodes that others have no instructions at.
ISA = "imafdc_zicsr_zifencei_zba_zbb_zbs"
# Opcodes of streams and of VarVE, with which other harts, and ours without these, have no instructions.
CUSTOM = (0x0B, 0x2B, 0x5B, 0x7B)
CODE = """    la t0, probed
    csrw mtvec, t0
    csrw mcounteren, zero
    csrw scounteren, zero
    la t0, page
    srli t0, t0, 2
    ori t0, t0, 0x1ff
    csrw pmpaddr0, t0
    li t0, 0x1c
    csrw pmpcfg0, t0
next:
    la s0, state
    LOAD s1, 0(s0)
    LOAD s3, 16(s0)
    beq s1, s3, probed_all
    LOAD a0, 0(s1)
    addi s1, s1, 8
    STORE s1, 0(s0)
    la s4, page + 2048
    li t0, 0x73
    sh a0, 0(s4)
    sh zero, 6(s4)
    andi t1, a0, 3
    addi t1, t1, -3
    beqz t1, 1f
    sh t0, 2(s4)
    sh zero, 4(s4)
    j 2f
1:  srli a0, a0, 16
    sh a0, 2(s4)
    sh t0, 4(s4)
2:  fence.i
    csrw fcsr, zero
    csrw mepc, s4
    li t0, 3 << 11
    csrc mstatus, t0
ZERO
    mret
    .balign 4
probed:
    la s0, state
    LOAD s2, 8(s0)
    csrr s5, mcause
    csrr s6, mepc
    la s4, page + 2048
    sub s6, s6, s4
    STORE s5, 0(s2)
    STORE s6, 8(s2)
    addi s2, s2, 16
    STORE s2, 8(s0)
    j next
    .section .data
    .balign 4096
page: .fill 1024, 4, 0x73
state: .dword operands_0, begin_signature, operands_0_end
    .text
probed_all:
"""


def halves(bits: int) -> list[int]:
    """All of 16 bits but jumps and branches to themselves."""
    jumps = (1, 5, 6, 7) if bits == 32 else (5, 6, 7)

    def itself(half: int) -> bool:
        if half & 3 != 1 or half >> 13 not in jumps:
            return False
        return half & (0x1FFC if half >> 13 < 6 else 0x1C7C) == 0

    return [half for half in range(1 << 16) if half & 3 != 3 and not itself(half)]


def longer(bits: int, more: int) -> list[int]:
    """Instructions of the table with random operands, the same with a bit changed, random and custom words."""
    chance = random.Random(bits)
    found = []
    for row in rows(bits):
        for _ in range(20 + more // 10):
            word = row.bits | chance.getrandbits(32) & ~row.mask
            found += [word, word ^ 1 << chance.randrange(2, 32), word ^ 1 << chance.randrange(2, 32)]
    found += [chance.getrandbits(32) | 3 for _ in range(20_000 + 20 * more)]
    found += [chance.getrandbits(32) & ~0x7F | code for code in CUSTOM for _ in range(50 + more)]
    return [word for word in found if word != 0x10500073 and not itself_32(word)]


def itself_32(word: int) -> bool:
    """Whether it goes to where it is."""
    return (word & 0x7F == 0x6F and word >> 12 == 0) or (word & 0x7F == 0x63 and word & 0xFE000F80 == 0)


def words(bits: int, more: int) -> Group:
    """The program that tries them."""
    group = Group(f"words-{bits}", bits)
    operands = [(word,) for word in [*halves(bits), *longer(bits, more)]]
    group.tables[id(operands)] = ("operands_0", operands)
    code = CODE.replace("LOAD", group.load).replace("STORE", group.store)
    code = code.replace("ZERO", "\n".join(f"    li x{i}, 0" for i in range(1, 32)))
    group.add("words", "a word", ("word",), operands, ("cause", "counter"), [code])
    return group
