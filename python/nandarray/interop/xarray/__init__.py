"""xarray: it reads stores (:mod:`.backend`); :mod:`.plan`, :mod:`.encoding` and :mod:`.write` write datasets."""
