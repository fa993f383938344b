"""Stores of parts: versions, transactions, conflicts, and what is said of damage."""

from __future__ import annotations

import builtins
import errno
import json
import multiprocessing
import os
import pickle
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import parts
from nandarray.parts import leases, leaves
from nandarray.parts.blobs.files import Files
from nandarray.parts.history import History
from nandarray.parts.manifest import key_of, parse
from nandarray.parts.store import open_folder

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def sky(tmp_path: Path) -> Any:
    """A store of parts with an array of 4 x 4 shards of 8 x 8, of which the first row is written."""
    with parts.create(tmp_path / "sky.nand") as store:
        store.create("a", (32, 32), "i4", shards=(8, 8), building_block=(8, 8), fill_value=-1)[:8] = 1
        yield store


def test_a_version_is_whole_and_stays(sky: Any) -> None:
    sky.flush()
    sky.tag("first")
    with sky.transaction("second") as tx:
        tx["a"][6:10, 6:10] = 2
        tx["g/b"] = np.arange(5)
        tx["g"].attrs["unit"] = "m"
        assert sky["a"][7, 7] == 1
        assert "g" not in sky
    assert sky["a"][7, 7] == sky["a"][9, 9] == 2
    assert sky["a"][9, 10] == -1
    old = sky.at(tag="first")
    assert old["a"][7, 7] == 1
    assert list(old) == ["a"]
    assert list(sky) == ["a", "g"]
    assert sky.diff(2, 3) == {
        "created": ["g/b"], "deleted": [], "renamed": [], "resized": {}, "attributes": [],
        "written": {
            "a": [((0, 0), (8, 8)), ((0, 8), (8, 16)), ((8, 0), (16, 8)), ((8, 8), (16, 16))], "g/b": [((0,), (5,))]
        },
    }  # fmt: skip
    assert [one["message"] for one in sky.versions()] == ["created", "", "second"]
    with pytest.raises(nandarray.ReadOnlyError):
        old["a"][0] = 1
    with pytest.raises(nandarray.StoreExistsError, match="the tag 'first' is that of version 2"):
        sky.tag("first", 3)
    for wrong in ({"version": 9}, {"tag": "none"}):
        with pytest.raises(nandarray.NotFoundError):
            sky.at(**wrong)
    assert sky.check()["ok"]
    reader = pickle.loads(pickle.dumps(sky.at(version=2)["a"]))
    assert reader[7, 7] == 1


def test_an_exception_gives_a_transaction_up(sky: Any) -> None:
    sky.flush()
    before = sorted(os.listdir(Path(sky.path) / "parts"))

    def fail(tx: Any) -> None:
        tx["a"][:] = 5
        tx["a"].resize((40, 16))
        raise ZeroDivisionError("mine")

    tx = sky.transaction()
    with pytest.raises(ZeroDivisionError, match="mine"), tx:
        fail(tx)
    assert tx.closed
    assert (sky["a"][:8] == 1).all()
    assert sorted(os.listdir(Path(sky.path) / "parts")) == before
    assert os.listdir(Path(sky.path) / "jobs") == []


def _both(sky: Any) -> tuple[Any, Any]:
    sky.flush()
    return sky.transaction("one"), sky.transaction("two")


