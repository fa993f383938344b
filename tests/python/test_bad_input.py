"""Bad input: each mistake has its exception, its built-in, its numbers, and leaves the store usable."""

from __future__ import annotations

import os
import pathlib
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import nandarray
from nandarray import _nandarray, errors

S = nandarray.Store
Case = tuple[str, Callable[[S], Any], type[Exception], type[Exception], str]


def nested(depth: int) -> list[Any]:
    inside: list[Any] = []
    for _ in range(depth):
        inside = [inside]
    return inside


CASES: list[Case] = [
    ("unknown name", lambda s: s["nope"], nandarray.NotFoundError, KeyError, "'nope'"),
    ("near name", lambda s: s["arrey"], nandarray.NotFoundError, KeyError, "did you mean 'array'"),
    ("unknown in group", lambda s: s["g"]["nope"], nandarray.NotFoundError, KeyError, "'g/nope'"),
    ("delete unknown", lambda s: s.__delitem__("nope"), nandarray.NotFoundError, KeyError, "'nope'"),
    ("delete the root", lambda s: s.__delitem__("/"), nandarray.InvalidError, ValueError, "root"),
    ("group as array", lambda s: s.open_array("g"), nandarray.ExistsError, ValueError, "'g' is a group"),
    ("name taken", lambda s: s.create("array", 3), nandarray.ExistsError, ValueError, "'array'"),
    ("assign over", lambda s: s.__setitem__("array", [1]), nandarray.ExistsError, ValueError, "'array'"),
    ("name is a group", lambda s: s.create("g", 3), nandarray.ExistsError, ValueError, "'g'"),
    ("below an array", lambda s: s.create("array/x", 3), nandarray.ExistsError, ValueError, "'array' is an array"),
    ("group taken", lambda s: s.create_group("g"), nandarray.ExistsError, ValueError, "'g'"),
    ("empty part", lambda s: s.create("a//b", 3), nandarray.InvalidError, ValueError, '"a//b"'),
    ("dots", lambda s: s.create("a/../b", 3), nandarray.InvalidError, ValueError, '"[.][.]"'),
    ("reserved", lambda s: s.create("g/.group", 3), nandarray.InvalidError, ValueError, '".group"'),
    ("name no text", lambda s: s[3], nandarray.InvalidError, ValueError, "int: 3"),  # type: ignore[index]
    ("name no Unicode", lambda s: s.create("a\ud800", 3), nandarray.InvalidError, ValueError, "surrogates"),
    ("word no Unicode", lambda s: s.create("x", 3, compression="\ud800"), nandarray.InvalidError, ValueError, "word"),
    ("deep attrs", lambda s: s.create("x", 3, attrs={"a": nested(99_999)}), nandarray.InvalidError, ValueError, "deep"),
    ("negative length", lambda s: s.create("x", (3, -1)), nandarray.InvalidError, ValueError, "-1 on axis 1"),
    ("length too large", lambda s: s.create("x", 2**64 + 1), nandarray.InvalidError, ValueError, str(2**64 + 1)),
    ("shape no integers", lambda s: s.create("x", cast(Any, (3, 1.5))), nandarray.InvalidError, ValueError, "1.5"),
    ("33 dimensions", lambda s: s.create("x", (1,) * 33), nandarray.InvalidError, ValueError, "33"),
    ("not a dtype", lambda s: s.create("x", 3, "f3"), nandarray.InvalidError, ValueError, "f3"),
    ("block dimensions", lambda s: s.create("x", (3, 3), building_block=4), nandarray.InvalidError, ValueError, "4"),
    ("compression", lambda s: s.create("x", 3, compression="best"), nandarray.InvalidError, ValueError, "best"),
    ("ragged data", lambda s: s.__setitem__("x", [[1], [2, 3]]), nandarray.InvalidError, ValueError, "'x'.*list"),
    ("objects", lambda s: s.create("x", data=np.array([None])), nandarray.InvalidError, ValueError, "Python objects"),
    ("key length", lambda s: s.create("x", 3, encryption_key=b"k"), nandarray.InvalidError, ValueError, "1 bytes.*32"),
    ("key type", lambda s: s.create("x", 3, encryption_key=cast(Any, "k")), nandarray.InvalidError, ValueError, "str"),
    ("fill shape", lambda s: s.create("x", 3, fill_value=[1, 2]), nandarray.InvalidError, ValueError, r"\(2,\)"),
    ("fill type", lambda s: s.create("x", 3, "i4", fill_value="no"), nandarray.InvalidError, ValueError, "int32"),
    ("bad attrs", lambda s: s.create("x", 3, attrs={"a": b""}), nandarray.InvalidError, ValueError, "JSON"),
    ("index", lambda s: s["array"][0, 7], nandarray.BadIndexError, IndexError,
     "index 7 is out of bounds for axis 1 with size 4"),
    ("negative index", lambda s: s["array"][-4], nandarray.BadIndexError, IndexError,
     "index -4 is out of bounds for axis 0 with size 3"),
    ("index in a list", lambda s: s["array"][:, [0, 4]], nandarray.BadIndexError, IndexError,
     "index 4 is out of bounds for axis 1 with size 4"),
    ("too many indices", lambda s: s["array"][0, 0, 0], nandarray.BadIndexError, IndexError, "2-dimensional, but 3"),
    ("two ellipses", lambda s: s["array"][..., ...], nandarray.BadIndexError, IndexError, "ellipsis"),
    ("float index", lambda s: s["array"][1.0], nandarray.BadIndexError, IndexError, "1.0"),
    ("text index", lambda s: s["array"]["x"], nandarray.BadIndexError, IndexError, "'x'"),
    ("float slice", lambda s: s["array"][0.5:], nandarray.BadIndexError, IndexError, "slice"),
    ("zero step", lambda s: s["array"][::0], nandarray.InvalidError, ValueError, "zero"),
    ("mask of another size", lambda s: s["array"][np.ones(5, bool)], nandarray.BadIndexError, IndexError,
     "size of axis is 3 but size of corresponding boolean axis is 5"),
    ("arrays that do not broadcast", lambda s: s["array"][[0, 1], [0, 1, 2]], nandarray.BadIndexError, IndexError,
     r"\(2,\) \(3,\)"),
    ("2-D in oindex", lambda s: s["array"].oindex[[[0]]], nandarray.BadIndexError, IndexError, "1-D"),
    ("wrong values", lambda s: s["array"].__setitem__(0, [1, 2, 3]), nandarray.InvalidError, ValueError,
     r"\(3,\) into shape \(4,\)"),
    ("ragged values", lambda s: s["array"].__setitem__(0, [[1], [2, 3]]), nandarray.InvalidError, ValueError,
     "float32"),
    ("view volume", lambda s: s["array"].view((5, 3)), nandarray.VolumeMismatchError, ValueError,
     r"\(5, 3\) has 15 elements.*\(3, 4\) has 12"),
    ("view open axis", lambda s: s["array"].view((5, -1)), nandarray.VolumeMismatchError, ValueError, "12 elements.*5"),
    ("view two open axes", lambda s: s["array"].view((-1, -1)), nandarray.InvalidError, ValueError, "not 2"),
    ("view of 33", lambda s: s["array"].view((1,) * 32 + (12,)), nandarray.InvalidError, ValueError, "33"),
    ("sub-block outside", lambda s: s["array"].view((2, 6)).read((0, 3), (2, 2)), nandarray.BadIndexError, IndexError,
     r"coordinate 3 \(element 6\) is out of bounds for axis 1, size 6"),
    ("negative coordinate", lambda s: s["array"].view((2, 6)).read((0, -1), (2, 2)), nandarray.BadIndexError,
     IndexError, "-1"),
    ("coordinate dimensions", lambda s: s["array"].view((2, 6)).read((0,), (2, 2)), nandarray.InvalidError, ValueError,
     "must have 2 entries.*not 1"),
    ("empty sub-block", lambda s: s["array"].view(12).read((0,), (0,)), nandarray.InvalidError, ValueError,
     "at least 1 on axis 0, not 0"),
    ("resize dimensions", lambda s: s["array"].resize((3, 4, 5)), nandarray.InvalidError, ValueError,
     "must have 2 dimensions"),
    ("resize axis", lambda s: s["array"].resize(3, axis=2), nandarray.BadIndexError, IndexError, "axis 2"),
    ("out of shape", lambda s: s["array"].read(0, out=np.zeros(5, "f4")), nandarray.InvalidError, ValueError,
     r"\(5,\).*\(4,\)"),
    ("mode", lambda s: nandarray.open("other.nand", cast(Any, "q")), nandarray.InvalidError, ValueError, "'q'"),
    ("path type", lambda s: nandarray.open(3), nandarray.InvalidError, ValueError, "int"),  # type: ignore[arg-type]
    ("no such file", lambda s: nandarray.open("other.nand"), nandarray.NandarrayError, Exception, "other.nand"),
    ("second writer", lambda s: nandarray.open(s.path, mode="r+"), nandarray.LockedError, OSError, "data.nand"),
    ("field of none", lambda s: s["array"]["b"], nandarray.BadIndexError, IndexError, "an array, not a group"),
    ("fields of a view", lambda s: s.open_array("array").view(-1)[["b"]], nandarray.BadIndexError, IndexError, "'b'"),
    ("view by dtype", lambda s: s.open_array("array").view(cast(Any, "f4")), nandarray.InvalidError, ValueError,
     "view must be given a shape, not the dtype 'f4': astype"),
    ("rows by name", lambda s: s.create_ragged("x", {"a": [1]}), nandarray.InvalidError, ValueError, "not of dict"),
    ("rows in no order", lambda s: s.create_ragged("x", {1, 2}), nandarray.InvalidError, ValueError, "not of set"),
    ("run by name", lambda s: s.open_array("array").offload(cast(Any, "merge")), nandarray.InvalidError, ValueError,
     "programs.get.'merge'"),
]  # fmt: skip


