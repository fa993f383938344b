"""The interface that programs need of arrays: the stored array behind an operand, and how it is seen.

Arrays, views, fields of records and arrays under another dtype are operands (:class:`nandarray.array.compute.Compute`);
programs know no other of their properties.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nandarray.index.compare import Uncompared

__all__ = ["Converted", "Operand", "Origin"]


class Origin(NamedTuple):
    """The stored array behind an operand; its ``store`` runs programs.

    ``view`` is the shape that it is viewed under, None for its own; ``field`` names fields of its records, None for
    whole elements, ``within`` the records around these, from the outside. ``of`` is the operand whose elements are
    converted, None where none are.
    """

    array: Any
    view: list[int] | None = None
    field: tuple[str, ...] | None = None
    of: Any = None
    within: tuple[str, ...] = ()


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


class Converted(Operand):
    """An operand whose elements a program gets under another dtype, as ``astype`` makes them.

    With ``bits`` they keep their bytes, like those of ``ndarray.view``: both dtypes have as many.
    """

    def __init__(self, of: Operand, dtype: np.dtype[Any], *, bits: bool = False) -> None:
        self.of, self.bits = of, bits
        self._dtype: np.dtype[Any] = np.dtype((dtype, of.dtype.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """The operand's."""
        return self.of.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type that the elements are converted to."""
        return self._dtype

    def __getitem__(self, key: Any) -> Any:
        found = self.of[key]
        return found.view(self._dtype.base) if self.bits else found.astype(self._dtype.base)

    def _origin(self) -> Origin:
        return Origin(self.of._origin().array, of=self.of)
