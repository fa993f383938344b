"""Stores and groups as a user meets them: modes, names, groups, attributes, listing."""

from __future__ import annotations

import contextlib
import copy
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import nandarray

KEY = bytes(range(32))


def test_what_is_written_is_there_again(path: pathlib.Path) -> None:
    with nandarray.open(path, mode="w") as store:
        store.create("a", (3, 4), "f4", fill_value=2, attrs={"unit": "m"})[1] = 5
    with nandarray.open(path) as store:
        assert store["a"][:, 0].tolist() == [2, 5, 2]
        assert store["a"].attrs["unit"] == "m"
        assert store.mode == "r"
        assert store.read_only


@pytest.mark.parametrize("form", [str, pathlib.Path, lambda p: str(p).encode()])
def test_a_path_in_any_form(path: pathlib.Path, form: Any) -> None:
    with nandarray.open(form(path), mode="x") as store:
        assert store.path == str(path)
    assert path.is_file()


def test_modes_are_those_of_h5py(path: pathlib.Path) -> None:
    for mode in ("r", "r+"):
        with pytest.raises(nandarray.NandarrayError):
            nandarray.open(path, mode=mode)
        assert not path.exists()
    with nandarray.open(path, mode="a") as store:
        store["kept"] = [1, 2]
    for mode in ("a", "r+"):
        with nandarray.open(path, mode=mode) as store:  # type: ignore[arg-type]
            assert "kept" in store
            store[f"new {mode}"] = [3]
    with pytest.raises(nandarray.NandarrayError):
        nandarray.open(path, mode="x")
    with nandarray.open(path, mode="r") as store:
        assert len(store) == 3
    with nandarray.open(path, mode="w") as store:
        assert list(store) == []


def test_a_store_is_a_mapping(store: nandarray.Store) -> None:
    store["b"] = np.arange(3)
    store["a"] = 5.0
    store["g/c"] = [[True]]
    assert list(store) == store.keys() == ["a", "b", "g"]
    assert len(store) == 3
    assert "b" in store
    assert "g" in store
    assert "g/c" in store
    assert "c" not in store
    assert 5 not in store
    for no_name in ("a\x1b", "a//b", "g/../b", "\ud800"):
        assert no_name not in store
        assert no_name not in store["g"]
        assert store.get(no_name, 7) == 7
    assert [type(value) for value in store.values()] == [nandarray.Array, nandarray.Array, nandarray.Group]
    assert [name for name, _ in store.items()] == ["a", "b", "g"]
    assert store.get("missing") is None
    assert store.get("missing", 7) == 7
    assert store.get("b").name == "b"
    assert store["a"].shape == ()
    assert store["a"][()] == 5.0
    assert store["g/c"].dtype == bool
    del store["b"]
    assert list(store) == ["a", "g"]
    del store["g"]
    assert list(store) == ["a"]
    assert bool(store)


def test_names_with_slashes_are_groups(store: nandarray.Store) -> None:
    store["run1/raw/image"] = np.zeros((2, 3), "u1")
    store["run1/raw/mask"] = np.zeros((2, 3), bool)
    group = store["run1"]
    assert isinstance(group, nandarray.Group)
    assert group.name == "run1"
    assert list(group) == ["raw"]
    assert group["raw/image"].name == "run1/raw/image"
    assert group["raw"]["/run1/raw/mask"].dtype == bool
    assert store["/run1/raw"].name == store["run1/raw/"].name == "run1/raw"
    assert store["/"] is store
    assert group["/"] is store
    assert group.array_names() == ["raw/image", "raw/mask"]
    assert store.array_names() == ["run1/raw/image", "run1/raw/mask"]
    group["new"] = [1]
    assert store["run1/new"][0] == 1


