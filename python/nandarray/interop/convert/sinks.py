"""Sinks of an export: each format as groups and arrays that take boxes.

A sink is opened on a path that does not exist yet (the caller passes a temporary one and moves it). It gets each group
and array in turn, and returns for an array a function that writes one box. One class a format; an array arrives as
:class:`Spec`, so a sink does not know what a store is. A dtype that the format cannot hold is an
:class:`~nandarray.errors.InvalidError` that names the array and the dtype.
"""

from __future__ import annotations

import errno
import os
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Never, Protocol, Self

import numpy as np

from nandarray.array.attributes import DIMENSIONS
from nandarray.array.ragged_values import RaggedKind
from nandarray.errors import InvalidError
from nandarray.index.shapes import Box
from nandarray.interop.convert.attributes import dimension_names, fill_to_zarr
from nandarray.interop.convert.native import HDF5, NETCDF, elements_of, fill_of, json_only, write_attributes
from nandarray.optional import require

__all__ = ["Sink", "Spec", "Write", "open_sink"]

Write = Callable[[Box, np.ndarray[Any, Any]], None]
#: Methods of compression in HDF5 and NetCDF, with their default levels.
_HDF5_METHODS = {"auto": None, "none": None, "gzip": 4, "lzf": None}


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One array on its way out."""

    name: str  # path below the exported group; the array's own name where it is exported alone
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    compressed: bool
    attrs: Mapping[str, Any] = field(default_factory=dict)
    fill: Any = None

    @property
    def dims(self) -> tuple[str, ...] | None:
        """The dimension names, where the array has some."""
        return dimension_names(self.attrs, len(self.shape))

    @property
    def own_attrs(self) -> dict[str, Any]:
        """The attributes without what is said by :attr:`dims`."""
        return {key: value for key, value in self.attrs.items() if key != DIMENSIONS or self.dims is None}


class Sink(Protocol):
    """The destination of an export."""

    single: bool  # one array and nothing else
    stream: bool  # boxes must come in order, as runs of the C-ordered elements
    bare: bool  # elements alone, whatever their dtype
    order: str
    ends_text: bool  # text of variable length ends at the first NUL

    def group(self, name: str, attrs: Mapping[str, Any]) -> None:
        """Make a group; "" is the root."""

    def array(self, spec: Spec) -> Write:
        """Make an array and give the function that fills it."""

    def takes_rows(self, kind: RaggedKind, dtype: np.dtype[Any]) -> bool:
        """Whether there is a type for rows of variable length, all of which are there."""

    def rows(
        self, name: str, attrs: Mapping[str, Any], kind: RaggedKind, dtype: np.dtype[Any], size: tuple[int, int]
    ) -> Write:
        """Make an array of rows and give the function that fills it; ``size`` is their number, and that of a chunk."""

    def close(self) -> None:
        """Finish the file."""


class _Base:
    single = False
    stream = False
    bare = False
    order = "C"
    ends_text = False

    def __init__(self) -> None:
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()

    def takes_rows(self, kind: RaggedKind, dtype: np.dtype[Any]) -> bool:
        """Take none; a group of offsets and values has them."""
        return False

    def rows(
        self, name: str, attrs: Mapping[str, Any], kind: RaggedKind, dtype: np.dtype[Any], size: tuple[int, int]
    ) -> Write:
        """Refuse rows, which :meth:`takes_rows` does not take."""
        raise InvalidError(f"the format has no type for {name!r}, rows of {kind}")

    def close(self) -> None:
        self._open.close()


def open_sink(path: Path, format: str, *, compression: str, order: str, alone: bool) -> Any:  # noqa: A002
    """Open a new ``path``, which must not exist, for writing; a context manager.

    Formats are "npy", "npz", "raw", "zarr", "hdf5" and "netcdf". ``compression`` is "auto", "none", or a name with an
    optional level ("gzip:4", "zstd:3"); ``order``, "C" or "F", is for npy and raw. ``alone``: one array is exported,
    not a group.
    """
    if order != "C" and format not in {"npy", "raw"}:
        raise InvalidError(f"order 'F' must go with npy or raw, not with {format}")
    if format in {"npy", "raw"}:
        if compression not in {"auto", "none"}:
            raise InvalidError(f"{format} has no compression; use zarr, hdf5, netcdf or npz")
        return _Flat(path, order, header=format == "npy")
    if format == "npz":
        return _Npz(path, compression)
    if format == "zarr":
        return _Zarr(path, compression, alone=alone)
    return (_Hdf5 if format == "hdf5" else _NetCDF)(path, compression)


def _codec(compression: str, known: Mapping[str, int | None]) -> tuple[str, int | None]:
    """Split "gzip:4" and fill in the default level."""
    name, _, level = compression.partition(":")
    if name not in known or (level and (known[name] is None or not level.isdigit())):
        raise InvalidError(
            f"compression must be one of {', '.join(sorted(known))} (name or name:level), not {compression!r}"
        )
    return name, int(level) if level else known[name]


class _Flat(_Base):
    """One array as .npy or as bare bytes, through fresh mappings so that its pages do not pile up as our memory."""

    single = True

    def __init__(self, path: Path, order: str, *, header: bool) -> None:
        super().__init__()
        self._path, self._header, self.order = path, header, order
        self.bare = not header

    def group(self, name: str, attrs: Mapping[str, Any]) -> None:
        """Do nothing: there is nowhere to keep a group."""

    def array(self, spec: Spec) -> Write:
        fortran = self.order == "F"
        if self._header:
            with self._path.open("wb") as file:
                np.lib.format.write_array_header_2_0(file, _header(spec, fortran=fortran))
                offset = file.tell()
        else:
            self._path.touch()
            offset = 0
        size = int(np.prod(spec.shape, dtype=object)) * spec.dtype.itemsize
        os.truncate(self._path, offset + size)

        def write(box: Box, data: np.ndarray[Any, Any]) -> None:
            mapped = np.memmap(
                self._path,
                dtype=spec.dtype,
                mode="r+",
                offset=offset,
                shape=spec.shape,
                order=self.order,  # type: ignore[call-overload]
            )
            mapped[(*box, ...)] = data

        return write


def _header(spec: Spec, *, fortran: bool) -> dict[str, Any]:
    return {"descr": np.lib.format.dtype_to_descr(spec.dtype), "fortran_order": fortran, "shape": spec.shape}


class _Npz(_Base):
    """Arrays as members of a zip archive, each written front to back."""

    stream = True

    def __init__(self, path: Path, compression: str) -> None:
        super().__init__()
        known = {"auto": None, "none": None, "deflate": None}
        name, _ = _codec(compression, known)
        method = zipfile.ZIP_DEFLATED if name == "deflate" else zipfile.ZIP_STORED
        self._archive = self._open.enter_context(zipfile.ZipFile(path, "w", method, allowZip64=True))
        self._member: ExitStack | None = None

    def group(self, name: str, attrs: Mapping[str, Any]) -> None:
        """Do nothing: an archive keeps names only."""

    def array(self, spec: Spec) -> Write:
        self._finish()
        self._member = ExitStack()
        file = self._member.enter_context(self._archive.open(f"{spec.name}.npy", "w", force_zip64=True))
        np.lib.format.write_array_header_2_0(file, _header(spec, fortran=False))

        def write(box: Box, data: np.ndarray[Any, Any]) -> None:
            file.write(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)

        return write

    def _finish(self) -> None:
        if self._member is not None:
            self._member.close()
            self._member = None

    def close(self) -> None:
        self._finish()
        super().close()


class _Zarr(_Base):
    """A directory in Zarr format 3, with dimension names in its metadata."""

    def __init__(self, path: Path, compression: str, *, alone: bool) -> None:
        super().__init__()
        self._zarr = require("zarr", "zarr")
        self._codecs = self._compressors(compression)
        self._path, self._alone = path, alone
        self._root: Any = None if alone else self._zarr.create_group(str(path), zarr_format=3)

    def _compressors(self, compression: str) -> Any:
        name, level = _codec(compression, {"auto": None, "none": None, "gzip": 5, "zstd": 3, "blosc": None})
        codecs = self._zarr.codecs
        if name in {"auto", "none"}:
            return "auto" if name == "auto" else None
        if name == "blosc":
            return (codecs.BloscCodec(),)
        return (codecs.GzipCodec(level=level) if name == "gzip" else codecs.ZstdCodec(level=level),)

    def group(self, name: str, attrs: Mapping[str, Any]) -> None:
        if self._alone:
            return
        target = self._root.require_group(name) if name else self._root
        target.attrs.update(json_only(attrs))

    def array(self, spec: Spec) -> Write:
        attrs = json_only(fill_to_zarr(spec.own_attrs, spec.dtype))
        options: dict[str, Any] = {
            "shape": spec.shape,
            "dtype": spec.dtype,
            "chunks": tuple(max(1, min(c, n)) for c, n in zip(spec.chunks, spec.shape, strict=True)) or "auto",
            "compressors": self._codecs,
            "attributes": attrs,
            "dimension_names": spec.dims,
        }
        if spec.fill is not None and spec.dtype.kind != "V":
            options["fill_value"] = spec.fill
        try:
            if self._alone:
                array = self._zarr.create_array(str(self._path), zarr_format=3, **options)
            else:
                array = self._root.create_array(spec.name, **options)
        except (TypeError, ValueError) as error:
            raise InvalidError(f"Zarr cannot hold {spec.name!r} of dtype {spec.dtype}: {error}") from error
        return _writer(array, f"Zarr cannot hold {spec.name!r}")

    def takes_rows(self, kind: RaggedKind, dtype: np.dtype[Any]) -> bool:
        """Take text and bytes."""
        return kind in ("text", "bytes")

    def rows(
        self, name: str, attrs: Mapping[str, Any], kind: RaggedKind, dtype: np.dtype[Any], size: tuple[int, int]
    ) -> Write:
        array = self._root.create_array(
            name,
            shape=size[:1],
            chunks=size[1:],
            dtype=str if kind == "text" else "variable_length_bytes",
            compressors=self._codecs,
            attributes=json_only(attrs),
        )
        return _writer(array, f"Zarr cannot hold {name!r}")


def _writer(item: Any, refusal: str, encode: Callable[[Any], Any] | None = None) -> Write:
    """Return the function that fills an array of a library's file, its elements encoded as the file has them."""

    def write(box: Box, data: np.ndarray[Any, Any]) -> None:
        try:
            item[(*box, ...)] = encode(data) if encode else data
        except ValueError as error:  # text that the format has no form for
            raise InvalidError(f"{refusal}: {error}") from error

    return write


