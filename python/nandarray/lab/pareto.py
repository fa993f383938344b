"""Pareto fronts: the points that no other point beats in every respect.

Plain arithmetic on columns; what is measured and which way is better are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nandarray.errors import InvalidError

__all__ = ["front"]


def front(columns: Mapping[str, Sequence[Any]], objectives: Mapping[str, str]) -> list[bool]:
    """Return whether each point is on the front.

    ``columns`` has a number for each point; ``objectives`` says "max" or "min" for each column that counts. A point is
    on the front unless another one is at least as good in everything and better in something. Points with the same
    numbers are all on it or all not. A point without a number is not. An objective that is neither, or has no column,
    is an InvalidError.

    >>> from nandarray.lab.pareto import front
    >>> front({"speed": [1, 2, 3, 2], "cost": [1, 2, 5, 3]}, {"speed": "max", "cost": "min"})
    [True, True, True, False]
    """
    if not objectives:
        raise InvalidError("a front must have an objective")
    losses = []
    for name, way in objectives.items():
        if way not in {"max", "min"}:
            raise InvalidError(f"objective {name!r} must be 'max' or 'min', not {way!r}")
        if name not in columns:
            raise InvalidError(f"objective {name!r} is no column")
        try:
            numbers = np.array([np.nan if value is None else value for value in columns[name]], dtype=float)
        except (TypeError, ValueError, OverflowError):
            raise InvalidError(f"objective {name!r} is no column of numbers") from None
        losses.append(-numbers if way == "max" else numbers)
    loss = np.stack(losses, axis=1)
    rest = np.flatnonzero(~np.isnan(loss).any(axis=1))
    best = np.zeros(len(loss), dtype=bool)
    # Sorted by the first objective, then the next: no point dominates an earlier one, so each point that is reached is
    # on the front, and removes those that it dominates.
    rest = rest[np.lexsort(loss[rest].T[::-1])]
    while len(rest):
        one = loss[rest[0]]
        same = (loss[rest] == one).all(axis=1)
        best[rest[same]] = True
        rest = rest[(loss[rest] < one).any(axis=1) & ~same]
    return [bool(on) for on in best]
