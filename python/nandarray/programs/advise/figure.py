"""Figure 6.1 of the dissertation with measured programs: an SVG, and a page around it with all numbers.

Columns are the change of the data's size, rows the path; a dashed line below a name means moderately, a full line
hardly vectorised; green are the first candidates. One file, without scripts and requests, in light and dark.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nandarray.errors import refuse_special
from nandarray.present.palette import PALETTES
from nandarray.programs.advise.flows import AROUND, READ, WITHIN, WRITE
from nandarray.programs.advise.paper import BECAUSE, PAPER

if TYPE_CHECKING:
    from nandarray.programs.advise import Advice

__all__ = ["compare", "figure_html", "figure_svg", "write"]

_SIZES = ("reduces", "keeps", "increases")
_COLUMN, _LEFT, _TOP, _LINE, _CHAR, _PAD, _GAP = 330, 110, 34, 30, 7.3, 9, 8
_TITLES = {"reduces": "reduces the data", "keeps": "keeps the size", "increases": "increases the data"}


def compare(found: Sequence[Advice]) -> list[dict[str, Any]]:
    """Set what was measured beside what the dissertation says of the same functions; other programs are left out.

    A row has ``program``, ``function``; for each property the dissertation's word, ours, and whether they agree;
    ``agrees``; and ``because``, where they do not, why, as far as it is known.
    """
    rows = []
    for one in found:
        place = PAPER.get(one.in_paper or "")
        if place is None:
            continue
        pairs = {
            "size": (place.size, one.size),
            "direction": (place.direction, one.direction),
            "vectorises": (place.vectorises, one.vectorises),
        }
        agrees = all(theirs == ours for theirs, ours in pairs.values())
        row: dict[str, Any] = {"program": one.name, "function": one.in_paper, "agrees": agrees}
        for what, (theirs, ours) in pairs.items():
            row |= {f"{what}_paper": theirs, what: ours}
        rows.append({**row, "because": "" if agrees else BECAUSE.get(one.name, "")})
    return rows


def figure_svg(found: Sequence[Advice]) -> str:
    """Draw the figure as an SVG element with its own style; ``currentColor`` is the text."""
    paths = [READ, WRITE, *(path for path in (WITHIN, AROUND) if any(one.direction == path for one in found))]
    cells = {(path, size): [one for one in found if (one.direction, one.size) == (path, size)]
             for path in paths for size in _SIZES}  # fmt: skip
    placed = {at: _flow(listed) for at, listed in cells.items()}
    heights = [max(2, *(placed[path, size][1] for size in _SIZES)) * _LINE + 2 * _PAD for path in paths]
    width, height = _LEFT + 3 * _COLUMN + 2, _TOP + sum(heights) + 44
    parts = [f'<svg class="figure" role="img" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">']
    parts.append(f"<title>Programs by size change, direction and vectorisability: {len(found)} of them</title>")
    for column, size in enumerate(_SIZES):
        middle = _LEFT + column * _COLUMN + _COLUMN / 2
        parts.append(f'<text class="head" x="{middle}" y="22" text-anchor="middle">{_TITLES[size]}</text>')
    top = _TOP
    for path, tall in zip(paths, heights, strict=True):
        parts.append(f'<text class="head" x="{_LEFT - 12}" y="{top + tall / 2}" text-anchor="end">{path} path</text>')
        for column, size in enumerate(_SIZES):
            left = _LEFT + column * _COLUMN
            parts.append(f'<rect class="cell" x="{left}" y="{top}" width="{_COLUMN}" height="{tall}"/>')
            parts += [
                _chip(one, left + x, top + _PAD + row * _LINE, wide) for one, x, row, wide in placed[path, size][0]
            ]
        top += tall
    parts.append(_legend(top + 14))
    return "".join([*parts, "</svg>"])


def _flow(listed: Sequence[Advice]) -> tuple[list[tuple[Advice, float, int, float]], int]:
    """Lay out the names of a cell line by line, candidates first; return their places and the number of lines."""
    made, x, row = [], float(_PAD), 0
    for one in sorted(listed, key=lambda one: not one.candidate):
        wide = len(one.name) * _CHAR + 12
        if x + wide > _COLUMN - _PAD and x > _PAD:
            x, row = float(_PAD), row + 1
        made.append((one, x, row, wide))
        x += wide + _GAP
    return made, row + 1


def _chip(one: Advice, x: float, y: float, wide: float) -> str:
    title = f"{one.name}: {one.ratio:.3g} bytes out a byte in; {one.vectorises} vectorised"
    title += "" if one.gain is None else f" ({one.gain:.2f} times as fast)"
    box = f'<rect class="candidate" x="{x}" y="{y}" width="{wide}" height="23" rx="4"/>' if one.candidate else ""
    line = {"moderately": ' stroke-dasharray="4 3"', "hardly": ""}.get(one.vectorises)
    under = "" if line is None else f'<path class="under" d="M{x + 6} {y + 20}h{wide - 12}"{line}/>'
    text = f'<text x="{x + wide / 2}" y="{y + 16}" text-anchor="middle">{escape(one.name)}</text>'
    return f"<g><title>{escape(title)}</title>{box}{text}{under}</g>"


def _legend(y: float) -> str:
    parts = [f'<rect class="candidate" x="{_LEFT}" y="{y}" width="22" height="18" rx="4"/>']
    parts.append(f'<text x="{_LEFT + 30}" y="{y + 14}">first candidate: saves traffic, and vectorises</text>')
    at = _LEFT + 400
    parts.append(f'<path class="under" d="M{at} {y + 14}h30" stroke-dasharray="4 3"/>')
    parts.append(f'<text x="{at + 38}" y="{y + 14}">moderately vectorised</text>')
    at += 220
    parts.append(
        f'<path class="under" d="M{at} {y + 14}h30"/><text x="{at + 38}" y="{y + 14}">hardly vectorised</text>'
    )
    return "".join(parts)


_STYLE = """
:root {{ color-scheme: light dark; {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem;
  background: var(--page); color: var(--text); }}
.figure {{ width: 100%; height: auto; font-size: 13px; }} .figure text {{ fill: var(--text); }}
.figure .head {{ font-size: 15px; font-weight: 600; }} .figure .cell {{ fill: var(--panel); stroke: var(--line); }}
.figure .candidate {{ fill: color-mix(in srgb, var(--good) 28%, var(--page)); stroke: var(--good); }}
.figure .under {{ stroke: var(--text); stroke-width: 1.4; fill: none; }}
.wide {{ overflow-x: auto; }} table {{ border-collapse: collapse; font-size: 13px; }}
th, td {{ padding: .2rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }}
td.n {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
.good {{ color: var(--good); }} .bad {{ color: var(--bad); }} .muted {{ color: var(--muted); }}
"""


def figure_html(found: Sequence[Advice]) -> str:
    """Make a page of one advice at least: the figure, all numbers, the dissertation beside them, what was assumed.

    The page asks for no other file.
    """
    style = _STYLE.format(**{name: _variables(palette) for name, palette in PALETTES.items()})
    of = found[0].bandwidths
    facts = (
        f"{of.device}: flash reads {of.flash_read / 1e9:.2f} GB/s and programs {of.flash_program / 1e9:.2f} GB/s, the "
        f"link moves {of.link / 1e9:.2f} GB/s, {of.cores} cores execute {of.instructions / 1e9:g} billion instructions "
        "a second each"
    )
    rows = compare(found)
    agreed = sum(row["agrees"] for row in rows)
    title = f"Beside the dissertation: {agreed} of {len(rows)} agree in all three"
    both = f"<h2>{title}</h2>{_compared(rows)}" if rows else ""
    assumed = [f"<li>{escape(one.name)}: {escape(one.assumed)}</li>" for one in found if one.assumed]
    samples = f"<h2>Samples</h2><ul>{''.join(assumed)}</ul>" if assumed else ""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Should it run beside the data?</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>{style}</style></head><body>
<h1>Should it run beside the data?</h1>
<p>After Figure 6.1 of Zou, &ldquo;High-Performance Architectures for Data Center Computational Storage&rdquo;
(Chicago, 2023), with measured programs. The size's change and the path are counted in a run over sample data, the
path by how much comes from the store and the host and goes to them; how well it vectorises is the gain from this
machine's vector instructions, and what Clang says of its loops.</p>
{figure_svg(found)}
<h2>What was measured, and what follows</h2><p class="muted">{escape(facts)}.</p>{_numbers(found)}
{both}{samples}
<p class="muted">Time on the device is that of its narrowest part; when the host computes it is taken to keep up. Cores
execute an instruction a cycle and never wait for memory, so that real ones are slower.</p>
</body></html>
"""


def _variables(palette: Mapping[str, Any]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in palette.items() if isinstance(value, str))


def _numbers(found: Sequence[Advice]) -> str:
    names = ("program", "out / in", "path", "vectorised", "gain", "loops", "instructions a byte", "link saved",
             "time, host / device", "with vectors", "bound by", "verdict")  # fmt: skip
    body = []
    for one in found:
        loops = "" if one.loops is None else f"{one.loops.vectorised} of {one.loops.vectorised + one.loops.missed}"
        gain = "" if one.gain is None else f"{one.gain:.2f}"
        cells = [f"<td>{escape(one.name)}</td>", _n(f"{one.ratio:.4f}"), f"<td>{one.direction}</td>"]
        cells += [f"<td>{one.vectorises}</td>", _n(gain), _n(loops), _n(f"{one.instructions_per_byte:.2f}")]
        cells += [_n(f"{one.link_saved:.1%}"), _n(f"{one.speedup:.2f}")]
        cells += [_n(f"{one.seconds_host / one.seconds_vector:.2f}"), f"<td>{one.bound}</td>"]
        good = "good" if one.verdict.startswith("offload") else "muted"
        cells.append(f'<td class="{good}" title="{escape(one.why, quote=True)}">{one.verdict}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    return _table(names, body)


def _compared(rows: Sequence[Mapping[str, Any]]) -> str:
    body = []
    for row in rows:
        cells = [f"<td>{escape(row['program'])}</td><td>{escape(row['function'])}</td>"]
        for what in ("size", "direction", "vectorises"):
            theirs, ours = row[f"{what}_paper"], row[what]
            same = theirs == ours
            text = ours if same else f"{ours}, there {theirs}"
            cells.append(f'<td class="{"good" if same else "bad"}">{text}</td>')
        body.append(f"<tr>{''.join(cells)}<td>{escape(row['because'])}</td></tr>")
    return _table(("program", "function", "size", "path", "vectorised", "why it differs"), body)


def _n(text: str) -> str:
    return f'<td class="n">{text}</td>'


def _table(names: Sequence[str], body: Sequence[str]) -> str:
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def write(found: Sequence[Advice], path: str | os.PathLike[str]) -> Path:
    """Write the page, of one advice at least, to a file; a file there is replaced."""
    target = Path(path)
    refuse_special(target)
    part = target.with_name(f"{target.name}.part")
    part.write_text(figure_html(found), encoding="utf-8")
    part.replace(target)
    return target
