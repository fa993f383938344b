"""HTML for notebooks: an array's facts with its grid of building blocks, the tree of a group, a described device.

Plain HTML with inline style and a small SVG; no script, so it shows in saved notebooks and wherever scripts are off. It
reads no elements, only what the store's index knows.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from nandarray import dtypes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nandarray.array.array import Array
    from nandarray.array.group import Group
    from nandarray.array.parts import Part
    from nandarray.device import Description

__all__ = ["array_html", "description_html", "effective_rows", "format_bytes", "nest", "part_html", "tree_html"]

_SIDE = 120.0  # points of the longer edge of the drawing
_SHORTEST = 12.0
_LINES_MAX = 16  # more lines than this would be a grey area
_DEPTH_STEP = 5.0


def format_bytes(count: int) -> str:
    """Write a number of bytes with a binary unit.

    Parameters
    ----------
    count : int
        Bytes, of any magnitude.

    Returns
    -------
    str
        Such as ``"1.5 MiB"``.

    Examples
    --------
    >>> from nandarray.present.html import format_bytes
    >>> format_bytes(1536), format_bytes(2**80)
    ('1.5 KiB', '1 YiB')
    """
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")
    power = min(max(0, (count.bit_length() - 1) // 10), len(units) - 1)
    return f"{count / 1024**power:.3g} {units[power]}" if count < 1024**9 else f"2^{count.bit_length() - 1} B"


def array_html(array: Array) -> str:
    """Describe an array.

    Parameters
    ----------
    array : Array
        The array.

    Returns
    -------
    str
        An HTML fragment.
    """
    stat = array.stat()
    facts = [
        ("name", array.name),
        ("shape", str(array.shape)),
        ("dtype", str(array.dtype)),
        ("building block", str(array.building_block)),
        ("size", format_bytes(array.nbytes)),
    ]
    if "blocks" in stat and "blocks_allocated" in stat:
        facts.append(("blocks stored", f"{stat['blocks_allocated']:,} of {stat['blocks']:,}"))
    if "bytes_stored" in stat:
        facts.append(("bytes stored", format_bytes(stat["bytes_stored"])))
    if array.compression:
        facts.append(("compression", array.compression))
    if array.encrypted:
        facts.append(("encrypted", "yes"))
    return _facts_html(facts, _svg(array.shape, array.building_block))


def part_html(part: Part, what: str) -> str:
    """Describe a view of an array, or a field of its records.

    Parameters
    ----------
    part : Part
        Which.
    what : str
        What it is, and of which array.

    Returns
    -------
    str
        An HTML fragment.
    """
    facts = [
        ("what", what),
        ("shape", str(part.shape)),
        ("dtype", str(part.dtype)),
        ("size", format_bytes(part.nbytes)),
        ("building block of the array", str(part.array.building_block)),
    ]
    return _facts_html(facts, _svg(part.shape, part.chunks))


def _facts_html(facts: Sequence[tuple[str, str]], drawing: str) -> str:
    rows = "".join(
        f'<tr><th style="text-align:left;padding-right:1em">{escape(what)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for what, value in facts
    )
    return f'<div style="display:flex;gap:2em;align-items:center"><table>{rows}</table>{drawing}</div>'


def _svg(shape: Sequence[int], block: Sequence[int]) -> str:
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


def nest(group: Group) -> dict[str, Any]:
    """Give what is below a group as nested dictionaries.

    Parameters
    ----------
    group : Group
        The group.

    Returns
    -------
    dict
        A dictionary for each group, a text of dtype and shape for each array.
    """
    root: dict[str, Any] = {}
    for name in sorted(group._below()):
        *groups, last = name.split("/")
        branch = root
        for one in groups:
            branch = branch.setdefault(one, {})
        if last != ".group":
            facts = group.store._engine.describe(group._prefix + name)
            branch[last] = f"{dtypes.decode(facts['dtype'])} {tuple(facts['shape'])}"
    return root


def tree_html(group: Group) -> str:
    """Show what is below a group as a list that folds.

    Parameters
    ----------
    group : Group
        The group.

    Returns
    -------
    str
        An HTML fragment.
    """
    return f"<details open><summary>{escape(group.name)}</summary>{_branch_html(nest(group))}</details>"


def _branch_html(branch: dict[str, Any]) -> str:
    items = [
        f"<li><details><summary>{escape(name)}/</summary>{_branch_html(inside)}</details></li>"
        if isinstance(inside, dict)
        else f"<li>{escape(name)} <small>{escape(inside)}</small></li>"
        for name, inside in branch.items()
    ]
    return f'<ul style="margin:0">{"".join(items)}</ul>'


def effective_rows(description: Description) -> list[tuple[str, str]]:
    """Say what follows from a device's description, for a table.

    Parameters
    ----------
    description : Description
        The device.

    Returns
    -------
    list of (str, str)
        What, and how much.
    """
    facts = description.effective
    geometry = description.resolved["geometry"]
    spread = " x ".join(f"{geometry[part]} {part}" for part in ("channels", "ways", "dies", "planes"))

    def rate(key: str) -> str:
        return f"{facts[key] / 1e9:.3g} GB/s"

    def time(key: str) -> str:
        return f"{facts[key] / 1e6:.4g} us"

    return [
        ("capacity", f"{format_bytes(facts['user_bytes'])} of {format_bytes(facts['raw_bytes'])}"),
        ("flash", f"{spread}, {facts['cell'].upper()}"),
        ("channels together", rate("bus_bytes_per_s")),
        ("pages read, at most", rate("read_bytes_per_s")),
        ("pages programmed, at most", rate("program_bytes_per_s")),
        ("link, data", rate("link_bytes_per_s")),
        ("a lone read of 4 KiB", time("read_4k_ps")),
        ("a lone page programmed", time("write_page_ps")),
        ("a lone page written, as the host sees it", time("write_page_seen_ps")),
    ]


def description_html(description: Description) -> str:
    """Describe a device: what follows from its description, and every value with its source, folded.

    Parameters
    ----------
    description : Description
        The device.

    Returns
    -------
    str
        An HTML fragment.
    """
    left = 'style="text-align:left"'
    facts = "".join(
        f"<tr><th {left}>{escape(what)}</th><td {left}>{escape(much)}</td></tr>"
        for what, much in effective_rows(description)
    )
    sections: dict[str, list[str]] = {}
    for key, value in description.values.items():
        section, _, name = key.partition(".")
        cells = (name, str(value), description.source(key))
        row = "".join(f"<td {left}>{escape(cell)}</td>" for cell in cells)
        sections.setdefault(section, []).append(f"<tr>{row}</tr>")
    folded = "".join(
        f"<details><summary>{escape(section)}</summary><table>{''.join(rows)}</table></details>"
        for section, rows in sections.items()
    )
    title = f"<strong>{escape(description.name)}</strong>: {escape(description.summary)}"
    return f"<div>{title}<table>{facts}</table>{folded}</div>"
