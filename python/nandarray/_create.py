"""What a new array is made of: its data, dtype and shape settled, its key and fill value checked, its elements written.

Names, and the engine's command that creates, are :mod:`nandarray.group`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nandarray import _buffers, dtypes
from nandarray._grid import Grid, check_shape
from nandarray.array import Array
from nandarray.errors import InvalidError

__all__ = ["check_key", "check_word", "fill_bytes", "settle", "write_all"]

_KEY_BYTES = 32


def settle(
    name: str, data: Any, shape: int | Sequence[int] | None, dtype: DTypeLike | None
) -> tuple[Any, np.dtype[Any], tuple[int, ...]]:
    """Settle on data, dtype and shape of a new array, each of which may follow from the others."""
    element = None if dtype is None else dtypes.check(dtype)
    if data is not None and not isinstance(data, Grid):
        try:
            data = np.asarray(data) if element is None else _buffers.as_source(data, element.base)
        except (TypeError, ValueError) as error:
            raise InvalidError(f"array {name!r} cannot be made of {type(data).__name__}: {error}") from error
    if element is None:
        element = dtypes.check(None if data is None else data.dtype)
    if shape is None and data is None:
        raise InvalidError(f"array {name!r} needs a shape or data")
    lengths = data.shape if shape is None else check_shape(shape)
    if element.subdtype is not None:  # as NumPy does: the subarray's dimensions become the array's
        lengths = lengths if shape is None else (*lengths, *element.shape)
    return data, element.base, check_shape(lengths)


def check_key(key: bytes | bytearray | None) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, (bytes, bytearray, memoryview)):
        raise InvalidError(f"encryption_key must be {_KEY_BYTES} bytes, not {type(key).__name__}")
    if len(bytes(key)) != _KEY_BYTES:
        raise InvalidError(f"encryption_key has {len(bytes(key))} bytes, it must have {_KEY_BYTES}")
    return bytes(key)


def check_word(what: str, value: Any) -> None:
    """Refuse an option that is given and is no text."""
    if value is None:
        return
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidError(f"{what} is a word, not {value!r}") from None


def fill_bytes(value: Any, dtype: np.dtype[Any]) -> bytes | None:
    # The integer 0 is the default of every dtype; as a string it would be "0", as a structure it would not fit.
    if value is None or (isinstance(value, int) and value == 0):
        return None
    element = _buffers.as_source(value, dtype)
    if element.shape != ():
        raise InvalidError(f"fill_value has shape {element.shape}, it must be one element of {dtype}")
    return element.tobytes()


def write_all(array: Array, data: Any) -> None:
    """Fill a new array; what is itself stored is copied in bounded memory."""
    if isinstance(data, Grid) and data.shape == array.shape and data.ndim and data.size:
        row = 0
        for band in data._bands():
            array[row : row + len(band)] = band
            row += len(band)
    else:
        array[...] = data
