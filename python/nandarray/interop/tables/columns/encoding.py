"""The compression and the form of a new table's columns, chosen by its first rows: ``compression="auto"``.

Sizes are reckoned, not measured in a store: of packing by bits from the ranges of frames, of Zstandard by Arrow's. A
packed column may be read by programs as it is, so that it is taken unless Zstandard is clearly smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from nandarray.errors import InvalidError
from nandarray.interop.tables.columns.forms import is_text

__all__ = ["CROWD", "CROWD_MAX", "TEXT", "is_text_of_few", "options_of", "packing", "text_compression"]

#: Compression of text that lies plainly, and of bytes.
TEXT = "zstd"
_FLOATS = "zstd+shuffle"
#: Bytes of a frame, the unit of decoding.
_FRAME = 32 << 10
#: Elements that are looked at.
_SAMPLE = 1 << 20
#: Zstandard is taken where it has at most this part of the packed size.
_GAIN = 0.6
#: Zstandard alone is taken where it has less than this part of the bytes: decoding takes longer than reading.
_WORTH = 0.85
#: Different values, at most, of text that lies as codes, and rows for each; of text that may go on to lie so while a
#: table is created; and of text that appends add to, whose dictionary each scan and append has in memory.
_FEW, _ROWS_EACH, CROWD, CROWD_MAX = 1 << 16, 4, 1 << 18, 1 << 20
_NdArray = np.ndarray[Any, Any]


def options_of(compression: Any, names: list[str]) -> dict[str, str | None]:
    """Return what was said of each column's compression: ``"auto"``, or that of an array.

    Raises
    ------
    InvalidError
        It is for a column that is not there.
    """
    if not isinstance(compression, Mapping):
        return dict.fromkeys(names, compression)
    for name in compression:
        if name not in names:
            raise InvalidError(f"compression is given for column {name!r}; there is {', '.join(names)}")
    return {name: compression.get(name, "auto") for name in names}


def packing(values: _NdArray | None, dtype: np.dtype[Any]) -> str | None:
    """Return the compression of elements by the first of them, or by their dtype alone."""
    if dtype.base.kind not in "biu" or dtype.shape:
        shuffled = dtype.itemsize > 1 and not dtype.shape
        return _unpacked(values, _FLOATS if shuffled else TEXT)
    if values is None or values.nbytes < _FRAME:  # too few to tell what others will be
        return "bitpack"
    values = values[:_SAMPLE]
    if values.dtype.kind == "b":
        values = values.view("u1")
    frame = max(1, _FRAME // values.itemsize)
    sizes = {"bitpack": _by_bits(values, frame), "varwidth": _by_width(values)}
    best = min(sizes, key=lambda one: (sizes[one], one))
    if _by_zstd(values) < _GAIN * sizes[best]:
        return _FLOATS if values.itemsize > 1 else TEXT
    return best if sizes[best] < values.nbytes else None


def text_compression(array: Any) -> str | None:
    """Return the compression of the bytes of text or bytes, by the first of them."""
    if array is None:
        return TEXT
    sample = array.slice(0, _SAMPLE)
    sample = sample.cast(pa.large_binary())
    _, offsets, heap = sample.buffers()
    if not len(sample) or heap is None:
        return TEXT
    first, last = np.frombuffer(offsets, "<i8")[[sample.offset, sample.offset + len(sample)]]
    return _unpacked(np.frombuffer(heap, "u1")[first:last], TEXT)


def _unpacked(values: _NdArray | None, compression: str) -> str | None:
    """Return a compression if it makes values clearly smaller; None if not."""
    if values is None or values.nbytes < _FRAME:
        return compression
    values = values[:_SAMPLE]
    return compression if _by_zstd(values) < _WORTH * values.nbytes else None


def _by_bits(values: _NdArray, frame: int) -> int:
    starts = np.arange(0, len(values), frame)
    lows, highs = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    counts = np.diff(np.append(starts, len(values)))
    ranges = [int(high) - int(low) for low, high in zip(lows, highs, strict=True)]
    return int(sum(count * number.bit_length() for count, number in zip(counts.tolist(), ranges, strict=True))) // 8 + 1


def _by_width(values: _NdArray) -> int:
    whole = values.view(f"<u{values.itemsize}").astype("<f8")
    return int(len(values) + np.ceil(np.log2(whole + 1)).sum() / 8)


def _by_zstd(values: _NdArray) -> int:
    """Return the size with bytes of a place put together, frame by frame; of some frames, for all."""
    frame = max(1, _FRAME // (values.nbytes // len(values)))
    frames = [values[at : at + frame] for at in range(0, len(values), frame)]
    chosen = frames[:: max(1, len(frames) // 16)]
    taken = sum(len(one) for one in chosen)
    size = 0
    for one in chosen:
        shuffled = np.ascontiguousarray(one).view("u1").reshape(one.size, -1).T.tobytes()
        size += len(pa.compress(shuffled, codec="zstd", asbytes=True))
    return size * len(values) // max(1, taken)


def is_text_of_few(array: Any) -> bool:
    """Return whether a column is text that has few different values for its rows."""
    if not is_text(array.type):
        return False
    sample = array.slice(0, _SAMPLE)
    return 0 < len(sample.unique()) <= min(_FEW, len(sample) // _ROWS_EACH)
