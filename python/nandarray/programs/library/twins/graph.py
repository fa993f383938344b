"""Twins of the graph programs, and what puts PageRank's rows together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nandarray.errors import CorruptError

__all__ = ["bfs_scan", "pagerank_ranks", "pagerank_step"]

Array = np.ndarray[Any, Any]
_NONE = 0xFFFFFFFF
ROW = np.dtype([("vertex", np.uint32), ("edges", np.uint32), ("sum", np.float64)])


def _checked(edges: Array, vertices: int) -> Array:
    pairs = edges.reshape(-1, 2)
    if len(pairs) and pairs.max() >= vertices:
        raise CorruptError(f"an edge names vertex {pairs.max()} of {vertices}")
    return pairs


def bfs_scan(edges: Array, levels: Array, level: int) -> tuple[Array]:
    """Return the vertices without a level that edges (from, to) from a level lead to, in the order of edges.

    ``levels`` has 0xffffffff for a vertex without one; some vertices come more than once. All are uint32. An edge that
    names a vertex that is not there is a CorruptError.
    """
    pairs = _checked(edges, len(levels))
    return (pairs[(levels[pairs[:, 0]] == level) & (levels[pairs[:, 1]] == _NONE), 1],)


def pagerank_step(edges: Array, share: Array, *, starts: Sequence[int] = (0,)) -> tuple[Array]:
    """Sum shares over runs of edges (from, to; uint32) that lead to the same vertex; edges are best sorted by to.

    ``share`` is the rank of each vertex divided by its outgoing edges, float64. Tasks begin at ``starts``; a run ends
    there. Rows of vertex, edges, sum are returned. An edge that names a vertex that is not there is a CorruptError.
    """
    pairs = _checked(edges, len(share))
    if not len(pairs):
        return (np.empty(0, ROW),)
    new = np.ones(len(pairs), bool)
    new[1:] = pairs[1:, 1] != pairs[:-1, 1]
    new[[start for start in starts if start < len(pairs)]] = True
    first = np.flatnonzero(new)
    rows = np.zeros(len(first), ROW)
    rows["vertex"] = pairs[first, 1]
    rows["edges"] = np.diff([*first, len(pairs)])
    # Not reduceat, whose order is its own: one edge of every run at a time.
    for number in range(int(rows["edges"].max())):
        longer = np.flatnonzero(rows["edges"] > number)
        rows["sum"][longer] += share[pairs[first[longer] + number, 0]]
    return (rows,)


def pagerank_ranks(rows: Array, vertices: int, *, damping: float = 0.85) -> Array:
    """Make the next ranks of the rows of :func:`pagerank_step`.

    Parameters
    ----------
    rows : numpy.ndarray
        All tasks' rows, in order.
    vertices : int
        Number of vertices.
    damping : float
        The part of a rank that edges carry on.

    Returns
    -------
    numpy.ndarray, float64, shape (vertices,)
        ``(1 - damping) / vertices + damping * sum``. The rank of vertices without outgoing edges is not spread.
    """
    total = np.zeros(vertices)
    np.add.at(total, rows["vertex"], rows["sum"])
    return (1 - damping) / vertices + damping * total
