"""Table 2: inputs, trip counts and mixes of the fourteen kernels.

Matrices are square, of ``float32``; a kernel's side follows from the megabytes that the table gives it and from its
number of input matrices. Trip counts are those of each microblock's innermost statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isqrt
from typing import Any

import numpy as np

from nandarray.model.accelerator import Phantom, fitted
from nandarray.programs import kernels

__all__ = ["APPS", "DATA_INTENSIVE", "MIXES", "App", "phantom"]

_Trips = Callable[[int], Sequence[float]]


@dataclass(frozen=True)
class App:
    """A row of Table 2.

    Attributes
    ----------
    kernel : str
        The ready-made kernel.
    megabytes : int
        Input.
    matrices : tuple of str
        Square sections that the megabytes are divided by.
    vectors : tuple of str
        Sections of one dimension.
    trips : callable
        Trip counts of microblocks for a side.
    """

    kernel: str
    megabytes: int
    matrices: tuple[str, ...]
    vectors: tuple[str, ...]
    trips: _Trips

    @property
    def side(self) -> int:
        """Side of its matrices."""
        return isqrt(self.megabytes * 1_000_000 // 4 // len(self.matrices))


#: Table 2, in its order, by its names.
APPS: dict[str, App] = {
    "ATAX": App("atax", 640, ("A",), ("x",), lambda n: (n**2, n**2)),
    "BICG": App("bicg", 640, ("A",), ("p", "r"), lambda n: (n**2, n**2)),
    "2DCON": App("conv2d", 640, ("A",), (), lambda n: (n**2,)),
    "MVT": App("mvt", 640, ("A",), ("y1", "y2", "x1", "x2"), lambda n: (2 * n**2,)),
    "ADI": App("adi", 1920, ("A", "X", "B"), (), lambda n: (n**2, n**2, n**2)),
    "FDTD": App("fdtd", 1920, ("ex", "ey", "hz"), ("fict",), lambda n: (n, n**2, n**2)),
    "GESUM": App("gesummv", 640, ("A", "B"), ("x",), lambda n: (n**2,)),
    "SYRK": App("syrk", 1280, ("A", "C"), (), lambda n: (n**3,)),
    "3MM": App("mm3", 2560, ("A", "B", "C", "D"), (), lambda n: (n**3, n**3, n**3)),
    "COVAR": App("covar", 640, ("data",), (), lambda n: (n**2, n**2, n**3)),
    "GEMM": App("gemm", 192, ("A", "B", "C"), (), lambda n: (n**3,)),
    "2MM": App("mm2", 2560, ("A", "B", "C", "D"), (), lambda n: (n**3, n**3)),
    "SYR2K": App("syr2k", 1280, ("A", "B", "C"), (), lambda n: (n**3,)),
    "CORR": App("corr", 640, ("data",), (), lambda n: (n**2, n**2, n**2, n**3)),
}

#: Kernels that 5.2 names as data-intensive.
DATA_INTENSIVE = ("ATAX", "BICG", "2DCON", "MVT")

#: Table 2's mixes; MX5 has five applications in the text.
MIXES: dict[str, tuple[str, ...]] = {
    "MX1": ("ATAX", "BICG", "2DCON", "MVT", "SYRK", "3MM"),
    "MX2": ("ADI", "FDTD", "GESUM", "COVAR", "GEMM", "2MM"),
    "MX3": ("MVT", "ADI", "GESUM", "SYRK", "3MM", "COVAR"),
    "MX4": ("FDTD", "COVAR", "GEMM", "2MM", "SYR2K", "CORR"),
    "MX5": ("2DCON", "GESUM", "SYRK", "COVAR", "GEMM"),
    "MX6": ("BICG", "MVT", "ADI", "FDTD", "3MM", "2MM"),
    "MX7": ("MVT", "ADI", "FDTD", "3MM", "2MM", "CORR"),
    "MX8": ("GESUM", "SYRK", "COVAR", "GEMM", "2MM", "SYR2K"),
    "MX9": ("BICG", "ADI", "SYRK", "GEMM", "2MM", "CORR"),
    "MX10": ("ATAX", "2DCON", "MVT", "FDTD", "GESUM", "SYR2K"),
    "MX11": ("ATAX", "MVT", "ADI", "FDTD", "GESUM", "SYR2K"),
    "MX12": ("2DCON", "MVT", "ADI", "FDTD", "GESUM", "GEMM"),
    "MX13": ("BICG", "2DCON", "MVT", "ADI", "GEMM", "2MM"),
    "MX14": ("MVT", "ADI", "FDTD", "GESUM", "GEMM", "CORR"),
}


def _sample(app: App, n: int) -> tuple[Mapping[str, Any], Mapping[str, float]]:
    rng = np.random.default_rng(n)
    made: dict[str, Any] = {name: rng.uniform(0.5, 1.5, (n, n)).astype("f4") for name in app.matrices}
    made |= {name: rng.uniform(0.5, 1.5, n).astype("f4") for name in app.vectors}
    return made, {"step": 0} if app.kernel == "fdtd" else {}


@cache
def phantom(name: str, core: str, square: tuple[int, int], cubic: tuple[int, int], shrink: int = 1) -> Phantom:
    """Return a kernel at the paper's size, measured at two reduced ones.

    Parameters
    ----------
    name : str
        A name of Table 2.
    core : str
        A preset of timed cores.
    square, cubic : (int, int)
        Reduced sides of kernels with quadratic and with cubic trip counts.
    shrink : int
        Divides the full side.

    Returns
    -------
    Phantom
        With the application's number of Table 2.
    """
    app = APPS[name]
    sizes = cubic if max(app.trips(10)) >= 10**3 else square
    made = fitted(kernels.get(app.kernel), lambda n: _sample(app, n), sizes, app.side // shrink, app.trips, core=core)
    return made.of(list(APPS).index(name))
