"""Figures 7.15 to 7.17 of the ASSASIN dissertation: throughput, utilisation and channels over the number of cores.

Each core loads every byte of its input once, at a byte a cycle ("if input data is always available, a 1 GHz core
achieves 1 GB/s"): for that, stream accesses take no half cycle here, as the figure's text has them. Eight cores are
measured once more with channels of twice the rate and with sensing of 1 us: that tells what a core waits for.
"""

from __future__ import annotations

from typing import Any

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, PaperPoint, Parameter, Result
from nandarray_papers.assasin.engines import ASSUMPTIONS, ENGINES, READ_AHEAD
from nandarray_papers.assasin.measure import ARRAY_GBPS, measure
from nandarray_papers.assasin.work import touch

__all__ = ["EXPERIMENT", "run_one"]

#: The authors' dist.py: 128 pages a job.
TASK_BYTES = 512 << 10
CORE_GBPS = 1.0
#: The device as it is, and with one resource out of the way.
WITHOUT: dict[str, dict[str, str]] = {
    "as described": {},
    "channels of 2 GB/s": {"bus__rate": "2 GB/s"},
    "sensing of 1 us": {"nand__t_read": "1 us"},
    "both": {"bus__rate": "2 GB/s", "nand__t_read": "1 us"},
}


def run_one(cores: int, read_ahead: int, tasks: int, seed: int, device: str = "as described") -> dict[str, Any]:
    """Scan with a number of cores, each with a number of tasks of 512 KiB, on one of :data:`WITHOUT`.

    A core holds ``read_ahead`` pages of an input ahead.
    """
    changes = {"compute__cores": cores, "compute__read_ahead": read_ahead, "compute__core__t_stream": 0}
    described = ENGINES["Sb"].description(**changes, **WITHOUT[device])
    work = touch(cores * tasks * TASK_BYTES, seed)
    found = measure(described, work, "stream", seed=seed, task_bytes=TASK_BYTES)
    busy = sum(value for reason, value in found["core_seconds"].items() if reason != "stream_wait")
    share = busy / (cores * found["seconds"])
    ideal = min(1.0, ARRAY_GBPS / (cores * CORE_GBPS))
    seconds = found["channel_seconds"]
    return {
        "device": device,
        "cores": cores,
        "read_ahead": read_ahead,
        "bytes": work.bytes,
        "GBps": found["GBps"],
        "GBps_a_core": found["GBps"] / cores,
        "utilisation": share,
        "normalised": share / ideal,
        "channels_busy": found["channels_busy"],
        "least_channel": min(seconds) / max(seconds),
        "channel_seconds": seconds,
        "report": found["report"],
    }


def run(context: Context) -> Result:
    """Scan with each number of cores, and with each depth of read-ahead on eight."""
    tasks, seed = context["tasks"], context.seed
    cases = [(cores, READ_AHEAD, tasks, seed, "as described") for cores in context["cores"]]
    cases += [(8, pages, tasks, seed, "as described") for pages in context["read_ahead"]]
    cases += [(8, READ_AHEAD, tasks, seed, device) for device in WITHOUT]
    measured = context.map(run_one, cases, "cores")
    rows = [{key: value for key, value in one.items() if key not in _LONG} for one in measured]
    ends = (len(context["cores"]), len(context["cores"]) + len(context["read_ahead"]))
    scaling, depths, causes = rows[: ends[0]], rows[ends[0] : ends[1]], rows[ends[1] :]
    eight = measured[ends[1]]
    below = [one for one in scaling if one["cores"] <= ARRAY_GBPS / CORE_GBPS]
    first, most = scaling[0], max(one["GBps"] for one in scaling)
    linear = min(one["GBps"] / (one["cores"] * first["GBps_a_core"]) for one in below)
    return Result(
        tables={
            "scaling": scaling,
            "read_ahead": [{**one, "calibrated": True} for one in depths],
            "causes": causes,
            "channels": [
                {"channel": number, "busy": seconds / (eight["bytes"] / (eight["GBps"] * 1e9))}
                for number, seconds in enumerate(eight["channel_seconds"])
            ],
        },
        answers=[
            Answer("zou.assasin.fig7_15.core_GBps", first["GBps_a_core"], calibrated=True, note=f"{_GIVEN}; {_FITTED}"),
            Answer("zou.assasin.fig7_15.array_GBps", most, calibrated=True, note=f"{_GIVEN}; {_FITTED}"),
            Answer(
                "zou.assasin.fig7_15.scaling#linear",
                linear,
                paper=1.0,
                calibrated=True,
                note=f"least of throughput a core over one's; {_FITTED}",
            ),
            Answer(
                "zou.assasin.fig7_15.scaling",
                min(one["normalised"] for one in scaling),
                note=f"of runs of {scaling[0]['bytes'] >> 10} KiB a core, the first page's 35 us among them",
            ),
            Answer(
                "zou.assasin.fig7_17.balance",
                eight["least_channel"] > 0.95 and eight["channels_busy"] > 0.8,  # noqa: PLR2004
                note=f"least busy channel over the busiest one {eight['least_channel']:.3f}, busy for "
                f"{100 * eight['channels_busy']:.0f} %",
            ),
        ],
        figures=_figures(),
        reports={f"{one['cores']}-cores": one["report"] for one in measured[: len(scaling)] if one["cores"] == 8},
        misfits=_misfits(scaling, causes),
        assumptions=[*ASSUMPTIONS, "Stream accesses cost no half cycle here: the text has a byte a cycle."],
    )


