"""Attributes on their way in and out of a store: what other formats hold, as JSON, and back with its type.

A store keeps attributes as JSON. NetCDF and HDF5 attributes are typed (a ``scale_factor`` in float32 decodes to
float32 data, one in float64 to float64 data), so the types that JSON cannot tell are kept in one more attribute,
:data:`TYPES`. :func:`decode` puts them back; a reader that knows nothing of this sees plain numbers and strings.

It does not keep what has no value outside its file: object references, ragged and empty HDF5 attributes. Those raise
``TypeError``; the caller decides whether to leave them out.
"""

from __future__ import annotations

import base64
import contextlib
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from nandarray.array.attributes import DIMENSIONS

__all__ = ["TYPES", "decode", "dimension_names", "encode", "fill_from_zarr", "fill_to_zarr"]

#: The attribute that holds the NumPy types of other attributes, where JSON cannot tell.
TYPES = "_ATTRIBUTE_TYPES"

_NATIVE = {np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)}


def encode(attrs: Mapping[Any, Any], *, skipped: list[str] | None = None) -> dict[str, Any]:
    """Turn attributes of any NumPy type into JSON values, and :data:`TYPES` where one needs it.

    Where ``skipped`` is given, the names of attributes that cannot be kept go there instead of raising.
    """
    plain: dict[str, Any] = {}
    types: dict[str, str] = dict(attrs.get(TYPES, {}))
    for key, value in attrs.items():
        if key == TYPES:
            continue
        try:
            plain[str(key)], kind = _encode(value)
        except TypeError:
            if skipped is None:
                raise
            skipped.append(str(key))
            continue
        if kind is not None:
            types[str(key)] = kind
    types = {key: kind for key, kind in types.items() if key in plain}
    return {**plain, TYPES: types} if types else plain


def decode(attrs: Mapping[str, Any], *, drop: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the attributes with their original types, less :data:`TYPES` and ``drop``."""
    types = attrs.get(TYPES, {})
    return {
        key: _decode(value, types[key]) if key in types else value
        for key, value in attrs.items()
        if key != TYPES and key not in drop
    }


def dimension_names(attrs: Mapping[str, Any], ndim: int) -> tuple[str, ...] | None:
    """Return an array's dimension names, or None where it has none that fit."""
    names = attrs.get(DIMENSIONS)
    if not isinstance(names, list | tuple) or len(names) != ndim or not all(isinstance(n, str) for n in names):
        return None
    return tuple(names)


def fill_to_zarr(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the attributes with ``_FillValue`` as xarray wants it in Zarr format 3: a float as base64 of a double."""
    fill = attrs.get("_FillValue")
    if dtype.kind == "f" and isinstance(fill, int | float):
        return {**attrs, "_FillValue": base64.standard_b64encode(struct.pack("<d", fill)).decode()}
    return dict(attrs)


def fill_from_zarr(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Undo :func:`fill_to_zarr`; what is not of that form is left alone."""
    fill = attrs.get("_FillValue")
    if dtype.kind == "f" and isinstance(fill, str):
        with contextlib.suppress(ValueError, struct.error):
            return {**attrs, "_FillValue": struct.unpack("<d", base64.b64decode(fill, validate=True))[0]}
    return dict(attrs)


def _encode(value: Any) -> tuple[Any, str | None]:
    if isinstance(value, bytes | np.bytes_):
        try:
            return value.decode(), "bytes:utf-8"
        except UnicodeDecodeError:
            return value.decode("latin-1"), "bytes:latin-1"
    if isinstance(value, np.ndarray | np.generic):
        dtype = value.dtype
        if dtype.kind in "OTSU" and value.ndim == 0:
            return _encode(value.item())
        if dtype.kind in "OT":
            return _encode(value.tolist())
        if dtype.kind == "V":
            raise TypeError(f"an attribute of dtype {dtype} has no JSON form")
        listed = _listed(np.asarray(value))
        if value.ndim == 0:
            return listed, None if dtype in _NATIVE else dtype.str
        return listed, f"{value.ndim}:{dtype.str}"
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}, None
    return _plain(value), None


def _listed(array: np.ndarray[Any, Any]) -> Any:
    """Return an array as nested lists of JSON values; the dtype kept beside them leads back."""
    if array.dtype.kind == "c":
        array = array.astype(np.str_)
    elif array.dtype.kind == "M":
        array = np.datetime_as_string(array)
    elif array.dtype.kind == "m":
        array = array.astype(np.int64)
    elif array.dtype.kind == "S":
        array = np.char.decode(array, "latin-1")
    return array.tolist()


def _plain(value: Any) -> Any:
    """Return a JSON value of a Python one; types inside containers are not kept."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes | np.ndarray | np.generic):
        return _encode(value)[0]
    raise TypeError(f"an attribute of type {type(value).__name__} has no JSON form")


def _decode(value: Any, kind: str) -> Any:
    if kind.startswith("bytes:"):
        return value.encode(kind.removeprefix("bytes:"))
    ndim, _, name = kind.rpartition(":")
    dtype = np.dtype(name)
    if dtype.kind == "c":
        value = np.array(value, dtype=object)
        array = np.array([complex(item) for item in value.ravel()], dtype).reshape(value.shape)
    elif dtype.kind == "S":
        array = np.char.encode(np.array(value, dtype=np.str_), "latin-1").astype(dtype)
    else:
        array = np.array(value, dtype)
    return array if ndim else array[()]
