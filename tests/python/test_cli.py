"""The command line, at a shell and in scripts."""

from __future__ import annotations

import ast
import base64
import functools
import json
import operator
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import h5py
import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from test_reserved_names import old_store
from typer.testing import CliRunner

import nandarray
from nandarray.cli import app, common, read
from nandarray.index.text import parse_slices

KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NANDARRAY_KEY", raising=False)


def call(*words: Any, code: int = 0) -> str:
    """Run one command; give its standard output, or its standard error where it is to fail."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (words, result.output, result.exception)
    assert "Traceback" not in result.output
    return result.stderr if code else result.stdout


def loads(*words: Any) -> Any:
    return json.loads(call(*words, "--json"), parse_constant=pytest.fail)


@pytest.fixture
def filled() -> np.ndarray[Any, Any]:
    data = np.arange(30 * 40, dtype="f4").reshape(30, 40)
    with nandarray.open("d.nand", "w") as store:
        store.create("run/temp", data=data, building_block=(8, 8), attrs={"units": "K"}, compression="lz4")
        store["other"] = np.arange(5)
        store["run"].attrs["by"] = "me"
    return data


# --- making, looking, removing ----------------------------------------------------------------------------------------


def test_create_and_look() -> None:
    call("create", "d.nand")
    assert call("ls", "d.nand") == ""
    call(
        "create", "d.nand", "g/a", "--shape", "100x200", "--dtype", "i2", "--building-block", "16,32", "--compression",
        "zstd:3", "--fill-value", "-1", "--dims", "y, x", "--attr", "units=K", "--attr", "range=[0, 5]",
    )  # fmt: skip
    call("create", "d.nand", "scalar", "--shape", "()")
    assert call("ls", "d.nand") == "g/a\nscalar\n"
    assert "100 x 200" in call("ls", "-l", "d.nand", "g")
    assert "└── a  100 x 200 int16" in call("tree", "d.nand")
    known = loads("info", "d.nand", "g/a")
    assert known["shape"] == [100, 200]
    assert known["building_block"] == [16, 32]
    assert known["compression"].startswith("zstd")
    assert known["fill_value"] == -1
    assert known["attrs"] == {"units": "K", "range": [0, 5], "_ARRAY_DIMENSIONS": ["y", "x"]}
    assert "building block" in call("info", "d.nand", "g/a")
    assert loads("info", "d.nand")["arrays"] == 2
    assert loads("info", "d.nand", "g")["arrays"] == 1
    assert loads("tree", "d.nand")["g"]["a"]["dtype"] == "int16"
    assert [item["name"] for item in loads("ls", "d.nand")] == ["g/a", "scalar"]
    assert call("read", "d.nand", "g/a", "0,0") == "-1\n"


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int8", "300"),
        ("int8", "1.5"),
        ("uint8", "-1"),
        ("float32", "1e300"),
        ("float32", "1" + "0" * 40),
        ("U2", "abc"),
        ("bool", "2"),
    ],
)
def test_a_fill_value_that_the_dtype_does_not_hold_is_refused(dtype: str, value: str) -> None:
    said = call("create", "f.nand", "b", "--shape", "3", "--dtype", dtype, "--fill-value", value, code=2)
    assert "is not held by" in " ".join(said.replace("│", "").split())
    assert not Path("f.nand").exists()


def test_move_and_remove(filled: np.ndarray[Any, Any]) -> None:
    call("mv", "d.nand", "run/temp", "later/temp2")
    assert call("ls", "d.nand") == "later/temp2\nother\n"
    call("mv", "d.nand", "later", "x/y")
    call("rm", "d.nand", "other", "x")
    assert call("ls", "d.nand") == ""


def test_nothing_is_removed_if_one_name_is_wrong(filled: np.ndarray[Any, Any]) -> None:
    assert "did you mean 'other'" in call("rm", "d.nand", "run/temp", "othr", code=1)
    assert call("ls", "d.nand") == "other\nrun/temp\n"


def test_attributes(filled: np.ndarray[Any, Any]) -> None:
    assert call("attrs", "get", "d.nand", "run/temp") == "units=K\n"
    call("attrs", "set", "d.nand", "run/temp", "n=5", "note=two words", "x=NaN")
    assert call("attrs", "get", "d.nand", "run/temp", "n") == "5\n"
    assert call("attrs", "get", "d.nand", "run/temp", "note") == "two words\n"
    assert loads("attrs", "get", "d.nand", "run/temp") == {"units": "K", "n": 5, "note": "two words", "x": "NaN"}
    call("attrs", "rm", "d.nand", "run/temp", "n")
    assert "no attribute 'n'; it has units" in call("attrs", "get", "d.nand", "run/temp", "n", code=1)
    assert call("attrs", "get", "d.nand", "run", "by") == "me\n"
    call("attrs", "set", "d.nand", "/", "title=t")
    assert call("attrs", "get", "d.nand") == "title=t\n"
    assert "not KEY=VALUE" in call("attrs", "set", "d.nand", "/", "oops", code=2)


def test_stat_check_compact(filled: np.ndarray[Any, Any]) -> None:
    assert isinstance(loads("stat", "d.nand"), dict)
    assert call("stat", "d.nand")
    assert loads("check", "d.nand")["ok"] is True
    assert call("check", "d.nand", "--repair").startswith("ok")
    assert "->" in call("compact", "d.nand")
    assert {"file_before", "file_after"} <= set(loads("compact", "d.nand"))


def test_check_fails_with_exit_code_1(filled: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"ok": False, "errors": [{"array": "a", "block": 3}, "page 5"], "repaired": ["index of a"], "pages": 1000}
    monkeypatch.setattr(nandarray.Store, "check", lambda self, *, repair, accept_older: found)
    result = CliRunner().invoke(app, ["check", "d.nand"])
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "error: array a, block 3", "error: page 5", "repaired: index of a", "damaged: 2 errors (pages: 1,000)",
    ]  # fmt: skip


def test_info_shows_bytes_in_hexadecimal() -> None:
    pair = np.dtype([("n", "<u2"), ("raw", "V3"), ("deep", [("x", "f4", 2)])])
    with nandarray.open("d.nand", "w") as store:
        store.create("pair", (3,), pair, fill_value=np.array((7, b"\x01\x02\xff", ([0.5, 1.5],)), pair))
        store.create("plain", (3,), "V4", fill_value=np.void(b"\x00\xab\xcd\xef"))
        uuid = store.geometry()["uuid"]
    for name, expected in (("plain", "00abcdef"), ("pair", {"n": 7, "raw": "0102ff", "deep": {"x": [0.5, 1.5]}})):
        assert loads("info", "d.nand", name)["fill_value"] == expected
        shown = expected if isinstance(expected, str) else json.dumps(expected)
        assert shown in call("info", "d.nand", name).replace("\n", " ")
    geometry = loads("info", "d.nand")["geometry"]
    assert UUID(geometry["uuid"]).bytes == uuid
    assert f"uuid: {geometry['uuid']}" in call("info", "d.nand")


def test_older_content_is_accepted_only_by_its_option() -> None:
    with nandarray.open("d.nand", "w") as store:
        a = store.create("a", (512,), "f8")
        a[...] = 1
        store.flush()
        a[...] = 2
    raw = bytearray(Path("d.nand").read_bytes())
    raw[raw.rfind(np.full(512, 2.0).tobytes()) + 9] ^= 1
    Path("d.nand").write_bytes(raw)
    assert "--accept-older goes with --repair" in call("check", "d.nand", "--accept-older", code=1)
    result = CliRunner().invoke(app, ["check", "d.nand", "--repair"])
    assert result.exit_code == 1
    assert "repaired" not in result.stdout
    assert "building block" in call("read", "d.nand", "a", code=1)
    assert "OLDER content" in call("check", "d.nand", "--repair", "--accept-older")
    with nandarray.open("d.nand") as store:
        assert (store["a"][...] == 1).all()


# --- reading ----------------------------------------------------------------------------------------------------------


def test_read_prints_like_numpy(filled: np.ndarray[Any, Any]) -> None:
    assert (
        call("read", "d.nand", "run/temp", "0:2, ::-13") == np.array2string(filled[0:2, ::-13], separator=", ") + "\n"
    )
    assert call("read", "d.nand", "run/temp", "-1, -1") == "1199.0\n"
    assert call("read", "d.nand", "run/temp", "-2:, 0") == "[1120., 1160.]\n"
    short = call("read", "d.nand", "run/temp")
    assert len(short.splitlines()) == 7
    assert "..." in short
    assert "..." not in call("read", "d.nand", "run/temp", "--all")
    assert call("read", "d.nand", "run/temp", "0, :2", "--view", "40,30") == "[0., 1.]\n"


def test_read_as_json_and_to_a_file(filled: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_SLAB_BYTES", 640)  # many slabs
    assert loads("read", "d.nand", "run/temp", "::-3, [5, 0]") == filled[::-3][:, [5, 0]].tolist()
    assert loads("read", "d.nand", "run/temp", "None, :, :") == filled[None].tolist()
    assert loads("read", "d.nand", "run/temp") == filled.tolist()
    assert loads("read", "d.nand", "run/temp", "3, 3") == filled[3, 3]
    call("read", "d.nand", "run/temp", "5:, ::-1", "-o", "out.npy")
    np.testing.assert_array_equal(np.load("out.npy"), filled[5:, ::-1])
    assert sorted(os.listdir()) == ["d.nand", "out.npy"]


def test_json_of_every_dtype() -> None:
    structured = np.array([(1, 2.5, b"x")], np.dtype([("i", "i4"), ("f", "f8"), ("s", "S2")]))
    with nandarray.open("d.nand", "w") as store:
        store["f"] = np.array([np.nan, np.inf, -np.inf, 1.5])
        store["c"] = np.array([1 + 2j])
        store["t"] = np.array(["2001-01-01", "NaT"], "M8[D]")
        store["d"] = np.array([5], "m8[s]")
        store["s"] = np.array([b"ab"])
        store["u"] = np.array(["ä"])
        store["b"] = np.array([True])
        store["v"] = structured
    assert loads("read", "d.nand", "f") == ["NaN", "Infinity", "-Infinity", 1.5]
    assert loads("read", "d.nand", "c") == [[1, 2]]
    assert loads("read", "d.nand", "t") == ["2001-01-01", "NaT"]
    assert loads("read", "d.nand", "d") == [5]
    assert loads("read", "d.nand", "s") == ["ab"]
    assert loads("read", "d.nand", "u") == ["ä"]
    assert loads("read", "d.nand", "b") == [True]
    assert loads("read", "d.nand", "v") == [{"i": 1, "f": 2.5, "s": "x"}]


def test_arrays_larger_than_anything(filled: np.ndarray[Any, Any]) -> None:
    call("create", "d.nand", "huge", "--shape", "1_000_000_000_000,9_000_000_000", "--dtype", "u1")
    assert len(call("read", "d.nand", "huge").splitlines()) == 7
    assert call("read", "d.nand", "huge", "999999999999, 5:7") == "[0, 0]\n"
    assert "huge" in call("ls", "-l", "d.nand")


item = st.one_of(
    st.integers(-6, 5),
    st.builds(
        slice, st.none() | st.integers(-9, 9), st.none() | st.integers(-9, 9), st.sampled_from([None, 1, -1, 2, -3])
    ),
    st.none(),
    st.lists(st.integers(-6, 5), max_size=3),
)


@given(st.lists(item, max_size=4).map(tuple), st.booleans(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_any_part_of_any_selection(key: Any, dots: bool, random: Any) -> None:  # noqa: FBT001
    """A selection cut into boxes is NumPy's, with every list along its own axis."""
    data = np.arange(6**3).reshape(6, 6, 6)
    key = (*key[:1], Ellipsis, *key[1:]) if dots else key
    with nandarray.open("h.nand", "w") as store:
        store["a"] = data
        if sum(part is not None and part is not Ellipsis for part in key) > 3:
            with pytest.raises(nandarray.BadIndexError):
                read.Picked(store["a"], key)
            return
        expected, axis = data, 0
        whole = [slice(None)] * (3 - sum(part is not None and part is not Ellipsis for part in key))
        at = key.index(Ellipsis) if Ellipsis in key else len(key)
        for part in (*key[:at], *whole, *key[at + 1 :]):
            expected = expected[(slice(None),) * axis + (part,)]
            axis += not isinstance(part, int)
        picked = read.Picked(store["a"], key)
        assert picked.shape == expected.shape
        lows = [random.randint(0, n) for n in picked.shape]
        box = tuple(slice(low, random.randint(low, n)) for low, n in zip(lows, picked.shape, strict=True))
        np.testing.assert_array_equal(picked.read(box), expected[box])


