"""Figure 10 of the NDS paper: ten workloads end to end, and how long their kernels wait.

Fetches are simulated on the prototype's device, kernels take a roofline's time on the paper's GPU, stages overlap. All
constants are those of Figure 9; none is of a workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nandarray.lab.claims import claims
from nandarray.lab.experiment import Answer, Context, Experiment, Figure, PaperPoint, Parameter, Result
from nandarray_papers.nds import calibration
from nandarray_papers.nds.fetching import SYSTEMS, fetched, ran
from nandarray_papers.nds.pipeline import Ran
from nandarray_papers.workloads import ASSUMPTIONS, TABLE_1, Workload

__all__ = ["EXPERIMENT", "Variant", "geometric", "measure", "run", "sized"]


def sized(name: str, divide: int) -> Workload:
    """Return a workload of Table 1, smaller by a factor along each dimension, with as many sub-blocks."""
    workload = TABLE_1[name]
    return workload if divide == 1 else workload.at([n // divide for n in workload.shape])


def geometric(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


class Case(NamedTuple):
    """A workload (``name``, ``divide`` as for :func:`sized`) in one configuration.

    ``rule`` is the baseline's: "sieving" if it may read more than it wants, "runs" if not. ``samples`` fetches of each
    shape are simulated. ``changes`` are of the device, ``unit_bytes`` as for
    :func:`~nandarray_papers.nds.fetching.fetched`.
    """

    name: str
    divide: int
    system: str
    rule: str
    samples: int
    seed: int
    changes: tuple[tuple[str, str], ...] = ()
    unit_bytes: int = 0


class Variant(NamedTuple):
    """A variant of the experiment on another host: its name and its changes."""

    name: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    unit_bytes: int = 0


def measure(case: Case) -> tuple[Ran, list[dict[str, Any]]]:
    """Run a workload in one configuration: the whole, and a row for each shape of fetch."""
    name, divide, system, rule, samples, seed, changes, unit_bytes = case
    workload, device = sized(name, divide), calibration.device(changes=dict(changes))
    times = fetched(workload, system, device, samples, seed, sieving=rule == "sieving", unit_bytes=unit_bytes)
    rows = [
        {
            "workload": name,
            "system": system,
            "rule": rule,
            "sub_shape": "x".join(map(str, kind[1])),
            "bytes": math.prod(kind[1]) * 8,
            "fetch_s": one.seconds,
            "restructure_s": one.restructure_seconds,
            "bytes_read": one.bytes_read,
            "GBps": math.prod(kind[1]) * 8 / one.seconds / 1e9,
            "how": one.how,
        }
        for kind, one in times.items()
    ]
    return ran(workload, times), rows


def run(context: Context, variant: Variant = Variant()) -> Result:  # noqa: B008 (a named tuple does not change)
    """Run all workloads in all configurations."""
    names, divide, samples = context["workloads"], context["divide"], context["samples"]
    own = samples, context.seed, variant.changes, variant.unit_bytes
    cases = [Case(name, divide, system, "sieving", *own) for name in names for system in SYSTEMS]
    cases += [Case(name, divide, "baseline", "runs", *own) for name in names]
    found = context.map(measure, [(case,) for case in cases], "workloads")
    by = {(case.name, case.system, case.rule): ran for case, (ran, _) in zip(cases, found, strict=True)}
    fetches = [row for _, some in found for row in some]
    rows = [row for rule in ("sieving", "runs") for row in _rows(by, names, rule)]
    means = [_mean(rows, rule, system) for rule in ("sieving", "runs") for system in SYSTEMS[1:]]
    seconds = {key: one.seconds for key, one in by.items()}
    bars = [row for row in rows if row["rule"] == "sieving" and row["system"] != "baseline"]
    return Result(
        tables={"fig10": bars, "all": rows, "means": means, "fetches": fetches},
        answers=[_of_variant(answer, variant) for answer in _answers(means, seconds, names)],
        figures=_FIGURES,
        assumptions=[
            *calibration.ASSUMPTIONS,
            *ASSUMPTIONS,
            *(text for name in names for text in TABLE_1[name].assumptions),
            *_ASSUMPTIONS,
        ],
        misfits=_misfits(means, seconds, names),
    )


def _rows(by: dict[tuple[str, str, str], Ran], names: Sequence[str], rule: str) -> Iterator[dict[str, Any]]:
    """Compare every workload and system with the baseline under one rule."""
    for name in names:
        base = by[name, "baseline", rule]
        for system in SYSTEMS:
            one = base if system == "baseline" else by[name, system, "sieving"]
            yield {
                "workload": name,
                "system": system,
                "rule": rule,
                "seconds": one.seconds,
                "speedup": base.seconds / one.seconds,
                "fetch_busy_s": one.busy[0],
                "restructure_busy_s": one.busy[1],
                "copy_busy_s": one.busy[2],
                "kernel_busy_s": one.busy[3],
                "kernel_idle_s": one.idle,
                "idle_removed": 1 - one.idle / base.idle if base.idle else 0.0,
            }


def _mean(rows: Sequence[dict[str, Any]], rule: str, system: str) -> dict[str, Any]:
    of = [row for row in rows if (row["rule"], row["system"]) == (rule, system)]
    speedups = [row["speedup"] for row in of]
    return {
        "rule": rule,
        "system": system,
        "geometric_mean": geometric(speedups),
        "arithmetic_mean": sum(speedups) / len(speedups),
        "median": sorted(speedups)[len(speedups) // 2],
        "idle_removed": sum(row["idle_removed"] for row in of) / len(of),
    }


def _answers(
    means: Sequence[dict[str, Any]], seconds: dict[tuple[str, str, str], float], names: Sequence[str]
) -> list[Answer]:
    def mean(system: str) -> dict[str, Any]:
        return next(row for row in means if (row["rule"], row["system"]) == ("sieving", system))

    soft, hard, oracle = (mean(system) for system in ("software NDS", "hardware NDS", "oracle"))
    over = [seconds[n, "software NDS", "sieving"] / seconds[n, "hardware NDS", "sieving"] for n in names]
    answers = [
        Answer(
            "nds.fig10.sw_speedup",
            soft["arithmetic_mean"],
            note="arithmetic mean of ten: 'on average', as the published code's column of averages",
        ),
        Answer("nds.fig10.sw_speedup#geometric", soft["geometric_mean"], note="geometric mean of ten"),
        Answer("nds.fig10.hw_speedup", hard["arithmetic_mean"], note="arithmetic mean of ten"),
        Answer("nds.fig10.hw_speedup#geometric", hard["geometric_mean"], note="geometric mean of ten"),
        Answer("nds.fig10.hw_vs_sw", geometric(over)),
        Answer("nds.fig10.sw_speedup#oracle_vs_sw", oracle["geometric_mean"] / soft["geometric_mean"], paper=1.0),
        Answer("nds.fig10.idle_sw", soft["idle_removed"]),
        Answer("nds.fig10.idle_sw#hardware", hard["idle_removed"], paper=0.76),
    ]
    if "BFS" in names:
        answers.append(
            Answer(
                "nds.fig10.sw_speedup#BFS",
                seconds["BFS", "baseline", "sieving"] / seconds["BFS", "software NDS", "sieving"],
                paper=1.0,
            )
        )
        answers.append(
            Answer(
                "nds.fig10.hw_speedup#BFS_minutes",
                bool(seconds["BFS", "baseline", "sieving"] > 60),
                note=f"6.2: the baseline takes more than a minute; here {seconds['BFS', 'baseline', 'sieving']:.0f} s",
            )
        )
    if "KMeans" in names:
        answers.append(
            Answer(
                "nds.fig10.hw_speedup#KMeans_minutes",
                seconds["KMeans", "baseline", "sieving"] / 60,
                paper=40.0,
                note="section 6.2: the baseline's KMeans takes up to 40 minutes",
            )
        )
    return answers


_FIGURES = [
    Figure(
        id="fig10a",
        title="Figure 10(a): speed-up of end-to-end latency over the baseline SSD",
        kind="bar",
        table="fig10",
        x="workload",
        y="speedup",
        series="system",
        y_label="times",
        y_log=True,
        points=[PaperPoint("software NDS", "BFS", 1.0, "7.2", "about")],
    ),
    Figure(
        id="fig10b",
        title="Figure 10(b): idle time removed before compute kernels",
        kind="bar",
        table="fig10",
        x="workload",
        y="idle_removed",
        series="system",
        y_label="share",
    ),
    Figure(
        id="means",
        title="How the mean depends on the baseline's rule",
        kind="bar",
        table="means",
        x="rule",
        y="arithmetic_mean",
        series="system",
        y_label="arithmetic mean of the speed-ups",
    ),
]

_ASSUMPTIONS = [
    "The baseline partitions its I/O by one rule: the runs of the kernel's sub-block, each straight to its place, or "
    "everything between first and last element of its inner dimensions, copied from there, whichever stage is shorter "
    "(rule 'sieving'); rule 'runs' is without the latter.",
    "One buffer between two stages, as the published code has; kernels take a roofline's time at peak rates.",
    "The oracle stores every sub-block in one piece, and takes no time on the host.",
]


def _of_variant(answer: Answer, variant: Variant) -> Answer:
    """Call an answer after its variant; the unit of a cache was chosen to fit KMeans, so that proves nothing."""
    if not variant.name:
        return answer
    claim, _, part = answer.claim.partition("#")
    fitted = bool(variant.unit_bytes) and part == "KMeans_minutes"
    named = f"{claim}#{part}-{variant.name}" if part else f"{claim}#{variant.name}"
    stated = claims()[claim]
    paper = (stated.range or stated.value) if answer.paper is None else answer.paper
    return replace(answer, claim=named, calibrated=answer.calibrated or fitted, paper=paper)


def _misfits(
    means: list[dict[str, Any]], seconds: dict[tuple[str, str, str], float], names: Sequence[str]
) -> list[str]:
    said = []
    for system in ("software NDS", "hardware NDS"):
        by = {row["rule"]: row for row in means if row["system"] == system}
        one, other = by["sieving"], by["runs"]
        said.append(
            f"{system}: the paper says 'on average', which is the arithmetic mean unless it says otherwise, and not "
            f"how its baseline partitions I/O. Ours are {one['arithmetic_mean']:.2f} (arithmetic), "
            f"{one['geometric_mean']:.2f} (geometric) and {one['median']:.2f} (median); over one that reads only the "
            f"runs it wants, {other['arithmetic_mean']:.2f}, {other['geometric_mean']:.2f} and {other['median']:.2f}."
        )
    if "KMeans" in names:
        said.append(
            f"The baseline's KMeans takes {seconds['KMeans', 'baseline', 'sieving'] / 60:.0f} minutes here, up to 40 "
            "in the paper: its columns are 8 KB a row, where a program that keeps 2 requests on their way is slow, and "
            "which lie on few dies, so that more requests help little (nds.kmeans-dies). A host that reads larger "
            "units and serves neighbours from memory would be faster (nds.fig10.host-cache)."
        )
        said.append(_common_cause(seconds, names))
    return said


def _common_cause(seconds: dict[tuple[str, str, str], float], names: Sequence[str]) -> str:
    """Describe the means that would follow if the baseline's KMeans took the paper's time."""
    found = []
    for system in ("software NDS", "hardware NDS"):
        times = [seconds[name, "baseline", "sieving"] for name in names]
        times = [40 * 60.0 if name == "KMeans" else time for name, time in zip(names, times, strict=True)]
        ratios = [time / seconds[name, system, "sieving"] for name, time in zip(names, times, strict=True)]
        found.append(f"{sum(ratios) / len(ratios):.2f} ({system})")
    return (
        "Both arithmetic means and the baseline's KMeans are one miss: with its KMeans at the paper's 40 minutes they "
        f"would be {' and '.join(found)}, 5.07 and 5.73 in the paper."
    )


EXPERIMENT = Experiment(
    id="nds.fig10",
    title="NDS, Figure 10: ten workloads end to end",
    question="How much faster are applications whose storage knows the dimensions of their data?",
    run=run,
    claims=("nds.fig10.sw_speedup", "nds.fig10.hw_speedup", "nds.fig10.hw_vs_sw", "nds.fig10.idle_sw"),
    parameters={
        "workloads": Parameter(list(TABLE_1), "which of Table 1"),
        "divide": Parameter(1, "by what each dimension of the data is divided", small=16),
        "samples": Parameter(1, "fetches of each shape that are simulated; they stand for all", small=1),
    },
    devices=("nds-prototype",),
    minutes=2.0,
)
