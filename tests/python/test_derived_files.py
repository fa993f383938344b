"""Promise: no file is removed or replaced that nandarray did not make, and users who may not read a store may read no
file that is derived from it."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import gpu
from nandarray.cli.status_file import StatusFile, status_of
from nandarray.errors import ClosedError, InvalidError, NotFoundError, StoreExistsError

DOORS = {"tcp": ("--listen", "127.0.0.1:0"), "shm": ("--shm", "./region")}
ROOT = os.geteuid() == 0
ENDINGS = {"tcp": ".serve.json", "shm": ".serve-shm.json"}
SIZES: dict[str, Any] = {"queues": 2, "depth": 8, "data_bytes": 4096}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "s.nand"
    with nandarray.open(path, "w") as made:
        made["a"] = np.arange(1000)
    path.chmod(0o600)
    return path


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


class Server:
    """``nandarray serve`` in a process of its own."""

    def __init__(self, store: Path, *options: str) -> None:
        command = [sys.executable, "-m", "nandarray", "serve", str(store), *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=store.parent
        )
        assert self.process.stdout is not None
        self.first = self.process.stdout.readline()

    def told(self, wanted: str, seconds: float) -> str:
        """Return the line of the standard error that has some words, which the server is to write in time."""
        assert self.process.stderr is not None
        limit = threading.Timer(seconds, self.process.kill)  # which ends the lines
        limit.start()
        try:
            return next(line for line in self.process.stderr if wanted in line)
        finally:
            limit.cancel()

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=30)[1]
        return self.process.returncode, said


def until(wanted: Callable[[], Any], seconds: float = 20) -> Any:
    end = time.monotonic() + seconds
    while not (found := wanted()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("what", ["store", "text", "link", "itself", "fifo", "folder", "empty"])
def test_a_region_replaces_nothing_but_a_region(tmp_path: Path, store: Path, what: str) -> None:
    path, text = tmp_path / "victim", tmp_path / "text"
    text.write_text("precious")
    if what == "store":
        path.write_bytes(store.read_bytes())
    elif what == "link":
        path.symlink_to(text)
    elif what == "itself":
        path = store
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.write_text("precious" * 100 if what == "text" else "")
    before = os.lstat(path)
    with nandarray.open(store) as opened:
        with pytest.raises(InvalidError, match="stays as it is"):
            gpu.serve(opened, str(path), **SIZES)
        np.testing.assert_array_equal(opened["a"][:], np.arange(1000))
    after = os.lstat(path)
    assert (before.st_ino, before.st_size, before.st_mode) == (after.st_ino, after.st_size, after.st_mode)
    assert text.read_text() == "precious"


def test_a_region_of_a_killed_server_is_replaced_and_another_file_stays_at_the_end(tmp_path: Path, store: Path) -> None:
    region = tmp_path / "region"
    first = Server(store, *DOORS["shm"])
    assert "serving" in first.first
    first.process.kill()
    first.process.communicate()
    assert region.exists()
    second = Server(store, *DOORS["shm"])
    assert "serving" in second.first
    region.unlink()
    region.write_text("mine")
    assert second.end()[0] == 0
    assert region.read_text() == "mine"


@pytest.mark.parametrize(("of_store", "wanted"), [(0o600, 0o600), (0o644, 0o600), (0o660, 0o660), (0o666, 0o666)])
def test_a_region_is_for_those_who_may_read_and_write_the_store(
    tmp_path: Path, store: Path, of_store: int, wanted: int
) -> None:
    store.chmod(of_store)
    old = os.umask(0)
    try:
        with nandarray.open(store) as opened:
            server = gpu.serve(opened, str(tmp_path / "region"), **SIZES)
            assert mode(tmp_path / "region") == wanted
            server.stop()
            server = gpu.serve(opened, str(tmp_path / "region"), **SIZES, group=os.getegid())
            assert mode(tmp_path / "region") == 0o660
            server.stop()
            with pytest.raises(InvalidError, match="no group 'nobody-has-this'"):
                gpu.serve(opened, str(tmp_path / "region"), **SIZES, group="nobody-has-this")
    finally:
        os.umask(old)


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_what_is_derived_belongs_to_the_owner_of_the_store(tmp_path: Path, store: Path) -> None:
    os.chown(store, 65534, 65534)
    with nandarray.open(store) as opened:
        for left in (b"", b"NDAQUEUE"):
            if left:  # as a killed server leaves it, root having given it to the store's owner
                (tmp_path / "region").write_bytes(left)
                os.chown(tmp_path / "region", 65534, 65534)
            server = gpu.serve(opened, str(tmp_path / "region"), **SIZES)
            found = os.stat(tmp_path / "region")
            assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (65534, 65534, 0o600)
            server.stop()
        status = StatusFile(store, "tcp", opened._engine.file_state())
        status.write({})
        found = os.stat(f"{store}.serve.json")
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (65534, 65534, 0o600)


_TRUNCATE = """
import os, sys, numpy as np, nandarray
client = nandarray.open("shm://" + sys.argv[1])
os.truncate(sys.argv[1], 0)
try:
    client["a"].gather(np.arange(1000))
