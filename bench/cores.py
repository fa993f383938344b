"""Speed of timed cores: million instructions per second of processor time, untimed and on described cores.

CoreMark is in no package registry. The work in its place is a mix of the same parts, lists, matrices, a state machine
and CRCs (``kernels/mix.c``), compiled for each core's instruction set, so figures compare with each other and not with
published ones; and the ready-made ``sum``, over memory and with stream instructions. Rows are the interpreter with a
meter on one thread, the untimed ones the interpreter alone; the SSD's rows are the whole modelled device, whose eight
cores read from flash through DRAM and caches (a miss a line) or through stream buffers, contention and events included.

Beside them, if they are here: QEMU's user mode, which translates and models no time, and Spike
(``NANDARRAY_SPIKE``: its path), which interprets; both run the same kind of mix as a program of its own.

Promised: 500 on a blocking or five-stage core without caches, 250 with L1 and L2, 100 in sum on the SSD's cores with a
miss a line, 300 in sum with stream buffers.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .programs import JOBS, KERNELS

#: Label, core, its changes, kind of program, and the promised million instructions a second.
ROWS: tuple[tuple[str, str | None, dict[str, str], str, float | None], ...] = (
    ("untimed", None, {}, "mix", None),
    ("blocking, no caches", "zou-2023", {"l1i": "none", "l1d": "none", "l2": "none"}, "mix", 500),
    ("five-stage, no caches", "five-stage", {"l1i": "none", "l1d": "none", "l2": "none"}, "mix", 500),
    ("five-stage, L1 and L2", "five-stage", {}, "mix", 250),
    ("dual issue, L1 and L2", "ex5", {}, "mix", 250),
    ("sum, untimed", None, {}, "block", None),
    ("sum, five-stage, L1 and L2", "five-stage", {}, "block", 250),
    ("streams, untimed", None, {}, "stream", None),
    ("stream buffers", "zou-2023-stream", {}, "stream", 300),
)


#: Label, modelled device, kind of program, and the promised million instructions a second of all cores together.
DEVICES: tuple[tuple[str, str, str, float], ...] = (
    ("SSD, 8 blocking cores, a miss a line", "assasin-baseline", "block", 100),
    ("SSD, 8 cores with stream buffers", "assasin-sb", "stream", 300),
)

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "crates" / "nandarray-hart" / "tests" / "programs"
#: Instructions of ``long-mix64.bin``, as the hart counts them (``cargo run -p nandarray-uarch --example timed_speed``).
LONG_MIX = 948_388_155
#: Instructions after which Spike is stopped.
SPIKE_INSTRUCTIONS = 200_000_000


@dataclass
class Row:
    """A core: instructions, seconds of processor time of each round, cycles an instruction."""

    name: str
    goal: float | None
    instructions: int = 0
    cpi: float = 0.0
    seconds: list[float] = field(default_factory=list)

    @property
    def mips(self) -> float:
        """Million instructions a second, by the median round."""
        return self.instructions / 1e6 / max(1e-9, statistics.median(self.seconds))

    @property
    def verdict(self) -> str:
        """Whether the promise was kept."""
        return "" if self.goal is None else "kept" if self.mips >= self.goal else f"MISSED: {self.goal:.0f}"


def measure(folder: Path, *, rounds: int, scale: float = 1.0, say: Callable[[str], None] = print) -> list[Row]:
    """Run the work on every core, in turn.

    Parameters
    ----------
    folder : pathlib.Path
        Folder of the store, which is removed behind.
    rounds : int
        Number of rounds; figures are medians.
    scale : float
        Of the inputs.
    say : callable
        Told how far it is.

    Returns
    -------
    list of Row
        In the order of :data:`ROWS`, then of :data:`DEVICES`, then other simulators as far as they are here.
    """
    import nandarray
    from nandarray import Program, programs
    from nandarray.programs.timing import choose_core, timed

    rows = [Row(name, goal) for name, _, _, _, goal in ROWS]
    folder.mkdir(parents=True, exist_ok=True)
    mix = next(job for job in JOBS if job.name == "mix")
    works: dict[str, Any] = {
        "mix": Program.from_c(KERNELS / "mix.c", target="rv64imafdc"),
        "block": programs.get("sum", dtype="int32", kind="block", target="rv64imafdc"),
        "stream": programs.get("sum", dtype="int32", kind="stream", target="rv64imafdc"),
    }
    with tempfile.TemporaryDirectory(dir=folder) as place, nandarray.open(Path(place) / "cores.nand", "w") as store:
        rng = np.random.default_rng(20)
        store["mix"] = mix.make(rng, max(1, round(4 * mix.records * scale)))
        store["numbers"] = rng.integers(0, 1 << 20, max(8, round((1 << 25) * scale)), dtype=np.int32)
        for turn in range(rounds):
            say(f"round {turn + 1} of {rounds}")
            for row, (_, core, changes, work, _) in zip(rows, ROWS, strict=True):
                chosen = None if core is None else choose_core(core, changes)
                program = works[work] if chosen is None else chosen.fitted(works[work])
                begin = time.process_time()
                if chosen is None:
                    account = nandarray.offload(
                        program, [store[work if work == "mix" else "numbers"]], form="interpreted", threads=1
                    ).account
                    row.instructions = account.instructions
                else:
                    found = timed(program, [store[work if work == "mix" else "numbers"]], core=chosen)
                    row.instructions, row.cpi = found.instructions, found.cpi
                row.seconds.append(time.process_time() - begin)
        for name, device, kind, goal in DEVICES:
            elements = max(1 << 16, round((1 << 23) * scale))
            rows.append(_device(Row(name, goal), device, kind, rounds=rounds, elements=elements))
    return [*rows, *_others(rounds, scale)]


def _device(row: Row, device: str, kind: str, *, rounds: int, elements: int) -> Row:
    """Measure a sum on all cores of a modelled device: its data are in flash, and all of its time is modelled."""
    import nandarray
    from nandarray import programs

    program = programs.get("sum", dtype="int32", kind=kind, target="rv32im")
    with nandarray.open(device=nandarray.devices()[device], mode="w") as store:
        store["x"] = np.random.default_rng(20).integers(0, 1 << 20, elements, dtype=np.int32)
        store.flush()
        for _ in range(rounds):
            begin = time.process_time()
            done = nandarray.offload(program, [store["x"]])
            row.seconds.append(time.process_time() - begin)
            row.instructions = done.account.instructions
        row.cpi = store.report().data["programs"]["timed_cores"]["cpi"]
    return row


def _child_seconds(words: list[str]) -> float:
    """User seconds of a child process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    # The exit status is the mix's own, or that of being stopped.
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600, check=False)
    if done.returncode < 0:
        raise RuntimeError(f"{words[0]} ended by signal {-done.returncode}")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def _others(rounds: int, scale: float) -> list[Row]:
    """Measure the simulators that are here, on a mix that takes them seconds; none of them counts cycles."""
    rows: list[Row] = []
    if scale < 1:
        return rows
    if qemu := shutil.which("qemu-riscv64"):
        row = Row("QEMU user mode, no time", None, LONG_MIX)
        with tempfile.TemporaryDirectory() as folder:
            # QEMU runs what may be executed.
            elf = Path(shutil.copy(PROGRAMS / "built" / "long-mix64.bin", folder))
            elf.chmod(0o755)
            row.seconds = [_child_seconds([qemu, str(elf)]) for _ in range(rounds)]
        rows.append(row)
    if spike := os.environ.get("NANDARRAY_SPIKE"):
        row = Row("Spike, no time", None, SPIKE_INSTRUCTIONS)
        with tempfile.TemporaryDirectory() as folder:
            elf = bare_mix(Path(folder))
            # Spike runs a compiler of device trees by its name.
            own = Path(folder) / "dtc"
            own.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT / "tests" / "python" / "arch_dtc.py"}"\n')
            own.chmod(0o755)
            words = [
                "env",
                f"PATH={folder}:{os.environ['PATH']}",
                spike,
                "--isa=rv64im",
                f"--instructions={SPIKE_INSTRUCTIONS}",
                str(elf),
            ]
            row.seconds = [_child_seconds(words) for _ in range(rounds)]
        rows.append(row)
    return rows


