"""Parts that are lost or damaged come back, byte by byte, from copies and parity; where too much is lost, nothing is
written."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import nandarray
from nandarray import parts
from nandarray.cli.commands import app
from nandarray.parts import protection

PARTS = 5


@pytest.fixture
def sky(tmp_path: Path) -> Any:
    """A store with some parts, of different lengths."""
    with parts.create(tmp_path / "sky.nand") as store:
        for number in range(PARTS):
            store[f"a{number}"] = model(number)
            store.flush()
        yield store


def model(number: int) -> Any:
    return np.random.default_rng(number).integers(0, 1000, 3000 * (number + 1))


def content(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in sorted(folder.iterdir()) if one.suffix in (".nand", ".p", ".q")}


def damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
        return
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data[:-8] if how == "short" else data)


def lose(sky: Any, names: Any, hows: Any) -> None:
    for name, how in zip(names, hows, strict=False):
        folder = "parts" if name.endswith(".nand") else "protection"
        damage(Path(sky.path) / folder / name, how)


def whole(sky: Any, before: tuple[Any, Any]) -> None:
    assert (content(Path(sky.path) / "parts"), content(Path(sky.path) / "protection")) == before
    assert sky.check()["ok"]
    for number in range(PARTS):
        np.testing.assert_array_equal(sky[f"a{number}"][...], model(number))


@pytest.mark.parametrize(("data", "parity"), [(4, 1), (4, 2), (5, 2)])
def test_what_parity_covers_comes_back(sky: Any, data: int, parity: int) -> None:
    told = sky.protect(data=data, parity=parity)
    groups = -(-PARTS // data)
    assert (told["parts"], told["files"]) == (PARTS, groups * parity)
    assert sky.protect(data=data, parity=parity) == {"parts": 0, "files": 0, "bytes": 0}
    before = content(Path(sky.path) / "parts"), content(Path(sky.path) / "protection")
    members = [
        [f"{one['part']}.nand" for one in said["members"]] + [os.path.basename(path) for path, _ in said["files"]]
        for said in (json.loads(one.read_bytes()) for one in (Path(sky.path) / "protection").glob("*.json"))
    ]
    for of in members:
        for turn, lost in enumerate(itertools.combinations(of, parity)):
            lose(sky, lost, itertools.islice(itertools.cycle(["missing", "rotten", "short"]), turn, None))
            done = sky.repair()
            assert len(done["rebuilt"]) + len(done["files"]) == len(lost)
            whole(sky, before)
        if len(of) > 2 * parity:
            lost = of[: parity + 1]
            lose(sky, lost, ["missing"] * 3)
            there = content(Path(sky.path) / "parts"), content(Path(sky.path) / "protection")
            with pytest.raises(nandarray.PartError, match=r"Nothing was written") as error:
                sky.repair()
            assert all(name.split(".")[0] in str(error.value) for name in lost)
            assert (content(Path(sky.path) / "parts"), content(Path(sky.path) / "protection")) == there
            for name in lost:
                (Path(sky.path) / "parts" / name).write_bytes(before[0][name])


def test_copies_come_back_and_parity_takes_what_they_have_not(sky: Any, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    told = sky.protect(replicas=2, at=folders)
    assert told["files"] == PARTS
    assert {len(list(folder.iterdir())) for folder in folders} == {2, 3}
    assert sky.protect(replicas=3, at=folders)["files"] == PARTS
    sky.protect(data=5, parity=1, at=[tmp_path / "one"])
    before = content(Path(sky.path) / "parts"), {}
    names = sorted(before[0])
    lose(sky, names, ["missing", "rotten", "short", "missing", "missing"])
    (folders[0] / names[1]).unlink()
    damage(folders[1] / names[1], "rotten")
    done = sky.repair()
    assert sorted(done["copied"] + done["rebuilt"]) == [name.partition(".")[0] for name in names]
    assert done["rebuilt"] == [names[1].partition(".")[0]]
    assert sorted(done["files"]) == sorted(str(folder / names[1]) for folder in folders)
    assert all(content(folder).items() >= before[0].items() for folder in folders)
    whole(sky, before)
    assert len([one for one in (Path(sky.path) / "tmp").iterdir() if "damaged" in one.name]) == 2
    # A folder whose name has changed is given by hand.
    for folder in folders:
        folder.rename(f"{folder}-moved")
    lose(sky, names, ["missing"] * PARTS)
    with pytest.raises(nandarray.PartError, match=r"5 parts cannot be brought back"):
        sky.repair()
    assert len(sky.repair(at=f"{folders[0]}-moved")["copied"]) == PARTS
    whole(sky, before)


def test_gc_keeps_what_parity_needs_and_drops_what_nothing_needs(sky: Any) -> None:
    sky.protect(data=3, parity=1)
    guards = Path(sky.path) / "protection"
    largest = next(one for one in guards.glob("*.json") if len(json.loads(one.read_bytes())["members"]) == 3)
    arrays = {row.part: name for name, one in sky._source.draft.arrays.items() for _, row in sky._source.rows_now(one)}
    *gone, left = [arrays[one["part"]] for one in json.loads(largest.read_bytes())["members"]]
    for name in gone:
        del sky[name]
    sky.flush()
    sky.expire_versions(keep=1, older_than=0)
    assert sky.gc(older_than=0)["parts"] == 0
    assert largest.exists()
    lost = json.loads(largest.read_bytes())["members"][2]["part"]
    lose(sky, [f"{lost}.nand"], ["missing"])
    assert sky.repair()["rebuilt"] == [lost]
    np.testing.assert_array_equal(sky[left][...], model(int(left[1:])))
    del sky[left]
    sky.flush()
    sky.expire_versions(keep=1, older_than=0)
    assert sky.gc(older_than=0)["parts"] == 3
    assert not largest.exists()
    assert len(list(guards.iterdir())) == 2  # of the other group its guard and its parity
    assert sky.check()["ok"]


def test_a_part_that_nothing_protects_is_named(sky: Any) -> None:
    (first, *_) = sorted(os.listdir(Path(sky.path) / "parts"))
    assert sky.repair() == {"copied": [], "rebuilt": [], "files": [], "bytes": 0, "set_aside": []}
    lose(sky, [first], ["missing"])
    with pytest.raises(nandarray.PartError, match=r"no copy and no parity protects it, and .* is not there"):
        sky.repair()
    with pytest.raises(nandarray.PartError, match=r"is not there"):
        sky.protect(data=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "replicas, or data and parity"),
        ({"replicas": 2, "data": 2}, "replicas, or data and parity"),
        ({"replicas": 1, "at": "."}, "at least 2, not 1"),
        ({"replicas": 2}, "at least 1 folders for 2 replicas, not 0"),
        ({"replicas": 2, "at": ["/not/here"]}, "/not/here is none"),
        ({"replicas": 2, "at": "parts"}, "outside the store"),
        ({"parity": 1, "at": "protection"}, "outside the store"),
        ({"data": 9}, "from 2 to 8 and parity 1 or 2, not 9 and 1"),
        ({"parity": 3}, "not 4 and 3"),
        ({"data": 0}, "not 0 and 1"),
        ({"data": 3, "parity": 0}, "not 3 and 0"),
    ],
)
def test_what_protects_nothing_is_refused(sky: Any, given: dict[str, Any], said: str) -> None:
    sky.protect(data=2)
    if given.get("at") in ("parts", "protection"):
        given = given | {"at": Path(sky.path) / given["at"]}
    with pytest.raises(nandarray.InvalidError, match=said):
        sky.protect(**given)
    with nandarray.open(sky.path) as reader, pytest.raises(nandarray.ReadOnlyError):
        reader.protect(data=2)


def test_a_guard_that_is_damaged_is_named(sky: Any) -> None:
    sky.protect(data=5)
    (guard,) = (Path(sky.path) / "protection").glob("*.json")
    guard.write_bytes(guard.read_bytes().replace(b'"parity"', b'"copies"'))
    for work in (sky.gc, lambda: sky.protect(data=5)):
        with pytest.raises(
            nandarray.CorruptError, match=r"what protects parts is not known.*; repair\(\) puts it aside"
        ):
            work()
    lost = next((Path(sky.path) / "parts").iterdir())
    data = lost.read_bytes()
    lost.unlink()
    with pytest.raises(nandarray.PartError, match=rf"{lost.stem}: .*{guard.name}.*is not known.* Nothing was written"):
        sky.repair()
    assert guard.exists()
    lost.write_bytes(data)
    assert sky.repair()["set_aside"] == [str(guard)]
    assert sky.protect(data=5)["parts"] == PARTS


def test_a_damaged_guard_does_not_keep_others_from_helping(sky: Any, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    sky.protect(data=5)
    (guard,) = (Path(sky.path) / "protection").glob("*.json")
    sky.protect(replicas=2, at=tmp_path / "copies")
    guard.write_bytes(b"{}")
    os.utime(guard, (0, 0))
    lost = next((Path(sky.path) / "parts").iterdir())
    lost.unlink()
    said = CliRunner().invoke(app, ["parts", "repair", sky.path]).output
    assert f"copied  {lost.stem}" in said
    assert f"damaged, put aside  {guard}" in said
    assert sky.check()["ok"]
    assert sky.gc()["parts"] == 0
    assert any(guard.stem in one.name for one in (Path(sky.path) / "tmp").iterdir())


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": [["VICTIM", "0" * 64]]},
        {"files": [["../victim", "0" * 64]]},
        {"members": [{"part": "../../victim", "bytes": 1, "sha256": "0" * 64}]},
        {"members": []},
        {"kind": "other"},
        {"id": "../victim"},
    ],
)
def test_a_guard_that_names_files_of_others_is_refused(sky: Any, tmp_path: Path, wrong: dict[str, Any]) -> None:
    sky.protect(data=5)
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    guard = next((Path(sky.path) / "protection").glob("*.json"))
    said = json.loads(guard.read_bytes())
    said |= {"members": [{"part": "f" * 32, "bytes": 1, "sha256": "0" * 64}]}  # no version names it: it may go
    said |= json.loads(json.dumps(wrong).replace("VICTIM", str(victim)))
    del said["checksum"]
    said["checksum"] = protection._checksum(said)
    guard.write_text(json.dumps(said))
    with pytest.raises(nandarray.CorruptError, match="what protects parts is not known"):
        sky.gc(older_than=0)
    assert sky.repair()["set_aside"] == [str(guard)]
    assert sky.gc(older_than=0)["parts"] == 0
    assert victim.read_bytes() == b"kept"


def test_what_one_group_brings_back_helps_another(sky: Any) -> None:
    sky.protect(data=3, parity=1)
    sky.protect(data=2, parity=2)
    before = content(Path(sky.path) / "parts"), content(Path(sky.path) / "protection")
    found = protection.guards(sky._source.files)
    (three,) = (one for one in found if len(one.files) == 1 and len(one.members) == 3)
    lost = [one.part for one in three.members]
    alone = next(one for one in found if len(one.files) == 2 and three.members[2] in one.members)
    gone = [path.rpartition("/")[2] for path, _ in alone.files]  # of the third part only the group of three is left
    lose(sky, [*(f"{part}.nand" for part in lost), *gone], ["missing"] * 5)
    assert sorted(sky.repair()["rebuilt"]) == sorted(lost)
    whole(sky, before)


def test_the_command_line_protects_and_repairs(sky: Any, tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["parts", "protect", sky.path, "--data", "5", "--parity", "2"])
    assert run.exit_code == 0
    assert "5 parts protected by 2 files" in run.output
    names = sorted(os.listdir(Path(sky.path) / "parts"))[:2]
    lose(sky, names, ["missing", "rotten"])
    run = CliRunner().invoke(app, ["parts", "repair", sky.path])
    assert run.exit_code == 0
    assert run.output.count("rebuilt") == 2
    assert "2 parts put back" in run.output
    (tmp_path / "copies").mkdir()
    run = CliRunner().invoke(
        app, ["parts", "protect", sky.path, "--replicas", "2", "--at", str(tmp_path / "copies"), "--json"]
    )
    assert json.loads(run.output)["files"] == 5
