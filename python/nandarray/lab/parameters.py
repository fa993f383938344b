"""Values of an experiment's parameters: given ones or the profile's, checked against the experiment's own values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nandarray.errors import InvalidError
from nandarray.lab.claims import near
from nandarray.lab.experiment import Experiment, Parameter
from nandarray.units import is_number

__all__ = ["LARGEST", "PROFILES", "resolve"]

PROFILES = ("full", "small", "deep")
#: The largest number that a parameter takes.
LARGEST = 2**63 - 1


def resolve(experiment: Experiment, profile: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Settle the values of all parameters of an experiment, in its order: given ones, else those of the profile.

    An InvalidError says that there is no such parameter or profile, or that a value is none for its parameter: of
    another kind than the experiment's own values, an empty list where they have elements, or a number out of range.
    """
    if profile not in PROFILES:
        raise InvalidError(f"a profile must be 'full', 'small' or 'deep', not {profile!r}")
    given = dict(given or {})
    for name in given:
        if name not in experiment.parameters:
            hint = near(name, experiment.parameters) or "; it has none"
            raise InvalidError(f"{experiment.id} has no parameter {name!r}{hint}")
    found: dict[str, Any] = {}
    for name, parameter in experiment.parameters.items():
        value = given.get(name, parameter.value(profile))
        found[name] = _checked(f"parameter {name!r} of {experiment.id}", value, parameter)
    return found


def _checked(named: str, value: Any, parameter: Parameter) -> Any:
    """Return a parameter's value, of the kind and in the range of those that the experiment gives it."""
    own = [one for one in (parameter.default, parameter.small, parameter.deep) if one is not None]
    if not own or any(type(value) is type(one) and value == one for one in own):
        return value
    if value is None and parameter.default is None:
        return value
    _same_kind(named, value, own[0])
    if is_number(value) and all(map(is_number, own)):
        return _number(named, value, own, fractions=parameter.fractions)
    if isinstance(value, list | tuple):
        if not value and all(own):
            raise InvalidError(f"{named} must be a list with at least one element, like {parameter.default!r}, not []")
        inner = [one for many in own if isinstance(many, list | tuple) for one in many]
        each, numbers = f"each element of {named}", bool(inner) and all(map(is_number, inner))
        if numbers or (inner and all(isinstance(one, str) for one in inner)):
            for one in value:
                _same_kind(each, one, inner[0])
        if numbers:
            return type(value)([_number(each, one, inner, fractions=parameter.fractions) for one in value])
    return value


def _number(named: str, value: float, own: Sequence[Any], *, fractions: bool) -> int | float:
    """Return a number: whole if the experiment's own are, not negative if they are not, and of at most 63 bits."""
    low = "0" if min(own) >= 0 else f"-{LARGEST:,}"
    whole = not fractions and all(isinstance(one, int) for one in own)
    kind = "whole number" if whole else "number"
    fits = math.isfinite(value) and (value >= 0 or min(own) < 0) and abs(value) <= LARGEST
    if not fits or (whole and value != int(value)):
        raise InvalidError(f"{named} must be a {kind} from {low} to {LARGEST:,}, not {value!r}")
    return int(value) if whole else value


def _same_kind(named: str, value: Any, default: Any) -> None:
    """Refuse a text where a number is wanted, a number for a list, and the like."""
    kinds: tuple[tuple[Any, str], ...] = (
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, "a text"),
        ((list, tuple), "a list"),
        (dict, "a table"),
    )
    for kind, words in kinds:
        if isinstance(default, kind):
            wrong = not isinstance(value, kind) or (kind is not bool and isinstance(value, bool))
            if wrong:
                raise InvalidError(f"{named} must be {words}, like {default!r}, not {value!r}")
            return
