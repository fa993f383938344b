"""A store as a drive: served, reached by arrays, views and programs over the network, and killed while it writes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import ended
from typer.testing import CliRunner

import nandarray
from nandarray import programs
from nandarray.cli import app
from nandarray.errors import InvalidError, NandarrayError, NotFoundError, ReadOnlyError
from nandarray.nvme import (
    Compare,
    DatasetManagement,
    Flush,
    Read,
    RemoteStore,
    SpaceInformation,
    Write,
    WriteZeroes,
    connect,
)

BLOCK = 512
BLOCKS = 64


@pytest.fixture
def store(tmp_path: Path) -> Iterator[nandarray.Store]:
    with nandarray.open(tmp_path / "a.nand", mode="w") as opened:
        yield opened


def test_arrays_over_the_network(store: nandarray.Store) -> None:
    rng = np.random.default_rng(1)
    shapes = [(7,), (5, 6), (3, 4, 5), (2, 3, 4, 5), (2, 2, 2, 2, 3)]
    model = {f"a{len(shape)}": rng.integers(0, 1000, shape).astype("<i4") for shape in shapes}
    for name, values in model.items():
        store[name] = values
    with nandarray.serve(store) as server, nandarray.open(server.url, "r+") as remote:
        assert sorted(remote) == sorted(model)
        for name, values in model.items():
            array = remote[name]
            assert (array.shape, array.dtype) == (values.shape, values.dtype)
            np.testing.assert_array_equal(array[...], values)
            np.testing.assert_array_equal(array[1:, ...], values[1:])
            array[-1] = 5
            values[-1] = 5
            np.testing.assert_array_equal(np.asarray(array), values)
            np.testing.assert_array_equal(store[name][...], values)
        assert remote["a1"][3] == model["a1"][3]
        np.testing.assert_array_equal(remote["a3"].view((6, 10))[2:4, 3:], model["a3"].reshape(6, 10)[2:4, 3:])
        with pytest.raises(NotFoundError):
            remote["none"]
        np.testing.assert_array_equal(remote["a1"][::2], model["a1"][::2])
        np.testing.assert_array_equal(
            remote["a4"].oindex[[1, 0], :, ::2, [3]], model["a4"][np.ix_([1, 0], range(3), [0, 2], [3])]
        )
        assert server.status()["associations"][0][2] == 1


def test_elements_without_dimensions_are_written_in_the_dtype_of_the_array(store: nandarray.Store) -> None:
    start = {"big": np.array(5, ">i4"), "text": np.array("ab", "<U3"), "bytes": np.array(b"abc", "S5")}
    for name, value in start.items():
        store[name] = value
    with nandarray.serve(store) as server, nandarray.open(server.url, "r+") as remote:
        for name, value in {"big": 7, "text": "z", "bytes": b"q"}.items():
            remote[name][()] = value
            assert store[name][()] == remote[name][()] == value
            whole = remote[name][...]
            assert (whole.shape, whole.dtype) == ((), start[name].dtype)


def test_a_remote_index_means_what_it_means_to_numpy(store: nandarray.Store) -> None:
    values = np.arange(6).reshape(2, 3)
    store["k"] = values
    with nandarray.serve(store) as server, nandarray.open(server.url, "r+") as remote:
        for key in (
            True,
            False,
            None,
            (None, 1),
            np.int64(1),
            np.array(1),
            np.s_[..., 0],
            np.s_[5:, None],
            (0, 2, ...),
        ):
            found, wanted = remote["k"][key], values[key]
            assert type(found) is type(wanted)
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_array_equal(found, wanted)
        remote["k"][False] = 8
        np.testing.assert_array_equal(store["k"][...], values)
        remote["k"][None, 1] = [[9, 8, 7]]
        remote["k"][True, 0] = 4
        np.testing.assert_array_equal(store["k"][...], [[4, 4, 4], [9, 8, 7]])
        for wrong in ("a", 1.5, (0, 0, 0), 2, np.s_["a":]):
            with pytest.raises(IndexError):
                remote["k"][wrong]
        for boxless in ([0, 1], np.array([True, False]), np.s_[::-1]):
            np.testing.assert_array_equal(remote["k"][boxless], store["k"][boxless])


def test_records_over_the_network(store: nandarray.Store) -> None:
    records = np.array([(1, 0.5), (2, 1.5), (3, 2.5)], [("a", "<i4"), ("b", "<f8")])
    store["r"] = records
    store["long"] = np.zeros(2, [(f"field{i}", "<i4") for i in range(5)])
    with nandarray.serve(store) as server, nandarray.open(server.url, "r+") as remote:
        assert remote["r"].dtype == records.dtype
        remote["r"][1] = (7, 8.5)
        records[1] = (7, 8.5)
        np.testing.assert_array_equal(remote["r"][...], records)
        np.testing.assert_array_equal(store["r"][...], records)
        remote["r"]["a"][2] = 9
        assert remote["r"]["a"][...].tolist() == store["r"]["a"][...].tolist() == [1, 7, 9]
        assert remote["r"]["a"].reduce("sum") == 17
        assert remote["long"].dtype == store["long"].dtype
        remote["long"][1] = (1, 2, 3, 4, 5)
        assert store["long"][1].item() == (1, 2, 3, 4, 5)


def test_a_selection_larger_than_a_transfer(store: nandarray.Store) -> None:
    values = np.arange(3 << 18, dtype="<i8").reshape(3, 512, 512)
    store["big"] = np.zeros_like(values)
    with nandarray.serve(store) as server, connect(server.url, digests=True) as remote:
        remote["big"][...] = values
        np.testing.assert_array_equal(remote["big"][...], values)
    np.testing.assert_array_equal(store["big"][...], values)


@st.composite
def operations(draw: st.DrawFn) -> tuple[str, int, int, int]:
    first = draw(st.integers(0, BLOCKS - 1))
    blocks = draw(st.integers(1, BLOCKS - first))
    kind = draw(st.sampled_from(["write", "read", "zeroes", "discard", "compare", "flush"]))
    return kind, first, blocks, draw(st.integers(0, 255))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(operations(), min_size=1, max_size=12), digests=st.booleans())
def test_a_namespace_is_an_array_of_bytes(
    tmp_path: Path, steps: list[tuple[str, int, int, int]], digests: bool
) -> None:
    with nandarray.open(tmp_path / "model.nand", mode="w") as store:
        store.nvme().create_namespace(1, BLOCKS, BLOCK)
        with nandarray.serve(store) as server, connect(server.url, digests=digests) as remote:
            check(remote, steps)


def check(remote: RemoteStore, steps: list[tuple[str, int, int, int]]) -> None:
    model = bytearray(BLOCKS * BLOCK)
    for kind, first, blocks, value in steps:
        where = slice(first * BLOCK, (first + blocks) * BLOCK)
        if kind == "write":
            model[where] = bytes((value + i) % 256 for i in range(blocks * BLOCK))
            assert remote.submit(Write(1, first, blocks), bytes(model[where])).ok
        elif kind == "read":
            room = bytearray(blocks * BLOCK)
            assert remote.submit(Read(1, first, blocks), room).ok
            assert room == model[where]
        elif kind == "compare":
            assert remote.submit(Compare(1, first, blocks), bytes(model[where])).ok
        elif kind == "flush":
            assert remote.submit(Flush(1)).ok
        else:
            model[where] = bytes(blocks * BLOCK)
            wanted = WriteZeroes(1, first, blocks) if kind == "zeroes" else DatasetManagement(1, [(first, blocks)])
            assert remote.submit(wanted).ok
    room = bytearray(BLOCKS * BLOCK)
    assert remote.submit(Read(1, 0, BLOCKS), room).ok
    assert room == model


def test_a_program_runs_beside_the_data(store: nandarray.Store) -> None:
    values = np.arange(10000, dtype="<f4")
    store["x"] = values
    elf = programs.get("sum", dtype="float32").elf
    with nandarray.serve(store) as server, nandarray.open(server.url, "r+") as remote:
        program = remote.load(elf, index=3)
        (on_array,) = program.execute(remote["x"])
        (on_bytes,) = program.execute(values.tobytes())
        assert struct.unpack("<d", on_array) == struct.unpack("<d", on_bytes) == (values.sum(dtype="f8"),)
        with pytest.raises(NandarrayError, match="Invalid Field.*: 4 ranges; the program has 1 inputs, 1 outputs"):
            program.execute(remote["x"], outputs=3)
        with pytest.raises(NandarrayError, match="Invalid Memory Range Set.*: range 1, 1073741824 bytes from 0"):
            program.execute(remote["x"], room=1 << 30)
        with pytest.raises(NandarrayError, match="Invalid Program Data.*: .*ELF"):
            remote.load(b"no program")
        program.unload()
        with pytest.raises(NandarrayError, match="No Program"):
            program.execute(remote["x"])
    with (
        nandarray.serve(store, programs=False) as server,
        nandarray.open(server.url, "r+") as remote,
        pytest.raises(NandarrayError, match="Invalid Command Opcode"),
    ):
        remote.load(elf)


def test_who_may_connect(store: nandarray.Store) -> None:
    with pytest.raises(InvalidError, match="insecure"):
        nandarray.serve(store, "0.0.0.0:0")
    allowed = "nqn.2014-08.org.example:allowed"
    with nandarray.serve(store, hosts=[allowed]) as server:
        with pytest.raises(InvalidError, match="Connect Invalid Host"):
            connect(server.url)
        connect(server.url, hostnqn=allowed).close()
    with pytest.raises(InvalidError, match="the URL of a drive must be nvme"):
        nandarray.open("nvme+tcp://127.0.0.1:1")
    with pytest.raises(InvalidError, match=r"cannot connect to 127\.0\.0\.1:1"):
        nandarray.open("nvme+tcp://127.0.0.1:1/nqn.none")


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "[::1%lo]:0"])
def test_the_url_names_an_address_that_works(store: nandarray.Store, listen: str) -> None:
    store["x"] = [1, 2, 3]
    try:
        server = nandarray.serve(store, listen, insecure=True)
    except InvalidError as error:
        if "::" not in listen:
            raise
        pytest.skip(f"a machine without IPv6: {error}")
    with server, nandarray.open(server.url, "r+") as remote:
        assert "0.0.0.0" not in server.url
        assert "[::]" not in server.url
        assert "-a :: " not in server.connect_line
        assert remote["x"][1] == 2


def test_an_advertised_address_is_told(store: nandarray.Store) -> None:
    with nandarray.serve(store, advertise="192.0.2.7") as server:
        port = server.address.rpartition(":")[2]
        assert server.url.startswith(f"nvme+tcp://192.0.2.7:{port}/")
        assert f"-a 192.0.2.7 -s {port} " in server.connect_line
    with nandarray.serve(store, advertise="[2001:db8::7]:14420") as server:
        assert server.url.startswith("nvme+tcp://[2001:db8::7]:14420/")
        assert "-a 2001:db8::7 -s 14420 " in server.connect_line
    for wrong in ("host.example", "192.0.2.7:0", "192.0.2.7:x", "0.0.0.0", "[::1", ""):
        with pytest.raises(InvalidError, match="advertise is"):
            nandarray.serve(store, advertise=wrong)


@pytest.mark.parametrize(
    ("listen", "message"),
    [
        ("4420", "has no port"),
        (":4420", "has no host"),
        ("127.0.0.1:http", "from 0 to 65535"),
        ("127.0.0.1:99999", "from 0 to 65535"),
        ("::1:4420", "must be in brackets"),
        ("[::1:4420", "bracket is not closed"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(store: nandarray.Store, listen: str, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        nandarray.serve(store, listen)


def test_a_drive_of_block_namespaces_alone(store: nandarray.Store) -> None:
    assert store.nvme().create_namespace(1, BLOCKS, BLOCK).ok
    with nandarray.serve(store, programs=False, nd=False) as server, nandarray.open(server.url, "r+") as remote:
        assert remote.submit(Read(1, slba=0), bytearray(BLOCK)).ok
        entry = struct.pack("<II32xI20x", 0x06, 0, 0x02)  # Identify 02h
        done, page = remote.call(entry, None, 4096, admin=True)
        assert done.ok
        assert [nsid for (nsid,) in struct.iter_unpack("<I", page) if nsid] == [1]
        with pytest.raises(NandarrayError, match="without N-D commands"):
            remote["ns/1"]


HOST = "nqn.2014-08.org.example:host"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nqn": "foo"}, "the subsystem must be an NQN, which begins with 'nqn.', not 'foo'"),
        ({"nqn": "nqn.a b"}, "must be without spaces"),
        ({"nqn": "nqn." + "a" * 220}, "has 224 bytes, and must have 223 at most"),
        ({"hosts": "foo"}, "a host must be an NQN, which begins with 'nqn.', not 'foo'"),
        ({"hosts": [5]}, "not int"),
        ({"secrets": {"a": "b"}}, "a host must be an NQN, which begins with 'nqn.', not 'a'"),
        ({"secrets": {HOST: 5}}, "must be a text, or a pair of the host's and the controller's, not int"),
        ({"secrets": HOST}, "secrets must be a mapping from names of hosts, not str"),
        ({"tls": HOST}, "tls must be a mapping from names of hosts, not str"),
        ({"secrets": {HOST: ("b",)}}, "not tuple of 1"),
        ({"secrets": {HOST: (None, "b")}}, "a pair of the host's and the controller's"),
    ],
)
def test_names_and_secrets_are_checked(store: nandarray.Store, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=re.escape(message)):
        nandarray.serve(store, **options)


def test_what_is_served_must_be_a_store(store: nandarray.Store) -> None:
    for wrong in ("t.nand", Path("t.nand"), None):
        with pytest.raises(InvalidError, match="must be an open store, not .*: nandarray.serve"):
            nandarray.serve(wrong)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(InvalidError, match="must be an open store, not"):
            nandarray.gpu.serve(wrong, "name")  # type: ignore[arg-type]  # wrong on purpose


def test_connecting_checks_names(store: nandarray.Store) -> None:
    longest = "nqn." + "a" * 219
    with nandarray.serve(store, nqn=longest, hosts=HOST) as server:
        connect(server.url, hostnqn=HOST).close()
        with pytest.raises(InvalidError, match=r"no subsystem there has the name 'nqn\.other'"):
            connect(server.url.replace(longest, "nqn.other"), hostnqn=HOST)
        with pytest.raises(InvalidError, match="224 bytes"):
            connect(server.url + "a", hostnqn=HOST)
        with pytest.raises(InvalidError, match="this host must be an NQN, .* not 'x'"):
            connect(server.url, hostnqn="x")


def test_views_of_arrays_that_nobody_holds_are_closed(store: nandarray.Store) -> None:
    store["x"] = np.arange(100)
    with nandarray.serve(store) as server, connect(server.url) as remote:
        first = remote._source.open_space("x").dsid(None)
        held = remote["x"]
        assert held[7] == 7  # opens a view, and closes what was let go of
        assert not remote.submit(SpaceInformation(first), bytearray(4096)).ok


def start(path: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a server by the command line; its URL."""
    command = [sys.executable, "-m", "nandarray", "serve", str(path), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout
    with process.stdout as lines:
        for line in lines:
            if found := re.match(r"url +(\S+)", line):
                lines.readline()
                return process, found[1]
    raise AssertionError(f"the server ended with {process.wait()}")


def identities(path: Path, **options: Any) -> set[bytes | str]:
    """Return the names of a served store, and of its namespace 1: NQN, serial number, NGUID."""
    with nandarray.open(path, "r+") as opened, nandarray.serve(opened, **options) as server:
        with connect(server.url) as remote:
            pages = {}
            for cns, nsid in ((0, 1), (1, 0), (3, 1)):
                entry = bytearray(64)
                entry[0] = 6
                struct.pack_into("<I", entry, 4, nsid)
                struct.pack_into("<I", entry, 40, cns)
                done, pages[cns] = remote.call(bytes(entry), None, 4096, admin=True)
                assert done.ok
        return {server.nqn, bytes(pages[1][4:24]), bytes(pages[0][104:120]), bytes(pages[3][4:20])}


def test_a_copy_of_a_store_is_another_drive(tmp_path: Path) -> None:
    first, second, moved = tmp_path / "a.nand", tmp_path / "b.nand", tmp_path / "c.nand"
    with nandarray.open(first, "w") as made:
        assert made.nvme().create_namespace(1, 16, 4096).ok
    shutil.copy(first, second)  # before either was ever served
    one, two = identities(first), identities(second)
    assert len(one) == 3
    assert not one & two
    first.rename(moved)
    assert identities(moved) == one
    shutil.copy(moved, first)
    with pytest.warns(UserWarning, match="is another drive now"):
        three = identities(first)
    assert not three & (one | two)
    assert identities(first) == three  # told once
    assert identities(first, nqn="nqn.2026-01.org.example:it") == {
        *three - {f for f in three if isinstance(f, str)},
        "nqn.2026-01.org.example:it",
    }
    shutil.copy(moved, second)
    assert identities(second, identity="kept") == one == identities(second)
    four = identities(second, identity="new")
    assert not four & (one | two | three)
    assert identities(second) == four
    with nandarray.open(second) as opened, pytest.raises(ReadOnlyError):
        nandarray.serve(opened, identity="new")


def test_a_store_is_made_for_its_device(tmp_path: Path) -> None:
    """The guide's commands, and what a store of files says."""
    plain, made = tmp_path / "plain.nand", tmp_path / "made.nand"
    cli("nvme", "create", str(plain), "1", "1MiB")
    cli("nvme", "create", str(made), "1", "1MiB", "--device", "mqsim-ideal")
    cli("create", str(made), "a", "--shape", "4", "--device", "mqsim-ideal")
    command = [sys.executable, "-m", "nandarray", "serve", str(plain), "--device", "mqsim-ideal"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "panicked" not in done.stderr
    assert "must be made for its device, by `nandarray create STORE --device NAME`" in done.stderr
    command = [*command[:4], str(made), "--device", "mqsim-ideal", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        with nandarray.open(lines[2].split()[1], "r+") as remote:
            assert remote["a"].shape == (4,)
        process.send_signal(signal.SIGTERM)
        assert "1 requests in" in process.communicate(timeout=60)[0]
        assert process.returncode == 0
    with nandarray.open(plain) as opened:
        assert opened["ns/1"].shape == (256,)


def cli(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "nandarray", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "b.nand"
    cli("nvme", "create", str(path), "1", "1MiB")
    cli("nvme", "create", str(path), "2", "64KiB", "--lba", "512")
    cli("nvme", "resize", str(path), "1", "2MiB")
    assert json.loads(cli("nvme", "list", str(path), "--json")) == [
        {"nsid": 1, "blocks": 512, "lba_bytes": 4096, "bytes": 2 << 20},
        {"nsid": 2, "blocks": 128, "lba_bytes": 512, "bytes": 64 << 10},
    ]
    cli("nvme", "delete", str(path), "2")
    process, url = start(path)
    with nandarray.open(url, "r+") as remote:
        assert remote.submit(Write(1, 0, 1), b"\x07" * 4096).ok
    time.sleep(0.8)
    status = json.loads(cli("serve", str(path), "--status"))
    assert url.endswith(status["nqn"])
    assert status["writes"] == 1
    process.send_signal(signal.SIGTERM)
    assert ended(process) == 0
    with nandarray.open(path) as store:
        room = bytearray(4096)
        assert store.nvme().submit(Read(1, 0, 1), room).ok
        assert room == b"\x07" * 4096


@pytest.mark.parametrize("door", ["file", "drive"])
def test_namespaces_of_a_file_and_of_a_drive_have_the_same_words(door: str, tmp_path: Path) -> None:
    with doors.opened(door, tmp_path / "d.nand") as store:
        where = store.path if door == "drive" else str(tmp_path / "d.nand")
        store["x"] = [1, 2]
        if door == "file":
            store.close()

        def nvme(*words: str) -> str:
            done = CliRunner().invoke(app, ["nvme", words[0], where, *words[1:]])
            assert done.exit_code == 0, done.output
            return done.stdout

        for words in (("create", "1", "1MiB"), ("create", "2", "64KiB", "--lba", "512"), ("resize", "1", "2MiB")):
            assert nvme(*words) == ""
        assert [(one["nsid"], one["blocks"], one["lba_bytes"]) for one in json.loads(nvme("list", "--json"))] == [
            (1, 512, 4096),
            (2, 128, 512),
        ]
        assert nvme("list").splitlines() == ["     1         2 MiB  512 x 4096", "     2        64 KiB  128 x 512"]
        assert nvme("delete", "2") == ""
        assert [one["nsid"] for one in json.loads(nvme("list", "--json"))] == [1]
        for words, code, said in (
            (("create", "1", "1MiB"), 1, "namespace 1: Space Exists (1h/c1h, DNR)"),
            (("create", "3", "5000B"), 1, "whole blocks of 4096 bytes, not 5000B"),
            (("create", "3", "1MiB", "--lba", "1000"), 1, "from 512 to 65536 bytes, not 1000"),
            (("create", "1022", "1MiB"), 2, "less than or equal to 1021"),
            (("resize", "9", "1MiB"), 1, f"no array or group named 'ns/9' in {where!r}"),
            (("delete", "9"), 1, "namespace 9: Invalid Namespace or Format (0h/0bh, DNR)"),
            (("list", "--secret-file", "none"), *((1, "none: ") if door == "drive" else (2, "--secret-file: a file"))),
        ):
            done = CliRunner().invoke(app, ["nvme", words[0], where, *words[1:]])
            assert done.exit_code == code, done.output
            assert said in " ".join(done.stderr.split()), done.stderr
        if door == "drive":
            done = CliRunner().invoke(app, ["nvme", "create", where, "3", "1MiB", "--device", "tiny"])
            assert "is made for its device where its file is, not with --device tiny" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("serve", "none.nand"), "none.nand"),
        (("serve", "d.nand", "--status"), "no server runs"),
        (("nvme", "create", "d.nand", "1", "10000B"), "whole blocks of 4096"),
        (("nvme", "create", "d.nand", "1", "1MiB", "--lba", "0"), "power of two from 512"),
        (("nvme", "create", "d.nand", "3", "1MiB"), "namespace 3: Space Exists"),
        (("nvme", "resize", "d.nand", "3", "5000B"), "whole blocks of 4096"),
        (("nvme", "delete", "d.nand", "7"), "namespace 7"),
        (("nvme", "program", "activate", "d.nand"), "the URL of a drive must be nvme"),
        (("nvme", "secret", "nqn.bad name"), "must be without spaces"),
        (("nvme", "secret", "nqn." + "a" * 300), "223 at most"),
        (("serve", "d.nand", "--host", "foo"), "a host must be an NQN, which begins with 'nqn.', not 'foo'"),
        (
            ("serve", "d.nand", "--secret-file", "noise"),
            "noise must be text in UTF-8 with a line for each host; byte 4 is not",
        ),
        (
            ("program", "run", "sum", "d.nand:/ns/plain", "--core", "noise.toml"),
            "noise.toml must be a description in TOML, in UTF-8",
        ),
    ],
)
def test_an_error_says_what_was_wrong(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    with nandarray.open(tmp_path / "d.nand", mode="w") as store:
        store["ns/plain"] = [1, 2]
        assert store.nvme().create_namespace(3, 16, 4096).ok
    for noise in ("noise", "noise.toml"):
        (tmp_path / noise).write_bytes(b"nqn.\xe0\x01")
        (tmp_path / noise).chmod(0o600)
    # The status file of a killed server names a process that is gone.
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / "d.nand.serve.json").write_text(json.dumps({"pid": gone.pid}))
    command = [sys.executable, "-m", "nandarray", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "none.nand").exists()
    assert [one["nsid"] for one in json.loads(cli("nvme", "list", str(tmp_path / "d.nand"), "--json"))] == [3]


@pytest.mark.parametrize("url", ["nvme+tcp://127.0.0.1:1/nqn.x", "shm://none"])
@pytest.mark.parametrize(
    "options", [{"device": "mqsim-ideal"}, {"verify": "always"}, {"threads": 2}, {"salvage": True}]
)
def test_a_url_takes_no_option_that_its_server_has_chosen(url: str, options: dict[str, object]) -> None:
    with pytest.raises(InvalidError, match="takes no option but mode: its server has opened the store"):
        nandarray.open(url, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="mode"):
        nandarray.open(url, "w")


@pytest.mark.parametrize("lba", [512, 4096])
def test_killed_while_it_writes(tmp_path: Path, lba: int) -> None:
    path = tmp_path / "c.nand"
    cli("nvme", "create", str(path), "1", "4MiB", "--lba", str(lba))
    rng = np.random.default_rng(lba)
    model = bytearray(4 << 20)
    for _ in range(2):
        process, url = start(path)
        with nandarray.open(url, "r+") as remote:
            for _ in range(int(rng.integers(20, 120))):
                blocks = int(rng.integers(1, 17))
                first = int(rng.integers(0, (4 << 20) // lba - blocks))
                data = rng.bytes(blocks * lba)
                assert remote.submit(Write(1, first, blocks), data).ok
                model[first * lba : (first + blocks) * lba] = data
            process.kill()
            process.wait()
    with nandarray.open(path) as store:
        found = store["ns/1"][...].tobytes()
    wrong = [i for i in range(0, 4 << 20, lba) if found[i : i + lba] != model[i : i + lba]]
    assert not wrong, f"{len(wrong)} acknowledged blocks are lost, the first at byte {wrong[0]}"
