"""Random page tables, protection and accesses for ``probe.S``, and what machines make of them.

A case is an image of the machine with its table of accesses filled in; :func:`ours`, :func:`qemu` and :func:`spike`
run it and give the signature's bytes: four numbers for each access, then a sum of every page table and every page.
Sizes are few and addresses close together, so that accesses meet the edges. Cases that the specification leaves open
are left out: misaligned accesses meet neither an edge of protection nor missing memory. QEMU 7.2 protects whole pages,
and notes use in tables that are protected; other protection is for ``fine`` cases, which Spike runs (it makes the first
part of a store that crosses pages, so that those are aligned there).
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from nandarray import _nandarray

__all__ = ["PAGES", "ROWS", "TABLES", "Case", "Image", "assemble", "describe", "ours", "qemu", "spike"]

HART = Path(__file__).parents[2] / "crates" / "nandarray-hart" / "tests" / "bare"
ROWS, TABLES, PAGES, PAGE = 400, 12, 8, 4096
MEMORY = 16 << 20
BASE = 0x8000_0000
VALID, READ, WRITE, EXECUTE, USER, ACCESSED, DIRTY = 1, 2, 4, 8, 16, 64, 128
SUM, MXR = 1 << 18, 1 << 19
NOWHERE = 0x4000_0000


def assemble(folder: Path, bits: int) -> Path:
    """``probe.S`` for one width."""
    out = folder / f"probe-{bits}.elf"
    sizes = [f"-DROWS={ROWS}", f"-DTABLES={TABLES}", f"-DPAGES={PAGES}"]
    machine = ["-target", f"riscv{bits}-freestanding-none", f"-mcpu=generic_rv{bits}+m+a+f+d+zicsr+zifencei"]
    model = ["-mcmodel=medany", "-mabi=lp64d"] if bits == 64 else ["-mabi=ilp32d"]
    options = ["-g0", "-static", "-nostdlib", "-ffreestanding", "-fno-pic", "-mno-relax", f"-Wl,-T,{HART / 'link.ld'}"]
    command = [sys.executable, "-m", "ziglang", "cc", *machine, *model, *options, *sizes]
    subprocess.run([*command, HART / "probe.S", "-o", out], check=True, capture_output=True)
    return out


@dataclass
class Image:
    """An image to fill in: its bytes, and where in them each address is."""

    bits: int
    elf: bytearray
    symbols: dict[str, int]
    loads: list[tuple[int, int, int]]

    @classmethod
    def read(cls, path: Path, bits: int) -> Image:
        """Segments and symbols of an ELF file, as little as is needed of them."""
        elf = bytearray(path.read_bytes())
        wide = bits == 64
        header = struct.unpack_from("<QQQIHHHHHH" if wide else "<IIIIHHHHHH", elf, 24)
        (_, segments_at, sections_at, _, _, segment_size, segments, section_size, sections, _) = header
        loads, symbols = [], {}
        for i in range(segments):
            at = segments_at + i * segment_size
            if wide:
                kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", elf, at)
            else:
                kind, offset, address, _, length = struct.unpack_from("<IIIII", elf, at)
            if kind == 1:
                loads.append((address, length, offset))
        rows = []
        for i in range(sections):
            at = sections_at + i * section_size
            form = "<IIQQQQII" if wide else "<IIIIIIII"
            _, kind, _, _, offset, length, link, _ = struct.unpack_from(form, elf, at)
            rows.append((kind, offset, length, link))
        for kind, offset, length, link in rows:
            if kind != 2:
                continue
            names = rows[link][1]
            for at in range(offset, offset + length, 24 if wide else 16):
                if wide:
                    name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", elf, at)
                else:
                    name, value, _, _, _, _ = struct.unpack_from("<IIIBBH", elf, at)
                symbols[bytes(elf[names + name : elf.index(0, names + name)]).decode()] = value
        return cls(bits, elf, symbols, loads)

    def copy(self) -> Image:
        return Image(self.bits, bytearray(self.elf), self.symbols, self.loads)

    def put(self, address: int, data: bytes) -> None:
        """Bytes at an address."""
        for start, length, offset in self.loads:
            if start <= address and address + len(data) <= start + length:
                self.elf[offset + address - start : offset + address - start + len(data)] = data
                return
        raise ValueError(f"{address:#x} is not in the file")


class Case:
    """One random machine: tables, then accesses to what they may map."""

    def __init__(self, image: Image, seed: int, fine: bool = False) -> None:
        self.chance = random.Random(seed)
        self.fine = fine
        self.image = image.copy()
        self.wide = image.bits == 64
        self.tables = image.symbols["tables"]
        self.pages = self.tables + TABLES * PAGE
        self.mode, self.levels, self.level_bits = (1, 2, 10)
        if self.wide:
            self.mode, self.levels, self.level_bits = self.chance.choice([(8, 3, 9), (8, 3, 9), (9, 4, 9), (10, 5, 9)])
        self.entries: dict[int, int] = {}
        self.free = 1
        self.addresses: list[int] = []
        self.locked = self.chance.random() < 0.2
        self.protected = self.chance.random() < 0.5
        self.nowhere = self.chance.random() < 0.4

    def fill(self) -> Image:
        """The image with everything in it."""
        for page in range(PAGES):
            words = struct.pack("<I", 0x73) * (PAGE // 4 - 1) + struct.pack("<HH", 0x73, 0x73)
            self.image.put(self.pages + page * PAGE, words)
        for _ in range(14):
            self.map()
        for address, entry in self.entries.items():
            self.image.put(address, entry.to_bytes(8 if self.wide else 4, "little"))
        rows = b"".join(self.row(i) for i in range(ROWS))
        self.image.put(self.image.symbols["probes"], rows)
        self.image.put(self.image.symbols["probes"] + len(rows), bytes(128))
        return self.image

    def map(self) -> None:
        """One more page, somewhere, if there is room for its tables."""
        chance = self.chance
        level = chance.choices(range(self.levels), [8, 3] + [1] * (self.levels - 2))[0]
        size = 12 + level * self.level_bits
        numbers = 1 << ((self.levels - level) * self.level_bits)
        number = chance.choice([0, 1, 2, 3, numbers - 1, numbers - 2, numbers // 2, numbers // 2 - 1])
        if level == 0:
            physical = chance.choice([self.pages + chance.randrange(PAGES) * PAGE] * 8 + [NOWHERE] * self.nowhere)
        else:
            # Memory's first and second half, of which machines leave some pages as they are; else where nothing is.
            physical = chance.choice([BASE, BASE + MEMORY // 2]) >> size << size or 1 << size
            if physical < BASE and not self.nowhere or chance.random() < 0.2:
                physical = self.pages
        flags = chance.choice([VALID | READ | WRITE | EXECUTE, VALID | chance.randrange(256)]) | chance.choice(
            [0, USER]
        )
        self.addresses.append(number << size)
        at = self.tables
        for lower in range(self.levels - 1, level - 1, -1):
            index = number >> ((lower - level) * self.level_bits) & ((1 << self.level_bits) - 1)
            at += index * (8 if self.wide else 4)
            entry = self.entries.get(at, 0)
            if lower == level:
                if entry == 0:
                    upper = 1 << 62 if self.wide and chance.random() < 0.05 else 0
                    self.entries[at] = physical >> 12 << 10 | flags | upper
                return
            if entry == 0:
                if self.free == TABLES:
                    return
                table = self.tables + self.free * PAGE
                self.free += 1
                odd = chance.choice([USER, ACCESSED, DIRTY]) if chance.random() < 0.05 else 0
                self.entries[at] = entry = table >> 12 << 10 | VALID | odd
            elif entry & (READ | WRITE | EXECUTE):
                return
            at = entry >> 10 << 12
            if not self.tables <= at < self.pages:
                return

    def row(self, number: int) -> bytes:
        """One access."""
        chance = self.chance
        privilege = chance.choice([0, 0, 1, 1, 1, 3])
        kind = chance.randrange(3)
        translated = chance.random() < 0.8
        settings, limits = self.protection(number)
        width = chance.choice([1, 2, 4] + [8] * self.wide)
        if translated and privilege < 3:
            base = chance.choice(self.addresses)
            near = chance.choice([0, 8, 64, PAGE - 8, PAGE - 4, PAGE - 2, PAGE - 1, PAGE, PAGE + 4, -4, -2, 1 << 20])
            address = base + near
            bits = 12 + self.levels * self.level_bits
            if self.wide:
                address &= (1 << bits) - 1
                # The bits above are copies of the highest bit, but for once in a while.
                if address >> (bits - 1) and chance.random() < 0.95:
                    address |= -1 << bits
        else:
            address = (
                self.pages + chance.randrange(PAGES) * PAGE + chance.choice([0, 4, 8, 12, 16, 20, 24, 32, 64, PAGE - 8])
            )
            address = address if chance.random() < 0.95 else NOWHERE
        if kind == 2:
            address &= -2
        elif self.protected or self.nowhere or privilege == 3 or not translated or self.fine and kind == 1:
            address &= -width
        if privilege == 3 and kind == 2:
            address = self.pages + chance.randrange(PAGES) * PAGE
        satp = self.tables >> 12 | self.mode << (60 if self.wide else 31) if translated else 0
        status = chance.choice([0, SUM, MXR, SUM | MXR])
        fields = [satp, status, privilege, kind, width, address, settings, *limits, 1, 0, 0, 0, 1]
        return b"".join((value & (1 << 64) - 1).to_bytes(8, "little") for value in fields)

    def protection(self, number: int) -> tuple[int, list[int]]:
        """Settings and addresses of the four entries."""
        chance = self.chance
        all_of_it = (1 << (54 if self.wide else 32)) - 1
        if not self.protected:
            return 0x1F << 24, [0, 0, 0, all_of_it]
        settings, limits = [], []
        for entry in range(3):
            page = self.pages + chance.randrange(PAGES) * PAGE
            kind = chance.choice([0, 1, 2, 3] if self.fine else [0, 1, 3] if entry else [0, 3])
            word = page + (chance.choice([0, 4, 8, 16, 32]) if self.fine else 0) >> 2
            limits.append(word | (chance.choice([0, 1, 3, 511] if self.fine else [511, 511, 1023]) if kind == 3 else 0))
            right = chance.choice([0, 1, 3, 4, 5, 7])
            lock = 0x80 if self.locked and number > ROWS // 2 and chance.random() < 0.02 else 0
            settings.append(kind << 3 | right | lock)
        if settings[0] >> 3 & 3 == 1:
            # From address 0 on: what is there is the machine's own code.
            settings[0] &= ~0x80
        limits.append(all_of_it)
        return int.from_bytes(bytes([*settings, chance.choice([0x1F] * 9 + [0x19])]), "little"), limits


def ours(image: Image) -> bytes:
    """Return the signature that this project's hart writes."""
    found = _nandarray.program_run_bare(bytes(image.elf), _nandarray.Watch(), instructions=10_000_000)
    assert found["status"] == "passed", found
    return b"".join(bytes.fromhex(line)[::-1] for line in found["signature"].split())


