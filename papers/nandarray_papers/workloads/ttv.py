"""Tensor times vector along the last mode: Y[n, m] is the sum over k of X[n, m, k] v[k].

The tensor comes in cubes. Table 1 gives 512x512, the side of the result that a kernel makes; the cube is that side by
512 elements of the contracted mode, as in the paper's published code: one fetch is 512 x 512 pieces of 4 KB of a
row-major file.

Cost of a cube of e elements of 8 bytes: a fused multiply-add, 2 operations, and 8 bytes an element. A block of the
result is copied back after its last cube.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nandarray_papers.workloads.base import Array, Cost, Dataset, Fetch, Read, Results, Workload

__all__ = ["Ttv"]


class Ttv(Workload):
    """The matrix that is left; ``rounds`` has no effect: there is one pass."""

    name = "TTV"
    category = "tensor algebra"
    table_1 = "512x512"
    access = "cubes, the contracted (last) mode innermost in order"
    passes_because = "one product"
    assumptions: ClassVar = (
        "TTV: a fetch is a cube of 512^3, contracted along the last mode, as in the paper's published code; Table 1 "
        "names its 512x512 of the result",
    )
    paper_dataset = Dataset("tensor", (2048, 2048, 2048))
    paper_kernel = (512, 512, 512)

    @property
    def vector(self) -> Array:
        """The vector, [k]."""
        return self.random(16).random(self.shape[2])

    def kernel_cost(self, fetch: Fetch) -> Cost:  # noqa: D102
        n, m, k = fetch.count(self.view)
        back = 8 * n * m if fetch.coordinate[2] == self.blocks[2] - 1 else 0
        return self._cost(fetch, 2 * n * m * k, 8 * n * m * k, device_to_host_bytes=back)

    def run(self, read: Read, rounds: int | None = None) -> Results:  # noqa: D102
        vector = self.vector
        y = np.zeros(self.shape[:2])
        for fetch in self.fetches():
            rows, columns, k = fetch.box(self.view)
            y[rows, columns] += read(fetch) @ vector[k]
        return {"y": y}

    def reference(self, *arrays: Array, rounds: int | None = None) -> Results:  # noqa: D102
        return {"y": np.einsum("nmk,k->nm", arrays[0], self.vector)}
