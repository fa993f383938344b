"""Reports of timed cores as a stack of cycles an instruction: where the cores' time went, by reason.

A report has it under ``programs.timed_cores`` (``docs/model/cores.md``) if programs ran on described cores. Reports
without such cores, or whose programs executed no instruction, are left out. Times by function and source line are not
here: a report has none (``nandarray program profile --core``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nandarray.units import format_number as number

__all__ = ["cpi_chart", "cpi_rows"]

Report = Mapping[str, Any]
Row = dict[str, Any]

#: Reasons in the order of the stack, and what the chart calls them.
_REASONS = {
    "issue": "instructions issued",
    "hazard": "operands awaited",
    "structural": "units busy",
    "branch": "branches and jumps",
    "fetch": "caches, for code",
    "fetch_memory": "memory, for code",
    "l1": "data cache",
    "l2": "second level, for data",
    "memory": "memory, for data",
    "scratchpad": "scratchpad",
    "stream": "stream instructions",
    "stream_wait": "waits for streams",
    "entry_points": "entry points other than a task's",
}


def cpi_rows(reports: Mapping[str, Report]) -> list[Row]:
    """Give cycles an instruction by reason, for each report, by label, with timed cores.

    The columns are ``report``, ``core``, ``reason``, ``cycles an instruction``, ``share``; reasons without cycles are
    left out. The rows of a report add up to its cycles an instruction.
    """
    rows = []
    for label, report in reports.items():
        cores = (report.get("programs") or {}).get("timed_cores") or {}
        seconds = dict(cores.get("seconds_by_reason") or ())
        total = math.fsum(seconds.values())
        if not total or not cores.get("cpi"):
            continue
        rows += [
            {
                "report": label,
                "core": cores.get("core"),
                "reason": name,
                "cycles an instruction": cores["cpi"] * value / total,
                "share": value / total,
            }
            for name, value in seconds.items()
            if value
        ]
    return rows


def cpi_chart(title: str, reports: Mapping[str, Report]) -> dict[str, Any] | None:
    """Give cycles an instruction as stacked bars: a bar a report, a part a reason; None if none has timed cores."""
    rows = cpi_rows(reports)
    if not rows:
        return None
    labels = list(dict.fromkeys(row["report"] for row in rows))
    known = {row["reason"]: row["reason"] for row in rows}
    names = [name for name in _REASONS | known if name in known]
    amounts = {(row["report"], row["reason"]): row["cycles an instruction"] for row in rows}
    sums = {
        label: math.fsum(row["cycles an instruction"] for row in rows if row["report"] == label) for label in labels
    }
    said = "; ".join(f"{label} {number(value)}" for label, value in sums.items())
    return {
        "kind": "bar",
        "stack": True,
        "title": title,
        "summary": f"Stacked bars of cycles an instruction by reason: {said}.",
        "x": {"label": "", "type": "category", "categories": labels},
        "y": {"label": "cycles an instruction", "type": "value"},
        "series": [
            {
                "name": _REASONS.get(name, name),
                "slot": slot,
                "data": [[at, amounts.get((label, name), 0.0)] for at, label in enumerate(labels)],
            }
            for slot, name in enumerate(names)
        ],
        "paper": [],
    }
