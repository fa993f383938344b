"""The gallery under examples/ runs, says what it should, and stays short. The demo has tests of its own.

Pages quote examples in blocks of ``py``, word for word.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
GALLERY = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "demo.py")

# Texts that each example has to print; an example without an entry fails.
SAYS = {
    "climate.py": ["{'time': 1461, 'lat': 36, 'lon': 72}", "mean: 0.50 K a year", "warmest: 310.3 K"],
    "compute.py": ["mean 15.0 highest 55.3", "of 1000000", "two sensors: (2000, 2)"],
    "encrypted.py": ["is encrypted: no key was given", "all of the plain array: True"],
    "lab_quickstart.py": ["Little's law holds: True", "['changes'] differ", "the same bytes again: True"],
    "lab_sweep.py": ["30 points over", "6 failed", "most bandwidth for the cost proxy"],
    "feature_loader.py": ["epoch 0:", "rows of 32 features"],
    "many_array_job.py": ["version 2 rows of each task: [0.0, 1.0, 2.0, 3.0]"],
    "many_futures.py": ["version 3 of (256, 512) last row 255.0", "merged shards: 0 of 4"],
    "many_mpi.py": ["2 ranks, version 3 first column [0.0, 1.0]"],
    "many_pool.py": ["rows: 256 sum here: 16711680", "not yet in the store: 0.0", "version 3 last row 255.0"],
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
    if example.name == "many_mpi.py":
        mpiexec = shutil.which("mpiexec")
        if mpiexec is None or importlib.util.find_spec("mpi4py") is None:
            pytest.skip("mpiexec or mpi4py is not installed")
        command = [mpiexec, "-n", "2", *command]
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


def test_an_array_job_is_submitted_and_its_failed_tasks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in place of Slurm's, which loses the last task of the first job."""
    (tmp_path / "bin").mkdir()
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(
        f"""#!/bin/sh
echo "$1 $2 $3" >> {tmp_path}/submitted
for task in $(echo "$2" | tr -c '0-9\n' ' '); do
    [ "$2 $task" = "--array=0,1,2,3 3" ] || SLURM_ARRAY_TASK_ID=$task sh -c "$4" &
done
wait
"""
    )
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}:/usr/bin:/bin")
    command = [sys.executable, str(EXAMPLES / "many_array_job.py"), str(tmp_path / "data.nand")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "rows of each task: [0.0, 1.0, 2.0, 3.0]" in ran.stdout
    submitted = (tmp_path / "submitted").read_text().split("\n")
    assert submitted == ["--wait --array=0,1,2,3 --wrap", "--wait --array=3 --wrap", ""]


def test_pages_quote_examples_word_for_word() -> None:
    page = (ROOT / "docs" / "guides" / "many-processes.md").read_text()
    texts = [path.read_text() for path in GALLERY]
    quoted = re.findall(r"^```py\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert quoted
    assert not [one for one in quoted if not any(one in text for text in texts)]
