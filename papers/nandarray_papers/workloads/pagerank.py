"""PageRank over a dense adjacency matrix, in bands of vertices.

As in GraphChi, a vertex is updated from its in-edges and needs its number of out-edges: for every band of vertices,
the rows (out-edges) and the columns (in-edges) are fetched. Ranks are not normalised: they sum to the number of
vertices if every vertex links to another. Links to oneself do not count.

Cost of a band of e elements of 8 bytes. Rows: a comparison of 64 bits (two 32-bit instructions) and an addition,
counted as 6 operations. Columns: the comparison is hidden behind an addition in double precision, 2 operations.
8 bytes an element either way, which is what bounds both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from nandarray_papers.workloads import _graph
from nandarray_papers.workloads.base import Array, Cost, Dataset, Fetch, Read, Results, Workload

__all__ = ["PageRank"]

DAMPING = 0.85
ROUNDS = 4


class PageRank(Workload):
    """Ranks of all vertices; ``rounds`` is a number of iterations, of which the first sets every rank to 1."""

    name = "PageRank"
    category = "graph"
    table_1 = "4096x65536"
    access = "for every 4096 vertices: a band of whole rows, then one of whole columns"
    passes = ROUNDS
    passes_because = "4 iterations, as in the paper's published code; each reads the matrix by rows and by columns"
    assumptions: ClassVar = (
        "PageRank: Table 1 gives 4096x65536, a band of rows; the paper's published code fetches for every 4096 "
        "vertices the band of rows (out-edges) and the band of columns (in-edges), and so do we",
    )
    square = True
    spans = (1,)
    paper_dataset = Dataset("links", (65536, 65536), "int64")
    paper_kernel = (4096, 65536)

    def make(self, operand: int = 0) -> Array:  # noqa: D102
        return _graph.kronecker(self.shape[0], self.random(operand))

    def fetches(self) -> Iterator[Fetch]:  # noqa: D102
        band, n = self.kernel_shape
        for vertices in range(self.blocks[0]):
            yield Fetch((vertices, 0), (band, n))
            yield Fetch((0, vertices), (n, band))

    def kernel_cost(self, fetch: Fetch) -> Cost:  # noqa: D102
        e = self.elements(fetch)
        if fetch.sub_shape == self.kernel_shape:
            return self._cost(fetch, 6 * e, 8 * e, "int32")
        return self._cost(fetch, 2 * e, 8 * e)

    def run(self, read: Read, rounds: int | None = None) -> Results:  # noqa: D102
        from nandarray_papers.workloads import _loops

        n = self.shape[0]
        rank, share = np.ones(n), np.zeros(n)
        links, pulled = np.zeros(n, np.int64), np.zeros(n)
        for done in range(ROUNDS if rounds is None else rounds):
            fetches = self.fetches()
            for fetch in fetches:
                rows = fetch.box(self.view)[0]
                _loops.count_links(np.ascontiguousarray(read(fetch)), rows.start, links)
                _loops.pull(np.ascontiguousarray(read(next(fetches))), rows.start, share, pulled)
            if done:
                rank = (1.0 - DAMPING) + DAMPING * pulled
            share = rank / np.maximum(links, 1)
        return {"rank": rank}

    def reference(self, *arrays: Array, rounds: int | None = None) -> Results:  # noqa: D102
        linked = arrays[0] != 0
        np.fill_diagonal(linked, val=False)
        step = linked / np.maximum(linked.sum(axis=1, keepdims=True), 1)
        rank = np.ones(self.shape[0])
        for _ in range((ROUNDS if rounds is None else rounds) - 1):
            rank = (1.0 - DAMPING) + DAMPING * (rank @ step)
        return {"rank": rank}
