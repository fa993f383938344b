"""VarVE: the analytical model of its datapath, its carry logic, and the kernels of chapter 8 on a timed core.

| module | one idea |
| --- | --- |
| ``model`` | elements a cycle of a datapath that packs values of varying widths, as an exact convolution |
| ``columns``, ``sources``, ``measure`` | columns of TPC-H, the C around a kernel, a checked run on a core |
| ``filters``, ``kernels`` | filters from one description, bit packing and RAID5, each in four forms |
| ``network``, ``inference`` | a network that is trained, quantised and pruned; its inference in four forms |
| ``carry`` | Table 8.4: the carry into each 8-bit adder where elements have any number of bytes |
"""

from __future__ import annotations

from nandarray_papers.varve.model import Operation, elements_per_cycle, speedup

__all__ = ["Operation", "elements_per_cycle", "speedup"]
