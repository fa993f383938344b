"""Objects far away, as the rest of the package sees them: read in ranges, made if absent, listed, deleted.

:class:`Objects` is the interface. :mod:`nandarray.remote.obstores` and :mod:`nandarray.remote.filesystems` implement
it. Ranges are merged into pieces here, and pieces are fetched side by side, by threads of the process. An object is
read as it was when its facts were requested: each answer is held against them, and an object that was replaced since is
a :class:`~nandarray.ChangedError`, never a mixture of two (:meth:`Facts.same`). A body that ends early and a lost
connection are tried again.

Nothing is kept here, and nothing here knows what is in an object.
"""

from __future__ import annotations

import abc
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import NamedTuple, TypeVar

from nandarray.errors import ChangedError, DeniedError, InvalidError, MediaError

__all__ = ["GAP_BYTES", "PIECE_BYTES", "Facts", "Objects", "Put", "Range", "interruptible", "merged"]

_T = TypeVar("_T")

#: First byte of a range, and the one behind its last.
Range = tuple[int, int]
#: Takes the bytes of a piece: its first byte, and the bytes.
Put = Callable[[int, memoryview], None]

#: Largest number of bytes between two ranges that are fetched as one piece.
GAP_BYTES = 1 << 20
#: Largest piece that one request asks for, in bytes.
PIECE_BYTES = 16 << 20
#: Pieces of a process that are fetched side by side.
_SIDE_BY_SIDE = 16
#: Number of requests of a piece before its error counts, and the first pause between them in seconds.
_TRIES = 4
_PAUSE_S = 0.1
#: Seconds after which no other request is made: one that took so long had tries of its own.
_TRIES_S = 30.0


class Facts(NamedTuple):
    """Size, version and age of an object, as its store says them."""

    #: Size in bytes.
    bytes: int
    #: Version, as the store names it; None where the store has none.
    etag: str | None
    #: Time when the object was made, in seconds since 1970, by the store's clock; 0 where the store does not say.
    made_at: float

    @property
    def lasting(self) -> bool:
        """Whether the version tells this object from every other one, at any time: not a weak etag (``W/``)."""
        return self.etag is not None and not self.etag.startswith("W/")

    def same(self, now: Facts) -> bool:
        """Return whether an object with the facts ``now`` is this one still: by its age, too, if no version lasts."""
        if (now.bytes, now.etag) != (self.bytes, self.etag):
            return False
        return self.lasting or now.made_at == self.made_at


def merged(ranges: Iterable[Range], gap: int = GAP_BYTES, piece: int = PIECE_BYTES) -> list[Range]:
    """Return the pieces in which ranges are fetched: joined over small gaps, and cut where they are long.

    Examples
    --------
    >>> from nandarray.remote.objects import merged
    >>> merged([(0, 10), (12, 20), (90, 130)], gap=5, piece=25)
    [(0, 20), (90, 115), (115, 130)]
    """
    joined: list[list[int]] = []
    for start, end in sorted(one for one in ranges if one[0] < one[1]):
        if joined and start - joined[-1][1] <= gap:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return [(at, min(at + piece, end)) for start, end in joined for at in range(start, end, piece)]


