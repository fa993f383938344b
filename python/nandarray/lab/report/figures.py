"""Figures of experiments as charts: which points, which axes, what the paper states beside them.

A chart is a mapping of plain data that ``charts.js`` draws: ``kind``, ``x`` and ``y`` (label, type, categories),
``series``, ``paper``. Everything that needs a decision is decided here; the script only draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nandarray.lab.report.text import show
from nandarray.units import format_number as number
from nandarray.units import is_number

__all__ = ["chart_of", "summary_of"]

Row = Mapping[str, Any]
Chart = dict[str, Any]

_SUMMARY_SERIES = 6
#: Units in names of columns, as labels write them.
_UNITS = {"GBps": "GB/s", "MBps": "MB/s", "Bps": "B/s", "mm2": "mm²"}
_UNITS |= {name: name for name in ("s", "ms", "us", "ns", "J", "mJ", "W", "mW", "GHz", "MiB", "KiB")}


def chart_of(figure: Mapping[str, Any], rows: Sequence[Row]) -> Chart:
    """Shape a :class:`nandarray.lab.Figure`, as a mapping, and its table.

    The chart has ``summary`` for those who do not see it, and ``hidden``, the number of points that its axes cannot
    show.
    """
    x_axis = _axis(figure, rows, "x", always_category=figure["kind"] in ("bar", "heatmap"))
    shape = {"heatmap": _heat_map, "timeline": _timeline}.get(figure["kind"], _series)
    chart = shape(figure, rows, x_axis)
    chart |= {"kind": figure["kind"], "title": figure["title"]} | ({"stack": True} if figure.get("stacked") else {})
    chart["summary"] = summary_of(chart)
    return chart


def _axis(figure: Mapping[str, Any], rows: Sequence[Row], which: str, *, always_category: bool = False) -> Chart:
    column = figure[which]
    label = figure.get(f"{which}_label") or _label(column)
    values = [row.get(column) for row in rows if row.get(column) is not None]
    points = [point[which] for point in figure.get("points", ())]
    if always_category or not all(map(is_number, [*values, *points])):
        known = list({show(value): value for value in [*values, *points]}.values())  # a list is no key
        if all(map(is_number, known)):
            known.sort()
        return {"label": label, "type": "category", "categories": list(dict.fromkeys(map(show, known)))}
    positive = any(is_number(value) and value > 0 for value in values)
    if not figure.get(f"{which}_log") or not positive:
        return {"label": label, "type": "value"}
    # Bars that are ratios stand on 1, and hang below it.
    return {"label": label, "type": "log"} | ({"ratio": True} if label.startswith("times") else {})


def _named(column: str, value: str) -> str:
    """Return a value with the name of its column, and its unit."""
    words = column.split("_")
    unit = _UNITS.get(words[-1], "") if len(words) > 1 else ""
    return f"{' '.join(words[:-1])} {value} {unit}" if unit else f"{_label(column)} {value}"


def _label(column: str) -> str:
    """Return the name of a column as a label: words, and its unit in brackets."""
    words = column.split("_")
    unit = _UNITS.get(words[-1], "")
    if unit and len(words) > 1:
        return f"{' '.join(words[:-1])} ({unit})"
    return " ".join(_UNITS.get(word, word) for word in words)


def _place(axis: Chart, value: Any) -> float | None:
    """Return the position of a value on an axis; None where the axis cannot show it."""
    if axis["type"] == "category":
        return None if value is None else float(axis["categories"].index(show(value)))
    if not is_number(value) or not math.isfinite(value) or (axis["type"] == "log" and value <= 0):
        return None
    return float(value)


def _series(figure: Mapping[str, Any], rows: Sequence[Row], x_axis: Chart) -> Chart:
    y_axis = _axis({**figure, "points": ()}, rows, "y")
    if y_axis["type"] == "category":
        y_axis = {"label": y_axis["label"], "type": "value"}
    split = figure.get("series") or ""
    alone = y_axis["label"]
    found: dict[str, list[list[float | None]]] = {}
    hidden = 0
    for row in rows:
        x, y = _place(x_axis, row.get(figure["x"])), _place(y_axis, row.get(figure["y"]))
        hidden += (x is None or y is None) and row.get(figure["y"]) is not None
        if x is not None and (y is not None or figure["kind"] != "scatter"):
            found.setdefault(show(row.get(split)) if split else alone, []).append([x, y])
    names = list(found)
    paper: dict[str, list[Chart]] = {}
    for point in figure.get("points", ()):
        x, y = _place(x_axis, point["x"]), _place(y_axis, point["y"])
        hidden += x is None or y is None
        # A figure of one series may leave the name of a point's series out.
        name = point["series"] or (names[0] if names else alone)
        at = {"x": x, "y": y, "bound": point.get("bound", ""), "where": point.get("where", "")}
        paper.setdefault(name if split else (names or [alone])[0], []).append(at)
    names += [name for name in paper if name not in names]
    if figure["kind"] == "line" and x_axis["type"] != "category":
        for points in found.values():
            points.sort(key=lambda point: point[0] or 0.0)
    # A number alone does not say of what it is.
    numbers = split and found and all(is_number(row[split]) for row in rows if row.get(split) is not None)
    said = {name: _named(split, name) if numbers else name for name in names}
    return {
        "x": x_axis,
        "y": y_axis,
        "series": [{"name": said[name], "slot": slot, "data": found.get(name, [])} for slot, name in enumerate(names)],
        "paper": [{"name": said[name], "slot": names.index(name), "data": data} for name, data in paper.items()],
        "hidden": hidden,
    }


def _heat_map(figure: Mapping[str, Any], rows: Sequence[Row], x_axis: Chart) -> Chart:
    y_axis = _axis(figure, rows, "y", always_category=True)
    value = figure.get("value") or ""
    cells, hidden = [], 0
    for row in rows:
        x, y, colour = _place(x_axis, row.get(figure["x"])), _place(y_axis, row.get(figure["y"])), row.get(value)
        if x is None or y is None or not is_number(colour) or not math.isfinite(colour):
            hidden += 1
        else:
            cells.append([int(x), int(y), colour])
    return {"x": x_axis, "y": y_axis, "value": _label(value), "cells": cells, "hidden": hidden}


def _timeline(figure: Mapping[str, Any], rows: Sequence[Row], x_axis: Chart) -> Chart:
    """Shape bars from ``x`` to ``value`` on lanes, which are the values of ``y``; a series is a colour."""
    y_axis = _axis(figure, rows, "y", always_category=True)
    split, end = figure.get("series") or "", figure.get("value") or ""
    found: dict[str, list[list[float]]] = {}
    hidden = 0
    for row in rows:
        begin, lane, until = _place(x_axis, row.get(figure["x"])), _place(y_axis, row.get(figure["y"])), row.get(end)
        if begin is None or lane is None or not is_number(until) or not math.isfinite(until) or until < begin:
            hidden += 1
        else:
            found.setdefault(show(row.get(split)) if split else figure["y"], []).append([begin, lane, float(until)])
    series = [{"name": name, "slot": slot, "data": bars} for slot, (name, bars) in enumerate(found.items())]
    return {"x": x_axis, "y": y_axis, "series": series, "paper": [], "hidden": hidden}


def summary_of(chart: Mapping[str, Any]) -> str:
    """Say in some sentences what a chart of :func:`chart_of` shows, for those who do not see it."""
    kinds = {
        "line": "Line chart",
        "bar": "Bar chart",
        "scatter": "Scatter plot",
        "heatmap": "Heat map",
        "timeline": "Timeline",
    }
    said = [f"{kinds.get(chart['kind'], 'Chart')}: {chart['title']}."]
    if "cells" in chart:
        said.append(
            f"{chart['value']} over {chart['x']['label']} and {chart['y']['label']}, {len(chart['cells'])} cells"
        )
        if chart["cells"]:
            low, high = (pick(chart["cells"], key=lambda cell: float(cell[2])) for pick in (min, max))
            said[-1] += f"; lowest {_cell_text(chart, low)}, highest {_cell_text(chart, high)}"
        return " ".join([*said[:-1], said[-1] + "."])
    said.append(f"{chart['y']['label']} over {chart['x']['label']}.")
    if chart["kind"] == "timeline":
        bars = [bar for series in chart["series"] for bar in series["data"]]
        ends = f" from {number(min(bar[0] for bar in bars))} to {number(max(bar[2] for bar in bars))}" if bars else ""
        said.append(f"{len(bars)} bars of {len(chart['series'])} series{ends}.")
        return " ".join(said)
    for series in chart["series"][:_SUMMARY_SERIES]:
        points = [point for point in series["data"] if point[1] is not None]
        if points:
            low, high = (pick(points, key=lambda point: float(point[1])) for pick in (min, max))
            said.append(
                f"{series['name']}: {len(points)} points, lowest {number(low[1])} at {_at(chart['x'], low[0])}, "
                f"highest {number(high[1])} at {_at(chart['x'], high[0])}."
            )
    more = len(chart["series"]) - _SUMMARY_SERIES
    if more > 0:
        said.append(f"And {more} more series.")
    stated = sum(len(series["data"]) for series in chart["paper"])
    if stated:
        said.append(f"Beside them {stated} points that the paper states.")
    return " ".join(said)


def _at(axis: Mapping[str, Any], place: float) -> str:
    return str(axis["categories"][int(place)]) if axis["type"] == "category" else number(place)


def _cell_text(chart: Mapping[str, Any], cell: Sequence[Any]) -> str:
    return f"{number(cell[2])} at {_at(chart['x'], cell[0])}, {_at(chart['y'], cell[1])}"