#: Both rates are bounds that the description has; a run shows whether they are reached.
_GIVEN = "reached of what the description gives"
_FITTED = "the pages that a core holds ahead were chosen on this figure"


def _figures() -> list[Figure]:
    return [
        Figure(
            id="fig7_15",
            title="Figure 7.15: throughput over cores",
            kind="line",
            table="scaling",
            x="cores",
            y="GBps",
            y_label="GB/s",
            points=[PaperPoint("", 8, 8.0, "7.3.4")],
        ),
        Figure(
            id="fig7_16",
            title="Figure 7.16: utilisation, over the ideal one",
            kind="line",
            table="scaling",
            x="cores",
            y="normalised",
            points=[PaperPoint("", 8, 0.98, "7.3.4", bound="at least")],
        ),
        Figure(
            id="fig7_17",
            title="Figure 7.17: share of the time in which each channel is busy, eight cores",
            kind="bar",
            table="channels",
            x="channel",
            y="busy",
        ),
        Figure(
            id="read_ahead",
            title="Throughput of eight cores over pages held ahead (16 is calibrated)",
            kind="line",
            table="read_ahead",
            x="read_ahead",
            y="GBps",
            x_log=True,
            y_label="GB/s",
            caption="P = 2 of Table 7.3 hides no read of 30 us: two pages in 34 us are 0.24 GB/s a core.",
        ),
    ]


#: Columns that no table has.
_LONG = ("report", "channel_seconds")


def _misfits(scaling: list[dict[str, Any]], causes: list[dict[str, Any]]) -> list[str]:
    if min(one["normalised"] for one in scaling) >= 0.98:  # noqa: PLR2004
        return []
    shares = ", ".join(f"{one['device']} {one['utilisation']:.3f}" for one in causes)
    return [
        "Cores that together need as much as the channels give wait for pages behind other cores' pages, on a channel "
        f"and on a die, of which chance puts several on one at a time. Utilisation of eight cores: {shares}.",
    ]


EXPERIMENT = Experiment(
    id="assasin.scaling",
    title="ASSASIN, Figures 7.15 to 7.17: throughput, utilisation and channels over cores",
    question="Does throughput grow with the number of cores until the flash array is saturated?",
    run=run,
    claims=(
        "zou.assasin.fig7_15.core_GBps",
        "zou.assasin.fig7_15.array_GBps",
        "zou.assasin.fig7_15.scaling",
        "zou.assasin.fig7_17.balance",
    ),
    parameters={
        "cores": Parameter([1, 2, 4, 6, 8, 10, 12, 16], "cores", small=[1, 2, 8]),
        "read_ahead": Parameter([2, 4, 8, 16, 32], "pages of an input that a core holds ahead", small=[2, 8]),
        "tasks": Parameter(8, "tasks of 512 KiB for each core", small=1, deep=32),
    },
    devices=("assasin-sb",),
    minutes=1.0,
)
