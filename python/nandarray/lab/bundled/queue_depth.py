"""Bandwidth and latency of a device over the queue depth.

Little's law ties the three: requests on their way = requests a second x seconds of each. It is an answer to no paper's
claim; it is the first thing to ask of a device.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import nandarray
from nandarray.device import load
from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result

__all__ = ["EXPERIMENT", "measure"]

SPANS = 200_000


def measure(
    parameters: Mapping[str, Any], depth: int, seed: int, timeline: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Replay random requests, ``depth`` on their way at all times; return the report, and write a timeline if asked."""
    of = {name: parameters[name] for name in ("requests", "size", "read_share")}
    workload = nandarray.Synthetic(depth=depth, seed=seed + 1, **of)
    described = load(parameters["device"]).with_(parameters["changes"])
    run = nandarray.replay(workload, device=described, seed=seed + 1, timeline=timeline, timeline_spans=SPANS)
    return run.data


def run(context: Context) -> Result:
    """Measure every depth."""
    depths = sorted({int(depth) for depth in context["depths"]})
    reports = context.map(measure, [(context.parameters, depth, context.seed) for depth in depths], "depths")
    if context.timeline is not None:  # of the most requests at once: there it shows who waits for whom
        measure(context.parameters, depths[-1], context.seed, context.timeline)
    rows = []
    for depth, report in zip(depths, reports, strict=True):
        done = report["all"]
        rows.append(
            {
                "depth": depth,
                "bytes_per_s": done["bytes_per_s"],
                "iops": done["iops"],
                **{f"latency_{key}": done["latency"][key] for key in ("mean_us", "p50_us", "p99_us", "p99_9_us")},
                "on_their_way": done["iops"] * done["latency"]["mean_us"] * 1e-6,
            }
        )
    what = f"{context['size']} bytes at random on {context['device']}"
    return Result(
        tables={"depths": rows},
        figures=[
            Figure(
                id="bandwidth",
                title=f"Bandwidth over queue depth: {what}",
                kind="line",
                table="depths",
                x="depth",
                y="bytes_per_s",
                x_label="requests on their way",
                y_label="bytes a second",
                x_log=True,
                caption="It grows with the depth until something is busy all the time.",
            ),
            Figure(
                id="latency",
                title=f"Latency over queue depth: {what}",
                kind="line",
                table="depths",
                x="depth",
                y="latency_p99_us",
                x_label="requests on their way",
                y_label="99th percentile, us",
                x_log=True,
                y_log=True,
                caption="It stays, and then grows as requests wait for each other.",
            ),
        ],
        reports={f"depth {depths[0]}": reports[0], f"depth {depths[-1]}": reports[-1]},
    )


EXPERIMENT = Experiment(
    id="model.queue-depth",
    title="Bandwidth and latency over queue depth",
    question="How much bandwidth does a device give for more requests at once, and at what latency?",
    run=run,
    parameters={
        "device": Parameter("samsung-970-pro", "preset, or file of a description", small="tiny"),
        "changes": Parameter({}, "values of the description by dotted keys, to stand in place of its own"),
        "depths": Parameter([1, 2, 4, 8, 16, 32, 64, 128, 256], "requests on their way at all times", small=[1, 8, 64]),
        "requests": Parameter(50_000, "requests at each depth", small=1_000),
        "size": Parameter(4096, "bytes of a request"),
        "read_share": Parameter(1.0, "share of requests that read"),
    },
    minutes=0.1,
)
