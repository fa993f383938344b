"""``nandarray program run`` with several programs: chains, trees from files, views, where outputs go, how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import nandarray
from nandarray.cli import app

TOOK = """import nandarray
ROW = [("bad", "uint64"), ("c0", "int64"), ("c1", "int64")]
@nandarray.program(inputs=ROW)
def took(row):
    return row["c1"] - row["c0"]
@nandarray.program(inputs="int64", scalars={"at": "int64"})
def fails(x, at):
    if x == at:
        raise ValueError
    return x
"""
BOTH = """#include <nandarray.h>
ND_PROGRAM("name": "both", "kind": "block", "inputs": [{"name": "x", "dtype": "int64"}],
           "outputs": [{"name": "twice", "dtype": "int64"}, {"name": "minus", "dtype": "int64"}],
           "scalars": [{"name": "fails", "dtype": "int64", "default": -1}])
int64_t nd_block(nd_args *args) {
    const int64_t *x = ND_INPUT(args, 0, int64_t);
    int64_t *twice = ND_OUTPUT(args, 0, int64_t), *minus = ND_OUTPUT(args, 1, int64_t);
    size_t n = ND_INPUT_COUNT(args, 0, int64_t);
    for (size_t i = 0; i < n; i++) {
        twice[i] = 2 * x[i];
        minus[i] = -x[i];
        if (x[i] == nd_scalar_i64(args, 0)) return -5;
    }
    ND_SET_USED(args, 0, n, int64_t);
    ND_SET_USED(args, 1, n, int64_t);
    return 0;
}
"""
TREE = """
[inputs]
log = "data.nand:/log"

[steps.rows]
program = "parse"
inputs = ["log"]
scalars = { fields = ["int", "int"] }

[steps.took]
program = "took.py:took"
inputs = ["rows"]
form = "interpreted"

[steps.mean]
program = "mean"
inputs = ["took"]

[steps.late]
program = "filter"
inputs = ["took"]
scalars = { low = 5, high = 9 }
task_bytes = "4KiB"