@pytest.mark.parametrize(("use", "error", "builtin", "message"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_mistakes(
    store: nandarray.Store, use: Callable[[S], Any], error: type[Exception], builtin: type[Exception], message: str
) -> None:
    model = np.arange(12, dtype="f4").reshape(3, 4)
    store["array"] = model
    store["g/inner"] = [1]
    with pytest.raises(error, match=message) as info:
        use(store)
    assert isinstance(info.value, nandarray.NandarrayError)
    assert isinstance(info.value, builtin)
    assert np.array_equal(store["array"][:], model)
    assert store.array_names() == ["array", "g/inner"]
    store["after"] = [1]
    assert store.check()["ok"]


def test_a_read_only_store_changes_nothing(path: pathlib.Path) -> None:
    with nandarray.open(path, mode="w") as store:
        store["a"] = [1, 2, 3]
        store.create_group("g", attrs={"x": 1})
    before = path.read_bytes()
    with nandarray.open(path) as store:
        a = store["a"]
        for use in (
            lambda: a.__setitem__(0, 5), lambda: a.__setitem__(..., 0), lambda: a.attrs.update(x=1),
            lambda: a.resize(5), lambda: a.append([1]), lambda: store.create("b", 1), lambda: store.__delitem__("a"),
            lambda: store.rename("a", "b"), lambda: store.create_group("h"), lambda: store["g"].attrs.clear(),
            lambda: a.view(3).write((0,), [1]), lambda: a.__setitem__([0, 1], 7), store.compact,
        ):  # fmt: skip
            with pytest.raises(nandarray.ReadOnlyError) as info:
                use()
            assert isinstance(info.value, OSError)
        assert a[:].tolist() == [1, 2, 3]
        assert store.require_group("g").attrs["x"] == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"x", b"\x89HDF\r\n\x1a\n" + bytes(4096), bytes(1 << 16)])
