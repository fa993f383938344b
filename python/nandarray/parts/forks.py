"""Workers of a transaction: forks, what they write, and the receipts by which a commit takes it.

A fork is a path and a job. The transaction's state lies in the folder, as ``jobs/<job>/draft.json``: a manifest that
is no version, whose leaves are there. A worker writes to a part of its own: it copies a shard that it writes in part,
makes each box durable, and says so by a :class:`Receipt`. Receipts are handed over, or are left in ``jobs/<job>/``
where there is no way for that: an array of a transaction that is pickled writes so in other processes, each of which
has one part a job. It seals it when it sees ``jobs/<job>/over``.

A task may run twice, and two tasks may write one shard: :mod:`nandarray.parts.receipts` takes each box once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from nandarray import dtypes
from nandarray.errors import ClosedError, CorruptError, InvalidError, NandarrayError, NotFoundError
from nandarray.index import buffers
from nandarray.parts.blobs.base import Blobs
from nandarray.parts.blobs.files import Files
from nandarray.parts.history import History
from nandarray.parts.manifest import Entry, Manifest, Span, draft_key, parse
from nandarray.parts.source import PartsSource

if TYPE_CHECKING:
    from nandarray.parts.source import PartSpace

__all__ = ["Fork", "ForkWriter", "Receipt", "left_receipts", "over_key", "worker_source"]


def over_key(job: str) -> str:
    """Return the key that says that a job takes no more writes."""
    return f"jobs/{job}/over"


@dataclass(frozen=True)
class Receipt:
    """A box that a worker wrote, durably.

    Attributes
    ----------
    job, part : str
        Names of the job and of the part that has it.
    array : str
        The id of the array.
    start, stop : tuple of int
        First coordinates of the box, and those behind its last.
    shards : tuple of (int, int)
        Numbers of the shards that it touches, each with the number of its array in the part.
    """

    job: str
    part: str
    array: str
    start: tuple[int, ...]
    stop: tuple[int, ...]
    shards: tuple[tuple[int, int], ...]

    @property
    def box(self) -> Span:
        """The box."""
        return self.start, self.stop

    def text(self) -> bytes:
        """Return the receipt as it is left in a folder."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, data: bytes, where: str) -> Receipt:
        """Return the receipt of a text, or raise a CorruptError."""
        try:
            said = json.loads(data)
            for key in ("start", "stop"):
                said[key] = tuple(int(one) for one in said[key])
            said["shards"] = tuple((int(shard), int(at)) for shard, at in said["shards"])
            return cls(**said)
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptError(f"{where}: the receipt is damaged: {error}") from None


def left_receipts(files: Blobs, job: str, known: dict[str, Receipt] | None = None) -> list[Receipt]:
    """Return the receipts that workers left in a job's folder, in the order of their writes.

    With ``known``, those that it has not, by key, to which they are added.
    """
    known = {} if known is None else known
    there = {f"jobs/{job}/{name}": kept for name, kept in files.listed(f"jobs/{job}").items() if name.startswith("r-")}
    keys = sorted((kept.made_ns, key) for key, kept in there.items() if key not in known)
    found = {key: Receipt.parse(files.get(key), files.path(key)) for _, key in keys}
    known.update(found)
    return list(found.values())


@dataclass(frozen=True)
class Fork:
    """A transaction as a worker gets it; it can be pickled. What ``Transaction.fork`` gives.

    Parameters
    ----------
    path : str
        Folder of the store, as workers see it, or its URL.
    job : str
        The name of the job.
    files : Blobs, optional
        The keeper of the store's objects; the folder if left out.
    """

    path: str
    job: str
    files: Blobs | None = field(default=None, compare=False, repr=False)

    def writer(self) -> ForkWriter:
        """Open a part for a worker; a context manager, which seals it at its end.

        Returns
        -------
        ForkWriter
            The writer.
        """
        return ForkWriter(self)


class ForkWriter:
    """A worker's part: boxes are written to it, and each gives a receipt.

    Parameters
    ----------
    fork : Fork
        The transaction for which it is.
    """

    def __init__(self, fork: Fork) -> None:
        self._source = _opened(fork)
        self._source.notes = self._note
        self._last: Receipt | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> ForkWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _note(self, entry: Entry, box: Span, touched: list[tuple[int, int]]) -> None:
        self._last = _receipt(self._source, entry, box, touched)

    def write(self, name: str, box: Any, values: ArrayLike) -> Receipt:
        """Write a box of an array, durably.

        Parameters
        ----------
        name : str
            The array.
        box : slice or tuple of slices
            The box: slices without steps, one for each dimension; what is left out is whole.
        values : array_like
            Its elements, which broadcast.

        Returns
        -------
        Receipt
            For ``Transaction.merge``; it can be pickled.

        Raises
        ------
        NotFoundError
            There is no such array.
        InvalidError
            The box has steps or is empty.
        """
        space = self._source.open_space(name)
        start, count = _box(box, space.shape)
        dtype = dtypes.decode(space.dtype)
        source = buffers.broadcast(buffers.as_source(values, dtype), tuple(count))
        with self._lock:
            space.write(source, start)
            self._source.flush_own()
            assert self._last is not None
            return self._last

    def read(self, name: str, box: Any = ...) -> np.ndarray[Any, Any]:
        """Read a box of an array as it was when the fork was made, with what this writer has written.

        Parameters
        ----------
        name : str
            The array.
        box : slice or tuple of slices
            The box, as for :meth:`write`.

        Returns
        -------
        numpy.ndarray
            The elements.
        """
        space: PartSpace = self._source.open_space(name)
        start, count = _box(box, space.shape, empty=True)
        found = buffers.empty(tuple(count), dtypes.decode(space.dtype))
        space.read(found, start)
        return found

    def close(self) -> None:
        """Seal the part."""
        if not self._source.closed:
            self._source.seal_own()
            self._source.close()


