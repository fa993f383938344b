"""The best shape of building blocks on a device, found by trying, against what the NDS paper's equations choose.

Every shape of powers of two within a range of sizes holds an array on the modelled device, and the same fetches are
read from it, one at a time: a band of few indices along each axis in turn (rows, columns, planes), thin and thick, and
a sub-block of equal sides. A shape's score is the geometric mean of the bandwidths: no kind of access counts more
because it moves more. The paper (section 4.1) chooses by size alone: one access unit of every channel (equation 1), and
of every bank for three dimensions (equation 3), rounded up to equal sides that are powers of two (equations 2 and 4).

No bytes are kept, so reads give zeroes and only times are real; compression and zero blocks play no part. Not covered:
several fetches in flight, writing, the host's side of software NDS.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import nandarray
from nandarray.device import load
from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result

__all__ = ["EXPERIMENT", "by_equations", "measure", "shapes"]

Row = dict[str, Any]
Shape = tuple[int, ...]


def by_equations(described: Mapping[str, Any], ndim: int, item_bytes: int) -> Shape:
    """Return the shape of the paper's equations 1 to 4, elements along each dimension.

    Equation 4 is damaged in print: its exponent has the minimum of equation 1, its text that of equation 3. The text is
    followed: with the minimum of equation 1 a 3-D block would not reach the banks that equation 3 counts.

    ``described`` has ``page_bytes``, ``channels`` and ``banks`` (dies of a channel) of the device. Beyond three
    dimensions, the outermost get a length of 1 (section 4.1).
    """
    minimum = described["page_bytes"] * described["channels"]
    cut = min(ndim, 3)
    if cut == 3:
        minimum *= described["banks"]
    side = 2 ** math.ceil(math.log2(minimum / item_bytes) / cut)
    return (1,) * (ndim - cut) + (side,) * cut


def shapes(ndim: int, smallest: int, largest: int, longest: int, spread: int) -> Iterator[Shape]:
    """Return all shapes of powers of two, of ``smallest`` to ``largest`` elements, at most ``longest`` a dimension.

    The longest side is at most ``spread`` times the shortest.
    """
    sides = [2**i for i in range(longest.bit_length())]
    for shape in itertools.product(sides, repeat=ndim):
        if smallest <= math.prod(shape) <= largest and max(shape) <= spread * min(shape):
            yield shape


def _fetches(side: int, ndim: int, thick: Sequence[int], cube: int) -> Iterator[tuple[str, Shape]]:
    for thickness, axis in itertools.product(thick, range(ndim)):
        shape = [side] * ndim
        shape[axis] = thickness
        yield f"{thickness} along axis {axis}", tuple(shape)
    yield f"sub-block of {cube}", (cube,) * ndim


def measure(  # noqa: PLR0917
    device: str, side: int, block: Shape | None, thick: Sequence[int], cube: int, ndim: int
) -> list[Row]:
    """Read every kind of fetch from an array with building blocks of one shape; a row a kind.

    ``device`` is a preset or the file of a description. The array has ``ndim`` dimensions of length ``side``, of
    doubles; its ``block`` is chosen by the engine if None. Bands have the thicknesses ``thick``, the sub-block has the
    side ``cube``.
    """
    rows: list[Row] = []
    with nandarray.open(device=device, mode="w", bytes_in="nowhere") as store:
        array = store.create("x", (side,) * ndim, "f8", building_block=block)
        array[...] = 1.0
        store.flush()
        view = array.view(array.shape)
        for what, shape in _fetches(side, ndim, thick, cube):
            # The sub-block in the middle, so that edges of blocks are met as anywhere.
            coordinate = tuple(n // s // 2 for n, s in zip(array.shape, shape, strict=True))
            store.clock.settle()
            began, read = store.clock.now, _flash_bytes(store)
            view.read(coordinate, shape)
            took, nbytes = store.clock.now - began, math.prod(shape) * 8
            rows.append(
                {
                    "dimensions": ndim,
                    "block": "x".join(map(str, array.building_block)),
                    "block_bytes": math.prod(array.building_block) * 8,
                    "fetch": what,
                    "bytes": nbytes,
                    "GBps": nbytes / took / 1e9,
                    "flash_bytes_a_byte": (_flash_bytes(store) - read) / nbytes,
                }
            )
    return rows


def _flash_bytes(store: nandarray.Store) -> int:
    return int(sum(store.report().data["flash"]["read_bytes"].values()))


def _score(rows: Sequence[Row], chosen: Mapping[str, str]) -> list[Row]:
    """Rank the shapes of one number of dimensions."""
    by_block: dict[str, list[Row]] = {}
    for row in rows:
        by_block.setdefault(row["block"], []).append(row)
    scored = [
        {
            "dimensions": mine[0]["dimensions"],
            "block": block,
            "block_bytes": mine[0]["block_bytes"],
            "chosen_by": chosen.get(block, "trial"),
            "series": f"{mine[0]['dimensions']}-D, {chosen.get(block, 'trial')}",
            "mean_GBps": statistics.geometric_mean(row["GBps"] for row in mine),
            "worst_GBps": min(row["GBps"] for row in mine),
        }
        for block, mine in by_block.items()
    ]
    scored.sort(key=lambda row: (-row["mean_GBps"], row["block"]))
    return [
        {**row, "rank": i + 1, "of_best": row["mean_GBps"] / scored[0]["mean_GBps"]} for i, row in enumerate(scored)
    ]


def run(context: Context) -> Result:
    """Try all shapes in every number of dimensions."""
    geometry = dict(load(context["device"]).resolved["geometry"])
    geometry["banks"] = geometry["ways"] * geometry["dies"]
    least = geometry["page_bytes"] * geometry["channels"] // np.dtype("f8").itemsize
    tables: dict[str, list[Row]] = {"fetches": [], "blocks": []}
    answers: list[str] = []
    misfits: list[str] = []
    for ndim, side in ((int(n), int(s)) for n, s in context["sides"].items()):
        rule = by_equations(geometry, ndim, 8)
        tried = set(shapes(ndim, least // 8, least * 16, min(side, 4096), context["spread"])) | {rule}
        thick = [t for t in context["thick"] if t <= side]
        cube = side // 4
        cases = [(context["device"], side, shape, thick, cube, ndim) for shape in [None, *sorted(tried)]]
        found = context.map(measure, cases, f"{ndim}-D shapes")
        default = found[0][0]["block"]
        rows = [
            row for mine in (found[1:] if any(default == m[0]["block"] for m in found[1:]) else found) for row in mine
        ]
        equation = "x".join(map(str, rule))
        chosen = {default: "engine", equation: "equations"}
        if default == equation:
            chosen = {default: "equations and engine"}
        scored = _score(rows, chosen)
        tables["fetches"] += rows
        tables["blocks"] += scored
        for row in scored:
            if row["chosen_by"] != "trial":
                answers.append(
                    f"{ndim}-D: {row['block']} ({row['chosen_by']}) is rank {row['rank']} of {len(scored)} and gives "
                    f"{row['of_best']:.2f} of the mean bandwidth of the best, {scored[0]['block']}"
                )
                if row["of_best"] < 0.9:
                    misfits.append(answers[-1])
    return Result(
        tables=tables,
        figures=[
            Figure(
                id="blocks",
                title=f"Mean bandwidth over the size of a building block, {context['device']}",
                kind="scatter",
                table="blocks",
                x="block_bytes",
                y="mean_GBps",
                series="series",
                x_label="bytes of a building block",
                y_label="GB/s, geometric mean of all kinds of fetches",
                x_log=True,
                caption="Each point is a shape. Shapes of one size differ as much as sizes do.",
            )
        ],
        assumptions=[
            *answers,
            "bandwidths are those of one fetch at a time; a shape's score is the geometric mean over kinds of fetches",
        ],
        misfits=misfits,
    )


EXPERIMENT = Experiment(
    id="beyond.building-block",
    title="The best building block, found by trying",
    question="How near to the best shape of building blocks does the paper's choice by equations 1 to 4 come?",
    run=run,
    parameters={
        "device": Parameter("nds-prototype", "preset, or file of a description", small="tiny"),
        "sides": Parameter(
            {"2": 4096, "3": 256, "4": 64},
            "length of the array along every dimension, by number of dimensions",
            small={"2": 256, "3": 32},
        ),
        "thick": Parameter([1, 16, 64], "thicknesses of bands, indices along one axis", small=[1, 16]),
        "spread": Parameter(8, "longest side of a block over its shortest, at most", small=2),
    },
    minutes=5.0,
)
