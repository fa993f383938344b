"""Latencies of a paced drive beside the described ones: single reads over NVMe/TCP on loopback, by our initiator.

The same blocks are read from the modelled store (the described latencies), from the served store without a pace but
with a pause of the described latency before each read, and from the served store at the pace of the wall clock (the
latencies that a host sees). The cost of the exchange is measured by a bare server over TCP that answers each request
with as many bytes after the described latency, and does nothing else: its excess over that latency is what the
machine takes to send, and to wake a process that has slept for so long. On virtual machines that is more than an
exchange without a wait. The bar: p50 and p99 within a tenth of the described ones, plus that excess at the same
percentile. The report of the paced run counts completions that left late, and by how much: on a busy machine these,
and p99, are high.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Say = Callable[[str], None]

#: Bytes of a logical block (a page of the device), and how many there are.
_LBA, _BLOCKS = 16384, 1024
#: Times of a page's read in microseconds, for the cell's four bits: described latencies from 200 us up. The transfer
#: over the channel comes on top.
READS_US = ((180, 180, 180, 180), (280, 320, 360, 400), (900, 1000, 1100, 1200), (3000, 3500, 4000, 4500))


@dataclass(frozen=True)
class PaceFigure:
    """Latencies of one device in microseconds: pairs of p50 and p99; and the completions that left late."""

    t_read_us: str
    described_us: tuple[float, float]
    unpaced_us: tuple[float, float]
    exchange_us: tuple[float, float]
    seen_us: tuple[float, float]
    completions: int
    late: int
    behind_mean_us: float
    behind_max_us: float

    def of_bar(self, i: int) -> float:
        """Excess of a percentile over the described one, less the cost of the exchange, as a fraction of it."""
        return (self.seen_us[i] - self.exchange_us[i]) / self.described_us[i] - 1


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    found = np.percentile(np.asarray(seconds) * 1e6, [50, 99])
    return float(found[0]), float(found[1])


#: Bytes of a request of the bare exchange (a command's PDU), and the time before an answer is due from which on its
#: server polls the clock, as a paced server does.
_REQUEST, _LOOK_S = 72, 300e-6


def _serve_bare(listener: socket.socket, waits_s: list[float]) -> None:
    """Answer a connection's requests, each after its wait."""
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for wait_s in waits_s:
        if not peer.recv(_REQUEST):
            return
        due = time.perf_counter() + wait_s
        time.sleep(max(0.0, wait_s - _LOOK_S))
        while time.perf_counter() < due:
            os.sched_yield()
        peer.sendall(bytes(_LBA))


def bare(waits_s: list[float]) -> tuple[float, float]:
    """Return the excess over these waits (p50, p99, in microseconds) of a bare exchange whose server waits."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = multiprocessing.get_context("fork").Process(target=_serve_bare, args=(listener, waits_s))
        server.start()
        found, room = [], memoryview(bytearray(_LBA))
        with socket.create_connection(listener.getsockname(), timeout=10) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in waits_s:
                before, received = time.perf_counter(), 0
                peer.sendall(bytes(_REQUEST))
                while received < _LBA:
                    count = peer.recv_into(room[received:])
                    if count == 0:
                        raise RuntimeError("the bare exchange's server has ended")
                    received += count
                found.append(time.perf_counter() - before)
        server.join()
    p50, p99 = _percentiles(found)
    wait50, wait99 = _percentiles(waits_s)
    return p50 - wait50, p99 - wait99


def measure_one(t_read_us: tuple[int, ...], count: int) -> PaceFigure:
    """Measure a device with these times of a page's read, by ``count`` reads."""
    import nandarray
    from nandarray.device import load
    from nandarray.nvme import Read, Write, connect

    blocks = [int(b) for b in np.random.default_rng(7).integers(0, _BLOCKS, count)]
    times = [f"{us} us" for us in t_read_us]
    with nandarray.open(device=load("qlc-enterprise").with_({"nand.t_read": times}), mode="w") as store:
        host = store.nvme()
        assert host.create_namespace(1, _BLOCKS, _LBA).ok
        for first in range(0, _BLOCKS, 128):
            assert host.submit(Write(1, first, 128), np.full(128 * _LBA // 4, first, "<u4")).ok
        store.flush()
        store.clock.settle()

        def read(submit: Callable[..., object], now: Callable[[], float], pause_s: float = 0.0) -> list[float]:
            found, room = [], bytearray(_LBA)
            for block in blocks:
                if pause_s:
                    time.sleep(pause_s)
                before = now()
                submit(Read(1, block, 1), room)
                found.append(now() - before)
            return found

        described = read(host.submit, lambda: store.clock.now)
        with nandarray.serve(store) as server, connect(server.url) as remote:
            # At the same rate: an exchange after a pause costs more than one of many without.
            unpaced = read(remote.submit, time.perf_counter, _percentiles(described)[0] * 1e-6)
        exchange = bare(described)
        with nandarray.serve(store, pace=True) as server, connect(server.url) as remote:
            seen = read(remote.submit, time.perf_counter)
        report = store.report()
        behind = report["pace.behind_mean_s"] * 1e6, report["pace.behind_max_s"] * 1e6
        counts = int(report["pace.completions"]), int(report["pace.late"])
        name = "/".join(map(str, t_read_us))
        before = _percentiles(described), _percentiles(unpaced)
        return PaceFigure(name, *before, exchange, _percentiles(seen), *counts, *behind)


def measure(count: int, say: Say) -> list[PaceFigure]:
    """Measure all devices."""
    found = []
    for t_read_us in READS_US:
        found.append(measure_one(t_read_us, count))
        say(f"t_read {found[-1].t_read_us} us: {found[-1].late} of {found[-1].completions} left late")
    return found


def table(found: list[PaceFigure]) -> tuple[list[str], list[list[str]]]:
    """Header and rows."""
    header = [
        "t_read, us",
        "described p50, p99",
        "unpaced p50, p99",
        "bare exchange's excess",
        "seen p50, p99",
        "above described, less exchange",
    ]
    header += ["late", "behind, mean and max"]
    rows = []
    for one in found:
        pairs = [f"{a:,.0f}, {b:,.0f}" for a, b in (one.described_us, one.unpaced_us, one.exchange_us, one.seen_us)]
        above = [f"{one.of_bar(i) * 100:+.1f} %" for i in (0, 1)]
        kept = "kept" if all(abs(one.of_bar(i)) <= 0.1 for i in (0, 1)) else "missed"
        behind = f"{one.behind_mean_us:,.0f}, {one.behind_max_us:,.0f}"
        rows.append([one.t_read_us, *pairs, f"{', '.join(above)}: {kept}", f"{one.late}/{one.completions}", behind])
    return header, rows
