"""Types of tables in Spark: Arrow's that Spark has not become the next wider one of its own.

Unsigned integers become signed ones of twice the width (``uint64`` a decimal of 20 digits), float16 float32, times and
timestamps the units of Spark, dictionaries their values. A value that Spark cannot hold, such as a nanosecond of a
timestamp, is an error where it is read; none is rounded.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as kinds
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from nandarray.errors import InvalidError

__all__ = ["as_spark", "fitted", "spark_schema"]

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_DIGITS = 38


def spark_schema(schema: Any) -> Any:
    """Return a table's schema as Spark has it.

    Raises
    ------
    InvalidError
        Spark has no such type.
    """
    fields = [pa.field(one.name, _narrowed(one.name, one.type), one.nullable) for one in schema]
    return from_arrow_schema(pa.schema(fields))


def as_spark(schema: Any) -> Any:
    """Return the Arrow schema in which Spark takes rows of a schema of its own, and gives them.

    Raises
    ------
    InvalidError
        It is no schema of Spark's.
    """
    if not isinstance(schema, StructType):
        raise InvalidError(f"schema must be a StructType of Spark, not {schema!r:.60}")
    return to_arrow_schema(schema, timezone="UTC")


def fitted(batch: Any, schema: Any) -> Any:
    """Return a batch with the types of a schema, by names.

    Raises
    ------
    InvalidError
        It is no batch, or a value cannot be held by the type that it should have.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise InvalidError(f"rows must come in batches of Arrow, not in {batch!r:.60}")
    arrays = []
    for field in schema:
        array = batch.column(field.name)
        try:
            arrays.append(array if array.type.equals(field.type) else _cast(array, field.type))
        except pa.ArrowException as error:
            told = f"column {field.name!r} must fit {field.type}, of {array.type}: {error}"
            raise InvalidError(told) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: Any, wanted: Any) -> Any:
    if kinds.is_dictionary(array.type):
        return _cast(array.dictionary_decode(), wanted)
    if kinds.is_dictionary(wanted):
        return _cast(array, wanted.value_type).dictionary_encode().cast(wanted)
    return array if array.type.equals(wanted) else array.cast(wanted)


def _narrowed(name: str, kind: Any) -> Any:
    """Give the Arrow type of Spark's in place of a table's."""
    if kinds.is_dictionary(kind):
        return _narrowed(name, kind.value_type)
    if kinds.is_fixed_size_binary(kind):
        return pa.binary()
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if kinds.is_duration(kind):
        return pa.duration("us")
    if kinds.is_time(kind):
        return pa.time64("ns")
    if kinds.is_decimal(kind):
        if kind.precision > _DIGITS or not 0 <= kind.scale <= kind.precision:
            raise InvalidError(f"column {name!r} must have a decimal of at most {_DIGITS} digits for Spark, not {kind}")
        return pa.decimal128(kind.precision, kind.scale)
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        inner = kind.value_field
        return pa.list_(pa.field("element", _narrowed(name, inner.type), inner.nullable))
    return _WIDER.get(kind, kind)
