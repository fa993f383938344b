"""The command line with any words: an exit status of 0, 1 or 2, one line for an error, no traceback, nothing changed.

Words are drawn for each argument and option of each command, from values that fit and from those that do not. Commands
that serve, measure or run experiments have tests of their own.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import nandarray
from nandarray.cli import app, common
from nandarray.cli.program.run import operand, scalars_of
from nandarray.index.text import parse_slices

APART = {"lab", "device", "replay", "serve", "bench", "doctor", "advise", "--install-completion", "--show-completion"}
SEEDS = 40 if os.environ.get("NANDARRAY_DEEP") else 1
RUNS = 20

STORES = ["d.nand", "d.nand", "d.nand", "none.nand", "not.nand", ".", "/dev/null", "cut.nand", "a b.nand", ""]
NAMES = [
    "x",
    "grid",
    "g/t",
    "g",
    "/",
    "",
    "nope",
    "X",
    "g/",
    "/x",
    "a:b",
    "é",
    "x/y",
    "ns/1",
    ".",
    "..",
    "\n",
    "x" * 300,
]
WORDS = {
    "store": STORES,
    "name": NAMES,
    "names": NAMES,
    "old": NAMES,
    "new": NAMES,
    "slices": ["", "0", "1:3", "::2", "-1", "1:x", ":,", "...", "9", "0,0,0", "[1,2]", "1:2:0", "None", "::-1", "--"],
    "pairs": ["a=1", "a", "=1", "a=", "a=[1,2]", "a={", "é=ü", "a=NaN", "_ARRAY_DIMENSIONS=3"],
    "keys": ["units", "nope", ""],
    "key": ["units", "nope", ""],
    "source": ["sum", "filter", "nope", "x.npy", "empty.npy", "bad.c", "good.py", "good.py:twice", "good.py:none",
               "raise.py", "d.nand", "not.elf", "", ".", "summ", ".py:", "x.npz"],
    "inputs": ["d.nand:/x", "d.nand:grid[1:2]", "x.npy", "empty.npy", "zip.npy", "cut.npy", "d.nand:/nope",
               "none.nand:/x", "d.nand:/grid@4x4", "d.nand:/grid@3x3", "d.nand", ":x", "d.nand:", "[", "d.nand:/x[9]",
               "d.nand:/x[::-1]", ""],
    "data": ["d.nand:/x", "x.npy", "empty.npy", "d.nand:/nope", "nope"],
    "program": ["sum", "filter", "nope", "bad.c", "raise.py", ""],
    "destination": ["out.npy", "out.bin", "out.zarr", "none/out.npy", "x.npy", "out.xyz", "pipe", ".", "out.npz"],
    "output": ["out.npy", "none/out.npy", "pipe", ".", "x.npy", "out.elf"],
    "out": ["out.npy", "y=out.npy", "d.nand:/new", "d.nand:/x", "nope=out.npy", "none/o.npy", "=", ""],
    "shape": ["3", "2x2", "()", "", "x", ",", "-1", "3,a", "1e3", "99999999999999999999", "0", "3x", "(2,2"],
    "dtype": ["f4", "i8", "U3", "O", "nope", "(2,f4", "f4,", "", ">f8", "V0", "datetime64"],
    "compression": ["lz4", "zstd:99", "gzip", "nope", "", "lz4+shuffle", "zstd:x", "none", "auto"],
    "scalar": ["low=1", "low", "=1", "low=x", "a.b=1", "low=1e999", "bins=0", "bins=99999999", "width=-1", "low=0x10"],
    "core": ["ibex", "nope", "bad.toml", "none.toml", "", "d.nand"],
    "changes": ["l1d.size=16KiB", "nope=1", "clock_hz=-1", "=", "x"],
    "target": ["rv64", "rv32", "rv128", "", "rv32im"],
    "form": ["interpreted", "native", "nope", ""],
    "pipeline": ["pipe.toml", "none.toml", "bad.toml", "."],
    "capacity": ["1MiB", "0", "-1", "nope", "1e99", "9999999999999999999999GiB", ""],
    "budget": ["1MiB", "0", "-1", "nope", ""],
    "task_bytes": ["1KiB", "0", "-1", "nope"],
    "drive": ["nvme+tcp://127.0.0.1:1/nqn.x", "/dev/nvme99", "nope", "", "shm://none"],
    "isa": ["rv64", "rv64gc", "nope", ""],
    "format": ["npy", "raw", "nope", ""],
    "order": ["C", "F", "nope", ""],
    "device": ["assasin-sb", "nope", "bad.toml", ""],
    "building_block": ["4", "2x2", "0", "x", "-1", "99999999999"],
    "fill_value": ["1", "x", "[1]", "1e999", "null", "[" * 3000],
    "view": ["16", "4x4", "3", "x", "-1", ","],
    "encryption_key": ["", "x"],
    "flag": ["-DX=1", "-nope", "", "-include", "--help"],
    "set_": ["l1d.size=16KiB", "nope=1", "x"],
}  # fmt: skip
ANY = ["", "0", "-1", "nope", "é", "1e309", "x.npy", "d.nand", "9" * 40, "\x00", " ", "--", "-"]
NUMBERS = ["0", "1", "-1", "2", "7", "x", "", "1.5", "9" * 30]


def commands(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, one in sorted(group.commands.items()):
        if name in APART:
            continue
        if hasattr(one, "commands"):
            yield from commands(one, (*before, name))
        else:
            yield (*before, name), one


COMMANDS = dict(commands(typer.main.get_command(app)))


def words_of(rng: random.Random, command: Any) -> list[str]:
    """Draw arguments and options of a command."""

    def value(param: Any) -> str:
        name = param.name.rstrip("_")
        if rng.random() < 0.06:
            return rng.choice(ANY)
        if param.type_descriptor.annotation in (int, float):
            return rng.choice(NUMBERS)
        return rng.choice(WORDS.get(param.name) or WORDS.get(name) or ANY)

    made: list[str] = []
    for param in command.params:
        if param.param_type_name == "argument":
            times = rng.randrange(3) if param.nargs == -1 else int(rng.random() < 0.95)
            made += [value(param) for _ in range(times)]
            continue
        if param.name == "help" or rng.random() > 0.18 or APART & set(param.opts):
            continue
        made.append(rng.choice(param.opts))
        if not param.is_flag:
            made.append(value(param))
    if rng.random() < 0.05:
        made.insert(rng.randrange(len(made) + 1), rng.choice(["--nope", "-z", "--", "more"]))
    return made


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, and files of all kinds, sound and not."""
    folder = tmp_path_factory.mktemp("fuzz")
    with nandarray.open(folder / "d.nand", "w") as store:
        store["x"] = np.arange(10, dtype="f4")
        store.create("grid", data=np.arange(16.0).reshape(4, 4), attrs={"units": "K"})
        store["g/t"] = np.zeros((2, 3), [("a", "i4"), ("b", "S3")])
    shutil.copy(folder / "d.nand", folder / "a b.nand")
    raw = (folder / "d.nand").read_bytes()
    (folder / "cut.nand").write_bytes(raw[:5000])
    (folder / "not.nand").write_bytes(b"something else" * 1000)
    np.save(folder / "x.npy", np.arange(6, dtype="f4"))
    whole = (folder / "x.npy").read_bytes()
    (folder / "cut.npy").write_bytes(whole[:-3])
    (folder / "empty.npy").write_bytes(b"")
    (folder / "zip.npy").write_bytes(b"PK\x03\x04 no zip")
    np.savez(folder / "x.npz", x=np.arange(3))
    (folder / "bad.c").write_text("this is no C {")
    (folder / "good.py").write_text(
        "import nandarray\n\n@nandarray.program(inputs='f4')\ndef twice(x):\n    return 2 * x\n"
    )
    (folder / "raise.py").write_text("raise RuntimeError('mine')\n")
    (folder / "not.elf").write_bytes(b"\x7fELF" + bytes(100))
    (folder / "bad.toml").write_text("this = is [no toml")
    (folder / "pipe.toml").write_text('[steps.a]\nprogram = "sum"\ninputs = ["d.nand:/x"]\n')
    return folder


