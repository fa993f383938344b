"""Many writers with multiprocessing: the array of a transaction goes to a pool, whose processes assign to it.

Run it as ``python examples/many_pool.py [store]``.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from pathlib import Path

import numpy as np

import nandarray
from nandarray import parts

ROWS, STEP = 256, 64


def work(array: nandarray.Array, row: int) -> int:
    """Assign some rows of an array that was pickled: they go to a part of this process."""
    array[row : row + STEP] = np.arange(row, row + STEP)[:, None]
    return STEP


def main(path: Path) -> None:
    """Change an array with two processes, as one version."""
    with parts.create(path) as store:
        store.create("cube", (ROWS, 512), "f4", shards=(STEP, 512), building_block=(STEP, 512))
        with store.transaction("by a pool") as tx, multiprocessing.get_context("spawn").Pool(2) as pool:
            done = pool.starmap(work, [(tx["cube"], row) for row in range(0, ROWS, STEP)])
            tx.collect()  # while the processes live, so that each seals its part
            print("rows:", sum(done), "sum here:", int(tx["cube"].reduce("sum")))
            print("not yet in the store:", store["cube"][-1, 0])
        print("version", store.version, "last row", store["cube"][-1, 0])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "data.nand")
