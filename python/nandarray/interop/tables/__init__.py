"""Tables in a store: scanned beside the data, given to Arrow, DuckDB and other engines.

    >>> from nandarray.interop import tables

``table`` has what every table offers, ``text`` tables of delimited text, ``schema`` the types of their columns,
``where`` tests of rows, ``dataset`` what engines that read Arrow datasets ask.
"""

from nandarray.interop.tables.schema import Column
from nandarray.interop.tables.table import Piece, Table
from nandarray.interop.tables.text import TextForm, TextTable, create, open_table
from nandarray.interop.tables.where import Test, col, lowered

__all__ = ["Column", "Piece", "Table", "Test", "TextForm", "TextTable", "col", "create", "lowered", "open_table"]
