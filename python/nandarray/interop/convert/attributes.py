"""Attributes on their way in and out of a store: what other formats hold, as JSON, and back with its type.

A store keeps attributes as JSON. NetCDF and HDF5 attributes are typed (a ``scale_factor`` in float32 decodes to
float32 data, one in float64 to float64 data), so the types that JSON cannot tell are kept in one more attribute,
:data:`TYPES`. :func:`decode` puts them back; a reader that knows nothing of this sees plain numbers and strings.

The other way, a format has no type for some values: HDF5 and NetCDF none for a mapping, None or an empty list, Zarr's
JSON none for NaN. They are written as JSON text, or with :func:`strict` numbers, and :data:`TYPES` in that file says
so, with types of its own: ``"json"`` is JSON text, ``"json:<f2"`` JSON text of a value of that type, ``"strict"``
and ``"strict:<f4"`` are JSON values with such numbers. :func:`encode` understands them.

It does not keep what has no value outside its file: object references, ragged and empty HDF5 attributes. Those raise
``TypeError``; the caller decides whether to leave them out.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from nandarray.array.attribute_types import BYTES_MOST, ENUM, TYPES, known_types, typed
from nandarray.array.attributes import DIMENSIONS
from nandarray.errors import InvalidError

__all__ = [
    "ENUM",
    "FLAG_MEANINGS",
    "FLAG_VALUES",
    "JSON",
    "STRICT",
    "TYPES",
    "EnumerationNames",
    "decode",
    "dimension_names",
    "encode",
    "enumeration",
    "fill_from_zarr",
    "fill_to_zarr",
    "strict",
]

#: CF's attributes for the values and the names of an enumeration.
FLAG_VALUES, FLAG_MEANINGS = "flag_values", "flag_meanings"
#: Types of attributes in a file that has no type for them: JSON text, and JSON with :func:`strict` numbers.
JSON, STRICT = "json", "strict"

_NATIVE = {np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)}
#: The key of an object that stands for a number which JSON has not.
_FLOAT = "float"


class EnumerationNames(str):
    """Names of an array's enumeration, as the text of ``flag_meanings``; kept with the type :data:`ENUM`."""

    __slots__ = ()


def encode(attrs: Mapping[Any, Any], *, skipped: list[str] | None = None) -> dict[str, Any]:
    """Turn attributes of any NumPy type into JSON values, and :data:`TYPES` where one needs it.

    Where ``skipped`` is given, the names of attributes that cannot be kept go there instead of raising.
    """
    plain: dict[str, Any] = {}
    types: dict[str, str] = {}
    for key, value in attrs.items():
        if key == TYPES:
            continue
        try:
            if _bytes_of(value) > BYTES_MOST:
                raise TypeError(f"attribute {str(key)!r} has more than {BYTES_MOST} bytes")
            plain[str(key)], kind = _encode(value)
        except TypeError:
            if skipped is None:
                raise
            skipped.append(str(key))
            continue
        if kind is not None:
            types[str(key)] = kind
    try:
        _restore(plain, types, attrs.get(TYPES))
    except (TypeError, ValueError, OverflowError, AttributeError, SyntaxError, RecursionError) as error:
        if skipped is None:
            raise InvalidError(
                f"attribute {TYPES!r} is reserved for the types of the other attributes: {error}"
            ) from error
        skipped.append(TYPES)
    return {**plain, TYPES: types} if types else plain


def _bytes_of(value: Any) -> int:
    """Return the size of an array or a text in bytes; 0 for what has none in advance."""
    return len(value) if isinstance(value, str | bytes) else int(getattr(value, "nbytes", 0))


def _restore(plain: dict[str, Any], types: dict[str, str], given: Any) -> None:
    """Give attributes the types that a file remembers of them: all, or none by an error."""
    if given is None:
        return
    kinds = json.loads(given) if isinstance(given, str | bytes) else given
    found: dict[str, tuple[Any, str | None]] = {}
    for name, kind in kinds.items():
        if name not in plain or types.get(name) == ENUM:  # what the array itself is says more than an attribute
            continue
        value = plain[name]
        form, _, rest = kind.partition(":")
        if form in (JSON, STRICT):
            value, kind = _loose(json.loads(value) if form == JSON else value), rest
        elif kind.startswith("1:") and not isinstance(value, list):
            value = [value]  # NetCDF has no lists of one element
        if kind == ENUM:
            found[name] = typed(value, kind), kind
        else:
            found[name] = _encode(typed(value, kind)) if kind else (value, None)
    for name, (value, told) in found.items():
        plain[name] = value
        types.pop(name, None)
        types.update({} if told is None else {name: told})


def decode(attrs: Mapping[str, Any], *, drop: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the attributes with their original types, less :data:`TYPES` and ``drop``."""
    types = known_types(attrs)
    return {
        key: typed(value, types[key]) if key in types else value
        for key, value in attrs.items()
        if key != TYPES and key not in drop
    }


def dimension_names(attrs: Mapping[str, Any], ndim: int) -> tuple[str, ...] | None:
    """Return an array's dimension names, or None where it has none that fit."""
    names = attrs.get(DIMENSIONS)
    if not isinstance(names, list | tuple) or len(names) != ndim or not all(isinstance(n, str) for n in names):
        return None
    return tuple(names)


def enumeration(attrs: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the names and values of the enumeration that an array's elements were of, if they still say so."""
    if known_types(attrs).get(FLAG_MEANINGS) != ENUM:
        return None
    names, values = attrs.get(FLAG_MEANINGS), attrs.get(FLAG_VALUES)
    if not isinstance(names, str) or not isinstance(values, list) or not all(type(value) is int for value in values):
        return None
    listed = names.split()
    if len(listed) != len(values) or len(set(listed)) != len(listed):
        return None
    return dict(zip(listed, values, strict=True))


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


def strict(value: Any) -> Any:
    """Return a JSON value without NaN and infinities: each is an object, ``{"float": "nan"}``.

    So that nothing else looks like it, a mapping whose only key is ``float`` is the value of such an object.

    >>> from nandarray.interop.convert.attributes import strict
    >>> strict([1.0, float("nan"), {"float": "nan"}])
    [1.0, {'float': 'nan'}, {'float': {'float': 'nan'}}]
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: str(value)}
    if isinstance(value, Mapping):
        inner = {key: strict(item) for key, item in value.items()}
        return {_FLOAT: inner} if set(inner) == {_FLOAT} else inner
    return [strict(item) for item in value] if isinstance(value, list | tuple) else value


def _loose(value: Any) -> Any:
    """Undo :func:`strict`."""
    if isinstance(value, Mapping):
        if set(value) == {_FLOAT} and isinstance(value[_FLOAT], str):
            return float(value[_FLOAT])
        inner = value[_FLOAT] if set(value) == {_FLOAT} else value
        return {key: _loose(item) for key, item in inner.items()}
    return [_loose(item) for item in value] if isinstance(value, list) else value


def _encode(value: Any) -> tuple[Any, str | None]:
    if isinstance(value, EnumerationNames):
        return str(value), ENUM
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
            if any(isinstance(item, np.ndarray) for item in value.ravel()):
                raise TypeError("a ragged attribute has no JSON form")
            return _encode(value.tolist())
        if dtype.kind not in "biufcSUMm" or dtype.char in "gG":
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