# --- import and export ------------------------------------------------------------------------------------------------


def test_import_and_export(filled: np.ndarray[Any, Any]) -> None:
    np.save("x.npy", filled)
    assert "imported 1 array (4.7 KiB): x" in call("import", "x.npy", "d.nand", "--building-block", "4,4")
    assert loads("import", "x.npy", "new.nand", "g/y") == {"arrays": ["g/y"], "bytes": filled.nbytes}
    assert call("import", "x.npy", "d.nand", "z", "-q", "--compression", "zstd") == ""
    call("export", "d.nand", "x", "back.npy", "--order", "F")
    np.testing.assert_array_equal(np.load("back.npy"), filled)
    call("export", "d.nand", "/", "all.h5", "--compression", "gzip:1")
    with h5py.File("all.h5") as file:
        assert file["run/temp"].compression == "gzip"
    call("import", "all.h5", "d.nand", "part", "--member", "run", "--quiet")
    assert loads("info", "d.nand", "part/temp")["attrs"] == {"units": "K"}
    filled.tofile("x.bin")
    call("import", "x.bin", "d.nand", "raw", "--shape", "30,40", "--dtype", "f4", "-q", "--budget", "1KiB")
    assert loads("read", "d.nand", "raw") == filled.tolist()


def test_import_and_export_errors(filled: np.ndarray[Any, Any]) -> None:
    assert call("import", "none.npy", "d.nand", code=1) == "nandarray: error: none.npy: no such file\n"
    np.save("other.npy", filled)
    assert "already has 'other'" in call("import", "other.npy", "d.nand", code=1)
    assert "other.npy: exists already" in call("export", "d.nand", "other", "other.npy", code=1)
    assert "cannot tell the format" in call("export", "d.nand", "other", "other.xyz", code=1)
    with h5py.File("a.h5", "w") as file:
        file["fine"] = filled
        file.create_dataset("ragged", (2, 1), h5py.vlen_dtype("i4"))
    assert "elements of variable length in 2 dimensions" in call("import", "a.h5", "d.nand", code=1)
    with pytest.warns(UserWarning, match="left out: ragged"):
        call("import", "a.h5", "d.nand", "--skip-unsupported")
    assert loads("read", "d.nand", "fine") == filled.tolist()
    Path("text.h5").write_text("hello")
    assert len(call("import", "text.h5", "new.nand", code=1).splitlines()) == 1


