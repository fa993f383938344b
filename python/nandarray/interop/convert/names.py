"""Names of arrays in other formats, where a part of a name can mean something else.

An array is exported under its own name, if today's rule of names allows it. Hosts of earlier versions made others, too:
``..`` would leave a directory of Zarr, control characters are no names of files, and an array cannot lie in another.
Such parts are written as in a URL, ``%2E%2E`` for ``..``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from nandarray import _nandarray
from nandarray.errors import InvalidError

__all__ = ["exported_names"]


def exported_names(arrays: Sequence[str], groups: Sequence[str]) -> dict[str, str]:
    """Return the other names of those arrays and groups that cannot keep theirs, and warn of them."""
    known, taken = set(arrays), {*arrays, *groups}
    changed: dict[str, str] = {}
    for name in dict.fromkeys([*groups, *arrays]):
        new = _exported(name, known) if name else name
        while new != name and new in taken:
            new += "%"
        if new != name:
            changed[name] = new
            taken.add(new)
    if changed:
        pairs = ", ".join(f"{name!r} as {new!r}" for name, new in list(changed.items())[:5])
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        warnings.warn(f"exported under other names: {pairs}{more}", UserWarning, stacklevel=3)
    return changed


def _exported(name: str, arrays: set[str]) -> str:
    made, above = "", ""
    for part in name.split("/"):
        between = "" if not made else "%2F" if above in arrays else "/"
        made += between + (part if _is_plain(part) else _quoted(part))
        above = f"{above}/{part}" if above else part
    return made


def _is_plain(part: str) -> bool:
    try:
        _nandarray.check_name(part, chosen=False)
    except InvalidError:
        return False
    return True


def _quoted(part: str) -> str:
    """Write a part as in a URL: all of it that is no letter, digit, mark or space."""
    if set(part) <= {"."}:
        return "%2E" * len(part)
    return "".join(c if _is_plain(f"-{c}") else "".join(f"%{byte:02X}" for byte in c.encode()) for c in part)
