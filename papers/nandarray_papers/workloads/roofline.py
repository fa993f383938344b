"""A roofline of a GPU: how long a kernel takes, from what it computes and moves.

A kernel takes the longer of its arithmetic at peak rate and its memory traffic at peak bandwidth, and each launch adds
a fixed time (Williams, Waterman, Patterson: Roofline, CACM 2009). A copy over PCIe is another stage of the pipeline
and is given apart. The roofline is a lower bound of the time: real kernels reach a part of the peak, which
``efficiency`` can say; 1 by default, so that nothing is tuned.

Caches, occupancy, clock throttling and overlap of stages are not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from nandarray_papers.workloads.base import Cost, Precision

__all__ = ["RTX_2080", "Gpu"]


@dataclass(frozen=True)
class Gpu:
    """A GPU as a roofline sees it.

    Parameters
    ----------
    name : str
        Name of the GPU.
    tflops : mapping
        Peak rate for each precision, in 10^12 operations a second; a fused multiply-add is two.
    memory_GBps : float
        Peak bandwidth of its memory, in 10^9 bytes a second.
    pcie_GBps : float
        Rate of a large copy from page-locked host memory, each way.
    memory_bytes : int
        Size of its memory.
    launch_us : float
        Time from the host's call to the kernel's start.
    efficiency : float
        Part of the peak rates that kernels reach.
    sources : mapping
        Source of each figure.
    """

    name: str
    tflops: Mapping[Precision, float]
    memory_GBps: float
    pcie_GBps: float
    memory_bytes: int
    launch_us: float
    efficiency: float = 1.0
    sources: Mapping[str, str] = field(default_factory=dict)

    def kernel_ns(self, cost: Cost) -> int:
        """Return the time of a kernel whose data are on the GPU.

        Parameters
        ----------
        cost : Cost
            Work of the kernel.

        Returns
        -------
        int
            Nanoseconds, rounded up.
        """
        arithmetic_ns = cost.flops / (self.tflops[cost.precision] * 1e3)
        memory_ns = cost.device_bytes / self.memory_GBps
        return math.ceil(max(arithmetic_ns, memory_ns) / self.efficiency + cost.launches * self.launch_us * 1e3)

    def copy_ns(self, cost: Cost) -> int:
        """Return the time of the copies over PCIe; both directions at a time.

        Parameters
        ----------
        cost : Cost
            Bytes that the kernel moves.

        Returns
        -------
        int
            Nanoseconds, rounded up.
        """
        return math.ceil(max(cost.host_to_device_bytes, cost.device_to_host_bytes) / self.pcie_GBps)


#: The GPU of the NDS paper (section 6.1), by its reference specification.
RTX_2080 = Gpu(
    name="NVIDIA GeForce RTX 2080 (TU104, 46 SMs, 8 GB)",
    tflops={"fp16_tensor": 40.3, "fp32": 10.1, "fp64": 10.1 / 32, "int32": 10.1},
    memory_GBps=448.0,
    pcie_GBps=12.5,
    memory_bytes=8 * 2**30,
    launch_us=5.0,
    sources={
        "fp16_tensor": (
            "368 tensor cores x 64 fused multiply-adds x 2 x 1.71 GHz = 80.5 TFLOPS, half of it with FP32 accumulation "
            "(NVIDIA Turing whitepaper, appendix A)"
        ),
        "fp32": "2944 CUDA cores x 2 operations x 1.71 GHz (boost clock of the reference card) = 10.07 TFLOPS",
        "fp64": "two FP64 units an SM against 64 FP32 lanes: 1/32 of the FP32 rate (Turing whitepaper)",
        "int32": "64 INT32 lanes an SM beside the FP32 lanes: the same rate (Turing whitepaper)",
        "memory_GBps": "256-bit GDDR6 at 14 Gbit/s",
        "pcie_GBps": "PCIe 3.0 x16: 15.75 GB/s raw; large copies from page-locked memory reach 12 to 13 GB/s",
        "memory_bytes": "NDS paper, section 6.1",
        "launch_us": "order of an asynchronous launch through the CUDA runtime; assumed",
    },
)
