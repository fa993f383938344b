"""Stores of parts: folders of sealed store files and numbered versions, written by many processes.

:func:`create` makes one; :func:`nandarray.open` opens it as it opens a file. docs/concepts/many-writers.md says what
holds when processes are killed, docs/reference/parts.md what is in the folder.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nandarray.interop.dask_nodes import NodePlugin
    from nandarray.parts.exchange import pull, push, sync
    from nandarray.parts.forks import Fork, ForkWriter, Receipt
    from nandarray.parts.handing import give_up, hand_over, resume
    from nandarray.parts.store import PartedStore, PartsTransaction, create, open_folder

__all__ = [
    "Fork",
    "ForkWriter",
    "NodePlugin",
    "PartedStore",
    "PartsTransaction",
    "Receipt",
    "create",
    "give_up",
    "hand_over",
    "open_folder",
    "pull",
    "push",
    "resume",
    "sync",
]

_MODULES = dict.fromkeys(("Fork", "ForkWriter", "Receipt"), "nandarray.parts.forks")
_MODULES |= dict.fromkeys(("give_up", "hand_over", "resume"), "nandarray.parts.handing")
_MODULES |= dict.fromkeys(("pull", "push", "sync"), "nandarray.parts.exchange")
_MODULES["NodePlugin"] = "nandarray.interop.dask_nodes"


def __getattr__(name: str) -> Any:
    """Load what is named when it is first used: the store stands on what opens it."""
    if name in __all__:
        return getattr(importlib.import_module(_MODULES.get(name, "nandarray.parts.store")), name)
    raise AttributeError(f"module 'nandarray.parts' has no attribute {name!r}")
