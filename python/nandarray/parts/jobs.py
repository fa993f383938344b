"""The forks of one transaction: made, given to pickled arrays, and their receipts brought in.

Each fork is a job with a folder, ``jobs/<job>/``, which also keeps its parts from being reclaimed. An array that is
pickled brings the newest fork along; it is made anew after a change here, so that workers see what was written before.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from dataclasses import replace

from nandarray.errors import InvalidError
from nandarray.parts.commit import drafted
from nandarray.parts.forks import Fork, Receipt, left_receipts, over_key
from nandarray.parts.manifest import Manifest, draft_key
from nandarray.parts.receipts import settle
from nandarray.parts.source import PartsSource
from nandarray.parts.writer import new_job

__all__ = ["WAIT_S", "Jobs"]

#: Seconds that a commit waits for workers to seal their parts.
WAIT_S = 10.0


class Jobs:
    """The forks of a source, and receipts that were handed over."""

    def __init__(self, source: PartsSource) -> None:
        self._source = source
        self._lock = threading.RLock()
        self._forks: dict[str, Manifest] = {}
        self._given: list[Receipt] = []
        self._implicit: tuple[Fork, int] | None = None

    @property
    def any(self) -> bool:
        """Whether there are forks whose receipts were not brought in."""
        return bool(self._forks)

    def fork(self) -> Fork:
        """Make a fork of the source as it is now."""
        source = self._source
        with self._lock, source.alone():
            source.check_writable()
            source.seal_own()
            base = source.draft.base
            state = replace(base, commit=uuid.uuid4().hex, arrays=drafted(source.history, source.draft))
            job = new_job()
            source.files.make_folder(f"jobs/{job}")
            source.jobs.append(job)
            source.files.put_if_absent(draft_key(job), state.text())
            self._forks[job] = state
            return Fork(source.path, job)

    def implicit(self) -> Fork:
        """Return the fork that pickled arrays bring along."""
        with self._lock:
            if self._implicit is None or self._implicit[1] != self._source.changes:
                fork = self.fork()
                self._implicit = fork, self._source.changes
            return self._implicit[0]

    def merge(self, receipts: Iterable[Receipt]) -> None:
        """Take receipts that were handed over."""
        given = [*receipts]
        for one in given:
            if not isinstance(one, Receipt):
                raise InvalidError(f"a receipt must be what a worker's write() returned, not {one!r:.60}")
        with self._lock:
            self._given.extend(given)

    def collect(self, wait_s: float = WAIT_S) -> None:
        """Bring in what workers wrote so far, and end their jobs.

        Raises
        ------
        ReceiptError
            Parts are lost. The rest is kept; the boxes that are missing can be written by a new fork.
        """
        source = self._source
        with self._lock:
            self._implicit = None
            if not self._forks and not self._given:
                return
            source.check_writable()
            for job in self._forks:
                source.files.put_if_absent(over_key(job), b"")
            left = [receipt for job in self._forks for receipt in left_receipts(source.files, job)]
            settle(source, [*self._given, *left], self._forks, wait_s)
            self._forks, self._given = {}, []

    def forget(self) -> None:
        """Give up all forks."""
        with self._lock:
            self._forks, self._given, self._implicit = {}, [], None
