"""The tasks of a run of programs, divided into units of work that other processes do, each with the boxes it reads.

Tasks are cut where the engine cuts them for an array in one file, so that a result is the same to the bit wherever they
run. A unit has consecutive tasks, whole runs of those that share a state. It reads a range of each input's
elements in C order, or of its tiles, as boxes of the array. Programs that feed each other, views, and programs whose
tasks follow each other are one unit. Nothing is read, sent or run here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from nandarray.parts.near import ScratchEngine, Taken
from nandarray.parts.pieces import run_boxes, tile_edge, tiles_along

__all__ = ["Unit", "box_of", "divided"]

#: Bytes of the first input that a unit has at least, where there are as many units as keep all workers busy.
_UNIT_BYTES = 64 << 20
_UNITS_A_WORKER = 4
_UNITS_MAX = 4096

_Span = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Unit:
    """Work of one process: tasks from the first on, up to the last; all of a run, its end too, without ``tasks``."""

    tasks: tuple[int, int] | None
    #: By id of the array; None for all that programs take.
    boxes: Mapping[str, Sequence[Taken]] | None = None
    spaces: Mapping[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of tasks; 1 for a whole run."""
        return 1 if self.tasks is None else self.tasks[1] - self.tasks[0]


def box_of(given: Any) -> tuple[tuple[Any, ...], Any] | None:
    """Return an input's box and its tiles; None for memory, and for what another program gives."""
    if not isinstance(given, tuple) or (len(given) == 2 and not isinstance(given[0], tuple)):
        return None
    return (given[0], given[1]) if isinstance(given[0], tuple) else (given, None)


def divided(
    asked: Any, scratch: ScratchEngine, programs: Mapping[int, tuple[bytes, bytes]], workers: int
) -> list[Unit]:
    """Divide a run into units; ``programs`` has the metadata of the loaded ones, ``workers`` how many there are."""
    found = [box for stage in asked.stages for given in stage.inputs if (box := box_of(given)) is not None]
    spaces = {box[0].id: box[0] for box, _ in found}
    alone = [Unit(None, None, spaces)]
    if len(asked.stages) != 1 or any(box[4] is not None for box, _ in found):
        return alone
    with scratch.placed(asked, lambda *_: None) as (there, _):
        cuts = scratch.engine.task_cuts(there)
    if cuts is None:
        return alone
    edges, each = cuts
    stage, metadata = asked.stages[0], json.loads(programs[asked.stages[0].program][1])
    ports = metadata["inputs"]
    all_tasks = len(edges) - 1
    runs = -(-all_tasks // each)
    bytes_a_run = edges[-1] * ports[0]["record_bytes"] // max(1, runs)
    step = min(max(1, _UNIT_BYTES // max(1, bytes_a_run)), max(1, runs // (_UNITS_A_WORKER * max(1, workers))))
    step = max(step, -(-runs // _UNITS_MAX)) * each
    units = []
    for first in range(0, all_tasks, step):
        tasks = first, min(all_tasks, first + step)
        boxes: dict[str, list[Taken]] = {}
        for given, port in zip(stage.inputs, ports, strict=True):
            taken = box_of(given)
            if taken is not None:
                own = _input_boxes(taken, port, tasks, edges)
                boxes.setdefault(taken[0][0].id, []).extend(own)
        units.append(Unit(tasks, boxes, spaces))
    return units


def _input_boxes(
    taken: tuple[tuple[Any, ...], Any], port: Mapping[str, Any], tasks: tuple[int, int], edges: Any
) -> Iterator[Taken]:
    """Yield the boxes of an array that these tasks read of one input."""
    (space, start, step, count, _), tiles = taken
    if not space.shape:
        yield [], None, ()
        return
    if port.get("whole"):
        yield start, step, count
        return
    if tiles is None:
        record, item, every = port["record_bytes"], space.itemsize, prod(count)
        low = edges[tasks[0]] * record // item
        high = min(every, -(-edges[tasks[1]] * record // item))
        spans = run_boxes(low, high - low, count)
    else:
        spans = _tile_spans(tiles, count, tasks)
    for first, last in spans:
        at = [a + by * low for a, by, low in zip(start, step, first, strict=True)]
        yield at, step, [b - a for a, b in zip(first, last, strict=True)]


def _tile_spans(tiles: Any, count: Sequence[int], tasks: tuple[int, int]) -> Iterator[_Span]:
    """Yield the boxes, within a box of ``count`` elements, that a range of its tiles have, with their halos."""
    first, size, _, halo = tiles
    for low, high in run_boxes(tasks[0], tasks[1] - tasks[0], tiles_along(count, first, size)):
        lows = [tile_edge(a, n, *one) for a, n, *one in zip(low, count, first, size, strict=True)]
        highs = [tile_edge(b, n, *one) for b, n, *one in zip(high, count, first, size, strict=True)]
        for axis, n in enumerate(count if halo is not None else ()):
            depth, (beyond, _) = halo[0][axis], halo[1][axis]
            a, b = lows[axis] - depth, highs[axis] + depth
            around = beyond == "periodic" and (a < 0 or b > n)
            lows[axis], highs[axis] = (0, n) if around else (max(0, a), min(n, b))
        yield tuple(lows), tuple(highs)
