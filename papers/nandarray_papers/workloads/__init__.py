"""The ten workloads of Table 1 of the NDS paper: what they read, what they cost on its GPU, and their kernels.

:mod:`~nandarray_papers.workloads.base` says what a workload is; a module each holds the ten;
:mod:`~nandarray_papers.workloads.roofline` turns a kernel's cost into time. ``TABLE_1`` has them at the paper's size
and in its order; ``TABLE_1["GEMM"].at((256, 256))`` is a small one.

Where the paper leaves a workload's access open, the readings follow the code that its authors published
(doi:10.5281/zenodo.5495743); each class lists them as ``assumptions``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nandarray_papers.workloads.base import Cost, Dataset, Fetch, Mismatch, Read, Results, Workload
from nandarray_papers.workloads.bfs import Bfs
from nandarray_papers.workloads.conv2d import Conv2d
from nandarray_papers.workloads.gemm import Gemm
from nandarray_papers.workloads.hotspot import Hotspot
from nandarray_papers.workloads.kmeans import KMeans
from nandarray_papers.workloads.knn import Knn
from nandarray_papers.workloads.pagerank import PageRank
from nandarray_papers.workloads.roofline import RTX_2080, Gpu
from nandarray_papers.workloads.sssp import Sssp
from nandarray_papers.workloads.tc import Tc
from nandarray_papers.workloads.ttv import Ttv

__all__ = [
    "ASSUMPTIONS",
    "RTX_2080",
    "TABLE_1",
    "Cost",
    "Dataset",
    "Fetch",
    "Gpu",
    "Mismatch",
    "Read",
    "Results",
    "Workload",
]

#: The workloads at the paper's size, by name, in the order of Table 1.
TABLE_1: Mapping[str, Workload] = MappingProxyType(
    {w.name: w for w in (Bfs(), Sssp(), Gemm(), Hotspot(), KMeans(), Knn(), PageRank(), Conv2d(), Ttv(), Tc())}
)

#: Assumptions where the paper leaves a choice open, common to all; each workload has its own besides.
ASSUMPTIONS = (
    "elements are 8 bytes wide (doubles; graphs: integers): the paper says that every data set exceeds the host's 32 "
    "GB, Figure 9 uses doubles, and so does the published code",
    "kernels compute in double precision but for GEMM, which uses half precision on tensor cores, as in the code",
    "results are not written back to the storage under test",
)
