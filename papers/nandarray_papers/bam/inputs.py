"""Inputs of the recorded kernels: graphs in rows of neighbours, and a table of taxi rides."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["rmat", "taxi", "uniform"]

Array = np.ndarray[Any, Any]

#: Probabilities of a quadrant, as of Graph500's and GAP's Kronecker graphs: 0.57, 0.19, 0.19, 0.05.
_A, _B, _C = 0.57, 0.19, 0.19


def _rows(source: Array, target: Array, vertices: int) -> Array:
    """Return a graph's words: vertices, edges, where each row begins, the neighbours; edges lead both ways."""
    a, b = np.concatenate([source, target]), np.concatenate([target, source])
    order = np.lexsort((b, a))
    first = np.searchsorted(a[order], np.arange(vertices + 1))
    return np.concatenate([[vertices, len(a)], first, b[order]]).astype(np.uint64)


def rmat(scale: int, degree: int, seed: int) -> Array:
    """Make a Kronecker graph of 2^scale vertices, as GAP-kron is: few vertices have most edges.

    ``degree`` is of edges a vertex before they lead both ways. The uint64 words are: vertices, edges, [vertices + 1]
    first neighbours, [edges] neighbours.
    """
    random = np.random.default_rng(seed)
    edges = degree << scale
    source, target = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
    for _ in range(scale):
        draw = random.random(edges)
        source = 2 * source + (draw >= _A + _B)
        target = 2 * target + (((draw >= _A) & (draw < _A + _B)) | (draw >= _A + _B + _C))
    names = random.permutation(1 << scale)
    return _rows(names[source], names[target], 1 << scale)


def uniform(scale: int, degree: int, seed: int) -> Array:
    """Make a graph whose edges are equally likely, as GAP-urand is; arguments and result as of :func:`rmat`."""
    random = np.random.default_rng(seed)
    ends = random.integers(0, 1 << scale, (2, degree << scale))
    return _rows(ends[0], ends[1], 1 << scale)


def taxi(rows: int, seed: int) -> Array:
    """Make six columns of taxi rides: distance in miles, total, surcharge, hail, tolls, taxes in dollars.

    The result is [6, rows] float64. Distances are lognormal; about one in a thousand is 30 miles or more, as in New
    York's.
    """
    random = np.random.default_rng(seed)
    distance = random.lognormal(0.75, 0.86, rows)
    others = random.random((5, rows)) * np.array([[40.0], [5.0], [2.5], [12.0], [4.0]])
    return np.vstack([distance, others])
