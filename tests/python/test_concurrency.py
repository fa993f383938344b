"""Many at once: threads on one store, and asyncio with many commands in flight."""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import nandarray


def test_threads_write_and_read_their_own_rows(store: nandarray.Store) -> None:
    a = store.create("a", (32, 999), "i8", building_block=(5, 64))

    def work(row: int) -> bool:
        rng = np.random.default_rng(row)
        for turn in range(10):
            start = int(rng.integers(0, 900))
            a[row, start:] = np.arange(999 - start) + row + turn
            if not np.array_equal(a[row, start:], np.arange(999 - start) + row + turn):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(32)))
    assert store.check()["ok"]


def test_readers_never_see_half_a_write(store: nandarray.Store) -> None:
    a = store.create("a", (40, 40), "i4", building_block=(16, 16))
    stop = threading.Event()
    torn: list[Any] = []

    def read() -> None:
        while not stop.is_set():
            seen = np.unique(a[3:30, 5:35])
            if len(seen) != 1:
                torn.append(seen)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(150):
        a[...] = np.full((40, 40), turn)
    stop.set()
    for reader in readers:
        reader.join()
    assert not torn


def test_threads_create_and_delete(store: nandarray.Store) -> None:
    def work(i: int) -> None:
        for turn in range(5):
            store.create(f"g{i % 3}/{i}-{turn}", data=np.full(50, i))
            assert store[f"g{i % 3}/{i}-{turn}"][7] == i
            if turn % 2:
                del store[f"g{i % 3}/{i}-{turn}"]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(16)))
    assert len(store.array_names()) == 16 * 3
    with ThreadPoolExecutor(4) as pool:

        def same_name(_: int) -> int:
            try:
                store.create("once", 3)
            except nandarray.ExistsError:
                return 0
            return 1

        assert sum(pool.map(same_name, range(20))) == 1


def test_appends_and_attributes_do_not_lose_each_other(store: nandarray.Store) -> None:
    log = store.create("log", (0, 2), "i4")

    def work(i: int) -> None:
        log.append([[i, i]] * 3)
        log.attrs[f"n{i}"] = i

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    assert log.shape == (120, 2)
    assert sorted(log[::1, 0].tolist()) == sorted(list(range(40)) * 3)
    assert (log[:, 0] == log[:, 1]).all()
    assert len(log.attrs) == 40


def test_many_asynchronous_commands_in_flight(store: nandarray.Store) -> None:
    a = store.create("a", (64, 256), "i4", building_block=(8, 32))
    view = a.view((128, 128))

    async def work() -> None:
        await asyncio.gather(*(a.write_async(i, np.arange(256) + i) for i in range(64)))
        rows = await asyncio.gather(*(a.read_async(np.s_[i, ::-1]) for i in range(64)))
        assert all(np.array_equal(row, np.arange(255, -1, -1) + i) for i, row in enumerate(rows))
        out = np.empty((4, 128), "i4")
        assert await view.read_async((1, 0), (4, 128), out) is out
        assert np.array_equal(out, np.asarray(a).reshape(128, 128)[4:8])
        await view.write_async((0, 0), np.zeros((2, 128)), (2, 128))
        assert not a[0].any()
        with pytest.raises(nandarray.BadIndexError):
            await a.read_async(99)

    asyncio.run(work())


def test_closing_waits_for_what_is_in_flight(path: pathlib.Path) -> None:
    store = nandarray.open(path, mode="w")
    a = store.create("a", (64, 1000), "f8")

    async def work() -> None:
        tasks = [asyncio.ensure_future(a.write_async(i, float(i))) for i in range(64)]
        await asyncio.sleep(0)
        store.close()
        await asyncio.gather(*tasks)

    asyncio.run(work())
    with nandarray.open(path) as again:
        assert again["a"][:, 500].tolist() == [float(i) for i in range(64)]


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def _printed(script: str, path: pathlib.Path) -> str:
    """Run a script, which finds a store's ``path``, in a process of its own; what it prints."""
    prelude = f"""
import asyncio, os, signal, threading, time, warnings
import numpy as np
import nandarray
warnings.simplefilter("ignore", DeprecationWarning)  # threads and forks
path = {str(path)!r}
"""
    command = [sys.executable, "-c", prelude + script]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout.strip()


