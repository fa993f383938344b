"""The installed packages that bring experiments, found by their entry points; with their claims and their sets.

An entry point of the group ``nandarray.experiments`` names a package. Each module of the package has an experiment, or
several; the package's file ``claims.toml`` has the claims that they answer, and its ``SETS`` names sets of them. An
entry point may name one module, or an object of one, instead. The lab's own package is ``nandarray.lab.bundled``;
the experiments of papers are in the distribution ``nandarray-papers``.

Experiments are loaded by :mod:`nandarray.lab.registry`; nothing here imports one.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["ENTRY_POINTS", "claim_files", "is_packaged", "missing", "modules", "sets", "sources"]

ENTRY_POINTS = "nandarray.experiments"
#: Package of the experiments of papers, and the command that installs it: it is on no index.
_PAPERS = "nandarray_papers"
_INSTALL = "pip install ./papers in a checkout of nandarray"


@cache
def _points() -> tuple[metadata.EntryPoint, ...]:
    return tuple(metadata.entry_points(group=ENTRY_POINTS))


def _folders(point: metadata.EntryPoint) -> list[str]:
    """Return the folders of the package that an entry point names; none if it names something else, or nothing."""
    try:
        spec = None if point.attr else importlib.util.find_spec(point.module)
    except Exception:  # of a package above it; loading the entry point raises the same again
        return []
    return [] if spec is None else list(spec.submodule_search_locations or ())


def modules() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each module that may have experiments, with a function that imports it."""
    for point in _points():
        folders = _folders(point)
        if not folders:
            yield point.value, point.load
        for entry in pkgutil.iter_modules(folders, f"{point.module}."):
            yield entry.name, partial(importlib.import_module, entry.name)


def claim_files() -> list[Path]:
    """Return the files of claims of all packages."""
    files = [Path(folder) / "claims.toml" for point in _points() for folder in _folders(point)]
    return [file for file in files if file.is_file()]


def sets() -> dict[str, tuple[str, ...]]:
    """Return the sets of experiments by name, each as patterns of ids. A set that is run gets one page."""
    found: dict[str, tuple[str, ...]] = {}
    for point in _points():
        if _folders(point):
            found |= getattr(importlib.import_module(point.module), "SETS", {})
    return found


def is_packaged(module: str) -> bool:
    """Tell whether a module is of a package that an entry point names."""
    return any(module == point.module or module.startswith(f"{point.module}.") for point in _points())


@cache
def sources() -> tuple[str, ...]:
    """Return the beginnings of names of modules that experiments share: those of the lab, and beside each package."""
    return ("nandarray.lab.", *(f"{point.module.rpartition('.')[0] or point.module}." for point in _points()))


def missing() -> str:
    """Return, for the end of an error's message, how to get the experiments of papers; nothing if they are there."""
    if any(point.module.partition(".")[0] == _PAPERS for point in _points()):
        return ""
    return f"; the experiments of papers are not installed: {_INSTALL}"
