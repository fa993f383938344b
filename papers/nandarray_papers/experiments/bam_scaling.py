"""BaM's throughput scaling: random reads and writes of 512 bytes over one to ten drives.

Requests are recorded from the header's queue pairs, one a lane; drives, their links and the shared link are modelled.
"""

from __future__ import annotations

from typing import Any

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, PaperPoint, Parameter, Result
from nandarray.model.fetch import fetches
from nandarray_papers import bam

__all__ = ["EXPERIMENT", "run_one"]

#: The link's measured peak, in bytes a second of payload: the slides' 22.9 GB/s are 90 % of it.
PEAK = 25.4e9


def run_one(direction: str, drive: str, drives: int, requests: int, seed: int) -> dict[str, Any]:
    """Send requests, ``"read"`` or ``"write"`` ones, as many to each drive; they are of the lab or of a preset."""
    accesses = bam.record("random", direction, requests * drives // 32 * 32, seed, lines=0)
    # Consecutive blocks are on consecutive drives.
    found = fetches([bam.drive(drive)] * drives, bam.platform(stripe_bytes=512), accesses, seed)
    moved = found["bytes_read"] + found["bytes_written"]
    return {
        "direction": direction,
        "drives": drives,
        "requests": found["reads"] + found["writes"],
        "GBps": moved / found["seconds"] / 1e9,
        "MIOPS": (found["reads"] + found["writes"]) / found["seconds"] / 1e6,
        "share_of_peak": moved / found["seconds"] / PEAK,
        "link_busy": max(found["link_up"], found["link_down"]),
        "in_flight": found["in_flight_mean"],
        "latency_us": found["latency_mean_us"],
    }


def _linear(rows: list[dict[str, Any]], direction: str) -> float:
    """Return the least throughput a drive over one drive's, where the link is not full."""
    part = [row for row in rows if row["direction"] == direction]
    return float(min(r["GBps"] / r["drives"] / part[0]["GBps"] for r in part if r["link_busy"] < _FULL))


_RATE = "the link's rate was taken from this figure"
#: Share of time from which on a link counts as full.
_FULL = 0.9


def run(context: Context) -> Result:
    """Read and write with each number of drives."""
    cases = [
        (direction, context["drive"], drives, context["requests"], context.seed)
        for direction in ("read", "write")
        for drives in context["drives"]
    ]
    rows = context.map(run_one, cases, "drives")
    reads, writes = ([row for row in rows if row["direction"] == what] for what in ("read", "write"))
    answers = [
        Answer("bam.scaling.read", reads[-1]["share_of_peak"], input=True, note=f"{_RATE}; a run adds the packets"),
        Answer("bam.scaling.read#linear", _linear(rows, "read"), paper=1.0, note="least a drive over one's"),
        Answer("bam.scaling.write_GBps#linear", _linear(rows, "write"), paper=1.0, note="least a drive over one's"),
        Answer("bam.scaling.read_GBps", reads[-1]["GBps"], input=True, note=_RATE),
        Answer("bam.scaling.write_GBps", writes[-1]["GBps"], input=True, note="a drive's rate is fitted"),
    ]
    figure = Figure(
        id="scaling",
        title="Random requests of 512 bytes over drives",
        kind="line",
        table="scaling",
        x="drives",
        y="GBps",
        series="direction",
        y_label="GB/s",
        points=[PaperPoint("read", 10, 22.9, "throughput scaling"), PaperPoint("write", 10, 5.3, "throughput scaling")],
    )
    return Result(
        tables={"scaling": rows},
        answers=answers,
        figures=[figure],
        assumptions=[
            *bam.assumptions(),
            "A request a lane, 32 lanes a warp, by the header's queue pairs.",
        ],
        misfits=_misfits(rows),
    )


def _misfits(rows: list[dict[str, Any]]) -> list[str]:
    one = rows[0]
    return [
        f"A drive alone has {one['MIOPS']:.2f} M reads a second in a run of {one['requests']}, its beginning and end "
        "included; BaM's log has 4.90 M."
    ]


EXPERIMENT = Experiment(
    id="bam.scaling",
    title="BaM: random reads and writes of 512 bytes over one to ten drives",
    question="Does throughput grow with the number of drives until the link is full?",
    run=run,
    claims=("bam.scaling.read", "bam.scaling.read_GBps", "bam.scaling.write_GBps"),
    parameters={
        "drive": Parameter("optane-p5800x", "drive of the lab, preset or file"),
        "drives": Parameter([1, 2, 4, 6, 8, 10], "numbers of drives", small=[1, 2]),
        "requests": Parameter(16000, "requests a drive", small=2000),
    },
    minutes=2,
)
