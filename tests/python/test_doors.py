"""Errors of a drive's door name it; runs and namespaces of a drive are those of a store here."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pytest

import nandarray
from nandarray import DoorError, ExistsError, VolumeMismatchError
from nandarray.nvme import CreateSpace, Read, Write, connect, new_secret


@pytest.fixture
def drive(tmp_path: Path) -> Any:
    with doors.opened("drive", tmp_path / "d.nand") as made:
        made["x"] = np.arange(24).reshape(4, 6)
        yield made


def test_what_needs_the_file_says_so(drive: Any, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    there = xarray.Dataset({"v": ("n", [1, 2])})
    nandarray.from_xarray(there, drive)
    double = nandarray.program.map(inputs="int64", output="int64")(lambda x: x * 2)
    for call, said in [
        (lambda: nandarray.serve(drive), "no way to be served again"),
        (lambda: nandarray.from_xarray(there, drive, append_dim="n"), "no command that changes several arrays as one"),
        (lambda: nandarray.from_xarray(there, drive.url, mode="r+"), "a dataset that is there needs the file"),
        (lambda: nandarray.from_xarray(there, drive, mode="w"), "a dataset that is there needs the file"),
        (lambda: drive["x"].map_blocks(lambda x: x + 1, form="native"), "no native form of programs"),
        (lambda: double.on(drive["x"]).using(form="native").run(), "no native form of programs"),
        (lambda: nandarray.profile(double, [drive["x"]]), "no profile of programs"),
        (lambda: double.time([drive["x"]], core="ex5"), "no timing of programs"),
        (drive.check, "no check of the file"),
    ]:
        with pytest.raises(DoorError, match=rf"^nvme\+tcp://.*: a drive has .*{said}"):
            call()
    assert list(drive) == ["v", "x"]


def test_imports_and_datasets_go_into_a_drive(drive: Any, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    source = tmp_path / "source.nand"
    with nandarray.open(source, "w") as store:
        store.create_group("g/empty").attrs["why"] = 1
        store["g/a"], store["g/b"] = np.arange(3), np.ones((2, 3))
        store["g"].attrs["n"] = 3
        nandarray.export(store["g"], tmp_path / "s.zarr")
    assert nandarray.import_(tmp_path / "s.zarr", drive, "in") == ("in/a", "in/b")
    assert (drive["in"].attrs["n"], drive["in/empty"].attrs["why"]) == (3, 1)
    assert np.array_equal(drive["in/a"], np.arange(3))
    with pytest.raises(ExistsError):
        nandarray.import_(tmp_path / "s.zarr", drive, "in")
    time = np.arange(0, 4, dtype="M8[D]").astype("M8[ns]")
    data = xarray.Dataset({"v": (("t", "n"), np.ones((4, 2)))}, {"t": time}, {"title": "one"})
    nandarray.from_xarray(data.chunk(t=2), drive, group="data")
    with xarray.open_dataset(drive.url, engine="nandarray", group="data") as read:
        xarray.testing.assert_identical(read.load(), data)

    def fail(name: str, done: int, total: int) -> None:
        if name == "again/b":
            raise OSError("enough")

    before = sorted(drive._engine.names())
    with pytest.raises(OSError, match="enough"):
        nandarray.import_(tmp_path / "s.zarr", drive, "again", progress=fail)
    assert sorted(drive._engine.names()) == before


@pytest.mark.parametrize("programs", [False, True])
def test_a_drive_without_arrays_says_so(tmp_path: Path, programs: bool) -> None:
    with (
        nandarray.open(tmp_path / "d.nand", "w") as store,
        nandarray.serve(store, nd=False, programs=programs) as server,
        nandarray.open(server.url, "r+") as remote,
    ):
        for call in (lambda: list(remote), lambda: remote["x"], lambda: remote.create("x", (3,), "i4")):
            with pytest.raises(DoorError, match=r"^nvme\+tcp://.*the drive provides no arrays: .*without N-D commands"):
                call()


def test_a_shape_that_another_host_has_changed_is_named(drive: Any) -> None:
    x = drive["x"]
    seen, long = x.view((8, 3)), drive.create("long", (2, 2, 2, 2), "i4")
    seen[0]
    doors.file_of(drive)["x"].resize((2, 6))
    doors.file_of(drive)["long"].resize((1, 2, 2, 2))

    def write(array: Any) -> None:
        array[...] = 1

    for call in (
        lambda: x[...], lambda: x[3], lambda: x[::2], lambda: x[[3, 1]], lambda: x.vindex[[3], [0]],
        lambda: seen[...], lambda: write(x), lambda: write(seen), lambda: x.reduce("sum"), lambda: seen.reduce("sum"),
    ):  # fmt: skip
        with pytest.raises(VolumeMismatchError, match=r"^x has shape \(2, 6\), and had \(4, 6\) when it was opened"):
            call()
    with pytest.raises(VolumeMismatchError, match=r"^long has shape \(1, 2, 2, 2\), and had \(2, 2, 2, 2\)"):
        long[...]
    np.testing.assert_array_equal(x[:2], np.arange(12).reshape(2, 6))
    drive.refresh()
    assert x.shape == (2, 6)
    assert x.reduce("sum") == np.arange(12).sum()


def test_a_run_holds_up_no_other_command(drive: Any) -> None:
    def endless(x: int) -> int:
        while x >= 0:
            x += 1
            x -= 1
        return x

    key = bytes(range(32))
    drive.create("secret", (4,), "i8", encryption_key=key)[...] = 7
    assert drive.get("secret", encryption_key=key).reduce("sum") == 28  # on a connection that has learned the key
    drive["x"].map_blocks(lambda x: x + 1)  # compiles
    ended: list[BaseException] = []

    def run() -> None:
        try:
            drive["x"].map_blocks(endless, seconds=3, form="interpreted")
        except nandarray.ProgramFailedError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    begin = time.monotonic()
    for _ in range(3):
        assert drive["x"][3, 5] == 23
        assert drive["x"].reduce("sum") == np.arange(24).sum()
    assert not ended
    assert time.monotonic() - begin < 3
    thread.join()
    assert "more than 3 s: the run was cancelled" in str(ended[0])
    assert drive["x"].reduce("sum") == np.arange(24).sum()


def test_runs_prove_who_they_are(tmp_path: Path) -> None:
    host, secret = "nqn.2026-01.org.example:host", new_secret()
    with (
        nandarray.open(tmp_path / "d.nand", "w") as store,
        nandarray.serve(store, secrets={host: secret}) as server,
        connect(server.url, hostnqn=host, secret=secret, digests=True) as remote,
    ):
        store["x"] = np.arange(10)
        assert [remote["x"].reduce("sum") for _ in range(3)] == [45] * 3
        # One connection for commands, one that runs take in turn.
        assert [one[1] for one in server.status()["associations"]] == [host] * 2


def test_block_namespaces_come_and_go_by_the_drive(drive: Any) -> None:
    assert drive.create_namespace(5, 16, 4096).ok
    with nandarray.open(drive.url, "r+") as other:
        assert other.submit(Write(5, 0, 1), b"\x07" * 4096).ok
    room = bytearray(4096)
    assert drive.submit(Read(5, 0, 1), room).ok
    assert room == b"\x07" * 4096
    here = doors.file_of(drive).nvme()
    drive["ns/6"] = np.zeros((2, 2))
    for one in (drive, here):
        assert str(one.create_namespace(5, 16, 4096)) == "Space Exists (1h/c1h, DNR)"
        for nsid, nsze, lba in ((0, 16, 4096), (7, 0, 4096), (7, 16, 4097), (7, 16, 256), (2**32 - 1, 16, 4096)):
            assert str(one.create_namespace(nsid, nsze, lba)) == "Invalid Field in Command (0h/02h, DNR)", (nsid, nsze)
        for nsid in (6, 7):
            assert str(one.delete_namespace(nsid)) == "Invalid Namespace or Format (0h/0bh, DNR)"
    assert drive.delete_namespace(5).ok
    assert not drive.submit(Read(5, 0, 1), room).ok
    assert "ns/6" in drive
    with nandarray.open(drive.url) as reader:
        for call in (lambda: reader.create_namespace(8, 16), lambda: reader.delete_namespace(6)):
            with pytest.raises(nandarray.ReadOnlyError):
                call()
    assert drive.submit(CreateSpace("ns/9", (4,), 512, "|V512")).ok
