"""Chunks: what shape the result of a block has, if it is not the block's, and with it the shape of the whole result.

The word is Dask's (``dask.array.map_blocks(chunks=)``). At the edges of a box, where blocks are smaller, their results
are smaller in proportion, rounded up: half of 5 elements is 3, an axis that is folded has one place. So the shape is
known before the run. Nothing is computed here; the program's loop has the same proportion.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nandarray.errors import InvalidError
from nandarray.programs.calls.halos import by_axis

__all__ = ["Proportion", "read_chunks"]


@dataclass(frozen=True)
class Proportion:
    """Shapes of a whole block of a box, and of its result."""

    block: tuple[int, ...]
    chunk: tuple[int, ...]

    def of(self, extents: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the result of a block of these extents, which may be smaller than a whole one."""
        return tuple(-(-n * made // taken) for n, made, taken in zip(extents, self.chunk, self.block, strict=True))

    def result(self, shape: Sequence[int], first: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the result of a box of this shape, whose first block ends at ``first``."""
        begin = tuple(map(min, shape, first))
        rest = [divmod(n - low, size) for n, low, size in zip(shape, begin, self.block, strict=True)]
        ends = zip(self.of(begin), self.chunk, rest, self.of([left for _, left in rest]), strict=True)
        return tuple(low + whole * made + high for low, made, (whole, _), high in ends)

    def reduced(self) -> list[tuple[int, int]]:
        """Return for each dimension the elements of a result, and those of the block that they are for, in least terms.

        Blocks of all sizes with one proportion have one program.
        """
        common = map(math.gcd, self.chunk, self.block)
        return [(made // by, taken // by) for made, taken, by in zip(self.chunk, self.block, common, strict=True)]


def read_chunks(given: Any, block: tuple[int, ...]) -> Proportion:
    """Read what a caller says of chunks: a shape, or a mapping by axis, which leaves the others as the block has them.

    None is for results of the block's shape. An InvalidError says what is no shape of a result for such a block.
    """
    if given is None:
        return Proportion(block, block)
    if not isinstance(given, Mapping):
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InvalidError(
                f"chunks must be a shape of results, or a mapping by axis, not {given!r}; the block is {block}"
            )
        given = tuple(given)
    listed = by_axis(given, block, None, "chunks", of="block")
    chunk = []
    for axis, (size, one) in enumerate(zip(block, listed, strict=True)):
        try:
            made = size if one is None else operator.index(one)
        except TypeError:
            made = 0
        if made < 1 or isinstance(one, bool):
            raise InvalidError(f"chunks must be integers, at least 1, not {one!r} along axis {axis}")
        chunk.append(made)
    return Proportion(block, tuple(chunk))
