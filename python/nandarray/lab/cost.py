"""A stated proxy of what a described device costs, to weigh designs against each other.

It is no price. Flash counts by its cells, dies and channels, DRAM by its size, firmware and programs by their cores:

    cost = flash x (raw bytes / 1e9) / (bits a cell) + die x dies + channel x channels
         + dram x (DRAM bytes / 2**30) + core x (controller cores + compute cores)

The unit is a billion bytes' worth of cells that hold one bit each. The weights are assumptions, chosen so that no part
vanishes beside the others in a drive of today; a sweep may set its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nandarray.device import Description
from nandarray.errors import InvalidError
from nandarray.lab.claims import near

__all__ = ["WEIGHTS", "cost", "weights_of"]

#: Weight of each part in the cost.
WEIGHTS: dict[str, float] = {"flash": 1.0, "die": 1.0, "channel": 2.0, "dram": 15.0, "core": 5.0}

_LARGEST = 1e12
_BITS = {"slc": 1, "mlc": 2, "tlc": 3, "qlc": 4}


def weights_of(given: Mapping[str, Any] | None) -> dict[str, float]:
    """Return all weights: those given, and :data:`WEIGHTS` for the rest."""
    for name, weight in (given or {}).items():
        if name not in WEIGHTS:
            raise InvalidError(f"cost: {name!r} is no part{near(name, WEIGHTS)}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= _LARGEST:
            raise InvalidError(f"cost: the weight of {name} must be a number from 0 to {_LARGEST:g}, not {weight!r}")
    return WEIGHTS | {name: float(weight) for name, weight in (given or {}).items()}


def cost(description: Description, weights: Mapping[str, float] | None = None) -> float:
    """Return the cost proxy of a device.

    Parameters
    ----------
    description : Description
        The device.
    weights : mapping, optional
        Instead of :data:`WEIGHTS`, all of them.

    Returns
    -------
    float
        Cost in billions of bytes of one-bit cells.

    Examples
    --------
    >>> from nandarray.device import load
    >>> from nandarray.lab.cost import cost
    >>> round(cost(load("samsung-970-pro")), 1)
    339.4
    """
    weight = WEIGHTS if weights is None else weights
    facts, resolved = description.effective, description.resolved
    cores = resolved["controller"]["cores"] + (resolved["compute"] or {"cores": 0})["cores"]
    return float(
        weight["flash"] * facts["raw_bytes"] / 1e9 / _BITS[facts["cell"]]
        + weight["die"] * facts["dies"]
        + weight["channel"] * resolved["geometry"]["channels"]
        + weight["dram"] * resolved["dram"]["bytes"] / 2**30
        + weight["core"] * cores
    )
