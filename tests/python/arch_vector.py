"""Architecture tests of the vector instructions: random and edge operands, types, lengths, masks and register groups.

Each block is one instruction with its registers, a vector type and settings; it runs over rows of a pool of bytes that
holds edge integers and floating-point numbers beside random ones. All vector registers are loaded from the pool, and
the results are the registers of the destination's group, a sum over all registers, a sum over the memory that stores
go to, and the state of the unit: length, type, ``vstart``, flags, and the trap if there is one. Half of the register
groups are legal by construction, the others are drawn, so that the rules for groups are compared, too.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from arch_cases import Group, Row, rows

__all__ = ["ALONE", "STATE", "Vectors", "vector_groups"]

SEWS = (8, 16, 32, 64)
ROUNDS = 4
# The program of the instructions that QEMU 7.2 cannot translate in each form: it stops at them.
ALONE = "rtz"
# Words of the state in front of the registers.
STATE = ("vstart", "vl", "vtype", "vcsr and fcsr", "mcause", "mtval", "x[rd]", "f[rd]", "registers", "memory")
EDGES_32 = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001)
EDGES_32 += (0x00800000, 0x007FFFFF, 0x80000001, 0x4F000000, 0xCF000000, 0x5F000000, 0x3F000000, 0xBFC00000, 0x00200000)
EDGES_64 = (0x7FF0000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x3FF0000000000000, 0x8000000000000000)
EDGES_64 += (0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x47EFFFFFF0000000, 0x36A0000000000001, 0x43E0000000000000)
EDGES_64 += (0x7FFFFFFFFFFFFFFF, 0x38000FFFFF000001, 0xC3E0000000000000, 0x0000000000000001, 0x0004000000000000)


def pool(chance: random.Random, size: int) -> bytes:
    """Bytes that every operand comes from."""
    found = bytearray()
    while len(found) < size:
        kind = chance.randrange(8)
        if kind < 2:
            found += struct.pack("<II", chance.choice(EDGES_32), chance.choice(EDGES_32))
        elif kind == 2:
            found += struct.pack("<Q", chance.choice(EDGES_64))
        elif kind == 3:
            found += bytes(chance.choice((0, 1, 0x7F, 0x80, 0xFF)) for _ in range(8))
        elif kind == 4:
            found += struct.pack("<ff", chance.uniform(-300, 300), chance.uniform(-2, 2))
        elif kind == 5:
            found += struct.pack("<d", chance.uniform(-(2**40), 2**40))
        else:
            found += chance.randbytes(8)
    return bytes(found[:size])


def legal_registers(chance: random.Random, lmul: float) -> tuple[int, int, int]:
    """A destination and two sources that no rule forbids, as far as groups of twice the size go."""
    step = max(1, int(2 * lmul))
    places = [n for n in range(0, 32, step) if n > 0]
    drawn = chance.sample(places, min(3, len(places)))
    return tuple((drawn * 3)[:3])  # type: ignore[return-value]


def operands(row: Row, chance: random.Random, lmul: float) -> tuple[str, int, int, int, int]:
    """Operands as text, the destination, the fields of segments, the register of indices, and the encoding."""
    d, a, b = legal_registers(chance, lmul)
    if chance.random() < 0.4:
        d, a, b = (chance.randrange(32) for _ in range(3))
        if chance.random() < 0.3:
            a = d
    masked = chance.random() < 0.5
    fixed, free = "" if row.bits >> 25 & 1 else ", v0", ", v0.t" if masked else ""
    mask = fixed if row.mask >> 25 & 1 else free
    signed, unsigned = chance.randrange(-16, 16), chance.randrange(32)
    fields = 1
    if row.format in {"VectorUnit", "VectorStrided", "VectorIndexed"} and not row.mask >> 29 and chance.random() < 0.5:
        fields = chance.randrange(2, 9)
    text = {
        "VectorVv": f"v{d}, v{b}, v{a}",
        "VectorVx": f"v{d}, v{b}, a3",
        "VectorVi": f"v{d}, v{b}, {signed}",
        "VectorVu": f"v{d}, v{b}, {unsigned}",
        "VectorVf": f"v{d}, v{b}, fa0",
        "VectorMulV": f"v{d}, v{a}, v{b}",
        "VectorMulX": f"v{d}, a3, v{b}",
        "VectorMulF": f"v{d}, fa0, v{b}",
        "VectorUnary": f"v{d}, v{b}",
        "VectorMoveV": f"v{d}, v{a}",
        "VectorMoveX": f"v{d}, a3",
        "VectorMoveI": f"v{d}, {signed}",
        "VectorMoveF": f"v{d}, fa0",
        "VectorToX": f"a4, v{b}",
        "VectorToF": f"fa1, v{b}",
        "VectorId": f"v{d}",
        "VectorUnit": f"v{d}, (a6)",
        "VectorStrided": f"v{d}, (a6), a5",
        "VectorIndexed": f"v{d}, (a6), v{b}",
    }[row.format]
    x = {"a3": 13, "a4": 14, "a5": 15, "a6": 16, "fa0": 10, "fa1": 11}
    places = {"d": 7, "b": 20, "a": 15}
    names = [part.strip("()") for part in text.split(", ")]
    order = {
        "VectorMulV": "dab",
        "VectorMulX": "dab",
        "VectorMulF": "dab",
        "VectorMoveV": "da",
        "VectorMoveX": "da",
        "VectorMoveI": "da",
        "VectorMoveF": "da",
        "VectorUnit": "da",
        "VectorStrided": "dab",
        "VectorIndexed": "dab",
    }.get(row.format, "dba")
    # As data: an assembler refuses groups that are not legal.
    word = row.bits | (fields - 1) << 29
    for name, place in zip(names, order, strict=False):
        number = x[name] if name in x else int(name.lstrip("v")) & 31
        word |= number << places[place]
    if not row.mask >> 25 & 1 and not masked:
        word |= 1 << 25
    return text + mask, d, fields, b, word


def segment_name(name: str, fields: int) -> str:
    """The name of a load or store of segments."""
    at = name.find("e")
    return name if fields == 1 else f"{name[:at]}seg{fields}{name[at:]}"


def _calls(store: str, vlenb: int) -> str:
    """Return the end of a program: functions that its blocks call."""
    return f"""
    j finish
