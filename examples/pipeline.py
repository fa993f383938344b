"""A pipeline of programs: a log is parsed, filtered and summed up beside the data, and only the results come back.

Run it as ``python examples/pipeline.py [store]``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import nandarray
from nandarray import programs

ROW = [("bad", "uint64"), ("c0", "int64"), ("c1", "int64")]  # what the program "parse" gives for a line of two numbers


@nandarray.program(inputs=ROW)
def milliseconds(row):
    """One element of the input gives one of the output; here it is a parsed line."""
    return (row["c1"] - row["c0"]) / 1e6


@nandarray.program.filter(inputs="float64", scalars={"above": "float64"})
def slow(taken, above):
    """Keeps what it is true for."""
    return taken > above


def main(path: Path) -> None:
    """Make a store, and run a tree of programs in it."""
    rng = np.random.default_rng(1)
    begin = np.sort(rng.integers(0, 10**12, 20_000))
    end = begin + rng.gamma(2, 3e6, begin.size).astype("i8")
    text = "".join(f"{b},{e}\n" for b, e in zip(begin, end, strict=True)).encode()

    with nandarray.open(path, mode="w") as store:
        store["log"] = np.frombuffer(text, dtype="u1")
        store.create("slow", (begin.size,), "float64")

        # Nothing is read yet: a step is a program with its inputs.
        taken = milliseconds.on(programs.get("parse", fields=("int", "int")).on(store["log"]))
        late = slow.on(taken, above=20.0)

        # All of it in one go: the log is parsed once, and what programs give each other is never whole in memory.
        wanted = {"mean": programs.get("mean", dtype="float64").on(taken), "late": late}
        found = nandarray.offload(wanted, out={"late": store["slow"]})
        print("mean", round(found.outputs["mean"], 3), "ms;", found.outputs["late"], "took more than 20 ms")
        print("the slowest of the first ten of them:", store["slow"][:10].max().round(1), "ms")
        for step in found.account.steps:
            print(f"{step.name:14} {step.form:12} {step.bytes_in:>9,} bytes in {step.bytes_out:>9,} out")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "data.nand")