def test_changes_that_do_not_meet_are_both_there(sky: Any) -> None:
    one, two = _both(sky)
    one["a"][:8, :8] = 5
    two["a"][8:16, :8] = 6
    one["a"].attrs["unit"] = "m"
    two["b"] = [1, 2]
    one["c"] = [3]
    assert (one.commit(), two.commit()) == (3, 4)
    assert (sky["a"][0, 0], sky["a"][8, 0], sky["a"].attrs["unit"], sky["b"][1], sky["c"][0]) == (5, 6, "m", 2, 3)
    one, two = _both(sky)
    one["a"].append(np.full((8, 32), 9))
    two["a"][:8] = 7
    one.commit()
    two.commit()
    assert sky["a"].shape == (40, 32)
    assert (sky["a"][0, 0], sky["a"][39, 31]) == (7, 9)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            lambda a: a.__setitem__((0, 0), 5), lambda a: a.__setitem__((7, 7), 6),
            "both wrote shard 0 .* box .0:8.x.0:8.",
        ),
        (lambda a: a.append(np.zeros((8, 32))), lambda a: a.append(np.ones((8, 32))), "the shape of array 'a' is"),
        (lambda a: a.attrs.update(x=1), lambda a: a.attrs.update(x=2), "the attributes of array 'a'"),
        (lambda a: a.store.rename("a", "b"), lambda a: a.store.rename("a", "c"), "the name of array 'a' is 'c' here"),
        (lambda a: a.store.__delitem__("a"), lambda a: a.__setitem__(0, 1), "was changed here and deleted there"),
        (lambda a: a.__setitem__(0, 1), lambda a: a.store.__delitem__("a"), "was deleted here and changed there"),
        (lambda a: a.resize((32, 40)), lambda a: a.__setitem__(20, 3), "has .32, 32. here and .32, 40. there"),
        (lambda a: a.__setitem__(20, 3), lambda a: a.resize((16, 32)), "has .16, 32. here and .32, 32. there"),
        (
            lambda a: a.store.__setitem__("x", [1]), lambda a: a.store.__setitem__("x/y", [1]),
            "'x' is an array, so 'x/y' cannot lie in it",
        ),
        (lambda a: a.store.__setitem__("x", [1]), lambda a: a.store.__setitem__("x", [1]), "both have an array 'x'"),
    ],
)  # fmt: skip
def test_conflicts_say_what_both_changed(sky: Any, first: Any, second: Any, said: str) -> None:
    one, two = _both(sky)
    first(one["a"])
    second(two["a"])
    one.commit()
    with pytest.raises(nandarray.ConflictError, match=said) as caught:
        two.commit()
    assert caught.value.version == 3
    if "both wrote" in said:
        assert caught.value.ours == caught.value.theirs == ((0, 0), (8, 8))
    assert sky.version == 3
    two.abort()


def _writer(path: str, number: int, commits: int, seed: int) -> int:
    rng = random.Random(seed)
    tries = 0
    for turn in range(commits):
        with nandarray.open(path, "r+") as store:
            with store.transaction(f"{number}.{turn}") as tx:
                time.sleep(rng.random() * 0.02)
                tx["a"][number, turn] = 100 * number + turn
            tries += tx.stats["tries"]
    return tries


def test_disjoint_commits_of_many_processes_are_all_there(tmp_path: Path) -> None:
    path = str(tmp_path / "sky.nand")
    with parts.create(path) as store:
        store.create("a", (8, 8), "i4", shards=(1, 1), building_block=(1, 1), fill_value=-1)
    seed = 1
    with SPAWN.Pool(8) as pool:
        tries = pool.starmap(_writer, [(path, number, 8, seed + number) for number in range(8)])
    with nandarray.open(path) as store:
        expected = 100 * np.arange(8)[:, None] + np.arange(8)
        np.testing.assert_array_equal(store["a"][...], expected, f"seed {seed}")
        assert store.version == 2 + 64
        assert sorted(one["message"] for one in store.versions()[2:]) == [
            f"{i}.{j}" for i in range(8) for j in range(8)
        ]
    assert sum(tries) >= 64