[outputs]
mean = "mean"
late = { from = "late", to = "data.nand:/late" }
"""
X = np.arange(6000).reshape(60, 100)


def run(*words: Any) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["program", "run", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def _work() -> None:
    Path("work").mkdir()
    with nandarray.open("work/data.nand", "w") as store:
        store["x"] = X
        store["f"] = X.astype("f8")
        text = b"".join(b"%d,%d\n" % (i, i + i % 10) for i in range(1000))
        store["log"] = np.frombuffer(text, "u1")
    Path("work/took.py").write_text(TOOK)
    Path("work/both.c").write_text(BOTH)
    Path("work/tree.toml").write_text(TREE)


DATA = "work/data.nand"


def test_inputs_may_be_views_and_parts_of_them() -> None:
    seen = X.reshape(40, 150)
    assert run("sum", f"{DATA}:/x@40x150[3:9, ::7]", "-q")[:2] == (0, f"{seen[3:9, ::7].sum()}\n")
    assert run("sum", f"{DATA}:/x@6_000[5:]", "-q")[:2] == (0, f"{X.ravel()[5:].sum()}\n")
    with nandarray.open(DATA, "r+") as store:
        store["x@2"] = np.arange(3)
    assert run("sum", f"{DATA}:/x@2", "-q")[:2] == (0, "3\n")  # an array of this very name comes first
    code, _, said = run("sum", f"{DATA}:/x@7x7")
    assert (code, said.count("\n")) == (1, 1)
    assert "49" in said
    assert "6000" in said
    # An output may go into a part of a view of what there is.
    with nandarray.open(DATA, "r+") as store:
        store["to"] = np.zeros((10, 30), "i8")
    words = ("both.c", "twice=", "minus=")
    code, _, said = run(f"work/{words[0]}", f"{DATA}:/x[0, :3]", "-o", f"twice={DATA}:/to@300[7:10]", "-q")
    assert code == 0, said
    with nandarray.open(DATA, "r") as store:
        np.testing.assert_array_equal(store["to"][0, 5:12], [0, 0, 0, 2, 4, 0, 0])


def test_a_chain_of_programs() -> None:
    code, out, said = run("filter", f"{DATA}:/x[:, ::2]", "-s", "low=10", "-s", "high=20", "--then", "sum")
    assert (code, out) == (0, f"{sum(range(10, 21, 2))}\n")
    assert "filter" in said
    assert "2 tasks" in said
    # Numbers of later steps are named with the step's name; a name that is there already gets a number.
    words = ("multi", f"{DATA}:/f", "-s", "factor=3", "--then", "multi", "-s", "multi-2.factor=5", "--then", "sum")
    code, out, _ = run(*words, "--json", "--threads", "3", "--task-bytes", "1KiB")
    found = json.loads(out)
    assert (code, found["program"], found["outputs"]) == (0, "multi | multi-2 | sum", {"sum": 15.0 * int(X.sum())})
    account = found["account"]
    assert account["bytes_in"] == X.nbytes
    assert [one["step"] for one in account["steps"]] == ["multi", "multi-2", "sum"]
    assert [one["bytes_out"] for one in account["steps"]] == [X.nbytes, X.nbytes, 8]
    # An output with an element for each of a part's becomes an array of the part's shape.
    more = ("multi", f"{DATA}:/f[:10]", "-s", "factor=2", "--then", "multi", "-s", "multi-2.factor=2")
    assert run(*more, "-o", f"{DATA}:/fourfold")[0] == 0
    with nandarray.open(DATA, "r") as store:
        np.testing.assert_array_equal(store["fourfold"][...], 4 * X[:10])


def test_a_tree_from_a_file() -> None:
    code, out, said = run("--pipeline", "work/tree.toml")
    assert (code, out) == (0, "mean: 4.5\n")
    assert "late: 500 elements to work/data.nand:/late" in said
    with nandarray.open(DATA, "r") as store:
        np.testing.assert_array_equal(store["late"][...], np.arange(5000)[np.arange(5000) % 10 >= 5][:500] % 10)
    # Its inputs, numbers and outputs are as the file says, or as the command line does.
    part = np.frombuffer(b"1,2\n5,9\n", "u1")
    np.save("part.npy", part)
    with nandarray.open(DATA, "r+") as store:
        store["part"] = part
    words = (f"log={DATA}:/part", "-s", "late.low=2", "-o", "late=late.npy", "--json", "-q")
    code, out, _ = run("-p", "work/tree.toml", *words)
    found = json.loads(out)
    assert (code, found["outputs"], found["written"]["late"]["to"]) == (0, {"mean": 2.5}, "late.npy")
    assert {one["step"]: one["form"] for one in found["account"]["steps"]}["took"] == "interpreted"
    assert np.load("late.npy").tolist() == [4]
    # All inputs may be in memory where an output goes to an array.
    words = ("-p", "work/tree.toml", "log=part.npy", "-s", "late.low=1")
    code, out, _ = run(*words, "--json")
    assert (code, json.loads(out)["account"]["traffic"]["from_host"]) == (0, part.nbytes)
    # So they may where none does.
    code, _, _ = run(*words, "-o", "late=late.npy", "--overwrite")
    assert (code, np.load("late.npy").tolist()) == (0, [1, 4])


def test_outputs_of_several_and_json() -> None:
    spec = {
        "steps": {
            "both": {"program": "both.c", "inputs": "data.nand:/x[0]", "trust": True},
            "sum": {"program": "sum", "inputs": ["both.minus"]},
        }
    }
    Path("work/both.json").write_text(json.dumps(spec))
    code, out, _ = run("-p", "work/both.json", "-q", "--form", "native")
    assert code == 0
    # Without [outputs], all that no step takes.
    assert out.splitlines()[-1] == "sum: -4950"
    assert out.replace(" ", "").startswith("both.twice:[0,2,4,")


def test_a_step_that_fails_is_named_and_nothing_is_written() -> None:
    Path("work/fails.toml").write_text(
        """
