"""The objects of a store of parts, by what keeps them: :mod:`nandarray.parts.blobs.files`."""
