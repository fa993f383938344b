"""The base of workloads: a data set, the sub-blocks that its kernel takes, their cost, and the kernel itself.

The ten workloads are those of Table 1 of the NDS paper (Liu, Tseng: NDS, MICRO 2021). One :class:`Workload` object is
one size. Two kinds of caller use it:

* a model of a system asks for :meth:`Workload.fetches` and :meth:`Workload.kernel_cost` and moves no data;
* a program calls :meth:`Workload.run` with a function that reads a :class:`Fetch` from wherever the data are, and
  gets the result, which :meth:`Workload.reference` computes again from whole arrays by other means.

``run`` asks for the fetches of ``fetches()``, in that order, once a pass. It never sees the data but through them.

Storage, time and the roofline (:mod:`nandarray_papers.workloads.roofline`) are elsewhere.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

__all__ = ["Cost", "Dataset", "Fetch", "Mismatch", "Precision", "Read", "Results", "Workload"]

Array = np.ndarray[Any, Any]
Results = Mapping[str, Array]
Precision = Literal["fp16_tensor", "fp32", "fp64", "int32"]


@dataclass(frozen=True)
class Dataset:
    """The data of a workload, before anything reads them.

    Parameters
    ----------
    name : str
        Workloads with the same name share the data (BFS and SSSP, KMeans and KNN, TTV and TC, as in the paper).
    shape : tuple of int
        Elements along each dimension.
    dtype : str
        Type of the elements.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float64"

    @property
    def nbytes(self) -> int:
        """Bytes of one operand."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Fetch:
    """A sub-block that a kernel takes: the coordinate and sub-dimensionality of the NDS paper (section 3).

    Its first element is at ``coordinate * sub_shape`` of the workload's view; at an edge it is cut.

    Parameters
    ----------
    coordinate : tuple of int
        Position of the sub-block, counted in sub-blocks.
    sub_shape : tuple of int
        The shape of the sub-blocks that the view is partitioned into.
    operand : int
        Number of the input: GEMM and Hotspot have two of the same shape, the others only 0.
    """

    coordinate: tuple[int, ...]
    sub_shape: tuple[int, ...]
    operand: int = 0

    def box(self, shape: Sequence[int]) -> tuple[slice, ...]:
        """Return the sub-block's slice of each dimension of a view of ``shape``, cut at the edge."""
        return tuple(
            slice(c * s, min((c + 1) * s, n)) for c, s, n in zip(self.coordinate, self.sub_shape, shape, strict=True)
        )

    def count(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the sub-block in a view of ``shape``: ``sub_shape``, cut at the edge."""
        return tuple(s.stop - s.start for s in self.box(shape))


@dataclass(frozen=True)
class Cost:
    """The work of a GPU for one sub-block.

    Parameters
    ----------
    flops : float
        Operations, as a GPU's peak counts them: a fused multiply-add is two, and so is any other arithmetic
        instruction, since it takes the same slot.
    device_bytes : float
        Bytes that cross the GPU's memory bus.
    precision : {"fp16_tensor", "fp32", "fp64", "int32"}
        Precision whose peak rate counts.
    host_to_device_bytes : float
        Bytes copied to the GPU before.
    device_to_host_bytes : float
        Bytes copied back after. PCIe is full duplex.
    launches : int
        Kernels started.
    """

    flops: float
    device_bytes: float
    precision: Precision
    host_to_device_bytes: float
    device_to_host_bytes: float = 0.0
    launches: int = 1


#: Reads the elements of a fetch, of shape ``fetch.count(view)``, C-contiguous or not.
Read = Callable[[Fetch], Array]


class Mismatch(AssertionError):
    """A result differs from what it should be; the message says where and by how much."""


class Workload(ABC):
    """One workload at one size.

    Parameters
    ----------
    shape : sequence of int, optional
        Shape of the data; the paper's by default.
    kernel_shape : sequence of int, optional
        Shape of the sub-blocks; by default the paper's, scaled with the data along each dimension.
    seed : int
        Seed of the data and of the small inputs that stay in memory (the vector of TTV, the queries of KNN, ...).

    Attributes
    ----------
    name, category : str
        Name and category, as in Table 1.
    table_1 : str
        The sub-dimension that Table 1 gives for the kernel, as written there.
    access : str
        Our reading of that as an access, in one phrase.
    passes : int
        Passes over the data at the paper's size.
    passes_because : str
        Why.
    assumptions : tuple of str
        Points that the paper leaves open, and the choices made here.
    operands : int
        Arrays of the data's shape that it reads.
    square : bool
        Whether data must have one length along all dimensions.
    spans : tuple of int
        Dimensions that a sub-block spans whole, since the kernel needs that.
    rtol : float
        Largest error of a floating-point result against the reference, relative to the largest element of its array.
    """

    name: ClassVar[str]
    category: ClassVar[str]
    table_1: ClassVar[str]
    access: ClassVar[str]
    passes: ClassVar[int] = 1
    passes_because: ClassVar[str]
    assumptions: ClassVar[tuple[str, ...]] = ()
    operands: ClassVar[int] = 1
    square: ClassVar[bool] = False
    spans: ClassVar[tuple[int, ...]] = ()
    rtol: ClassVar[float] = 1e-10
    paper_dataset: ClassVar[Dataset]
    paper_kernel: ClassVar[tuple[int, ...]]

    def __init__(
        self, shape: Sequence[int] | None = None, kernel_shape: Sequence[int] | None = None, *, seed: int = 0
    ) -> None:
        paper = self.paper_dataset
        shape = paper.shape if shape is None else tuple(int(n) for n in shape)
        if len(shape) != len(paper.shape) or min(shape) < 1:
            raise ValueError(f"{self.name} takes {len(paper.shape)} dimensions of at least 1, not {shape}")
        if self.square and len(set(shape)) > 1:
            raise ValueError(f"{self.name} takes square data, not {shape}")
        if kernel_shape is None:
            kernel_shape = [-(-k * n // p) for k, n, p in zip(self.paper_kernel, shape, paper.shape, strict=True)]
            kernel_shape = [1 if k == 1 else m for k, m in zip(self.paper_kernel, kernel_shape, strict=True)]
        if len(kernel_shape) != len(shape) or min(kernel_shape) < 1:
            raise ValueError(f"the kernel of {self.name} takes {len(shape)} dimensions, not {tuple(kernel_shape)}")
        if any(kernel_shape[axis] < shape[axis] for axis in self.spans):
            raise ValueError(
                f"blocks of {self.name} span dimensions {self.spans} of {shape}, not {tuple(kernel_shape)}"
            )
        self.dataset = Dataset(paper.name, shape, paper.dtype)
        self.kernel_shape = tuple(min(int(k), n) for k, n in zip(kernel_shape, shape, strict=True))
        self.seed = seed

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape}, {self.kernel_shape}, seed={self.seed})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the data."""
        return self.dataset.shape

    @property
    def view(self) -> tuple[int, ...]:
        """Shape in which the fetches count: the data's own for all ten."""
        return self.dataset.shape

    @property
    def blocks(self) -> tuple[int, ...]:
        """Sub-blocks along each dimension of the view."""
        return tuple(-(-n // k) for n, k in zip(self.view, self.kernel_shape, strict=True))

    def at(self, shape: Sequence[int], kernel_shape: Sequence[int] | None = None) -> Self:
        """Return the same workload at another size.

        Parameters
        ----------
        shape : sequence of int
            Shape of the data.
        kernel_shape : sequence of int, optional
            Shape of the sub-blocks; by default as many of them as in the paper.

        Returns
        -------
        Workload
            A new one, with the same seed.
        """
        return type(self)(shape, kernel_shape, seed=self.seed)

    def fetches(self) -> Iterator[Fetch]:
        """Return one pass over the data, in the order in which the kernel consumes it.

        Yields
        ------
        Fetch
            Every sub-block of every operand at least once.
        """
        for coordinate in itertools.product(*map(range, self.blocks)):
            for operand in range(self.operands):
                yield Fetch(coordinate, self.kernel_shape, operand)

    def elements(self, fetch: Fetch) -> int:
        """Count the elements of a fetch that are read."""
        return math.prod(fetch.count(self.view))

    def nbytes(self, fetch: Fetch) -> int:
        """Count the bytes of a fetch.

        Parameters
        ----------
        fetch : Fetch
            A fetch of this workload.

        Returns
        -------
        int
            Number of bytes that are read.
        """
        return self.elements(fetch) * np.dtype(self.dataset.dtype).itemsize

    @abstractmethod
    def kernel_cost(self, fetch: Fetch) -> Cost:
        """Return the GPU's work for a fetch.

        Parameters
        ----------
        fetch : Fetch
            A fetch of this workload.

        Returns
        -------
        Cost
            Its arithmetic is derived in the docstring of each workload's module.
        """

    def _cost(
        self, fetch: Fetch, flops: float, device_bytes: float, precision: Precision = "fp64", **more: Any
    ) -> Cost:
        """Return a cost with all bytes of the fetch copied to the GPU before."""
        return Cost(flops, device_bytes, precision, self.nbytes(fetch), **more)

    @abstractmethod
    def run(self, read: Read, rounds: int | None = None) -> Results:
        """Compute, block by block.

        Parameters
        ----------
        read : callable
            Gives the elements of a :class:`Fetch`.
        rounds : int, optional
            Most passes over the data (of GEMM: row panels of the product); by default until it is done.

        Returns
        -------
        mapping
            Arrays by name.
        """

    @abstractmethod
    def reference(self, *arrays: Array, rounds: int | None = None) -> Results:
        """Compute the same from whole arrays, by other means.

        Parameters
        ----------
        *arrays : numpy.ndarray
            The operands.
        rounds : int, optional
            As for :meth:`run`.

        Returns
        -------
        mapping
            Arrays by name.
        """

    def make(self, operand: int = 0) -> Array:
        """Make data of this size: independent of the block size, the same for the same seed.

        Parameters
        ----------
        operand : int
            Number of the input.

        Returns
        -------
        numpy.ndarray
            Elements of the data's shape and type. Uniform between 0 and 1 unless the workload needs something else.
        """
        return self.random(operand).random(self.shape, self.dataset.dtype)  # type: ignore[call-overload,no-any-return]

    def random(self, stream: int) -> np.random.Generator:
        """Return a new source of random numbers that depends on the seed, the data set and a number only.

        Operands use their own number; other inputs, 16 and more.
        """
        return np.random.default_rng([self.seed, stream, *self.dataset.name.encode()])

    def check(self, found: Results, expected: Results) -> None:
        """Compare two results.

        Parameters
        ----------
        found, expected : mapping
            Arrays by name.

        Raises
        ------
        Mismatch
            Integers differ, or floating-point numbers by more than ``rtol`` of the largest one.
        """
        if found.keys() != expected.keys():
            raise Mismatch(f"{self.name}: results {sorted(found)}, expected {sorted(expected)}")
        for name, want in expected.items():
            got = found[name]
            if got.shape != want.shape or got.dtype.kind != want.dtype.kind:
                raise Mismatch(f"{self.name} {name}: {got.dtype}{got.shape}, expected {want.dtype}{want.shape}")
            if want.dtype.kind != "f":
                wrong = int(np.count_nonzero(got != want))
                if wrong:
                    raise Mismatch(f"{self.name} {name}: {wrong} of {want.size} differ")
                continue
            finite = np.isfinite(want)
            if not np.array_equal(np.isfinite(got), finite) or not np.array_equal(got[~finite], want[~finite]):
                raise Mismatch(f"{self.name} {name}: infinities stand elsewhere")
            scale = float(np.abs(want[finite]).max(initial=0.0))
            off = float(np.abs(got[finite] - want[finite]).max(initial=0.0))
            if off > self.rtol * scale:
                raise Mismatch(f"{self.name} {name}: off by {off:.3g}, largest is {scale:.3g}, rtol {self.rtol:g}")
