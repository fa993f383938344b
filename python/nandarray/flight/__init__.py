"""Arrow Flight: a store for clients of any language that Arrow has.

    >>> from nandarray import flight

``server`` starts and ends a server, ``tickets`` has commands and tickets, ``plans`` what they read, ``tensors`` arrays
as batches, ``putting`` what clients write, ``access`` tokens and tenants, ``calls`` the limits of calls, ``faults``
errors as clients get them, ``catalog`` what a tenant finds. A client is Arrow's own: ``docs/guides/flight.md``.
"""

from nandarray.flight.access import token_of
from nandarray.flight.server import FlightServer, serve
from nandarray.flight.tickets import resumed

__all__ = ["FlightServer", "resumed", "serve", "token_of"]