def test_groups_of_their_own(path: pathlib.Path) -> None:
    with nandarray.open(path, mode="w") as store:
        empty = store.create_group("empty", attrs={"why": "later"})
        assert list(empty) == []
        assert "empty" in store
        store["g/x"] = [1]
        store["g"].attrs["by"] = "me"
        store.attrs["title"] = "all"
        assert store.require_group("empty").attrs["why"] == "later"
        assert store.require_group("other/inner").name == "other/inner"
        assert store.array_names() == ["g/x"]
        assert list(store["g"]) == ["x"]
    with nandarray.open(path) as store:
        assert list(store) == ["empty", "g", "other"]
        assert dict(store["g"].attrs) == {"by": "me"}
        assert dict(store.attrs) == {"title": "all"}
        assert dict(store["other"].attrs) == {}
    with nandarray.open(path, mode="r+") as store:
        del store["empty"]
        del store["g/x"]
        assert list(store) == ["g", "other"], "a group with attributes outlives its arrays"


def test_a_store_that_is_read_is_not_emptied(path: pathlib.Path) -> None:
    with nandarray.open(path, "w") as store:
        store["a"] = np.arange(3)
    with nandarray.open(path) as reader:
        with pytest.raises(nandarray.LockedError, match="open for reading"):
            nandarray.open(path, "w")
        assert reader["a"][2] == 2
    with nandarray.open(path, "r+"), pytest.raises(nandarray.LockedError, match="open for writing"):
        nandarray.open(path, "w")


def test_a_lock_names_its_holder(path: pathlib.Path) -> None:
    with nandarray.open(path, "w") as store:
        store["a"] = np.arange(3)
        for mode in ("r+", "w"):
            with pytest.raises(nandarray.LockedError, match=r"this process, opened at .*test_store.py:\d+$"):
                nandarray.open(path, mode)  # type: ignore[arg-type]
        command = [sys.executable, "-m", "nandarray", "rm", str(path), "a"]
        other = subprocess.run(command, capture_output=True, text=True)
        assert other.returncode == 1
        assert f": process {os.getpid()} (" in other.stderr
    with nandarray.open(path), pytest.raises(nandarray.LockedError, match="mode 'r.': this process, opened at"):
        nandarray.open(path, "w")
    # A reader of this process is not who keeps a writer out, and the writer is not who reads.
    hold = "import sys, nandarray; store = nandarray.open(*sys.argv[1:]); print(flush=True); sys.stdin.read()"
    for held in ("r+", "r"):
        command = [sys.executable, "-c", hold, str(path), held]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"\n"
            here = nandarray.open(path) if held == "r+" else contextlib.nullcontext()
            with here, pytest.raises(nandarray.LockedError, match=rf": process {holder.pid} \([^;]*$"):
                nandarray.open(path, "w")
            holder.communicate(timeout=30)


def test_rename(store: nandarray.Store) -> None:
    store["a"] = [1, 2]
    a = store["a"]
    store.rename("a", "g/b")
    assert a.name == "g/b"
    assert a[:].tolist() == [1, 2]
    store["g"].attrs["n"] = 1
    store.rename("g", "h")
    assert store.array_names() == ["h/b"]
    assert store["h"].attrs["n"] == 1
    store["h"].rename("b", "c")
    assert store.array_names() == ["h/c"]
    store.rename("h", "h")
    store["x"] = [0]
    for old, new, error in (
        ("x", "h/c", nandarray.ExistsError),
        ("x", "h", nandarray.ExistsError),
        ("x", "h/c/d", nandarray.ExistsError),
        ("nothing", "y", nandarray.NotFoundError),
        ("h", "h/inside", nandarray.InvalidError),
    ):
        with pytest.raises(error):
            store.rename(old, new)
    assert store.array_names() == ["h/c", "x"]


