"""``nandarray serve STORE --shm NAME``: a store for other processes of this machine.

The server's threads are the engine's; this process waits for a signal. On SIGINT and SIGTERM clients get a status, the
region and the socket beside it are removed, and the store is closed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from nandarray import gpu
from nandarray.array.store import Store
from nandarray.cli.common import open_store, say
from nandarray.cli.operate import Operator
from nandarray.cli.signals import Signals
from nandarray.errors import NandarrayError
from nandarray.gpu.server import RegionServer, exposition_of, unserved
from nandarray.serving.endpoint import MetricsEndpoint
from nandarray.urls import shared_url

__all__ = ["serve_shm"]


def serve_shm(
    path: Path,
    name: str,
    operator: Operator,
    *,
    writable: bool,
    group: str | None,
    programs: bool,
    metrics: str | None,
    **sizes: int,
) -> None:
    """Serve until SIGINT or SIGTERM a store in a region of some sizes, by its name or path."""
    signals = Signals(rereads=False)  # there is nothing to read again
    with signals, open_store(path, "r+" if writable else "r") as store:
        server = gpu.serve(store, name, **sizes, writable=writable, group=group, programs=programs)
        try:
            served = len(server.arrays())
            shape = f"{sizes['queues']} queue pairs of {sizes['depth']}"
            say(f"serving {served} arrays of {path} on shm://{name} ({shape})", flush=True)
            for left, reason in unserved(store, server).items():
                say(f"by the socket alone {left!r}: {reason}", flush=True)
            about = {"transport": "shm", "shm": name, "writable": writable, **sizes, "arrays": served}
            _watch(server, store, operator, {**about, "started": time.time()}, signals, metrics=metrics)
        finally:
            server.stop()
            signals.server_ended()


def _watch(
    server: RegionServer,
    store: Store,
    operator: Operator,
    about: dict[str, Any],
    signals: Signals,
    *,
    metrics: str | None,
) -> None:
    """Keep the server's status and metrics until it is to stop; raise where it cannot serve any more."""
    started: float = about["started"]
    url = shared_url(about["shm"])

    def status() -> dict[str, Any]:
        return {**about, "uptime_seconds": max(0.0, time.time() - started), **server.status()}

    def look() -> None:
        if server.lost():
            raise NandarrayError(
                "the region lost its memory: its file was truncated, or its file system is full; nothing can be "
                "served any more"
            )
        if server.failed():
            raise NandarrayError("a thread of the server failed; see its message above")

    endpoint = None if metrics is None else MetricsEndpoint(metrics, lambda: exposition_of(server, store, started))
    try:
        where = None if endpoint is None else endpoint.address
        if where is not None:
            say(f"metrics  {where}", flush=True)
        operator.log.add("ready", address=url, metrics=where)
        operator.log.follow(server.events)
        operator.run(store, status, signals, ready=f"serving {url}", kill=server.kill, look=look)
    finally:
        if endpoint is not None:
            endpoint.stop()
