"""BaM: kernels recorded with the header, and the platform that their accesses pass through under the modelled clock.

| module | one idea |
| --- | --- |
| ``native/`` | the recorder: warps in lockstep, a drive in memory, the kernels |
| ``recording`` | compiles the recorder and calls it |
| ``inputs`` | graphs and tables |
| ``platform`` | values with sources (``platform.toml``), drives (``devices/``) |
"""

from __future__ import annotations

from nandarray_papers.bam.inputs import rmat, taxi, uniform
from nandarray_papers.bam.platform import assumptions, drive, platform
from nandarray_papers.bam.recording import bulk, record

__all__ = ["assumptions", "bulk", "drive", "platform", "record", "rmat", "taxi", "uniform"]
