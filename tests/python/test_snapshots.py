"""Snapshots of a store in a file: what they keep, what they cost, and how they end.

A model of NumPy arrays beside the store decides (`test_a_model_of_arrays_and_snapshots_agrees`). Losses of power and
full disks are the engine's tests (`crates/nandarray/tests`), the bytes `test_file_format.py`.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pytest
from typer.testing import CliRunner

import nandarray
from nandarray import parts
from nandarray.cli import app
from nandarray.errors import (
    ClosedError,
    DoorError,
    ExistsError,
    InvalidError,
    NotFoundError,
    ReadOnlyError,
    StoreFullError,
    WrongKeyError,
)
from nandarray.interop import sql

KEY = bytes(range(32))
KINDS: list[dict[str, Any]] = [{}, {"compression": "zstd:1+shuffle"}, {"encryption_key": KEY}]


def opened(store: Any, name: str) -> Any:
    return store.open_array(name, encryption_key=KEY if name.endswith("2") else None)


def test_a_snapshot_stays_as_it_was(path: Path) -> None:
    """Elements, shapes, names, attributes and groups, whatever happens to the arrays; also after reopening."""
    values = np.arange(6000, dtype="<i4").reshape(60, 100)
    with nandarray.open(path, "w", preset="tiny") as store:
        for kind, options in enumerate(KINDS):
            store.create(f"run/a{kind}", data=values + kind, **options)
        store["run"].attrs["unit"] = "K"
        store["gone"] = np.ones(5)
        store.snapshot("before")
        for kind in range(3):
            array = opened(store, f"run/a{kind}")
            array[3:50, 7] = -1
            array.resize((20, 100))
            array.resize((70, 100))
        store["run"].attrs["unit"] = "m"
        store.rename("run", "walk")
        del store["gone"]
        store.compact()
        judge(store.at("before"), values)
        opened(store, "walk/a0")[0, 0] = 99
        assert store.check()["ok"]
        assert [one["name"] for one in store.snapshots()] == ["before"]
        assert store.snapshots()[0]["arrays"] == 4
    for mode in ("r", "r+"):
        with nandarray.open(path, mode) as store:  # type: ignore[arg-type]
            with store.at("before") as old:
                judge(old, values)
                assert "walk" not in old
                assert "gone" in old
            assert sorted(store) == ["walk"]
            assert store.check()["ok"]


def judge(old: Any, values: Any) -> None:
    assert sorted(old) == ["gone", "run"]
    assert old.read_only
    for kind in range(3):
        array = opened(old, f"run/a{kind}")
        assert np.array_equal(array[:], values + kind)
        assert np.array_equal(array.view(6000)[10:500:7], (values + kind).reshape(-1)[10:500:7])
    assert dict(old["run"].attrs) == {"unit": "K"}
    assert old["run/a0"].sum() == values.sum()
    assert np.array_equal(old["gone"][:], np.ones(5))


def test_a_snapshot_is_read_by_another_process_and_beside_the_writer(path: Path) -> None:
    script = "import nandarray, sys; print(nandarray.open(sys.argv[1]).at('s')['a'][:].tolist())"
    with nandarray.open(path, "w") as store:
        store["a"] = np.arange(4)
        store.snapshot("s")
        store["a"][:] = 7
        store.flush()
        done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[0, 1, 2, 3]"
        array = store.at("s")["a"]
        sent = pickle.dumps(array)
    again = pickle.loads(sent)
    assert again[:].tolist() == [0, 1, 2, 3]
    assert again.store.read_only


def test_another_snapshot_with_the_name_is_another(path: Path) -> None:
    """Arrays of one that was deleted are errors, here and where they were sent, and never those of the other."""
    with nandarray.open(path, "w") as store:
        store["g/x"] = np.zeros(3)
        store.snapshot("latest")
        old = store.at("latest")
        array, sent = old["g/x"], [pickle.dumps(one) for one in (old, old["g"], old["g/x"])]
        store["g/x"][:] = 1
        store.delete_snapshot("latest")
        store.snapshot("latest")
        gone = "snapshot .latest. .*was deleted, and another one has its name"
        for use in (lambda: old["g/x"], lambda: list(old), lambda: "g/x" in old, lambda: old["g"].attrs["a"]):
            with pytest.raises(ClosedError, match=gone):
                use()
        with pytest.raises(ClosedError, match="the snapshot of the array was deleted"):
            array[:]
        assert store.at("latest")["g/x"][:].tolist() == [1, 1, 1]
        store.flush()
    for one in sent:
        with pytest.raises(ClosedError, match=gone):
            pickle.loads(one)


def test_snapshots_are_listed_while_a_thread_deletes_some(path: Path) -> None:
    with nandarray.open(path, "w") as store:
        store["x"] = np.zeros(3)
        store.snapshot("stays")

        def come_and_go() -> None:
            for _ in range(300):
                store.snapshot("t")
                store.delete_snapshot("t")

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(come_and_go)
            while not done.done():
                assert store.snapshots()[0]["name"] == "stays"
            done.result()


POINT = np.dtype([("x", "f8"), ("y", "i4")])


def test_graphs_and_datasets_of_snapshots_are_theirs(path: Path) -> None:
    """Dask and xarray know by names and in other processes which snapshot is meant."""
    from nandarray.interop.zarr_store import ZarrStore

    with nandarray.open(path, "w") as store:
        values = store.create("x", data=np.zeros((4, 5)))
        points = store.create("p", data=np.zeros(6, POINT))
        for turn in (1, 2):
            values[:], points[:] = turn, np.full(6, turn).astype(POINT)
            store.snapshot(f"s{turn}")  # not flushed: what is sent takes care of it
        values[:], points[:] = 5, np.full(6, 5).astype(POINT)
        one, two = store.at("s1"), store.at("s2")
        for pick, expected in ((lambda shown: shown["x"], 20), (lambda shown: shown["p"]["x"], 6)):
            graphs = [nandarray.to_dask(pick(shown)) for shown in (one, two)]
            assert int((graphs[1] - graphs[0]).sum().compute(scheduler="sync")) == expected
            assert int(pickle.loads(pickle.dumps(graphs[1])).sum().compute(scheduler="sync")) == 2 * expected
            assert nandarray.to_dask(pick(one)).name == graphs[0].name
        tokens = [shown["x"].__dask_tokenize__() for shown in (one, two, store.at("s1"))]
        assert tokens[0] == tokens[2] != tokens[1]
        dataset = pickle.loads(pickle.dumps(nandarray.to_xarray(one)))
        assert (dataset["x"].values == 1).all()
        assert ZarrStore(one) != ZarrStore(two)
        assert ZarrStore(one) == ZarrStore(store.at("s1"))
    with nandarray.open(path) as store:
        live, shown = (nandarray.to_dask(at["x"]) for at in (store, store.at("s2")))
        assert int((live - shown).sum().compute(scheduler="sync")) == 60
    with nandarray.open(path.with_name("modelled"), "w", device="samsung-970-pro") as store:
        for turn in (1, 2):
            store[f"x{turn}"] = np.full(9, turn)
            store.snapshot(f"s{turn}")
            store["x1"][:] = 5
        kept = [nandarray.to_dask(store.at(name)["x1"]) for name in ("s1", "s2")]
        assert int((kept[1] - kept[0]).sum().compute(scheduler="sync")) == 36
        with pytest.raises(TypeError, match="modelled"):
            pickle.dumps(kept[0])


def fill(store: Any, turns: range) -> None:
    for turn in turns:
        store["a"][:] = turn
        store.snapshot(f"s{turn}")


def test_space_comes_back_when_a_snapshot_goes(path: Path) -> None:
    size = 600_000
    with nandarray.open(path, "w", capacity=3 << 20, preset="tiny") as store:
        array = store.create("a", (size,), "u1")
        array[:] = 1
        store.snapshot("kept")
        assert store.snapshots()[0]["bytes_held"] == 0
        array[:] = 2
        assert store.snapshots()[0]["bytes_held"] >= size
        store.snapshot("more")
        with pytest.raises(StoreFullError):
            fill(store, range(3, 20))
        assert (store.at("kept")["a"][:] == 1).all()
        assert (store.at("more")["a"][:] == 2).all()
        for one in store.snapshots()[1:]:
            store.delete_snapshot(one["name"])
        for turn in range(30):  # many times the capacity
            array[:] = turn
        assert (store.at("kept")["a"][:] == 1).all()
        held = store.stat()["bytes_live"]
        store.delete_snapshot("kept")
        assert store.stat()["bytes_live"] <= held - size
        assert store.check()["ok"]


@pytest.mark.parametrize("seed", range(4))
def test_a_model_of_arrays_and_snapshots_agrees(path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    options: dict[str, Any] = {"preset": "tiny", "capacity": 3 << 20} if seed % 2 else {"preset": "tiny"}
    store = nandarray.open(path, "w", **options)
    live: dict[str, Any] = {}
    kept: dict[str, dict[str, Any]] = {}
    for step in range(120):
        match random.integers(0, 14):
            case 0 | 1 if len(kept) < 4:
                store.snapshot(f"s{step}")
                kept[f"s{step}"] = {name: values.copy() for name, values in live.items()}
            case 2 if kept:
                name = str(random.choice(sorted(kept)))
                store.delete_snapshot(name)
                del kept[name]
            case 3:
                store.close()
                store = nandarray.open(path, "r+")
            case 4:
                store.compact()
            case 5 if len(live) > 1:
                name = str(random.choice(sorted(live)))
                del store[name], live[name]
            case 6 if live:
                name = str(random.choice(sorted(live)))
                new = f"n{step}_{name[-1]}"
                store.rename(name, new)
                live[new] = live.pop(name)
            case 7 if live:
                name = str(random.choice(sorted(live)))
                rows = int(random.integers(1, 90))
                before = live[name]
                live[name] = np.zeros((rows, before.shape[1]), before.dtype)
                live[name][: len(before)] = before[:rows]
                opened(store, name).resize(live[name].shape)
            case 8 | 9 if len(live) < 4:
                kind = int(random.integers(0, 3))
                name = f"a{step}_{kind}"
                live[name] = random.integers(0, 50, (int(random.integers(1, 90)), 70)).astype("<i4")
                store.create(name, data=live[name], **KINDS[kind])
            case _ if live:
                name = str(random.choice(sorted(live)))
                rows, columns = live[name].shape
                box = slice(int(random.integers(0, rows)), None), slice(int(random.integers(0, columns)), None)
                opened(store, name)[box] = live[name][box] = step
        if step % 20 == 19:
            assert store.check()["ok"]
            compare(store, live, kept)
    compare(store, live, kept)
    store.close()
    with nandarray.open(path) as again:
        compare(again, live, kept)
        assert again.check()["ok"]


def compare(store: Any, live: dict[str, Any], kept: dict[str, dict[str, Any]]) -> None:
    assert [one["name"] for one in store.snapshots()] == list(kept)
    for there, expected in [(store, live), *((store.at(name), arrays) for name, arrays in kept.items())]:
        assert sorted(there) == sorted(expected)
        for name, values in expected.items():
            assert np.array_equal(opened(there, name)[:], values), (there, name)


def test_what_cannot_be_is_refused(path: Path) -> None:
    with nandarray.open(path, "w") as store:
        store["a"] = np.arange(3)
        store.create("b", data=np.arange(3), encryption_key=KEY)
        store.snapshot("s")
        with pytest.raises(ExistsError, match='a snapshot named "s" exists already'):
            store.snapshot("s")
        for name in ("", "a/b", ".a", "x" * 201, "ä"):
            with pytest.raises(InvalidError, match="the name of a snapshot must begin with"):
                store.snapshot(name)
        with pytest.raises(InvalidError, match="must be str, not int"):
            store.snapshot(3)  # type: ignore[arg-type]
        for call in (store.at, store.delete_snapshot):
            with pytest.raises(NotFoundError, match='no snapshot named "t" in this store; it has s'):
                call("t")
        old = store.at("s")
        changes: list[Any] = [
            lambda: old["a"].__setitem__(0, 1),
            lambda: old["a"].resize((5,)),
            lambda: old["a"].attrs.update(x=1),
            lambda: old.create("c", (3,), "i4"),
            lambda: old.rename("a", "c"),
            lambda: old.__delitem__("a"),
            lambda: old.snapshot("t"),
            lambda: old.delete_snapshot("s"),
            old.flush,
            old.compact,
            lambda: old.check(repair=True),
        ]
        for change in changes:
            with pytest.raises(ReadOnlyError):
                change()
        with pytest.raises(WrongKeyError):
            old.open_array("b", encryption_key=bytes(32))
        for serve in (old.nvme, lambda: nandarray.serve(old, f"{path}.sock")):
            with pytest.raises(InvalidError, match='snapshot "s" cannot be served'):
                serve()
        with pytest.raises(InvalidError, match="a path must come with a snapshot, 's'"):
            sql.register(None, old, "a")
        assert "snapshot 's'" in repr(old)
        array = old["a"]
        store.delete_snapshot("s")
        with pytest.raises(ClosedError, match="the snapshot of the array was deleted"):
            array[:]
        store.snapshot("u")
        last = store.at("u")
    with pytest.raises(ClosedError):
        last["a"]
    with nandarray.open(path) as store, pytest.raises(ReadOnlyError):
        store.snapshot("t")


@pytest.mark.parametrize("door", ["drive", "shared", "parts"])
def test_doors_say_that_they_have_no_snapshots(path: Path, door: str) -> None:
    with doors.opened(door, path) as store:
        calls = [lambda: store.snapshot("s"), store.snapshots, lambda: store.delete_snapshot("s")]
        for call in calls if door == "parts" else [*calls, lambda: store.at("s")]:
            with pytest.raises(DoorError, match="versions" if door == "parts" else "process that has the file"):
                call()


def test_the_word_for_a_snapshot_opens_a_tag_of_parts(path: Path) -> None:
    with parts.create(path) as store:
        store["a"] = np.arange(3)
        store.flush()
        store.tag("paper")
        store["a"][:] = 0
        store.flush()
        assert store.at("paper")["a"][:].tolist() == [0, 1, 2]
        with pytest.raises(InvalidError, match="either a version or a tag"):
            store.at("paper", version=1)


def test_snapshots_under_a_modelled_clock(path: Path) -> None:
    with nandarray.open(path, "w", device="samsung-970-pro") as store:
        store["a"] = np.arange(1000)
        store.snapshot("s")
        store["a"][:] = 0
        before = store.clock.now
        with store.at("s") as old:
            assert np.array_equal(old["a"][:], np.arange(1000))
            assert np.array_equal(old["a"].submit(...).result(), np.arange(1000))
        assert store.clock.now > before
        assert not store.closed


def test_the_command_line(path: Path, tmp_path: Path) -> None:
    with nandarray.open(path, "w") as store:
        store["g/a"] = np.arange(4)

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, [*words])
        assert done.exit_code == 0, done.output
        return done.output

    run("snapshot", "create", str(path), "one")
    with nandarray.open(path, "r+") as store:
        store["g/a"][:] = 0
    listed = json.loads(run("snapshot", "ls", str(path), "--json"))
    assert [(one["name"], one["arrays"]) for one in listed] == [("one", 1)]
    assert listed[0]["bytes_held"] > 0
    assert "one" in run("snapshot", "ls", str(path))
    assert json.loads(run("info", str(path), "--json"))["snapshots"] == 1
    copy = tmp_path / "copy.nand"
    run("cp", "--at", "one", str(path), str(copy))
    with nandarray.open(copy) as store:
        assert store["g/a"][:].tolist() == [0, 1, 2, 3]
    run("cp", "--at", "one", f"{path}:/g/a", f"{path}:/back")
    run("check", str(path))
    run("snapshot", "rm", str(path), "one")
    assert json.loads(run("snapshot", "ls", str(path), "--json")) == []
    with nandarray.open(path) as store:
        assert store["back"][:].tolist() == [0, 1, 2, 3]
