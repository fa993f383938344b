"""Receipts of workers are brought in before this process uses the same shards.

Receipts that were handed over wait until a commit, or until a shard of theirs is read or written here: then those of
the shard are settled first, so that a transaction reads what it has merged, and changes it. :class:`Arrivals` is what
knows the receipts (:mod:`nandarray.parts.jobs`); :func:`arriving` makes methods of arrays ask it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

from nandarray.parts.manifest import Entry, Span

__all__ = ["Arrivals", "arriving"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Arrivals(Protocol):
    """The receipts of a source that were not brought in yet."""

    def waiting(self, *, writes: bool) -> bool:
        """Return whether there may be any that matter to a read, or to a write."""
        ...

    def bring_in(self, entry: Entry, meets: Callable[[Span], bool], *, writes: bool) -> None:
        """Bring in what was written to those shards of an array whose boxes are met; not from within the gate."""
        ...

    def taken(self) -> Any:
        """Return what was brought in so far, for :meth:`give_back`."""
        ...

    def give_back(self, taken: Any) -> None:
        """Let wait again what was brought in since."""
        ...


def arriving(at: int | None = None, *, writes: bool = False) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a method of an array have receipts of the shards that it uses settled first.

    The selection is its argument of this number: runs and index arrays, or coordinates of points; without, the method
    uses the whole array.
    """

    def made(moves: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(moves)
        def after(*given: _P.args, **named: _P.kwargs) -> _R:
            array: Any = given[0]
            source = array.source
            arrivals = source.arrivals
            if arrivals is not None and arrivals.waiting(writes=writes) and not source.gate.is_inside:
                meets = functools.partial(_meets, None if at is None else given[at])
                arrivals.bring_in(array.entry, meets, writes=writes)
            return moves(*given, **named)

        return after

    return made


def _meets(selection: Any, box: Span) -> bool:
    """Return whether a selection has elements of a box."""
    if selection is None:
        return True
    low, high = box
    if isinstance(selection, np.ndarray):
        inside = (selection >= np.array(low, np.uint64)) & (selection < np.array(high, np.uint64))
        return bool(inside.all(axis=1).any())
    runs: Sequence[Any] = selection
    return all(_axis_meets(taken, a, b) for taken, a, b in zip(runs, low, high, strict=True))


def _axis_meets(taken: Any, low: int, high: int) -> bool:
    if not isinstance(taken, tuple):
        return bool(((taken >= low) & (taken < high)).any())
    start, step, count = taken
    skipped = max(0, -(-(low - start) // step))
    return bool(skipped < count and start + skipped * step < high)
