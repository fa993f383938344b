"""Tables of columns: an array a column, for every type of Arrow that is no struct, map or union.

``table`` has the object, ``layout`` what lies where, ``forms`` how types lie in arrays, ``encoding`` how densely,
``dictionary`` values of codes, ``source`` where rows come from, ``write`` creates and appends, ``zones`` bounds of runs
of rows, ``read`` and ``select`` scans.
"""

from nandarray.interop.tables.columns.layout import TABLE
from nandarray.interop.tables.columns.table import ColumnTable, create, is_table, open_table

__all__ = ["TABLE", "ColumnTable", "create", "is_table", "open_table"]
