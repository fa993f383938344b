"""Runs to write reports of: devices replayed for real, tables and answers made up for the page's sake."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import nandarray
from nandarray import lab
from nandarray.lab import Answer, Experiment, Figure, PaperPoint, Parameter, Result

HOSTILE = """</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"><!-- & "quoted" 'too'"""
SYSTEMS = ["row-store baseline", "column-store", "software NDS", "hardware NDS"]
WORKLOADS = ["BFS", "SSSP", "GEMM", "Hotspot", "KMeans", "KNN", "PageRank", "Conv2D", "TTV", "TC"]
DEVICES = ["nds-prototype", "samsung-970-pro", "tiny"]


@cache
def replayed(device: str, read_share: float) -> dict[str, Any]:
    """A report of a device, replayed; the same object for the same arguments, so leave it as it is."""
    workload = nandarray.Synthetic(requests=3000, depth=32, read_share=read_share)
    precondition = 0.05 if device == "tiny" else "full"
    return dict(nandarray.replay(workload, device=device, precondition=precondition).data)


def figures(more: int, first: str) -> list[Figure]:
    """A figure of each kind, and more of the first."""
    rows = [
        PaperPoint("software NDS", 1024, 3.8, "7.1, Fig 9(a)"),
        PaperPoint("column-store", 4096, 0.6, "7.1, Fig 9(b)", "at most"),
        PaperPoint("hardware NDS", 2048, 4.3, "7.1, Fig 9(a)", "at least"),
    ]
    speed = [
        PaperPoint("software NDS", "BFS", 1.0, "7.2", "about"),
        PaperPoint("hardware NDS", "TC", 5.73, "7.2, Fig 10(a)"),
        PaperPoint("software NDS", "GEMM", 5.07, "7.2, Fig 10(a)", "at most"),
    ]
    fetched = {"x_label": "rows fetched", "y_label": "bandwidth (GB/s)", "x_log": True, "points": rows}
    many = [
        Figure(f"more{n}", f"Fetching rows, again {n}", "line", "rows", "rows", "GBps", "system", **fetched)
        for n in range(more)
    ]
    caption = "Software NDS pays for its copies; hardware NDS is as fast as rows stored as rows."
    return [
        Figure("fig9a", first, "line", "rows", "rows", "GBps", "system", caption=caption, **fetched),
        Figure("fig10", "Speed-up end to end", "bar", "speed", "workload", "speedup", "system",
               y_label="speed-up over the baseline", points=speed),
        Figure("scatter", "Latency and energy", "scatter", "cloud", "us", "joules", "system",
               x_label="latency (us)", y_label="energy (J)", x_log=True, y_log=True),
        Figure("heat", "Bandwidth over tiles", "heatmap", "tiles", "width", "height", value="GBps",
               x_label="tile width", y_label="tile height"),
        Figure("lanes", "Screens on workers", "timeline", "screens", "begin_s", "worker", "system", value="end_s",
               x_label="seconds", y_label="worker"),
        *many,
    ]  # fmt: skip


def tables(scale: float, systems: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Tables that the figures draw."""
    return {
        "rows": [
            {"system": s, "rows": r, "GBps": round(scale * (4.3 - 0.6 * n - 200 / r), 4), "seconds": 0.01 * r / 512}
            for n, s in enumerate(systems) for r in (512, 1024, 2048, 4096)
        ],
        "speed": [
            {"system": s, "workload": w, "speedup": round(scale * (1 + n * (0.4 + 0.13 * i)), 4)}
            for n, s in enumerate(systems) for i, w in enumerate(WORKLOADS)
        ],
        "cloud": [
            {"system": s, "us": scale * 10 * 1.3**i, "joules": 0.01 * (n + 1) * 1.1**i}
            for n, s in enumerate(systems) for i in range(20)
        ],
        "screens": [
            {"system": s, "worker": f"worker {i % 4}", "begin_s": scale * begin, "end_s": scale * (begin + 0.9)}
            for n, s in enumerate(systems) for i in range(16) for begin in [2 * (i // 4) + n]
        ],
        "tiles": [
            {"width": w, "height": h, "GBps": round(scale * 4.3 * min(1, w * h / 65536), 4)}
            for w in (16, 64, 256, 1024) for h in (16, 64, 256, 1024)
        ],
        "beside": [{"what": "a table that no figure shows", "value": 1.5, "yes": True}],
    }  # fmt: skip


def answers(scale: float) -> list[Answer]:
    """One of each kind: within, not, calibrated, a shape that holds and one that does not."""
    return [
        Answer("nds.fig10.sw_speedup", 4.9 * scale),
        Answer("nds.fig10.hw_speedup", 3.9 * scale, note="short by a third: the copies of the host are too slow"),
        Answer("nds.fig9a.row.sw_GBps", 3.81, calibrated=True),
        Answer("nds.fig9c.submatrix.order", measured=True),
        Answer("zou.assasin.fig7_12.sb", measured=False),
    ]


def make(
    runs: Path, *, name: str = "made.up", title: str = "", scale: float = 1.0, labels: int = 3, more: int = 0,
    hostile: str = "",
) -> lab.Run:  # fmt: skip
    """Run an experiment whose numbers are made up, and whose devices are not."""
    systems = [*SYSTEMS[:3], hostile] if hostile else SYSTEMS

    def measure(context: lab.Context) -> Result:
        return Result(
            tables=tables(context["scale"], systems),
            answers=answers(context["scale"]),
            figures=figures(more, hostile or "Fetching rows"),
            reports={f"{DEVICES[n % 3]}-{n}": replayed(DEVICES[n % 3], [1.0, 0.7][n // 3 % 2]) for n in range(labels)},
            assumptions=[hostile or "The host copies with 10 GB/s (not in the paper)."],
            misfits=["BFS is 20 % slower than in the paper: its fetches are shorter than a building block."],
        )

    claims = [answer.claim for answer in answers(1.0)]
    experiment = Experiment(
        id=name,
        title=hostile or title or f"Figures 9 and 10, scale {scale:g}",
        question="How much faster are sub-blocks fetched from building blocks than from rows?",
        run=measure,
        claims=[*claims, "nds.fig9d.write.sw_loss"],
        parameters={
            "scale": Parameter(1.0, "of all numbers, made up"),
            "device": Parameter("tiny", hostile or "which"),
        },
    )
    return lab.run(experiment, profile="small", parameters={"scale": scale}, runs=runs)


def sweep_rows(points: int = 200) -> list[dict[str, Any]]:
    """Points of a sweep, scattered without chance."""
    return [
        {"channels": 1 << (n % 6), "t_read_us": 20 + 7 * (n % 11), "GBps": 0.1 * (1 << (n % 6)) / (1 + n % 7),
         "p99_us": 90 + (n * 37) % 101, "joules": 0.5 + (n * 53) % 97 / 50}
        for n in range(points)
    ]  # fmt: skip
