"""Every example of the documentation runs, each in an empty directory."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import nandarray
import nandarray_papers

MODULES = [
    "nandarray",
    *(
        module.name
        for package in (nandarray, nandarray_papers)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda _name: None)
        if not module.name.startswith("nandarray_papers.experiments.")
    ),
]


def examples() -> list[doctest.DocTest]:
    found = []
    for name in MODULES:
        if name.endswith("._nandarray"):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:  # an optional dependency is not there
            continue
        finder = doctest.DocTestFinder(exclude_empty=True)
        found += [test for test in finder.find(module, name) if test.examples]
    return found


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_example(example: doctest.DocTest) -> None:
    example.globs["np"] = np
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL, verbose=False)
    result = runner.run(example)
    assert result.failed == 0
    assert result.attempted > 0
