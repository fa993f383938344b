"""Stores of parts where things meet: reclaiming beside forks, resizing before receipts, processes that were forked."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import random
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
from nandarray.parts import forks, reclaim, writer
from nandarray.parts.blobs.files import Files
from nandarray.parts.history import History
from nandarray.parts.manifest import key_of, parse
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
    with pytest.raises(nandarray.InvalidError, match=r"shape \(32, 32\) .* must come before resize"):
        tx.merge([receipt])
    tx["a"].resize((32, 32))
    tx["a"].append(np.zeros((8, 32), "i4"))  # shards keep their numbers
    tx.merge([receipt])
    tx.commit()
    assert sky["a"][31:33, 0].tolist() == [7, 0]


def test_of_two_forks_the_later_counts(sky: Any) -> None:
    for turn in range(4):
        with sky.transaction() as tx:
            tx.merge([_write(tx.fork(), np.s_[0:8, 0:8], 10 * turn)])
            tx.merge([_write(tx.fork(), np.s_[0:4, 0:8], 10 * turn + 1)])
        assert sky["a"][3:5, 0].tolist() == [10 * turn + 1, 10 * turn]


@pytest.mark.parametrize("read", [False, True])
def test_of_two_forks_the_later_counts_whenever_each_is_merged(sky: Any, read: bool) -> None:
    with sky.transaction() as tx:
        first, second, third = (tx.fork() for _ in range(3))
        boxes = (first, np.s_[0:6, 0:8], 10), (second, np.s_[2:4, 0:8], 20), (third, np.s_[3:8, 0:8], 30)
        receipts = [_write(*one) for one in boxes]
        for one in (receipts[2], receipts[0], receipts[1]):
            tx.merge([one])
            assert not read or tx["a"][7, 0] == 30
    assert sky["a"][:8, 0].tolist() == [10, 10, 20, 30, 30, 30, 30, 30]


@pytest.mark.parametrize("fails", ["tags", "delete"])
def test_versions_stay_if_expiring_fails_on_the_way(sky: Any, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    for value in range(4):
        sky["a"][0, 0] = value
        sky.flush()
    before, calls = sky.versions(), iter(range(9))
    owner = History if fails == "tags" else Files
    real = getattr(owner, fails)

    def broken(*given: Any) -> Any:
        if next(calls) == 1:
            raise nandarray.MediaError("the disk does not answer")
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(owner, fails, broken)
        with pytest.raises(nandarray.MediaError):
            sky.expire_versions(keep=1, older_than=0)
    assert sky.versions() == before
    assert sky.expire_versions(keep=1, older_than=0)


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
    with pytest.raises(nandarray.InvalidError, match="a receipt of job"):
        other.merge([receipt])
    other.abort()


@pytest.mark.parametrize(
    "wrong",
    [
        {"shards": ((16, 0),)}, {"shards": ((-1, 0),)}, {"shards": ()}, {"shards": ((1, 0), (0, 1), (2, 2), (4, 3))},
        {"start": (0,)}, {"stop": (9, 33)}, {"start": (9, 9)},
    ],
)  # fmt: skip
def test_a_receipt_of_what_is_not_there_is_refused(sky: Any, wrong: dict[str, Any]) -> None:
    tx = sky.transaction()
    good = _write(tx.fork(), np.s_[0:8], 7)
    with pytest.raises(nandarray.InvalidError, match="a receipt of the box"):
        tx.merge([good, replace(good, **wrong)])
    assert tx["a"][0, 0] == 1  # none was taken
    tx.abort()


def test_a_receipt_of_what_its_part_lacks_is_no_receipt(sky: Any) -> None:
    tx = sky.transaction()
    fork = tx.fork()
    good = _write(fork, np.s_[0:8], 7)
    for wrong in (
        replace(good, shards=tuple((number, at + 9) for number, at in good.shards)),
        replace(good, part=good.job + "0" * 16),
    ):
        tx.merge([wrong])
        for use in (lambda: tx["a"][0, 0], tx.commit):
            with pytest.raises(nandarray.ReceiptError, match="parts are lost, .* or lack the boxes") as caught:
                use()
        assert caught.value.boxes == {"a": [((0, at), (8, at + 8)) for at in range(0, 32, 8)]}
    tx.merge([_write(tx.fork(), np.s_[0:8], 8)])
    tx.commit()
    assert sky["a"][7:9, 0].tolist() == [8, -1]
    assert sky.check()["ok"]


def test_what_was_merged_is_read_and_changed(sky: Any) -> None:
    with sky.transaction() as tx:
        fork = tx.fork()
        late = _write(fork, np.s_[0:1, 0:2], 70)
        receipts = [_write(fork, np.s_[0:8], 7), _write(fork, np.s_[8:16], 8), _write(fork, np.s_[16:32], 9)]
        tx.merge(receipts)
        assert tx["a"][0:9:8, 3].tolist() == [7, 8]
        tx["a"][2, 3] = 50
        tx["a"][[16, 17], [4, 5]] = 51
        tx["a"][24:26, ::4] = 52
        tx.merge([late, *receipts])  # each box is taken once
        assert tx["a"].view((1024,))[32 * 31] == 9
        with tx.fork().writer() as writer:
            assert writer.read("a", np.s_[0:3, 0:4])[[0, 2], [1, 3]].tolist() == [70, 50]
        receipts = [_write(tx.fork(), np.s_[30:32], 10), _write(fork, np.s_[0:2, 31:], 71)]
        tx.merge(receipts)
        tx["a"].append(np.full((2, 32), 11, "i4"))
        tx["a"].resize((34, 40))
    expected = np.full((34, 40), -1)
    expected[:8, :32], expected[8:16, :32], expected[16:32, :32], expected[30:32, :32] = 7, 8, 9, 10
    expected[2, 3], expected[16, 4], expected[17, 5], expected[24:26, :32:4], expected[0, :2] = 50, 51, 51, 52, 70
    expected[:2, 31], expected[32:, :32] = 71, 11
    np.testing.assert_array_equal(sky["a"][...], expected)
    assert tx.stats["receipts"] == 6
    assert sky.check()["ok"]


def test_programs_take_what_was_merged(sky: Any) -> None:
    with sky.transaction() as tx, ThreadPoolExecutor(2) as client:
        for turn, options in enumerate(({}, {"client": client})):
            tx.merge([_write(tx.fork(), np.s_[0:32], 7 + turn)])
            assert tx["a"].reduce("sum", **options) == 32 * 32 * (7 + turn)


def test_a_second_part_of_a_shard_that_was_read_counts_too(sky: Any) -> None:
    with sky.transaction() as tx:
        fork = tx.fork()
        with fork.writer() as writer:
            one, more = writer.write("a", np.s_[0:2, 0:8], 20), writer.write("a", np.s_[2:4, 0:8], 21)
        tx.merge([one])
        assert tx["a"][0, 0] == 20
        tx.merge([more, _write(fork, np.s_[4:6, 0:8], 22)])
    assert sky["a"][:8, 0].tolist() == [20, 20, 21, 21, 22, 22, 1, 1]


def test_a_write_over_what_workers_left_is_refused_until_it_is_there(sky: Any) -> None:
    with sky.transaction() as tx:
        left = pickle.loads(pickle.dumps(tx["a"]))
        left[0:10, 0:4] = 30
        tx["a"][0, 20] = 31
        for write in (lambda: tx["a"].__setitem__((8, 0), 1), lambda: tx["a"].resize((40, 40))):
            with pytest.raises(nandarray.InvalidError, match="shards .*4 of array 'a' were written by workers"):
                write()
        tx.collect()
        tx["a"][8, 0] = 32
    assert sky["a"][7:11, 0].tolist() == [30, 32, 30, -1]
    assert sky["a"][0, 20] == 31


def test_a_change_that_is_taken_back_keeps_receipts(sky: Any) -> None:
    with sky.transaction() as tx:
        tx.merge([_write(tx.fork(), np.s_[0:8], 7)])
        staging = tx._source.stage([])
        tx["a"][0, 0] = 9
        staging.abort()
        tx["a"][1, 0] = 8
    assert sky["a"][:3, 0].tolist() == [7, 8, 7]


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


def test_a_part_whose_job_was_ended_cannot_be_sealed(sky: Any) -> None:
    tx = sky.transaction()
    writer = tx.fork().writer()
    writer.write("a", np.s_[0:8], 5)
    late = pickle.loads(pickle.dumps(tx["a"]))
    late[8:16] = 6
    parts = Path(sky.path) / "parts"
    for part in parts.glob("*.open"):
        part.unlink()
    with pytest.raises(nandarray.PartError, match="its job was ended"):
        writer.close()
    with pytest.raises(nandarray.ReceiptError, match="must be written again"):
        tx.commit(wait_s=0.1)
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


def test_threads_merge_read_and_flush_one_transaction(sky: Any) -> None:
    tx, stop = sky.transaction(), threading.Event()

    def merge() -> None:
        with tx.fork().writer() as worker:
            receipts = [worker.write("a", np.s_[0:20, at : at + 12], at) for at in (0, 10, 20)]
        tx.merge(receipts)

    def change() -> None:
        tx["a"][24:, 3] = 5
        tx["a"].append(np.full((1, 32), 6, "i4"))

    def repeat(call: Any) -> int:
        turns = 0
        while not stop.is_set():
            call()
            turns += 1
        return turns

    calls = (merge, change, tx.flush, lambda: tx["a"][:, 7], lambda: pickle.dumps(tx["a"]))
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(repeat, call) for call in calls]
        time.sleep(1.5)
        stop.set()
        grown = [one.result() for one in running][1]
    tx.commit()
    assert sky["a"].shape == (32 + grown, 32)
    assert sky["a"][[0, 19, 25, 32], [0, 31, 3, 5]].tolist() == [0, 20, 5, 6]
    assert sky.check()["ok"]


def test_a_loop_of_flushes_lets_others_pass(sky: Any) -> None:
    stop, turns = threading.Event(), [0]
    gate = sky._source.gate

    def flush(alone: bool) -> None:
        while not stop.is_set():
            sky.flush()
            if alone:
                with gate.alone():
                    turns[0] += 1

    with ThreadPoolExecutor(3) as pool:
        loops = [pool.submit(flush, alone) for alone in (True, True, False)]
        for turn in range(50):
            sky["a"][31, 31] = turn
        passed = turns[0]
        for _ in range(5):
            time.sleep(0.01)
        stop.set()
        for one in loops:
            one.result()
    assert sky["a"][31, 31] == 49
    assert turns[0] > passed > 0
    sky.flush()
    before = sky._source.changes
    sky.flush()
    assert sky._source.changes == before


def test_forks_are_made_for_changes_alone(sky: Any) -> None:
    jobs = Path(sky.path) / "jobs"
    for _ in range(3):
        pickle.dumps(sky["a"])
        with pytest.raises(nandarray.NotFoundError):
            sky["none"]
    assert len(list(jobs.iterdir())) == 1
    sky["b"] = [1]
    later = pickle.loads(pickle.dumps(sky["b"]))
    later[0] = 2
    sky.flush()
    assert (sky["b"][0], list(jobs.iterdir())) == (2, [])


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list open files")
def test_open_files_are_bounded(sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_KEPT", 4)
    stores = [sky]
    for turn in range(12):
        sky["a"][8 * (turn % 4) : 8 * (turn % 4) + 8] = turn
        sky.flush()
        stores.append(sky.at(version=sky.version))
        for one in stores:
            one["a"][...]
    assert len(_files_of(sky)) <= 4
    for one in stores[1:]:
        one.close()
    sky.compact()
    sky.expire_versions(keep=1, older_than=0)
    assert sky.gc(older_than=0)["parts"] > 3
    assert not [one for one in _files_of(sky) if "deleted" in one]


def _files_of(store: Any) -> list[str]:
    """Return the files of a store that this process has open."""
    found = []
    for one in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{one}"))
    return [one for one in found if store.path in one]


def _forged(store: Any, change: Any) -> None:
    """Change the manifest of version 2, and its checksum with it."""
    file = Path(store.path) / key_of(2)
    said = json.loads(file.read_text())
    del said["checksum"]
    change(said)
    plain = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    file.write_text(json.dumps({**said, "checksum": hashlib.sha256(plain).hexdigest()}))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda a: a.update(leaves=[[0, 4, "../../tags/a"]]), "hash of a leaf must be 64"),
        (lambda a: a.update(leaves=2 * a["leaves"]), "rows of a leaf must be at most 0"),
        (lambda a: a.update(leaves=[[13, *a["leaves"][0][1:]]]), "rows of a leaf must be at most 3"),
        (lambda a: a.update(leaves=[[-1, *a["leaves"][0][1:]]]), "first shard of a leaf must be"),
        (lambda a: a.update(leaves=[[0, 0, a["leaves"][0][2]]]), "rows of a leaf must be from 1"),
        (lambda a: a.update(building_block=[0, 8]), "shard must be multiples of"),
        (lambda a: a.update(shard=[8]), "numbers of dimensions"),
        (lambda a: a.update(shape=[-32, 32]), "shape must be a list of numbers"),
        (lambda a: a.update(shape=[2**63, 2**63]), "number of shards must be less than"),
        (lambda a: a.update(itemsize=8, fill="00" * 8), "itemsize must be 4, that of <i4"),
        (lambda a: a.update(itemsize=0, fill=""), "itemsize must be a number from 1"),
        (lambda a: a.update(fill="00"), "fill must be of 4 bytes"),
        (lambda a: a.update(attrs="[]"), "attrs must be the text of an object"),
        (lambda a: a.update(attrs={}), "attrs must be a text"),
        (lambda a: a.update(id="../x"), "id must be 32"),
        (lambda a: a.update(more=1), "more"),
        (lambda a: a.pop("shape"), "'shape' is missing"),
    ],
)
def test_a_senseless_array_is_damage_of_its_version(sky: Any, change: Any, told: str) -> None:
    _forged(sky, lambda said: change(said["arrays"]["a"]))
    with pytest.raises(nandarray.CorruptError, match=f"manifest of version 2 is damaged: array 'a': .*{told}"):
        nandarray.open(sky.path, "r+")
    with nandarray.open(sky.path) as store:
        assert store.version == 1
        assert told.replace(".*", "") in store.check()["errors"][0]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda said: said.update(arrays=[]), "arrays must be an object"),
        (lambda said: said["arrays"].update(b=said["arrays"]["a"]), "arrays 'a' and 'b' have the same id"),
        (lambda said: said["arrays"].update({"a/b": {**said["arrays"]["a"], "id": "0" * 32}}), "'a/b' lies in 'a'"),
        (lambda said: said["arrays"].update({"a//b": said["arrays"]["a"]}), "empty part"),
        (lambda said: said["arrays"].update(b=3), "array 'b': an array must be an object"),
        (lambda said: said.update(parent=7), "parent must be 1, not 7"),
        (lambda said: said.update(parent_commit="0" * 32), "ancestors must be those before"),
        (lambda said: said.update(ancestors=20 * said["ancestors"]), "ancestors must be those before"),
        (lambda said: said.update(commit="x"), "commit must be 32"),
        (lambda said: said.update(message=3), "message must be a text"),
        (lambda said: said.update(version=True), "version must be a number"),
    ],
)
def test_a_senseless_manifest_is_damaged(sky: Any, change: Any, told: str) -> None:
    _forged(sky, change)
    with pytest.raises(nandarray.CorruptError, match=f"the manifest of version 2 is damaged: .*{told}"):
        nandarray.open(sky.path, "r+")


@pytest.mark.parametrize(
    ("table", "first", "told"),
    [
        (lambda t: t[::-1], 3, "must have shards from 3 on, ascending"),
        (lambda t: t[[0, 0, 1, 2]], 0, "must have shards from 0 on, ascending"),
        (lambda t: t, 1, "must have shards from 1 on"),
        (lambda t: _with(t, "shard", [0, 1, 2, 99]), 0, "has shard 99, which must be less than 16"),
        (lambda t: _with(t, "array", 77), 0, "has no shard 77"),
        (lambda t: _with(t, "part", np.void(bytes(16))), 0, "is not there"),
        (lambda t: t["shard"], 0, "has uint64 of shape"),
        (None, 0, "is no table"),
    ],
)
def test_a_senseless_leaf_is_damage_of_its_array(sky: Any, table: Any, first: int, told: str) -> None:
    sky["b"] = [1, 2, 3]
    sky.flush()
    root = Path(sky.path)
    (leaf,) = json.loads((root / key_of(2)).read_text())["arrays"]["a"]["leaves"]
    file = io.BytesIO(b"" if table is None else b"no table")
    if table is not None:
        np.save(file, table(np.load(root / "leaves" / f"{leaf[2]}.npy")))
    sha = hashlib.sha256(file.getvalue()).hexdigest()
    (root / "leaves" / f"{sha}.npy").write_bytes(file.getvalue())
    _forged(sky, lambda said: said["arrays"]["a"].update(leaves=[[first, 4, sha]]))
    with nandarray.open(root) as store:
        found = store.check()
        assert [one for one in found["errors"] if told in one and "version 2: array 'a'" in one], found["errors"]
        assert store["b"][...].tolist() == [1, 2, 3]
        old = store.at(version=2)
        if "99" in told:
            assert old["a"][0, 0] == 1
        else:
            with pytest.raises(nandarray.CorruptError, match=told):
                old["a"][0, 31]


def _with(table: Any, field: str, values: Any) -> Any:
    made = table.copy()
    made[field] = values
    return made


def test_a_shard_of_another_array_is_refused(sky: Any) -> None:
    sky.create("b", (32, 32), "f8", shards=(8, 8), building_block=(8, 8))[:] = 1
    sky.create("c", (32, 32), "i4", shards=(16, 16), building_block=(8, 8))[:] = 1
    sky.flush()
    root = Path(sky.path)
    file = root / key_of(3)
    told = {"b": "which must be <i4 of 4", "c": r"has the shape .16, 16., which must be at most .8, 8."}
    text = file.read_text()
    for other, said in told.items():
        file.write_text(text)
        manifest = parse(file.read_bytes(), "here")
        leaf = manifest.arrays[other].leaves[0]
        arrays = {**manifest.arrays, "a": replace(manifest.arrays["a"], leaves=(leaf,))}
        file.write_bytes(replace(manifest, arrays=arrays).text())
        with nandarray.open(root) as store:
            with pytest.raises(nandarray.PartError, match=f"version 3: array 'a', shard 0 .*{said}"):
                store["a"][0, 0]
            assert store["b"][0, 0] == store["c"][0, 0] == 1
            assert any("version 3: array 'a', shard 0" in one for one in store.check()["errors"])


@pytest.mark.parametrize("seed", range(60) if os.environ.get("NANDARRAY_DEEP") else range(4))
def test_a_transaction_is_a_history_of_its_own_writes_and_of_receipts(sky: Any, seed: int) -> None:
    """Boxes count in the order in which they were written here or merged, whatever was read in between."""
    rng, model = random.Random(seed), sky["a"][...]
    waiting: list[Any] = []
    did: list[Any] = [seed]

    def box() -> Any:
        (a, b), (c, d) = (sorted(rng.sample(range(33), 2)) for _ in range(2))
        return np.s_[a:b, c:d]

    def merge(given: Any) -> None:
        boxes, value, receipts = given
        tx.merge(receipts)
        for one in boxes:
            model[one] = value

    with sky.transaction() as tx:
        fork = tx.fork()
        for value in range(100, 116):
            did.append(rng.choice(["own", "rows", "points", "work", "work", "merge", "merge", "read", "fork"]))
            if did[-1] in ("own", "rows", "points"):
                rows = sorted(rng.sample(range(32), 2))
                key = {"own": box(), "rows": rows, "points": (rows, rows[::-1])}[did[-1]]
                tx["a"][key] = model[key] = value
            elif did[-1] == "work":
                boxes = [box(), box()]
                with fork.writer() as worker:
                    waiting.append((boxes, value, [worker.write("a", one, value) for one in boxes]))
            elif did[-1] == "merge" and waiting:
                merge(waiting.pop(0))
            elif did[-1] == "read":
                key = box()
                np.testing.assert_array_equal(tx["a"][key], model[key], str(did))
            elif did[-1] == "fork" and not waiting:
                fork = tx.fork()
                with fork.writer() as worker:
                    np.testing.assert_array_equal(worker.read("a"), model, str(did))
        for one in waiting:
            merge(one)
    np.testing.assert_array_equal(sky["a"][...], model, str(did))
    assert sky.check()["ok"]
