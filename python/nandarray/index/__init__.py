"""From index expressions to boxes, and from boxes to native commands.

:mod:`.fast` reads the commonest expressions, :mod:`.expression` all of NumPy's, :mod:`.text` those of the command line.
:mod:`.transfer` moves the bytes of a selection, :mod:`.buffers` checks the caller's memory. Nothing here knows a store.
"""
