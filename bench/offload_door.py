"""Programs at a node: a sum, and a filter that keeps 0.1 %, over NVMe/TCP on loopback.

The node is ``nandarray serve`` in a process of its own. Beside it stand the same offload of the file in this process,
in the form that it takes by itself (native) and in that of a node (translated: a node executes no machine code of its
clients); the whole array read through the door and worked on by NumPy; and Arrow Flight's ``do_get`` of the same
bytes, which a process has in memory, worked on by Arrow. All is in the page cache. Systems take turns.

Processor time is this process's alone: what a client pays.
"""

from __future__ import annotations

import multiprocessing
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from .offload import make

OPERATIONS = ("sum", "filter")
DTYPE = "float64"
#: Of normally distributed elements 0.1 % lie between these.
LOW, HIGH = 3.0902, 100.0
#: Most wall time as a multiple of the local offload's; most processor time of the client in seconds.
WITHIN, CPU_S = 1.3, 0.05
DEFAULT_BYTES = 2 << 30
LOCAL, FORM, NODE = "local offload", "local offload, translated", "at the node over TCP"
READ, FLIGHT = "all read over TCP, NumPy", "Arrow Flight do_get, Arrow"
_BATCH = 1 << 19
_Runs = dict[str, Callable[[], Any]]


@dataclass
class DoorRow:
    """One system at one operation: wall and processor seconds of each round, bytes that came over the wire.

    ``ratio`` is the median of its seconds over that of the local offload.
    """

    operation: str
    system: str
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    received: int | None = None
    ratio: float = 0.0
    verdict: str = ""


@contextmanager
def served(path: Path) -> Iterator[str]:
    """Serve a store for reading from a process of its own; its address."""
    command = [sys.executable, "-m", "nandarray", "serve", str(path), "--listen", "127.0.0.1:0", "--read-only"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            found = (re.search(r"nvme\+tcp://\S+", line) for line in process.stdout)
            yield next(one.group() for one in found if one)
        finally:
            process.terminate()


def _flight(pipe: Connection, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import flight

    import nandarray

    with nandarray.open(path, mode="r") as store:
        x = store["x"][...]
    batches = [pa.record_batch({"x": x[at : at + _BATCH]}) for at in range(0, len(x), _BATCH)]

    class Held(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, _context: Any, _ticket: Any) -> Any:
            return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(batches[0].schema, batches))

    with Held("grpc://127.0.0.1:0") as server:
        pipe.send(server.port)
        with suppress(EOFError):  # the other end is gone
            pipe.recv()


@contextmanager
def _flight_of(path: Path) -> Iterator[Any]:
    """A client of a Flight server that has the array in its memory, in a process of its own."""
    from pyarrow import flight

    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=_flight, args=(theirs, path))
    process.start()
    theirs.close()
    try:
        if not pipe.poll(120):
            raise SystemExit("the Flight server does not start")
        with flight.connect(f"grpc://127.0.0.1:{pipe.recv()}") as client:
            yield client
        pipe.send("end")
    finally:
        process.join(30)
        process.kill()


def _ours(array: Any, form: str | None, received: dict[str, int | None]) -> _Runs:
    import nandarray
    from nandarray import programs

    def run(name: str, **scalars: float) -> Callable[[], Any]:
        program = programs.get(name, dtype=DTYPE)

        def work() -> Any:
            done = nandarray.offload(program, [array], scalars, form=form)
            received[name] = done.account.traffic.received
            return done.result

        return work

    return {"sum": run("sum"), "filter": run("filter", low=LOW, high=HIGH)}


def _numpy(read: Callable[[], Any]) -> _Runs:
    def kept() -> Any:
        x = read()
        return x[(x >= LOW) & (x <= HIGH)]

    return {"sum": lambda: read().sum(), "filter": kept}