def _box(box: Any, shape: tuple[int, ...], *, empty: bool = False) -> tuple[list[int], list[int]]:
    key = box if isinstance(box, tuple) else (box,)
    if Ellipsis in key:
        at = key.index(Ellipsis)
        key = (*key[:at], *[slice(None)] * (len(shape) - len(key) + 1), *key[at + 1 :])
    key = (*key, *[slice(None)] * (len(shape) - len(key)))
    if len(key) != len(shape) or not all(isinstance(one, slice) for one in key):
        raise InvalidError(f"a box of {len(shape)} dimensions must be a slice for each, not {box!r}")
    found = [one.indices(length) for one, length in zip(key, shape, strict=True)]
    if any(step != 1 for _, _, step in found) or (not empty and any(low >= high for low, high, _ in found)):
        raise InvalidError(f"a box must have elements and no steps, not {box!r} of shape {shape}")
    return [low for low, _, _ in found], [max(0, high - low) for low, high, _ in found]


def _receipt(source: PartsSource, entry: Entry, box: Span, touched: Iterable[tuple[int, int]]) -> Receipt:
    part = source.own_part().part
    return Receipt(source.job, part, entry.id, box[0], box[1], tuple(touched))


def _opened(fork: Fork) -> PartsSource:
    files = fork.files or Files(fork.path)
    try:
        manifest: Manifest = parse(files.get(draft_key(fork.job)), files.path(draft_key(fork.job)))
    except FileNotFoundError:
        raise NotFoundError(f"{fork.path} has no job {fork.job}: it was committed, or given up") from None
    return PartsSource(History(files), manifest, read_only=False, options={}, pinned=True, job=fork.job)


# --- Arrays that are pickled ------------------------------------------------------------------------------------------


class _Worker:
    """The part of a job in a process to which pickled arrays write; receipts are left in the job's folder."""

    def __init__(self, fork: Fork) -> None:
        self.source = _opened(fork)
        self.source.notes = self._note
        self._fork = fork
        self._state = threading.Condition()
        self._writing = 0
        self._is_over = False
        # No other process could seal its part.
        self._at_exit = None if self.source.files.adopts else Finalize(None, self._end, exitpriority=1)
        threading.Thread(target=self._watch, name="nandarray-job", daemon=True).start()

    def _note(self, entry: Entry, box: Span, touched: list[tuple[int, int]]) -> None:
        self.source.flush_own()
        receipt = _receipt(self.source, entry, box, touched)
        files, job = self.source.files, self._fork.job
        # Where the times of two are the same, those of one process are in order.
        name = f"r-{next(_turns):08x}{secrets.token_hex(4)}.json"
        files.put_if_absent(f"jobs/{job}/{name}", receipt.text())
        # The commit lists receipts once it has said that it is over: this one may have come too late.
        if files.has(over_key(job)) or not files.has(draft_key(job)):
            raise self._over()

    def _over(self) -> ClosedError:
        return ClosedError(f"job {self._fork.job} of {self._fork.path} takes no more writes: it is being committed")

    @contextlib.contextmanager
    def writing(self) -> Any:
        """Hold off sealing while elements are written."""
        with self._state:
            if self._is_over:
                raise self._over()
            self._writing += 1
        try:
            yield
        finally:
            with self._state:
                self._writing -= 1
                self._state.notify_all()

    def _ended(self) -> bool:
        files, job = self.source.files, self._fork.job
        try:
            return files.has(over_key(job)) or not files.has(draft_key(job))
        except OSError:  # it is not known now, and asked again
            return False

    def _watch(self) -> None:
        while not self._ended():
            time.sleep(self.source.files.poll_s)
        self._end()

    def _end(self) -> None:
        """Take no more writes, and seal the part if there is a commit to come."""
        files = self.source.files
        if self._at_exit is not None:
            self._at_exit.cancel()
        with self._state:
            self._is_over = True
            while self._writing:
                self._state.wait()
        with _lock:
            _workers.pop((os.getpid(), self._fork), None)
        try:
            if files.has(draft_key(self._fork.job)):
                self.source.seal_own()
            else:
                self.source.discard()
        except (NandarrayError, OSError):  # a commit adopts it, if there is one to come
            self.source.drop_own(leave=True)


_turns = itertools.count()
_workers: dict[tuple[int, Fork], _Worker] = {}
_lock = threading.Lock()


def worker_source(fork: Fork) -> PartsSource:
    """Return the source of a job in this process."""
    key = os.getpid(), fork
    with _lock:
        worker = _workers.get(key)
        if worker is None:
            worker = _workers[key] = _Worker(fork)
            worker.source.writing = worker.writing
        return worker.source
