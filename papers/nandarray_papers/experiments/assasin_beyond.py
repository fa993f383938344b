"""Beyond the ASSASIN dissertation: bounds of programs on other devices, saturating cores, designs within a budget.

Programs run on preset devices as they are, and with a faster link and the channels of ONFI 5; devices without cores get
eight of 1 GHz. The number of cores that saturates a program is the least with 95 % of the most throughput of all
numbers tried. A sweep of stream buffers (S, P), cores and clock keeps to the area and the power of Baseline; its best
points are a Pareto front. Answers no claim.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import nandarray
from nandarray import programs
from nandarray.device import Description
from nandarray.errors import InvalidError
from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result
from nandarray.lab.pareto import front
from nandarray.programs.advise.samples import sample, use_of
from nandarray.programs.advise.simulate import simulate
from nandarray_papers.assasin.engines import ASSUMPTIONS, ENGINES
from nandarray_papers.assasin.measure import measure
from nandarray_papers.assasin.work import Work, function, scan
from nandarray_papers.experiments.assasin_engines import geomean

__all__ = ["EXPERIMENT", "budget", "run_design", "run_device", "run_saturation"]

#: 8 bits at 3,600 MT/s: ONFI 5.
_ONFI_5 = {"bus.rate": "3600 MT/s x8"}
VARIANTS: dict[str, dict[str, Any]] = {
    "as described": {},
    "PCIe 5, ONFI 5": {"link.rate": "PCIe 5 x4", **_ONFI_5},
    "PCIe 6, ONFI 5": {"link.rate": "PCIe 6 x4", **_ONFI_5},
}
FUNCTIONS = ("Stat", "RAID6", "AES", "6l")
ENOUGH = 0.95


def _device(name: str, variant: str) -> Description:
    device = nandarray.devices()[name]
    if not device.resolved["compute"]:
        device = device.with_({"compute.cores": 8, "compute.clock": "1 GHz"})
    return device.with_(VARIANTS[variant]) if VARIANTS[variant] else device


def _input(device: Description) -> str:
    """Return the way of a task's input to the device's cores."""
    core = device.resolved["compute"]["core"]
    return str(core["input_source"]) if core else "dram"


def run_device(program: str, name: str, variant: str, seed: int) -> dict[str, Any]:
    """Run a ready-made program's sample on a preset in one of :data:`VARIANTS`.

    The row has ``GBps`` of input and what bounds it; None where the device cannot run the program, with the reason.
    """
    device = _device(name, variant)
    inputs, scalars, parameters = sample(program, seed)
    size = sum(one.nbytes for one in inputs)
    found: dict[str, Any] = {"program": program, "device": name, "variant": variant, "bytes": size}
    kind = "stream" if _input(device) == "stream" else "block"
    try:
        made = programs.get(program, **parameters, kind=kind)
        # Every core has work: two tasks, of a program with a state two runs of tasks.
        shares = device.resolved["compute"]["cores"] * 2 * (_TASKS_A_RUN if made.metadata.get("state_bytes") else 1)
        task_bytes = max(_TASK_BYTES, inputs[0].nbytes // shares // _TASK_BYTES * _TASK_BYTES)
        one = simulate(made, inputs, scalars, use_of(program), device, task_bytes=task_bytes)
    except (InvalidError, nandarray.ProgramFailedError) as refused:
        return {**found, "GBps": None, "bound": "refused", "busy": None, "reason": str(refused)[:160]}
    busy = one.busy[one.bound]
    bound = one.bound if busy >= _BOUND else f"latency ({one.bound})"
    return {**found, "GBps": size / one.seconds / 1e9, "bound": bound, "busy": busy, "reason": ""}


#: Tasks of a program with a state that one core gets together, and the least bytes of a task.
_TASKS_A_RUN = 16
_TASK_BYTES = 4096
#: A part that is busy for less of the time bounds nothing: the program waits for answers.
_BOUND = 0.5


def _work(name: str, cores: int, scale: float, seed: int) -> Work:
    if name in FUNCTIONS[:3]:
        return function(name, cores * (64 << 10 if name == "AES" else 1 << 20), seed)
    return scan(name, cores << 18, scale)


def run_saturation(name: str, cores: int, variant: str, scale: float, seed: int) -> dict[str, Any]:
    """Run one of :data:`FUNCTIONS` on a number of Sb's cores in one of :data:`VARIANTS`; ``scale`` is TPC-H's."""
    device = ENGINES["Sb"].description(compute__cores=cores).with_(VARIANTS[variant])
    work = _work(name, cores, scale, seed)
    # Channels are faster than eight GB/s here: their share is taken from the report.
    found = measure(device, work, "stream", seed=seed, task_bytes=_task_bytes(name))
    busy = max(found["channel_seconds"]) / found["seconds"]
    waits = found["reasons"].get("stream_wait", 0.0)
    return {
        "function": name,
        "variant": variant,
        "what": f"{name}, {variant}",
        "cores": cores,
        "GBps": found["GBps"],
        "channels_busy": busy,
        "wait_share": waits,
    }


def _task_bytes(name: str) -> int | None:
    return 16 << 10 if name == "AES" else None


def _saturating(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for name, variant in dict.fromkeys((one["function"], one["variant"]) for one in rows):
        some = [one for one in rows if (one["function"], one["variant"]) == (name, variant)]
        most = max(one["GBps"] for one in some)
        least = next(one for one in some if one["GBps"] >= ENOUGH * most)
        found.append(
            {
                "function": name,
                "variant": variant,
                "cores": least["cores"],
                "is_saturated": least["cores"] < some[-1]["cores"],
                "GBps": most,
                "bound": "channels" if least["channels_busy"] > 1 - least["wait_share"] else "cores",
            }
        )
    return found


def budget() -> tuple[float, float]:
    """Return the area in mm2 and the power in mW of Baseline's compute engines (Table 7.4)."""
    return _cost(ENGINES["Baseline"].description())