def _hdf5_filters(compression: str, spec: Spec) -> dict[str, Any]:
    name, level = _codec(compression, _HDF5_METHODS)
    if name == "auto":
        name, level = ("gzip", 4) if spec.compressed else ("none", None)
    if name == "none" or not spec.shape or 0 in spec.shape:
        return {}
    return {"compression": name, "compression_opts": level, "shuffle": True}


def _hdf5_chunks(spec: Spec) -> tuple[int, ...] | None:
    if not spec.shape or 0 in spec.shape:
        return None
    return tuple(max(1, min(c, n)) for c, n in zip(spec.chunks, spec.shape, strict=True))


class _OfHdf5(_Base):
    """A file that the HDF5 library writes. The library crashes when it closes a file that it could not write whole.

    So a file that failed is closed with its descriptor leading to ``/dev/null``, which takes everything.
    """

    def __init__(self, path: Path, compression: str) -> None:
        super().__init__()
        _codec(compression, _HDF5_METHODS)
        self._path, self._compression = path, compression
        self._last: Any = None
        #: The file as h5py has it, which is false once it is closed; set by the form of file.
        self._library: Any = None

    def _forget(self) -> None:
        """Keep what is built on h5py from writing once more."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, (OSError, RuntimeError)):
            self._abandon()  # perhaps a disk that is full
        else:
            if kind is None:
                self._finished()
            self.close()

    def _finished(self) -> None:
        """Add what is known once all arrays are written; the form of file says what."""

    def close(self) -> None:
        self._written(None)
        try:
            super().close()
        except BaseException:
            self._abandon()
            raise

    def _written(self, following: Any) -> None:
        """Write all of the last array, before the library lets go of it without an error, and hold the following."""
        try:
            self._library.flush()
        except (OSError, RuntimeError) as error:
            self._full(error)
        self._last = following

    def _full(self, error: Exception) -> Never:
        """Give up after an error of the library that is the disk's."""
        self._abandon()
        number = getattr(error, "errno", None) or errno.ENOSPC
        raise OSError(number, os.strerror(number), str(self._path)) from error

    def _abandon(self) -> None:
        """Close the file without writing what is left to write."""
        self._forget()
        file = self._library
        if not file:
            return
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, file.id.get_vfd_handle(), inheritable=False)
        os.close(nowhere)
        with suppress(OSError, RuntimeError):
            file.flush()  # with clean caches, the close has nothing to fail with
        with suppress(OSError, RuntimeError):
            file.close()


