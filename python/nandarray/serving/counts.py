"""Counts of calls by tenant and kind, as the metrics take them: of a server that the engine does not count for.

The form is that of the NVMe door's ``operations`` (``crates/nandarray-nvme/src/metrics.rs``), with the same bounds of
durations, so that one metric has the commands of every door.
"""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["BOUNDS_NS", "OperationCounts"]

#: Tenants with counts of their own, and the name of all others.
_TENANTS_MAX, _OTHER = 32, "other"
#: Upper bounds of all buckets of durations but the last, in nanoseconds: powers of two, from about 1 us to 69 s.
BOUNDS_NS = tuple(1 << (10 + i) for i in range(27))


class OperationCounts:
    """Numbers of calls, of bytes, and durations, by two words: tenant and kind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], list[Any]] = {}
        #: Whether a tenant has counts of its own.
        self._tenants: dict[str, bool] = {}

    def add(self, of: tuple[str, str], seconds: float, *, failed: bool, received: int, sent: int) -> None:
        """Count one that has ended."""
        took = int(seconds * 1e9)
        bucket = next((i for i, bound in enumerate(BOUNDS_NS) if took <= bound), len(BOUNDS_NS))
        with self._lock:
            self._tenants.setdefault(of[0], len(self._tenants) < _TENANTS_MAX)
            of = of if self._tenants[of[0]] else (_OTHER, of[1])
            row = self._rows.setdefault(of, [0, 0, 0, 0, [0] * (len(BOUNDS_NS) + 1)])
            row[0] += failed
            row[1] += received
            row[2] += sent
            row[3] += took
            row[4][bucket] += 1

    def operations(self) -> dict[str, Any]:
        """Return ``operations``, a row for each kind of a tenant, and ``bounds_ns``."""
        with self._lock:
            rows = [(*of, *row[:4], list(row[4])) for of, row in self._rows.items()]
        return {"operations": rows, "bounds_ns": BOUNDS_NS}
