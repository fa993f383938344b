"""Stores, groups, arrays and views: names to arrays, and arrays to native commands.

:mod:`.base` is the common base of arrays (:mod:`.array`) and views (:mod:`.view`); :mod:`.lazy` has fields and
converted arrays. :mod:`.group` and :mod:`.store` find arrays by name; :mod:`.opening` and :mod:`.creation` make stores
and arrays.
Public names are in :mod:`nandarray` itself.
"""
