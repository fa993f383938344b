"""Several changes of a draft that are made as one, or not at all: what an engine's transaction is for a file.

The part of this process is sealed first, so that nothing which the draft had so far is written in place. Giving the
changes up restores the draft; the shards that they had are garbage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nandarray.parts.source import PartSpace, PartsSource

__all__ = ["Staging"]


class Staging:
    """Changes of arrays of one source; seen at once, and taken back by :meth:`abort`."""

    def __init__(self, source: PartsSource, spaces: Sequence[tuple[PartSpace, Sequence[int]]]) -> None:
        self._source = source
        for space, shape in spaces:
            if tuple(shape) != space.shape:
                space.arrive()
        with source.alone():
            source.seal_own()
            draft = source.draft
            self._taken = None if source.arrivals is None else source.arrivals.taken()
            self._before = draft.arrays, {identity: dict(rows) for identity, rows in draft.rows.items()}
            self._shapes = list(spaces)

    def begin(self) -> None:
        """Give arrays the shapes that they will have, once."""
        with self._source.alone():
            shapes, self._shapes = self._shapes, []
            for space, shape in shapes:
                if tuple(shape) != space.shape:
                    space.resize(shape)

    def write(self, space: Any, src: np.ndarray[Any, Any], start: Sequence[int]) -> None:
        """Write a box."""
        self.begin()
        space.write(src, start)

    def apply(
        self,
        *,
        delete: Sequence[str] = (),
        rename: Sequence[tuple[str, str]] = (),
        attrs: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Delete, rename, and set attributes by name, too."""
        self.begin()
        self._source.together(delete=delete, rename=rename, attrs=attrs)

    def abort(self) -> None:
        """Take all back."""
        source = self._source
        with source.alone():
            source.drop_own()
            source.draft.arrays, source.draft.rows = self._before
            if source.arrivals is not None:
                source.arrivals.give_back(self._taken)