def _cost(device: Description, buffers: float = 1.0, clock: float = 1.0) -> tuple[float, float]:
    """Return area and power of a device's compute engines; buffers grow with their bytes, power with the clock."""
    compute = device.resolved["compute"]
    area = power = 0.0
    parts = zip(_PARTS, compute["parts"]["area_mm2"], compute["parts"]["power_uw"], strict=True)
    for part, area_mm2, power_uw in parts:
        count = 1 if part == "crossbar" else compute["cores"]
        grows = buffers if part.endswith("_buffers") else 1.0
        area += count * grows * area_mm2
        power += count * grows * clock * power_uw / 1e3
    return area, power


#: Parts of a core, in the order of a resolved description.
_PARTS = ("pipeline", "l1i", "l1d", "l2", "scratchpad", "input_buffers", "output_buffers", "crossbar", "vector")


def run_design(point: tuple[int, int, int, float], scale: float, seed: int) -> dict[str, Any]:
    """Run Stat and a scan on one design of Sb; ``scale`` is TPC-H's scale factor.

    The point is S and P (streams of a core, and pages of each), number of cores, their clock in GHz. The row has
    throughputs, area, power; where the buffers hold too little for a program, a reason and no throughputs.
    """
    streams, pages, cores, ghz = point
    ahead = streams * pages
    core = {"compute__core__streams": streams, "compute__core__stream_pages": pages}
    changes = {**core, "compute__read_ahead": ahead}
    device = ENGINES["Sb"].description(compute__cores=cores, compute__clock=f"{ghz} GHz", **changes)
    works = {name: _work(name, cores, scale, seed) for name in ("Stat", "6l")}
    reason, rates = "", {}
    try:
        rates = {name: measure(device, work, "stream", seed=seed)["GBps"] for name, work in works.items()}
    except (InvalidError, nandarray.ProgramFailedError) as refused:
        reason = str(refused)[:160]
    area, power = _cost(device, ahead / 16, ghz)
    return {
        "streams": streams,
        "pages": pages,
        "cores": cores,
        "GHz": ghz,
        "Stat_GBps": rates.get("Stat"),
        "scan_GBps": rates.get("6l"),
        "GBps": geomean(rates.values()) if rates else None,
        "area_mm2": area,
        "power_mW": power,
        "reason": reason,
    }


