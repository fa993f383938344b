"""The cache of compiled programs under bad luck: processes at once, killed ones, no room, damage."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray.programs.compile import cache, zig

X = np.arange(1.0, 50.0)
PROGRAM = """
import math, sys
import numpy as np, nandarray
store = nandarray.open(sys.argv[1], mode="w")
store["x"] = np.arange(1.0, 50.0)
@nandarray.program(inputs="float64")
def function(x):
    return math.log10(x) + 1
print(float(store["x"].offload(function).sum()))
"""
SUM = float((np.log10(X) + 1).sum())


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, and nothing that the process kept before."""
    monkeypatch.setenv("NANDARRAY_CACHE", str(tmp_path / "cache"))
    forget()
    yield tmp_path / "cache"
    forget()


def forget() -> None:
    """Drop what the process kept for itself."""
    if cache._own.cache_info().currsize:
        cache._own().cleanup()
        cache._own.cache_clear()


def started(tmp_path: Path, number: int) -> subprocess.Popen[str]:
    """A process that compiles PROGRAM and prints its result; the file is written once, others may be reading it."""
    if not (tmp_path / "program.py").exists():
        (tmp_path / "program.py").write_text(PROGRAM)
    words = [sys.executable, "program.py", f"{number}.nand"]
    return subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def right(process: subprocess.Popen[str]) -> bool:
    said, wrong = process.communicate(timeout=300)
    assert process.returncode == 0, wrong
    return float(said) == pytest.approx(SUM)


def decibels(x: float) -> float:
    return math.log10(x) * 20


def compiles_and_is_right(store: Any) -> None:
    made = nandarray.program(decibels, inputs="float64")
    np.testing.assert_allclose(store["log"].offload(made), np.log10(X) * 20, rtol=1e-15)


def test_processes_that_compile_the_same_at_once(own: Path, tmp_path: Path) -> None:
    processes = [started(tmp_path, number) for number in range(3)]
    assert all(right(process) for process in processes)
    assert len(list((own / "programs").glob("*.program"))) == 1
    assert not list(own.rglob(".new-*"))


def test_processes_that_are_killed_leave_nothing_that_is_believed(own: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    for number, seconds in enumerate([0.3, 0.5, *rng.uniform(0.2, 1.5, 4)]):
        process = started(tmp_path, number)
        time.sleep(seconds)
        process.kill()
        process.communicate()
    assert right(started(tmp_path, 90))
    assert right(started(tmp_path, 91))


def test_no_room_and_no_folder(own: Path, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store["log"] = X
    real = cache.write_whole

    def full(path: Path, data: bytes) -> None:
        if path.is_relative_to(own):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(path, data)

    monkeypatch.setattr(cache, "write_whole", full)
    compiles_and_is_right(store)
    assert not list(own.rglob("*.*"))
    monkeypatch.undo()
    shutil.rmtree(own, ignore_errors=True)
    own.write_text("a file where the folder should be")
    monkeypatch.setenv("NANDARRAY_CACHE", str(own))
    compiles_and_is_right(store)
    source = """#include <nandarray.h>
ND_PROGRAM("name": "calls", "kind": "block", "inputs": [{"name": "x", "dtype": "uint8"}], "outputs": [])
int nothing(void);
int64_t nd_block(nd_args *args) { return nothing(); }
"""
    with pytest.raises(nandarray.CompileError, match=r"nothing \(.*no place to be built in"):
        nandarray.Program.from_c(source)


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped"])
def test_damaged_objects_are_compiled_again(own: Path, store: Any, damage: str) -> None:
    store["log"] = X
    compiles_and_is_right(store)
    objects = [*own.glob("support/*.o"), *own.glob("support/*/*.o")]
    assert len(objects) >= 2
    for path in objects:
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes({"empty": b"", "cut": bytes(raw[:-40]), "flipped": bytes(raw)}[damage])
    for path in own.glob("programs/*"):
        path.unlink()
    compiles_and_is_right(store)
    assert all(cache.kept(path) == path for path in objects)


def test_what_a_killed_writer_left_goes_in_time(own: Path) -> None:
    kept = cache.Cache()
    kept.put("0" * 64, b"x")
    for name, age in ((".new-old", 7200), (".new-young", 0)):
        (own / "programs" / name).write_bytes(b"half")
        when = time.time() - age
        os.utime(own / "programs" / name, (when, when))
    kept.put("1" * 64, b"y")
    names = {path.name for path in (own / "programs").iterdir()}
    assert ".new-old" not in names
    assert ".new-young" in names
    assert kept.get("0" * 64) == (b"x", {})


def test_an_object_with_its_checksum_is_what_linkers_read(own: Path, store: Any) -> None:
    made = zig.runtime(zig.TARGETS["rv64"])
    assert made.read_bytes()[:4] == b"\x7fELF"
    assert cache.kept(made) == made
    assert made.is_relative_to(own)


def planted(store: Any) -> tuple[Path, bytes]:
    """Compile a program; give its entry in the cache, and one that looks whole and is another program's."""
    compiles_and_is_right(store)
    (entry,) = cache.Cache().where.glob("*.program")
    head, _, _ = entry.read_bytes().partition(b"\n")
    body = b"something else"
    facts = json.loads(head)
    facts["sha256"] = cache._digest_entry(facts["files"], facts["note"], body)
    return entry, json.dumps(facts).encode() + b"\n" + body


@pytest.mark.parametrize("what", ["folder", "programs", "above"])
def test_a_cache_that_others_can_write_to_is_not_used(own: Path, tmp_path: Path, store: Any, what: str) -> None:
    store["log"] = X
    entry, other = planted(store)
    entry.write_bytes(other)
    with pytest.raises(nandarray.NandarrayError):  # it is believed: the checksum is right
        compiles_and_is_right(store)
    place = {"folder": own, "programs": own / "programs", "above": tmp_path}[what]
    mode = place.stat().st_mode
    place.chmod(0o777)
    cache._warn.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match=f"not kept in .*other users can write to {place} "):
            compiles_and_is_right(store)
        assert entry.read_bytes() == other
    finally:
        place.chmod(mode)


def test_files_that_others_can_write_to_are_not_read(own: Path, store: Any) -> None:
    store["log"] = X
    entry, other = planted(store)
    entry.write_bytes(other)
    entry.chmod(0o666)
    compiles_and_is_right(store)
    assert entry.stat().st_mode & 0o777 == 0o600  # written anew
    entry.unlink()
    outside = own.parent / "elsewhere"
    outside.write_bytes(other)
    entry.symlink_to(outside)
    compiles_and_is_right(store)
    assert not entry.is_symlink()


def test_a_folder_of_another_user_is_not_used(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own.mkdir()
    assert cache.folder() == own
    cache._warn.cache_clear()
    monkeypatch.setattr(cache.os, "geteuid", lambda: own.stat().st_uid + 1)
    with pytest.warns(RuntimeWarning, match=f"belongs to user {own.stat().st_uid}"):
        assert cache.folder() != own


def test_folders_are_made_for_one_user(own: Path) -> None:
    before = os.umask(0)
    try:
        cache.Cache().put("key", b"elf")
    finally:
        os.umask(before)
    assert cache.Cache().get("key") == (b"elf", {})
    assert [path.stat().st_mode & 0o777 for path in (own, own / "programs")] == [0o700, 0o700]
