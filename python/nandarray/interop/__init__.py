"""Arrays from and to other libraries and formats.

Dask, xarray, rows for training (:mod:`nandarray.interop.rows`), and files (:mod:`nandarray.interop.convert`).
"""
