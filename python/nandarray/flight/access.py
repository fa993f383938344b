"""Access to the Flight door: bearer tokens of the node's secrets, tenants, turns.

A token is made of a host's secret of NVMe (``docs/reference/tenants.md``), which it does not give away. Tenants, their
budgets of memory and their rates are the native module's, as for NVMe. A turn is one piece of work at the data: a
tenant has as many at once as it may have runs, and holds none while its client reads what is ready.
"""

from __future__ import annotations

import base64
import hmac
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nandarray import _nandarray
from nandarray.errors import BusyError
from nandarray.nvme.admission import Admission

__all__ = ["Access", "Guest", "Refused", "token_of"]

_PREFIX = "nandarray-1."
_USE = b"flight\0"
#: The name of clients that prove none, which no server asks for a token.
_ANYONE = "anyone"
#: Calls of one tenant at once, at most: each has a thread of the transport.
CALLS_MAX = 64
#: Refused logins of a minute that are answered at once, and the delay of further ones, as at the NVMe door.
_PROMPT, _WINDOW_S, _DELAY_S = 16, 60.0, 1.0
#: Refusals that wait at once, at most; one more is answered at once.
_WAITING_MAX = 32


class Refused(Exception):
    """A client has no right token."""


def token_of(host: str, secret: str) -> str:
    """Return the bearer token of a host at the Flight door.

    Parameters
    ----------
    host : str
        Qualified name of the host, or the entry of a token (``nqn...:lab-*``), as the file of secrets has it.
    secret : str
        Its secret (:func:`nandarray.nvme.new_secret`).

    Returns
    -------
    str
        ``nandarray-1.`` and, in base64 for URLs without padding, the HMAC-SHA-256 of ``flight``, a zero byte and the
        name, with the key that the host has of its secret at the NVMe door.

    Raises
    ------
    InvalidError
        The text is no secret.

    Examples
    --------
    >>> from nandarray import flight
    >>> flight.token_of("nqn.2026-01.org.example:host", "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:")
    'nandarray-1.SA2XDSGax28WTZj1iyHdaUsTzk8oT5I62tz0youyLH8'
    """
    digest = hmac.digest(_nandarray.dhchap_key(host, secret), _USE + host.encode(), "sha256")
    return _PREFIX + base64.urlsafe_b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True)
class Guest:
    """A client that was admitted: its name, its tenant, and what it proved the name with."""

    host: str
    tenant: _nandarray.DoorTenant
    token: str | None

    def limit(self, key: str) -> Any:
        """Return a limit of its tenant's rules that is in force now."""
        return self.tenant.limits()[key]


class Access:
    """Tokens, tenants and turns of one server."""

    def __init__(self, admission: Admission) -> None:
        self._tenants = _nandarray.DoorTenants(admission.rules)
        self._tokens = _tokens(admission)
        self._began = time.monotonic()
        self._turns: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._refusals: deque[float] = deque(maxlen=_PROMPT + 1)
        self._waiting = threading.BoundedSemaphore(_WAITING_MAX)
        self.refused = 0

    @property
    def asks(self) -> bool:
        """Whether clients need a token."""
        return bool(self._tokens)

    def replace(self, admission: Admission) -> None:
        """Take other secrets and rules."""
        tokens = _tokens(admission)
        self._tenants.replace(admission.rules)
        self._tokens = tokens

    def guest(self, authorization: str | None) -> Guest:
        """Admit a client by its header ``authorization``.

        Raises
        ------
        Refused
            It has no token, or none of this server.
        """
        host, token = _ANYONE, None
        if self._tokens:
            kind, _, token = (authorization or "").partition(" ")
            if not authorization:
                raise self._refuse("a bearer token is needed: nandarray nvme token FILE prints it")
            if kind.lower() != "bearer":
                raise self._refuse("the authorization must be a bearer token")
            # Every token is compared, each in constant time.
            token = token.strip()
            given = token.encode()
            found = [name for name, known in self._tokens if hmac.compare_digest(known.encode(), given)]
            if not found:
                raise self._refuse("the bearer token is none of this server's")
            host = found[0]
        tenant = self._tenants.admit(host, None if self._tokens else _ANYONE)
        if tenant is None:
            raise self._refuse(f"{host} is a host of no tenant")
        return Guest(host, tenant, token)

    def still_admits(self, guest: Guest) -> bool:
        """Whether a client would be admitted again, to the same tenant."""
        known = guest.token is None if not self._tokens else (guest.host, guest.token) in self._tokens
        return known and self._tenants.is_host_of(guest.host, guest.tenant)

    def _refuse(self, why: str) -> Refused:
        now = time.monotonic()
        self.refused += 1
        self._refusals.append(now)
        is_late = len(self._refusals) > _PROMPT and now - self._refusals[0] < _WINDOW_S
        if is_late and self._waiting.acquire(blocking=False):
            try:
                time.sleep(_DELAY_S)
            finally:
                self._waiting.release()
        return Refused(why)

    @contextmanager
    def call(self, guest: Guest) -> Generator[None]:
        """Count a call of a tenant while it lasts.

        Raises
        ------
        BusyError
            It has as many as it may have.
        """
        name = guest.tenant.name
        with self._changed:
            if self._calls[name] >= CALLS_MAX:
                raise BusyError(f"{name} has {CALLS_MAX} calls at once, as many as a tenant may have: try again")
            self._calls[name] += 1
        try:
            yield
        finally:
            _less(self._calls, name, self._changed)

    @contextmanager
    def turn(self, guest: Guest, check: Callable[[], None]) -> Generator[None]:
        """Wait for a turn of a tenant's, and have it; ``check`` is called now and then, and may raise."""
        name = guest.tenant.name
        with self._changed:
            while self._turns[name] >= guest.limit("runs"):
                self._changed.wait(0.1)
                check()
            self._turns[name] += 1
        try:
            yield
        finally:
            _less(self._turns, name, self._changed)

    def pace(self, guest: Guest, size: int) -> float:
        """Count bytes that a tenant moves; return the seconds to wait so that it keeps its rates."""
        return guest.tenant.pace(time.monotonic() - self._began, size)

    def status(self) -> dict[str, Any]:
        """Return memory, tenants, calls and refused logins, as the NVMe door's status has them."""
        used, limit = self._tenants.memory()
        with self._changed:
            in_flight = dict(self._calls)
        return {
            "memory_bytes": used,
            "memory_limit_bytes": limit,
            "tenants": self._tenants.in_use(),
            "in_flight": in_flight,
            "refused_logins": self.refused,
        }


def _tokens(admission: Admission) -> list[tuple[str, str]]:
    return [(host, token_of(host, secret)) for host, (secret, _) in admission.secrets.items()]


def _less(counts: Counter[str], name: str, changed: threading.Condition) -> None:
    with changed:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
        changed.notify_all()
