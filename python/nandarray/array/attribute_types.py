"""Types of attributes that JSON cannot tell: where they are kept, and how a value gets its type back.

A store keeps attributes as JSON. A float32, an array of int16 or bytes are a number, a list and text there; what they
were stands by name in one more attribute, :data:`TYPES`, which imports and ``from_xarray`` write. The name is reserved:
types come along with the attributes that they are of, or not at all.

Types are texts: ``"<f4"`` is a scalar of that dtype, ``"1:<i2"`` an array of one dimension, ``"bytes:utf-8"`` and
``"bytes:latin-1"`` are bytes, :data:`ENUM` is the text of CF's ``flag_meanings`` that names an enumeration's values.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from nandarray.errors import InvalidError

__all__ = ["ENUM", "TYPES", "check_types", "known_types", "merged", "typed"]

#: The attribute that holds the types of other attributes.
TYPES = "_ATTRIBUTE_TYPES"
#: The type of an attribute that has an enumeration's names.
ENUM = "enum"
_BYTES = "bytes:"
_DIMENSIONS_MOST = 64
#: An attribute's most bytes: a type may say a width of text that nothing needs.
BYTES_MOST = 64 << 20
#: What :func:`typed` raises for a value that is not of a type, or for what is no type.
_NOT_OF_IT = (TypeError, ValueError, OverflowError, AttributeError, SyntaxError, RecursionError)


def typed(value: Any, kind: str) -> Any:
    """Return an attribute's JSON value as what it was; one that was of no such type is a ValueError or TypeError."""
    if kind == ENUM:
        if not isinstance(value, str):
            raise TypeError(f"names of an enumeration must be text, not {type(value).__name__}")
        return value
    if kind in (f"{_BYTES}utf-8", f"{_BYTES}latin-1"):
        if not isinstance(value, str):
            raise TypeError(f"bytes must be kept as text, not as {type(value).__name__}")
        return value.encode(kind.removeprefix(_BYTES))
    ndim, _, name = kind.rpartition(":")
    dtype = np.dtype(name)
    if dtype.kind not in "biufcSUMm" or (ndim and not (ndim.isdecimal() and int(ndim) <= _DIMENSIONS_MOST)):
        raise ValueError(f"{kind!r} is no type of an attribute")
    if np.array(value, dtype=object).size * dtype.itemsize > BYTES_MOST:
        raise ValueError(f"an attribute of type {kind!r} has more than {BYTES_MOST} bytes")
    if dtype.kind == "c":
        value = np.array(value, dtype=object)
        array = np.array([complex(item) for item in value.ravel()], dtype).reshape(value.shape)
    elif dtype.kind == "S":
        array = np.char.encode(np.array(value, dtype=np.str_), "latin-1").astype(dtype)
    else:
        array = np.array(value, dtype)
    if array.ndim != int(ndim or 0):
        raise ValueError(f"a value of {array.ndim} dimensions is not of type {kind!r}")
    return array if ndim else array[()]


def merged(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes with others set in them; a value that is set has a type of its own, or that of JSON."""
    kept = {name: kind for name, kind in known_types(before).items() if name not in given}
    if TYPES in given:
        check_types(given)
        kept |= given[TYPES]
    found = {**before, **given}
    found.pop(TYPES, None)
    return {**found, TYPES: kept} if kept else found


def known_types(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the remembered types of attributes, by name, without those that an older version let become untrue."""
    kinds = values.get(TYPES)
    if not isinstance(kinds, Mapping):
        return {}
    found = {}
    for name, kind in kinds.items():
        with suppress(*_NOT_OF_IT):
            if name in values:
                typed(values[name], kind)
                found[name] = kind
    return found


def check_types(values: Mapping[str, Any]) -> None:
    """Refuse attributes whose :data:`TYPES` are not the types of others among them, by an InvalidError."""
    if TYPES not in values:
        return
    kinds = values[TYPES]
    reserved = f"attribute {TYPES!r} is reserved for the types of the other attributes"
    if not isinstance(kinds, Mapping):
        raise InvalidError(f"{reserved}, a mapping from their names, not {kinds!r}")
    for name, kind in kinds.items():
        if name not in values:
            raise InvalidError(f"{reserved}, and there is no attribute {name!r}")
        try:
            typed(values[name], kind)
        except _NOT_OF_IT as error:
            raise InvalidError(f"{reserved}, and {name!r} cannot be of type {kind!r}: {error}") from error
