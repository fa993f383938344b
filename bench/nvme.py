"""NVMe/TCP on loopback: a served store beside nbdkit and a bare exchange of the same bytes.

Servers are pinned to one core and clients to another. Figures are operations a second, and CPU microseconds an
operation of both sides, which load of the machine changes less. ``exchange.c`` is the bare exchange: of one hot buffer,
and, for reads, also of distinct memory; nbdkit, with its memory plugin and, for writes, also a file, is driven by fio.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Say = Callable[[str], None]

#: Bytes of a PDU's headers: a command, a completion, the head of data.
_COMMAND, _COMPLETION, _HEAD = 72, 24, 24
_NAMESPACE_BYTES = 256 << 20
_SIDE = 4096


@dataclass(frozen=True)
class Pattern:
    """A load: kind ``read``, ``write``, ``box`` (an N-D sub-block) or ``rows`` (the same block from a namespace)."""

    name: str
    kind: str
    bytes: int
    depth: int
    connections: int = 1
    #: Bytes that the places of requests are multiples of.
    align: int = 4096


PATTERNS = (
    Pattern("4 KiB reads, QD 32", "read", 4096, 32),
    Pattern("4 KiB writes, QD 32", "write", 4096, 32),
    Pattern("4 KiB writes at multiples of 512 bytes, QD 32", "write", 4096, 32, align=512),
    Pattern("128 KiB reads, QD 8", "read", 128 << 10, 8),
    Pattern("4 KiB reads, QD 1", "read", 4096, 1),
    Pattern("4 KiB reads, QD 32, two connections", "read", 4096, 32, 2),
    Pattern("sub-block of 256 x 256 float32, QD 1", "box", 256 << 10, 1),
    Pattern("the same block as 256 reads of rows, QD 32", "rows", 1024, 32),
)


@dataclass(frozen=True)
class Figure:
    """One line: operations a second and CPU microseconds an operation; or why there are none."""

    pattern: str
    system: str
    operations_s: float = 0.0
    client_us: float = 0.0
    server_us: float = 0.0
    why_not: str = ""


def _cores() -> tuple[int, int]:
    cores = sorted(os.sched_getaffinity(0))
    return cores[0], cores[-1]


def _cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _server(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process on the servers' core, ended afterwards."""
    core = _cores()[0]
    process = subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, {core}), **options
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        if process.stdout:
            process.stdout.close()


def _client(command: list[str]) -> str:
    """Run a process on the clients' core; its output."""
    core = _cores()[1]
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, check=True, preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    return done.stdout


def _figure(pattern: Pattern, system: str, pid: int, run: Callable[[], tuple[float, float, float]]) -> Figure:
    """Measure: ``run`` gives operations, seconds and the client's CPU seconds."""
    before = _cpu_s(pid)
    operations, seconds, client_s = run()
    server_s = _cpu_s(pid) - before
    return Figure(pattern.name, system, operations / seconds, client_s / operations * 1e6, server_s / operations * 1e6)


def bare(pattern: Pattern, folder: Path, seconds: float, *, is_cold: bool = False) -> Figure:
    """Measure the exchange of the same bytes, without a protocol.

    The answers come from one buffer that stays in the caches, which is what the bars are measured by; or, with
    ``is_cold``, each from another place of as many bytes as the namespace has, as those of a read of random blocks do.
    """
    system = "bare exchange of distinct memory" if is_cold else "bare exchange"
    compiler = shutil.which("cc")
    if compiler is None:
        return Figure(pattern.name, system, why_not="no C compiler")
    program = folder / "exchange"
    if not program.exists():
        subprocess.run([compiler, "-O2", "-o", program, Path(__file__).with_name("exchange.c")], check=True)
    sizes = (_COMMAND, _HEAD + pattern.bytes) if pattern.kind != "write" else (_COMMAND + pattern.bytes, _COMPLETION)
    words = [str(size) for size in sizes]
    with _server([str(program), "server", *words, *([str(_NAMESPACE_BYTES)] if is_cold else [])]) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()

        def run() -> tuple[float, float, float]:
            text = _client([str(program), "client", port, *words, str(pattern.depth), str(seconds)])
            operations, took, cpu_s = map(float, text.split())
            return operations, took, cpu_s

        return _figure(pattern, system, server.pid, run)


