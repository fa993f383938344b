"""Facts of columns that are known without reading them: their zones, bounds over all of these, encodings, space."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nandarray.array.names import is_hidden
from nandarray.errors import CorruptError, DoorError
from nandarray.interop.tables.columns.layout import Layout, Place, part_of
from nandarray.interop.tables.columns.zones import OPEN, bounds, zone_dtype

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.array.store import Store

__all__ = ["open_zones", "statistics", "zones_of"]

_NdArray = np.ndarray[Any, Any]


def open_zones(store: Store, path: str, place: Place, rows: int, zone_rows: int) -> Array:
    """Open the array of a column's zones.

    Raises
    ------
    CorruptError
        There are too few, or they are none of this column's type.
    """
    array = part_of(store, path, f"{place.base}.zones")
    count = -(-rows // zone_rows)
    dtype = zone_dtype(place.values)
    if array.dtype != dtype or array.ndim != 1 or array.shape[0] < count:
        raise CorruptError(
            f"{array.name!r} must have one dimension of {dtype}, and at least {count} elements, not {array.shape} of "
            f"{array.dtype}"
        )
    return array


def zones_of(store: Store, path: str, place: Place, rows: int, zone_rows: int) -> _NdArray:
    """Read the zones of a column's rows, of an array that :func:`open_zones` gives."""
    return np.asarray(open_zones(store, path, place, rows, zone_rows)[: -(-rows // zone_rows)])


def statistics(store: Store, path: str, layout: Layout, rows: int) -> Any:
    """Return a row for each column of a table."""
    found: dict[str, list[Any]] = {key: [] for key in ("column", "type", "min", "max", "nulls", "encoding", "bytes")}
    for place in layout.places:
        zones = zones_of(store, path, place, rows, layout.zone_rows)
        low, high = bounds(zones, place.values)
        ends = [pc.min_max(_comparable(one))[key] for one, key in ((low, "min"), (high, "max"))]
        found["column"].append(place.name)
        found["type"].append(str(place.field.type))
        found["min"].append(_shown(ends[0]))
        found["max"].append(None if (zones["flags"] & OPEN).any() else _shown(ends[1]))
        found["nulls"].append(int(zones["nulls"].sum()))
        found["encoding"].append(_encoding(store, path, place))
        found["bytes"].append(_bytes(store, path, place))
    kinds = {"nulls": pa.int64(), "bytes": pa.int64()}
    return pa.table({key: pa.array(values, kinds.get(key, pa.string())) for key, values in found.items()})


def _comparable(ends: Any) -> Any:
    kind = ends.type
    if pa.types.is_decimal(kind) and kind.bit_width < 128:  # noqa: PLR2004 (bits of the narrowest that Arrow compares)
        return ends.cast(pa.decimal128(kind.precision, kind.scale))
    if pa.types.is_duration(kind) or pa.types.is_float16(kind):
        return ends.cast(pa.int64() if pa.types.is_duration(kind) else pa.float32())
    return pa.nulls(len(ends), pa.int8()) if pa.types.is_null(kind) else ends


def _shown(end: Any) -> str | None:
    if not end.is_valid:
        return None
    if pa.types.is_binary(end.type):
        return str(end.as_py().decode(errors="backslashreplace"))
    with suppress(pa.ArrowException):
        return str(end.cast(pa.string()).as_py())
    return str(end.as_py())


def _encoding(store: Store, path: str, place: Place) -> str:
    inside = f"{place.base}/values" if place.form in ("text", "bytes", "list") else place.base
    compression = part_of(store, path, inside).compression or "plain"
    return f"codes {compression}" if place.form == "codes" else compression


def _bytes(store: Store, path: str, place: Place) -> int | None:
    name = f"{path}/{place.base}"
    total = 0
    try:
        for one in store._engine.names(name):
            if (one == name or one.startswith((f"{name}/", f"{name}."))) and not is_hidden(one):
                total += int(store.open_array(f"/{one}").stat()["bytes_stored"])
    except (DoorError, KeyError):
        return None
    return total
