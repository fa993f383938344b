"""The makers of blocks for atomics, control and status registers, fences, returns and traps.

``arch_formats`` calls them; :func:`trap` is for any that should end in one.
"""

from __future__ import annotations

from arch_cases import Group, Row, rows
from arch_operands import few, few_pairs, integer_pairs

__all__ = ["atomic", "bare", "csr", "csr_immediate", "fence", "fence_vma", "reserved", "traps"]

ORDERS = ("", ".aq", ".rl", ".aqrl")
REGISTERS = ("mscratch", "fflags", "frm", "fcsr", "mepc", "sscratch", "stvec")
NOTED = ("s7", "s8", "s9")


def atomic(group: Group, row: Row, more: int) -> None:
    """On a word of the signature; what was there, and what is there then."""
    if row.name.startswith("sc"):
        conditional(group, row)
        return
    for i, order in enumerate(ORDERS):
        pairs = few_pairs(group.bits) if i else integer_pairs(group.bits, more)
        text = f"{row.name}{order} a2, a0, (a3)"
        group.loop(
            row.name, text, pairs, ("a0", "a1"), ("[there]", "a2"), f"mv a3, {{s}}\n{group.store} a1, 0(a3)\n{text}"
        )
    for rd, first, base in (
        ("a0", "a0", "a3"),
        ("a3", "a0", "a3"),
        ("a2", "a3", "a3"),
        ("zero", "a0", "a3"),
        ("a2", "zero", "a3"),
    ):
        text = f"{row.name} {rd}, {first}, ({base})"
        start = f"mv a3, {{s}}\n{group.store} a1, 0(a3)\n"
        group.loop(row.name, text, few_pairs(group.bits), ("a0", "a1"), ("[there]", rd), start + text)
    if group.bits == 64 and row.name.endswith(".w"):
        text = f"{row.name} a2, a0, (a3)"
        start = f"addi a3, {{s}}, 4\n{group.store} a1, 0({{s}})\n"
        group.loop(row.name, f"{text} on the upper half", few_pairs(64), ("a0", "a1"), ("[there]", "a2"), start + text)


def reserved(group: Group, row: Row, more: int) -> None:
    """A load, by itself and with a store that follows it."""
    for order in ORDERS:
        text = f"{row.name}{order} a2, (a3)"
        start = f"mv a3, {{s}}\n{group.store} a1, 0(a3)\n"
        group.loop(row.name, text, few(group.bits), ("a1",), ("[there]", "a2"), start + text)
    group.loop(
        row.name, f"{row.name} a3, (a3)", few(group.bits), ("a1",), ("[there]", "a3"), f"{start}{row.name} a3, (a3)"
    )


def conditional(group: Group, row: Row) -> None:
    """A store that follows its load, one that follows that, one elsewhere, one without a load."""
    first = row.name.replace("sc", "lr")
    start = f"mv a3, {{s}}\n{group.store} a1, 0(a3)\n"
    for order in ORDERS:
        both = f"{first}{order} a2, (a3)\n{row.name}{order} a4, a0, (a3)\n"
        text = f"{row.name}{order} a4, a0, (a3)"
        pairs = few_pairs(group.bits)
        group.loop(row.name, text, pairs, ("a0", "a1"), ("[there]", "a2", "a4"), start + both)
        twice = f"{start}{both}addi a0, a0, 1\n{row.name}{order} a5, a0, (a3)"
        group.loop(row.name, f"{text}, twice", pairs, ("a0", "a1"), ("[there]", "a4", "a5"), twice)
        away = f"la a5, scratch\n{first} a2, (a5)\n{row.name}{order} a4, a0, (a3)"
        group.loop(row.name, f"{text}, loaded elsewhere", pairs, ("a0", "a1"), ("[there]", "a4"), start + away)
    same = f"{start}{first} a2, (a3)\n{row.name} a0, a0, (a3)"
    group.loop(row.name, f"{row.name} a0, a0, (a3)", pairs, ("a0", "a1"), ("[there]", "a0"), same)


def csr(group: Group, row: Row, more: int) -> None:
    """Values before and after an access, of registers that all machines have."""
    for register in REGISTERS:
        for rd, first in (("a2", "a0"), ("zero", "a0"), ("a0", "a0"), ("a2", "zero")):
            text = f"{row.name} {rd}, {register}, {first}"
            body = f"csrw {register}, a1\n{text}\ncsrr a3, {register}\ncsrr a4, fcsr\ncsrw fcsr, zero"
            group.loop(row.name, text, pairs_for(register, group.bits), ("a0", "a1"), (rd, "a3", "a4"), body)


