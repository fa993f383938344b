"""VarVE without a simulation of instructions: the analytical model of its datapath, and its carry logic.

| module | one idea |
| --- | --- |
| ``model`` | elements a cycle of a datapath that packs values of varying widths, as an exact convolution |
| ``carry`` | Table 8.4: the carry into each 8-bit adder where elements have any number of bytes |
"""

from __future__ import annotations

from nandarray.lab.varve.model import Operation, elements_per_cycle, speedup

__all__ = ["Operation", "elements_per_cycle", "speedup"]
