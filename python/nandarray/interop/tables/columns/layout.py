"""A table of columns on the medium: names of its arrays, and the attribute that describes it.

A table is a group with the attribute ``_TABLE``; the design note (``docs/design/014-tables-of-columns.md``) and
``docs/reference/tables.md`` have the layout. This module names arrays, writes the description and verifies it; it moves
no rows.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nandarray.errors import CorruptError, ExistsError, InvalidError, NotFoundError, UnsupportedVersionError
from nandarray.interop.tables.columns.forms import FORMS, element, form_of, is_text, plain

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.array.store import Store

__all__ = ["DELETED", "ENDS", "TABLE", "ZONE_ROWS", "Layout", "Place", "check_elements", "part_of"]

#: The attribute of a group that makes it a table of columns.
TABLE = "_TABLE"
VERSION = 1
#: The arrays of a table that are of no column.
DELETED, ENDS = "deleted", "ends"
#: Rows of a zone, if a table says nothing else.
ZONE_ROWS = 65_536
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_ -]{0,99}(?<! )")


@dataclass(frozen=True)
class Place:
    """The place of a column.

    Parameters
    ----------
    field : pyarrow.Field
        Its name and type.
    base : str
        The name of its array within the table's group.
    form : str
        One of :data:`~nandarray.interop.tables.columns.forms.FORMS`.
    """

    field: Any
    base: str
    form: str

    @property
    def name(self) -> str:
        """The column's name."""
        return str(self.field.name)

    def read_as(self, *, coded: bool) -> Any:
        """Return the field of what is read; if ``coded``, text that lies by codes as a dictionary."""
        if coded and self.form == "codes" and is_text(self.field.type):
            return self.field.with_type(pa.dictionary(pa.int32(), self.field.type))
        return self.field

    @property
    def values(self) -> Any:
        """The type of what lies there, without dictionaries and extensions."""
        return plain(self.field.type)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the column's elements in the store, or of those of its lists."""
        if self.form in ("text", "bytes"):
            return np.dtype("u1")
        if self.form == "codes":
            return np.dtype("<i4")
        return element(self.values.value_type if self.form == "list" else self.values)


def part_of(store: Store, path: str, base: str) -> Array:
    """Open an array of a table.

    Raises
    ------
    NotFoundError
        The table is no longer there.
    CorruptError
        The table is there without this array.
    """
    name = f"{path}/{base}"
    try:
        return store.open_array(f"/{name}")
    except (ExistsError, NotFoundError):
        if path not in store:
            raise
        raise CorruptError(f"table {path!r} must have an array {name!r}") from None


def check_elements(array: Array, dtype: np.dtype[Any]) -> None:
    """Refuse an array that has other elements than its column's form says, whose bytes would be read as these.

    Raises
    ------
    CorruptError
        It has.
    """
    if array.dtype != dtype.base or array.ndim != 1 + len(dtype.shape) or array.shape[1:] != dtype.shape:
        raise CorruptError(
            f"{array.name!r} must have rows of {dtype.base} of shape {dtype.shape}, not {array.dtype} of "
            f"{array.shape[1:]}"
        )


@dataclass(frozen=True)
class Layout:
    """The description of a table: the value of ``_TABLE``.

    Parameters
    ----------
    schema : pyarrow.Schema
        Names and types of the columns.
    places : tuple of Place
        Their places, in the order of the schema.
    zone_rows : int
        Rows of a zone.
    """

    schema: Any
    places: tuple[Place, ...]
    zone_rows: int

    @classmethod
    def of(cls, schema: Any, zone_rows: Any, few: Sequence[str] = ()) -> Layout:
        """Settle the layout of a new table; text columns named in ``few`` lie as codes.

        Raises
        ------
        InvalidError
            A column has a type that no form has, or the name of another.
        """
        names = schema.names
        if not names:
            raise InvalidError("a table must have at least one column")
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidError(f"a table must have columns of different names, and {twice[0]!r} is there twice")
        if isinstance(zone_rows, bool) or not isinstance(zone_rows, int) or not 1 <= zone_rows <= 1 << 31:
            raise InvalidError(f"zone_rows must be a number of rows from 1 to 2^31, not {zone_rows!r}")
        places = []
        for number, field in enumerate(schema):
            plainly = _PLAIN.fullmatch(field.name) and field.name not in (DELETED, ENDS)
            form = form_of(field.name, field.type)
            if form == "text" and field.name in few:
                form = "codes"
            places.append(Place(field, field.name if plainly else f"column.{number}", form))
        return cls(schema, tuple(places), zone_rows)

    def told(self) -> dict[str, Any]:
        """Return the attribute's value."""
        return {
            "version": VERSION,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "zone_rows": self.zone_rows,
            "columns": [[one.base, one.form] for one in self.places],
        }

    @classmethod
    def read(cls, path: str, told: Any) -> Layout:
        """Read the attribute's value.

        Raises
        ------
        UnsupportedVersionError
            A later version wrote it.
        CorruptError
            It describes no table.
        """
        version = told.get("version") if isinstance(told, Mapping) else None
        if isinstance(version, int) and version > VERSION:
            raise UnsupportedVersionError(f"table {path!r} has version {version}, this nandarray reads {VERSION}")
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told["schema"], validate=True)))
            columns = [(str(base), str(form)) for base, form in told["columns"]]
            layout = cls.of(schema, told["zone_rows"])
            if len(columns) != len(layout.places) or len({base for base, _ in columns}) < len(columns):
                raise InvalidError(f"{len(columns)} places of {len(layout.places)} columns")
            places = []
            for place, (base, form) in zip(layout.places, columns, strict=True):
                fits = form == place.form or (form == "codes" and is_text(place.values))
                if form not in FORMS or not fits or "/" in base or not base:
                    raise InvalidError(f"column {place.name!r} at {base!r} has the form {form!r}")
                places.append(Place(place.field, base, form))
        except (KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
            raise CorruptError(f"the attribute {TABLE!r} of {path!r} describes no table: {error}") from None
        return cls(schema, tuple(places), layout.zone_rows)

    def fields(self, names: Sequence[str], *, coded: bool = False) -> Any:
        """Return the schema of some columns as they are read; if ``coded``, text that lies by codes as dictionaries."""
        return pa.schema([self.place(name).read_as(coded=coded) for name in names], self.schema.metadata)

    def place(self, name: str) -> Place:
        """Return the place of a column that is there."""
        return next(one for one in self.places if one.name == name)