def checked(words: list[str], says: str) -> int:
    """Run a command; it ends as a command ends."""
    result = CliRunner().invoke(app, words)
    where = f"{says}: nandarray {' '.join(map(repr, words))}\n{result.output}\n{result.exception!r}"
    assert result.exit_code in (0, 1, 2), where
    assert result.exception is None or isinstance(result.exception, SystemExit), where
    assert "Traceback" not in result.output, where
    assert not re.search(r"unexpected \w+: ", result.stderr), where
    if result.exit_code == 1 and words[0] != "check":
        lines = [line for line in result.stderr.splitlines() if line.startswith("nandarray: error: ")]
        assert len(lines) == 1, where
        assert len(lines[0]) > len("nandarray: error: "), where
    return result.exit_code


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_words_end_with_a_status_and_a_line(prepared: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    seen = dict.fromkeys((0, 1, 2), 0)
    for run in range(RUNS):
        path, command = rng.choice(list(COMMANDS.items()))
        words = [*path, *words_of(rng, command)]
        seen[checked(words, f"seed {seed}, run {run}")] += 1
        if (tmp_path / "d.nand").read_bytes() != (prepared / "d.nand").read_bytes():
            with nandarray.open(tmp_path / "d.nand") as store:
                assert store.check()["ok"], words
            shutil.copy(prepared / "d.nand", tmp_path / "d.nand")
    assert min(seen.values()) >= 1, seen


FILES = [
    ("empty.npy", "empty.npy is no .npy file: No data left in file"),
    ("cut.npy", "cut.npy is no .npy file: "),
    ("zip.npy", "zip.npy is no .npy file: "),
    ("several.npy", "several.npy is an archive of several arrays, not a .npy file"),
    ("objects.npy", "objects.npy is no .npy file: Object arrays cannot be loaded"),
    ("none.npy", "none.npy: No such file or directory"),
]


@pytest.mark.parametrize(("file", "says"), FILES)
def test_an_input_that_is_no_npy_file_is_said_so(prepared: Path, tmp_path: Path, file: str, says: str) -> None:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    shutil.copy("x.npz", "several.npy")
    np.save("objects.npy", np.array([{}], object), allow_pickle=True)
    for words in (
        ["program", "run", "sum", file],
        ["advise", "sum", "--data", file],
        ["program", "profile", "sum", file],
    ):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 1, words
        assert result.stderr.startswith(f"nandarray: error: {says}"), (words, result.stderr)


SHAPES: list[tuple[str, tuple[int, ...] | None]] = [
    ("3", (3,)), ("2x3", (2, 3)), ("2,3", (2, 3)), ("(2, 3)", (2, 3)), ("2X3x", (2, 3)), ("1_000", (1000,)), ("()", ()),
    ("", ()), (" ", ()), ("(4,)", (4,)), ("-1", (-1,)), ("x", None), (",", None), ("2,,3", None), ("x3", None),
    ("3,a", None), ("1e3", None), ("0x", (0,)), ("2.0", None), ("[2,3]", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shape"), SHAPES)
def test_a_shape_is_read_whole_or_refused(text: str, shape: tuple[int, ...] | None) -> None:
    if shape is not None:
        assert common.parse_shape(text) == shape
    else:
        with pytest.raises(typer.BadParameter, match="is not a shape: write it like 100,200 or 100x200"):
            common.parse_shape(text)


OPERANDS = [
    ("d.nand:/x", ("d.nand", "x", None, "")),
    ("d.nand:x", ("d.nand", "x", None, "")),
    ("a/b:c.nand:/g/x", ("a/b:c.nand", "g/x", None, "")),
    ("d.nand:/x[1:2, ::3]", ("d.nand", "x", None, "1:2, ::3")),
    ("d.nand:/x@2x3[0]", ("d.nand", "x", (2, 3), "0")),
    ("d.nand:/x@6", ("d.nand", "x", (6,), "")),
    ("d.nand:/x@a", ("d.nand", "x@a", None, "")),
    ("d.nand:/x@2x", ("d.nand", "x@2x", None, "")),
    ("C:/d.nand:/x[...]", ("C:/d.nand", "x", None, "...")),
]


@pytest.mark.parametrize(("text", "wanted"), OPERANDS)
def test_an_operand_is_taken_apart(text: str, wanted: tuple[str, str, tuple[int, ...] | None, str]) -> None:
    found = operand(text)
    assert (str(found.store), found.name, found.view) == wanted[:3]
    assert found.key == parse_slices(wanted[3])


@pytest.mark.parametrize(
    ("text", "says"),
    [("d.nand", "is no array: write it like"), ("d.nand:", "is no array"), (":x", "is no array"), ("", "is no array"),
     ("d.nand:/x[0", "brackets do not match"), ("d.nand:/x]", "brackets do not match"),
     ("d.nand:/x[a]", "'a' is not an integer")],
)  # fmt: skip
def test_what_is_no_operand_says_how_one_is_written(text: str, says: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        operand(text)
    assert says in str(caught.value)


NUMBERS_OF: list[tuple[str, Any]] = [
    ("a=1", {"a": 1}), (" a = 2 ", {"a": 2}), ("a=-0x1f", {"a": -31}), ("a=0b11", {"a": 3}), ("a=1.5e3", {"a": 1500.0}),
    ("a=true", {"a": True}), ("a=inf", {"a": float("inf")}), ("a=1_000", {"a": 1000}), ("a", None), ("a=", None),
    ("a=x", None), ("a=1=2", None), ("a=True", None), ("a=[1]", None), ("a=1j", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), NUMBERS_OF)
def test_a_number_by_name_is_read_or_refused(text: str, wanted: dict[str, Any] | None) -> None:
    if wanted is None:
        with pytest.raises(typer.BadParameter, match="is no NAME=NUMBER"):
            scalars_of([text])
    else:
        found = scalars_of([text])
        assert found == wanted
        assert [type(one) for one in found.values()] == [type(one) for one in wanted.values()]


OUTPUTS = [
    ["read", "d.nand", "x", "-o", "pipe", "--overwrite"],
    ["export", "d.nand", "x", "pipe", "--format", "npy", "--overwrite"],
    ["export", "d.nand", "x", "pipe", "--format", "raw"],
    ["program", "build", "sum", "-o", "pipe"],
]


@pytest.mark.parametrize("words", OUTPUTS, ids=lambda words: " ".join(words[:2]))
def test_a_device_or_a_pipe_is_never_replaced_by_a_file(prepared: Path, tmp_path: Path, words: list[str]) -> None:
    shutil.copy(prepared / "d.nand", tmp_path)
    os.mkfifo("pipe")
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "pipe: is a device, a pipe or a socket, which no file replaces" in result.stderr
    assert Path("pipe").is_fifo()
    assert sorted(os.listdir()) == ["d.nand", "pipe"]


@pytest.mark.parametrize("where", ["/dev/full", "closed pipe"])
@pytest.mark.parametrize(
    "words",
    [["read", "d.nand", "x"], ["--help"]],
    ids=lambda words: " ".join(words),
)  # fmt: skip
def test_an_output_that_takes_nothing_ends_a_command_with_a_line_at_most(
    prepared: Path, where: str, words: list[str]
) -> None:
    command = [sys.executable, "-m", "nandarray", *words]
    if where == "/dev/full":
        with open("/dev/full", "w") as out:
            done = subprocess.run(command, cwd=prepared, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
    else:
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(command, cwd=prepared, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writing)
        assert done.returncode in (0, 1, 120, 141), done
    assert "Traceback" not in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) <= 1, done.stderr
