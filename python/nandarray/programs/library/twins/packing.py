"""Twins of ``bitpack`` and ``bitunpack``, through NumPy's bits."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["bitpack", "bitunpack"]

Array = np.ndarray[Any, Any]


def bitpack(x: Array, *, width: int) -> tuple[Array]:
    """Pack the lowest ``width`` bits of each element.

    Parameters
    ----------
    x : numpy.ndarray, unsigned
        Elements.
    width : int
        Bits of each.

    Returns
    -------
    tuple of one numpy.ndarray, uint8
        The bits from the lowest on, zeros up to a byte.
    """
    bits = np.unpackbits(np.ascontiguousarray(x).view(np.uint8).reshape(len(x), x.itemsize), axis=1, bitorder="little")
    return (np.packbits(bits[:, :width].reshape(-1), bitorder="little"),)


def bitunpack(packed: Array, count: int = 2**64 - 1, *, width: int, dtype: Any = np.uint32) -> tuple[Array]:
    """Undo :func:`bitpack`.

    Parameters
    ----------
    packed : numpy.ndarray, uint8
        Bits.
    count : int
        Elements at most.
    width : int
        Bits of each.
    dtype : dtype
        Of the result.

    Returns
    -------
    tuple of one numpy.ndarray
        The elements that are whole.
    """
    bits = np.unpackbits(packed, bitorder="little")
    found = min(len(bits) // width, count)
    wide = np.zeros((found, 8 * np.dtype(dtype).itemsize), np.uint8)
    wide[:, :width] = bits[: found * width].reshape(found, width)
    return (np.packbits(wide.reshape(-1), bitorder="little").view(dtype),)
