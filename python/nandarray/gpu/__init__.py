"""Accelerators and other processes fetch for themselves: queue pairs in shared memory.

:func:`connect` is what ``nandarray.open("shm://NAME")`` calls. The C++ and CUDA client is a header; :func:`include`
says where it lies.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nandarray.gpu.gather import gather
from nandarray.gpu.headers import include
from nandarray.gpu.server import serve

if TYPE_CHECKING:
    from nandarray.gpu.client import connect

__all__ = ["connect", "gather", "include", "serve"]


def __getattr__(name: str) -> Any:
    """Load the client when it is first used: it stands on the store, whose arrays gather by :mod:`.gather`."""
    if name == "connect":
        return importlib.import_module("nandarray.gpu.client").connect
    raise AttributeError(f"module 'nandarray.gpu' has no attribute {name!r}")
