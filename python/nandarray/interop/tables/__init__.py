"""Tables in a store: scanned beside the data, given to Arrow, DuckDB and other engines.

    >>> from nandarray.interop import tables

``table`` has what every table offers, ``columns`` tables of an array a column, ``text`` tables of delimited text,
``schema`` the types of their columns, ``element_table`` arrays of one shape as a table, ``where`` tests of rows,
``dataset`` what engines that read Arrow datasets ask, ``polars_scan`` what Polars asks, ``naming`` creates and opens
tables of either kind.
"""

from nandarray.optional import needs

with needs("pyarrow", "lab"):
    import pyarrow as _pyarrow  # noqa: F401 (what is below imports it)

from nandarray.interop.tables.columns import ColumnTable
from nandarray.interop.tables.element_table import ElementTable, elements
from nandarray.interop.tables.naming import create, open_table
from nandarray.interop.tables.polars_scan import scan_polars
from nandarray.interop.tables.schema import Column
from nandarray.interop.tables.table import Piece, Table
from nandarray.interop.tables.text import TextForm, TextTable
from nandarray.interop.tables.where import Test, col, lowered

__all__ = [
    "Column",
    "ColumnTable",
    "ElementTable",
    "Piece",
    "Table",
    "Test",
    "TextForm",
    "TextTable",
    "col",
    "create",
    "elements",
    "lowered",
    "open_table",
    "scan_polars",
]
