"""Sweeps as a table and a scatter plot whose axes may be chosen, with the Pareto front drawn.

The front is of the two axes that are shown, and only where it is known of both whether less or more is better. Points
that failed are listed beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nandarray.lab.read_sweep import Sweep
from nandarray.lab.report.source import rows_of
from nandarray.lab.report.text import columns_of, show
from nandarray.units import is_number

__all__ = ["SweepData", "pareto_chart", "sweep_data"]


@dataclass(frozen=True)
class SweepData:
    """A sweep, as plain data.

    ``rows`` are the points that ran, ``failures`` those that failed. ``objectives`` has ``"min"`` or ``"max"`` for each
    column of which it is known what is better. ``axes`` are the columns that differ from point to point; all that are
    no objectives if left out. ``note`` is a remark for the reader.
    """

    title: str
    rows: Sequence[Mapping[str, Any]]
    objectives: Mapping[str, str] = field(default_factory=dict)
    axes: Sequence[str] = ()
    failures: Sequence[Mapping[str, Any]] = ()
    note: str = ""


def sweep_data(sweep: SweepData | Sweep | str | os.PathLike[str]) -> SweepData:
    """Take a sweep as plain data; a path is its folder, and a NotFoundError says that there is none."""
    if isinstance(sweep, SweepData):
        return sweep
    found = sweep if isinstance(sweep, Sweep) else Sweep(sweep)
    head = found.data
    return SweepData(
        title=str(head.get("title") or head["name"]),
        rows=rows_of(found, "points"),
        objectives=head["objectives"],
        axes=[axis["column"] for axis in head["axes"]],
        failures=rows_of(found, "failures"),
        note=f"{head['points']:,} points, {head['failed']:,} of them failed.",
    )


def pareto_chart(sweep: SweepData) -> dict[str, Any] | None:
    """Give the scatter plot of a sweep; None if fewer than two columns are numbers.

    It has columns of numbers, the names of points, and the axes that are shown at first.
    """
    columns = {}
    for name in columns_of(sweep.rows):
        values = [row.get(name) for row in sweep.rows]
        if any(map(is_number, values)) and all(value is None or is_number(value) for value in values):
            columns[name] = values
    if len(columns) < 2:
        return None
    known = [name for name in sweep.objectives if name in columns]
    telling = [name for name in known if len(set(columns[name])) > 1]
    x, y = list(dict.fromkeys([*telling, *known, *columns]))[:2]
    inputs = sweep.axes or [name for name in columns_of(sweep.rows) if name not in sweep.objectives]
    return {
        "kind": "pareto",
        "title": "Trade-offs",
        "summary": f"Scatter plot of {sweep.title}, {len(sweep.rows)} points; at first {y} over {x}.",
        "columns": columns,
        "objectives": {name: sweep.objectives[name] for name in known},
        "x": {"label": x, "type": "value"},
        "y": {"label": y, "type": "value"},
        "points": [", ".join(f"{name} = {show(row.get(name))}" for name in inputs) for row in sweep.rows],
    }
