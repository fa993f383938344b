"""Every command with random words, right and wrong: an answer or one line, never a traceback or a damaged store."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import nandarray
from nandarray.cli import app

DATA = np.arange(1200, dtype="f4").reshape(30, 40)
STORES = [
    "d.nand", "missing", "junk", "empty", "dir", "a.npy", "/dev/null", "/dev/full", "dir/x/y", "d.nand/x", "", "\udcff",
    "x" * 300, "a\x00b", "-", "tcp://127.0.0.1:1/x", "shm://nowhere", "\u202e",
]  # fmt: skip
NAMES = [
    "other", "run/temp", "run", "nope", "/", "", "..", "run/../other", "a//b", "\udcff", "x" * 5000, "text", "rec", "*",
    "scalar", "-1", "a\x00b", "run/temp/x", ".", "other/",
]  # fmt: skip
SLICES = ["0", "::2", "9" * 5000, "[", "...,...", "99", "None", "[0,1]", "0:10,5", ":,:,:", "-1", ""]
VALUES = [
    "1", "-1", "0", "1e400", "nan", "x", "1.5GB", "4.1GB", "256MiB", "9" * 5000, "100,200", "()", "0x10", "2**70", "f4",
    "object", "O", "S0", "lz4", "zstd:99", "zstd:-1", "gzip", "", "\udcff", "[]", "{}", "null", "M8[ns]", "a=1", "=",
    "a=\udcff", 'a={"b":[NaN]}', "../x.npy", "out.npy", "a.npy", "dir", "text.toml", "bad.toml", "p.py", "trace.csv",
    "junk", "tiny", "sum", "model.queue-depth", "\U0001f600",
]  # fmt: skip
#: Commands that serve until they are ended, measure, or run for long by their nature.
LONG = {"bench", "serve", "run", "advise", "doctor", "sweep", "build", "profile", "replay"}


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))
    elif not LONG & set(path):
        yield path, command


COMMANDS = list(commands(typer.main.get_command(app)))


def fill() -> None:
    with nandarray.open("d.nand", "w") as store:
        store.create("run/temp", data=DATA, building_block=(8, 8), attrs={"units": "K"}, compression="lz4")
        store["other"] = np.arange(5)
        store["text"] = np.array(["a", "é", "\U0001f600"])
        store["rec"] = np.zeros(3, [("x", "<i4"), ("y", "M8[s]"), ("z", "S3"), ("w", "c8", (2,))])
        store["b/ümläut"] = np.zeros((0, 3))
        store["scalar"] = np.float32(2)
        store["run"].attrs["by"] = "me"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("NANDARRAY_KEY", raising=False)
    fill()
    Path("junk").write_bytes(b"junk" * 5000)
    Path("empty").write_bytes(b"")
    Path("dir").mkdir()
    np.save("a.npy", DATA)
    Path("text.toml").write_text("x = 1")
    Path("bad.toml").write_bytes(b"\xff\xfe=")
    Path("trace.csv").write_text("a,b,c\n1,2,3\n")
    Path("p.py").write_text("def f(x): return x\n")
    return tmp_path


def line(rng: random.Random, path: tuple[str, ...], command: Any) -> list[str]:
    """A command line: its arguments mostly of the right kind, and some of its options."""
    words = list(path)
    pools = {"store": STORES, "slices": SLICES, **dict.fromkeys(("name", "names", "old", "new"), NAMES)}
    for one in command.params:
        if one.param_type_name == "argument":
            if not one.required and rng.random() < 0.4:
                continue
            pool = pools.get(one.name, VALUES)
            if one.name == "store" and rng.random() < 0.6:
                pool = ["d.nand"]
            words += rng.choices(pool, k=max(1, one.nargs))
        elif rng.random() < 0.2 and one.name != "help":
            words.append(rng.choice(one.opts))
            if not one.is_flag:
                words += rng.choices(VALUES + NAMES, k=one.nargs)
    return words


def answered(words: list[str]) -> int:
    done = CliRunner().invoke(app, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
    assert done.exit_code in (0, 1, 2), (words, done.output)
    assert "Traceback" not in done.output, words
    assert "please report" not in done.output, (words, done.stderr)
    if done.exit_code == 1:
        assert len(done.stderr.splitlines()) <= 1, (words, done.stderr)
        assert (done.stdout + done.stderr).strip(), words
    return done.exit_code


@pytest.mark.parametrize("seed", range(6))
def test_any_words_are_answered(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    codes = set()
    for _ in range(45):
        words = line(rng, *rng.choice(COMMANDS))
        codes.add(answered(words))
        if Path("d.nand").exists():
            try:
                with nandarray.open("d.nand") as store:
                    assert store.check()["ok"], (seed, words)
            except nandarray.NandarrayError as error:
                raise AssertionError(f"seed {seed}: {words} left a store that says {error}") from error
        if rng.random() < 0.05 or not Path("d.nand").exists():
            fill()
    assert codes == {0, 1, 2}


@pytest.mark.parametrize("path", [" ".join(path) for path, _ in COMMANDS])
def test_every_command_has_help_and_refuses_an_option_that_is_none(path: str) -> None:
    done = CliRunner().invoke(app, [*path.split(), "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.stdout
    done = CliRunner().invoke(app, [*path.split(), "d.nand", "x", "--no-such-option"])
    assert done.exit_code in (1, 2), done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("words", [("ls",), ("info",), ("tree",), ("stat",), ("attrs", "get"), ("check",)])
def test_facts_as_json_are_json_whatever_is_in_the_store(words: tuple[str, ...], folder: Path) -> None:
    with nandarray.open("d.nand", "r+") as store:
        store.create("odd", data=np.array([np.nan, np.inf]), fill_value=np.nan, attrs={"e": ["é", None, {"x": [1.5]}]})
        store.create("when", data=np.array(["NaT", "2001-01-01"], "M8[D]"), fill_value=np.datetime64("NaT"))
        store["raw"] = np.frombuffer(b"\0\xff\x80", "V3")
    names = ["", "odd", "when", "raw", "rec", "run"] if words[0] in ("info", "ls", "attrs") else [""]
    for name in names:
        done = CliRunner().invoke(app, [*words, "d.nand", *([name] if name else []), "--json"])
        assert done.exit_code == 0, (name, done.output)
        json.loads(done.stdout, parse_constant=pytest.fail)
    for name in ("odd", "when", "raw", "rec", "text", "scalar", "b/ümläut"):
        done = CliRunner().invoke(app, ["read", "d.nand", name, "--json"])
        assert done.exit_code == 0, done.output
        assert np.shape(json.loads(done.stdout, parse_constant=pytest.fail)) != (99,)


def test_a_tree_of_an_array_in_a_group_is_that_array(folder: Path) -> None:
    done = CliRunner().invoke(app, ["tree", "d.nand", "run/temp"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert "temp  30 x 40 float32" in done.stdout


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folders_that_may_not_be_written(folder: Path) -> None:
    folder.chmod(0o500)
    try:
        for words in (
            ["create", "new.nand"],
            ["export", "d.nand", "other", "x.npy"],
            ["import", "a.npy", "n.nand", "a"],
        ):
            assert answered(words) == 1
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_an_interrupted_import_leaves_the_store_as_it_was(number: signal.Signals, folder: Path) -> None:
    np.save("big.npy", np.random.default_rng(1).random(3_000_000))
    command = [sys.executable, "-m", "nandarray", "import", "big.npy", "d.nand", "big", "-q", "--budget", "1MiB"]
    process = subprocess.Popen([*command, "--compression", "zstd:12"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    before = Path("d.nand").stat().st_blocks * 512
    deadline = time.monotonic() + 60
    # Until a part of the array is there: a signal at the start is Python's own.
    while process.poll() is None and Path("d.nand").stat().st_blocks * 512 < before + (2 << 20):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert b"Traceback" not in said, said
    with nandarray.open("d.nand", "r+") as store:
        whole = process.returncode == 0
        assert ("big" in store) == whole
        assert store.check()["ok"]
        np.testing.assert_array_equal(store["run/temp"][...], DATA)
        assert {name for name in store.array_names() if name != "big"} == {
            "run/temp", "other", "text", "rec", "b/ümläut", "scalar",
        }  # fmt: skip
