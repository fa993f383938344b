"""Two runs beside each other, as tables and ratio bars.

:class:`nandarray.lab.Comparison` matches the two runs; this file puts that in words and charts. Devices that
both runs report under one label are added: time, energy, bandwidth, latency. Ratios are of the second run to the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nandarray.lab import Comparison
from nandarray.lab.report.text import show
from nandarray.units import format_number as number

__all__ = ["answer_bars", "device_bars", "device_rows", "parameter_rows", "ratio_chart", "table_bars"]

Row = dict[str, Any]
Bar = tuple[str, float | None]

_BARS_MAX = 60
_MEASURES = {
    "elapsed s": ("elapsed_s",),
    "device J": ("energy", "device_j"),
    "bytes/s": ("all", "bytes_per_s"),
    "mean us": ("all", "latency", "mean_us"),
    "p50 us": ("all", "latency", "p50_us"),
    "p99 us": ("all", "latency", "p99_us"),
    "p99.9 us": ("all", "latency", "p99_9_us"),
}


def parameter_rows(both: Comparison) -> list[Row]:
    """Give what was set differently, with its meaning: ``name``, ``a``, ``b``, ``meaning``."""
    meanings = {**both.b.data.get("meanings", {}), **both.a.data.get("meanings", {})}
    return [{**row, "meaning": meanings.get(row["name"], "")} for row in both.parameters]


def answer_bars(both: Comparison) -> list[Bar]:
    """Give the ratios of answers by claim."""
    return [(row["claim"], row["ratio"]) for row in both.answers]


def device_rows(both: Comparison) -> list[Row]:
    """Give time, energy, bandwidth and latency of the devices that both runs report under one label."""
    rows: list[Row] = []
    for label, report in both.a.reports.items():
        for measure, path in _MEASURES.items():
            a, b = _dig(report, path), _dig(both.b.reports.get(label, {}), path)
            if a is not None and b is not None:
                rows.append({"report": label, "measure": measure, "a": a, "b": b, "ratio": b / a if a else None})
    return rows


def device_bars(rows: Iterable[Row]) -> list[Bar]:
    """Give the ratios of :func:`device_rows`."""
    return [(f"{row['report']} · {row['measure']}", row["ratio"]) for row in rows]


def table_bars(rows: Iterable[Row]) -> list[Bar]:
    """Give the ratios of a table that both runs have, from rows of :meth:`nandarray.lab.Comparison.rows`.

    A bar's name has the columns that tell rows apart and the name of what was measured.
    """
    bars = []
    for row in rows:
        ratios = {name.removesuffix(" ratio"): value for name, value in row.items() if name.endswith(" ratio")}
        keys = [show(value) for name, value in row.items() if name.removesuffix(" ratio") not in ratios
                and name.removesuffix(" a") not in ratios and name.removesuffix(" b") not in ratios]  # fmt: skip
        bars += [(" · ".join([*keys, measured]), ratio) for measured, ratio in ratios.items()]
    return bars


def ratio_chart(title: str, bars: Sequence[Bar]) -> Row | None:
    """Give ratios as bars to both sides of 1: those that differ most if there are many; None if there is no ratio."""
    known = [(name, ratio) for name, ratio in bars if ratio is not None and ratio > 0 and math.isfinite(ratio)]
    if not known:
        return None
    if len(known) > _BARS_MAX:
        known = sorted(known, key=lambda bar: -abs(math.log(bar[1])))[:_BARS_MAX]
    low, high = (pick(known, key=lambda bar: bar[1]) for pick in (min, max))
    return {
        "kind": "bars",
        "title": title,
        "summary": f"Bars of {len(known)} ratios, from {number(low[1])} ({low[0]}) to {number(high[1])} ({high[0]}).",
        "x": {"label": "second run / first run", "type": "ratio"},
        "y": {"label": "", "type": "category", "categories": [name for name, _ in known]},
        "series": [{"name": "ratio", "slot": 0, "data": [ratio for _, ratio in known]}],
    }


def _dig(report: Mapping[str, Any], path: Sequence[str]) -> Any:
    found: Any = report
    for part in path:
        if not isinstance(found, Mapping) or found.get(part) is None:
            return None
        found = found[part]
    return found
