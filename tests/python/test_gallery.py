"""The gallery under examples/ runs, says what it should, and stays short. The demo has tests of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GALLERY = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "demo.py")

# Texts that each example has to print; an example without an entry fails.
SAYS = {
    "climate.py": ["{'time': 1461, 'lat': 36, 'lon': 72}", "mean: 0.50 K a year", "warmest: 310.3 K"],
    "compute.py": ["mean 15.0 highest 55.3", "of 1000000", "two sensors: (2000, 2)"],
    "encrypted.py": ["is encrypted: no key was given", "all of the plain array: True"],
    "lab_quickstart.py": ["Little's law holds: True", "['changes'] differ", "the same bytes again: True"],
    "lab_sweep.py": ["30 points over", "6 failed", "most bandwidth for the cost proxy"],
    "feature_loader.py": ["epoch 0:", "rows of 32 features"],
    "larger_than_memory.py": ["MiB, mean 280.0", "Dask agrees"],
    "pipeline.py": ["mean 5.953 ms; 205 took more than 20 ms", "parse"],
    "pipeline_file.py": ["degrees 30 to 50: 10841 values", "the highest: 55.3", "2,880,000 bytes in"],
    "segmentation.py": ["epoch 3: mean error 0.09", "right: 0.98 of all voxels, 0.92 of those in balls"],
    "tiles.py": ["96 tiles, right"],
    "time_series.py": ["before refresh (3600,)", "after refresh  (7200,)"],
}


@pytest.mark.parametrize("example", GALLERY, ids=lambda path: path.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(example), str(tmp_path / "data.nand")]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert ran.returncode == 0, ran.stderr
    for line in SAYS[example.name]:
        assert line in ran.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["data.nand"]


@pytest.mark.parametrize("example", GALLERY, ids=lambda path: path.name)
def test_an_example_is_short_and_opens_with_what_it_shows(example: Path) -> None:
    text = example.read_text()
    assert text.startswith('"""')
    assert len(text.splitlines()) < 60
