"""Assemble the bare-metal tests of this folder for both register widths, into ``built/``.

    python crates/nandarray-hart/tests/bare/build.py [FOLDER [OPTION ...]]

With the option ``-DPORTABLE`` what the specification leaves to each machine is left out of them. Needs the ``ziglang``
wheel. It does not run them; ``tests/bare_metal.rs`` does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = ("traps", "modes", "interrupts", "state", "host", "fails")
OPTIONS = ["-g0", "-static", "-nostdlib", "-ffreestanding", "-fno-pic", "-Wl,-T,link.ld", "-mno-relax"]


def main(folder: Path, options: list[str]) -> None:
    """Every test, twice."""
    folder.mkdir(exist_ok=True)
    for test in TESTS:
        for bits, convention in ((64, "lp64d"), (32, "ilp32d")):
            model = ["-mcmodel=medany"] if bits == 64 else []
            machine = ["-target", f"riscv{bits}-freestanding-none", f"-mcpu=generic_rv{bits}+m+a+f+d+zicsr+zifencei"]
            out = folder / f"{test}-{bits}.elf"
            command = [sys.executable, "-m", "ziglang", "cc", *machine, f"-mabi={convention}", *model, *OPTIONS]
            subprocess.run([*command, f"{test}.S", *options, "-o", str(out)], cwd=HERE, check=True)
            out.chmod(0o644)
            print(f"{out.name}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "built", sys.argv[2:])
