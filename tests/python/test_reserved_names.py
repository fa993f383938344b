"""Promise: names are checked wherever users make them: those that imports under way have are refused, because what has
one is removed when the store is next opened for writing; and so is what is no part of a name."""

from __future__ import annotations

import base64
import contextlib
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import nandarray
from nandarray import InvalidError, from_xarray
from nandarray.nvme import connect

RESERVED = "__importing__0123456789ab"


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with nandarray.open(tmp_path / "a.nand", "w") as made:
        made["a"] = np.arange(3)
        yield made


@pytest.mark.parametrize("name", [RESERVED, f"{RESERVED}/x", f"/{RESERVED}/x/y"])
def test_names_of_imports_under_way_are_refused(tmp_path: Path, store: Any, name: str) -> None:
    np.save(tmp_path / "b.npy", np.arange(3))
    before = store._engine.names("")
    for make in (
        lambda: store.create(name, 3, "u1"),
        lambda: store.__setitem__(name, [1]),
        lambda: store.create_group(name),
        lambda: store.require_group(name),
        lambda: store.rename("a", name),
        lambda: from_xarray(xr.Dataset({"x": ("t", [1])}), store, group=name),
        lambda: nandarray.import_(tmp_path / "b.npy", store, name),
    ):
        with pytest.raises(InvalidError, match="reserved for imports"):
            make()
    with pytest.raises(InvalidError, match="reserved for imports"):
        from_xarray(xr.Dataset({RESERVED: ("t", [1])}), store)
    assert store._engine.names("") == before


@pytest.mark.parametrize("group", ["../x", "a/./b", "a//b", ".group", "\udc80", 5])
def test_groups_of_datasets_are_named_as_others(store: Any, group: Any) -> None:
    with pytest.raises(InvalidError, match="name"):
        from_xarray(xr.Dataset({"x": ("t", [1])}), store, group=group)
    assert store._engine.names("") == ["a"]


@pytest.mark.parametrize("name", ["..", ".", "", "/x", "x//y", ".group", "\udc80"])
@pytest.mark.parametrize("group", [None, "q"])
def test_variables_of_datasets_are_named_as_others(store: Any, name: str, group: str | None) -> None:
    with pytest.raises(InvalidError, match="name"):
        from_xarray(xr.Dataset({name: ("t", [1])}), store, group=group)
    assert store._engine.names("") == ["a"]


#: A store whose arrays, of four bytes each, a host named before hosts had a rule; compressed.
OLD_STORE = (
    "eNrt3c9rFGccB+B3djebuBiRHKRWqUGrWA/ZLi09tKXt4q+DuIcUTwvCkiyhWJOwQTDVFi1ICaW9ihTaS+2t9FT8A7wYpP9BQdGL"
    "J1viVYjv607aVHYWRDy0fR4G3pmd9/1835nT+7KHWWk1W0ea07VyCGFfvXrjTvujyz8+mmx/f//Y26+fufdbFnKlECqxSdfbw9+u"
    "fDkz8+ZXO75J5z89Pr268fvoM+22vF0ZX1/Y216byPKsjfxa3q5H87NLf+XP9brd2eUAAAAAvICVTfv/H34+1Hx2/x9e4v4/bNr/"
    "B/t/AAAAeGnS9v9kc/rEtVdWT6frov//a14VAAAA/Ov3/43pa38M2/8DAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAMDzaDVbRz4+erzxy9bq1XL+W7bp/nrkLQEA/PfWf4f+vLxWytd+2aY1oPUfAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAABALsv633vL/vHZXwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAD4X7n+2YU9remjh7P8emV8fWFv"
    "e21i4/6+jZMsZONTU/V4dJdmOovd2awSsvLFc43YxpulC58/7bZ/ba6b8kpD8lLNNGR8rt5PjMe5xcF5l75Y/TrllQvyduY145By"
    "+Xx9anBKCB/8emtHyqkU5LyW14qDKmMxZ663MHBK35W+vZRyRobMJ9WK/UfifJaL5nPz/Qe/p5xqQc6B0K8VB1W3d2oLZyYPdnq9"
    "zvLSu5ONNwaETp348J2UNzrk+VLN2H90rNed3dV+q3F2QM7uq3uupJyxgpxXQ79W7D9WmV+qNwoe8L2Hd2+mnC0FObtDv1Ycs6Wa"
    "curnByadur1tOeXUCnJ25bXiiNrI4qedT+aL3jgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAADAcE8A7N3nPw=="
)
OLD_NAMES = [
    "../../escaped",
    "a\nok (arrays: 1)",
    "g/../../../up",
    "ns/1",
    "ns/1/x",
    "plain",
    "red\x1b[31m",
    "x/.",
    "x/y",
]
#: Hidden by its name, and no marker of a group: it has elements.
OLD_HIDDEN = "x/.group"


