"""The folder of this user in which things are kept that can be made again: compiled programs, bytes from far away.

Both are trusted when they are read, so the folder must be one that no other user can change. This module knows names
and modes, not what is kept; what happens where a folder is open to others, its callers decide.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from functools import cache
from pathlib import Path

__all__ = ["cache_folder", "is_open_to_others", "make_folder", "why_open_to_others"]


def cache_folder() -> Path:
    """Return the folder, which need not exist: ``$NANDARRAY_CACHE``, or ``nandarray`` in the user's cache folder."""
    if own := os.environ.get("NANDARRAY_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The standard says that a relative path there is to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "nandarray"


def why_open_to_others(wanted: Path, inner: Sequence[str] = ()) -> str | None:
    """Return why another user could change a folder's contents, or those of folders in it; None if no one could."""
    own = os.path.abspath(wanted)
    for top in dict.fromkeys((own, os.path.realpath(own))):
        place = Path(top)
        ours = {place, *(place / name for name in inner)}
        for path in (*ours, *place.parents):
            try:
                facts = os.lstat(path)
            except OSError:
                continue  # it is not there, or nothing can be read from it
            if facts.st_uid != os.geteuid() and (facts.st_uid != 0 or path in ours):
                return f"{path} belongs to user {facts.st_uid}"
            # In a folder with the sticky bit, as /tmp, a user cannot rename or remove another's files.
            sticky = facts.st_mode & stat.S_ISVTX and path not in ours
            if stat.S_ISDIR(facts.st_mode) and not sticky and is_open_to_others(facts):
                return f"other users can write to {path} (mode {stat.S_IMODE(facts.st_mode):o})"
    return None


def is_open_to_others(facts: os.stat_result) -> bool:
    """Return whether other users can write to what has this state."""
    if facts.st_mode & stat.S_IWOTH:
        return True
    return bool(facts.st_mode & stat.S_IWGRP) and not _group_of_one(facts.st_gid)


@cache
def _group_of_one(gid: int) -> bool:
    """Return whether a group is its user's own, as many systems make one for each user."""
    import grp
    import pwd

    try:
        me = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == me.pw_gid and group.gr_name == me.pw_name and set(group.gr_mem) <= {me.pw_name}


def make_folder(path: Path) -> None:
    """Make a folder that only this user can enter, and those that it lies in; one that is there stays as it is.

    A folder that cannot be made is an OSError.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
