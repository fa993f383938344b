"""Admission to a served store: the hosts that may connect, their secrets, and the rules of their tenants.

Rules are a TOML text, which the native module reads (docs/reference/tenants.md has its keys). This file brings hosts,
secrets and rules together, for the start of a server and for a change while it runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nandarray import _nandarray
from nandarray.errors import InvalidError
from nandarray.inputs import read_text
from nandarray.nvme.names import check_nqn

__all__ = ["Admission"]

Secrets = Mapping[str, "str | tuple[str, str | None]"]

T = TypeVar("T")


@dataclass(frozen=True)
class Admission:
    """Hosts that may connect, pairs of secrets, keys of TLS, and the text of rules with its name in errors."""

    hosts: list[str]
    secrets: dict[str, tuple[str, str | None]]
    rules: tuple[str, str] | None
    tls: dict[str, str]

    @classmethod
    def of(
        cls,
        hosts: Sequence[str] | str,
        secrets: Secrets | None,
        config: str | os.PathLike[str] | None,
        tls: Mapping[str, str] | None,
        *,
        insecure: bool,
        unix: bool,
    ) -> Admission:
        """Check hosts, secrets, keys and rules together; ``unix``: hosts may come by a unix socket, which has no TLS.

        Raises
        ------
        InvalidError
            A text is no qualified name or no secret; there is no secret, or no key, or one of many hosts; the rules are
            none; a host of a tenant has neither, by which it would prove its name wherever it comes from, while
            ``insecure`` is not set; a host beside the rules.
        """
        secrets, tls = _by_host("secrets", secrets), _by_host("tls", tls)
        if secrets is not None and not secrets:
            raise InvalidError("secrets is empty: it must have a host, or be None for a server without authentication")
        pairs = {check_nqn(host, "a host"): _pair(host, given) for host, given in (secrets or {}).items()}
        if tls is not None and not tls:
            raise InvalidError("tls is empty: it must have a host, or be None for a server without TLS")
        keys = {check_nqn(host, "a host"): _key(host, given) for host, given in (tls or {}).items()}
        if many := [host for host in keys if host.endswith("*")]:
            raise InvalidError(f"{many[0]} stands for many hosts: a key of TLS must be one host's")
        known = [check_nqn(host, "a host") for host in ([hosts] if isinstance(hosts, str) else hosts)]
        if config is None:
            if keys and (without := [host for host in (*known, *pairs) if not any(_covers(host, one) for one in keys)]):
                raise InvalidError(f"{without[0]} has no key of TLS, without which no host can connect to this server")
            return cls(known, pairs, None, keys)
        name = os.fspath(config)
        text = read_text(name, "rules of tenants in TOML")
        named = [check_nqn(host, f"a host in {name}") for host in _nandarray.nvme_rules_hosts(text, name)]
        strange = [host for host in keys if not any(_covers(entry, host) for entry in named)]
        if beside := sorted({*known, *pairs}.difference(named).union(strange)):
            raise InvalidError(f"{beside[0]} is a host of no tenant in {name}: it could not connect")
        if not insecure and (open_ := [host for host in named if host not in pairs and host not in keys]):
            raise InvalidError(
                f"{open_[0]}, a host of a tenant in {name}, has no secret and no key of TLS: anyone could take its "
                "name. Give it one, or allow names without proof (insecure)"
            )
        if unix and not insecure and (open_ := [host for host in named if host not in pairs]):
            raise InvalidError(
                f"{open_[0]}, a host of a tenant in {name}, has a key of TLS and no secret: by a unix socket, which "
                "has no TLS, anyone could take its name. Give it one, or allow names without proof (insecure)"
            )
        return cls(named, pairs, (text, name), keys)


def _covers(entry: str, host: str) -> bool:
    """Whether an entry is the name of a host, or the beginning of it that a token has."""
    return entry == host or (entry.endswith("*") and host.startswith(entry[:-1]))


def _by_host(what: str, given: Mapping[str, T] | None) -> Mapping[str, T] | None:
    if not isinstance(given, Mapping | None):
        raise InvalidError(f"{what} must be a mapping from names of hosts, not {type(given).__name__}")
    return given


def _key(host: str, given: Any) -> str:
    if not isinstance(given, str):
        raise InvalidError(f"the key of {host} must be a text, not {type(given).__name__}")
    return given


def _pair(host: str, given: Any) -> tuple[str, str | None]:
    """Return a host's secret and the controller's secret for it."""
    if isinstance(given, str):
        return given, None
    if isinstance(given, tuple | list) and len(given) == 2:
        own, controller = given
        if isinstance(own, str) and isinstance(controller, str | None):
            return own, controller
    raise InvalidError(
        f"the secret of {host} must be a text, or a pair of the host's and the controller's, not {type(given).__name__}"
        + (f" of {len(given)}" if isinstance(given, tuple | list) else "")
    )
