"""Sources of an import: each format as a list of members that can be read box by box.

``open_source`` gives a :class:`Source`: the groups with their attributes, and a :class:`Member` for every array, with
everything that has to be known before copying (shape, dtype, chunks, attributes, fill value) and a function that reads
one box. Scanning finds what cannot be stored before a byte is copied. One function a format; each is a context
manager that holds the file open.

A source may come from anywhere, so nothing that it says is believed: what leads to other files is refused unless the
source is trusted, chunks are compared with the memory that they would take before they are decoded, and places without
a chunk are not visited (:mod:`.zarr_source`, :mod:`.hdf5_source`). An error that a library raises about a source
becomes :class:`nandarray.InvalidError`.

It does not write anything, and does not know what a store is.
"""

from __future__ import annotations

import ast
import gzip
import io
import zipfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.array.attributes import DIMENSIONS
from nandarray.errors import InvalidError, MediaError, NandarrayError, NotFoundError, StoreMissingError
from nandarray.index.shapes import Box, box_shape, boxes
from nandarray.interop.convert import hdf5_source, zarr_source
from nandarray.interop.convert.attributes import encode, fill_from_zarr
from nandarray.interop.convert.limits import CHUNK_MIN_BYTES
from nandarray.interop.convert.slabs import slab_shape, stored_slabs
from nandarray.optional import require

__all__ = ["Member", "Source", "SourceOptions", "foreign_errors", "open_source"]

#: HDF5 and NetCDF keep their own book-keeping in attributes; it means nothing outside the file.
_HDF5_INTERNAL = {
    "CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS", "_Netcdf4Dimid", "_Netcdf4Coordinates",
    "_nc3_strict", "_NCProperties",
}  # fmt: skip
_NOT_A_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
#: Elements of text to look at at once, and the most if that is one chunk.
_SCAN = 1 << 16
_SCAN_CHUNK = 1 << 22
#: Most characters of an element of text, whose width is fixed: 65,536 bytes.
_TEXT_MOST = 1 << 14
#: The most that the text in front of a .npy file may be; NumPy reads 10,000 characters.
_HEADER_MOST = 1 << 16
#: Groups that lead to one another could be walked in more ways than there are atoms.
_VISITS_MOST = 100
_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Member:
    """One array of a source: what it is, and how to read a box of it."""

    name: str  # path below the source's root; "" for a source that is one array
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[Box], np.ndarray[Any, Any]]
    chunks: tuple[int, ...] | None = None
    order: str = "C"
    stream: bool = False  # boxes must come in order, each one run of the C-ordered (or F-ordered) elements
    attrs: Mapping[str, Any] = field(default_factory=dict)
    fill: Any = None
    #: Gives the boxes that something is stored for, if the others are known to be ``fill``; None for all of them.
    stored: Callable[[], Iterator[Box] | None] = lambda: None
    grain: tuple[int, ...] | None = None  # what is decoded at once, where that is less than a chunk


