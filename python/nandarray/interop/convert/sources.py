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
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.array.attributes import DIMENSIONS
from nandarray.errors import InvalidError, MediaError, NandarrayError, NotFoundError, StoreMissingError
from nandarray.index.shapes import Box, box_shape
from nandarray.interop.convert import hdf5_source, zarr_source
from nandarray.interop.convert.attributes import fill_from_zarr
from nandarray.interop.convert.hdf5_members import (
    Walk,
    compression_of,
    enumeration_attributes,
    is_idle_dimension,
)
from nandarray.interop.convert.members import Member, Source, SourceOptions, fixed_strings, rows_told
from nandarray.optional import require

__all__ = ["Member", "Source", "SourceOptions", "foreign_errors", "open_source"]

#: The most that the text in front of a .npy file may be; NumPy reads 10,000 characters.
_HEADER_MOST = 1 << 16
_PIECE = 1 << 20


@contextmanager
def foreign_errors(path: Path | str) -> Generator[None]:
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
def open_source(place: Path | str, format: str, options: SourceOptions) -> Generator[Source]:  # noqa: A002
    """Open a file, or what ``options.via`` is, as ``format`` for reading; ``place`` is its path, or URL then."""
    path: Any = Path(place) if options.via is None else place
    if options.via is not None:
        there, directory, regular = True, format == "zarr", format != "zarr"
    else:
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


def _guarded(path: Path | str, read: Callable[[Box], np.ndarray[Any, Any]]) -> Callable[[Box], np.ndarray[Any, Any]]:
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
        raise InvalidError("raw binary must be given a dtype (and a shape, if it is not one dimension up to the end)")
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
        raise InvalidError(f"order must be 'C' or 'F', not {options.order!r}")
    yield _mapped(path, shape, dtype, options.offset, options.order)


def _mapped(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int, order: str) -> Source:
    need, have = prod(shape) * dtype.itemsize, path.stat().st_size - offset
    if need > have:
        raise InvalidError(f"{path} ends early: shape {shape} of {dtype} takes {need} bytes, the file has {have}")

    def read(box: Box) -> np.ndarray[Any, Any]:
        # A fresh mapping a box: pages of a mapping that lives on would count as this process's memory.
        mapped: Any = np.memmap(path, dtype, "r", offset, shape, order)  # type: ignore[call-overload]
        return np.asarray(mapped[(*box, ...)])

    source = Source(str(path))
    source.add("", {}, shape=shape, dtype=dtype, read=read, order=order)
    return source


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
        source = Source(str(path))
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
            deflated = "zstd" if method == zipfile.ZIP_DEFLATED else None
            how: dict[str, Any] = {"read": reader, "order": order, "stream": True, "compression": deflated}
            source.add(label, {}, shape=shape, dtype=dtype, **how)
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
    if not (options.trusted or options.via):
        zarr_source.check_directory(path)
    try:
        root = _zarr_root(zarr, str(path) if options.via is None else options.via, options.member or "")
    except FileNotFoundError as error:
        if options.member is not None:
            raise NotFoundError(f"{path} has no member {options.member!r}") from error
        raise InvalidError(f"{path} is not a Zarr array or group") from error
    source = Source(options.member or str(path))
    if isinstance(root, zarr.Array):
        _zarr_array(source, "", root, path, options)
    else:
        source.groups[""] = source.attrs("", root.attrs.asdict())
        for name, item in sorted(_zarr_members(zarr, source, root, path, options), key=lambda pair: pair[0]):
            if isinstance(item, zarr.Array):
                _zarr_array(source, name, item, path, options)
            else:
                source.groups[name] = source.attrs(name, item.attrs.asdict())
    yield source


def _zarr_members(zarr: Any, source: Source, root: Any, path: Path, options: SourceOptions) -> list[tuple[str, Any]]:
    """Return the arrays and groups below a group; those that Zarr does not open are refused."""
    try:
        return [*root.members(max_depth=None)]
    except (ValueError, TypeError, KeyError, NotImplementedError):  # of one of them, such as a codec that is not known
        pass
    top = (options.member or "").strip("/")

    def names(group: str) -> list[str]:
        inside = "/".join(filter(None, (top, group)))
        if options.via is not None:
            found: list[str] = options.via.names(inside)
            return found
        return [one.name for one in path.joinpath(*inside.split("/")).iterdir() if one.is_dir()]

    found, todo = [], [("", root)]
    while todo:
        group, at = todo.pop()
        for base in names(group):
            name = f"{group}/{base}" if group else base
            try:
                item = at[base]
            except (KeyError, FileNotFoundError):
                continue
            except Exception as error:  # Zarr's own kinds, and those of its codecs
                source.refuse(name, f"cannot be opened by Zarr, or needs a package that adds to it: {_short(error)}")
                continue
            found.append((name, item))
            if isinstance(item, zarr.Group):
                todo.append((name, item))
    return found


