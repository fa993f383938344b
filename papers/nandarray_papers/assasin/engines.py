"""Compute engines of Table 7.3: each a described device and the form of program that it runs.

UDP, an accelerator of its own instruction set, is not among them: no simulator of it is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nandarray
from nandarray.device import Description

__all__ = ["ADJUSTED", "ASSUMPTIONS", "ENGINES", "READ_AHEAD", "TARGET", "Engine", "adjusted", "engine"]

#: Table 7.3: RV32IM, without compressed instructions or bit manipulation.
TARGET = "rv32im"


@dataclass(frozen=True)
class Engine:
    """A compute engine, by the dissertation's name: a preset, and values that replace its own.

    ``kind`` is the form of programs: ``"block"``, over memory, or ``"stream"``, with stream instructions.
    """

    name: str
    device: str
    kind: str
    changes: tuple[tuple[str, Any], ...] = ()

    def description(self, **more: Any) -> Description:
        """Return the device, checked, with further values: keys of descriptions, ``__`` for ``.``."""
        device = nandarray.devices()[self.device]
        changes = dict(self.changes) | {key.replace("__", "."): value for key, value in more.items()}
        return device.with_(changes) if changes else device


#: Pages of an input that a core holds ahead, the one calibrated number: Figure 7.15's linear growth needs it, with 30
#: us of sensing, 4 us on the channel and other cores' pages before it. 16 pages of 4 KB are a buffer of S x P = 64 KB.
READ_AHEAD = 16
_AHEAD = (("compute.read_ahead", READ_AHEAD),)

ENGINES = {
    one.name: one
    for one in (
        Engine("Baseline", "assasin-baseline", "block"),
        Engine("Prefetch", "assasin-prefetch", "block"),
        Engine("Sp", "assasin-sp", "block"),
        Engine("Sb", "assasin-sb", "stream", _AHEAD),
        Engine("Sb$", "assasin-sb-cache", "stream", _AHEAD),
    )
}

#: Section 7.3.6, inputs: without a data cache the clock period is 11 % shorter; a scratchpad of 64 KB takes 2 cycles.
ADJUSTED = {"Sb": (("compute.clock", "1.1236 GHz"),), "Sp": (("compute.core.t_scratchpad", 3),)}

ASSUMPTIONS = (
    "Cores are those of the authors' gem5 scripts: one instruction a nanosecond, a data hit one more, a stream or "
    "scratchpad access half of one more, nothing in parallel, no cost of branches (zou-2023).",
    "A core holds 16 pages of an input ahead: S x P of Table 7.3 for a program with one stream. P = 2 of the text "
    "hides no flash read of 30 us, and the 8 of the authors' dist.py bound a core to 0.83 GB/s. It is the one "
    "calibrated number, on Figure 7.15, and the same for all workloads.",
    "Programs are compiled by Clang -O3 for RV32IM; Baseline, Prefetch and Sp run the form over memory, Sb and Sb$ the "
    "form with stream instructions.",
    "Bytes a second are bytes of input over modelled time, from the host's command to its answer.",
)


def engine(name: str) -> Engine:
    """Return an engine by its name."""
    return ENGINES[name]


def adjusted(name: str) -> Engine:
    """Return one of :data:`ENGINES` with its timing adjusted as section 7.3.6 says, if it is."""
    one = ENGINES[name]
    return Engine(one.name, one.device, one.kind, one.changes + ADJUSTED.get(name, ()))
