"""Stored times of hosts for TPC-H's queries, with and without the filtered scans: the content of ``host.toml``.

:mod:`host` measures them; nothing here does.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

__all__ = ["HOSTS", "Host", "HostTime", "hosts"]

#: Engines that are hosts, the dissertation's first.
HOSTS = ("spark", "duckdb")


@dataclass(frozen=True)
class HostTime:
    """CPU times of one query: without offload, and with it but without the scans themselves.

    ``passes`` says by offloaded table how often the query scans it. Wall times, where they were taken, are for the eye.
    """

    alone_s: float
    after_s: float
    passes: Mapping[str, int]
    alone_wall_s: float | None = None
    after_wall_s: float | None = None


@dataclass(frozen=True)
class Host:
    """A host as ``host.toml`` has it: the engine, the scale factor, and times by query."""

    engine: str
    versions: str
    scale: float
    times: Mapping[int, HostTime]


@cache
def hosts() -> tuple[Host, ...]:
    """Return the stored hosts; the first one is the dissertation's where it was measured."""
    data = tomllib.loads(resources.files("nandarray_papers.tpch").joinpath("host.toml").read_text(encoding="utf-8"))
    return tuple(
        Host(
            engine,
            one["versions"],
            float(one["scale"]),
            {row["query"]: HostTime(**{k: v for k, v in row.items() if k != "query"}) for row in one["query"]},
        )
        for engine, one in sorted(data.items(), key=lambda pair: HOSTS.index(pair[0]))
    )
