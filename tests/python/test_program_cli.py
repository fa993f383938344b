"""``nandarray program``: what it prints, what it writes, how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nandarray import Program, programs
from nandarray.cli import app

KERNEL = """#include <nandarray.h>
ND_PROGRAM("name": "one", "kind": "block", "summary": "Give one.", "inputs": [{"name": "x", "dtype": "uint8"}],
           "outputs": [{"name": "y", "dtype": "uint8", "bound": {"fixed": 1}}], "errors": {"-3": "three"})
int64_t nd_block(nd_args *args) { *ND_OUTPUT(args, 0, uint8_t) = VALUE; ND_SET_USED(args, 0, 1, uint8_t); return 0; }
"""
TWO = """import nandarray
@nandarray.program(inputs="float32")
def half(x):
    return 0.5 * x
@nandarray.program(inputs="float32")
def broken(x):
    return x.no
"""


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["program", *words])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def _sources() -> None:
    Path("kernel.c").write_text(KERNEL)
    Path("two.py").write_text(TWO)
    Path("raises.py").write_text("1 / 0")


def test_build_writes_an_elf_beside_the_source() -> None:
    code, out, _ = run("build", "kernel.c", "--flag=-DVALUE=7", "--target", "rv32")
    assert (code, out.split(":")[0]) == (0, "kernel.elf")
    assert Program.from_elf("kernel.elf").target == "rv32"
    code, out, _ = run("build", "two.py:half", "--json", "-o", "mine.elf")
    assert code == 0
    assert json.loads(out)["sha256"] == Program.from_elf("mine.elf").hash
    code, _, _ = run("build", "two.py:half")
    assert code == 0
    assert Path("half.elf").exists()


def test_info_says_what_a_program_takes_and_gives() -> None:
    run("build", "kernel.c", "--flag=-DVALUE=7")
    code, out, _ = run("info", "kernel.elf", "--symbols")
    assert code == 0
    for word in ("one: Give one.", "x uint8, 1 bytes a record", "1 fixed", "-3: three", "nd_block", "function"):
        assert word in out
    code, out, _ = run("info", "kernel.elf", "--json", "--symbols")
    facts = json.loads(out)
    assert (facts["name"], facts["target"], facts["entries"]) == ("one", "rv64", ["nd_block"])
    assert "nd_block" in [one["name"] for one in facts["symbols"]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["build", "kernel.c"], "kernel.c:4:"),
        (["build", "two.py:broken"], "two.py:7: broken does not compile"),
        (["build", "two.py"], "several programs (broken, half)"),
        (["build", "two.py:none"], "no program 'none'"),
        (["build", "absent.py"], "absent.py: No such file"),
        (["build", "absent.c"], "absent.c: No such file"),
        (["info", "two.py:half", "--target", "x"], "--target would do nothing"),
        (["info", "two.py:half", "--stream"], "is not ready-made: --stream would do nothing"),
        (["info", "sum", "--scalar", "low=3"], "sum has no size 'low'"),
        (["info", "sum", "--flag", "-O1"], "--flag would do nothing"),
        (["info", "raises.py"], "raises.py cannot be run for its programs: ZeroDivisionError"),
        (["info", "kernel.c", "--target", "x"], "'x' is not known"),
        (["info", "kernel.c.txt"], "no file 'kernel.c.txt'"),
    ],
)
def test_what_goes_wrong_is_said(words: list[str], says: str) -> None:
    code, _, err = run(*words)
    assert code == (1 if says else 0)
    assert says in err
    assert "Traceback" not in err


def test_ready_made_programs_are_listed_and_looked_into() -> None:
    code, out, _ = run("list", "--json")
    listed = {one["name"]: one for one in json.loads(out)}
    assert (code, list(listed)) == (0, programs.names())
    assert listed["histogram"]["sizes"] == {"bins": 256}
    code, out, _ = run("list")
    assert code == 0
    assert all(name in out for name in programs.names())
    code, out, _ = run("info", "histogram", "--dtype", "float32", "-s", "bins=5", "--json")
    assert (code, json.loads(out)["outputs"][0]["bound"]["fixed"]) == (0, 40)
    code, out, _ = run("disasm", "sum", "--dtype", "int64", "--stream")
    assert (code, "<nd_" in out) == (0, True)


def test_warnings_go_to_standard_error() -> None:
    code, out, err = run("info", "kernel.c", "--flag=-DVALUE=300")
    assert (code, err) == (0, "")
    code, out, err = run("build", "kernel.c", "--flag=-DVALUE=300")
    assert code == 0
    assert "warning" in err
    assert "warning" not in out
