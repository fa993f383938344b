"""Owner and mode of files that are derived from a store: they let in no user who may not read the store.

Rights of a file's group and of all others say who is meant only together with the group that the file has. A new file
has this user's group or its folder's, which may not be the store's.
"""

from __future__ import annotations

import os
import stat
from typing import Any

__all__ = ["shared_mode"]


def shared_mode(file: int | str | os.PathLike[str], state: dict[str, Any]) -> int:
    """Return the mode that a new file may have, which gets the store's group where groups and others differ.

    Where this user may not give it that group, the mode has rights only that the store's group and all others have.

    Parameters
    ----------
    file : int or path
        Descriptor or path of the file.
    state : dict
        ``mode`` and ``gid`` of the store's file, as the engine gives them.
    """
    mode = int(state["mode"])
    group, others = (mode & stat.S_IRWXG) >> 3, mode & stat.S_IRWXO
    if group == others or os.stat(file).st_gid == state["gid"]:
        return mode
    try:
        os.chown(file, -1, state["gid"])
    except OSError:
        return mode & stat.S_IRWXU | (group & others) * 0o11
    return mode
