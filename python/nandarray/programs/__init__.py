"""Programs that run beside the data; the functions here find ready-made ones (:mod:`nandarray.programs.library`).

    >>> from nandarray import programs
    >>> programs.get("sum", dtype="float32")
    <nandarray.Program 'sum' block rv64: x float32 -> result float64>

Read in this order: :mod:`.abi` (the interface between a program and its surroundings), :mod:`.program` (the class),
:mod:`.step` (pipelines), :mod:`.run`; :mod:`.annotations`, :mod:`.forms` and :mod:`.decorator` for functions of Python;
:mod:`nandarray.programs.compile` for compilers, :mod:`nandarray.programs.calls` for ``map_blocks`` and its like,
:mod:`nandarray.programs.advise` for whether to offload at all. Classes are public in :mod:`nandarray` itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nandarray.programs.library import ReadyMade, describe, get, key_scalars, names, row_dtype, twin

__all__ = ["ReadyMade", "describe", "get", "key_scalars", "names", "row_dtype", "twin"]


def __getattr__(name: str) -> Any:
    """Load the library when it is first used: running a program of one's own does not need its table."""
    if name in __all__:
        return getattr(importlib.import_module("nandarray.programs.library"), name)
    raise AttributeError(f"module 'nandarray.programs' has no attribute {name!r}")
