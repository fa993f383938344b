"""Breadth-first search over a dense adjacency matrix, in bands of rows.

The kernel is Rodinia's: for each level, every vertex of the frontier looks along its row and gives its neighbours
without a level the next one. A band of rows without a vertex of the frontier is not fetched, as in the paper's
published code.

Cost of a band of e elements of 8 bytes, if every row is in the frontier (an upper bound): a comparison of 64 bits takes
two 32-bit instructions, the test of the neighbour's level one: 3 instructions, counted as 6 operations an element;
8 bytes read an element.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nandarray_papers.workloads import _graph
from nandarray_papers.workloads.base import Array, Cost, Dataset, Fetch, Read, Results, Workload

__all__ = ["Bfs"]


class Bfs(Workload):
    """Levels of all vertices from vertex 0; ``rounds`` is a number of levels."""

    name = "BFS"
    category = "graph traversal"
    table_1 = "65536"
    access = "bands of 4096 whole rows, in order"
    passes = 8
    passes_because = (
        "a graph of 65536 vertices from Rodinia's generator has 9 or 10 levels; its frontiers touch 118 to 124 of the "
        "16 bands a level together, 7.4 to 7.8 passes (three seeds)"
    )
    assumptions: ClassVar = (
        "BFS: the paper's published code (doi:10.5281/zenodo.5495743) fetches bands of 4096 rows of 8-byte integers, "
        "and only those with a vertex of the frontier",
    )
    square = True
    spans = (1,)
    paper_dataset = Dataset("graph", (65536, 65536), "int64")
    paper_kernel = (4096, 65536)

    def make(self, operand: int = 0) -> Array:  # noqa: D102 - as of Workload
        return _graph.uniform(self.shape[0], self.random(operand))

    def kernel_cost(self, fetch: Fetch) -> Cost:  # noqa: D102
        e = self.elements(fetch)
        return self._cost(fetch, 6 * e, 8 * e, "int32")

    def run(self, read: Read, rounds: int | None = None) -> Results:  # noqa: D102
        from nandarray_papers.workloads import _loops

        level = np.full(self.shape[0], -1, np.int64)
        level[0] = 0
        depth, found = 0, True
        while found and (rounds is None or depth < rounds):
            frontier = level == depth
            depth, found = depth + 1, False
            for fetch in self.fetches():
                rows = fetch.box(self.view)[0]
                if frontier[rows].any():
                    found |= _loops.expand(np.ascontiguousarray(read(fetch)), rows.start, frontier, level, depth)
        return {"level": level}

    def reference(self, *arrays: Array, rounds: int | None = None) -> Results:  # noqa: D102
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        steps = dijkstra(csr_array(arrays[0]), unweighted=True, indices=0)
        limit = np.inf if rounds is None else rounds
        return {"level": np.where(np.isfinite(steps) & (steps <= limit), steps, -1).astype(np.int64)}
