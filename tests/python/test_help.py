"""``help()`` of every public name: parameters, the result and an example, wherever there are parameters.

test_examples.py runs the examples. Errors are left out: a user does not make them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import nandarray

#: Modules whose objects are ours; what a class inherits from elsewhere is described there.
_OURS = "nandarray"


def _methods(name: str, cls: type) -> Iterator[tuple[str, Any]]:
    for member in sorted(dir(cls)):
        if member.startswith("_"):
            continue
        found = inspect.getattr_static(cls, member)
        found = getattr(found, "__func__", found)
        if inspect.isfunction(found) and found.__module__.startswith(_OURS):
            yield f"{name}.{member}", found


def _described() -> Iterator[tuple[str, Any]]:
    """Public functions, and the public methods of public classes, with their names."""
    for name in nandarray.__all__:
        found = getattr(nandarray, name)
        if inspect.isclass(found) and not issubclass(found, BaseException):
            yield name, found
            yield from _methods(name, found)
        elif inspect.isfunction(found):
            yield name, found
        elif name == "program":
            yield name, found
            yield from _methods(name, type(found))


def _missing(one: Any) -> list[str]:
    """Return what a docstring does not have."""
    text = inspect.getdoc(one) or ""
    if inspect.isclass(one):
        return [word for word in ("Examples",) if f"\n{word}\n---" not in text]
    if not inspect.isfunction(one):
        return []
    signature = inspect.signature(one)
    given = [name for name, part in signature.parameters.items() if name not in ("self", "cls") and name[0] != "_"]
    wanted: list[str] = []
    untold: list[str] = []
    if given:
        wanted = ["Parameters", "Examples"]
        # A line of the section names it, alone or beside others: ``x, y : int``, ``**options``.
        untold = [name for name in given if not re.search(rf"(?m)^[\w*, ]*\b{name}\b[\w*, ]*( :|$)", text)]
        if str(signature.return_annotation) not in ("None", "Never"):
            wanted.append("Returns")
    there = text.replace("\nYields\n", "\nReturns\n")
    return [word for word in wanted if f"\n{word}\n---" not in there] + [f"parameter {name}" for name in untold]


@pytest.mark.parametrize(("name", "one"), list(_described()), ids=lambda value: value if isinstance(value, str) else "")
def test_help_tells_parameters_result_and_an_example(name: str, one: Any) -> None:
    assert _missing(one) == [], name
