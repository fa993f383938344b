"""``nandarray program run`` and ``profile``: ready-made and own programs over arrays, and bare-metal tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import nandarray
from nandarray.cli import app
from nandarray.cli.program.run import complete_array_word, operand
from nandarray.cli.program.source import complete_source

BARE = Path(__file__).parents[2] / "crates" / "nandarray-hart" / "tests" / "bare" / "built"
DOUBLE = """#include <nandarray.h>
ND_PROGRAM("name": "double", "kind": "block", "inputs": [{"name": "x", "dtype": "int64"}],
           "outputs": [{"name": "y", "dtype": "int64"}, {"name": "n", "dtype": "int64", "bound": {"fixed": 8}}],
           "scalars": [{"name": "by", "dtype": "int64", "default": 2}])
int64_t nd_block(nd_args *args) {
    const int64_t *x = ND_INPUT(args, 0, int64_t);
    int64_t *y = ND_OUTPUT(args, 0, int64_t), by = nd_scalar_i64(args, 0);
    size_t n = ND_INPUT_COUNT(args, 0, int64_t);
    for (size_t i = 0; i < n; i++) {
        y[i] = by * x[i];
    }
    *ND_OUTPUT(args, 1, int64_t) = n;
    ND_SET_USED(args, 0, n, int64_t);
    ND_SET_USED(args, 1, 1, int64_t);
    return by < 0 ? -5 : 0;
}
"""


def run(*words: Any) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["program", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def _store() -> None:
    with nandarray.open("data.nand", "w") as store:
        store["group/x"] = np.arange(6000).reshape(60, 100)
        store["f"] = np.arange(10, dtype="f4")
    Path("double.c").write_text(DOUBLE)


def test_ready_made_programs_take_the_dtype_of_the_data() -> None:
    code, out, said = run("run", "sum", "data.nand:/group/x")
    assert (code, out) == (0, f"{6000 * 5999 // 2}\n")
    assert "1 task, read 46.9 KiB, gave 8 B" in said
    code, out, _ = run("run", "minmax", "data.nand:group/x[10:20, ::3]", "--json", "--form", "interpreted")
    found = json.loads(out)
    assert (code, [*found["outputs"].values()]) == (0, [1000, 1999])
    assert found["account"]["bytes_in"] == 10 * 34 * 8
    assert found["account"]["instructions"] > 0
    # Sizes of a ready-made program are given as its scalars are.
    words = ("-s", "low=0", "-s", "high=10", "-s", "bins=5")
    code, out, _ = run("run", "histogram", "data.nand:/f", *words, "-q")
    assert (code, out) == (0, "[2, 2, 2, 2, 2]\n")


def test_outputs_go_where_they_are_wanted() -> None:
    code, out, said = run(
        "run", "double.c", "data.nand:/group/x", "-o", "y=data.nand:/new", "-o", "n=n.npy", "-s", "by=3"
    )
    assert (code, out) == (0, "")
    assert "y: 6,000 elements to data.nand:/new" in said
    assert np.load("n.npy").sum() == 6000
    with nandarray.open("data.nand", "r") as store:
        np.testing.assert_array_equal(store["new"][...], 3 * np.arange(6000).reshape(60, 100))
    # Into a part of what there is; what is not named is printed.
    code, out, _ = run("run", "double.c", "data.nand:/group/x[0]", "-o", "y=data.nand:/new[59]", "--json")
    found = json.loads(out)
    assert (code, found["written"]["y"]["elements"], found["outputs"]) == (0, 100, {"n": [100]})
    with nandarray.open("data.nand", "r") as store:
        np.testing.assert_array_equal(store["new"][58:, :3], [[17400, 17403, 17406], [0, 2, 4]])


def test_what_cannot_be_run_is_said_in_a_line() -> None:
    for words, says in [
        (("summ", "data.nand:/f"), "did you mean sum"),
        (("sum", "data.nand:/g"), "no array 'g' in data.nand"),
        (("sum", "none.nand:/g"), "none.nand"),
        (("sum", "data.nand:/f", "--dtype", "int99"), "sum: 'int99' is no dtype; there is float32"),
        (("sum", "data.nand:/f[::-1]"), "[::-1] of shape (10,): a program takes integers and forward slices"),
        (("sum", "data.nand:/f", "--form", "fast"), "form must be one of interpreted, translated, native, not 'fast'"),
        (("double.c", "data.nand:/f"), "input x has dtype float32; the program takes int64"),
        (("double.c", "data.nand:/group/x", "-s", "to=3"), "no scalar 'to'; it has by"),
        (("double.c", "data.nand:/group/x", "-s", "by=-1"), "nd_block returned -5"),
        (("double.c", "data.nand:/group/x", "-o", "y=data.nand:/none[3]"), "does not exist"),
        (("double.c", "data.nand:/group/x", "--form", "native"), "not trusted"),
        (("double.c", "data.nand:/group/x", "--max-instructions", "500"), r"double.c:1"),
    ]:
        code, _, said = run("run", *words)
        assert (code, said.count("\n")) == (1, 1), said
        assert says in said
    for words in [
        (),
        ("sum",),
        ("sum", "data.nand"),
        ("sum", "data.nand:/f[a]"),
        ("sum", "data.nand:/f[1:3"),
        ("sum", "data.nand:/f", "--task-bytes", "abc"),
        ("double.c", "data.nand:/group/x", "-o", "data.nand:/y"),
        ("double.c", "data.nand:/group/x", "-o", "z=data.nand:/y"),
        ("double.c", "data.nand:/group/x", "-s", "by"),
        ("sum", "data.nand:/f", "--isa", "rv64i"),
    ]:
        assert run("run", *words)[0] == 2, words
    # An array that was made for an output goes with a run that fails.
    code, _, said = run("run", "double.c", "data.nand:/group/x", "-s", "by=-1", "-o", "y=data.nand:/made")
    assert (code, "returned -5" in said) == (1, True)
    with nandarray.open("data.nand", "r") as store:
        assert sorted(store.array_names()) == ["f", "group/x"]
    assert run("run", "double.c", "data.nand:/group/x", "--form", "native", "--trust", "-q")[0] == 0


def test_operands_are_taken_apart() -> None:
    found = operand("a:b/data.nand:/x/y[1:2, ::3]")
    assert (str(found.store), found.name, found.key) == ("a:b/data.nand", "x/y", (slice(1, 2), slice(None, None, 3)))
    assert operand("data.nand:x").key == ()
    seen = operand("data.nand:/x@20x300[3:5]")
    assert (seen.name, seen.view, seen.key) == ("x", (20, 300), (slice(3, 5),))
    assert (operand("data.nand:/x@y").name, operand("data.nand:/x@1_0,5").view) == ("x@y", (10, 5))
    assert complete_source("min") == ["minmax"]
    assert complete_source("dou") == ["double.c"]
    assert complete_array_word("da") == ["data.nand:/"]
    assert complete_array_word("data.nand:/gr") == ["data.nand:/group/x"]
    assert complete_array_word("none.nand:/gr") == []


@pytest.mark.parametrize("threads", [1, 3])
def test_a_profile_counts_every_instruction(threads: int) -> None:
    program = nandarray.Program.from_c(Path("double.c"))
    with nandarray.open("data.nand", "r") as store:
        found = nandarray.profile(program, [store["group/x"]], threads=threads)
        plain = nandarray.offload(program, [store["group/x"]], form="interpreted")
    assert found.total == found.offloaded.account.instructions == plain.account.instructions
    assert sum(one.instructions for one in found.functions) == sum(found.classes.values()) == found.total
    assert found.functions[0].name == "nd_block"
    lines = {one.line: one for one in found.lines}
    line = DOUBLE.splitlines().index("        y[i] = by * x[i];") + 1
    assert lines[line].instructions > 6000 * 2
    assert lines[line].text == "        y[i] = by * x[i];"
    # A multiplication, a load and a store an element.
    assert found.classes["multiply"] == found.classes["load"] // 1000 * 1000 == 6000
    assert found.blocks[0].instructions > found.total / 2
    assert found.classes["store"] >= 6000


def test_a_profile_is_shown_as_tables_or_as_json() -> None:
    code, out, _ = run("profile", "double.c", "data.nand:/group/x", "--top", "3")
    assert code == 0
    for word in ("double: ", "nd_block", "y[i] = by * x[i];", "multiply", "0x10"):
        assert word in out
    code, out, _ = run("profile", "variance", "--sample", "1000", "--json", "--stream")
    found = json.loads(out)
    assert (code, found["program"]) == (0, "variance")
    assert found["instructions"] == sum(found["classes"].values())
    assert found["classes"]["stream"] >= 1000


def test_a_bare_metal_test_gives_its_exit_status_and_signature() -> None:
    code, out, _ = run("test-bare", BARE / "traps-64.elf")
    assert code == 0
    assert "passed" in out
    code, _, said = run("test-bare", BARE / "fails-32.elf")
    assert code == 3
    assert "test 3 failed, at pc 0x8000" in said
    assert " in end+" in said
    code, out, _ = run("test-bare", BARE / "host-64.elf")
    assert (code, out) == (0, "console, write\n")
    words = ("--signature", "sig", "--signature-granularity", "8", "--json")
    code, out, _ = run("test-bare", BARE / "state-64.elf", *words)
    assert (code, json.loads(out)["status"]) == (0, "passed")
    assert Path("sig").read_text() == "0000000501020304\n4008000000000000\n"
    code, _, said = run("test-bare", BARE / "modes-64.elf", "--max-instructions", "20")
    assert code == 255
    assert "instruction limit reached, at pc 0x8000" in said


def test_a_bare_metal_test_passes_without_what_reads_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_elf: bytes, _address: int) -> None:
        raise ImportError("this needs pyelftools")

    monkeypatch.setattr("nandarray.programs.elf.lines_of", none)
    code, out, _ = run("test-bare", BARE / "traps-64.elf")
    assert (code, "passed" in out) == (0, True)


def test_a_bare_metal_test_that_cannot_be_run_is_refused() -> None:
    Path("no.elf").write_bytes(b"\x7fELF" + bytes(100))
    for words, says in [
        ((BARE / "traps-64.elf", "--isa", "rv64im"), "needs the extension a"),
        ((BARE / "traps-64.elf", "--isa", "rv32gc"), "needs the extension rv64i"),
        ((BARE / "traps-64.elf", "--isa", "rv64gcq"), "which no hart here has"),
        ((BARE / "traps-64.elf", "--signature", "sig"), "no signature"),
        ((BARE / "traps-64.elf", "--signature-granularity", "5"), "4 or 8 bytes, not 5"),
        (("no.elf",), "ELF"),
        (("none.elf",), "none.elf"),
    ]:
        code, _, said = run("test-bare", *words)
        assert (code, said.count("\n")) == (1, 1), said
        assert says in said
