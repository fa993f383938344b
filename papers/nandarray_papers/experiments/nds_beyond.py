"""Beyond the NDS paper: its workloads on other devices, its idea on a faster link, in more dimensions.

Nothing here has a figure of the paper beside it. Devices keep their own constants; the host copies as calibrated on
Figure 9(a) of the paper.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from nandarray.errors import NandarrayError
from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result
from nandarray_papers.experiments.nds_fig9 import boxes_of
from nandarray_papers.experiments.nds_fig10 import geometric, sized
from nandarray_papers.nds import calibration
from nandarray_papers.nds.fetching import fetched, ran
from nandarray_papers.nds.systems import Baseline, Box, Nds
from nandarray_papers.workloads import TABLE_1

__all__ = ["EXPERIMENTS", "Case", "access", "plane", "workload"]

SYSTEMS = ("baseline", "software NDS", "hardware NDS")
ITEM = 8


def workload(device: str, name: str, divide: int, system: str, seed: int) -> tuple[float, str]:
    """Run a workload on a preset, each dimension of the data divided by ``divide``; ``system`` is one of ``SYSTEMS``.

    Seconds are returned; or infinity, and why it cannot be.
    """
    one = sized(name, divide)
    try:
        times = fetched(one, system, calibration.device(device), 1, seed, building_block=None)
    except NandarrayError as error:
        return math.inf, str(error)
    return ran(one, times).seconds, ""


def presets(context: Context) -> Result:
    """Run the ten workloads on every preset."""
    cases = [
        (device, name, context["divide"], system, context.seed)
        for device in context["devices"]
        for name in context["workloads"]
        for system in SYSTEMS
    ]
    found = dict(zip(((c[0], c[1], c[3]) for c in cases), context.map(workload, cases, "workloads"), strict=True))
    rows, means, left_out = [], [], {}
    for device in context["devices"]:
        speedups: dict[str, list[float]] = {}
        for name in context["workloads"]:
            base = found[device, name, "baseline"][0]
            for system in SYSTEMS:
                seconds, why = found[device, name, system]
                if why or math.isinf(base):
                    left_out[device] = why or found[device, name, "baseline"][1]
                    continue
                rows.append(
                    {
                        "device": device,
                        "workload": name,
                        "system": system,
                        "seconds": seconds,
                        "speedup": base / seconds,
                    }
                )
                speedups.setdefault(system, []).append(base / seconds)
        if len(speedups.get("hardware NDS", [])) == len(context["workloads"]):
            soft, hard = geometric(speedups["software NDS"]), geometric(speedups["hardware NDS"])
            means.append({"device": device, "software": soft, "hardware": hard, "hardware_over_software": hard / soft})
    return Result(
        tables={"presets": rows, "means": means, "hardware": [row for row in rows if row["system"] == "hardware NDS"]},
        figures=[
            Figure(
                id="presets",
                title="Speed-up of hardware NDS over a conventional SSD of the same make",
                kind="heatmap",
                table="hardware",
                x="workload",
                y="device",
                value="speedup",
            )
        ],
        assumptions=[*calibration.ASSUMPTIONS[2:], "Building blocks are those of equations 1 to 4 for each device."],
        misfits=[f"{device} is left out: {why}" for device, why in sorted(left_out.items())],
    )


class Case(NamedTuple):
    """Sub-blocks of a square matrix of doubles that are read on a preset with changes; see :func:`boxes_of`."""

    changes: dict[str, Any]
    device: str
    system: str
    kind: str
    n: int
    size: int
    seed: int


def access(case: Case) -> float:
    """Read sub-blocks of a square matrix of doubles; return GB/s."""
    described, n = calibration.device(case.device, case.changes), case.n
    boxes = boxes_of(case.kind, n, case.size, 1 if case.kind != "square" else 4)
    if case.system == "baseline":
        return Baseline(described, (n, n), ITEM, seed=case.seed).read(boxes).GBps
    with Nds(described, (n, n), "f8", in_device=case.system == "hardware NDS", seed=case.seed) as nds:
        nds.fill(boxes)
        return nds.read(boxes).GBps


def pcie5(context: Context) -> Result:
    """Return the device with faster links and channels."""
    links = {"RDMA, 40 Gb/s": {}, **{f"PCIe {g} x4": _pcie(g) for g in (3, 4, 5)}}
    cases = [
        Case(
            {**link, "bus.rate": f"{rate} MT/s x8"},
            "nds-prototype",
            system,
            kind,
            context["n"],
            context["size"],
            context.seed,
        )
        for link in links.values()
        for rate in context["rates_MTps"]
        for kind in ("rows", "square")
        for system in SYSTEMS
    ]
    names = [name for name in links for _ in context["rates_MTps"] for _ in ("rows", "square") for _ in SYSTEMS]
    found = context.map(access, [(case,) for case in cases], "links")
    rows = [
        {
            "link": name,
            "rate_MTps": int(case.changes["bus.rate"].split()[0]),
            "access": case.kind,
            "system": case.system,
            "GBps": gbps,
        }
        for name, case, gbps in zip(names, cases, found, strict=True)
    ]
    by = {(row["link"], row["rate_MTps"], row["access"], row["system"]): row["GBps"] for row in rows}
    gains = [
        {
            "link": link,
            "rate_MTps": rate,
            "series": f"{link}, {kind}",
            "access": kind,
            "hardware_over_software": by[link, rate, kind, "hardware NDS"] / by[link, rate, kind, "software NDS"],
            "hardware_over_baseline": by[link, rate, kind, "hardware NDS"] / by[link, rate, kind, "baseline"],
        }
        for link in links
        for rate in context["rates_MTps"]
        for kind in ("rows", "square")
    ]
    return Result(
        tables={"pcie5": rows, "gains": gains},
        figures=[
            Figure(
                id="gains",
                title="What hardware NDS gains over software NDS",
                kind="line",
                table="gains",
                x="rate_MTps",
                y="hardware_over_software",
                series="series",
                x_label="MT/s of each of 32 channels",
                y_label="times",
                x_log=True,
                caption="A host thread copies as fast as before; assembling in the device follows the link.",
            )
        ],
        assumptions=[
            *calibration.ASSUMPTIONS[2:],
            "Building blocks by equation 2. Firmware and host stay the prototype's.",
        ],
    )


def _pcie(generation: int) -> dict[str, Any]:
    return {
        "link.rate": f"PCIe {generation} x4",
        "link.packet_payload": "256 B",
        "link.packet_overhead": "28 B",
        "link.t_propagate": "200 ns",
    }


def plane(shape: tuple[int, ...], kind: str, system: str, seed: int) -> float:
    """Read a part of a space of doubles by one of ``SYSTEMS``; return GB/s.

    The part is a plane across an axis, ``"across 0"``, ``"across 1"``, ..., or a ``"cube"``.
    """
    if kind == "cube":
        box: Box = tuple(slice(0, max(1, n // 4)) for n in shape)
    else:
        axis = int(kind.split()[1])
        box = tuple(slice(0, max(1, n // 32) if i == axis else n) for i, n in enumerate(shape))
    device = calibration.device()
    if system == "baseline":
        return Baseline(device, shape, ITEM, seed=seed).read([box]).GBps
    with Nds(device, shape, "f8", in_device=system == "hardware NDS", seed=seed) as nds:
        nds.fill([box])
        return nds.read([box]).GBps


def dimensions(context: Context) -> Result:
    """Read spaces of two to four dimensions across every axis."""
    shapes = [tuple(shape) for shape in context["shapes"]]
    cases = [
        (shape, kind, system, context.seed)
        for shape in shapes
        for kind in [*(f"across {i}" for i in range(len(shape))), "cube"]
        for system in SYSTEMS
    ]
    found = context.map(plane, cases, "spaces")
    rows = [
        {
            "shape": "x".join(map(str, case[0])),
            "dimensions": len(case[0]),
            "access": case[1],
            "what": f"{len(case[0])}-D {case[1]}",
            "system": case[2],
            "GBps": gbps,
        }
        for case, gbps in zip(cases, found, strict=True)
    ]
    worst = [
        {
            "dimensions": d,
            "system": s,
            "worst_GBps": min(r["GBps"] for r in rows if (r["dimensions"], r["system"]) == (d, s)),
        }
        for d in sorted({row["dimensions"] for row in rows})
        for s in SYSTEMS
    ]
    return Result(
        tables={"dimensions": rows, "worst": worst},
        figures=[
            Figure(
                id="dimensions",
                title="Slabs across every axis, and cubes, in two to four dimensions",
                kind="bar",
                table="dimensions",
                x="what",
                y="GBps",
                series="system",
                y_label="GB/s",
                y_log=True,
            )
        ],
        assumptions=[
            *calibration.ASSUMPTIONS[2:],
            "Building blocks by the equations; four dimensions as this engine extends them.",
        ],
    )


EXPERIMENTS = (
    Experiment(
        id="beyond.presets",
        title="The ten workloads on every preset device",
        question="Which devices gain from knowing the dimensions of their data, and how much?",
        run=presets,
        parameters={
            "devices": Parameter(
                [
                    "nds-prototype",
                    "samsung-970-pro",
                    "samsung-z-nand",
                    "tlc-enterprise",
                    "qlc-enterprise",
                    "optane-like",
                    "assasin",
                    "flashabacus",
                    "coden",
                    "mqsim-ideal",
                    "mqsim-default",
                ],
                "presets",
                small=["nds-prototype", "samsung-970-pro"],
            ),
            "workloads": Parameter(list(TABLE_1), "which of Table 1", small=["BFS", "Hotspot", "TTV"]),
            "divide": Parameter(2, "by what each dimension of the data is divided", small=32),
        },
        devices=("nds-prototype",),
        minutes=4.0,
    ),
    Experiment(
        id="beyond.pcie5",
        title="Hardware NDS on faster links",
        question="What does assembling in the device gain when the link is faster than a host thread copies?",
        run=pcie5,
        parameters={
            "n": Parameter(32768, "side of the matrix of doubles", small=2048),
            "size": Parameter(2048, "rows, or side of the squares read", small=512),
            "rates_MTps": Parameter(
                [250, 400, 800, 1600], "MT/s of each of 32 channels", small=[250, 1600], fractions=True
            ),
        },
        devices=("nds-prototype",),
        minutes=1.0,
    ),
    Experiment(
        id="beyond.dimensions",
        title="Three and four dimensions",
        question="Is every axis of a space as fast as every other, in more dimensions than the paper measures?",
        run=dimensions,
        parameters={
            "shapes": Parameter(
                [[16384, 16384], [640, 640, 640], [128, 128, 128, 128]],
                "shapes of doubles, about 2 GB each",
                small=[[512, 512], [64, 64, 64], [32, 32, 32, 32]],
            )
        },
        devices=("nds-prototype",),
        minutes=0.5,
    ),
)
