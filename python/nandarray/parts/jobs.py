"""The forks of one transaction: made, given to pickled arrays, and their receipts brought in.

Each fork is a job with a folder, ``jobs/<job>/``, which also keeps its parts from being reclaimed. An array that is
pickled brings the newest fork along; it is made anew after a change here, so that workers see what was written before.

Receipts that are handed over are settled by :meth:`Jobs.collect`, or earlier, shard by shard, where this process or a
new fork uses what they name (:mod:`nandarray.parts.arrivals`). Receipts that workers leave in the folder are of parts
that are being written: a commit alone ends that, so a write here to a shard of theirs is refused until then.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from nandarray.errors import InvalidError
from nandarray.parts.commit import drafted
from nandarray.parts.forks import Fork, Receipt, left_receipts, over_key
from nandarray.parts.manifest import Entry, Manifest, Span, draft_key
from nandarray.parts.receipts import check_all, settle
from nandarray.parts.source import PartsSource
from nandarray.parts.writer import new_job

__all__ = ["WAIT_S", "Jobs"]

#: Seconds that a commit waits for workers to seal their parts.
WAIT_S = 10.0

#: Shards of an array with receipts beyond which all of them are settled at once, and not those that are used alone.
_FEW = 256

#: The id of an array and the number of a shard.
_Key = tuple[str, int]


class Jobs:
    """The forks of a source, and receipts that were handed over."""

    def __init__(self, source: PartsSource) -> None:
        self._source = source
        #: Taken before the gate of the source, never within it.
        self._lock = threading.RLock()
        self._forks: dict[str, Manifest] = {}
        #: Receipts that were handed over, with their turns.
        self._given: dict[Receipt, int] = {}
        self._turns = itertools.count()
        #: Receipts with the shards of theirs that were brought in.
        self._taken: set[tuple[Receipt, int]] = set()
        #: Receipts that were not, by the array's id and the shard; None where they have to be counted again.
        self._waiting: dict[str, dict[int, list[Receipt]]] | None = {}
        self._left: dict[str, Receipt] = {}
        self._implicit: tuple[Fork, int, dict[str, Entry]] | None = None
        source.arrivals = self

    @property
    def any(self) -> bool:
        """Whether there are forks whose receipts were not brought in."""
        return bool(self._forks)

    def fork(self) -> Fork:
        """Make a fork of the source as it is now."""
        source = self._source
        source.check_writable()
        with self._lock:
            self._settle(list(self._given), wait_s=0.0, partly=True)
            with source.alone():
                source.seal_own()
                base = source.draft.base
                state = replace(base, commit=uuid.uuid4().hex, arrays=drafted(source.history, source.draft))
                job = new_job()
                source.make_job(job)
                source.files.put_if_absent(draft_key(job), state.text())
                self._forks[job] = state
                return Fork(source.files.root, job, source.files)

    def take_over(self, job: str, state: Manifest) -> None:
        """Take the fork of another process for this source's own, with the state that its workers began from."""
        with self._lock:
            self._forks[job] = state

    def implicit(self) -> Fork:
        """Return the fork that pickled arrays bring along."""
        with self._lock:
            fork, changes, arrays = self._implicit or (None, 0, None)
            if fork is None or changes != self._source.changes or arrays is not self._source.draft.arrays:
                changes, arrays = self._source.changes, self._source.draft.arrays
                fork = self.fork()
                self._implicit = fork, changes, arrays
            return fork

    def merge(self, receipts: Iterable[Receipt]) -> None:
        """Take receipts that were handed over: all of them, or none if one is wrong."""
        given = [*receipts]
        for one in given:
            if not isinstance(one, Receipt):
                raise InvalidError(f"a receipt must be what a worker's write() returned, not {one!r:.60}")
        with self._lock:
            given = [one for one in given if not self._is_taken(one)]
            check_all(self._source, given, self._forks)
            for one in given:
                self._given.pop(one, None)
                self._given[one] = next(self._turns)
            self._waiting = None

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
            if not self._forks:
                return
            source.check_writable()
            for job in self._forks:
                source.files.put_if_absent(over_key(job), b"")
            left = [receipt for job in self._forks for receipt in left_receipts(source.files, job)]
            self._settle([*self._given, *left], wait_s)
            self._clear()

    def forget(self) -> None:
        """Give up all forks."""
        with self._lock:
            self._implicit = None
            self._clear()

    def _clear(self) -> None:
        self._forks, self._given, self._taken, self._waiting, self._left = {}, {}, set(), {}, {}

    # --- Receipts that are needed before a commit --------------------------------------------------------------------

    def waiting(self, *, writes: bool) -> bool:
        """Return whether there may be receipts that matter to a read, or to a write."""
        return self._waiting is None or bool(self._waiting) or (writes and bool(self._forks))

    def bring_in(self, entry: Entry, meets: Callable[[Span], bool], *, writes: bool) -> None:
        """Bring in what was handed over of those shards of an array whose boxes are met.

        Raises
        ------
        ReceiptError
            Parts that have them are lost.
        InvalidError
            A write here, and workers have written to the same shards what was not handed over.
        """
        with self._lock:
            if self._waiting is None:
                self._waiting = self._counted()
            there = self._waiting.get(entry.id, {})
            numbers = [number for number in there if len(there) > _FEW or meets(entry.box(number))]
            if numbers:
                given = {receipt for number in numbers for receipt in there[number]}
                keys = [(entry.id, number) for number in numbers]
                self._settle(sorted(given, key=self._given.__getitem__), WAIT_S, keys)
            if writes and (left := self._left_shards(entry, meets)):
                name = self._source.draft.names().get(entry.id, entry.id)
                raise InvalidError(
                    f"shards {', '.join(map(str, left))} of array {name!r} were written by workers, and not brought "
                    "in yet: collect() must come before this process writes them"
                )

    def taken(self) -> set[tuple[Receipt, int]]:
        """Return what was brought in so far."""
        return set(self._taken)

    def give_back(self, taken: Any) -> None:
        """Let wait again what was brought in since."""
        self._taken, self._waiting = taken, None

    def _counted(self) -> dict[str, dict[int, list[Receipt]]]:
        found: dict[str, dict[int, list[Receipt]]] = {}
        for receipt in self._given:
            for number, _ in receipt.shards:
                if (receipt, number) not in self._taken:
                    found.setdefault(receipt.array, {}).setdefault(number, []).append(receipt)
        return found

    def _left_shards(self, entry: Entry, meets: Callable[[Span], bool]) -> list[int]:
        """Return the shards of an array that are met by receipts which workers have left in the folder."""
        new = [one for job in self._forks for one in left_receipts(self._source.files, job, self._left)]
        check_all(self._source, new, self._forks, gone=True)
        numbers = {number for one in self._left.values() if one.array == entry.id for number, _ in one.shards}
        return sorted(number for number in numbers if meets(entry.box(number)))

    def _before(self, receipts: Iterable[Receipt]) -> dict[_Key, list[tuple[str, Span]]]:
        """Return what was brought in before of the shards of receipts: the jobs and the boxes."""
        found: dict[_Key, list[tuple[str, Span]]] = {}
        if len(self._forks) > 1:  # of one fork, what is brought in later counts
            keys = {(one.array, number) for one in receipts for number, _ in one.shards}
            for one, number in self._taken:
                if (one.array, number) in keys:
                    found.setdefault((one.array, number), []).append((one.job, one.box))
        return found

    def _is_taken(self, receipt: Receipt) -> bool:
        shards = receipt.shards
        return bool(shards) and all((receipt, number) in self._taken for number, _ in shards)

    def _settle(
        self, receipts: Iterable[Receipt], wait_s: float, keys: Collection[_Key] | None = None, *, partly: bool = False
    ) -> None:
        """Settle receipts, of the shards ``keys`` or of all that were not taken."""
        source, wanted = self._source, None if keys is None else set(keys)
        fresh = [one for one in receipts if not self._is_taken(one)]
        given = check_all(source, fresh, self._forks, gone=True)
        narrow = []
        for one in given:
            shards = tuple(
                shard
                for shard in one.shards
                if (one, shard[0]) not in self._taken and (wanted is None or (one.array, shard[0]) in wanted)
            )
            if shards:
                narrow.append(replace(one, shards=shards))
        if not narrow:
            return
        done = settle(source, narrow, self._forks, wait_s, self._before(narrow), partly=partly)
        for one in given:
            own = [number for number, _ in one.shards if (one.array, number) in done]
            source.stats.receipts += bool(own) and not any((one, number) in self._taken for number, _ in one.shards)
            self._taken.update((one, number) for number in own)
        source.changes += bool(done)
        if self._waiting is not None:
            for array, number in done:
                self._waiting.get(array, {}).pop(number, None)
            self._waiting = {array: there for array, there in self._waiting.items() if there}
