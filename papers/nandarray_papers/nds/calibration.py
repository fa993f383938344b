"""Constants that the text of the NDS paper leaves open, in one place and each with its source.

Values that the text states are in the preset ``nds-prototype`` (``nandarray device show nds-prototype`` prints each
with its source). The constants here were set by Figure 9, and by nothing else; answers by a figure that set one are
marked as calibrated. All others (Figures 2, 3 and 10, section 7.3) are predicted with the same numbers.

Not here: constants that differ between workloads. There are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nandarray.device import Description, load

__all__ = ["ASSUMPTIONS", "BUILDING_BLOCK", "CONSTANTS", "PREFERRED", "Constant", "Settings", "device"]


@dataclass(frozen=True)
class Constant:
    """A constant that the text leaves open: a key of a description, or a field of :class:`Settings`.

    ``value`` is as it is written, ``source`` says what set it.
    """

    name: str
    value: Any
    source: str


@dataclass(frozen=True)
class Settings:
    """The use of the device by programs: no properties of the device itself.

    A program keeps ``depth`` requests, of at most ``request_bytes``, on their way to a conventional device. Synchronous
    writes to NDS have ``write_bytes``, of whole building blocks side by side.
    """

    depth: int = 2
    request_bytes: int = 2 << 20
    write_bytes: int = 8 << 20


#: NDS 7.1: a row of a building block of doubles has 256 elements, "each building block must copy 256 elements (2 KB)
#: for 256 times". (Equation 2 gives 128 x 128 for 32 channels of 4 KB pages; the prototype takes the next power of 2.)
BUILDING_BLOCK = (256, 256)

PREFERRED = Settings()

CONSTANTS = (
    Constant(
        "link.packet_overhead",
        "166 B",
        "calibrated on Figure 9(a): the baseline fetches rows at 4.3 GB/s over 40 Gb/s; RoCE v2's own headers are 82 B "
        "a packet, the rest stands for what else RDMA and NVMe over Fabrics take",
    ),
    Constant(
        "host.copy_rate",
        "5 GB/s",
        "calibrated on Figure 9(a): software NDS fetches rows at 3.8 GB/s, bound by one thread that copies 2 KB runs",
    ),
    Constant(
        "depth",
        PREFERRED.depth,
        "calibrated on Figure 9(b): columns of the row-store baseline, at most 600 MB/s at 32 KB a row; an integer",
    ),
    Constant(
        "write_bytes",
        PREFERRED.write_bytes,
        "calibrated on Figure 9(d), both losses, the larger error smallest: of powers of two from 4 to 32 MiB",
    ),
    Constant(
        "request_bytes",
        PREFERRED.request_bytes,
        "NDS 2.1: 'interconnect bandwidth saturates if each request is larger than 2 MB'",
    ),
)

ASSUMPTIONS = (
    "Building blocks are 256 x 256 doubles (NDS 7.1 copies 256 elements 256 times a block), though equation 2 gives "
    "128 x 128.",
    "The device is the preset nds-prototype: 32 channels of 8 banks, 4 KB pages, 250 MB/s a channel (8/5 of 40 Gb/s "
    "over 32 channels), TLC of FEMU's times, packets of 1 KiB, eight A72 cores.",
    "An NDS device works on one command at a time (NDS 4.4: it 'returns to processing other application requests' when "
    "a request is complete).",
    "Of the link's 5 GB/s, 4.3 are left to data (calibrated on Figure 9(a)).",
    "A program keeps 2 requests on their way to a conventional device (calibrated on Figure 9(b)), of at most 2 MiB "
    "(NDS 2.1).",
    "Placement follows the four rules of NDS 4.2; the first bank of a building block is drawn by chance.",
)


def device(preset: str | Description = "nds-prototype", changes: Mapping[str, Any] | None = None) -> Description:
    """Return a device with the calibrated constants; ``changes``, values by dotted keys, go before all others."""
    calibrated = {constant.name: constant.value for constant in CONSTANTS if "." in constant.name}
    return load(preset).with_({**calibrated, **(changes or {})})
