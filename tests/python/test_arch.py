"""Every instruction of the hart beside QEMU's machine: a short run of the architecture tests of ``arch_cases``.

Needs the ``ziglang`` wheel and ``qemu-system-riscv64`` and ``-riscv32`` (Debian's ``qemu-system-misc``). The long run,
with many more operands and with Spike, is ``make arch-tests``.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import arch_run
import pytest
from arch_cases import EXTENSIONS, Group, rows
from arch_formats import groups
from arch_words import words


@pytest.fixture(scope="module", params=[32, 64])
def programs(request: pytest.FixtureRequest) -> list[Group]:
    return list(groups(request.param, 0))


def test_every_instruction_has_a_case(programs: list[Group]) -> None:
    bits = programs[0].bits
    wanted = [*rows(bits), *rows(bits, "compressed")]
    assert {row.extension for row in wanted} <= set(EXTENSIONS)
    assert len(rows(bits)) > (170 if bits == 64 else 130)
    # A name counts where it is in code that is run, not where a block says it is.
    for program in programs:
        code = set(re.findall(r"[a-z][\w.]*", "\n".join(program.code)))
        assert {block.name for block in program.blocks} - code <= {"illegal", "c.reserved"}
    tested = {block.name for program in programs for block in program.blocks}
    assert {row.name for row in wanted} - tested == set()


def test_a_difference_is_told_with_its_instruction_operands_and_results() -> None:
    group = Group("I-64", 64)
    group.once("lui", "lui a0, 5", ("a0",))
    group.loop("add", "add a2, a0, a1", [(1, 2), (3, 4)], ("a0", "a1"), ("a2", "a5"))
    mine, theirs = bytearray(group.size), bytearray(group.size)
    theirs[8 * 4] = 9
    assert arch_run.differences(group, bytes(mine), bytes(theirs), "Spike") == [
        "I-64: `add a2, a0, a1` with a0=0x3 a1=0x4: a5 is 0x0, Spike has 0x9"
    ]


def test_results_are_what_they_are_in_qemu(programs: list[Group], tmp_path: Path) -> None:
    compare(programs, tmp_path)


@pytest.mark.parametrize("bits", [32, 64])
def test_the_same_words_are_instructions_as_in_qemu(bits: int, tmp_path: Path) -> None:
    compare([words(bits, 0)], tmp_path)


def compare(programs: list[Group], folder: Path) -> None:
    pytest.importorskip("ziglang")
    bits = programs[0].bits
    if shutil.which(f"qemu-system-riscv{bits}") is None:
        pytest.skip(f"qemu-system-riscv{bits} is not installed")
    found = []
    for group in programs:
        elf = arch_run.build(group, folder)
        found += arch_run.differences(group, arch_run.ours(elf, bits), arch_run.qemu(elf, bits), "QEMU")
    assert found[:20] == []
    print(f"{sum(group.cases for group in programs):,} cases")
