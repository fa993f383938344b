"""Figure 12 of FlashAbacus: when each kernel of ATAX and of MX1 ends, on the five systems; with their screens."""

from __future__ import annotations

from typing import Any

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, Result
from nandarray.model import accelerator
from nandarray_papers.flashabacus.systems import CALIBRATED, PARAMETERS, SYSTEMS, Sizes, calibrated, submitted

__all__ = ["EXPERIMENT"]

WORKLOADS = ("ATAX", "MX1")
_DY, _O3 = "inter-dynamic", "intra-out-of-order"


def ends(name: str, system: str, sizes: Sizes) -> dict[str, list[dict[str, Any]]]:
    """Return when kernels of a workload end, in order, and the screens of the first seconds."""
    found = accelerator.run(submitted(name, sizes), system, calibrated())
    order = sorted((kernel["latency"], kernel["name"]) for kernel in found["kernels"])
    done = [
        {"workload": name, "system": system, "done": number + 1, "kernel": kernel, "end_s": end}
        for number, (end, kernel) in enumerate(order)
    ]
    screens = [
        {
            "workload": name,
            "system": system,
            "lane": f"{system} {span['worker']}",
            "worker": span["worker"],
            "kernel": f"{found['kernels'][span['kernel']]['name']} {span['kernel']}",
            "microblock": span["microblock"],
            "screen": span["screen"],
            "start_s": span["start"],
            "end_s": span["end"],
            "computed_s": span["computed"],
        }
        for span in found["spans"]
    ]
    return {"ends": done, "screens": screens}


def run(context: Context) -> Result:
    """Run both workloads on all systems."""
    sizes = Sizes.of(context)
    cases = [(name, system, sizes) for name in WORKLOADS for system in SYSTEMS]
    found = context.map(ends, cases, "workloads")
    rows = [row for one in found for row in one["ends"]]
    screens = [row for one in found for row in one["screens"] if row["workload"] == "ATAX"]
    by = {(name, system): one["ends"] for (name, system, _), one in zip(cases, found, strict=True)}
    atax = {system: [row["end_s"] for row in by["ATAX", system]] for system in SYSTEMS}
    first = {system: times[0] for system, times in atax.items() if system in (_DY, "intra-in-order", _O3)}
    holds = max(first, key=lambda system: first[system]) == _DY and all(
        ours <= theirs * 1.01 for ours, theirs in zip(atax[_O3], atax[_DY], strict=True)
    )
    last = {}
    for system in SYSTEMS:
        ended = by["MX1", system]
        last[system] = sum(row["end_s"] for row in ended[-8:]) / len(ended[-8:])
    late = max(ours / theirs for ours, theirs in zip(atax[_O3], atax[_DY], strict=True))
    return Result(
        tables={
            **{f"ends_{name}": [row for row in rows if row["workload"] == name] for name in WORKLOADS},
            "screens": screens,
        },
        answers=[
            Answer("flashabacus.fig12a.o3_first", bool(holds), note=f"IntraO3's latest against InterDy's: {late:.3f}"),
            Answer("flashabacus.fig12b.o3_vs_simd", last["simd"] / last[_O3]),
        ],
        figures=[
            *(
                Figure(
                    f"fig12_{name}",
                    f"Figure 12: kernels of {name} that are done",
                    "line",
                    f"ends_{name}",
                    "end_s",
                    "done",
                    "system",
                    x_label="seconds",
                    y_label="kernels",
                )
                for name in WORKLOADS
            ),
            Figure(
                "screens",
                "Screens of ATAX on workers",
                "timeline",
                "screens",
                "start_s",
                "lane",
                "kernel",
                value="end_s",
                x_label="seconds",
                y_label="system, worker",
                caption="A kernel has a colour; `nandarray.model.timeline` writes all of it for Perfetto.",
            ),
        ],
        assumptions=[
            CALIBRATED,
            "IntraO3's last kernels of ATAX end some per cent behind InterDy's: their serial microblocks are left "
            "for the end.",
            "The last two kernels are the last eight of MX1's 24 instances: two applications of four.",
        ],
    )


EXPERIMENT = Experiment(
    id="flashabacus.fig12",
    title="FlashAbacus, Figure 12: when kernels end",
    question="Which scheduler ends the first kernel first, and which the last?",
    run=run,
    claims=("flashabacus.fig12a.o3_first", "flashabacus.fig12b.o3_vs_simd"),
    parameters={
        **PARAMETERS,
    },
    minutes=1,
)
