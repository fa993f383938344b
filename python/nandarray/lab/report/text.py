"""Numbers, tables and data as the page shows them: for people, as CSV, as JSON in a script element.

Whatever comes from a run is text to be shown, never markup and never script: templates escape it, and
:func:`script_json` writes JSON that no browser takes for the end of the element it stands in.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nandarray.units import format_number

__all__ = ["as_data", "as_text", "columns_of", "csv_url", "script_json", "show", "slug"]

_SURROGATE = re.compile("[\ud800-\udfff]")


def show(value: Any) -> str:
    """Write any JSON value for a table's cell: plain text, to be escaped."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return format_number(value)
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {show(inner)}" for name, inner in value.items())
    if isinstance(value, Iterable):
        return ", ".join(map(show, value))
    return str(value)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Give the columns of a table: every key of every row once, in order of appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def csv_url(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write a table as a link that holds it: CSV (RFC 4180) in a data URL, full precision."""
    out = io.StringIO()
    columns = columns_of(rows)
    writer = csv.writer(out)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    return "data:text/csv;charset=utf-8," + quote(out.getvalue(), safe=" ,.:;/()[]+*=!@$'", errors="replace")


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, dict, bool)) else value


def as_data(value: Any) -> Any:
    """Make a JSON value fit for a chart: numbers to six digits, None in the place of numbers that are not finite."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): as_data(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_data(inner) for inner in value]
    return value


def script_json(data: Any) -> str:
    r"""Write JSON that may stand in a script element, whatever texts are in it.

    The characters ``<``, ``>``, ``&`` and line separators are escaped.

    >>> from nandarray.lab.report.text import script_json
    >>> script_json("</script><!--")
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(as_data(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    # A lone surrogate, which a damaged or hostile JSON file can have, cannot be written as UTF-8.
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_text(page: str) -> str:
    """Replace the lone surrogates of a text, which cannot be written as UTF-8."""
    return _SURROGATE.sub("\ufffd", page)


def slug(*parts: str) -> str:
    """Make an element's id of letters, digits and hyphens from texts."""
    return "-".join(re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts if part) or "part"
