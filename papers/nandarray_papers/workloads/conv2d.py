"""A separable convolution of an image with 17 x 17 taps, zeroes beyond its edges, in square blocks.

Cost of a block of e pixels of 8 bytes: 17 fused multiply-adds along the rows and 17 along the columns, 68 operations a
pixel; either pass reads and writes 8 bytes. The result is copied back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from nandarray_papers.workloads._stencil import Sweep
from nandarray_papers.workloads.base import Array, Cost, Dataset, Fetch, Read, Results, Workload

__all__ = ["Conv2d"]

RADIUS = 8


class Conv2d(Workload):
    """The image convolved; ``rounds`` has no effect: there is one pass."""

    name = "Conv2D"
    category = "image processing"
    table_1 = "4096x4096"
    access = "square blocks, without halos"
    passes_because = "one convolution"
    assumptions: ClassVar = (
        "Conv2D: a radius of 8 as in NVIDIA's sample; blocks are read without halos, what a neighbour needs is kept in "
        "memory; the result is not written to the storage under test",
    )
    paper_dataset = Dataset("image", (65536, 65536))
    paper_kernel = (4096, 4096)

    @property
    def taps(self) -> Array:
        """The 17 coefficients, integers of 0 to 15."""
        return self.random(16).integers(0, 16, 2 * RADIUS + 1).astype(np.float64)

    def kernel_cost(self, fetch: Fetch) -> Cost:  # noqa: D102
        e = self.elements(fetch)
        return self._cost(fetch, 2 * 2 * (2 * RADIUS + 1) * e, 32 * e, device_to_host_bytes=8 * e, launches=2)

    def run(self, read: Read, rounds: int | None = None) -> Results:  # noqa: D102
        from scipy.ndimage import convolve1d

        taps = self.taps

        def convolve(arrays: Sequence[Array]) -> Array:
            along: Array = convolve1d(arrays[0], taps, axis=1, mode="constant")
            across: Array = convolve1d(along, taps, axis=0, mode="constant")
            return across

        sweep = Sweep(self.shape, self.kernel_shape, RADIUS, operands=1, kernel=convolve)
        for fetch in self.fetches():
            rows, columns = fetch.box(self.view)
            sweep.add((rows, columns), [read(fetch)])
        return {"image": sweep.result()}

    def reference(self, *arrays: Array, rounds: int | None = None) -> Results:  # noqa: D102
        from scipy.signal import convolve

        taps = np.outer(self.taps, self.taps)
        return {"image": convolve(arrays[0], taps, mode="full")[RADIUS:-RADIUS, RADIUS:-RADIUS]}
