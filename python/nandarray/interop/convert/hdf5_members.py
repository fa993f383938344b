"""The contents of an HDF5 file as members of a source: groups, arrays, their attributes, and what is not kept of them.

The file is walked along its links. An array that several links lead to is stored once for each, and a link to a group
that it lies in is left out: the notes of the source say so. So do they for what has no like in a store: the name of a
type, the tag of opaque elements, names of an enumeration that is no array's, labels of some dimensions, comments.

Enumerations are integers with CF's attributes ``flag_values`` and ``flag_meanings``, which an export gives back.
Elements that are arrays themselves become dimensions of the array, as in NumPy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nandarray.array.attributes import DIMENSIONS
from nandarray.array.ragged_values import RaggedKind
from nandarray.errors import InvalidError
from nandarray.index.shapes import Box
from nandarray.interop.convert import hdf5_source
from nandarray.interop.convert.attributes import FLAG_MEANINGS, FLAG_VALUES, EnumerationNames
from nandarray.interop.convert.members import Source, SourceOptions, fixed_strings, rows_told

__all__ = ["Walk", "compression_of", "enumeration_attributes", "is_idle_dimension"]

#: HDF5 and NetCDF keep their own book-keeping in attributes; it means nothing outside the file.
_INTERNAL = {
    "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict",
    "_NCProperties",
}  # fmt: skip
#: Attributes that are book-keeping of a dimension scale, and a user's own elsewhere.
_OF_SCALES = {"CLASS", "NAME"}
_NOT_A_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
#: Groups that lead to one another could be walked in more ways than there are atoms.
_VISITS_MOST = 100
#: HDF5's numbers of filters that pack, with the nearest method of a store.
_PACKERS = {1: "zstd", 4: "zstd", 32000: "lz4", 32001: "zstd", 32004: "lz4", 32008: "zstd", 32015: "zstd"}
#: HDF5's number of the message of an object that has a comment; h5py does not read it.
_COMMENT = 13
_SHUFFLE, _GZIP, _BITSHUFFLE, _ZSTD = 2, 1, 32008, 32015


class Walk:
    """One walk through a file, which fills a source."""

    def __init__(self, h5py: Any, source: Source, options: SourceOptions) -> None:
        self._h5py, self._source, self._options = h5py, source, options
        self._visits: Counter[Any] = Counter()
        self._arrays: dict[Any, str] = {}  # by place in the file: the first of its names

    def take(self, root: Any) -> None:
        """Take an array, or a group with all that it holds."""
        self._visit("", root, {self._place(root): ""})

    def _place(self, item: Any) -> Any:
        told = self._h5py.h5o.get_info(item.id)
        return told.fileno, told.addr

    def _visit(self, name: str, item: Any, within: dict[Any, str]) -> None:
        if isinstance(item, self._h5py.Dataset):
            self._array(name, item)
            return
        if not isinstance(item, self._h5py.Group):
            self._source.refuse(name, "is a named type, not an array")
            return
        self._source.groups[name] = self._source.attrs(name, attributes(self._h5py, self._source, name, item))
        self._comment(name, item)
        for key in item:
            self._link(f"{name}/{key}" if name else key, item, key, within)

    def _link(self, label: str, group: Any, key: str, within: dict[Any, str]) -> None:
        h5py, source = self._h5py, self._source
        if not self._options.trusted and (why := hdf5_source.leads_out(h5py, group, key)):
            source.refused.append((label, why))
            return
        try:
            child = group[key]
        except (KeyError, OSError) as error:
            source.refuse(label, f"is a link that leads nowhere: {error}")
            return
        place = self._place(child)
        if isinstance(child, h5py.Dataset):
            if place in self._arrays:
                other = source.called(self._arrays[place])
                source.note(label, f"is the same array as {other}, by a link: each is stored as an array of its own")
        elif place in within:  # a group that holds itself would never end
            source.note(label, f"is a link to {within[place] or '/'}, which it lies in: it is left out")
            return
        elif isinstance(child, h5py.Group):
            self._visits[place] += 1
            if self._visits[place] > _VISITS_MOST:
                raise InvalidError(f"{label} is a group that more than {_VISITS_MOST} paths lead to")
        self._visit(label, child, {**within, place: label})

    def _comment(self, name: str, item: Any) -> None:
        if self._h5py.h5o.get_info(item.id).hdr.mesg.present >> _COMMENT & 1:
            self._source.note(name, "has a comment, which is not kept")

    # --- Arrays -------------------------------------------------------------------------------------------------------

    def _array(self, name: str, item: Any) -> None:
        h5py, source, options = self._h5py, self._source, self._options
        if _is_dimension(item):
            if is_idle_dimension(item):
                source.note(name, f"is a dimension of {item.size} elements which no array has, and is left out")
            return
        self._arrays.setdefault(self._place(item), name)
        if item.shape is None:
            source.refuse(name, "is an empty (null) dataset")
            return
        try:
            dtype = np.dtype(item.dtype)
        except (TypeError, ValueError) as error:
            source.refuse(name, f"is of a type that NumPy has not: {error}")
            return
        if not options.trusted and (why := hdf5_source.reads_elsewhere(item)):
            source.refused.append((name, why))
            return
        if why := hdf5_source.too_large(item, options.limit):
            source.refused.append((name, why))
            return
        text = h5py.check_string_dtype(dtype)
        of_text = text is not None and (text.length is None or text.encoding == "utf-8")
        item_type = h5py.check_vlen_dtype(dtype)
        of_rows = isinstance(item_type, np.dtype) and not item_type.hasobject and item_type.subdtype is None
        if dtype.hasobject and not of_text and not of_rows:
            why = "references" if h5py.check_ref_dtype(dtype) else f"variable-length elements (dtype {dtype})"
            source.refuse(name, f"holds {why}; only fixed-size dtypes can be stored")
            return
        stored = lambda: hdf5_source.stored_boxes(item, options.limit, trusted=options.trusted)  # noqa: E731
        read: Callable[[Box], np.ndarray[Any, Any]] = lambda box: np.asarray(item[(*box, ...)])  # noqa: E731
        fill, chunks, shape = item.fillvalue, item.chunks, item.shape
        if of_text:
            first = fill.decode(errors="replace") if isinstance(fill, bytes) else fill if isinstance(fill, str) else ""
            plain = lambda box: item.asstr()[(*box, ...)]  # noqa: E731
            told = rows_told(item.attrs) if item.ndim == 1 else None
            found = told or fixed_strings(source, name, shape, chunks, plain, stored=stored, fill=first)
            if found is None:
                return
            if isinstance(found, str):
                self._rows(name, item, found, read=plain, stored=stored, fill=first or None)
                return
            dtype, read, fill = found
        if of_rows and not item_type.isnative:
            # h5py 3.16 gives such elements as if they were in the machine's order.
            source.refuse(name, f"holds lists of {item_type.str}, a byte order that h5py does not read in lists")
            return
        if of_rows:
            self._rows(name, item, "list", read=read, stored=stored)
            return
        attrs = {**enumeration_attributes(h5py, source, name, item), **attributes(h5py, source, name, item)}
        self._dimensions(name, item, attrs, more=len(dtype.shape))
        self._lost(name, item)
        if dtype.subdtype is not None:
            inner, (dtype, more) = dtype.shape, dtype.subdtype
            read, stored = _unfolded(item, inner), _of_whole_elements(stored, inner)
            shape, chunks, fill = (*shape, *more), None if chunks is None else (*chunks, *more), None
        if dtype.kind != "V":
            dtype = np.dtype(dtype.str)  # without h5py's metadata (enum names, string encodings)
        how: dict[str, Any] = {"read": read, "chunks": chunks, "stored": stored, "compression": compression_of(item)}
        if not of_text and dtype == item.dtype:
            how["item"] = item
        source.add(name, attrs, shape=shape, dtype=dtype, fill=fill, **how)

    def _rows(self, name: str, item: Any, kind: RaggedKind, *, read: Callable[[Box], Any], **how: Any) -> None:
        """Add a dataset of variable length."""
        attrs = attributes(self._h5py, self._source, name, item)
        self._dimensions(name, item, attrs, more=0)
        self._lost(name, item)
        base, as_read = np.dtype(np.uint8), read
        if kind == "list":
            base = self._h5py.check_vlen_dtype(item.dtype)
            base = np.dtype(base.str) if base.kind != "V" else base
            if rows_told(attrs) == "bytes" and base == np.uint8:
                kind, as_read = (
                    "bytes",
                    lambda box: np.array([*(row.tobytes() for row in read(box)), None], object)[:-1],
                )
        how |= {"shape": item.shape, "chunks": item.chunks, "compression": compression_of(item)}
        self._source.add_rows(name, attrs, kind, base, read=as_read, **how)

    def _dimensions(self, name: str, item: Any, attrs: dict[str, Any], *, more: int) -> None:
        """Keep the names of dimensions, and note scales that an export would not make again."""
        source = self._source
        names, base = [], item.name.rpartition("/")[2] if item.name else name
        for dim in item.dims:
            label = dim.label or (dim[0].name.rpartition("/")[2] if len(dim) else "")
            if not label and item.is_scale and item.ndim == 1:
                label = base
            names.append(label)
        if item.is_scale and (names != [base] or self._scale_name(item) not in ("", base)):
            source.note(name, f"is the dimension scale {self._scale_name(item)!r}, which is not kept as such")
        for dim, label in zip(item.dims, names, strict=True):
            for scale in dim.values():
                where = scale.name or ""
                if where.rpartition("/")[2] != label or not _is_above(where, item.name or ""):
                    source.note(name, f"has the dimension scale {where or 'without a name'}, which is not kept as such")
        kept = bool(names) and all(names) and len(set(names)) == len(names) and not more
        if kept and DIMENSIONS not in attrs:
            attrs[DIMENSIONS] = names
        elif any(names) and not kept:
            source.note(name, f"has dimensions labelled {names}, which are not kept: each needs a name of its own")

    def _scale_name(self, item: Any) -> str:
        told = self._h5py.h5ds.get_scale_name(item.id)
        return told.decode(errors="replace") if isinstance(told, bytes) else str(told or "")

    def _lost(self, name: str, item: Any) -> None:
        """Note what a type, or the array as an object, has beyond its elements."""
        h5py, source = self._h5py, self._source
        kind = item.id.get_type()
        if kind.committed():
            source.note(name, "is of a named type, whose name is not kept")
        if isinstance(kind, h5py.h5t.TypeOpaqueID) and (tag := kind.get_tag()) and not tag.startswith(b"NUMPY:"):
            source.note(name, f"has opaque elements, whose tag {tag.decode(errors='replace')!r} is not kept")
        self._comment(name, item)


def attributes(h5py: Any, source: Source, name: str, item: Any) -> dict[str, Any]:
    """Return the attributes of an object, as h5py reads them, without HDF5's own book-keeping."""
    attrs: dict[str, Any] = {}
    scale = isinstance(item, h5py.Dataset) and item.is_scale
    for key in item.attrs:
        if key in _INTERNAL or (scale and key in _OF_SCALES):
            continue
        try:
            value = item.attrs[key]
            names = h5py.check_enum_dtype(item.attrs.get_id(key).dtype)
        except (TypeError, OSError, ValueError):  # a type that h5py cannot read, text that is not UTF-8
            value, names = h5py.Empty("f"), None
        if names is not None and np.asarray(value).dtype.kind != "b":
            source.note(
                name, f"has the attribute {key!r} of an enumeration, whose names {json.dumps(names)} are not kept"
            )
        attrs[key] = value
    return attrs