class _Hdf5(_OfHdf5):
    """A file that h5py writes; chunks are building blocks.

    Names of dimensions are labels, and where an array of one dimension has that name, it becomes the dimension's scale.
    """

    ends_text = True

    def __init__(self, path: Path, compression: str) -> None:
        super().__init__(path, compression)
        self._h5py = require("h5py", "hdf5")
        self._file = self._library = self._open.enter_context(self._h5py.File(path, "w"))
        self._dims: dict[str, tuple[str, ...]] = {}  # of arrays

    def group(self, name: str, attrs: Mapping[str, Any]) -> None:
        write_attributes(HDF5, name or "/", attrs, self._file.require_group(name or "/").attrs)

    def array(self, spec: Spec) -> Write:
        dtype, encode = spec.dtype, None
        if dtype.kind == "U":  # HDF5 has no UTF-32; four bytes a character are always enough in UTF-8
            dtype = self._h5py.string_dtype("utf-8", max(1, dtype.itemsize))
            encode = _utf8(dtype)
        elif dtype.kind in "mM":
            dtype = self._h5py.opaque_dtype(dtype)
            encode = _tagged(dtype)
        names, attrs = elements_of(spec.own_attrs, dtype)
        if names is not None:
            dtype = self._h5py.enum_dtype(names, basetype=dtype)
        options: dict[str, Any] = {} if spec.dtype.kind in "VUmM" else {"fillvalue": spec.fill}
        try:
            item = self._file.create_dataset(
                spec.name,
                shape=spec.shape,
                dtype=dtype,
                chunks=_hdf5_chunks(spec),
                **options,
                **_hdf5_filters(self._compression, spec),
            )
        except (TypeError, ValueError) as error:
            raise InvalidError(f"HDF5 cannot hold {spec.name!r} of dtype {spec.dtype}: {error}") from error
        self._written(item)
        write_attributes(HDF5, spec.name, attrs, item.attrs)
        for axis, dim in enumerate(spec.dims or ()):
            item.dims[axis].label = dim
        self._dims[spec.name] = spec.dims or ()
        return _writer(item, f"HDF5 cannot hold the text in {spec.name!r}", encode)

    def takes_rows(self, kind: RaggedKind, dtype: np.dtype[Any]) -> bool:
        """Take text, bytes, and lists of numbers."""
        return kind != "list" or dtype.kind in "iuf"

    def rows(
        self, name: str, attrs: Mapping[str, Any], kind: RaggedKind, dtype: np.dtype[Any], size: tuple[int, int]
    ) -> Write:
        h5py = self._h5py
        dtype = dtype.newbyteorder("=")  # the only order that h5py reads in lists
        held = h5py.string_dtype() if kind == "text" else h5py.vlen_dtype(dtype)
        item = self._file.create_dataset(name, shape=size[:1], dtype=held, chunks=size[1:] if size[0] else None)
        self._written(item)
        write_attributes(HDF5, name, attrs, item.attrs)
        if kind == "text":
            return _writer(item, f"HDF5 cannot hold the text in {name!r}")

        def write(box: Box, data: Any) -> None:
            # An assignment would make one array of rows of equal lengths.
            rows = np.empty(len(data), held)
            for number, row in enumerate(data):
                rows[number] = np.frombuffer(row, np.uint8) if kind == "bytes" else row.astype(dtype, copy=False)
            if len(data):
                item.write_direct(rows, np.s_[: len(data)], box[0])

        return write

    def _finished(self) -> None:
        """Attach the arrays that are named as dimensions to these, as their scales."""
        try:
            for name, dims in self._dims.items():
                for axis, dim in enumerate(dims):
                    scale = self._scale(name, dim, self._file[name].shape[axis])
                    if scale not in (None, name):
                        self._file[name].dims[axis].attach_scale(self._file[scale])
        except (OSError, RuntimeError) as error:
            self._full(error)

    def _scale(self, name: str, dim: str, length: int) -> str | None:
        """Return the nearest array that is named as a dimension, in the array's group or above it, made a scale."""
        group = name
        while group:
            group = group.rpartition("/")[0]
            found = f"{group}/{dim}" if group else dim
            if self._dims.get(found) != (dim,) or self._file[found].shape != (length,):
                continue
            item = self._file[found]
            if not item.is_scale:
                if set(item.attrs) & {"CLASS", "NAME"}:
                    return None  # which a scale has for itself
                item.make_scale(dim)
            return found
        return None


