"""Icechunk: Zarr 3 under transactions on the local disk; one of the two peers that a kill does not tear.

A flush is a commit, and a write session ends with it, so a new one is opened behind.
"""

# ruff: noqa: D102 - what the methods do is said once, in base.py
from __future__ import annotations

import os
from typing import Any

from . import zarr_store


class Adapter(zarr_store.Adapter):
    """A repository with one array at its root, on the main branch."""

    peer = "icechunk"
    package = "icechunk"
    configs = ("256", "1024")
    survives_kill = True

    _session: Any = None

    def _repository(self) -> Any:
        # Its warning about concurrent commits on a local disk would print at every open; here is one writer.
        os.environ.setdefault("ICECHUNK_LOG", "error")
        import icechunk

        return icechunk.Repository.open_or_create(icechunk.local_filesystem_storage(str(self.path)))

    def _store(self, *, writable: bool) -> Any:
        repository = self._repository()
        self._session = repository.writable_session("main") if writable else repository.readonly_session("main")
        return self._session.store

    def flush(self) -> None:
        if self._session.has_uncommitted_changes:
            self._session.commit("write")
            self.open(writable=True)

    def close(self) -> None:
        if self._session is not None and not self._session.read_only and self._session.has_uncommitted_changes:
            self._session.commit("close")
        self._session = self._array = None
