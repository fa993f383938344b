"""``python -m bench gpu`` without a GPU: its kernels on the shim, and the whole of it on a driver of host threads.

``tests/gpu/bodies.cpp`` runs the bodies of the kernels on warps with seeded schedules; ``tests/gpu/card.cpp`` is a
driver's library whose card is this machine's threads, so that the script meets a real server and its checks must hold.
Speed is not looked at.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nandarray_papers
from bench import gpu as script
from bench.gpu.card import Card, CardError, HungError, NoCardError
from bench.gpu.checks import BrokenError
from bench.gpu.door import Host
from bench.gpu.session import SHORT, MissingError, Session, Step, u64
from nandarray import gpu

ROOT = Path(__file__).parents[2]
GPU = ROOT / "tests" / "gpu"
DEEP = bool(os.environ.get("NANDARRAY_DEEP"))
SEEDS = range(1, 40) if DEEP else range(1, 4)
CASES = ("random_reads", "gather_rows", "vector_add_lines", "store_words", "read_statuses", "constants", "ping_pong")

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def build(source: str, to: Path, *flags: str) -> Path:
    folders = (gpu.include(), GPU, Path(nandarray_papers.__file__).parent / "bam" / "native", ROOT / "bench" / "gpu")
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Wno-clobbered", "-pthread", *flags]
    subprocess.run([*command, *(f"-I{f}" for f in folders), str(GPU / source), "-o", str(to)], check=True, timeout=300)
    return to


@pytest.fixture(scope="module")
def bodies(tmp_path_factory):
    return build("bodies.cpp", tmp_path_factory.mktemp("bodies") / "bodies", "-g")


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return build("card.cpp", tmp_path_factory.mktemp("card") / "card.so", "-shared", "-fPIC")


@pytest.fixture
def session(driver, tmp_path):
    card = Card(str(driver))
    card.begin(b"kernels of the driver itself")
    return Session(card, Host(tmp_path), tmp_path, SHORT)


@needs_compiler
@pytest.mark.parametrize("mode", ["together", "split"])
@pytest.mark.parametrize("case", CASES)
def test_every_kernel_on_warps(bodies, case, mode) -> None:
    for seed in SEEDS:
        words = [bodies, case, str(seed), *(["split"] if mode == "split" else [])]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"seed {seed}\n{done.stderr}"


def test_no_kernel_runs_untested() -> None:
    kernels = set(re.findall(r"__global__ void (\w+)", (ROOT / "bench" / "gpu" / "kernels.cu").read_text()))
    on_threads = set(re.findall(r"kernel\(bench::(\w+)<P>\)", (GPU / "card.cpp").read_text()))
    on_warps = set(re.findall(r"bench::(\w+)<P>\(at", (GPU / "bodies.cpp").read_text()))
    launched = set()
    for source in (ROOT / "bench" / "gpu").glob("*.py"):
        launched |= set(re.findall(r'(?:session\.run|card\.launch)\(\s*"(\w+)"', source.read_text()))
    assert kernels == on_threads == on_warps == launched


def test_without_a_driver_every_row_says_so_and_the_exit_is_0(tmp_path) -> None:
    command = [sys.executable, "-m", "bench", "gpu", "--driver", "/nowhere/libcuda.so.1", "--folder", str(tmp_path)]
    command += ["--json", str(tmp_path / "rows.json"), "--markdown", str(tmp_path / "rows.md")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row[:2] for row in rows] == [[step.part, what] for step in script.STEPS for what in step.rows]
    assert {row[2] for row in rows} == {"not measured here (no driver of CUDA (libcuda.so.1))"}
    lines = (tmp_path / "rows.md").read_text().splitlines()
    assert "No GPU." in lines[0]
    assert sum(line.startswith(("| check", "| constant", "| load")) for line in lines) == len(rows)


@needs_compiler
def test_a_driver_without_a_card_is_a_reason(driver, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NANDARRAY_CARD_COUNT", "0")
    with pytest.raises(NoCardError, match="finds no GPU"):
        Card(str(driver))
    card, rows = script.measure(tmp_path, short=True, driver=str(driver))
    assert (card, {row.result for row in rows}) == ("No GPU.", {"not measured here (the driver finds no GPU (code 0))"})
    assert not script.failed(rows)


@needs_compiler
def test_without_a_compiler_of_kernels_the_reason_is_that(driver, tmp_path, monkeypatch) -> None:
    class Tool:
        @staticmethod
        def installed() -> None:
            return None

        @staticmethod
        def toolkit(folder: Path) -> None:
            return None

    monkeypatch.setattr(script, "_tool", lambda: Tool)
    card, rows = script.measure(tmp_path, short=True, driver=str(driver))
    assert card == "threads of a host, sm_90, driver for CUDA 13.0."
    assert {row.result for row in rows} == {"not measured here (no nvcc, and its wheels cannot be fetched)"}


@needs_compiler
def test_the_whole_script_on_threads_of_this_machine(driver, tmp_path) -> None:
    """A real server, the kernels' bodies, every check and every measurement; only libraries that are not here lack."""
    kernels = tmp_path / "kernels.cubin"
    kernels.write_bytes(b"kernels of the driver itself")
    heard: list[str] = []
    card, rows = script.measure(tmp_path, short=True, driver=str(driver), cubin=kernels, say=heard.append)
    assert card.startswith("threads of a host")
    assert len(heard) == len(rows) == sum(len(step.rows) for step in script.STEPS)
    missing = [row.what for row in rows if row.result.startswith("not measured here")]
    assert set(missing) <= {"gather on a stream of torch", "gather on a stream of CuPy"}, rows
    for row in rows:
        assert not row.result.startswith("FAILED"), row
        if row.part == "check" and row.what not in missing:
            assert row.result == "holds"
        elif row.part != "check":
            assert re.match(r"\d+(\.\d+)? (GB/s|ns|M|s|us)", row.result), row
    assert not list(Path("/dev/shm").glob(f"nandarray-bench-gpu-{os.getpid()}*"))
    assert not list(tmp_path.glob("gpu-*"))


