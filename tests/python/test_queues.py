"""The shared-memory door: other processes read and write a served store; death of either side ends in a status.

The C++ client is compiled with g++ and reads what Python wrote; what warps of a GPU would do is in ``test_gpu_header``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from processes import ended

import nandarray
from nandarray import gpu
from nandarray.errors import ClosedError, InvalidError, NotFoundError, VolumeMismatchError

GPU = Path(__file__).parents[1] / "gpu"
#: Clients that are killed, two at a time.
KILLS = 100

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


class Served:
    """``nandarray serve`` in a process of its own."""

    def __init__(self, store: Path, region: Path, *options: str) -> None:
        command = [sys.executable, "-m", "nandarray", "serve", str(store), "--shm", str(region), *options]
        self.region = region
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.line = self.process.stdout.readline()
        assert "serving" in self.line, self.line

    def connect(self) -> nandarray.Store:
        return gpu.connect(str(self.region), deadline_ms=20_000)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        assert self.process.stdout
        self.process.stdout.close()
        return ended(self.process)


@pytest.fixture
def served(tmp_path):
    path = tmp_path / "a.nand"
    with nandarray.open(path, "w") as store:
        store["line"] = np.arange(20_000, dtype="<u8") * 3
        store["grid"] = np.arange(70 * 90, dtype="<f4").reshape(70, 90)
        store["cube"] = np.arange(6 * 5 * 4, dtype="<i2").reshape(6, 5, 4)
        store["when"] = np.arange(64).astype("datetime64[s]")
    one = Served(path, tmp_path / "region", "--writable", "--queues", "4", "--depth", "16", "--data", "64KiB")
    yield one
    if one.process.poll() is None:
        one.end()


def test_another_process_reads_what_is_served(served) -> None:
    with nandarray.open(f"shm://{served.region}") as store:
        assert set(store) == {"line", "grid", "cube", "when"}
        grid = np.arange(70 * 90, dtype="<f4").reshape(70, 90)
        shared = store["grid"]
        assert (shared.shape, shared.dtype, shared.ndim, shared.size) == ((70, 90), np.dtype("<f4"), 2, 6300)
        for key in (np.s_[:], np.s_[3], np.s_[5:9], np.s_[::-7], np.s_[[4, 1, 4]], np.s_[2:4, 5], np.s_[..., 1], -1):
            np.testing.assert_array_equal(shared[key], grid[key])
        assert store["cube"][2, 3, 1] == 2 * 20 + 3 * 4 + 1
        np.testing.assert_array_equal(store["when"][:], np.arange(64).astype("datetime64[s]"))
        np.testing.assert_array_equal(np.asarray(store["line"]), np.arange(20_000) * 3)
        with pytest.raises(IndexError):
            store["grid"].gather([70])
        with pytest.raises(NotFoundError):
            store["none"]


def test_a_served_array_takes_every_index_of_numpy(served) -> None:
    rng = np.random.default_rng(3)
    grid = np.arange(70 * 90, dtype="<f4").reshape(70, 90)
    cube = np.arange(6 * 5 * 4, dtype="<i2").reshape(6, 5, 4)
    rows = np.array([3, -1, 3])
    keys = [
        np.int64(2),
        rows,
        (rows, 0),
        (rows, rows),
        [True, False] * 35,
        None,
        (None, 0),
        True,
        False,
        (),
        rows[:, None],
    ]
    keys += [
        np.s_[::-1, 4],
        np.s_[2:9:3, ::2],
        np.s_[:, rows],
        np.s_[60:2:-7, 80:],
        (rows, slice(1, 3), None),
        grid > 40,
    ]
    with served.connect() as store:
        for key in keys:
            found, wanted = store["grid"][key], grid[key]
            assert type(found) is type(wanted)
            np.testing.assert_array_equal(found, wanted)
        for key in (np.s_[rows, :, rows], np.s_[..., 1], np.s_[1, :, ::-2], np.s_[1, 2:, 3], cube % 3 == 1, (rows, 1)):
            np.testing.assert_array_equal(store["cube"][key], cube[key])
        for line in (np.s_[5], np.s_[::1000], np.s_[9:2:-3], rng.integers(-20_000, 20_000, 50)):
            np.testing.assert_array_equal(store["line"][line], (np.arange(20_000, dtype="<u8") * 3)[line])
        for wrong in ("a", 1.5, 70, (0, 0, 0), np.zeros(3, bool), [[0], [70]]):
            with pytest.raises(IndexError):
                store["grid"][wrong]


def test_errors_of_a_region_alone_say_what_became_of_the_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nandarray.gpu.client._BEGINS", 0)
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["x"], store["y"], store["empty"] = np.zeros((100, 10)), np.zeros((100, 10)), np.zeros((0, 3))
        store["single"], store["r"] = np.array(5, ">i4"), np.zeros(3, [("a", "<i4")])
        server = gpu.serve(store, str(tmp_path / "region"), writable=True)
        (tmp_path / "region.sock").unlink()  # as of a server without one
        client = gpu.connect(str(tmp_path / "region"))
        with pytest.raises(TypeError, match="unsized"):
            len(client["single"])
        client["single"][...] = 7
        assert client["single"][...] == store["single"][()] == 7
        client["r"]["a"][1:] = [5, 6]
        assert store["r"]["a"][:].tolist() == client["r"]["a"][:].tolist() == [0, 5, 6]
        assert client["empty"][:].shape == (0, 3)
        store["x"].resize((50, 10))
        del store["y"]
        for use in (lambda one: one[3], lambda one: one.gather([1]), lambda one: one.write(..., np.zeros((100, 10)))):
            with pytest.raises(VolumeMismatchError, match=r"'x' was resized while it was served: it had .*100, 10"):
                use(client["x"])
            with pytest.raises(ClosedError, match="'y' was deleted while it was served"):
                use(client["y"])
        for beyond in (client.check, client.stat, client.session, lambda: client.create("new", 3)):
            with pytest.raises(nandarray.DoorError, match=r"^shm://.*: shared memory has no "):
                beyond()
        client.close()
        for closed in (lambda: client["x"], lambda: list(client), lambda: len(client), lambda: "x" in client):
            with pytest.raises(ClosedError, match=r"the client of shm://.* is closed"):
                closed()
        server.stop()


def test_a_server_names_what_it_does_not_serve(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["empty"], store["x"] = np.zeros((0, 3)), np.zeros(3)
        store.create("deep", shape=(1,) * 17, dtype="i4")
        store["wide"] = np.zeros(2, [(f"field{i}", "<i4") for i in range(5)])
    one = Served(tmp_path / "a.nand", tmp_path / "region")
    assert "serving 2 arrays" in one.line
    assert one.process.stdout
    said = [one.process.stdout.readline() for _ in range(2)]
    with one.connect() as client:
        assert client["wide"][...].tobytes() == bytes(40)
        assert client["deep"][...].shape == (1,) * 17
    assert one.end() == 0
    assert said[0].startswith("by the socket alone 'deep': it has 17 dimensions")
    assert said[1] == "by the socket alone 'empty': it has no elements\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queues": -3}, "queue pairs must be from 1 to 4096, not -3"),
        ({"depth": 3}, "a depth must be a power of two from 2 to 32768, not 3"),
        ({"data_bytes": 100 << 40}, "whole pages of 4096 bytes, 1 TiB at most, not 1"),
        ({"threads": 99999999}, "threads for 16 queue pairs must be from 1 to 16, not 99999999"),
        ({"threads": -1}, "from 1 to 16, not -1"),
    ],
)
def test_sizes_of_a_server_have_ranges(tmp_path: Path, options: dict[str, int], message: str) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store, pytest.raises(InvalidError, match=message):
        gpu.serve(store, str(tmp_path / "region"), **options)


def test_gather_is_the_same_in_the_process_and_beside_it(served) -> None:
    rows = np.random.default_rng(5).integers(-70, 70, (3, 11))
    grid = np.arange(70 * 90, dtype="<f4").reshape(70, 90)
    with served.connect() as store, nandarray.open(served.region.parent / "a.nand") as local:
        for array in (store["grid"], local["grid"]):
            np.testing.assert_array_equal(array.gather(rows), grid[rows])
            out = np.zeros((3, 11, 90), "<f4")
            assert array.gather(rows, out=out) is out
            np.testing.assert_array_equal(out, grid[rows])
            strided = np.zeros((3, 11, 180), "<f4")[..., ::2]
            array.gather(rows, out=strided)
            np.testing.assert_array_equal(strided, grid[rows])
            assert array.gather([]).shape == (0, 90)
            for small in (np.zeros(3), np.lib.stride_tricks.as_strided(np.zeros(90, "<f4"), (3, 11, 90), (0, 0, 4))):
                with pytest.raises(InvalidError, match="out has"):
                    array.gather(rows, out=small)
            with pytest.raises(InvalidError, match="integers"):
                array.gather([0.5])


def test_torch_gathers_into_tensors(served) -> None:
    torch = pytest.importorskip("torch")
    rows = torch.tensor([[3, 1], [0, 69]])
    grid = torch.arange(70 * 90, dtype=torch.float32).reshape(70, 90)
    with served.connect() as store:
        found = store["grid"].gather(rows)
        assert torch.equal(found, grid[rows])
        out = torch.zeros(2, 2, 90)
        assert store["grid"].gather(rows, out=out) is out
        assert torch.equal(out, grid[rows])


def test_writes_of_any_elements_reach_the_store(served) -> None:
    with served.connect() as store:
        line = store["line"]
        line[64:192] = 7
        line[3:70:3] = 8
        line[[5, 1000]] = [9, 10]
        store.flush()
        found = line[...]
    assert served.end() == 0
    wanted = np.arange(20_000, dtype="<u8") * 3
    wanted[64:192], wanted[3:70:3], wanted[[5, 1000]] = 7, 8, [9, 10]
    with nandarray.open(served.region.parent / "a.nand") as store:
        assert store["line"][...].tobytes() == wanted.tobytes() == found.tobytes()


def test_a_server_that_is_killed_ends_calls_with_an_error(served) -> None:
    store = served.connect()
    assert store["line"][1] == 3
    served.end(signal.SIGKILL)
    with pytest.raises(ClosedError):
        store["line"][1]
    with pytest.raises(InvalidError, match="no-such-server"):
        nandarray.open("shm://no-such-server")


def test_options_of_the_other_door_are_refused(tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        command = [sys.executable, "-m", "nandarray", "serve", str(tmp_path / "a.nand"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2, done.stderr
        return " ".join(done.stderr.replace("│", " ").split())

    assert "--host, --listen: --shm serves without NVMe/TCP" in refused(
        "--shm", "x", "--listen", "127.0.0.1:0", "--host", "nqn.a"
    )
    assert "--queues, --writable: only a server with --shm has that" in refused("--writable", "--queues", "2")
    assert "--shm: --status starts no server" in refused("--status", "--shm", "x")
    with nandarray.open(tmp_path / "b.nand", "w") as store, pytest.raises(InvalidError, match="needs a name"):
        gpu.serve(store, "")


#: A process that forks a client for each line that it reads, and prints its number once it gathers, or its failure. A
#: client that was killed may hold its pair until the kernel has ended it, so a new one tries for a while.
_NURSERY = """
import os, signal, sys, time, numpy as np
import nandarray
from nandarray import gpu
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
rows = np.random.default_rng(1).integers(0, 20_000, 300)

