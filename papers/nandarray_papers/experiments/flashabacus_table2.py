"""Table 2 of the FlashAbacus paper: microblocks, sizes, shares of loads and stores, bytes for a thousand instructions.

Counts are of scalar RV64 code, optimised and not; the paper's are of a C66x, whose instructions move and multiply
several numbers. They stand side by side, and are not divided by each other. Sizes are those whose inputs have Table 2's
megabytes; instructions at these sizes are polynomials through counted small sizes, checked at one more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nandarray.lab.experiment import Context, Experiment, Figure, PaperPoint, Parameter, Result
from nandarray.programs import kernels
from nandarray.programs.kernels.samples import size_of
from nandarray_papers.flashabacus import MIXES, WORKLOADS, Growth, Workload, count, growth, instances

__all__ = ["EXPERIMENT", "classes", "row"]

_MB = 1 << 20
#: A class of instructions below this share is not shown.
_SHARE_MIN = 0.001


def row(kernel: str, sizes: Sequence[int]) -> dict[str, Any]:
    """Return a kernel's row: the paper's cells and ours, counted at some sizes, of which the last checks the others."""
    paper = next(one for one in WORKLOADS if one.kernel == kernel)
    optimised, plain = growth(kernel, sizes), growth(kernel, sizes, optimised=False)
    size = size_of(kernel, paper.input_MB * _MB)
    microblocks = kernels.get(kernel).table["microblocks"]
    serial = [one["entry"] for one in microblocks if one["screens"] == 1]
    return {
        "kernel": kernel,
        "paper": paper.paper,
        "microblocks": len(microblocks),
        "paper_microblocks": paper.microblocks,
        "serial": len(serial),
        "paper_serial": paper.serial,
        "serial_instructions_share": sum(optimised.at(size, entry) for entry in serial) / optimised.at(size),
        "input_MB": paper.input_MB,
        "size": size,
        "instructions": optimised.at(size),
        "load_store_percent": optimised.load_store(size),
        "load_store_unoptimised_percent": plain.load_store(size),
        "paper_load_store_percent": paper.load_store,
        "bytes_per_ki": optimised.bytes_per_ki(size),
        "bytes_per_ki_unoptimised": plain.bytes_per_ki(size),
        "paper_bytes_per_ki": paper.bytes_per_ki,
        "size_of_paper_bytes_per_ki": _same(optimised, paper),
        "extrapolation_error": max(optimised.error, plain.error),
    }


def _same(grown: Growth, paper: Workload) -> int:
    """Return the least size with no more bytes for a thousand instructions than the paper has; 0 if there is none."""
    low, high = 4, size_of(paper.kernel, paper.input_MB * _MB)
    if grown.bytes_per_ki(high) > paper.bytes_per_ki:
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if grown.bytes_per_ki(middle) > paper.bytes_per_ki else (low, middle)
    return high


def classes(kernel: str, size: int, seed: int) -> list[dict[str, Any]]:
    """Return a kernel's instructions by class: a row a class, by its share, on a sample of a size."""
    counted = count(kernel, size, seed)
    shares = {kind: times / counted.total for kind, times in counted.classes.items()}
    return [
        {"kernel": kernel, "class": kind, "share": share, "bytes_per_ki": counted.bytes_per_ki}
        for kind, share in sorted(shares.items(), key=lambda item: (-item[1], item[0]))
        if share >= _SHARE_MIN
    ]


def _misfits(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return what does not fit, in a sentence, with its numbers."""
    cubic = [one for one in rows if one["size_of_paper_bytes_per_ki"]]
    if not cubic:
        return []
    fewer = sorted(one["paper_bytes_per_ki"] / one["bytes_per_ki"] for one in cubic)
    sides = sorted(one["size_of_paper_bytes_per_ki"] for one in cubic)
    return [
        "Bytes for a thousand instructions of kernels with n^3 multiplications fall with n. At the sizes of Table 2's "
        f"inputs they are {fewer[0]:.0f} to {fewer[-1]:.0f} times fewer than its B/KI, more than vectors of a C66x "
        f"explain; at sides of {sides[0]} to {sides[-1]} they are the same. So B/KI was taken at smaller sizes, or "
        "matrices were far from square.",
    ]


def run(context: Context) -> Result:
    """Count every kernel."""
    asked = context["kernels"] or list(kernels.NAMES)
    table = [one.kernel for one in WORKLOADS if one.kernel in asked]
    rows = context.map(row, [(kernel, context["sizes"]) for kernel in table], "sizes")
    found = context.map(classes, [(kernel, context["size"], context.seed) for kernel in asked], "classes")
    megabytes = {one.kernel: one.input_MB for one in WORKLOADS}
    mixes = [
        {
            "mix": mix,
            "kernels": " ".join(MIXES[mix]),
            "instances": len(instances(mix)),
            "input_MB": sum(megabytes[kernel] for kernel in instances(mix)),
        }
        for mix in MIXES
    ]
    shown = [one for one in WORKLOADS if one.kernel in asked]
    return Result(
        tables={"table2": rows, "classes": [one for some in found for one in some], "mixes": mixes},
        figures=[
            Figure(
                id="bytes_per_ki",
                title="Table 2: bytes of input for a thousand instructions",
                kind="bar",
                table="table2",
                x="kernel",
                y="bytes_per_ki",
                y_label="bytes for a thousand RV64 instructions",
                points=[PaperPoint("C66x, paper", one.kernel, one.bytes_per_ki, "Table 2") for one in shown],
                caption="Instructions of two machines: orders can be compared, heights cannot.",
            )
        ],
        assumptions=[
            "All sides of a kernel's matrices are the same, of 4-byte floats; inputs are what it reads and updates.",
            "Instructions are those of scalar RV64 code, a screen a microblock.",
        ],
        misfits=_misfits(rows),
    )


EXPERIMENT = Experiment(
    id="flashabacus.table2",
    title="FlashAbacus, Table 2: the fourteen kernels",
    question="How many instructions, loads and stores do the fourteen kernels take for their inputs?",
    run=run,
    parameters={
        "kernels": Parameter([], "kernels; all if empty", small=["atax", "adi", "corr", "bfs"]),
        "sizes": Parameter(
            [32, 48, 64, 80, 112], "counted sizes, multiples of 16; the last checks", small=[16, 32, 48, 64, 80]
        ),
        "size": Parameter(64, "size of samples whose instructions are told by class", small=16),
    },
    minutes=1,
)
