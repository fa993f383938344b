"""Arrays from and to other libraries and formats.

Dask, xarray, rows and boxes for training (:mod:`nandarray.interop.rows`,
:mod:`nandarray.interop.boxes`), and files (:mod:`nandarray.interop.convert`).
"""
