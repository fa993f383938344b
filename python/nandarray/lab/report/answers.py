"""The table "paper / ours / ratio / within?" over the answers of all runs.

A run says itself whether an answer is within; here it is only put in words, counted and drawn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nandarray.lab.report.source import Source
from nandarray.lab.report.text import show
from nandarray.units import format_number as number

__all__ = ["STATUS", "Line", "counts", "lines", "unanswered"]

#: Verdicts on an answer: sign and words.
STATUS = {
    "within": ("✓", "within"),
    "not": ("✗", "not within"),
    "holds": ("✓", "holds"),
    "fails": ("✗", "does not hold"),
    "calibrated": ("○", "calibrated, proves nothing"),
    "misfit": ("✗", "calibrated, and does not fit"),
    "input": ("○", "an input, proves nothing"),
    "unjudged": ("–", "not judged: small profile"),
    "open": ("–", "no ratio"),
}
_STRIP = (0.5, 2.0)  # ratios at the ends of the small drawing


@dataclass(frozen=True)
class Line:
    """A line of the table, as texts.

    ``run`` is the number of the run that answered. ``paper``, ``ours`` and ``ratio`` are figures, empty where there is
    none; ``sort`` has what these columns sort by. ``status`` is a key of ``STATUS``, ``expected`` the range that counts
    as within, ``strip`` where, of 100, the drawing has the range's ends and the ratio.
    """

    run: int
    claim: str
    where: str
    what: str
    note: str
    paper: str
    ours: str
    ratio: str
    status: str
    expected: str
    sort: tuple[float | None, float | None, float | None]
    strip: tuple[float, float, float] | None


def lines(runs: Sequence[Source]) -> list[Line]:
    """Give the lines of all runs, in order of the claims' ids."""
    found = [_line(n, answer) for n, run in enumerate(runs) for answer in run.facts.get("answers", ())]
    return sorted(found, key=lambda line: (line.claim, line.run))


def counts(found: Sequence[Line]) -> dict[str, int]:
    """Count what became of the answers.

    The keys are ``answered``, ``within`` (what holds, too), ``not`` (what is calibrated and does not fit, too),
    ``calibrated``, ``input``, ``unjudged`` and ``open``.
    """
    by = Counter(line.status for line in found)
    return {
        "answered": len(found),
        "within": by["within"] + by["holds"],
        "not": by["not"] + by["fails"] + by["misfit"],
        "calibrated": by["calibrated"],
        "input": by["input"],
        "unjudged": by["unjudged"],
        "open": by["open"],
    }


def unanswered(runs: Sequence[Source]) -> list[str]:
    """Give the ids of claims that the runs' experiments name and no run answers."""
    answered = {str(answer["claim"]).partition("#")[0] for run in runs for answer in run.facts.get("answers", ())}
    named = {str(claim).partition("#")[0] for run in runs for claim in run.facts.get("claims", ())}
    return sorted(named - answered)


def _line(run: int, answer: Any) -> Line:
    measured, paper, ratio = answer["measured"], answer.get("paper"), answer.get("ratio")
    low, high = answer.get("low"), answer.get("high")
    truth = isinstance(measured, bool)
    ours = ("holds" if measured else "does not hold") if truth else show(measured)
    return Line(
        run=run,
        claim=str(answer["claim"]),
        where=str(answer.get("where") or ""),
        what=str(answer.get("what") or ""),
        note=str(answer.get("note") or ""),
        paper="states it" if truth and paper is None else _stated(answer),
        ours=ours,
        ratio="" if ratio is None else number(ratio),
        status=_status(answer),
        expected="" if ratio is None else _limits(low, high),
        sort=tuple(None if isinstance(v, bool) else v for v in (paper, measured, ratio)),  # type: ignore[arg-type]
        strip=None if ratio is None or low is None or high is None else (_spot(low), _spot(high), _spot(ratio)),
    )


def _stated(answer: Any) -> str:
    """Write the paper's figure: a range and a bound as such."""
    if ends := answer.get("range"):
        return f"{number(ends[0])} to {number(ends[1])}"
    bound = answer.get("bound") or ""
    return f"{bound} {show(answer.get('paper'))}".strip()


def _limits(low: float | None, high: float | None) -> str:
    if low is None:
        return "" if high is None else f"at most {number(high)}"
    return f"at least {number(low)}" if high is None else f"{number(low)} to {number(high)}"


def _status(answer: Any) -> str:
    if answer.get("input"):
        return "input"
    if answer.get("within") is None:
        return "unjudged" if answer.get("ratio") is not None or isinstance(answer["measured"], bool) else "open"
    if answer.get("calibrated"):
        return "calibrated" if answer["within"] else "misfit"
    if isinstance(answer["measured"], bool):
        return "holds" if answer["measured"] else "fails"
    return "within" if answer["within"] else "not"


def _spot(ratio: float) -> float:
    """Return the place of a ratio from 0 to 100, on a logarithmic scale between the drawing's ends."""
    ends = [math.log(end) for end in _STRIP]
    at = math.log(min(max(ratio, _STRIP[0]), _STRIP[1])) if ratio > 0 else ends[0]
    return round(100 * (at - ends[0]) / (ends[1] - ends[0]), 1)
