"""Arrays from and to other libraries and formats: Dask, xarray, and files (:mod:`nandarray.interop.convert`)."""