def test_a_lost_answer_is_recognised(sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sky.flush()
    named = Files.name

    def lost(self: Files, file: str, key: str, **how: Any) -> bool:
        done = named(self, file, key, **how)
        if key.startswith("manifests/"):
            raise OSError(5, "the answer is lost")
        return done

    monkeypatch.setattr(Files, "name", lost)
    with sky.transaction("once") as tx:
        tx["a"][0] = 3
    monkeypatch.undo()
    assert [one["message"] for one in sky.versions()] == ["created", "", "once"]


def _unreadable(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let the list of versions fail after a manifest was made."""
    names, named, left = Files.names, Files.name, [0]

    def failing(self: Files, folder: str) -> list[str]:
        if folder == "manifests" and left[0]:
            left[0] -= 1
            raise nandarray.MediaError(5, "Input/output error", folder)
        return names(self, folder)

    def made(self: Files, file: str, key: str, **how: Any) -> bool:
        done = named(self, file, key, **how)
        if key.startswith("manifests/"):
            left[0] = times
        return done

    monkeypatch.setattr(Files, "names", failing)
    monkeypatch.setattr(Files, "name", made)


def test_a_version_that_cannot_be_looked_for_is_committed_once(sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sky.flush()
    with monkeypatch.context() as patch, sky.transaction("once") as tx:
        _unreadable(patch, 2)
        tx["a"][0] = 3
    assert sky.version == 3
    tx = sky.transaction("unknown")
    tx["a"][1] = 4
    tx["b"] = [1]
    with monkeypatch.context() as patch:
        _unreadable(patch, 9)
        for _ in range(2):
            with pytest.raises(nandarray.CommitUnknownError, match="version 4 may have been committed") as caught:
                tx.commit()
        assert caught.value.version == 4
    assert tx.commit() == tx.commit() == 4
    assert sky.versions()[-1]["commit"] == caught.value.commit
    tx["a"][2] = 5
    with monkeypatch.context() as patch:
        _unreadable(patch, 9)
        with pytest.raises(nandarray.CommitUnknownError):
            tx.commit()
    tx["a"][3] = 6
    tx["a"].attrs["unit"] = "m"
    with sky.transaction("other") as other:
        other["a"][16:] = 7
    assert sky.version == 6
    assert tx.commit() == 7
    assert sky["a"][:4, 0].tolist() == [3, 4, 5, 6]
    assert (sky["a"][16, 0], sky["a"].attrs["unit"], [one["version"] for one in sky.versions()]) == (
        7,
        "m",
        list(range(1, 8)),
    )
    assert sky.check()["ok"]
    sky["a"][4] = 8
    with monkeypatch.context() as patch:
        _unreadable(patch, 9)
        with pytest.raises(nandarray.CommitUnknownError):
            sky.close()
    with nandarray.open(sky.path) as again:
        assert (again.version, again["a"][4, 0]) == (8, 8)


def test_what_is_resized_after_an_unknown_outcome_keeps_its_elements(sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tx = sky.transaction("unknown")
    tx.create("new", (4, 4), "i4", shards=(2, 2), building_block=(2, 2))  # without leaves, before and after
    tx["new"][...] = np.arange(16).reshape(4, 4)
    with monkeypatch.context() as patch:
        _unreadable(patch, 9)
        with pytest.raises(nandarray.CommitUnknownError):
            tx.commit()
    tx["new"].resize((4, 6))
    wanted = tx["new"][...]
    tx.commit()
    np.testing.assert_array_equal(sky["new"][...], wanted)
    assert wanted[:, :4].tolist() == np.arange(16).reshape(4, 4).tolist()
    assert sky.check()["ok"]


def test_a_number_that_has_expired_is_no_place_for_a_commit(sky: Any) -> None:
    sky.flush()
    late = sky.transaction("late")
    late["a"][:8] = 8
    for turn in range(4):
        with sky.transaction(f"{turn}") as tx:
            tx["a"][24:] = turn
    assert sky.expire_versions(keep=1, older_than=0) == [1, 3, 4, 5]
    late._source._lease.release()  # as if it had been stopped for long
    assert sky.expire_versions(keep=1, older_than=0) == [2]
    history, listed = late._source.history, sky._source.history.numbers
    seen = iter([[2], [6, 2]])  # as if versions 3 to 6 had come, and 3 to 5 had gone, just after it looked
    history.numbers = lambda: next(seen, None) or listed()
    history.at = lambda number, real=history.at: late._source.draft.base if number == 2 else real(number)
    assert late.commit() == 7
    with nandarray.open(sky.path) as store:
        assert (store.version, store["a"][0, 0], store["a"][31, 31]) == (7, 8, 3)
        assert [one["version"] for one in store.versions()] == [6, 7]


def test_a_stray_manifest_is_harmless(sky: Any) -> None:
    """A commit took a number that had expired, and died before it saw that."""
    sky.flush()
    stray = json.loads((Path(sky.path) / key_of(2)).read_text())
    for turn in range(3):
        sky["a"][:] = turn
        sky.flush()
    file = Path(sky.path) / key_of(3)
    manifest = parse(json.dumps(stray).encode(), "here")
    known = {"parent": 2, "parent_commit": manifest.commit, "ancestors": (manifest.commit, *manifest.ancestors)}
    file.write_bytes(replace(manifest, version=3, commit="0" * 32, **known).text())
    assert [one["version"] for one in sky.versions()] == [1, 2, 4, 5]
    for use in (lambda: sky.at(version=3), lambda: sky.tag("stray", 3)):
        with pytest.raises(nandarray.NotFoundError, match="is in no history"):
            use()
    assert sky.expire_versions(keep=9) == []
    assert not file.exists()
    assert sky.at(version=4)["a"][0, 0] == 1


def test_what_is_open_does_not_expire(sky: Any) -> None:
    sky.flush()
    reader, tx, late = sky.at(version=2), sky.transaction("slow"), sky.transaction("stopped")
    late["a"][8] = 6
    for turn in range(3):
        sky["a"][:8, :8] = turn
        sky.flush()
    assert sky.expire_versions(keep=1, older_than=0) == [1, 3, 4]
    sky.gc(older_than=0)
    tx["a"][9] = 5
    assert (reader["a"][7, 7], tx["a"][0, 0], tx["a"][31, 31]) == (1, 1, -1)
    assert tx.commit() == 6
    tx.close()
    late._source._lease.release()  # as if its process had been stopped for an hour
    reader.close()
    assert sky.expire_versions(keep=1, older_than=0) == [2, 5]
    sky.gc(older_than=0)
    assert late["a"][0, 0] == 1
    with pytest.raises(nandarray.ConflictError, match="both wrote shard 4"):
        late.commit()
    late.close()
    sky.gc(older_than=0)
    assert sky.gc(older_than=0)["parts"] == 0
    assert sky["a"][:10:9, 0].tolist() == [2, 5]
    idle = sky.transaction("stopped before it wrote")
    idle._source._lease.release()
    sky["a"][:] = 3
    sky.flush()
    assert sky.expire_versions(keep=1, older_than=0) == [6]
    sky.gc(older_than=0)
    idle["b"] = [1]
    sky.gc(older_than=0)  # its base is gone, and holds nothing up
    with pytest.raises(nandarray.CorruptError, match="is not there"):
        idle["a"][0, 0]
    assert idle.commit() == 8
    idle.close()
    assert (sky["b"][0], sky["a"][0, 0], sky.check()["ok"]) == (1, 3, True)
    (Path(sky.path) / "readers" / "x.json").write_text("{")
    with pytest.raises(nandarray.CorruptError, match="the lease of a reader is damaged"):
        sky.expire_versions(keep=1, older_than=0)


def test_leases_are_renewed_and_end(sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    readers = Path(sky.path) / "readers"
    sky.flush()
    assert sky.at(version=2)["a"][0, 0] == 1
    assert len(list(readers.iterdir())) == 1
    old, tx = sky.at(version=2), sky.transaction()
    tx["a"][0] = 1
    assert len(list(readers.iterdir())) == 3
    for one in [*readers.iterdir(), *(Path(sky.path) / "jobs").iterdir()]:
        os.utime(one, (0, 0))
    next(readers.iterdir()).unlink()
    leases._renewals.renew()
    assert sky.gc(older_than=0)["parts"] == 0
    assert len(list(readers.iterdir())) == 3
    assert tx.commit() == 3
    del old
    tx.close()
    assert len(list(readers.iterdir())) == 1
    closed = sky.at(version=2)
    closed.close()
    leases._renewals.renew()
    assert (len(list(readers.iterdir())), closed.closed) == (1, True)
    shutil.rmtree(readers)  # as a store has it that was made without
    sky.at(version=2).close()
    assert list(readers.iterdir()) == []

    def full(*_: Any, **__: Any) -> bool:
        raise nandarray.MediaError(30, "Read-only file system")

    monkeypatch.setattr(Files, "put_if_absent", full)
    with nandarray.open(sky.path) as reader:
        assert (reader["a"][0, 0], list(readers.iterdir())) == (1, [])


def test_a_part_that_cannot_be_named_is_sealed_by_the_next_commit(sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sky.flush()
    name = Files.name
    for after in (False, True):
        sky["a"][8 + after] = 5

        def fails(self: Files, file: str, key: str, after: bool = after, **how: Any) -> bool:  # noqa: FBT001 (as above)
            if key.startswith("parts/"):
                if after:
                    name(self, file, key, **how)
                raise nandarray.MediaError(5, "Input/output error", key)
            return name(self, file, key, **how)

        with monkeypatch.context() as patch:
            patch.setattr(Files, "name", fails)
            for _ in range(2):
                with pytest.raises(nandarray.MediaError):
                    sky.flush()
        assert sky["a"][8 + after, 0] == 5
        sky.flush()
    assert (sky.version, sky["a"][8:10, 0].tolist(), sky.check()["ok"]) == (4, [5, 5], True)
    assert not list((Path(sky.path) / "parts").glob("*.open"))


def test_a_version_that_was_chosen_while_it_expired_stays(sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for turn in range(3):
        sky["a"][:] = turn
        sky.flush()
    made, delete = [], Files.delete

    def chosen(self: Files, key: str) -> None:
        if key == key_of(2):
            made.append(sky.at(version=2))
        if key == key_of(3):
            sky.tag("kept", 3)
        delete(self, key)

    monkeypatch.setattr(Files, "delete", chosen)
    assert sky.expire_versions(keep=1, older_than=0) == [1]
    assert (made[0]["a"][0, 0], sky.at(tag="kept")["a"][0, 0]) == (0, 1)
    monkeypatch.undo()
    put = Files.put_if_absent

    def late(self: Files, key: str, data: bytes, **how: Any) -> bool:
        delete(self, key_of(2))
        return put(self, key, data, **how)

    monkeypatch.setattr(Files, "put_if_absent", late)
    with pytest.raises(nandarray.NotFoundError, match="it expired before it was tagged"):
        sky.tag("gone", 2)
    assert sky.tags() == {"kept": 3}
    (Path(sky.path) / "tags" / "old.json").write_text('{"version": 1}')
    assert sky.check()["errors"] == ["tag 'old': version 1 is not there"]


@pytest.mark.parametrize("key", ["nandarray.json", key_of(1)])
def test_a_creation_that_died_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    put = Files.put_if_absent

    def dying(self: Files, one: str, data: bytes, **how: Any) -> bool:
        if one == key:
            raise nandarray.StoreFullError(28, "No space left on device", one)
        return put(self, one, data, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "put_if_absent", dying)
        with pytest.raises(nandarray.StoreFullError):
            parts.create(tmp_path / "sky.nand")
    with pytest.raises(nandarray.NandarrayError):
        nandarray.open(tmp_path / "sky.nand")
    (tmp_path / "sky.nand" / "leaves" / "mine").write_text("")
    with pytest.raises(nandarray.StoreExistsError, match="no empty folder"):
        parts.create(tmp_path / "sky.nand")
    (tmp_path / "sky.nand" / "leaves" / "mine").unlink()
    with parts.create(tmp_path / "sky.nand") as store:
        store["a"] = [1]
        assert store.version == 1
    with nandarray.open(tmp_path / "sky.nand") as store:
        assert (store.version, store["a"][0]) == (2, 1)


def test_an_error_of_the_disk_is_not_called_missing(sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sky.flush()
    part = _only(Path(sky.path) / "parts", ".nand")
    tx = sky.transaction()
    with tx.fork().writer() as writer:
        tx.merge([writer.write("a", np.s_[8:16], 4)])
    for name in ("open", "os.stat"):
        holder, attribute = (builtins, "open") if name == "open" else (os, "stat")
        real = getattr(holder, attribute)

        def fails(path: Any, *given: Any, real: Any = real, **how: Any) -> Any:
            if str(path).endswith(".nand") and "parts" in str(path):
                raise OSError(errno.EIO, "Input/output error", str(path))
            return real(path, *given, **how)

        with monkeypatch.context() as patch:
            patch.setattr(holder, attribute, fails)
            with pytest.raises(nandarray.MediaError, match="Input/output error"):
                tx.commit()
    stat = os.stat

    def fails_for_the_head(path: Any, *given: Any, **how: Any) -> Any:
        if str(path).endswith("nandarray.json"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return stat(path, *given, **how)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", fails_for_the_head)
        for opened in (nandarray.open, open_folder):
            with pytest.raises(nandarray.MediaError, match="Input/output error"):
                opened(sky.path, "r")
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda path, *_, **__: (_ for _ in ()).throw(PermissionError(13, "no", str(path))))
        with pytest.raises(nandarray.MediaError):
            tx._source.files.has(f"parts/{part.name}")
    assert tx.commit() == 3
    assert sky["a"][8, 0] == 4


def test_versions_expire_and_space_comes_back(sky: Any) -> None:
    for turn in range(4):
        sky["a"][:] = turn
        sky.flush()
    sky.tag("kept", 3)
    assert sky.expire_versions(keep=1) == []  # they were the newest within the hour
    open_one = sky.transaction()
    open_one["a"][0] = 9
    assert sky.expire_versions(keep=1, older_than=0) == [1, 2, 4]
    assert sky.gc()["parts"] == 0  # they are young
    assert sky.gc(older_than=0) == {"leaves": 2, "parts": 2, "bytes": pytest.approx(0, abs=1 << 30)}
    assert sky.at(tag="kept")["a"][9, 9] == 1
    assert open_one.commit() == 6
    assert sky["a"][0, 0] == 9
    assert sky.check()["ok"]
    (Path(sky.path) / "jobs" / "0123456789abcdef").mkdir()
    (Path(sky.path) / "parts" / ("0123456789abcdef" * 2 + ".nand")).write_bytes(b"x")
    assert sky.gc(older_than=0)["parts"] == 0
    assert sky.gc(older_than=0, jobs_older_than=0)["parts"] == 1
    with pytest.raises(nandarray.InvalidError, match="an age must be"):
        sky.gc(older_than="soon")


def test_compacting_brings_shards_together(sky: Any) -> None:
    for row in range(4):
        sky["a"][8 * row : 8 * row + 8] = row
        sky.flush()
    expected = sky["a"][...]
    assert sky.compact() == {"parts": 4, "shards": 16}
    np.testing.assert_array_equal(sky["a"][...], expected)
    sky.expire_versions(keep=1, older_than=0)
    assert sky.gc(older_than=0)["parts"] == 4
    with nandarray.open(sky.path) as again:
        np.testing.assert_array_equal(again["a"][...], expected)
        assert again.stat()["parts"] == 1


def test_shapes_change_and_what_was_cut_never_comes_back(sky: Any) -> None:
    a, model = sky["a"], np.full((32, 32), -1, "i4")
    model[:8] = 1
    rng = np.random.default_rng(7)
    for turn, shape in enumerate([(20, 32), (20, 13), (37, 40), (3, 3), (33, 9), (0, 4), (12, 12)]):
        a.resize(shape)
        new = np.full(shape, -1, "i4")
        both = tuple(slice(0, min(x, y)) for x, y in zip(shape, model.shape, strict=True))
        new[both] = model[both]
        model = new
        np.testing.assert_array_equal(a[...], model, f"shape {shape}")
        model[1::2, 2:] = a[1::2, 2:] = rng.integers(0, 9, model[1::2, 2:].shape)
        if turn % 2:
            sky.flush()
            a = nandarray.open(sky.path)["a"]
            np.testing.assert_array_equal(a[...], model)
            a = sky["a"]
    sky.flush()
    assert sky.check()["ok"]


# --- Damage -----------------------------------------------------------------------------------------------------------


def _only(folder: Path, ending: str) -> Path:
    (found,) = sorted(folder.glob(f"*{ending}"))
    return found


def test_damage_is_named_and_the_rest_is_read(sky: Any) -> None:
    sky.flush()
    root = Path(sky.path)
    first = _only(root / "parts", ".nand")
    sky["a"][24:] = 7
    sky.flush()
    copy = root.with_name("copy.nand")

    def damaged(damage: Any) -> Any:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy)
        damage(copy)
        return nandarray.open(copy)

    def gone(store: Path) -> None:
        (store / "parts" / first.name).unlink()

    def other(store: Path) -> None:
        second = next(one for one in (store / "parts").iterdir() if one.name != first.name)
        shutil.copy(second, store / "parts" / first.name)

    def short(store: Path) -> None:
        os.truncate(store / "parts" / first.name, 70_000)

    for damage, said in ((gone, "is not there"), (other, "not the part that was sealed"), (short, "not the part that")):
        store = damaged(damage)
        with pytest.raises(
            nandarray.PartError, match=r"version 3: array 'a', shard 1 with the box \[0:8\]x\[8:16\].*"
        ) as e:
            store["a"][:, 9]
        assert said in str(e.value)
        assert store["a"][31, 31] == 7
        found = store.check()
        assert not found["ok"]
        assert "array 'a', shard" in found["errors"][0]

    def leaf(store: Path) -> None:
        for one in (store / "leaves").iterdir():
            one.write_bytes(one.read_bytes()[:-1] + b"\xff")

    with pytest.raises(nandarray.CorruptError, match="leaf [0-9a-f]{64} is damaged"):
        damaged(leaf)["a"][0, 0]
    assert not damaged(leaf).check()["ok"]

    def no_leaf(store: Path) -> None:
        shutil.rmtree(store / "leaves")

    with pytest.raises(nandarray.CorruptError, match="of 8 shards from 0 on is not there"):
        damaged(no_leaf)["a"][0, 0]


def test_a_damaged_manifest_leaves_the_one_before(sky: Any) -> None:
    sky.flush()
    sky["a"][:] = 7
    sky.flush()
    newest = Path(sky.path) / key_of(3)
    text = newest.read_text()
    for wrong in (text[:-20], text.replace('"writer"', '"writes"'), text.replace('"version": 3', '"version": 5'), "[]"):
        newest.write_text(wrong)
        with nandarray.open(sky.path) as store:
            assert (store.version, store["a"][0, 0], store["a"][31, 31]) == (2, 1, -1)
            assert "version 3: " in store.check()["errors"][0]
            assert "error" in store.versions()[-1]
        with pytest.raises(nandarray.CorruptError, match="the manifest of version 3 is damaged"):
            nandarray.open(sky.path, "r+")
        with pytest.raises(nandarray.CorruptError):
            sky.gc(older_than=0)
    said = json.loads(text)
    newest.write_text(json.dumps({**said, "format": 2}))
    with pytest.raises(nandarray.UnsupportedVersionError, match="has format 2"):
        nandarray.open(sky.path, "r+")
    newest.write_text(text)
    head = Path(sky.path) / "nandarray.json"
    for wrong, kind in (("{}", nandarray.NotAStoreError), ('{"format": "parts", "version": 9}', OSError)):
        head.write_text(wrong)
        with pytest.raises(kind):
            nandarray.open(sky.path, "r+")
    with nandarray.open(sky.path) as store:  # readers go by the manifests
        assert store.version
    for manifest in newest.parent.iterdir():
        manifest.unlink()
    with pytest.raises(OSError, match="has format 9"):
        nandarray.open(sky.path)


def test_what_a_folder_takes_and_what_not(tmp_path: Path) -> None:
    with pytest.raises(nandarray.NandarrayError):
        nandarray.open(tmp_path)
    with parts.create(tmp_path / "sky.nand") as store:
        store["a"] = [1]
        for wrong, said in (
            ((3, 3), "must have 1 dimensions"),
            ((5,), "multiples of the building block"),
            ((0,), "and not 0"),
        ):
            with pytest.raises(nandarray.InvalidError, match=said):
                store.create("b", (10,), "i4", building_block=4, shards=wrong)
        with pytest.raises(nandarray.DoorError, match="no encrypted arrays"):
            store.create("b", (10,), "i4", encryption_key=bytes(32))
        with pytest.raises(nandarray.InvalidError, match="no transactions within"), store.transaction() as tx:
            tx.transaction()
    with pytest.raises(nandarray.StoreExistsError):
        parts.create(store.path)
    with pytest.raises(nandarray.StoreExistsError):
        nandarray.open(store.path, "x")
    with pytest.raises(nandarray.InvalidError, match="takes no option but mode"):
        nandarray.open(store.path, capacity=1 << 30)
    with pytest.raises(nandarray.ClosedError):
        store["a"]
    with nandarray.open(store.path, "w") as emptied:
        assert list(emptied) == []
    assert emptied.closed
    with nandarray.open(store.path) as seen:
        assert (list(seen), seen.at(version=2)["a"][0]) == ([], 1)
        with pytest.raises(nandarray.ReadOnlyError):
            seen.transaction()


def test_a_file_system_without_links_says_so(sky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    sky["a"][0] = 2
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(nandarray.MediaError, match="cannot link"):
        sky.flush()
    monkeypatch.undo()
    sky.flush()
    assert sky["a"][0, 0] == 2


def test_history_lists_what_is_there(sky: Any) -> None:
    sky.flush()
    (Path(sky.path) / "manifests" / "notes.txt").write_text("mine")
    assert History(Files(sky.path)).numbers() == [2, 1]


@pytest.mark.parametrize("seed", range(4))
def test_leaves_have_the_rows_of_all_changes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaves, "LEAF_ROWS", 8)
    rng, files, model = random.Random(seed), dict[str, bytes](), dict[int, leaves.Row]()

    def load(leaf: leaves.Leaf) -> Any:
        return leaves.decode(files[leaf.sha], leaf, "here")

    found: tuple[leaves.Leaf, ...] = ()
    for turn in range(60):
        changes: dict[int, leaves.Row | None] = {}
        for _ in range(rng.choice([1, 1, 3, 20])):
            row = None if rng.random() < 0.3 else leaves.Row(turn, f"{rng.getrandbits(128):032x}", turn, 2**64 - 1)
            changes[rng.choice([rng.randrange(40), *model][:9])] = row
        found = leaves.updated(found, changes, load, files.__setitem__)
        model.update({number: row for number, row in changes.items() if row is not None})
        for number in [number for number, row in changes.items() if row is None]:
            model.pop(number, None)
        assert dict(leaves.rows_of(found, load)) == model
        assert all(leaves.find(found, number, load) == model.get(number) for number in range(41))
        assert all(1 <= leaf.rows <= 8 and leaf.first == int(load(leaf)["shard"][0]) for leaf in found)
