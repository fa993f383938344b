"""Dictionaries of columns that lie as codes: arrays of values, or ragged arrays of text and bytes, which only grow.

A code is the number of its value. Values that no row has any more, or that an append left which was cut off, stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from nandarray.array.ragged import Ragged
from nandarray.array.ragged_creation import make_ragged
from nandarray.interop.tables.columns import encoding
from nandarray.interop.tables.columns.forms import arrow_of, element, is_bytes, is_text, outer_of, stored
from nandarray.interop.tables.columns.layout import Place, check_elements, part_of

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.array.store import Store

__all__ = ["add_values", "codes_most", "make_dictionary", "open_dictionary", "plainly", "values_of"]

#: Values of a dictionary, at most: codes are int32.
_MOST = (1 << 31) - 1


def _kind(place: Place) -> Literal["text", "bytes"] | None:
    """Return the kind of the ragged array of a dictionary; None where it is a plain one."""
    return "text" if is_text(place.values) else "bytes" if is_bytes(place.values) else None


def plainly(values: Any) -> Any:
    """Return values as dictionaries have them in memory: text and bytes with offsets of 64 bits."""
    values = outer_of(values)
    if is_text(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if is_bytes(values.type) else values


def codes_most(place: Place) -> int:
    """Return how many values a column's dictionary may have, by the type of its codes."""
    kind = place.field.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if not pa.types.is_dictionary(kind):
        return encoding.CROWD_MAX
    return min(_MOST, int(np.iinfo(kind.index_type.to_pandas_dtype()).max) + 1)


def make_dictionary(store: Store, path: str, place: Place, compression: str | None) -> None:
    """Make the dictionary of a column, without values."""
    name, kind = f"{path}.dictionary", _kind(place)
    if kind is not None:
        what = (kind, np.dtype("u1"))
        make_ragged(store, name, None, what, {}, compression=compression, encryption_key=None, packed=True)
        return
    dtype = element(place.values)
    store._create(name, (0, *dtype.shape), dtype.base)


def open_dictionary(store: Store, path: str, place: Place) -> Array | Ragged:
    """Open the dictionary of a column by the full name of this.

    Raises
    ------
    CorruptError
        There is none, or it is not of the column's type.
    """
    kind = _kind(place)
    if kind is not None:
        return Ragged(store, f"{path}.dictionary", kind)
    table, _, base = path.rpartition("/")
    array = part_of(store, table, f"{base}.dictionary")
    check_elements(array, element(place.values))
    return array


def add_values(store: Store, path: str, place: Place, values: Any) -> None:
    """Add values that the dictionary does not have."""
    held = open_dictionary(store, path, place)
    held.append(values if isinstance(held, Ragged) else stored(values, place.name))


def values_of(held: Array | Ragged, place: Place, numbers: Any = ...) -> Any:
    """Read the values of a dictionary, all of them or those of some codes, as an Arrow array."""
    if isinstance(held, Ragged):
        return held.to_arrow(numbers)
    return arrow_of(np.asarray(held[numbers]), None, place.values)
