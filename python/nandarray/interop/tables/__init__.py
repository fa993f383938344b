"""Tables of delimited text in a store: scanned beside the data, given to Arrow and to DuckDB.

    >>> from nandarray.interop import tables

``schema`` has the types of columns, ``where`` tests of rows, ``scan`` the table itself, ``dataset`` what engines that
read Arrow datasets ask.
"""

from nandarray.interop.tables.scan import Table, create, open_table
from nandarray.interop.tables.schema import Column
from nandarray.interop.tables.where import Test, col, lowered

__all__ = ["Column", "Table", "Test", "col", "create", "lowered", "open_table"]
