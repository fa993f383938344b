"""Packages that only an extra of this package brings, and the error that names the extra where one is missing.

The package is on no index: an extra is installed from a checkout of the repository, and :func:`cure` says so for every
message.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType

__all__ = ["cure", "needs", "require"]


def cure(extra: str) -> str:
    """Return the command that brings an extra.

    >>> from nandarray import optional
    >>> optional.cure("programs")
    "pip install '.[programs]' in a checkout of nandarray"
    """
    return f"pip install '.[{extra}]' in a checkout of nandarray"


@contextmanager
def needs(package: str, extra: str) -> Generator[None]:
    """Let imports of a package within say, where they fail, which extra brings it."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"this needs {package}, which is not installed: {cure(extra)}") from error


def require(module: str, extra: str) -> ModuleType:
    """Import a module of an optional package that is called as it is."""
    with needs(module.partition(".")[0], extra):
        return importlib.import_module(module)