@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_a_file_that_is_not_ours_is_left_alone(path: pathlib.Path, content: bytes, mode: Any) -> None:
    path.write_bytes(content)
    if mode == "a" and not any(content):
        # Nothing, or the zeroes that a store leaves whose making was cut short: there is nothing to lose.
        nandarray.open(path, mode=mode).close()
        return
    # A file of another format is read in place, if it is one.
    error: Any = nandarray.InvalidError if content[1:4] == b"HDF" else nandarray.NotAStoreError
    with pytest.raises(error, match=r"data\.nand"):
        nandarray.open(path, mode=mode)
    assert issubclass(nandarray.NotAStoreError, OSError)
    assert path.read_bytes() == content


@pytest.mark.parametrize("mode", ["r", "r+", "a", "w"])
def test_what_is_no_file_is_refused_at_once(tmp_path: pathlib.Path, mode: Any) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, what in [(tmp_path, "a directory"), (fifo, "a FIFO"), (pathlib.Path("/dev/null"), "a device")]:
        with pytest.raises(nandarray.NotAStoreError, match=f"it is {what}, not a file") as info:
            nandarray.open(path, mode=mode)
        assert str(path) in str(info.value)
    with pytest.raises(nandarray.InvalidError, match="'ftp://host/data.nand' is a URL"):
        nandarray.open("ftp://host/data.nand", mode=mode)
    with pytest.raises(nandarray.InvalidError, match="'ftp://host/parts.nand' is a URL"):
        nandarray.parts.create("ftp://host/parts.nand")