@needs_compiler
def test_a_card_that_is_lost_costs_the_rows_behind_it_only(driver, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NANDARRAY_CARD_FAULTS", "store_words")
    (tmp_path / "kernels.cubin").write_bytes(b"-")
    given = {"short": True, "driver": str(driver), "cubin": tmp_path / "kernels.cubin"}
    _, rows = script.measure(tmp_path, **given)
    assert rows[0].result == "holds"
    assert rows[1].result == "FAILED (CardError: cuStreamQuery: CUDA_ERROR_LAUNCH_FAILED)"
    assert {row.result for row in rows[2:]} == {"not measured here (the card was lost by 'stores and a flush land')"}
    assert script.failed(rows)


@needs_compiler
def test_a_kernel_that_does_not_end_is_given_up(session, monkeypatch) -> None:
    monkeypatch.setenv("NANDARRAY_CARD_HANGS", "chase")
    monkeypatch.setattr("bench.gpu.card._GRACE_S", 0.2)
    session.sizes = dataclasses.replace(SHORT, limit_s=0.1)
    with pytest.raises(HungError, match="did not end"), session.words(2) as out:
        session.run("chase", 32, u64(session.card.abort), u64(1), out.parameter)
    assert session.card.lost
    monkeypatch.delenv("NANDARRAY_CARD_HANGS")


@needs_compiler
def test_a_kernel_beyond_its_limit_is_told_to_end(session) -> None:
    """Its deadline is far; what ends it is the abort word that the watchdog sets."""
    session.sizes = dataclasses.replace(SHORT, limit_s=0.3, deadline_s=60)
    with session.server() as server, session.door(server) as door, session.words(2) as out:
        server.send(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(CardError, match="was ended after"):
            session.run("random_reads", 8, door.array("words"), *map(u64, (4096, 1, 1)), out.parameter, door=door)
        assert time.monotonic() - began < 20
        assert int(out.get()[1]) == 0x7C1
    assert not session.card.lost


@needs_compiler
def test_a_check_that_does_not_hold_is_a_failed_row(session, driver, tmp_path) -> None:
    """Words that are not those of the store: the first check must see it."""
    from bench.gpu.__main__ import _rows

    np.save(session.folder / "words.npy", np.zeros((SHORT.rows, 512), np.uint64))
    (row,) = _rows(session, script.STEPS[0])
    assert row.result == "FAILED (BrokenError: other rows than NumPy's take)"


def test_results_of_steps_become_rows() -> None:
    from bench.gpu.__main__ import _rows

    def fails(error: Exception):
        def run(_: object) -> list[tuple[str, str]]:
            raise error

        return run

    two = Step("constant", ("up", "down"), lambda _: [("1 GB/s", "-"), ("2 GB/s", "a|b")])
    assert [row.text() for row in _rows(None, two)] == [
        ["constant", "up", "1 GB/s", "-"],
        ["constant", "down", "2 GB/s", "a/b"],
    ]
    (row,) = _rows(None, Step("check", ("x",), fails(MissingError("no torch"))))
    assert (row.result, script.failed([row])) == ("not measured here (no torch)", False)
    (row,) = _rows(None, Step("check", ("x",), fails(BrokenError("stale bytes"))))
    assert (row.result, script.failed([row])) == ("FAILED (BrokenError: stale bytes)", True)


@pytest.mark.parametrize(
    ("program", "why", "wait_s"),
    [
        ("print(row, flush=True); print(lost)", "a kernel hung", 20),
        ("print(row, flush=True); import os; os._exit(7)", "the process of the steps ended", 20),
        ("print(row, flush=True); import time; time.sleep(60)", "its time was over", 8),
    ],
)
def test_rows_stand_however_the_process_of_the_steps_ends(program, why, wait_s) -> None:
    first = script.STEPS[0]
    row = {"part": first.part, "what": first.rows[0], "result": "holds", "beside": "-"}
    text = f"row, lost = {json.dumps(row)!r}, {json.dumps({'lost': 'a kernel hung'})!r}; {program}"
    rows = script._collect([sys.executable, "-c", text], time.monotonic() + wait_s, lambda _: None)
    assert rows[0] == script.Row(**row)
    assert {one.result for one in rows[1:]} == {f"not measured here ({why})"}
    assert [one.what for one in rows] == [what for step in script.STEPS for what in step.rows]
