"""HTML for notebooks: tables, parts that fold, the drawing of a grid of blocks.

Plain HTML with inline style and small SVGs; no script, so it shows in saved notebooks and wherever scripts are off.
All text is escaped here; :class:`Markup` is text that is HTML already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["Markup", "blocks", "columns", "folded", "sentences", "table"]

_LEFT, _RIGHT = 'style="text-align:left"', 'style="text-align:right"'
_NAME = 'style="text-align:left;padding-right:1em"'
_SIDE = 120.0  # points of the longer edge of the drawing
_SHORTEST = 12.0
_LINES_MAX = 16  # more lines than this would be a grey area
_DEPTH_STEP = 5.0


class Markup(str):
    """Text that is HTML already: it is not escaped."""

    __slots__ = ()


def _cell(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text)


def table(rows: Iterable[Sequence[str]], head: Sequence[str] | None = None, *, numbers: bool = False) -> str:
    """Write a table as an HTML fragment; the first cell of each row is its name.

    With ``numbers``, all cells but the names are aligned to the right.

    >>> from nandarray.present.html import table
    >>> table([("a < b", "yes")])[-40:]
    '="text-align:left">yes</td></tr></table>'
    """
    side = _RIGHT if numbers else _LEFT
    lines = []
    if head is not None:
        lines.append("".join(f"<th {side}>{_cell(cell)}</th>" for cell in head))
    for name, *cells in rows:
        lines.append(f"<th {_NAME}>{_cell(name)}</th>" + "".join(f"<td {side}>{_cell(cell)}</td>" for cell in cells))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def folded(title: str, inside: str, *, opened: bool = False) -> str:
    """Put HTML behind a title that opens it."""
    return f"<details{' open' if opened else ''}><summary>{_cell(title)}</summary>{inside}</details>"


def sentences(texts: Iterable[str]) -> str:
    """Write texts as a list."""
    return "<ul>" + "".join(f"<li>{_cell(one)}</li>" for one in texts) + "</ul>"


def columns(left: str, right: str) -> str:
    """Put two fragments of HTML side by side."""
    return f'<div style="display:flex;gap:2em;align-items:center">{left}{right}</div>'


def blocks(shape: Sequence[int], block: Sequence[int]) -> str:
    """Draw the last two dimensions as a grid of blocks, with the ones before hinted at as sheets behind."""
    if not shape or 0 in shape:
        return ""
    rows, columns = ((1, 1, *shape)[-2:], (1, 1, *block)[-2:])
    height, width = _edges(rows)
    sheets = min(3, len(shape) - 2) if len(shape) > 2 else 0
    shift = _DEPTH_STEP * sheets
    parts = [
        f'<rect x="{1 + _DEPTH_STEP * s:g}" y="{1 + shift - _DEPTH_STEP * s:g}" width="{width:.1f}" '
        f'height="{height:.1f}" fill="#f3ead8" stroke="#8a6d3b"/>'
        for s in range(sheets, -1, -1)
    ]
    for y in _cuts(rows[0], columns[0], height):
        parts.append(f'<path d="M1 {1 + shift + y:.1f}h{width:.1f}" stroke="#c9a86a"/>')
    for x in _cuts(rows[1], columns[1], width):
        parts.append(f'<path d="M{1 + x:.1f} {1 + shift:.1f}v{height:.1f}" stroke="#c9a86a"/>')
    label = escape(" x ".join(map(str, shape)))
    return (
        f'<svg width="{width + shift + 2:.0f}" height="{height + shift + 2:.0f}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _edges(lengths: Sequence[int]) -> tuple[float, float]:
    longest = max(lengths)
    # Whole numbers first: an axis may be too long for a float to divide sensibly.
    height, width = (max(_SHORTEST, _SIDE * (length * 1000 // longest) / 1000) for length in lengths)
    return height, width


def _cuts(length: int, block: int, edge: float) -> list[float]:
    count = -(-length // max(1, block))
    if count > _LINES_MAX:
        return [edge * i / _LINES_MAX for i in range(1, _LINES_MAX)]
    return [edge * (i * block * 1000 // length) / 1000 for i in range(1, count)]
