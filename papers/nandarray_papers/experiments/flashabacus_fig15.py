"""Figure 15 of FlashAbacus: workers that compute, and power, over time: the conventional system and IntraO3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, Parameter, Result
from nandarray.model import accelerator
from nandarray_papers.flashabacus.systems import CALIBRATED, PARAMETERS, Sizes, calibrated, submitted

__all__ = ["EXPERIMENT"]

_SYSTEMS = ("simd", "intra-out-of-order")
_WORKERS = 6
#: Watts of Table 1, and the backbone's idle share, as the platform has them.
_WORKER, _DRAM, _FIRMWARE, _BACKBONE, _IDLE_BACKBONE, _SSD = 0.8, 0.7, 1.6, 11.0, 0.3, 22.0


def _power(system: str, idle: float, host: float, computing: float, storage: float) -> float:
    workers = _WORKER * (computing + idle * (_WORKERS - computing)) + _DRAM
    if system == "simd":
        return workers + host + _SSD * storage
    return workers + _FIRMWARE + _BACKBONE * (storage + _IDLE_BACKBONE * (1 - storage))


def series(name: str, system: str, sizes: Sizes) -> dict[str, Any]:
    """Return a system's activity, slot by slot."""
    values = calibrated()
    found = accelerator.run(submitted(name, sizes), system, values)
    activity, seconds = found["activity"], found["seconds"]
    width, rows = activity["slot_s"], []
    for number in range(int(seconds / width) + 1):
        lasts = min(width, seconds - number * width)
        if lasts <= 0:
            break

        def share(part: str, number: int = number, lasts: float = lasts) -> float:
            slots = activity[part]
            return float(slots[number] / lasts) if number < len(slots) else 0.0

        computing, storage = min(_WORKERS, share("compute")), min(1.0, share("storage"))
        rows.append(
            {
                "system": system,
                "time_s": number * width,
                "computing": computing,
                "storage": storage,
                "host": min(1.0, share("host")),
                "power_W": _power(system, values["worker_idle_share"], values["host_w"], computing, storage),
            }
        )
    return {"rows": rows, "seconds": seconds}


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float:
    return float(sum(row[column] for row in rows) / len(rows)) if rows else 0.0


def _ratio(idle: float, ours: float, theirs: float) -> float:
    """Return IntraO3's power of workers over SIMD's, for mean numbers of computing workers."""

    def power(computing: float) -> float:
        return computing + idle * (_WORKERS - computing)

    return power(ours) / power(theirs)


def run(context: Context) -> Result:
    """Run the workload on both systems."""
    sizes = Sizes.of(context)
    cases = [(context["workload"], system, sizes) for system in _SYSTEMS]
    simd, o3 = context.map(series, cases, "systems")
    rows = [*simd["rows"], *o3["rows"]]
    # Storage accesses of the host, and pure computation, which has none; IntraO3 overlaps both.
    moving = [row for row in simd["rows"] if row["host"] > 0.9]  # noqa: PLR2004
    pure = [row for row in simd["rows"] if row["computing"] > 0 and row["host"] < 0.1]  # noqa: PLR2004
    ours = [row for row in o3["rows"] if row["storage"] > 0] or o3["rows"]
    busy = [row for row in o3["rows"] if row["computing"] > 0]
    theirs_at, ours_at = _mean(pure, "computing"), _mean(busy, "computing")
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _ratio(middle, ours_at, theirs_at) > 1.21 else (low, middle)  # noqa: PLR2004
    used = calibrated()["worker_idle_share"]
    return Result(
        tables={
            "activity": rows,
            "calibration": [{"name": "worker_idle_share", "fitted": high, "used": used}],
        },
        answers=[
            Answer("flashabacus.fig15a.sooner_us", (simd["seconds"] - o3["seconds"]) * 1e6),
            Answer(
                "flashabacus.fig15b.storage_power",
                (_mean(moving, "power_W") or _mean(simd["rows"], "power_W")) / _mean(ours, "power_W"),
                note="rests on the host's power, which is fitted on 3(e)",
            ),
            Answer(
                "flashabacus.fig15b.compute_power",
                _ratio(used, ours_at, theirs_at),
                calibrated=True,
                note=f"{theirs_at:.2f} workers compute of SIMD's, {ours_at:.2f} of IntraO3's",
            ),
        ],
        figures=[
            Figure(
                "fig15a",
                "Figure 15(a): workers that compute",
                "line",
                "activity",
                "time_s",
                "computing",
                "system",
                y_label="workers",
            ),
            Figure("fig15b", "Figure 15(b): power", "line", "activity", "time_s", "power_W", "system"),
        ],
        assumptions=[
            CALIBRATED,
            f"The text does not name the workload: {context['workload']}, whose bytes are full size.",
            "Functional units are drawn as workers that compute: a worker's units in use are its kernel's, on either "
            "system.",
        ],
        misfits=[
            f"IntraO3 ends {simd['seconds'] - o3['seconds']:.1f} s sooner, not 3600 us: the text's run of some "
            "milliseconds is a part of a workload, and it does not say of which."
        ],
    )


EXPERIMENT = Experiment(
    id="flashabacus.fig15",
    title="FlashAbacus, Figure 15: workers and power over time",
    question="When does each system compute, and what does it take?",
    run=run,
    claims=(
        "flashabacus.fig15a.sooner_us",
        "flashabacus.fig15b.storage_power",
        "flashabacus.fig15b.compute_power",
    ),
    parameters={
        "workload": Parameter("MX1", "the workload", small="ATAX"),
        **PARAMETERS,
    },
    minutes=1,
)