@forks
def test_a_forked_process_reads_what_was_open(path: pathlib.Path) -> None:
    """The threads of a store stay in the process that opened it: a child reads by its own."""
    script = """
with nandarray.open(path, mode="w", threads=2) as store:
    store.create("a", (1024, 1024), "float32")[...] = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
store = nandarray.open(path, mode="r", threads=2)
store["a"][...]
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if store["a"][...][-1, -1] == (1 << 20) - 1 and store["a"][5, 7] == 5 * 1024 + 7 else 3)
print(os.waitpid(child, 0)[1])
"""
    printed = _printed(script, path)
    assert printed == "0", "the child ended well"


@forks
def test_a_process_forked_while_others_read_never_hangs(path: pathlib.Path) -> None:
    """It reads, or an error tells it to open the store again, which works."""
    script = """
with nandarray.open(path, mode="w", threads=2) as store:
    store.create("a", (512, 512), "float32")[...] = np.arange(1 << 18, dtype=np.float32).reshape(512, 512)
store = nandarray.open(path, mode="r", threads=2)
stop = threading.Event()
def read():
    while not stop.is_set():
        store["a"][...]
        for i in range(100):
            store["a"][i, i]
def right():
    return store["a"][...][-1, -1] == (1 << 18) - 1 and store["a"][5, 7] == 5 * 512 + 7
def child():
    signal.alarm(60)
    try:
        return 0 if right() else 3
    except nandarray.ClosedError as e:
        if "refresh" not in str(e):
            return 4
    store.refresh()
    return 1 if right() else 5
threads = [threading.Thread(target=read) for _ in range(2)]
[t.start() for t in threads]
ends = set()
for i in range(60):
    time.sleep(i % 7 * 0.001)
    pid = os.fork()
    if pid == 0:
        os._exit(child())
    ends.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
stop.set()
[t.join() for t in threads]
print(sorted(ends - {0, 1}))
"""
    printed = _printed(script, path)
    assert printed == "[]", "no child hung, died or read anything else"


FORKED_CASES = """
FOREVER = nandarray.Kernel.from_c('''
#include <nandarray.h>
ND_PROGRAM("name": "forever", "kind": "kernel", "inputs": [{"name": "x", "dtype": "f8", "shape": ["n"]}],
           "outputs": [{"name": "y", "dtype": "f8", "shape": ["n"]}],
           "microblocks": [{"entry": "spin", "screens": "y", "reads": {"x": "rows"}, "writes": {"y": "rows"}}])
ND_MICROBLOCK(spin) { volatile uint64_t *turn = (volatile uint64_t *)args; for (;;) (void)*turn; }
''')
store = nandarray.open(path, mode="w")
store["x"] = np.arange(4096.0)
store.flush()
session = store.session()
job = session.submit(FOREVER, inputs={"x": store["x"]}, outputs={"y": store.create("y", (4096,), "f8")})
modelled = store.session(accelerator=True)
gate = threading.Event()
store._pool().submit(gate.wait)
for _ in range(64):
    store._pool().submit(gate.wait)
future = store["x"].submit(slice(0, 8))
server = nandarray.serve(store)
remote = nandarray.open(server.url)
def closed(call):
    def tried():
        try:
            call()
        except nandarray.ClosedError:
            return
        os._exit(3)
    return tried
def ends(call):
    return call
CASES = {
    "exit": ends(lambda: sys.exit(0)),
    "session dropped": ends(lambda: globals().pop("session")),
    "session closed": ends(lambda: session.close()),
    "session cancelled": ends(lambda: session.close(cancel=True)),
    "submit": closed(lambda: session.submit(FOREVER, inputs={"x": np.ones(3)})),
    "result": closed(lambda: job.result(5)),
    "cancel": closed(lambda: job.cancel()),
    "progress": closed(lambda: job.progress()),
    "repr": ends(lambda: repr(job)),
    "modelled report": closed(lambda: modelled.report()),
    "modelled closed": ends(lambda: modelled.close()),
    "future": closed(lambda: future.result()),
    "as_completed": closed(lambda: list(nandarray.as_completed([future]))),
    "server stopped": ends(lambda: server.stop()),
    "server dropped": ends(lambda: globals().pop("server")),
    "status": closed(lambda: server.status()),
    "remote": closed(lambda: remote["x"][0]),
    "remote closed": ends(lambda: remote.close()),
    "store closed": ends(lambda: store.close()),
}
found = {}
for name, case in CASES.items():
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        case()
        sys.stdout = open(os.devnull, "w")
        sys.exit(0)
    found[name] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
again = nandarray.open(server.url)
good = remote["x"][7] == again["x"][7] == 7 and job.cancel() and server.status()["connections"] > 0
gate.set()
good = good and future.result().tolist() == list(range(8))
session.close(cancel=True)
modelled.close()
remote.close()
again.close()
server.stop()
print({name: code for name, code in found.items() if code}, good)
"""


