"""BaM beside GPUDirect Storage: transfers from four drives over the size of a request.

Both read the same bytes from the same drives over the same link; in one, warps submit, in the other 16 threads of a CPU
with a fixed cost a request.
"""

from __future__ import annotations

from typing import Any

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, Parameter, Result
from nandarray.model.fetch import fetches
from nandarray_papers import bam
from nandarray_papers.experiments.bam_scaling import PEAK

__all__ = ["EXPERIMENT", "run_one"]


def run_one(  # noqa: PLR0917 (a case, as Context.map calls it)
    path: str, drive: str, drives: int, size: int, total: int, seed: int
) -> dict[str, Any]:
    """Transfer ``total`` bytes by requests of one size; a drive is of the lab or a preset.

    The path of a request is ``"gpu"``, where warps submit it, or ``"gds"``, a CPU for GPUDirect Storage.
    """
    platform = bam.platform(path, stripe_bytes=size)
    found = fetches([bam.drive(drive)] * drives, platform, bam.bulk(max(total // size, 64), size), seed)
    rate = found["bytes_read"] / found["seconds"]
    return {
        "path": path,
        "size": size,
        "GBps": rate / 1e9,
        "share_of_peak": rate / PEAK,
        "link_busy": found["link_up"],
        "cpu_busy": found["cpu_busy"],
        "latency_us": found["latency_mean_us"],
    }


def run(context: Context) -> Result:
    """Transfer with each size on both paths."""
    cases = [
        (path, context["drive"], context["drives"], size, context["total"], context.seed)
        for path in ("gpu", "gds")
        for size in context["sizes"]
    ]
    rows = context.map(run_one, cases, "sizes")
    by = {(row["path"], row["size"]): row["GBps"] for row in rows}
    sizes = context["sizes"]
    ahead = all(by["gpu", s] > 1.5 * by["gds", s] for s in sizes if s <= _SMALL)
    meet = all(by["gpu", s] <= 1.15 * by["gds", s] for s in sizes if s >= _LARGE)
    note = (
        f"ahead up to {_SMALL >> 10} KiB, and within 15 % of each other from {_LARGE >> 10} KiB on (our bounds); "
        "the size from which they meet follows from the CPU's cost a request, which was taken from the paper"
    )
    return Result(
        tables={"sizes": rows},
        answers=[Answer("bam.gds.order", bool(ahead and meet), input=True, note=note)],
        figures=[
            Figure(
                id="gds",
                title="Transfers from four drives over the size of a request",
                kind="line",
                table="sizes",
                x="size",
                y="share_of_peak",
                series="path",
                x_log=True,
                y_label="share of the link's measured peak",
            )
        ],
        assumptions=[*bam.assumptions("gds"), "fio's requests follow one another; nothing is cached."],
        misfits=_misfits(rows),
    )


_SMALL, _LARGE = 8 << 10, 64 << 10


def _misfits(rows: list[dict[str, Any]]) -> list[str]:
    first = {row["path"]: row for row in rows if row["size"] == rows[0]["size"]}
    return [
        f"At {rows[0]['size']} bytes the CPU's path has {first['gds']['share_of_peak']:.3f} of the peak, as its cost a "
        f"request was taken from there (0.236), and the warps' path {first['gpu']['share_of_peak']:.3f} (about 1)."
    ]


EXPERIMENT = Experiment(
    id="bam.gds",
    title="BaM and GPUDirect Storage over the size of a request",
    question="From which size on does a CPU that submits keep up with warps that fetch for themselves?",
    run=run,
    claims=("bam.gds.order",),
    parameters={
        "drive": Parameter("optane-p5800x", "drive of the lab, preset or file"),
        "drives": Parameter(4, "drives"),
        "sizes": Parameter([4096 << i for i in range(9)], "bytes of a request", small=[4096, 65536]),
        "total": Parameter(128 << 20, "bytes of a transfer; the slides' 128 GB have the same rate", small=8 << 20),
    },
    minutes=2,
)