def old_store() -> bytes:
    """Return the file of a store that has names of an older rule."""
    return zlib.decompress(base64.b64decode("".join(OLD_STORE)))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.nand"
    path.write_bytes(old_store())
    return path


def test_names_of_an_older_rule_are_opened_renamed_and_deleted(old: Path) -> None:
    with nandarray.open(old, "r+") as opened:
        assert opened.array_names() == OLD_NAMES
        for number, name in enumerate([*OLD_NAMES, OLD_HIDDEN]):
            opened[name][:] = number
        assert opened[".."][".."]["escaped"][0] == 0
        opened.rename("../../escaped", "kept")
        opened.rename("a\nok (arrays: 1)", "also")
        opened.rename(OLD_HIDDEN, "seen")
        assert [int(opened[name][3]) for name in ("kept", "also", "seen")] == [0, 1, 9]
        for name in ("g/../../../up", "red\x1b[31m", "x/.", "ns/1/x"):
            del opened[name]
            with pytest.raises((InvalidError, nandarray.NotFoundError)):
                opened[name]
        assert opened.array_names() == ["also", "kept", "ns/1", "plain", "seen", "x/y"]
        with pytest.raises(InvalidError, match="not a name"):
            opened.rename("kept", "../again")


@pytest.mark.parametrize("ending", ["npz", "zarr", "h5"])
def test_names_of_an_older_rule_are_exported(old: Path, ending: str) -> None:
    library = {"zarr": "zarr", "h5": "h5py"}.get(ending)
    module = pytest.importorskip(library) if library else np
    target = old.parent / "to" / f"all.{ending}"
    target.parent.mkdir()
    with nandarray.open(old, "r+") as opened:
        for number, name in enumerate(OLD_NAMES):
            opened[name][:] = number
        with pytest.warns(UserWarning, match="exported under other names"):
            nandarray.export(opened, target)
    wanted = {
        "%2E%2E/%2E%2E/escaped": 0, "a%0Aok (arrays: 1)": 1, "g/%2E%2E/%2E%2E/%2E%2E/up": 2, "ns/1": 3, "ns/1%2Fx": 4,
        "plain": 5, "red%1B[31m": 6, "x/%2E": 7, "x/y": 8,
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        if ending == "npz":
            found = stack.enter_context(module.load(target))
        elif ending == "zarr":
            found = module.open_group(str(target), mode="r")
        else:
            found = stack.enter_context(module.File(target))
        assert {name: int(found[name][0]) for name in wanted} == wanted
    assert sorted(path.name for path in old.parent.iterdir()) == ["old.nand", "to"]
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_a_host_names_by_the_same_rule(store: Any) -> None:
    wrong = [b"../x", b"g/../up", b"x/.", b"x/.group", b"x//y", b"/a", b"a\nb", b"\x1b[31m", "\u202ea".encode(), b"a/b",
             f"{RESERVED}/0".encode()]  # fmt: skip
    with nandarray.serve(store) as server, connect(server.url) as remote:
        for name in [*wrong, b"g/fine"]:
            page = bytearray(4096)
            struct.pack_into("<IBBH", page, 0, 1, 1, 0, len(name))
            struct.pack_into("<Q", page, 16, 100)
            page[1024 : 1024 + len(name)] = name
            entry = bytearray(64)
            entry[0] = 5
            struct.pack_into("<I", entry, 4, 1024)
            struct.pack_into("<I", entry, 40, 2)
            done, _ = remote.call(bytes(entry), bytes(page))
            assert done.ok == (name == b"g/fine"), (name, done)
    assert store.array_names() == ["a", "g/fine"]
