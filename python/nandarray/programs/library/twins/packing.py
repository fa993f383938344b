"""Twins of ``bitpack`` and ``bitunpack``, through NumPy's bits."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["bitpack", "bitunpack"]

Array = np.ndarray[Any, Any]


def bitpack(x: Array, *, width: int) -> tuple[Array]:
    """Pack the lowest ``width`` bits of each unsigned element, from the lowest on, with zeros up to a byte."""
    bits = np.unpackbits(np.ascontiguousarray(x).view(np.uint8).reshape(len(x), x.itemsize), axis=1, bitorder="little")
    return (np.packbits(bits[:, :width].reshape(-1), bitorder="little"),)


def bitunpack(packed: Array, count: int = 2**64 - 1, *, width: int, dtype: Any = np.uint32) -> tuple[Array]:
    """Undo :func:`bitpack`; return the elements that are whole, at most ``count``."""
    bits = np.unpackbits(packed, bitorder="little")
    found = min(len(bits) // width, count)
    wide = np.zeros((found, 8 * np.dtype(dtype).itemsize), np.uint8)
    wide[:, :width] = bits[: found * width].reshape(found, width)
    return (np.packbits(wide.reshape(-1), bitorder="little").view(dtype),)
