"""Arrays from and to other libraries and formats.

Dask, xarray, rows and boxes for training (:mod:`nandarray.interop.rows`, :mod:`nandarray.interop.boxes`), Zarr
(:mod:`nandarray.interop.zarr_store`), image pyramids (:mod:`nandarray.interop.pyramid`), and files
(:mod:`nandarray.interop.convert` copies them, :mod:`nandarray.interop.foreign` opens them in place).
"""
