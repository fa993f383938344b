"""Arrow Flight: a store for clients of any language that Arrow has.

    >>> from nandarray import flight

``server`` starts and ends a server, ``tickets`` has commands and tickets, ``plans`` what they read, ``tensors`` arrays
as batches, ``putting`` what clients write, ``access`` tokens and tenants, ``calls`` the limits of calls, ``faults``
errors as clients get them, ``catalog`` what a tenant finds. A client is Arrow's own: ``docs/guides/flight.md``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nandarray.optional import needs

if TYPE_CHECKING:
    from nandarray.flight.access import token_of
    from nandarray.flight.server import FlightServer, serve
    from nandarray.flight.tickets import resumed

__all__ = ["FlightServer", "resumed", "serve", "token_of"]

_MODULES = {"FlightServer": "server", "resumed": "tickets", "serve": "server", "token_of": "access"}


def __getattr__(name: str) -> Any:
    """Load what is named when it is first used: a server needs PyArrow, a token does not."""
    if name in _MODULES:
        with needs("pyarrow", "lab"):
            return getattr(importlib.import_module(f"nandarray.flight.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'nandarray.flight' has no attribute {name!r}")