def connected():
    until = time.monotonic() + 10
    while True:
        try:
            return gpu.connect(sys.argv[1])
        except nandarray.InvalidError:
            if time.monotonic() > until:
                raise
            time.sleep(0.001)

for _ in sys.stdin:
    if os.fork() == 0:
        try:
            store = connected()
            store["line"].gather(rows)
            os.write(1, b"%d\\n" % os.getpid())  # in one piece: two children may write at the same time
            while True:
                store["line"].gather(rows)
        except BaseException as error:
            os.write(1, ("%r\\n" % error).encode())
            raise
"""


def test_a_hundred_clients_killed_with_requests_in_flight_leave_their_pairs(served) -> None:
    rows = np.arange(0, 20_000, 37)
    random = np.random.default_rng(5)
    command = [sys.executable, "-c", _NURSERY, str(served.region)]
    with (
        served.connect() as store,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as nursery,
    ):
        assert nursery.stdin
        assert nursery.stdout
        for _ in range(KILLS // 2):  # of four pairs one is ours: more deaths than pairs
            nursery.stdin.write("one\ntwo\n")
            victims = [int(nursery.stdout.readline()) for _ in range(2)]
            time.sleep(random.uniform(0, 0.005))
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
            np.testing.assert_array_equal(store["line"].gather(rows), rows * 3)
        nursery.stdin.close()
        # Nothing is held for those that are gone: all pairs can be claimed again.
        others = [reclaimed(served) for _ in range(3)]
        for other in others:
            np.testing.assert_array_equal(other["line"].gather(rows), rows * 3)
            other.close()


def reclaimed(served: Served) -> nandarray.Store:
    """A client of a pair that may be free only once the server has seen the end of the one before."""
    until = time.monotonic() + 10
    while True:
        try:
            return served.connect()
        except InvalidError:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_an_idle_server_costs_under_a_hundredth_of_a_core(served) -> None:
    with served.connect() as store:
        assert store["line"][0] == 0
        time.sleep(0.3)
        before = Path(f"/proc/{served.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        time.sleep(1.5)
        after = Path(f"/proc/{served.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = sum(int(after[i]) - int(before[i]) for i in (11, 12))
    assert ticks / os.sysconf("SC_CLK_TCK") < 0.015 + 0.01


#: Serves a store and reads it, as root if that is the user, then as an ordinary user.
ORDINARY = """
import os, sys
import numpy as np
import nandarray
from nandarray import gpu
def once(folder):
    with nandarray.open(folder + "/a.nand", "w") as store:
        store["line"] = np.arange(5000, dtype="<u8")
        server = gpu.serve(store, folder + "/region", writable=True)
        with gpu.connect(folder + "/region") as remote:
            assert remote["line"].gather(np.array([7, 4999, 0])).tolist() == [7, 4999, 0]
        server.stop()
