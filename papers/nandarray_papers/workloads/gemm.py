"""The product of two square matrices, block by block: C[i, j] is the sum over k of A[i, k] B[k, j].

For each k both blocks are fetched, as in the paper's published code: no panel is kept, though one of 8 blocks (4 GB)
would fit into the GPU's memory. Ratios between systems do not depend on it.

Cost for blocks of b x b doubles: conversion to half precision reads 8 and writes 2 bytes an element of A and of B;
the product has 2 b^3 operations on tensor cores with accumulation in single precision, reads 2 bytes an element of A
and of B, and reads and writes 4 bytes an element of C. Work on both blocks is counted with B's. C leaves the
GPU after the last k, 4 bytes an element.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from nandarray_papers.workloads.base import Array, Cost, Dataset, Fetch, Read, Results, Workload

__all__ = ["Gemm"]


class Gemm(Workload):
    """The product of two matrices; ``rounds`` is a number of row panels of it."""

    name = "GEMM"
    category = "linear algebra"
    table_1 = "8192x8192"
    access = "square blocks of A and B in turn, every block 8 times"
    passes_because = "one product: its 8^3 steps read 1024 blocks, each operand 8 times over"
    assumptions: ClassVar = (
        "GEMM: both blocks of a step are fetched and none is kept, doubles converted to half precision on the GPU, as "
        "in the paper's published code",
        "GEMM: the two operands are two matrices of 65536x65536",
    )
    operands = 2
    square = True
    paper_dataset = Dataset("gemm", (65536, 65536))
    paper_kernel = (8192, 8192)

    def __init__(
        self, shape: Sequence[int] | None = None, kernel_shape: Sequence[int] | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(shape, kernel_shape, seed=seed)
        if self.kernel_shape[0] != self.kernel_shape[1]:
            raise ValueError(f"GEMM takes square blocks, not {self.kernel_shape}")

    def fetches(self) -> Iterator[Fetch]:  # noqa: D102
        n = self.blocks[0]
        for i, j, k in itertools.product(range(n), range(n), range(n)):
            yield Fetch((i, k), self.kernel_shape, 0)
            yield Fetch((k, j), self.kernel_shape, 1)

    def kernel_cost(self, fetch: Fetch) -> Cost:  # noqa: D102
        e = self.elements(fetch)
        if fetch.operand == 0:
            return self._cost(fetch, 0, 10 * e, "fp16_tensor")
        # Blocks at an edge are cut: B is k x j, and A's rows are taken whole.
        k, j = fetch.count(self.view)
        i = self.kernel_shape[0]
        back = 4 * i * j if fetch.coordinate[0] == self.blocks[0] - 1 else 0
        moved = 10 * e + 2 * (i * k + e) + 8 * i * j
        return self._cost(fetch, 2 * i * j * k, moved, "fp16_tensor", device_to_host_bytes=back, launches=2)

    def run(self, read: Read, rounds: int | None = None) -> Results:  # noqa: D102
        n, b = self.shape[0], self.kernel_shape[0]
        panels = self.blocks[0] if rounds is None else min(rounds, self.blocks[0])
        c = np.zeros((min(panels * b, n), n))
        fetches = self.fetches()
        for i, j in itertools.product(range(panels), range(self.blocks[0])):
            out = c[i * b : (i + 1) * b, j * b : (j + 1) * b]
            for _ in range(self.blocks[0]):
                out += read(next(fetches)) @ read(next(fetches))
        return {"c": c}

    def reference(self, *arrays: Array, rounds: int | None = None) -> Results:  # noqa: D102
        rows = None if rounds is None else rounds * self.kernel_shape[0]
        return {"c": np.matmul(arrays[0][:rows], arrays[1])}
