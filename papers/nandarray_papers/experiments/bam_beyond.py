"""Beyond BaM: Gen5 and twenty drives, write-backs overlapped, QLC drives, tiles as lines; and a CPU process's share.

Each step runs with warps that submit and with a process on the shared-memory door: the latter has one serving thread,
so that most gains end at it.
"""

from __future__ import annotations

from typing import Any

from nandarray.device import Description
from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result
from nandarray.model.fetch import Accesses, fetches
from nandarray_papers import bam

__all__ = ["EXPERIMENT", "run_one"]

#: Name of a step: (what is recorded, how), drives, their kind, changes of the platform.
_GEN5 = {"link_rate": 2 * 28_178_000_000}
STEPS: dict[str, tuple[str, str, int, str, dict[str, Any]]] = {
    "random, 10 drives": ("random", "read", 10, "optane", {"stripe_bytes": 512}),
    "random, 10 drives, Gen5": ("random", "read", 10, "gen5", {"stripe_bytes": 512, **_GEN5}),
    "random, 20 drives": ("random", "read", 20, "optane", {"stripe_bytes": 512}),
    "random, 20 drives, Gen5 link": ("random", "read", 20, "optane", {"stripe_bytes": 512, **_GEN5}),
    "random, 20 drives, Gen5": ("random", "read", 20, "gen5", {"stripe_bytes": 512, **_GEN5}),
    "vectorAdd, write-backs waited for": ("vectoradd", "waited", 4, "optane", {}),
    "vectorAdd, write-backs overlapped": ("vectoradd", "overlapped", 4, "optane", {}),
    "vectorAdd, lines not fetched": ("vectoradd", "replaced", 4, "optane", {}),
    "squares, rows as lines": ("tiles", "rows", 4, "optane", {}),
    "squares, tiles as lines": ("tiles", "tiles", 4, "optane", {}),
    "squares, rows as lines, 4 QLC drives": ("tiles", "rows", 4, "qlc", {}),
    "squares, tiles as lines, 4 QLC drives": ("tiles", "tiles", 4, "qlc", {}),
    "squares, tiles as lines, 20 QLC drives": ("tiles", "tiles", 20, "qlc", {}),
}


def _drive(kind: str) -> Description:
    if kind == "qlc":
        return bam.drive("qlc-enterprise")
    if kind == "gen5":
        # Assumed: twice the commands, and dies and link to go with them.
        return bam.drive("optane-p5800x", link__rate="PCIe 5 x4", controller__t_command="102 ns", bus__rate="3000 MB/s")
    return bam.drive("optane-p5800x")


def _recorded(what: str, how: str, drives: int, sizes: dict[str, int], seed: int) -> Accesses:
    if what == "random":
        return bam.record(what, how, sizes["requests"] * drives // 32 * 32, seed, lines=0)
    if what == "vectoradd":
        return bam.record(what, how, sizes["elements"], lines=512)
    return bam.record(what, how, sizes["side"], seed, lines=1024)


def run_one(name: str, sizes: dict[str, int], seed: int) -> list[dict[str, Any]]:
    """Run one of ``STEPS`` on both paths.

    The sizes are requests a drive, elements of a vector, and the side of a matrix.
    """
    what, how, drives, kind, changes = STEPS[name]
    accesses = _recorded(what, how, drives, sizes, seed)
    rows = []
    for path in ("gpu", "cpu"):
        found = fetches([_drive(kind)] * drives, bam.platform(path, **changes), accesses, seed)
        moved = found["bytes_read"] + found["bytes_written"]
        rows.append(
            {
                "step": name,
                "path": path,
                "drives": drives,
                "reads": found["reads"],
                "writes": found["writes"],
                "seconds": found["seconds"],
                "MIOPS": (found["reads"] + found["writes"]) / found["seconds"] / 1e6,
                "GBps": moved / found["seconds"] / 1e9,
                "link_busy": max(found["link_up"], found["link_down"]),
                "cpu_busy": found["cpu_busy"],
                "in_flight": found["in_flight_mean"],
            }
        )
    return rows


def _said(rows: list[dict[str, Any]]) -> list[str]:
    """Return what each pair of steps gains, on both paths."""
    seconds = {(row["step"], row["path"]): row["seconds"] / (row["drives"] if "random" in row["step"] else 1)
               for row in rows}  # fmt: skip
    pairs = [
        ("Gen5, 10 drives", "random, 10 drives", "random, 10 drives, Gen5"),
        ("20 drives instead of 10", "random, 10 drives", "random, 20 drives"),
        ("Gen5, 20 drives", "random, 20 drives", "random, 20 drives, Gen5"),
        ("write-backs overlapped", "vectorAdd, write-backs waited for", "vectorAdd, write-backs overlapped"),
        ("whole lines not fetched", "vectorAdd, write-backs overlapped", "vectorAdd, lines not fetched"),
        ("tiles as lines", "squares, rows as lines", "squares, tiles as lines"),
        ("tiles as lines, QLC", "squares, rows as lines, 4 QLC drives", "squares, tiles as lines, 4 QLC drives"),
        ("20 QLC drives instead of 4", *(f"squares, tiles as lines, {n} QLC drives" for n in (4, 20))),
    ]
    return [
        f"{what}: {seconds[before, 'gpu'] / seconds[after, 'gpu']:.2f} times as fast for warps, "
        f"{seconds[before, 'cpu'] / seconds[after, 'cpu']:.2f} times for a process on the shared-memory door."
        for what, before, after in pairs
    ]


def run(context: Context) -> Result:
    """Run every step."""
    sizes = {name: context[name] for name in ("requests", "elements", "side")}
    found = context.map(run_one, [(name, sizes, context.seed) for name in STEPS], "steps")
    rows = [row for part in found for row in part]
    return Result(
        tables={"beyond": rows},
        figures=[
            Figure("beyond", "Beyond BaM", "bar", "beyond", "step", "seconds", series="path", y_log=True),
        ],
        assumptions=[
            *bam.assumptions(),
            *bam.assumptions("cpu"),
            "A Gen5 drive has twice the commands and twice the rates of its buses and link; its dies are the same.",
            "The recordings are those of warps; a process on the door has no warps, and its threads do not coalesce.",
        ],
        misfits=_said(rows),
    )


EXPERIMENT = Experiment(
    id="bam.beyond",
    title="Beyond BaM: Gen5, twenty drives, overlapped write-backs, QLC drives, tiles as lines",
    question="Which gains are left beyond BaM, and which of them does a CPU process on the shared-memory door get?",
    run=run,
    parameters={
        "requests": Parameter(8000, "random requests a drive", small=1000),
        "elements": Parameter(1_000_000, "elements of each vector, 8 bytes", small=200_000),
        "side": Parameter(1024, "side of the matrix of 8-byte elements", small=256),
    },
    devices=("qlc-enterprise",),
    minutes=3,
)
