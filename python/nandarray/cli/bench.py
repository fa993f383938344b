"""A quick look at how fast a store is on this machine and disk, without any peer.

One 2-D float32 array of pseudo-random numbers is written and read back by the usual patterns; a table says GB/s, and
the machine's own memory copy stands beside it as the ceiling. Each pattern's data is compared once with the array's.
Reads come from the page cache: this shows the software, not the disk.

Comparing with other array stores is ``make bench``'s job, not this one's.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.table import Table

import nandarray

__all__ = ["LEAST_BYTES", "Measurement", "run", "table"]

_BAND, _BLOCK, _POINTS, _PLACES = 256, 1024, 10_000, 64
LEAST_BYTES = 4 * (2 * _BLOCK) ** 2


@dataclass(frozen=True)
class Measurement:
    """One line of the table."""

    pattern: str
    bytes_per_call: int
    calls: int
    seconds: float

    @property
    def gb_per_s(self) -> float:
        """Gigabytes (1e9) a second."""
        return self.bytes_per_call * self.calls / max(self.seconds, 1e-9) / 1e9


def run(size: int, *, directory: Path | None, compression: str | None, seconds: float) -> Iterator[Measurement]:
    """Measure pattern after pattern, each repeated for some ``seconds``; the machine's memory copy comes first.

    ``size`` is the bytes of the array, at least ``LEAST_BYTES``, rounded to a square of whole bands. The store lies in
    ``directory`` while this runs; ``compression`` is as ``store.create`` takes it.
    """
    side = isqrt(size // 4) // _BAND * _BAND
    random = np.random.default_rng(0)
    data = random.integers(0, 1 << 12, (side, side), dtype=np.uint16).astype(np.float32)  # compresses a little
    yield _timed("memory copy", data.nbytes, functools.partial(np.copyto, np.empty_like(data), data), seconds)
    with (
        TemporaryDirectory(dir=directory, prefix="nandarray-bench-") as folder,
        nandarray.open(Path(folder) / "bench.nand", "w") as store,
    ):
        array = store.create("a", data.shape, data.dtype, compression=compression)

        def write() -> None:
            array[...] = data
            store.flush()

        yield _timed("write all, flushed", data.nbytes, write, 0)
        for pattern, keys in _patterns(side, random):
            got = array[keys[0]]
            if not np.array_equal(got, data[keys[0]]):
                raise RuntimeError(f"{pattern}: what was read is not what was written")
            turn = itertools.cycle(keys)
            yield _timed(pattern, got.nbytes, lambda turn=turn: array[next(turn)], seconds)  # type: ignore[misc]


def _patterns(side: int, random: np.random.Generator) -> Iterator[tuple[str, list[Any]]]:
    """Run each pattern on places drawn beforehand, so that drawing them takes no part of the time."""
    everything = slice(None)

    def cuts(extent: int, grid: int = 1) -> list[slice]:
        lows = random.integers((side - extent) // grid + 1, size=_PLACES) * grid
        return [slice(int(low), int(low) + extent) for low in lows]

    yield f"row bands of {_BAND}", [(cut, everything) for cut in cuts(_BAND, _BAND)]
    yield f"column bands of {_BAND}", [(everything, cut) for cut in cuts(_BAND, _BAND)]
    yield f"aligned blocks of {_BLOCK} x {_BLOCK}", list(zip(cuts(_BLOCK, _BLOCK), cuts(_BLOCK, _BLOCK), strict=True))
    yield "unaligned blocks of 1000 x 1000", list(zip(cuts(1000), cuts(1000), strict=True))
    yield "single rows", [(cut, everything) for cut in cuts(1)]
    yield "single columns", [(everything, cut) for cut in cuts(1)]
    yield f"{_POINTS:,} random elements", [tuple(random.integers(side, size=(2, _POINTS))) for _ in range(8)]


def _timed(pattern: str, size: int, call: Callable[[], Any], seconds: float) -> Measurement:
    calls, begin = 0, time.perf_counter()
    while True:
        call()
        calls += 1
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds:
            return Measurement(pattern, size, calls, elapsed)


def table(measurements: list[Measurement], title: str) -> Table:
    """Lay the measurements out, each with its part of the memory copy's speed."""
    result = Table(title=title, title_justify="left")
    result.add_column("pattern")
    for heading in ("GB/s", "of a memory copy", "calls", "time a call"):
        result.add_column(heading, justify="right")
    ceiling = measurements[0].gb_per_s
    for item in measurements:
        each = item.seconds / item.calls
        result.add_row(
            item.pattern,
            f"{item.gb_per_s:.2f}" if item.gb_per_s >= 0.1 else f"{item.gb_per_s:.4f}",
            f"{item.gb_per_s / ceiling:.0%}",
            f"{item.calls:,}",
            f"{each * 1e3:.2f} ms" if each >= 1e-3 else f"{each * 1e6:.0f} us",
        )
    return result
