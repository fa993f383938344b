"""A neighbour at a node: latencies of its 4 KiB reads and writes, alone and beside hosts that take what they can.

The node is ``nandarray serve`` in a process of its own, with two tenants, the neighbour and the attackers, both with
every array. The attackers' hosts are threads of one process. The neighbour reads and writes a namespace, one command at
a time, and between them copies, and starts a program. The bar: medians within 2 times those alone, 99th percentiles
within 5 times. A machine with few processors shares them among the attackers' process and the server's, which the line
"busy processors" shows: as many processes that compute, and ask nothing of the node.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

#: Most of a median, and of a 99th percentile, as a multiple of those alone.
MEDIAN, P99 = 2.0, 5.0
_BLOCKS, _LBA = 4096, 4096
_ELEMENTS = 4 << 20
_RULES = """
[tenants.neighbour]
hosts = ["nqn.neighbour"]
read = ["*"]
write = ["*"]
programs = true

[tenants.attackers]
hosts = ["nqn.attackers:*"]
read = ["*"]
write = ["*"]
programs = true
"""
ALONE, BUSY = "alone", "busy processors"


@dataclass
class NeighbourRow:
    """Times of one neighbour under one load, in seconds of each command, and memory of the server in bytes."""

    load: str
    read: list[float] = field(default_factory=list)
    write: list[float] = field(default_factory=list)
    copy: list[float] = field(default_factory=list)
    program: list[float] = field(default_factory=list)
    memory: int = 0


def _forever(x):  # type: ignore[no-untyped-def]
    while x >= 0:
        x = x + 1 if x < 1 << 30 else 0
    return x


def _calls(url: str, name: str, work: Callable[[Any], object]) -> None:
    """Do this again and again as one host, whatever the node answers."""
    from nandarray.errors import NandarrayError
    from nandarray.nvme import connect

    while True:
        with contextlib.suppress(NandarrayError, OSError), connect(url, hostnqn=name) as store:
            while True:
                work(store)


def _in_threads(count: int, url: str, work: Callable[[Any], object]) -> None:
    for number in range(count):
        threading.Thread(target=_calls, args=(url, f"nqn.attackers:{number}", work), daemon=True).start()


def _flood(url: str) -> None:
    """Eight hosts that start one short program after the other."""
    _in_threads(8, url, lambda store: store["small"].map_blocks(_twice))


def _twice(x):  # type: ignore[no-untyped-def]
    return x + x


def _deaf(url: str) -> None:
    """Hosts that start runs with 32 MiB of outputs, into an array, too, and take nothing of what they get."""
    import nandarray
    from nandarray import programs
    from nandarray.nvme.outputs import ArrivingOutputs

    ArrivingOutputs.take = lambda *_: time.sleep(3600)  # type: ignore[method-assign]
    root = programs.get("sqrt", dtype="float64")

    def run(store: Any) -> None:
        nandarray.offload({"a": root.on(store["x"]), "b": root.on(store["x"])}, out={"b": store["y"]})

    _in_threads(4, url, run)


def _endless(url: str) -> None:
    """Four hosts with programs that do not end, whose output is an array that the neighbour writes."""
    _in_threads(4, url, lambda store: store["whole"].map_blocks(_forever, out=store["whole"]))


def _connections(url: str) -> None:
    """Open 300 associations, and keep those that the node admits."""
    from nandarray.errors import NandarrayError
    from nandarray.nvme import connect

    held = []
    for number in range(300):
        with contextlib.suppress(NandarrayError, OSError):
            held.append(connect(url, hostnqn=f"nqn.attackers:idle{number}"))
    time.sleep(3600)


def _outputs(url: str) -> None:
    """Four hosts whose runs give 32 MiB back, again and again."""
    from nandarray import programs

    root = programs.get("sqrt", dtype="float64")
    _in_threads(4, url, lambda store: store["x"].offload(root))


def _busy(_url: str) -> None:
    """Compute in a process for each processor."""
    for _ in range(os.cpu_count() or 1):
        if os.fork() == 0:
            parent = os.getppid()
            while os.getppid() == parent:
                sum(range(1_000_000))
            os._exit(0)


LOADS: dict[str, Callable[[str], None] | None] = {
    ALONE: None,
    BUSY: _busy,
    "a flood of programs": _flood,
    "hosts that do not read": _deaf,
    "endless programs": _endless,
    "many connections": _connections,
    "many outputs": _outputs,
}


def _attack(load: Callable[[str], None], url: str) -> None:
    load(url)
    time.sleep(3600)


@contextmanager
def _loaded(load: Callable[[str], None] | None, url: str) -> Iterator[None]:
    if load is None:
        yield
        return
    process = multiprocessing.get_context("spawn").Process(target=_attack, args=(load, url), daemon=True)
    process.start()
    try:
        time.sleep(4)  # programs are compiled, and have begun
        yield
    finally:
        process.kill()
        process.join()


@contextmanager
def _served(path: Path) -> Iterator[tuple[str, int]]:
    rules = path.with_suffix(".toml")
    rules.write_text(_RULES)
    command = [sys.executable, "-m", "nandarray", "serve", str(path), "--listen", "127.0.0.1:0", "--insecure"]
    command += ["--config", str(rules)]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            found = (re.search(r"nvme\+tcp://\S+", line) for line in process.stdout)
            yield next(one.group() for one in found if one), process.pid
        finally:
            process.terminate()


def _made(path: Path) -> None:
    import nandarray

    with nandarray.open(path, "w") as store:
        assert store.nvme().create_namespace(1, _BLOCKS, _LBA).ok
        store["x"] = np.random.default_rng(1).random(_ELEMENTS)
        store["y"] = np.zeros(_ELEMENTS)
        store["small"] = np.arange(4096.0)
        store["whole"] = np.arange(_ELEMENTS)


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_load(url: str, pid: int, name: str, seconds: float) -> NeighbourRow:
    """Measure a neighbour's commands for about this number of seconds."""
    from nandarray import programs
    from nandarray.nvme import Copy, Read, Write, connect

    row, rng = NeighbourRow(name), np.random.default_rng(5)
    total = programs.get("sum", dtype="float64")
    with connect(url, hostnqn="nqn.neighbour") as store:
        room, block = bytearray(_LBA), bytes(_LBA)
        small, place = store.open_array("small"), store.open_array("whole")

        def timed(into: list[float], work: Callable[[], Any]) -> None:
            before = time.perf_counter()
            done = work()
            into.append(time.perf_counter() - before)
            assert getattr(done, "ok", True), done

        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            at = int(rng.integers(_BLOCKS))
            timed(row.read, partial(store.submit, Read(1, at, 1), room))
            timed(row.write, partial(store.submit, Write(1, at, 1), block))
            if count % 200 == 0:
                timed(row.copy, lambda: store.submit(Copy(1, 0, [(64, 16)])))
                timed(row.program, lambda: small.offload(total))
                timed([], lambda: place.__setitem__(slice(0, 8), 0))
                row.memory = max(row.memory, _resident(pid))
            count += 1
    return row