@forks
def test_a_forked_process_has_no_sessions_servers_or_futures(path: pathlib.Path) -> None:
    """Using those of the process that forked is an error, ending is quiet, and that process goes on with them."""
    assert _printed("import sys\n" + FORKED_CASES, path) == "{} True"


@forks
def test_a_forked_process_closes_the_sessions_that_it_opens(path: pathlib.Path) -> None:
    """A session beside a read-only store of the parent is the child's: closing it waits, and closes it."""
    script = """
import sys
from nandarray.programs import kernels
atax = kernels.get("atax")
with nandarray.open(path, mode="w") as store:
    store["x"] = np.ones(5, "f4")
store = nandarray.open(path, mode="r")
for accelerator in (False, True):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        session = store.session(accelerator=accelerator)
        job = session.submit(atax, inputs={"A": np.ones((4, 5), "f4"), "x": store["x"]})
        session.close()
        if not job.done():
            os._exit(3)
        try:
            session.submit(atax, inputs={"A": np.ones((4, 5), "f4"), "x": store["x"]})
        except nandarray.InvalidError as error:
            os._exit(0 if "the session is closed" in str(error) else 4)
        os._exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert _printed(script, path) == "0\n0"


@forks
def test_a_forked_process_leaves_queues_in_shared_memory_alone(path: pathlib.Path) -> None:
    script = """
import sys
from nandarray import gpu
store = nandarray.open(path, mode="w")
store["x"] = np.arange(4096.0)
server = gpu.serve(store, path + ".region")
client = gpu.connect(path + ".region")
found = []
for case in ("exit", "stop", "status", "read", "drop"):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            if case == "stop":
                server.stop()
            elif case == "status":
                server.counts()
                os._exit(3)
            elif case == "read":
                client["x"][0]
                os._exit(4)
            elif case == "drop":
                del client, server
        except nandarray.ClosedError:
            pass
        sys.exit(0)
    found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(found, client["x"][5])
server.stop()
"""
    assert _printed(script, path) == "[0, 0, 0, 0, 0] 5.0"


@forks
def test_a_forked_process_leaves_the_writers_store_alone(path: pathlib.Path) -> None:
    """A store stays with the process that opened it for writing: commands and closing do nothing in the child."""
    script = """
with nandarray.open(path, mode="w", threads=2) as store:
    a = store.create("a", (1000,), "i4")
    a[:] = 1
    store.flush()
    a[:7] = 2  # gathers in memory
    before = open(path, "rb").read()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        for command in (lambda: a[0], lambda: a.__setitem__(0, 5), store.flush):
            try:
                command()
                os._exit(2)
            except nandarray.ClosedError as e:
                if "for reading" not in str(e):
                    os._exit(3)
        with nandarray.open(path) as mine:
            seen = int(mine["a"][0])
        store.close()
        del a, store
        os._exit(0 if seen == 1 and open(path, "rb").read() == before else 4)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    a[-7:] = 3
print(status)
"""
    printed = _printed(script, path)
    assert printed == "0"
    with nandarray.open(path) as again:
        assert again["a"][[0, 6, 7, 992, 993]].tolist() == [2, 2, 1, 1, 3]
        assert again.check()["ok"]


@forks
def test_a_forked_process_does_not_inherit_what_threads_hold(path: pathlib.Path) -> None:
    """A store's lock is free there, its pool of threads is a new one, and the writer's lock stays with the writer."""
    script = """

def child(does):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            does()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return pid

wait = lambda pid: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
store = nandarray.open(path, mode="w")
store["a"] = np.arange(10)
stop = threading.Event()
def work():
    i = 0
    while not stop.is_set():
        store.attrs["k"] = i = i + 1
thread = threading.Thread(target=work)
thread.start()
print([wait(child(store.close)) for _ in range(20)])
stop.set()
thread.join()
lives = child(lambda: time.sleep(20))
store.close()
with nandarray.open(path, mode="r+") as again:
    again["a"][0] = 7
os.kill(lives, signal.SIGKILL)
os.waitpid(lives, 0)
store = nandarray.open(path)
async def read():
    return (await store["a"].read_async(np.s_[:2])).tolist()
assert asyncio.run(read()) == [7, 1]
def reads():
    assert asyncio.run(read()) == [7, 1]
print(wait(child(reads)))
"""
    printed = _printed(script, path)
    assert printed.split("\n") == [str([0] * 20), "0"]