def test_tree(store: nandarray.Store) -> None:
    store["run/raw"] = np.zeros((2, 3), "<f4")
    store["run/sub/deep"] = np.zeros(4, "u1")
    store["top"] = 1.5
    store.create_group("void")
    assert str(store.tree()).splitlines() == [
        "/",
        "├── run/",
        "│   ├── raw  float32 (2, 3)",
        "│   └── sub/",
        "│       └── deep  uint8 (4,)",
        "├── top  float64 ()",
        "└── void/",
    ]
    tree = store["run"].tree()
    store.close()
    assert str(tree).splitlines()[0] == "run"
    assert "deep" in tree._repr_html_()


def test_attributes_write_through(path: pathlib.Path) -> None:
    with nandarray.open(path, mode="w") as store:
        a = store.create("a", 3, "u1", attrs={"n": 1})
        a.attrs["list"] = np.array([[1, 2]])
        a.attrs["number"] = np.float32(0.5)
        a.attrs.update({"deep": {"x": np.int8(3)}}, text="é")
        a.attrs["missing"] = float("nan")
        del a.attrs["n"]
        assert store["a"].attrs["list"] == [[1, 2]], "another handle sees it"
        assert len(a.attrs) == 5
    with nandarray.open(path, mode="r+") as store:
        attrs = store["a"].attrs
        assert {name: attrs[name] for name in ("list", "number", "deep", "text")} == {
            "list": [[1, 2]], "number": 0.5, "deep": {"x": 3}, "text": "é",
        }  # fmt: skip
        assert np.isnan(attrs["missing"])
        assert "n" not in attrs
        attrs.clear()
        assert dict(attrs) == {}
        with pytest.raises(nandarray.NotFoundError, match="'n'"):
            attrs["n"]
        with pytest.raises(nandarray.NotFoundError, match="'n'"):
            del attrs["n"]
        assert attrs.get("n", 3) == 3
        for bad in (b"bytes", 1j, {1, 2}, np.datetime64("now")):
            with pytest.raises(nandarray.InvalidError, match="JSON"):
                attrs["bad"] = bad
        with pytest.raises(nandarray.InvalidError, match="int"):
            attrs[3] = 1


def test_create_with_data(store: nandarray.Store) -> None:
    assert store.create("a", data=[[1, 2], [3, 4]])[1].tolist() == [3, 4]
    assert store.create("b", data=[1, 2], dtype="f2").dtype == np.float16
    assert store.create("c", (3, 2), data=[1, 2])[2].tolist() == [1, 2]
    assert store.create("d", 4)[:].tolist() == [0.0] * 4
    assert store.create("e", data=store["a"])[:].tolist() == [[1, 2], [3, 4]]
    assert store.create("f", data=store["a"].view(4), dtype="f4")[:].tolist() == [1, 2, 3, 4]
    with pytest.raises(nandarray.InvalidError, match=r"\(3,\).*\(2,\)"):
        store.create("g", 2, data=[1, 2, 3])
    assert "g" not in store, "a create that fails leaves nothing"
    with pytest.raises(nandarray.InvalidError, match="shape or data"):
        store.create("g")


def test_compression_and_building_block(path: pathlib.Path) -> None:
    model = np.arange(60 * 50, dtype="i4").reshape(60, 50)
    with nandarray.open(path, mode="w") as store:
        for name, compression in (("a", "lz4"), ("b", "zstd"), ("c", "zstd:7+shuffle"), ("d", "lz4+bitshuffle")):
            array = store.create(name, data=model, compression=compression, building_block=(16, 32))
            assert array.compression is not None
            assert array.building_block == array.chunks == (16, 32)
    with nandarray.open(path) as store:
        for array in store.values():
            assert np.array_equal(array[7:, ::3], model[7:, ::3])