def measure(folder: Path, seconds: float, only: str, say: Callable[[str], None]) -> list[NeighbourRow]:
    """Measure the neighbour alone and under each load whose name contains ``only``, each at a node of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    try:
        for name, load in LOADS.items():
            if only not in name and load is not None:
                continue
            path = folder / "neighbour.nand"
            _made(path)
            with _served(path) as (url, pid), _loaded(load, url):
                rows.append(measure_load(url, pid, name, seconds))
            say(f"{name}: {len(rows[-1].read)} reads")
            path.unlink()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def _quantiles(found: list[float]) -> tuple[float, float]:
    p50, p99 = np.percentile(np.array(found) * 1e6, (50, 99)) if found else (np.nan, np.nan)
    return float(p50), float(p99)


def table(rows: list[NeighbourRow]) -> tuple[list[str], list[list[str]]]:
    """Return the rows as text, with a verdict of each against the bar."""
    header = ["load", "read p50/p99 us", "write p50/p99 us", "copy us", "program us", "server MiB", "bar"]
    alone = rows[0]
    lines = []
    for row in rows:
        bars = []
        for kind in ("read", "write"):
            (p50, p99), (own50, own99) = _quantiles(getattr(row, kind)), _quantiles(getattr(alone, kind))
            bars.append((p50 / own50, p99 / own99))
        kept = all(p50 <= MEDIAN and p99 <= P99 for p50, p99 in bars)
        told = ", ".join(f"{p50:.1f}x {p99:.1f}x" for p50, p99 in bars)
        pairs = [f"{p50:.0f}/{p99:.0f}" for p50, p99 in (_quantiles(row.read), _quantiles(row.write))]
        halves = [f"{_quantiles(one)[0]:.0f}" for one in (row.copy, row.program)]
        lines.append(
            [row.load, *pairs, *halves, f"{row.memory / (1 << 20):.0f}", f"{'kept' if kept else 'MISSED'}: {told}"]
        )
    return header, lines
