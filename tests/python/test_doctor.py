"""``nandarray doctor``: every path has a row, a path that is tried here works, and a fault is the exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nandarray.cli import doctor

PATHS = ["mapped file", "direct I/O", "shared memory", "NVMe/TCP", "NVMe/TCP host", "CUDA build", "CUDA run"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nandarray", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_every_path_has_a_row_and_each_absence_a_cure(tmp_path: Path) -> None:
    done = run(str(tmp_path), "--json")
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout)
    assert [row["name"] for row in found] == PATHS
    states = {row["name"]: row["state"] for row in found}
    for path in ("mapped file", "shared memory", "NVMe/TCP"):
        assert states[path] == "works", found
    for row in found:
        assert row["state"] == "works" or (row["why"] and row["cure"]), row
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_none_is_a_wrong_command_line(tmp_path: Path) -> None:
    done = run(str(tmp_path / "none"))
    assert done.returncode == 2
    assert "does not exist" in " ".join(done.stderr.replace("│", " ").split())


def test_a_check_that_raises_fails_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(folder: Path) -> doctor.Check:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor, "_ALL", (broken,))
    (check,) = doctor.checks(tmp_path)
    assert (check.name, check.state) == ("broken", "fails")
    assert "Permission denied" in check.why
