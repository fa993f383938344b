"""``nandarray serve STORE --shm NAME``: arrays of a store for other processes of this machine.

The server's threads are the engine's; this process waits for a signal. On SIGINT and SIGTERM clients get a status, the
region is removed, and the store is closed.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

from nandarray import gpu
from nandarray.cli.common import open_store, say
from nandarray.errors import NandarrayError
from nandarray.gpu.server import unserved

__all__ = ["serve_shm"]


def serve_shm(path: Path, name: str, *, writable: bool, queues: int, depth: int, data_bytes: int, threads: int) -> None:
    """Serve until SIGINT or SIGTERM a store in a region of some sizes, by its name or path."""
    over = threading.Event()

    def end(*_: Any) -> None:
        over.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with open_store(path, "r+" if writable else "r") as store:
            server = gpu.serve(
                store, name, queues=queues, depth=depth, data_bytes=data_bytes, threads=threads, writable=writable
            )
            try:
                served = len(server.arrays())
                say(f"serving {served} arrays of {path} on shm://{name} ({queues} queue pairs of {depth})", flush=True)
                for left, reason in unserved(store, server).items():
                    say(f"not serving {left!r}: {reason}", flush=True)
                while not over.wait(0.5):
                    if server.failed():
                        raise NandarrayError("a thread of the server failed; see its message above")
            finally:
                server.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
