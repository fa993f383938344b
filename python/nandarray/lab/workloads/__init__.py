"""The ten workloads of Table 1 of the NDS paper: what they read, what they cost on its GPU, and their kernels.

:mod:`~nandarray.lab.workloads.base` says what a workload is; a module each holds the ten;
:mod:`~nandarray.lab.workloads.roofline` turns a kernel's cost into time.
"""

from __future__ import annotations

from nandarray.lab.workloads.base import Cost, Dataset, Fetch, Mismatch, Workload
from nandarray.lab.workloads.roofline import RTX_2080, Gpu

__all__ = ["RTX_2080", "Cost", "Dataset", "Fetch", "Gpu", "Mismatch", "Workload"]
