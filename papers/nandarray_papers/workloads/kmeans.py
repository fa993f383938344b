"""K-means: Lloyd's iterations over points that are columns, in bands of columns.

The data are stored [attributes, points], as GPU codes keep them so that neighbouring threads read neighbouring
addresses; the kernel's 1-D unit of 65536 is a point, a column. A band holds whole points, so it gives their clusters
and adds them to the sums of their clusters at once. The paper's published code reads the data a second time for the
sums, on the host; ``passes`` counts these readings.

Cost of a band of e elements of 8 bytes and k = 4 clusters: a subtraction and a fused multiply-add for each cluster
(4 operations), an addition for the sums (2): 4 k + 2 an element; the band is read twice, 16 bytes an element.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nandarray_papers.workloads.base import Array, Cost, Dataset, Fetch, Read, Results, Workload

__all__ = ["KMeans"]

CLUSTERS = 4
#: Iterations end when no more than this part of the points changes its cluster.
THRESHOLD = 0.001
ROUNDS_MAX = 500


class KMeans(Workload):
    """Clusters of the points and their centres; ``rounds`` is a number of Lloyd's iterations."""

    name = "KMeans"
    category = "data mining"
    table_1 = "65536"
    access = "bands of 1024 whole columns (points), in order"
    passes = 22
    passes_because = (
        "the paper's published code notes 11 iterations, each of which reads the data once for the clusters and once "
        "for their centres"
    )
    assumptions: ClassVar = (
        "KMeans: the kernel's 65536 elements are a column, one point of data stored as [attributes][points]; columns "
        "are fetched in bands of 1024, 4 clusters, as in the paper's published code",
    )
    rtol = 1e-9
    spans = (0,)
    paper_dataset = Dataset("points", (65536, 65536))
    paper_kernel = (65536, 1024)

    def kernel_cost(self, fetch: Fetch) -> Cost:  # noqa: D102
        e = self.elements(fetch)
        return self._cost(fetch, (4 * CLUSTERS + 2) * e, 16 * e, launches=2)

    def run(self, read: Read, rounds: int | None = None) -> Results:  # noqa: D102
        attributes, points = self.shape
        clusters = min(CLUSTERS, points)
        centres = self._first(read, clusters)
        labels = np.full(points, -1, np.int64)
        for _ in range(ROUNDS_MAX if rounds is None else rounds):
            sums, sizes, changed = np.zeros((attributes, clusters)), np.zeros(clusters), 0
            norms = np.einsum("ac,ac->c", centres, centres)
            for fetch in self.fetches():
                band, columns = read(fetch), fetch.box(self.view)[1]
                nearest = np.argmin(norms[:, None] - 2.0 * (centres.T @ band), axis=0)
                changed += int(np.count_nonzero(labels[columns] != nearest))
                labels[columns] = nearest
                chosen = np.zeros((nearest.size, clusters))
                chosen[np.arange(nearest.size), nearest] = 1.0
                sums += band @ chosen
                sizes += chosen.sum(axis=0)
            centres = np.where(sizes > 0, sums / np.maximum(sizes, 1.0), centres)
            if rounds is None and changed <= THRESHOLD * points:
                break
        return {"labels": labels, "centres": centres}

    def _first(self, read: Read, clusters: int) -> Array:
        """Take the first points as centres: a fetch more, as in the published code (more, if bands are narrow)."""
        bands = -(-clusters // self.kernel_shape[1])
        found = [read(Fetch((0, band), self.kernel_shape)) for band in range(bands)]
        return np.concatenate(found, axis=1)[:, :clusters].copy()

    def reference(self, *arrays: Array, rounds: int | None = None) -> Results:  # noqa: D102
        points = arrays[0].T
        centres = points[: min(CLUSTERS, len(points))].copy()
        labels = np.full(len(points), -1, np.int64)
        for _ in range(ROUNDS_MAX if rounds is None else rounds):
            before = labels
            labels = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2).argmin(axis=1).astype(np.int64)
            for cluster in range(len(centres)):
                if (labels == cluster).any():
                    centres[cluster] = points[labels == cluster].mean(axis=0)
            if rounds is None and np.count_nonzero(labels != before) <= THRESHOLD * len(points):
                break
        return {"labels": labels, "centres": centres.T.copy()}