def nbdkit(pattern: Pattern, seconds: float, file: Path | None = None) -> Figure:
    """Measure nbdkit's memory plugin with fio's NBD engine; or its plugin of files, with one that is full.

    The file, like the store, is durable only after a flush, and no flush is sent.
    """
    system = "nbdkit memory" if file is None else "nbdkit file"
    missing = [name for name in ("nbdkit", "fio") if shutil.which(name) is None]
    if missing:
        return Figure(pattern.name, system, why_not=f"{' and '.join(missing)} not installed")
    plugin = ["memory", str(_NAMESPACE_BYTES)]
    if file is not None:
        file.write_bytes(os.urandom(1 << 20) * (_NAMESPACE_BYTES >> 20))
        plugin = ["file", str(file)]
    with _server(
        ["nbdkit", "-f", "-i", "127.0.0.1", "-p", str(port := 20000 + os.getpid() % 20000), *plugin]
    ) as server:
        time.sleep(0.5)
        command = ["fio", "--name=a", "--ioengine=nbd", f"--uri=nbd://127.0.0.1:{port}", "--output-format=json"]
        command += [f"--rw=rand{pattern.kind}", f"--bs={pattern.bytes}", f"--iodepth={pattern.depth}", "--thread"]
        command += [f"--blockalign={min(pattern.align, pattern.bytes)}"]
        command += ["--time_based", f"--runtime={seconds}", f"--numjobs={pattern.connections}", "--group_reporting"]

        def run() -> tuple[float, float, float]:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            text = _client(command)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            job = json.loads(text[text.index("{") :])["jobs"][0][pattern.kind]
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            return job["total_ios"], job["runtime"] / 1000, used

        return _figure(pattern, system, server.pid, run)


def nandarray(pattern: Pattern, url: str, pid: int, seconds: float) -> Figure:
    """Measure a served store with our initiator."""
    command = [sys.executable, "-m", "bench.nvme", url, json.dumps(asdict(pattern)), str(seconds)]

    def run() -> tuple[float, float, float]:
        operations, took, cpu_s = json.loads(_client(command))
        return operations, took, cpu_s

    figure = _figure(pattern, "nandarray", pid, run)
    if pattern.kind != "rows":
        return figure
    # An operation of this pattern is the block.
    rows = (256 << 10) // pattern.bytes
    return Figure(
        figure.pattern, "nandarray", figure.operations_s / rows, figure.client_us * rows, figure.server_us * rows
    )


