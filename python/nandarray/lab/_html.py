"""HTML for notebooks: runs, sweeps and comparisons.

Plain HTML with inline style and no script, like that of devices, so it shows in saved notebooks and wherever scripts
are off. The page with drawings is the report's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nandarray.lab._runs import Run

__all__ = ["answer_cells", "number", "run_html", "table_html"]

_LEFT = 'style="text-align:left"'
_GOOD, _BAD = "#2e7d32", "#b3541e"


def number(value: Any) -> str:
    """Write a value for people: four digits, a dash for nothing.

    Examples
    --------
    >>> from nandarray.lab._html import number
    >>> number(3.14159), number(12345678), number(None), number(True)
    ('3.142', '12,345,678', '-', 'yes')
    """
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def answer_cells(answer: dict[str, Any]) -> list[str]:
    """Give an answer as cells: claim, paper, ours, ratio, whether it is within."""
    within = "yes" if answer["within"] else "no"
    if answer["calibrated"]:
        within += ", calibrated"
    measured = ("holds" if answer["measured"] else "does not hold") if answer["kind"] == "shape" else None
    paper = "holds" if answer["kind"] == "shape" else number(answer["paper"])
    return [answer["claim"], paper, measured or number(answer["measured"]), number(answer["ratio"]), within]


def table_html(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; cells are escaped."""
    head = "".join(f"<th {_LEFT}>{escape(cell)}</th>" for cell in headings)
    body = "".join("<tr>" + "".join(f"<td {_LEFT}>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def folded(title: str, inside: str, *, opened: bool = False) -> str:
    """Put something behind a title that opens it."""
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary>{inside}</details>"


def mark(*, good: bool) -> str:
    """Draw whether something is as expected, in words and in colour."""
    return f'<span style="color:{_GOOD if good else _BAD}">{"within" if good else "not within"}</span>'


def answers_html(answers: Sequence[dict[str, Any]]) -> str:
    """Write the table "paper, ours, ratio, within"."""
    head = "".join(f"<th {_LEFT}>{name}</th>" for name in ("claim", "paper", "ours", "ratio", ""))
    rows = []
    for answer in answers:
        cells = "".join(f"<td {_LEFT}>{escape(cell)}</td>" for cell in answer_cells(answer)[:4])
        fitted = " (calibrated)" if answer["calibrated"] else ""
        title = escape(answer["what"], quote=True)
        rows.append(f'<tr title="{title}">{cells}<td {_LEFT}>{mark(good=answer["within"])}{fitted}</td></tr>')
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def sentences_html(sentences: Sequence[str]) -> str:
    """Write sentences as a list."""
    return "<ul>" + "".join(f"<li>{escape(one)}</li>" for one in sentences) + "</ul>"


def run_html(run: Run) -> str:
    """Describe a run.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    str
        An HTML fragment.
    """
    parts = [f"<strong>{escape(run.id)}</strong>: {escape(run.title)}<br><em>{escape(run.data['question'])}</em>"]
    if run.answers:
        parts.append(answers_html(run.answers))
    meanings = run.data["meanings"]
    rows = [(name, str(value), meanings.get(name, "")) for name, value in run.parameters.items()]
    parts.append(folded(f"parameters ({run.profile}, seed {run.seed})", table_html(("name", "value", ""), rows)))
    for name, about in run.data["tables"].items():
        shown = run.rows(name)[:10]
        cells = [[number(row[column]) for column in about["columns"]] for row in shown]
        title = f"table {name}: {about['rows']} rows" + (", the first ten" if about["rows"] > len(shown) else "")
        parts.append(folded(title, table_html(about["columns"], cells), opened=not run.answers))
    for title, sentences in (("assumptions", run.data["assumptions"]), ("what does not fit", run.data["misfits"])):
        if sentences:
            parts.append(folded(title, sentences_html(sentences)))
    return f"<div>{''.join(parts)}</div>"