def csr_immediate(group: Group, row: Row, more: int) -> None:
    """The same with five bits."""
    for register in REGISTERS:
        for value in (0, 1, 2, 4, 7, 8, 16, 21, 30, 31):
            for rd in ("a2", "zero"):
                if register == "frm" and value > 7 or register == "stvec":
                    continue
                text = f"{row.name} {rd}, {register}, {value}"
                body = f"csrw {register}, a1\n{text}\ncsrr a3, {register}\ncsrr a4, fcsr\ncsrw fcsr, zero"
                group.loop(row.name, text, few(group.bits), ("a1",), (rd, "a3", "a4"), body)


def pairs_for(register: str, bits: int) -> list[tuple[int, ...]]:
    """Values that a register may be given: not what each machine may take or leave."""
    pairs = list(few_pairs(bits))
    if register == "stvec":
        # Modes above 1 are reserved.
        return [(a & ~3, b & ~3) for a, b in pairs]
    return pairs


def fence(group: Group, row: Row, more: int) -> None:
    """Nothing is to be seen of it but that it goes on."""
    for text in (
        "fence",
        "fence rw, rw",
        "fence r, w",
        "fence iorw, iorw",
        "fence.tso",
        "fence w, o",
        ".insn i 0x0f, 0, a0, a1, 0x033",
    ):
        group.once(row.name, text, ("a0", "a1"), f"li a0, 7\nli a1, 9\n{text}")


def fence_vma(group: Group, row: Row, more: int) -> None:
    """Of all, of an address, of a space."""
    for text in ("sfence.vma", "sfence.vma a0", "sfence.vma zero, a1", "sfence.vma a0, a1"):
        group.once(row.name, text, ("a0",), f"li a0, 7\nli a1, 9\n{text}")


def bare(group: Group, row: Row, more: int) -> None:
    """Code that was written a moment ago; calls; returns into each mode; waiting for what is there already."""
    if row.name == "fence.i":
        for word in (0x00100513, 0x00200513, 0x7FF00513, 0x80000513):
            text = f"la a1, 2f\nli a2, {word:#x}\nsw a2, 0(a1)\nfence.i\nli a0, 9\n2: li a0, 5"
            group.once(row.name, f"fence.i after storing {word:#x}", ("a0",), text)
        return
    if row.name == "wfi":
        text = "csrwi mie, 2\ncsrwi mip, 2\nwfi\nli a0, 1\ncsrwi mip, 0\ncsrwi mie, 0"
        group.once(row.name, "wfi with an interrupt pending", ("a0",), text)
        return
    if row.name in ("ecall", "ebreak"):
        trap(group, row.name, row.name, "ebreak" if row.name == "ebreak" else "value")
        return
    assert row.name in ("mret", "sret"), f"no case for {row.name}"
    for mode in (0, 1, 3) if row.name == "mret" else (0, 1):
        # There, a call comes back: its cause tells the mode that it came from.
        if row.name == "mret":
            begin = (
                f"li t0, 3 << 11\ncsrc mstatus, t0\nli t0, {mode} << 11\ncsrs mstatus, t0\nla t0, 2f\ncsrw mepc, t0\n"
            )
        else:
            begin = f"li t0, 1 << 8\ncsrc mstatus, t0\nli t0, {mode} << 8\ncsrs mstatus, t0\nla t0, 2f\ncsrw sepc, t0\n"
        for bits_before in (0, 0x80, 0x20, 0xA0):
            set_ = f"li t0, 0xaa\ncsrc mstatus, t0\nli t0, {bits_before}\ncsrs mstatus, t0\n"
            seen = "li a3, 0x219aa\ncsrr a4, mstatus\nand a4, a4, a3\nli t0, 0xaa\ncsrc mstatus, t0\n"
            text = f"la s10, 3f\n{set_}{begin}{row.name}\n2: ecall\n3: {seen}"
            group.once(row.name, f"{row.name} to mode {mode} with mstatus {bits_before:#x}", (*NOTED, "a4"), text)