def _is_dimension(item: Any) -> bool:
    """Whether a dataset only stands for a dimension of NetCDF. By its bytes: a name may be of any attribute's type."""
    told = np.asarray(item.attrs.get("NAME", b"")).tobytes()
    return told.startswith(_NOT_A_VARIABLE)


def is_idle_dimension(item: Any) -> bool:
    """Whether a dataset stands for a dimension of NetCDF which no variable has."""
    return _is_dimension(item) and "REFERENCE_LIST" not in item.attrs


def enumeration_attributes(h5py: Any, source: Source, name: str, item: Any) -> dict[str, Any]:
    """Return the attributes that keep the names of an enumeration; a note where they cannot."""
    dtype = np.dtype(item.dtype)
    names = h5py.check_enum_dtype(dtype)
    if names is None:
        if "enum" in _metadata_of_parts(dtype):
            source.note(name, "has an enumeration within its elements, whose names are not kept")
        return {}
    taken = [key for key in (FLAG_VALUES, FLAG_MEANINGS) if key in item.attrs]
    if taken or not names or any(one.split() != [one] for one in names):
        why = f"it has the attribute {taken[0]!r}" if taken else "CF's names have no blanks, and are not empty"
        source.note(name, f"is an enumeration, whose names {json.dumps(names)} are not kept: {why}")
        return {}
    names = dict(sorted(names.items(), key=lambda pair: int(pair[1])))
    values = np.array(list(names.values()), np.dtype(dtype.str))
    return {FLAG_VALUES: values, FLAG_MEANINGS: EnumerationNames(" ".join(names))}


