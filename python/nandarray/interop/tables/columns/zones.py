"""Zone maps: of each run of rows of a column, bounds of its values, whether NaN is among them, how many are missing.

A zone is a record of an array beside the column. Bounds are those of what was ever written: a deletion leaves them, and
an append that was cut off may leave them wider than the rows that are there; never narrower. Text and bytes have bounds
of at most ``PREFIX`` bytes, the greater one rounded up. Lists have no bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nandarray.interop.tables.columns.forms import arrow_of, element, is_bytes, is_list, is_text, outer_of, stored

__all__ = ["BOUNDS", "NAN", "OPEN", "UNKNOWN", "ZoneMaker", "bounds", "zone_dtype"]

#: Flags of a zone: it has bounds; NaN is in it; no value is the greater bound; its values have no bounds.
BOUNDS, NAN, OPEN, UNKNOWN = 1, 2, 4, 8
#: Bytes of a bound of text.
PREFIX = 32
_NdArray = np.ndarray[Any, Any]
_types = pa.types


def _is_text(kind: Any) -> bool:
    return is_text(kind) or is_bytes(kind) or _types.is_fixed_size_binary(kind)


def _is_unbounded(kind: Any) -> bool:
    return is_list(kind) or _types.is_fixed_size_list(kind)


def zone_dtype(kind: Any) -> np.dtype[Any]:
    """Return the dtype of zones of a column of a plain type."""
    rest = [("nulls", "<i8"), ("flags", "u1")]
    if _is_unbounded(kind):
        return np.dtype(rest)
    low = np.dtype(f"S{PREFIX}") if _is_text(kind) else element(kind)
    return np.dtype([("low", low), ("high", low), *rest])


@dataclass
class _Zone:
    """The facts of the rows of a zone so far; bounds as values of Python, in units of elements."""

    low: Any = None
    high: Any = None
    nulls: int = 0
    flags: int = 0


class ZoneMaker:
    """Makes the zones of rows that are added one behind the other.

    Parameters
    ----------
    kind : pyarrow.DataType
        The plain type of the column.
    zone_rows : int
        Rows of a zone.
    first : int
        Number of the first row that is added.
    last : numpy.ndarray, optional
        The zone that this row continues, as it is stored.
    """

    def __init__(self, kind: Any, zone_rows: int, first: int, last: _NdArray | None = None) -> None:
        self._kind, self._rows = kind, zone_rows
        self._at = first
        self._done: list[_Zone] = []
        self._zone = _Zone()
        self.first = first // zone_rows
        if last is not None and first % zone_rows:
            self._zone = self._read(last)

    def _read(self, record: Any) -> _Zone:
        found = _Zone(nulls=int(record["nulls"]), flags=int(record["flags"]))
        if found.flags & BOUNDS:
            found.low, found.high = (self._bound(record[one]) for one in ("low", "high"))
        return found

    def _bound(self, stored: Any) -> Any:
        """Return a stored bound as a value of Python that others can be compared with."""
        if self._is_wide:
            return arrow_of(np.asarray(stored).reshape(1), None, self._kind)[0].as_py()
        return bytes(stored) if _is_text(self._kind) else stored.item()

    @property
    def _is_wide(self) -> bool:
        """Whether values are decimals of more digits than an integer has."""
        return _types.is_decimal(self._kind) and element(self._kind).kind == "V"

    def add(self, array: Any) -> None:
        """Add rows, as an Arrow array of the column's plain type, or of a dictionary of it."""
        array = outer_of(array)
        while len(array):
            room = self._rows - self._at % self._rows
            part = array.slice(0, room)
            self._join(part)
            self._at += len(part)
            if len(part) == room:
                self._done.append(self._zone)
                self._zone = _Zone()
            array = array.slice(len(part))

    def _join(self, part: Any) -> None:
        zone = self._zone
        zone.nulls += part.null_count
        if part.null_count == len(part):
            return
        if _is_unbounded(self._kind):
            zone.flags |= UNKNOWN
            return
        if _types.is_dictionary(part.type):
            part = part.dictionary.take(part.indices.unique().drop_null())
        if _is_text(self._kind) or self._is_wide:
            if _is_text(self._kind):
                fixed = _types.is_fixed_size_binary(part.type)
                part = part.cast(pa.binary(part.type.byte_width) if fixed else pa.large_binary())
            found = pc.min_max(part)
            join = self._widen if self._is_wide else self._join_text
            join(found["min"].as_py(), found["max"].as_py())
            return
        values = stored(part.drop_null(), "")
        if values.dtype.kind == "f":
            known = values[~np.isnan(values)]
            zone.flags |= NAN if len(known) < len(values) else 0
            values = known
        if len(values):
            self._widen(values.min().item(), values.max().item())

    def _widen(self, low: Any, high: Any) -> None:
        zone = self._zone
        if zone.flags & BOUNDS:
            low, high = min(low, zone.low), max(high, zone.high)
        zone.low, zone.high = low, high
        zone.flags |= BOUNDS

    def _join_text(self, low: bytes, high: bytes) -> None:
        zone = self._zone
        low = low[:PREFIX]
        top = _above(high)
        if zone.flags & BOUNDS:
            low = min(low, zone.low)
            top = None if top is None or zone.flags & OPEN else max(top, zone.high)
        zone.low, zone.high = low, top or b""
        zone.flags |= BOUNDS | (OPEN if top is None else 0)

    def made(self) -> _NdArray:
        """Return the zones from the first that was added to on, as they are stored."""
        zones = [*self._done, self._zone] if self._at % self._rows else self._done
        found = np.zeros(len(zones), zone_dtype(self._kind))
        found["nulls"] = [one.nulls for one in zones]
        found["flags"] = [one.flags for one in zones]
        known = [number for number, one in enumerate(zones) if one.flags & BOUNDS]
        for key in ("low", "high") if known else ():
            ends = [getattr(zones[number], key) for number in known]
            found[key][known] = stored(pa.array(ends, self._kind), "") if self._is_wide else ends
        return found


def _above(text: bytes) -> bytes | None:
    """Return a bound of a few bytes that is no less; None if there is none. It does not end with zero."""
    if len(text) <= PREFIX and not text.endswith(b"\0"):
        return text
    cut = text[:PREFIX].rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None


def bounds(zones: _NdArray, kind: Any) -> tuple[Any, Any]:
    """Return the bounds of zones as Arrow arrays, null where there is none; of text, as bytes."""
    known = (zones["flags"] & BOUNDS) != 0
    if _is_unbounded(kind):
        nothing = pa.nulls(len(zones))
        return nothing, nothing
    if _is_text(kind):
        topped = known & ((zones["flags"] & OPEN) == 0)
        return _texts(zones["low"], known), _texts(zones["high"], topped)
    there = None if known.all() else known
    low, high = (arrow_of(np.ascontiguousarray(zones[one]), there, kind) for one in ("low", "high"))
    return low, high


def _texts(ends: _NdArray, there: _NdArray) -> Any:
    return pa.array([bytes(one) if has else None for one, has in zip(ends, there, strict=True)], pa.binary())
