"""Rows of variable length of a file of another format, copied into a file without a name when they are first looked at.

A store has such rows as a group of arrays (``offsets``, ``values``, with missing rows ``valid``), which no file of
another format has: where each row lies is known once all were read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nandarray import dtypes
from nandarray.array.attribute_types import merged
from nandarray.array.attributes import to_json
from nandarray.array.fork import StoreLock
from nandarray.array.listing import RAGGED
from nandarray.array.names import MARKER
from nandarray.array.store import Store
from nandarray.index.shapes import Box, box_shape
from nandarray.interop.convert import ragged
from nandarray.interop.convert.members import Member
from nandarray.parts.near import ScratchEngine

__all__ = ["CopiedRows"]

_UNIT = 1 << 16


class CopiedRows:
    """The arrays of rows of variable length."""

    #: The last parts of the names of its arrays.
    bases = (MARKER, "offsets", "values")

    def __init__(self, member: Member, scratch: ScratchEngine) -> None:
        self._member, self._scratch = member, scratch
        self._lock = StoreLock()
        self._path: str | None = None

    def _copied(self) -> str:
        """Return the name of the copy."""
        with self._lock:
            if self._path is None:
                path = f"rows/{self._scratch._name()}"
                store = Store(self._scratch.engine, "w")
                ragged.copy_in(self._member, store, path, {}, lambda rows: None)
                self._path = path
            return self._path

    def describe(self, base: str) -> dict[str, Any]:
        """Describe one of its arrays; of the one that keeps the group without copying."""
        if base == MARKER:
            assert self._member.ragged is not None
            attrs = {**self._member.attrs, RAGGED: self._member.ragged[0]}
            return {
                "name": f"{self._member.name}/{MARKER}", "shape": (0,), "itemsize": 1, "dtype": "|u1",
                "building_block": (1,), "compression": None, "encrypted": False, "fill": bytes(1),
                "attrs": to_json(merged({}, attrs)),
            }  # fmt: skip
        told = dict(self._scratch.engine.describe(f"{self._copied()}/{base}"))
        return {**told, "name": f"{self._member.name}/{base}", "compression": None}

    def units(self, base: str) -> tuple[tuple[int, ...], Callable[[Box], np.ndarray[Any, Any]]]:
        """Return the shape of the boxes in which one of its arrays is read, and what reads one."""
        if base == MARKER:
            return (1,), lambda box: np.empty(box_shape(box), "u1")
        space: Any = self._scratch.engine.open_space(f"{self._copied()}/{base}")
        dtype = dtypes.decode(space.dtype)

        def load(box: Box) -> np.ndarray[Any, Any]:
            out = np.empty(box_shape(box), dtype)
            space.read(out, [one.start for one in box], [1] * len(box))
            return out

        return (_UNIT, *map(int, space.shape[1:])), load
