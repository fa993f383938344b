"""A server under many connections, at the pace of the wall clock, and its conversations as an independent reader sees
them.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from nvme_entries import entry as entry_of
from processes import ended
from test_serve import cli, start

import nandarray
from nandarray import programs
from nandarray.device import load
from nandarray.errors import InvalidError
from nandarray.nvme import Flush, Read, RemoteStore, Write, connect
from tests.guest.recorder import Recorder


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def test_two_thousand_half_open_connections(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2200:
        pytest.skip(f"2,000 sockets, and this process may have {hard}")
    path = tmp_path / "a.nand"
    cli("nvme", "create", str(path), "1", "1MiB")
    process, url = start(path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2200), hard))
    try:
        address = url.split("/")[2].rsplit(":", 1)
        with nandarray.open(url) as before, contextlib.ExitStack() as sockets:
            assert before.submit(Write(1, 0, 1), b"\5" * 4096).ok
            memory = resident_bytes(process.pid)
            for number in range(2000):
                one = sockets.enter_context(socket.create_connection((address[0], int(address[1])), timeout=20))
                # Nothing at all; a part of a handshake; a handshake, and the head of a large capsule.
                with contextlib.suppress(OSError):
                    if number % 3 == 1:
                        one.sendall(struct.pack("<BBBBI", 0, 0, 128, 0, 128))
                    elif number % 3 == 2:
                        one.sendall(struct.pack("<BBBBI", 0, 0, 128, 0, 128) + bytes(120))
                        one.sendall(struct.pack("<BBBBI", 4, 0, 72, 72, 72 + 8192) + bytes(64))
            assert resident_bytes(process.pid) - memory < 64 << 20
            # A host that was there is served, and so is one that comes now.
            room = bytearray(4096)
            assert before.submit(Read(1, 0, 1), room).ok
            assert room == b"\5" * 4096
            # (It may have to come again: threads of ended connections are counted until they are over.)
            until = time.monotonic() + 20
            while True:
                try:
                    with nandarray.open(url) as after:
                        assert after.submit(Flush(1)).ok
                    break
                except InvalidError:
                    assert time.monotonic() < until
                    time.sleep(0.2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        process.send_signal(signal.SIGTERM)
        assert ended(process) == 0


# --- at the pace of the wall clock ------------------------------------------------------------------------------------

#: Bytes of a logical block, and how many are written.
LBA, BLOCKS = 16384, 1024


@contextlib.contextmanager
def modelled(*t_read: str) -> Iterator[nandarray.Store]:
    """A store on a described device with these times of a page's read."""
    with nandarray.open(device=load("qlc-enterprise").with_({"nand.t_read": list(t_read)}), mode="w") as store:
        assert store.nvme().create_namespace(1, BLOCKS, LBA).ok
        for first in range(0, BLOCKS, 128):
            data = np.repeat(np.arange(first, first + 128, dtype="<u4"), LBA // 4)
            assert store.nvme().submit(Write(1, first, 128), data).ok
        store.flush()
        store.clock.settle()
        yield store


def described(store: nandarray.Store, blocks: list[int]) -> list[float]:
    """Modelled latencies of single reads, in seconds."""
    found = []
    host = store.nvme()
    for block in blocks:
        before = store.clock.now
        assert host.submit(Read(1, block, 1), bytearray(LBA)).ok
        found.append(store.clock.now - before)
    return found


def measured(remote: RemoteStore, blocks: list[int]) -> list[float]:
    found = []
    for block in blocks:
        room = bytearray(LBA)
        before = time.perf_counter()
        assert remote.submit(Read(1, block, 1), room).ok
        found.append(time.perf_counter() - before)
        assert room == struct.pack("<I", block) * (LBA // 4)
    return found


def test_completions_leave_when_modelled_time_has_passed() -> None:
    blocks = [int(b) for b in np.random.default_rng(7).permutation(BLOCKS)[:200]]
    with modelled("400 us", "500 us", "600 us", "700 us") as store:
        wanted = described(store, blocks)
        assert min(wanted) > 400e-6
        with nandarray.serve(store) as server, connect(server.url) as remote:
            exchange = statistics.median(measured(remote, blocks))
        with nandarray.serve(store, pace=True) as server, connect(server.url) as remote:
            found = measured(remote, blocks)
        # Nothing is early; a tenth at least is on time, whatever the load of the machine.
        assert min(found) >= min(wanted)
        assert np.percentile(found, 10) <= 1.1 * np.percentile(wanted, 10) + 3 * exchange + 2e-3
        report = store.report()
        assert report["pace.completions"] >= len(blocks)
        assert 0 <= report["pace.late"] <= report["pace.completions"]
        assert 0 < report["pace.behind_mean_s"] <= report["pace.behind_max_s"]
        assert "kept pace with the wall clock" in str(report)


def test_commands_of_a_queue_wait_together() -> None:
    blocks = [int(b) for b in np.random.default_rng(8).permutation(BLOCKS)[:64]]
    entries = [entry_of(0x02, 1, {10: block}) for block in blocks]
    with modelled("10 ms", "10 ms", "10 ms", "10 ms") as store:
        one_by_one = sum(described(store, blocks))
        with nandarray.serve(store, pace=True) as server, connect(server.url) as remote:
            before = time.perf_counter()
            assert remote._source.connection.read_many(entries, LBA, 32) == len(blocks) * LBA
            took = time.perf_counter() - before
        assert 0.02 <= took < one_by_one / 2
        # Time passes at full speed again.
        before = time.perf_counter()
        described(store, blocks)
        assert time.perf_counter() - before < one_by_one / 2


def test_pace_needs_a_described_device(tmp_path: Path) -> None:
    with (
        nandarray.open(tmp_path / "b.nand", mode="w") as store,
        pytest.raises(InvalidError, match="open the store with device="),
    ):
        nandarray.serve(store, pace=True)


# --- an independent reader --------------------------------------------------------------------------------------------


def write_pcap(path: Path, lines: list[tuple[int, str, bytes]], port: int) -> int:
    """Write a conversation as segments of TCP on port 4420; the number of segments."""
    sent: dict[tuple[int, str], int] = {}
    count = 0
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 101))
        for number, side, pdu in lines:
            for first in range(0, len(pdu), 32768):
                piece = pdu[first : first + 32768]
                ports = (50000 + number, port) if side == "h" else (port, 50000 + number)
                hosts = ("10.0.0.1", "10.0.0.2") if side == "h" else ("10.0.0.2", "10.0.0.1")
                other = "c" if side == "h" else "h"
                at, seen = sent.get((number, side), 1), sent.get((number, other), 1)
                tcp = struct.pack(">HHIIBBHHH", *ports, at, seen, 5 << 4, 0x18, 65535, 0, 0)
                total = 20 + len(tcp) + len(piece)
                ip = struct.pack(">BBHHHBBH", 0x45, 0, total, count & 0xFFFF, 0, 64, 6, 0)
                ip += b"".join(socket.inet_aton(host) for host in hosts)
                out.write(struct.pack("<IIII", 1, count, total, total) + ip + tcp + piece)
                sent[number, side] = at + len(piece)
                count += 1
    return count


