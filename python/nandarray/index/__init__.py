"""Selections become native commands, and texts become index expressions.

An index expression is read by the native module (:func:`nandarray._nandarray.select`), which has all of NumPy's rules.
:mod:`.transfer` moves the elements of a selection, :mod:`.text` parses slices of the command line, :mod:`.buffers`
checks the caller's memory. Nothing here knows a store.
"""