def test_encryption(path: pathlib.Path) -> None:
    model = np.arange(100)
    with nandarray.open(path, mode="w") as store:
        array = store.create("secret", data=model, encryption_key=KEY)
        assert array.encrypted
        assert array[5] == 5
        store["open"] = model
    with nandarray.open(path) as store:
        assert np.array_equal(store.open_array("secret", encryption_key=KEY)[:], model)
        assert np.array_equal(store.get("secret", encryption_key=bytearray(KEY))[3:7], model[3:7])
        assert not store["open"].encrypted
        for key in (None, bytes(32)):
            with pytest.raises(nandarray.WrongKeyError, match="secret"):
                store.open_array("secret", encryption_key=key)
        assert "int64 (100,)" in str(store.tree()), "a tree needs no key"


def test_flush_and_refresh(path: pathlib.Path) -> None:
    with nandarray.open(path, mode="w") as writer:
        a = writer.create("a", 4, "i4")
        writer.flush()
        with nandarray.open(path) as reader:
            seen = reader["a"]
            a[:] = [1, 2, 3, 4]
            writer["b"] = [7]
            writer.flush()
            reader.refresh()
            assert seen[:].tolist() == [1, 2, 3, 4]
            assert reader["b"][0] == 7


def test_looking_after_the_file(store: nandarray.Store) -> None:
    store["a"] = np.arange(1000)
    store.flush()
    assert store.check()["ok"]
    assert store.check(repair=True)["errors"] == []
    assert isinstance(store.stat(), dict)
    assert isinstance(store.geometry(), dict)
    del store["a"]
    assert isinstance(store.compact(), dict)
    assert store.check()["ok"]


def test_closing(path: pathlib.Path) -> None:
    store = nandarray.open(path, mode="w")
    store["a"] = [1]
    a, group = store["a"], store.create_group("g")
    store.close()
    store.close()
    assert store.closed
    for use in (
        lambda: store["a"], lambda: list(store), lambda: store.create("b", 1), store.flush, store.stat,
        lambda: a[0], lambda: a.shape, lambda: a.attrs["x"], lambda: group.keys(), lambda: "a" in store,
        lambda: store.__enter__(), lambda: copy.copy(store), lambda: store.tree(),
    ):  # fmt: skip
        with pytest.raises(nandarray.ClosedError):
            use()
    for thing in (store, a, group):
        assert "closed" in repr(thing)
        assert "closed" in thing._repr_html_()


def test_a_copy_is_a_store_of_its_own(path: pathlib.Path) -> None:
    with nandarray.open(path, mode="w") as store:
        store["a"] = np.arange(3)
        with pytest.raises(TypeError, match="cannot be copied.*open for writing here"):
            copy.copy(store)
    with nandarray.open(path) as store:
        again = copy.copy(store)
        assert type(again) is nandarray.Store
    assert again["a"][1] == 1
    again.close()


def test_a_store_that_nobody_holds_lets_go_of_its_file(path: pathlib.Path) -> None:
    nandarray.open(path, mode="w").create_group("g")
    with nandarray.open(path, mode="a") as again:
        assert not again.closed


def test_the_public_surface() -> None:
    for name in nandarray.__all__:
        assert getattr(nandarray, name) is not None
        assert name in dir(nandarray)
    with pytest.raises(AttributeError, match="nothing"):
        nandarray.nothing  # noqa: B018


def test_a_deleted_array_says_so(store: nandarray.Store) -> None:
    a = store.create("a", 3)
    del store["a"]
    with pytest.raises(nandarray.ClosedError):
        a[:]
    store.create("a", 5)
    with pytest.raises(nandarray.ClosedError):
        a[:]


def test_repr_and_html(store: nandarray.Store) -> None:
    store.create("g/<b>", (3, 100, 200), "f4", building_block=(1, 10, 10), compression="lz4")
    array = store["g/<b>"]
    assert "shape=(3, 100, 200) dtype=float32" in repr(array)
    assert "lz4" in repr(array)
    shown = array._repr_html_()
    assert "<svg" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "script" not in shown
    assert "&lt;b&gt;" in store._repr_html_()
    assert "1 inside" in repr(store)
    assert "1 inside" in repr(store["g"])
    for shape in ((), (0,), (5,), (2, 0, 3), (2**60, 3, 2**60, 7)):
        assert store.create(f"x{len(store)}", shape, "u1")._repr_html_().startswith("<div")
    assert store._ipython_key_completions_() == store.keys()


