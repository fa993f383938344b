"""Compute beside the data: readings of sensors are filtered, reduced and converted without being read.

Run it as ``python examples/compute.py [store]``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import nandarray


def fahrenheit(celsius: float, offset: float) -> float:
    """A function of one element; it is compiled for the array's dtype."""
    return celsius * 9 / 5 + offset


def main(path: Path) -> None:
    """Make a store and compute in it."""
    with nandarray.open(path, mode="w") as store:
        rng = np.random.default_rng(1)
        readings = store.create("celsius", (2000, 500), "float32", data=rng.normal(15, 8, (2000, 500)))

        print("mean", round(float(readings.reduce("mean")), 2), "highest", readings.reduce("max"))
        print("below freezing:", readings.filter(lambda x: x < 0).size, "of", readings.size)
        print("warmest of sensor 7:", readings.reduce(lambda a, b: max(a, b), key=np.s_[:, 7]))

        made = readings.map_blocks(fahrenheit, offset=32.0, dtype="float32", out="fahrenheit")
        print(made, made[0, :3])

        print("two sensors:", readings.select(0, 499).shape)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "data.nand")
