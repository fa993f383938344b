"""FlashAbacus' workloads: Table 2, its fourteen mixes, the instructions of each kernel, and phantoms at full size.

| module | one idea |
| --- | --- |
| ``workloads`` | the kernels as phantoms at the paper's sizes, on the modelled accelerator |
| ``table2`` | the table as the text has it, and the mixes MX1 to MX14 |
| ``counting`` | a kernel's instructions, counted by the interpreter, and how their number grows with the size |

The kernels are :mod:`nandarray.programs.kernels`.
"""

from __future__ import annotations

from nandarray_papers.flashabacus.counting import Count, Growth, count, growth
from nandarray_papers.flashabacus.table2 import MIXES, WORKLOADS, Workload, instances

__all__ = ["MIXES", "WORKLOADS", "Count", "Growth", "Workload", "count", "growth", "instances"]
