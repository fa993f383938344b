"""Reports of modelled devices as charts and tables: utilisation, energy, latency.

A report is what :mod:`nandarray.replay` and a store under the modelled clock give, described on the page
``docs/reference/replay-report.md``. A field that a report lacks leaves out what would show it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nandarray.units import format_number as number

__all__ = [
    "PERCENTILES",
    "busy_chart",
    "cdf_chart",
    "dies_chart",
    "dies_rows",
    "energy_chart",
    "energy_rows",
    "percentile_rows",
    "totals_rows",
]

Report = Mapping[str, Any]
Chart = dict[str, Any]
Row = dict[str, Any]

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999, "p99_99": 0.9999}
_OPS = ("read", "write", "trim", "flush")
_CURVES_SHOWN = 6  # more curves at first would be a tangle

# Part of the device, and what it does there, for each key of the report's energy.
_PARTS = {
    "sense": ("flash dies", "sensing"),
    "program": ("flash dies", "programming"),
    "erase": ("flash dies", "erasing"),
    "die_idle": ("flash dies", "dies at rest"),
    "bus": ("channels", "bytes over channels"),
    "ecc": ("channels", "decoding"),
    "dram": ("DRAM", "bytes in and out of DRAM"),
    "dram_idle": ("DRAM", "refresh and standby"),
    "link": ("host link", "bytes over the link"),
    "link_idle": ("host link", "link up"),
    "cores": ("controller", "cores that work"),
    "cores_idle": ("controller", "cores at rest"),
    "controller_idle": ("controller", "the rest of it"),
    "asleep": ("controller", "idle states of the device"),
}
# So that a part has one colour in every diagram.
_PART_SLOTS = {part: slot for slot, part in enumerate(dict.fromkeys(part for part, _ in _PARTS.values()))}
# Operations of the flash whose pages or blocks are counted by cause.
_COUNTED = {"sense": ("sensing", "senses"), "program": ("programming", "programs"), "erase": ("erasing", "erases")}
_CAUSES = {"host": "the host", "map": "the map", "gc": "reclaim", "wear": "wear levelling"}


def dies_chart(label: str, report: Report) -> Chart | None:
    """Give the busy shares of channels and dies as a heat map: a column a channel, a row a way."""
    used = report.get("utilisation", {})
    channels: Sequence[float] = used.get("channels") or []
    dies: Sequence[float] = used.get("dies") or []
    if not channels:
        return None
    ways = len(dies) // len(channels)
    cells: list[list[Any]] = [[channel, 0, share] for channel, share in enumerate(channels)]
    cells += [[n // ways, 1 + n % ways, share] for n, share in enumerate(dies[: ways * len(channels)])]
    every = [f"{name} {number(sum(of) / len(of) * 100)} % busy on average, {number(max(of) * 100)} % at most"
             for name, of in (("channels", channels), ("dies", dies)) if of]  # fmt: skip
    return {
        "kind": "heatmap",
        "title": f"Busy channels and dies, {label}",
        "summary": f"Heat map of {len(channels)} channels and {len(dies)} dies: {'; '.join(every)}.",
        "x": {"label": "channel", "type": "category", "categories": [str(n) for n in range(len(channels))]},
        "y": {"label": "", "type": "category", "categories": ["bus", *(f"die {n}" for n in range(ways))]},
        "value": "busy",
        "percent": True,
        "cells": cells,
        "flip": True,
    }


def dies_rows(report: Report) -> list[Row]:
    """Give the busy shares as a table, a row a channel: ``channel``, ``bus``, and a column for each die on it."""
    used = report.get("utilisation", {})
    channels, dies = used.get("channels") or [], used.get("dies") or []
    ways = len(dies) // len(channels) if channels else 0
    return [
        {"channel": n, "bus": share, **{f"die {way}": dies[n * ways + way] for way in range(ways)}}
        for n, share in enumerate(channels)
    ]


def busy_chart(label: str, report: Report) -> Chart | None:
    """Give the busy shares of link, DRAM and cores as bars; None if the report says nothing of them."""
    used = report.get("utilisation", {})
    bars = [(name, used[key]) for key, name in _SINGLE.items() if key in used]
    for key, name in (("cores", "core"), ("host_cores", "host core")):
        bars += [(f"{name} {n}", share) for n, share in enumerate(used.get(key) or [])]
    if not bars:
        return None
    busiest = max(bars, key=lambda bar: bar[1])
    return {
        "kind": "bars",
        "title": f"Busy link, memory and cores, {label}",
        "summary": f"Bars of {len(bars)} busy shares; {busiest[0]} is busiest with {number(busiest[1] * 100)} %.",
        "x": {"label": "busy", "type": "percent"},
        "y": {"label": "", "type": "category", "categories": [name for name, _ in bars]},
        "series": [{"name": "busy", "slot": 0, "data": [share for _, share in bars]}],
    }


_SINGLE = {"link_down": "link, to device", "link_up": "link, to host", "dram": "DRAM"}


def energy_rows(report: Report) -> list[Row]:
    """Give the energy of the device: ``part``, ``operation``, ``energy_j``, ``share``.

    Zero ones are left out; the host's cores come last and without a share.
    """
    energy = report.get("energy", {})
    total = energy.get("device_j") or 0.0
    rows = []
    for key, value in energy.items():
        name = key.removesuffix("_j")
        if not key.endswith("_j") or name in ("device", "host_cores") or not value:
            continue
        part, operation = _PARTS.get(name, ("others", name.replace("_", " ")))
        rows.append(
            {"part": part, "operation": operation, "energy_j": value, "share": value / total if total else None}
        )
    rows.sort(key=lambda row: _PART_SLOTS.get(row["part"], len(_PART_SLOTS)))
    if energy.get("host_cores_j"):
        host = {"part": "host (not the device)", "operation": "host cores", "energy_j": energy["host_cores_j"]}
        rows.append(host | {"share": None})
    return rows


def energy_chart(label: str, report: Report) -> Chart | None:
    """Give the energy of the device as a Sankey diagram: the device, its parts, their operations, and for whom.

    The energy of an operation of the flash is shared among causes by the number of pages or blocks. A device that took
    no energy has no diagram.
    """
    rows = [row for row in energy_rows(report) if row["share"] is not None]
    if not rows:
        return None
    parts: dict[str, float] = {}
    for row in rows:
        parts[row["part"]] = parts.get(row["part"], 0.0) + row["energy_j"]
    total = sum(parts.values())
    links: list[Chart] = [{"source": "device", "target": part, "value": value} for part, value in parts.items()]
    links += [{"source": row["part"], "target": row["operation"], "value": row["energy_j"]} for row in rows]
    for operation, kind in _COUNTED.values():
        took = sum(row["energy_j"] for row in rows if row["operation"] == operation)
        counts = report.get("flash", {}).get(kind) or {}
        known = sum(counts.values())
        if took and known:
            links += [
                {
                    "source": operation,
                    "target": f"{operation} for {_CAUSES.get(cause, cause)}",
                    "value": took * n / known,
                }
                for cause, n in counts.items()
                if n
            ]
    names = list(dict.fromkeys(name for link in links for name in (link["source"], link["target"])))
    largest = max(parts, key=lambda part: parts[part])
    return {
        "kind": "sankey",
        "title": f"Energy, {label}",
        "summary": f"Energy of the device: {number(total)} J in all, most of it in {largest} "
        f"({number(parts[largest] / total * 100)} %).",
        "nodes": names,
        "slots": {part: _PART_SLOTS.get(part, len(_PART_SLOTS)) for part in parts},
        "links": links,
        "total": total,
        "unit": "J",
    }


def _curves(reports: Mapping[str, Report]) -> list[tuple[str, Mapping[str, Any]]]:
    found = []
    for label, report in reports.items():
        used = [op for op in _OPS if (report.get(op) or {}).get("latency")]
        for op in used:
            found.append((label if len(used) == 1 else f"{label}, {op}", report[op]))
    return found


def cdf_chart(title: str, reports: Mapping[str, Report]) -> Chart | None:
    """Give the latency distributions of several reports, by label, over one another, percentiles marked.

    A report with several kinds of requests gives a curve for each; without latencies there is no chart.
    """
    series: list[Chart] = []
    for slot, (name, of) in enumerate(_curves(reports)):
        took = of["latency"]
        marks = [[took[f"{p}_us"], share] for p, share in PERCENTILES.items() if took.get(f"{p}_us")]
        # The curve goes through its percentiles, between which a distribution of few values has no point.
        data = [[at, share] for at, share in took.get("distribution") or () if at > 0]
        data = sorted([*data, *(mark for mark in marks if data)], key=lambda point: (point[1], point[0]))
        shown = slot < _CURVES_SHOWN
        series.append({"name": name, "slot": slot, "data": data, "marks": marks, "shown": shown})
    if not series:
        return None
    at = [mark[0] for one in series for mark in one["marks"] if mark[1] == PERCENTILES["p99"]]
    summary = f"Latency distributions of {len(series)} kinds of requests"
    if at:
        summary += f"; the 99th percentiles are from {number(min(at))} to {number(max(at))} us"
    return {
        "kind": "cdf",
        "title": title,
        "summary": f"{summary}.",
        "x": {"label": "latency (us)", "type": "log"},
        "y": {"label": "share of requests", "type": "share"},
        "series": series,
    }


def percentile_rows(reports: Mapping[str, Report]) -> list[Row]:
    """Give the table of percentiles of several reports, a row for each label and kind of request."""
    rows = []
    for label, report in reports.items():
        for op in _OPS:
            of = report.get(op) or {}
            took = of.get("latency")
            if not took:
                continue
            row: Row = {"report": label, "op": op, "requests": of.get("requests"), "failed": of.get("failed")}
            row |= {"MB/s": _over(of.get("bytes_per_s"), 1e6), "IOPS": of.get("iops")}
            row |= {f"{name} us": took.get(f"{name}_us") for name in ("mean", "min", *PERCENTILES, "max")}
            rows.append({name.replace("_", "."): value for name, value in row.items()})
    return _known(rows)


def totals_rows(reports: Mapping[str, Report]) -> list[Row]:
    """Give what a run of each device came to: time, energy, write amplification, mean busy shares."""
    rows = []
    for label, report in reports.items():
        used, energy = report.get("utilisation", {}), report.get("energy", {})
        row: Row = {"report": label, "device": report.get("device"), "elapsed s": report.get("elapsed_s")}
        row |= {"device J": energy.get("device_j"), "device W": energy.get("device_w")}
        row["write amplification"] = (report.get("management") or {}).get("write_amplification")
        for key, name in (("channels", "channels"), ("dies", "dies"), ("cores", "cores"), ("host_cores", "host cores")):
            shares = used.get(key)
            row[f"{name} busy %"] = 100 * math.fsum(shares) / len(shares) if shares else None
        for key, name in _SINGLE.items():
            row[f"{name} busy %"] = _over(used.get(key), 0.01)
        rows.append(row)
    return _known(rows)


def _known(rows: list[Row]) -> list[Row]:
    """Return rows without the columns in which nothing is known."""
    known = {name for row in rows for name, value in row.items() if value is not None}
    return [{name: value for name, value in row.items() if name in known} for row in rows]


def _over(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit
