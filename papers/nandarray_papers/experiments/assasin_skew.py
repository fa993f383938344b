"""Figure 7.18 of the ASSASIN dissertation: throughput where data lie unevenly on the channels.

Cores behind a crossbar, which get pages of any channel, are compared with cores that are bound to a channel's data. The
two middle layouts are not stated: 0.5 and 0.75 are taken. TPC-H is the scan of query 6. Functions that lose throughput
are run once more with slower cores and with faster flash: that tells what binds them (table ``causes``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, Parameter, Result
from nandarray_papers.assasin.engines import ASSUMPTIONS
from nandarray_papers.assasin.skew import measure
from nandarray_papers.assasin.work import Work, function, scan

__all__ = ["EXPERIMENT", "run_one"]

FUNCTIONS = ("Stat", "RAID6", "TPC-H", "AES")
COMPUTE_LIMITED = FUNCTIONS[1:]
#: Sb as it is, and with one thing changed.
CHANGES: dict[str, dict[str, str]] = {
    "as described": {},
    "cores of 250 MHz": {"compute__clock": "250 MHz"},
    "channels of 8 GB/s, sensing of 1 us": {"bus__rate": "8 GB/s", "nand__t_read": "1 us"},
}
#: Bytes of all inputs that a task has: small, so that cores end together.
TASK_BYTES = 32 << 10


def _work(name: str, size: int, seed: int, scale: float) -> Work:
    if name == "TPC-H":
        return replace(scan("6l", size, scale), task_bytes=TASK_BYTES)
    return replace(function(name, size // 8 if name == "AES" else size, seed), task_bytes=TASK_BYTES)


def run_one(name: str, skew: float, cores: str, given: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Run Stat, RAID6, TPC-H or AES on a layout of a skew of 0 to 1.

    With ``cores="crossbar"`` a core gets pages of any channel, with ``"channel"`` of its own alone. ``given`` has
    ``bytes`` of input (AES takes an eighth of them), TPC-H's ``scale``, and the ``change``, one of :data:`CHANGES`.
    """
    work = _work(name, given["bytes"], seed, given["scale"])
    found = measure(work, skew, pooled=cores == "crossbar", seed=seed, changes=CHANGES[given["change"]])
    return {"function": name, "cores": cores, "skew": skew, "bytes": work.bytes, **found}


def run(context: Context) -> Result:
    """Run every function on every layout, on both kinds of cores."""
    given = {"bytes": context["bytes"], "scale": context["scale"], "change": "as described"}
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
    causes = _causes(context, given, by, [name for name in COMPUTE_LIMITED if kept[name] < _KEPT])
    return Result(
        tables={
            "throughput": rows,
            "gains": [{"function": name, "skew": skew, "gain": gain} for (name, skew), gain in gains.items()],
            "causes": causes,
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
                y_label="throughput over the even layout's",
                series="what",
            )
        ],
        misfits=_misfits(kept, even, causes),
        assumptions=[
            *ASSUMPTIONS,
            "Skew is (max / average - 1) / (n - 1), which lies in 0..1; as printed, without the subtraction, it does "
            "not.",
            "One channel has more than its share, the others have equal ones. Channel-local cores are the crossbar's, "
            "each bound to the data of its channel.",
        ],
    )


#: A function that keeps less of its throughput has lost some of it.
_KEPT = 0.85


def _causes(
    context: Context, given: Mapping[str, Any], by: Mapping[tuple[str, str, float], float], names: list[str]
) -> list[dict[str, Any]]:
    """Run functions that lose throughput with one thing changed, on the even layout and on the most uneven one."""
    most = max(context["skews"])
    layouts = (("crossbar", 0.0), ("crossbar", most), ("channel", most))
    changes = list(CHANGES)[1:]
    cases = [
        (name, skew, cores, {**given, "change": change}, context.seed)
        for change in changes
        for name in names
        for cores, skew in layouts
    ]
    rates = [one["GBps"] for one in context.map(run_one, cases, "functions with one thing changed")]
    found = {("as described", name, *layout): by[name, *layout] for name in names for layout in layouts}
    found |= {
        (changed["change"], name, cores, skew): rate
        for (name, skew, cores, changed, _), rate in zip(cases, rates, strict=True)
    }
    return [
        {
            "change": change,
            "function": name,
            "even_GBps": found[change, name, "crossbar", 0.0],
            "kept": found[change, name, "crossbar", most] / found[change, name, "crossbar", 0.0],
            "gain": found[change, name, "crossbar", most] / found[change, name, "channel", most],
        }
        for change in CHANGES
        for name in names
    ]


def _misfits(kept: dict[str, float], even: dict[str, float], causes: list[dict[str, Any]]) -> list[str]:
    said = [
        f"{name} keeps {kept[name]:.2f} of its throughput, not all of it: eight cores take {even[name]:.2f} GB/s of "
        "the even layout, and the one channel that has all data gives 1 GB/s."
        for name in COMPUTE_LIMITED
        if kept[name] < _KEPT
    ]
    return said + [
        f"{one['function']} with {one['change']}: keeps {one['kept']:.2f}, and the crossbar gains {one['gain']:.2f}."
        for one in causes
        if one["change"] != "as described"
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
        "bytes": Parameter(4 << 20, "bytes of input; of AES an eighth", small=1 << 19, deep=16 << 20),
        "scale": Parameter(0.1, "TPC-H's scale factor", small=0.01, deep=1.0),
    },
    devices=("assasin-sb",),
    minutes=1.0,
)
