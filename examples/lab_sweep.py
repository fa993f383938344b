"""A sweep: many devices at once, those that cannot be kept apart, and the ones that nothing beats.

Run it as ``python examples/lab_sweep.py [folder]``. It needs ``pip install '.[lab]'``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from nandarray import lab

SPEC = {
    "name": "design",
    "title": "How much flash, how fast, behind which link?",
    "device": "mqsim-ideal",
    "axes": {
        "geometry.channels": [2, 4, 8, 16, 512],  # the last one cannot be: at most 256
        "nand.t_read": {"from": "20 us", "to": "80 us", "steps": 3},
        "link.rate": ["PCIe 3 x1", "PCIe 3 x4"],
    },
    "workload": {"requests": 500, "size": "16 KiB", "depth": 64},
}


def main(folder: Path) -> None:
    """Measure thirty points; show the best."""
    sweep = lab.sweep(SPEC, runs=folder, jobs=1)
    print(sweep)
    print(f"{len(sweep.failures)} failed, the first: {sweep.failures[0]['error']}")

    best = sweep.pareto({"bytes_per_s": "max", "cost": "min"}).sort_values("cost")
    print("most bandwidth for the cost proxy:")
    print(best[["geometry.channels", "nand.t_read_us", "link.rate", "bytes_per_s", "cost"]].to_string(index=False))

    # As arrays: what a faster link gives, by channels and cells.
    found = sweep.to_xarray()["bytes_per_s"]
    gain = found.sel({"link.rate": "PCIe 3 x4"}) / found.sel({"link.rate": "PCIe 3 x1"})
    print("a wider link gives, on average over cells:", gain.mean("nand.t_read_us").round(2).values.tolist())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(made))