once(sys.argv[1])
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
assert os.getuid() != 0
once(sys.argv[2])
print("served")
"""


def test_an_ordinary_user_serves_and_reads() -> None:
    """No root, no kernel module, no raw drive."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        os.chmod(second, 0o777)
        done = subprocess.run(
            [sys.executable, "-c", ORDINARY, first, second], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.stdout == "served\n", done.stderr


@needs_compiler
def test_a_program_in_c_plus_plus_reads_and_stores(served, tmp_path) -> None:
    built = tmp_path / "client"
    include = gpu.include()
    command = ["g++", "-std=c++17", "-O1", "-pthread", f"-I{include}", str(GPU / "client.cpp"), "-o", str(built)]
    subprocess.run(command, check=True, timeout=120)
    done = subprocess.run([built, served.region], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == sum(i * 3 for i in range(20_000))
    assert served.end() == 0
    with nandarray.open(served.region.parent / "a.nand") as store:
        np.testing.assert_array_equal(store["line"][:64], np.arange(64) + 1)


@needs_compiler
def test_assigning_to_an_element_does_not_compile(tmp_path) -> None:
    source = tmp_path / "assign.cpp"
    text = "#include <nandarray/nandarray.hpp>\nvoid f(nda::array<float, nda::host_policy> a) { {}; }\n"
    for statement, good in (("float x = a[3]; (void)x", True), ("a[3] = 1.0f", False), ("a.store(3, 1.0f)", True)):
        source.write_text(text.replace("{}", statement))
        command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{gpu.include()}", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode == 0) is good, done.stderr
