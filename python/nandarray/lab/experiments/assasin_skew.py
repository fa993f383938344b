"""Figure 7.18 of the ASSASIN dissertation: throughput where data lie unevenly on the channels.

Cores behind a crossbar, which get pages of any channel, are compared with cores that are bound to a channel's data. The
two middle layouts are not stated: 0.5 and 0.75 are taken. TPC-H is the scan of query 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nandarray.lab.assasin.engines import ASSUMPTIONS
from nandarray.lab.assasin.skew import measure
from nandarray.lab.assasin.work import Work, function, scan
from nandarray.lab.experiment import Answer, Context, Experiment, Figure, Parameter, Result

__all__ = ["EXPERIMENT", "run_one"]

FUNCTIONS = ("Stat", "RAID6", "TPC-H", "AES")
COMPUTE_LIMITED = FUNCTIONS[1:]
#: Bytes of all inputs that a task has: small, so that cores end together.
TASK_BYTES = 32 << 10


def _work(name: str, size: int, seed: int, scale: float) -> Work:
    if name == "TPC-H":
        return replace(scan("6l", size, scale), task_bytes=TASK_BYTES)
    return replace(function(name, size // 8 if name == "AES" else size, seed), task_bytes=TASK_BYTES)


def run_one(name: str, skew: float, cores: str, given: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Run one function on one layout.

    Parameters
    ----------
    name : str
        One of Stat, RAID6, TPC-H, AES.
    skew : float
        0 to 1.
    cores : {"crossbar", "channel"}
        Whether cores get pages of all channels or of their own.
    given : mapping
        ``bytes`` of input (of AES an eighth of them), and TPC-H's ``scale``.
    seed : int
        Of all chance.

    Returns
    -------
    dict
        A row of the table.
    """
    work = _work(name, given["bytes"], seed, given["scale"])
    found = measure(work, skew, pooled=cores == "crossbar", seed=seed)
    return {"function": name, "cores": cores, "skew": skew, "bytes": work.bytes, **found}


def run(context: Context) -> Result:
    """Run every function on every layout, on both kinds of cores."""
    given = {key: context[key] for key in ("bytes", "scale")}
    cases = [
        (name, skew, cores, given, context.seed)
        for name in FUNCTIONS
        for skew in context["skews"]
        for cores in ("crossbar", "channel")
    ]
    rows = context.map(run_one, cases, "functions on layouts")
    by = {(one["function"], one["cores"], one["skew"]): one["GBps"] for one in rows}
    rows = [
        {
            **one,
            "what": f"{one['function']}, {one['cores']}",
            "over_even": one["GBps"] / by[one["function"], one["cores"], 0.0],
        }
        for one in rows
    ]
    gains = {
        (name, skew): by[name, "crossbar", skew] / by[name, "channel", skew]
        for name in FUNCTIONS
        for skew in context["skews"]
        if skew
    }
    most = max(context["skews"])
    kept = {name: by[name, "crossbar", most] / by[name, "crossbar", 0.0] for name in FUNCTIONS}
    stat = [by["Stat", "crossbar", skew] for skew in sorted(context["skews"])]
    even = {name: by[name, "crossbar", 0.0] for name in FUNCTIONS}
    return Result(
        tables={
            "throughput": rows,
            "gains": [{"function": name, "skew": skew, "gain": gain} for (name, skew), gain in gains.items()],
        },
        answers=[
            Answer("zou.assasin.fig7_18.skew", max(gains.values()), note="the most of all functions and layouts"),
            *(
                Answer(f"zou.assasin.fig7_18.range#{name}", gains[name, most], note=f"at skew {most:g}")
                for name in COMPUTE_LIMITED
            ),
            *(Answer(f"zou.assasin.fig7_18.compute_limited#{name}", kept[name]) for name in COMPUTE_LIMITED),
            Answer(
                "zou.assasin.fig7_18.flash_limited",
                stat == sorted(stat, reverse=True) and kept["Stat"] == min(kept.values()),
                note="Stat's throughput with the crossbar falls with skew, and more than others' does",
            ),
        ],
        figures=[
            Figure(
                id="fig7_18",
                title="Figure 7.18: throughput over that of the even layout",
                kind="line",
                table="throughput",
                x="skew",
                y="over_even",
                series="what",
            )
        ],
        misfits=_misfits(kept, even),
        assumptions=[
            *ASSUMPTIONS,
            "Skew is (max / average - 1) / (n - 1), which lies in 0..1; as printed, without the subtraction, it does "
            "not.",
            "One channel has more than its share, the others have equal ones. Channel-local cores are the crossbar's, "
            "each bound to the data of its channel.",
        ],
    )


def _misfits(kept: dict[str, float], even: dict[str, float]) -> list[str]:
    return [
        f"{name} keeps {kept[name]:.2f} of its throughput, not all of it: eight cores take {even[name]:.2f} GB/s of "
        "the even layout, and the one channel that has all data gives 1 GB/s."
        for name in COMPUTE_LIMITED
        if kept[name] < 0.85  # noqa: PLR2004
    ]


EXPERIMENT = Experiment(
    id="assasin.skew",
    title="ASSASIN, Figure 7.18: throughput where data lie unevenly on the channels",
    question="What does a crossbar between channels and cores gain where channels hold unequal shares?",
    run=run,
    claims=(
        "zou.assasin.fig7_18.skew",
        "zou.assasin.fig7_18.range",
        "zou.assasin.fig7_18.compute_limited",
        "zou.assasin.fig7_18.flash_limited",
    ),
    parameters={
        "skews": Parameter([0.0, 0.25, 0.5, 0.75, 1.0], "layouts", small=[0.0, 1.0]),
        "bytes": Parameter(4 << 20, "bytes of input; of AES an eighth", small=1 << 19),
        "scale": Parameter(0.1, "TPC-H's scale factor", small=0.01),
    },
    devices=("assasin-sb",),
    minutes=1.0,
)
