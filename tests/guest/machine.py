"""A guest: a stock kernel in QEMU without acceleration, root or privileges, and a shell on its second serial port.

The guest reaches this machine's loopback at 10.0.2.2. The kernel's messages go to a file.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from image import initramfs, kernel

#: This machine's loopback, as the guest sees it.
HOST = "10.0.2.2"


class GuestError(Exception):
    """A command of the guest failed, or did not end in time."""


class Guest:
    """A running guest."""

    def __init__(self, folder: Path, *, memory_mib: int = 1536, cpus: int = 2) -> None:
        self.console = folder / "console.txt"
        # A path of a socket has at most 107 bytes.
        where = folder / "shell"
        command = [
            "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(cpus), "-m", str(memory_mib),
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", str(kernel()), "-initrd", str(initramfs()),
            # On a busy host the emulated timer is late, and the kernel would take it for a broken one.
            "-append", "console=ttyS0 panic=-1 mitigations=off tsc=unstable nokaslr no_timer_check",
            "-serial", f"file:{self.console}",
            "-chardev", "socket,id=shell,path=shell,server=on,wait=off", "-serial", "chardev:shell",
            "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
        ]  # fmt: skip
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL)
        self.shell = socket.socket(socket.AF_UNIX)
        until = time.monotonic() + 20
        while True:
            try:
                self.shell.connect(str(where))
                break
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise GuestError("QEMU does not start") from None
                time.sleep(0.05)
        self.pending = b""
        self.until(b"READY\n", 240)

    def until(self, mark: bytes, seconds: float) -> bytes:
        """Everything before a line that begins with a mark; that line is left."""
        end = time.monotonic() + seconds
        while True:
            at = 0 if self.pending.startswith(mark) else self.pending.find(b"\n" + mark) + 1
            if (at or self.pending.startswith(mark)) and b"\n" in self.pending[at:]:
                before, self.pending = self.pending[:at], self.pending[at:]
                return before
            left = end - time.monotonic()
            if left <= 0:
                raise GuestError(f"no {mark!r} in {seconds} s: {self.pending[-2000:]!r}\n{self.messages()}")
            self.shell.settimeout(left)
            try:
                more = self.shell.recv(1 << 16)
            except TimeoutError:
                continue
            if not more:
                raise GuestError(f"the guest ended: {self.messages()}")
            self.pending += more.replace(b"\r", b"")

    def line(self) -> str:
        line, _, self.pending = self.pending.partition(b"\n")
        return line.decode()

    def try_run(self, command: str, seconds: float = 120) -> tuple[int, str]:
        """Run a line of shell; its status and its output."""
        assert "\n" not in command
        if self.pending.startswith(b"READY"):
            self.line()
        self.shell.sendall(command.encode() + b"\n")
        text = self.until(b"END ", seconds).decode(errors="replace")
        return int(self.line().split()[1]), text

    def run(self, command: str, seconds: float = 120) -> str:
        """Run a line of shell that succeeds; its output."""
        status, text = self.try_run(command, seconds)
        if status:
            raise GuestError(f"{command!r} ended with {status}: {text}\n{self.messages()}")
        return text

    def messages(self) -> str:
        """The end of the kernel's messages."""
        return self.console.read_text(errors="replace")[-3000:] if self.console.exists() else ""

    def stop(self) -> None:
        self.shell.close()
        self.process.kill()
        self.process.wait()


def is_possible() -> bool:
    return shutil.which("qemu-system-x86_64") is not None
