"""Chunks of an HDF5 dataset by their place in the file: the index that the library gives, and the decoding.

The index is read once, when a dataset is first read: for each chunk its offset, its length and the filters that were
left out. Bytes are read by range then, in as many threads as the reader has, and decoded by numcodecs. A dataset whose
filters numcodecs has not, whose type is not NumPy's, or that is compact, is read by the HDF5 library, chunk by chunk.

The memory of a chunk is bounded as for an import (:mod:`nandarray.interop.convert.hdf5_source`).
"""

from __future__ import annotations

import contextlib
import importlib
from array import array
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from nandarray.array.fork import StoreLock
from nandarray.errors import CorruptError, InvalidError, NandarrayError
from nandarray.index.shapes import Box, box_shape, run_shape
from nandarray.interop.convert import hdf5_source
from nandarray.interop.foreign.files import File

__all__ = ["Hdf5Chunks", "not_readable"]

_Array = np.ndarray[Any, Any]

#: HDF5's number of a filter -> the numcodecs codec, and its arguments by the filter's values and the element's bytes.
_CODECS: dict[int, tuple[str, Callable[[Sequence[int], int], dict[str, Any]]]] = {
    1: ("Zlib", lambda values, item: {}),
    2: ("Shuffle", lambda values, item: {"elementsize": values[0] if values else item}),
    3: ("Fletcher32", lambda values, item: {}),
    32001: ("Blosc", lambda values, item: {}),
    32015: ("Zstd", lambda values, item: {}),
}
#: Bytes of the runs in which elements without chunks are read.
_RUN_BYTES = 1 << 20


def not_readable(item: Any, limit: int) -> str | None:
    """Return why a dataset's chunks cannot be read here, in words that its name begins; None if they can.

    A filter is not there, or nothing bounds what it unpacks; or finding the chunks takes minutes. The package that has
    most filters is imported, if it is installed.
    """
    h5py = importlib.import_module("h5py")
    properties = item.id.get_create_plist()
    for number in range(properties.get_nfilters()):
        code, _, _, name = properties.get_filter(number)
        if h5py.h5z.filter_avail(code):
            continue
        with contextlib.suppress(ImportError):
            importlib.import_module("hdf5plugin")
        if not h5py.h5z.filter_avail(code):
            told = name.decode(errors="replace").strip("\0") if isinstance(name, bytes) else str(name)
            return (
                f"has the HDF5 filter {code} ({told or 'unnamed'}), which is not here: pip install hdf5plugin brings it"
            )
    if item.chunks is None or not item.shape:
        return None
    try:
        if hdf5_source.has_chunks(item):
            hdf5_source.chunk_guard(item, hdf5_source.chunk_bytes_most(item, limit))
    except InvalidError as error:
        return f"cannot be read in place: {error}"
    return None


