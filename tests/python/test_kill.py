"""Effects of other processes and accidents on a store: kill -9, a second writer, readers beside a writer, damage.

The child writes a known sequence and tells each step on its standard output once the flush behind it has returned. It
is killed at a random moment; the store must then open, check clean, and hold a state of the sequence no older than the
last promise heard. Seeds are in the messages. Lost power is tested in the engine's own tests.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from processes import killed

import nandarray

WRITER = """
import sys
import numpy as np
import nandarray

store = nandarray.open(sys.argv[1], mode="a")
a = store["a"] if "a" in store else store.create("a", (300, 500), "i4")
small = store["small"] if "small" in store else store.create("small", (1000,), "i4", compression="lz4")
step = int(a[0, 0])
while True:
    step += 1
    a[:, :] = step                      # every block, one command
    a[10:200, 30:411] = step + 1000000  # unaligned, one command
    a[0, 0] = step
    small[step % 900 : step % 900 + 50] = step
    if step % 3 == 0:
        store.flush()
        print(step, flush=True)
"""


def _kill_at_random(path: pathlib.Path, seed: int) -> int:
    """Run the writer, kill it, and return the last step whose flush it reported."""
    told = killed(WRITER, path, seed, 0.15)
    return told[-1] if told else 0


def test_a_killed_writer_leaves_whole_commands_and_at_least_the_last_flush(path: pathlib.Path) -> None:
    for seed in range(12):
        promised = _kill_at_random(path, seed)
        with nandarray.open(path, mode="r") as store:
            report = store.check()
            assert report["ok"], (seed, report["errors"])
            data = store["a"][...]
        inner, outer = data[10:200, 30:411], data.copy()
        outer[10:200, 30:411] = data[299, 499]
        outer[0, 0] = data[299, 499]
        step = int(data[299, 499])
        assert (outer == step).all(), f"seed {seed}: a write is torn"
        assert len(np.unique(inner)) == 1, f"seed {seed}: an unaligned write is torn"
        assert int(inner[0, 0]) in (step, step + 1000000), f"seed {seed}: commands are out of order"
        assert step >= promised, f"seed {seed}: the flush of step {promised} is lost"


def test_a_second_writer_is_kept_out(path: pathlib.Path) -> None:
    with nandarray.open(path, mode="w") as store:
        store["a"] = np.arange(5)
        code = f"import nandarray; nandarray.open({str(path)!r}, mode='r+')"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "LockedError" in other.stderr
        assert str(path) in other.stderr
        store["a"][0] = 9
    with nandarray.open(path, mode="r") as store:
        assert store["a"][...].tolist() == [9, 1, 2, 3, 4]


READER = """
import sys
import nandarray

store = nandarray.open(sys.argv[1], mode="r")
for line in sys.stdin:
    if line.strip() == "refresh":
        store.refresh()
    values = store["a"][...]
    assert (values == values.flat[0]).all()
    print(int(values.flat[0]), flush=True)
"""


def test_readers_in_other_processes_keep_what_they_opened_until_they_refresh(path: pathlib.Path) -> None:
    with nandarray.open(path, mode="w") as store:
        a = store.create("a", (600, 600), "i4")
        a[...] = 1
        store.flush()
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert reader.stdin is not None
        assert reader.stdout is not None

        def ask(word: str) -> int:
            reader.stdin.write(word + "\n")  # type: ignore[union-attr]
            reader.stdin.flush()  # type: ignore[union-attr]
            return int(reader.stdout.readline())  # type: ignore[union-attr]

        assert ask("read") == 1
        for value in range(2, 30):
            a[...] = value
            store.flush()
        store.compact()
        assert ask("read") == 1, "what the reader looks at is not reused under it"
        assert ask("refresh") == 29
        reader.stdin.close()
        assert reader.wait(timeout=20) == 0
        reader.stdout.close()


def test_a_flipped_byte_is_named_with_array_block_and_offset(path: pathlib.Path) -> None:
    with nandarray.open(path, mode="w") as store:
        store["group/a"] = np.random.default_rng(1).integers(0, 255, (700, 700), "u1")
    raw = bytearray(path.read_bytes())
    with nandarray.open(path, mode="r") as store:
        needle = store["group/a"][600:601, 512:600].tobytes()
    at = raw.find(needle)
    assert at > 0
    raw[at + 5] ^= 0x10
    path.write_bytes(raw)
    with nandarray.open(path, mode="r") as store:
        a = store["group/a"]
        assert a[0, 0] is not None, "what is not damaged is still read"
        with pytest.raises(
            nandarray.ChecksumError, match=r"'?\"?group/a.*building block \(\d+, \d+\).*offset \d+"
        ) as info:
            a[...]
        assert isinstance(info.value, OSError)
        with pytest.raises(nandarray.ChecksumError):  # single elements have a way of their own
            a[np.array([0, 600, 3]), np.array([0, 517, 9])]
        assert not store.check()["ok"]


@pytest.mark.parametrize("part", [0.02, 0.3, 0.7, 0.99])
def test_a_truncated_file_is_an_error_not_a_crash(path: pathlib.Path, part: float) -> None:
    with nandarray.open(path, mode="w") as store:
        store["a"] = np.random.default_rng(2).random((1200, 1200))
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * part)])
    with pytest.raises((nandarray.CorruptError, nandarray.NotAStoreError)), nandarray.open(path, mode="r") as store:
        store["a"][...]


BUSY_WRITER = """
import sys
import numpy as np
import nandarray

with nandarray.open(sys.argv[1], mode="w", capacity=int(sys.argv[2]) or None) as store:
    a = store.create("a", (200, 300), "i4")
    b = store.create("b", (100, 300), "i4", compression="lz4")
    for step in range(1, 100000):
        a[...] = step
        b[...] = step
        if step % 2 == 0:
            a[50:60, 10:20] = step  # gathers until the flush
            store.flush()
            print(step, flush=True)
        if step % 70 == 0:
            store.compact()
"""


@pytest.mark.parametrize("capacity", [0, 64 << 20])
def test_readers_that_open_while_a_writer_works_see_a_state_that_was(path: pathlib.Path, capacity: int) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", BUSY_WRITER, str(path), str(capacity)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    try:
        promised = int(writer.stdout.readline())
        os.set_blocking(writer.stdout.fileno(), False)
        said = ""
        for turn in range(60):
            while part := writer.stdout.readline():  # which may be a part of a line
                said += part
                if said.endswith("\n"):
                    promised, said = int(said), ""
            with nandarray.open(path, mode="r") as store:
                a, b = store["a"][...], store["b"][...]
                if turn % 10 == 0:
                    report = store.check()
                    assert report["ok"], report["errors"]
            step = int(a[0, 0])
            assert (a == step).all(), (turn, np.unique(a))
            assert (b == b[0, 0]).all(), (turn, np.unique(b))
            assert int(b[0, 0]) in (step, step - 1), (turn, step, b[0, 0])
            assert step >= promised, f"opened at step {step}, after the flush of step {promised} was told"
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    with nandarray.open(path, mode="r+") as store:
        assert store.check()["ok"]
