"""Disks that are full and standard streams that are closed: one line, no crash, nothing left, the store as it was."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray

DATA = np.random.default_rng(7).random(60_000)
ROOM = 100_000


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with nandarray.open("d.nand", "w") as store:
        store["a"] = DATA
        store["b"] = np.arange(10)
        store["a"].attrs["unit"] = "K"
    np.save("big.npy", DATA)
    return tmp_path


def small_files() -> None:
    """Let no file grow beyond some bytes, as on a full disk; the signal for it is one that Python ignores."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))


def call(*words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | how
    return subprocess.run([sys.executable, "-m", "nandarray", *words], check=False, **options)


def unchanged(name: str = "d.nand") -> None:
    with nandarray.open(name, "r+") as store:
        assert store.array_names() == ["a", "b"]
        np.testing.assert_array_equal(store["a"][...], DATA)
        np.testing.assert_array_equal(store["b"][...], np.arange(10))
        assert dict(store["a"].attrs) == {"unit": "K"}
        assert store.check()["ok"]


@pytest.mark.parametrize("ending", [".npy", ".npz", ".h5", ".nc", ".bin"])
def test_an_export_to_a_full_disk_is_one_line_and_leaves_nothing(ending: str, filled: Path) -> None:
    done = call("export", "d.nand", "a", f"x{ending}", preexec_fn=small_files)
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("nandarray: error: ")
    assert "unexpected" not in line
    assert sorted(os.listdir(filled)) == ["big.npy", "d.nand"]
    unchanged()
    assert call("export", "d.nand", "a", f"x{ending}").returncode == 0


@pytest.mark.parametrize("ending", [".h5", ".nc"])
def test_a_group_is_exported_to_a_full_disk(ending: str, filled: Path) -> None:
    with nandarray.open("d.nand", "r+") as store:
        for number in range(4):
            store.create(f"g/{number}", data=DATA[: 9000 * number + 1], building_block=(512,), compression="lz4")
    for compression in ("auto", "gzip:1"):
        done = call("export", "d.nand", "/", f"x{ending}", "--compression", compression, preexec_fn=small_files)
        assert done.returncode == 1, done
        assert len(done.stderr.splitlines()) == 1
        assert sorted(os.listdir(filled)) == ["big.npy", "d.nand"]
    assert call("export", "d.nand", "/", f"x{ending}").returncode == 0
    with nandarray.open("again.nand", "w") as store:
        nandarray.import_(f"x{ending}", store)
        for number in range(4):
            np.testing.assert_array_equal(store[f"g/{number}"][...], DATA[: 9000 * number + 1])


@pytest.mark.parametrize("ending", [".h5", ".nc"])
def test_an_export_whose_source_fails_leaves_nothing(ending: str, filled: Path) -> None:
    def stop(_name: str, done: int, _total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with nandarray.open("d.nand") as store, pytest.raises(KeyboardInterrupt):
        nandarray.export(store, f"x{ending}", progress=stop)
    assert sorted(os.listdir(filled)) == ["big.npy", "d.nand"]


@pytest.mark.parametrize(
    "words",
    [
        ("import", "big.npy", "d.nand", "c", "-q"),
        ("import", "big.npy", "d.nand", "c/d", "-q", "--compression", "zstd"),
        ("create", "d.nand", "c", "--shape", "1000"),
        ("read", "d.nand", "a", "-o", "c.npy"),
    ],
)
def test_a_store_on_a_full_disk_stays_as_it_was(words: tuple[str, ...], filled: Path) -> None:
    done = call(*words, preexec_fn=small_files)
    assert done.returncode == 1, done
    assert len(done.stderr.splitlines()) == 1
    assert sorted(os.listdir(filled)) == ["big.npy", "d.nand"]
    unchanged()


def test_a_new_store_on_a_full_disk_leaves_no_part_of_one(tmp_path: Path) -> None:
    script = "import nandarray; nandarray.open('new.nand', 'x')"
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, preexec_fn=small_files)
    assert b"StoreFullError" in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("ending", [".h5", ".nc"])
def test_an_export_ends_with_a_line_wherever_the_disk_is_full(ending: str, filled: Path) -> None:
    with nandarray.open("small.nand", "w") as store:
        store.create("a", data=np.arange(5000.0)).attrs["about"] = "a" * 300
        store.create("g/b", data=np.arange(1000.0), building_block=(128,))
        store.create("g/c", data=np.ones((20, 30)), building_block=(8, 8)).attrs["about"] = "c" * 2000
        store["words"] = np.array(["one", "two", "three"])
    for room in (200, 900, 2000, 5000, 7200, 20_000, 40_000, 56_200, 57_600, 58_300):

        def little(room: int = room) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

        done = call("export", "small.nand", "/", f"x{ending}", preexec_fn=little)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), (room, done)
        assert sorted(os.listdir(filled)) == ["big.npy", "d.nand", "small.nand"], room
    assert call("export", "small.nand", "/", f"x{ending}").returncode == 0


READING = [
    ("ls", "d.nand"), ("read", "d.nand", "b"), ("info", "d.nand", "a"), ("stat", "d.nand"), ("tree", "d.nand", "a"),
    ("--help",), ("lab", "list"), ("device", "list"), ("program", "list"), ("check", "d.nand"),
]  # fmt: skip


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_answers_that_cannot_be_written(words: tuple[str, ...], filled: Path) -> None:
    with open("/dev/full", "w") as full:
        done = call(*words, stdout=full)
    assert (done.returncode, done.stderr) == (1, "nandarray: error: No space left on device\n")
    end, other = os.pipe()
    os.close(end)
    with os.fdopen(other, "w") as broken:
        done = call(*words, stdout=broken)
    assert (done.returncode, done.stderr) == (1, "")
    done = call(*words, stdout=None, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (0, "")


def test_no_store_gets_the_number_of_a_closed_stream(filled: Path) -> None:
    """A library that prints on descriptor 1 or 2 would print into the file that was opened as that."""
    script = (
        "import os, sys; from nandarray.cli import commands; import nandarray\n"
        "def print_as_libraries_do(*_args, **_options):\n"
        "    store = nandarray.open('d.nand', 'r+')\n"
        "    for number in (0, 1, 2): assert os.readlink(f'/proc/self/fd/{number}') == os.devnull, number\n"
        "    os.write(1, b'x' * 100); os.write(2, b'y' * 100)\n"
        "    print('to nowhere'); print('to nowhere', file=sys.stderr)\n"
        "    store.close()\n"
        "commands.app = print_as_libraries_do\n"
        "commands.main()\n"
    )

    def close_all() -> None:
        for number in range(3):
            os.close(number)

    done = subprocess.run([sys.executable, "-c", script], check=False, preexec_fn=close_all)
    assert done.returncode == 0
    unchanged()


@pytest.mark.parametrize("words", [("read", "missing.nand", "a"), ("nonsense",), ("read", "d.nand", "a", "[")])
def test_errors_with_a_closed_standard_error_have_their_exit_codes(words: tuple[str, ...], filled: Path) -> None:
    done = call(*words, stderr=None, preexec_fn=lambda: os.close(2))
    assert (done.returncode, done.stdout) == (1 if "missing.nand" in words else 2, "")
