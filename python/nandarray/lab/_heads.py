"""The form of ``run.json`` and ``sweep.json``: the parts that readers rely on, checked once when a folder is opened.

A folder may be damaged, or come from another machine. Readers use the checked parts without a further look: keys
that must be there, kinds of values, and names that become parts of paths, which lead to nowhere outside the folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["ENVIRONMENT", "NAME", "RUN", "SWEEP", "damage"]

#: Names of tables and reports, which are names of files.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. +@-]*")
_DEVICE = re.compile(r"devices/[^/\0]+")

_NUMBER = (int, float)
_MAYBE = (int, float, type(None))
_TABLES = {"*": {"columns": [str], "rows": int}}

#: Keys of a run's head. A list has one form for all its elements; ``"*"`` is any key, and a key behind ``"?"`` may be
#: missing.
RUN: dict[str, Any] = {
    "experiment": str,
    "title": str,
    "question": str,
    "profile": str,
    "seed": int,
    "version": str,
    "parameters": dict,
    "meanings": {"*": str},
    "answers": [
        {
            "claim": str,
            "kind": str,
            "what": str,
            "measured": (bool, *_MAYBE),
            "paper": _MAYBE,
            "ratio": _MAYBE,
            "within": (bool, type(None)),
            "calibrated": bool,
            "?input": bool,
            "?low": _MAYBE,
            "?high": _MAYBE,
            "?bound": str,
            "?range": (list, type(None)),
        }
    ],
    "figures": [
        {
            "id": str,
            "title": str,
            "kind": str,
            "table": str,
            "x": str,
            "y": str,
            "series": str,
            "value": str,
            "points": [{"series": (bool, *_NUMBER, str), "x": (*_MAYBE, str), "y": _MAYBE, "bound": str, "where": str}],
            "?caption": str,
            "?x_label": str,
            "?y_label": str,
        },
    ],
    "tables": _TABLES,
    "reports": [str],
    "assumptions": [str],
    "misfits": [str],
}
#: Keys of ``environment.json``.
ENVIRONMENT: dict[str, Any] = {"date": str, "seconds": _NUMBER, "?jobs": int, "?resumed": int}
#: Keys of a sweep's head.
SWEEP: dict[str, Any] = {
    "name": str,
    "title": str,
    "version": str,
    "spec": {"groups": [[int]]},
    "axes": [{"key": str, "column": str, "values": list}],
    "measures": [str],
    "objectives": {"*": str},
    "points": int,
    "failed": int,
    "tables": _TABLES,
}


def damage(head: Mapping[str, Any], form: Mapping[str, Any]) -> str | None:
    """Find the first thing that is wrong with a head (:data:`RUN`, :data:`SWEEP`, :data:`ENVIRONMENT`), and where.

    >>> from nandarray.lab._heads import damage
    >>> damage({"seed": "x"}, {"seed": int}), damage({"seed": 1}, {"seed": int})
    ('seed is of another kind', None)
    """
    wrong = _wrong(head, form, "")
    if wrong is not None:
        return wrong
    names = [*head.get("tables", ()), *head.get("reports", ())]
    for name in names:
        if NAME.fullmatch(name) is None:
            return f"{name!r} is no name of a file"
    devices = head.get("devices", {})
    if not isinstance(devices, Mapping):
        return "devices is of another kind"
    for file in devices.values():
        if not isinstance(file, str) or _DEVICE.fullmatch(file) is None or file.endswith("/.."):
            return f"{file!r} is no file of a device"
    if "axes" in form:
        return _wrong_groups(head)
    for answer in head.get("answers", ()):
        ends = answer.get("range")
        if ends is not None and (len(ends) != 2 or _wrong(ends, [_NUMBER], "")):  # noqa: PLR2004
            return f"{answer['claim']}: range is not of two numbers"
    return None


def _wrong_groups(head: Mapping[str, Any]) -> str | None:
    """Tell whether the groups of a sweep name its axes, and its tables are there."""
    if any(not group or not all(0 <= axis < len(head["axes"]) for axis in group) for group in head["spec"]["groups"]):
        return "spec: groups name axes that are not there"
    if not 0 <= head["failed"] <= head["points"]:
        return f"{head['failed']} of {head['points']} points failed"
    return None if {"points", "failures"} <= head["tables"].keys() else "tables lacks points or failures"


def _wrong(value: Any, form: Any, where: str) -> str | None:
    """Find the first place at which a value is not of a form."""
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{where} is of another kind"
        return next(filter(None, (_wrong(one, form[0], f"{where}[{n}]") for n, one in enumerate(value))), None)
    if not isinstance(form, Mapping):
        kinds = form if isinstance(form, tuple) else (form,)
        fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        return None if fits else f"{where} is of another kind"
    if not isinstance(value, Mapping):
        return f"{where} is of another kind"
    before = f"{where}." if where else ""
    for key, inner in form.items():
        name = key.removeprefix("?")
        if key == name != "*" and key not in value:
            return f"it has no {before}{key}"
        for one in value if key == "*" else [name] if name in value else []:
            wrong = _wrong(value[one], inner, f"{before}{one}")
            if wrong is not None:
                return wrong
    return None
