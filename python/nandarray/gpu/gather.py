"""Gathering: rows of an array by number, into memory of NumPy, torch or CuPy.

One call of the engine reads all rows; a result for an accelerator is then copied to it on its current stream. Not here:
kernels that fetch for themselves, which use the header (:mod:`nandarray.gpu.headers`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from nandarray.errors import BadIndexError, InvalidError
from nandarray.index import buffers

__all__ = ["gather", "library_of", "rows_of"]

_Array = np.ndarray[Any, Any]


def rows_of(indices: Any, length: int) -> tuple[_Array, tuple[int, ...]]:
    """Return row numbers, of any shape, as flat 64-bit integers, and the shape that they had.

    They are of NumPy, torch, CuPy or DLPack; negative ones count from the end. Others than integers are an
    InvalidError, one out of range is a BadIndexError.
    """
    host = _to_host(indices)
    if host.dtype.kind not in "iu" and host.size:
        raise InvalidError(f"indices must be integers, not of type {host.dtype}")
    low, high = (int(host.min()), int(host.max())) if host.size else (0, 0)
    if host.size and (low < -length or high >= length):
        raise BadIndexError(f"row {low if low < -length else high} of an array of {length} rows")
    flat = host.reshape(-1).astype(np.int64, copy=False)
    if low < 0:
        flat = np.where(flat < 0, flat + length, flat)
    return flat, host.shape


def gather(shape: tuple[int, ...], dtype: Any, indices: Any, out: Any, read: Callable[[_Array, _Array], None]) -> Any:
    """Gather rows by ``read(numbers, memory)`` into ``out``, or into a new array of the indices' library.

    Parameters
    ----------
    shape : tuple of int
        Shape of the array: rows, then the shape of a row.
    dtype : dtype_like
        Type of an element.
    indices : array_like of integers
        Numbers of rows, of any shape.
    out : array or None
        Memory of NumPy, torch or CuPy for the result.
    read : callable
        Reads rows to contiguous memory of the host, of shape ``(len(numbers), *row)``.

    Returns
    -------
    array
        ``out``, or an array of the kind of ``indices`` and on its device.
    """
    row = shape[1:]
    numbers, before = rows_of(indices, shape[0])
    wanted = (*before, *row)
    if out is None and library_of(indices) == "numpy":
        out = buffers.empty(wanted, np.dtype(dtype))
    host = None if out is None or _is_remote(out) else buffers.as_out(out, wanted, np.dtype(dtype))
    if host is not None and host.flags.c_contiguous:
        read(numbers, host.reshape(len(numbers), *row))
        return out
    if host is None and out is not None:
        _check_remote(out, wanted, np.dtype(dtype))
    memory = np.empty((len(numbers), *row), dtype)
    read(numbers, memory)
    memory = memory.reshape(wanted)
    if host is not None:
        host[...] = memory
        return out
    return _to_library(memory, indices, out)


def _is_remote(out: Any) -> bool:
    """Whether memory is an accelerator's, which the processor does not write to."""
    if library_of(out) == "cupy":
        return True
    return library_of(out) == "torch" and str(out.device).partition(":")[0] != "cpu"


def _check_remote(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse an accelerator's memory that does not fit, as :func:`nandarray.index.buffers.as_out` refuses a host's."""
    found = str(out.dtype).removeprefix("torch.")
    if tuple(out.shape) != shape or np.dtype(found) != dtype:
        raise InvalidError(f"out is {found} of {tuple(out.shape)}; the result is {dtype} of {shape}")
    buffers.refuse_flagged(out)
    steps = [step * dtype.itemsize for step in out.stride()] if callable(getattr(out, "stride", None)) else out.strides
    buffers.refuse_shared(shape, steps, dtype.itemsize)


def library_of(value: Any) -> str:
    """Return the library whose array a value is: torch, cupy, or numpy for anything else."""
    module = type(value).__module__.partition(".")[0]
    return module if module in ("torch", "cupy") else "numpy"


def _to_host(indices: Any) -> _Array:
    if library_of(indices) == "torch":
        return np.asarray(indices.detach().cpu().numpy())
    if library_of(indices) == "cupy":
        return np.asarray(indices.get())
    if not isinstance(indices, np.ndarray) and hasattr(indices, "__dlpack__"):
        return np.from_dlpack(indices)
    try:
        return np.asarray(indices)
    except (TypeError, ValueError) as error:
        raise InvalidError(f"indices of {type(indices).__name__} are no integers: {error}") from error


def _to_library(memory: _Array, indices: Any, out: Any) -> Any:
    """Copy to the library of ``out``, else of the indices; their current stream orders it before what follows."""
    like = indices if out is None else out
    if library_of(like) == "torch":
        tensor = sys.modules["torch"].from_numpy(memory)
        return tensor.to(like.device) if out is None else out.copy_(tensor)
    if out is None:
        return sys.modules["cupy"].asarray(memory)
    out.set(memory)
    return out
