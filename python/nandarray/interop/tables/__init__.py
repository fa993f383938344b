"""Tables in a store: scanned beside the data, given to Arrow, DuckDB and other engines.

    >>> from nandarray.interop import tables

``table`` has what every table offers, ``text`` tables of delimited text, ``schema`` the types of their columns,
``where`` tests of rows, ``dataset`` the one that engines read, ``elements`` arrays of one shape as a table.
"""

from nandarray.interop.tables.elements import ElementTable, elements
from nandarray.interop.tables.schema import Column
from nandarray.interop.tables.table import Piece, Table
from nandarray.interop.tables.text import TextTable, create, open_table
from nandarray.interop.tables.where import Test, col, lowered

__all__ = ["Column", "ElementTable", "Piece", "Table", "Test", "TextTable", "col", "create", "elements", "lowered", "open_table"]
