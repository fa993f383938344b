"""Claims: what papers measured, and the judgement of an answer against one.

The bundled claims are in ``claims.toml``; an experiment of a file of its own may have a ``claims.toml`` beside
it. An answer names a claim, or a part of it behind a ``#``. It is judged by the kind of the claim: a ``ratio`` or an
``abs`` (an absolute figure) is within if measured / paper lies in the range that the experiment expects, a ``shape`` if
it holds.

Nothing here knows how anything was measured.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from nandarray.errors import InvalidError
from nandarray.lab.experiment import Answer, Experiment

__all__ = ["EXPECTED", "Claim", "base_of", "claims", "judge", "near"]

#: Of measured / paper, where an experiment states no range.
EXPECTED = (0.85, 1.15)


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
        What was measured, with its unit.
    kind : {"ratio", "abs", "shape"}
        A number without unit, a figure of the authors' hardware, or an ordering or trend.
    value : float, optional
        The paper's figure; a shape has none.
    """

    id: str
    where: str
    what: str
    kind: str
    value: float | None = None


def claims(beside: Path | None = None) -> dict[str, Claim]:
    """Return all claims that are known.

    Parameters
    ----------
    beside : path, optional
        A folder whose ``claims.toml``, if there is one, adds to the bundled ones.

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
    if file is not None and file.is_file():
        known |= _parse(file.read_text(encoding="utf-8"), str(file))
    return known


@cache
def _packaged() -> dict[str, Claim]:
    text = resources.files("nandarray.lab").joinpath("claims.toml").read_text(encoding="utf-8")
    return _parse(text, "claims.toml")


def _parse(text: str, where: str) -> dict[str, Claim]:
    found: dict[str, Claim] = {}
    try:
        rows = tomllib.loads(text).get("claim", [])
        for row in rows:
            one = Claim(**row)
            if one.kind not in {"ratio", "abs", "shape"}:
                raise InvalidError(f"{where}: {one.id}: kind {one.kind!r} is not ratio, abs or shape")
            found[one.id] = one
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise InvalidError(f"{where}: {error}") from None
    return found


def base_of(claim: str) -> str:
    """Return the claim that a part belongs to: what stands before the ``#``."""
    return claim.partition("#")[0]


def near(wrong: str, known: Iterable[str]) -> str:
    """Name what may have been meant, for the end of an error's message.

    Parameters
    ----------
    wrong : str
        What was written.
    known : iterable of str
        What there is.

    Returns
    -------
    str
        ``"; did you mean ..."`` or ``"; there are ..."``, or nothing.
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

    Parameters
    ----------
    answer : Answer
        What came out.
    experiment : Experiment
        Whose expected ranges count: that of the part if it has one, else that of the claim, else :data:`EXPECTED`.
    known : mapping
        All claims.
    full_size : bool
        Whether it was measured at the size that the claim is of; if not, ``within`` is None.

    Returns
    -------
    dict
        ``claim``, ``measured``, ``paper``, ``kind``, ``ratio``, ``low``, ``high``, ``within``, ``calibrated``,
        ``where``, ``what``, ``note``.

    Raises
    ------
    InvalidError
        If there is no such claim, or a number is given where only a truth value fits.
    """
    base = base_of(answer.claim)
    claim = known.get(base)
    if claim is None:
        raise InvalidError(
            f"{experiment.id} answers {base!r}, but no claims.toml defines that claim{near(base, known)}"
        )
    measured: Any = answer.measured.item() if hasattr(answer.measured, "item") else answer.measured
    truth = isinstance(measured, bool)
    if claim.kind == "shape" and not truth and answer.paper is None:
        raise InvalidError(f"{answer.claim} is an ordering or a trend: it holds or not, but {measured!r} was measured")
    # A part of a ratio may be an ordering, and a part of an ordering a ratio: what was measured says which.
    kind = "shape" if truth else ("ratio" if claim.kind == "shape" else claim.kind)
    paper = None if truth else (claim.value if answer.paper is None else answer.paper)
    low, high = experiment.expected.get(answer.claim, experiment.expected.get(base, EXPECTED))
    ratio: float | None = None
    within = bool(truth and measured)
    if not truth:
        if paper is None:
            raise InvalidError(f"{answer.claim}: neither claim nor answer has the paper's figure")
        ratio = float(measured) / float(paper) if paper and math.isfinite(measured) else None
        within = ratio is not None and low <= ratio <= high
    return {
        "claim": answer.claim,
        "measured": measured,
        "paper": paper,
        "kind": kind,
        "ratio": ratio,
        "low": None if truth else low,
        "high": None if truth else high,
        "within": within if full_size else None,
        "calibrated": answer.calibrated,
        "where": claim.where,
        "what": claim.what,
        "note": answer.note,
    }
