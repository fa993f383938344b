"""An engine for programs none of whose inputs and outputs is of a store: it holds no arrays, and has no name.

Programs run beside a store's engine, which has their cores. Where everything lies in memory, one is made on a file that
is removed at once; the process keeps it for such runs. A forked process makes its own.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from nandarray import _nandarray

__all__ = ["Storeless", "storeless"]


class Storeless:
    """A store of nothing, as far as a run needs one."""

    #: Bytes of a half on a device whose cores have ping-pong halves; there is no device here.
    _half_bytes: int | None = None

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="nandarray-storeless-", ignore_cleanup_errors=True) as folder:
            self._engine = _nandarray.Store.open(str(Path(folder) / "none.nand"), "w")


_made: dict[int, Storeless] = {}


def storeless() -> Storeless:
    """Return the store of nothing of this process; an OSError or a MediaError says that it has no temporary folder."""
    # Without a lock, which a forked process could find taken: of two that are made at once, one is kept.
    return _made.get(os.getpid()) or _made.setdefault(os.getpid(), Storeless())