def _arrow(client: Any) -> _Runs:
    import pyarrow.compute as pc
    from pyarrow import flight

    def fetched() -> Any:
        return client.do_get(flight.Ticket(b"x")).read_all()["x"]

    def kept() -> Any:
        x = fetched()
        return x.filter(pc.and_(pc.greater_equal(x, LOW), pc.less_equal(x, HIGH))).to_numpy()

    return {"sum": lambda: pc.sum(fetched()).as_py(), "filter": kept}


def _check(operation: str, found: Any, wanted: Any, system: str) -> None:
    good = np.isclose(found, wanted, rtol=1e-9) if operation == "sum" else np.array_equal(found, wanted)
    if not good:
        raise SystemExit(f"{system} gives another {operation} than NumPy: {found}, {wanted}")


def measure(folder: Path, *, size: int, rounds: int, say: Callable[[str], None] = print) -> list[DoorRow]:
    """Measure all systems.

    Parameters
    ----------
    folder : pathlib.Path
        Folder of the store, which is removed at the end.
    size : int
        Bytes of the array, of float64.
    rounds : int
        Number of runs of each system; a figure is their median.
    say : callable
        Function that is called with lines on the progress, and on systems that are skipped.

    Returns
    -------
    list of DoorRow
        By operation, the local offload first.
    """
    import nandarray

    place = folder / "offload-door"
    rows: list[DoorRow] = []
    try:
        say(f"writing {size / 2**30:g} GiB of {DTYPE}")
        make(place / "data.nand", size, DTYPE)
        with ExitStack() as stack:
            url = stack.enter_context(served(place / "data.nand"))
            local = stack.enter_context(nandarray.open(place / "data.nand", mode="r"))["x"]
            remote = stack.enter_context(nandarray.open(url, "r"))["x"]
            wanted = {name: run() for name, run in _numpy(lambda: local[...]).items()}
            received: dict[str, int | None] = {}
            systems = {
                LOCAL: _ours(local, None, {}),
                FORM: _ours(local, "translated", {}),
                NODE: _ours(remote, None, received),
                READ: _numpy(lambda: remote[...]),
            }
            try:
                systems[FLIGHT] = _arrow(stack.enter_context(_flight_of(place / "data.nand")))
            except ImportError:
                say("skipping Arrow Flight: pyarrow is not installed; pip install '.[bench]'")
            for operation in OPERATIONS:
                say(f"{operation}: {', '.join(systems)}")
                found = {name: DoorRow(operation, name) for name in systems}
                for name, runs in systems.items():
                    _check(operation, runs[operation](), wanted[operation], name)
                for turn in range(rounds):
                    names = list(systems)
                    shift = turn % len(names)
                    for name in names[shift:] + names[:shift]:
                        begin, used = time.perf_counter(), time.process_time()
                        given = systems[name][operation]()
                        found[name].seconds.append(time.perf_counter() - begin)
                        found[name].cpu.append(time.process_time() - used)
                        del given
                found[NODE].received = received[operation]
                rows += judged(list(found.values()))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return rows


def judged(rows: list[DoorRow]) -> list[DoorRow]:
    """Work out ratios, and whether the run at the node is within its bars."""
    medians = {row.system: statistics.median(row.seconds) for row in rows}
    for row in rows:
        row.ratio = medians[row.system] / medians[LOCAL]
        if row.system == NODE:
            cpu = statistics.median(row.cpu)
            missed = [f"more than {WITHIN:g} times the local offload's time"] if row.ratio > WITHIN else []
            missed += [f"{cpu:.3f} s of processor time"] if cpu >= CPU_S else []
            row.verdict = f"MISSED: {', '.join(missed)}" if missed else "kept"
    return rows


def table(rows: list[DoorRow]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as text."""
    header = ["operation", "system", "seconds", "time, local = 1", "client's CPU seconds", "bytes received", "verdict"]
    lines = []
    for row in rows:
        figures = [f"{statistics.median(row.seconds):.4f}", f"{row.ratio:.2f}", f"{statistics.median(row.cpu):.4f}"]
        lines.append(
            [row.operation, row.system, *figures, "" if row.received is None else str(row.received), row.verdict]
        )
    return header, lines
