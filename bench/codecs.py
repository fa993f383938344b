"""Whole reads of packed arrays: GB of integers per CPU second through NumPy, beside plain and LZ4 arrays.

Values of 12 random bits in elements of 4 bytes; the page cache holds the file, and each page was verified before. The
array is read into memory that was touched before. The decoder alone, beside a published codec of integers, is measured
by ``cargo run --release -p nandarray --example codecs``.

Promised: 8 GB/s of the decoder of bit packing alone.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

COMPRESSIONS = (None, "bitpack", "varwidth", "lz4+bitshuffle")


@dataclass
class Row:
    """A compression: GB of integers per CPU second of each round, and its size."""

    name: str
    share: float = 0.0
    writes: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)


def measure(folder: Path, *, rounds: int, size: int = 256 << 20, say: Callable[[str], None] = print) -> list[Row]:
    """Write and read an array with every compression, in turn.

    Parameters
    ----------
    folder : pathlib.Path
        Folder for the store, which is removed afterwards.
    rounds : int
        Number of rounds; figures are medians.
    size : int
        Bytes of the array.
    say : callable
        Function that is called with a line about the progress.

    Returns
    -------
    list of Row
        In the order of :data:`COMPRESSIONS`; the last one is a copy by NumPy.
    """
    import nandarray

    values = np.random.default_rng(12).integers(0, 1 << 12, size // 4, dtype=np.uint32)
    out = np.ones_like(values)
    rows = [Row(name or "plain") for name in COMPRESSIONS] + [Row("copy")]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place, nandarray.open(Path(place) / "c.nand", "w") as store:
        for turn in range(rounds):
            say(f"round {turn + 1} of {rounds}")
            for row, name in zip(rows, COMPRESSIONS, strict=False):
                array = store.create("a", values.shape, values.dtype, compression=name)
                begin = time.process_time()
                array[...] = values
                store.flush()
                row.writes.append(values.nbytes / 1e9 / (time.process_time() - begin))
                row.share = array.stat()["bytes_stored"] / values.nbytes
                array.read(out=out)
                begin = time.process_time()
                array.read(out=out)
                row.reads.append(values.nbytes / 1e9 / (time.process_time() - begin))
                if not np.array_equal(out, values):
                    raise AssertionError(f"{row.name} reads other values")
                del store["a"]
            begin = time.process_time()
            np.copyto(out, values)
            rows[-1].reads.append(values.nbytes / 1e9 / (time.process_time() - begin))
    return rows


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as text."""
    header = ["compression", "stored", "written, GB a CPU second", "read, GB a CPU second"]
    lines = []
    for row in rows:
        figures = [f"{statistics.median(one):.2f}" if one else "" for one in (row.writes, row.reads)]
        lines.append([row.name, f"{row.share:.0%}" if row.share else "", *figures])
    return header, lines
