"""HTML for notebooks: runs, sweeps and comparisons.

Plain HTML with inline style and no script, like that of devices, so it shows in saved notebooks and wherever scripts
are off. The page with drawings is the report's.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from nandarray.present import html
from nandarray.present.html import Markup, folded, table
from nandarray.units import format_number

if TYPE_CHECKING:
    from nandarray.lab._compare import Comparison
    from nandarray.lab.read_run import Run
    from nandarray.lab.read_sweep import Sweep

__all__ = ["answer_cells", "comparison_html", "run_html", "sweep_html"]

_ROWS = 50
#: Verdict on an answer at other sizes than the claim's.
NOT_JUDGED = "not judged: small profile"
_GOOD, _BAD = "#2e7d32", "#b3541e"


def answer_cells(answer: dict[str, Any]) -> list[str]:
    """Return an answer as cells: claim, paper, ours, ratio, whether it is within."""
    within = {True: "yes", False: "no", None: NOT_JUDGED}[answer["within"]]
    if answer.get("input"):
        within = "an input"
    elif answer["calibrated"]:
        within += ", though calibrated" if answer["within"] is False else ", calibrated"
    measured = ("holds" if answer["measured"] else "does not hold") if answer["kind"] == "shape" else None
    paper = (
        "holds"
        if answer["kind"] == "shape"
        else f"{answer.get('bound') or ''} {format_number(answer['paper'])}".strip()
    )
    if ends := answer.get("range"):
        paper = f"{format_number(ends[0])} to {format_number(ends[1])}"
    return [
        answer["claim"],
        paper,
        measured or format_number(answer["measured"]),
        format_number(answer["ratio"]),
        within,
    ]


def mark(*, good: bool | None) -> str:
    """Draw whether something is as expected, in words and in colour; None is not judged."""
    if good is None:
        return NOT_JUDGED
    return f'<span style="color:{_GOOD if good else _BAD}">{"within" if good else "not within"}</span>'


def answers_html(answers: Sequence[dict[str, Any]]) -> str:
    """Write the table "paper, ours, ratio, within"."""
    rows = []
    for answer in answers:
        claim, *cells = answer_cells(answer)[:4]
        fitted = " (though calibrated)" if answer["within"] is False else " (calibrated)"
        judged = mark(good=answer["within"]) + (fitted if answer["calibrated"] else "")
        if answer.get("input"):
            judged = "an input"
        name = f'<span title="{escape(answer["what"], quote=True)}">{escape(claim)}</span>'
        rows.append((Markup(name), *cells, Markup(judged)))
    return table(rows, ("claim", "paper", "ours", "ratio", ""))


def run_html(run: Run) -> str:
    """Describe a run as an HTML fragment."""
    parts = [f"<strong>{escape(run.id)}</strong>: {escape(run.title)}<br><em>{escape(run.data['question'])}</em>"]
    if run.answers:
        parts.append(answers_html(run.answers))
    meanings = run.data["meanings"]
    rows = [(name, str(value), meanings.get(name, "")) for name, value in run.parameters.items()]
    parts.append(folded(f"parameters ({run.profile}, seed {run.seed})", table(rows, ("name", "value", ""))))
    for name, about in run.data["tables"].items():
        shown = run.rows(name)[:10]
        cells = [[format_number(row[column]) for column in about["columns"]] for row in shown]
        title = f"table {name}: {about['rows']} rows" + (", the first ten" if about["rows"] > len(shown) else "")
        parts.append(folded(title, table(cells, about["columns"]), opened=not run.answers))
    for title, sentences in (("assumptions", run.data["assumptions"]), ("what does not fit", run.data["misfits"])):
        if sentences:
            parts.append(folded(title, html.sentences(sentences)))
    return f"<div>{''.join(parts)}</div>"


def sweep_html(sweep: Sweep) -> str:
    """Describe a sweep as an HTML fragment: its axes, the Pareto front, what failed."""
    failed = sweep.data["failed"]
    head = f"<strong>{escape(sweep.id)}</strong>: {len(sweep):,} points"
    parts = [head + (f", {escape(sweep.data['title'])}" if sweep.data["title"] else "")]
    axes = [(axis["key"], ", ".join(format_number(value) for value in axis["values"])) for axis in sweep.axes]
    parts.append(table(axes, ("axis", "values")))
    columns = shown_columns(sweep)
    rows = sweep.rows()
    best = [row for row in rows if row["pareto"]]
    over = ", ".join(f"{name} {way}" for name, way in sweep.objectives.items())
    for title, some, opened in ((f"Pareto front over {over}", best, True), ("points", rows, False)):
        cells = [[format_number(row[column]) for column in columns] for row in some[:_ROWS]]
        count = f"{len(some):,}" + (f", the first {_ROWS}" if len(some) > _ROWS else "")
        parts.append(folded(f"{title}: {count}", table(cells, columns), opened=opened))
    if failed:
        names = sweep.tables["failures"]
        cells = [[format_number(row[column]) for column in names] for row in sweep.failures[:_ROWS]]
        parts.append(folded(f"failed: {failed:,}", table(cells, names), opened=True))
    return f"<div>{'<br>'.join(parts[:1])}{''.join(parts[1:])}</div>"


def shown_columns(sweep: Sweep) -> list[str]:
    """Return the columns of a sweep that fit on a page: the axes, and what the front is over."""
    axes = [axis["column"] for axis in sweep.axes]
    wanted = list(sweep.objectives) or list(sweep.data["measures"])[:6]
    return [column for column in (*axes, *wanted) if column in sweep.columns]


def comparison_html(both: Comparison) -> str:
    """Describe two runs beside each other, as an HTML fragment."""
    parts = [f"a: <strong>{escape(both.a.id)}</strong><br>b: <strong>{escape(both.b.id)}</strong>"]
    for title, rows in (("set differently", both.parameters), ("answers", both.answers)):
        if rows:
            cells = [[format_number(value) for value in row.values()] for row in rows]
            parts.append(folded(f"{title}: {len(rows)}", table(cells, list(rows[0])), opened=True))
    for name in both.tables:
        rows = both.rows(name)
        if rows:
            cells = [[format_number(value) for value in row.values()] for row in rows[:_ROWS]]
            parts.append(folded(f"table {name}: {len(rows)} rows", table(cells, list(rows[0]))))
    return f"<div>{''.join(parts)}</div>"
