"""Figure 3 of the NDS paper: what an SSD and a GPU make of matrices of different sizes.

4 GB are read in order, one request for each n x n matrix of floats, from a device of 32 channels and from one of 8. The
text says that the first needs 512 x 512 matrices (1 MiB) to reach its bandwidth and the second 16,384 x 16,384 (1 GiB),
and section 2.1 that requests of 32 KB reach 66 % of the link and those above 2 MB all of it. The curves are not in the
text. Kernels are not modelled below a roofline, which has no optimal size: that part of the figure is left out.
"""

from __future__ import annotations

import nandarray
from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result
from nandarray_papers.nds import calibration
from nandarray_papers.nds.systems import Moved

__all__ = ["EXPERIMENT", "measure"]

SECTOR = 4096


def measure(name: str, side: int, depth: int, total: int, seed: int) -> Moved:
    """Read ``total`` bytes in order, with requests of a matrix of floats of a side each, ``depth`` on their way.

    ``name`` is the device's, of ``devices``.
    """
    described = calibration.device(
        "samsung-970-pro" if name == "consumer" else "nds-prototype",
        {} if name == "consumer" else {"geometry.channels": int(name.split()[0])},
    )
    request = max(side * side * 4, SECTOR)
    asked = nandarray.Boxes(
        shape=(total,), itemsize=1, boxes=[(slice(0, total),)], depth=depth, request_max=min(request, total)
    )
    run = nandarray.replay(asked, device=described, seed=seed + 1)
    return Moved(total, run["elapsed_s"], run.data)


def run(context: Context) -> Result:
    """Measure every size on every device."""
    names, sides, depths = ("32 channels", "8 channels", "consumer"), context["sides"], context["depths"]
    cases = [
        (name, side, depth, context["bytes"], context.seed) for name in names for depth in depths for side in sides
    ]
    found = context.map(measure, cases, "sizes")
    best = {
        name: max(moved.GBps for case, moved in zip(cases, found, strict=True) if case[0] == name) for name in names
    }
    rows = [
        {
            "device": case[0],
            "side": case[1],
            "request_bytes": max(case[1] ** 2 * 4, SECTOR),
            "depth": case[2],
            "series": f"{case[0]}, depth {case[2]}",
            "GBps": moved.GBps,
            "of_best": moved.GBps / best[case[0]],
        }
        for case, moved in zip(cases, found, strict=True)
    ]

    def needs(name: str, depth: int) -> int:
        reach = [
            row["side"] for row in rows if (row["device"], row["depth"]) == (name, depth) and row["of_best"] >= 0.9
        ]
        return min(reach, default=0)

    need = {name: needs(name, calibration.PREFERRED.depth) for name in names}
    wide, narrow = need["32 channels"], need["consumer"]
    return Result(
        tables={"fig3": rows},
        figures=[
            Figure(
                id="fig3",
                title="Figure 3: bandwidth over the size of a request",
                kind="line",
                table="fig3",
                x="request_bytes",
                y="GBps",
                series="series",
                x_label="bytes of a request",
                y_label="GB/s",
                x_log=True,
                y_log=True,
                caption="A device needs requests of as many pages as it has dies to fill.",
            )
        ],
        assumptions=[
            *calibration.ASSUMPTIONS,
            "The device of 8 channels is the prototype's with 8 channels; the consumer SSD, which the paper does not "
            "name, the preset samsung-970-pro, which has 8.",
        ],
        misfits=[
            f"90 % of the best bandwidth, at depth 2 takes matrices of {wide} x {wide} on 32 channels (the "
            f"paper: 512 x 512) and of {narrow} x {narrow} on the consumer SSD (the paper: 16384 x 16384). That a "
            "device of 8 channels needs requests a thousand times as large has no mechanism here: fewer channels need "
            "smaller requests.",
        ],
    )


EXPERIMENT = Experiment(
    id="nds.fig3",
    title="NDS, Figure 3: bandwidth over the size of a request, 32 and 8 channels",
    question="How large must a request be for a device to reach its bandwidth?",
    run=run,
    parameters={
        "sides": Parameter(
            [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384], "of matrices of floats", small=[64, 256]
        ),
        "depths": Parameter([1, 2], "requests on their way"),
        "bytes": Parameter(4 << 30, "read in order", small=16 << 20),
    },
    devices=("nds-prototype",),
    minutes=1.0,
)
