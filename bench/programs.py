"""Short programs, translated beside interpreted.

Does translating ever cost more than it gives? Five programs over arrays of a store, each about as much work as the
interpreter does in 20 to 100 ms: a mix of lists, matrices, a state machine and CRCs, as processors' benchmarks are
(own code, figures compare with themselves only); an 8 x 8 cosine transform that calls ``cos``; SHA-256; quicksort in
the scratchpad; a run-length codec. Each is run in a new process, one core: interpreted, and then translated for the
first, second and third time, what was translated being kept from run to run. Processor time is what counts, since
translating in another thread would cost as much.

Promised: no run takes more processor time than 1.1 times interpreting it, and 20 ms.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

KERNELS = Path(__file__).parent / "kernels"
FACTOR, GRACE_S = 1.1, 0.02
TURNS = ("1st", "2nd", "3rd")
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Job:
    """A program and its input: as many records as ``records`` says, made by chance of a fixed seed."""

    name: str
    records: int
    make: Callable[[np.random.Generator, int], _Array]


def _seeds(rng: np.random.Generator, records: int) -> _Array:
    return rng.integers(0, 1 << 32, records, dtype=np.uint64)


def _blocks(rng: np.random.Generator, records: int) -> _Array:
    return rng.normal(size=(records, 64)).astype(np.float32)


def _bytes(rng: np.random.Generator, records: int) -> _Array:
    return rng.integers(0, 256, (records, 4096), dtype=np.uint8)


def _numbers(rng: np.random.Generator, records: int) -> _Array:
    return rng.integers(-(1 << 31), 1 << 31, (records, 8192), dtype=np.int32)


def _runs(rng: np.random.Generator, records: int) -> _Array:
    values = rng.integers(0, 4, (records, 512), dtype=np.uint8)
    return np.repeat(values, 8, axis=1)


JOBS = (
    Job("mix", 220, _seeds),
    Job("dct", 250, _blocks),
    Job("sha256", 420, _bytes),
    Job("quicksort", 32, _numbers),
    Job("runs", 300, _runs),
)


@dataclass
class Row:
    """A program: million instructions, CPU seconds interpreted, and of each translated run."""

    name: str
    instructions: int = 0
    interpreted: list[float] = field(default_factory=list)
    translated: list[list[float]] = field(default_factory=lambda: [[] for _ in TURNS])

    @property
    def interpreted_s(self) -> float:
        """The median."""
        return statistics.median(self.interpreted)

    @property
    def translated_s(self) -> list[float]:
        """The medians of the first, second and third runs."""
        return [statistics.median(turn) for turn in self.translated]

    @property
    def verdict(self) -> str:
        """Whether the promise was kept."""
        most = FACTOR * self.interpreted_s + GRACE_S
        over = [name for name, took in zip(TURNS, self.translated_s, strict=True) if took > most]
        return f"MISSED: {', '.join(over)} above {most:.3f} s" if over else "kept"


def program(name: str) -> Any:
    """Return a job's program; SHA-256 is a ready-made one."""
    from nandarray import Program, programs

    return programs.get(name) if name == "sha256" else Program.from_c(KERNELS / f"{name}.c")


def _child(pipe: Connection, folder: Path, name: str, scale: float) -> None:
    import nandarray

    job = next(job for job in JOBS if job.name == name)
    made = program(name)
    with nandarray.open(folder / f"{name}.nand", mode="w") as store:
        store["x"] = job.make(np.random.default_rng(20), max(1, round(job.records * scale)))

        def run(form: str) -> tuple[float, Any]:
            begin = time.process_time()
            done = nandarray.offload(made, [store["x"]], form=form, threads=1)
            return time.process_time() - begin, done

        first = nandarray.offload(
            made, [nandarray.Box(store.open_array("x"), np.s_[:1])], form="interpreted", threads=1
        )
        assert first.account.instructions
        took, wanted = zip(*[run("interpreted") for _ in TURNS], strict=True)
        translated = [run("translated") for _ in TURNS]
        for _, done in translated:
            if done.account.instructions != wanted[0].account.instructions:
                raise SystemExit(f"{name}: another count of instructions than interpreted")
            if not np.array_equal(done.result, wanted[0].result):
                raise SystemExit(f"{name}: another result than interpreted")
    pipe.send((wanted[0].account.instructions, statistics.median(took), [one for one, _ in translated]))


def measure(
    folder: Path, *, rounds: int, only: Sequence[str] = (), scale: float = 1.0, say: Callable[[str], None] = print
) -> list[Row]:
    """Run all programs, each round in processes of their own.

    Parameters
    ----------
    folder : pathlib.Path
        Where the stores go; removed behind.
    rounds : int
        How often; figures are medians.
    only : sequence of str
        Names of programs; all if empty.
    scale : float
        Of the inputs.
    say : callable
        Told how far it is.

    Returns
    -------
    list of Row
        In the order of :data:`JOBS`.
    """
    rows = [Row(job.name) for job in JOBS if not only or job.name in only]
    context = multiprocessing.get_context("spawn")
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        program(row.name)  # compiled before it is measured
    for turn in range(rounds):
        say(f"round {turn + 1} of {rounds}")
        for row in rows:
            ours, theirs = context.Pipe()
            with tempfile.TemporaryDirectory(dir=folder) as place:
                child = context.Process(target=_child, args=(theirs, Path(place), row.name, scale))
                child.start()
                theirs.close()
                try:
                    row.instructions, interpreted, translated = ours.recv()
                except EOFError:
                    raise SystemExit(f"{row.name}: the process that ran it failed") from None
                finally:
                    child.join()
            row.interpreted.append(interpreted)
            for all_, one in zip(row.translated, translated, strict=True):
                all_.append(one)
    return rows


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as text."""
    header = ["program", "million instructions", "interpreted, s", *(f"translated {turn}, s" for turn in TURNS)]
    header += ["times interpreting it", "verdict"]
    lines = []
    for row in rows:
        ratios = " ".join(f"{took / row.interpreted_s:.2f}" for took in row.translated_s)
        cells = [f"{row.instructions / 1e6:.1f}", *(f"{took:.3f}" for took in (row.interpreted_s, *row.translated_s))]
        lines.append([row.name, *cells, ratios, row.verdict])
    return header, lines