def test_capacity_is_a_limit(path: pathlib.Path) -> None:
    with nandarray.open(path, mode="w", capacity=8 << 20) as store:
        a = store.create("a", (64, 1 << 20), "u1")
        a[0] = 1
        store.flush()
        noise = np.random.default_rng(1).integers(0, 255, 1 << 20, "u1")

        def fill() -> None:
            for row in range(1, 64):
                a[row] = noise
            store.flush()

        with pytest.raises(nandarray.StoreFullError) as info:
            fill()
        assert isinstance(info.value, OSError)
        assert a[0, ::65536].tolist() == [1] * 16, "the store is still usable"


def test_mode_w_replaces_stores_and_nothing_else(path: pathlib.Path) -> None:
    path.write_bytes(b"a thesis, say" * 1000)
    for _ in range(2):
        with pytest.raises(nandarray.NotAStoreError, match="overwrite=True"):
            nandarray.open(path, "w")
    assert path.read_bytes() == b"a thesis, say" * 1000
    with nandarray.open(path, "w", overwrite=True) as store:
        store["a"] = [1]
    with path.open("r+b") as file:  # a store with one superblock damaged is one
        file.write(b"damaged!")
    with nandarray.open(path, "w") as store:
        assert store.array_names() == []
    path.write_bytes(b"")
    nandarray.open(path, "w").close()


def test_counts_leave_out_what_is_hidden(path: pathlib.Path) -> None:
    with nandarray.open(path, "w") as store:
        store["g/a"] = [1]
        store["g"].attrs["unit"] = "m"
        store.create_group("empty")
        assert store.stat()["array_count"] == store.check()["arrays"] == len(store.array_names()) == 1
        assert list(store.stat()["arrays"]) == ["g/a"]


def test_what_a_killed_import_left_is_not_shown_and_goes(path: pathlib.Path) -> None:
    left = "__importing__0123456789ab"
    with nandarray.open(path, "w") as store:
        store["mine"] = [1]
        store._create(f"{left}/0", data=[1])
        store._create(f"{left}/1", data=[2])
        store["__importing__mine"] = [3]  # no such name
        store.flush()
        for shown in (store.array_names(), list(store), str(store.tree()), store.stat()["arrays"], repr(store)):
            assert left not in str(shown)
        assert store.array_names() == ["__importing__mine", "mine"]
        assert store.check()["arrays"] == 2
        with pytest.raises(nandarray.NotFoundError) as caught:
            store[f"{left}/2"]
        assert "did you mean" not in str(caught.value)
    with nandarray.open(path) as store:
        assert f"{left}/0" in store  # a reader changes nothing
    with nandarray.open(path, "r+") as store:
        assert store._engine.names("") == ["__importing__mine", "mine"]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("chunks", "chunks is called building_block here"),
        ("fillvalue", "fillvalue is called fill_value here"),
        ("maxshape", "every array can be resized"),
        ("compresion", "did you mean 'compression'"),
        ("zz", "it has shape, dtype"),
    ],
)
def test_options_of_others_are_answered(path: pathlib.Path, option: str, said: str) -> None:
    with nandarray.open(path, "w") as store, pytest.raises(nandarray.InvalidError, match=said):
        store.create("a", (3,), **{option: (1,)})  # type: ignore[arg-type]


def test_methods_of_others_are_answered(path: pathlib.Path) -> None:
    with nandarray.open(path, "w") as store:
        with pytest.raises(AttributeError, match="'create_dataset': it is called create here"):
            store.create_dataset("a", (3,))  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match="'require_dataset': it is called require_array here"):
            store.require_dataset("a", (3,))  # type: ignore[attr-defined]
        assert not hasattr(store, "nothing")
