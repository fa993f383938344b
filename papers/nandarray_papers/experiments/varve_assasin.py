"""VarVE on ASSASIN's cores, Figures 9.2 and 9.3: kernels beside modelled flash, with its limit and without.

Three devices run the same work: scalar cores behind caches and DRAM (Baseline of Table 7.3), scalar cores with data
from buffers beside them (Sp), and these cores with VarVE of 256 bits. The dissertation multiplies the gains of its
chapters 7 and 8 (1.9 and 8.9); here they are run together. Speed-up, power and area follow from the runs and from the
parts of Tables 7.4 and 9.1, whose inconsistencies are named in ``misfits`` and fitted by nothing.

The claims judged were chosen before the first run: the bound of 8 GB/s and the three of Figure 9.3. Table 9.1 is an
input.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import nandarray
from nandarray import Program
from nandarray.lab.experiment import Answer, Context, Experiment, Figure, PaperPoint, Parameter, Result
from nandarray_papers.assasin.measure import ARRAY_GBPS, measure
from nandarray_papers.assasin.work import Work
from nandarray_papers.varve.filters import FILTERS
from nandarray_papers.varve.kernels import raid5, raid5_data

__all__ = ["EXPERIMENT", "run_one"]

#: Name: device, form of the program, target.
ENGINES = {
    "Baseline": ("assasin-baseline", "scalar", "rv32im"),
    "ASSASIN": ("assasin-sp", "scalar", "rv32im"),
    "ASSASIN + V": ("assasin-varve", "v", "rv64gcv"),
    "ASSASIN + VarVE": ("assasin-varve", "full", "rv64gcv"),
}
#: Flash that bounds nothing, as in the bars of Figure 9.2.
_FREE = {
    "bus.rate": "9.6 GB/s",
    "nand.t_read": "1 us",
    "compute.crossbar_rate": "ideal",
    "compute.t_manage": "0 s",
    "compute.t_request": "0 s",
}
_FILTERS = ("5o", "6l", "10o", "20l")
_HALF_BYTES = 64 << 10
_PAGE_BYTES = 4 << 10


def _work(name: str, form: str, rows: int, times: int, scale: float) -> Work:
    if name == "raid5":
        inputs, _ = raid5_data(scale, rows)
        text = raid5(form)
    else:
        one = replace(next(one for one in FILTERS if one.name == name), wide=frozenset())
        inputs, _ = one.data(scale, rows)
        text = one.source(form, scale)
    task = _HALF_BYTES // len(inputs) // _PAGE_BYTES * _PAGE_BYTES
    return Work(
        name,
        lambda _kind, target: Program.from_c(text, target=target),
        [np.tile(one, times) for one in inputs],
        task_bytes=task * len(inputs),
    )


def run_one(name: str, engine: str, flash: str, size: tuple[int, int, float], seed: int) -> dict[str, Any]:
    """Run a filter, or ``"raid5"``, on one of ``ENGINES``: throughput, and power and area of the compute engines.

    ``flash`` is ``"8 GB/s"``, or ``"free"``: flash, crossbar and firmware bound nothing. ``size`` is the rows of the
    columns, how often they are repeated, the scale factor of TPC-H.
    """
    device, form, target = ENGINES[engine]
    described = nandarray.devices()[device]
    found = measure(
        described.with_(_FREE) if flash == "free" else described,
        _work(name, form, *size),
        form,
        seed=seed,
        target=target,
    )
    reasons = found["reasons"]
    return {
        "kernel": name,
        "engine": engine,
        "flash": flash,
        "GBps": found["GBps"],
        "instructions_a_byte": found["instructions_a_byte"],
        "wait_share": reasons.get("stream_wait", 0.0),
        "channels_busy": found["channels_busy"],
        "power_mW": found["power_mW"],
        "area_mm2": found["area_mm2"],
    }


def _mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def run(context: Context) -> Result:
    """Run all kernels on all engines, with the flash as described and without its bounds."""
    kernels = (*_FILTERS, "raid5")
    size = (context["rows"], context["times"], context["scale"])
    cases = [
        (name, engine, flash, size, context.seed)
        for flash in ("8 GB/s", "free")
        for engine in ENGINES
        for name in kernels
    ]
    rows = context.map(run_one, cases, "engines")
    by = {(row["kernel"], row["engine"], row["flash"]): row for row in rows}
    means = [
        {
            "engine": engine,
            "flash": flash,
            "GBps": _mean([by[name, engine, flash]["GBps"] for name in kernels]),
            "over_baseline": _mean(
                [by[name, engine, flash]["GBps"] / by[name, "Baseline", flash]["GBps"] for name in kernels]
            ),
            "power_mW": by["raid5", engine, flash]["power_mW"],
            "area_mm2": by["raid5", engine, flash]["area_mm2"],
        }
        for flash in ("8 GB/s", "free")
        for engine in ENGINES
    ]
    of = {(row["engine"], row["flash"]): row for row in means}
    base, full, free = of["Baseline", "free"], of["ASSASIN + VarVE", "8 GB/s"], of["ASSASIN + VarVE", "free"]
    gain = free["over_baseline"]
    power, area = base["power_mW"] / free["power_mW"], base["area_mm2"] / free["area_mm2"]
    most = max(row["GBps"] for row in rows if row["engine"] == "ASSASIN + VarVE" and row["flash"] == "free")
    return Result(
        tables={"runs": rows, "means": means},
        answers=[
            Answer(
                "zou.combined.fig9_2.bound_GBps",
                full["GBps"],
                note=f"geometric mean beside flash of 8 GB/s; beside free flash {free['GBps']:.1f}, to {most:.1f}",
            ),
            Answer("zou.combined.fig9_3", gain, note="free flash, over Baseline; the text multiplies 1.9 and 8.9"),
            Answer("zou.combined.fig9_3.power", gain * power, note="powers of Tables 7.4 (Baseline) and 9.1"),
            Answer("zou.combined.fig9_3.area", gain * area, note="areas of Tables 7.4 (Baseline) and 9.1"),
            Answer("zou.combined.table9_1.eight_mW", free["power_mW"], input=True),
            Answer("zou.combined.table9_1.eight_mm2", free["area_mm2"], input=True),
        ],
        figures=[
            Figure(
                id="fig9_2",
                title="Figure 9.2: throughput of eight cores, geometric mean",
                kind="bar",
                table="means",
                x="engine",
                y="GBps",
                series="flash",
                y_label="GB/s of input",
                points=[PaperPoint("8 GB/s", "ASSASIN + VarVE", ARRAY_GBPS, "9.1.1, the flash array's bound")],
            )
        ],
        assumptions=[
            "Cores are those of the authors' gem5 scripts (zou-2023): one instruction a nanosecond, vector ones, too. "
            "VarVE reads its packed streams in the halves of Sp's ping-pong buffer, 64 bytes an access: our stream "
            "buffers serve stream instructions alone.",
            "Kernels are four filters whose columns are all of 32 bits, and RAID5 of four strips: a task has whole "
            "pages of each input. Columns are repeated to give all cores work.",
            "Free flash: channels of 9.6 GB/s (the fastest described), sensing of 1 us, no time of crossbar and "
            "firmware. DRAM stays.",
        ],
        misfits=_misfits(of, full["GBps"], gain, power, area),
    )


def _misfits(
    of: dict[tuple[str, str], dict[str, Any]], bound: float, gain: float, power: float, area: float
) -> list[str]:
    free = {engine: of[engine, "free"] for engine in ENGINES}
    memory = free["ASSASIN"]["over_baseline"]
    vector = free["ASSASIN + VarVE"]["GBps"] / free["ASSASIN"]["GBps"]
    return [
        f"17 is the product of 1.9 and 8.9, no run. Here ASSASIN gains {memory:.2f}, VarVE {vector:.2f} on its cores, "
        f"and both together {gain:.1f}; with the flash's bound they have {bound:.2f} GB/s.",
        "Power efficiency of 4 at a speed-up of 17 implies a baseline of 235 mW, area efficiency of 32 one of 7.7 mm2; "
        f"Table 7.4 has {free['Baseline']['power_mW']:.1f} mW and {free['Baseline']['area_mm2']:.2f} mm2. With these "
        f"the text's own 17 gives {17 * power:.2f} and {17 * area:.1f}; nothing is fitted.",
        "Table 9.1 has an ASSASIN core of 0.203 mm2, an eighth of Table 7.4's total, but of 22 mW, 14 times as much: "
        "the area is of Ibex with CACTI's memories, the power apparently of Ariane.",
    ]


EXPERIMENT = Experiment(
    id="varve.assasin",
    title="VarVE on ASSASIN's cores, Figures 9.2 and 9.3",
    question="Do data past DRAM and variable-width vectors multiply, and what bounds them?",
    run=run,
    claims=(
        "zou.combined.fig9_2.bound_GBps",
        "zou.combined.fig9_3",
        "zou.combined.fig9_3.power",
        "zou.combined.fig9_3.area",
        "zou.combined.table9_1.eight_mW",
        "zou.combined.table9_1.eight_mm2",
    ),
    parameters={
        "rows": Parameter(65_536, "rows of a column", small=8_192),
        "times": Parameter(8, "how often columns are repeated", small=2),
        "scale": Parameter(0.1, "scale factor of TPC-H", small=0.01),
    },
    devices=("assasin-baseline", "assasin-sp", "assasin-varve"),
    minutes=1.0,
)
