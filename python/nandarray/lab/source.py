"""The source that an experiment is made of, as a hash: a part of the name of its runs."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from functools import lru_cache
from pathlib import Path

from nandarray.lab import packages, registry
from nandarray.lab.experiment import Experiment

__all__ = ["source_hash"]


def source_hash(experiment: Experiment) -> str:
    """Hash the source of an experiment: its module, and what that imports of the lab and of packages of experiments.

    The text is hexadecimal, the same on every machine with the same source.
    """
    digest = hashlib.sha256()
    name = experiment.run.__module__
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    seen: dict[str, bytes] = {}
    if file is not None and Path(file).is_file():
        _follow(
            experiment.run.__module__ if registry.file_of(experiment.run.__module__) is None else "file",
            Path(file),
            seen,
        )
    for name, text in sorted(seen.items()):
        digest.update(f"{name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()


def _follow(name: str, file: Path, seen: dict[str, bytes]) -> None:
    if name in seen:
        return
    text = seen[name] = file.read_bytes()
    for other in _imports(text):
        if other.startswith(packages.sources()):
            spec = _spec(other)
            if spec is not None:
                _follow(other, Path(spec), seen)


@lru_cache(maxsize=512)
def _imports(text: bytes) -> tuple[str, ...]:
    """Return the names that a source imports; parsing it takes longer than many a run."""
    wanted: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            wanted += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            wanted += [alias.name for alias in node.names]
    return tuple(wanted)


def _spec(name: str) -> str | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a name inside a module, not a module
        return None
    return None if spec is None or not spec.origin or not spec.origin.endswith(".py") else spec.origin
