"""Copies of arrays and groups between stores and doors, masks that go along, walks, and arrays that are required."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pytest
from typer.testing import CliRunner

import nandarray
import strategies
from nandarray.cli import app
from nandarray.errors import ExistsError, InvalidError, NotFoundError, ReadOnlyError, WrongKeyError

KEY = bytes(range(32))


@pytest.fixture
def other(tmp_path: Path) -> Iterator[nandarray.Store]:
    """A second store, whose pages are larger."""
    with nandarray.open(tmp_path / "other.nand", "w", geometry={"page_bytes": 16384}) as opened:
        yield opened


def facts(array: Any) -> list[Any]:
    """All that a copy keeps."""
    return [array.shape, array.dtype, array.compression, array.encrypted, array._space.fill, dict(array.attrs)]


def alike(copy: Any, source: Any) -> None:
    assert facts(copy) == facts(source)
    assert copy[...].tobytes() == source[...].tobytes()


def test_a_copy_has_all_that_its_source_has(store: nandarray.Store, other: nandarray.Store) -> None:
    for number, dtype in enumerate(strategies.DTYPES):
        model = strategies.content((5, 7), dtype, number)
        coded = ("zstd:5+shuffle", None, "lz4")[number % 3]
        options: dict[str, Any] = {"attrs": {"_ARRAY_DIMENSIONS": ["y", "x"], "n": number}, "compression": coded}
        store.create(f"g/{number}", data=model, building_block=(2, 4), fill_value=model[1, 2], **options)
    store.create("scalar", (), "i4", data=7)
    store.create("empty", (0, 3), "f4")
    for name in ["scalar", "empty", *(f"g/{number}" for number in range(len(strategies.DTYPES)))]:
        alike(store.copy(name, f"copies/{name}"), store[name])
        alike(store.copy(store[name], other, f"copies/{name}"), store[name])
        assert store[f"copies/{name}"].building_block == store[name].building_block
    assert store.copy("g/3", other["copies"]).name == "copies/3"


def test_groups_and_whole_stores(store: nandarray.Store, other: nandarray.Store) -> None:
    store["run/a/x"], store["run/y"] = np.arange(3), np.arange(4)
    store["run"].attrs["by"] = "me"
    store.create_group("run/empty")
    store.attrs["all"] = 1
    other.attrs["mine"] = 2
    group = store.copy("run", "again")
    assert isinstance(group, nandarray.Group)
    assert (group.array_names(), list(group), dict(group.attrs)) == (["a/x", "y"], ["a", "empty", "y"], {"by": "me"})
    assert store["run"].copy("a", other, "from/a").name == "from/a"
    assert store.copy("/", other) is other
    assert other.array_names() == ["again/a/x", "again/y", "from/a/x", "run/a/x", "run/y"]
    assert dict(other.attrs) == {"mine": 2, "all": 1}
    assert dict(other["run"].attrs) == {"by": "me"}
    assert store.copy("/", other, "backup").array_names() == store.array_names()  # type: ignore[union-attr]
    assert dict(other["backup"].attrs) == {"all": 1}
    with pytest.raises(ExistsError, match=r"'again/a/x' exists"):
        store.copy("/", other)


@pytest.mark.parametrize("doors_of", list(itertools.permutations(("file", "drive", "shared"), 2)))
def test_between_doors(doors_of: tuple[str, str], tmp_path: Path) -> None:
    with doors.opened(doors_of[0], tmp_path / "a") as a, doors.opened(doors_of[1], tmp_path / "b") as b:
        a.create("g/x", data=np.arange(600).reshape(20, 30), compression="zstd", attrs={"n": 1}, fill_value=3)
        a["g"].attrs["of"] = "a"
        alike(a.copy("g/x", b, "x"), a["g/x"])
        assert dict(a.copy("g", b).attrs) == {"of": "a"}
        alike(b["g/x"], a["g/x"])
        alike(b.copy("g/x", "y"), a["g/x"])


def test_a_copy_is_whole_or_absent(store: nandarray.Store, other: nandarray.Store, monkeypatch: Any) -> None:
    store["g/a"], store["g/b"] = np.arange(9), np.arange(9.0)
    store.create("secret", data=np.arange(5), encryption_key=KEY)
    for call, error, words in [
        (lambda: store.copy("nothing", "x"), NotFoundError, "no array or group named 'nothing'"),
        (lambda: store.copy("g", "g/inside"), InvalidError, "cannot be copied into itself"),
        (lambda: store.copy("/", "copy"), InvalidError, "cannot be copied into itself"),
        (lambda: store.copy("g/a", "g"), ExistsError, "a group named 'g' exists"),
        (lambda: store.copy("g", "secret"), ExistsError, "an array named 'secret' exists"),
        (lambda: store.copy("g/a", "secret/x"), ExistsError, "'secret' is an array"),
        (lambda: store.copy("g/a", "x", "y"), InvalidError, "new name of a copy must be given once"),
        (lambda: store.copy(3, "x"), InvalidError, "not int"),  # type: ignore[arg-type]
        (lambda: store.copy("g", 3), InvalidError, "not int"),  # type: ignore[arg-type]
        (lambda: store.copy("secret", other), WrongKeyError, "encrypted"),
        (lambda: store.copy("secret", other, encryption_key=bytes(32)), WrongKeyError, "key"),
    ]:
        with pytest.raises(error, match=words):
            call()  # type: ignore[no-untyped-call]
    copied = store.copy("secret", other, encryption_key=KEY)
    alike(copied, store.open_array("secret", encryption_key=KEY))

    def fails(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nandarray.array.copying.copy_elements", fails)
    with pytest.raises(KeyboardInterrupt):
        store.copy("g", other)
    assert other._engine.names() == ["secret"]
    store.flush()
    with nandarray.open(store.path) as reader, pytest.raises(ReadOnlyError):
        reader.copy("g/a", "x")


def test_a_sparse_array_is_copied_by_what_it_has(store: nandarray.Store, other: nandarray.Store) -> None:
    a = store.create("a", (2**40, 2**40), "f4", fill_value=np.nan, building_block=(64, 64), compression="lz4")
    a[5, 6], a[2**39, 2**40 - 1], a[1000:1200, 300:400] = 1, 2, 3
    copied: Any = store.copy("a", other)
    assert copied[5, 6] == 1
    assert copied[2**39, -1] == 2
    assert (copied[1000:1200, 300:400] == 3).all()
    assert np.isnan(copied[999, 300])
    other.flush()
    store.flush()
    assert copied.stat()["blocks_allocated"] == a.stat()["blocks_allocated"]
    long: Any = store.create("long", 2**64 - 1, "u1")
    long[2**64 - 2] = 5
    assert store.copy("long", "longer")[2**64 - 2] == 5  # type: ignore[index]


@pytest.mark.parametrize("compression", ["zstd:3+shuffle", "lz4", "bitpack"])
def test_compressed_blocks_go_as_they_are_stored(
    store: nandarray.Store, other: nandarray.Store, compression: str, monkeypatch: Any
) -> None:
    elements = importlib.import_module("nandarray.array.elements")
    stored, left = elements._copy_stored, []
    monkeypatch.setattr(elements, "_copy_stored", lambda *given: left.append(len(stored(*given))) or stored(*given))
    model = np.arange(300 * 400).reshape(300, 400) // 7
    a: Any = store.create("a", model.shape, "i8", building_block=(64, 64), compression=compression, fill_value=-1)
    a[:200] = model[:200]
    store.flush()
    a[5, 6] = 1000  # in the write buffer: that block alone goes by its elements
    alike(store.copy("a", other), a)
    assert left == [2]
    copied: Any = other["a"]
    other.flush()
    assert copied.stat()["blocks_allocated"] == a.stat()["blocks_allocated"]
    store.create("sealed", data=model, compression=compression, encryption_key=KEY)
    alike(store.copy("sealed", "sealed2", encryption_key=KEY), store.open_array("sealed", encryption_key=KEY))
    assert left == [2]


def test_masks_are_stored_and_go_along(store: nandarray.Store, other: nandarray.Store) -> None:
    model = np.ma.masked_greater(np.arange(12).reshape(3, 4), 9)
    store["g/x"] = model
    x = store["g/x"]
    assert x.attrs["_MASK"] == "x.mask"
    assert x[...].tolist() == model.data.tolist()
    for key in [np.s_[...], np.s_[2], np.s_[1:, ::-1], np.s_[[2, 0], [3, 1]], (2, 3), (0, 0)]:
        got, expected = x.masked(key), model[key]
        assert type(got) is type(expected)
        assert np.ma.getmaskarray(got).tolist() == np.ma.getmaskarray(expected).tolist()
        assert np.ma.filled(got, -1).tolist() == np.ma.filled(expected, -1).tolist()
    model[0, 1:], model[2] = np.ma.masked_array([7, 8, 9], [0, 1, 0]), 4
    x.write_masked(np.s_[0, 1:], np.ma.masked_array([7, 8, 9], [0, 1, 0]))
    x.write_masked(2, 4)
    assert x.masked().tolist() == model.tolist()
    with pytest.raises(InvalidError, match="masked elements"):
        x[0] = model[0]
    store.copy("g/x", "y")
    store.copy("g", other)
    assert store["y"].masked().tolist() == other["g/x"].masked().tolist() == model.tolist()
    store.rename("y", "deep/z")
    assert store["deep/z"].masked().tolist() == model.tolist()
    del store["deep/z"]
    assert store.array_names() == ["g/x", "g/x.mask"]
    x.resize((4, 4))
    with pytest.raises(InvalidError, match=r"must have shape \(4, 4\).* resize it, too"):
        x.masked()
    del store["g/x.mask"]
    with pytest.raises(NotFoundError, match="the mask of 'g/x'"):
        x.masked()
    store["taken.mask"] = 1
    with pytest.raises(ExistsError, match=r"'taken\.mask' exists"):
        store["taken"] = model
    assert "taken" not in store
    records = np.ma.array([(1, 2)], [("a", "i4"), ("b", "i4")], mask=[(True, False)])
    with pytest.raises(InvalidError, match="masked one by one"):
        store["records"] = records


def test_fill_values_of_attributes_mask(store: nandarray.Store) -> None:
    store.create("f", data=[1.0, np.nan, -9.0], attrs={"_FillValue": "NaN", "missing_value": -9})
    store.create("t", data=["ab", "X"], attrs={"_FillValue": "X"})
    store["n"] = np.arange(3)
    assert store["f"].masked().mask.tolist() == [False, True, True]
    assert store["t"].masked().tolist() == ["ab", None]
    assert store["n"].masked().mask is np.ma.nomask
    assert store["f"].masked(1) is np.ma.masked
    with pytest.raises(InvalidError, match="has no mask"):
        store["f"].write_masked(..., 1)


def test_required_arrays(store: nandarray.Store) -> None:
    a = store.require_array("g/a", (2, 3), "f8", compression="lz4", attrs={"n": 1})
    assert (a.compression, a.attrs["n"]) == ("lz4", 1)
    a[...] = 5
    assert store.require_array("g/a", (2, 3), "f4")[0, 0] == 5
    for call, words in [
        (lambda: store.require_array("g/a", (3, 2), "f8"), r"has shape \(2, 3\), and not \(3, 2\)"),
        (lambda: store.require_array("g/a", (2, 3), "f4", exact=True), "has dtype float64, and not float32"),
        (lambda: store.require_array("g/a", (2, 3), "c8"), "has dtype float64, and not complex64"),
        (lambda: store.require_array("g", 3, "f8"), "is a group, not an array"),
    ]:
        with pytest.raises(ExistsError, match=words):
            call()  # type: ignore[no-untyped-call]
    with pytest.raises(InvalidError, match="chunks is called building_block"):
        store.require_array("g/a", (2, 3), "f8", chunks=3)
    assert store.require_array("s", (), "i4").shape == ()


def test_walks_are_h5pys(store: nandarray.Store) -> None:
    store["b/c"], store["b/c2/d"], store["a"] = 1, 2, 3
    store.create_group("b/e")
    seen: list[str] = []
    assert store.visit(seen.append) is None
    assert seen == ["a", "b", "b/c", "b/c2", "b/c2/d", "b/e"]
    assert store["b"].visititems(lambda name, one: (name, one[()]) if isinstance(one, nandarray.Array) else None) == (
        "c",
        1,
    )
    with pytest.raises(InvalidError, match="a function of names must be given, not str"):
        store.visit("x")  # type: ignore[arg-type]
    store.move("b", "moved")
    assert "moved/c2/d" in store


def test_cp_on_the_command_line(store: nandarray.Store, tmp_path: Path) -> None:
    store.create("g/x", data=np.arange(6), compression="zstd", attrs={"n": 1})
    store["y"] = np.ma.masked_array([1, 2], [True, False])
    store.close()

    def cp(source: str, to: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["cp", source, to])
        return result.exit_code, result.stderr

    assert cp("data.nand:/g/x", "data.nand:/z") == (0, "")
    assert cp("data.nand", "all.nand") == (0, "")
    assert cp("data.nand:/g", "new.nand:/deep/h/") == (0, "")
    assert cp("data.nand:/y", "new.nand") == (0, "")
    with nandarray.open("all.nand") as found:
        assert found.array_names() == ["g/x", "y", "y.mask", "z"]
    with nandarray.open("new.nand") as found:
        assert found.array_names() == ["deep/h/x", "y", "y.mask"]
        assert (found["deep/h/x"].compression, dict(found["deep/h/x"].attrs)) == ("zstd", {"n": 1})
    for words, said in [
        (("data.nand:/g/z", "fresh.nand"), "no array 'g/z'"),
        (("data.nand:/y", "all.nand"), "an array named 'y' exists"),
        (("none.nand:/y", "fresh.nand"), "none.nand"),
    ]:
        code, error = cp(*words)
        assert code == 1
        assert said in error
    assert not (tmp_path / "fresh.nand").exists()


def test_the_constant_masked_hides_an_element_and_keeps_it(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "m.nand", "w") as store:
        store["m"] = np.ma.array([3.0, 4.0, 5.0], mask=[False, False, True])
        store["m"].write_masked(0, np.ma.masked)
        assert store["m"].masked().tolist() == [None, 4.0, None]
        assert store["m"][:2].tolist() == [3.0, 4.0]
        store.create("other", data=np.zeros(3), attrs=dict(store["m"].attrs))
        with pytest.raises(InvalidError, match="mask of another array"):
            store["other"].write_masked(1, np.ma.masked)
        assert store["m"].masked().tolist() == [None, 4.0, None]
        store.create("u", data=np.array([1, 2], "u1"), attrs={"_FillValue": 1.5})
        assert store["u"].masked().tolist() == [1, 2]
        store["u"].attrs["_FillValue"] = [1, 2]
        with pytest.raises(InvalidError, match="one value"):
            store["u"].masked()
