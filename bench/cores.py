"""Speed of timed cores: million instructions per second of processor time, untimed and on described cores.

The work is ``kernels/mix.c``, lists, matrices, a state machine and CRCs as processors' benchmarks have (CoreMark itself
is in no package registry), compiled for each core's instruction set, and the ready-made ``sum`` with stream
instructions. Each row is the interpreter with a meter on one thread; the first one is the interpreter alone.

Promised: 500 on a five-stage core without caches, 250 with L1 and L2, 300 with stream buffers.
"""

from __future__ import annotations

import statistics
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
    ("streams, untimed", None, {}, "stream", None),
    ("stream buffers", "zou-2023-stream", {}, "stream", 300),
)


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
        In the order of :data:`ROWS`.
    """
    import nandarray
    from nandarray import Program, programs
    from nandarray.programs.timing import choose_core, timed

    rows = [Row(name, goal) for name, _, _, _, goal in ROWS]
    folder.mkdir(parents=True, exist_ok=True)
    mix = next(job for job in JOBS if job.name == "mix")
    works: dict[str, Any] = {
        "mix": Program.from_c(KERNELS / "mix.c", target="rv64imafdc"),
        "stream": programs.get("sum", dtype="int32", kind="stream", target="rv64imafdc"),
    }
    with tempfile.TemporaryDirectory(dir=folder) as place, nandarray.open(Path(place) / "cores.nand", "w") as store:
        rng = np.random.default_rng(20)
        store["mix"] = mix.make(rng, max(1, round(4 * mix.records * scale)))
        store["stream"] = rng.integers(0, 1 << 20, max(8, round((1 << 25) * scale)), dtype=np.int32)
        for turn in range(rounds):
            say(f"round {turn + 1} of {rounds}")
            for row, (_, core, changes, work, _) in zip(rows, ROWS, strict=True):
                chosen = None if core is None else choose_core(core, changes)
                program = works[work] if chosen is None else chosen.fitted(works[work])
                begin = time.process_time()
                if chosen is None:
                    account = nandarray.offload(program, [store[work]], form="interpreted", threads=1).account
                    row.instructions = account.instructions
                else:
                    found = timed(program, [store[work]], core=chosen)
                    row.instructions, row.cpi = found.instructions, found.cpi
                row.seconds.append(time.process_time() - begin)
    return rows


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as text."""
    header = ["core", "million instructions", "million a second", "cycles an instruction", "verdict"]
    lines = []
    for row in rows:
        cpi = f"{row.cpi:.3f}" if row.cpi else ""
        lines.append([row.name, f"{row.instructions / 1e6:.1f}", f"{row.mips:.0f}", cpi, row.verdict])
    return header, lines