def test_threads_have_a_limit(path: pathlib.Path) -> None:
    with nandarray.open(path, mode="w", threads=3) as store:
        store["a"] = [1, 2, 3]
    for mode in ("r", "r+", "a", "w"):
        with pytest.raises(nandarray.InvalidError, match="threads must be from 1 to 1024, not 20000"):
            nandarray.open(path, mode=mode, threads=20_000)
    with nandarray.open(path) as store:
        assert store["a"][...].tolist() == [1, 2, 3]


def test_large_elements_are_refused_before_they_are_made(tmp_path: pathlib.Path) -> None:
    header = b"{'descr': '|V2147483647', 'fortran_order': False, 'shape': (0,), }"
    header = header.ljust(117) + b"\n"
    (tmp_path / "v.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    script = """
import resource
import nandarray
with nandarray.open(device="tiny", mode="w") as store:
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30),) * 2)
    for make in (
        lambda: store.create("a", 3, "V2147483647"),
        lambda: store._engine.create("a", (3,), 2147483647, "|V2147483647"),
        lambda: nandarray.import_("v.npy", store, "in"),
    ):
        try:
            make()
        except nandarray.InvalidError as error:
            print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    said = done.stdout.splitlines()
    assert len(said) == 3, done.stderr
    assert all("elements must have from 1 to 65536 bytes, not 2147483647" in line for line in said), said


def test_blocks_that_cost_far_more_than_they_hold_are_refused(store: nandarray.Store) -> None:
    with pytest.raises(nandarray.InvalidError, match=r"the 9000000 of this array would take 4096 times what they hold"):
        store.create("a", (3000, 3000), "u1", building_block=(1, 1))
    store.create("a", (100, 100), "u1", building_block=(1, 1))[...] = 1
    store.create("b", (3000, 3000), "u1", building_block=(8, 8))


def test_a_writer_keeps_others_out_until_it_closes(path: pathlib.Path) -> None:
    with nandarray.open(path, mode="w") as first:
        first["a"] = [1]
        first.flush()
        for mode in ("r+", "a", "w"):
            with pytest.raises(nandarray.LockedError):
                nandarray.open(path, mode=mode)
        assert first["a"][0] == 1
        with nandarray.open(path) as reader:
            assert reader["a"][0] == 1
    with nandarray.open(path, mode="r+") as second:
        assert second["a"][0] == 1


