"""``nandarray serve STORE --shm NAME``: arrays of a store for other processes of this machine.

The server's threads are the engine's; this process waits for a signal. On SIGINT and SIGTERM clients get a status, the
region is removed, and the store is closed.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

from nandarray import _nandarray, gpu
from nandarray.array.store import Store
from nandarray.cli.common import FileWatch, open_store, say
from nandarray.cli.service import READY, STOPPING, notify
from nandarray.cli.status_file import StatusFile
from nandarray.errors import NandarrayError
from nandarray.gpu.server import unserved

__all__ = ["serve_shm"]


def serve_shm(path: Path, name: str, *, writable: bool, group: str | None, **sizes: int) -> None:
    """Serve until SIGINT or SIGTERM a store in a region of some sizes, by its name or path."""
    over = threading.Event()

    def end(*_: Any) -> None:
        over.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with open_store(path, "r+" if writable else "r") as store:
            server = gpu.serve(store, name, **sizes, writable=writable, group=group)
            try:
                served = len(server.arrays())
                shape = f"{sizes['queues']} queue pairs of {sizes['depth']}"
                say(f"serving {served} arrays of {path} on shm://{name} ({shape})", flush=True)
                for left, reason in unserved(store, server).items():
                    say(f"not serving {left!r}: {reason}", flush=True)
                _watch(server, store, path, {"shm": name, "writable": writable, **sizes, "arrays": served}, over)
            finally:
                server.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(
    server: _nandarray.QueueServer, store: Store, path: Path, about: dict[str, Any], over: threading.Event
) -> None:
    """Keep the server's status in a file until it is to stop; raise where it cannot serve any more."""
    file, watch = StatusFile(path, "shm", store._file_state()), FileWatch(store)
    try:
        file.write({**about, **server.counts()})
        notify(READY, f"serving shm://{about['shm']}")
        while True:
            file.write({**about, **server.counts()})
            watch.look()
            if over.wait(0.5):
                return
            if server.lost():
                raise NandarrayError(
                    "the region lost its memory: its file was truncated, or its file system is full; nothing can be "
                    "served any more"
                )
            if server.failed():
                raise NandarrayError("a thread of the server failed; see its message above")
    finally:
        notify(STOPPING)
        file.remove()