def test_a_failed_import_makes_no_store() -> None:
    call("import", "none.npy", "new.nand", code=1)
    assert not Path("new.nand").exists()


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["ls", "none.nand"], 1, "none.nand: no such file"),
        (["ls", "."], 1, "is a directory, not a store"),
        (["ls", "not.nand"], 1, "not a nandarray store"),
        (["read", "d.nand", "run/tmp"], 1, "no array 'run/tmp' in d.nand; did you mean 'run/temp'?"),
        (["read", "d.nand", "temp"], 1, "did you mean 'run/temp'?"),
        (["read", "d.nand", "run"], 1, "is a group"),
        (["read", "d.nand", "other", "7"], 1, "index 7 is out of bounds for axis 0 with 5 elements"),
        (["read", "d.nand", "other", "0, 0"], 1, "2 indices for an array of 1 dimensions"),
        (["read", "d.nand", "other", "--view", "7"], 1, "5"),
        (["read", "d.nand", "other", "1:x"], 2, "'x' is not an integer"),
        (["create", "d.nand", "other", "--shape", "3"], 1, "other"),
        (["create", "d.nand", "new"], 2, "needs --shape"),
        (["create", "d.nand", "new", "--shape", "3,a"], 2, "is not a shape"),
        (["create", "d.nand", "new", "--shape", "3", "--dtype", "float99"], 2, "'float99' is not a dtype"),
        (["create", "d.nand", "new", "--shape", "3", "--dtype", "i1", "--fill-value", "300"], 2, "300"),
        (["create", "none/d.nand"], 1, "none: there is no such folder to make 'd.nand' in"),
        (["read", "d.nand", "other", "-o", "none/x.npy"], 1, "none: there is no such folder to make 'x.npy' in"),
        (["export", "d.nand", "other", "none/x.zarr"], 1, "none: there is no such folder to make 'x.zarr' in"),
        (["export", "d.nand", "other", "x.npy", "--format", "exe"], 2, "--format is one of npy"),
        (["export", "d.nand", "other", "x.npy", "--order", "G"], 2, "--order is C or F"),
        (["export", "d.nand", "other", "x.exe"], 1, "by its name: give --format one of npy"),
        (["export", "d.nand", "other", "not.nand", "--format", "raw"], 1, "exists already; --overwrite replaces it"),
        (["export", "format=3/d.nand", "other", "x.npy"], 1, "error: format=3/d.nand"),  # folders as Hive names them
        (["export", "no/format=npy/d.nand", "other", "x.npy"], 1, "error: no/format=npy/d.nand"),
        (["import", "not.nand", "d.nand", "--dtype", "f99"], 2, "'f99' is not a dtype"),
        (["create", "d.nand", "new", "--shape", "3", "--dims", "x,y"], 2, "names 2 dimensions"),
        (["create", "d.nand", "new", "--shape", "3", "--encrypt"], 2, "needs a key"),
        (["create", "e.nand", "--capacity", "lots"], 2, "a size must be like"),
        (["mv", "d.nand", "other", "run/temp"], 1, "run/temp"),
        (["nosuch"], 2, "No such command"),
        (["read", "d.nand"], 2, "Missing argument"),
    ],
)
def test_errors_are_one_line_and_the_right_exit_code(
    filled: np.ndarray[Any, Any], words: list[str], code: int, message: str
) -> None:
    Path("not.nand").write_bytes(b"something else" * 1000)
    text = call(*words, code=code)
    assert message in " ".join(text.replace("│", " ").split())
    if code == 1:
        assert len(text.splitlines()) == 1
        assert text.startswith("nandarray: error: ")