class Hdf5Chunks:
    """Reader of one dataset, a unit at a time.

    Parameters
    ----------
    item : h5py.Dataset
        The dataset, whose elements are as they lie in the file.
    file : File
        The file that it is in.
    name : str
        Name of the array, for messages.
    dtype : numpy.dtype
        Type of the elements.
    limit : int
        The most bytes that a chunk may take.
    """

    def __init__(self, item: Any, file: File, name: str, dtype: np.dtype[Any], limit: int) -> None:
        self._item, self._file, self._name, self._dtype = item, file, name, dtype
        self._limit = limit
        self._lock = StoreLock()
        self._index: _Index | None = None
        self._guard: hdf5_source.ChunkGuard | None = None
        self.unit: tuple[int, ...] = (
            tuple(item.chunks)
            if item.chunks is not None
            else run_shape(item.shape, max(1, _RUN_BYTES // max(1, dtype.itemsize)))
        )
        self._codecs = _codecs(item, dtype)
        #: Whether bytes are read by range; if not, the library reads.
        self.by_range = self._codecs is not None and _is_plain(item, dtype)

    def read(self, box: Box, library: Callable[[Box], _Array]) -> _Array | None:
        """Return the elements of a unit's box; None where nothing is stored for it.

        ``library`` reads a box by the HDF5 library.

        Raises
        ------
        CorruptError
            The chunk is damaged, or lies behind the end of the file: named with array, chunk and file.
        """
        if self._item.chunks is None:
            return self._run(box) if self.by_range else library(box)
        index = self._located()
        place = tuple(one.start // n for one, n in zip(box, self.unit, strict=True))
        found = index.find(place)
        if found is None:
            return None
        offset, size, mask = found
        where = tuple(at * n for at, n in zip(place, self.unit, strict=True))
        if self.by_range:
            raw = self._bytes(offset, size, where)
            self._check(where, size, mask, lambda: raw)
            return self._decoded(raw, mask, where)[tuple(slice(0, n) for n in box_shape(box))]
        self._check(where, size, mask, lambda: self._bytes(offset, size, where))
        self._file.check()
        try:
            return library(box)
        except InvalidError as error:
            raise self._corrupt(where, error) from error

    def ahead(self, boxes: Sequence[Box]) -> None:
        """Fetch the bytes of units that will be read next."""
        if self._file.ahead is None or not self.by_range:
            return
        ranges = []
        for box in boxes:
            if self._item.chunks is None:
                found = self._run_range(box)
            else:
                at = self._located().find([one.start // n for one, n in zip(box, self.unit, strict=True)])
                found = None if at is None else at[:2]
            if found is not None:
                ranges.append(found)
        if ranges:
            self._file.ahead(ranges)

    def _located(self) -> _Index:
        with self._lock:
            if self._index is None:
                item = self._item
                if not hdf5_source.has_chunks(item):
                    self._index = _Index((), np.empty((0, 4), np.uint64))
                    return self._index
                self._guard = hdf5_source.chunk_guard(item, hdf5_source.chunk_bytes_most(item, self._limit))
                try:
                    self._index = _Index.of(item)
                except (RuntimeError, OSError, ValueError) as error:
                    raise CorruptError(
                        f"array {self._name!r}: the index of its chunks in {self._file.path} is damaged: {error}"
                    ) from error
            return self._index

    def _check(self, where: tuple[int, ...], size: int, mask: int, raw: Callable[[], bytes]) -> None:
        if self._guard is None:
            return
        try:
            self._guard(where, size, mask, raw)
        except NandarrayError:
            raise
        except Exception as error:  # what unpacks to measure it has found it damaged
            raise self._corrupt(where, error) from error

    def _bytes(self, offset: int, size: int, where: Sequence[int]) -> bytes:
        if size > 2 * self._limit:
            raise self._corrupt(where, f"{size} bytes, packed, are more than {2 * self._limit}")
        (raw,) = self._file.read([(offset, size)])
        if len(raw) != size:
            raise self._corrupt(where, f"{size} bytes at {offset}, of which the file has {len(raw)}")
        return raw

    def _decoded(self, raw: Any, mask: int, where: Sequence[int]) -> _Array:
        assert self._codecs is not None
        data = raw
        try:
            for number in range(len(self._codecs) - 1, -1, -1):
                if not mask >> number & 1:
                    data = self._codecs[number].decode(data)
        except NandarrayError:
            raise
        except Exception as error:  # the codecs have no error of their own
            raise self._corrupt(where, error) from error
        flat = np.frombuffer(data, np.uint8)
        if flat.nbytes != prod(self.unit) * self._dtype.itemsize:
            raise self._corrupt(where, f"{flat.nbytes} bytes, not {prod(self.unit) * self._dtype.itemsize}")
        return flat.view(self._dtype).reshape(self.unit)

    def _run_range(self, box: Box) -> tuple[int, int] | None:
        """Return where elements that lie side by side begin, and how many bytes they are; None where there are none."""
        offset = self._item.id.get_offset()
        if offset is None:
            return None
        first = 0
        for part, n in zip(box, self._item.shape, strict=True):
            first = first * n + part.start
        return offset + first * self._dtype.itemsize, prod(box_shape(box)) * self._dtype.itemsize

    def _run(self, box: Box) -> _Array | None:
        """Read elements that lie side by side."""
        found = self._run_range(box)
        if found is None:
            return None
        raw = self._bytes(*found, tuple(part.start for part in box))
        return np.frombuffer(raw, self._dtype).reshape(box_shape(box))

    def _corrupt(self, where: Sequence[int], why: Any) -> CorruptError:
        told = f"{type(why).__name__}: {why}" if isinstance(why, BaseException) else why
        return CorruptError(f"array {self._name!r}, chunk at {tuple(where)} in {self._file.path} is damaged: {told}")


class _Index:
    """Chunks by their number in C order of the grid: numbers, offsets, lengths, masks, sorted."""

    def __init__(self, grid: tuple[int, ...], rows: _Array) -> None:
        self._grid = grid
        self._rows = rows[np.argsort(rows[:, 0], kind="stable")]

    @classmethod
    def of(cls, item: Any) -> _Index:
        """Read the index of a dataset."""
        found = array("Q")
        grid = tuple(-(-n // c) for n, c in zip(item.shape, item.chunks, strict=True))

        def take(info: Any) -> None:
            places = [at // n for at, n in zip(info.chunk_offset, item.chunks, strict=True)]
            if any(at >= n for at, n in zip(places, grid, strict=True)):
                return  # left by an array that has become smaller
            number = 0
            for at, n in zip(places, grid, strict=True):
                number = number * n + at
            found.extend((number, info.byte_offset, info.size, info.filter_mask))

        item.id.chunk_iter(take)
        return cls(grid, np.array(found, np.uint64).reshape(-1, 4))

    def find(self, place: Sequence[int]) -> tuple[int, int, int] | None:
        """Return offset, length and mask of a chunk; None where there is none."""
        number = 0
        for at, n in zip(place, self._grid, strict=False):
            number = number * n + at
        row = int(np.searchsorted(self._rows[:, 0], np.uint64(number)))
        if row >= len(self._rows) or int(self._rows[row, 0]) != number:
            return None
        return int(self._rows[row, 1]), int(self._rows[row, 2]), int(self._rows[row, 3])


def _codecs(item: Any, dtype: np.dtype[Any]) -> list[Any] | None:
    """Return the codecs of a dataset in the order of its filters; None where numcodecs has not all of them."""
    properties = item.id.get_create_plist()
    filters = [properties.get_filter(number) for number in range(properties.get_nfilters())]
    if not filters:
        return []
    try:
        numcodecs = importlib.import_module("numcodecs")
    except ImportError:
        return None
    if any(code not in _CODECS or not hasattr(numcodecs, _CODECS[code][0]) for code, *_ in filters):
        return None
    found = []
    for code, _, values, _ in filters:
        name, arguments = _CODECS[code]
        found.append(getattr(numcodecs, name)(**arguments(values, dtype.itemsize)))
    return found


def _is_plain(item: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether the bytes of elements in the file are those of a dtype, and lie in chunks or in one run."""
    h5py = importlib.import_module("h5py")
    properties = item.id.get_create_plist()
    if properties.get_layout() not in (h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED) or properties.get_external_count():
        return False
    if item.dtype.hasobject or item.dtype.subdtype is not None or dtype.itemsize != item.id.get_type().get_size():
        return False
    try:
        made = h5py.h5t.py_create(item.dtype, logical=True)
    except TypeError:
        return False
    return bool(made == item.id.get_type())
