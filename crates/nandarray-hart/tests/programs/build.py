"""Compile the programs of this folder for both register widths, and record what QEMU makes of them.

    python crates/nandarray-hart/tests/programs/build.py [FOLDER]

Needs the ``ziglang`` wheel and ``qemu-riscv32`` and ``qemu-riscv64`` (Debian: ``qemu-user``). The results are kept in
``built/``: tests run them without a compiler. Bare-metal tests are in ``bare/``, with a script of their own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = ("sort", "matrix", "hash", "text", "mix")
# Name, extensions, calling convention.
TARGETS = {
    "64gc": (64, "+m+a+f+d+c+zba+zbb+zbs", "lp64d"),
    "32gc": (32, "+m+a+f+d+c+zba+zbb+zbs", "ilp32d"),
    "64im": (64, "+m", "lp64"),
    "32im": (32, "+m", "ilp32"),
}
COMMON = ["-O3", "-s", "-static", "-ffreestanding", "-fno-pic", "-Wl,-T,link.ld"]
# Rounds of the long program, for measuring speed: about a thousand million instructions.
LONG_ROUNDS = 5000


def compile_program(source: str, target: str, out: Path, *more: str) -> None:
    """Compile one file for one target."""
    bits, extensions, convention = TARGETS[target]
    model = ["-mcmodel=medany"] if bits == 64 else []
    machine = [
        "-target",
        f"riscv{bits}-freestanding-none",
        f"-mcpu=generic_rv{bits}{extensions}",
        f"-mabi={convention}",
    ]
    command = [sys.executable, "-m", "ziglang", "cc", *machine, *model, *COMMON, *more, source, "-o", str(out)]
    subprocess.run(command, cwd=HERE, check=True)


def main(folder: Path) -> None:
    """Everything."""
    folder.mkdir(exist_ok=True)
    for program in PROGRAMS:
        for target, (bits, _, _) in TARGETS.items():
            if program == "matrix" and "f" not in TARGETS[target][1]:
                continue
            elf = folder / f"{program}-{target}.elf"
            compile_program(f"{program}.c", target, elf)
            cpu = f"rv{bits},zba=true,zbb=true,zbs=true"
            done = subprocess.run([f"qemu-riscv{bits}", "-cpu", cpu, str(elf)], check=True, capture_output=True)
            elf.with_suffix(".txt").write_bytes(done.stdout)
            print(f"{elf.name}: {elf.stat().st_size} bytes")
    for bits, convention, extensions in ((64, "lp64", "+m"), (32, "ilp32", "+m")):
        TARGETS["long"] = (bits, extensions, convention)
        compile_program("mix.c", "long", folder / f"long-mix{bits}.bin", f"-DROUNDS={LONG_ROUNDS}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "built")
