"""A timeline of kernels on the modelled accelerator: a JSON trace that Perfetto opens, and a drawing for a page.

Workers are threads of one process, with a slice for each screen; kernels are threads of a second one, with a slice for
each microblock and for the way of outputs to flash. Times are modelled ones, in microseconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["timeline_events", "timeline_html", "write_timeline"]

_COLOURS = ("#2a6fbb", "#c2571a", "#5b8c2a", "#8a5bb0", "#b0a12a", "#4a9c9c", "#a03060", "#666666")
_WORKERS, _KERNELS = 1, 2


def _microblocks(report: Mapping[str, Any]) -> dict[tuple[int, int], tuple[float, float, int]]:
    """Return begin, end and number of screens of each microblock of each kernel."""
    found: dict[tuple[int, int], tuple[float, float, int]] = {}
    for span in report["spans"]:
        key = (span["kernel"], span["microblock"])
        start, end, count = found.get(key, (span["start"], span["end"], 0))
        found[key] = (min(start, span["start"]), max(end, span["end"]), count + 1)
    return found


def timeline_events(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a report's events, as the trace format of Perfetto and Chrome has them.

    The report is of :func:`nandarray.model.accelerator.run`, or of a session on an accelerator. Names of processes and
    threads come first; then slices, in the order of their begins.
    """
    kernels = report["kernels"]
    names: list[dict[str, Any]] = []

    def name(pid: int, tid: int | None, text: str) -> None:
        which = "process_name" if tid is None else "thread_name"
        names.append({"ph": "M", "name": which, "pid": pid, "tid": tid or 0, "args": {"name": text}})

    name(_WORKERS, None, "workers")
    name(_KERNELS, None, "kernels")
    for worker in range(len(report["utilisation"])):
        name(_WORKERS, worker, f"worker {worker}")
    for number, kernel in enumerate(kernels):
        name(_KERNELS, number, f"{number} {kernel['name']}")
    slices = []

    def add(pid: int, tid: int, text: str, start: float, end: float, **args: Any) -> None:
        made = {"ph": "X", "name": text, "pid": pid, "tid": tid, "ts": start * 1e6, "dur": (end - start) * 1e6}
        slices.append({**made, "args": args})

    for span in report["spans"]:
        kernel = kernels[span["kernel"]]["name"]
        text = f"{kernel} {span['kernel']}: microblock {span['microblock']}, screen {span['screen']}"
        more = {} if span["fine"] else {"fate": "runs again, or failed"}
        add(_WORKERS, span["worker"], text, span["start"], span["end"], computed_us=span["computed"] * 1e6, **more)
    for (kernel, microblock), (start, end, count) in _microblocks(report).items():
        add(_KERNELS, kernel, f"microblock {microblock}", start, end, screens=count)
    for number, kernel in enumerate(kernels):
        if kernel.get("flushed", 0) > kernel.get("end", 0) > 0:
            add(_KERNELS, number, "outputs to flash", kernel["end"], kernel["flushed"])
    return names + sorted(slices, key=lambda one: (one["ts"], one["pid"], one["tid"]))


def write_timeline(report: Mapping[str, Any], path: str | os.PathLike[str]) -> int:
    """Write a trace that ui.perfetto.dev opens.

    Parameters
    ----------
    report : mapping
        As for :func:`timeline_events`.
    path : path
        The file, ``.json``.

    Returns
    -------
    int
        Number of slices.

    Examples
    --------
    >>> from nandarray.model.accelerator import Block, Phantom, run
    >>> from nandarray.model.timeline import write_timeline
    >>> report = run([Phantom("k", 1 << 20, (Block(6, 6e6, 1 << 20), Block(1, 1e6, 0)))], "intra-out-of-order")
    >>> write_timeline(report, "timeline.json")
    9
    """
    events = timeline_events(report)
    Path(path).write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))
    return sum(one["ph"] == "X" for one in events)


def timeline_html(report: Mapping[str, Any], *, width: int = 900, most: int = 4000) -> str:
    """Draw workers over time; a kernel has a colour.

    Parameters
    ----------
    report : mapping
        As for :func:`timeline_events`.
    width : int
        Pixels.
    most : int
        The most screens that are drawn: the longest.

    Returns
    -------
    str
        SVG, with a title for each screen.
    """
    seconds = max(report["seconds"], 1e-12)
    spans = sorted(report["spans"], key=lambda span: span["start"] - span["end"])[:most]
    drawn, high = [], 18
    for span in sorted(spans, key=lambda span: (span["worker"], span["start"])):
        x, w = span["start"] / seconds * width, (span["end"] - span["start"]) / seconds * width
        colour = _COLOURS[span["kernel"] % len(_COLOURS)]
        kernel = report["kernels"][span["kernel"]]["name"]
        title = (
            f"{kernel} {span['kernel']}, microblock {span['microblock']}, screen {span['screen']}: "
            f"{span['start']:.6g} s to {span['end']:.6g} s, computing {span['computed']:.6g} s"
        )
        drawn.append(
            f'<rect x="{x:.2f}" y="{span["worker"] * high}" width="{max(w, 0.3):.2f}" height="{high - 3}" '
            f'fill="{colour}" fill-opacity="{1 - 0.35 * (span["microblock"] % 3):.2f}">'
            f"<title>{escape(title)}</title></rect>"
        )
    tall = len(report["utilisation"]) * high
    return f'<svg width="{width}" height="{tall}" role="img" aria-label="screens on workers">{"".join(drawn)}</svg>'