@dataclass
class Source:
    """All that a file holds: arrays, and groups with their attributes ("" is the root)."""

    members: list[Member] = field(default_factory=list)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)  # name, why
    skipped_attrs: list[str] = field(default_factory=list)

    def attrs(self, owner: str, attrs: Mapping[Any, Any]) -> dict[str, Any]:
        """Encode attributes, noting those that cannot be kept."""
        skipped: list[str] = []
        plain = encode(attrs, skipped=skipped)
        self.skipped_attrs += [f"{owner or '/'}:{key}" for key in skipped]
        return plain

    def add(self, name: str, attrs: Mapping[Any, Any], **facts: Any) -> None:
        """Add an array with its attributes, as far as they can be kept, and the other facts of a :class:`Member`."""
        self.members.append(Member(name=name, attrs=self.attrs(name, attrs), **facts))


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Options of an import for its source, beside the path."""

    member: str | None = None
    shape: tuple[int, ...] | None = None
    dtype: Any = None
    offset: int = 0
    order: str = "C"
    trusted: bool = False
    limit: int = CHUNK_MIN_BYTES  # bytes that one chunk may take


@contextmanager
def foreign_errors(path: Path) -> Generator[None]:
    """Turn errors of a source, or of a library that reads it, into errors of this package."""
    try:
        yield
    except (NandarrayError, ImportError):
        raise
    except OSError as error:
        if error.errno is None or isinstance(error, gzip.BadGzipFile | zipfile.BadZipFile):
            raise InvalidError(f"{path} cannot be read: {_short(error)}") from error
        raise MediaError(error.errno, error.strerror or _short(error), str(path)) from error
    except Exception as error:
        raise InvalidError(f"{path} cannot be read: {_short(error)}") from error


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


@contextmanager
def open_source(path: Path, format: str, options: SourceOptions) -> Generator[Source]:  # noqa: A002
    """Open ``path`` as ``format`` for reading."""
    with foreign_errors(path):
        there, directory, regular = path.exists(), path.is_dir(), path.is_file()
    if not there:
        raise StoreMissingError(2, "no such file", str(path))
    if directory != (format == "zarr") or not (directory or regular):
        raise InvalidError(f"{path} is not a {'directory' if format == 'zarr' else 'regular file'}: no {format} source")
    if format != "raw" and any(value not in (None, 0, "C") for value in _raw_only(options)):
        raise InvalidError("shape, dtype, offset and order must be given for raw binary only: other files say them")
    if format in {"npy", "raw"} and options.member is not None:
        raise InvalidError(f"a {format} file holds one array; it has no member {options.member!r}")
    with ExitStack() as stack:
        with foreign_errors(path):
            source = stack.enter_context(_OPENERS[format](path, options))
        for number, member in enumerate(source.members):
            source.members[number] = replace(member, read=_guarded(path, member.read))
        yield source


def _guarded(path: Path, read: Callable[[Box], np.ndarray[Any, Any]]) -> Callable[[Box], np.ndarray[Any, Any]]:
    def guarded(box: Box) -> np.ndarray[Any, Any]:
        with foreign_errors(path):
            data = read(box)
            if data.shape != box_shape(box):
                raise InvalidError(f"{path} gives {data.shape} where {box_shape(box)} is asked for")
            return data

    return guarded


def _raw_only(options: SourceOptions) -> tuple[Any, ...]:
    return options.shape, options.dtype, options.offset, options.order


# --- NumPy and raw binary -------------------------------------------------------------------------------------------


@contextmanager
def _open_npy(path: Path, options: SourceOptions) -> Generator[Source]:
    with path.open("rb") as file:
        shape, fortran, dtype = _npy_header(file, str(path))
        offset = file.tell()
    yield _mapped(path, shape, dtype, offset, "F" if fortran else "C")


@contextmanager
def _open_raw(path: Path, options: SourceOptions) -> Generator[Source]:
    if options.dtype is None:
        raise InvalidError("raw binary needs a dtype (and a shape, unless it is one dimension to the end of the file)")
    try:
        dtype = np.dtype(options.dtype)
    except TypeError as error:
        raise InvalidError(f"{options.dtype!r} is no dtype: {error}") from error
    if dtype.hasobject or not dtype.itemsize:
        raise InvalidError(f"raw binary cannot have dtype {dtype}")
    rest = path.stat().st_size - options.offset
    if rest < 0:
        raise InvalidError(f"offset {options.offset} is past the end of {path} ({path.stat().st_size} bytes)")
    shape = options.shape
    if shape is None:
        if rest % dtype.itemsize:
            raise InvalidError(f"{rest} bytes are not a whole number of {dtype} ({dtype.itemsize} bytes each)")
        shape = (rest // dtype.itemsize,)
    if options.order not in {"C", "F"}:
        raise InvalidError(f"order is 'C' or 'F', not {options.order!r}")
    yield _mapped(path, shape, dtype, options.offset, options.order)


def _mapped(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int, order: str) -> Source:
    need, have = prod(shape) * dtype.itemsize, path.stat().st_size - offset
    if need > have:
        raise InvalidError(f"{path} ends early: shape {shape} of {dtype} takes {need} bytes, the file has {have}")

    def read(box: Box) -> np.ndarray[Any, Any]:
        # A fresh mapping a box: pages of a mapping that lives on would count as this process's memory.
        mapped: Any = np.memmap(path, dtype, "r", offset, shape, order)  # type: ignore[call-overload]
        return np.asarray(mapped[(*box, ...)])

    return Source([Member(name="", shape=shape, dtype=dtype, read=read, order=order)])


def _npy_header(file: Any, label: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        magic = file.read(8)
        version = np.lib.format.read_magic(io.BytesIO(magic))
        prefix = file.read(2 if version == (1, 0) else 4)
        length = int.from_bytes(prefix, "little")
        if length > _HEADER_MOST:
            raise InvalidError(f"{label} has a header of {length} bytes, more than {_HEADER_MOST}")
        rest = io.BytesIO(prefix + file.read(length))
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(rest, max_header_size=_HEADER_MOST)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(rest, max_header_size=_HEADER_MOST)
        else:  # version 3 is version 2 in UTF-8; NumPy has no public reader for it
            header = ast.literal_eval(rest.getvalue()[4:].decode())
            dtype = np.lib.format.descr_to_dtype(header["descr"])
            shape, fortran = header["shape"], header["fortran_order"]
        if not all(isinstance(n, int) and n >= 0 for n in shape):
            raise InvalidError(f"{label} has shape {shape}")
    except NandarrayError:
        raise
    except (Exception, RecursionError, MemoryError) as error:
        raise InvalidError(f"{label} is not a .npy file: {_short(error)}") from error
    if dtype.hasobject:
        raise InvalidError(f"{label} has dtype {dtype}: Python objects have no fixed size")
    return tuple(shape), fortran, dtype


@contextmanager
def _open_npz(path: Path, options: SourceOptions) -> Generator[Source]:
    with ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(path))
        except zipfile.BadZipFile as error:
            raise InvalidError(f"{path} is not a .npz file: {error}") from error
        source = Source()
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        wanted = _chosen([name.removesuffix(".npy") for name in names], options.member, path)
        for name in wanted:
            method = archive.getinfo(f"{name}.npy").compress_type
            if method not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                # The module unpacks the others without a bound.
                source.refused.append((name, f"{path}:{name} has compression method {method}; NumPy writes 0 and 8"))
                continue
            with archive.open(f"{name}.npy") as file:
                try:
                    shape, fortran, dtype = _npy_header(file, f"{path}:{name}")
                except InvalidError as error:
                    source.refused.append((name, str(error)))
                    continue
            label = "" if options.member is not None else name
            reader = _ZipReader(archive, f"{name}.npy", dtype, fortran=fortran)
            stack.callback(reader.close)
            order = "F" if fortran else "C"
            source.members.append(Member(name=label, shape=shape, dtype=dtype, read=reader, order=order, stream=True))
        yield source


class _ZipReader:
    """Reads an archive member forward only, run by run, as compressed members cannot be entered elsewhere."""

    def __init__(self, archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], *, fortran: bool) -> None:
        self._archive, self._name, self._dtype, self._fortran = archive, name, dtype, fortran
        self._file: Any = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __call__(self, box: Box) -> np.ndarray[Any, Any]:
        if self._file is None:
            self._file = self._archive.open(self._name)
            _npy_header(self._file, self._name)
        shape = box_shape(box)
        data = bytearray(prod(shape) * self._dtype.itemsize)
        view, got = memoryview(data), 0
        while got < len(data):
            count = self._file.readinto(view[got : got + _PIECE])
            if not count:
                raise InvalidError(f"{self._name} ends early: {len(data) - got} bytes are missing")
            got += count
        flat = np.frombuffer(data, self._dtype)
        return flat.reshape(shape[::-1]).T if self._fortran else flat.reshape(shape)


def _chosen(names: list[str], member: str | None, path: Path) -> list[str]:
    if member is None:
        return names
    if member not in names:
        raise NotFoundError(f"{path} has no member {member!r}; it has {', '.join(sorted(names)) or 'none'}")
    return [member]


# --- Zarr -----------------------------------------------------------------------------------------------------------


@contextmanager
def _open_zarr(path: Path, options: SourceOptions) -> Generator[Source]:
    zarr = require("zarr", "zarr")
    if not options.trusted:
        zarr_source.check_directory(path)
    try:
        root = _zarr_root(zarr, path, options.member or "")
    except FileNotFoundError as error:
        if options.member is not None:
            raise NotFoundError(f"{path} has no member {options.member!r}") from error
        raise InvalidError(f"{path} is not a Zarr array or group") from error
    source = Source()
    if isinstance(root, zarr.Array):
        _zarr_array(source, "", root, path, options)
    else:
        source.groups[""] = source.attrs("", root.attrs.asdict())
        for name, item in sorted(root.members(max_depth=None)):
            if isinstance(item, zarr.Array):
                _zarr_array(source, name, item, path, options)
            else:
                source.groups[name] = source.attrs(name, item.attrs.asdict())
    yield source


def _zarr_root(zarr: Any, path: Path, member: str) -> Any:
    """Open the array or the group; consolidated metadata is not used, as its names need not be those of the files."""
    try:
        return zarr.open_group(str(path), mode="r", path=member, use_consolidated=False)
    except (FileNotFoundError, TypeError, zarr.errors.ContainsArrayError):
        return zarr.open_array(str(path), mode="r", path=member)


def _zarr_array(source: Source, name: str, array: Any, path: Path, options: SourceOptions) -> None:
    attrs = fill_from_zarr(array.attrs.asdict(), np.dtype(array.dtype))
    dims = getattr(array.metadata, "dimension_names", None)
    if dims and all(dims):
        attrs[DIMENSIONS] = list(dims)
    fill = array.fill_value
    dtype, read = np.dtype(array.dtype), lambda box: np.asarray(array[(*box, ...)])
    text = dtype.kind in "TO"
    if not options.trusted and (unbounded := zarr_source.codecs_unbounded(array)):
        why = f"{name or path} has codec {unbounded[0]!r}, which is used only if the source is trusted"
        source.refused.append((name, f"{why} (trusted=True, --trusted)"))
        return
    if 0 in array.chunks and 0 not in array.shape:
        source.refused.append((name, f"{name or path} has shape {array.shape} in chunks of {array.chunks}"))
        return
    need = prod(array.chunks) * (1 if text else dtype.itemsize)
    if need > options.limit:
        why = f"{name or path} has chunks of {need} bytes, more than {options.limit}; a larger budget reads them"
        source.refused.append((name, why))
        return
    folder = path.joinpath(*filter(None, f"{options.member or ''}/{name}".split("/")))
    stored = lambda: zarr_source.stored_boxes(array, folder, name, options.limit)  # noqa: E731
    chunks, grain = tuple(array.shards or array.chunks), tuple(array.chunks)
    if text:
        fill = fill if isinstance(fill, str | bytes) else ""
        found = _fixed_strings(source, name, array.shape, chunks, read, stored=stored, fill=fill, grain=grain)
        if found is None:
            return
        dtype, read, fill = found
    how: dict[str, Any] = {"read": read, "chunks": chunks, "stored": stored, "grain": grain}
    source.add(name, attrs, shape=tuple(array.shape), dtype=dtype, fill=fill, **how)


# --- HDF5 -----------------------------------------------------------------------------------------------------------


@contextmanager
def _open_hdf5(path: Path, options: SourceOptions) -> Generator[Source]:
    h5py = require("h5py", "hdf5")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InvalidError(f"{path} is not an HDF5 file, or is open elsewhere: {error}") from error
    with file:
        if not options.trusted and (why := hdf5_source.leads_out(h5py, file, options.member or "/")):
            raise InvalidError(f"{path}: {why}")
        try:
            root = file[options.member or "/"]
        except KeyError as error:
            raise NotFoundError(f"{path} has no member {options.member!r}") from error
        source = Source()
        _hdf5_walk(h5py, source, "", root, {h5py.h5o.get_info(root.id).addr}, visits=Counter(), options=options)
        yield source


def _hdf5_walk(
    h5py: Any,
    source: Source,
    name: str,
    item: Any,
    seen: set[int],
    *,
    visits: Counter[int],
    options: SourceOptions,
) -> None:
    if isinstance(item, h5py.Dataset):
        _hdf5_array(h5py, source, name, item, options)
        return
    if not isinstance(item, h5py.Group):
        source.refused.append((name, f"{name} is a named type, not an array"))
        return
    source.groups[name] = source.attrs(name, _hdf5_attrs(h5py, item))
    for key in item:
        label = f"{name}/{key}" if name else key
        if not options.trusted and (why := hdf5_source.leads_out(h5py, item, key)):
            source.refused.append((label, why))
            continue
        try:
            child = item[key]
        except (KeyError, OSError) as error:
            source.refused.append((label, f"{label} is a link that leads nowhere: {error}"))
            continue
        address = h5py.h5o.get_info(child.id).addr
        if address not in seen or isinstance(child, h5py.Dataset):  # a group that holds itself would never end
            visits[address] += isinstance(child, h5py.Group)
            if visits[address] > _VISITS_MOST:
                raise InvalidError(f"{label} is a group that more than {_VISITS_MOST} paths lead to")
            _hdf5_walk(h5py, source, label, child, seen | {address}, visits=visits, options=options)


def _hdf5_attrs(h5py: Any, item: Any) -> dict[str, Any]:
    attrs = {}
    for key in item.attrs:
        if key in _HDF5_INTERNAL:
            continue
        try:
            value = item.attrs[key]
        except (TypeError, OSError):  # a type that h5py cannot read
            value = h5py.Empty("f")
        attrs[key] = value
    return attrs


def _hdf5_array(h5py: Any, source: Source, name: str, item: Any, options: SourceOptions) -> None:
    if item.attrs.get("NAME", b"")[:53] == _NOT_A_VARIABLE[:53].encode():
        return
    if item.shape is None:
        source.refused.append((name, f"{name} is an empty (null) dataset"))
        return
    why = None if options.trusted else hdf5_source.reads_elsewhere(item)
    if why := why or hdf5_source.too_large(item, options.limit):
        source.refused.append((name, why))
        return
    attrs = _hdf5_attrs(h5py, item)
    dims = _hdf5_dimensions(item)
    if dims is not None and DIMENSIONS not in attrs:
        attrs[DIMENSIONS] = list(dims)
    dtype = np.dtype(item.dtype)
    read: Callable[[Box], np.ndarray[Any, Any]] = lambda box: np.asarray(item[(*box, ...)])  # noqa: E731
    fill: Any = item.fillvalue
    stored = lambda: hdf5_source.stored_boxes(item, options.limit, trusted=options.trusted)  # noqa: E731
    text = h5py.check_string_dtype(dtype)
    if text is not None and (text.length is None or text.encoding == "utf-8"):
        fill = fill if isinstance(fill, str | bytes) else ""
        plain = lambda box: item.asstr()[(*box, ...)]  # noqa: E731
        found = _fixed_strings(source, name, item.shape, item.chunks, plain, stored=stored, fill=fill)
        if found is None:
            return
        dtype, read, fill = found
    elif dtype.hasobject:
        why = "references" if h5py.check_ref_dtype(dtype) else f"variable-length elements (dtype {dtype})"
        source.refused.append((name, f"{name} holds {why}; only fixed-size dtypes can be stored"))
        return
    elif dtype.kind != "V":
        dtype = np.dtype(dtype.str)  # without h5py's metadata (enum names, string encodings)
    source.add(name, attrs, shape=item.shape, dtype=dtype, fill=fill, read=read, chunks=item.chunks, stored=stored)


def _hdf5_dimensions(item: Any) -> tuple[str, ...] | None:
    names = []
    for dim in item.dims:
        label = dim.label or (dim[0].name.rpartition("/")[2] if len(dim) else "")
        if not label and item.is_scale and item.ndim == 1:
            label = item.name.rpartition("/")[2]
        names.append(label)
    return tuple(names) if names and all(names) and len(set(names)) == len(names) else None


# --- NetCDF ---------------------------------------------------------------------------------------------------------


@contextmanager
def _open_netcdf(path: Path, options: SourceOptions) -> Generator[Source]:
    xarray = require("xarray", "netcdf")
    with path.open("rb") as start:
        classic = start.read(3) == b"CDF"
    with ExitStack() as stack:
        inside: Any = {}
        if not classic:  # the same file as HDF5 says where links lead, and what is stored
            h5py = require("h5py", "netcdf")
            try:
                inside = stack.enter_context(h5py.File(path, "r"))
            except OSError as error:
                raise InvalidError(f"{path} cannot be read as NetCDF: {error}") from error
            if not options.trusted:
                hdf5_source.refuse_links(h5py, inside)
        source = Source()
        for where, dataset in _netcdf_groups(xarray, path, classic=classic):
            stack.callback(dataset.close)
            group = where.strip("/")
            if group or options.member is None:
                source.groups[group] = source.attrs(group, dataset.attrs)
            for key in dataset.variables:
                name = f"{group}/{key}" if group else str(key)
                hidden = f"{group}/_nc4_non_coord_{key}"  # a variable that is called as a dimension that it has not
                item = inside.get(hidden) or inside.get(name) if inside else None
                _netcdf_array(source, name, dataset.variables[key], item, options)
        if options.member is not None:
            _keep_below(source, options.member.strip("/"), path)
        yield source


def _netcdf_groups(xarray: Any, path: Path, *, classic: bool) -> list[tuple[str, Any]]:
    # Nothing is decoded: packed data stays packed and its attributes say how to unpack it, so nothing is lost.
    # (Each decoder is named: open_groups of xarray 2026.9 does not listen to decode_cf.)
    decoders = ("mask_and_scale", "decode_times", "decode_timedelta", "concat_characters", "decode_coords")
    plain: dict[str, Any] = {**dict.fromkeys(decoders, False), "cache": False, "create_default_indexes": False}
    try:
        if classic:  # the classic format has no groups
            return [("/", xarray.open_dataset(path, **plain))]
        try:
            return list(xarray.open_groups(path, engine="h5netcdf", **plain).items())
        except (ImportError, ValueError):
            require("netCDF4", "netcdf")
            return list(xarray.open_groups(path, engine="netcdf4", **plain).items())
    except (OSError, ValueError) as error:
        raise InvalidError(f"{path} cannot be read as NetCDF: {error}") from error


def _keep_below(source: Source, member: str, path: Path) -> None:
    """Keep one array or one group of the source, named from there."""
    inside = f"{member}/"
    exact = [item for item in source.members if item.name == member]
    below = [item for item in source.members if item.name.startswith(inside)]
    if not exact and member not in source.groups:
        names = ", ".join(sorted(item.name for item in source.members))
        raise NotFoundError(f"{path} has no member {member!r}; it has {names or 'none'}")
    source.members = [replace(item, name=item.name[len(inside) :]) for item in exact + below]
    source.groups = {
        key[len(inside) :]: attrs for key, attrs in source.groups.items() if key == member or key.startswith(inside)
    }
    source.refused = [(name, why) for name, why in source.refused if f"{name}/".startswith(inside)]


def _netcdf_array(source: Source, name: str, variable: Any, item: Any, options: SourceOptions) -> None:
    attrs = {**variable.attrs, DIMENSIONS: list(variable.dims)}
    dtype = variable.dtype
    read: Callable[[Box], np.ndarray[Any, Any]] = lambda box: np.asarray(variable[(*box, ...)].values)  # noqa: E731
    chunks = variable.encoding.get("chunksizes") or variable.encoding.get("preferred_chunks")
    if isinstance(chunks, dict):
        chunks = [chunks.get(dim, n) for dim, n in zip(variable.dims, variable.shape, strict=True)]
    fill = attrs.get("_FillValue")
    stored: Callable[[], Iterator[Box] | None] = lambda: None  # noqa: E731
    if item is not None and item.shape == variable.shape:
        if why := hdf5_source.too_large(item, options.limit):
            source.refused.append((name, why))
            return
        stored, fill = lambda: hdf5_source.stored_boxes(item, options.limit, trusted=options.trusted), item.fillvalue
    if dtype.kind in "OT":
        text = fill if isinstance(fill, str | bytes) else ""
        found = _fixed_strings(source, name, variable.shape, chunks, read, stored=stored, fill=text)
        if found is None:
            return
        dtype, read, fill = found
    fill = None if isinstance(fill, np.ndarray) else fill
    dtype = np.dtype(dtype.str) if dtype.kind != "V" else dtype
    how: dict[str, Any] = {"read": read, "chunks": tuple(chunks) if chunks else None, "stored": stored}
    source.add(name, attrs, shape=tuple(variable.shape), dtype=dtype, fill=fill, **how)


# --- shared ---------------------------------------------------------------------------------------------------------


def _fixed_strings(
    source: Source,
    name: str,
    shape: tuple[int, ...],
    chunks: Any,
    read: Callable[[Box], Any],
    *,
    stored: Callable[[], Iterator[Box] | None] = lambda: None,
    fill: str | bytes = "",
    grain: tuple[int, ...] | None = None,
) -> tuple[Any, Any, str] | None:
    """Give variable-length text a fixed width: one pass over it finds the longest. None where it is no text."""
    first = fill.decode(errors="replace") if isinstance(fill, bytes) else fill
    longest = max(1, len(first))
    where = stored()
    limit = max(_SCAN, min(prod(chunks or (1,)), _SCAN_CHUNK))
    if where is None:
        slabs = boxes(shape, slab_shape(shape, limit, chunks=chunks))
    else:
        slabs = stored_slabs(where, shape, limit, chunks=chunks, grain=grain)
    for box in slabs:
        for text in np.asarray(read(box)).ravel():
            if not isinstance(text, str | bytes):
                why = f"{name} holds {type(text).__name__} objects; only fixed-size dtypes can be stored"
                source.refused.append((name, why))
                return None
            longest = max(longest, len(text))
        if longest > _TEXT_MOST:
            why = f"{name} holds text of {longest} characters; an element has at most {_TEXT_MOST}"
            source.refused.append((name, why))
            return None
    dtype = np.dtype(f"U{longest}")

    def fixed(box: Box) -> np.ndarray[Any, Any]:
        text = np.asarray(read(box), dtype=object)
        flat = [item.decode() if isinstance(item, bytes) else item for item in text.ravel()]
        return np.array(flat, dtype=dtype).reshape(text.shape)

    return dtype, fixed, first


_OPENERS = {
    "npy": _open_npy,
    "npz": _open_npz,
    "raw": _open_raw,
    "zarr": _open_zarr,
    "hdf5": _open_hdf5,
    "netcdf": _open_netcdf,
}
