"""Figure 9 of the NDS paper: fetching rows, columns and sub-matrices of a matrix, and writing it.

A matrix of 32,768 x 32,768 doubles (8 GiB) on the prototype's device; baseline SSD row by row and column by column,
software NDS, hardware NDS. Calibrated figures are marked; Figures 2, 3, 10 and section 7.3 are predicted with the same
constants (:mod:`nandarray_papers.nds.calibration`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, PaperPoint, Parameter, Result
from nandarray_papers.nds import calibration
from nandarray_papers.nds.systems import Baseline, Box, Moved, Nds

__all__ = ["EXPERIMENT", "boxes_of", "measure", "write"]

SYSTEMS = ("baseline row store", "baseline column store", "software NDS", "hardware NDS")
ITEM = 8


def boxes_of(access: str, n: int, size: int, count: int) -> list[Box]:
    """Return the sub-blocks that an access to a matrix of side ``n`` takes, one after the other, at most ``count``.

    The access is ``"rows"``, ``"columns"``, ``size`` whole ones of them, or ``"square"``, of that side.
    """
    starts = range(0, n - size + 1, size)
    if access == "square":
        found: list[Box] = [(slice(i, i + size), slice(j, j + size)) for i in starts for j in starts]
    elif access == "rows":
        found = [(slice(i, i + size), slice(0, n)) for i in starts]
    else:
        found = [(slice(0, n), slice(i, i + size)) for i in starts]
    return found[:count]


class Case(NamedTuple):
    """Sub-blocks that are read in one configuration; ``access`` to ``many`` are those of :func:`boxes_of`."""

    system: str
    access: str
    n: int
    size: int
    many: int
    building_block: tuple[int, ...]
    seed: int


def measure(case: Case) -> Moved:
    """Read sub-blocks in one configuration."""
    device, n = calibration.device(), case.n
    boxes = boxes_of(case.access, n, case.size, case.many)
    if case.system.startswith("baseline"):
        order = "F" if "column" in case.system else "C"
        return Baseline(device, (n, n), ITEM, order=order, seed=case.seed).read(boxes)
    hardware = case.system == "hardware NDS"
    with Nds(device, (n, n), "f8", in_device=hardware, building_block=case.building_block, seed=case.seed) as nds:
        nds.fill(boxes)
        return nds.read(boxes)


def write(system: str, n: int, building_block: Sequence[int], seed: int) -> Moved:
    """Write the whole matrix of side ``n`` by one of ``SYSTEMS``, in synchronous requests."""
    device = calibration.device()
    if system.startswith("baseline"):
        order = "F" if "column" in system else "C"
        return Baseline(device, (n, n), ITEM, order=order, seed=seed).write([(slice(0, n), slice(0, n))])
    rows = building_block[0]
    columns = min(calibration.PREFERRED.write_bytes // (rows * ITEM), n)
    boxes = [(slice(i, i + rows), slice(j, j + columns)) for i in range(0, n, rows) for j in range(0, n, columns)]
    hardware = system == "hardware NDS"
    with Nds(device, (n, n), "f8", in_device=hardware, building_block=building_block, seed=seed) as nds:
        return nds.write(boxes)


def run(context: Context) -> Result:
    """Measure all four parts."""
    n, block, seed = context["n"], tuple(context["building_block"]), context.seed
    parts = [
        ("a", "rows", context["bands"], 1, ("baseline row store", "software NDS", "hardware NDS")),
        ("b", "columns", context["bands"], 1, SYSTEMS),
        ("c", "square", context["squares"], context["squares_read"], ("baseline row store", *SYSTEMS[2:])),
    ]
    cases = [
        (part, Case(system, access, n, size, count, block, seed))
        for part, access, sizes, count, systems in parts
        for size in sizes
        for system in systems
    ]
    found = context.map(measure, [(case,) for _, case in cases], "fetches")
    rows = [
        {
            "part": part,
            "access": case.access,
            "size": case.size,
            "system": case.system,
            "GBps": moved.GBps,
            "bytes": moved.bytes,
        }
        for (part, case), moved in zip(cases, found, strict=True)
    ]
    wrote = context.map(write, [(system, n, block, seed) for system in SYSTEMS], "writes")
    writes = [
        {"system": system, "MBps": moved.GBps * 1e3, "bytes": moved.bytes}
        for system, moved in zip(SYSTEMS, wrote, strict=True)
    ]
    # A report is of all that its device did: a space must be written before it is read.
    reports = {
        f"9{part} {case.system} {case.size}{' written and read' if 'NDS' in case.system else ''}": moved.report
        for (part, case), moved in zip(cases, found, strict=True)
        if case.size == max(context["bands"]) or (part == "c" and case.size == max(context["squares"]))
    } | {f"9d {system}": moved.report for system, moved in zip(SYSTEMS, wrote, strict=True)}

    tables: dict[str, Any] = {f"fig9{p}": [row for row in rows if row["part"] == p] for p in "abc"}
    return Result(
        tables={**tables, "fig9d": writes},
        answers=_answers(context, rows, writes),
        figures=_figures(context),
        reports=reports,
        assumptions=[
            *calibration.ASSUMPTIONS,
            f"A write to NDS is {calibration.PREFERRED.write_bytes >> 20} MiB, whole building blocks side by side, and "
            "waited for (calibrated on Figure 9(d)); software NDS composes all of it before it programs any. A write "
            "to the baseline is a request of 2 MiB, and waited for.",
            "Sides of the squares of Figure 9(c) are not in the text: 512 to 8192.",
        ],
    )


def _answers(context: Context, rows: Sequence[dict[str, Any]], writes: Sequence[dict[str, Any]]) -> list[Answer]:
    def of(part: str, system: str) -> dict[int, float]:
        return {row["size"]: row["GBps"] for row in rows if (row["part"], row["system"]) == (part, system)}

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    base, soft, hard = (of("a", s) for s in ("baseline row store", "software NDS", "hardware NDS"))
    columns = {system: of("b", system) for system in SYSTEMS}
    squares = {system: of("c", system) for system in ("baseline row store", *SYSTEMS[2:])}
    order = all(
        squares["hardware NDS"][s] >= squares["software NDS"][s] >= 2 * squares["baseline row store"][s]
        for s in context["squares"]
    )
    written = {row["system"]: row["MBps"] for row in writes}
    one = written["baseline row store"]
    return [
        Answer("nds.fig9a.row.hw_vs_baseline", mean([hard[s] / base[s] for s in hard])),
        Answer(
            "nds.fig9a.row.hw_vs_baseline#baseline_GBps",
            mean(list(base.values())),
            paper=4.3,
            calibrated=True,
            note="link.packet_overhead",
        ),
        Answer("nds.fig9a.row.sw_GBps", mean(list(soft.values())), calibrated=True, note="host.copy_rate"),
        Answer(
            "nds.fig9b.col.baseline_GBps_max",
            max(columns["baseline row store"].values()),
            calibrated=True,
            note="requests on their way: an integer, 2",
        ),
        Answer(
            "nds.fig9b.col.hw_vs_colstore",
            mean([columns["hardware NDS"][s] / columns["baseline column store"][s] for s in columns["hardware NDS"]]),
        ),
        Answer("nds.fig9c.submatrix.order", order),
        Answer("nds.fig9d.write.sw_loss#baseline_MBps", one, paper=281.0, note="FEMU's times of TLC, as they are"),
        Answer(
            "nds.fig9d.write.sw_loss",
            written["software NDS"] / one,
            calibrated=True,
            note="bytes of a write: both losses set it",
        ),
        Answer("nds.fig9d.write.hw_loss", written["hardware NDS"] / one, calibrated=True, note="bytes of a write"),
    ]


def _figures(context: Context) -> list[Figure]:
    label = {"a": "rows of the matrix", "b": "columns of the matrix", "c": "side of the square"}
    points = {
        "a": [
            PaperPoint("baseline row store", context["bands"][-1], 4.3, "7.1", "about"),
            PaperPoint("software NDS", context["bands"][-1], 3.8, "7.1", "about"),
        ],
        "b": [PaperPoint("baseline row store", context["bands"][-1], 0.6, "7.1", "at most")],
        "c": [],
    }
    figures = [
        Figure(
            id=f"fig9{part}",
            title=f"Figure 9({part}): fetching {what}",
            kind="line",
            table=f"fig9{part}",
            x="size",
            y="GBps",
            series="system",
            x_label=label[part],
            y_label="GB/s",
            x_log=True,
            points=points[part],
        )
        for part, what in (("a", "rows"), ("b", "columns"), ("c", "sub-matrices"))
    ]
    figures.append(
        Figure(
            id="fig9d",
            title="Figure 9(d): writing the matrix",
            kind="bar",
            table="fig9d",
            x="system",
            y="MBps",
            x_label="",
            y_label="MB/s",
            points=[
                PaperPoint("baseline row store", "baseline row store", 281, "7.1"),
                PaperPoint("baseline column store", "baseline column store", 281, "7.1"),
                PaperPoint("software NDS", "software NDS", 281 * 0.70, "7.1"),
                PaperPoint("hardware NDS", "hardware NDS", 281 * 0.83, "7.1"),
            ],
            caption="Blocks begin in a bank drawn by chance (rule 1): some dies have more to program than others.",
        )
    )
    return figures


EXPERIMENT = Experiment(
    id="nds.fig9",
    title="NDS, Figure 9: fetching and writing with different dimensionalities",
    question="What bandwidth have rows, columns and sub-matrices of a matrix, in storage of one dimension and of two?",
    run=run,
    claims=(
        "nds.fig9a.row.hw_vs_baseline",
        "nds.fig9a.row.sw_GBps",
        "nds.fig9b.col.baseline_GBps_max",
        "nds.fig9b.col.hw_vs_colstore",
        "nds.fig9c.submatrix.order",
        "nds.fig9d.write.sw_loss",
        "nds.fig9d.write.hw_loss",
    ),
    parameters={
        "n": Parameter(32768, "side of the matrix of doubles", small=4096),
        "bands": Parameter([512, 1024, 2048, 4096], "rows or columns of a fetch", small=[512, 1024]),
        "squares": Parameter([512, 1024, 2048, 4096, 8192], "sides of square fetches", small=[512, 1024]),
        "squares_read": Parameter(8, "squares of each size that are read", small=2),
        "building_block": Parameter(list(calibration.BUILDING_BLOCK), "of NDS, elements along each dimension"),
    },
    devices=("nds-prototype",),
    minutes=0.5,
)
