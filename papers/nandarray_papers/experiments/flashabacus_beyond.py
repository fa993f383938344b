"""Beyond FlashAbacus: a latency-critical kernel among batch ones, tenants, failures, and larger accelerators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result
from nandarray.model import accelerator
from nandarray.model.accelerator import Block, Phantom
from nandarray_papers.flashabacus import fair
from nandarray_papers.flashabacus.systems import PARAMETERS, SYSTEMS, Sizes, calibrated, submitted

__all__ = ["EXPERIMENT"]

_OURS = SYSTEMS[1:]


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def critical(scheduler: str, mix: str, sizes: Sizes, probes: int) -> dict[str, Any]:
    """Return latencies of short kernels with priority that arrive while a mix runs."""
    batch = submitted(mix, sizes)
    alone = accelerator.run(batch, scheduler, calibrated())
    period = int(alone["seconds"] * 1e9 / probes)
    probe = Phantom("probe", 6 << 20, (Block(6, 6e6, 6 << 20),), application=6, priority=1)
    cheap = [replace(probe, arrives_ns=1 + period * number) for number in range(probes)]
    found = accelerator.run([*batch, *cheap], scheduler, calibrated())
    latencies = [kernel["latency"] for kernel in found["kernels"] if kernel["name"] == "probe"]
    free = accelerator.run([probe], scheduler, calibrated())["seconds"]
    return {
        "scheduler": scheduler,
        "p50_s": _quantile(latencies, 0.5),
        "p99_s": _quantile(latencies, 0.99),
        "alone_s": free,
        "batch_slower": found["seconds"] / alone["seconds"],
    }


def tenants(scheduler: str) -> dict[str, Any]:
    """Return how alike three tenants are served that submit 24, 12 and 6 kernels in turn, until the first is done."""
    if scheduler == fair.NAME:
        fair.known()
    one = Phantom("k", 6 << 20, (Block(6, 6e7, 6 << 20), Block(1, 6e6, 0)))
    turns = [number for _ in range(6) for number in (0, 0, 0, 0, 1, 1, 2)]
    found = accelerator.run([one.of(number) for number in turns], scheduler, calibrated())
    ends = [max(k["end"] for k in found["kernels"] if k["application"] == number) for number in range(3)]
    until = min(ends)
    served = [0.0, 0.0, 0.0]
    for span in found["spans"]:
        if span["start"] < until:
            part = (min(span["end"], until) - span["start"]) / (span["end"] - span["start"])
            served[found["kernels"][span["kernel"]]["application"]] += span["computed"] * part
    jain = sum(served) ** 2 / (3 * sum(x * x for x in served))
    return {
        "scheduler": scheduler,
        "fairness": jain,
        "seconds": found["seconds"],
        **{f"tenant{number}_end_s": end for number, end in enumerate(ends)},
    }


def failure(scheduler: str, what: str) -> dict[str, Any]:
    """Return what the failure of a core or a row of dies in mid-kernel costs."""
    kernels = [Phantom("k", 60 << 20, (Block(6, 6e8, 60 << 20), Block(1, 6e7, 0))).of(n) for n in range(6)]
    sound = accelerator.run(kernels, scheduler, calibrated())
    lost = {"core": {"core_failures": [(2, 200_000_000)]}, "die": {"die_failures": [(3, 5_000_000)]}}[what]
    found = accelerator.run(kernels, scheduler, {**calibrated(), **lost})
    done = sum(span["fine"] for span in found["spans"])
    return {
        "scheduler": scheduler,
        "fails": what,
        "reruns": found["reruns"],
        "screens_done": done,
        "slower": found["seconds"] / sound["seconds"],
    }


def scaled(workers: int, screen_us: float) -> dict[str, Any]:
    """Return Flashvisor's share of an accelerator with as many channels as a worker needs of four for six."""
    channels = max(4, workers)
    platform = {
        **calibrated(),
        "workers": workers,
        "channels": channels,
        "dies": 2 * channels,
        "backbone_rate": 2_000_000_000 * channels // 4,
        "dram_rate": 6_400_000_000 * channels // 4,
        "window_bytes": 64 << 10,
    }
    each = screen_us * 1e3
    kernels = [Phantom("k", 0, (Block(workers, each * workers, 16384 * workers),) * 8).of(n) for n in range(32)]
    found = accelerator.run(kernels, "intra-out-of-order", platform)
    least = 32 * 8 * screen_us * 1e-6
    return {
        "workers": workers,
        "channels": channels,
        "screen_us": screen_us,
        "flashvisor": found["flashvisor"],
        "efficiency": least / found["seconds"],
    }


def run(context: Context) -> Result:
    """Measure all four."""
    sizes = Sizes.of(context)
    cases = [(one, context["mix"], sizes, context["probes"]) for one in _OURS]
    late = context.map(critical, cases, "latency-critical kernels")
    shares = [tenants(one) for one in (*_OURS, fair.NAME)]
    failures = [failure(one, what) for what in ("core", "die") for one in _OURS]
    sizes_of = [scaled(workers, us) for us in (20.0, 100.0, 1000.0) for workers in (6, 8, 16, 24, 32)]
    bound = {
        us: [row for row in sizes_of if row["screen_us"] == us and row["flashvisor"] > 0.9] for us in (20.0, 100.0)
    }
    said = [
        f"Screens of {us:g} us: Flashvisor's core is the bottleneck from {rows[0]['workers']} workers on."
        if rows
        else f"Screens of {us:g} us: Flashvisor's core is not the bottleneck up to 32 workers."
        for us, rows in bound.items()
    ]
    return Result(
        tables={"critical": late, "tenants": shares, "failures": failures, "sizes": sizes_of},
        figures=[
            Figure("p99", "99th percentile of a short kernel's latency", "bar", "critical", "scheduler", "p99_s"),
            Figure("fairness", "Jain's index of three tenants", "bar", "tenants", "scheduler", "fairness"),
            Figure("size", "Efficiency of larger accelerators", "line", "sizes", "workers", "efficiency", "screen_us"),
        ],
        assumptions=[
            "Screens are not interrupted: a kernel with priority waits for the end of a worker's screen.",
            "Inter-kernel schedulers give a worker to a kernel until its end, so priority helps only in the queue.",
            *said,
        ],
    )


EXPERIMENT = Experiment(
    id="flashabacus.beyond",
    title="Beyond FlashAbacus: latency, tenants, failures, sizes",
    question="What do the schedulers do that the paper did not measure?",
    run=run,
    claims=(),
    parameters={
        "mix": Parameter("MX1", "the batch", small="ATAX"),
        "probes": Parameter(200, "latency-critical kernels", small=20),
        **PARAMETERS,
    },
    minutes=1,
)
