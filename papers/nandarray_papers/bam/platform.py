"""The platform's values from ``platform.toml``, and its drives."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from nandarray.device import Description, load
from nandarray.errors import DescriptionError, NotFoundError

__all__ = ["assumptions", "drive", "platform"]

_HERE = Path(__file__).parent


@cache
def _values() -> dict[str, dict[str, dict[str, Any]]]:
    return tomllib.loads((_HERE / "platform.toml").read_text())


def platform(path: str = "gpu", **changes: Any) -> dict[str, Any]:
    """Return the values, with some replaced, of a path to the drives.

    The path is ``"gpu"``, warps that submit, ``"gds"``, GPUDirect Storage, or ``"cpu"``, a process on the shared-memory
    door.
    """
    values = _values()
    if path not in values:
        raise NotFoundError(f"no path {path!r}; there are {', '.join(values)}")
    found = {name: entry["value"] for name, entry in {**values["gpu"], **values[path]}.items()}
    return {**found, **changes}


def assumptions(path: str = "gpu") -> list[str]:
    """Return a sentence for each value that is not measured or published: name, value, source."""
    entries = {**_values()["gpu"], **_values()[path]}
    rows = [(name, entry["value"], entry["source"]) for name, entry in entries.items()]
    return [f"{name} = {value}: {source}." for name, value, source in rows if source.split(":")[0] in _UNPROVEN]


_UNPROVEN = ("assumed", "calibrated", "input")


def drive(name: str, **changes: Any) -> Description:
    """Return a drive: a name of ``devices/``; or a preset or a file, with a small part of its capacity.

    Its queues are deep, and its host takes no time: who submits is the platform's. ``changes`` are as of
    :meth:`nandarray.device.Description.with_`.
    """
    file = _HERE / "devices" / f"{name}.toml"
    if file.is_file():
        return load(file).with_(**changes) if changes else load(file)
    host = {"host__queues": 64, "host__queue_entries": 1024, "host__t_submit": "0 s", "host__t_complete": "0 s"}
    described, refused = load(name), None
    for blocks, pages in _SMALL:
        small = {"geometry__blocks": blocks, "geometry__pages": pages, "ftl__over_provisioning": "28 %"}
        try:
            return described.with_(**{**small, **host, **changes})
        except DescriptionError as error:
            refused = refused or error
    assert refused is not None
    raise refused


#: Blocks of a plane and pages of a block: as few as will do, and what drives take that keep more blocks spare, or
#: program three pages of a word line at once.
_SMALL = ((32, 64), (64, 48))