def trap(group: Group, name: str, text: str, value: str = "value", start: str = "") -> None:
    """A trap's cause, counter and value; of a value that may be zero, whether it is that or what it may else be."""
    check = {
        "value": "",
        "illegal": "la t0, 2b\nlhu t1, 2(t0)\nlhu t0, 0(t0)\nslli t1, t1, 16\nor t1, t1, t0\n"
        + either("t1")
        + either("t0"),
        "ebreak": "la t0, 2b\n" + either("t0"),
        "half": "la t0, 2b\nlhu t0, 0(t0)\n" + either("t0"),
    }[value]
    where = "la t0, 2b\nsub s8, s8, t0\n"
    # QEMU 7.2 stops where it looks for semihosting around a call to the debugger that is the first of a page.
    apart = ".option rvc\n.balign 64\n.option norvc\n"
    body = (
        f"{apart}{start}\nla s10, 3f\nli s7, -1\nli s8, -1\nli s9, -1\n2: {text}\nj 4f\n.balign 4\n3: {where}{check}4:"
    )
    group.once(name, f"trap of {text}", NOTED, body)


def either(other: str) -> str:
    """Zero in the value's place, if it is this."""
    return f"bne s9, {other}, 5f\nli s9, 0\n5:"


def traps(group: Group) -> None:
    """Illegal instructions, and what goes to where nothing is."""
    words = [
        0xFFFFFFFF,
        0x0000007F,
        0x00007033 | 0x7F << 25,
        0x00004063 - 0x2000,
        0x00007003,
        0x00004023,
        0x30200073 | 1 << 20,
    ]
    # A rounding mode that there is not, in the instruction; a shift beyond the width; reserved forms of others.
    words += [
        0x00005553,
        0x00006553,
        0x02005053,
        0x5805F553,
        0x00003067 | 1 << 12,
        0x1000302F if group.bits == 32 else 0x1000502F,
    ]
    if group.bits == 32:
        words += [
            0x02051513,
            0x42055513,
            0x00053503,
            0x00053023,
            0x00056503,
            0x0000003B,
            0x0000001B,
            0xD2200053,
            0xE2000053,
        ]
    else:
        words += [0x04051513, 0x0205151B, 0x00057503, 0x00054023]
    for word in words:
        trap(group, "illegal", f".word {word:#010x}", "illegal")
    for mode in (5, 6, 7):
        for text in ("fadd.s fa0, fa1, fa2, dyn", "fcvt.w.d a0, fa0, dyn", "fsqrt.d fa0, fa0, dyn"):
            trap(group, "illegal", text, "illegal", f"csrwi frm, {mode}")
    group.once("illegal", "csrwi frm, 0", ("zero",))
    # Floating point that is switched off.
    off, on = "li t0, 3 << 13\ncsrc mstatus, t0", "li t0, 1 << 13\ncsrs mstatus, t0"
    for text in (
        "fadd.s fa0, fa1, fa2, rne",
        "flw fa0, 0(a0)",
        "fsd fa0, 0(a0)",
        "csrr a0, fcsr",
        "csrwi fflags, 1",
        "fmv.x.w a0, fa0",
    ):
        trap(group, "illegal", text, "illegal", f"la a0, scratch\n{off}")
        group.once("illegal", "floating point on again", ("zero",), on)
    for text in (
        "csrr a0, 0x5c0",
        "csrw mhartid, a0",
        "csrw cycle, a0",
        "csrrs a0, mvendorid, a1",
        "csrrwi zero, mhartid, 0",
    ):
        trap(group, "illegal", text, "illegal", "li a1, 0")
    group.once("csrrs", "csrrs a0, mhartid, zero", ("a0",))
    # At addresses without memory.
    for row in rows(group.bits):
        if row.format in ("Load", "Store", "FloatLoad", "FloatStore"):
            register = "fa0" if "Float" in row.format else "a0"
            trap(group, row.name, f"{row.name} {register}, 16(a1)", "value", "li a1, 0x40000000")
        elif row.format in ("Atomic", "LoadReserved"):
            source = "a0, " if row.format == "Atomic" else ""
            if not row.name.startswith("sc"):
                trap(group, row.name, f"{row.name} a2, {source}(a1)", "value", "li a1, 0x40000000")
    body = "la s10, 3f\nli a0, 0x40000000\nj 2f\n.balign 4\n3: j 4f\n2: jr a0\n4:"
    group.once("jalr", "jalr to where nothing is", NOTED, body)
