"""A pipeline from the command line: steps in a TOML file, run by ``nandarray program run --pipeline``.

Run it as ``python examples/pipeline_file.py [store]``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import nandarray

PIPELINE = """
[inputs]
field = "none.nand:/given-on-the-command-line"

[steps.warm]                      # what is warmer than 25 degrees
program = "filter"
inputs = ["field"]
scalars = { low = 25.0, high = 100.0 }

[steps.spread]                    # where those lie
program = "histogram"
inputs = ["warm"]
scalars = { bins = 5, low = 25.0, high = 50.0 }

[steps.highest]
program = "minmax"
inputs = ["warm"]
"""


def main(path: Path) -> None:
    """Make a store, write the file, run it on a view of half of an array."""
    with nandarray.open(path, mode="w") as store:
        store["temperature"] = np.random.default_rng(1).normal(15, 8, (365, 100, 20))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "warm.toml"
        file.write_text(PIPELINE)
        command = [sys.executable, "-m", "nandarray", "program", "run", "--pipeline", str(file), "--json"]
        # The array as a table of days, of which the first 180 are taken.
        command += [f"field={path}:/temperature@365x2000[:180]", "-s", "warm.low=30"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print("degrees 30 to 50:", sum(found["outputs"]["spread"]), "values,", found["outputs"]["spread"])
    print("the highest:", round(found["outputs"]["highest.greatest"], 1))
    for step in found["account"]["steps"]:
        print(f"{step['step']:8} {step['tasks']} tasks, {step['bytes_in']:>9,} bytes in, {step['bytes_out']:>7,} out")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "data.nand")