except nandarray.ClosedError:
    print("closed")
"""


def test_a_truncated_region_ends_service_and_no_process(tmp_path: Path, store: Path) -> None:
    server = Server(store, *DOORS["shm"])
    assert "serving" in server.first
    client = subprocess.run(
        [sys.executable, "-c", _TRUNCATE, f"{tmp_path}/region"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (client.returncode, client.stdout) == (0, "closed\n"), client.stderr
    assert "the region lost its memory: its file was truncated" in server.process.communicate(timeout=30)[1]
    assert server.process.returncode == 1
    assert not (tmp_path / "region").exists()
    # Elsewhere a bus error ends a process as ever, and a client in the process of the server gets an error, too.
    with nandarray.open(store) as opened:
        own = gpu.serve(opened, str(tmp_path / "region"), **SIZES)
        second = gpu.connect(str(tmp_path / "region"))
        os.truncate(tmp_path / "region", 0)
        with pytest.raises(ClosedError):
            second["a"].gather(np.arange(1000))
        until(own.lost)
        own.stop()


_BUS_ERROR = """
import mmap, os, signal, sys, nandarray
from nandarray import gpu
if sys.argv[4] == "ignored":
    signal.signal(signal.SIGBUS, signal.SIG_IGN)
store = nandarray.open(sys.argv[1])
server = gpu.serve(store, sys.argv[2], queues=1, depth=8, data_bytes=4096)
if sys.argv[4] == "access":
    with open(sys.argv[3], "wb+") as file:
        file.truncate(4096)
        mapped = mmap.mmap(file.fileno(), 4096)
        file.truncate(0)
        mapped[0]
for _ in range(2):
    os.kill(os.getpid(), signal.SIGBUS)
