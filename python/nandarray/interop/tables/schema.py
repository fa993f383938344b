"""Types of a text table's columns, and their values in Arrow, in rows of the program ``psf``, and in tests.

| type | Arrow | in a row |
| --- | --- | --- |
| ``int32`` (9 digits at most), ``int64`` (18) | the same | the same |
| ``decimal(P,S)``, P up to 18 | decimal128(P, S) | an integer, times 10^S |
| ``date``, yyyy-mm-dd | date32 | days since 1970-01-01 |
| ``text(N)`` | string, UTF-8 | N bytes, zeros behind the text |
| ``skip`` | not there: the field is passed over | |

A missing value is zeros in a row, and a bit of the row's word ``valid``.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import numpy as np

from nandarray.errors import InvalidError

__all__ = ["TEXT_MAX", "Column", "columns_of"]

#: Bytes of a text, at most: the room of a field of ``psf``.
TEXT_MAX = 4096

_TYPE = re.compile(r"(int32|int64|date|skip)|decimal\((\d+),\s*(\d+)\)|text\((\d+)\)")
_DIGITS_SMALL, _DIGITS_MAX = 9, 18
_EPOCH = datetime.date(1970, 1, 1)
_FLIPPED = {"<": math.ceil, ">=": math.ceil, "<=": math.floor, ">": math.floor}


@dataclass(frozen=True)
class Column:
    """A column of a text table.

    Parameters
    ----------
    name : str
        Its name.
    type : str
        ``"int32"``, ``"int64"``, ``"date"``, ``"decimal(P,S)"`` or ``"text(N)"``; or ``"skip"``, which has no values.
    nullable : bool
        Whether values may be missing.
    """

    name: str
    type: str
    nullable: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidError(f"a column's name must be a text, not {self.name!r}")
        if not isinstance(self.type, str) or _TYPE.fullmatch(self.type) is None:
            raise InvalidError(
                f"column {self.name} must be of type int32, int64, date, decimal(P,S), text(N) or skip, not "
                f"{self.type!r}"
            )
        if self._decimal is not None:
            precision, scale = self._decimal
            if not 0 <= scale < precision <= _DIGITS_MAX:
                raise InvalidError(
                    f"column {self.name}: decimal(P,S) must have 0 <= S < P <= {_DIGITS_MAX}, not {self.type}"
                )
        if self.type.startswith("text") and not 1 <= self._room <= TEXT_MAX:
            raise InvalidError(f"column {self.name}: text(N) must have 1 <= N <= {TEXT_MAX}, not {self.type}")

    @property
    def _decimal(self) -> tuple[int, int] | None:
        found = _TYPE.fullmatch(self.type)
        return (int(found[2]), int(found[3])) if found and found[2] else None

    @property
    def _room(self) -> int:
        found = _TYPE.fullmatch(self.type)
        return int(found[4]) if found and found[4] else 0

    @property
    def field(self) -> str:
        """The kind of field of ``psf``."""
        if self._decimal is not None:
            precision, scale = self._decimal
            return f"decimal32_{scale}" if precision <= _DIGITS_SMALL else f"decimal{scale}"
        if self._room:
            return f"bytes{-(-self._room // 4) * 4}"
        return {"int32": "int32", "int64": "int"}.get(self.type, self.type)

    @property
    def arrow(self) -> Any:
        """The Arrow type."""
        import pyarrow as pa

        if self._decimal is not None:
            return pa.decimal128(*self._decimal)
        return {"int32": pa.int32(), "int64": pa.int64(), "date": pa.date32()}.get(self.type, pa.string())

    def array(self, values: np.ndarray[Any, Any], valid: np.ndarray[Any, Any] | None = None) -> Any:
        """Return values of rows as an Arrow array; ``valid`` says which are there.

        Characters of a text that are none are a ``pyarrow.ArrowInvalid``: see ``lines.unreadable``.
        """
        import pyarrow as pa

        missing = None if valid is None else ~valid
        if not values.size:
            return pa.array([], self.arrow)  # NumPy calls no element aligned, wherever it is; Arrow does not
        if self._room:
            if _has_inner_nul(values):
                raise pa.ArrowInvalid(f"column {self.name}: a text has a NUL byte")
            return pa.array(values, pa.binary(), mask=missing).cast(pa.string())
        if self._decimal is None:
            whole = np.require(values, requirements=["C", "A"])
            plain = pa.int32() if self.type == "date" else self.arrow
            return pa.array(whole, plain, mask=missing).cast(self.arrow)
        wide = values.astype("<i8")
        both = np.stack([wide, wide >> 63], axis=-1)
        bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(self.arrow, len(values), [bits, pa.py_buffer(np.ascontiguousarray(both))])

    def test(self, op: str, value: Any) -> tuple[str, Any] | bool:
        """Return a comparison with a value in the numbers of rows; a truth value where it is the same for all rows.

        Of a missing value it is neither true nor false, so that it stays a comparison. A value that is none of this
        column's type is an InvalidError, as is a column of which no value is read.
        """
        if self.type == "skip":
            raise InvalidError(f"column {self.name} must have a type to be tested: the schema passes over it")
        if self._room:
            if isinstance(value, str):
                value = value.encode()
            if not isinstance(value, bytes):
                raise InvalidError(f"column {self.name} must be compared with text, not with {value!r}")
            if op not in ("==", "!="):
                raise InvalidError(f"column {self.name}, text, must be compared by == and !=, not by {op}")
            return op, value
        exact = self._exact(value)
        if op in _FLIPPED:
            number = _FLIPPED[op](exact)
        elif exact == int(exact):
            number = int(exact)
        else:
            return self._always() if op == "!=" else self._never()
        if not -(2**63) <= number < 2**63:
            return self._always() if (number > 0) == (op in ("<", "<=", "!=")) else self._never()
        return op, number

    def _always(self) -> tuple[str, Any] | bool:
        return (">=", -(2**63)) if self.nullable else True

    def _never(self) -> tuple[str, Any] | bool:
        return ("<", -(2**63)) if self.nullable else False

    def _exact(self, value: Any) -> Decimal | int:
        """Give the value in units of a row."""
        if isinstance(value, datetime.datetime):
            raise InvalidError(
                f"column {self.name} must be compared with a value without a time of day, not with {value!r}"
            )
        if self.type == "date":
            try:
                day = datetime.date.fromisoformat(value) if isinstance(value, str) else value
            except ValueError:
                day = None
            if not isinstance(day, datetime.date):
                raise InvalidError(f"column {self.name} must be compared with a date, not with {value!r}")
            return (day - _EPOCH).days
        try:
            number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        except (InvalidOperation, TypeError, ValueError):
            raise InvalidError(f"column {self.name} must be compared with a number, not with {value!r}") from None
        if isinstance(value, bool) or not number.is_finite():
            raise InvalidError(f"column {self.name} must be compared with a number, not with {value!r}")
        exact = Context(prec=len(number.as_tuple().digits))
        return number.scaleb(self._decimal[1] if self._decimal else 0, exact)


def columns_of(schema: Mapping[str, str]) -> list[Column]:
    """Return the columns of a mapping from names to types; no column, and an unknown type, are an InvalidError."""
    if not schema:
        raise InvalidError("a table must have at least one column")
    return [Column(name, kind) for name, kind in schema.items()]


def _has_inner_nul(values: np.ndarray[Any, Any]) -> bool:
    """Tell whether some text of fixed room has a zero before its end."""
    letters = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.itemsize) != 0
    return bool(np.any(letters[:, 1:] & ~letters[:, :-1]))