def test_native_and_python_know_the_same_kinds() -> None:
    assert set(_nandarray.error_kinds()) <= set(errors.BY_KIND)
    # Descriptions of devices are read beside the engine, programs compiled, doors opened, parts committed, and objects
    # fetched from far away.
    beside = {"error", "description", "program", "compile", "malformed-line", "door"}
    beside |= {"part", "conflict", "receipt", "commit-unknown", "denied", "changed"}
    assert set(errors.BY_KIND) - set(_nandarray.error_kinds()) <= beside


def test_every_error_is_exported_and_has_its_builtin() -> None:
    builtins = (KeyError, IndexError, ValueError, OSError, RuntimeError)
    for kind, cls in errors.BY_KIND.items():
        assert getattr(nandarray, cls.__name__) is cls
        assert kind == cls.kind
        if cls is not nandarray.NandarrayError:
            assert issubclass(cls, nandarray.NandarrayError)
            assert issubclass(cls, builtins)


def test_more_blocks_than_one_command_takes(store: nandarray.Store) -> None:
    a = store.create("vast", (2**50,), "u1")
    with pytest.raises(ValueError, match=r"touches \d+ building blocks along axis 0"):
        a[...] = 1
    a[...] = 0
    assert a[2**49] == 0


@pytest.mark.parametrize(
    "options",
    [{"threads": -1}, {"write_buffer": -1}, {"seed": -1}, {"capacity": 2**70}, {"capacity": "much"}, {"threads": 1.5},
     {"geometry": {"page_bytes": 4096.5}}, {"geometry": {"channels": -4}}, {"placement": "\ud800"}, {"preset": 3}],
    ids=str,
)  # fmt: skip
def test_numbers_and_words_of_open(tmp_path: pathlib.Path, options: dict[str, Any]) -> None:
    (what,) = options.get("geometry", options)
    with pytest.raises(nandarray.InvalidError, match=what) as caught:
        nandarray.open(tmp_path / "x.nand", "w", **options)
    assert isinstance(caught.value, ValueError)
    assert not (tmp_path / "x.nand").exists()


def test_paths_that_are_no_unicode(tmp_path: pathlib.Path) -> None:
    for path in (str(tmp_path / "a\ud800"), bytes(tmp_path / "a") + b"\xff"):
        with pytest.raises(nandarray.InvalidError, match="not UTF-8"):
            nandarray.open(path, "w")


def test_a_path_with_a_null_character(tmp_path: pathlib.Path) -> None:
    for mode in ("r", "w"):
        with pytest.raises(nandarray.InvalidError, match="null character"):
            nandarray.open(f"{tmp_path}/a\0b", mode)


def test_methods_that_there_are_not_name_what_takes_their_place(store: nandarray.Store) -> None:
    store["a"], store["g/x"] = np.arange(6.0).reshape(2, 3), [1]
    rows = store.create_ragged("rows", [[1, 2], [3]])
    joined = nandarray.concat([store.open_array("a")] * 2)
    for one, name, says in (
        (store["a"], "T", "elements are read first, as in a[...].T"), (store["a"], "reshape", "a.view((2, 3))"),
        (store["a"], "groupby", "group_by"), (store["a"], "median", 'a.reduce("median"'), (joined, "sum", "a[...].sum"),
        (store["g"], "shape", "group['name']"), (rows, "reduce", "ragged.values.reduce"),
        (store.open_array("a").group_by([1, 2]), "mean", 'reduce("mean")'), (joined, "median", "has no attribute"),
    ):  # fmt: skip
        with pytest.raises(AttributeError) as caught:
            getattr(one, name)
        assert str(caught.value).startswith(f"{type(one).__name__!r} object has no attribute {name!r}")
        assert says in str(caught.value)
    assert not hasattr(store["a"], "nothing")
