"""The interface that programs need of arrays: the stored array behind an operand, and how it is seen.

Arrays, views and fields of records are operands (:class:`nandarray.array.compute.Compute`); programs know no other of
their properties.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nandarray.index.compare import Uncompared

__all__ = ["Operand", "Origin"]


class Origin(NamedTuple):
    """The stored array behind an operand; its ``store`` runs programs.

    ``view`` is the shape that it is viewed under, None for its own; ``field`` names fields of its records, None for
    whole elements.
    """

    array: Any
    view: list[int] | None = None
    field: tuple[str, ...] | None = None


class Operand(Uncompared):
    """An array of a store, a view of one, or a field of its records."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each dimension."""
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError

    def _origin(self) -> Origin:
        raise NotImplementedError
