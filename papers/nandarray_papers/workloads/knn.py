"""K nearest neighbours of 128 queries among points that are columns, by brute force, in bands of columns.

The data are KMeans', stored [attributes, points]. Distances come from one matrix product a band:
``|x - q|^2 = |x|^2 - 2 q.x + |q|^2``; the neighbours are chosen when all distances are there.

Cost of a band of e elements of 8 bytes and 128 queries: a fused multiply-add for each query in the product and one for
the norm: 2 x 128 + 2 operations an element; the band is read by the product and by the norm, 16 bytes an element.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nandarray_papers.workloads.base import Array, Cost, Dataset, Fetch, Read, Results, Workload

__all__ = ["Knn"]

QUERIES = 128
NEIGHBOURS = 4


class Knn(Workload):
    """Indices and distances of the nearest points of each query; ``rounds`` has no effect: there is one pass."""

    name = "KNN"
    category = "data mining"
    table_1 = "65536"
    access = "bands of 4096 whole columns (points), in order"
    passes_because = "every point is compared with all queries when it comes"
    assumptions: ClassVar = (
        "KNN: the kernel's 65536 elements are a column, one point; columns are fetched in bands of 4096, 128 queries, "
        "4 neighbours, in double precision, as in the paper's published code",
    )
    rtol = 1e-7
    spans = (0,)
    paper_dataset = Dataset("points", (65536, 65536))
    paper_kernel = (65536, 4096)

    @property
    def queries(self) -> Array:
        """The queries, [attributes, 128]."""
        return self.random(16).random((self.shape[0], QUERIES))

    def kernel_cost(self, fetch: Fetch) -> Cost:  # noqa: D102
        e = self.elements(fetch)
        return self._cost(fetch, (2 * QUERIES + 2) * e, 16 * e, launches=3)

    def run(self, read: Read, rounds: int | None = None) -> Results:  # noqa: D102
        queries = self.queries
        squares = np.empty((QUERIES, self.shape[1]))
        for fetch in self.fetches():
            band, columns = read(fetch), fetch.box(self.view)[1]
            squares[:, columns] = np.einsum("ap,ap->p", band, band) - 2.0 * (queries.T @ band)
        squares += np.einsum("aq,aq->q", queries, queries)[:, None]
        index = np.argsort(squares, axis=1, kind="stable")[:, :NEIGHBOURS].astype(np.int64)
        nearest = np.take_along_axis(squares, index, axis=1)
        return {"index": index, "distance": np.sqrt(np.maximum(nearest, 0.0))}

    def reference(self, *arrays: Array, rounds: int | None = None) -> Results:  # noqa: D102
        from scipy.spatial.distance import cdist

        distance = cdist(self.queries.T, arrays[0].T)
        index = np.argsort(distance, axis=1, kind="stable")[:, :NEIGHBOURS].astype(np.int64)
        return {"index": index, "distance": np.take_along_axis(distance, index, axis=1)}
