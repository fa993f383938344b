"""Many writers with an array job of Slurm: a transaction waits for the tasks, and commits what they wrote.

Run it as ``python examples/many_array_job.py STORE`` on a shared file system: it submits itself as an array job.
Without Slurm the tasks are processes of this machine. Tasks that left no receipt are submitted again.
"""

from __future__ import annotations

import os
import pickle
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from nandarray import parts

TASKS, STEP = 4, 64


def work(notes: Path, task: int) -> None:
    """Do a task of the array job: write its rows, and leave the receipt."""
    fork: parts.Fork = pickle.loads((notes / "fork").read_bytes())
    with fork.writer() as writer:
        receipt = writer.write("cube", np.s_[task * STEP : (task + 1) * STEP], np.full((STEP, 512), task, "f4"))
    (notes / f"new-{task}").write_bytes(pickle.dumps(receipt))
    (notes / f"new-{task}").rename(notes / f"receipt-{task}")  # whole, or not there


def submit(command: list[str], tasks: list[int]) -> None:
    if shutil.which("sbatch"):
        array = f"--array={','.join(map(str, tasks))}"
        subprocess.run(["sbatch", "--wait", array, "--wrap", shlex.join(command)], check=False)
        return
    for process in [subprocess.Popen(command, env={**os.environ, "SLURM_ARRAY_TASK_ID": str(i)}) for i in tasks]:
        process.wait()


def main(path: Path, notes: Path) -> None:
    with parts.create(path) as store, store.transaction("by an array job") as tx:
        tx.create("cube", (TASKS * STEP, 512), "f4", shards=(STEP, 512), building_block=(STEP, 512))
        notes.mkdir()
        (notes / "fork").write_bytes(pickle.dumps(tx.fork()))
        receipts = [notes / f"receipt-{task}" for task in range(TASKS)]
        for _ in range(3):
            if left := [task for task in range(TASKS) if not receipts[task].exists()]:
                submit([sys.executable, __file__, str(path)], left)
        tx.merge(pickle.loads(receipt.read_bytes()) for receipt in receipts)
        print("version", tx.commit(), "rows of each task:", tx["cube"][::STEP, 0].tolist())
    shutil.rmtree(notes)


if __name__ == "__main__":
    place = Path(sys.argv[1]).absolute()
    own = os.environ.get("SLURM_ARRAY_TASK_ID")
    main(place, place.with_suffix(".job")) if own is None else work(place.with_suffix(".job"), int(own))
