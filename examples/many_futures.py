"""Many writers with concurrent.futures: each task writes a box to a part of its own, and gives a receipt.

Run it as ``python examples/many_futures.py [store]``.
"""

from __future__ import annotations

import itertools
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from nandarray import parts

ROWS, STEP = 256, 64


def work(fork: parts.Fork, row: int) -> parts.Receipt:
    """Compute some rows and write them, in any process."""
    rows = np.arange(row, row + STEP, dtype="f4")[:, None]
    with fork.writer() as writer:
        return writer.write("cube", np.s_[row : row + STEP], rows + np.zeros(512, "f4"))


def main(path: Path) -> None:
    """Make an array with two processes, as one version."""
    with parts.create(path) as store:
        store.create("cube", (ROWS, 512), "f4", shards=(STEP, 512), building_block=(STEP, 512))
        spawned = multiprocessing.get_context("spawn")
        with store.transaction("by futures") as tx, ProcessPoolExecutor(2, spawned) as pool:
            fork = tx.fork()
            tx.merge(pool.map(work, itertools.repeat(fork), range(0, ROWS, STEP)))
        print("version", store.version, "of", store["cube"].shape, "last row", store["cube"][-1, 0])
        print("merged shards:", tx.stats["shards_merged"], "of", tx.stats["receipts"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "data.nand")
