"""A program's sample run on the modelled device: the time that the formula of advice estimates.

The sample is stored, settled, and offloaded under the modelled clock; the parts' shares of that time say what bounds
it. A device whose cores have an instruction set of their own takes any program here: advice is about the program as it
was compiled for this machine's interpreter. Not here: host computing, whose time stays the formula's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.array.opening import open as open_store
from nandarray.programs import run
from nandarray.programs.advise.flows import targets_of

if TYPE_CHECKING:
    from nandarray.device import Description
    from nandarray.programs.advise.flows import Use
    from nandarray.programs.program import Program

__all__ = ["Simulated", "simulate"]


@dataclass(frozen=True)
class Simulated:
    """A sample's run on the modelled device.

    Attributes
    ----------
    seconds : float
        Time from the host's command to its answer.
    bound : str
        The busiest part: ``"flash"`` (its channels), ``"cores"``, ``"link"`` or ``"dram"``.
    busy : dict of str to float
        Share of the time in which each part was busy; of several cores or channels, the busiest channel and all cores
        together.
    """

    seconds: float
    bound: str
    busy: dict[str, float]


def simulate(
    made: Program,
    inputs: Sequence[np.ndarray[Any, Any]],
    scalars: Mapping[str, Any],
    use: Use,
    device: Description,
    *,
    task_bytes: int | None = None,
) -> Simulated:
    """Run a program's sample on the modelled device, which has cores for programs: its time, and what bounds it.

    ``use`` says where inputs and outputs are put. A task has ``task_bytes`` of the first input; if left out, as many as
    the cores' buffers hold. An InvalidError says that the cores cannot run the program: they take windows alone, or
    streams alone, or have fewer streams.
    """
    described = device.with_({"compute.isa": "any"}) if device.resolved["compute"]["core"] else device
    names = [port["name"] for port in made.inputs]
    with open_store(device=described, mode="w", seed=0) as store:
        given: list[Any] = []
        for number, (name, one) in enumerate(zip(names, inputs, strict=True)):
            if name not in use.host:
                store[f"input{number}"] = one
            given.append(one if name in use.host else store[f"input{number}"])
        targets = targets_of(made, inputs, use, store)
        store.flush()
        store.clock.settle()
        before, first = store.clock.now, _busy(store.report().data)
        run.offload(made, given, scalars, out=targets or None, task_bytes=task_bytes)
        seconds = store.clock.now - before
        last = _busy(store.report().data)
    busy = {part: max(b - a for a, b in zip(first[part], last[part], strict=True)) / seconds for part in last}
    return Simulated(seconds, max(busy, key=lambda part: busy[part]), busy)


def _busy(report: Mapping[str, Any]) -> dict[str, list[float]]:
    """Seconds in which each part was busy since opening: each channel, the cores on average, each direction."""
    shares: Mapping[str, Any] = report["utilisation"]
    cores = shares["compute"]
    of = {
        "flash": list(shares["channels"]),
        "cores": [sum(cores) / len(cores) if cores else 0.0],
        "link": [shares["link_down"], shares["link_up"]],
        "dram": [shares["dram"]],
    }
    return {part: [float(share) * float(report["until_rest_s"]) for share in all_] for part, all_ in of.items()}
