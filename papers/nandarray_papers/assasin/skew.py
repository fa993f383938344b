"""Layouts of Figure 7.18: pages of a work put on chosen channels, and the work run on pooled or channel-local cores.

Pages are written one by one in the order of the medium (placement ``log``), which goes round the channels; a page of a
filler takes the place where a channel has none of the work's. With pooled cores every core gets pages of every channel.
Channel-local cores are bound to the data of their channel: eight steps of one call, each on the core of its channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import nandarray
from nandarray_papers.assasin.engines import ENGINES, TARGET
from nandarray_papers.assasin.work import Work

__all__ = ["CHANNELS", "Pages", "measure", "pattern", "shares", "skew_of"]

CHANNELS = 8
PAGE_BYTES = 4096
#: Pages of one array, with the channel of each.
Pages = tuple[np.ndarray[Any, Any], list[int]]


def shares(skew: float) -> list[float]:
    """Return the share of each channel, of which the first has most.

    The dissertation prints max(D / average) / (n - 1), which is 1 / (n - 1) of an even layout and above 1 at the
    extreme, though it is to lie in 0..1: (max / average - 1) / (n - 1) is meant.
    """
    most = (1 + skew * (CHANNELS - 1)) / CHANNELS
    return [most] + [(1 - most) / (CHANNELS - 1)] * (CHANNELS - 1)


def skew_of(amounts: Sequence[float]) -> float:
    """Return the skew of amounts by channel."""
    return (max(amounts) / (sum(amounts) / len(amounts)) - 1) / (len(amounts) - 1)


def pattern(pages: int, skew: float) -> list[int]:
    """Return the channel of each page of a stream: at any place, channels have had their shares as well as can be."""
    wanted, had = shares(skew), [0] * CHANNELS
    found = []
    for page in range(pages):
        lack = [share * (page + 1) - count for share, count in zip(wanted, had, strict=True)]
        channel = max(range(CHANNELS), key=lambda c: (lack[c], -c))
        had[channel] += 1
        found.append(channel)
    return found


def _write(store: nandarray.Store, arrays: dict[str, Pages]) -> None:
    """Write arrays, each page on its channel."""
    queues: list[deque[tuple[str, int]]] = [deque() for _ in range(CHANNELS)]
    most = max(len(channels) for _, channels in arrays.values())
    for page in range(most):
        for name, (_, channels) in arrays.items():
            if page < len(channels):
                queues[channels[page]].append((name, page))
    for name, (data, _) in arrays.items():
        store.create(name, data.shape, data.dtype, building_block=(PAGE_BYTES // data.itemsize,))
    rounds = max(map(len, queues))
    filler = store.create("filler", (rounds * CHANNELS * PAGE_BYTES,), "u1", building_block=(PAGE_BYTES,))
    nothing = np.ones(PAGE_BYTES, np.uint8)
    for turn in range(rounds * CHANNELS):
        queue = queues[turn % CHANNELS]
        if not queue:
            filler[turn * PAGE_BYTES : (turn + 1) * PAGE_BYTES] = nothing
            continue
        name, page = queue.popleft()
        data = arrays[name][0]
        each = PAGE_BYTES // data.itemsize
        store[name][page * each : (page + 1) * each] = data[page * each : (page + 1) * each]


def _parts(work: Work, skew: float) -> list[list[np.ndarray[Any, Any]]]:
    """Return for each channel its part of each input: whole tasks of the work, or whole lines of its text."""
    data = work.inputs
    ends = np.cumsum([0.0, *shares(skew)]) * data[0].size
    ends[-1] = data[0].size
    if work.is_text:
        newline = np.flatnonzero(data[0] == ord("\n"))
        cuts = [0, *(int(newline[np.searchsorted(newline, end - 1)]) + 1 for end in ends[1:])]
    else:
        each = work.task_bytes // len(data) // data[0].itemsize
        cuts = [round(end / each) * each for end in ends[:-1]] + [data[0].size]
    return [[one[low:high] for one in data] for low, high in zip(cuts, cuts[1:], strict=False)]


def measure(
    work: Work, skew: float, *, pooled: bool, seed: int, changes: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a work, of inputs of one length, on Sb, its data laid out with a skew of 0 (even) to 1 (all on one channel).

    If ``pooled``, cores get pages of all channels by the crossbar; otherwise each has its channel's data. ``changes``
    are values of Sb's description, ``__`` for ``.``. The result has ``GBps``, the measured ``skew`` of the pages read,
    and ``wait`` (share of the cores' time).
    """
    program = work.make("stream", TARGET)
    parts = [list(work.inputs)] if pooled else _parts(work, skew)
    arrays: dict[str, Pages] = {}
    for place, inputs in enumerate(parts):
        for number, data in enumerate(inputs):
            pages = -(-data.nbytes // PAGE_BYTES)
            channels = pattern(pages, skew) if pooled else [place] * pages
            if pages:
                arrays[f"p{place}i{number}"] = data, channels
    task_bytes = work.task_bytes // len(work.inputs)
    device = ENGINES["Sb"].description(**(changes or {}))
    with nandarray.open(device=device, mode="w", seed=seed, placement="log") as store:
        _write(store, arrays)
        store.flush()
        store.clock.settle()
        steps = {}
        for place, inputs in enumerate(parts):
            if inputs[0].size:
                names = [f"p{place}i{number}" for number in range(len(inputs))]
                step = program.on(*(store[name] for name in names), **work.scalars).using(task_bytes=task_bytes)
                steps[f"c{place}"] = step if pooled else step.using(cores=[place])
        first, before = store.report().data, store.clock.now
        wanted = {f"{name}.{output.name}": output for name, step in steps.items() for output in step}
        nandarray.offload(wanted)
        seconds = store.clock.now - before
        report = store.report().data
    busy = [after - was for was, after in zip(_channels(first), _channels(report), strict=True)]
    spent = dict(report["programs"]["timed_cores"]["seconds_by_reason"])
    return {
        "GBps": work.bytes / seconds / 1e9,
        "skew_measured": skew_of(busy),
        "wait": spent.get("stream_wait", 0.0) / (CHANNELS * seconds),
    }


def _channels(report: Any) -> list[float]:
    return [float(share) * float(report["until_rest_s"]) for share in report["utilisation"]["channels"]]
