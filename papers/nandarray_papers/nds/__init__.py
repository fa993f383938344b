"""The systems that the NDS paper compares, modelled: baseline SSD, software NDS, hardware NDS, and the oracle layout.

| module | one idea |
| --- | --- |
| ``calibration`` | every constant that the paper's text leaves open, each with its source |
| ``systems`` | the configurations: how each reads and writes a sub-block |
| ``pipeline`` | fetch, restructure, copy to the GPU and compute, overlapped |

The device is the preset ``nds-prototype``, which holds what the text states.
"""

from __future__ import annotations

from nandarray_papers.nds.systems import Baseline, Moved, Nds, Oracle

__all__ = ["Baseline", "Moved", "Nds", "Oracle"]
