"""Attributes of an export in the types of its format: HDF5 and NetCDF have types, Zarr has strict JSON.

A value for which the format has a type is written in it, so that other readers see a number, a list or a text. Another
value (a mapping, None, an empty list, an integer of 70 bits, text with NUL) is JSON text, and the attribute
:data:`~nandarray.array.attribute_types.TYPES` of the file says so; an import gives it back as what it was. An attribute
that cannot be written at all is an :class:`~nandarray.errors.InvalidError` with its name and its array's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from nandarray import dtypes
from nandarray.array.attribute_types import ENUM, TYPES, known_types, typed
from nandarray.errors import InvalidError
from nandarray.interop.convert.attributes import (
    FLAG_MEANINGS,
    FLAG_VALUES,
    JSON,
    STRICT,
    enumeration,
    strict,
)

__all__ = ["HDF5", "NETCDF", "elements_of", "fill_of", "json_only", "write_attributes"]

HDF5, NETCDF = "HDF5", "NetCDF"
#: The most bytes of an attribute that HDF5 keeps beside its object.
_BYTES_MOST = 60_000
#: Kinds of numbers in each format; NetCDF has no booleans, complex numbers, or floats of two bytes.
_KINDS = {HDF5: "biufc", NETCDF: "iuf"}


def write_attributes(form: str, owner: str, attrs: Mapping[str, Any], target: Any) -> None:
    """Write the attributes of ``owner``, as a store has them, into an object of h5py or h5netcdf."""
    kinds: dict[str, str] = {}
    types = known_types(attrs)
    for key, value in attrs.items():
        if key == TYPES:
            continue
        native, kind = _native(form, value, types.get(key))
        if kind is not None:
            kinds[key] = kind
        _put(form, owner, key, native, target)
    if kinds:
        _put(form, owner, TYPES, json.dumps(kinds), target)


def _put(form: str, owner: str, key: str, value: Any, target: Any) -> None:
    reason: Exception | None = None
    if _is_text(key):  # the libraries cut a name at NUL
        try:
            target[key] = value
        except (OSError, RuntimeError):
            raise  # perhaps a disk that is full
        except Exception as error:
            reason = error
        else:
            return
    raise InvalidError(f"{form} cannot hold the attribute {key!r} of {owner!r}: {value!r:.60}") from reason


def _native(form: str, value: Any, kind: str | None) -> tuple[Any, str | None]:
    """Return what to write for an attribute, and its type for :data:`TYPES` where reading would not give it back."""
    if kind == ENUM:
        return (value, ENUM) if _is_text(value) else _as_json(value, kind)
    if kind is None and isinstance(value, list):
        found, told = _list(value), None
    elif kind is None:
        found, told = value, None
    else:
        found, told = typed(value, kind), kind
    if isinstance(found, bytes):
        if form == HDF5 and found and not found.endswith(b"\0"):
            return np.bytes_(found), None
        return (value, kind) if _is_text(value) else _as_json(value, kind)
    if isinstance(found, str):
        return (found, told) if _is_text(found) else _as_json(value, kind)
    if isinstance(found, bool | int | float):
        found = np.asarray(found)[()] if not isinstance(found, int) or -(2**63) <= found < 2**64 else None
    if not isinstance(found, np.ndarray | np.generic):
        return _as_json(value, kind)
    return _native_array(form, found, value, kind)


def _native_array(form: str, found: Any, value: Any, kind: str | None) -> tuple[Any, str | None]:
    dtype, netcdf = found.dtype, form == NETCDF
    if netcdf and (found.ndim > 1 or not found.size):
        return _as_json(value, kind)
    if dtype.kind in "mM":
        if isinstance(value, list):
            found = np.array(value, dtype=object if dtype.kind == "M" else np.int64)
        return (value if found.ndim == 0 else found, kind) if found.size else _as_json(value, kind)
    if dtype.kind == "U":
        texts = found.astype(object)
        return (texts, kind) if found.size and all(map(_is_text, texts.ravel())) else _as_json(value, kind)
    told = None
    if netcdf and dtype.kind == "b":
        told = kind or (f"{found.ndim}:{dtype.str}" if found.ndim else dtype.str)
        found = found.astype(np.int8)
    elif netcdf and found.ndim and found.size == 1:
        told = kind or f"1:{dtype.str}"
    held = found.dtype.kind in _KINDS[form] or (dtype.kind == "S" and not netcdf)
    if not held or found.nbytes > _BYTES_MOST or dtype.char in "gG" or (netcdf and dtype.char == "e"):
        return _as_json(value, kind)
    return found, told


def _as_json(value: Any, kind: str | None) -> tuple[str, str]:
    return json.dumps(strict(value)), JSON if kind is None else f"{JSON}:{kind}"


def _list(value: list[Any]) -> Any:
    """Return a list as an array if its items are of one kind, or all numbers; None if not."""
    try:
        kinds = {type(item) for item in np.array(value, dtype=object).ravel()}
        array = np.array(value) if kinds and (kinds <= {int, float} or kinds == {bool} or kinds == {str}) else None
    except (ValueError, OverflowError):
        return None
    return None if array is None or array.dtype.kind not in "biufU" else array


def _is_text(value: Any) -> bool:
    """Whether a value is text that HDF5 holds: UTF-8 without NUL."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_only(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON without NaN; :data:`TYPES` has those that are written as :func:`strict` does."""
    found: dict[str, Any] = {}
    kinds = known_types(attrs)
    for key, value in attrs.items():
        if key == TYPES:
            continue
        # A missing_value of NaN stays, as xarray writes and reads it.
        found[key] = value if key == "missing_value" and isinstance(value, float) else strict(value)
        if found[key] is not value and found[key] != value:
            kinds[key] = STRICT if key not in kinds else f"{STRICT}:{kinds[key]}"
    return {**found, TYPES: kinds} if kinds else found


def elements_of(attrs: dict[str, Any], dtype: np.dtype[Any]) -> tuple[dict[str, int] | None, dict[str, Any]]:
    """Return the enumeration that elements are of, and the attributes without those that keep it."""
    names = enumeration(attrs)
    if names is None or dtype.kind not in "iu":
        return None, attrs
    bounds = np.iinfo(dtype)
    if not all(bounds.min <= value <= bounds.max for value in names.values()):
        return None, attrs
    kinds = {key: kind for key, kind in known_types(attrs).items() if key not in (FLAG_VALUES, FLAG_MEANINGS)}
    return names, {key: value for key, value in attrs.items() if key not in (FLAG_VALUES, FLAG_MEANINGS, TYPES)} | (
        {TYPES: kinds} if kinds else {}
    )


def fill_of(name: str, attrs: Mapping[str, Any], dtype: Any, *, text: bool) -> Any:
    """Return the attribute ``_FillValue`` as an element of NetCDF's type; one that it cannot hold is refused."""
    if "_FillValue" not in attrs:
        return None
    value = attrs["_FillValue"]
    kind = known_types(attrs).get("_FillValue")
    value = value if kind is None else typed(value, kind)
    if text:
        return value
    try:
        element = np.asarray(value).astype(dtype)
        dtypes.check_held("_FillValue", value, element)
    except (InvalidError, TypeError, ValueError, OverflowError) as error:
        raise InvalidError(f"NetCDF cannot hold the attribute '_FillValue' of {name!r}: {error}") from error
    return element[()]
