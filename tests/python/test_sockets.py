"""Promise: a unix socket is a door like TCP, for the users whom it is for; shared memory with one is a whole store.

A model of NumPy arrays is held against a store in shared memory while the process that has the file changes the same
arrays; servers that are killed, links and files that lie where a socket is to be, and another user.
"""

from __future__ import annotations

import contextlib
import grp
import multiprocessing
import os
import pickle
import random
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import ended

import nandarray
from nandarray import gpu
from nandarray.errors import (
    ClosedError,
    DoorError,
    InvalidError,
    NandarrayError,
    NotFoundError,
    ReadOnlyError,
)
from nandarray.gpu.shared import SharedSpace
from nandarray.nvme import connect, new_secret

ROOT = os.geteuid() == 0
HOST = "nqn.2014-08.org.example:host"
SMALL: dict[str, Any] = {"queues": 4, "depth": 16, "data_bytes": 65536}


@pytest.fixture
def file(tmp_path: Path) -> Iterator[nandarray.Store]:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["x"] = np.arange(700, dtype="<i4").reshape(70, 10)
        yield store


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def serving(store: Path, *words: str) -> tuple[subprocess.Popen[str], list[str]]:
    """``nandarray serve`` in a process of its own, and the lines that it prints once it serves."""
    command = [sys.executable, "-m", "nandarray", "serve", str(store), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith("serving") or (line.startswith("url") and "unix" in line):
            break
    return process, lines


# --- A socket beside TCP ----------------------------------------------------------------------------------------------


def test_a_drive_is_at_an_address_and_at_a_socket_alike(tmp_path: Path, file: nandarray.Store) -> None:
    path = tmp_path / "x.sock"
    with nandarray.serve(file, ["127.0.0.1:0", f"unix:{path}"]) as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [url.partition("://")[0] for url in server.urls] == ["nvme+tcp", "nvme+unix"]
        assert server.status()["addresses"] == server.addresses == [server.address, f"unix:{path}"]
        for at, url in enumerate([*server.urls, f"nvme+unix://{path}"]):
            with nandarray.open(url, "r+") as store:
                store["x"][at] = -at
                assert store["x"].reduce("sum", key=at) == file["x"][at].sum() == -10 * at
                peers = {peer[1:] for peer in server.status()["peers"]}
                assert peers == ({(os.geteuid(), os.getpid())} if at else set())
        with socket.socket(socket.AF_UNIX) as silent, nandarray.open(server.urls[1]) as store:
            silent.connect(str(path))
            assert store["x"][3, 0] == 30
    assert names(tmp_path) == ["a.nand"]
    with nandarray.serve(file, f"unix:{path}", read_only=True) as server:
        assert server.connect_line is None
        with nandarray.open(server.url, "r+") as store, pytest.raises(ReadOnlyError):
            store["x"][0] = 1
        with pytest.raises(InvalidError, match="no subsystem there has the name"):
            nandarray.open(server.url + "a")
    with pytest.raises(InvalidError, match=r"os error 2"):
        nandarray.open(server.url)


def test_secrets_hold_for_a_socket_too(tmp_path: Path, file: nandarray.Store) -> None:
    secret, path = new_secret(), tmp_path / "x.sock"
    with nandarray.serve(file, f"unix:{path}", secrets={HOST: secret}) as server:
        with connect(server.url, hostnqn=HOST, secret=secret) as store:
            assert store["x"][0, 1] == 1
        with pytest.raises(InvalidError, match="a URL with a secret must have the name of the drive"):
            connect(f"nvme+unix://{path}", hostnqn=HOST, secret=secret)
        for wrong in ({"secret": new_secret()}, {}):
            with pytest.raises(InvalidError, match="cannot connect"):
                connect(server.url, hostnqn=HOST, **wrong)


@pytest.mark.parametrize(
    ("listen", "options", "message"),
    [
        ([], {}, "listen must be one or more texts"),
        ([4420], {}, "listen must be one or more texts"),
        ("unix:", {}, "must be unix:PATH"),
        ("unix:/x\0y", {}, "must be unix:PATH"),
        ("unix:/no/such/folder/x.sock", {}, "No such file or directory"),
        ("unix:/proc/x.sock", {}, "/proc/x.sock"),
        ("127.0.0.1:0", {"group": "root"}, "is for unix sockets"),
        ("unix:x.sock", {"group": "nobody-has-this"}, "no group 'nobody-has-this'"),
        ("unix:x.sock", {"advertise": "10.0.0.1"}, "unix sockets alone"),
        (["unix:x.sock", "0.0.0.0:0"], {}, "is no loopback address"),
    ],
)
def test_places_that_cannot_be_are_refused(
    file: nandarray.Store, tmp_path: Path, listen: Any, options: Any, message: str
) -> None:
    with contextlib.chdir(tmp_path), pytest.raises(InvalidError, match=message):
        nandarray.serve(file, listen, **options)
    assert names(tmp_path) == ["a.nand"]


@pytest.mark.parametrize(
    "url", ["nvme+unix://", "nvme+unix:///", "nvme+unix://x.sock", "nvme+unix:///no/such", "nvme+unix:///dev/null",
            "nvme+unix:///" + "x" * 5000, "nvme+unix:///tmp/\0", "nvme+unix:///no/nqn.x"],
)  # fmt: skip
def test_urls_of_no_socket_are_refused(url: str) -> None:
    with pytest.raises(InvalidError):
        nandarray.open(url)


@pytest.mark.parametrize("door", ["listen", "shm"])
@pytest.mark.parametrize("what", ["link", "dangling", "folder", "file", "fifo", "listener", "lock link", "lock file"])
def test_what_lies_where_a_socket_is_to_be_stays(tmp_path: Path, file: nandarray.Store, what: str, door: str) -> None:
    region = tmp_path / "r"
    planted, other = tmp_path / ("r.sock.lock" if "lock" in what else "r.sock"), tmp_path / "other"
    with contextlib.ExitStack() as stack:
        if "link" in what or what == "dangling":
            if what == "link":
                other.write_text("mine")
            planted.symlink_to(other)
        elif what == "folder":
            planted.mkdir()
        elif what == "fifo":
            os.mkfifo(planted)
        elif what == "listener":
            foreign = stack.enter_context(socket.socket(socket.AF_UNIX))
            foreign.bind(str(planted))
            foreign.listen(1)
        else:
            planted.write_text("mine")
        before, there = os.lstat(planted), names(tmp_path)
        serve = gpu.serve if door == "shm" else nandarray.serve
        with pytest.raises(InvalidError, match=r"r\.sock"):
            serve(file, str(region) if door == "shm" else f"unix:{region}.sock")
        assert names(tmp_path) == there
        after = os.lstat(planted)
        assert (before.st_ino, before.st_mode, before.st_size) == (after.st_ino, after.st_mode, after.st_size)
        assert what != "link" or other.read_text() == "mine"


@pytest.mark.parametrize("door", ["listen", "shm"])
def test_a_killed_server_leaves_its_place_and_a_living_one_does_not(tmp_path: Path, file: Any, door: str) -> None:
    file.close()
    store, region = tmp_path / "a.nand", tmp_path / "r"
    words = ["--shm", str(region), "--writable"] if door == "shm" else ["--listen", f"unix:{region}.sock"]
    url = f"shm://{region}" if door == "shm" else f"nvme+unix://{region}.sock"
    with nandarray.open(tmp_path / "b.nand", "w") as other:
        other["b"] = np.arange(3)
        for number in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
            process, _ = serving(store, *words)
            with nandarray.open(url, "r+") as client:
                client["x"][0] = number
                with pytest.raises(InvalidError):
                    gpu.serve(other, str(region), **SMALL)
                with pytest.raises(InvalidError, match="another server listens on"):
                    nandarray.serve(other, f"unix:{region}.sock")
                assert client["x"][0, 0] == number
                process.send_signal(number)
                assert ended(process) == (-9 if number == signal.SIGKILL else 0)
                for use in (lambda: client["x"][0], client.flush, lambda: client.create("new", data=[1])):
                    with pytest.raises(NandarrayError):
                        use()
            process.communicate()
    assert set(names(tmp_path)) <= {"a.nand", "b.nand"}


def test_the_command_line_listens_at_several_places(tmp_path: Path, file: Any) -> None:
    file.close()
    path = tmp_path / "x.sock"
    words = ["--listen", "127.0.0.1:0", "--listen", f"unix:{path}", "--group", grp.getgrgid(os.getegid()).gr_name]
    process, lines = serving(tmp_path / "a.nand", *words)
    assert [line.split()[0] for line in lines] == ["address", "address", "NQN", "url", "url"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    for line in lines[-2:]:
        with nandarray.open(line.split()[1]) as store:
            assert store["x"][1, 1] == 11
    process.send_signal(signal.SIGTERM)
    assert ended(process) == 0
    process.communicate()
    assert names(tmp_path) == ["a.nand"]


#: Reads by two doors, first as root, which loads what an ordinary user may not, then as another user of some groups.
_STRANGER = """
import os, sys
import nandarray

def read(url):
    try:
        with nandarray.open(url) as store:
            return f"{store['x'][1, 1]} {store['x'].reduce('sum', key=0)}"
    except nandarray.NandarrayError as error:
        return "refused" if "Permission denied" in str(error) else str(error)

for url in sys.argv[1:3]:
    assert read(url) == "11 45"
os.setgroups([int(one) for one in sys.argv[3:]])
os.setgid(65534), os.setuid(65534)
for url in sys.argv[1:3]:
    print(read(url))
"""


def let_through(path: Path) -> None:
    """Let other users through the folders of a test, which are root's alone."""
    for folder in [path, *path.parents]:
        if folder.is_relative_to(tempfile.gettempdir()) and folder.stat().st_mode & 0o777 == 0o700:
            folder.chmod(0o711)


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
def test_another_user_needs_the_group(tmp_path: Path, file: nandarray.Store) -> None:
    let_through(tmp_path)
    os.chmod(file.path, 0o600)
    group = 54321

    def strange(*groups: int) -> list[str]:
        urls = [f"nvme+unix://{tmp_path}/x.sock", f"shm://{tmp_path}/r"]
        command = [sys.executable, "-c", _STRANGER, *urls, *map(str, groups)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split("\n")[:2]

    with nandarray.serve(file, f"unix:{tmp_path}/x.sock"), gpu.serve(file, f"{tmp_path}/r", **SMALL):
        assert strange(group) == ["refused", "refused"]
    # Servers of a group: 0 is root's, which exists on each machine.
    with (
        nandarray.serve(file, f"unix:{tmp_path}/x.sock", group=0),
        gpu.serve(file, f"{tmp_path}/r", **SMALL, group=0) as server,
    ):
        assert [oct((tmp_path / one).stat().st_mode & 0o777) for one in ("x.sock", "r", "r.sock")] == ["0o660"] * 3
        assert strange(group) == ["refused", "refused"]
        assert strange(group, 0) == ["11 45", "11 45"]
        # Wider modes let no other user in: the kernel tells the user, and the connection ends.
        for one in ("x.sock", "r", "r.sock"):
            (tmp_path / one).chmod(0o666)
        assert all("cannot connect" in one for one in strange(group))
        assert server.status()["socket"]["connections"] == 0


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
def test_a_socket_of_another_user_is_not_trusted(tmp_path: Path, file: nandarray.Store) -> None:
    """A region of one user, and beside it a drive of the same name that another user serves."""
    region = tmp_path / "r"
    with gpu.serve(file, str(region), **SMALL) as server:
        os.chown(region, 65534, 65534)  # as of a server of that user: root may serve beside it
        with nandarray.open(f"shm://{region}") as client:
            assert client["x"].reduce("sum", key=0) == 45
        os.chown(region, 0, 0)
        nqn = server.status()["socket"]["nqn"]
        (tmp_path / "r.sock").unlink()
        let_through(tmp_path)
        tmp_path.chmod(0o777)
        code = f"""
import os, sys
import nandarray
os.chdir({str(tmp_path)!r})
for user in (0, 65534):
    os.setgroups([]), os.setgid(user), os.setuid(user)
    with nandarray.open(f"theirs{{user}}.nand", "w") as store:
        store["x"] = [6, 6, 6]
        with nandarray.serve(store, "unix:theirs.sock", nqn={nqn!r}):
            if user:
                os.chmod("theirs.sock", 0o666)
                os.rename("theirs.sock", "r.sock")
                print("up", flush=True)
                sys.stdin.read()
"""
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as thief:
            assert thief.stdout
            assert thief.stdout.readline() == "up\n"
            with pytest.raises(InvalidError, match=r"of user 65534, and the region is of user 0"):
                nandarray.open(f"shm://{region}")


# --- Shared memory with its socket ------------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path, file: nandarray.Store) -> Iterator[tuple[nandarray.Store, nandarray.Store, Any]]:
    """The file, the store in shared memory, and the server."""
    with (
        gpu.serve(file, str(tmp_path / "r"), writable=True, **SMALL) as server,
        nandarray.open(f"shm://{tmp_path / 'r'}", "r+") as store,
    ):
        yield file, store, server


def test_shared_memory_is_a_whole_store(shared: Any) -> None:
    file, store, server = shared
    before = server.counts()["commands"]
    x = store["x"]
    x[3] = 5
    np.testing.assert_array_equal(x[2:5], file["x"][2:5])
    assert server.status()["socket"]["reads"] == server.status()["socket"]["writes"] == 0
    assert x.reduce("sum", key=3) == 50
    assert x.filter(low=698, high=1000).tolist() == [698, 699]
    np.testing.assert_array_equal(x.map_blocks(lambda v, by: v * by, by=2), file["x"][...] * 2)
    store["new"] = np.arange(12.0).reshape(3, 4)
    group = store.create_group("g")
    group["inner"] = [1, 2]
    group.attrs["k"] = "v"
    x.attrs["unit"] = "m"
    x.append(np.full((2, 10), 8, "<i4"))
    assert (x.shape, x[71, 0], x[3, 3]) == ((72, 10), 8, 5)
    x.resize((4, 10))
    assert x[...].tolist() == file["x"][...].tolist()
    store.rename("new", "old")
    del group["inner"]
    store.flush()
    assert sorted(store) == sorted(file)
    assert dict(file["x"].attrs) == {"unit": "m"}
    assert dict(file["g"].attrs) == {"k": "v"}
    assert server.counts()["commands"] >= before
    key = bytes(range(32))
    store.create("secret", data=np.arange(5), encryption_key=key)
    assert store.open_array("secret", encryption_key=key)[...].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(DoorError, match="shared memory has no"):
        store.check()
    store.close()
    for closed in (lambda: x[0], lambda: store["x"], store.flush):
        with pytest.raises(ClosedError):
            closed()


def test_a_region_for_reading_has_a_socket_for_reading(tmp_path: Path, file: nandarray.Store) -> None:
    with gpu.serve(file, str(tmp_path / "r"), **SMALL), nandarray.open(f"shm://{tmp_path / 'r'}", "r+") as store:
        file["later"] = np.arange(4)
        assert store["later"][2] == 2
        assert store["x"].reduce("sum", key=0) == 45
        changes = [
            lambda: store["x"].__setitem__(0, 1), lambda: store["later"].__setitem__(0, 1),
            lambda: store["x"].resize((1, 1)), lambda: store.create("y", data=[1]),
            lambda: store["x"].attrs.update(k=1), lambda: store.__delitem__("x"),
        ]  # fmt: skip
        for change in changes:
            with pytest.raises(ReadOnlyError):
                change()
    with (
        gpu.serve(file, str(tmp_path / "r"), **SMALL, programs=False),
        nandarray.open(f"shm://{tmp_path / 'r'}") as store,
        pytest.raises(NandarrayError),
    ):
        store["x"].reduce("sum")


def test_names_that_change_hands_never_give_other_elements(shared: Any) -> None:
    """Arrays of equal shape are deleted, made anew, and renamed in a circle, beside handles that stay."""
    file, store, _ = shared
    file["a"], file["b"] = np.full((70, 10), 1), np.full((70, 10), 2)
    held = store["x"]
    assert isinstance(held._space, SharedSpace)
    file.rename("x", "t")
    file.rename("a", "x")
    assert (store["x"][0, 5], store["t"][0, 5], held[0, 5]) == (1, 5, 5)
    del file["t"]
    file["t"] = np.full((70, 10), 9, "<i4")
    assert store["t"][0, 5] == 9
    with pytest.raises(ClosedError):
        held[0]
    with pytest.raises(ClosedError):
        held[0] = 1


@pytest.mark.parametrize("seed", range(6))
def test_shared_memory_is_numpy_while_others_change_the_store(tmp_path: Path, seed: int) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    model: dict[str, np.ndarray[Any, Any]] = {}
    with nandarray.open(tmp_path / "a.nand", "w") as file:
        for name in ("p", "q", "r"):
            model[name] = numbers.integers(0, 99, (rng.randint(1, 9), rng.randint(1, 9))).astype("<i4")
            file.create(name, data=model[name], building_block=(4, 4))
        with (
            gpu.serve(file, str(tmp_path / "region"), writable=True, **SMALL) as server,
            nandarray.open(f"shm://{tmp_path / 'region'}", "r+") as store,
        ):
            for step in range(120):
                what, where = rng.choice("rrrrwwwwcdnsa"), rng.choice([store, store, file])
                name = rng.choice([*model, "none"])
                if name not in model:
                    with pytest.raises(NotFoundError):
                        where[name]
                    continue
                data = model[name]
                if where is file:
                    store.refresh()
                row = rng.randrange(data.shape[0])
                key = rng.choice([row, slice(None), (slice(None), 0), [row, 0], (slice(None, None, -2), slice(1, 4))])
                if what == "r":
                    np.testing.assert_array_equal(store[name][key], data[key], err_msg=f"seed {seed}, step {step}")
                elif what == "w":
                    values = numbers.integers(0, 99, data[key].shape)
                    data[key] = values
                    where[name][key] = values
                elif what == "c":
                    made = f"made{step}"
                    model[made] = numbers.integers(0, 99, data.shape).astype("<i4")
                    where.create(made, data=model[made])
                elif what == "d" and len(model) > 2:
                    del where[name], model[name]
                elif what == "n":
                    other = rng.choice([f"named{step}", "p", "q"])
                    if other not in model:
                        where.rename(name, other)
                        model[other] = model.pop(name)
                elif what == "s":
                    shape = (max(1, data.shape[0] + rng.randint(-2, 2)), max(1, data.shape[1] + rng.randint(-1, 1)))
                    grown = np.zeros(shape, "<i4")
                    both = tuple(slice(0, min(pair)) for pair in zip(shape, data.shape, strict=True))
                    grown[both] = data[both]
                    where[name].resize(shape)
                    model[name] = grown
                elif what == "a":
                    more = numbers.integers(0, 99, (2, data.shape[1])).astype("<i4")
                    where[name].append(more)
                    model[name] = np.concatenate([data, more])
                store.refresh()
            assert sorted(store) == sorted(model)
            for name, data in model.items():
                np.testing.assert_array_equal(store[name][...], data, err_msg=f"seed {seed}, {name}")
                np.testing.assert_array_equal(file[name][...], data, err_msg=f"seed {seed}, {name}")
            assert server.counts()["commands"] > 0
        assert file.check()["ok"]


def _total(store: nandarray.Store, sent: Any) -> None:
    try:
        store["x"][0]
    except ClosedError as error:
        sent.send(str(error))
    with nandarray.open(store.path) as own:
        sent.send(int(own["x"][...].sum()))


def test_threads_forks_and_pickles(tmp_path: Path, file: nandarray.Store) -> None:
    total = int(file["x"][...].sum())
    with gpu.serve(file, str(tmp_path / "r"), **SMALL), nandarray.open(f"shm://{tmp_path / 'r'}") as store:
        with ThreadPoolExecutor(8) as pool:

            def one(at: int) -> int:
                return int(store["x"].reduce("sum", key=at % 70) if at % 3 else store["x"][at % 70].sum())

            assert list(pool.map(one, range(60))) == [int(file["x"][at % 70].sum()) for at in range(60)]
        again = pickle.loads(pickle.dumps(store["x"]))
        assert int(again[...].sum()) == total
        again.store.close()
        got, sent = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(target=_total, args=(store, sent))
        child.start()
        assert got.poll(60)
        assert "process" in got.recv()
        assert got.recv() == total
        child.join(60)
        assert child.exitcode == 0
        # The end of the child, which had copies of all, ends nothing here.
        assert int(store["x"][...].sum()) == total
        assert store["x"].reduce("sum", key=0) == 45
    assert names(tmp_path) == ["a.nand"]
