"""Promise: the lab measures the host's reads beside a program, and the program beside the host's reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from nandarray import lab


def test_reads_beside_a_program_take_longer(tmp_path: Path) -> None:
    run = lab.run("model.beside", profile="small", runs=tmp_path)
    rows = run.rows("rates")
    assert len(rows) == 4, "cores that read streams, and cores that read blocks"
    alone, beside = rows[:2]
    assert alone["reads"] == beside["reads"] > 20
    assert beside["mean_us"] > alone["mean_us"], "dies and channels are shared"
    assert beside["p99_us"] >= beside["p50_us"]
    # It loses little: 20,000 reads a second of 4 KiB are a hundredth of what the flash gives.
    assert 1.0 < beside["program_takes"] < 1.1


def test_a_device_without_cores_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="has no cores for programs"):
        lab.run("model.beside", profile="small", runs=tmp_path, parameters={"devices": ["samsung-970-pro"]})