def _zarr_root(zarr: Any, where: Any, member: str) -> Any:
    """Open the array or the group.

    Of a folder consolidated metadata is not used, as its names need not be those of the files.
    """
    far = not isinstance(where, str) and where.consolidated
    try:
        return zarr.open_group(where, mode="r", path=member, use_consolidated=None if far else False)
    except (FileNotFoundError, TypeError, zarr.errors.ContainsArrayError):
        return zarr.open_array(where, mode="r", path=member)


def _zarr_array(source: Source, name: str, array: Any, path: Path, options: SourceOptions) -> None:
    attrs = fill_from_zarr(array.attrs.asdict(), np.dtype(array.dtype))
    dims = getattr(array.metadata, "dimension_names", None)
    if dims and all(dims):
        attrs[DIMENSIONS] = list(dims)
    elif dims and any(dims):
        source.note(name, f"has dimensions named {list(dims)}, which are not kept: each needs a name")
    fill = array.fill_value
    dtype, read = np.dtype(array.dtype), lambda box: np.asarray(array[(*box, ...)])
    text = dtype.kind in "TO"
    if not options.trusted and (unbounded := zarr_source.codecs_unbounded(array)):
        why = f"has codec {unbounded[0]!r}, which is used only if the source is trusted"
        source.refuse(name, f"{why} (trusted=True, --trusted)")
        return
    if 0 in array.chunks and 0 not in array.shape:
        source.refuse(name, f"has shape {array.shape} in chunks of {array.chunks}")
        return
    need = prod(array.chunks) * (1 if text else dtype.itemsize)
    if need > options.limit:
        source.refuse(name, f"has chunks of {need} bytes, more than {options.limit}; a larger budget reads them")
        return
    stored: Callable[[], Iterator[Box] | None] = lambda: None  # noqa: E731
    if options.via is None:
        folder = path.joinpath(*filter(None, f"{options.member or ''}/{name}".split("/")))
        stored = lambda: zarr_source.stored_boxes(array, folder, name, options.limit)  # noqa: E731
    else:
        options.via.guard(array, name, options.limit)
    chunks, grain = tuple(array.shards or array.chunks), tuple(array.chunks)
    if text:
        first = fill if isinstance(fill, str) else ""
        found = rows_told(attrs) or fixed_strings(
            source, name, array.shape, chunks, read, stored=stored, fill=first, grain=grain
        )
        if found is None:
            return
        if isinstance(found, str):
            rows = {"shape": array.shape, "fill": fill, "compression": zarr_source.compression_of(array)}
            source.add_rows(name, attrs, found, read=read, chunks=chunks, stored=stored, **rows)
            return
        dtype, read, fill = found
    how: dict[str, Any] = {"read": read, "chunks": chunks, "stored": stored, "grain": grain}
    how["compression"] = zarr_source.compression_of(array)
    source.add(name, attrs, shape=tuple(array.shape), dtype=dtype, fill=fill, **how)


# --- HDF5 -----------------------------------------------------------------------------------------------------------


@contextmanager
def _open_hdf5(path: Path, options: SourceOptions) -> Generator[Source]:
    h5py = require("h5py", "hdf5")
    try:
        file = h5py.File(path if options.via is None else options.via, "r")
    except NandarrayError:  # of objects far away
        raise
    except OSError as error:
        raise InvalidError(f"{path} is not an HDF5 file, or is open elsewhere: {error}") from error
    with file:
        if not options.trusted and (why := hdf5_source.leads_out(h5py, file, options.member or "/")):
            raise InvalidError(f"{path}: {why}")
        try:
            root = file[options.member or "/"]
        except KeyError as error:
            raise NotFoundError(f"{path} has no member {options.member!r}") from error
        source = Source(options.member or str(path))
        if file.userblock_size:
            source.note("", f"has a user block of {file.userblock_size} bytes, which is not kept")
        Walk(h5py, source, options).take(root)
        yield source


# --- NetCDF ---------------------------------------------------------------------------------------------------------


