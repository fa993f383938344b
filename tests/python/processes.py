"""Processes that a test starts, and their end."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path


def ended(process: subprocess.Popen[str], seconds: float = 30) -> int:
    """Wait for the end of a process; one that does not end is stopped, and the error names its threads.

    ``PYTHONFAULTHANDLER``, which conftest.py sets, has it print the stacks of its Python threads.
    """
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        threads = [
            " ".join((task / name).read_text().strip() for name in ("comm", "wchan", "syscall"))
            for task in sorted(Path(f"/proc/{process.pid}/task").iterdir())
        ]
        process.send_signal(signal.SIGABRT)
        process.wait(seconds)
        raise AssertionError(f"{process.args} did not end in {seconds} s:\n" + "\n".join(threads)) from None


def killed(program: str, path: Path, seed: int, seconds: float) -> list[int]:
    """Run a program of Python on a store, kill it some time after its first line, and return the numbers it printed."""
    child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as lines:
        first = lines.readline()
        time.sleep(random.Random(seed).random() * seconds)
        child.send_signal(signal.SIGKILL)
        rest = lines.read()
    ended(child)
    return [int(line) for line in (first + rest).split("\n")[:-1] if line]