def bare_mix(folder: Path) -> Path:
    """Compile the mix as a bare program that runs for longer than it is let.

    Parameters
    ----------
    folder : pathlib.Path
        Where the program goes.

    Returns
    -------
    pathlib.Path
        An ELF file for RV64IM, to be loaded at 0x80000000.
    """
    out = folder / "mix.elf"
    machine = ["-target", "riscv64-freestanding-none", "-mcpu=generic_rv64+m", "-mabi=lp64", "-mcmodel=medany"]
    script = ROOT / "crates" / "nandarray-uarch" / "tests" / "spike" / "link.ld"
    flags = ["-O3", "-s", "-static", "-nostdlib", "-ffreestanding", "-fno-pic", f"-Wl,-T,{script}", "-Wl,-e,bare_start"]
    sources = [str(PROGRAMS / "mix.c"), str(KERNELS / "bare.c")]
    words = [sys.executable, "-m", "ziglang", "cc", *machine, *flags, "-DROUNDS=100000000", *sources, "-o", str(out)]
    subprocess.run(words, check=True)
    return out


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as text; ratios are to the untimed run of the same work, or of the mix."""
    header = ["core", "million instructions", "million a second", "of untimed", "cycles an instruction", "verdict"]
    bases = {one.name: one.mips for one in rows if "untimed" in one.name}
    works = {name: work for name, _, _, work, _ in ROWS} | {name: work for name, _, work, _ in DEVICES}
    untimed = {"mix": "untimed", "block": "sum, untimed", "stream": "streams, untimed"}
    lines = []
    for row in rows:
        cpi = f"{row.cpi:.3f}" if row.cpi else ""
        base = bases.get(untimed[works.get(row.name, "mix")])
        ratio = f"{row.mips / base:.2f}" if base else ""
        lines.append([row.name, f"{row.instructions / 1e6:.1f}", f"{row.mips:.0f}", ratio, cpi, row.verdict])
    return header, lines
