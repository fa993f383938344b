"""Hotspot: one step of transient heat conduction on a chip, from its temperatures and its power.

The equation and its constants are Rodinia's: a cell's temperature changes by step / capacity times its power and the
flows from four neighbours and from the ambient air. A neighbour beyond the chip's edge has the cell's own temperature.
A cell has the size that it has in Rodinia's chip of 512 x 512 cells at every size of the matrix, so that the explicit
step stays stable. (The paper's published code keeps the chip's size instead, and treats every block as a chip of its
own; we compute the whole chip, see ``_stencil``.)

Cost for blocks of e cells: 3 + 1 operations for each axis, 2 for the air, 3 additions, 2 for the step and the sum:
15 instructions, counted as 30 operations; 8 bytes each of temperature, power and result. Counted with the block of
power, which comes second. The result is copied back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from nandarray_papers.workloads._stencil import Sweep
from nandarray_papers.workloads.base import Array, Cost, Dataset, Fetch, Read, Results, Workload

__all__ = ["Hotspot"]

_CELL_M = 0.016 / 512
_CHIP_M = 0.0005
_CONDUCTIVITY = 100.0
_CAPACITY = 0.5 * 1.75e6 * _CHIP_M * _CELL_M**2
_PER_XY = 2.0 * _CONDUCTIVITY * _CHIP_M
_PER_Z = _CONDUCTIVITY * _CELL_M**2 / _CHIP_M
#: Rodinia's step: a precision of 0.001 K at the steepest slope, 3 MW/m^2 over half the chip's heat capacity.
_STEP_S = 0.001 / (3.0e6 / (0.5 * _CHIP_M * 1.75e6))
_AMBIENT = 80.0


class Hotspot(Workload):
    """Temperatures after one step; ``rounds`` has no effect: there is one pass."""

    name = "Hotspot"
    category = "physics simulation"
    table_1 = "4096x4096"
    access = "square blocks of temperature and power in turn, without halos"
    passes_because = "one time step, as in the paper's published code"
    assumptions: ClassVar = (
        "Hotspot: two inputs of 65536x65536; blocks are read without halos, what a neighbour needs is kept in memory; "
        "the result is not written to the storage under test",
    )
    operands = 2
    paper_dataset = Dataset("hotspot", (65536, 65536))
    paper_kernel = (4096, 4096)

    def make(self, operand: int = 0) -> Array:  # noqa: D102
        uniform = super().make(operand)
        return 323.0 + 20.0 * uniform if operand == 0 else 1e-3 * uniform

    def kernel_cost(self, fetch: Fetch) -> Cost:  # noqa: D102
        e = self.elements(fetch)
        if fetch.operand == 0:
            return self._cost(fetch, 0, 0, launches=0)
        return self._cost(fetch, 30 * e, 24 * e, device_to_host_bytes=8 * e)

    def run(self, read: Read, rounds: int | None = None) -> Results:  # noqa: D102
        from nandarray_papers.workloads import _loops

        def step(arrays: Sequence[Array]) -> Array:
            temperature, power = map(np.ascontiguousarray, arrays)
            out: Array = _loops.heat(temperature, power, (_PER_XY, _PER_Z, _STEP_S / _CAPACITY, _AMBIENT))
            return out

        sweep = Sweep(self.shape, self.kernel_shape, 1, operands=2, kernel=step)
        fetches = self.fetches()
        for fetch in fetches:
            rows, columns = fetch.box(self.view)
            sweep.add((rows, columns), [read(fetch), read(next(fetches))])
        return {"temperature": sweep.result()}

    def reference(self, *arrays: Array, rounds: int | None = None) -> Results:  # noqa: D102
        temperature, power = arrays
        wide = np.pad(temperature, 1, mode="edge")
        around_y = wide[2:, 1:-1] + wide[:-2, 1:-1] - 2 * temperature
        around_x = wide[1:-1, 2:] + wide[1:-1, :-2] - 2 * temperature
        flow = power + _PER_XY * (around_x + around_y) + _PER_Z * (_AMBIENT - temperature)
        return {"temperature": temperature + _STEP_S / _CAPACITY * flow}
