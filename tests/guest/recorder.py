"""A proxy between a host and a server that records their PDUs, and the text form of such a conversation.

A line has the number of the connection in order of arrival, ``h`` for the host or ``c`` for the controller, and the PDU
in hexadecimal; ``00*N`` stands for N zeroes. Lines are in the order in which the proxy saw them.
"""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path

#: Zeroes that are worth a count.
RUN = 16


class Recorder:
    """Listens on a port of its own and forwards to a server's."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.lines: list[tuple[int, str, bytes]] = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        number = 0
        while True:
            try:
                host, _ = self.listener.accept()
            except OSError:
                return
            controller = socket.create_connection(("127.0.0.1", self.target))
            for one in (host, controller):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for side, source, sink in (("h", host, controller), ("c", controller, host)):
                threading.Thread(target=self.forward, args=(number, side, source, sink), daemon=True).start()
            number += 1

    def forward(self, number: int, side: str, source: socket.socket, sink: socket.socket) -> None:
        pending = b""
        while True:
            try:
                more = source.recv(1 << 16)
            except OSError:
                more = b""
            if not more:
                for one in (source, sink):
                    one.close()
                return
            pending += more
            with self.lock:  # recorded first: an answer cannot come before its line
                while len(pending) >= 8 and len(pending) >= (n := int.from_bytes(pending[4:8], "little")) > 0:
                    self.lines.append((number, side, pending[:n]))
                    pending = pending[n:]
            try:
                sink.sendall(more)
            except OSError:
                source.close()

    def write(self, path: Path, remarks: list[str]) -> None:
        with self.lock, path.open("w") as out:
            out.writelines(f"# {remark}\n" for remark in remarks)
            for number, side, pdu in self.lines:
                out.write(f"{number} {side} {to_text(pdu)}\n")

    def close(self) -> None:
        self.listener.close()


def to_text(pdu: bytes) -> str:
    pieces = re.split(rb"(\x00{%d,})" % RUN, pdu)
    return " ".join(f"00*{len(one)}" if i % 2 else one.hex() for i, one in enumerate(pieces) if one)


def from_text(text: str) -> bytes:
    return b"".join(bytes(int(one[3:])) if one.startswith("00*") else bytes.fromhex(one) for one in text.split())


def read(path: Path) -> list[tuple[int, str, bytes]]:
    """The conversation of a file."""
    found = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            number, side, text = line.split(" ", 2)
            found.append((int(number), side, from_text(text)))
    return found
