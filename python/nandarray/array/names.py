"""Names of arrays and groups: the rules, full names, and those that listings leave out.

Parts of a name are separated by single ``/``; a trailing one is ignored, and a leading one starts at the root, as in
h5py. ``.``, ``..`` and ``.group`` are no parts of a name, control characters are in none, and a name is an array or a
group, never both: the engine's rule (``device/names.rs``), which all doors share. An array whose name only an earlier
version allowed is opened, renamed and deleted as any other. Arrays of an import under way, or of a killed one, lie in
a group ``__importing__`` with twelve hexadecimal digits, which no listing shows; what a killed one left is removed when
the store is next opened for writing. Users cannot make such names.

Nothing here opens an array: :mod:`nandarray.array.members` finds them.
"""

from __future__ import annotations

import re

from nandarray import _nandarray
from nandarray.errors import InvalidError

__all__ = [
    "MARKER",
    "UNFINISHED",
    "check_new",
    "full_name",
    "is_hidden",
    "is_unfinished",
    "make_marker",
    "snapshot_name",
]

#: The last part of the name of the hidden array that keeps a group.
MARKER = ".group"
#: The first part of the names of arrays that an import has not finished.
UNFINISHED = "__importing__"
_UNFINISHED = re.compile(rf"{UNFINISHED}[0-9a-f]{{12}}(/|$)")


def full_name(engine: _nandarray.Store, group: str, name: str) -> str:
    """Make a full name of one that is relative to a group, or refuse it; the root's is empty."""
    if not isinstance(name, str):
        raise InvalidError(f"names must be str, not {type(name).__name__}: {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(f"{name!r} is not a name: {error.reason}") from None
    relative = name.strip("/")
    if not relative:
        return "" if name.startswith("/") else group
    # As in h5py, a leading "/" starts at the root.
    path = relative if name.startswith("/") or not group else f"{group}/{relative}"
    if not is_unfinished(path):
        try:
            _nandarray.check_name(path, chosen=True)
        except InvalidError:
            if not _was_allowed(engine, path):
                raise
    return path


def _was_allowed(engine: _nandarray.Store, path: str) -> bool:
    """Whether there is something whose name is none by today's rule, and that keeps no group."""
    if path not in engine:
        return bool(engine.names(path + "/"))
    return path.rpartition("/")[2] != MARKER or tuple(engine.describe(path)["shape"]) != (0,)


def check_new(path: str) -> str:
    """Refuse the full name of something new that today's rule does not allow; return it."""
    if path:
        _nandarray.check_name(path, chosen=True)
    return path


def snapshot_name(name: str) -> str:
    """Return the name of a snapshot, whose letters the engine checks, or refuse what is no text."""
    if not isinstance(name, str):
        raise InvalidError(f"the name of a snapshot must be str, not {type(name).__name__}: {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(f"{name!r} is not a name: {error.reason}") from None
    return name


def is_unfinished(name: str) -> bool:
    """Return whether a full name is that of an array which an import has not finished."""
    return name.startswith(UNFINISHED) and _UNFINISHED.match(name) is not None


def is_hidden(name: str) -> bool:
    """Return whether a full name is left out of listings."""
    return name.rpartition("/")[2] == MARKER or is_unfinished(name)


def make_marker(engine: _nandarray.Store, name: str, attrs: str) -> None:
    """Make the hidden array that keeps a group, under any full name; ``attrs`` are the group's attributes as JSON."""
    engine.create(name, (0,), 1, "|u1", building_block=(1,), attrs=attrs)
