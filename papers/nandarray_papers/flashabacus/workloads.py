"""Table 2's kernels as phantoms at the paper's size, for the modelled accelerator.

Names, megabytes and mixes are those of :mod:`~nandarray_papers.flashabacus.table2`; here are the trip counts of each
microblock's innermost statement, which the table does not have. Matrices are square, of ``float32``. A megabyte is
2**20 bytes: then GEMM's 192 are three matrices of 4096 x 4096, as with no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from nandarray.model.accelerator import Phantom, fitted
from nandarray.programs import kernels
from nandarray.programs.kernels.samples import sample, size_of
from nandarray_papers.flashabacus import table2

__all__ = ["APPLICATIONS", "APPS", "BALANCED", "DATA_INTENSIVE", "MIXES", "UNBALANCED", "App", "phantom"]

_Trips = Callable[[int], Sequence[float]]


@dataclass(frozen=True)
class App:
    """A row of Table 2: a ready-made kernel, its input in MiB, trip counts of microblocks for a side."""

    kernel: str
    megabytes: int
    trips: _Trips

    @property
    def side(self) -> int:
        """Side of its matrices, with which its inputs come nearest to the megabytes."""
        return size_of(self.kernel, self.megabytes << 20)


#: Kernel -> trip counts of its microblocks for a side.
_TRIPS: dict[str, _Trips] = {
    "atax": lambda n: (n**2, n**2),
    "bicg": lambda n: (n**2, n**2),
    "conv2d": lambda n: (n**2,),
    "mvt": lambda n: (2 * n**2,),
    "adi": lambda n: (n**2, n**2, n**2),
    "fdtd": lambda n: (n, n**2, n**2),
    "gesummv": lambda n: (n**2,),
    "syrk": lambda n: (n**3,),
    "mm3": lambda n: (n**3, n**3, n**3),
    "covar": lambda n: (n**2, n**2, n**3),
    "gemm": lambda n: (n**3,),
    "mm2": lambda n: (n**3, n**3),
    "syr2k": lambda n: (n**3,),
    "corr": lambda n: (n**2, n**2, n**2, n**3),
}

#: Table 2, in its order, by its names.
APPS: dict[str, App] = {one.paper: App(one.kernel, one.input_MB, _TRIPS[one.kernel]) for one in table2.WORKLOADS}


def _points(kernel: str, n: int) -> Sequence[float]:
    """Return trips that grow with the number of points, of each microblock of a kernel, which is compiled only now."""
    return (n,) * len(kernels.get(kernel).table["microblocks"])


#: The applications of 5.6, which have no megabytes in the text: as many as the data-intensive kernels.
APPLICATIONS: dict[str, App] = {
    name: App(name, 640, partial(_points, name)) for name in ("nn", "bfs", "nw", "path", "wc")
}

#: Mixes in which static scheduling is ahead of in-order scheduling in the paper, and those in which it is behind.
BALANCED = ("MX2", "MX3", "MX4", "MX6", "MX7", "MX9", "MX13")
UNBALANCED = ("MX1", "MX5", "MX8", "MX10", "MX11", "MX12")

#: Kernels that 5.2 names as data-intensive.
DATA_INTENSIVE = ("ATAX", "BICG", "2DCON", "MVT")

#: Table 2's mixes, by its names; MX5 has five applications in the text.
MIXES: dict[str, tuple[str, ...]] = {
    mix: tuple(one.paper for one in table2.WORKLOADS if one.kernel in found) for mix, found in table2.MIXES.items()
}


def _sample(app: App, n: int) -> tuple[Mapping[str, Any], Mapping[str, float]]:
    made = sample(app.kernel, n, seed=n, square=True)
    # Results whose extents follow from no input need an array.
    results = {one["name"]: one["dtype"] for one in kernels.get(app.kernel).sections if one["name"] in made.results}
    empty = {name: np.zeros(made.shapes[name], dtype) for name, dtype in results.items() if name not in made.inputs}
    return {**empty, **made.inputs}, made.scalars


@cache
def phantom(name: str, core: str, square: tuple[int, int], cubic: tuple[int, int], shrink: int = 1) -> Phantom:
    """Return a kernel of Table 2 or an application of 5.6 at the paper's size, measured at two reduced ones.

    ``core`` is a preset of timed cores. ``square`` and ``cubic`` are reduced sides of kernels with quadratic and with
    cubic trip counts; applications have sixteen times as many points as a quadratic kernel's side. ``shrink`` divides
    the full side. The phantom has the application's number of Table 2.
    """
    if name in APPLICATIONS:
        app = APPLICATIONS[name]
        points = (16 * square[0], 16 * square[1])
        kernel = kernels.get(app.kernel, checked=False)
        made = fitted(
            kernel, lambda n: _sample(app, n), points, app.side // shrink**2, app.trips, core=core, caches=False
        )
        return made.of(list(APPLICATIONS).index(name))
    app = APPS[name]
    sizes = cubic if max(app.trips(10)) >= 10**3 else square
    kernel = kernels.get(app.kernel, checked=False)
    made = fitted(kernel, lambda n: _sample(app, n), sizes, app.side // shrink, app.trips, core=core)
    return made.of(list(APPS).index(name))
