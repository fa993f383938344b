"""Stores of parts where things meet: reclaiming beside forks, resizing before receipts, processes that were forked."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import nandarray
from nandarray import parts
from nandarray.cli.commands import app
from nandarray.parts import forks, reclaim
from nandarray.parts.history import History
from nandarray.parts.manifest import key_of
from nandarray.parts.source import PartsSource


@pytest.fixture
def sky(tmp_path: Path) -> Any:
    """A store of parts at version 2, with an array of 4 x 4 shards of 8 x 8, of which the first row is written."""
    with parts.create(tmp_path / "sky.nand") as store:
        store.create("a", (32, 32), "i4", shards=(8, 8), building_block=(8, 8), fill_value=-1)[:8] = 1
        store.flush()
        yield store


def _write(fork: Any, box: Any, value: int) -> Any:
    with fork.writer() as writer:
        return writer.write("a", box, value)


def test_gc_keeps_what_forks_read(sky: Any) -> None:
    with sky.transaction() as tx:
        tx["a"][8:16] = 5
        fork = tx.fork()
        assert sky.gc(older_than=0)["leaves"] == 0
        with fork.writer() as writer:
            assert writer.read("a", np.s_[8:9, :2]).tolist() == [[5, 5]]
            tx.merge([writer.write("a", np.s_[9:10], 7)])
    assert sky["a"][7:11, 0].tolist() == [1, 5, 7, 5]


def test_gc_keeps_the_parts_of_a_commit_beside_it(sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that ends while manifests are read has its version among them, or its folder was seen."""
    tx = sky.transaction()
    tx["a"][8:16] = 5
    tx.fork()
    (part,) = [one for one in (Path(sky.path) / "parts").iterdir() if one.name.startswith(tx._source.job)]
    os.utime(part, (0, 0))
    read = reclaim.uses

    def late(history: History, numbers: list[int]) -> Any:
        found = read(history, numbers)
        tx.commit()
        return found

    monkeypatch.setattr(reclaim, "uses", late)
    assert sky.gc()["parts"] == 0
    assert sky["a"][8, 0] == 5
    assert sky.check()["ok"]


def test_a_leaf_that_is_put_again_is_young(sky: Any) -> None:
    sky["a"].resize((32, 40))
    sky.flush()
    sky.expire_versions(keep=1, older_than=0)
    leaves = Path(sky.path) / "leaves"
    for one in leaves.iterdir():
        os.utime(one, (0, 0))
    sky["a"].resize((32, 32))  # its leaf is that of version 2, which has expired
    sky.flush()
    assert max(one.stat().st_mtime for one in leaves.iterdir()) > time.time() - 3600


def test_a_part_of_the_dead_goes_at_once_when_it_is_old(sky: Any, tmp_path: Path) -> None:
    tx = sky.transaction()
    tx["a"][:] = 3
    tx.flush()
    (part,) = (Path(sky.path) / "parts").glob("*.open")
    copy = part.with_name("0123456789abcdef" * 2 + ".open")
    copy.write_bytes(part.read_bytes())
    os.utime(copy, (0, 0))
    (Path(sky.path) / "jobs" / "notes.txt").write_text("mine")
    assert sky.gc()["parts"] == 1
    assert part.exists()
    assert not copy.exists()
    tx.abort()


@pytest.mark.parametrize("shape", [(32, 64), (16, 32)])
def test_receipts_do_not_fit_an_array_that_was_renumbered(sky: Any, shape: tuple[int, ...]) -> None:
    tx = sky.transaction()
    receipt = _write(tx.fork(), np.s_[24:32, 0:8], 7)
    tx["a"].resize(shape)
    tx.merge([receipt])
    with pytest.raises(nandarray.InvalidError, match=r"shape \(32, 32\) .* must come before resize"):
        tx.commit()
    tx["a"].resize((32, 32))
    tx["a"].append(np.zeros((8, 32), "i4"))  # shards keep their numbers
    tx.commit()
    assert sky["a"][31:33, 0].tolist() == [7, 0]


def test_of_two_forks_the_later_counts(sky: Any) -> None:
    for turn in range(4):
        with sky.transaction() as tx:
            tx.merge([_write(tx.fork(), np.s_[0:8, 0:8], 10 * turn)])
            tx.merge([_write(tx.fork(), np.s_[0:4, 0:8], 10 * turn + 1)])
        assert sky["a"][3:5, 0].tolist() == [10 * turn + 1, 10 * turn]


def test_of_two_parts_of_a_fork_the_later_box_counts(sky: Any) -> None:
    with sky.transaction() as tx:
        fork = tx.fork()
        with fork.writer() as one, fork.writer() as two:
            receipts = [one.write("a", np.s_[0:8, 0:8], 10), two.write("a", np.s_[0:4, 0:8], 20)]
            receipts += [one.write("a", np.s_[2:4, 0:8], 30), two.write("a", np.s_[0:1, 0:8], 40)]
        tx.merge(receipts)
    assert sky["a"][:8, 0].tolist() == [40, 20, 30, 30, 10, 10, 10, 10]


def test_a_receipt_without_its_fork_is_refused(sky: Any) -> None:
    with sky.transaction() as tx:
        receipt = _write(tx.fork(), np.s_[0:8], 7)
        tx.merge([receipt, receipt])
    other = sky.transaction()
    other.merge([receipt])
    with pytest.raises(nandarray.InvalidError, match="a receipt of job"):
        other.commit()
    other.abort()


