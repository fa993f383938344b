"""Claims: what papers measured, and the judgement of an answer against one.

A package of experiments has its claims in ``claims.toml``; an experiment of a file of its own may have a
``claims.toml`` beside it. An answer names a claim, or a part of it behind a ``#``. The kind of the claim says how it is
judged:

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

import difflib
import math
import numbers
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nandarray.errors import InvalidError
from nandarray.lab import packages
from nandarray.lab.experiment import Answer, Experiment

__all__ = ["EXPECTED", "Claim", "base_of", "claims", "judge", "near"]

#: Of measured / paper, where an experiment states no range and the paper's figure is not a ratio near 1.
EXPECTED = (0.85, 1.15)
#: Paper's ratios whose gain over 1 is judged, and those that have to be met within :data:`_NEAR_ONE`.
_GAINS = ((0.8, 0.95), (1.05, 1.25))
_NEAR_ONE = 0.05
#: Slack at either end of a range.
_SLACK = 1.15
#: Sides of a bound.
_BOUNDS = ("", "at least", "at most")


@dataclass(frozen=True)
class Claim:
    """A figure or a statement of a paper that an experiment can be compared with.

    Parameters
    ----------
    id : str
        Dotted, the paper first.
    where : str
        Section or figure.
    what : str
        Quantity that was measured, with its unit.
    kind : {"ratio", "abs", "shape"}
        A number without unit, a figure of the authors' hardware, or an ordering or trend.
    value : float, optional
        The paper's figure; a shape has none.
    range : tuple of two float, optional
        Instead of a value, the two ends that the text gives.
    bound : {"", "at least", "at most"}
        Whether ``value`` is a bound.
    """

    id: str
    where: str
    what: str
    kind: str
    value: float | None = None
    range: tuple[float, float] | None = None
    bound: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise InvalidError(f"the id of a claim is a text, not {self.id!r}")
        if self.value is not None and not _is_figure(self.value):
            raise InvalidError(f"{self.id}: value {self.value!r} is not a positive number")
        if self.kind not in {"ratio", "abs", "shape"}:
            raise InvalidError(f"{self.id}: kind {self.kind!r} is not ratio, abs or shape")
        if self.bound not in _BOUNDS:
            raise InvalidError(f"{self.id}: bound {self.bound!r} is not 'at least' or 'at most'")
        if self.range is not None:
            ends = tuple(self.range)
            if len(ends) != 2 or not all(map(_is_figure, ends)) or ends[0] > ends[1]:
                raise InvalidError(f"{self.id}: range {list(ends)} is not two positive ends in order")
            object.__setattr__(self, "range", ends)
        if (self.value is None) == (self.range is None) and self.kind != "shape":
            raise InvalidError(f"{self.id}: a claim of kind {self.kind} has either a value or a range")
        if self.bound and self.value is None:
            raise InvalidError(f"{self.id}: a bound needs a value")


def _is_figure(value: Any) -> bool:
    """Tell whether a paper's figure is a number that a ratio can be taken to."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) < math.inf


def claims(beside: Path | None = None) -> dict[str, Claim]:
    """Return all claims that are known.

    Parameters
    ----------
    beside : path, optional
        A folder whose ``claims.toml``, if there is one, adds to those of installed packages.

    Returns
    -------
    dict
        Claims by id.

    Examples
    --------
    >>> from nandarray.lab.claims import claims
    >>> claims()["nds.fig10.hw_speedup"].value
    5.73
    """
    known = dict(_packaged())
    file = None if beside is None else beside / "claims.toml"
    if file is not None and file.is_file() and file not in packages.claim_files():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InvalidError(f"{file} is no TOML: {error}") from None
        known |= _parse(text, str(file))
    return known


@cache
def _packaged() -> dict[str, Claim]:
    found: dict[str, Claim] = {}
    for file in packages.claim_files():
        found |= _parse(file.read_text(encoding="utf-8"), str(file))
    return found


def _parse(text: str, where: str) -> dict[str, Claim]:
    found: dict[str, Claim] = {}
    try:
        rows = tomllib.loads(text).get("claim", [])
        for row in rows:
            one = Claim(**row)
            if one.id in found:
                raise InvalidError(f"{one.id} is there twice")
            found[one.id] = one
    except (tomllib.TOMLDecodeError, TypeError, InvalidError) as error:
        raise InvalidError(f"{where}: {error}") from None
    return found


def base_of(claim: str) -> str:
    """Return the claim that a part belongs to: what stands before the ``#``."""
    return claim.partition("#")[0]


def near(wrong: str, known: Iterable[str]) -> str:
    """Name what may have been meant, for the end of an error's message.

    This is ``"; did you mean ..."`` or ``"; there are ..."``, or nothing.
    """
    names = list(known)
    close = difflib.get_close_matches(wrong, names, n=3, cutoff=0.6)
    close = close or [name for name in names if wrong and (wrong in name or name in wrong)][:3]
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    if not names:
        return ""
    shown = ", ".join(names[:12])
    return f"; there {'is' if len(names) == 1 else 'are'} {shown}{', ...' if len(names) > 12 else ''}"


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
        raise InvalidError(f"{answer.claim}: a number or a truth value is measured, not {measured!r}")
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
