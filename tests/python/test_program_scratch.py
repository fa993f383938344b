"""Folders for compilers: where they are, and that nothing of them stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nandarray.programs.compile import mathematics, scratch, zig


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the one in memory."""
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(scratch, "_MEMORY", str(tmp_path))
    monkeypatch.setattr(scratch, "_ROOM", 0)
    return tmp_path


def test_a_folder_is_gone_afterwards_even_after_an_error(memory: Path) -> None:
    def fail() -> None:
        with scratch.folder() as made:
            assert made.parent == memory
            (made / "a").mkdir()
            (made / "a" / "b").write_text("x")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(memory.iterdir()) == []


def test_what_the_killed_left_is_removed_and_nothing_else(memory: Path) -> None:
    long_ago = time.time() - 2 * 3600
    for name, when in (
        ("nandarray-compiles-1", long_ago),
        ("nandarray-compiles-2", time.time()),
        ("other", long_ago),
    ):
        (memory / name).mkdir()
        os.utime(memory / name, (when, when))
    (memory / "nandarray-compiles-f").write_text("x")
    os.utime(memory / "nandarray-compiles-f", (long_ago, long_ago))
    with scratch.folder():
        pass
    assert {path.name for path in memory.iterdir()} == {"nandarray-compiles-f", "nandarray-compiles-2", "other"}


def test_no_room_in_memory_no_memory_and_a_place_of_the_users(
    memory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(scratch, "_ROOM", 1 << 62)
    assert scratch._place() is None
    monkeypatch.setattr(scratch, "_ROOM", 0)
    assert scratch._place() == str(memory)
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("own")))
    assert scratch._place() is None
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(scratch, "_MEMORY", str(memory / "nothing"))
    assert scratch._place() is None


def test_a_library_of_zigs_that_needs_more_is_given_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = zig.TARGETS["rv64"]
    inside = {"fmod": mathematics._holding("compiler_rt.zig", "fmod")}
    made = [mathematics._zig_part("compiler_rt.zig", inside, tmp_path / "a", target).read_bytes()]
    monkeypatch.setattr(mathematics, "_USED", frozenset({"math"}))
    made.append(mathematics._zig_part("compiler_rt.zig", inside, tmp_path / "b", target).read_bytes())
    assert made[0] == made[1]
