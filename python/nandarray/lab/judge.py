"""Judging an answer against the claim that it names, or a part of a claim behind a ``#``.

The kind of the claim says how:

- a ``shape`` is within if it holds;
- a value is within if measured / paper lies between 0.85 and 1.15. A ``ratio`` near 1 is judged more closely, or 1.00
  would pass for 1.10: where the paper's lies between 1.05 and 1.25, or between 0.8 and 0.95, its *gain* over 1 has to
  come out between half and one and a half times the paper's; between 0.95 and 1.05, the result has to lie within 0.05;
- a ``range`` of a paper is met inside [low / 1.15, high x 1.15], a ``bound`` on its right side;
- an experiment may expect another range of measured / paper.

Every answer is one of three: judged, calibrated (a parameter was fitted to it) or an input (a parameter was taken from
it). The last two prove nothing.

Nothing here knows how anything was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nandarray.errors import InvalidError
from nandarray.lab.claims import Claim, base_of, near
from nandarray.lab.experiment import Answer, Experiment

__all__ = ["EXPECTED", "judge"]

#: Range of measured / paper, where an experiment states none and the paper's figure is not a ratio near 1.
EXPECTED = (0.85, 1.15)
#: Paper's ratios whose gain over 1 is judged, and those that have to be met within :data:`_NEAR_ONE`.
_GAINS = ((0.8, 0.95), (1.05, 1.25))
_NEAR_ONE = 0.05
#: Slack at either end of a range.
_SLACK = 1.15


def judge(
    answer: Answer, experiment: Experiment, known: Mapping[str, Claim], *, full_size: bool = True
) -> dict[str, Any]:
    """Set an answer beside what the paper says.

    The experiment's expected range of the part counts if it has one, else that of the claim, else the rules above.
    ``full_size`` says whether it was measured at the size that the claim is of; if not, ``within`` is None, as it is of
    an input. In the result, ``paper`` is, of a range, its point nearest to what was measured. An unknown claim, and a
    number where only a truth value fits, are an InvalidError.
    """
    base = base_of(answer.claim)
    claim = known.get(base)
    if claim is None:
        raise InvalidError(
            f"{experiment.id} answers {base!r}, but no claims.toml defines that claim{near(base, known)}"
        )
    measured: Any = answer.measured.item() if hasattr(answer.measured, "item") else answer.measured
    truth = isinstance(measured, bool)
    if not isinstance(measured, bool | int | float):
        raise InvalidError(f"{answer.claim}: a measured value must be a number or a truth value, not {measured!r}")
    if claim.kind == "shape" and not truth and answer.paper is None:
        raise InvalidError(f"{answer.claim} is an ordering or a trend: it holds or not, but {measured!r} was measured")
    # A part of a ratio may be an ordering, and a part of an ordering a ratio: what was measured says which.
    kind = "shape" if truth else ("ratio" if claim.kind == "shape" else claim.kind)
    paper, ends, bound = (None, None, "") if truth else _paper(answer, claim, float(measured))
    low: float | None = None
    high: float | None = None
    ratio: float | None = None
    within = bool(truth and measured)
    if not truth:
        if paper is None:
            raise InvalidError(f"{answer.claim}: neither claim nor answer has the paper's figure")
        expected = experiment.expected.get(answer.claim, experiment.expected.get(base))
        low, high = _limits(paper, kind, bound, is_range=ends is not None) if expected is None else expected
        ratio = float(measured) / paper if paper and math.isfinite(measured) else None
        within = ratio is not None and _between(low, ratio, high)
    return {
        "claim": answer.claim,
        "measured": measured,
        "paper": paper,
        "range": None if ends is None else list(ends),
        "bound": bound,
        "kind": kind,
        "ratio": ratio,
        "low": low,
        "high": high,
        "within": within if full_size and not answer.input else None,
        "calibrated": answer.calibrated,
        "input": answer.input,
        "where": claim.where,
        "what": claim.what,
        "note": answer.note,
    }


def _between(low: float | None, ratio: float, high: float | None) -> bool:
    """Tell whether a ratio is within two ends; the ends count, whatever way their last digit was rounded."""
    above = low is None or low <= ratio or math.isclose(low, ratio, rel_tol=1e-12)
    return above and (high is None or ratio <= high or math.isclose(high, ratio, rel_tol=1e-12))


def _paper(answer: Answer, claim: Claim, measured: float) -> tuple[float | None, tuple[float, float] | None, str]:
    """Give the paper's figure, the range that it is of, and its bound; what the answer says comes first."""
    stated: float | tuple[float, float] | None = answer.paper
    bound = ""
    if stated is None:
        stated = claim.value if claim.range is None else claim.range
        bound = claim.bound
    if not isinstance(stated, tuple | list):
        return None if stated is None else float(stated), None, bound
    low, high = stated
    return min(max(measured, low), high), (low, high), bound


def _limits(paper: float, kind: str, bound: str, *, is_range: bool) -> tuple[float | None, float | None]:
    """Give the ends of measured / paper that count as within; None where there is none."""
    if bound:
        return (1.0, None) if bound == "at least" else (None, 1.0)
    if is_range:
        return 1 / _SLACK, _SLACK
    if kind != "ratio":
        return EXPECTED
    if abs(paper - 1) <= _NEAR_ONE:
        return (paper - _NEAR_ONE) / paper, (paper + _NEAR_ONE) / paper
    if any(low <= paper <= high for low, high in _GAINS):
        ends = sorted((1 + 0.5 * (paper - 1), 1 + 1.5 * (paper - 1)))
        return ends[0] / paper, ends[1] / paper
    return EXPECTED
