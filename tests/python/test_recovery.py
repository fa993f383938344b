"""Reports of a store after a kill, damage and a salvage: by `check`, by `dropped` and by exit codes.

The engine's own tests look at every byte and every moment (`crates/nandarray/tests/salvage.rs`); these look at what
users see.
"""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import nandarray
from nandarray.cli import app


def _check(path: pathlib.Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", str(path), *options])
    return result.exit_code, result.stdout


def _damage_record(path: pathlib.Path, which: int) -> int:
    """Flip a bit in a journal record; give how many there are."""
    raw = bytearray(path.read_bytes())
    at = [i for i in range(0, len(raw), 8) if raw[i + 4 : i + 8] == b"NREC"]
    raw[at[which] + 44] ^= 1
    path.write_bytes(raw)
    return len(at)


def _flushed_six_times(path: pathlib.Path) -> None:
    with nandarray.open(path, "w") as store:
        a = store.create("a", (100, 100), "i4")
        for k in range(6):
            a[...] = k + 1
            store.flush()


def test_a_repair_that_loses_records_says_so_and_leaves_a_store_that_opens(path: pathlib.Path) -> None:
    for which in (0, 3, 6):
        _flushed_six_times(path)
        assert _damage_record(path, which) == 7
        with pytest.raises(nandarray.CorruptError, match="the journal is damaged"):
            nandarray.open(path)
        code, shown = _check(path, "--repair", "--json")
        found = json.loads(shown)
        dropped = found["dropped"]
        assert code == 1
        assert not found["ok"]
        assert (dropped["records"], dropped["first"], dropped["last"]) == (7 - which, which + 1, 7)
        assert dropped["flushed"]
        assert found["arrays"] == (which > 0)
        assert (dropped["pages_lost"] > 0) == (which == 0)
        # The store is in order from now on.
        code, shown = _check(path)
        assert (code, shown.split()[0]) == (0, "ok")
        for name in ("new", "newer"):
            with nandarray.open(path, "r+") as store:
                assert store.dropped is None
                store[name] = np.arange(1000)
        with nandarray.open(path) as store:
            assert store.check()["ok"]
            assert (store["new"][...] == store["newer"][...]).all()
            assert "a" not in store or (store["a"][...] == 6).all()


def test_what_a_salvage_left_out_is_told_where_it_is_opened(path: pathlib.Path) -> None:
    _flushed_six_times(path)
    _damage_record(path, 3)
    with nandarray.open(path, salvage=True) as store:
        assert store.dropped is not None
        assert store.dropped["arrays"] == ["a"]
        assert "4 records (4 to 7) lost" in store.dropped["message"]
        assert store.check()["dropped"] == store.dropped
    code, shown = _check(path, "--repair")
    assert code == 1
    assert "lost: the journal was damaged: 4 records (4 to 7) lost; changed array" in shown
    assert shown.splitlines()[-1].startswith("salvaged, with losses")


def _killed(path: pathlib.Path, program: str) -> None:
    code = f"import os, signal, nandarray\n{program}\nos.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_flipped_bit_in_what_was_flushed_before_a_kill_is_an_error(path: pathlib.Path) -> None:
    program = f"""
store = nandarray.open({str(path)!r}, "w")
a = store.create("a", (64, 64), "u1")
a[...] = 1
store.flush()
a[...] = 2
store.flush()"""
    _killed(path, program)
    whole = path.read_bytes()
    with nandarray.open(path) as store:
        assert (store["a"][...] == 2).all()
        assert store.check()["ok"]
        assert store.dropped is None
    for mode in ("r", "r+"):
        raw = bytearray(whole)
        raw[raw.find(bytes([2]) * 4096) + 100] ^= 1
        path.write_bytes(raw)
        with nandarray.open(path, mode) as store:
            with pytest.raises(nandarray.ChecksumError):
                store["a"][...]
            assert not store.check()["ok"]


def test_a_store_that_was_killed_before_its_first_flush_is_not_damaged(path: pathlib.Path) -> None:
    for program in ("", 'store.create("a", (300, 300), "i4")[...] = 1'):
        _killed(path, f'store = nandarray.open({str(path)!r}, "w")\n{program}')
        code, shown = _check(path)
        assert (code, shown.split()[0]) == (0, "ok"), shown
    # As a loss of power leaves it that took the second superblock, which no barrier has made durable yet.
    raw = bytearray(path.read_bytes())
    raw[4096:8192] = bytes(4096)
    path.write_bytes(raw)
    code, shown = _check(path)
    assert (code, shown.split()[0]) == (0, "ok"), shown


GROWING_WRITER = """
import sys
import numpy as np
import nandarray

geometry = dict(page_bytes=4096, channels=4, pages_per_block=4)
store = nandarray.open(sys.argv[1], mode="w", geometry=geometry)
a = store.create("a", (0, 5000), "i4")
store.flush()
print("up", flush=True)
while True:
    for k in range(100):
        a.append(np.full((2, 5000), k, "i4"))
    a.resize((0, 5000))
    store.flush()
    store.compact()
"""


def test_readers_that_open_and_refresh_while_the_file_grows_are_told_of_no_damage(path: pathlib.Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", GROWING_WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    try:
        assert writer.stdout.readline() == "up\n"
        for turn in range(20):
            with nandarray.open(path) as store:
                for _ in range(3):
                    store.refresh()
                a = store["a"]
                assert a.shape[0] % 2 == 0
                if a.shape[0]:
                    assert len(np.unique(a[-2:])) == 1, turn
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    with nandarray.open(path) as store:
        assert store.check()["ok"]