note_state:
    csrr t0, vstart
    {store} t0, 0(s2)
    csrr t0, vl
    {store} t0, 8(s2)
    csrr t0, vtype
    {store} t0, 16(s2)
    csrr t0, vcsr
    csrr t1, fcsr
    slli t1, t1, 8
    or t0, t0, t1
    {store} t0, 24(s2)
    {store} s7, 32(s2)
    {store} s9, 40(s2)
    {store} a4, 48(s2)
    fsd fa1, 56(s2)
    csrwi vstart, 0
    la t1, registers
    li t2, {8 * vlenb}
    vs8r.v v0, (t1)
    add t1, t1, t2
    vs8r.v v8, (t1)
    add t1, t1, t2
    vs8r.v v16, (t1)
    add t1, t1, t2
    vs8r.v v24, (t1)
    la t1, registers
    li t2, {32 * vlenb}
    add t2, t2, t1
    mv t5, ra
    call sum
    {store} t3, 64(s2)
    la t1, area
    la t2, area_end
    call sum
    {store} t3, 72(s2)
    mv ra, t5
    addi t0, s2, 80
    ret
sum:
    li t3, 0
1:  lw t4, 0(t1)
    slli t0, t3, 5
    sub t3, t0, t3
    add t3, t3, t4
    addi t1, t1, 4
    bne t1, t2, 1b
    ret
fill_area:
    la t1, area
    la t2, area_end
    li t3, 0x1234567
1:  sw t3, 0(t1)
    slli t0, t3, 3
    add t3, t3, t0
    addi t3, t3, 77
    addi t1, t1, 4
    bne t1, t2, 1b
    ret
