"""Creating an array: its data, dtype and shape settled, its key and fill value checked, its elements written.

Names, and the engine's command that creates, are :mod:`nandarray.array.group`'s.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nandarray import dtypes
from nandarray.array.array import Array
from nandarray.array.base import Grid
from nandarray.array.elements import copy_elements
from nandarray.errors import InvalidError
from nandarray.index import buffers
from nandarray.index.shapes import check_shape

__all__ = ["OPTIONS", "check_key", "check_word", "fill_bytes", "refuse_options", "settle", "write_all"]

_KEY_BYTES = 32


def settle(
    name: str, data: Any, shape: int | Sequence[int] | None, dtype: DTypeLike | None
) -> tuple[Any, np.dtype[Any], tuple[int, ...]]:
    """Settle on data, dtype and shape of a new array, each of which may follow from the others."""
    element = None if dtype is None else dtypes.check(dtype)
    if data is not None and not isinstance(data, Grid):
        try:
            data = data.data if isinstance(data, np.ma.MaskedArray) else data  # its mask is stored apart
            data = np.asarray(data) if element is None else buffers.as_source(data, element.base)
        except (TypeError, ValueError) as error:
            if "inhomogeneous" in str(error):
                raise InvalidError(
                    f"array {name!r} must be given elements of one shape, not lists of different lengths: "
                    f"create_ragged({name!r}, data) stores these"
                ) from error
            raise InvalidError(f"array {name!r} cannot be made of {type(data).__name__}: {error}") from error
    if element is None:
        element = dtypes.check(None if data is None else data.dtype)
    if shape is None and data is None:
        raise InvalidError(f"array {name!r} must be given a shape or data")
    lengths = data.shape if shape is None else check_shape(shape)
    if element.subdtype is not None:  # as NumPy does: the subarray's dimensions become the array's
        lengths = lengths if shape is None else (*lengths, *element.shape)
    return data, element.base, check_shape(lengths)


def check_key(key: bytes | bytearray | None) -> bytes | None:
    """Return an encryption key as bytes, or raise if it is no key."""
    if key is None:
        return None
    if not isinstance(key, (bytes, bytearray, memoryview)):
        raise InvalidError(f"encryption_key must be {_KEY_BYTES} bytes, not {type(key).__name__}")
    if len(bytes(key)) != _KEY_BYTES:
        raise InvalidError(f"encryption_key has {len(bytes(key))} bytes, it must have {_KEY_BYTES}")
    return bytes(key)


#: Options of arrays by their names in h5py and Zarr, with the names that they have here.
_ELSEWHERE = {
    "chunks": "building_block", "chunk_shape": "building_block", "fillvalue": "fill_value", "compressor": "compression",
    "compressors": "compression", "attributes": "attrs", "dims": "attrs={'_ARRAY_DIMENSIONS': [...]}",
    "dimension_names": "attrs={'_ARRAY_DIMENSIONS': [...]}", "filters": "compression='zstd+shuffle'",
    "shuffle": "compression='zstd+shuffle'", "compression_opts": "compression='zstd:LEVEL'",
}  # fmt: skip
_NEEDLESS = {"maxshape": "every array can be resized", "shards": "blocks share one file as it is"}
OPTIONS = ("shape", "dtype", "data", "building_block", "compression", "encryption_key", "fill_value", "attrs")


def refuse_options(unknown: Iterable[str]) -> None:
    """Refuse options that arrays do not have, with what they are called here."""
    for name in unknown:
        if name in _ELSEWHERE:
            raise InvalidError(f"create has no option {name!r}: {name} is called {_ELSEWHERE[name]} here")
        if name in _NEEDLESS:
            raise InvalidError(f"create has no option {name!r}, and needs none: {_NEEDLESS[name]}")
        near = difflib.get_close_matches(name, OPTIONS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(OPTIONS)}"
        raise InvalidError(f"create has no option {name!r}{hint}")


def check_word(what: str, value: Any) -> None:
    """Refuse an option that is given and is no text."""
    if value is None:
        return
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidError(f"{what} must be a word, not {value!r}") from None


def check_packable(compression: str | None, dtype: np.dtype[Any]) -> None:
    """Refuse to pack elements that are no integers by their bits: no value of theirs would get shorter."""
    if compression in ("bitpack", "varwidth") and (dtype.kind not in "iubmM" or dtype.names is not None):
        raise InvalidError(f"compression {compression!r} packs integers, and {dtype} is none; try 'zstd+shuffle'")


def fill_bytes(value: Any, dtype: np.dtype[Any]) -> bytes | None:
    """Return a fill value as the bytes of one element; None for zeros."""
    # The integer 0 is the default of every dtype; as a string it would be "0", as a structure it would not fit.
    if value is None or (isinstance(value, int) and value == 0):
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():  # NumPy's, of what is refused below
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        try:
            element = buffers.as_source(value, dtype)
        except InvalidError as error:
            raise dtypes.not_held("fill_value", value, dtype) from error
    if element.shape != ():
        raise InvalidError(f"fill_value has shape {element.shape}, it must be one element of {dtype}")
    dtypes.check_held("fill_value", value, element)
    return element.tobytes()


def write_all(array: Array, data: Any) -> None:
    """Fill a new array; what is itself stored is copied in bounded memory."""
    if isinstance(data, Grid) and data.shape == array.shape:
        copy_elements(data, array)
    else:
        array[...] = data