def qemu(image: Image, folder: Path) -> bytes | None:
    """What QEMU's machine makes of it, if that is installed."""
    program = shutil.which(f"qemu-system-riscv{image.bits}")
    if program is None:
        return None
    told = image.copy()
    told.put(image.symbols["dump"], b"\1\0\0\0")
    elf, console = folder / "dump.elf", folder / "console"
    elf.write_bytes(told.elf)
    quiet = [
        "-bios",
        "none",
        "-display",
        "none",
        "-monitor",
        "none",
        "-serial",
        f"file:{console}",
        "-m",
        f"{MEMORY >> 20}M",
    ]
    subprocess.run([program, "-machine", "spike", *quiet, "-kernel", elf], check=True, timeout=120)
    return console.read_bytes()


def spike(image: Image, folder: Path, program: str) -> bytes:
    """What Spike makes of it, with accessed and dirty bits set by the machine."""
    elf, out = folder / "spike.elf", folder / "signature"
    elf.write_bytes(image.elf)
    options = [f"--isa=rv{image.bits}gc_svadu_zicclsm", f"-m{BASE:#x}:{MEMORY:#x}"]
    options += [f"+signature={out}", "+signature-granularity=4"]
    subprocess.run([program, *options, elf], check=True, timeout=120, capture_output=True)
    return b"".join(bytes.fromhex(line)[::-1] for line in out.read_text().split())


def describe(image: Image, at: int, mine: bytes, theirs: bytes) -> str:
    """Describe the first difference in words."""
    number = at // 32
    if number >= ROWS:
        return f"the sum of page {(at - 32 * ROWS) // 4} of {TABLES} tables and {PAGES} pages"
    for start, length, offset in image.loads:
        row = image.symbols["probes"] + 128 * number
        if start <= row < start + length:
            fields = struct.unpack_from("<16Q", image.elf, offset + row - start)
    names = ["satp", "status", "privilege", "kind", "width", "address", "pmpcfg", "a0", "a1", "a2", "a3"]
    text = " ".join(f"{name}={value:#x}" for name, value in zip(names, fields, strict=False))
    shown = [struct.unpack_from("<iIIiQQ", some, 32 * number) for some in (mine, theirs)]
    lines = [f"cause {s[0]} pc {s[1]:#x} value {s[4]:#x} loaded {s[3]:#x}" for s in shown]
    return f"access {number}: {text}\nours:   {lines[0]}\ntheirs: {lines[1]}"
