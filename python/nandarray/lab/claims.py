"""Claims: what papers measured.

A package of experiments has its claims in ``claims.toml``; an experiment of a file of its own may have a
``claims.toml`` beside it.

:mod:`nandarray.lab.judge` sets answers beside them.
"""

from __future__ import annotations

import difflib
import math
import numbers
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nandarray.errors import InvalidError
from nandarray.lab import packages
from nandarray.lab.experiment import Experiment

__all__ = ["Claim", "base_of", "claims", "claims_of", "near"]

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
            raise InvalidError(f"the id of a claim must be a text, not {self.id!r}")
        if self.value is not None and not _is_figure(self.value):
            raise InvalidError(f"{self.id}: value must be a positive number, not {self.value!r}")
        if self.kind not in {"ratio", "abs", "shape"}:
            raise InvalidError(f"{self.id}: kind must be ratio, abs or shape, not {self.kind!r}")
        if self.bound not in _BOUNDS:
            raise InvalidError(f"{self.id}: bound must be 'at least' or 'at most', not {self.bound!r}")
        if self.range is not None:
            ends = tuple(self.range)
            if len(ends) != 2 or not all(map(_is_figure, ends)) or ends[0] > ends[1]:
                raise InvalidError(f"{self.id}: range must be two positive ends in order, not {list(ends)}")
            object.__setattr__(self, "range", ends)
        if (self.value is None) == (self.range is None) and self.kind != "shape":
            raise InvalidError(f"{self.id}: a claim of kind {self.kind} must have either a value or a range")
        if self.bound and self.value is None:
            raise InvalidError(f"{self.id}: a bound must have a value")


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


def claims_of(experiment: Experiment) -> dict[str, Claim]:
    """Return the claims of an experiment that are known, those beside its file among them."""
    file = getattr(sys.modules.get(experiment.run.__module__), "__file__", None)
    known = claims(Path(file).parent if file else None)
    return {name: known[name] for name in experiment.claims if name in known}


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
