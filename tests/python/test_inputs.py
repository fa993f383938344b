"""Files that a user names for reading: a pipe, a device or a folder is refused at once, whatever it should be."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import nandarray
from nandarray import Kernel, Program, device
from nandarray.cli import app
from nandarray.cli.program import pipeline
from nandarray.inputs import open_input, read_text
from nandarray.lab import registry, sweep_spec
from nandarray.nvme import read_secrets
from nandarray.programs import timing

READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "store": (".nand", lambda path: nandarray.open(path, "r")),
    "trace": (".csv", lambda path: nandarray.replay(path, device="tiny")),
    "description": (".toml", lambda path: device.load(path)),
    "configuration": (".xml", lambda path: device.import_mqsim(path)),
    "program": (".elf", lambda path: Program.from_elf(path)),
    "C": (".c", lambda path: Program.from_c(path)),
    "kernel": (".c", lambda path: Kernel.from_c(path)),
    "core": (".toml", lambda path: timing.choose_core(path)),
    "secrets": (".txt", lambda path: read_secrets(path)),
    "sweep": (".toml", lambda path: sweep_spec.read_spec(path)),
    "experiment": (".py", lambda path: registry.load_file(path)),
    "pipeline": (".toml", lambda path: pipeline.read_spec(path)),
    "import": (".npy", lambda path: nandarray.import_(path, "none.nand")),
}


@pytest.fixture(autouse=True)
def _a_limit_of_time() -> Iterator[None]:
    def late(_number: int, _frame: Any) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_files_are_read(reader: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suffix, read = READERS[reader]
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"odd{suffix}"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises((nandarray.NandarrayError, IsADirectoryError), match="folder|directory|pipe|FIFO|device|file"):
        read(path)


def test_a_path_that_no_file_can_have_and_a_text_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(nandarray.InvalidError, match="path of no file"):
        open_input("a\0b")
    with pytest.raises(FileNotFoundError):
        open_input(tmp_path / "none")
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfab")
    assert read_text(tmp_path / "a", "a word") == "ab"
    (tmp_path / "a").write_bytes(b"ab\xff")
    with pytest.raises(nandarray.InvalidError, match="must be a word, in UTF-8; byte 2 is not"):
        read_text(tmp_path / "a", "a word")


def test_the_command_line_says_so_in_a_line(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    result = CliRunner().invoke(app, ["replay", str(fifo), "-d", "tiny"])
    assert (result.exit_code, result.stderr) == (1, f"nandarray: error: {fifo}: it must be a file, not a pipe\n")