def _utf8(dtype: np.dtype[Any]) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    return lambda data: np.asarray(np.char.encode(data, "utf-8")).astype(f"S{dtype.itemsize}").view(dtype)


def _tagged(dtype: np.dtype[Any]) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    return lambda data: data.astype(dtype)  # the same bytes; h5py reads the dtype's metadata


class _NetCDF(_OfHdf5):
    """A NetCDF-4 file that h5netcdf writes: named dimensions, CF attributes for what NetCDF has no type for."""

    def __init__(self, path: Path, compression: str) -> None:
        super().__init__(path, compression)
        h5netcdf = require("h5netcdf", "netcdf")
        self._file = self._open.enter_context(h5netcdf.File(path, "w"))
        self._library = self._file._h5file

    def _forget(self) -> None:
        # The garbage collector closes what is not marked as closed, when h5py's part of it may be gone: a crash.
        self._file._closed = True

    def group(self, name: str, attrs: Mapping[str, Any]) -> None:
        write_attributes(NETCDF, name or "/", attrs, self._at(name).attrs)

    def _at(self, name: str) -> Any:
        where = self._file
        for part in filter(None, name.split("/")):
            where = where.groups[part] if part in where.groups else where.create_group(part)
        return where

    def array(self, spec: Spec) -> Write:
        group, _, base = spec.name.rpartition("/")
        where = self._at(group)
        dtype, encode, extra, letters = _netcdf_type(spec)
        dims = spec.dims or tuple(f"{base}_dim_{axis}" for axis in range(len(spec.shape)))
        shape, chunks = spec.shape, _hdf5_chunks(spec)
        if letters:  # CF keeps text of fixed width as single characters along one more dimension
            dims, shape = (*dims, f"string{letters}"), (*shape, letters)
            chunks = (*chunks, letters) if chunks else None
        for dim, extent in zip(dims, shape, strict=True):
            known = where.dimensions.get(dim)
            if known is None:
                where.dimensions[dim] = extent
            elif known.size != extent:
                raise InvalidError(
                    f"dimension {dim!r} has {known.size} elements elsewhere and {extent} in {spec.name!r}"
                )
        attrs = spec.own_attrs
        fill = fill_of(spec.name, attrs, dtype, text=encode is _as_text)
        if fill is None:
            fill = extra.pop("_FillValue", None)
        else:
            del attrs["_FillValue"]
        try:
            item = where.create_variable(
                base,
                dims,
                dtype,
                fillvalue=None if fill is None else np.asarray(fill).astype(dtype)[()],
                chunks=chunks,
                **_hdf5_filters(self._compression, spec),
            )
        except (TypeError, ValueError) as error:
            raise InvalidError(f"NetCDF cannot hold {spec.name!r} of dtype {spec.dtype}: {error}") from error
        self._written(item._h5ds)
        write_attributes(NETCDF, spec.name, {**attrs, **extra}, item.attrs)
        return _writer(item, f"NetCDF cannot hold the text in {spec.name!r}", encode)


