"""One guest for all tests, and a drive that runs as a user starts it."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from image import MissingError
from machine import HOST, Guest

import nandarray

#: Names of the guest, as host.
HOSTNQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
#: Block namespaces of every drive: bytes of a logical block.
NAMESPACES = {1: 512, 2: 4096}
BYTES = 512 << 20
#: Parts of lines of the kernel that hold such words and tell of no fault.
HARMLESS: tuple[str, ...] = ()


class Drive:
    """``nandarray serve`` on a store, in a process of its own."""

    def __init__(self, folder: Path, log: Path, *, copied: Path | None = None) -> None:
        self.store = folder / "drive.nand"
        if copied is not None:
            shutil.copy(copied, self.store)
        else:
            with nandarray.open(self.store, mode="w") as store:
                for nsid, lba in NAMESPACES.items():
                    assert store.nvme().create_namespace(nsid, BYTES // lba, lba).ok
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = log
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "nandarray", "serve", str(self.store), "--listen", f"127.0.0.1:{self.port}"]
        with self.log.open("a") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().split() for _ in range(4)]
        assert lines[0] == ["address", f"127.0.0.1:{self.port}"], f"{lines} {self.log.read_text()}"
        self.nqn = lines[1][1]
        self.process.stdout.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it as a user does; it ends well."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(60) == 0, self.log.read_text()


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    try:
        started = Guest(tmp_path_factory.mktemp("guest"))
    except MissingError as missing:
        pytest.skip(str(missing))
    started.run(f"echo {HOSTNQN} > /etc/nvme/hostnqn; echo 11111111-2222-3333-4444-555555555555 > /etc/nvme/hostid")
    yield started
    started.stop()


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Drive]:
    started = Drive(tmp_path, tmp_path / "serve.txt")
    yield started
    started.stop()


@pytest.fixture
def connected(guest: Guest, drive: Drive) -> Iterator[Drive]:
    connect(guest, drive.port, drive.nqn)
    yield drive
    guest.run(f"umount /mnt 2>/dev/null; nvme disconnect -n {drive.nqn}")
    said = guest.run("dmesg -c | grep -iE 'error|fail|bug|warn|duplicate' | cat").strip()
    strange = [line for line in said.splitlines() if not any(harmless in line for harmless in HARMLESS)]
    assert not strange, "\n".join(strange)


def connect(guest: Guest, port: int, nqn: str, options: str = "") -> None:
    """Connect, and wait for the disks."""
    guest.run("dmesg -c > /dev/null")
    guest.run(f"nvme connect -t tcp -a {HOST} -s {port} -n {nqn} --reconnect-delay=1 {options}")
    for _ in range(100):
        if len(disks(guest)) == len(NAMESPACES):
            return
        time.sleep(0.2)
    raise AssertionError(f"no disks: {guest.run('ls /dev; dmesg')}")


def disks(guest: Guest) -> dict[int, str]:
    """The disk of each block namespace."""
    found = {}
    for disk in guest.run("ls -d /sys/block/nvme?n* 2>/dev/null | cat").split():
        if int(guest.run(f"cat {disk}/size")) > 0:
            found[int(guest.run(f"cat {disk}/nsid"))] = disk.replace("/sys/block", "/dev")
    return found


def as_json(guest: Guest, command: str) -> object:
    return json.loads(guest.run(f"{command} -o json"))
