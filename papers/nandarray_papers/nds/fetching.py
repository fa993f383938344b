"""Times of a workload's fetches in each configuration, and of the workload with them.

Fetches of one shape take the same time wherever they are, but for a few in a thousand: a few of each shape are
simulated whole and stand for all. The baseline partitions its I/O as section 6.2 says, "to minimize end-to-end
latency": by one rule for all workloads, :func:`plans`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nandarray.device import Description
from nandarray_papers.nds.calibration import BUILDING_BLOCK
from nandarray_papers.nds.pipeline import Ran, pipelined
from nandarray_papers.nds.systems import Baseline, Box, Nds, Oracle
from nandarray_papers.workloads import RTX_2080, Fetch, Gpu, Workload

__all__ = ["SYSTEMS", "Fetched", "copy_seconds", "fetched", "plans", "ran", "shapes", "units"]

SYSTEMS = ("baseline", "oracle", "software NDS", "hardware NDS")

#: A plan that reads more than this is simulated in part, along its first dimension.
SIMULATED_BYTES = 1 << 30

#: The baseline's plan where its host reads whole units and keeps the rest for the fetches that want it.
_CACHED = "whole units, the rest from memory"

#: Whether a fetch's sides are those, of which operand: (sub_shape, count).
Kind = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Fetched:
    """The time of one fetch, by stage.

    ``seconds`` pass until all data lie in the host's memory (with NDS, in their place); ``restructure_seconds`` is the
    copy to their place, where that is a stage of its own. ``bytes_read`` crossed the link; ``how`` names the
    baseline's plan.
    """

    seconds: float
    restructure_seconds: float
    bytes_read: int
    how: str = ""


def shapes(workload: Workload, samples: int) -> dict[Kind, list[Fetch]]:
    """Return the first fetches, at most ``samples``, of each (sub-shape, elements along each dimension)."""
    found: dict[Kind, list[Fetch]] = {}
    for fetch in workload.fetches():
        some = found.setdefault((fetch.sub_shape, fetch.count(workload.view)), [])
        # Operands are arrays of their own, all alike: the first stands for all.
        if len(some) < samples and fetch.operand == 0 and all(fetch.coordinate != other.coordinate for other in some):
            some.append(fetch)
    # Shapes that only other operands have.
    for fetch in workload.fetches():
        some = found[fetch.sub_shape, fetch.count(workload.view)]
        if not some:
            some.append(fetch)
    return found


def copy_seconds(device: Description, runs: int, nbytes: int) -> float:
    """Return the time in which one host thread copies ``runs`` contiguous pieces, ``nbytes`` in all, together."""
    host = device.resolved["host"]
    return float(runs * host["t_copy_run"] * 1e-12 + nbytes / host["copy_bytes_per_s"])


def plans(box: Box, shape: Sequence[int]) -> list[tuple[str, Box]]:
    """Return the ranges that a program may read of a row-major array to get a box, each once, the least bytes first.

    Its own runs, each straight to its place; or, for any dimension, everything between the first and the last element
    behind it, of which the rest is thrown away (data sieving).
    """
    found: list[tuple[str, Box]] = [("runs", tuple(box))]
    for behind in range(len(shape) - 1, 0, -1):
        wide = (*box[:behind], *(slice(0, n) for n in shape[behind:]))
        if wide != found[-1][1]:
            found.append((f"whole of the last {len(shape) - behind}", wide))
    return found


def units(box: Box, shape: Sequence[int], elements: int) -> Box:
    """Widen a box of a row-major array until its contiguous runs are whole units of a number of elements.

    Where a whole inner dimension is less than a unit, the dimension before it is widened, too.
    """
    wide, unit = list(box), elements
    for axis in range(len(shape) - 1, -1, -1):
        part, length = wide[axis], shape[axis]
        wide[axis] = slice(part.start // unit * unit, min(-(-part.stop // unit) * unit, length))
        if wide[axis] != slice(0, length) or unit <= length:
            break
        unit = -(-unit // length)
    return tuple(wide)


def _runs(box: Box, shape: Sequence[int]) -> int:
    count = [s.stop - s.start for s in box]
    k = len(shape) - 1
    while k > 0 and count[k] == shape[k]:
        k -= 1
    return math.prod(count[:k])


def _baseline(base: Baseline, boxes: Sequence[Box], *, sieving: bool, unit_bytes: int) -> Fetched:
    """Take the plan whose longest stage is shortest.

    With a unit, the host's cache reads whole units, and what lies beside the wanted part serves the fetches that want
    it: a fetch pays for its own bytes of the units alone.
    """
    best: Fetched | None = None
    wanted = math.prod(s.stop - s.start for s in boxes[0]) * base.itemsize
    tried = plans(boxes[0], base.shape)[: None if sieving else 1]
    wide = units(boxes[0], base.shape, max(1, unit_bytes // base.itemsize))
    if wide != tuple(boxes[0]):
        tried = [(_CACHED, wide), *tried[1:]]
    for how, first in tried:
        nbytes = math.prod(s.stop - s.start for s in first) * base.itemsize
        rows = first[0].stop - first[0].start
        part = max(1, min(rows, rows * SIMULATED_BYTES // nbytes))
        read = [first] if part == rows else [(slice(first[0].start, first[0].start + part), *first[1:])]
        moved = base.read(read)
        copies = 0.0 if how == "runs" else copy_seconds(base.device, _runs(boxes[0], base.shape), wanted)
        seconds = moved.seconds * rows / part
        if how == _CACHED:
            seconds, nbytes = seconds * wanted / nbytes, wanted
        one = Fetched(seconds, copies, nbytes, how)
        if best is None or max(one.seconds, one.restructure_seconds) < max(best.seconds, best.restructure_seconds):
            best = one
    assert best is not None
    return best


def fetched(
    workload: Workload,
    system: str,
    device: Description,
    samples: int = 1,
    seed: int = 0,
    *,
    sieving: bool = True,
    building_block: Sequence[int] | None = BUILDING_BLOCK,
    unit_bytes: int = 0,
) -> dict[Kind, Fetched]:
    """Simulate ``samples`` fetches of each shape by one of ``SYSTEMS``; return the times of one.

    ``sieving``: the baseline may read more than it wants. ``building_block`` is of spaces of two dimensions; by the
    equations if None, as others always are. The baseline's host reads ``unit_bytes`` at least, to serve neighbours from
    memory; with 0 it has no cache.
    """
    itemsize, shape = np.dtype(workload.dataset.dtype).itemsize, workload.view
    found: dict[Kind, Fetched] = {}
    for kind, some in shapes(workload, samples).items():
        boxes = [fetch.box(shape) for fetch in some]
        nbytes = math.prod(kind[1]) * itemsize
        if system == "baseline":
            base = Baseline(device, shape, itemsize, seed=seed)
            found[kind] = _baseline(base, boxes, sieving=sieving, unit_bytes=unit_bytes)
        elif system == "oracle":
            moved = Oracle(device, seed=seed).read([nbytes] * len(boxes))
            found[kind] = Fetched(moved.seconds / len(boxes), 0.0, nbytes)
        else:
            fits = building_block is not None and len(building_block) == len(shape)
            block = [min(b, n) for b, n in zip(building_block, shape, strict=True)] if fits and building_block else None
            with Nds(
                device,
                shape,
                workload.dataset.dtype,
                in_device=system == "hardware NDS",
                building_block=block,
                seed=seed,
            ) as nds:
                nds.fill(boxes)
                found[kind] = Fetched(nds.read(boxes).seconds / len(boxes), 0.0, nbytes)
    return found


def ran(workload: Workload, times: Mapping[Kind, Fetched], gpu: Gpu = RTX_2080, passes: int | None = None) -> Ran:
    """Run a workload's pipeline: fetch, restructure, copy to the GPU, compute.

    ``times`` is from :func:`fetched`; ``passes`` over the data are the workload's own if left out.
    """
    items = []
    for fetch in workload.fetches():
        one, cost = times[fetch.sub_shape, fetch.count(workload.view)], workload.kernel_cost(fetch)
        items.append((one.seconds, one.restructure_seconds, gpu.copy_ns(cost) / 1e9, gpu.kernel_ns(cost) / 1e9))
    return pipelined(items * (workload.passes if passes is None else passes))
