"""TPC-H: its tables as text tables of a store, its 22 queries, and the 26 scans of them that carry a filter.

``schema`` has the columns, ``data`` makes the files by ``tpchgen-cli``, ``queries`` has the SQL with the validation
parameters, ``scans`` the columns and tests that an engine pushes down. Nothing here measures.
"""