def compression_of(item: Any) -> str | None:
    """Return what compresses a dataset by the nearest name that a store has: deflate is Zstandard of that level."""
    properties = item.id.get_create_plist()
    filters = {
        code: values
        for code, _, values, _ in (properties.get_filter(number) for number in range(properties.get_nfilters()))
    }
    packer = next((code for code in filters if code in _PACKERS), None)
    if packer is None or (packer == _BITSHUFFLE and not any(filters[packer][4:5])):
        return None
    levels = filters[packer][:1] if packer in (_GZIP, _ZSTD) else ()
    level = f":{min(int(levels[0]), 19)}" if levels and 0 < int(levels[0]) < 1 << 31 else ""
    shuffled = item.dtype.itemsize > 1 and (_SHUFFLE in filters or packer == _BITSHUFFLE)
    return _PACKERS[packer] + level + (("+bitshuffle" if packer == _BITSHUFFLE else "+shuffle") if shuffled else "")


def _metadata_of_parts(dtype: np.dtype[Any]) -> set[str]:
    """Return the keys of h5py's metadata in the fields of a dtype, at any depth."""
    if dtype.subdtype is not None:
        return set(dtype.subdtype[0].metadata or ()) | _metadata_of_parts(dtype.subdtype[0])
    found: set[str] = set()
    for name in dtype.names or ():
        one = dtype[name]
        if one.kind != "b":
            found |= set(one.metadata or ()) | _metadata_of_parts(one)
    return found


def _is_above(scale: str, array: str) -> bool:
    """Whether a scale's group is the array's or one that this lies in."""
    return f"{array.rpartition('/')[0]}/".startswith(f"{scale.rpartition('/')[0]}/")


def _unfolded(item: Any, inner: tuple[int, ...]) -> Callable[[Box], np.ndarray[Any, Any]]:
    def read(box: Box) -> np.ndarray[Any, Any]:
        outer = len(box) - len(inner)
        found = np.asarray(item[(*box[:outer], ...)])
        return found[(*[slice(None)] * outer, *box[outer:])]

    return read


def _of_whole_elements(
    stored: Callable[[], Iterator[Box] | None], inner: tuple[int, ...]
) -> Callable[[], Iterator[Box] | None]:
    whole: Box = tuple(slice(0, n) for n in inner)

    def boxes() -> Iterator[Box] | None:
        found = stored()
        return None if found is None else ((*box, *whole) for box in found)

    return boxes
