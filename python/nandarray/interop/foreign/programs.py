"""Programs on arrays of a file of another format: on copies of what some of their tasks read, one unit after the other.

Tasks are divided as for workers (:mod:`nandarray.parts.dividing`). A file of this process without a name gets copies of
the boxes that a unit reads, beside which its tasks run; they are deleted before the next unit's. So a run takes the
memory of its outputs and the disk space of a unit. Programs that feed each other, views, and programs whose tasks
follow each other are one unit: the file has all that they read then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nandarray.parts.chaining import chained
from nandarray.parts.dividing import divided
from nandarray.parts.near import ScratchEngine

__all__ = ["execute"]


def execute(
    scratch: ScratchEngine, programs: Mapping[int, tuple[bytes, bytes]], asked: Any, watch: Any
) -> dict[str, Any]:
    """Run programs whose outputs go to memory; return what the engine tells of a run."""
    units = divided(asked, scratch, programs, 1)
    if len(units) == 1 and units[0].tasks is None:
        return scratch.execute(asked, watch)
    told = [scratch.execute_unit(replace(asked, share=unit.tasks), watch, unit.boxes) for unit in units]
    return chained(scratch, asked, units, told)