def test_debug_shows_where(filled: np.ndarray[Any, Any]) -> None:
    result = CliRunner().invoke(app, ["--debug", "read", "d.nand", "nope"])
    assert isinstance(result.exception, nandarray.NotFoundError)


def test_a_bug_is_still_one_line(filled: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # The function in place of the method has no frame of its own, so the package's is the last one.
    monkeypatch.setattr(nandarray.Store, "stat", staticmethod(functools.partial(operator.truediv, 1, 0)))
    assert "unexpected ZeroDivisionError" in call("stat", "d.nand", code=1)


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["raw", "hex", "base64"])
def test_keys_come_from_a_file(form: str) -> None:
    text = {"raw": KEY, "hex": KEY.hex().encode() + b"\n", "base64": base64.b64encode(KEY) + b"\n"}[form]
    Path("key").write_bytes(text)
    call("create", "d.nand", "secret", "--shape", "3", "--dtype", "i4", "--encrypt", "--key-file", "key")
    assert call("read", "d.nand", "secret", "--key-file", "key") == "[0, 0, 0]\n"
    assert loads("info", "d.nand", "secret")["encrypted"] is True
    assert "key" in call("read", "d.nand", "secret", code=1)
    assert "encrypted" in call("ls", "-l", "d.nand")


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANDARRAY_KEY", KEY.hex())
    np.save("x.npy", np.arange(3))
    call("import", "x.npy", "d.nand", "--encrypt", "-q")
    call("create", "d.nand", "open", "--shape", "2", "--dtype", "u1")  # a key alone encrypts nothing
    assert call("read", "d.nand", "x") == "[0, 1, 2]\n"
    assert call("read", "d.nand", "open") == "[0, 0]\n"
    call("export", "d.nand", "/", "all.npz")
    assert np.load("all.npz")["x"].tolist() == [0, 1, 2]
    monkeypatch.setenv("NANDARRAY_KEY", bytes(32).hex())
    assert "key" in call("read", "d.nand", "x", code=1)
    monkeypatch.setenv("NANDARRAY_KEY", "abc")
    assert "$NANDARRAY_KEY holds no key" in call("read", "d.nand", "x", code=2).replace("\n", " ")


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_completion_of_names(filled: np.ndarray[Any, Any]) -> None:
    context = typer.Context(typer.main.get_command(app))
    context.params["store"] = Path("d.nand")
    assert common.complete_array(context, "r") == ["run/temp"]
    assert common.complete_name(context, "") == ["other", "run", "run/temp"]
    context.params["store"] = Path("none.nand")
    assert common.complete_array(context, "") == []


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("256MiB", 1 << 28), ("1.5 GB", 1_500_000_000), ("2k", 2048), ("0", 0)]
)
def test_sizes(text: str, size: int) -> None:
    assert common.parse_size(text) == size


