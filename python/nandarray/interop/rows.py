"""Rows of arrays as samples for training: :class:`RowDataset`, a map-style dataset for PyTorch's ``DataLoader``.

A batch is one gather of each array. Samples are NumPy arrays, which a ``DataLoader`` makes tensors; this module itself
needs no PyTorch. Not here: sampling, shuffling and worker processes, which are the loader's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.gpu.gather import rows_of

__all__ = ["RowDataset"]


class RowDataset:
    """Rows of one or more arrays, which have the same number of rows.

    It can be pickled, for a loader's worker processes, if its arrays can: read-only ones are read
    there, others by this process.

    Parameters
    ----------
    *arrays : Array, View or SharedArray
        Features, labels and so on; each has ``gather``, or is indexed by an array of integers.
    transform : callable, optional
        Called with a sample, or with a whole batch: what it gives is the sample or the batch.

    Raises
    ------
    InvalidError
        There is no array, an array has no dimensions, or the numbers of rows differ.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["x"] = np.arange(6.0).reshape(3, 2)
    >>> store["y"] = np.array([0, 1, 0])
    >>> dataset = RowDataset(store["x"], store["y"])
    >>> dataset[[2, 0]]
    (array([[4., 5.],
           [0., 1.]]), array([0, 0]))
    """

    def __init__(self, *arrays: Any, transform: Callable[[Any], Any] | None = None) -> None:
        if not arrays:
            raise InvalidError("a dataset must have at least one array")
        for array in arrays:
            if not hasattr(array, "shape"):
                raise InvalidError(f"arrays must be arrays of a store, or others with a shape, not {array!r:.60}")
        lengths = [array.shape[0] if array.shape else None for array in arrays]
        if None in lengths or len(set(lengths)) != 1:
            raise InvalidError(f"arrays must all have the same number of rows, not {lengths}")
        self._arrays = arrays
        self._transform = transform

    def __len__(self) -> int:
        return int(self._arrays[0].shape[0])

    def __getitem__(self, index: Any) -> Any:
        """Return a sample by its number, or a batch by a sequence of numbers.

        Parameters
        ----------
        index : int or sequence of int
            Row numbers; negative ones count from the end.

        Returns
        -------
        array, or tuple of arrays
            A row of each array; for a sequence, its rows along the first dimension.

        Raises
        ------
        BadIndexError
            There is no such row.
        InvalidError
            An index is no integer; a mask of rows is none of numbers.
        """
        try:
            single = np.ndim(index) == 0
            number = [operator.index(index)] if single else index
        except (TypeError, ValueError) as error:
            raise InvalidError(
                f"index must be a row's number, or a sequence of these, not {index!r}: {error}"
            ) from error
        return self._made(self._rows(number), 0 if single else slice(None))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return samples, read together; a ``DataLoader`` calls this for each of its batches."""
        if not isinstance(indices, Sequence | np.ndarray):
            raise InvalidError(f"indices must be a sequence of numbers of rows, not {indices!r}")
        rows = self._rows(indices)
        return [self._made(rows, i) for i in range(len(indices))]

    def _rows(self, indices: Any) -> list[Any]:
        flat, shape = rows_of(indices, len(self))
        numbers = flat.reshape(shape)
        return [array.gather(numbers) if hasattr(array, "gather") else array[numbers] for array in self._arrays]

    def _made(self, rows: list[Any], at: Any) -> Any:
        parts = tuple(part[at] for part in rows)
        sample = parts if len(parts) > 1 else parts[0]
        return sample if self._transform is None else self._transform(sample)