"""


class Vectors(Group):
    """A program of vector instructions."""

    def __init__(self, name: str, bits: int, vlen: int, chance: random.Random, rounds: int = ROUNDS) -> None:
        """With a pool of its own; each block runs over ``rounds`` rows of it."""
        super().__init__(name, bits)
        self.vlen, self.chance, self.rounds = vlen, chance, rounds
        self.bytes = pool(chance, 32 * vlen // 8 + 64 * rounds + 4096)

    @property
    def results(self) -> list[str]:
        """The words of a case."""
        each = self.vlen // 64
        return [*STATE, *(f"v[{r}] word {w}" for r in range(8) for w in range(each))]

    def block(self, row: Row, sew: int, lmul: float, more: str = "") -> None:
        """One instruction over rows of the pool."""
        chance, vlenb = self.chance, self.vlen // 8
        text, d, fields, index, word = operands(row, chance, lmul)
        name = segment_name(row.name, fields)
        lmul_bits = {1: 0, 2: 1, 4: 2, 8: 3, 0.125: 5, 0.25: 6, 0.5: 7}[lmul]
        vtype = lmul_bits | (sew.bit_length() - 4) << 3
        is_memory = row.format in {"VectorUnit", "VectorStrided", "VectorIndexed"}
        is_float = row.extension == "Zve32f"
        vstart = chance.randrange(1, 9) if is_memory and chance.random() < 0.2 else 0
        frm = chance.choice((0, 0, 1, 2, 3, 4)) if is_float else 0
        if is_float and chance.random() < 0.02:
            frm = 5
        stride = chance.choice((0, 1, 2, 4, 8, 12, 16, -8, 24))
        # Seldom the address is such that the access ends behind the memory.
        base = "memory_end - 24" if is_memory and chance.random() < 0.1 else "area + 1024"
        prepare = []
        if row.format == "VectorIndexed":
            width = int(row.name.removesuffix(".v").rsplit("i", 1)[1])
            prepare = [f"vsetvli t0, zero, e{width}, m1, tu, mu", "li t1, 0x7f"]
            prepare += [f"vand.vx v{r}, v{r}, t1" for r in range(index, min(index + 8, 32))]
        offset = 64 * chance.randrange(0, 32)
        length = len(self.results) * 8
        here = f"begin_signature + {self.size}"
        lines = [
            f"la s0, pool + {offset}",
            f"la s2, {here}",
            f"li s1, {self.rounds}",
            "1:",
            "call fill_area" if is_memory else "",
            *(f"li t0, {8 * n * vlenb}\n add t0, t0, s0\n vl8re8.v v{8 * n}, (t0)" for n in range(4)),
            *prepare,
            "lbu a1, 3(s0)",
            "fld fa0, 8(s0)",
            "fld fa1, 24(s0)",
            f"{self.load} a3, 16(s0)",
            f"{self.load} a4, 32(s0)",
            f"li a5, {stride}",
            f"la a6, {base}" if "end" not in base else f"li a6, 0x80000000 + 0x1000000 - 24\n{more}",
            f"li t0, {vtype}",
            "vsetvl zero, a1, t0" if chance.random() < 0.7 else "vsetvl t1, zero, t0",
            f"csrwi vcsr, {chance.randrange(4) << 1}",
            f"li t0, {frm << 5}",
            "csrw fcsr, t0",
            f"csrwi vstart, {vstart}",
            "li s7, 0",
            "li s9, 0",
            "la s10, 2f",
            f".4byte {word:#x}",
            "2:",
            "call note_state",
            f"vs8r.v v{d & 24}, (t0)",
            "addi s0, s0, 64",
            f"li t0, {length}",
            "add s2, s2, t0",
            "addi s1, s1, -1",
            "beqz s1, 1f",
            "j 1b",
            "1:",
        ]
        label = f"{name} {text} at e{sew}, m{lmul}, vstart={vstart} frm={frm} stride={stride} {base}"
        rows_ = [(offset + 64 * i,) for i in range(self.rounds)]
        self.add(row.name, label, ("pool",), rows_, self.results, lines)

    def set_types(self, count: int) -> None:
        """``vsetvl`` and its relatives."""
        for n in range(count):
            chance = self.chance
            vtype = n if n < 512 else chance.getrandbits(chance.choice((8, 9, 12, 31)))
            avl = chance.choice((0, 1, 7, 31, 64, 100, 500, 5000, -1, chance.getrandbits(31)))
            form = chance.randrange(4)
            text = [
                f"li t0, {vtype}\n li a1, {avl}\n vsetvl a4, a1, t0",
                f"li t0, {vtype}\n vsetvl a4, zero, t0",
                f".4byte {0x7057 | 14 << 7 | 11 << 15 | (vtype & 0x7FF) << 20:#x}",
                f".4byte {0xC0007057 | 14 << 7 | (avl & 31) << 15 | (vtype & 0x3FF) << 20:#x}",
            ][form]
            lines = [f"la s2, begin_signature + {self.size}", "li s7, 0", "li s9, 0", "li a4, 0"]
            lines += [f"li a1, {avl}", "la s10, 2f", text, "2:", "call note_state", "vs8r.v v0, (t0)"]
            self.add("vset", f"{text!r} with avl={avl}", (), [()], self.results, lines)

    def source(self) -> str:
        """The program."""
        vlenb = self.vlen // 8
        self.code.append(_calls(self.store, vlenb))
        text = super().source()
        self.code.pop()
        words = struct.unpack(f"<{len(self.bytes) // 4}I", self.bytes)
        data = [".section .data", ".balign 64", "pool:"]
        data += [".word " + ", ".join(map(hex, words[at : at + 16])) for at in range(0, len(words), 16)]
        data += [".balign 64", f"registers: .zero {32 * vlenb}", "area: .zero 4096", "area_end:", ""]
        return text.replace(
            "    .section .text.start", "    .option arch, +v\n    .section .text.start", 1
        ) + "\n".join(data)


def vector_groups(bits: int, vlen: int, blocks: int, seed: int = 1, rounds: int = ROUNDS) -> Iterator[Vectors]:
    """Programs over all vector instructions, each with ``blocks`` blocks; the seed decides what is drawn."""
    table = [row for row in rows(bits, "vector_rows") if not row.name.startswith("vset")]
    alone = [row for row in table if ".rtz." in row.name]
    table = [row for row in table if row not in alone]
    size = 40
    chance = random.Random(f"{seed} {bits} {vlen}")
    group = Vectors(f"v{vlen}.rv{bits}.set", bits, vlen, chance, rounds)
    group.set_types(700)
    yield group
    parts = [(str(at // size), table[at : at + size]) for at in range(0, len(table), size)]
    for number, part in [*parts, (ALONE, alone)]:
        group = Vectors(f"v{vlen}.rv{bits}.{number}", bits, vlen, chance, rounds)
        for row in part:
            for _ in range(blocks):
                sew = chance.choice(SEWS)
                if row.extension == "Zve32f" and chance.random() < 0.7:
                    sew = chance.choice((32, 64))
                group.block(row, sew, chance.choice((1, 1, 2, 4, 8, 0.5, 0.25, 0.125)))
        yield group