def test_bench() -> None:
    lines = loads("bench", "--size", "16MiB", "--seconds", "0", "--directory", ".")
    assert lines[0]["pattern"] == "memory copy"
    assert all(line["gb_per_s"] > 0 for line in lines)
    assert len(lines) == 9
    assert "GB/s" in call("bench", "--size", "16MiB", "--seconds", "0", "--compression", "lz4")
    assert "must be at least 16 MiB, not 1B" in call("bench", "--size", "1B", code=2)
    assert os.listdir() == []


def test_help_and_version() -> None:
    assert call("--version").startswith("nandarray ")
    listed = call("--help")
    for command in ("create", "import", "export", "ls", "tree", "info", "read", "stat", "check", "compact", "bench"):
        assert command in listed
        assert "--help" in call(command, "--help")
    assert CliRunner().invoke(app, []).stdout.strip() == listed.strip()


def test_a_real_process(filled: np.ndarray[Any, Any]) -> None:
    run = [sys.executable, "-m", "nandarray"]
    done = subprocess.run(
        [*run, "read", "d.nand", "run/temp", "0, :3", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [0, 1, 2]
    assert done.stderr == ""
    failed = subprocess.run([*run, "read", "d.nand", "nope"], capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert failed.stderr.startswith("nandarray: error: no array 'nope'")
    with subprocess.Popen(
        [*run, "read", "d.nand", "run/temp", "--all"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as pipe:
        assert pipe.stdout is not None
        assert pipe.stderr is not None
        pipe.stdout.close()  # as `| head` does
        assert b"Traceback" not in pipe.stderr.read()


def test_slices_from_the_shell_are_pythons(filled: np.ndarray[Any, Any]) -> None:
    for text in ("0:10, ::7", "..., 5", "-3:", "[0, 2], 1"):
        assert loads("read", "d.nand", "run/temp", text) == filled[parse_slices(text)].tolist()


def test_outputs_replace_no_file_unasked(filled: np.ndarray[Any, Any]) -> None:
    call("read", "d.nand", "other", "-o", "x.npy")
    assert "exists already; --overwrite replaces it" in call("read", "d.nand", "run/temp", "-o", "x.npy", code=1)
    assert np.load("x.npy").tolist() == [0, 1, 2, 3, 4]
    call("read", "d.nand", "run/temp", "-o", "x.npy", "--overwrite")
    np.testing.assert_array_equal(np.load("x.npy"), filled)
    run = ("program", "run", "filter", "d.nand:/run/temp", "-s", "low=0", "-s", "high=9", "-q")
    words = (*run, "--dtype", "float32", "--out", "y.npy")
    call(*words)
    Path("y.npy").write_bytes(b"mine")
    assert "exists already" in call(*words, code=1)
    assert Path("y.npy").read_bytes() == b"mine"
    call(*words, "--overwrite")
    assert np.load("y.npy").size


def test_counts_agree_and_what_is_not_known_is_a_dash(filled: np.ndarray[Any, Any]) -> None:
    assert "write amplification  -" in call("stat", "d.nand")
    assert "ok (arrays: 2," in call("check", "d.nand")
    assert (loads("stat", "d.nand")["array_count"], loads("info", "d.nand")["arrays"]) == (2, 2)
    assert ".group" not in call("stat", "d.nand")


def test_import_follows_links_only_where_trusted() -> None:
    import h5py

    Path("secret").write_bytes(bytes(range(4)))
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("a", (4,), "u1", external=[("secret", 0, 4)])
    assert "elements in another file, 'secret'" in call("import", "a.h5", "d.nand", code=1)
    assert not Path("d.nand").exists()
    call("import", "a.h5", "d.nand", "--trusted")


# --- what a terminal would obey ---------------------------------------------------------------------------------------


def test_what_a_terminal_would_obey_in_names_is_escaped() -> None:
    bad, odd = "red\x1b[31m", "e\x1b]0;x\x07\r\x9b31m\u202e\x7f"
    Path("d.nand").write_bytes(old_store())  # such names are not given any more
    with nandarray.open("d.nand", "r+") as store:
        store.create("odd", (2,), np.dtype([("\x1b[31m", "i4")]), attrs={odd: odd})
        texts = [repr(store), repr(store[bad]), repr(store["odd"].attrs), str(store.tree())]
    lines = (
        ["ls"], ["ls", "--long"], ["tree"], ["info"], ["info", bad], ["info", "odd"], ["stat"], ["check"],
        ["read", bad],
        ["rm", "no" + odd], ["attrs", "get", "odd"], ["attrs", "get", "odd", odd], ["export", bad, f"/none{odd}/x.npy"],
    )  # fmt: skip
    for words in lines:
        command = [*words[:2], "d.nand", *words[2:]] if words[0] == "attrs" else [words[0], "d.nand", *words[1:]]
        result = CliRunner().invoke(app, command)
        texts += [result.stdout, result.stderr]
    assert not [text for text in texts for each in "\x1b\x07\r\x9b\u202e\x7f" if each in text]
    assert {"red\\x1b[31m", "a\\nok (arrays: 1)"} < set(call("ls", "d.nand").splitlines())


def test_the_command_line_needs_no_library_that_is_no_dependency() -> None:
    # Versions of typer before its own copy of click depend on click; others do not.
    code = "import sys; sys.modules['click'] = None\ntry: import typer\nexcept ImportError: sys.exit()\n"
    subprocess.run([sys.executable, "-c", code + "import nandarray.cli"], check=True, timeout=60)


def test_commands_print_by_the_function_that_escapes() -> None:
    folder = Path(common.__file__).parent
    printing = [
        f"{path.name}:{node.lineno}"
        for path in [*folder.glob("*.py"), *folder.glob("program/*.py")]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"print", "typer.echo", "rich.print", "Console"}
    ]
    assert [place.split(":")[0] for place in printing] == ["common.py"], printing