_TIME_UNITS = {
    "D": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds", "us": "microseconds",
    "ns": "nanoseconds",
}  # fmt: skip


def _netcdf_type(spec: Spec) -> tuple[Any, Callable[[Any], Any] | None, dict[str, Any], int]:
    """Return a dtype that NetCDF has, how to get there, the attributes that tell a CF reader the way back, and letters.

    Letters is the width of byte strings that become single characters; else 0.
    """
    kind, itemsize = spec.dtype.kind, spec.dtype.itemsize
    if kind in "mM":
        unit, count = np.datetime_data(spec.dtype)
        if unit not in _TIME_UNITS or count != 1:
            raise InvalidError(f"NetCDF cannot hold {spec.name!r}: {spec.dtype} has no CF unit")
        extra: dict[str, Any] = {"units": _TIME_UNITS[unit], "_FillValue": np.iinfo(np.int64).min}
        if kind == "M":
            extra |= {"units": f"{_TIME_UNITS[unit]} since 1970-01-01", "calendar": "proleptic_gregorian"}
        return np.dtype(np.int64), lambda data: data.astype(np.int64), extra, 0
    if kind == "b":
        return np.dtype(np.int8), lambda data: data.astype(np.int8), {"dtype": "bool"}, 0
    if kind == "U":
        return require("h5py", "netcdf").string_dtype("utf-8"), _as_text, {}, 0
    if kind == "S":
        letters = itemsize if itemsize > 1 else 0
        return np.dtype("S1"), _letters if letters else None, {}, letters
    if kind not in "iuf" or (kind == "f" and itemsize not in {4, 8}):
        raise InvalidError(f"NetCDF cannot hold {spec.name!r} of dtype {spec.dtype}")
    return spec.dtype, None, {}, 0


def _as_text(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return data.astype(object)


def _letters(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(data).reshape(data.shape)[..., None].view("S1")