[steps.first]
program = "both.c"
inputs = ["data.nand:/x"]
[steps.second]
program = "both.c"
inputs = ["first.twice"]
scalars.fails = 400
[steps.third]
program = "both.c"
inputs = ["first.minus"]
scalars.fails = -3000
[outputs]
out = { from = "second.twice", to = "data.nand:/out" }
other = "third.twice"
"""
    )
    for _ in range(5):
        code, _, said = run("-p", "work/fails.toml", "--threads", "4", "--task-bytes", "80")
        assert (code, said.count("\n")) == (1, 1)
        assert "step second: " in said
        assert "returned -5" in said
    with nandarray.open(DATA, "r") as store:
        assert "out" not in store
    # Of several that fail it is the one whose data came first.
    code, _, said = run("-p", "work/fails.toml", "-s", "second.fails=8000", "--threads", "4", "--task-bytes", "80")
    assert (code, "step third: " in said) == (1, True), said


SUM = '[steps.s]\nprogram = "sum"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = [", "is no TOML"),
        ("", "it has no steps"),
        ("[step.a]\n", "'step' is no part of a pipeline; did you mean 'steps'?"),
        ("steps = 3", "steps must be a table, not 3"),
        ("[steps.s]\n", "steps.s has no program"),
        ("[steps.s]\nprogram = 3\ninputs = ['s']", "steps.s.program must be a word"),
        (SUM, "steps.s.inputs must be a list"),
        (SUM + "inputs = [3]", "steps.s.inputs must be a word"),
        (SUM + "inputs = ['y']", "'y' is no step, input, array (STORE:/NAME) or .npy file"),
        (SUM + "inputs = ['s']", "steps wait for each other: s"),
        (SUM + "input = ['s']", "'input' is no part of steps.s; did you mean 'inputs'?"),
        (SUM + "inputs = ['data.nand:/x']\nform = 'fast'", "not 'fast'"),
        (SUM + "inputs = ['data.nand:/x']\nmax_instructions = 0", "must be a whole number from 1 on, not 0"),
        (SUM + "inputs = ['data.nand:/x']\nscalars.low = 3", "no scalar 'low'"),
        (SUM + "inputs = ['data.nand:/x']\nscalars.low = {}", "steps.s.scalars.low must be a number"),
        (SUM + "inputs = ['data.nand:/x']\nstream = 1", "steps.s.stream must be true or false"),
        (SUM + "inputs = ['data.nand:/z']", "no array 'z'"),
        (SUM + "inputs = ['data.nand:/x', 'data.nand:/x']", "2 inputs for a program that takes 1"),
        (SUM + "inputs = ['data.nand:/x']\n[outputs]\ny = 't'", "outputs.y: there is no step 't'; there is s"),
        (SUM + "inputs = ['data.nand:/x']\n[outputs]\ny = 's.t'", "has no output 't'; it has result"),
        (SUM + "inputs = ['data.nand:/x']\n[outputs]\ny = { from = 's', too = 'a' }", "did you mean 'to'?"),
        (SUM + "inputs = ['b']\n[steps.b]\nprogram='both.c'\ninputs=['data.nand:/x']", "write b.twice or b.minus"),
        ("[inputs]\ns = 'data.nand:/x'\n" + SUM + "inputs = ['s']", "'s' is an input and a step"),
        ("[inputs]\n'a b' = 'data.nand:/x'\n" + SUM + "inputs = ['s']", "'a b' is no name"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_in_a_line(text: str, says: str) -> None:
    Path("work/wrong.toml").write_text(text)
    code, _, said = run("-p", "work/wrong.toml")
    assert (code, said.count("\n")) == (1, 1), said
    assert says in said


def test_what_does_not_go_together_is_refused() -> None:
    for words in [
        ("-p", "work/tree.toml", "--then", "sum"),
        ("-p", "work/tree.toml", "--dtype", "int64"),
        ("sum", f"{DATA}:/x", "--then", "sum", "--stream"),
        ("-p", "work/tree.toml", "-o", "none=a.npy"),
        ("-p", "work/tree.toml", "-o", "a.npy"),
        ("-p", "work/tree.toml", "-o", "mean=a.npy", "-o", "mean=b.npy"),
        ("-p", "work/tree.toml", "-o", "mean=a.npy", "-o", "late=a.npy"),
    ]:
        assert run(*words)[0] == 2, words
    for words, says in [
        (("-p", "work/none.toml"), "none.toml: No such file"),
        (("-p", "work/tree.toml", "sum"), "NAME=WHERE"),
        (("-p", "work/tree.toml", "lag=a.npy"), "has no input 'lag'; did you mean 'log'?"),
        (("-p", "work/tree.toml", "-s", "low=3"), "say of which step, like rows.low"),
        (("-p", "work/tree.toml", "-s", "lat.low=3"), "there is no step 'lat'; did you mean 'late'?"),
        (("-p", "work/tree.toml", "-s", "late.lo=3"), "step late: the program has no scalar 'lo'"),
        (("-p", "work/tree.toml", "-o", "mean=none/a.npy"), "there is no folder none"),
        (("-p", "work/tree.toml", "--hold-bytes", "0"), "hold_bytes must be a number, at least 1, not 0"),
        (
            ("work/both.c", f"{DATA}:/x", "--then", "sum"),
            "several outputs (twice, minus); write both.twice or both.minus",
        ),
    ]:
        code, _, said = run(*words)
        assert (code, said.count("\n")) == (1, 1), said
        assert says in said
    # To another store only what is new there.
    with nandarray.open("other.nand", "w") as store:
        store["mean"] = np.zeros(1)
    assert run("-p", "work/tree.toml", "-o", "late=other.nand:/late", "-q")[0] == 0
    code, _, said = run("-p", "work/tree.toml", "-o", "late=other.nand:/mean")
    assert (code, "of another store than the inputs'" in said) == (1, True)