@pytest.mark.parametrize(
    "wrong", [{"shards": ((16, 0),)}, {"shards": ((-1, 0),)}, {"start": (0,)}, {"stop": (9, 33)}, {"start": (9, 9)}]
)
def test_a_receipt_of_what_is_not_there_is_refused(sky: Any, wrong: dict[str, Any]) -> None:
    tx = sky.transaction()
    tx.merge([replace(_write(tx.fork(), np.s_[0:8], 7), **wrong)])
    with pytest.raises(nandarray.InvalidError, match="a receipt of the box"):
        tx.commit()
    tx.abort()


@pytest.mark.parametrize("name", ["../x", "", ".", "a/b", "x\n", "x" * 201, 5])
def test_a_tag_is_the_name_of_a_file(sky: Any, name: Any) -> None:
    with pytest.raises(nandarray.InvalidError, match="a tag must begin"):
        sky.tag(name)
    sky.tag("2024.11-a")
    (Path(sky.path) / "tags" / "far.json").write_text('{"version": 1e400}')
    with pytest.raises(nandarray.CorruptError, match="the tag is damaged"):
        sky.tags()


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "one.nand", "w") as one:
        one.create("secret", (4,), "f8", encryption_key=bytes(32))
        one["a"] = np.arange(3)
    out = tmp_path / "sky.nand"
    for there in (False, True):
        if there:
            out.mkdir()
        done = CliRunner().invoke(app, ["parts", "split", one.path, str(out)])
        assert (done.exit_code, "no key was given" in done.output) == (1, True)
        assert out.exists() == there
        assert not there or not any(out.iterdir())
    with parts.create(out) as sky:
        sky["a"] = np.arange(5000)
        sky.flush()
    next((out / "parts").iterdir()).unlink()
    done = CliRunner().invoke(app, ["parts", "join", str(out), str(tmp_path / "two.nand")])
    assert (done.exit_code, "is not there" in done.output) == (1, True)
    assert not (tmp_path / "two.nand").exists()


def test_a_write_that_comes_too_late_for_a_commit_fails(sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tx = sky.transaction()
    late = pickle.loads(pickle.dumps(tx["a"]))
    flush = PartsSource.flush_own

    def commits(source: PartsSource) -> None:
        flush(source)
        monkeypatch.undo()
        tx.commit()

    monkeypatch.setattr(PartsSource, "flush_own", commits)
    with pytest.raises((nandarray.ClosedError, nandarray.MediaError)):
        late[0] = 5
    monkeypatch.setattr(forks.Files, "put_if_absent", _over_after(forks.Files.put_if_absent))
    late = pickle.loads(pickle.dumps(tx["a"]))
    with pytest.raises(nandarray.ClosedError, match="takes no more writes"):
        late[0] = 6
    tx.abort()
    assert sky["a"][0, 0] == 1


def _over_after(put: Any) -> Any:
    """Return a way to put objects after which a job is over, if it was a receipt."""

    def puts(files: Any, key: str, data: bytes) -> bool:
        done: bool = put(files, key, data)
        if "/r-" in key:
            put(files, forks.over_key(key.split("/")[1]), b"")
        return done

    return puts


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("end", ["commit", "abort", "close"])
def test_a_forked_process_neither_commits_nor_deletes(sky: Any, end: str) -> None:
    tx = sky.transaction()
    tx["a"][0] = 50
    pid = os.fork()
    if not pid:
        try:
            getattr(tx, end)()
            os._exit(0)
        except nandarray.ClosedError:
            os._exit(7)
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (7 if end == "commit" else 0)
    tx["a"][1] = 51
    assert tx.commit() == 3
    assert sky["a"][:2, 0].tolist() == [50, 51]


def test_threads_write_and_read_beside_commits_and_resizes(sky: Any) -> None:
    a = sky["a"]
    sky.create("b", (32, 8), "i4", shards=(8, 8), building_block=(8, 8))[:] = 1
    stop = threading.Event()

    def count(row: int) -> int:
        turn = 0
        while not stop.is_set():
            turn += 1
            a[row, turn % 8] = turn
            assert a[row, turn % 8] == turn
        return turn

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(count, row) for row in (0, 8, 16)]
        for turn in range(24):
            sky.flush()
            sky["b"].resize((8 + turn, 8))
            sky["b"].append(np.full((4, 8), turn, "i4"))
            time.sleep(0.02)
        stop.set()
        turns = [one.result() for one in running]
    sky.close()
    with nandarray.open(sky.path) as again:
        for row, turn in zip((0, 8, 16), turns, strict=True):
            for at in range(max(1, turn - 7), turn + 1):
                assert again["a"][row, at % 8] == at
        assert again["b"].shape == (35, 8)
        assert (again["b"][31:] == 23).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said.update(arrays=[]),
        lambda said: said["arrays"]["a"].update(leaves=[[0, 4, "../../tags/a"]]),
        lambda said: said["arrays"]["a"].update(leaves=2 * said["arrays"]["a"]["leaves"]),
        lambda said: said["arrays"]["a"].update(building_block=[0, 8]),
        lambda said: said["arrays"]["a"].update(attrs={}),
    ],
)
def test_a_forged_manifest_is_damaged(sky: Any, change: Any) -> None:
    file = Path(sky.path) / key_of(2)
    said = json.loads(file.read_text())
    del said["checksum"]
    change(said)
    plain = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    file.write_text(json.dumps({**said, "checksum": hashlib.sha256(plain).hexdigest()}))
    with pytest.raises(nandarray.CorruptError, match="the manifest of version 2 is damaged"):
        nandarray.open(sky.path, "r+")