@contextmanager
def _open_netcdf(path: Path, options: SourceOptions) -> Generator[Source]:
    xarray = require("xarray", "netcdf")
    read = path if options.via is None else options.via
    with path.open("rb") if options.via is None else nullcontext(options.via) as start:
        start.seek(0)
        classic = start.read(3) == b"CDF"
        start.seek(0)
    with ExitStack() as stack:
        inside: Any = {}
        if not classic:  # the same file as HDF5 says where links lead, and what is stored
            h5py = require("h5py", "netcdf")
            try:
                inside = stack.enter_context(h5py.File(read, "r"))
            except OSError as error:
                raise InvalidError(f"{path} cannot be read as NetCDF: {error}") from error
            if not options.trusted:
                hdf5_source.refuse_links(h5py, inside)
        source = Source(str(path))
        for where, dataset in _netcdf_groups(xarray, read, path, classic=classic):
            stack.callback(dataset.close)
            group = where.strip("/")
            if group or options.member is None:
                source.groups[group] = source.attrs(group, dataset.attrs)
            for key in dataset.variables:
                name = f"{group}/{key}" if group else str(key)
                hidden = f"{group}/_nc4_non_coord_{key}"  # a variable that is called as a dimension that it has not
                item = inside.get(hidden) or inside.get(name) if inside else None
                _netcdf_array(source, name, dataset.variables[key], item, options)
            for key, one in inside[where].items() if inside else ():
                if isinstance(one, h5py.Dataset) and is_idle_dimension(one):
                    name = f"{group}/{key}" if group else key
                    source.note(name, f"is a dimension of {one.size} elements which no array has, and is left out")
        if options.member is not None:
            _keep_below(source, options.member.strip("/"), path)
        yield source


def _netcdf_groups(xarray: Any, where: Any, path: Path, *, classic: bool) -> list[tuple[str, Any]]:
    # Nothing is decoded: packed data stays packed and its attributes say how to unpack it, so nothing is lost.
    # (Each decoder is named: open_groups of xarray 2026.9 does not listen to decode_cf.)
    decoders = ("mask_and_scale", "decode_times", "decode_timedelta", "concat_characters", "decode_coords")
    plain: dict[str, Any] = {**dict.fromkeys(decoders, False), "cache": False, "create_default_indexes": False}
    try:
        if classic:  # the classic format has no groups
            return [("/", xarray.open_dataset(where, **plain))]
        try:
            return list(xarray.open_groups(where, engine="h5netcdf", **plain).items())
        except (ImportError, ValueError):
            if where is not path:
                raise
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
    how: dict[str, Any] = {}
    dtype = variable.dtype
    read: Callable[[Box], np.ndarray[Any, Any]] = lambda box: np.asarray(variable[(*box, ...)].values)  # noqa: E731
    chunks = variable.encoding.get("chunksizes") or variable.encoding.get("preferred_chunks")
    if isinstance(chunks, dict):
        chunks = [chunks.get(dim, n) for dim, n in zip(variable.dims, variable.shape, strict=True)]
    fill = attrs.get("_FillValue")
    stored: Callable[[], Iterator[Box] | None] = lambda: None  # noqa: E731
    if item is not None and item.shape == variable.shape:
        how["compression"] = compression_of(item)
        attrs = {**enumeration_attributes(require("h5py", "netcdf"), source, name, item), **attrs}
        if why := hdf5_source.too_large(item, options.limit):
            source.refused.append((name, why))
            return
        if dtype.kind not in "OTV" and dtype == np.dtype(item.dtype.str):
            how["item"] = item
        stored, fill = lambda: hdf5_source.stored_boxes(item, options.limit, trusted=options.trusted), item.fillvalue
    if dtype.kind in "OT":
        text = fill.decode(errors="replace") if isinstance(fill, bytes) else fill if isinstance(fill, str) else ""
        found = fixed_strings(source, name, variable.shape, chunks, read, stored=stored, fill=text)
        if found is None:
            return
        if isinstance(found, str):
            how |= {"read": read, "chunks": tuple(chunks) if chunks else None, "stored": stored}
            source.add_rows(name, attrs, found, shape=tuple(variable.shape), fill=text or None, **how)
            return
        dtype, read, fill = found
    fill = None if isinstance(fill, np.ndarray) else fill
    dtype = np.dtype(dtype.str) if dtype.kind != "V" else dtype
    how |= {"read": read, "chunks": tuple(chunks) if chunks else None, "stored": stored}
    source.add(name, attrs, shape=tuple(variable.shape), dtype=dtype, fill=fill, **how)


_OPENERS = {
    "npy": _open_npy,
    "npz": _open_npz,
    "raw": _open_raw,
    "zarr": _open_zarr,
    "hdf5": _open_hdf5,
    "netcdf": _open_netcdf,
}
