"""What an import reads from: each format as a list of members that can be read box by box.

``open_source`` gives a :class:`Source`: the groups with their attributes, and a :class:`Member` for every array, with
everything that has to be known before copying (shape, dtype, chunks, attributes, fill value) and a function that reads
one box. Scanning finds what cannot be stored before a byte is copied. One function a format; each is a context
manager that holds the file open.

It does not write anything, and does not know what a store is.
"""

from __future__ import annotations

import ast
import importlib
import struct
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from nandarray.convert_attrs import DIMENSIONS, encode, fill_from_zarr
from nandarray.convert_slabs import Box, box_shape, boxes, slab_shape
from nandarray.errors import InvalidError, NotFoundError

__all__ = ["Member", "Source", "SourceOptions", "open_source", "require"]

#: HDF5 and NetCDF keep their own book-keeping in attributes; it means nothing outside the file.
_HDF5_INTERNAL = {
    "CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS", "_Netcdf4Dimid", "_Netcdf4Coordinates",
    "_nc3_strict", "_NCProperties",
}  # fmt: skip
_NOT_A_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
_SCAN = 1 << 22


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this needs {module.split('.')[0]}, which is not installed: pip install 'nandarray[{extra}]'"
        ) from error


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


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What an import is told about its source beyond its path."""

    member: str | None = None
    shape: tuple[int, ...] | None = None
    dtype: Any = None
    offset: int = 0
    order: str = "C"


@contextmanager
def open_source(path: Path, format: str, options: SourceOptions) -> Generator[Source]:  # noqa: A002
    """Open ``path`` as ``format`` for reading."""
    if not path.exists():
        raise FileNotFoundError(2, "no such file", str(path))
    if format != "raw" and any(value not in (None, 0, "C") for value in _raw_only(options)):
        raise InvalidError("shape, dtype, offset and order are told by the file; they go with raw binary only")
    if format in {"npy", "raw"} and options.member is not None:
        raise InvalidError(f"a {format} file holds one array; it has no member {options.member!r}")
    with _OPENERS[format](path, options) as source:
        yield source


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
        mapped: Any = np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order=order)  # type: ignore[call-overload]
        return np.asarray(mapped[(*box, ...)])

    return Source([Member(name="", shape=shape, dtype=dtype, read=read, order=order)])


def _npy_header(file: Any, label: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
        else:  # version 3 is version 2 in UTF-8; NumPy has no public reader for it
            (length,) = struct.unpack("<I", file.read(4))
            header = ast.literal_eval(file.read(length).decode())
            dtype = np.lib.format.descr_to_dtype(header["descr"])
            shape, fortran = header["shape"], header["fortran_order"]
    except (ValueError, KeyError, SyntaxError, struct.error) as error:
        raise InvalidError(f"{label} is not a .npy file: {error}") from error
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
            count = self._file.readinto(view[got:])
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
    try:
        root = zarr.open(str(path), mode="r", path=options.member or "")
    except FileNotFoundError as error:
        if options.member is not None:
            raise NotFoundError(f"{path} has no member {options.member!r}") from error
        raise InvalidError(f"{path} is not a Zarr array or group") from error
    source = Source()
    if isinstance(root, zarr.Array):
        _zarr_array(source, "", root)
    else:
        source.groups[""] = source.attrs("", root.attrs.asdict())
        for name, item in sorted(root.members(max_depth=None)):
            if isinstance(item, zarr.Array):
                _zarr_array(source, name, item)
            else:
                source.groups[name] = source.attrs(name, item.attrs.asdict())
    yield source


def _zarr_array(source: Source, name: str, array: Any) -> None:
    attrs = fill_from_zarr(array.attrs.asdict(), np.dtype(array.dtype))
    dims = getattr(array.metadata, "dimension_names", None)
    if dims and all(dims):
        attrs[DIMENSIONS] = list(dims)
    fill = array.fill_value
    dtype, read = np.dtype(array.dtype), lambda box: np.asarray(array[(*box, ...)])
    if dtype.kind in "TO":
        dtype, read = _fixed_strings(source, name, array.shape, array.chunks, read)
        fill = None
    if dtype is None:
        return
    source.members.append(
        Member(
            name=name,
            shape=tuple(array.shape),
            dtype=dtype,
            read=read,
            chunks=tuple(array.shards or array.chunks),
            attrs=source.attrs(name, attrs),
            fill=fill,
        )
    )


# --- HDF5 -----------------------------------------------------------------------------------------------------------


@contextmanager
def _open_hdf5(path: Path, options: SourceOptions) -> Generator[Source]:
    h5py = require("h5py", "hdf5")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InvalidError(f"{path} is not an HDF5 file, or is open elsewhere: {error}") from error
    with file:
        try:
            root = file[options.member or "/"]
        except KeyError as error:
            raise NotFoundError(f"{path} has no member {options.member!r}") from error
        source = Source()
        _hdf5_walk(h5py, source, "", root, {h5py.h5o.get_info(root.id).addr})
        yield source


def _hdf5_walk(h5py: Any, source: Source, name: str, item: Any, seen: set[int]) -> None:
    if isinstance(item, h5py.Dataset):
        _hdf5_array(h5py, source, name, item)
        return
    if not isinstance(item, h5py.Group):
        source.refused.append((name, f"{name} is a named type, not an array"))
        return
    source.groups[name] = source.attrs(name, _hdf5_attrs(h5py, item))
    for key in item:
        label = f"{name}/{key}" if name else key
        try:
            child = item[key]
        except (KeyError, OSError) as error:
            source.refused.append((label, f"{label} is a link that leads nowhere: {error}"))
            continue
        address = h5py.h5o.get_info(child.id).addr
        if address not in seen or isinstance(child, h5py.Dataset):  # a group that holds itself would never end
            _hdf5_walk(h5py, source, label, child, seen | {address})


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


def _hdf5_array(h5py: Any, source: Source, name: str, item: Any) -> None:
    if item.attrs.get("NAME", b"")[:53] == _NOT_A_VARIABLE[:53].encode():
        return
    if item.shape is None:
        source.refused.append((name, f"{name} is an empty (null) dataset"))
        return
    attrs = _hdf5_attrs(h5py, item)
    dims = _hdf5_dimensions(item)
    if dims is not None and DIMENSIONS not in attrs:
        attrs[DIMENSIONS] = list(dims)
    dtype = np.dtype(item.dtype)
    read: Callable[[Box], np.ndarray[Any, Any]] = lambda box: np.asarray(item[(*box, ...)])  # noqa: E731
    fill: Any = item.fillvalue
    text = h5py.check_string_dtype(dtype)
    if text is not None and (text.length is None or text.encoding == "utf-8"):
        fixed = _fixed_strings(source, name, item.shape, item.chunks, lambda box: item.asstr()[(*box, ...)])
        dtype, read, fill = fixed[0], fixed[1], None
        if dtype is None:
            return
    elif dtype.hasobject:
        why = "references" if h5py.check_ref_dtype(dtype) else f"variable-length elements (dtype {dtype})"
        source.refused.append((name, f"{name} holds {why}; only fixed-size dtypes can be stored"))
        return
    elif dtype.kind != "V":
        dtype = np.dtype(dtype.str)  # without h5py's metadata (enum names, string encodings)
    source.members.append(
        Member(
            name=name,
            shape=item.shape,
            dtype=dtype,
            read=read,
            chunks=item.chunks,
            attrs=source.attrs(name, attrs),
            fill=fill,
        )
    )


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
    with ExitStack() as stack:
        source = Source()
        for where, dataset in _netcdf_groups(xarray, path):
            stack.callback(dataset.close)
            group = where.strip("/")
            if group or options.member is None:
                source.groups[group] = source.attrs(group, dataset.attrs)
            for key in dataset.variables:
                _netcdf_array(source, f"{group}/{key}" if group else str(key), dataset.variables[key])
        if options.member is not None:
            _keep_below(source, options.member.strip("/"), path)
        yield source


def _netcdf_groups(xarray: Any, path: Path) -> list[tuple[str, Any]]:
    # Nothing is decoded: packed data stays packed and its attributes say how to unpack it, so nothing is lost.
    # (Each decoder is named: open_groups of xarray 2026.9 does not listen to decode_cf.)
    decoders = ("mask_and_scale", "decode_times", "decode_timedelta", "concat_characters", "decode_coords")
    plain: dict[str, Any] = {**dict.fromkeys(decoders, False), "cache": False, "create_default_indexes": False}
    with path.open("rb") as file:
        classic = file.read(3) == b"CDF"
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
    source.members = [_renamed(item, item.name[len(inside) :]) for item in exact + below]
    source.groups = {
        key[len(inside) :]: attrs for key, attrs in source.groups.items() if key == member or key.startswith(inside)
    }
    source.refused = [(name, why) for name, why in source.refused if f"{name}/".startswith(inside)]


def _renamed(member: Member, name: str) -> Member:
    return Member(**{**vars(member), "name": name})


def _netcdf_array(source: Source, name: str, variable: Any) -> None:
    attrs = {**variable.attrs, DIMENSIONS: list(variable.dims)}
    dtype = variable.dtype
    read: Callable[[Box], np.ndarray[Any, Any]] = lambda box: np.asarray(variable[(*box, ...)].values)  # noqa: E731
    chunks = variable.encoding.get("chunksizes") or variable.encoding.get("preferred_chunks")
    if isinstance(chunks, dict):
        chunks = [chunks.get(dim, n) for dim, n in zip(variable.dims, variable.shape, strict=True)]
    fill = attrs.get("_FillValue")
    if dtype.kind in "OT":
        dtype, read = _fixed_strings(source, name, variable.shape, chunks, read)
        fill = None
    if dtype is None:
        return
    source.members.append(
        Member(
            name=name,
            shape=tuple(variable.shape),
            dtype=np.dtype(dtype.str) if dtype.kind != "V" else dtype,
            read=read,
            chunks=tuple(chunks) if chunks else None,
            attrs=source.attrs(name, attrs),
            fill=None if isinstance(fill, np.ndarray) else fill,
        )
    )


# --- shared ---------------------------------------------------------------------------------------------------------


def _fixed_strings(
    source: Source,
    name: str,
    shape: tuple[int, ...],
    chunks: Any,
    read: Callable[[Box], Any],
) -> tuple[Any, Any]:
    """Give variable-length text a fixed width: one pass over it finds the longest. (None, None) where it is no text."""
    longest = 1
    for box in boxes(shape, slab_shape(shape, _SCAN, chunks=chunks)):
        for text in np.asarray(read(box)).ravel():
            if not isinstance(text, str | bytes):
                why = f"{name} holds {type(text).__name__} objects; only fixed-size dtypes can be stored"
                source.refused.append((name, why))
                return None, None
            longest = max(longest, len(text))
    dtype = np.dtype(f"U{longest}")

    def fixed(box: Box) -> np.ndarray[Any, Any]:
        text = np.asarray(read(box), dtype=object)
        flat = [item.decode() if isinstance(item, bytes) else item for item in text.ravel()]
        return np.array(flat, dtype=dtype).reshape(text.shape)

    return dtype, fixed


_OPENERS = {
    "npy": _open_npy,
    "npz": _open_npz,
    "raw": _open_raw,
    "zarr": _open_zarr,
    "hdf5": _open_hdf5,
    "netcdf": _open_netcdf,
}