def run(context: Context) -> Result:
    """Run programs on devices, functions on cores, and designs."""
    seed, scale = context.seed, context["scale"]
    names = context["programs"]
    cases = list(itertools.product(names, context["devices"], VARIANTS))
    devices = context.map(run_device, [(*case, seed) for case in cases], "programs on devices")
    saturation = [
        (name, cores, variant, scale, seed)
        for name in FUNCTIONS
        for variant in list(VARIANTS)[:2]
        for cores in context["cores"]
    ]
    found = context.map(run_saturation, saturation, "functions on cores")
    grid = itertools.product(context["streams"], context["pages"], context["design_cores"], context["GHz"])
    designs = context.map(run_design, [(point, scale, seed) for point in grid], "designs")
    area, power = budget()
    fits = [one for one in designs if one["GBps"] and one["area_mm2"] <= area and one["power_mW"] <= power]
    columns = {key: [one[key] for one in fits] for key in ("GBps", "area_mm2", "power_mW")}
    best = front(columns, {"GBps": "max", "area_mm2": "min", "power_mW": "min"}) if fits else []
    kinds = {id(one): "front" if on else "within budget" for one, on in zip(fits, best, strict=True)}
    kinds |= {id(one): "cannot run" for one in designs if one["GBps"] is None}
    designs = [{**one, "what": kinds.get(id(one), "beyond budget")} for one in designs]
    return Result(
        tables={"devices": devices, "cores": found, "saturating": _saturating(found), "designs": designs},
        figures=_figures(),
        assumptions=[
            *ASSUMPTIONS,
            "Samples of programs are those of advice, a mebibyte each; devices without cores get eight of 1 GHz that "
            "take one instruction a cycle.",
            f"The budget is Baseline's: {area:.3f} mm2 and {power:.3f} mW. Area and power of stream buffers grow with "
            "S x P, power of a core with its clock; leakage is not told apart.",
        ],
    )


def _figures() -> list[Figure]:
    return [
        Figure(
            id="cores",
            title="Throughput over cores",
            kind="line",
            table="cores",
            x="cores",
            y="GBps",
            series="what",
            x_log=True,
            y_label="GB/s of input",
        ),
        Figure(
            id="designs",
            title="Designs of stream buffers, cores and clock: throughput over power",
            kind="scatter",
            table="designs",
            x="power_mW",
            y="GBps",
            series="what",
            x_label="mW",
            y_label="GB/s, geometric mean of Stat and a scan",
        ),
        Figure(
            id="areas",
            title="Designs of stream buffers, cores and clock: throughput over area",
            kind="scatter",
            table="designs",
            x="area_mm2",
            y="GBps",
            series="what",
            x_label="mm²",
            y_label="GB/s, geometric mean of Stat and a scan",
        ),
    ]


_SOME = ["stat", "filter", "psf", "parse", "raid6_encode", "aes128_encrypt", "sha256", "lz4_decompress", "histogram"]
_EVERY = sorted(set(programs.names()))

EXPERIMENT = Experiment(
    id="assasin.beyond",
    title="Beyond ASSASIN: programs on other devices, saturating cores, designs within a budget",
    question="What bounds programs beside the data on devices of today, and which design of cores is best?",
    run=run,
    claims=(),
    parameters={
        "programs": Parameter(_SOME, "ready-made programs", small=["stat", "filter"], deep=_EVERY),
        "devices": Parameter(
            ["assasin-baseline", "assasin-sb", "samsung-970-pro", "tlc-enterprise", "samsung-z-nand", "optane-like"],
            "presets",
            small=["assasin-sb", "tiny"],
            deep=sorted(nandarray.devices()),
        ),
        "cores": Parameter([1, 2, 4, 8, 16, 32], "cores", small=[1, 8]),
        "streams": Parameter([4, 8], "S: streams of a core", small=[8], deep=[2, 4, 8]),
        "pages": Parameter([1, 2, 4], "P: pages of a stream", small=[2], deep=[1, 2, 4, 8]),
        "design_cores": Parameter([4, 8, 12], "cores of a design", small=[4], deep=[2, 4, 6, 8, 12, 16]),
        "GHz": Parameter([0.5, 1.0, 1.5], "clocks", small=[1.0], deep=[0.5, 0.75, 1.0, 1.25, 1.5]),
        "scale": Parameter(0.1, "TPC-H's scale factor", small=0.01, deep=1.0),
    },
    devices=("assasin-sb",),
    minutes=3.0,
)
