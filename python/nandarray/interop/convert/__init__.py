"""Import and export: .npy, .npz, Zarr, HDF5, NetCDF and raw binary, one slab after another.

:mod:`.copying` has the two entrances, :mod:`.sources` and :mod:`.sinks` a class for each format.
"""
