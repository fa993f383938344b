"""The objects of a store of parts, by what keeps them: a folder (:mod:`.files`) or a bucket (:mod:`.objects`).

:mod:`.base` is the interface of both, on which the rest of :mod:`nandarray.parts` stands.
"""
