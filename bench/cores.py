"""Speed of timed cores: million instructions per second of processor time, untimed and on described cores.

The work is CoreMark, from the wheel that :mod:`bench.coremark` fetches, compiled by Clang for each core's instruction
set; where the wheel cannot be had, a mix of the same parts (``kernels/mix.c``) stands for it, and the rows say so.
Beside it is the ready-made ``sum``, over memory and with stream instructions. Rows are the interpreter with a
meter on one thread, the untimed ones the interpreter alone; the SSD's rows are the whole modelled device, whose eight
cores read from flash through DRAM and caches (a miss a line) or through stream buffers, contention and events included.

Beside them, if they are here: QEMU's user mode, which translates and models no time, and Spike
(``NANDARRAY_SPIKE``: its path), which interprets; both run CoreMark, or the mix, as a program of its own.

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

from . import coremark
from .programs import JOBS, KERNELS

#: Label, core, its changes, work, and the promised million instructions a second.
ROWS: tuple[tuple[str, str | None, dict[str, str], str, float | None], ...] = (
    ("untimed", None, {}, "coremark", None),
    ("blocking, no caches", "zou-2023", {"l1i": "none", "l1d": "none", "l2": "none"}, "coremark", 500),
    ("five-stage, no caches", "five-stage", {"l1i": "none", "l1d": "none", "l2": "none"}, "coremark", 500),
    ("five-stage, L1 and L2", "five-stage", {}, "coremark", 250),
    ("dual issue, L1 and L2", "ex5", {}, "coremark", 250),
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
#: Iterations of CoreMark: of our rows, and of a simulator's program of its own.
ITERATIONS, LONG_ITERATIONS = 300, 3000
#: Instructions after which Spike is stopped.
SPIKE_INSTRUCTIONS = 200_000_000


@dataclass
class Row:
    """A core: instructions, cycles an instruction, seconds of processor time of each round, the work."""

    name: str
    goal: float | None
    instructions: int = 0
    cpi: float = 0.0
    seconds: list[float] = field(default_factory=list)
    work: str = ""

    @property
    def mips(self) -> float:
        """Million instructions a second, by the median round."""
        return self.instructions / 1e6 / max(1e-9, statistics.median(self.seconds))

    @property
    def verdict(self) -> str:
        """Whether the promise was kept."""
        return "" if self.goal is None else "kept" if self.mips >= self.goal else f"MISSED: {self.goal:.0f}"


@dataclass
class _Loop:
    """CoreMark, or, where its sources cannot be had, the mix: compiled once for each instruction set."""

    sources: Path | None
    built: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "mix" if self.sources is None else "CoreMark"

    def program(self, isa: str) -> Any:
        """Return the program for a core."""
        from nandarray import Program
        from nandarray.programs.compile import zig

        target = zig.target_for(isa).name
        if target not in self.built:
            if self.sources is None:
                self.built[target] = Program.from_c(KERNELS / "mix.c", target=target)
            else:
                self.built[target] = coremark.build(self.sources, isa)
        return self.built[target]

    def values(self, rng: np.random.Generator, scale: float) -> Any:
        """Return its input: seeds of the mix, or how often CoreMark is to iterate."""
        if self.sources is None:
            mix = next(job for job in JOBS if job.name == "mix")
            return mix.make(rng, max(1, round(4 * mix.records * scale)))
        return np.array([max(1, round(ITERATIONS * scale))], np.uint32)


def _sources(folder: Path, say: Callable[[str], None]) -> Path | None:
    try:
        return coremark.unpack(coremark.fetch(), folder)
    except coremark.NoCoreMarkError as error:
        say(f"a mix of such work stands for CoreMark: {error}")
        return None


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
    from nandarray import programs

    rows = [Row(name, goal) for name, _, _, _, goal in ROWS]
    folder.mkdir(parents=True, exist_ok=True)
    sums: dict[str, Any] = {
        kind: programs.get("sum", dtype="int32", kind=kind, target="rv64imafdc") for kind in ("block", "stream")
    }
    with tempfile.TemporaryDirectory(dir=folder) as place, nandarray.open(Path(place) / "cores.nand", "w") as store:
        loop = _Loop(_sources(Path(place), say))
        rng = np.random.default_rng(20)
        store["loop"] = loop.values(rng, scale)
        store["numbers"] = rng.integers(0, 1 << 20, max(8, round((1 << 25) * scale)), dtype=np.int32)
        for turn in range(rounds):
            say(f"round {turn + 1} of {rounds}")
            for row, (_, core, changes, work, _) in zip(rows, ROWS, strict=True):
                looped = work == "coremark"
                row.work = loop.name if looped else "sum"
                data = store["loop" if looped else "numbers"]
                _run(row, loop.program if looped else sums[work], data, core, changes)
        for name, device, kind, goal in DEVICES:
            elements = max(1 << 16, round((1 << 23) * scale))
            rows.append(_device(Row(name, goal, work="sum"), device, kind, rounds=rounds, elements=elements))
        return [*rows, *_others(rounds, scale, loop)]


def _run(row: Row, work: Any, data: Any, core: str | None, changes: dict[str, str]) -> None:
    """Run a program on a core, or untimed, and note what it took: ``work`` is the program, or makes it."""
    import nandarray
    from nandarray.programs.timing import choose_core, timed

    chosen = None if core is None else choose_core(core, changes)
    made = work("rv64imafdc" if chosen is None else str(chosen.facts["isa"])) if callable(work) else work
    program = made if chosen is None else chosen.fitted(made)
    begin = time.process_time()
    if chosen is None:
        done: Any = nandarray.offload(program, [data], form="interpreted", threads=1)
        row.instructions = done.account.instructions
    else:
        found = timed(program, [data], core=chosen)
        done, row.instructions, row.cpi = found.offloaded, found.instructions, found.cpi
    row.seconds.append(time.process_time() - begin)
    if row.work == "CoreMark":
        coremark.check(done.outputs["printed"])


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


def _others(rounds: int, scale: float, loop: _Loop) -> list[Row]:
    """Measure the simulators that are here, on work that takes them seconds; none of them counts cycles."""
    rows: list[Row] = []
    if scale < 1:
        return rows
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if qemu := shutil.which("qemu-riscv64"):
            # QEMU runs what may be executed.
            if loop.sources is None:
                elf, instructions = Path(shutil.copy(PROGRAMS / "built" / "long-mix64.bin", place)), LONG_MIX
            else:
                elf = coremark.bare(loop.sources, place, iterations=LONG_ITERATIONS)
                instructions = round(coremark.score(loop.program("rv64im"), "lwp").instructions * LONG_ITERATIONS)
            elf.chmod(0o755)
            row = Row("QEMU user mode, no time", None, instructions, work=loop.name)
            row.seconds = [_child_seconds([qemu, str(elf)]) for _ in range(rounds)]
            rows.append(row)
        if spike := os.environ.get("NANDARRAY_SPIKE"):
            rows.append(row := Row("Spike, no time", None, SPIKE_INSTRUCTIONS, work=loop.name))
            endless = 2**31 - 1
            elf = bare_mix(place) if loop.sources is None else coremark.bare(loop.sources, place, iterations=endless)
            # Spike runs a compiler of device trees by its name.
            own = place / "dtc"
            own.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT / "tests" / "python" / "arch_dtc.py"}"\n')
            own.chmod(0o755)
            words = ["env", f"PATH={folder}:{os.environ['PATH']}", spike, "--isa=rv64im"]
            words += [f"--instructions={SPIKE_INSTRUCTIONS}", str(elf)]
            row.seconds = [_child_seconds(words) for _ in range(rounds)]
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
    """Return header and rows as text; ratios are to the untimed run of the same work."""
    header = ["core", "work", "million instructions", "million a second", "of untimed", "cycles an instruction"]
    header.append("verdict")
    bases = {one.name: one.mips for one in rows if "untimed" in one.name}
    works = {name: work for name, _, _, work, _ in ROWS} | {name: work for name, _, work, _ in DEVICES}
    untimed = {"coremark": "untimed", "block": "sum, untimed", "stream": "streams, untimed"}
    lines = []
    for row in rows:
        cpi = f"{row.cpi:.3f}" if row.cpi else ""
        base = bases.get(untimed[works.get(row.name, "coremark")])
        ratio = f"{row.mips / base:.2f}" if base else ""
        speed = [f"{row.instructions / 1e6:.1f}", f"{row.mips:.0f}", ratio]
        lines.append([row.name, row.work, *speed, cpi, row.verdict])
    return header, lines