server.stop()
"""


@pytest.mark.parametrize(("cause", "status"), [("access", -signal.SIGBUS), ("sent", -signal.SIGBUS), ("ignored", 0)])
def test_a_bus_error_elsewhere_ends_the_process(tmp_path: Path, store: Path, cause: str, status: int) -> None:
    command = [sys.executable, "-c", _BUS_ERROR, str(store), str(tmp_path / "region"), str(tmp_path / "other"), cause]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr


@pytest.mark.parametrize("door", DOORS)
def test_a_server_tells_its_status(store: Path, door: str) -> None:
    server = Server(store, *DOORS[door])
    command = [sys.executable, "-m", "nandarray", "serve", str(store), "--status"]
    file = f"{store}{ENDINGS[door]}"
    until(Path(file).exists)
    assert mode(file) == 0o600
    status = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert status["pid"] == server.process.pid
    assert status["shm"] == "./region" and status["arrays"] == 1 if door == "shm" else "nqn" in status
    assert server.end() == (0, "")
    assert sorted(path.name for path in store.parent.iterdir()) == ["s.nand"]


def test_servers_of_one_store_leave_each_other_their_status(
    store: Path, recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nandarray.cli.status_file._SAME_SECONDS", 0)  # each status is written
    tcp, shm = (StatusFile(store, form, None) for form in ENDINGS)
    tcp.write({"form": "tcp"})
    shm.write({"form": "shm"})
    assert [one["form"] for one in json.loads(status_of(store))] == ["tcp", "shm"]
    tcp.remove()
    assert json.loads(status_of(store))["form"] == "shm"
    # Of one form, the first one has the file, until it has written nothing for a while.
    file = Path(f"{store}{ENDINGS['shm']}")
    other = json.dumps({"pid": os.getppid()})
    file.write_text(other)
    assert not recwarn.list
    for _ in range(2):
        shm.write({"form": "shm"})
    shm.remove()
    assert file.read_text() == other
    assert [f"process {os.getppid()} serves the store, too" in str(one.message) for one in recwarn.list] == [True]
    os.utime(file, (0, 0))
    shm.write({"form": "shm"})
    assert json.loads(status_of(store))["pid"] == os.getpid()
    for nobody in (0, 1 << 70):
        file.write_text(json.dumps({"pid": nobody}))
        shm.write({"form": "shm"})
        assert json.loads(status_of(store))["pid"] == os.getpid()


@pytest.mark.parametrize("what", ["text", "link"])
def test_a_status_replaces_nothing_but_a_status(tmp_path: Path, store: Path, what: str) -> None:
    file, text = Path(f"{store}.serve.json"), tmp_path / "text"
    text.write_text('{"precious": 1}')
    if what == "link":
        file.symlink_to(text)
    else:
        file.write_text(text.read_text())
    with pytest.warns(UserWarning, match="no status of a server, and stays as it is"):
        status = StatusFile(store, "tcp", None)
    status.write({})
    status.remove()
    assert file.read_text() == text.read_text() == '{"precious": 1}'
    assert file.is_symlink() == (what == "link")


def test_a_status_that_cannot_be_written_is_told_once(
    store: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    status = StatusFile(store, "tcp", None)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        for _ in range(3):
            status.write({})
        assert [str(one.message)[-24:] for one in recwarn.list] == [" No space left on device"[-24:]]
        assert sorted(path.name for path in store.parent.iterdir()) == ["s.nand"]
    status.write({"a": 1})  # there is room again
    assert json.loads(Path(f"{store}.serve.json").read_text()) == {"pid": os.getpid(), "a": 1}


@pytest.mark.parametrize("door", DOORS)
def test_a_served_file_that_is_gone_is_told_once(store: Path, door: str) -> None:
    server = Server(store, *DOORS[door])
    assert server.first
    store.rename(f"{store}.other")
    said = server.told("no longer the file that is served", 30)
    assert "under another name" in said
    time.sleep(1.2)  # two rounds of the server
    code, more = server.end()
    assert code == 0
    assert "no longer the file" not in more


@pytest.mark.parametrize("ending", ["npy", "npz", "bin", "zarr", "h5"])
def test_an_export_has_no_more_rights_than_the_store(tmp_path: Path, store: Path, ending: str) -> None:
    pytest.importorskip({"zarr": "zarr", "h5": "h5py"}.get(ending, "numpy"))
    old = os.umask(0o022)
    try:
        for of_store, wanted in ((0o600, 0o600), (0o640, 0o640), (0o644, 0o644)):
            store.chmod(of_store)
            with nandarray.open(store) as opened:
                nandarray.export(opened["a"], tmp_path / f"a.{ending}", overwrite=True)
            assert mode(tmp_path / f"a.{ending}") & 0o666 == wanted
    finally:
        os.umask(old)


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
@pytest.mark.parametrize("ending", ["npy", "zarr"])
@pytest.mark.parametrize("may_give", [True, False])
def test_a_file_of_another_group_lets_nobody_in_whom_the_store_does_not(
    tmp_path: Path, store: Path, ending: str, may_give: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({"zarr": "zarr"}.get(ending, "numpy"))
    os.chown(store, -1, 65534)
    mine = os.getegid()

    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not may_give:
        monkeypatch.setattr(os, "chown", refuse)
        monkeypatch.setattr(os, "fchown", refuse)
    old = os.umask(0o022)
    try:
        for of_store, given, refused in (
            (0o640, (65534, 0o640), (mine, 0o600)),
            (0o604, (65534, 0o604), (mine, 0o600)),
            (0o644, (mine, 0o644), (mine, 0o644)),
        ):
            store.chmod(of_store)
            with nandarray.open(store) as opened:
                nandarray.export(opened["a"], tmp_path / f"a.{ending}", overwrite=True)
                found = os.stat(tmp_path / f"a.{ending}")
                assert (found.st_gid, found.st_mode & 0o666) == (given if may_give else refused)
                StatusFile(store, "tcp", opened._engine.file_state()).write({})
                found = os.stat(f"{store}.serve.json")
                wanted = (65534, of_store) if may_give else refused
                assert (found.st_gid, stat.S_IMODE(found.st_mode)) == wanted
    finally:
        os.umask(old)


@pytest.mark.parametrize("name", ["old", "new", "old.old"])
def test_a_directory_of_any_name_is_replaced(tmp_path: Path, store: Path, name: str) -> None:
    zarr = pytest.importorskip("zarr")
    with nandarray.open(store) as opened:
        for _ in range(2):
            nandarray.export(opened["a"], tmp_path / name, format="zarr", overwrite=True)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / name, mode="r")[:], np.arange(1000))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "s.nand"])


def test_an_export_replaces_no_store_that_it_reads_and_no_other_directory(tmp_path: Path, store: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "text").write_text("precious")
    with nandarray.open(store) as opened:
        with pytest.raises(InvalidError, match="the store itself"):
            nandarray.export(opened["a"], store, format="npy", overwrite=True)
        for format_ in ("npy", "zarr"):
            with pytest.raises(StoreExistsError, match="none of Zarr"):
                nandarray.export(opened["a"], tmp_path / "notes", format=format_, overwrite=True)
    assert (tmp_path / "notes" / "text").read_text() == "precious"
    with nandarray.open(store) as opened:
        np.testing.assert_array_equal(opened["a"][:], np.arange(1000))


def test_a_timeline_takes_no_stores_place(tmp_path: Path) -> None:
    path = tmp_path / "m.nand"
    with nandarray.open(path, "w", device="mqsim-ideal") as made:
        made["a"] = [1, 2]
    with pytest.raises(InvalidError, match="the store itself"):
        nandarray.open(path, "r+", device="mqsim-ideal", trace=path)
    with nandarray.open(path, device="mqsim-ideal") as opened:
        assert opened["a"][1] == 2


def test_status_of_no_server(store: Path) -> None:
    with pytest.raises(NotFoundError, match="no server runs"):
        status_of(store)
