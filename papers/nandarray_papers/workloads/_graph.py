"""Random graphs as dense adjacency matrices of 8-byte integers; 0 is no edge."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["kronecker", "uniform"]

Array = np.ndarray[Any, Any]

#: Weights of edges are 1 to this, as Rodinia's generator makes them.
WEIGHT_MAX = 10


def uniform(vertices: int, random: np.random.Generator) -> Array:
    """Make a graph as Rodinia's generator for BFS does: every vertex chooses 2 to 4 others, edges lead both ways.

    The result is [vertices, vertices] int64: weights of 1 to 10; symmetric; no edge from a vertex to itself.
    """
    matrix = np.zeros((vertices, vertices), np.int64)
    source = np.repeat(np.arange(vertices), random.integers(2, 5, vertices))
    target = random.integers(0, vertices, source.size)
    weight = random.integers(1, WEIGHT_MAX + 1, source.size)
    apart = source != target
    # Of several edges between two vertices the last one stays, the same in both directions.
    low, high = np.minimum(source, target)[apart], np.maximum(source, target)[apart]
    matrix[low, high] = weight[apart]
    matrix[high, low] = matrix[low, high]
    return matrix


def kronecker(vertices: int, random: np.random.Generator, edges_a_vertex: int = 37) -> Array:
    """Make a Kronecker graph as Graph500's generator does (A, B, C = 0.57, 0.19, 0.19), but with directed edges.

    The paper's is ``kron_g500-simple-logn16`` of the 10th DIMACS challenge: 65536 vertices, 2.46 million edges. That
    one is undirected; directed edges let a test tell rows from columns. Of the edges drawn for each vertex, those drawn
    twice count once, and those that lead nowhere are left out. The result is [vertices, vertices] int64: 1 where the
    row's vertex links to the column's.
    """
    matrix = np.zeros((vertices, vertices), np.int64)
    count = vertices * min(edges_a_vertex, max(vertices // 2, 1))
    source = np.zeros(count, np.int64)
    target = np.zeros(count, np.int64)
    for _ in range((vertices - 1).bit_length()):
        quarter = np.searchsorted(np.cumsum([0.57, 0.19, 0.19]), random.random(count), side="right")
        source = source * 2 + quarter // 2
        target = target * 2 + quarter % 2
    inside = (source < vertices) & (target < vertices) & (source != target)
    matrix[source[inside], target[inside]] = 1
    return matrix