@pytest.mark.parametrize("digests", [False, True])
def test_tshark_reads_our_conversations(tmp_path: Path, digests: bool) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed")
    rng = np.random.default_rng(3)
    with nandarray.open(tmp_path / "a.nand", mode="w") as store:
        assert store.nvme().create_namespace(1, 4096, 512).ok
        store["m"] = np.arange(64, dtype="<i4").reshape(8, 8)
        with nandarray.serve(store) as server:
            recorder = Recorder(int(server.address.rpartition(":")[2]))
            url = f"nvme+tcp://127.0.0.1:{recorder.port}/{server.nqn}"
            with connect(url, digests=digests) as remote:
                # In a capsule, by R2T, in several H2CData; errors; an N-D read.
                for blocks in (1, 32, 64, 1024):
                    assert remote.submit(Write(1, 0, blocks), rng.bytes(blocks * 512)).ok
                    assert remote.submit(Read(1, 0, blocks), bytearray(blocks * 512)).ok
                assert not remote.submit(Read(1, 1 << 30, 1), bytearray(512)).ok
                assert remote["m"][2, 3] == 19
            recorder.close()
    written = write_pcap(tmp_path / "a.pcap", recorder.lines, 4420)
    fields = ["-T", "fields", "-e", "frame.protocols", "-e", "nvme-tcp.type", "-e", "_ws.expert.message"]
    command = [
        tshark,
        "-r",
        str(tmp_path / "a.pcap"),
        "-d",
        "tcp.port==4420,nvme-tcp",
        "-o",
        "tcp.check_checksum:FALSE",
    ]
    command += ["-o", "nvme-tcp.check_hdgst:TRUE", "-o", "nvme-tcp.check_ddgst:TRUE"]
    read = subprocess.run([*command, *fields], capture_output=True, text=True, check=True, timeout=120)
    frames = read.stdout.splitlines()
    assert len(frames) == written
    kinds = {int(one, 0) for frame in frames for one in frame.split("\t")[1].split(",") if one}
    assert kinds == {0, 1, 4, 5, 6, 7, 9}
    wrong = [frame for frame in frames if "malformed" in frame.lower() or "digest" in frame.split("\t")[-1].lower()]
    assert not wrong, wrong[:3]


def test_programs_of_a_host_take_the_time_of_the_drives_cores() -> None:
    device = load("mqsim-ideal").with_({"compute.cores": 1, "compute.clock": "100 MHz"})
    program = programs.get("sum", dtype="int32", target="rv32im")
    took = {}
    for remotely in (False, True):
        with nandarray.open(device=device, mode="w") as store:
            store["x"] = np.arange(100_000, dtype="i4")
            store.flush()
            began = store.clock.now
            if remotely:
                with nandarray.serve(store) as server, nandarray.open(server.url) as remote:
                    (result,) = remote.load(program.elf).execute(remote["x"])
                    assert np.frombuffer(result, "i8")[0] == np.arange(100_000).sum()
            else:
                nandarray.offload(program, [store["x"]])
            report = store.report()["programs"]
            took[remotely] = (report["instructions"], store.clock.now - began)
    assert took[False][0] > 100_000
    assert took[True][0] == pytest.approx(took[False][0], rel=0.01)
    assert took[True][1] == pytest.approx(took[False][1], rel=0.05)
