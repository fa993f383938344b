"""Speed of vectors: million vector instructions per CPU second at VLEN 256, interpreted, translated, and in QEMU.

The work is ``kernels/vectors.c``: loops of eight or nine vector instructions of one group each, and a mix as filters
and sums of products have it. Translated code calls the interpreter's functions for vectors. Beside it the speed on
scalar instructions (``kernels/mix.c``), and QEMU's user mode where ``qemu-riscv64`` is installed; the loops' few
scalar instructions are executed, and not counted. A process of QEMU that does nothing is measured, too, and its time
taken off.

Promised: 60 interpreted, of the mix.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .programs import JOBS, KERNELS

#: Loops in the order of their numbers in the kernel, with vector instructions an iteration.
LOOPS = (("arithmetic", 8), ("memory", 8), ("masks", 8), ("floats", 8), ("folds", 8), ("mix", 9))
GOAL = 60.0
TARGET = "rv64gcv_zvl256b"
_QEMU = "qemu-riscv64"
_ZIG = [
    "-target",
    "riscv64-linux-musl",
    "-mcpu=generic_rv64+m+a+f+d+c+v+zba+zbb+zbs+zvl256b",
    "-O3",
    "-nostdlib",
    "-static",
]


@dataclass
class Row:
    """A loop: million vector instructions a CPU second of each round, by what executed it."""

    name: str
    goal: float | None = None
    interpreted: list[float] = field(default_factory=list)
    translated: list[float] = field(default_factory=list)
    qemu: list[float] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Whether the promise was kept."""
        if self.goal is None:
            return ""
        return "kept" if statistics.median(self.interpreted) >= self.goal else f"MISSED: {self.goal:.0f}"


def _in_qemu(source: Path, folder: Path, work: int, rounds: int) -> float:
    """Return the CPU seconds of a process of QEMU that runs a loop."""
    elf = folder / f"vectors-{work}-{rounds}"
    if not elf.exists():
        zig = [sys.executable, "-m", "ziglang", "cc", *_ZIG, "-DSTANDALONE", f"-DWORK={work}", f"-DROUNDS={rounds}"]
        subprocess.run([*zig, str(source), "-o", str(elf)], check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([_QEMU, "-cpu", "rv64,v=true,vlen=256", str(elf)], check=True, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _loop(row: Row, offload: Callable[..., Any], work: int, instructions: int, iterations: int) -> None:
    """Run a loop in both forms."""
    for form, figures in (("interpreted", row.interpreted), ("translated", row.translated)):
        begin = time.process_time()
        offload(work=work, rounds=iterations, form=form, threads=1)
        figures.append(instructions / 1e6 / (time.process_time() - begin))


def measure(folder: Path, *, rounds: int, scale: float = 1.0, say: Callable[[str], None] = print) -> list[Row]:
    """Run every loop by everything that can, in turn.

    Parameters
    ----------
    folder : pathlib.Path
        Folder for the store, which is removed afterwards.
    rounds : int
        Number of rounds; figures are medians.
    scale : float
        Of the number of iterations.
    say : callable
        Function that is called with a line about the progress.

    Returns
    -------
    list of Row
        The loops; the last row is scalar instructions.
    """
    import nandarray
    from nandarray import Program

    source = KERNELS / "vectors.c"
    program = Program.from_c(source, target=TARGET)
    mix = next(job for job in JOBS if job.name == "mix")
    scalar = Program.from_c(KERNELS / "mix.c", target="rv64imafdc")
    rows = [Row(name, GOAL if name == "mix" else None) for name, _ in LOOPS] + [Row("scalar instructions")]
    iterations = max(1000, round(1_000_000 * scale))
    if shutil.which(_QEMU) is None:
        say(f"{_QEMU} is not installed: its column is empty")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place, nandarray.open(Path(place) / "v.nand", "w") as store:
        store["one"] = np.zeros(1, np.int64)
        store["mix"] = mix.make(np.random.default_rng(20), max(1, round(4 * mix.records * scale)))
        for turn in range(rounds):
            say(f"round {turn + 1} of {rounds}")
            for work, (row, (_, each)) in enumerate(zip(rows, LOOPS, strict=False)):
                _loop(row, partial(store.open_array("one").offload, program), work, each * iterations, iterations)
                if shutil.which(_QEMU):
                    nothing = _in_qemu(source, Path(place), work, 0)
                    took = _in_qemu(source, Path(place), work, iterations) - nothing
                    row.qemu.append(each * iterations / 1e6 / max(1e-9, took))
            for form, figures in (("interpreted", rows[-1].interpreted), ("translated", rows[-1].translated)):
                begin = time.process_time()
                account = nandarray.offload(scalar, [store["mix"]], form=form, threads=1).account
                figures.append(account.instructions / 1e6 / (time.process_time() - begin))
    return rows


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as text."""
    header = ["million instructions a second", "interpreted", "translated", "QEMU", "verdict"]
    shown = [[f"{statistics.median(f):.0f}" if f else "" for f in (r.interpreted, r.translated, r.qemu)] for r in rows]
    return header, [[row.name, *figures, row.verdict] for row, figures in zip(rows, shown, strict=True)]
