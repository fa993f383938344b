"""Spark's filters as Arrow's expressions, those that mean the same in both.

Spark orders NaN behind every number and equal to itself, Arrow compares it with nothing; the expressions here are
Spark's meaning. A filter without one stays with Spark.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from pyspark.sql import datasource

__all__ = ["expression_of"]

_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "EqualTo": lambda field, value: field == value,
    "LessThan": lambda field, value: field < value,
    "LessThanOrEqual": lambda field, value: field <= value,
    "GreaterThan": lambda field, value: field > value,
    "GreaterThanOrEqual": lambda field, value: field >= value,
}
#: Comparisons that NaN passes in Spark, turned about.
_ABOVE: dict[str, Callable[[Any, Any], Any]] = {
    "GreaterThan": lambda field, value: ~(field <= value),
    "GreaterThanOrEqual": lambda field, value: ~(field < value),
}
_TEXTS = {"StringStartsWith": pc.starts_with, "StringEndsWith": pc.ends_with, "StringContains": pc.match_substring}


def expression_of(asked: Any, schema: Any) -> Any:
    """Return a filter of Spark as an expression of Arrow over columns of a schema; None where there is none."""
    if isinstance(asked, datasource.Not):
        if isinstance(asked.child, datasource.EqualNullSafe):
            return None
        inner = expression_of(asked.child, schema)
        if isinstance(asked.child, datasource.In) and inner is not None:  # Arrow's is false for a missing value
            return ~inner & _field(asked.child).is_valid()
        return None if inner is None else ~inner
    if not isinstance(asked, datasource.Filter) or len(asked.attribute) != 1 or asked.attribute[0] not in schema.names:
        return None
    kind, word = schema.field(asked.attribute[0]).type, type(asked).__name__
    field = _field(asked)
    if word in ("IsNull", "IsNotNull"):
        return field.is_null() if word == "IsNull" else field.is_valid()
    if word == "EqualNullSafe" and asked.value is None:
        return field.is_null()
    values = list(asked.value) if word == "In" else [asked.value]
    if kinds.is_nested(kind) or any(map(_is_odd, values)):
        return None
    try:
        constants = [pa.scalar(value, kind) for value in values]
    except (pa.ArrowException, TypeError, ValueError):
        return None
    if word == "In":
        return field.isin(pa.array(values, kind))
    if word in _TEXTS:
        return _TEXTS[word](field, asked.value)
    made = _ABOVE.get(word) if kinds.is_floating(kind) else None
    compared = made or _COMPARED.get("EqualTo" if word == "EqualNullSafe" else word)
    return None if compared is None else compared(field, constants[0])


def _field(asked: Any) -> Any:
    return pc.field(asked.attribute[0])


def _is_odd(value: Any) -> bool:
    """Whether a value is missing, or NaN, which is equal to itself in Spark alone."""
    return value is None or (isinstance(value, float) and math.isnan(value))
