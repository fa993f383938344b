"""Tensor contraction with a matrix along the last mode: Y[n, m, p] is the sum over k of X[n, m, k] W[k, p].

The matrix has 16 columns. The tensor is TTV's and comes in the same cubes, as in the paper's published code.

Cost of a cube of e elements of 8 bytes: a fused multiply-add for each p, 32 operations an element, in double precision
as there; 8 bytes an element read, and for each element of the result 8 read and 8 written. A block of the result is
copied back after its last cube.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nandarray_papers.workloads.base import Array, Cost, Dataset, Fetch, Read, Results, Workload

__all__ = ["Tc"]

COLUMNS = 16


class Tc(Workload):
    """The tensor that is left; ``rounds`` has no effect: there is one pass."""

    name = "TC"
    category = "tensor algebra"
    table_1 = "512x512"
    access = "cubes, the contracted (last) mode innermost in order"
    passes_because = "one contraction"
    assumptions: ClassVar = (
        "TC: a contraction along the last mode with a matrix of 16 columns, in cubes of 512^3 and double precision, as "
        "in the paper's published code",
    )
    paper_dataset = Dataset("tensor", (2048, 2048, 2048))
    paper_kernel = (512, 512, 512)

    @property
    def matrix(self) -> Array:
        """The matrix, [k, 16]."""
        return self.random(16).random((self.shape[2], COLUMNS))

    def kernel_cost(self, fetch: Fetch) -> Cost:  # noqa: D102
        n, m, k = fetch.count(self.view)
        back = 8 * COLUMNS * n * m if fetch.coordinate[2] == self.blocks[2] - 1 else 0
        moved = 8 * n * m * k + 16 * COLUMNS * n * m
        return self._cost(fetch, 2 * COLUMNS * n * m * k, moved, device_to_host_bytes=back)

    def run(self, read: Read, rounds: int | None = None) -> Results:  # noqa: D102
        matrix = self.matrix
        y = np.zeros((*self.shape[:2], COLUMNS))
        for fetch in self.fetches():
            rows, columns, k = fetch.box(self.view)
            y[rows, columns] += read(fetch) @ matrix[k]
        return {"y": y}

    def reference(self, *arrays: Array, rounds: int | None = None) -> Results:  # noqa: D102
        return {"y": np.einsum("nmk,kp->nmp", arrays[0], self.matrix)}
