"""A replay as HTML for notebooks: its tables, latencies as a curve, energy as a bar. Plain HTML and SVG, no script."""

from __future__ import annotations

from html import escape
from math import log10
from typing import TYPE_CHECKING, Any

from nandarray.model.replay_rows import LATENCIES, OPERATIONS, energy_rows, facts, promise_rows, throughput_rows
from nandarray.present.html import table
from nandarray.units import scaled

if TYPE_CHECKING:
    from nandarray.model.replay import Replay

__all__ = ["replay_html"]

_COLOURS = {"read": "#2a6fbb", "write": "#c2571a", "trim": "#7a7a7a", "flush": "#5b8c2a"}
_WIDTH, _HEIGHT, _LEFT, _BELOW = 420.0, 170.0, 52.0, 34.0
#: Shares of requests that the curve's axis names; the axis is logarithmic in what is slower.
_TICKS = (0.0, 0.9, 0.99, 0.999, 0.9999)
_BAR = ("#2a6fbb", "#c2571a", "#5b8c2a", "#8a5bb0", "#b0a12a", "#4a9c9c", "#999999")


def replay_html(replay: Replay) -> str:
    """Describe the results of a replay as an HTML fragment."""
    data = replay.data
    headings = ["", "requests", "IOPS", "throughput", *(f"{heading} us" for heading in LATENCIES.values())]
    parts = [
        f"<p>{escape(repr(replay))}</p>",
        table(throughput_rows(data), headings, numbers=True),
        _curve(data),
        table(facts(data)),
        _energy(data),
    ]
    if rows := promise_rows(data):
        parts.append(table(rows, ("data sheet", "here", "there", ""), numbers=True))
    parts += [f"<p>{escape(note)}</p>" for note in data["notes"]]
    return f"<div>{''.join(parts)}</div>"


def _curve(data: dict[str, Any]) -> str:
    """Draw how long the slowest took: latency upwards, share of requests to the right, both logarithmic."""
    points = {name: data[name]["latency"]["distribution"] for name in OPERATIONS if data[name]["latency"]}
    times = [us for drawn in points.values() for us, _ in drawn if us > 0]
    if not times:
        return ""
    low, high = log10(min(times)), log10(max(times))
    low, high = (low - 0.1, high + 0.1) if high - low < 0.2 else (low, high)  # noqa: PLR2004 (decades)
    last = -log10(1 - _TICKS[-1])

    def x(share: float) -> float:
        return _LEFT + (_WIDTH - _LEFT) * min(1.0, (last if share >= 1 else -log10(1 - share)) / last)

    def y(us: float) -> float:
        return _HEIGHT * (1 - (log10(us) - low) / (high - low)) + 6

    parts = []
    for tick in _TICKS:
        label = "fastest" if tick == 0 else f"{100 * tick:.6g} %"
        parts.append(
            f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="6" y2="{_HEIGHT + 6:.0f}" stroke="#ccc"/>'
            f'<text x="{x(tick):.1f}" y="{_HEIGHT + 22:.0f}" font-size="10" text-anchor="middle">{label}</text>'
        )
    for us in (10**low, 10**high):
        label = scaled(us * 1e-6, "s")
        parts.append(f'<text x="{_LEFT - 4:.0f}" y="{y(us) + 4:.1f}" font-size="10" text-anchor="end">{label}</text>')
    for number, (name, drawn) in enumerate(points.items()):
        line = " ".join(f"{x(share):.1f},{y(us):.1f}" for us, share in drawn if us > 0)
        colour = _COLOURS[name]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{_LEFT + 8:.0f}" y="{18 + 13 * number}" font-size="11" fill="{colour}">{name}</text>')
    return (
        f'<svg width="{_WIDTH + 24:.0f}" height="{_HEIGHT + _BELOW:.0f}" role="img" '
        f'aria-label="latency by share of requests">{"".join(parts)}</svg>'
    )


def _energy(data: dict[str, Any]) -> str:
    """Draw the device's energy by part as one bar."""
    parts, at = [], 0.0
    rows = energy_rows(data)
    for number, (name, joules, share) in enumerate(rows):
        colour = _BAR[min(number, len(_BAR) - 1)]
        parts.append(
            f'<rect x="{at:.1f}" y="0" width="{share * _WIDTH:.1f}" height="16" fill="{colour}">'
            f"<title>{escape(name)}: {scaled(joules, 'J')}, {share:.1%}</title></rect>"
        )
        at += share * _WIDTH
    named = ", ".join(f"{name} {share:.0%}" for name, _, share in rows)
    if not parts:
        return ""
    return (
        f'<svg width="{_WIDTH:.0f}" height="16" role="img" aria-label="energy by part">{"".join(parts)}</svg>'
        f"<p>energy: {escape(named)}</p>"
    )
