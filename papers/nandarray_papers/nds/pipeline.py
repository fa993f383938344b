"""A pipeline of stages, as the applications of the NDS paper are built (section 6.2).

While one sub-block is computed on, the next ones are fetched, restructured and copied to the GPU. Stages work side by
side, each on one sub-block at a time, in order. A sub-block that is done waits in a buffer until the next stage takes
it; between two stages are as many buffers as wanted.

Nothing here knows devices or workloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Ran", "pipelined"]


@dataclass(frozen=True)
class Ran:
    """The times of a pipeline, from the first stage's begin to the last stage's end.

    ``busy`` has the seconds that each stage worked; ``idle`` those that the last stage waited before its sub-blocks,
    the first included.
    """

    seconds: float
    busy: tuple[float, ...]
    idle: float


def pipelined(items: Sequence[Sequence[float]], buffers: int = 1) -> Ran:
    """Run items, each its seconds in every stage, through stages.

    At most ``buffers`` items wait between two stages; a stage that finds no room waits with its item.

    >>> from nandarray_papers.nds.pipeline import pipelined
    >>> ran = pipelined([(2.0, 1.0)] * 3)
    >>> ran.seconds, ran.busy, ran.idle
    (7.0, (6.0, 3.0), 4.0)
    """
    stages = len(items[0])
    began = [[0.0] * stages for _ in items]
    left = [[0.0] * stages for _ in items]
    idle = 0.0
    for i, times in enumerate(items):
        for s in range(stages):
            there = left[i][s - 1] if s else 0.0
            free = left[i - 1][s] if i else 0.0
            began[i][s] = max(there, free)
            # It may leave when the item `buffers + 1` before it has been taken out of the room behind this stage.
            room = began[i - buffers][s + 1] if s + 1 < stages and i >= buffers else 0.0
            left[i][s] = max(began[i][s] + times[s], room)
        idle += began[i][-1] - (left[i - 1][-1] if i else 0.0)
    busy = tuple(sum(times[s] for times in items) for s in range(stages))
    return Ran(left[-1][-1], busy, idle)
