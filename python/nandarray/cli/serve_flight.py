"""``nandarray serve STORE --flight ADDRESS:PORT``: a store for Arrow Flight clients.

Arrow's threads serve; this process waits for a signal. On SIGINT and SIGTERM calls end, and the store is closed; SIGHUP
reads secrets and rules again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from nandarray import flight
from nandarray.cli.common import open_store, say
from nandarray.cli.operate import Operator
from nandarray.cli.signals import Signals
from nandarray.nvme import read_secrets

__all__ = ["serve_flight"]


def serve_flight(
    path: Path,
    listen: str,
    operator: Operator,
    *,
    device: str | None,
    secrets: Path | None,
    certificate: tuple[Path | None, Path | None],
    how: dict[str, Any],
) -> None:
    """Serve until SIGINT or SIGTERM; ``how`` has options of :func:`nandarray.serve_flight`."""
    chain, key = certificate
    if (chain is None) != (key is None):
        raise typer.BadParameter("--flight-cert and --flight-key: TLS needs both")

    def known() -> dict[str, tuple[str, str | None]] | None:
        return None if secrets is None else read_secrets(secrets)

    signals = Signals(rereads=True)
    with signals, operator, open_store(path, "r" if how["read_only"] else "r+", device=device) as store:
        pair = None if chain is None or key is None else (chain, key)
        with flight.serve(store, listen, secrets=known(), certificate=pair, **how) as server:
            say(f"address  {server.address}")
            say(f"url      {server.url}")
            if server.metrics_address is not None:
                say(f"metrics  {server.metrics_address}")
            say("", end="", flush=True)
            operator.log.add("ready", address=server.url, metrics=server.metrics_address)
            operator.log.follow(server.events)

            def reload() -> str:
                ended = server.reload(secrets=known(), config=how["config"])
                return f"rules and secrets are read; hosts whose calls have ended: {len(ended)}"

            about = {"transport": "flight", "device": device}
            operator.run(
                store,
                lambda: {**about, **server.status()},
                signals,
                ready=f"serving {server.url}",
                kill=server.kill,
                reload=reload,
            )
        signals.server_ended()
