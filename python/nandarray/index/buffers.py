"""The caller's memory as NumPy arrays: where to read into (``out``) and what to write.

:func:`as_out` never copies: what it returns shares the caller's memory, or it raises. :func:`as_source` copies only to
change the dtype, and broadcasts without copying. Casting follows NumPy's assignment, ``a[...] = values``.

Refused is memory in which elements share bytes (every element that is read is one of its own), a tensor whose memory
holds other values than its elements (torch's negative and conjugate bits), and a mask, which a store does not keep.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nandarray import dtypes
from nandarray.errors import InvalidError

__all__ = [
    "Elements", "any_masked", "as_out", "as_source", "broadcast", "converted", "empty", "refuse_flagged", "refuse_mask",
    "refuse_shared",
]  # fmt: skip

#: Type of elements that were read; their dtype is known when the program runs. A single one is a scalar of NumPy, and
#: has the type of an array without dimensions here: a type checker cannot count an index.
Elements = np.ndarray[tuple[Any, ...], np.dtype[Any]]
_Array = np.ndarray[Any, Any]
_DLPACK_CPU = 1
_DLPACK_PINNED = 3  # page-locked host memory


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> _Array:
    """Allocate a result, uninitialised, or say that it is too large for memory."""
    size = math.prod(shape) * dtype.itemsize
    if size > sys.maxsize or (size == 0 and max(shape) > sys.maxsize):
        raise InvalidError(f"the selection has shape {tuple(shape)} and {size} bytes; select less")
    return np.empty(shape, dtype)


def as_out(out: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Array:
    """See the caller's buffer as an array to read into, which must have this shape and dtype.

    The buffer is a NumPy array with any strides, or anything with the buffer protocol, ``__array_interface__`` or
    ``__dlpack__`` whose memory the processor can write. A flat buffer of plain bytes fits any dtype. Elements that
    share memory are refused.
    """
    array = out if isinstance(out, np.ndarray) else _wrap(out, dtype, shape)
    if array.dtype != dtype:
        raise InvalidError(f"out has dtype {array.dtype}, the array has {dtype}")
    if array.shape != shape:
        raise InvalidError(f"out has shape {array.shape}, the selection has {shape}")
    if not array.flags.writeable:
        raise InvalidError(f"out is read-only: {type(out).__name__} of shape {shape}")
    refuse_shared(array.shape, array.strides, array.itemsize)
    return array


def refuse_shared(shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> None:
    """Refuse memory in which elements share bytes, by an InvalidError. Strides are in bytes.

    Strides of apart elements nest: along each dimension, a step is at least as long as all that lies within it.
    """
    if 0 in shape:
        return
    within = item_bytes
    for step, length in sorted((abs(step), length) for step, length in zip(strides, shape, strict=True) if length > 1):
        if step < within:
            raise InvalidError(
                f"out has elements that share memory: strides {tuple(strides)} of shape {tuple(shape)}, in bytes, with"
                f" elements of {item_bytes}"
            )
        within += step * (length - 1)


def refuse_flagged(out: Any) -> None:
    """Refuse a tensor whose memory holds the negative, or the conjugate, of its elements."""
    for flag, what in (("is_neg", "negative"), ("is_conj", "conjugate")):
        told = getattr(out, flag, None)
        if callable(told) and told():
            raise InvalidError(
                f"out has torch's {what} bit set: its memory does not hold its elements; give a tensor of"
                f" its own, out.resolve_{flag.removeprefix('is_')}()"
            )


def _wrap(out: object, dtype: np.dtype[Any], shape: tuple[int, ...]) -> _Array:
    refuse_flagged(out)
    if hasattr(out, "__dlpack__") and hasattr(out, "__dlpack_device__"):
        device = out.__dlpack_device__()
        if device[0] not in (_DLPACK_CPU, _DLPACK_PINNED):
            raise InvalidError(f"out is on DLPack device {tuple(map(int, device))}; only host memory can be read into")
        try:
            return np.from_dlpack(out)
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            raise InvalidError(f"out cannot be shared through DLPack: {error}") from error
    if hasattr(out, "__array_interface__"):
        return np.asarray(out)
    try:
        view = memoryview(out)  # type: ignore[arg-type]
    except TypeError as error:
        raise InvalidError(f"out must be a writable buffer, not {type(out).__name__}") from error
    if view.format in ("B", "b", "c") and view.ndim == 1 and view.c_contiguous:
        return _bytes_as(view, dtype, shape)
    return np.asarray(view)


def _bytes_as(view: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...]) -> _Array:
    flat = np.frombuffer(view, np.uint8)
    need = math.prod(shape) * dtype.itemsize
    if flat.nbytes != need:
        raise InvalidError(f"out has {flat.nbytes} bytes, the selection has {need} ({shape} of {dtype})")
    return flat.view(dtype).reshape(shape)


def as_source(values: object, dtype: np.dtype[Any]) -> _Array:
    """See values as an array of a dtype, cast as NumPy's assignment casts; not copied where the dtype already fits."""
    refuse_mask(values)
    if dtype.kind in "iu" and isinstance(values, np.datetime64 | np.timedelta64):
        # As NumPy's assignment; an array of times is cast by it, and here.
        raise InvalidError(f"cannot store {values!r} as {dtype}; its number is value.astype('i8')")
    try:
        array = values if isinstance(values, np.ndarray) else np.asarray(values, _target(values, dtype))
        return array if array.dtype == dtype else array.astype(dtype, casting="unsafe")
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # the last: no room in a text for a time
        raise InvalidError(f"cannot store {type(values).__name__} as {dtype}: {error}") from error


def refuse_mask(values: object) -> None:
    """Refuse a masked array of which an element is masked, by an InvalidError: an assignment would lose its mask."""
    if any_masked(values):
        raise InvalidError(
            "a masked array has masked elements, and an assignment would lose its mask: array.write_masked keeps it"
            " where the array has one (store[name] = values makes both); or give values.filled(...), the value as"
            " fill_value and as the attribute _FillValue"
        )


def any_masked(values: object) -> bool:
    """Return whether values are a masked array of which an element is masked."""
    if not isinstance(values, np.ma.MaskedArray):
        return False
    return bool(np.frombuffer(np.asarray(values.mask).tobytes(), np.uint8).any())


def converted(read: Any, dtype: DTypeLike | None) -> Any:
    """Convert what was read, an array or a scalar, to another dtype; None leaves it."""
    if dtype is None:
        return read
    wanted = dtypes.parse(dtype)
    try:
        return read.astype(wanted, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidError(f"{read.dtype} cannot be read as {wanted}: {error}") from error


def _target(values: object, dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    # Python objects are converted straight to the dtype, so that 300 does not wrap into uint8 and a tuple fills a
    # structured element. Values that have a dtype of their own are cast from it.
    return None if hasattr(values, "dtype") or hasattr(values, "__array__") else dtype


def broadcast(source: _Array, shape: tuple[int, ...]) -> _Array:
    """Stretch values to the shape of a selection without copying: a view, with zero strides where it is stretched."""
    given = source.shape
    if given == shape:
        return source
    while source.ndim > len(shape) and source.shape[0] == 1:
        source = source.reshape(source.shape[1:])
    try:
        return np.broadcast_to(source, shape)
    except ValueError as error:
        if given == () or np.prod(shape, dtype=object) > sys.maxsize:
            raise InvalidError(f"one write cannot address a selection of shape {shape}; write less") from error
        raise InvalidError(f"could not broadcast input array from shape {given} into shape {shape}") from error
