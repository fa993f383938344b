"""Processes that a test starts, and their end."""

from __future__ import annotations

import signal
import subprocess
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
