"""Vector instructions that may not be: a typed error with program counter and function; no stored byte is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import Program, ProgramError, ProgramFailedError

pytest.importorskip("ziglang")

SOURCE = """#include <nandarray.h>
#include <riscv_vector.h>
ND_PROGRAM("name": "wrong", "kind": "block", "inputs": [{"name": "x", "dtype": "int32"}],
           "outputs": [{"name": "y", "dtype": "int32"}])
__attribute__((noinline)) static void steps(const int32_t *x, int32_t *y, size_t n) {
    __asm__ volatile("BODY" : : "r"(x), "r"(y), "r"(n) : "memory", "t0", "t1", "vl", "vtype");
}
int64_t nd_block(nd_args *args) {
    steps(ND_INPUT(args, 0, int32_t), ND_OUTPUT(args, 0, int32_t), ND_INPUT_COUNT(args, 0, int32_t));
    ND_SET_USED(args, 0, ND_INPUT_COUNT(args, 0, int32_t), int32_t);
    return 0;
}
"""
SET = "vsetivli zero, 4, e32, m1, ta, ma"
# Each with the instructions before it, and the one that is named.
WRONG = {
    "a type that there is not": (["li t0, 4", "li t1, 5", "vsetvl zero, t1, t0"], "vadd.vv v1, v2, v3"),
    "elements of 128 bits": (["li t0, 0x20", "li t1, 5", "vsetvl zero, t1, t0"], "vle32.v v1, (%0)"),
    "no type yet": ([], "vadd.vv v1, v2, v3"),
    "a group that begins between groups": (["vsetivli zero, 4, e32, m8, ta, ma"], ".word 0x022180d7"),
    "a wider group that overlaps its source": ([SET], ".word 0xc6222157"),
    "a result that is the mask": ([SET], ".word 0x00218057"),
    "a segment beyond the last register": ([SET], ".word 0xe2056f87"),
    "an element wider than the unit's": (["vsetivli zero, 4, e64, m1, ta, ma"], ".word 0xc6222157"),
    "a rounding mode that is none": ([SET, "csrwi frm, 5"], ".word 0x022190d7"),
}


def made(lines: list[str], target: str = "rv64gcv_zvl256b") -> Program:
    body = "\\n ".join([".option push", ".option arch, +v", *lines, ".option pop"])
    return Program.from_c(SOURCE.replace("BODY", body), target=target)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """A store of 100 numbers; an array beside them stays as it is."""
    with nandarray.open(tmp_path / "v.nand", "w") as opened:
        opened["x"] = np.arange(100, dtype=np.int32)
        opened["y"] = np.full(100, 7, np.int32)
        yield opened
        assert (opened["y"][...] == 7).all()
        assert opened.check()["ok"]


def fails(store: Any, program: Program, form: str) -> ProgramFailedError:
    with pytest.raises(ProgramFailedError) as caught:
        store["x"].offload(program, out=store["y"], form=form)
    assert caught.value.pc is not None
    assert caught.value.location.symbol == "steps"
    return caught.value


@pytest.mark.parametrize("form", ["interpreted", "translated"])
@pytest.mark.parametrize("wrong", WRONG)
def test_an_instruction_that_is_none_is_named(wrong: str, form: str, store: Any) -> None:
    before, instruction = WRONG[wrong]
    # The instruction is the last but one; the one behind it is never reached.
    program = made([*before, instruction, "unimp"])
    error = fails(store, program, form)
    legal = fails(store, made([*before, "unimp"]), form)
    assert "illegal instruction" in str(error)
    assert f"pc {error.pc:#x}" in str(error)
    assert error.pc == legal.pc


@pytest.mark.parametrize("form", ["interpreted", "translated"])
@pytest.mark.parametrize(
    "instruction",
    [
        "vle32.v v8, (t0)",
        "vse32.v v8, (t0)",
        "vlse32.v v8, (t0), t1",
        "vluxei32.v v8, (t0), v16",
        "vsoxei32.v v8, (t0), v16",
        "vlseg2e32.v v8, (t0)",
    ],
)
def test_a_trap_within_an_instruction_names_the_first_element_outside(instruction: str, form: str, store: Any) -> None:
    """The last 4, 8 and 12 bytes of a window, and then what is behind it: always the same address."""
    stores = instruction.startswith("vs")
    for inside in (4, 8, 12):
        place = ["slli t0, %2, 2", f"add t0, t0, {'%1' if stores else '%0'}", f"addi t0, t0, -{inside}", "li t1, 4"]
        indices = ["vid.v v16", "vsll.vi v16, v16, 2"]
        error = fails(store, made([SET, *place, *indices, instruction]), form)
        kind, start = ("store", 0x6000_0000) if stores else ("load", 0x2000_0000)
        assert f"{kind} access fault at pc {error.pc:#x} (value {start + 400:#x}) in steps" in str(error)


def test_a_core_without_vectors_refuses_them_before_they_run(tmp_path: Path) -> None:
    """Without a source there is nothing to compile anew."""
    program = Program.from_elf(made([SET]).elf)
    with nandarray.open(tmp_path / "v.nand", "w") as opened:
        array = opened.create("x", data=np.arange(4, dtype=np.int32))
        with pytest.raises(ProgramError, match="_v1p0|extension|isa"):
            program.time([array], core="ex5")
