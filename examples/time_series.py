"""A logger that appends, and a reader beside it: the reader sees what is committed, and never half of a record.

python examples/time_series.py [store]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import nandarray

SAMPLE = np.dtype([("time", "M8[ms]"), ("temperature", "f4"), ("status", "u1")])
SECOND = np.timedelta64(1000, "ms")


def samples(first: int, count: int) -> np.ndarray:
    """Make ``count`` samples, one a second."""
    made = np.zeros(count, SAMPLE)
    number = np.arange(first, first + count)
    made["time"] = np.datetime64("2026-01-01", "ms") + number * SECOND
    made["temperature"] = 20 + 5 * np.sin(number / 600)
    return made


def main(path: Path) -> None:
    """Append in the writer, look in the reader."""
    writer = nandarray.open(path, "w")
    log = writer.create("station7/log", (0,), SAMPLE, compression="zstd+shuffle", attrs={"units": "degC"})
    log.append(samples(0, 3600))
    writer.flush()

    reader = nandarray.open(path)  # one writer, any number of readers
    seen = reader["station7/log"]
    log.append(samples(3600, 3600))
    print("before refresh", seen.shape)
    writer.flush()
    reader.refresh()
    print("after refresh ", seen.shape)

    temperature = seen["temperature"]  # one field of every sample
    print("last hour     ", f"{temperature[-3600:].mean():.2f} degC")
    print("last sample   ", seen[-1]["time"])
    reader.close()
    writer.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "data.nand")