class Objects(abc.ABC):
    """The objects of one place, by their keys.

    Parameters
    ----------
    root : str
        The URL of the place, for messages: that of an object is ``root/key``.
    """

    #: Whether :meth:`put_if_absent` is one step, so that of two processes one wins, and no reader sees half of it.
    creates_at_once = True

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")

    def url(self, key: str) -> str:
        """Return the URL of an object, for messages."""
        return f"{self.root}/{key}" if key else self.root

    # --- Requests -----------------------------------------------------------------------------------------------------
    #
    # Errors: a FileNotFoundError says that there is no such object, and every other error is one of this package.

    @abc.abstractmethod
    def facts(self, key: str) -> Facts:
        """Return what the store says of an object."""

    @abc.abstractmethod
    def get(self, key: str, most: int | None = None) -> tuple[memoryview, Facts]:
        """Read an object whole; one of more than ``most`` bytes is an InvalidError, before its bytes are read."""

    def _bounded(self, key: str, facts: Facts, most: int | None) -> None:
        if most is not None and facts.bytes > most:
            raise InvalidError(
                f"{self.url(key)} has {facts.bytes} bytes, and must have at most {most} to be read whole"
            )

    def head(self, key: str, count: int) -> tuple[memoryview, Facts]:
        """Read the first bytes of an object, fewer if it is shorter, and return them with its facts."""
        facts = self.facts(key)
        end = min(count, facts.bytes)
        return (self.piece(key, 0, end, facts) if end else memoryview(b"")), facts

    @abc.abstractmethod
    def get_range(self, key: str, start: int, end: int, facts: Facts) -> memoryview:
        """Read a range of an object, which has these facts still: one request, tried once.

        Raises
        ------
        ChangedError
            It has others now.
        """

    @abc.abstractmethod
    def listing(self, folder: str) -> list[tuple[str, Facts]]:
        """List the objects whose keys begin with ``folder`` and a slash, sorted by key, with all below."""

    @abc.abstractmethod
    def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
        """Make an object if its key is free; return whether it was."""

    @abc.abstractmethod
    def put(self, key: str, data: bytes | memoryview) -> None:
        """Make an object, in place of one that is there."""

    @abc.abstractmethod
    def put_file(self, key: str, path: str) -> None:
        """Make an object of a file of this machine, in place of one that is there."""

    @abc.abstractmethod
    def delete(self, key: str) -> None:
        """Delete an object, if there is one."""

    # --- Ranges ------------------------------------------------------------------------------------------------------

    def fetch(self, key: str, pieces: Sequence[Range], facts: Facts, put: Put) -> None:
        """Fetch pieces side by side, and pass each to ``put`` as it comes.

        Parameters
        ----------
        key : str
            The object.
        pieces : sequence of (int, int)
            Disjoint pieces, as :func:`merged` makes them, within the object.
        facts : Facts
            The object's facts, which it must have still.
        put : callable
            Called with the first byte of a piece and its bytes, in this thread.

        Raises
        ------
        ChangedError
            The object was replaced, or is gone.
        DeniedError, MediaError
            A piece cannot be had; the message names object and range.
        """
        if len(pieces) == 1:
            put(pieces[0][0], self.piece(key, *pieces[0], facts))
            return
        ended = threading.Event()

        def one(start: int, end: int) -> tuple[int, memoryview]:
            return start, self.piece(key, start, end, facts, ended)

        left, flying = iter(pieces), set[Future[tuple[int, memoryview]]]()
        try:
            while True:
                # A bounded number, as their bytes are in memory until they are put.
                flying |= {_threads().submit(one, *piece) for piece in islice(left, 2 * _SIDE_BY_SIDE - len(flying))}
                if not flying:
                    return
                done, flying = wait(flying, return_when=FIRST_COMPLETED)
                while done:
                    put(*done.pop().result())
        finally:  # an interrupt, too, which does not wait for what is on its way
            ended.set()
            for future in flying:
                future.cancel()

    def read(self, key: str, ranges: Sequence[Range], facts: Facts) -> list[memoryview]:
        """Read ranges of an object, in any order, and return the bytes of each."""
        pieces = merged(ranges)
        found: dict[int, memoryview] = {}
        self.fetch(key, pieces, facts, found.__setitem__)
        return [_cut(pieces, found, start, end) for start, end in ranges]

    def piece(self, key: str, start: int, end: int, facts: Facts, ended: threading.Event | None = None) -> memoryview:
        """Read one range of an object, which has these facts still; tried again where that may help.

        Raises
        ------
        ChangedError
            The object was replaced, or is gone.
        DeniedError, MediaError
            It cannot be had; the message names object and range.
        """
        where = f"{self.url(key)}: bytes {start} to {end}"
        last_at = time.monotonic() + _TRIES_S
        for left in reversed(range(_TRIES)):
            try:
                found = self.get_range(key, start, end, facts)
                if len(found) == end - start:
                    return found
                raise MediaError(f"{where}: the answer has {len(found)} of {end - start} bytes")
            except FileNotFoundError as error:
                raise ChangedError(f"{where}: the object was deleted since it was opened") from error
            except ChangedError as error:
                raise ChangedError(_placed(error, where, self.url(key))) from error
            except DeniedError:
                raise
            except MediaError as error:
                if not left or (ended is not None and ended.is_set()) or time.monotonic() > last_at:
                    raise MediaError(_placed(error, where, self.url(key))) from error
                time.sleep(_PAUSE_S * 2 ** (_TRIES - 1 - left) * (0.5 + random.random()))
        raise AssertionError("the last try returns or raises")


def _placed(error: OSError, where: str, url: str) -> str:
    """Return the text of an error with the object and the range in front, each once."""
    return str(error) if where in str(error) else f"{where}: {str(error).removeprefix(f'{url}: ')}"


def _cut(pieces: Sequence[Range], found: dict[int, memoryview], start: int, end: int) -> memoryview:
    """Return the bytes of a range, which is in a piece or runs over several."""
    parts = [
        found[first][max(start - first, 0) : end - first] for first, last in pieces if first < end and start < last
    ]
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def interruptible(request: Callable[[], _T]) -> _T:
    """Make a request, and return what it returns; an interrupt ends the wait for it, but not the request.

    A library that does not look for signals is called by another thread, where this one takes them.
    """
    if threading.current_thread() is not threading.main_thread():
        return request()
    answer: Future[_T] = Future()

    def make() -> None:
        try:
            answer.set_result(request())
        except BaseException as error:  # raised where it is waited for
            answer.set_exception(error)

    threading.Thread(target=make, name="nandarray-request").start()
    return answer.result()


_pool: tuple[int, ThreadPoolExecutor] | None = None
_pool_lock = threading.Lock()


def _threads() -> ThreadPoolExecutor:
    """Return the threads of this process that fetch; a fork has its own."""
    global _pool
    known = _pool
    if known is None or known[0] != os.getpid():
        with _pool_lock:
            if _pool is None or _pool[0] != os.getpid():
                _pool = os.getpid(), ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="nandarray-fetch")
            known = _pool
    return known[1]


def _forked() -> None:
    global _pool_lock
    _pool_lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)
