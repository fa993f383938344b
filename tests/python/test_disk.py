"""Disks that are full, or refuse a barrier, as a process meets them; and files that compaction must not make longer.

The engine's own tests (``crates/nandarray/tests/disk.rs``) fail every operation of a simulated disk. Here is what only
a file system shows: blocks that are taken and given back, and what a store object says afterwards. A file system
that is small enough to fill is mounted in a namespace of its own; where that is not allowed, that test is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nandarray

FULL = """
import os
import numpy as np, nandarray
MB = 1 << 20
def free(): return os.statvfs("mnt").f_bavail * os.statvfs("mnt").f_frsize
def refused(call):
    try:
        call()
    except nandarray.StoreFullError:
        return True
    return False
path = "mnt/a.nand"
store = nandarray.open(path, "w")
a = store.create("a", data=np.full((1000, 1000), 1.0))
store.create("b", data=np.full((1000, 1000), 2.0))
store.flush()
assert refused(lambda: store.create("c", data=np.full((2000, 1000), 3.0)))
length, room = os.stat(path).st_size, free()
for _ in range(5):
    assert refused(lambda: store.create("c", data=np.full((2000, 1000), 3.0)))
assert os.stat(path).st_size == length and free() + (1 << 18) >= room, (length, os.stat(path).st_size, room, free())
store.flush()
with open("mnt/filler", "wb") as filler:
    filler.write(bytes(free()))
assert free() == 0 and store.check()["ok"] and store.stat()["segments_bad"] == 0
del store["b"]
store.flush()
a[0, 0] = 5
store.flush()
a[...] = 6  # as large as b was
store.flush()
assert store.check()["ok"]
store.compact()
assert free() > 5 * MB and store.check()["ok"], free()
store.close()
with nandarray.open(path, "r+") as store:
    assert store.check()["ok"] and store.array_names() == ["a"] and (store["a"][...] == 6).all()
print("done")
"""


@pytest.mark.parametrize("megabytes", [18, 19, 20, 22, 24])
def test_a_full_disk_gives_room_back(tmp_path: Path, megabytes: int) -> None:
    (tmp_path / "mnt").mkdir()
    mount = f"mount -t tmpfs -o size={megabytes}m tmpfs mnt"
    in_namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    try:
        able = subprocess.run([*in_namespace, mount], capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no file system of its own to fill: {error}")
    if able.returncode:
        pytest.skip(f"no file system of its own to fill: {able.stderr.strip()}")
    command = [*in_namespace, f'{mount} && exec "$0" -c "$1"', sys.executable, FULL]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def descriptor(path: Path) -> int:
    """The number of the descriptor that a store has its file open by."""
    target = str(path.resolve())
    [number] = [n for n in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{n}") == target]
    return int(number)


def refuse_a_barrier(store: nandarray.Store, path: Path) -> None:
    """Let a flush fail, by a pipe in the file's place."""
    store.flush()
    number = descriptor(path)
    kept, pipe = os.dup(number), os.pipe()
    try:
        os.dup2(pipe[1], number)
        with pytest.raises(nandarray.MediaError, match="sync"):
            store.flush()
    finally:
        os.dup2(kept, number)
        for one in (kept, *pipe):
            os.close(one)


def test_close_after_a_refused_barrier_closes_once_and_for_all(path: Path) -> None:
    store = nandarray.open(path, "w")
    store["a"] = np.arange(10)
    refuse_a_barrier(store, path)
    assert store["a"][3] == 3
    with pytest.raises(nandarray.ClosedError, match="flush failed"):
        store["a"][0] = 1
    with pytest.raises(nandarray.LockedError):
        nandarray.open(path, "r+")
    with pytest.raises(nandarray.MediaError) as caught:
        store.close()
    assert caught.value.errno is not None, "an error of the system keeps its number"
    assert str(caught.value).count("failed") == 1
    assert store.closed
    store.close()
    with pytest.raises(nandarray.ClosedError):
        store.array_names()
    with nandarray.open(path, "r+") as again:
        np.testing.assert_array_equal(again["a"], np.arange(10))

    store = nandarray.open(path, "r+")
    with pytest.raises(nandarray.MediaError), store:
        refuse_a_barrier(store, path)
    assert store.closed
    nandarray.open(path, "r+").close()


def sizes(path: Path) -> tuple[int, int]:
    return path.stat().st_size, path.stat().st_blocks * 512


def test_compact_never_lengthens_a_file(path: Path) -> None:
    # A small file, freshly written; then overwritten, deleted from, appended to.
    with nandarray.open(path, "w") as store:
        store.create("a", data=np.arange(700_000, dtype="i2").reshape(700, 1000))
    for turn in range(4):
        with nandarray.open(path, "r+") as store:
            before = sizes(path)
            freed = store.compact()["bytes_freed"]
        after = sizes(path)
        assert after[0] <= before[0], (turn, before, after)
        assert after[1] <= before[1] + 16384, (turn, before, after)  # the superblock; delayed allocation
        assert freed == before[0] - after[0]
        with nandarray.open(path, "r+") as store:
            content = path.read_bytes()
            assert store.compact()["bytes_freed"] == 0
            assert path.read_bytes() == content, "nothing is left to do"
            for i in range(turn * 3):
                store["a"][turn * 100 : turn * 100 + 50, i * 100 :] = turn
                store.create(f"b{turn}.{i}", data=np.full((300, 1000), turn, "i4"))
                if i % 2:
                    del store[f"b{turn}.{i}"]
    with nandarray.open(path) as store:
        assert store.check()["ok"]
