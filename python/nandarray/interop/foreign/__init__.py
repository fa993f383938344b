"""Files of other formats as stores, in place: read-only, by the index of their chunks, without a copy.

:mod:`.opening` tells the format and opens, :mod:`.source` is what a store stands on then, :mod:`.hdf5_chunks` and
:mod:`.zarr_objects` find chunks and decode them, :mod:`.files` gives ranges of bytes. As for an import,
:mod:`nandarray.interop.convert` finds the contents of a file, and the objects that no store can have.
"""
