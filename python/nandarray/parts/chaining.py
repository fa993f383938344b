"""The results of the units of a run, put together as if it were one run: outputs in the order of tasks, states merged.

Units are those of :mod:`nandarray.parts.dividing`; the program's end is called here. So the result is that of an array
in one file, to the bit. Nothing is written to arrays here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nandarray import _nandarray
from nandarray.parts.dividing import Unit
from nandarray.parts.near import ScratchEngine

__all__ = ["chained"]

#: Counts of the engine, of a run and of each of its programs.
_COUNTS = ("tasks", "bytes_in", "bytes_out", "instructions")


def chained(
    scratch: ScratchEngine, asked: Any, units: Sequence[Unit], told: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return what the engine would tell of a whole run, of what it has told of each unit; and end the program.

    Outputs that go into arrays are their bytes.
    """
    stages = [dict(one) for one in told[0]["stages"]] if told else []
    given = {key: sum(one[key] for one in told) for key in _COUNTS}
    if not (units and units[0].tasks is None):
        states = [state for one in told for state in one["stages"][0]["states"]]
        tasks = units[-1].tasks[1] if units and units[-1].tasks else 0
        wanted = [isinstance(one, tuple) or one for one in asked.stages[0].outputs]
        ending = replace(asked, stages=[replace(asked.stages[0], outputs=wanted)], threads=1, share=(tasks, states))
        with scratch.placed(ending, lambda *_: None) as (there, _):
            last = scratch.engine.execute(there, _nandarray.Watch())
        every = [*told, last]
        for key in _COUNTS[2:]:
            given[key] += last[key]
        outputs = [_joined([one["stages"][0]["outputs"][at] for one in every]) for at in range(len(wanted))]
        stages = [{key: sum(one["stages"][0][key] for one in every) for key in _COUNTS}]
        stages[0] |= {"outputs": outputs, "state": last["stages"][0]["state"]}
    return given | {"stages": stages}


def _joined(given: Sequence[Any]) -> Any:
    """Return the bytes of an output, one unit's after the other's; None for one that was not asked for."""
    found = [one for one in given if one is not None]
    return np.concatenate(found) if found else None