def _commands(pattern: Pattern, remote: Any) -> list[bytes]:
    def entry(opcode: int, nsid: int, words: dict[int, int]) -> bytes:
        dwords = [opcode, nsid, *(words.get(number, 0) for number in range(2, 16))]
        return struct.pack("<16I", *dwords)

    rng = random.Random(1)
    if pattern.kind == "box":
        view = remote["m"]
        boxes = [[rng.randrange(0, _SIDE - 256) for _ in range(2)] for _ in range(500)]
        space = view._space
        return [entry(0x02, 1024, {10: space.dsid(None), 11: 2 | 1 << 8 | 1 << 10, 12: space.box(at, (256, 256))})
                for at in boxes]  # fmt: skip
    blocks = _NAMESPACE_BYTES // 512
    step = pattern.bytes // 512
    unit = pattern.align // 512
    first = [rng.randrange(0, blocks - step) // unit * unit for _ in range(20_000)]
    if pattern.kind == "rows":
        starts = [rng.randrange(0, _SIDE - 256) * _SIDE * 4 + rng.randrange(0, _SIDE - 256) * 4 for _ in range(80)]
        first = [(start + row * _SIDE * 4) // 512 for start in starts for row in range(256)]
        # A row of 1 KiB that begins anywhere lies in three blocks of 512 bytes.
        step = 3
    opcode = 0x01 if pattern.kind == "write" else 0x02
    return [entry(opcode, 1, {10: at % (blocks - step), 12: step - 1}) for at in first]


def client(url: str, pattern: Pattern, seconds: float) -> tuple[int, float, float]:
    """Run a load from this process: operations, seconds, CPU seconds."""
    from nandarray import _nandarray
    from nandarray.nvme import connect

    remotes = [connect(url) for _ in range(pattern.connections)]
    works = [_commands(pattern, remote) for remote in remotes]
    room = pattern.bytes if pattern.kind != "rows" else 3 * 512
    done = [0] * len(remotes)
    until = time.perf_counter() + seconds

    def work(i: int) -> None:
        native = remotes[i]._source.connection
        assert isinstance(native, _nandarray.NvmeHost)
        while time.perf_counter() < until:
            part = works[i][: 200 if pattern.kind == "box" else None]
            if pattern.kind == "write":
                native.write_many(part, bytes(pattern.bytes), pattern.depth)
            else:
                native.read_many(part, room, pattern.depth)
            done[i] += len(part)

    before, cpu = time.perf_counter(), time.process_time()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(remotes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done), time.perf_counter() - before, time.process_time() - cpu


def _make(path: Path) -> None:
    import numpy as np

    import nandarray as nd

    with nd.open(path, mode="w") as store:
        assert store.nvme().create_namespace(1, _NAMESPACE_BYTES // 512, 512).ok
        rng = np.random.default_rng(1)
        for first in range(0, _NAMESPACE_BYTES // 512, 1 << 15):
            store["ns/1"][first : first + (1 << 15)] = np.frombuffer(rng.bytes(512 << 15), "V512")
        store["m"] = rng.random((_SIDE, _SIDE), dtype="f4")


def measure(folder: Path, seconds: float, only: str, say: Say) -> list[Figure]:
    """Measure every pattern on every system."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    with tempfile.TemporaryDirectory(dir=folder) as made:
        path = Path(made) / "a.nand"
        _make(path)
        command = [sys.executable, "-m", "nandarray", "serve", str(path), "--listen", "127.0.0.1:0"]
        with _server(command) as server:
            assert server.stdout is not None
            url = [server.stdout.readline().split() for _ in range(4)][2][1]
            for pattern in PATTERNS:
                if only and only not in pattern.name:
                    continue
                found.append(nandarray(pattern, url, server.pid, seconds))
                if pattern.kind != "rows" and pattern.connections == 1:
                    found.append(bare(pattern, Path(made), seconds))
                    if pattern.kind != "write":
                        found.append(bare(pattern, Path(made), seconds, is_cold=True))
                if pattern.kind in ("read", "write") and pattern.connections == 1:
                    found.append(nbdkit(pattern, seconds))
                if pattern.kind == "write":
                    found.append(nbdkit(pattern, seconds, Path(made) / "b.img"))
                say(f"{pattern.name}: load {os.getloadavg()[0]:.1f}")
    return found


def table(found: list[Figure]) -> tuple[list[str], list[list[str]]]:
    """Header and rows."""
    header = ["pattern", "system", "operations/s", "client us/op", "server us/op", "of bare (CPU, both sides)"]
    bare_us = {one.pattern: one.client_us + one.server_us for one in found if one.system == "bare exchange"}
    rows = []
    for one in found:
        if one.why_not:
            rows.append([one.pattern, one.system, one.why_not, "", "", ""])
            continue
        of = bare_us.get(one.pattern, 0.0)
        ratio = f"{(one.client_us + one.server_us) / of:.1f}" if of else ""
        figures = [f"{one.operations_s:,.0f}", f"{one.client_us:.2f}", f"{one.server_us:.2f}", ratio]
        rows.append([one.pattern, one.system, *figures])
    return header, rows


if __name__ == "__main__":
    print(json.dumps(client(sys.argv[1], Pattern(**json.loads(sys.argv[2])), float(sys.argv[3]))))
