"""HTML for notebooks: runs, sweeps and comparisons.

Plain HTML with inline style and no script, like that of devices, so it shows in saved notebooks and wherever scripts
are off. The page with drawings is the report's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nandarray.lab._compare import Comparison
    from nandarray.lab._runs import Run
    from nandarray.lab._sweeps import Sweep

__all__ = ["answer_cells", "comparison_html", "number", "run_html", "sweep_html", "table_html"]

_LEFT = 'style="text-align:left"'
_ROWS = 50
#: Of an answer at other sizes than the claim's.
NOT_JUDGED = "not judged: small profile"
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
    within = {True: "yes", False: "no", None: NOT_JUDGED}[answer["within"]]
    if answer["calibrated"]:
        within += ", though calibrated" if answer["within"] is False else ", calibrated"
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


def mark(*, good: bool | None) -> str:
    """Draw whether something is as expected, in words and in colour; None is not judged."""
    if good is None:
        return NOT_JUDGED
    return f'<span style="color:{_GOOD if good else _BAD}">{"within" if good else "not within"}</span>'


def answers_html(answers: Sequence[dict[str, Any]]) -> str:
    """Write the table "paper, ours, ratio, within"."""
    head = "".join(f"<th {_LEFT}>{name}</th>" for name in ("claim", "paper", "ours", "ratio", ""))
    rows = []
    for answer in answers:
        cells = "".join(f"<td {_LEFT}>{escape(cell)}</td>" for cell in answer_cells(answer)[:4])
        fitted = " (though calibrated)" if answer["within"] is False else " (calibrated)"
        fitted = fitted if answer["calibrated"] else ""
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


def sweep_html(sweep: Sweep) -> str:
    """Describe a sweep: its axes, the Pareto front, what failed.

    Parameters
    ----------
    sweep : Sweep
        The sweep.

    Returns
    -------
    str
        An HTML fragment.
    """
    failed = sweep.data["failed"]
    head = f"<strong>{escape(sweep.id)}</strong>: {len(sweep):,} points"
    parts = [head + (f", {escape(sweep.data['title'])}" if sweep.data["title"] else "")]
    axes = [(axis["key"], ", ".join(number(value) for value in axis["values"])) for axis in sweep.axes]
    parts.append(table_html(("axis", "values"), axes))
    columns = shown_columns(sweep)
    rows = sweep.rows()
    best = [row for row in rows if row["pareto"]]
    over = ", ".join(f"{name} {way}" for name, way in sweep.objectives.items())
    for title, some, opened in ((f"Pareto front over {over}", best, True), ("points", rows, False)):
        cells = [[number(row[column]) for column in columns] for row in some[:_ROWS]]
        count = f"{len(some):,}" + (f", the first {_ROWS}" if len(some) > _ROWS else "")
        parts.append(folded(f"{title}: {count}", table_html(columns, cells), opened=opened))
    if failed:
        names = sweep.tables["failures"]
        cells = [[number(row[column]) for column in names] for row in sweep.failures[:_ROWS]]
        parts.append(folded(f"failed: {failed:,}", table_html(names, cells), opened=True))
    return f"<div>{'<br>'.join(parts[:1])}{''.join(parts[1:])}</div>"


def shown_columns(sweep: Sweep) -> list[str]:
    """Give the columns of a sweep that fit on a page: the axes, and what the front is over."""
    axes = [axis["column"] for axis in sweep.axes]
    wanted = list(sweep.objectives) or list(sweep.data["measures"])[:6]
    return [column for column in (*axes, *wanted) if column in sweep.columns]


def comparison_html(both: Comparison) -> str:
    """Describe two runs beside each other.

    Parameters
    ----------
    both : Comparison
        The runs.

    Returns
    -------
    str
        An HTML fragment.
    """
    parts = [f"a: <strong>{escape(both.a.id)}</strong><br>b: <strong>{escape(both.b.id)}</strong>"]
    for title, rows in (("set differently", both.parameters), ("answers", both.answers)):
        if rows:
            cells = [[number(value) for value in row.values()] for row in rows]
            parts.append(folded(f"{title}: {len(rows)}", table_html(list(rows[0]), cells), opened=True))
    for name in both.tables:
        rows = both.rows(name)
        if rows:
            cells = [[number(value) for value in row.values()] for row in rows[:_ROWS]]
            parts.append(folded(f"table {name}: {len(rows)} rows", table_html(list(rows[0]), cells)))
    return f"<div>{''.join(parts)}</div>"
