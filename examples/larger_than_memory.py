"""Reduce an array piece by piece, with Dask and without: memory stays at a few pieces whatever the array's size.

python examples/larger_than_memory.py [store]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import nandarray


def fill(array: nandarray.Array) -> None:
    """Write slabs of whole building blocks, so that nothing is read to complete them."""
    random = np.random.default_rng(0)
    step = array.building_block[0]
    for start in range(0, array.shape[0], step):
        rows = min(step, array.shape[0] - start)
        array[start : start + rows] = random.standard_normal((rows, *array.shape[1:]), "f4") + np.float32(280)


def mean_by_hand(array: nandarray.Array, columns: int = 32) -> np.ndarray:
    """Average over time: read bands of the last axis into one buffer, each over all times."""
    result = np.empty(array.shape[1:], "f8")
    buffer = np.empty((*array.shape[:-1], columns), array.dtype)
    for start in range(0, array.shape[-1], columns):
        array.read(np.s_[..., start : start + columns], out=buffer)
        result[:, start : start + columns] = buffer.mean(axis=0, dtype="f8")
    return result


def main(path: Path) -> None:
    """Make, reduce twice, compare."""
    with nandarray.open(path, "w") as store:
        field = store.create("t2m", (96, 160, 320), "f4", attrs={"_ARRAY_DIMENSIONS": ["time", "lat", "lon"]})
        fill(field)
        by_hand = mean_by_hand(field)
        print(f"{field.nbytes >> 20} MiB, mean {by_hand.mean():.2f}")
        try:
            by_dask = nandarray.to_dask(field).mean(axis=0, dtype="f8").compute()
        except ImportError as error:
            print(error)
        else:
            print(f"Dask agrees to {np.abs(by_dask - by_hand).max():.0e}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "data.nand")
