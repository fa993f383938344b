"""Scaling of a device over its channels: large reads in order, and small ones at random.

Twice the channels give twice the bandwidth until the link or the controller is the narrower part. The reports show
which that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nandarray
from nandarray.device import load
from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result

__all__ = ["EXPERIMENT", "measure"]

#: Name of a pattern -> its requests: bytes of each, order, how many are on their way.
PATTERNS = {"large": (1 << 20, "sequential", 16), "small": (4096, "random", 256)}


def measure(parameters: Mapping[str, Any], channels: int, pattern: str, seed: int) -> dict[str, Any]:
    """Replay reads, ``"large"`` or ``"small"`` ones, on a device with a number of channels, and return the report."""
    size, order, depth = PATTERNS[pattern]
    described = load(parameters["device"]).with_({**parameters["changes"], "geometry.channels": channels})
    words: Any = order
    requests = max(256, parameters[f"{pattern}_bytes"] // size)
    workload = nandarray.Synthetic(requests=requests, size=size, pattern=words, depth=depth, seed=seed + 1)
    return nandarray.replay(workload, device=described, seed=seed + 1).data


def run(context: Context) -> Result:
    """Measure every number of channels, under both patterns."""
    counts = sorted({int(count) for count in context["channels"]})
    cases = [(context.parameters, count, pattern, context.seed) for pattern in PATTERNS for count in counts]
    reports = context.map(measure, cases, "channels")
    rows = []
    for (_, count, pattern, _), report in zip(cases, reports, strict=True):
        used = report["utilisation"]
        rows.append(
            {
                "channels": count,
                "pattern": pattern,
                "bytes_per_s": report["all"]["bytes_per_s"],
                "latency_p99_us": report["all"]["latency"]["p99_us"],
                "channels_busy": sum(used["channels"]) / len(used["channels"]),
                "link_busy": used["link_up"],
                "device_j": report["energy"]["device_j"],
            }
        )
    first = {row["pattern"]: row["bytes_per_s"] for row in reversed(rows)}
    for row in rows:
        row["speedup"] = row["bytes_per_s"] / first[row["pattern"]]
    return Result(
        tables={"channels": rows},
        figures=[
            Figure(
                id="bandwidth",
                title=f"Bandwidth over channels: {context['device']}",
                kind="line",
                table="channels",
                x="channels",
                y="bytes_per_s",
                series="pattern",
                x_label="channels",
                y_label="bytes a second",
                x_log=True,
                y_log=True,
                caption="Straight lines scale; what bends them is busy all the time.",
            )
        ],
        reports={f"{pattern} {count}": report for (_, count, pattern, _), report in zip(cases, reports, strict=True)},
    )


EXPERIMENT = Experiment(
    id="model.channels",
    title="Bandwidth over the number of channels",
    question="How far does more flash make a device faster, before its link or its controller is the narrower part?",
    run=run,
    parameters={
        "device": Parameter("nds-prototype", "preset, or file of a description", small="tiny"),
        "changes": Parameter({}, "values of the description by dotted keys, to stand in place of its own"),
        "channels": Parameter([1, 2, 4, 8, 16, 32, 64], "numbers of channels", small=[1, 2, 4]),
        "large_bytes": Parameter(1 << 30, "bytes read in order", small=1 << 24),
        "small_bytes": Parameter(1 << 28, "bytes read at random", small=1 << 22),
    },
    minutes=0.3,
)
